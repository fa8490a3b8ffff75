/* LGC's messages. The layout of a message, little-endian:
 *
 *     "TGLG", u8 topic, u8 phase, u16 zero, u32 rank, u32 slice, u64 step, u64 length of the body; body; hash of all before
 *
 * The bodies:
 *
 *     LEAD      the leader's indices among all elements of sparse tensors, in chunks as in a frame; with order=value the
 *               order of the coded values; with a server, in phase 3, the leader's code
 *     SLICE     a slice of the vector, to its owner
 *     SUM       the average of a slice, from its owner
 *     VALUES    the whole vector
 *     REPORT    the vector; indices of the innovation in the sequence, in chunks; their values
 *     ANSWER    the averages, from rank 0
 *
 * exec/lgc_vector.c describes the vector. */
#include "exchange/lgc.h"

#include "base/bits.h"
#include "base/bytes.h"
#include "exchange/ordering.h"
#include "kernels/hash.h"

#include <string.h>

enum { HASH = 8 };

uint64_t tg_lgc_message_max(const tg_lgc *l)
{
    uint64_t chunks = (l->size.sparse_n + TG_CHUNK - 1) / TG_CHUNK;
    uint64_t lead = chunks * (TG_CHUNK_HEADER + 1) + l->size.sparse_n / 8 + tg_ordering_len((size_t)l->size.coded_n) +
                    4 * l->size.code_n;
    uint64_t values = 4 * (l->size.whole_n + l->size.picked_n + l->size.coded_n + l->size.code_n);
    uint64_t innovation =
        (l->size.coded_n / TG_CHUNK + 1) * (TG_CHUNK_HEADER + 1) + l->size.coded_n / 8 + 4 * l->size.innovation_n;
    uint64_t slice = 4 * (l->size.n / l->world + 1);
    uint64_t most = lead > values + innovation ? lead : values + innovation;
    return TG_LGC_HEADER + HASH + (most > slice ? most : slice);
}

tg_framed tg_lgc_seal(const tg_exchange *x, uint8_t *message, tg_lgc_topic about, uint32_t slice, uint64_t body_len)
{
    memcpy(message, "TGLG", 4);
    message[4] = (uint8_t)about;
    message[5] = (uint8_t)tg_lgc_of(x)->progress.phase;
    tg_put16(message + 6, 0);
    tg_put32(message + 8, x->rank);
    tg_put32(message + 12, slice);
    tg_put64(message + 16, x->step.number);
    tg_put64(message + 24, body_len);
    tg_put64(message + TG_LGC_HEADER + body_len, tg_hash(message, (size_t)(TG_LGC_HEADER + body_len)));
    return (tg_framed){.len = (size_t)(TG_LGC_HEADER + body_len + HASH), .payload_len = (size_t)body_len};
}

const uint8_t *tg_lgc_open(uint64_t *body_len, const tg_exchange *x, uint32_t p, tg_lgc_topic about, uint32_t slice,
                           tg_detail *why)
{
    tg_message m = tg_exchange_received(x, p);
    uint8_t wanted[TG_LGC_HEADER];
    memcpy(wanted, "TGLG", 4);
    wanted[4] = (uint8_t)about;
    wanted[5] = (uint8_t)tg_lgc_of(x)->progress.phase;
    tg_put16(wanted + 6, 0);
    tg_put32(wanted + 8, p);
    tg_put32(wanted + 12, slice);
    tg_put64(wanted + 16, x->step.number);
    if (m.len < TG_LGC_HEADER + HASH || memcmp(m.data, wanted, 24) != 0 ||
        tg_get64(m.data + 24) != m.len - TG_LGC_HEADER - HASH ||
        tg_get64(m.data + m.len - HASH) != tg_hash(m.data, m.len - HASH)) {
        (void)tg_fail(TG_E_FRAME, why, "from rank %u: the message is damaged, or not the expected one", p);
        return NULL;
    }
    *body_len = m.len - TG_LGC_HEADER - HASH;
    return m.data + TG_LGC_HEADER;
}

uint8_t *tg_lgc_put_mask(uint8_t *out, const uint64_t *mask, uint64_t n)
{
    for (uint64_t at = 0; at < n; at += TG_CHUNK) {
        size_t here = n - at < TG_CHUNK ? (size_t)(n - at) : TG_CHUNK;
        uint32_t count = (uint32_t)tg_mask_count(mask + at / 64, here);
        uint8_t mode = 0;
        size_t len =
            count == 0 ? 0 : tg_index_gaps.write_rans(out + TG_CHUNK_HEADER, &mode, mask + at / 64, NULL, here, count);
        tg_put32(out, count | (uint32_t)mode << 24);
        tg_put16(out + 4, (uint16_t)len);
        out += TG_CHUNK_HEADER + len;
    }
    return out;
}

const uint8_t *tg_lgc_get_mask(uint64_t *mask, uint64_t n, const uint8_t *bytes, const uint8_t *end)
{
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (uint64_t at = 0; at < n; at += TG_CHUNK) {
        size_t here = n - at < TG_CHUNK ? (size_t)(n - at) : TG_CHUNK;
        if (end - bytes < (ptrdiff_t)TG_CHUNK_HEADER) {
            return NULL;
        }
        uint32_t word = tg_get32(bytes), count = word & 0xffffff, len = tg_get16(bytes + 4);
        bytes += TG_CHUNK_HEADER;
        if (count > here || end - bytes < (ptrdiff_t)len || (count == 0 && (word != 0 || len != 0)) ||
            (count > 0 && !tg_index_gaps.read_rans(mask + at / 64, (uint8_t)(word >> 24), bytes, len, here, count))) {
            return NULL;
        }
        bytes += len;
    }
    return bytes;
}
