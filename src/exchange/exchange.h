/* The exchange's inside: one step as rounds of messages, group by group, between two votes. docs/steps.md describes it.
 *
 *     opening   ranks compare their setups; in the first step only
 *     groups    each goes through the rounds of a protocol: encode (`send`), messages travel, check (`receive`)
 *     closing   ranks tell each other that they are well; only if all are does anything change (`deliver`, `commit`)
 *     audit     ranks compare hashes of the averages, every verify_every steps
 *
 * A rank that has failed goes on with messages that say so, and nobody waits for it; the closing vote tells all why.
 *
 * A protocol is one file and one row in protocols.def. It carries nothing itself and allocates only when it is opened, so
 * that nothing in the middle of a step can fail on one rank alone. */
#ifndef TG_EXCHANGE_EXCHANGE_H
#define TG_EXCHANGE_EXCHANGE_H

#include "exchange/lengths.h"
#include "frame/frame.h"
#include "tersegrad/experimental.h"

#define TG_WORLD_MAX 65536
#define TG_GROUP_MAX 58       /* of an exchange; a link has 5 channels more, and one for itself (wire.c) */
#define TG_DIRECT_WORLD_MAX 8 /* up to so many ranks votes and lengths go from everyone to everyone */
#define TG_VOTE_LEN 96

typedef struct tg_protocol {
    const char *name;

    /* Whether this protocol can carry the units of a layout; if not, one sentence why. */
    tg_status (*suits)(const tg_layout *layout, tg_detail *why);

    unsigned holds;                     /* what its frames hold, in both directions */
    uint32_t (*slices)(uint32_t world); /* into which frames are cut; NULL: one */
    bool (*answers)(uint32_t rank);     /* whether a rank owns a slice and answers for it; NULL: none does */
    bool answer_has_feedback;
    bool is_one_group; /* what it sends spans the model */
    bool sums_all;     /* every rank checks the frames of all ranks and sums them later */
    bool shows_last;   /* what arrives in the last round is for averages alone: ranks that are spared do not look */

    /* Takes all memory that steps will use, and sets the in_cap of all lanes; `close` accepts what `open` left unfinished. */
    tg_status (*open)(tg_exchange *x, const tg_options *opt, tg_detail *why);
    void (*close)(tg_exchange *x);

    uint32_t (*rounds)(const tg_exchange *x);

    /* These work on the group x->lane. */

    /* Sets the kind of a round's operation and its root. If all ranks know the lengths of all messages, also lane->mail.is_known
     * and the spans. Called on ranks that have failed, too. */
    void (*shape)(tg_exchange *x, uint32_t round);

    /* Prepares what this rank sends in a round: tg_exchange_send for each peer. */
    tg_status (*send)(tg_exchange *x, uint32_t round, tg_detail *why);

    /* Checks what arrived in a round. */
    tg_status (*receive)(tg_exchange *x, uint32_t round, tg_detail *why);

    /* The averages of a group that has done all rounds, to `grads`, which may be private. Cannot fail. NULL: only with `finish`. */
    void (*deliver)(tg_exchange *x, uint32_t group, void *const *grads);

    /* All ranks are well, and averages are delivered: residuals committed. Cannot fail. */
    void (*commit)(tg_exchange *x);

    /* Both at once: averages of all groups to the gradients, residuals committed. NULL: one after the other. */
    void (*finish)(tg_exchange *x);

    const struct tg_protocol_state *state; /* NULL: residuals are the codec's */
} tg_protocol;

/* Protocols that keep state of their own. */
typedef struct tg_protocol_state {
    void (*residual)(const tg_exchange *x, float *out, size_t tensor);
    tg_status (*traffic)(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why);
    uint64_t (*saved_n)(const tg_exchange *x);                               /* numbers that are saved ... */
    void (*save)(float *out, const tg_exchange *x, uint64_t at, uint64_t n); /* ... n of them, from number `at` on */
    void (*load)(const tg_exchange *x, uint64_t at, const float *values, uint64_t n);
    void (*restored)(const tg_exchange *x); /* what was loaded counts once this is called; NULL: at once */
    void (*learning)(tg_learning *out, const tg_exchange *x); /* NULL: it does not learn */
    const char *of_world; /* what in it belongs to one number of ranks; NULL: nothing */
} tg_protocol_state;

typedef enum tg_phase {
    TG_IDLE,
    TG_OPENING,
    TG_FLYING, /* groups are on their way */
    TG_CLOSING,
    TG_AUDIT,
    TG_REASONING /* the rank that has failed sends its reason */
} tg_phase;

/* The step in progress. */
typedef struct tg_step {
    tg_phase phase;
    bool is_in_turn;      /* by tg_exchange_next: one operation at a time ... */
    bool is_announcing;   /* ... of lengths ... */
    uint32_t group, slot; /* ... or of a group */
    uint64_t number;
    void *const *grads;
    tg_status status; /* how this rank fares ... */
    tg_detail why;    /* ... and why */
    bool is_peers;    /* this rank only failed because another one did */
    bool is_spared;   /* another rank of the process computes the averages, which are the same */
    tg_op pending;    /* the operation that was handed out last */
    float divisor;    /* of a reduce-scatter: what sums are divided by */
} tg_step;

typedef struct tg_message {
    uint8_t *data;
    size_t len;
} tg_message;

/* The messages of a round. */
typedef struct tg_mail {
    tg_op_kind kind;
    uint32_t root;
    bool is_known; /* all ranks know the lengths of all messages */
    tg_span *sends, *recvs;
    size_t *payload;     /* the part of each message that is payload */
    const uint8_t *self; /* what this rank sends to itself, which does not travel */
    size_t self_len;
    tg_message *in; /* one a rank */
    uint8_t *in_space;
    size_t in_cap; /* the longest message that can arrive */
} tg_mail;

/* Bytes and times: of the last step and of all; and those of every step. */
typedef struct tg_counts {
    tg_meter last, total;
    uint64_t logical; /* of the gradients */
    uint64_t dense;   /* that a rank would send to all-reduce them as they are */
} tg_counts;

typedef enum tg_lane_phase {
    TG_LANE_START,     /* a round is to begin */
    TG_LANE_ENCODED,   /* lengths are to be announced */
    TG_LANE_ANNOUNCED, /* other ranks are to announce theirs */
    TG_LANE_CLEARED,   /* all lengths are known */
    TG_LANE_MESSAGES,  /* messages are out */
    TG_LANE_DONE       /* of all rounds */
} tg_lane_phase;

/* The way of a group through the rounds of a step. */
typedef struct tg_lane {
    uint32_t group;
    tg_lane_phase phase;
    uint32_t round;
    tg_mail mail;
    tg_counts counts;
} tg_lane;

/* The smallest or the largest value of all ranks, and the lowest rank that has it. */
typedef struct tg_extreme {
    uint64_t value;
    uint32_t rank;
} tg_extreme;

/* What is known of a vote. */
typedef struct tg_vote {
    uint32_t
        failed; /* the lowest rank that failed by itself; else, plus 2^31, because of another; NOBODY_FAILED: none */
    tg_status status;
    tg_extreme agreement[2], step[2], number[2]; /* smallest and largest */
} tg_vote;

/* Votes on their way. */
typedef struct tg_votes {
    bool is_cast;
    uint32_t hop;
    tg_vote known;
    tg_span *sends, *recvs;
    uint8_t out[TG_VOTE_LEN];
    uint8_t in[TG_DIRECT_WORLD_MAX][TG_VOTE_LEN];
    char reason[sizeof(tg_detail)]; /* of the failed rank */
} tg_votes;

/* Frames between ranks: those of each rank's gradients, and those with which owners answer. */
typedef struct tg_carrier {
    tg_codec *codec;  /* of this rank's gradients */
    tg_codec *answer; /* of the slice that this rank owns; NULL if it owns none */
    /* Where owners answer with all values (again=): what averages the slice, if this rank owns one, and what reads answers. Else NULL:
     * `answer` and `codec` do. */
    tg_codec *averager, *reader;
    tg_grid *leader_grid;
    tg_plan *leader; /* of the indices of a step's leader; NULL if nothing follows one */
    uint8_t *out, *answer_out;
    uint8_t **frames;  /* where each cell's frame is in `out` */
    uint8_t **answers; /* of each group: where this rank's answer, or its indices as a leader, are in `answer_out` */
    tg_framed *framed;
    uint64_t *known;      /* lengths of the frames of a group, one a slice, where all ranks know them */
    size_t group_bodies;  /* of each group: */
    tg_body_view *bodies; /* frames that arrived: of all ranks, or answers of all slices */
    size_t *view_first;   /* of each group: the first of its views */
    tg_view *views;
    uint64_t *hashes; /* of chunks, beside the views, and two more a frame */
    float *mean;
    void **
        averages; /* private ones, by tensor, where frames are decoded once, as they arrive; NULL: they are checked, and decoded
                      * when the step succeeds */
    void *average_space;
} tg_carrier;

/* The last step that succeeded, if any did. */
typedef struct tg_done {
    uint64_t step;
    bool any;
} tg_done;

typedef struct tg_hosts tg_hosts;

struct tg_exchange {
    tg_allocator allocator;
    const tg_protocol *protocol;
    tg_codec *codec;     /* tensors and recipes; of protocols without state of their own, residuals too */
    tg_carrier *carrier; /* of protocols whose frames are the codec's; else NULL */
    void *own;           /* what other protocols keep */
    uint32_t rank, world;
    uint32_t first_rank, rank_step; /* rank p here is rank first_rank + p * rank_step of the job */
    uint32_t host_size;             /* 1: every rank is a host */
    tg_hosts *hosts;                /* where ranks of a host sum first; else NULL */
    uint64_t verify_every;
    uint64_t agreement; /* hash of all that ranks must have in common */
    bool is_open;       /* all ranks have compared their setups, and done a step since */
    tg_step step;
    tg_lane *lanes; /* one a group */
    uint32_t lane_n;
    tg_lane *lane; /* that is being worked on */
    tg_lengths lengths;
    uint64_t (*now)(void); /* nanoseconds; NULL: no times are taken */
    tg_votes votes;
    tg_counts counts;
    tg_done done;
};

/* ---- exchange.c: a step --------------------------------------------------------------------------------------------------- */

/* Adds bytes to those of a meter. */
void tg_step_add(tg_meter *meter, const tg_meter *more);

/* Begins a step, once an exchange is known to be between steps. */
void tg_step_begin(tg_exchange *x, tg_phase phase, uint64_t number, void *const *grads);

/* Continues the vote that is due. TG_MORE: perform *op. TG_OK: it is over, and x->step.phase is the next one: TG_FLYING, or TG_IDLE
 * at the end of the step. Any other: the step has ended. */
tg_status tg_step_vote(tg_exchange *x, tg_op *op, tg_detail *why) TG_CHECKED;

/* Ends a step: counts its bytes and times. */
void tg_step_end(tg_exchange *x, tg_status status);

/* All lanes are done: the closing vote is due. */
void tg_step_close(tg_exchange *x);

/* Notes that this rank has failed, unless it has before. */
void tg_step_fail(tg_exchange *x, tg_status status, const tg_detail *why);

/* Notes that this rank has failed because rank p has, unless it has before. */
void tg_step_fail_by(tg_exchange *x, uint32_t p);

/* Counts what an operation of a lane sends, or of no lane if `lane` is NULL. `payload` may be NULL. */
void tg_step_count(tg_exchange *x, tg_lane *lane, const tg_op *op, const size_t *payload);

/* Begins a step in which another rank of the process computes the averages: this one skips what leads to them alone. */
void tg_step_spare(tg_exchange *x);

/* After a step: adds the time that the caller has waited for it. */
void tg_step_expose(tg_exchange *x, uint64_t ns);

/* The time, if times are taken. */
static inline uint64_t tg_step_now(const tg_exchange *x)
{
    return x->now == NULL ? 0 : x->now();
}

/* ---- rounds.c: the way of a group ------------------------------------------------------------------------------------------ */

/* Continues a group. TG_MORE: perform *op. TG_OK: it has done all rounds, or waits for lengths. TG_E_LINK: what came cannot be
 * understood. */
tg_status tg_lane_next(tg_exchange *x, uint32_t group, tg_op *op, tg_detail *why) TG_CHECKED;

/* Whether a group has done all rounds; whether one that waited for lengths can go on. */
bool tg_lane_is_done(const tg_exchange *x, uint32_t group);
bool tg_lane_is_cleared(const tg_exchange *x, uint32_t group);

/* Whether a rank does not look at what arrives in this round, because another one of the process computes the averages. */
bool tg_lane_is_spared(const tg_exchange *x, const tg_lane *lane);

/* Replaces the messages of a rank that has failed. */
void tg_lane_spoil(const tg_exchange *x, tg_lane *lane);

/* Whether votes and lengths go from everyone to everyone. */
static inline bool tg_is_direct(const tg_exchange *x)
{
    return x->world <= TG_DIRECT_WORLD_MAX;
}

/* ---- setup.c ------------------------------------------------------------------------------------------------------------- */

/* The number of rank p in the job, for sentences. */
static inline uint32_t tg_job_rank(const tg_exchange *x, uint32_t p)
{
    return x->first_rank + p * x->rank_step;
}

/* Refuses a rank that is not in the world. */
tg_status tg_exchange_check_rank(uint32_t rank, uint32_t world, tg_detail *why) TG_CHECKED;

/* Which ranks of a job an exchange is of, and what it uses. */
typedef struct tg_seat {
    uint32_t rank, world;
    uint32_t first_rank, rank_step, host_size;
    const tg_protocol *protocol; /* NULL: by options and recipe */
    void *own;                   /* what the protocol keeps, if it was made before */
} tg_seat;

/* tg_exchange_new for some ranks of a job. */
tg_status tg_exchange_seat(tg_exchange **out, const tg_seat *seat, const char *recipe, const tg_tensor *tensors,
                           size_t tensor_n, const tg_options *opt, tg_detail *why) TG_CHECKED;

/* ---- votes.c ------------------------------------------------------------------------------------------------------------------ */

#define TG_NOBODY_FAILED UINT32_MAX

/* Continues a vote; at its end x->votes.known is what all ranks know. `number` is what this rank's vote has. */
tg_status tg_vote_next(tg_exchange *x, tg_op *op, uint64_t number, tg_detail *why) TG_CHECKED;

/* ---- owners.c: messages ------------------------------------------------------------------------------------------------------- */

/* What rank p is sent in this round; if it is this rank, it keeps it. */
void tg_exchange_send(tg_exchange *x, uint32_t p, const uint8_t *frame, const tg_framed *framed);
void tg_exchange_send_all(tg_exchange *x, const uint8_t *frame, const tg_framed *framed);

/* The bytes from rank p in this round, this rank's own among them. */
tg_message tg_exchange_received(const tg_exchange *x, uint32_t p);

extern const tg_protocol tg_protocol_allreduce, tg_protocol_gather;

/* protocols.c: the protocol of this name, NULL if there is none; the slices into which its frames are cut. */
const tg_protocol *tg_protocol_named(const char *name);
uint32_t tg_protocol_slices(const tg_protocol *p, uint32_t world);

/* protocols.c: the protocol of this name, or the one that suits best. */
tg_status tg_protocol_choose(const tg_protocol **out, const char *name, const tg_layout *layout, const char *recipe,
                             uint32_t world, tg_detail *why) TG_CHECKED;

/* groups.c: the groups of an exchange. *space, if it is set, holds them and is the caller's to release. */
tg_status tg_groups_choose(tg_groups *out, uint32_t **space, const tg_layout *l, const tg_protocol *protocol,
                           const tg_options *opt, const tg_allocator *a, tg_detail *why) TG_CHECKED;

/* ---- hosts.c: ranks of a host sum first ------------------------------------------------------------------------------------ */

/* The way of a group: to the leader of the host, across to other hosts, and back. */
typedef enum tg_host_leg { TG_LEG_UP, TG_LEG_ACROSS, TG_LEG_DOWN, TG_LEG_DONE } tg_host_leg;

typedef struct tg_host_lane {
    tg_host_leg leg;
    uint32_t crossed; /* operations between hosts that were handed out */
    bool is_held;     /* in turn: an operation that goes after lengths were announced */
    tg_op held;
    tg_span *sends, *recvs;
} tg_host_lane;

struct tg_hosts {
    tg_exchange *inside;                       /* of the ranks of this host */
    tg_exchange *between;                      /* of the leaders of all hosts; NULL on other ranks */
    tg_host_lane *lanes;                       /* one a group */
    tg_host_lane lengths[TG_ANNOUNCEMENT_MAX]; /* their operations */
    uint32_t crossings;                        /* operations between hosts, of a group; the same on all ranks */
    void **means; /* leaders: of the host's gradients, by tensor, and private averages over all hosts */
    void **averages;
    void *mean_space, *average_space;
    bool is_lossy; /* the recipe says how gradients travel inside a host; else they do so as they are */
};

/* Takes all memory. The exchange knows its codec, and has lanes without buffers. */
tg_status tg_hosts_open(tg_exchange *x, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                        const tg_options *opt, tg_detail *why) TG_CHECKED;
void tg_hosts_close(tg_exchange *x);

void tg_hosts_begin(tg_exchange *x);
/* tg_lane_next where ranks of a host sum first. */
tg_status tg_hosts_next(tg_exchange *x, uint32_t group, tg_op *op, tg_detail *why) TG_CHECKED;
/* tg_lengths_start and tg_lengths_next likewise: between leaders. */
tg_status tg_hosts_start_lengths(tg_exchange *x, uint32_t *slot, tg_op *op, bool more_to_come) TG_CHECKED;
tg_status tg_hosts_next_lengths(tg_exchange *x, uint32_t slot, tg_op *op, tg_detail *why) TG_CHECKED;
bool tg_hosts_is_done(const tg_exchange *x, uint32_t group);
/* All ranks are well. */
void tg_hosts_finish(tg_exchange *x);
/* The step has ended: counts its bytes. */
void tg_hosts_end(tg_exchange *x);

/* The exchange that has a rank's residuals: its own or, of leaders, that between hosts. NULL: the rank has none. */
static inline const tg_exchange *tg_keeper(const tg_exchange *x)
{
    return x->hosts == NULL ? x : x->hosts->between;
}

/* inside.c: the protocol inside a host, whose `own` is tg_hosts. */
extern const tg_protocol tg_protocol_inside;

/* ---- carrier.c: frames of a codec between ranks ------------------------------------------------------------------------- */

/* A carrier of the codec's frames, cut as the protocol says. Raises the in_cap of all lanes to what can arrive. */
tg_status tg_carrier_open(tg_carrier **out, tg_exchange *x, tg_codec *codec, const tg_protocol *by,
                          tg_detail *why) TG_CHECKED;
void tg_carrier_close(tg_carrier *c, const tg_allocator *a);

/* Private buffers of all tensors. *space, if it is set, is the executor's to release, and *out the allocator's. */
tg_status tg_carrier_buffers(void ***out, void **space, const tg_codec *codec, const tg_allocator *a,
                             tg_detail *why) TG_CHECKED;

/* Whether coordinates of a unit are those of a step's leader. */
bool tg_carrier_follows(const tg_layout *l);

/* `open` and `close` of protocols whose frames are the codec's. */
tg_status tg_carrier_open_own(tg_exchange *x, const tg_options *opt, tg_detail *why) TG_CHECKED;
void tg_carrier_close_own(tg_exchange *x);

/* What reads answers; and what averages the slice that this rank owns, which it must. */
static inline tg_codec *tg_carrier_reader(const tg_carrier *c)
{
    return c->reader != NULL ? c->reader : c->codec;
}

static inline const tg_codec *tg_carrier_averager(const tg_carrier *c)
{
    return c->averager != NULL ? c->averager : c->answer;
}

/* Numbers of state an element that an owner keeps by a protocol of tensors with a recipe. */
uint32_t tg_carrier_answer_planes(const tg_protocol *by, const tg_recipe *recipe);

/* The slice's cell of the group that is being worked on. */
static inline uint32_t tg_carrier_cell(const tg_exchange *x, const tg_carrier *c, uint32_t slice)
{
    return x->lane->group * c->codec->grid->slices + slice;
}

/* owners.c: selects and writes one frame a slice of these gradients. */
tg_status tg_carrier_write(tg_exchange *x, tg_carrier *c, void *const *grads, tg_detail *why) TG_CHECKED;

/* shapes.c: the kind of a round and, if all lengths are known, its spans.
 *     gather    every rank's frame to all
 *     slices    every rank's frame of slice s to rank s
 *     answers   the owner's frame of slice s to all
 *     server    every rank's frame to rank 0, or its answer to all; from `frame` */
void tg_carrier_shape_gather(tg_exchange *x, const tg_carrier *c);
void tg_carrier_shape_slices(tg_exchange *x, const tg_carrier *c);
void tg_carrier_shape_answers(tg_exchange *x, const tg_carrier *c);
void tg_carrier_shape_server(tg_exchange *x, const tg_carrier *c, uint8_t *frame, bool answers);

/* owners.c: checks the frame from rank p by a codec as body `number` of the group. The sentence on failure names p. */
tg_status tg_carrier_read(tg_exchange *x, const tg_carrier *c, tg_codec *codec, size_t number, uint32_t p,
                          const tg_plan *plan, uint32_t cell, tg_detail *why) TG_CHECKED;

/* Frames of one slice from ranks [from, to), which are bodies of the same numbers; their views begin at `views` of the group's. */
typedef struct tg_arrived {
    tg_codec *codec; /* that reads them */
    uint32_t slice, from, to;
    size_t views;
} tg_arrived;

/* owners.c: sums frames to a sink that is private, with the codec's run or that of the averager, and checks them on the way. */
tg_status tg_carrier_sum(tg_exchange *x, tg_carrier *c, tg_run *run, const tg_arrived *a, const tg_sink *sink,
                         tg_detail *why) TG_CHECKED;

/* owners.c: the same by the codec's own run and without a wait, if the executor can (exec.h, sum_later). False: it cannot. */
bool tg_carrier_sum_later(tg_exchange *x, tg_carrier *c, const tg_arrived *a, const tg_sink *sink) TG_CHECKED;

/* owners.c: whether frames of all ranks are added to private sums of the executor as they arrive. */
bool tg_carrier_adds(const tg_exchange *x, const tg_carrier *c);

/* owners.c: checks frames and, where there are private averages, averages them. */
tg_status tg_carrier_receive(tg_exchange *x, tg_carrier *c, const tg_arrived *a, tg_detail *why) TG_CHECKED;

/* ---- owners.c: protocols in which owners average slices and answer ------------------------------------------------------ */

/* Whether an owner's answer can carry a mean: not by random coordinates of its own, which would drop most of it. */
tg_status tg_owners_suit(const tg_layout *layout, tg_detail *why) TG_CHECKED;

/* Their rounds: all send to owners, owners answer. */
uint32_t tg_owners_rounds(const tg_exchange *x);

/* Writes, and sends slice s to rank s. */
tg_status tg_owners_send_slices(tg_exchange *x, tg_carrier *c, void *const *grads, tg_detail *why) TG_CHECKED;

/* An owner: checks the frames of all ranks for its slice and averages them. */
tg_status tg_owners_average(tg_exchange *x, tg_carrier *c, tg_detail *why) TG_CHECKED;

/* An owner: encodes the mean and sends it to all. */
tg_status tg_owners_answer(tg_exchange *x, tg_carrier *c, tg_detail *why) TG_CHECKED;

/* Everyone: checks the answers, slice s from rank s; and later delivers the averages of a group. */
tg_status tg_owners_receive_answers(tg_exchange *x, tg_carrier *c, tg_detail *why) TG_CHECKED;
void tg_owners_deliver(const tg_carrier *c, uint32_t group, void *const *grads);
void tg_owners_commit(const tg_carrier *c);

/* `receive`, `deliver` and `commit` of protocols with these two rounds. */
tg_status tg_owners_receive(tg_exchange *x, uint32_t round, tg_detail *why) TG_CHECKED;
void tg_owners_deliver_own(tg_exchange *x, uint32_t group, void *const *grads);
void tg_owners_commit_own(tg_exchange *x);

#endif
