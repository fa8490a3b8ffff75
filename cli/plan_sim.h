/* The event simulation of `tersegrad plan`: one step of data-parallel training, from the start of the backward pass to the
 * averages.
 *
 * Ranks that do the same are one actor. An actor computes, on a core of its host or on a device of its own, and its groups of
 * gradients get ready one after the other. A thread of its own works on groups (encodes, checks, sums), the first of those that wait
 * first; messages travel meanwhile. Threads of a host share its cores evenly, and operations that are under way share its links evenly. All times are in seconds. */
#ifndef CLI_PLAN_SIM_H
#define CLI_PLAN_SIM_H

#include <stddef.h>
#include <stdint.h>

enum { CLI_ACTOR_MAX = 4, CLI_HOST_KINDS = 2 };

/* One thing that an actor does for a group: work, or its part in an operation. */
typedef struct cli_item {
    double work; /* seconds of the codec's threads; negative: an operation ... */
    size_t op;   /* ... of this number */
} cli_item;

typedef struct cli_items {
    cli_item *of;
    size_t n, cap;
} cli_items;

/* An operation between ranks. It begins when all actors that take part have come to it. */
typedef struct cli_op {
    uint32_t actors; /* that take part, a bit each */
    double delay;    /* before bytes move: latency */
    /* Seconds that its bytes take alone, on the network of each kind of host, and in its memory. */
    double network[CLI_HOST_KINDS], memory[CLI_HOST_KINDS];
    double load[CLI_HOST_KINDS]; /* cores that a host of this kind needs meanwhile */
    double wait;                 /* cores that each rank needs which takes part, from when it has come */
    double slowdown;             /* times as long as that while ranks of the host compute; less than 1: as long */
} cli_op;

typedef struct cli_actor {
    uint32_t host;     /* its kind */
    uint32_t count;    /* ranks of one such host */
    cli_items *groups; /* what it does for each group; after the last of them, what it does when all groups are done */
} cli_actor;

typedef struct cli_scene {
    cli_actor actors[CLI_ACTOR_MAX];
    size_t actor_n, group_n;
    double *ready;          /* of each group: computing until it is ready, in order */
    double compute;         /* all computing of the step */
    int computes_on_device; /* the cores are free meanwhile; 0: on a core of the host for each rank */
    int encodes_on_device;  /* the codec works on the same device, and needs no cores either */
    cli_op *ops;
    size_t op_n;
    double cores[CLI_HOST_KINDS]; /* of a host */
    double threads;               /* of a codec */
    /* Seconds of the bytes of a step at the rate that lasts. Some links let bytes through at once after a pause, but steps in a row take
     * at least so long. */
    double lasting;
    int is_serial; /* a group begins when the one before it is done */
} cli_scene;

typedef struct cli_forecast {
    double step;       /* until the last rank has its averages */
    double compute;    /* until the first actor has computed: longer than alone if its codec needs the same cores */
    double exposed;    /* step less compute */
    double work, wire; /* of actor 0: its codec worked; operations of any actor were under way */
} cli_forecast;

/* CLI_OK or CLI_FAILED: out of memory, or a scene that never ends, which is a fault of the scene; reported. */
int cli_sim_run(cli_forecast *out, const cli_scene *scene);

/* Appends an item. CLI_OK, or out of memory. */
int cli_items_add(cli_items *items, cli_item item);

#endif
