/* LGC's passes on the host.
 *
 *     host_lgc.c           memory, and the table of passes
 *     host_lgc_vector.c    the gradient plus residual, and the vector that is averaged over ranks
 *     host_lgc_lead.c      what is sent of indices: the leader's, with their order, and innovations
 *     host_lgc_sequence.c  the input and output sequences of the autoencoder
 *     host_lgc_learn.c     trains the autoencoder, ends a step
 */
#ifndef TG_EXEC_HOST_LGC_H
#define TG_EXEC_HOST_LGC_H

#include "exec/lgc.h"

/* State between steps. */
typedef struct tg_host_lgc_state {
    float *saved;  /* error-feedback state, then scales */
    float *next;   /* error-feedback state after this step, until it is committed */
    float *scales; /* of each tensor, inside `saved`: a moving RMS of its averaged values */
} tg_host_lgc_state;

/* The leader's indices. */
typedef struct tg_host_lgc_lead {
    uint64_t *mask;          /* over the elements of sparse tensors */
    uint64_t *part;          /* scratch: the mask of one tensor, or of an innovation */
    void *scratch;           /* of the select part */
    uint64_t *keys;          /* scratch: sort keys */
    uint32_t *order;         /* order[i] is the coded value at position i of a sequence */
    uint32_t *order_scratch; /* of tg_ordering_read and tg_ordering_write */
} tg_host_lgc_lead;

/* Values at the leader's indices. */
typedef struct tg_host_lgc_values {
    float *values;      /* of each rank: in index order, coded values first, then picked values */
    float *sequences;   /* of each rank: its coded values, permuted by `order` and normalised */
    float *innovations; /* of each rank: its sequence with all but the largest values set to 0 */
    const float **rows; /* pointers to the sequences of all ranks, then to their innovations */
    float *code, *mean_code, *decoded;
} tg_host_lgc_values;

/* What the passes keep. */
typedef struct tg_host_lgc {
    tg_lgc *lgc;
    tg_autoencoder *autoencoder;
    struct {
        float *u, *g; /* gradient plus residual, and the gradient alone */
    } input;
    tg_host_lgc_state state;
    tg_host_lgc_lead lead;
    tg_host_lgc_values of;
    struct {
        float *vector, *average; /* this rank's vector, and its average over ranks */
        float *means;            /* averages at the leader's indices, coded values first, then picked values */
    } sum;
} tg_host_lgc;

/* ---- host_lgc_vector.c ----------------------------------------------------------------------------------------------- */

tg_status tg_host_lgc_load(tg_lgc *l, void *const *grads, tg_detail *why) TG_CHECKED;
void tg_host_lgc_fill(tg_lgc *l);
void tg_host_lgc_put(uint8_t *out, const tg_lgc *l, bool of_average, uint64_t from, uint64_t to);
void tg_host_lgc_average(tg_lgc *l, const uint8_t *const *bodies, uint64_t from, uint64_t to);
void tg_host_lgc_take(tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to);

/* This rank's values at the leader's indices, coded values first; tg_host_lgc_pick copies them from h->input.u. */
float *tg_host_lgc_own(const tg_host_lgc *h);
void tg_host_lgc_pick(const tg_host_lgc *h);

/* Writes values, rounded to their type on the wire, or reads them. Both return the position after them. */
uint8_t *tg_host_lgc_put_values(uint8_t *out, tg_dtype type, const float *values, uint64_t n);
const uint8_t *tg_host_lgc_get_values(float *values, tg_dtype type, const uint8_t *bytes, uint64_t n);

/* ---- host_lgc_lead.c ------------------------------------------------------------------------------------------------- */

void tg_host_lgc_write_lead(uint8_t *body, uint64_t *lead_len, uint64_t *code_len, tg_lgc *l);
bool tg_host_lgc_follow(tg_lgc *l, const uint8_t *body, uint64_t len);
uint64_t tg_host_lgc_innovate(uint8_t *out, tg_lgc *l);
bool tg_host_lgc_add_innovation(tg_lgc *l, uint32_t p, const uint8_t *bytes, uint64_t len);
void tg_host_lgc_end_innovations(tg_lgc *l);

/* ---- host_lgc_sequence.c --------------------------------------------------------------------------------------------- */

/* Marks the largest magnitudes among n values in `mask`, which must be 0; the ratio in `params` tells how many. */
void tg_host_lgc_mark_largest(uint64_t *mask, const tg_host_lgc *h, const float *values, uint64_t n,
                              const double *params);

/* Sorts the leader's coded values; sets h->lead.order. */
void tg_host_lgc_choose_order(tg_host_lgc *h, const float *values);

/* Permutes and normalises a rank's coded values into a sequence, and back. */
void tg_host_lgc_to_sequence(float *sequence, const tg_host_lgc *h, const float *values);
void tg_host_lgc_from_sequence(float *values, const tg_host_lgc *h, const float *sequence);

/* The innovation of a sequence: its largest values, all others 0. `mask` marks the largest ones. */
void tg_host_lgc_keep_largest(float *innovation, uint64_t *mask, const tg_host_lgc *h, const float *sequence);

/* Encodes and decodes. Which NaN the arithmetic returns depends on the CPU; all become the same. */
void tg_host_lgc_encode(float *code, const tg_host_lgc *h, const float *sequence);
void tg_host_lgc_decode(float *sequence, const tg_host_lgc *h, uint32_t decoder, const float *code,
                        const float *innovation);

/* ---- host_lgc_learn.c ------------------------------------------------------------------------------------------------ */

tg_status tg_host_lgc_check(tg_lgc *l, tg_detail *why) TG_CHECKED;
void tg_host_lgc_finish(tg_lgc *l, void *const *grads, uint64_t step);

#endif
