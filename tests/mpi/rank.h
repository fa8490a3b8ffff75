/* What ranks of a job that is tested have in common. */
#ifndef TG_TEST_MPI_RANK_H
#define TG_TEST_MPI_RANK_H

#include <tersegrad/mpi.h>

#include <stdint.h>
#include <stdio.h>

static uint32_t rank, world;

#define HOLDS(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            printf("rank %u, line %d: not so: %s\n", rank, __LINE__, #condition); \
            fflush(stdout);                                                       \
            MPI_Abort(MPI_COMM_WORLD, 1);                                         \
        }                                                                         \
    } while (0)

#endif
