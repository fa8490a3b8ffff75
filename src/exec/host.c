/* The host executor: its table of routes and passes, residual state and statistics. */
#include "exec/host.h"

#include "kernels/hash.h"

#include <string.h>

const tg_route *const tg_host_routes[TG_ROUTE_N] = {
    [TG_ROUTE_PLAIN] = &tg_route_plain,   [TG_ROUTE_VERBATIM] = &tg_route_verbatim,
    [TG_ROUTE_WORDS] = &tg_route_words,   [TG_ROUTE_BUCKETS] = &tg_route_buckets,
    [TG_ROUTE_FITTED] = &tg_route_fitted, [TG_ROUTE_SCALED] = &tg_route_scaled,
    [TG_ROUTE_LISTED] = &tg_route_listed, [TG_ROUTE_DRAWN] = &tg_route_drawn,
    [TG_ROUTE_TESTED] = &tg_route_tested, [TG_ROUTE_BINS] = &tg_route_bins,
    [TG_ROUTE_LEADER] = &tg_route_leader,
};

static uint64_t hash(tg_run *run, const void *data, size_t len)
{
    (void)run;
    return tg_hash(data, len);
}

static tg_status acquire(void *out, const tg_device *device, const tg_allocator *a, uint64_t len, tg_detail *why)
{
    (void)device;
    return tg_acquire_room(out, a, len, why);
}

static void release(const tg_device *device, const tg_allocator *a, void *block)
{
    (void)device;
    tg_release(a, block);
}

static tg_status fetch(const uint8_t **out, void *space, const tg_device *device, const tg_run *run,
                       const uint8_t *from, size_t len, tg_detail *why)
{
    (void)space;
    (void)device;
    (void)run;
    (void)len;
    (void)why;
    *out = from;
    return TG_OK;
}

static void store(const tg_device *device, uint8_t *to, const void *from, size_t len)
{
    (void)device;
    memcpy(to, from, len);
}

static tg_status verdict(tg_run *run, const tg_source *source, tg_detail *why)
{
    (void)run; /* write has refused them */
    (void)source;
    (void)why;
    return TG_OK;
}

static void commit(tg_run *run)
{
    run->residuals = (tg_residuals){.now = run->residuals.next, .next = run->residuals.now};
}

static void save(float *out, const tg_run *run, uint64_t at, uint64_t n)
{
    if (n > 0) {
        memcpy(out, run->residuals.now + at, (size_t)n * sizeof *out);
    }
}

static void load(tg_run *run, uint64_t at, const float *values, uint64_t n)
{
    if (n > 0) {
        memcpy(run->residuals.now + at, values, (size_t)n * sizeof *values);
    }
}

static void wait(const tg_run *run)
{
    (void)run; /* every pass returns when it is done */
}

/* ---- statistics ------------------------------------------------------------------------------------------------------ */

static tg_unit_stats stats(const tg_run *run, size_t unit)
{
    return run->stats[unit];
}

static void note(tg_run *run, uint32_t slice, const tg_body_view *body)
{
    const tg_grid *grid = run->plan->grid;
    for (size_t i = 0; i < run->plan->layout->unit_n; i++) {
        run->stats[i] = (tg_unit_stats){0};
    }
    for (size_t i = grid->first[slice]; i < grid->first[slice + 1]; i++) {
        const tg_view *view = &body->chunks[i - grid->first[slice]];
        tg_host_note_chunk(run, grid->chunks[i].unit, view, body->bytes + view->start);
    }
}

/* ---- refusals -------------------------------------------------------------------------------------------------------- */

/* Whether a tensor is finite in the source. */
static bool is_source_finite(const tg_run *run, size_t tensor, const tg_source *source)
{
    enum { SOME = 256 };
    const tg_layout *l = run->plan->layout;
    const tg_unit_plan *u = &run->plan->units[l->tensor_unit[tensor]];
    const tg_piece *piece = tg_unit_piece_of(u->unit, tensor);
    uint64_t at = piece->at > u->lo ? piece->at : u->lo, end = piece->at + piece->n;
    end = end < u->hi ? end : u->hi;
    if (source->flat != NULL) {
        return at >= end || tg_all_finite(source->flat + u->flat_at + (at - u->lo), (size_t)(end - at));
    }
    tg_dtype dtype = l->tensors[tensor].dtype;
    for (const char *grad = source->grads[tensor]; at < end; at += SOME) {
        float some[SOME];
        size_t n = end - at < SOME ? (size_t)(end - at) : SOME;
        tg_widen(some, grad + (at - piece->at) * tg_dtype_len(dtype), dtype, n);
        if (!tg_all_finite(some, n)) {
            return false;
        }
    }
    return true;
}

tg_status tg_refuse_overflow(const char *tensor, const char *of, tg_detail *why)
{
    return tg_fail(
        TG_E_NONFINITE, why,
        "the residual of tensor '%.100s' overflows: its %s is finite, but %s plus residual, or that less the "
        "decoded values, is not",
        tensor, of, of);
}

tg_status tg_host_refuse(const tg_run *run, size_t bad_tensor, const tg_source *source, tg_detail *why)
{
    const char *of = source->flat != NULL ? "average" : "gradient";
    const char *name = run->plan->layout->tensors[bad_tensor - 1].name;
    if (!is_source_finite(run, bad_tensor - 1, source)) {
        return tg_fail(TG_E_NONFINITE, why, "the %s of tensor '%.150s' holds NaN or Inf", of, name);
    }
    return tg_refuse_overflow(name, of, why);
}

/* The host can use all memory that it is given. */
static tg_status reach(tg_run *run, const void *const *tensors, const void *frame, tg_detail *why)
{
    (void)run;
    (void)tensors;
    (void)frame;
    (void)why;
    return TG_OK;
}

const tg_executor tg_executor_host = {
    .name = "host",
    .open = tg_host_open,
    .close = tg_host_close,
    .reach = reach,
    .select = tg_host_select,
    .clip = tg_host_clip,
    .draw = tg_host_draw,
    .follow = tg_host_follow,
    .length = tg_host_length,
    .write = tg_host_write,
    .seal = tg_host_seal,
    .verdict = verdict,
    .find = tg_host_find,
    .check = tg_host_check,
    .recall = tg_host_recall,
    .sum = tg_host_sum,
    .sum_unchecked = tg_host_sum_unchecked,
    .copy = tg_host_copy,
    .commit = commit,
    .hash = hash,
    .acquire = acquire,
    .release = release,
    .fetch = fetch,
    .store = store,
    .wait = wait,
    .save = save,
    .load = load,
    .stats = stats,
    .note = note,
    .lowrank = &tg_host_lowrank,
    .lgc = &tg_host_lgc_passes,
};
