/* memory.h: a range of addresses of its own is device memory, so that it can be told from host memory. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "exec/cuda/emulate/memory.h"

#include "exec/cuda/emulate/calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 256, GUARD = 64, NEW = 0xA5, AFTER = 0x5A, PAGE = 1 << 16 };
enum { EDGE_PAGE = 4096, EDGE_ALIGN = 16 };
typedef enum edge { NO_EDGE, EDGE_AFTER, EDGE_BEFORE } edge;
#define RANGE_LEN ((uint64_t)1 << 36)

typedef struct pinned_block {
    uint8_t *start;
    uint64_t len;
    struct pinned_block *next;
} pinned_block;

typedef struct block {
    uint8_t *space; /* what it takes up begins here */
    uint8_t *start;
    uint64_t len;
    struct block *next; /* by address */
} block;

static struct {
    pthread_mutex_t lock;
    uint8_t *range;
    block *blocks;
    pinned_block *pinned;
    uint64_t top; /* bytes of the range that were used at any time; whole pages */
    uint32_t users;
    edge edge;
    int protects;
    int reaches_all; /* host memory, too */
    uint64_t acquired, held, fail_at;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tg_emulated_give_up(const char *what)
{
    (void)fprintf(stderr, "emulated GPU: %s\n", what);
    abort();
}

/* ---- protection; all with the lock held -------------------------------------------------------------------------------- */

static void protect(int how)
{
    if (memory.protects && memory.top > 0 && mprotect(memory.range, memory.top, how) != 0) {
        tg_emulated_give_up("its memory cannot be protected");
    }
}

static void unlock(void)
{
    if (memory.users++ == 0) {
        protect(PROT_READ | PROT_WRITE);
    }
}

static void lock(void)
{
    if (--memory.users == 0) {
        protect(PROT_NONE);
    }
}

void tg_emulated_unlock(void)
{
    pthread_mutex_lock(&memory.lock);
    unlock();
    pthread_mutex_unlock(&memory.lock);
}

void tg_emulated_lock(void)
{
    pthread_mutex_lock(&memory.lock);
    lock();
    pthread_mutex_unlock(&memory.lock);
}

/* ---- blocks; all with the lock held ------------------------------------------------------------------------------------ */

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

/* Whole words, as kernels read them; then bytes that nobody writes. With edges, whole pages, of which the last or the first is protected. */
static uint64_t space_of(uint64_t len)
{
    return memory.edge != NO_EDGE ? round_up(len, EDGE_PAGE) + EDGE_PAGE : round_up(len + 8 + GUARD, ALIGN);
}

/* Bytes of this space before a block. */
static uint64_t bytes_before(uint64_t len)
{
    uint64_t inside = round_up(len, EDGE_PAGE) - round_up(len, EDGE_ALIGN);
    return memory.edge == EDGE_AFTER ? inside : memory.edge == EDGE_BEFORE ? EDGE_PAGE : 0;
}

/* Bytes after a block that nobody writes. */
static uint64_t bytes_after(uint64_t len)
{
    return memory.edge == NO_EDGE      ? space_of(len) - len
           : memory.edge == EDGE_AFTER ? round_up(len, EDGE_ALIGN) - len
                                       : round_up(len, EDGE_PAGE) - len;
}

static int is_device(const void *at)
{
    return memory.range != NULL && (const uint8_t *)at >= memory.range &&
           (const uint8_t *)at < memory.range + RANGE_LEN;
}

/* The block that has these bytes; NULL: none has all of them. */
static const block *block_of(const void *at, uint64_t len)
{
    for (const block *b = memory.blocks; b != NULL; b = b->next) {
        if ((const uint8_t *)at >= b->start && (const uint8_t *)at + len <= b->start + b->len) {
            return b;
        }
    }
    return NULL;
}

static int new_byte(void)
{
    const char *byte = getenv("TG_EMULATED_NEW");
    return byte == NULL ? NEW : (int)strtol(byte, NULL, 0);
}

/* Reserves addresses; pages are there when they are first used. */
static int reserve(void)
{
    if (memory.range != NULL) {
        return 1;
    }
    const char *wanted = getenv("TG_EMULATED_EDGE");
    memory.edge = wanted == NULL ? NO_EDGE : strcmp(wanted, "before") == 0 ? EDGE_BEFORE : EDGE_AFTER;
    memory.reaches_all = getenv("TG_EMULATED_REACH") != NULL;
    void *range = mmap(NULL, RANGE_LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory.range = range == MAP_FAILED ? NULL : range;
    memory.protects = getenv("TG_EMULATED_PROTECT") != NULL && memory.edge == NO_EDGE; /* edges would be lost */
    return memory.range != NULL;
}

/* Protects the edge of a block, or makes it memory again. */
static void set_edge(const block *b, int how)
{
    uint8_t *page = memory.edge == EDGE_BEFORE ? b->space : b->space + space_of(b->len) - EDGE_PAGE;
    if (memory.edge != NO_EDGE && mprotect(page, EDGE_PAGE, how) != 0) {
        tg_emulated_give_up("there are too many blocks for edges");
    }
}

/* Takes the first gap that is long enough. */
static uint8_t *take(uint64_t len)
{
    block *b = malloc(sizeof *b), **at = &memory.blocks;
    if (b == NULL || !reserve() || len > RANGE_LEN / 2) {
        free(b);
        return NULL;
    }
    uint8_t *space = memory.range;
    for (; *at != NULL && (uint64_t)((*at)->space - space) < space_of(len); at = &(*at)->next) {
        space = (*at)->space + space_of((*at)->len);
    }
    uint64_t end = (uint64_t)(space - memory.range) + space_of(len);
    if (end > RANGE_LEN) {
        free(b);
        return NULL;
    }
    *b = (block){.space = space, .start = space + bytes_before(len), .len = len, .next = *at};
    *at = b;
    unlock();
    if (end > memory.top) {
        memory.top = round_up(end, PAGE);
    }
    memset(b->start, new_byte(), len);
    memset(b->start + len, AFTER, bytes_after(len));
    set_edge(b, PROT_NONE);
    lock();
    return b->start;
}

static void give_back(const void *start)
{
    block **at = &memory.blocks;
    while (*at != NULL && (*at)->start != start) {
        at = &(*at)->next;
    }
    block *b = *at;
    if (b == NULL) {
        tg_emulated_give_up("memory is released that is not in use");
        return;
    }
    unlock();
    for (uint64_t i = 0; i < bytes_after(b->len); i++) {
        if (b->start[b->len + i] != AFTER) {
            tg_emulated_give_up("a kernel has written after the end of a block");
        }
    }
    set_edge(b, PROT_READ | PROT_WRITE);
    lock();
    *at = b->next;
    free(b);
}

/* ---- pinned host memory; all with the lock held ------------------------------------------------------------------------- */

static void *pin(uint64_t len)
{
    pinned_block *p = malloc(sizeof *p);
    uint8_t *start = malloc(len);
    if (p == NULL || start == NULL) {
        free(p);
        free(start);
        return NULL;
    }
    *p = (pinned_block){.start = start, .len = len, .next = memory.pinned};
    memory.pinned = p;
    memset(start, new_byte(), len);
    return start;
}

static void unpin(const void *start)
{
    pinned_block **at = &memory.pinned;
    while (*at != NULL && (*at)->start != start) {
        at = &(*at)->next;
    }
    pinned_block *p = *at;
    if (p == NULL) {
        tg_emulated_give_up("pinned memory is released that is not in use");
        return;
    }
    *at = p->next;
    free(p->start);
    free(p);
}

/* ---- for calls ----------------------------------------------------------------------------------------------------------- */

void *tg_emulated_take(uint64_t len, int is_pinned)
{
    pthread_mutex_lock(&memory.lock);
    int fails = ++memory.acquired == memory.fail_at;
    void *start = fails ? NULL : is_pinned ? pin(len) : take(len);
    memory.held += start != NULL;
    pthread_mutex_unlock(&memory.lock);
    return start;
}

void tg_emulated_give_back(const void *start, int is_pinned)
{
    pthread_mutex_lock(&memory.lock);
    memory.held--;
    if (is_pinned) {
        unpin(start);
    } else {
        give_back(start);
    }
    pthread_mutex_unlock(&memory.lock);
}

int tg_emulated_is_device(const void *at)
{
    pthread_mutex_lock(&memory.lock);
    int is = is_device(at);
    pthread_mutex_unlock(&memory.lock);
    return is;
}

int tg_emulated_is_pinned(const void *at)
{
    pthread_mutex_lock(&memory.lock);
    const pinned_block *p = memory.pinned;
    while (p != NULL && ((const uint8_t *)at < p->start || (const uint8_t *)at >= p->start + p->len)) {
        p = p->next;
    }
    pthread_mutex_unlock(&memory.lock);
    return p != NULL;
}

int tg_emulated_has(const void *at, uint64_t len)
{
    pthread_mutex_lock(&memory.lock);
    int has = block_of(at, len) != NULL || (memory.reaches_all && at != NULL && !is_device(at));
    pthread_mutex_unlock(&memory.lock);
    return has;
}

/* ---- for tests --------------------------------------------------------------------------------------------------------- */

void tg_emulated_fail(uint64_t nth)
{
    pthread_mutex_lock(&memory.lock);
    memory.fail_at = nth == 0 ? 0 : memory.acquired + nth;
    pthread_mutex_unlock(&memory.lock);
}

uint64_t tg_emulated_acquired(void)
{
    pthread_mutex_lock(&memory.lock);
    uint64_t n = memory.acquired;
    pthread_mutex_unlock(&memory.lock);
    return n;
}

uint64_t tg_emulated_held(void)
{
    pthread_mutex_lock(&memory.lock);
    uint64_t n = memory.held;
    pthread_mutex_unlock(&memory.lock);
    return n;
}
