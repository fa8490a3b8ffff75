/* Asymmetric numeral systems, range variant (rANS; Duda, arXiv 1311.2540): codes symbols near their entropy.
 *
 * A state is a number from 2^(bits + 1) up to 2^(bits + 17). Let a symbol have frequency f out of 2^bits, and let `start` be the
 * sum of the frequencies of all symbols before it. To encode the symbol, state x becomes
 *
 *     (x / f) * 2^bits + x mod f + start
 *
 * If that would be too large, x first emits its low 16 bits to the stream. The decoder undoes these steps in the opposite
 * order. Several states take turns, so that a CPU can work on them in parallel; and a long stream is cut into segments that
 * have states and words of their own, so that a GPU can. The table is one for all. */
#ifndef TG_PACK_RANS_CODER_H
#define TG_PACK_RANS_CODER_H

#include "kernels/kernels.h"
#include "kernels/rans.h"
#include "pack/pack.h"

enum { TG_RANS_BITS_MIN = 8, TG_RANS_BITS_MAX = 14 };

/* The most segments, and the most symbols of a state. */
enum { TG_RANS_SEGMENTS_MAX = 256, TG_RANS_ROUNDS_MAX = 1024 };

/* Bytes of the scratch buffer that encoding and decoding take. */
uint64_t tg_rans_scratch_len(void);

/* Encodes `count` symbols below `base` as a stream: frequency table, segments. Returns its length, or 0 if it would be longer
 * than cap bytes. `form`, which is never 0, is the precision and the number of states of a segment; the caller stores it beside
 * the stream, and `beside` bytes more, by which segments may be shorter. */
size_t tg_rans_encode(uint8_t *out, uint8_t *form, size_t cap, size_t beside, const uint16_t *symbols, size_t count,
                      uint32_t base, void *scratch);

/* Decodes a stream. Returns false if the bytes are not exactly `count` symbols below `base`. */
bool tg_rans_decode(uint16_t *symbols, const uint8_t *bytes, size_t len, uint8_t form, size_t count, uint32_t base,
                    void *scratch);

#endif
