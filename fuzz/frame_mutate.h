/* Mutation of frames by their structure, docs/format.md sections 1 to 4, and checksums that are made right again. */
#ifndef TG_FUZZ_FRAME_MUTATE_H
#define TG_FUZZ_FRAME_MUTATE_H

#include "frame/codec.h"
#include "mutate.h"

/* What a field of a frame is. */
typedef enum fuzz_frame_role {
    FUZZ_HEADER,
    FUZZ_DESCRIPTION_LEN,
    FUZZ_FRAME_LEN,
    FUZZ_STEP,
    FUZZ_FINGERPRINT,
    FUZZ_DESCRIPTION,
    FUZZ_TEXT_LEN, /* of the text, which is the next field */
    FUZZ_RECIPE,
    FUZZ_NAME,
    FUZZ_PART_IDS,
    FUZZ_COUNT,
    FUZZ_MODE,
    FUZZ_INDEX_LEN,
    FUZZ_CODED_LEN,
    FUZZ_SIDE, /* what travels with buckets: scales, levels */
    FUZZ_SYMBOLS,
    FUZZ_INDICES
} fuzz_frame_role;

#define FUZZ_NO_CHUNK UINT32_MAX

/* What the body of a frame is: `c` reads it, and knows the coordinates that do not travel. */
typedef struct fuzz_frame_shape {
    tg_codec *c;
    const tg_plan *plan; /* the codec's own, or a leader's */
    uint32_t slice;
} fuzz_frame_shape;

/* What a codec that reads frames of the whole model is made for. */
extern const tg_codec_purpose fuzz_whole_purpose;

/* That of a frame of the whole model. */
fuzz_frame_shape fuzz_frame_whole(tg_codec *c);

/* Cuts a sound frame into fields, and leaves the checksum out. */
void fuzz_frame_cut(fuzz_mutant *m, const fuzz_frame_shape *shape);

/* Damages one field of a chunk, or rewrites its indices or the code table of its symbols. `other` is some other frame. */
void fuzz_frame_damage(fuzz_input *input, fuzz_mutant *m, const fuzz_frame_shape *shape, const uint8_t *other,
                       size_t other_len);

/* Damages the description: its numbers, a name, a recipe, which may become `recipe`. */
void fuzz_frame_damage_description(fuzz_input *input, fuzz_mutant *m, const tg_recipe_row *recipe);

/* Makes lengths right again: of texts, indices and symbols; of the description and the whole frame, and the fingerprint. */
void fuzz_frame_fix_inner(fuzz_mutant *m);
void fuzz_frame_fix_outer(fuzz_mutant *m);

/* Gives chunks whose count travels as many bytes of symbols, and of what travels with buckets, as their count asks for. */
void fuzz_frame_fit_symbols(fuzz_mutant *m, const fuzz_frame_shape *shape);

/* Where a chunk lies. */
void fuzz_frame_chunk(const fuzz_mutant *m, uint32_t chunk, size_t *from, size_t *to);

/* Swaps, repeats or drops chunks, or takes one of `other`, a frame that is cut too, in the place of one. Fields are of no use
 * from here on. */
void fuzz_frame_move_chunks(fuzz_input *input, fuzz_mutant *m, const fuzz_mutant *other);

/* Writes the checksum of a frame if its body is sound, which it must be for its chunks to be known; whether it is. */
bool fuzz_frame_seal(uint8_t *frame, size_t len, size_t description_len, const fuzz_frame_shape *shape);

#endif
