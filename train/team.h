/* The inside of a run: what the workers have and what they share. */
#ifndef TR_TEAM_H
#define TR_TEAM_H

#include "gate.h"
#include "run.h"

#define TR_TEST_BATCH 100
#define TR_RECENT 50 /* steps that train_loss is the mean of */

typedef struct tr_worker {
    struct tr_team *team;
    uint32_t rank;
    pthread_t thread;
    tr_model *model;
    tr_optimizer *optimizer;
    tr_loader *loader;
    tg_exchange *exchange;
    tg_link *link;
    void **grads; /* one a parameter, into the model's array */
    /* of the last step or test, for worker 0 to read */
    tr_score score;
    tr_times times;
    uint64_t hash;
} tr_worker;

typedef struct tr_team {
    const tr_settings *settings;
    const tr_data *data;
    const tr_hooks *hooks;
    tr_gate gate;
    tg_threads *hub;
    tr_worker *workers;
    tr_model **models;  /* theirs, for the hook that looks at all */
    tg_tensor *tensors; /* as the exchange sees the parameters */
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
    tr_test test; /* the last one */
} tr_team;

/* team.c: a model, data, optimizer and exchange for every worker; dismiss in any case. */
int tr_team_gather(tr_team *t, char why[TR_WHY]);
void tr_team_dismiss(tr_team *t);

/* saved.c: the team between two steps as bytes, and back. */
size_t tr_saved_len(const tr_team *t);
int tr_saved_write(uint8_t *dst, size_t dst_len, const tr_team *t, char why[TR_WHY]);
int tr_saved_read(tr_team *t, const uint8_t *src, size_t src_len, char why[TR_WHY]);

/* XXH64 of bytes. */
uint64_t tr_hash(const void *bytes, size_t len);

#endif
