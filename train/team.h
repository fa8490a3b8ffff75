/* The inside of a run: what the workers have and what they share. */
#ifndef TR_TEAM_H
#define TR_TEAM_H

#include "diverged.h"
#include "gate.h"
#include "run.h"
#include "slow.h"

#define TR_TEST_BATCH 100
#define TR_RECENT 50 /* steps that train_loss is the mean of */

/* What a worker tells worker 0 of itself. */
typedef struct tr_report {
    tr_score score;   /* of the last step or test */
    tg_status status; /* of the last step */
    tr_times times;
    tg_meter last, total;
    uint64_t carried; /* bytes of gradients that the link has counted */
    uint64_t between; /* and those that went between steps */
    uint64_t hash;    /* of the weights */
} tr_report;

typedef struct tr_worker {
    struct tr_team *team;
    uint32_t rank;
    pthread_t thread;
    tr_model *model;
    tr_optimizer *optimizer;
    tr_loader *loader;
    tg_exchange *exchange;
    tg_link *link;
    tr_slow slow;      /* the link, where a slow one is emulated */
    void **grads;      /* one a parameter, into the model's array */
    tr_report *report; /* its own, among those of the team */
    uint64_t between;  /* bytes that it has sent between steps */
    float *kept;       /* room for the model's buffers during a test ... */
    float *leading;    /* ... and, of a process, for those of worker 0 */
    uint8_t *saved;    /* the worker between two steps, while a run is saved */
    size_t saved_len;
} tr_worker;

typedef struct tr_team {
    const tr_settings *settings;
    const tr_data *data;
    const tr_hooks *hooks;
    tr_gate gate;
    tg_threads *hub;    /* of threads */
    tr_worker *workers; /* of this process: all, or one */
    uint32_t worker_n;
    tr_report *reports;     /* of all workers; behind a meeting worker 0's process has them */
    tg_span *parts;         /* of all workers, when a run is saved; likewise ... */
    uint64_t *part_lens;    /* ... */
    tg_span *sends, *recvs; /* of processes: room for an operation */
    int lost_link;          /* it is the link that has failed */
    int has_nonfinite;      /* a step has failed because a gradient holds NaN or Inf */
    tr_model **models;      /* of this process, for the hook that looks at all */
    tg_tensor *tensors;     /* as the exchange sees the parameters */
    size_t tensor_n;
    float *residual; /* room for the largest parameter */
    double *residual_norms;
    tg_traffic *traffic; /* of each parameter in worker 0's frame */
    uint64_t first_step; /* of this run: 0, or where the saved one stopped */
    uint64_t done;       /* steps done */
    tg_meter total;      /* over all workers and steps */
    tr_kind_traffic kinds[TR_KIND_N];
    tr_times times; /* summed over the steps of this run */
    double recent[TR_RECENT];
    tr_losses losses;
    uint64_t diverged; /* as in tr_result */
    tr_test test;      /* the last one */
} tr_team;

/* team.c: a model, data, optimizer and exchange for every worker; dismiss in any case. */
int tr_team_gather(tr_team *t, char why[TR_WHY]);
void tr_team_dismiss(tr_team *t);

/* saved.c: the team between two steps as bytes, and back. */
int tr_saved_worker(tr_worker *w, char why[TR_WHY]); /* its part, into w->saved */
size_t tr_saved_len(const tr_team *t);               /* with all parts there */
void tr_saved_write(uint8_t *dst, size_t dst_len, const tr_team *t);
int tr_saved_read(tr_team *t, const uint8_t *src, size_t src_len, char why[TR_WHY]);

#endif
