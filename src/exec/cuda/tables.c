/* Makes the tables of kernels from a plan. */
#include "exec/cuda/run.h"

#include "exec/cuda/routes.h"
#include "kernels/hash.h"
#include "recipe/parts.h"

/* Kernels know plan.h by these names. */
_Static_assert((int)TG_GPU_ROUTE_LEADER == (int)TG_ROUTE_LEADER && (int)TG_GPU_ROUTE_SCALED == (int)TG_ROUTE_SCALED &&
                   (int)TG_GPU_ROUTE_PLAIN == (int)TG_ROUTE_PLAIN,
               "routes");
_Static_assert((int)TG_GPU_AT_INDICES == (int)TG_AT_INDICES && (int)TG_GPU_VALUES_SIGNS == (int)TG_VALUES_SIGNS,
               "kinds");
_Static_assert((int)TG_GPU_SCALE_ONE == (int)TG_SCALE_ONE && (int)TG_GPU_SCALE_NONE == (int)TG_SCALE_NONE, "scales");

/* Parameters that kernels use; parts in frames have no more. */
static void take_params(double *out, size_t cap, const tg_part *part, const double *params)
{
    for (size_t i = 0; i < cap; i++) {
        out[i] = i < part->param_n ? params[i] : 0;
    }
}

void tg_gpu_unit_of(tg_gpu_unit *out, const tg_unit_plan *u, uint32_t piece_first)
{
    const tg_stages *s = &u->stages;
    const tg_format *f = &u->format;
    *out = (tg_gpu_unit){.lo = u->lo,
                         .hi = u->hi,
                         .flat_at = u->flat_at,
                         .residual_at = u->residual_at,
                         .planes = u->planes,
                         .piece_first = piece_first,
                         .piece_n = (uint32_t)u->unit->piece_n,
                         .plain_len = f->plain_len,
                         .base = f->base,
                         .bucket_n = f->bucket_n,
                         .side_len = f->side_len,
                         .head_len = f->head_len,
                         .rotation = f->rotation,
                         .signs = {u->signs[0], u->signs[1], u->signs[2], u->signs[3]},
                         .bin = f->bin,
                         .header_len = u->header_len,
                         .scale = f->scale,
                         .gain = f->gain,
                         .refit = f->refit,
                         .route = (uint8_t)u->route,
                         .values = (uint8_t)u->values,
                         .coordinates = (uint8_t)u->coordinates,
                         .feedback = tg_part_id(&s->feedback->part),
                         .select = tg_part_id(&s->select->part),
                         .quantize = tg_part_id(&s->quantize->part),
                         .index = tg_part_id(&s->index->part),
                         .symbol = tg_part_id(&s->symbol->part),
                         .coded = f->coded,
                         .draws = f->draws,
                         .presums = u->presums,
                         .verbatim = u->verbatim};
    out->bucket_inverse = f->bucket_n == 0 ? 0 : UINT32_MAX / f->bucket_n;
    if (f->base != 0) {
        tg_digits g = tg_bits_group(f->base);
        out->group_n = g.symbols;
        out->group_bits = g.bits;
        out->inverse = UINT64_MAX / f->base + 1;
    }
    take_params(out->feedback_params, sizeof out->feedback_params / sizeof(double), &s->feedback->part,
                s->feedback_params);
    take_params(out->select_params, sizeof out->select_params / sizeof(double), &s->select->part, s->select_params);
    take_params(out->quantize_params, sizeof out->quantize_params / sizeof(double), &s->quantize->part,
                s->quantize_params);
    take_params(out->symbol_params, sizeof out->symbol_params / sizeof(double), &s->symbol->part, s->symbol_params);
    out->kinds = tg_gpu_quantize_kinds(out);
}

void tg_gpu_fill_pieces(tg_gpu_piece *out, const tg_layout *l)
{
    for (size_t i = 0; i < l->unit_n; i++) {
        const tg_unit *unit = &l->units[i];
        for (size_t p = 0; p < unit->piece_n; p++) {
            const tg_piece *piece = &unit->pieces[p];
            *out++ = (tg_gpu_piece){.at = piece->at,
                                    .n = piece->n,
                                    .tensor = (uint32_t)piece->tensor,
                                    .dtype = (uint32_t)l->tensors[piece->tensor].dtype};
        }
    }
}

void tg_gpu_fill_chunks(tg_gpu_chunk *out, const tg_plan *plan)
{
    enum { LEAF = 1024 };
    const tg_grid *grid = plan->grid;
    uint32_t leaves = 0, cell = 0;
    uint64_t body_at = 0;
    for (size_t i = 0; i < grid->first[grid->cells]; i++) {
        const tg_chunk *chunk = &grid->chunks[i];
        while (i >= grid->first[cell + 1]) {
            cell++;
            body_at = 0;
        }
        const tg_unit_plan *u = &plan->units[chunk->unit];
        bool is_fixed = u->coordinates == TG_AT_EVERY && u->header_len == 0;
        out[i] = (tg_gpu_chunk){.at = chunk->at,
                                .element_at = plan->layout->units[chunk->unit].at + chunk->at,
                                .header_at = plan->header_at[i],
                                .unit = chunk->unit,
                                .n = chunk->n,
                                .leaf_at = leaves,
                                .cell = cell,
                                .body_at = body_at,
                                .len = is_fixed ? (uint32_t)tg_gpu_chunk_len(plan, chunk, 0) : 0,
                                .side_len = is_fixed ? (uint32_t)tg_side_len(&u->format, chunk->n) : 0,
                                .fit_at = plan->fit_at != NULL ? plan->fit_at[i] : 0};
        body_at += out[i].len;
        leaves += (chunk->n + LEAF - 1) / LEAF;
    }
}

uint32_t tg_gpu_place_pending(tg_gpu_unit *units, size_t n, uint64_t residual_n)
{
    uint32_t placed = 0;
    for (size_t i = 0; i < n; i++) {
        if (units[i].quantize == TG_GPU_SIGN && units[i].planes > 0) {
            units[i].pending_at = residual_n + placed++;
        }
    }
    return placed;
}

static tg_gpu_tile tile_of(const tg_plan *plan, uint32_t number, uint32_t from)
{
    const tg_chunk *chunk = &plan->grid->chunks[number];
    const tg_unit *unit = &plan->layout->units[chunk->unit];
    uint64_t at = chunk->at + from;
    uint32_t n = chunk->n - from < TG_GPU_TILE ? chunk->n - from : TG_GPU_TILE;
    const tg_piece *piece = tg_unit_piece(unit, at);
    return (tg_gpu_tile){.chunk = number,
                         .from = from,
                         .n = n,
                         .unit = chunk->unit,
                         .piece = (uint32_t)(piece - plan->layout->storage.pieces),
                         .is_whole = at + n <= piece->at + piece->n,
                         .at = at};
}

/* Whether all elements of a unit are sent, as plain values. */
static bool is_plain(const tg_unit_plan *u)
{
    return u->route != TG_ROUTE_NONE && u->coordinates == TG_AT_EVERY && u->format.plain_len != 0;
}

static uint32_t fill_tiles(tg_gpu_tile *out, uint32_t *first, const tg_plan *plan, bool of_plain)
{
    const tg_grid *grid = plan->grid;
    uint32_t n = 0;
    for (size_t i = 0; i < grid->first[grid->cells]; i++) {
        bool is_in = !of_plain || is_plain(&plan->units[grid->chunks[i].unit]);
        first[i] = n;
        for (uint32_t from = 0; is_in && from < grid->chunks[i].n; from += TG_GPU_TILE, n++) {
            if (out != NULL) {
                out[n] = tile_of(plan, (uint32_t)i, from);
            }
        }
    }
    first[grid->first[grid->cells]] = n;
    return n;
}

uint32_t tg_gpu_fill_tiles(tg_gpu_tile *out, uint32_t *first, const tg_plan *plan)
{
    return fill_tiles(out, first, plan, false);
}

uint32_t tg_gpu_fill_plain_tiles(tg_gpu_tile *out, uint32_t *first, const tg_plan *plan)
{
    return fill_tiles(out, first, plan, true);
}

uint32_t tg_gpu_fill_parts(tg_gpu_part *out, uint32_t *first, const uint32_t *tile_first, const tg_plan *plan)
{
    const tg_grid *grid = plan->grid;
    uint32_t n = 0;
    for (size_t i = 0; i < grid->first[grid->cells]; i++) {
        first[i] = n;
        for (uint32_t part = 0; part < TG_GPU_PARTS; part++, n++) {
            uint32_t tile = tile_first[i] + part * TG_GPU_PART_TILES;
            uint32_t left = tile < tile_first[i + 1] ? tile_first[i + 1] - tile : 0;
            if (out != NULL) {
                out[n] = (tg_gpu_part){tile, left < TG_GPU_PART_TILES ? left : TG_GPU_PART_TILES};
            }
        }
    }
    first[grid->first[grid->cells]] = n;
    return n;
}

uint32_t tg_gpu_fill_leaves(tg_gpu_leaf *out, uint32_t *first, const tg_plan *plan)
{
    const tg_grid *grid = plan->grid;
    uint32_t n = 0;
    for (size_t i = 0; i < grid->first[grid->cells]; i++) {
        uint64_t len = tg_gpu_chunk_len(plan, &grid->chunks[i], 0);
        first[i] = n;
        for (uint32_t leaf = 0; (uint64_t)leaf * TG_HASH_LEAF < len; leaf++, n++) {
            if (out != NULL) {
                out[n] = (tg_gpu_leaf){(uint32_t)i, grid->chunks[i].unit, leaf};
            }
        }
    }
    first[grid->first[grid->cells]] = n;
    return n;
}

/* ---- what is lacking --------------------------------------------------------------------------------------------------- */

const char *tg_gpu_lacks(const tg_gpu_unit *u)
{
    if (u->route == TG_ROUTE_NONE) {
        return NULL; /* nothing of it is in a frame */
    }
    const char *part = tg_gpu_quantize_lacks(u);
    part = part != NULL ? part : tg_gpu_select_lacks(u);
    return part != NULL ? part : tg_gpu_pack_lacks(u);
}

/* ---- what is needed ------------------------------------------------------------------------------------------------------ */

tg_gpu_uses tg_gpu_uses_of(const tg_gpu_unit *units, size_t n, bool has_values)
{
    tg_gpu_uses all = {.fixed = true, .only_plain = true, .lists = true, .counts = true};
    for (size_t i = 0; i < n; i++) {
        const tg_gpu_unit *u = &units[i];
        bool is_dense = u->coordinates == TG_AT_EVERY;
        all.starts = all.starts || is_dense || u->route == TG_ROUTE_NONE;
        all.only_plain = all.only_plain && u->route != TG_ROUTE_NONE && is_dense && u->plain_len != 0 && !u->coded;
        if (u->route == TG_ROUTE_NONE) {
            continue;
        }
        all.plain = all.plain || (is_dense && u->plain_len != 0);
        all.symbols = all.symbols || u->plain_len == 0;
        all.dense_symbols = all.dense_symbols || (is_dense && u->plain_len == 0);
        bool is_listed = u->quantize == TG_GPU_SIGN && u->scale != TG_SCALE_MEAN; /* by the kernel that lists values */
        all.quantizes_values = all.quantizes_values || (!is_dense && u->plain_len == 0 && !is_listed);
        all.words = all.words || (u->plain_len != 0 && u->coded);
        all.sparse = all.sparse || !is_dense;
        bool is_scaled = u->route == TG_ROUTE_BINS && u->scale == TG_SCALE_BINS; /* likewise */
        all.scales = all.scales || (u->scale != TG_SCALE_NONE && !is_scaled);
        all.bins = all.bins || u->bin > 0;
        all.fits = all.fits || u->quantize == TG_GPU_FP4 || u->quantize == TG_GPU_FP8;
        bool rounds = is_dense && (u->quantize == TG_GPU_FP4 || u->quantize == TG_GPU_FP8);
        all.holds = all.holds || rounds;
        all.counts = all.counts && (rounds || !u->coded);
        all.kinds |= u->kinds;
        uint64_t slot_len = tg_gpu_quantize_scratch(u);
        all.slot_len = slot_len > all.slot_len ? slot_len : all.slot_len;
        all.coded = all.coded || u->coded;
        all.velocities = all.velocities || u->planes > 1;
        all.fixed = all.fixed && is_dense && !u->coded && u->header_len == 0;
        all.packs |= u->plain_len == 0 && !tg_gpu_rounds_leaves(u) ? TG_GPU_PACKS_LEAVES : 0;
        all.packs |= tg_gpu_rounds_leaves(u) ? TG_GPU_ROUNDS_LEAVES : 0;
        bool lists_signs = u->coordinates == TG_AT_INDICES && u->quantize == TG_GPU_SIGN;
        uint32_t pack = u->coded ? u->symbol : lists_signs ? TG_GPU_JOINT : TG_GPU_BITS;
        all.packs |= u->coded || u->plain_len == 0 ? 1u << pack : 0;
        bool is_block = u->coordinates == TG_AT_DRAWN && u->select == TG_GPU_SELECT_RANDOMBLOCK;
        bool has_places = is_dense || u->coordinates == TG_AT_INDICES || is_block; /* in the frame, or by its step */
        all.lists = all.lists && !u->coded && has_places && (u->plain_len != 0 || (lists_signs && !is_dense));
    }
    all.lists = all.lists && all.sparse;
    all.counts = all.counts && all.coded;
    return has_values ? all : (tg_gpu_uses){.starts = all.starts, .sparse = all.sparse, .bins = all.bins};
}
