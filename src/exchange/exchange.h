/* The exchange's inside: one step as rounds of messages.
 *
 *     round:    every rank prepares what it sends (a protocol's `send`), ballots go around, messages travel,
 *               every rank checks what it received (a protocol's `receive`)
 *     closing:  ballots go around once more; only if all ranks are well does anything change
 *
 * A ballot tells every other rank this one's status and the length of its next message. Whatever goes wrong on a rank is
 * thus known to all before anyone has changed anything, and the rank that failed then sends its reason.
 *
 * A protocol is one file and one row in protocols.def. It carries nothing itself and allocates only when it is opened, so
 * that nothing in the middle of a step can fail on one rank alone. */
#ifndef TG_EXCHANGE_EXCHANGE_H
#define TG_EXCHANGE_EXCHANGE_H

#include "frame/frame.h"
#include "tersegrad/experimental.h"

#define TG_WORLD_MAX 65536
#define TG_BALLOT_LEN 40

typedef struct tg_protocol {
    const char *name;

    /* Whether this protocol can carry the units of a layout; if not, one sentence why. */
    tg_status (*suits)(const tg_layout *layout, tg_detail *why);

    unsigned holds;                     /* what its frames hold, in both directions */
    uint32_t (*slices)(uint32_t world); /* into which frames are cut; NULL: one */
    bool (*answers)(uint32_t rank);     /* whether a rank owns a slice and answers for it; NULL: none does */
    bool answer_has_feedback;

    /* Takes all memory that steps will use, and sets x->mail.in_cap; `close` accepts what `open` left unfinished. */
    tg_status (*open)(tg_exchange *x, const tg_options *opt, tg_detail *why);
    void (*close)(tg_exchange *x);

    uint32_t (*rounds)(const tg_exchange *x);

    /* Prepares what this rank sends in a round: tg_exchange_send for each peer, and the kind of operation. */
    tg_status (*send)(tg_exchange *x, uint32_t round, tg_detail *why);

    /* Checks what arrived in a round. */
    tg_status (*receive)(tg_exchange *x, uint32_t round, tg_detail *why);

    /* All ranks are well: averages to the gradients, residuals committed. Cannot fail. */
    void (*finish)(tg_exchange *x);

    const struct tg_protocol_state *state; /* NULL: residuals are the codec's */
} tg_protocol;

/* Protocols that keep state of their own. */
typedef struct tg_protocol_state {
    void (*residual)(const tg_exchange *x, float *out, size_t tensor);
    tg_status (*traffic)(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why);
    float *(*saved)(const tg_exchange *x, uint64_t *n);       /* all that is saved, as floats ... */
    void (*restored)(const tg_exchange *x);                   /* ... which counts once this is called; NULL: at once */
    void (*learning)(tg_learning *out, const tg_exchange *x); /* NULL: it does not learn */
    const char *of_world; /* what in it belongs to one number of ranks; NULL: nothing */
} tg_protocol_state;

typedef enum tg_phase {
    TG_IDLE,
    TG_SENDING,  /* a round is to begin */
    TG_VOTING,   /* ballots are out */
    TG_TALKING,  /* messages are out */
    TG_CLOSING,  /* the last ballots are out */
    TG_AUDIT,    /* hashes of the averages are out */
    TG_REASONING /* the reason of a failure is out */
} tg_phase;

/* The step in progress. */
typedef struct tg_step {
    tg_phase phase;
    uint32_t round;
    uint64_t number;
    void *const *grads;
    tg_status status; /* how this rank fares ... */
    tg_detail why;    /* ... and why */
    uint32_t failed_rank;
    tg_op pending; /* the operation that was handed out last */
} tg_step;

typedef struct tg_message {
    uint8_t *data;
    size_t len;
} tg_message;

/* The messages of a round. */
typedef struct tg_mail {
    tg_op_kind kind;
    uint32_t root;
    tg_span *sends, *recvs;
    size_t *payload;     /* the part of each message that is payload */
    const uint8_t *self; /* what this rank sends to itself, which does not travel */
    size_t self_len;
    tg_message *in; /* one a rank */
    uint8_t *in_space;
    size_t in_cap; /* the longest message that can arrive */
} tg_mail;

/* Ballots and reasons. */
typedef struct tg_ballots {
    tg_span *sends, *recvs;
    uint8_t *out, *in;
    char reason[sizeof(tg_detail)];
} tg_ballots;

/* Frames between ranks: those of each rank's gradients, and those with which owners answer. */
typedef struct tg_carrier {
    tg_codec *codec;  /* of this rank's gradients */
    tg_codec *answer; /* of the slice that this rank owns; NULL if it owns none */
    tg_grid *leader_grid;
    tg_plan *leader; /* of the indices of a step's leader; NULL if nothing follows one */
    uint8_t *out, *answer_out;
    uint8_t **frames; /* where each slice's frame is in `out` */
    tg_framed *framed;
    tg_body_view *bodies; /* frames that arrived: of all ranks, or answers of all slices */
    tg_view *views;
    uint64_t *hashes; /* of chunks, beside the views, and one more a frame */
    float *mean;
    void **
        averages; /* private ones, by tensor, where frames are decoded once, as they arrive; NULL: they are checked, and decoded
                      * when the step succeeds */
    void *average_space;
} tg_carrier;

/* Bytes: of the last step and of all; and those of every step. */
typedef struct tg_counts {
    tg_meter last, total;
    uint64_t logical; /* of the gradients */
    uint64_t dense;   /* that a rank would send to all-reduce them as they are */
} tg_counts;

/* The last step that succeeded, if any did. */
typedef struct tg_done {
    uint64_t step;
    bool any;
} tg_done;

struct tg_exchange {
    tg_allocator allocator;
    const tg_protocol *protocol;
    tg_codec *codec;     /* tensors and recipes; of protocols without state of their own, residuals too */
    tg_carrier *carrier; /* of protocols whose frames are the codec's; else NULL */
    void *own;           /* what other protocols keep */
    uint32_t rank, world;
    uint64_t verify_every;
    uint64_t agreement; /* hash of all that ranks must have in common */
    tg_step step;
    tg_mail mail;
    tg_ballots ballots;
    tg_counts counts;
    tg_done done;
};

/* owners.c: what rank p is sent in this round; if it is this rank, it keeps it. */
void tg_exchange_send(tg_exchange *x, uint32_t p, const uint8_t *frame, const tg_framed *framed);
void tg_exchange_send_all(tg_exchange *x, const uint8_t *frame, const tg_framed *framed);

/* The bytes from rank p in this round, this rank's own among them. */
tg_message tg_exchange_received(const tg_exchange *x, uint32_t p);

extern const tg_protocol tg_protocol_allreduce;

/* protocols.c: the protocol of this name, NULL if there is none; the slices into which its frames are cut. */
const tg_protocol *tg_protocol_named(const char *name);
uint32_t tg_protocol_slices(const tg_protocol *p, uint32_t world);

/* protocols.c: the protocol of this name, or the one that suits best. */
tg_status tg_protocol_choose(const tg_protocol **out, const char *name, const tg_layout *layout, uint32_t world,
                             tg_detail *why) TG_CHECKED;

/* ---- carrier.c: frames of a codec between ranks ------------------------------------------------------------------------- */

/* A carrier of the codec's frames, cut as the protocol says. Raises x->mail.in_cap to what can arrive. */
tg_status tg_carrier_open(tg_carrier **out, tg_exchange *x, tg_codec *codec, const tg_protocol *by,
                          tg_detail *why) TG_CHECKED;
void tg_carrier_close(tg_carrier *c, const tg_allocator *a);

/* `open` and `close` of protocols whose frames are the codec's. */
tg_status tg_carrier_open_own(tg_exchange *x, const tg_options *opt, tg_detail *why) TG_CHECKED;
void tg_carrier_close_own(tg_exchange *x);

/* owners.c: selects and writes one frame a slice of these gradients. */
tg_status tg_carrier_write(tg_exchange *x, tg_carrier *c, void *const *grads, tg_detail *why) TG_CHECKED;

/* owners.c: checks the frame from rank p as body `number`. The sentence on failure names p. */
tg_status tg_carrier_read(tg_exchange *x, tg_carrier *c, size_t number, uint32_t p, const tg_plan *plan, uint32_t slice,
                          tg_detail *why) TG_CHECKED;

/* Frames of one slice from ranks [from, to), which are bodies of the same numbers; their views begin at `views`. */
typedef struct tg_arrived {
    uint32_t slice, from, to;
    size_t views;
} tg_arrived;

/* owners.c: sums frames to a sink that is private, with a run of the codec or of its answer, and checks them on the way. */
tg_status tg_carrier_sum(tg_exchange *x, tg_carrier *c, tg_run *run, const tg_arrived *a, const tg_sink *sink,
                         tg_detail *why) TG_CHECKED;

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

/* Everyone: checks the answers, slice s from rank s; and later decodes them into the gradients. */
tg_status tg_owners_receive_answers(tg_exchange *x, tg_carrier *c, tg_detail *why) TG_CHECKED;
void tg_owners_deliver(tg_carrier *c, void *const *grads);

/* `receive` and `finish` of protocols with these two rounds. */
tg_status tg_owners_receive(tg_exchange *x, uint32_t round, tg_detail *why) TG_CHECKED;
void tg_owners_finish(tg_exchange *x);

#endif
