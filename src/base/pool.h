/* A few threads that share independent jobs. Which thread does which job is not fixed, so a job's result must
 * not depend on it. */
#ifndef TG_BASE_POOL_H
#define TG_BASE_POOL_H

#include "base/memory.h"

typedef struct tg_pool tg_pool;

/* `worker` is below tg_pool_workers and never the same in two jobs that run at once. */
typedef void tg_job(void *context, uint32_t worker, size_t job);

/* `workers` threads in all, the caller's among them; 0 counts as 1. */
tg_status tg_pool_new(tg_pool **out, uint32_t workers, const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_pool_free(tg_pool *pool);

uint32_t tg_pool_workers(const tg_pool *pool);

/* Does jobs 0 … job_n - 1 and returns when all are done. */
void tg_pool_run(tg_pool *pool, size_t job_n, tg_job *job, void *context);

/* The same, by the caller alone if all jobs together are thought to take no longer than it takes to wake others. */
void tg_pool_run_about(tg_pool *pool, uint64_t nanoseconds, size_t job_n, tg_job *job, void *context);

#endif
