/* The shape of a round: its kind and, if all ranks know the lengths of all frames beforehand, its spans. Then no lengths go ahead, and
 * a rank that has failed knows how much the others wait for. */
#include "exchange/exchange.h"

/* Fills in the lengths of the group's frames by a codec, one a slice. False: they depend on gradients. */
static bool know_lengths(const tg_exchange *x, const tg_carrier *c, const tg_codec *codec)
{
    for (uint32_t s = 0; s < codec->grid->slices; s++) {
        uint64_t body_len = 0;
        if (!codec->executor->length(&body_len, codec->run, tg_carrier_cell(x, c, s), x->step.number)) {
            return false;
        }
        c->known[s] = TG_FRAME_HEADER + body_len + TG_FRAME_CHECKSUM;
    }
    return true;
}

/* Rank p is sent `out_len` bytes from `at`, and sends `in_len`. */
static void expect_message(const tg_exchange *x, uint32_t p, uint8_t *at, uint64_t out_len, uint64_t in_len)
{
    const tg_mail *mail = &x->lane->mail;
    if (p != x->rank) {
        mail->sends[p] = (tg_span){at, out_len};
        mail->recvs[p] = (tg_span){mail->in[p].data, in_len};
        mail->in[p].len = (size_t)in_len;
    }
}

void tg_carrier_shape_gather(tg_exchange *x, const tg_carrier *c)
{
    x->lane->mail.kind = TG_ALLGATHERV;
    x->lane->mail.is_known = know_lengths(x, c, c->codec);
    for (uint32_t p = 0; p < x->world && x->lane->mail.is_known; p++) {
        expect_message(x, p, c->frames[tg_carrier_cell(x, c, 0)], c->known[0], c->known[0]);
    }
}

void tg_carrier_shape_slices(tg_exchange *x, const tg_carrier *c)
{
    x->lane->mail.kind = TG_ALLTOALLV;
    x->lane->mail.is_known = know_lengths(x, c, c->codec);
    for (uint32_t p = 0; p < x->world && x->lane->mail.is_known; p++) {
        expect_message(x, p, c->frames[tg_carrier_cell(x, c, p)], c->known[p], c->known[x->rank]);
    }
}

void tg_carrier_shape_answers(tg_exchange *x, const tg_carrier *c)
{
    x->lane->mail.kind = TG_ALLGATHERV;
    x->lane->mail.is_known = know_lengths(x, c, tg_carrier_reader(c));
    for (uint32_t p = 0; p < x->world && x->lane->mail.is_known; p++) {
        expect_message(x, p, c->answers[x->lane->group], c->known[x->rank], c->known[p]);
    }
}

void tg_carrier_shape_server(tg_exchange *x, const tg_carrier *c, uint8_t *frame, bool answers)
{
    x->lane->mail.kind = answers ? TG_BROADCAST : TG_GATHERV;
    x->lane->mail.is_known = know_lengths(x, c, answers ? tg_carrier_reader(c) : c->codec);
    for (uint32_t p = 0; p < x->world && x->lane->mail.is_known; p++) {
        bool sends = answers ? x->rank == 0 : p == 0, receives = answers ? p == 0 : x->rank == 0;
        expect_message(x, p, frame, sends ? c->known[0] : 0, receives ? c->known[0] : 0);
    }
}
