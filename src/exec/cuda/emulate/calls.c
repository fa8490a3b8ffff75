/* gpu_calls.h on the CPU, for tests. Device memory is a range of addresses of its own, so that it can be told from host memory.
 *
 * New memory is filled with 0xA5. Bytes after each block are checked when it is released. Copies must stay inside blocks. With
 * TG_EMULATED_PROTECT in the environment, only kernels and copies can touch device memory: to all other code it is protected, as on a
 * machine with a GPU. That costs two calls of mprotect a kernel. With TG_EMULATED_REACH, all memory counts as memory of the GPU, so that
 * programs that allocate it themselves can be tested. With TG_EMULATED_EDGE=after or =before, what is after or before a block cannot be
 * touched at all, reads included: a page that is protected is there. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "exec/cuda/emulate/calls.h"

#include "exec/cuda/emulate/stream.h"
#include "exec/cuda/gpu_calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 256, GUARD = 64, NEW = 0xA5, AFTER = 0x5A, PAGE = 1 << 16 };
enum { EDGE_PAGE = 4096, EDGE_ALIGN = 16 };
typedef enum edge { NO_EDGE, EDGE_AFTER, EDGE_BEFORE } edge;
#define RANGE_LEN ((uint64_t)1 << 36)

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
    uint64_t top; /* bytes of the range that were used at any time; whole pages */
    uint32_t users;
    edge edge;
    int protects;
    int reaches_all; /* host memory, too */
    int captures;
    uint64_t acquired, held, fail_at;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void give_up(const char *what)
{
    (void)fprintf(stderr, "emulated GPU: %s\n", what);
    abort();
}

/* ---- protection; all with the lock held -------------------------------------------------------------------------------- */

static void protect(int how)
{
    if (memory.protects && memory.top > 0 && mprotect(memory.range, memory.top, how) != 0) {
        give_up("its memory cannot be protected");
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
        give_up("there are too many blocks for edges");
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
    memset(b->start, NEW, len);
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
        give_up("memory is released that is not in use");
        return;
    }
    unlock();
    for (uint64_t i = 0; i < bytes_after(b->len); i++) {
        if (b->start[b->len + i] != AFTER) {
            give_up("a kernel has written after the end of a block");
        }
    }
    set_edge(b, PROT_READ | PROT_WRITE);
    lock();
    *at = b->next;
    free(b);
}

static void refuse_capture(int is_bad)
{
    if (memory.captures && is_bad) {
        give_up("a CUDA graph cannot hold this");
    }
}

void tg_emulated_capture(int is_on)
{
    memory.captures = is_on;
}

int tg_gpu_call_is_capturing(void *stream)
{
    (void)stream;
    return memory.captures;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------- */

int tg_gpu_call_find(int ordinal, void *stream, const char **why)
{
    (void)stream;
    *why = "the emulation has one GPU, number 0";
    return ordinal != 0;
}

void tg_gpu_call_name(char *out, size_t cap, int ordinal)
{
    (void)ordinal;
    (void)snprintf(out, cap, "emulated GPU");
}

void tg_gpu_call_enter(int ordinal)
{
    (void)ordinal;
}

int tg_gpu_call_acquire(void **out, uint64_t len, int pinned, const char **why)
{
    refuse_capture(1);
    pthread_mutex_lock(&memory.lock);
    int fails = ++memory.acquired == memory.fail_at;
    *out = fails ? NULL : pinned ? malloc(len) : take(len);
    memory.held += *out != NULL;
    pthread_mutex_unlock(&memory.lock);
    *why = "out of memory";
    if (*out != NULL && pinned) {
        memset(*out, NEW, len);
    }
    return *out == NULL;
}

void tg_gpu_call_release(void *memory_of, int pinned)
{
    pthread_mutex_lock(&memory.lock);
    memory.held--;
    if (pinned) {
        free(memory_of);
    } else {
        give_back(memory_of);
    }
    pthread_mutex_unlock(&memory.lock);
}

void tg_gpu_call_copy(void *to, const void *from, uint64_t len, void *stream)
{
    (void)stream;
    refuse_capture(!is_device(to) || !is_device(from));
    pthread_mutex_lock(&memory.lock);
    if ((is_device(to) && block_of(to, len) == NULL) || (is_device(from) && block_of(from, len) == NULL)) {
        give_up("a copy is not inside a block");
    }
    unlock();
    pthread_mutex_unlock(&memory.lock);
    memmove(to, from, len);
    tg_emulated_lock();
}

void tg_gpu_call_fill(void *to, int byte, uint64_t len, void *stream)
{
    (void)stream;
    pthread_mutex_lock(&memory.lock);
    if (block_of(to, len) == NULL && (is_device(to) || !memory.reaches_all)) {
        give_up("memory that is filled is not inside a block");
    }
    unlock();
    pthread_mutex_unlock(&memory.lock);
    memset(to, byte, len);
    tg_emulated_lock();
}

static _Atomic uint64_t waits;

uint64_t tg_emulated_waits(void)
{
    return waits;
}

int tg_gpu_call_wait(void *stream, const char **why)
{
    (void)stream;
    waits++;
    refuse_capture(1);
    *why = NULL;
    return 0;
}

int tg_gpu_call_overlaps(int ordinal)
{
    (void)ordinal;
    return 0;
}

int tg_gpu_call_can_use(const void *at, int ordinal)
{
    (void)ordinal;
    pthread_mutex_lock(&memory.lock);
    int can = block_of(at, 1) != NULL || (memory.reaches_all && at != NULL && !is_device(at));
    pthread_mutex_unlock(&memory.lock);
    return can;
}

/* ---- streams: what kernels and copies do is done at once; others may put work on a stream that takes time (stream.h) ---------- */

typedef struct emulated_mark {
    tg_emulated_stream *stream; /* NULL: nothing on it takes time */
    uint64_t at;
} emulated_mark;

int tg_gpu_call_new_stream(void **out, const char **why)
{
    tg_emulated_stream *stream = calloc(1, sizeof *stream);
    *out = stream;
    *why = "out of memory";
    if (stream != NULL) {
        stream->magic = TG_EMULATED_STREAM;
    }
    return stream == NULL;
}

void tg_gpu_call_free_stream(void *stream)
{
    free(stream);
}

int tg_gpu_call_new_mark(void **out, const char **why)
{
    *out = calloc(1, sizeof(emulated_mark));
    *why = "out of memory";
    return *out == NULL;
}

void tg_gpu_call_free_mark(void *mark)
{
    free(mark);
}

int tg_gpu_call_mark(void *mark, void *stream, const char **why)
{
    emulated_mark *m = mark;
    tg_emulated_stream *s = stream;
    *why = NULL;
    m->stream = s != NULL && s->magic == TG_EMULATED_STREAM ? s : NULL;
    m->at = m->stream != NULL ? atomic_load(&m->stream->put) : 0;
    return 0;
}

int tg_gpu_call_follow(void *stream, void *mark, const char **why)
{
    (void)stream;
    (void)mark;
    *why = NULL;
    return 0;
}

int tg_gpu_call_passed(void *mark, const char **why)
{
    const emulated_mark *m = mark;
    *why = NULL;
    return m->stream != NULL && atomic_load(&m->stream->done) < m->at;
}

int tg_gpu_call_idle(void *stream, const char **why)
{
    (void)stream; /* the GPU's own, on which kernels and copies are done when they are put */
    *why = NULL;
    return 0;
}

int tg_gpu_call_await(void *mark, const char **why)
{
    waits++;
    refuse_capture(1);
    while (tg_gpu_call_passed(mark, why) != 0) {
        sched_yield();
    }
    return 0;
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
