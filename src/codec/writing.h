/* A chunk while it is written: what encode.c, which goes through its blocks, and values.c, which turns them into bytes, share. */
#ifndef TG_CODEC_WRITING_H
#define TG_CODEC_WRITING_H

#include "base/hash.h"
#include "codec/codec.h"

typedef struct tg_progress {
    const tg_codec *c;
    const tg_chunk *chunk;
    const tg_recipe *recipe;
    const tg_quantize_part *quantize;
    const tg_work *w;
    tg_desk *desk;
    uint8_t *out;        /* where values go, behind what travels with their buckets */
    uint64_t count;      /* entries so far */
    uint64_t gone;       /* of them, those whose symbols are in place, and no longer in desk->symbols */
    const uint8_t *lies; /* words of all of the chunk that a pack will code where they lie; NULL: in desk->held */
    bool every;          /* every element is sent */
    bool is_kept;        /* all of the block is in the next memory already */
    bool few;            /* all of the chunk is one block, of which desk->list has what is sent, ... */
    size_t few_n;        /* ... which is so much */
    bool listed;         /* desk->list has all that was sent so far */
    bool at_once;        /* buckets are encoded block by block; otherwise values wait for the end of the chunk */
    bool packs;          /* symbols go to their place block by block */
    bool streams;        /* plain bytes go around the caches */
    bool overflows;      /* gradient plus residual was saturated, or a new residual is NaN or Inf */
    bool hashes;         /* bytes are hashed as they are written, as there are no others in the chunk */
    tg_hash_list hash;
    double magnitudes;
} tg_progress;

/* Elements of a block: TG_BLOCK, or whole buckets. */
size_t tg_progress_block(const tg_progress *to);

/* Whether all elements of a chunk are sent and wait for its end; what is remembered of them is written then and not before. */
bool tg_progress_all_wait(const tg_progress *to);

/* What a block, [at, at + n), becomes once its coordinates are marked (NULL: all): values that are written, or that wait; and
 * what is remembered of it. u is what should be sent, and where something is remembered may be changed; g is the gradient.
 * Returns false if some values are not finite and are plain. */
bool tg_progress_add(tg_progress *to, const uint64_t *mask, float *u, const float *g, uint64_t at, size_t n);

/* The same for a block of halves, all finite and all sent as they are: they are not looked into. If a pack codes them, this is for
 * a whole chunk. False: it is not such a block, and nothing was done. */
bool tg_progress_add_as_it_lies(tg_progress *to, const tg_source *source, uint64_t at, size_t n);

/* The values that wait, written; returns the length of all symbols, behind what travels with them. */
size_t tg_progress_finish(tg_progress *to);

#endif
