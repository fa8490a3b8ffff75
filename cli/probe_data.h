/* What `tersegrad probe` has measured: costs of a machine, and of the network between ranks. `tersegrad plan` computes with
 * nothing else. Times are in seconds, sizes in bytes. */
#ifndef CLI_PROBE_DATA_H
#define CLI_PROBE_DATA_H

#include <stddef.h>
#include <stdint.h>

#include "tersegrad/experimental.h"

/* A pass takes this for each element, for each chunk (tg_work) and, on a GPU, to be started and waited for. */
typedef struct cli_pass_cost {
    double element, chunk, call;
} cli_pass_cost;

/* Of a recipe with so many threads, measured on gradients of n elements. */
typedef struct cli_recipe_cost {
    char recipe[TG_RECIPE_CAP]; /* canonical */
    uint32_t threads;
    uint64_t n;
    cli_pass_cost passes[TG_PASS_N];
    double bits, conv_bits; /* an element, in frames whose length depends on gradients; of tensors of kind conv */
} cli_recipe_cost;

typedef struct cli_costs {
    cli_recipe_cost *rows;
    size_t n, cap;
} cli_costs;

typedef struct cli_machine {
    char kind[160]; /* CPU and instruction set */
    uint32_t cores;
    double copy;          /* to copy a byte from memory to memory */
    double tcp;           /* CPU time to send a byte over TCP and to receive one ... */
    double message;       /* ... and a short message */
    double op;            /* to start a small operation between two threads, and to hear that it is done */
    double add, add_bf16; /* to add an element to a sum, in fp32 and in bf16 */
    double convert;       /* to narrow an element to bf16, and back */
    cli_costs costs;
} cli_machine;

/* A message in device memory travels through host memory (tg_cuda_link_new). */
typedef struct cli_gpu {
    char kind[160];              /* its name; empty: none was measured */
    double copy;                 /* to copy a byte from device memory to device memory */
    double down, up;             /* to copy a byte of messages to host memory, and from it; ... */
    double begin_down, begin_up; /* ... and to start that, and to wait for it */
    cli_costs costs;             /* of one thread */
} cli_gpu;

enum { CLI_SIZE_N = 10 }; /* of messages */

/* How ranks talk, all at the same time. Messages of groups go over a link that listens, as those of a tg_reducer do: its own thread
 * moves them, and tells another thread when they are there. */
typedef enum cli_talk {
    CLI_TALK_ALL,     /* a group: a rank sends so many bytes, as many to each */
    CLI_TALK_LEADERS, /* the same, by the first rank of each host alone */
    CLI_TALK_LOCAL,   /* the first rank of each host receives so many bytes from its others */
    CLI_TALK_FP32,    /* MPI_Allreduce of so many bytes, in fp32 ... */
    CLI_TALK_BF16,    /* ... and in bf16 */
    CLI_TALK_N
} cli_talk;

typedef struct cli_column {
    double idle[CLI_SIZE_N], busy[CLI_SIZE_N]; /* seconds; and while another thread of each rank computes */
    double load[CLI_SIZE_N]; /* what that takes of the core of a rank that computes, as a share of what is left to it */
} cli_column;

typedef struct cli_network {
    uint32_t ranks, hosts; /* that took part; ranks 0: no network was measured */
    double latency;        /* of a small operation between two ranks */
    double message;        /* for each further rank that a small message goes to */
    double rate;           /* bytes a second that last, of a host in each direction */
    double sizes[CLI_SIZE_N];
    double exchange[CLI_SIZE_N];  /* as CLI_TALK_ALL, one operation at a time, by the thread that waits for it */
    cli_column talks[CLI_TALK_N]; /* of leaders and local ones only where a host has several ranks; else 0 */
} cli_network;

typedef struct cli_probe_data {
    cli_machine machine;
    cli_gpu gpu;
    cli_network network;
} cli_probe_data;

void cli_probe_data_free(cli_probe_data *p);

/* Adds a row. CLI_OK, or out of memory. */
int cli_costs_add(cli_costs *c, const cli_recipe_cost *row);

/* The costs of a canonical recipe on n elements: between those sizes that were measured by interpolation. Threads as measured, or the
 * next lower number. 0: the recipe was not measured. */
int cli_costs_find(cli_recipe_cost *out, const cli_costs *c, const char *recipe, uint32_t threads, uint64_t n);

/* Seconds of an all-reduce, or of another column, by interpolation in a table of `sizes`. Above the largest, each byte takes
 * as long as between the two largest, but at least `beyond`. */
double cli_network_seconds(const cli_network *n, const double *column, double bytes, double beyond);

/* How many times as long it takes while ranks compute: at least 1. */
double cli_network_slowdown(const cli_network *n, cli_talk talk, double bytes);

/* The cores that a rank needs for it meanwhile. */
double cli_network_load(const cli_network *n, cli_talk talk, double bytes);

/* The kind of this machine. */
void cli_machine_kind(char out[160]);

/* The file: JSON, with a check sum. Reports whatever is wrong, as misuse; a file of a machine of another kind is. */
int cli_probe_read(cli_probe_data *out, const char *path);
int cli_probe_write(const cli_probe_data *p, const char *path);

/* Whether what was read has costs of a GPU of this name; else reports it. */
int cli_probe_suits(const cli_probe_data *p, const char *path, const char *gpu);

#endif
