/* A thread pool for independent jobs. The assignment of jobs to threads varies, so results must not depend on it. */
#ifndef TG_BASE_POOL_H
#define TG_BASE_POOL_H

#include "base/memory.h"

typedef struct tg_pool tg_pool;

/* `worker` is below tg_pool_workers, and differs between jobs that run at the same time. */
typedef void tg_job(void *context, uint32_t worker, size_t job);

/* `workers` threads, including the calling one; 0 counts as 1. */
tg_status tg_pool_new(tg_pool **out, uint32_t workers, const tg_allocator *a, tg_detail *why) TG_CHECKED;
void tg_pool_free(tg_pool *pool);

uint32_t tg_pool_workers(const tg_pool *pool);

/* Runs jobs 0 … job_n - 1 and returns when all are done. */
void tg_pool_run(tg_pool *pool, size_t job_n, tg_job *job, void *context);

/* The same, in the calling thread alone if all jobs together are estimated to take less time than waking the others. */
void tg_pool_run_about(tg_pool *pool, uint64_t nanoseconds, size_t job_n, tg_job *job, void *context);

#endif
