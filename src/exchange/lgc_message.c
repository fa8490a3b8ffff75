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
 * exec/lgc.h describes the vector. Messages are in memory of the executor. */
#include "exchange/lgc.h"

#include "base/bytes.h"
#include "exec/ordering.h"

#include <string.h>

enum { HASH = 8, COMPARED = 24 /* bytes of a header that are known beforehand */ };

uint64_t tg_lgc_message_max(const tg_lgc *l)
{
    uint64_t lead = tg_lgc_mask_bound(l->size.sparse_n) + tg_ordering_len((size_t)l->size.coded_n) + 4 * l->size.code_n;
    uint64_t values = 4 * (l->size.whole_n + l->size.picked_n + l->size.coded_n + l->size.code_n);
    uint64_t innovation = tg_lgc_mask_bound(l->size.coded_n) + 4 * l->size.innovation_n;
    uint64_t slice = 4 * (l->size.n / l->world + 1);
    uint64_t most = lead > values + innovation ? lead : values + innovation;
    return tg_lgc_padded(TG_LGC_HEADER + HASH + (most > slice ? most : slice));
}

static void put_header(uint8_t *out, const tg_exchange *x, uint32_t rank, tg_lgc_topic about, uint32_t slice,
                       uint64_t body_len)
{
    memcpy(out, "TGLG", 4);
    out[4] = (uint8_t)about;
    out[5] = (uint8_t)tg_lgc_of(x)->progress.phase;
    tg_put16(out + 6, 0);
    tg_put32(out + 8, rank);
    tg_put32(out + 12, slice);
    tg_put64(out + 16, x->step.number);
    tg_put64(out + COMPARED, body_len);
}

tg_framed tg_lgc_seal(const tg_exchange *x, uint8_t *message, tg_lgc_topic about, uint32_t slice, uint64_t body_len)
{
    const tg_executor *executor = x->codec->executor;
    uint8_t header[TG_LGC_HEADER], hash[HASH];
    size_t len = (size_t)(TG_LGC_HEADER + body_len);
    put_header(header, x, x->rank, about, slice, body_len);
    executor->store(x->codec->device, message, header, sizeof header);
    tg_put64(hash, executor->hash(x->codec->run, message, len));
    executor->store(x->codec->device, message + len, hash, sizeof hash);
    return (tg_framed){.len = len + HASH, .payload_len = (size_t)body_len};
}

/* Whether a message has the header that is expected, and the hash of what it has. */
static bool is_sound(const tg_exchange *x, const tg_message *m, const uint8_t *wanted)
{
    const tg_executor *executor = x->codec->executor;
    uint8_t space[TG_LGC_HEADER + HASH];
    const uint8_t *header = NULL, *hash = NULL;
    if (m->len < TG_LGC_HEADER + HASH ||
        executor->fetch(&header, space, x->codec->device, NULL, m->data, TG_LGC_HEADER, NULL) != TG_OK ||
        memcmp(header, wanted, COMPARED) != 0 || tg_get64(header + COMPARED) != m->len - TG_LGC_HEADER - HASH ||
        executor->fetch(&hash, space, x->codec->device, NULL, m->data + m->len - HASH, HASH, NULL) != TG_OK) {
        return false;
    }
    return tg_get64(hash) == executor->hash(x->codec->run, m->data, m->len - HASH);
}

/* The slice that a message from rank p is about. */
static uint32_t slice_of(const tg_exchange *x, uint32_t p, tg_lgc_topic about)
{
    return about == TG_LGC_SLICE ? x->rank : about == TG_LGC_SUM ? p : 0;
}

tg_status tg_lgc_open(tg_message *body, const tg_exchange *x, uint32_t p, tg_lgc_topic about, uint64_t len,
                      tg_detail *why)
{
    tg_message m = tg_exchange_received(x, p);
    uint8_t wanted[TG_LGC_HEADER];
    if (x->codec->executor->is_paper) { /* there are no bytes to check, and nobody reads the body */
        *body = (tg_message){m.data, len};
        return TG_OK;
    }
    put_header(wanted, x, p, about, slice_of(x, p, about), 0);
    if (!is_sound(x, &m, wanted)) {
        return tg_fail(TG_E_FRAME, why, "from rank %u: the message is damaged, or not the expected one", p);
    }
    *body = (tg_message){m.data + TG_LGC_HEADER, m.len - TG_LGC_HEADER - HASH};
    bool is_open_ended = about == TG_LGC_LEAD || about == TG_LGC_REPORT;
    if (body->len < len || (body->len > len && !is_open_ended)) {
        return tg_fail(TG_E_FRAME, why, "from rank %u: the message has the wrong length", p);
    }
    return TG_OK;
}
