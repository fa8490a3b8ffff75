/* Mutation of messages between ranks; see message_mutate.h. */
#include "message_mutate.h"

#include "base/bytes.h"
#include "exchange/lgc.h"
#include "forge.h"
#include "frame/frame.h"
#include "kernels/hash.h"

#include <string.h>

enum { CHECKSUM_LEN = 8, LGC_HEADER = 32, LGC_LEAD = 1, LGC_REPORT = 5 };

/* ---- sealers ----------------------------------------------------------------------------------------------------------- */

static void add_sealer(fuzz_sealers *s, tg_layout *layout, uint32_t slices, unsigned holds)
{
    const tg_codec_purpose purpose = {.slices = slices, .holds = holds};
    const tg_purpose leader = {.slices = 1, .holds = TG_HAS_INDICES, .has_feedback = true};
    fuzz_sealer *made = &s->of[s->n++];
    tg_options options = TG_OPTIONS_INIT;
    PROMISE(tg_codec_make(&made->codec, layout, &purpose, &options, NULL) == TG_OK &&
                tg_grid_new(&made->whole, layout, 1, &(tg_groups){NULL, 1}, &made->codec->allocator, NULL) == TG_OK &&
                tg_plan_new(&made->leader, layout, made->whole, &leader, &made->codec->allocator, NULL) == TG_OK,
            "there is memory for a codec");
}

/* The tensors of lowrank's all-reduce number `pass`: a factor of each matrix; in the first also tensors that are sent dense. */
static void add_lowrank(fuzz_sealers *s, const tg_layout *l, uint32_t world, int pass)
{
    tg_tensor tensors[FUZZ_ARENA_TENSORS];
    uint64_t dims[FUZZ_ARENA_TENSORS][2];
    size_t n = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        const tg_tensor *from = &l->tensors[t];
        uint64_t element_n = l->tensor_elements[t];
        bool is_matrix = from->dim_n == 2 && from->dims[0] + from->dims[1] < element_n; /* of rank 1 */
        tensors[n] = *from;
        if (is_matrix) {
            dims[n][0] = 1;
            dims[n][1] = from->dims[pass];
            tensors[n].dims = dims[n];
        }
        n += is_matrix || pass == 0 ? 1 : 0;
    }
    tg_options options = TG_OPTIONS_INIT;
    options.has_seed = l->has_seed ? 1 : 0;
    options.seed = l->seed;
    tg_layout *layout = NULL;
    PROMISE(tg_codec_layout(&layout, "dense", tensors, n, &options, NULL) == TG_OK, "factors have a layout");
    add_sealer(s, layout, world, TG_HAS_VALUES);
}

void fuzz_sealers_make(fuzz_sealers *s, const fuzz_arena *a)
{
    const tg_exchange *x = a->ranks[0];
    const tg_layout *l = x->codec->layout;
    tg_layout *copy = NULL;
    if (strncmp(tg_exchange_name(x), "lgc", 3) == 0) {
        return;
    }
    if (strcmp(tg_exchange_name(x), "lowrank") == 0) {
        add_lowrank(s, l, a->n, 0);
        add_lowrank(s, l, a->n, 1);
        return;
    }
    tg_allocator allocator = tg_allocator_or_standard(NULL);
    PROMISE(tg_layout_from_description(&copy, l->description.bytes, l->description.len, &allocator, NULL) == TG_OK,
            "a layout can be made from its description");
    add_sealer(s, copy, x->codec->grid->slices, x->codec->plan->holds);
}

static bool is_frame(const uint8_t *message, uint64_t len)
{
    return len >= TG_FRAME_HEADER + TG_FRAME_CHECKSUM && memcmp(message, "TGFR", 4) == 0;
}

static bool is_lgc(const uint8_t *message, uint64_t len)
{
    return len >= LGC_HEADER + CHECKSUM_LEN && memcmp(message, "TGLG", 4) == 0;
}

bool fuzz_message_has_content(const uint8_t *message, uint64_t len)
{
    return is_frame(message, len) || is_lgc(message, len);
}

static fuzz_frame_shape shape_of(const fuzz_sealers *s, const uint8_t *frame)
{
    for (size_t i = 0; i < s->n; i++) {
        if (tg_get64(frame + 40) == s->of[i].codec->layout->description.fingerprint) {
            bool is_leader = (frame[5] & (TG_HAS_INDICES | TG_HAS_VALUES)) == TG_HAS_INDICES;
            return (fuzz_frame_shape){.c = s->of[i].codec,
                                      .plan = is_leader ? s->of[i].leader : s->of[i].codec->plan,
                                      .slice = tg_get32(frame + 12)};
        }
    }
    PROMISE(false, "every frame of a step is of a layout that is known");
    return (fuzz_frame_shape){.c = NULL};
}

void fuzz_message_follow(const fuzz_sealers *s, const uint8_t *message, uint64_t len)
{
    if (is_frame(message, len) && (message[5] & TG_HAS_VALUES) == 0) {
        fuzz_frame_shape shape = shape_of(s, message);
        tg_codec *c = shape.c;
        tg_body_view view = {.bytes = message + TG_FRAME_HEADER, .chunks = c->views};
        PROMISE(c->executor->check(&view, c->hashes, c->run, shape.plan, 0,
                                   (size_t)len - TG_FRAME_HEADER - TG_FRAME_CHECKSUM, NULL) == TG_OK,
                "what a leader tells can be read");
        c->executor->draw(c->run, 0, tg_get64(message + 32));
        c->executor->follow(c->run, shape.plan, 0, &view);
    }
}

/* ---- cutting ------------------------------------------------------------------------------------------------------------- */

static size_t cut_numbers(fuzz_mutant *m, const uint8_t *lens, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_HEADER, FUZZ_NO_CHUNK, at, lens[i]);
    }
    return at;
}

/* A mask as LGC sends it, which is one chunk. */
static size_t cut_mask(fuzz_mutant *m, size_t at)
{
    size_t index_len = tg_get16(m->bytes + at + 4);
    at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_COUNT, 0, at, 3);
    at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_MODE, 0, at, 1);
    at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_INDEX_LEN, 0, at, 2);
    return fuzz_mutant_add(m, FUZZ_BYTES, FUZZ_INDICES, 0, at, index_len);
}

/* Length of the mask in a message; 0 if it has none. */
static uint32_t cut_lgc(fuzz_mutant *m, const tg_lgc *l)
{
    static const uint8_t lens[] = {4, 1, 1, 2, 4, 4, 8, 8};
    size_t at = cut_numbers(m, lens, sizeof lens), end = m->len - CHECKSUM_LEN;
    uint8_t topic = m->bytes[4];
    uint32_t mask_n = 0;
    if (topic == LGC_LEAD) {
        mask_n = (uint32_t)l->size.sparse_n;
        at = cut_mask(m, at);
        at = fuzz_mutant_add(m, FUZZ_BYTES, FUZZ_SYMBOLS, 1, at, end - at); /* order and code */
    } else if (topic == LGC_REPORT) {
        mask_n = (uint32_t)l->size.coded_n;
        size_t vector_len = (size_t)tg_lgc_bytes_of(l, 0, tg_lgc_vector_n(l));
        at = fuzz_mutant_add(m, FUZZ_FLOATS, FUZZ_SIDE, 1, at, vector_len);
        at = cut_mask(m, at);
        at = fuzz_mutant_add(m, FUZZ_FLOATS, FUZZ_SIDE, 1, at, end - at);
    } else {
        at = fuzz_mutant_add(m, FUZZ_FLOATS, FUZZ_SIDE, 1, at, end - at);
    }
    PROMISE(at == end, "the fields of a message are all of it");
    return mask_n;
}

/* ---- damage -------------------------------------------------------------------------------------------------------------- */

/* Copies as much of the mutant as fits; keeps the checksum at the end. */
static void put_back(uint8_t *message, size_t len, const fuzz_mutant *m)
{
    size_t room = len - CHECKSUM_LEN, have = m->len - CHECKSUM_LEN;
    memset(message, 0, room);
    memcpy(message, m->bytes, have < room ? have : room);
}

static void damage_lgc(fuzz_input *input, uint8_t *message, size_t len, const tg_lgc *l, const uint8_t *other,
                       size_t other_len)
{
    fuzz_mutant m;
    fuzz_mutant_start(&m, message, len);
    uint32_t mask_n = cut_lgc(&m, l);
    for (uint32_t i = 1 + fuzz_pick(input, 3); i > 0; i--) {
        size_t first =
            fuzz_once_in(input, 8) ? 0 : 8; /* the header is compared whole, so most often it is left alone */
        size_t field = first + fuzz_pick(input, (uint32_t)(m.field_n - first));
        if (m.fields[field].role == FUZZ_INDICES && fuzz_once_in(input, 2)) {
            fuzz_forge_indices(input, &m, field, mask_n);
        } else {
            fuzz_damage_field(input, &m, field, other, other_len);
        }
    }
    if (!fuzz_once_in(input, 4)) {
        fuzz_frame_fix_inner(&m);
    }
    put_back(message, len, &m);
    tg_put64(message + len - CHECKSUM_LEN, tg_hash(message, len - CHECKSUM_LEN));
    fuzz_mutant_free(&m);
}

static void damage_frame(fuzz_input *input, uint8_t *message, size_t len, const fuzz_frame_shape *shape,
                         const uint8_t *other, size_t other_len)
{
    fuzz_mutant m;
    fuzz_mutant_start(&m, message, len);
    fuzz_frame_cut(&m, shape);
    for (uint32_t i = 1 + fuzz_pick(input, 3); i > 0; i--) {
        fuzz_frame_damage(input, &m, shape, other, other_len);
    }
    if (!fuzz_once_in(input, 4)) {
        fuzz_frame_fix_inner(&m);
    }
    put_back(message, len, &m);
    if (fuzz_once_in(input, 8)) {
        size_t field = fuzz_pick(input, 11); /* of the header */
        fuzz_damage_number(input, message + m.fields[field].at, m.fields[field].len);
    }
    (void)fuzz_frame_seal(message, len, 0,
                          shape); /* where it is not sound, it is refused before its checksum is read */
    fuzz_mutant_free(&m);
}

static void damage_vote(fuzz_input *input, uint8_t *message)
{
    static const uint8_t at[] = {0, 4, 6, 8, 12, 16, 24, 28, 36, 40, 48, 52, 64, 76};
    static const uint8_t lens[] = {4, 2, 2, 4, 4, 8, 4, 8, 4, 8, 4, 8, 8, 8};
    uint32_t field = fuzz_pick(input, sizeof at);
    fuzz_damage_number(input, message + at[field], lens[field]);
    tg_put64(message + TG_VOTE_LEN - CHECKSUM_LEN, tg_hash(message, TG_VOTE_LEN - CHECKSUM_LEN));
}

void fuzz_message_damage(fuzz_input *input, const fuzz_sealers *s, const fuzz_arena *a, uint32_t to, uint8_t *message,
                         uint64_t len, const uint8_t *other, uint64_t other_len)
{
    if (other_len == len && fuzz_once_in(input, 4)) { /* of another rank or round, as it is */
        memcpy(message, other, (size_t)len);
    } else if (is_frame(message, len)) {
        fuzz_frame_shape shape = shape_of(s, message);
        damage_frame(input, message, (size_t)len, &shape, other, (size_t)other_len);
    } else if (is_lgc(message, len)) {
        damage_lgc(input, message, (size_t)len, ((const tg_lgc_exchange *)a->ranks[to]->own)->lgc, other,
                   (size_t)other_len);
    } else if (len == TG_VOTE_LEN) {
        damage_vote(input, message);
    } else {
        fuzz_damage_byte(input, message, (size_t)len);
    }
}
