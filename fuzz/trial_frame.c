/* Frames of every recipe with structure-aware damage and a repaired checksum, so that the damage passes the checksum. The input is a
 * list of decisions: see mutate.h.
 *
 * What must hold: a frame is refused with an error and nothing is written; or it decodes, always to the same bits, and decode_add adds
 * the same values. Nothing is written outside the tensors. Whatever was read before, a valid frame decodes as before. */
#include "bank.h"
#include "base/bytes.h"
#include "base/half.h"
#include "frame/frame.h"
#include "frame_check.h"
#include "frame_mutate.h"
#include "tersegrad/experimental.h"
#include "trial.h"

#include <math.h>
#include <string.h>

uint64_t fuzz_accepted_n, fuzz_refused_n;

enum { LARGE_ONCE_IN = 64 };

/* ---- what must hold ---------------------------------------------------------------------------------------------------- */

static void check_sums(const fuzz_bank_case *of)
{
    const tg_layout *l = of->codec->layout;
    for (size_t t = 0; t < l->tensor_n; t++) {
        tg_dtype dtype = l->tensors[t].dtype;
        for (uint64_t i = 0; i < l->tensor_elements[t]; i++) {
            float value = 0, added = of->sums[t][i];
            tg_widen(&value, (const uint8_t *)of->once[t] + i * tg_dtype_len(dtype), dtype, 1);
            added = dtype == TG_FP16   ? tg_fp16_to_float(tg_float_to_fp16(added))
                    : dtype == TG_BF16 ? tg_bf16_to_float(tg_float_to_bf16(added))
                                       : added;
            PROMISE(value == added || (isnan(value) && isnan(added)),
                    "decoding and adding to zeros give the same values");
        }
    }
}

static void check_accepted(const fuzz_bank_case *of, const uint8_t *frame, size_t len)
{
    fuzz_bank_refill(of, 0x00, 0xff, 0x00);
    PROMISE(tg_decode(of->codec, of->once, frame, len, NULL) == TG_OK &&
                tg_decode(of->codec, of->again, frame, len, NULL) == TG_OK,
            "a frame that was accepted decodes, and decodes again");
    PROMISE(fuzz_bank_hash(of, of->once) == fuzz_bank_hash(of, of->again),
            "decoding twice gives the same bits, whatever was there before");
    PROMISE(tg_decode_add(of->codec, of->sums, 1.0f, frame, len, NULL) == TG_OK, "a frame that was accepted adds");
    check_sums(of);
    fuzz_bank_refill(of, 0x00, 0xff, 0x00);
    PROMISE(tg_decode(of->codec, of->once, frame, len, NULL) == TG_OK &&
                tg_decode_add_private(of->codec, of->sums, 1.0f, frame, len, NULL) == TG_OK,
            "a frame that was accepted adds to private sums");
    check_sums(of);
    fuzz_bank_check_guards(of);
}

static void check_refused(const fuzz_bank_case *of, const uint8_t *frame, size_t len, tg_status status)
{
    tg_detail why;
    fuzz_bank_refill(of, 0x11, 0x22, 0x33);
    memset(&why, 'x', sizeof why);
    PROMISE(status < 0 && tg_decode(of->codec, of->once, frame, len, &why) == status,
            "a frame that was refused does not decode");
    fuzz_check_sentence(why.text, sizeof why.text);
    memset(&why, 'x', sizeof why);
    PROMISE(tg_decode_add(of->codec, of->sums, 1.0f, frame, len, &why) == status,
            "a frame that was refused does not add");
    fuzz_check_sentence(why.text, sizeof why.text);
    PROMISE(fuzz_bank_untouched(of, 0x11, 0x22, 0x33), "a frame that is refused changes nothing");
    tg_detail private;
    memset(&private, 'x', sizeof private);
    PROMISE(tg_decode_add_private(of->codec, of->sums, 1.0f, frame, len, &private) == status &&
                strcmp(private.text, why.text) == 0,
            "a frame that was refused does not add to private sums, for the same reason");
    fuzz_bank_check_guards(of);
}

static bool check_frame(const fuzz_bank_case *of, const uint8_t *frame, size_t len)
{
    tg_frame_info info;
    tg_detail why;
    memset(&why, 'x', sizeof why);
    tg_status status = tg_frame_inspect(&info, of->codec, frame, len, &why);
    if (status == TG_OK) {
        check_accepted(of, frame, len);
    } else {
        fuzz_check_sentence(why.text, sizeof why.text);
        check_refused(of, frame, len, status);
    }
    return status == TG_OK;
}

static void check_sound(const fuzz_bank_case *of, uint32_t number)
{
    const fuzz_bank_frame *sound = &of->frames[number];
    PROMISE(tg_decode(of->codec, of->once, sound->bytes, sound->len, NULL) == TG_OK &&
                fuzz_bank_hash(of, of->once) == of->decoded[number],
            "a sound frame decodes to what it did, whatever was read before");
}

/* ---- by description ---------------------------------------------------------------------------------------------------- */

/* Writes the checksum with a codec made from the description, as a reader of files has it. */
static bool seal_as_described(uint8_t *frame, size_t len)
{
    size_t description_len = tg_get32(frame + 20);
    if (len < TG_FRAME_HEADER + TG_FRAME_CHECKSUM || description_len > len - TG_FRAME_HEADER - TG_FRAME_CHECKSUM) {
        return false;
    }
    fuzz_budget budget;
    fuzz_budget_start(&budget, fuzz_frame_budget());
    tg_options options = TG_OPTIONS_INIT;
    options.allocator = &budget.allocator;
    tg_layout *layout = NULL;
    tg_codec *c = NULL;
    bool sealed = false;
    if (tg_layout_from_description(&layout, frame + TG_FRAME_HEADER, description_len, &budget.allocator, NULL) ==
        TG_OK) {
        if (layout->element_n > FUZZ_ELEMENT_MAX) { /* would be slow */
            tg_layout_free(layout);
            return false;
        }
        if (tg_codec_make(&c, layout, &fuzz_whole_purpose, &options, NULL) == TG_OK) {
            fuzz_frame_shape whole = fuzz_frame_whole(c);
            sealed = fuzz_frame_seal(frame, len, description_len, &whole);
        }
    }
    tg_codec_free(c);
    return sealed;
}

/* ---- mutants ----------------------------------------------------------------------------------------------------------- */

typedef struct trial {
    size_t index; /* of the case */
    const fuzz_bank_case *of;
    uint32_t base;
    bool header_is_sound, is_redescribed;
} trial;

static size_t pick_case(fuzz_input *input)
{
    if (fuzz_once_in(input, LARGE_ONCE_IN)) {
        return fuzz_bank_small_n() + fuzz_pick(input, (uint32_t)(fuzz_bank_n() - fuzz_bank_small_n()));
    }
    return fuzz_pick(input, (uint32_t)fuzz_bank_small_n());
}

/* Truncates the frame or lengthens it. */
static void resize(fuzz_input *input, fuzz_mutant *m)
{
    size_t most = m->len - TG_FRAME_HEADER - TG_FRAME_CHECKSUM, n = 1 + fuzz_pick(input, 40);
    if (fuzz_once_in(input, 2)) {
        m->len -= n < most ? n : most;
    } else if (m->len + n <= m->cap) {
        memset(m->bytes + m->len, fuzz_once_in(input, 2) ? 0xff : 0, n);
        m->len += n;
    }
}

static void mutate_body(fuzz_input *input, fuzz_mutant *m, const trial *t, const fuzz_bank_frame *other)
{
    fuzz_frame_shape whole = fuzz_frame_whole(t->of->codec);
    uint32_t damages = fuzz_pick(input, 4);
    for (uint32_t i = 0; i < damages; i++) {
        fuzz_frame_damage(input, m, &whole, other->bytes, other->len);
    }
    if (!fuzz_once_in(input, 4)) {
        if (fuzz_once_in(input, 2)) {
            fuzz_frame_fit_symbols(m, &whole);
        }
        fuzz_frame_fix_inner(m);
    }
}

/* Drops the description, as frames between ranks have none. */
static void undescribe(fuzz_mutant *m)
{
    size_t description_len = tg_get32(m->bytes + 20);
    memmove(m->bytes + TG_FRAME_HEADER, m->bytes + TG_FRAME_HEADER + description_len,
            m->len - TG_FRAME_HEADER - description_len);
    m->len -= description_len;
    m->bytes[5] &= 0xfe;
    tg_put32(m->bytes + 20, 0);
    tg_put64(m->bytes + 24, m->len);
}

static void mutate(fuzz_input *input, fuzz_mutant *m, trial *t)
{
    size_t other_index = fuzz_once_in(input, 4) ? pick_case(input) : t->index;
    const fuzz_bank_case *other_case = fuzz_bank_at(other_index);
    const fuzz_bank_frame *other = &other_case->frames[fuzz_pick(input, FUZZ_BANK_FRAMES)];
    mutate_body(input, m, t, other);
    if (fuzz_once_in(input, 16)) {
        fuzz_frame_damage_description(input, m, fuzz_bank_recipe(pick_case(input)));
        t->is_redescribed = true;
        if (!fuzz_once_in(input, 8)) {
            fuzz_frame_fix_inner(m);
        }
    }
    fuzz_frame_fix_outer(m);
    if (fuzz_once_in(input, 16)) {
        fuzz_damage_number(input, m->bytes + 32, 8); /* the step, from which random indices are drawn */
    }
    if (fuzz_once_in(input, 8)) {
        fuzz_mutant donor;
        fuzz_mutant_start(&donor, other->bytes, other->len);
        fuzz_frame_shape whole = fuzz_frame_whole(other_case->codec);
        fuzz_frame_cut(&donor, &whole);
        fuzz_frame_move_chunks(input, m, &donor);
        fuzz_mutant_free(&donor);
    }
    if (!t->is_redescribed && fuzz_once_in(input, 4)) {
        undescribe(m);
    }
    if (fuzz_once_in(input, 16)) {
        resize(input, m);
    }
    tg_put64(m->bytes + 24, m->len);
    if (fuzz_once_in(input, 16)) {
        size_t field = fuzz_pick(input, 11); /* of the header */
        fuzz_damage_number(input, m->bytes + m->fields[field].at, m->fields[field].len);
        t->header_is_sound = false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    trial t = {.index = pick_case(&input), .header_is_sound = true};
    t.of = fuzz_bank_at(t.index);
    t.base = fuzz_pick(&input, FUZZ_BANK_FRAMES);
    fuzz_mutant m;
    fuzz_mutant_start(&m, t.of->frames[t.base].bytes, t.of->frames[t.base].len);
    fuzz_frame_shape whole = fuzz_frame_whole(t.of->codec);
    fuzz_frame_cut(&m, &whole);
    mutate(&input, &m, &t);
    uint8_t *frame = fuzz_room(m.len, 0); /* of the exact length, so that a sanitizer detects any access past its end */
    memcpy(frame, m.bytes, m.len);
    bool sealed = false, accepted = false;
    bool by_description = t.is_redescribed || (fuzz_once_in(&input, 16) && t.index < fuzz_bank_small_n());
    if (by_description) {
        sealed = seal_as_described(frame, m.len);
        accepted = fuzz_check_frame(frame, m.len);
    } else {
        size_t description_len = tg_get32(frame + 20);
        sealed = description_len <= m.len && fuzz_frame_seal(frame, m.len, description_len, &whole);
        accepted = check_frame(t.of, frame, m.len);
    }
    bool is_described = (frame[5] & 1) != 0;
    PROMISE(!accepted || sealed || t.is_redescribed, "a frame is accepted only if its chunks are sound");
    PROMISE(!sealed || accepted || !t.header_is_sound || (by_description && !is_described),
            "a frame whose header and chunks are sound is accepted");
    *(accepted ? &fuzz_accepted_n : &fuzz_refused_n) += 1;
    if (fuzz_once_in(&input, 8)) {
        check_sound(t.of, t.base);
    }
    fuzz_mutant_free(&m);
    free(frame);
    return 0;
}
