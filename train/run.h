/* A training run: N workers, each with a replica of the model, average their gradients with an exchange and stay equal to the bit.
 * With local steps they average how far their weights have moved in a round of several steps, and are equal at its end. Workers are threads of this process; or each is a process, and a link connects them. A run reads and writes no files: it passes
 * everything to hooks. */
#ifndef TR_RUN_H
#define TR_RUN_H

#include "optimizer.h"
#include "place.h"

#include <tersegrad/experimental.h>
#include <tersegrad/local.h>

typedef struct tr_settings {
    const char *model;
    const char *recipe;
    const char *exchange; /* NULL: chosen by recipe and world */
    const tg_rule *rules;
    size_t rule_n;
    uint64_t dense_below;
    tg_nonfinite nonfinite;
    uint32_t workers;
    uint32_t host_size; /* workers of a host, which sum among themselves first (tg_options.host_size); 0: they do not */
    size_t batch;       /* samples per worker and step */
    uint64_t steps;
    uint64_t seed;
    int augment;
    tr_optimizer_options optimizer;
    tg_schedule
        local;      /* rounds of local steps; all zeros, or rounds of one step: gradients are exchanged in every step */
    tg_outer outer; /* with local steps: the outer step */
    uint32_t
        quorum; /* with local steps: workers that must be there at a round's end; 0: all. Others are waited for ... */
    double
        grace; /* ... so many seconds after that, and then take part without a move, which comes with a later round */
    uint32_t late_rank;  /* a worker that is slow, for rehearsals: this one sleeps ... */
    double late_seconds; /* ... so long in every step; 0: none does */
    uint64_t test_every; /* steps between tests; 0: only at the end. One that is due inside a round waits for its end */
    uint64_t verify_every; /* steps between comparisons of all replicas' weights; 0: only at the end; likewise */
    uint64_t save_every;   /* steps between calls of `save`; 0: never */
    uint64_t
        group_len; /* bytes of gradients that are sent together, while the backward pass goes on; 0: all after it */
    tg_link *
        link; /* NULL: workers are threads; otherwise this process is one worker, and the link connects it to the others */
    uint32_t rank;           /* of this process, if `link` is not NULL */
    const tr_device *device; /* where exchanges work; NULL: the CPU. It changes no bits */
    double
        slow_bits; /* threads only: bits per second of the link that is emulated between them (slow.h); 0: none ... */
    double slow_latency; /* ... and its latency in seconds */
} tr_settings;

/* Seconds per step, the mean over workers. A step takes compute + exposed + update. Without groups (group_len 0), the exchange begins
 * after the backward pass, and exposed is encode + exchange + decode. With groups, these three go on during the backward pass, in a
 * thread of their own, and overlap with each other, too. */
typedef struct tr_times {
    double compute;  /* batch, forward, backward */
    double encode;   /* gradient to frame */
    double exchange; /* messages were under way: copying, and waiting for other workers */
    double decode;   /* frames to average */
    double exposed;  /* from the end of the backward pass to the averages: what it has not hidden of the above */
    double update;   /* the optimizer */
} tr_times;

#define TR_KIND_N (TG_BIAS + 1)

/* The share of parameters of one kind in worker 0's frames, over all steps. */
typedef struct tr_kind_traffic {
    uint64_t elements; /* in one step */
    tg_traffic sum;
    uint64_t paper_len; /* as the scheme's paper counts, of all steps; 0: it does not */
} tr_kind_traffic;

/* A step that is done; with local steps, those since the last report: a round, or the part of it before or after a checkpoint. */
typedef struct tr_step {
    uint64_t step;  /* the last of them, from 0 */
    uint64_t steps; /* how many they are */
    int exchanged; /* there was an exchange at their end; otherwise no bytes, and traffic and residual of the last one */
    double loss, accuracy; /* of the workers' batches, before the update */
    uint32_t absent;       /* with a quorum: workers that were late for the exchange */
    double rate;
    tg_meter bytes;  /* summed over workers; `dense`, `logical` and `steps` count all steps of a round */
    double up, down; /* bytes that a worker sends and receives: the mean without worker 0, which may be a server */
    tr_times times;
    const tr_model *model;     /* has the names of the parameters */
    const double *residual;    /* of each parameter: the norm of worker 0's residual */
    const tg_traffic *traffic; /* of each parameter: its share of worker 0's frame */
    tg_learning learning;      /* of exchanges that learn: after this step */
} tr_step;

typedef struct tr_test {
    uint64_t step; /* steps done */
    double loss, accuracy;
} tr_test;

/* Callbacks of worker 0, between steps unless stated otherwise. If one does not return 0, the run fails on all workers with the error
 * in `why`. */
typedef struct tr_hooks {
    void *context;
    /* Called in the middle of a step with the models of this process's n workers, whose gradients are not averaged yet. If it
     * is NULL, workers do not wait for each other here. */
    int (*gradients)(void *context, uint64_t step, tr_model *const *models, uint32_t n, char why[TR_WHY]);
    int (*step)(void *context, const tr_step *step, char why[TR_WHY]);
    int (*test)(void *context, const tr_test *test, char why[TR_WHY]);
    /* Receives the checkpoint of a run after `steps` steps. */
    int (*save)(void *context, uint64_t steps, const void *bytes, size_t len, char why[TR_WHY]);
    /* Called in every process, not only by worker 0, when there is a checkpoint to resume from: `save` has succeeded, or this run was
     * itself resumed. May be NULL. */
    void (*saved)(void *context);
} tr_hooks;

/* The result of a run. Bytes are those that one worker sends in a step, the mean over workers and steps, local ones included. */
typedef struct tr_result {
    double train_loss; /* of the last steps, up to 50 */
    tr_test test;
    double dense_bytes, wire_bytes; /* of an uncompressed all-reduce in every step; of what was sent */
    double frame_bytes;             /* of worker 0's frames, each counted once, however many workers it was sent to */
    uint64_t exchanges;             /* of the whole run */
    uint64_t absences;              /* workers that were late for an exchange, summed over those of this call */
    double host_bytes;              /* to workers of other hosts, over the steps of this call */
    double busiest_bytes;           /* of these, those of the worker that sends most */
    tr_kind_traffic kinds[TR_KIND_N];
    tr_times times; /* mean over the steps of this call */
    uint64_t
        between_bytes; /* processes only: bytes of all workers that are not gradients: handshake, reports, checkpoints */
    uint64_t weights_hash;
    size_t groups; /* in which gradients are sent */
    uint64_t
        diverged; /* steps done when training diverged (diverged.h, or a loss or gradient that is not finite), 0: it has
                          not; known of a run that has failed, too */
    char exchange[16];
    char recipe[TG_RECIPE_CAP]; /* of the largest parameter */
} tr_result;

/* Runs from the start, or from a checkpoint that `save` received; the number of workers may differ from that of the saved run. If
 * workers are processes, all of them call this; only worker 0's hooks are called (except `saved`), only worker 0 passes a
 * checkpoint, and only worker 0 gets a result. Returns 0, or -1 and an error in `why`; TR_MISUSE if these settings can never
 * work; TR_LOST if the link has failed: then
 * other workers may have another error, or none. */
enum { TR_LOST = -2 };
int tr_run(tr_result *out, const tr_settings *s, const tr_data *data, const tr_hooks *hooks, const void *saved,
           size_t saved_len, char why[TR_WHY]);

/* The number of steps that a checkpoint has done. -1 and an error if it is damaged or has other settings. */
int tr_saved_steps(uint64_t *out, const tr_settings *s, const tr_data *data, const void *saved, size_t saved_len,
                   char why[TR_WHY]);

#endif
