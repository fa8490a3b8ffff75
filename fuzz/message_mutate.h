/* Mutation of messages between ranks: votes, frames of slices, messages of LGC. Lengths are kept, because both ends of a link know
 * them; checksums are repaired. */
#ifndef TG_FUZZ_MESSAGE_MUTATE_H
#define TG_FUZZ_MESSAGE_MUTATE_H

#include "arenas.h"
#include "frame_mutate.h"

/* Reads the frames of an arena: one for its own layout, or two for those of lowrank's two exchanges. None for LGC. */
enum { FUZZ_SEALERS = 2 };

typedef struct fuzz_sealer {
    tg_codec *codec;
    tg_grid *whole;  /* of a leader's frames, which are not sliced */
    tg_plan *leader; /* of a leader's frames, which hold indices alone */
} fuzz_sealer;

typedef struct fuzz_sealers {
    fuzz_sealer of[FUZZ_SEALERS];
    size_t n;
} fuzz_sealers;

void fuzz_sealers_make(fuzz_sealers *s, const fuzz_arena *a);

/* Whether a message is neither a vote nor a length nor an error text. */
bool fuzz_message_has_content(const uint8_t *message, uint64_t len);

/* Call with every unchanged message, in order: a leader's indices are needed to read later messages. */
void fuzz_message_follow(const fuzz_sealers *s, const uint8_t *message, uint64_t len);

/* Damages a message to rank `to`, and seals it again. `other` is some other message. */
void fuzz_message_damage(fuzz_input *input, const fuzz_sealers *s, const fuzz_arena *a, uint32_t to, uint8_t *message,
                         uint64_t len, const uint8_t *other, uint64_t other_len);

#endif
