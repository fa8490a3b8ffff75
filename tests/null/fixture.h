/* Valid arguments for every function of the public headers, which generate.py replaces by NULL one at a time. */
#ifndef TG_TESTS_NULL_FIXTURE_H
#define TG_TESTS_NULL_FIXTURE_H

#include "support.h"
#include "tersegrad/local.h"
#include "tersegrad/scatter.h"

enum { FIXTURE_N = 100 };

typedef struct fixture {
    tg_detail why;
    tg_tensor tensor, made_tensor;
    uint64_t dims[1];
    tg_options options;
    tg_allocator allocator;
    float grad[FIXTURE_N], sum[FIXTURE_N], velocity[FIXTURE_N];
    uint16_t halves[FIXTURE_N];
    void *rows[1];               /* the gradient */
    void *const *all[1];         /* of all ranks, of which there is one */
    float *sums[1];              /* the sum */
    tg_codec *codec;             /* has encoded a frame */
    uint8_t *frame, *made_frame; /* frame_cap bytes each */
    size_t frame_len, frame_cap, made_len;
    tg_exchange *exchange, *other; /* of a world of one rank; before their first step */
    tg_exchange *scattered;        /* likewise, of a reduce-scatter */
    uint8_t *state;
    size_t state_len;
    tg_span span; /* the state */
    tg_threads *threads;
    tg_reducer *reducer; /* of `reduced` */
    tg_exchange *reduced;
    struct tg_mpi *mpi;
    size_t numbers[1]; /* of the tensor */
    size_t part;       /* the index of a part with parameters */
    struct {           /* results that are freed at the end */
        tg_codec *codec;
        tg_exchange *exchange;
        tg_threads *threads;
        tg_reducer *reducer;
        struct tg_mpi *mpi;
    } made;
    char text[TG_RECIPE_CAP];
    tg_part_info part_info;
    tg_parameter_info parameter_info;
    uint64_t elements;
    tg_frame_info info;
    tg_op op;
    tg_meter meter;
    tg_traffic traffic;
    tg_learning learning;
    tg_outcome outcome;
    tg_tap tap;
    tg_outline outline;
    tg_outline_visitor visitor;
    double bits[1];
    tg_schedule schedule;
    tg_round round;
    tg_outer outer;
} fixture;

int fixture_begin(void **state);
int fixture_end(void **state);

/* For test programs that are linked with the link over MPI: makes and frees f->mpi, frees f->made.mpi. */
void fixture_begin_mpi(fixture *f);
void fixture_end_mpi(fixture *f);

/* The generated tests. Returns the number of those that failed. */
int run_generated(void);

#endif
