/* Drafts of a step: what each kind of rank does, before it is known how long messages take. cli_draft_stage makes a scene of it. */
#ifndef CLI_PLAN_SCENE_H
#define CLI_PLAN_SCENE_H

#include "plan_sim.h"
#include "probe_data.h"

/* What a rank of kind `actor` sends in an operation: bytes[k][1] to ranks of kind k on its own host, bytes[k][0] to those of others. */
typedef struct cli_transfer {
    size_t actor;
    double bytes[CLI_ACTOR_MAX][2];
    double messages; /* to other hosts */
    double distinct; /* bytes that are sent, those to several ranks once; 0: they are in host memory */
} cli_transfer;

/* An operation. Those of the same group, talk and number on different ranks are one. */
typedef struct cli_draft_op {
    size_t group, number;
    int talk;
    cli_transfer of[CLI_ACTOR_MAX];
} cli_draft_op;

typedef struct cli_draft {
    cli_draft_op *ops;
    size_t op_n, op_cap;
    cli_items *items[CLI_ACTOR_MAX]; /* by group */
    size_t group_n[CLI_ACTOR_MAX];
} cli_draft;

/* Adds work, or an operation, to what a kind of rank does for a group; groups come in order. */
int cli_draft_work(cli_draft *d, size_t actor, size_t group, double seconds);
int cli_draft_carry(cli_draft *d, size_t group, int talk, size_t number, const cli_transfer *t);
void cli_draft_free(cli_draft *d);

/* Kinds of ranks: the kind of host of each, ranks on one such host, and such hosts. */
typedef struct cli_cast {
    size_t n;
    uint32_t host[CLI_ACTOR_MAX];
    double count[CLI_ACTOR_MAX], hosts[CLI_ACTOR_MAX];
} cli_cast;

/* How long messages take: seconds, or seconds a byte. */
typedef struct cli_wire {
    double rate;                 /* bytes a second of a host's link, in each direction */
    double latency;              /* between hosts */
    double message;              /* for each further message */
    double local;                /* a byte between ranks of a host */
    double op;                   /* an operation itself */
    double tcp;                  /* CPU time of a byte that is sent and of one that is received */
    const cli_network *measured; /* the link is this one; NULL: nobody has measured it */
    int is_even;                 /* all ranks send as much to all, as was measured */
    int has_hosts;               /* leaders and ranks of hosts talk as was measured */
    int is_grouped;              /* operations are those of groups, over a link that listens; 0: one at a time */
    const cli_gpu *gpu; /* messages are in its memory, and travel through that of the host; NULL: they are not */
} cli_wire;

/* Seconds that so many bytes of a host take on its link, and the cores that TCP needs meanwhile: at most one for each rank, which is
 * then the limit. */
double cli_network_time(double *load, double bytes, double ranks, const cli_wire *w);

/* Fills in actors' groups and operations of a scene whose group_n is set. *most: bytes that a host sends to others in a step, of the
 * kind that sends most. The draft's items are copied. */
int cli_draft_stage(cli_scene *scene, double *most, const cli_draft *d, const cli_cast *c, const cli_wire *w);

void cli_scene_free(cli_scene *scene);

#endif
