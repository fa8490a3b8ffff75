/* late.h: a queue a stream. */
#include "exec/cuda/emulate/late.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct step {
    void (*run)(void *context);
    void *context;
    struct step *next;
} step;

typedef struct queue {
    void *stream;
    step *first, **last;
    uint64_t put, done;
    struct queue *next;
} queue;

typedef enum mode { UNKNOWN, AT_ONCE, LATE, BY_CHANCE } mode;

static struct {
    pthread_mutex_t lock; /* recursive: a step may do those of another stream first */
    pthread_once_t once;
    mode mode;
    uint64_t draw;
    queue *queues;
} all = {.once = PTHREAD_ONCE_INIT};

static void set_mode(int64_t seed)
{
    all.mode = seed < 0 ? AT_ONCE : seed == 0 ? LATE : BY_CHANCE;
    all.draw = (uint64_t)seed;
}

static void set_up(void)
{
    pthread_mutexattr_t recursive;
    const char *seed = getenv("TG_EMULATED_LATE");
    if (pthread_mutexattr_init(&recursive) != 0 ||
        pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE) != 0 ||
        pthread_mutex_init(&all.lock, &recursive) != 0) {
        abort();
    }
    set_mode(seed == NULL ? -1 : strtoll(seed, NULL, 10));
}

static void enter(void)
{
    (void)pthread_once(&all.once, set_up);
    pthread_mutex_lock(&all.lock);
}

static void leave(void)
{
    pthread_mutex_unlock(&all.lock);
}

static void *must(void *memory)
{
    if (memory == NULL) {
        (void)fprintf(stderr, "emulated GPU: there is no memory for streams\n");
        abort();
    }
    return memory;
}

/* ---- with the lock held ------------------------------------------------------------------------------------------------ */

static queue *queue_of(void *stream)
{
    queue *q = all.queues;
    while (q != NULL && q->stream != stream) {
        q = q->next;
    }
    if (q == NULL) {
        q = must(malloc(sizeof *q));
        *q = (queue){.stream = stream, .next = all.queues};
        q->last = &q->first;
        all.queues = q;
    }
    return q;
}

/* A step is taken out before it is done, which may do those after it on its stream: they are not done before it, because it is. */
static void do_first(queue *q)
{
    step *s = q->first;
    q->first = s->next;
    q->last = q->first == NULL ? &q->first : q->last;
    s->run(s->context);
    q->done++;
    free(s);
}

static void do_until(queue *q, uint64_t n)
{
    while (q->first != NULL && q->done < n) {
        do_first(q);
    }
}

/* A number below n. */
static uint64_t draw(uint64_t n)
{
    all.draw = all.draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (all.draw >> 33) % n;
}

/* At times, some stream goes on. */
static void go_on(void)
{
    enum { SELDOM = 3, STEPS = 6 };
    uint64_t n = 0;
    for (const queue *q = all.queues; q != NULL; q = q->next) {
        n++;
    }
    if (all.mode != BY_CHANCE || n == 0 || draw(SELDOM) != 0) {
        return;
    }
    queue *q = all.queues;
    for (uint64_t i = draw(n); i > 0; i--) {
        q = q->next;
    }
    for (uint64_t steps = draw(STEPS); steps > 0 && q->first != NULL; steps--) {
        do_first(q);
    }
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

void tg_emulated_put(void *stream, void (*run)(void *context), void *context)
{
    if (!tg_emulated_is_late()) {
        run(context);
        return;
    }
    enter();
    queue *q = queue_of(stream);
    step *s = must(malloc(sizeof *s));
    *s = (step){.run = run, .context = context};
    *q->last = s;
    q->last = &s->next;
    q->put++;
    go_on();
    leave();
}

int tg_emulated_is_late(void)
{
    (void)pthread_once(&all.once, set_up);
    return all.mode != AT_ONCE;
}

void tg_emulated_set_late(int64_t seed)
{
    enter();
    set_mode(seed);
    leave();
}

uint64_t tg_emulated_put_n(void *stream)
{
    enter();
    uint64_t n = queue_of(stream)->put;
    leave();
    return n;
}

void tg_emulated_do(void *stream, uint64_t n)
{
    enter();
    go_on();
    do_until(queue_of(stream), n);
    leave();
}

void tg_emulated_do_one(void *stream)
{
    enter();
    queue *q = queue_of(stream);
    if (q->first != NULL) {
        do_first(q);
    }
    leave();
}

int tg_emulated_is_done(void *stream, uint64_t n)
{
    enter();
    int is_done = queue_of(stream)->done >= n;
    leave();
    return is_done;
}

void tg_emulated_do_all(void)
{
    enter();
    for (queue *q = all.queues; q != NULL; q = q->next) {
        do_until(q, UINT64_MAX);
    }
    leave();
}

/* ---- streams that wait for each other ------------------------------------------------------------------------------------ */

typedef struct following {
    void *other;
    uint64_t n;
} following;

static void do_others(void *context)
{
    following *f = context;
    do_until(queue_of(f->other), f->n);
    free(f);
}

void tg_emulated_follow(void *stream, void *other, uint64_t n)
{
    following *f = must(malloc(sizeof *f));
    *f = (following){other, n};
    tg_emulated_put(stream, do_others, f);
}
