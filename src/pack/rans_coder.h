/* Range variant of asymmetric numeral systems (Duda, arXiv 1311.2540), by tables: symbols near their entropy.
 *
 * A state is a number from 2^15 up to 2^31. To encode a symbol of frequency f out of 2^bits, which begins at `start`, a
 * state x that would grow too large first gives its low 16 bits to the stream, and then becomes
 * (x / f) * 2^bits + x mod f + start. A decoder undoes that in the opposite order. Several states take turns, so that a
 * processor can work on them at the same time. */
#ifndef TG_PACK_RANS_CODER_H
#define TG_PACK_RANS_CODER_H

#include "kernels/kernels.h"
#include "kernels/rans.h"
#include "pack/pack.h"

enum { TG_RANS_BITS_MIN = 8, TG_RANS_BITS_MAX = 14 };

/* Bytes of a stream's room when it is encoded, and of what it is decoded by. */
uint64_t tg_rans_room_len(void);

/* `count` symbols below a base as a stream of frequencies, states and words, at most cap bytes; 0 if that is not enough.
 * `form` tells how many states there are and what frequencies are out of, and is to be kept beside the stream; it is not
 * 0. */
size_t tg_rans_encode(uint8_t *out, uint8_t *form, size_t cap, const uint16_t *symbols, size_t count, uint32_t base,
                      void *room);

/* The symbols of a stream back. Trusts nothing. */
bool tg_rans_decode(uint16_t *symbols, const uint8_t *bytes, size_t len, uint8_t form, size_t count, uint32_t base,
                    void *room);

#endif
