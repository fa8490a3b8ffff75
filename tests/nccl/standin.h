/* What tests ask of the stand-in for NCCL, by dlsym: how it is to fail. */
#ifndef TG_TESTS_NCCL_STANDIN_H
#define TG_TESTS_NCCL_STANDIN_H

#include <stdint.h>

typedef enum standin_fault {
    STANDIN_WELL,
    STANDIN_NO_INIT,   /* ncclCommInitRankConfig returns an error */
    STANDIN_LATE_INIT, /* the communicator is never ready */
    STANDIN_REFUSES,   /* the nth ncclGroupEnd returns an error */
    STANDIN_BREAKS,    /* the nth group fails in the background */
    STANDIN_HANGS      /* the nth group is never done */
} standin_fault;

/* The next communicators of `rank` fail so, at their nth group from 0. Returns how many communicators there are. */
typedef int standin_plan_fn(uint32_t rank, standin_fault fault, uint32_t nth);

#endif
