/* From a setting to the step that the simulation runs: who the ranks are, what each does (tg_exchange_outline), and what that costs
 * by what was measured. */
#ifndef CLI_PLAN_STEP_H
#define CLI_PLAN_STEP_H

#include "plan_sim.h"
#include "probe_data.h"

typedef struct cli_setting {
    const tg_tensor *tensors;
    size_t tensor_n;
    uint64_t n; /* elements */
    uint32_t workers, hosts;
    const char *exchange;     /* NULL: chosen by recipe and workers */
    int is_hierarchical;      /* ranks of a host sum first */
    double rate, latency;     /* of a host's link: bytes a second in each direction; seconds */
    double message;           /* as in cli_network */
    int is_measured;          /* the link is the one of the probe: its table of all-reduces counts */
    double compute, backward; /* seconds of a step, and of its backward pass */
    int computes_on_device;   /* not on a core of the host for each rank */
    int encodes_on_device;    /* codecs work on a GPU of each rank, by the costs of the probe's */
    uint64_t group_len;       /* bytes; 0: everything after the backward pass */
    uint32_t threads;         /* of a codec */
    double cores;             /* of a host */
    const cli_probe_data *probe;
} cli_setting;

typedef struct cli_prediction {
    cli_forecast time;
    double bytes;          /* that a rank sends, the mean */
    double network_bytes;  /* to other hosts, a host's, of the kind that sends most */
    uint64_t residual_len; /* of rank 0 */
    size_t groups;
    uint32_t phase; /* of an exchange that learns: the one that is predicted, 3; 0: it does not learn */
    char exchange[16];
} cli_prediction;

/* Why a recipe is not predicted, where that is no failure. */
enum { CLI_NOT_PREDICTED = -1 };

/* CLI_OK; CLI_NOT_PREDICTED with a reason (the recipe does not fit the setting); or reported. */
int cli_step_predict(cli_prediction *out, tg_detail *why, const cli_setting *s, const char *recipe);

/* The same for an all-reduce of all gradients in a dtype: the better of a ring and of recursive doubling, or as measured. */
int cli_step_plain(cli_prediction *out, const cli_setting *s, tg_dtype dtype);

#endif
