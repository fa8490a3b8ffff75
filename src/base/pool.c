/* A thread pool. Workers sleep until there is a batch of jobs, and then take jobs by an atomic counter. The caller takes jobs as
 * well, and closes the batch when none is left, so that it never waits for a thread that wakes up too late to help. */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

typedef struct member {
    tg_pool *pool;
    pthread_t thread;
    uint32_t worker;
} member;

struct tg_pool {
    tg_allocator allocator;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    member *members; /* workers 1 and up; worker 0 is the calling thread */
    uint32_t workers;
    uint32_t started; /* threads created */
    uint32_t busy;    /* threads working on the batch */
    uint64_t batch;   /* number of the batch, by which a thread notices a new one */
    bool is_open;     /* the batch may have jobs left */
    bool quit;
    tg_job *job;
    void *context;
    size_t job_n;
    atomic_size_t next;
};

static void take_jobs(tg_pool *pool, uint32_t worker)
{
    for (;;) {
        size_t job = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (job >= pool->job_n) {
            return;
        }
        pool->job(pool->context, worker, job);
    }
}

static void *member_main(void *argument)
{
    member *self = argument;
    tg_pool *pool = self->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while ((pool->batch == seen || !pool->is_open) && !pool->quit) {
            pthread_cond_wait(&pool->wake, &pool->lock);
        }
        if (pool->quit) {
            break;
        }
        seen = pool->batch;
        pool->busy++;
        pthread_mutex_unlock(&pool->lock);
        take_jobs(pool, self->worker);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0) {
            pthread_cond_signal(&pool->done);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static tg_status start_members(tg_pool *pool, tg_detail *why)
{
    for (uint32_t i = 0; i + 1 < pool->workers; i++) {
        member *m = &pool->members[i];
        m->pool = pool;
        m->worker = i + 1;
        int error = pthread_create(&m->thread, NULL, member_main, m);
        if (error != 0) {
            return tg_fail(TG_E_MEMORY, why, "thread %u of %u could not be started: %s", i + 2, pool->workers,
                           strerror(error));
        }
        pool->started++;
    }
    return TG_OK;
}

tg_status tg_pool_new(tg_pool **out, uint32_t workers, const tg_allocator *a, tg_detail *why)
{
    if (workers > 1024) {
        return tg_fail(TG_E_ARGUMENT, why, "%u threads are more than the 1024 that a codec may use", workers);
    }
    tg_pool *pool = NULL;
    TG_TRY(tg_acquire(&pool, a, 1, sizeof *pool, why));
    pool->allocator = *a;
    pool->workers = workers == 0 ? 1 : workers;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
    tg_status status = tg_acquire(&pool->members, a, pool->workers - 1, sizeof *pool->members, why);
    if (status == TG_OK) {
        status = start_members(pool, why);
    }
    if (status != TG_OK) {
        tg_pool_free(pool);
        return status;
    }
    *out = pool;
    return TG_OK;
}

void tg_pool_free(tg_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->quit = true;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->started; i++) {
        pthread_join(pool->members[i].thread, NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    tg_allocator a = pool->allocator;
    tg_release(&a, pool->members);
    tg_release(&a, pool);
}

uint32_t tg_pool_workers(const tg_pool *pool)
{
    return pool->workers;
}

static void run_alone(size_t job_n, tg_job *job, void *context)
{
    for (size_t i = 0; i < job_n; i++) {
        job(context, 0, i);
    }
}

void tg_pool_run_about(tg_pool *pool, uint64_t nanoseconds, size_t job_n, tg_job *job, void *context)
{
    enum { WORTH_WAKING = 500000 };
    if (nanoseconds < WORTH_WAKING) {
        run_alone(job_n, job, context);
    } else {
        tg_pool_run(pool, job_n, job, context);
    }
}

void tg_pool_run(tg_pool *pool, size_t job_n, tg_job *job, void *context)
{
    if (pool->started == 0 || job_n <= 1) {
        run_alone(job_n, job, context);
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->job = job;
    pool->context = context;
    pool->job_n = job_n;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    pool->is_open = true;
    pool->batch++;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    take_jobs(pool, 0);
    pthread_mutex_lock(&pool->lock);
    pool->is_open = false;
    while (pool->busy > 0) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}
