/* The threads of a block as fibers: each has a stack, and hands on to the next one where it must wait. They take turns by their numbers; with
 * TG_EMULATED_ORDER=SEED in an order that is drawn again and again, so that a barrier that is missing shows. Blocks run one after the other. In
 * launches of blocks that may wait for each other, the next one begins when all that run wait. */
#include "exec/cuda/emulate/cuda.h"

#include "exec/cuda/emulate/calls.h"

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

enum { THREADS_MAX = 1024, WARP = 32, STACK_LEN = 128 << 10, SHARED_MAX = 227 << 10 };
enum { BLOCKS_MAX = 64 }; /* that wait for each other at once; a GPU that runs fewer is given no such kernel */
enum { STACK_STEP = STACK_LEN + 4096 + 5 * 64 }; /* no power of two: the tops of stacks would share few lines of the caches */

thread_local tg_emulated_index threadIdx, blockIdx, blockDim, gridDim;

namespace
{

[[noreturn]] void give_up(const char *what)
{
    fprintf(stderr, "emulated GPU: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, what);
    abort();
}

/* ---- shared memory: variables of the host's thread, in the module that holds this function -------------------------------- */

struct span {
    const char *from;
    size_t len;
};

int find_shared(struct dl_phdr_info *module, size_t, void *found)
{
    bool is_here = false;
    size_t len = 0;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) &part = module->dlpi_phdr[i];
        is_here = is_here || (part.p_type == PT_LOAD && (uintptr_t)&find_shared - module->dlpi_addr - part.p_vaddr < part.p_memsz);
        len = part.p_type == PT_TLS ? part.p_memsz : len;
    }
    if (is_here) {
        *(span *)found = {(const char *)module->dlpi_tls_data, len};
    }
    return is_here;
}

/* ---- switching stacks -------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
typedef void *fiber;

extern "C" void tg_fiber_switch(fiber *from, fiber to);
__asm__(".text\n"
        ".type tg_fiber_switch, @function\n"
        "tg_fiber_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
        "    ret\n"
        ".size tg_fiber_switch, .-tg_fiber_switch\n");

void prepare(fiber *f, char *stack, void (*entry)())
{
    enum { SAVED = 6 };
    void **top = (void **)(void *)(stack + STACK_LEN) - 2; /* so that the stack is aligned as after a call */
    *top = (void *)entry;
    *f = (void *)(top - SAVED);
    memset(top - SAVED, 0, SAVED * sizeof *top);
}

void change(fiber *from, fiber *to)
{
    tg_fiber_switch(from, *to);
}
#else
typedef ucontext_t fiber;

void prepare(fiber *f, char *stack, void (*entry)())
{
    getcontext(f);
    f->uc_stack.ss_sp = stack;
    f->uc_stack.ss_size = STACK_LEN;
    f->uc_link = NULL;
    makecontext(f, entry, 0);
}

void change(fiber *from, fiber *to)
{
    swapcontext(from, to);
}
#endif

/* ---- a block ------------------------------------------------------------------------------------------------------------ */

struct thread {
    fiber self;
    bool is_done;
    uint64_t barriers, operations; /* that it has come to */
    const uint64_t *awaited;       /* it waits until this is at least `enough`; NULL: it does not wait */
    uint64_t enough;
    bool polls; /* it waits for other blocks */
};

/* Nobody comes to the next barrier or operation before all have come to this one, so arrivals can be counted together. */
struct warp {
    uint64_t arrivals;
    struct operation {
        unsigned kind; /* of the first lane that came */
        uint64_t values[WARP];
    } operations[2]; /* in turn */
};

struct block {
    thread threads[THREADS_MAX];
    warp warps[THREADS_MAX / WARP];
    uint64_t arrivals;    /* at barriers */
    unsigned predicates[2]; /* how many were not 0, at barriers, in turn */
    unsigned done;
    unsigned order[THREADS_MAX]; /* in which threads take their turns */
    unsigned place[THREADS_MAX]; /* of each of them there */
    uint64_t draw;               /* 0: threads take turns by their numbers, blocks too */
    fiber scheduler;
    unsigned number;
    char *stacks;
    char *shared; /* dynamic shared memory: SHARED_MAX bytes, if the launch has some */
};

/* What a thread of the host runs blocks with. */
struct blocks {
    block *all[BLOCKS_MAX]; /* made when they are first needed */
    uint64_t went_on;       /* waits for other blocks that have ended */
    /* of the launch: */
    void (*body)(void *context);
    void *context;
    size_t shared_len;
    bool may_wait; /* blocks may wait for each other */
};

thread_local blocks *own;
thread_local block *running;

void release(void *given)
{
    blocks *b = (blocks *)given;
    for (unsigned i = 0; i < BLOCKS_MAX && b->all[i] != NULL; i++) {
        munmap(b->all[i]->stacks, (size_t)THREADS_MAX * STACK_STEP);
        free(b->all[i]->shared);
        free(b->all[i]);
    }
    free(b);
}

/* Released when the thread of the host ends. */
blocks *blocks_of_thread()
{
    static pthread_key_t key;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (own == NULL) {
        own = (blocks *)calloc(1, sizeof *own);
        if (own == NULL || pthread_once(&once, [] { (void)pthread_key_create(&key, release); }) != 0 ||
            pthread_setspecific(key, own) != 0) {
            give_up("there is no memory for blocks");
        }
    }
    return own;
}

block *block_of(blocks *all, unsigned slot)
{
    block *b = all->all[slot];
    if (b == NULL) {
        b = (block *)calloc(1, sizeof *b);
        void *stacks = mmap(NULL, (size_t)THREADS_MAX * STACK_STEP, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (b == NULL || stacks == MAP_FAILED) {
            give_up("there is no memory for stacks");
        }
        b->stacks = (char *)stacks;
        const char *seed = getenv("TG_EMULATED_ORDER");
        b->draw = seed == NULL ? 0 : 1 + (uint64_t)strtoull(seed, NULL, 10);
        all->all[slot] = b;
    }
    return b;
}

bool can_run(const thread *t)
{
    return !t->is_done && !t->polls && (t->awaited == NULL || *t->awaited >= t->enough);
}

/* The place, from `from` on, of a thread that can run; that after the last one: there is none. */
unsigned next_place(const block *b, unsigned from)
{
    while (from < blockDim.x && !can_run(&b->threads[b->order[from]])) {
        from++;
    }
    return from;
}

/* Hands on to the next thread of the block that can run, or to the scheduler after the last one. */
void hand_on(block *b, unsigned me)
{
    unsigned place = next_place(b, b->place[me] + 1);
    threadIdx.x = place < blockDim.x ? b->order[place] : blockDim.x;
    change(&b->threads[me].self, place < blockDim.x ? &b->threads[threadIdx.x].self : &b->scheduler);
    threadIdx.x = me;
}

/* A number below n. */
unsigned draw(block *b, unsigned n)
{
    b->draw = b->draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((b->draw >> 33) % n);
}

/* Draws a new order, in which a warp may be far ahead of another one, and its lanes are in any order. Half of the time warps stay together. */
void draw_order(block *b, unsigned threads)
{
    unsigned group = draw(b, 2) == 0 ? 1 : WARP, groups = threads / group, warps[THREADS_MAX] = {0};
    for (unsigned g = 0; g < groups; g++) {
        unsigned other = draw(b, g + 1);
        warps[g] = warps[other];
        warps[other] = g;
    }
    for (unsigned i = 0; i < threads; i++) {
        b->order[i] = warps[i / group] * group + (group > 1 && b->draw % 3 == 0 ? WARP - 1 - i % WARP : i % group);
        b->place[b->order[i]] = i;
    }
}

void set_order(block *b, unsigned threads)
{
    for (unsigned i = 0; i < threads; i++) {
        b->order[i] = b->place[i] = i;
    }
}

void run_thread()
{
    block *b = running;
    unsigned me = threadIdx.x;
    own->body(own->context);
    b->threads[me].is_done = true;
    b->done++;
    hand_on(b, me);
    give_up("was resumed after its end");
}

/* Lets others run until a counter is at least a number. */
void wait_for(const uint64_t *counter, uint64_t enough)
{
    block *b = running;
    thread *t = &b->threads[threadIdx.x];
    if (*counter < enough) {
        t->awaited = counter;
        t->enough = enough;
        hand_on(b, threadIdx.x);
        t->awaited = NULL;
    }
}

void begin(block *b, unsigned number)
{
    for (unsigned t = 0; t < blockDim.x; t++) {
        b->threads[t].is_done = b->threads[t].polls = false;
        b->threads[t].awaited = NULL;
        b->threads[t].barriers = b->threads[t].operations = 0;
        prepare(&b->threads[t].self, b->stacks + (size_t)t * STACK_STEP, run_thread);
    }
    for (unsigned w = 0; w < blockDim.x / WARP; w++) {
        b->warps[w].arrivals = 0;
    }
    b->arrivals = b->done = 0;
    b->number = number;
    set_order(b, blockDim.x);
    if (own->shared_len > 0 && b->shared == NULL) {
        b->shared = (char *)malloc(SHARED_MAX);
        if (b->shared == NULL) {
            give_up("there is no memory for shared memory");
        }
    }
    if (own->shared_len > 0) {
        memset(b->shared, 0xa5, own->shared_len); /* what a kernel reads before it was written shows */
    }
}

/* Whether a thread waits for other blocks. */
bool any_polls(const block *b)
{
    for (unsigned t = 0; t < blockDim.x; t++) {
        if (b->threads[t].polls) {
            return true;
        }
    }
    return false;
}

/* Runs a block until it is done, or all of its threads wait for other blocks or for those that do. Returns whether it is done. */
bool go_on(block *b)
{
    running = b;
    blockIdx.x = b->number;
    for (unsigned t = 0; t < blockDim.x; t++) {
        b->threads[t].polls = false;
    }
    while (b->done < blockDim.x) {
        if (b->draw != 0) {
            draw_order(b, blockDim.x);
        }
        unsigned place = next_place(b, 0);
        if (place == blockDim.x && any_polls(b)) {
            return false;
        }
        if (place == blockDim.x) {
            threadIdx.x = 0;
            give_up("waits at a barrier that other threads do not reach");
        }
        threadIdx.x = b->order[place];
        change(&b->scheduler, &b->threads[threadIdx.x].self);
    }
    return true;
}

void run_apart(blocks *all, unsigned n)
{
    block *b = block_of(all, 0);
    for (unsigned i = 0; i < n; i++) {
        begin(b, i);
        (void)go_on(b); /* no thread of it waits for other blocks */
    }
}

/* Every block that has begun goes on in turns. If none of them ends or ends a wait, another one begins. When all have begun, each looks once
 * more: a thread may have looked before another one of its block did what it waits for. */
void run_together(blocks *all, unsigned n)
{
    unsigned begun = 0, done = 0, held = 0; /* `held` blocks are in the first slots */
    bool looks_again = false;
    all->went_on = 0;
    while (done < n) {
        uint64_t before = all->went_on + done;
        for (unsigned i = 0; i < held;) {
            if (!go_on(all->all[i])) {
                i++;
                continue;
            }
            block *ended = all->all[i];
            memmove(&all->all[i], &all->all[i + 1], (held - i - 1) * sizeof ended); /* in the order of numbers */
            all->all[--held] = ended;
            done++;
        }
        bool stands = all->went_on + done == before, is_first = stands && begun == n && !looks_again;
        looks_again = stands && begun == n;
        if (!stands || is_first) {
            continue;
        }
        if (begun == n || held == BLOCKS_MAX) {
            threadIdx.x = 0;
            give_up(begun == n ? "waits for what no block does" : "waits, as too many other blocks do");
        }
        begin(block_of(all, held), begun++);
        held++;
    }
}

/* At a barrier: how many threads of the block have a predicate. */
unsigned count(int predicate)
{
    block *b = running;
    uint64_t number = ++b->threads[threadIdx.x].barriers;
    unsigned *predicates = &b->predicates[number % 2];
    if (b->arrivals == (number - 1) * blockDim.x) {
        *predicates = 0;
    }
    *predicates += predicate != 0;
    b->arrivals++;
    wait_for(&b->arrivals, number * blockDim.x);
    return *predicates;
}

} // namespace

static void launch(unsigned block_n, unsigned threads, blocks *all)
{
    if (threads == 0 || threads > THREADS_MAX || threads % WARP != 0) {
        give_up("a block must be of 1 to 32 whole warps");
    }
    if (all->shared_len > SHARED_MAX) {
        give_up("no GPU has so much shared memory");
    }
    blockDim.x = threads;
    gridDim.x = block_n;
    tg_emulated_unlock();
    if (all->may_wait) {
        run_together(all, block_n);
    } else {
        run_apart(all, block_n);
    }
    tg_emulated_lock();
}

void tg_emulated_launch(unsigned block_n, unsigned threads, void (*body)(void *context), void *context)
{
    blocks *all = blocks_of_thread();
    all->body = body;
    all->context = context;
    all->shared_len = 0;
    all->may_wait = false;
    launch(block_n, threads, all);
}

void tg_emulated_launch_together(unsigned block_n, unsigned threads, size_t shared_len, void (*body)(void *context),
                                 void *context)
{
    blocks *all = blocks_of_thread();
    all->body = body;
    all->context = context;
    all->shared_len = shared_len;
    all->may_wait = true;
    launch(block_n, threads, all);
}

void *tg_emulated_shared(void)
{
    return running->shared;
}

void tg_emulated_let_others(void)
{
    if (!own->may_wait) {
        give_up("waits for other blocks, which do not run at the same time in this launch");
    }
    running->threads[threadIdx.x].polls = true;
    hand_on(running, threadIdx.x);
}

void tg_emulated_went_on(void)
{
    own->went_on++;
}

void tg_emulated_is_global(const void *at)
{
    static thread_local span shared = {};
    if (shared.len == 0) {
        (void)dl_iterate_phdr(find_shared, &shared);
    }
    if ((size_t)((const char *)at - shared.from) < shared.len ||
        (own->shared_len > 0 && (size_t)((const char *)at - running->shared) < own->shared_len)) {
        give_up("shared memory is read or written as if it were device memory");
    }
}

/* ---- barriers and warp operations --------------------------------------------------------------------------------------- */

int __syncthreads_or(int predicate)
{
    return count(predicate) > 0;
}

int __syncthreads_and(int predicate)
{
    return count(predicate) == blockDim.x;
}

int __syncthreads_count(int predicate)
{
    return (int)count(predicate);
}

void __syncthreads(void)
{
    (void)count(0);
}

const uint64_t *tg_emulated_warp(unsigned kind, uint64_t value, unsigned mask)
{
    block *b = running;
    unsigned me = threadIdx.x;
    warp *w = &b->warps[me / WARP];
    if (mask != 0xffffffffu) {
        give_up("a warp operation does not name all lanes");
    }
    uint64_t number = ++b->threads[me].operations;
    warp::operation *o = &w->operations[number % 2];
    if (w->arrivals == (number - 1) * WARP) {
        o->kind = kind;
    }
    if (o->kind != kind) {
        give_up("lanes of a warp are in different operations");
    }
    o->values[me % WARP] = value;
    w->arrivals++;
    wait_for(&w->arrivals, number * WARP);
    return o->values;
}

unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *all = tg_emulated_warp(6, predicate != 0, mask);
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < WARP; lane++) {
        ballot |= (unsigned)all[lane] << lane;
    }
    return ballot;
}

template <class Fold> static unsigned reduce(unsigned kind, unsigned mask, unsigned value, Fold fold)
{
    const uint64_t *all = tg_emulated_warp(kind, value, mask);
    unsigned result = (unsigned)all[0];
    for (unsigned lane = 1; lane < WARP; lane++) {
        result = fold(result, (unsigned)all[lane]);
    }
    return result;
}

unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
    return reduce(7, mask, value, [](unsigned a, unsigned b) { return a + b; });
}

unsigned __reduce_max_sync(unsigned mask, unsigned value)
{
    return reduce(8, mask, value, [](unsigned a, unsigned b) { return a > b ? a : b; });
}

unsigned __reduce_min_sync(unsigned mask, unsigned value)
{
    return reduce(9, mask, value, [](unsigned a, unsigned b) { return a < b ? a : b; });
}

unsigned __match_any_sync(unsigned mask, unsigned value)
{
    const uint64_t *all = tg_emulated_warp(10, value, mask);
    unsigned same = 0;
    for (unsigned lane = 0; lane < WARP; lane++) {
        same |= (all[lane] == value ? 1u : 0u) << lane;
    }
    return same;
}
