/* The command line. There is one table of flags for the whole program, so that a flag has one name, one
 * meaning, one range and one line of help wherever it appears; a command lists those it takes and its
 * defaults for them.
 */
#ifndef CLI_ARGS_H
#define CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "tersegrad/local.h"

enum { CLI_WORKER_MAX = 64 };

/* --link: what workers are, and with a rate the link that is emulated between threads. */
enum { CLI_LINK_THREADS, CLI_LINK_MPI };
typedef struct cli_link {
    int kind;
    double bits;    /* a second; 0: no link is emulated */
    double latency; /* seconds */
} cli_link;

typedef enum cli_flag {
    CLI_FLAG_RECIPE,
    CLI_FLAG_RECIPES,
    CLI_FLAG_RULE,
    CLI_FLAG_KIND,
    CLI_FLAG_DENSE_BELOW,
    CLI_FLAG_NONFINITE,
    CLI_FLAG_SEED,
    CLI_FLAG_STEP,
    CLI_FLAG_RANK,
    CLI_FLAG_N,
    CLI_FLAG_SHAPES,
    CLI_FLAG_INPUT,
    CLI_FLAG_SHIFT,
    CLI_FLAG_DTYPE,
    CLI_FLAG_SECONDS,
    CLI_FLAG_THREADS,
    CLI_FLAG_DEVICE,
    CLI_FLAG_WORKERS,
    CLI_FLAG_STEPS,
    CLI_FLAG_EPOCHS,
    CLI_FLAG_MODEL,
    CLI_FLAG_DATA,
    CLI_FLAG_BATCH,
    CLI_FLAG_EXCHANGE,
    CLI_FLAG_LINK,
    CLI_FLAG_HOSTS,
    CLI_FLAG_TIMEOUT,
    CLI_FLAG_GROUP_SIZE,
    CLI_FLAG_OPTIMIZER,
    CLI_FLAG_RATE,
    CLI_FLAG_MOMENTUM,
    CLI_FLAG_NESTEROV,
    CLI_FLAG_WEIGHT_DECAY,
    CLI_FLAG_SCHEDULE,
    CLI_FLAG_WARMUP,
    CLI_FLAG_AUGMENT,
    CLI_FLAG_LOCAL_STEPS,
    CLI_FLAG_OUTER,
    CLI_FLAG_QUORUM,
    CLI_FLAG_GRACE,
    CLI_FLAG_LATE,
    CLI_FLAG_TEST_EVERY,
    CLI_FLAG_VERIFY_EVERY,
    CLI_FLAG_LOG,
    CLI_FLAG_GRADIENTS,
    CLI_FLAG_CHECKPOINT,
    CLI_FLAG_CHECKPOINT_EVERY,
    CLI_FLAG_RESUME,
    CLI_FLAG_EVERY,
    CLI_FLAG_RATIO,
    CLI_FLAG_SEEDS,
    CLI_FLAG_TARGET,
    CLI_FLAG_PARAMS,
    CLI_FLAG_MODEL_SHAPES,
    CLI_FLAG_MODEL_GROUPS,
    CLI_FLAG_RANKS,
    CLI_FLAG_HOST_COUNT,
    CLI_FLAG_LINK_RATE,
    CLI_FLAG_LATENCY,
    CLI_FLAG_COMPUTE,
    CLI_FLAG_BACKWARD,
    CLI_FLAG_COMPUTE_ON,
    CLI_FLAG_CORES,
    CLI_FLAG_PROBE,
    CLI_FLAG_KNOWN,
    CLI_FLAG_ADVISE,
    CLI_FLAG_CONFIG,
    CLI_FLAG_PAGE,
    CLI_FLAG_JSON,
    CLI_FLAG_CSV,
    CLI_FLAG_N_OF /* how many there are */
} cli_flag;

/* Which flags the command line or the configuration file holds. */
typedef struct cli_given {
    bool flags[CLI_FLAG_N_OF];
} cli_given;

/* Texts from the command line, in the order given; copies. */
typedef struct cli_texts {
    char **items;
    size_t n;
} cli_texts;

/* A worker that is slow, as an emulation. */
typedef struct cli_late {
    uint32_t rank;
    double seconds; /* more, in every step */
} cli_late;

enum { CLI_DEVICE_CPU, CLI_DEVICE_CUDA };
enum { CLI_ON_HOST, CLI_ON_DEVICE }; /* of --compute-on */

typedef struct cli_args {
    cli_given given;
    const char *program; /* as it was called, for hints that can be copied */
    cli_texts files;
    cli_texts recipes; /* of --recipe and --recipes */
    cli_texts rules;   /* PATTERN and RECIPE in turn */
    cli_texts kinds;   /* PATTERN and KIND in turn */
    tg_rule *rule_list;
    /* Choices are the places of words in the lists of flags.c, which are those of the enums that they stand for. */
    int nonfinite, dtype, optimizer, schedule, device, compute_on;
    cli_link link;
    tg_schedule local;
    tg_outer outer;
    cli_late late;
    const char *input, *shapes, *model, *data, *exchange, *log, *checkpoint, *gradients, *page, *config, *probe;
    char *config_text; /* of the configuration file; values point into it */
    uint64_t dense_below, seed, step, n, shift, steps, batch, warmup, test_every, verify_every, checkpoint_every, every,
        group_size, params;
    uint32_t rank, threads, workers, seeds, quorum;
    uint32_t ranks, host_count; /* of plan */
    uint32_t hosts;             /* workers of a host; 0: as the link says, 1: none sums first */
    double timeout, seconds, grace, epochs, rate, momentum, weight_decay, ratio, target;
    double link_rate;                         /* bits a second */
    double latency, compute, backward, cores; /* seconds; cores of a host */
    int nesterov, augment, resume, advise, json, csv;
    int has_seed; /* --seed is given or has a default */
    int help;
} cli_args;

/* A flag that a command takes. */
typedef struct cli_flag_use {
    cli_flag flag;
    const char *standard; /* its value when it is not given; NULL: none */
} cli_flag_use;

typedef struct cli_command {
    const char *name;
    const char *summary;  /* for the list of commands */
    const char *usage;    /* what follows the name */
    const char *about;    /* one or a few lines */
    const char *examples; /* lines, each ending in a line feed */
    const cli_flag_use *flags;
    size_t flag_n;
    size_t file_min, file_max;
    int (*run)(const cli_args *args);
} cli_command;

/* Reads argv[0..argc), which holds what follows the command's name. Reports misuse. When it meets --help it
 * sets out->help and looks no further. Free `out` in any case. */
int cli_args_parse(cli_args *out, const cli_command *command, int argc, char *const *argv);
void cli_args_free(cli_args *a);

/* The flag of this name among those of the command; CLI_FLAG_N_OF if it has none such. */
cli_flag cli_command_flag(const cli_command *command, const char *name, size_t len);

/* Stores a flag with its value, NULL for none. Reports misuse. */
int cli_args_set(cli_args *a, const cli_command *command, cli_flag flag, const char *value);

/* Reports that the command has no flag word[0..len), with one that may have been meant. */
int cli_args_unknown(const cli_command *command, const char *word, size_t len);

static inline int cli_args_has(const cli_args *a, cli_flag flag)
{
    return a->given.flags[flag];
}

/* The library's options as the flags say; they point into `a`. */
tg_options cli_args_options(const cli_args *a);

/* The kind of the tensor `name` as --kind says: the first pattern that matches, else `standard`. */
tg_kind cli_args_kind(const cli_args *a, const char *name, tg_kind standard);

#endif
