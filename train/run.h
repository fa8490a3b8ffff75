/* A training run: N workers, each with a model of its own, that average their gradients through an exchange and stay the same
 * to the bit. They are threads of this process, or this process is one of them and a link leads to the others. It reads no
 * file and writes none: what there is to tell or to keep goes to hooks. */
#ifndef TR_RUN_H
#define TR_RUN_H

#include "optimizer.h"

#include <tersegrad/experimental.h>

typedef struct tr_settings {
    const char *model;
    const char *recipe;
    const char *exchange; /* NULL: chosen by recipe and world */
    const tg_rule *rules;
    size_t rule_n;
    uint64_t dense_below;
    tg_nonfinite nonfinite;
    uint32_t workers;
    size_t batch; /* samples a worker and step */
    uint64_t steps;
    uint64_t seed;
    int augment;
    tr_optimizer_options optimizer;
    uint64_t test_every;   /* steps between tests; 0: only at the end */
    uint64_t verify_every; /* steps between comparisons of all replicas' weights; 0: only at the end */
    uint64_t save_every;   /* steps between calls of `save`; 0: never */
    tg_link *link;         /* NULL: workers are threads; else it leads from this one, which is ... */
    uint32_t rank;         /* ... worker `rank`, to the others */
    double slow_bits; /* of threads: bits a second of the link that is emulated between them (slow.h); 0: none is ... */
    double slow_latency; /* ... and its latency in seconds */
} tr_settings;

/* Seconds that a step takes on a worker, the mean over workers. */
typedef struct tr_times {
    double compute;  /* batch, forward, backward */
    double encode;   /* gradient to frame */
    double exchange; /* the link: copying, and waiting for others */
    double decode;   /* frames to average; where ranks own slices, their answers too */
    double update;   /* the optimizer */
} tr_times;

#define TR_KIND_N (TG_BIAS + 1)

/* What the parameters of one kind took in worker 0's frames, over all steps. */
typedef struct tr_kind_traffic {
    uint64_t elements; /* in one step */
    tg_traffic sum;
} tr_kind_traffic;

/* A step that is done. */
typedef struct tr_step {
    uint64_t step;         /* from 0 */
    double loss, accuracy; /* of the workers' batches, before the update */
    double rate;
    tg_meter bytes;  /* of this step, summed over workers */
    double up, down; /* what a worker other than worker 0, which may be a server, sends and receives: the mean */
    tr_times times;
    const tr_model *model;     /* for names ... */
    const double *residual;    /* ... and for each parameter the norm of worker 0's residual ... */
    const tg_traffic *traffic; /* ... and what it took in worker 0's frame */
    tg_learning learning;      /* of exchanges that learn: behind this step */
} tr_step;

typedef struct tr_test {
    uint64_t step; /* steps done */
    double loss, accuracy;
} tr_test;

/* Called between steps, or where they say, by worker 0 alone. Not 0: the run ends as failed on all workers, with what the hook
 * has put into `why`. */
typedef struct tr_hooks {
    void *context;
    /* In the middle of a step: models[0..n), one a worker of this process, with their gradients before they are averaged.
     * NULL: nobody wants them, and nobody waits. */
    int (*gradients)(void *context, uint64_t step, tr_model *const *models, uint32_t n, char why[TR_WHY]);
    int (*step)(void *context, const tr_step *step, char why[TR_WHY]);
    int (*test)(void *context, const tr_test *test, char why[TR_WHY]);
    /* All that the run needs to go on from `steps` steps done. */
    int (*save)(void *context, uint64_t steps, const void *bytes, size_t len, char why[TR_WHY]);
    /* Called in every process, not by worker 0 alone: there is something to resume from, because `save` has succeeded or this run
     * was itself resumed. NULL: nobody wants to know. */
    void (*saved)(void *context);
} tr_hooks;

/* What a run came to. Bytes are what one worker sends in a step, the mean over workers and steps. */
typedef struct tr_result {
    double train_loss; /* of the last steps, up to 50 */
    tr_test test;
    double dense_bytes, wire_bytes;
    double busiest_bytes; /* of the worker that sends most, over the steps done now */
    tr_kind_traffic kinds[TR_KIND_N];
    tr_times times; /* mean over steps done now */
    uint64_t
        between_bytes; /* between steps, of processes alone: what all of them have sent each other beside gradients */
    uint64_t weights_hash;
    uint64_t
        diverged; /* steps done when training diverged (diverged.h, or a loss or gradient that is not finite), 0: it has
                          not; known of a run that has failed, too */
    char exchange[16];
    char recipe[TG_RECIPE_CAP]; /* of the largest parameter */
} tr_result;

/* Runs from the start, or from what `save` was given, with as many workers as then or others. Of processes all call this, and
 * that of worker 0 alone has hooks called (but for `saved`), is given what was saved, and gets a result. 0, or -1 and one
 * sentence in `why`; TR_MISUSE if these settings can never work; TR_LOST if it is the link that has failed, which others may
 * know otherwise or not at all. */
enum { TR_LOST = -2 };
int tr_run(tr_result *out, const tr_settings *s, const tr_data *data, const tr_hooks *hooks, const void *saved,
           size_t saved_len, char why[TR_WHY]);

/* The number of steps done that saved bytes stand for; -1 and a sentence if they are damaged or of other settings. */
int tr_saved_steps(uint64_t *out, const tr_settings *s, const tr_data *data, const void *saved, size_t saved_len,
                   char why[TR_WHY]);

#endif
