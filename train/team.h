/* Internal to a run: the objects of its workers, and what they share. */
#ifndef TR_TEAM_H
#define TR_TEAM_H

#include "diverged.h"
#include "gate.h"
#include "run.h"
#include "slow.h"

#define TR_TEST_BATCH 100
#define TR_RECENT 50 /* steps that train_loss is the mean of */

/* What a worker reports to worker 0. */
typedef struct tr_report {
    tr_score score;   /* of the steps since the last report, or of a test */
    tg_status status; /* of the last step */
    tr_times times;
    tg_meter last, total;
    uint64_t carried; /* bytes that the link has counted in steps */
    uint64_t between; /* bytes that the link has counted between steps */
    uint64_t hash;    /* of the weights */
    int is_absent;    /* it was late for the exchange */
} tr_report;

/* With a quorum: a thread that takes a worker's steps, while the worker meets the others (quorum.h). */
typedef struct tr_learner {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    int is_open, is_started; /* memory is taken, the thread runs */
    int learns, quits;       /* guarded by the lock, as is the next line; all else is the learner's while it learns */
    uint64_t first, end;     /* steps that it takes */
    float *begun;            /* the shared weights when it began */
    tr_report tally;         /* scores and times of its steps */
    tg_span *sends, *recvs;  /* one a worker */
    uint8_t *votes;          /* of all workers */
} tr_learner;

typedef struct tr_worker {
    struct tr_team *team;
    uint32_t rank;
    pthread_t thread;
    tr_model *model;
    tr_optimizer *optimizer;
    float *start;    /* local steps: the weights with which the round has begun, the same on all workers; NULL: none */
    float *velocity; /* local steps with outer momentum: the same on all workers */
    float *moves;    /* what is exchanged: the model's gradients or, with a quorum, an array of its own */
    tr_learner learner;  /* with a quorum */
    uint64_t test_since; /* tests that are due since so many steps have not been made */
    uint64_t save_since; /* likewise */
    uint64_t done;       /* steps that it has done */
    uint64_t told;       /* steps that it has reported */
    tr_loader *loader;
    tg_exchange *exchange;
    tg_link *link;
    tr_slow slow;        /* wraps the link if a slow one is emulated ... */
    int is_slow;         /* ... which is so */
    tg_reducer *reducer; /* drives the exchange during the backward pass; NULL: tg_reduce does, after it */
    int is_begun;        /* the reducer has begun a step */
    void **grads;        /* of each parameter: pointer into the model's array */
    tr_place place;      /* gradients where the exchange works */
    tr_report *report;   /* its element of the team's reports */
    uint64_t between;    /* bytes that it has sent between steps */
    float *kept;         /* copy of the model's buffers during a test */
    float *leading;      /* the buffers that all workers test with, if they are not worker 0's own */
    uint8_t *saved;      /* its part of a checkpoint */
    size_t saved_len;
} tr_worker;

typedef struct tr_team {
    const tr_settings *settings;
    const tr_data *data;
    const tr_hooks *hooks;
    tr_gate gate;
    tg_threads *hub;    /* threads only */
    tr_worker *workers; /* of this process: all, or one */
    uint32_t worker_n;
    tr_report *reports;     /* of all workers; valid in worker 0's process after tr_meet */
    tg_span *parts;         /* of all workers: their parts of a checkpoint; likewise */
    uint64_t *part_lens;    /* of all workers: lengths of these parts; likewise */
    tg_span *sends, *recvs; /* processes only: spans of an operation */
    int lost_link;          /* the link has failed */
    int has_nonfinite;      /* a step has failed because a gradient holds NaN or Inf */
    tr_model **models;      /* of this process's workers, for the hook `gradients` */
    tg_tensor *tensors;     /* the parameters, as the exchange needs them */
    uint64_t *lens;         /* of each parameter: bytes of its gradient */
    size_t tensor_n;
    float *residual; /* scratch buffer for the largest parameter */
    double *residual_norms;
    tg_traffic *traffic; /* of each parameter in worker 0's frame */
    uint64_t first_step; /* of this run: 0, or where the saved one stopped */
    uint64_t done;       /* steps done and reported */
    uint64_t exchanges;  /* of the whole run */
    uint64_t absences;   /* as in tr_result */
    tg_meter total;      /* over all workers and steps; `steps`, `dense` and `logical` count local steps, too */
    tr_kind_traffic kinds[TR_KIND_N];
    tr_times times; /* summed over the steps of this run */
    double recent[TR_RECENT];
    tr_losses losses;
    uint64_t diverged; /* as in tr_result */
    tr_test test;      /* the last one */
} tr_team;

/* team.c: creates a model, loader, optimizer and exchange for every worker. Call tr_team_dismiss also on failure. */
int tr_team_gather(tr_team *t, char why[TR_WHY]);
void tr_team_dismiss(tr_team *t);

/* saved.c: writes and reads a checkpoint. */
int tr_saved_worker(tr_worker *w, char why[TR_WHY]); /* writes its part to w->saved */
size_t tr_saved_len(const tr_team *t);               /* needs t->parts of all workers */
void tr_saved_write(uint8_t *dst, size_t dst_len, const tr_team *t);
int tr_saved_read(tr_team *t, const uint8_t *src, size_t src_len, char why[TR_WHY]);

#endif
