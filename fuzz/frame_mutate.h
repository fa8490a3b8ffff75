/* Structure-aware mutation of frames (docs/format.md, sections 1 to 4), and repair of their checksums. */
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
    FUZZ_SIDE, /* sent with buckets: scales, levels */
    FUZZ_SYMBOLS,
    FUZZ_INDICES
} fuzz_frame_role;

#define FUZZ_NO_CHUNK UINT32_MAX

/* What the body of a frame is: `c` reads it, and knows the indices that are not sent. */
typedef struct fuzz_frame_shape {
    tg_codec *c;
    const tg_plan *plan; /* the codec's own, or a leader's */
    uint32_t slice;
} fuzz_frame_shape;

/* The purpose of a codec that reads frames of the whole model. */
extern const tg_codec_purpose fuzz_whole_purpose;

/* The shape of a frame of the whole model. */
fuzz_frame_shape fuzz_frame_whole(tg_codec *c);

/* Splits a valid frame into fields, without the checksum. */
void fuzz_frame_cut(fuzz_mutant *m, const fuzz_frame_shape *shape);

/* Damages one field of a chunk, or rewrites its indices or the code table of its symbols. `other` is some other frame. */
void fuzz_frame_damage(fuzz_input *input, fuzz_mutant *m, const fuzz_frame_shape *shape, const uint8_t *other,
                       size_t other_len);

/* Damages the description: its numbers, a name, a recipe, which may become `recipe`. */
void fuzz_frame_damage_description(fuzz_input *input, fuzz_mutant *m, const tg_recipe_row *recipe);

/* Repairs lengths: of texts, indices and symbols (fix_inner); of the description and the whole frame, and the fingerprint. */
void fuzz_frame_fix_inner(fuzz_mutant *m);
void fuzz_frame_fix_outer(fuzz_mutant *m);

/* Resizes the symbols and bucket numbers of chunks with an explicit count to what that count needs. */
void fuzz_frame_fit_symbols(fuzz_mutant *m, const fuzz_frame_shape *shape);

/* Swaps or repeats chunks with their headers, or one without the other, or replaces them by those of `other`, a frame that is split
 * too. Fields are invalid afterwards. */
void fuzz_frame_move_chunks(fuzz_input *input, fuzz_mutant *m, const fuzz_mutant *other);

/* Writes the checksum of a frame if its body is valid; otherwise its chunks are unknown. Returns whether it is valid. */
bool fuzz_frame_seal(uint8_t *frame, size_t len, size_t description_len, const fuzz_frame_shape *shape);

#endif
