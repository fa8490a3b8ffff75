/* The exchange's inside: one step as a conversation of rounds.
 *
 *     round:    every rank says something (a protocol's say), ballots go around, the message travels,
 *               every rank hears (a protocol's hear)
 *     closing:  ballots go around once more; only if all ranks are well does anything change
 *
 * A ballot tells every other rank how this one fares and how long its coming message is. Whatever goes wrong on a rank
 * is thus known to all before anyone has changed anything, and the rank that failed then tells why.
 *
 * A protocol is one file and one row in protocols.def. It never carries anything itself and never allocates after its
 * setup, so nothing in the middle of a step can fail on one rank alone. */
#ifndef TG_EXCHANGE_EXCHANGE_H
#define TG_EXCHANGE_EXCHANGE_H

#include "frame/frame.h"

typedef struct tg_protocol {
    const char *name;
    uint32_t (*rounds)(const tg_exchange *x);

    /* Whether this protocol can carry the units of a layout; if not, one sentence why. */
    tg_status (*suits)(const tg_layout *layout, tg_detail *why);

    /* Into how many slices frames are cut, and whether this rank owns one and answers for it. NULL: one, and nobody does. */
    uint32_t (*slices)(uint32_t world);
    bool (*answers)(uint32_t rank);
    bool answer_remembers;
    unsigned holds; /* of the frames in both directions */

    /* Prepares what this rank sends in a round: tg_exchange_send for each peer, and the kind of operation. */
    tg_status (*say)(tg_exchange *x, uint32_t round, tg_detail *why);

    /* Checks what arrived. All ranks' frames are at x->in. */
    tg_status (*hear)(tg_exchange *x, uint32_t round, tg_detail *why);

    /* All ranks are well: averages to x->grads, new memory in. Cannot fail. */
    void (*finish)(tg_exchange *x);

    /* Protocols that remember and count by themselves; NULL: the codec does. `memory` is all that is saved, as floats; what
     * was loaded there counts from `restored` on, which may be NULL. */
    void (*residual)(const tg_exchange *x, float *out, size_t tensor);
    tg_status (*traffic)(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why);
    float *(*memory)(const tg_exchange *x, uint64_t *n);
    void (*restored)(const tg_exchange *x);
    const char *of_world; /* what in it is of one number of ranks alone; NULL: nothing */
} tg_protocol;

static inline uint32_t tg_protocol_slices(const tg_protocol *p, uint32_t world)
{
    return p->slices == NULL ? 1 : p->slices(world);
}

static inline bool tg_protocol_answers(const tg_protocol *p, uint32_t rank)
{
    return p->answers != NULL && p->answers(rank);
}

#define TG_WORLD_MAX 65536
#define TG_BALLOT_LEN 40

typedef enum tg_phase {
    TG_IDLE,
    TG_SAYING,  /* a round is to begin */
    TG_VOTING,  /* ballots are out */
    TG_TALKING, /* messages are out */
    TG_CLOSING, /* the last ballots are out */
    TG_AUDIT,   /* hashes of the averages are out */
    TG_REASON   /* the reason of a failure is out */
} tg_phase;

typedef struct tg_message {
    uint8_t *data;
    size_t len;
} tg_message;

typedef struct tg_lowrank tg_lowrank;
typedef struct tg_lgc tg_lgc;

struct tg_exchange {
    tg_allocator allocator;
    tg_lowrank *lowrank; /* does all the work, where the recipe is lowrank; otherwise NULL */
    tg_lgc *lgc;         /* what LGC's two protocols know; otherwise NULL */
    const tg_protocol *protocol;
    tg_codec *codec;  /* of this rank's gradients */
    tg_codec *answer; /* of the slice that this rank owns, NULL if it owns none */
    tg_grid *whole;   /* for the indices of a leader, NULL if nothing is led */
    uint32_t rank, world;
    uint64_t verify_every;
    uint64_t logical;   /* bytes of the gradients */
    uint64_t agreement; /* hash of all that ranks must have in common */

    tg_phase phase;
    uint32_t round;
    uint64_t step;
    void *const *grads;
    tg_status status; /* how this rank fares in this step ... */
    tg_detail why;    /* ... and why */
    uint32_t failed_rank;

    tg_op_kind op_kind; /* of the round's message, with its root */
    uint32_t root;
    const uint8_t *self; /* what this rank has said to itself */
    size_t self_len;
    tg_span *sends, *recvs;             /* of the message */
    size_t *send_payload;               /* the part of each that is payload */
    tg_span *small_sends, *small_recvs; /* of ballots and reasons */
    uint8_t *ballots_out, *ballots_in;
    char reason[sizeof(tg_detail)];

    uint8_t *out, *answer_out; /* room for frames */
    uint8_t **out_frames;      /* where each slice's frame lies in out */
    tg_framed *framed;
    tg_message *in; /* one a rank: room, and what came */
    uint8_t *in_room;
    size_t in_cap;
    tg_view *views;
    float *mean;

    tg_op pending;   /* the operation that was handed out last */
    tg_status ended; /* what tg_exchange_next returned last */
    tg_meter last, total;
    uint64_t done_step; /* the last that succeeded, if any did */
    bool any_done;
};

/* What rank p is sent in this round; nothing if it is this rank itself, which keeps it. */
void tg_exchange_send(tg_exchange *x, uint32_t p, const uint8_t *frame, const tg_framed *framed);
void tg_exchange_send_all(tg_exchange *x, const uint8_t *frame, const tg_framed *framed);

/* The bytes from rank p in this round, this rank's own among them. */
tg_message tg_exchange_heard(const tg_exchange *x, uint32_t p);

/* Checks the frame from rank p and puts its views at `views`. The sentence on failure names p. */
tg_status tg_exchange_read(tg_view *views, tg_exchange *x, uint32_t p, const tg_grid *grid, uint32_t slice,
                           unsigned holds, tg_detail *why) TG_CHECKED;

extern const tg_protocol tg_protocol_lowrank;

/* protocols.c: the protocol of this name, NULL if there is none. */
const tg_protocol *tg_protocol_named(const char *name);

/* protocols.c: the protocol of this name, or the one that suits best. */
tg_status tg_protocol_choose(const tg_protocol **out, const char *name, const tg_layout *layout, uint32_t world,
                             tg_detail *why) TG_CHECKED;

/* ---- owners.c: what the protocols share in which owners sum slices and answer ------------------------------------------- */

/* Whether an owner's answer can carry a sum: not by random coordinates of its own, which would drop most of it. */
tg_status tg_owners_can_answer(const tg_layout *layout, tg_detail *why) TG_CHECKED;

/* Their rounds: all say to owners, owners answer. */
uint32_t tg_owners_rounds(const tg_exchange *x);

/* Writes one frame a slice into x->out. */
tg_status tg_owners_write(tg_exchange *x, tg_detail *why) TG_CHECKED;

/* Writes, and says to rank s what is in slice s. */
tg_status tg_owners_send_slices(tg_exchange *x, tg_detail *why) TG_CHECKED;

/* An owner: checks the frames of all ranks for its slice and takes their mean. */
tg_status tg_owners_take(tg_exchange *x, tg_detail *why) TG_CHECKED;

/* An owner: encodes the mean and says it to all. */
tg_status tg_owners_answer(tg_exchange *x, tg_detail *why) TG_CHECKED;

/* Everyone: checks the answers, slice s from rank s, and at the end decodes them into the gradients. */
tg_status tg_owners_hear_answers(tg_exchange *x, tg_detail *why) TG_CHECKED;
void tg_owners_finish(tg_exchange *x);

/* The two rounds as a protocol hears them: an owner takes, everyone hears the answers. */
tg_status tg_owners_hear(tg_exchange *x, uint32_t round, tg_detail *why) TG_CHECKED;

#endif
