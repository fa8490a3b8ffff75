/* gzip (RFC 1952) in memory, through zlib. */
#ifndef TR_DATA_GUNZIP_H
#define TR_DATA_GUNZIP_H

#include "data.h"

/* Larger inputs are refused, because zlib counts in 32 bits. */
#define TR_GUNZIP_LEN_MAX ((size_t)1 << 31)

/* Whether bytes begin as gzip does. */
int tr_is_gzip(const uint8_t *src, size_t src_len);

/* Decompresses all of `src`, at most max_len bytes, into a new buffer, which the caller frees. Returns 0, or -1 and the fault in
 * `why`, worded as the second half of a sentence. Strict: the checksum must match, and nothing may follow. */
int tr_gunzip(uint8_t **out, size_t *out_len, const uint8_t *src, size_t src_len, size_t max_len, char why[TR_WHY]);

#endif
