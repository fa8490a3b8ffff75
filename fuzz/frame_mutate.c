/* Mutation of frames by their structure. */
#include "frame_mutate.h"

#include "base/bytes.h"
#include "forge.h"
#include "frame/frame.h"
#include "kernels/hash.h"

#include <string.h>

/* ---- cutting --------------------------------------------------------------------------------------------------------- */

static size_t cut_header(fuzz_mutant *m)
{
    static const struct {
        fuzz_frame_role role;
        uint8_t len;
    } fields[] = {{FUZZ_HEADER, 4},    {FUZZ_HEADER, 1}, {FUZZ_HEADER, 1},     {FUZZ_HEADER, 2},
                  {FUZZ_HEADER, 4},    {FUZZ_HEADER, 4}, {FUZZ_HEADER, 4},     {FUZZ_DESCRIPTION_LEN, 4},
                  {FUZZ_FRAME_LEN, 8}, {FUZZ_STEP, 8},   {FUZZ_FINGERPRINT, 8}};
    size_t at = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        at = fuzz_mutant_add(m, FUZZ_NUMBER, fields[i].role, FUZZ_NO_CHUNK, at, fields[i].len);
    }
    return at;
}

static size_t cut_number(fuzz_mutant *m, size_t at, size_t len)
{
    return fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_DESCRIPTION, FUZZ_NO_CHUNK, at, len);
}

/* A length and the text that has it. */
static size_t cut_text(fuzz_mutant *m, size_t at, fuzz_frame_role role)
{
    size_t len = tg_get16(m->bytes + at);
    at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_TEXT_LEN, FUZZ_NO_CHUNK, at, 2);
    return fuzz_mutant_add(m, FUZZ_BYTES, role, FUZZ_NO_CHUNK, at, len);
}

static size_t cut_description(fuzz_mutant *m, size_t at)
{
    at = cut_number(m, at, 1); /* has_seed */
    at = cut_number(m, at, 8);
    uint32_t recipe_n = tg_get16(m->bytes + at);
    at = cut_number(m, at, 2);
    for (uint32_t r = 0; r < recipe_n; r++) {
        at = cut_text(m, at, FUZZ_RECIPE);
        at = fuzz_mutant_add(m, FUZZ_BYTES, FUZZ_PART_IDS, FUZZ_NO_CHUNK, at, TG_STAGE_N);
    }
    uint32_t tensor_n = tg_get32(m->bytes + at);
    at = cut_number(m, at, 4);
    for (uint32_t t = 0; t < tensor_n; t++) {
        at = cut_text(m, at, FUZZ_NAME);
        at = cut_number(m, at, 1); /* kind */
        at = cut_number(m, at, 1); /* dtype */
        at = cut_number(m, at, 2); /* recipe */
        uint32_t dim_n = m->bytes[at];
        at = cut_number(m, at, 1);
        for (uint32_t d = 0; d < dim_n; d++) {
            at = cut_number(m, at, 8);
        }
    }
    return at;
}

const tg_codec_purpose fuzz_whole_purpose = {
    .slices = 1, .holds = TG_HAS_INDICES | TG_HAS_VALUES, .only_decodes = true};

static size_t chunks_of(const fuzz_frame_shape *shape)
{
    const size_t *first = shape->plan->grid->first + shape->slice;
    return first[1] - first[0];
}

static const tg_unit_plan *unit_of(const fuzz_frame_shape *shape, uint32_t chunk)
{
    const tg_grid *grid = shape->plan->grid;
    return &shape->plan->units[grid->chunks[grid->first[shape->slice] + chunk].unit];
}

static size_t cut_chunk_header(fuzz_mutant *m, size_t at, const fuzz_frame_shape *shape, uint32_t i)
{
    const tg_unit_plan *unit = unit_of(shape, i);
    size_t end = at + unit->header_len;
    if (unit->coordinates == TG_AT_INDICES && unit->header_len > 0) {
        at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_COUNT, i, at, 3);
        at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_MODE, i, at, 1);
        at = fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_INDEX_LEN, i, at, 2);
    }
    return at < end ? fuzz_mutant_add(m, FUZZ_NUMBER, FUZZ_CODED_LEN, i, at, end - at) : at;
}

static size_t cut_chunk(fuzz_mutant *m, size_t at, const fuzz_frame_shape *shape, uint32_t i)
{
    const tg_view *view = &shape->c->views[i];
    at = fuzz_mutant_add(m, FUZZ_FLOATS, FUZZ_SIDE, i, at, (size_t)(view->symbols - view->side));
    at = fuzz_mutant_add(m, FUZZ_BYTES, FUZZ_SYMBOLS, i, at, (size_t)(view->indices - view->symbols));
    return fuzz_mutant_add(m, FUZZ_BYTES, FUZZ_INDICES, i, at, view->index_len);
}

fuzz_frame_shape fuzz_frame_whole(tg_codec *c)
{
    return (fuzz_frame_shape){c, c->plan, 0};
}

static tg_status read_body(const fuzz_frame_shape *shape, const uint8_t *frame, size_t len, size_t description_len)
{
    tg_codec *c = shape->c;
    size_t front = TG_FRAME_HEADER + description_len;
    if ((shape->plan->holds & TG_HAS_VALUES) != 0) {
        c->executor->draw(c->run, 0, tg_get64(frame + 32));
    }
    tg_body_view view = {.bytes = frame + front, .chunks = c->views};
    return c->executor->check(&view, c->hashes, c->run, shape->plan, shape->slice, len - front - TG_FRAME_CHECKSUM,
                              NULL);
}

void fuzz_frame_cut(fuzz_mutant *m, const fuzz_frame_shape *shape)
{
    size_t description_len = tg_get32(m->bytes + 20);
    PROMISE(read_body(shape, m->bytes, m->len, description_len) == TG_OK, "a frame that was written can be read");
    size_t at = cut_header(m);
    at = description_len > 0 ? cut_description(m, at) : at;
    for (uint32_t i = 0; i < chunks_of(shape); i++) {
        at = cut_chunk_header(m, at, shape, i);
    }
    for (uint32_t i = 0; i < chunks_of(shape); i++) {
        at = cut_chunk(m, at, shape, i);
    }
    PROMISE(at + TG_FRAME_CHECKSUM == m->len, "the fields of a frame are all of it");
}

/* ---- damage ---------------------------------------------------------------------------------------------------------- */

void fuzz_frame_damage(fuzz_input *input, fuzz_mutant *m, const fuzz_frame_shape *shape, const uint8_t *other,
                       size_t other_len)
{
    size_t first = 0;
    while (first < m->field_n && m->fields[first].chunk == FUZZ_NO_CHUNK) {
        first++;
    }
    if (first == m->field_n) {
        return;
    }
    size_t field = first + fuzz_pick(input, (uint32_t)(m->field_n - first));
    const fuzz_field *f = &m->fields[field];
    const tg_chunk *chunk = &shape->plan->grid->chunks[shape->plan->grid->first[shape->slice] + f->chunk];
    const tg_unit_plan *unit = unit_of(shape, f->chunk);
    bool forges = fuzz_once_in(input, 2);
    if (f->role == FUZZ_MODE && forges) {
        m->bytes[f->at] = fuzz_forge_mode(input);
    } else if (f->role == FUZZ_INDICES && forges) {
        fuzz_forge_indices(input, m, field, chunk->n);
    } else if (f->role == FUZZ_SYMBOLS && forges && unit->format.coded) {
        fuzz_forge_symbols(input, m, field, unit->unit->recipe);
    } else {
        fuzz_damage_field(input, m, field, other, other_len);
    }
}

static size_t find_field(fuzz_input *input, const fuzz_mutant *m, fuzz_frame_role role)
{
    size_t n = 0;
    for (size_t i = 0; i < m->field_n; i++) {
        n += m->fields[i].role == role ? 1 : 0;
    }
    size_t skip = fuzz_pick(input, (uint32_t)n), field = 0;
    for (size_t i = 0; i < m->field_n; i++) {
        if (m->fields[i].role == role && skip-- == 0) {
            field = i;
        }
    }
    return field;
}

void fuzz_frame_damage_description(fuzz_input *input, fuzz_mutant *m, const tg_recipe_row *recipe)
{
    if (tg_get32(m->bytes + 20) == 0) {
        return;
    }
    switch (fuzz_pick(input, 8)) {
    case 0: fuzz_damage_field(input, m, find_field(input, m, FUZZ_NAME), NULL, 0); break;
    case 1: fuzz_damage_field(input, m, find_field(input, m, FUZZ_RECIPE), NULL, 0); break;
    case 2: fuzz_damage_field(input, m, find_field(input, m, FUZZ_PART_IDS), NULL, 0); break;
    case 3: fuzz_damage_field(input, m, find_field(input, m, FUZZ_TEXT_LEN), NULL, 0); break;
    case 4: {
        uint8_t ids[TG_STAGE_N];
        size_t text = find_field(input, m, FUZZ_RECIPE);
        for (tg_stage stage = 0; stage < TG_STAGE_N; stage++) {
            ids[stage] = tg_part_id(recipe->recipe.part[stage]);
        }
        fuzz_mutant_replace(m, text, 0, m->fields[text].len, (const uint8_t *)recipe->text, strlen(recipe->text));
        fuzz_mutant_replace(m, text + 1, 0, m->fields[text + 1].len, ids, sizeof ids);
        break;
    }
    default: fuzz_damage_field(input, m, find_field(input, m, FUZZ_DESCRIPTION), NULL, 0); break;
    }
}

/* ---- lengths --------------------------------------------------------------------------------------------------------- */

/* The field of that role of a chunk. NULL: it has none. */
static const fuzz_field *field_of(const fuzz_mutant *m, uint32_t chunk, fuzz_frame_role role)
{
    for (size_t i = 0; i < m->field_n; i++) {
        if (m->fields[i].chunk == chunk && m->fields[i].role == role) {
            return &m->fields[i];
        }
    }
    return NULL;
}

static size_t len_of(const fuzz_mutant *m, uint32_t chunk, fuzz_frame_role role)
{
    const fuzz_field *f = field_of(m, chunk, role);
    return f != NULL ? f->len : 0;
}

void fuzz_frame_fix_inner(fuzz_mutant *m)
{
    for (size_t i = 0; i < m->field_n; i++) {
        const fuzz_field *f = &m->fields[i];
        if (f->role == FUZZ_TEXT_LEN) {
            fuzz_put_number(m->bytes + f->at, 2, m->fields[i + 1].len);
        } else if (f->role == FUZZ_INDEX_LEN) {
            fuzz_put_number(m->bytes + f->at, 2, len_of(m, f->chunk, FUZZ_INDICES));
        } else if (f->role == FUZZ_CODED_LEN) {
            fuzz_put_number(m->bytes + f->at, f->len, len_of(m, f->chunk, FUZZ_SYMBOLS));
        }
    }
}

/* Resizes a field: truncates it, or appends zeros. */
static void resize_field(fuzz_mutant *m, size_t field, size_t len)
{
    size_t now = m->fields[field].len;
    uint8_t *zeros = fuzz_room(len > now ? len - now : 0, 0);
    fuzz_mutant_replace(m, field, len < now ? len : now, len < now ? now - len : 0, zeros, len > now ? len - now : 0);
    free(zeros);
}

void fuzz_frame_fit_symbols(fuzz_mutant *m, const fuzz_frame_shape *shape)
{
    enum { LEN_MAX = 1 << 18 };
    for (size_t i = 0; i < m->field_n; i++) {
        const fuzz_field *f = &m->fields[i], *count_field = field_of(m, f->chunk, FUZZ_COUNT);
        if (f->chunk == FUZZ_NO_CHUNK || count_field == NULL || (shape->plan->holds & TG_HAS_VALUES) == 0) {
            continue;
        }
        uint32_t count = (uint32_t)fuzz_get_number(m->bytes + count_field->at, 3);
        bool is_joint = tg_mode_is_joint(m->bytes[field_of(m, f->chunk, FUZZ_MODE)->at]);
        const tg_format *format = &unit_of(shape, f->chunk)->format;
        uint64_t side_len = tg_side_len(format, count), symbol_len = tg_symbols_len(format, count);
        if (f->role == FUZZ_SIDE && side_len <= LEN_MAX) {
            resize_field(m, i, (size_t)side_len);
        } else if (f->role == FUZZ_SYMBOLS && symbol_len <= LEN_MAX && !format->coded) {
            resize_field(m, i, is_joint ? 0 : (size_t)symbol_len);
        }
    }
}

void fuzz_frame_fix_outer(fuzz_mutant *m)
{
    size_t description_len = 0;
    for (size_t i = 0; i < m->field_n; i++) {
        bool is_described = m->fields[i].role >= FUZZ_DESCRIPTION && m->fields[i].role <= FUZZ_PART_IDS;
        description_len += is_described ? m->fields[i].len : 0;
    }
    tg_put32(m->bytes + 20, (uint32_t)description_len);
    tg_put64(m->bytes + 24, m->len);
    if (description_len > 0) {
        tg_put64(m->bytes + 40, tg_hash(m->bytes + TG_FRAME_HEADER, description_len));
    }
}

/* ---- chunks ---------------------------------------------------------------------------------------------------------- */

/* The range of a chunk's bytes, or of its header's. */
static void find_chunk(const fuzz_mutant *m, uint32_t chunk, bool in_headers, size_t *from, size_t *to)
{
    *from = *to = m->len - TG_FRAME_CHECKSUM;
    bool found = false;
    for (size_t i = 0; i < m->field_n; i++) {
        if (m->fields[i].chunk == chunk && (m->fields[i].role <= FUZZ_CODED_LEN) == in_headers) {
            *from = found ? *from : m->fields[i].at;
            *to = m->fields[i].at + m->fields[i].len;
            found = true;
        }
    }
}

static uint32_t chunk_n(const fuzz_mutant *m)
{
    const fuzz_field *last = &m->fields[m->field_n - 1];
    return last->chunk == FUZZ_NO_CHUNK ? 0 : last->chunk + 1;
}

static void replace_raw(fuzz_mutant *m, size_t from, size_t to, const uint8_t *bytes, size_t len)
{
    fuzz_field whole = {FUZZ_BYTES, 0, 0, 0, m->len};
    fuzz_field *fields = m->fields;
    size_t field_n = m->field_n;
    m->fields = &whole;
    m->field_n = 1;
    fuzz_mutant_replace(m, 0, from, to - from, bytes, len);
    m->fields = fields;
    m->field_n = field_n;
}

/* Where a chunk of `m`, or its header, is replaced by one of `source`. */
typedef struct move {
    uint32_t chunk, of_source;
    const fuzz_mutant *source;
    bool adds;    /* nothing is dropped */
    bool is_rest; /* all after it, too */
} move;

static void move_chunk(fuzz_mutant *m, const move *how, bool in_headers)
{
    size_t from = 0, to = 0, source_from = 0, source_to = 0;
    find_chunk(m, how->chunk, in_headers, &from, &to);
    find_chunk(how->source, how->of_source, in_headers, &source_from, &source_to);
    from = how->adds ? to : from;
    if (how->is_rest && !in_headers) {
        to = m->len - TG_FRAME_CHECKSUM;
        source_to = how->source->len - TG_FRAME_CHECKSUM;
    }
    size_t len = source_to - source_from;
    uint8_t *bytes = fuzz_room(len, 0);
    memcpy(bytes, how->source->bytes + source_from, len);
    replace_raw(m, from, to, bytes, len);
    free(bytes);
}

void fuzz_frame_move_chunks(fuzz_input *input, fuzz_mutant *m, const fuzz_mutant *other)
{
    uint32_t n = chunk_n(m), theirs = chunk_n(other);
    if (n == 0) {
        return;
    }
    move how = {.chunk = fuzz_pick(input, n), .source = m};
    how.of_source = how.chunk;
    switch (fuzz_pick(input, 4)) {
    case 0: /* a chunk of the other frame, of the same number or of any */
        how.source = other;
        how.of_source = fuzz_once_in(input, 2) ? fuzz_pick(input, theirs) : how.chunk;
        break;
    case 1: how.of_source = fuzz_pick(input, n); break;
    case 2: how.adds = true; break;
    default:
        how.source = other;
        how.is_rest = true;
        break;
    }
    uint32_t which = fuzz_pick(input, 4); /* both, mostly */
    if (which != 0) {
        move_chunk(m, &how, false);
    }
    if (which != 1) {
        move_chunk(m, &how, true); /* headers are before chunks, so that their places are still right */
    }
}

/* ---- sealing --------------------------------------------------------------------------------------------------------- */

bool fuzz_frame_seal(uint8_t *frame, size_t len, size_t description_len, const fuzz_frame_shape *shape)
{
    size_t front = TG_FRAME_HEADER + description_len;
    if (len < front + TG_FRAME_CHECKSUM || read_body(shape, frame, len, description_len) != TG_OK) {
        return false;
    }
    uint64_t *hashes = fuzz_room((chunks_of(shape) + 2) * sizeof *hashes, 0);
    hashes[0] = tg_hash(frame, front);
    memcpy(hashes + 1, shape->c->hashes, (chunks_of(shape) + 1) * sizeof *hashes);
    tg_put64(frame + len - TG_FRAME_CHECKSUM, tg_hash_words(hashes, chunks_of(shape) + 2));
    free(hashes);
    return true;
}
