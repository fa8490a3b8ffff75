/* The CUDA executor: its table of passes, residual state, statistics and memory. */
#include "exec/cuda/run.h"

#include "base/philox.h"
#include "kernels/hash.h"

#include <string.h>

static const tg_gpu *gpu_of(const tg_device *device)
{
    return (const tg_gpu *)(const void *)device; /* a tg_gpu begins with its tg_device */
}

/* ---- coordinates ------------------------------------------------------------------------------------------------------- */

/* Refuses a tensor without elements, or whose elements are not in memory of the GPU. */
static tg_status check_tensor(const tg_run *run, size_t t, const void *elements, tg_detail *why)
{
    const tg_layout *l = run->plan->layout;
    const void **usable = run->work->usable[t]; /* of a gradient and, say, of what is decoded */
    if (l->tensor_elements[t] == 0 || (elements != NULL && (elements == usable[0] || elements == usable[1]))) {
        return TG_OK;
    }
    if (elements == NULL) {
        return tg_fail(TG_E_ARGUMENT, why, "no elements are given for tensor '%.150s'", l->tensors[t].name);
    }
    if (!tg_gpu_can_use(run->gpu, elements)) {
        return tg_fail(TG_E_ARGUMENT, why, "the elements of tensor '%.150s' are not in the memory of GPU %d",
                       l->tensors[t].name, run->gpu->ordinal);
    }
    usable[1] = usable[0];
    usable[0] = elements;
    return TG_OK;
}

static tg_status refuse_frame(const tg_gpu *gpu, tg_detail *why)
{
    return tg_fail(TG_E_ARGUMENT, why, "the frame is not in the memory of GPU %d", gpu->ordinal);
}

static tg_status reach(tg_run *run, const void *const *tensors, const void *frame, tg_detail *why)
{
    tg_gpu_enter(run->gpu);
    for (size_t t = 0; t < run->plan->layout->tensor_n; t++) {
        TG_TRY(check_tensor(run, t, tensors[t], why));
    }
    if (frame != NULL && frame != run->work->usable_frame) {
        if (!tg_gpu_can_use(run->gpu, frame)) {
            return refuse_frame(run->gpu, why);
        }
        run->work->usable_frame = frame;
    }
    return TG_OK;
}

tg_status tg_gpu_reach_group(const tg_run *run, uint32_t group, const void *const *tensors, tg_detail *why)
{
    const tg_grid *grid = run->plan->grid;
    for (size_t j = grid->unit_first[group]; tensors != NULL && j < grid->unit_first[group + 1]; j++) {
        const tg_unit *unit = &run->plan->layout->units[grid->units[j]];
        for (size_t i = 0; i < unit->piece_n; i++) {
            size_t t = unit->pieces[i].tensor;
            TG_TRY(check_tensor(run, t, tensors[t], why));
        }
    }
    return TG_OK;
}

/* A unit's random block: coordinates [from, to), and those below `wrapped`. */
typedef struct drawn_block {
    uint64_t from, to, wrapped;
} drawn_block;

static drawn_block block_of(const tg_run *run, uint32_t unit)
{
    const tg_unit_plan *u = &run->plan->units[unit];
    uint64_t n = u->unit->n, entries = u->stages.select->most(u->stages.select_params, n);
    bool is_shared = u->coordinates == TG_AT_DRAWN;
    tg_stream stream =
        tg_stream_of(run->plan->layout->seed, run->work->step, unit, is_shared ? 0 : run->plan->rank + 1);
    uint64_t from = tg_stream_below(&stream, 0, n), wrapped = n - from < entries ? entries - (n - from) : 0;
    return (drawn_block){.from = from, .to = from + (entries - wrapped), .wrapped = wrapped};
}

/* Its coordinates below `at`. */
static uint64_t block_before(const drawn_block *b, uint64_t at)
{
    uint64_t low = at < b->wrapped ? at : b->wrapped;
    return low + (at <= b->from ? 0 : (at < b->to ? at : b->to) - b->from);
}

/* Counts the coordinates of a group where random blocks are all that is drawn: nobody has to wait for that. */
static void count_blocks(const tg_run *run, size_t first, size_t end)
{
    uint32_t unit = UINT32_MAX; /* whose block this is: */
    drawn_block b = {0};
    for (size_t i = first; i < end; i++) {
        const tg_chunk *chunk = &run->plan->grid->chunks[i];
        bool is_known = run->plan->units[chunk->unit].route == TG_ROUTE_DRAWN;
        if (is_known && chunk->unit != unit) {
            unit = chunk->unit;
            b = block_of(run, unit);
        }
        uint64_t n = is_known ? block_before(&b, chunk->at + chunk->n) - block_before(&b, chunk->at) : 0;
        run->work->known_n[i] = (uint32_t)n;
    }
}

/* Counts the coordinates of a group that are known without a frame. */
static tg_status count_known(tg_run *run, uint32_t group, tg_detail *why)
{
    const tg_grid *grid = run->plan->grid;
    const tg_gpu_workspace *w = run->work;
    size_t first = grid->first[(size_t)group * grid->slices], end = grid->first[((size_t)group + 1) * grid->slices];
    if (!run->selection.has_marks) {
        count_blocks(run, first, end);
        return TG_OK;
    }
    tg_gpu_pass p = tg_gpu_pass_of(run, run->plan, first, end);
    tg_gpu_count_known(&p, &run->selection);
    tg_gpu_copy(run->gpu, w->known_n + first, run->selection.known_n + first, (end - first) * sizeof *w->known_n);
    return tg_gpu_wait(run->gpu, why);
}

/* Draws for the step that was begun: what all ranks share and, of an encoder, what is this rank's own. */
static tg_status draw(tg_run *run, uint32_t group, bool own_too, tg_detail *why)
{
    const tg_grid *grid = run->plan->grid;
    const tg_gpu_workspace *w = run->work;
    size_t first = grid->first[(size_t)group * grid->slices], end = grid->first[((size_t)group + 1) * grid->slices];
    if (!run->plan->has_draws || first == end) {
        return TG_OK;
    }
    tg_gpu_pass p = tg_gpu_pass_of(run, run->plan, first, end);
    tg_gpu_draw_coordinates(&p, &run->selection, own_too);
    w->drawn[group] = (tg_gpu_drawn){w->step, true};
    return count_known(run, group, why);
}

/* The factors that bound the norms of a group's gradients, where the feedback asks for that. */
static void clip(tg_run *run, uint32_t group, const tg_source *source)
{
    const tg_grid *grid = run->plan->grid;
    if (!run->plan->has_clip ||
        (source->flat == NULL && tg_gpu_reach_group(run, group, source->grads, NULL) != TG_OK)) {
        return; /* writing refuses such gradients */
    }
    tg_gpu_pass p = tg_gpu_pass_of(run, run->plan, 0, 0);
    p.flat = source->flat;
    (void)tg_gpu_give_sources(&p, run, group, source->grads,
                              !tg_gpu_is_capturing(run->gpu)); /* so does writing, and refuses */
    tg_gpu_clear_verdict(run);
    for (size_t j = grid->unit_first[group]; j < grid->unit_first[group + 1]; j++) {
        tg_gpu_clip(&p, run->work->norms, grid->units[j], 1);
    }
}

/* Refuses what cannot be captured in a CUDA graph, or does not know a step in device memory. */
static tg_status check_capture(const tg_run *run, tg_detail *why)
{
    bool captures = tg_gpu_is_capturing(run->gpu);
    if ((captures || run->gpu->step != NULL) && !run->uses.fixed) {
        return tg_fail(TG_E_ARGUMENT, why, "frames of this recipe have no fixed length, so that %s",
                       captures ? "a CUDA graph cannot hold their encoding" : "their step cannot be in device memory");
    }
    if (captures && (run->plan->nonfinite == TG_NONFINITE_ERROR || run->uses.velocities)) {
        return tg_fail(TG_E_ARGUMENT, why, "a CUDA graph cannot hold an encoding %s",
                       run->uses.velocities ? "with momentum"
                                            : "that refuses NaN and Inf; the policies zero and pass do not");
    }
    return TG_OK;
}

tg_status tg_gpu_select(tg_run *run, uint32_t group, uint64_t step, const tg_source *source, tg_detail *why)
{
    tg_gpu_enter(run->gpu);
    TG_TRY(check_capture(run, why));
    TG_TRY(tg_gpu_reach_group(run, group, source->grads, why));
    if (run->parent == NULL) {
        run->work->step = step;
        TG_TRY(draw(run, group, true, why));
    }
    clip(run, group, source);
    return TG_OK;
}

void tg_gpu_draw(tg_run *run, uint32_t group, uint64_t step)
{
    tg_detail why;
    run = run->parent != NULL ? run->parent : run;
    const tg_gpu_drawn *drawn = &run->work->drawn[group];
    run->work->step = step;
    if (run->plan->has_draws && !(drawn->is_drawn && drawn->step == step)) {
        tg_gpu_note_failure(run, draw(run, group, false, &why), &why);
    }
}

void tg_gpu_follow(tg_run *run, const tg_plan *plan, uint32_t group, const tg_body_view *body)
{
    tg_run *leader = run->leader;
    size_t first = plan->grid->first[group], end = plan->grid->first[group + 1];
    tg_detail why;
    tg_gpu_pass p = tg_gpu_pass_of(leader, plan, first, end);
    tg_gpu_upload_views(leader, first, end, body->chunks);
    run->work->has_known_views = false;
    run->work->held = NULL;
    tg_gpu_read_body(&p, leader, body->bytes);
    tg_gpu_follow_leader(&p, &run->selection);
    tg_gpu_note_failure(run, count_known(run, group, &why), &why);
}

bool tg_gpu_length(uint64_t *len, tg_run *run, uint32_t cell, uint64_t step)
{
    tg_gpu_draw(run, cell / run->plan->grid->slices, step);
    return tg_body_len(len, run->plan, cell, run->work->known_n);
}

/* ---- residual state ---------------------------------------------------------------------------------------------------- */

static void commit(tg_run *run)
{
    if (run->is_in_place) {
        run->is_in_place = false;
        return;
    }
    float *now = run->now;
    run->now = run->next;
    run->next = now;
}

/* Subtracts what is pending from residuals, before some of them are read or replaced. */
static void complete_residuals(const tg_run *run)
{
    tg_gpu_enter(run->gpu);
    if (run->pending_n > 0) {
        tg_gpu_subtract_pending(run->units, (uint32_t)run->plan->layout->unit_n, run->now, run->gpu->stream);
    }
}

static void save(float *out, const tg_run *run, uint64_t at, uint64_t n)
{
    complete_residuals(run);
    tg_gpu_copy(run->gpu, out, run->now + at, n * sizeof *out);
    tg_gpu_settle(run);
}

static void load(tg_run *run, uint64_t at, const float *values, uint64_t n)
{
    complete_residuals(run);
    tg_gpu_copy(run->gpu, run->now + at, values, n * sizeof *values);
    tg_gpu_settle(run);
}

static void wait(const tg_run *run)
{
    tg_gpu_enter(run->gpu);
    tg_gpu_settle(run);
}

/* ---- hashes ------------------------------------------------------------------------------------------------------------ */

/* The hash of a piece of up to 512 leaves is that of a leaf of their hashes. The hash of several pieces is that of their hashes. */
static uint64_t hash(tg_run *run, const void *data, size_t len)
{
    enum { LEAF = TG_HASH_LEAF, PIECE = TG_HASH_LEAF * TG_HASH_LEAVES };
    const tg_gpu_workspace *w = run->work;
    uint64_t *hashes = w->hashes.host;
    size_t pieces = len == 0 ? 1 : (len + PIECE - 1) / PIECE, last = len - (pieces - 1) * PIECE;
    uint32_t leaf_cap = pieces > 1 ? TG_HASH_LEAVES : (uint32_t)(len == 0 ? 1 : (len + LEAF - 1) / LEAF);
    tg_detail why;
    tg_gpu_enter(run->gpu);
    for (size_t i = 0; i < pieces; i++) {
        const tg_gpu_span span = {(const uint8_t *)data + i * PIECE, i + 1 < pieces ? PIECE : last};
        tg_gpu_copy(run->gpu, w->spans + i, &span, sizeof span);
    }
    tg_gpu_hash(w->hashes.device, w->leaves, w->spans, (uint32_t)pieces, leaf_cap, run->gpu->stream);
    tg_gpu_download(run, &w->hashes, 0, pieces, sizeof *hashes);
    tg_gpu_note_failure(run, tg_gpu_wait(run->gpu, &why), &why);
    if (pieces == 1) {
        return hashes[0];
    }
    if (last <= LEAF) { /* of one leaf, whose hash is that of the leaf itself */
        hashes[pieces - 1] = tg_hash(&hashes[pieces - 1], sizeof *hashes);
    }
    return tg_hash(hashes, pieces * sizeof *hashes);
}

/* ---- statistics -------------------------------------------------------------------------------------------------------- */

void tg_gpu_note_chunk(const tg_run *run, size_t chunk, const tg_view *view)
{
    uint32_t unit = run->plan->grid->chunks[chunk].unit;
    tg_unit_stats *stats = &run->stats[unit];
    stats->len += run->plan->units[unit].header_len + view->len;
    stats->entries += view->count;
    bool is_fitted = run->plan->units[unit].stages.quantize->fit != NULL && view->indices > view->symbols;
    stats->fit_n += is_fitted ? 1 : 0;
    run->work->is_fitted[chunk] = is_fitted;
}

/* Adds what the quantizers of chunks have fitted, from the first bytes beside their values. */
void tg_gpu_close_stats(tg_gpu_workspace *w, const tg_run *but)
{
    const tg_run *run = w->open_stats;
    if (run == NULL || run == but) {
        return;
    }
    const tg_grid *grid = run->plan->grid;
    size_t first = grid->first[w->stats_from], end = grid->first[w->stats_to];
    w->open_stats = NULL;
    tg_gpu_enter(run->gpu);
    tg_gpu_download(run, &w->sides, first, end - first, sizeof(uint64_t));
    tg_gpu_settle(run);
    for (size_t i = first; i < end; i++) {
        uint32_t unit = grid->chunks[i].unit;
        double shape = 0, scale = 0;
        if (w->is_fitted[i]) {
            uint8_t bytes[sizeof(uint64_t)];
            memcpy(bytes, (const uint64_t *)w->sides.host + i, sizeof bytes);
            run->plan->units[unit].stages.quantize->fit(&shape, &scale, bytes);
            run->stats[unit].shape += shape;
            run->stats[unit].scale += scale;
        }
    }
}

void tg_gpu_open_stats(tg_run *run, uint32_t from, uint32_t to)
{
    tg_gpu_workspace *w = run->work;
    tg_gpu_close_stats(w, run);
    w->open_stats = run->uses.fits ? run : NULL;
    w->stats_from = from;
    w->stats_to = to;
}

static tg_unit_stats stats(const tg_run *run, size_t unit)
{
    tg_gpu_close_stats(run->work, NULL);
    return run->stats[unit];
}

void tg_gpu_note_views(tg_run *run, uint32_t cell, const tg_view *views)
{
    const tg_grid *grid = run->plan->grid;
    size_t first = grid->first[cell], end = grid->first[cell + 1];
    for (size_t i = 0; i < run->plan->layout->unit_n; i++) {
        run->stats[i] = (tg_unit_stats){0};
    }
    tg_gpu_open_stats(run, cell, cell + 1);
    for (size_t i = first; i < end; i++) {
        tg_gpu_note_chunk(run, i, &views[i - first]);
    }
}

void tg_gpu_note(tg_run *run, uint32_t cell, const tg_body_view *body)
{
    const tg_grid *grid = run->plan->grid;
    tg_gpu_note_views(run, cell, body->chunks);
    if (run->uses.fits) {
        tg_gpu_pass p = tg_gpu_pass_of(run, run->plan, grid->first[cell], grid->first[cell + 1]);
        tg_gpu_read_sides(&p, run->work->sides.device, body->bytes);
    }
}

/* ---- memory ------------------------------------------------------------------------------------------------------------ */

static tg_status acquire(void *out, const tg_device *device, const tg_allocator *a, uint64_t len, tg_detail *why)
{
    (void)a;
    tg_gpu_enter(gpu_of(device));
    return tg_gpu_acquire(out, gpu_of(device), len, why);
}

static void release(const tg_device *device, const tg_allocator *a, void *block)
{
    (void)a;
    tg_gpu_enter(gpu_of(device));
    tg_gpu_release(gpu_of(device), block);
}

/* Bytes of a frame that was announced are on the host already. */
static const uint8_t *fetched(const tg_run *run, const uint8_t *from, size_t len)
{
    const tg_gpu_workspace *w = run != NULL ? run->work : NULL;
    if (w == NULL || w->expected == NULL || from < w->expected) {
        return NULL;
    }
    const uint8_t *ends = w->ends.host;
    size_t at = (size_t)(from - w->expected), checksum_at = w->expected_len - TG_GPU_CHECKSUM;
    return at + len <= w->ends_len                       ? ends + at
           : at == checksum_at && len <= TG_GPU_CHECKSUM ? ends + w->ends_len
                                                         : NULL;
}

static tg_status fetch(const uint8_t **out, void *space, const tg_device *device, const tg_run *run,
                       const uint8_t *from, size_t len, tg_detail *why)
{
    const tg_gpu *gpu = gpu_of(device);
    const uint8_t *known = fetched(run, from, len);
    if (known != NULL) {
        *out = known;
        return TG_OK;
    }
    tg_gpu_enter(gpu);
    if (!tg_gpu_can_use(gpu, from)) {
        return refuse_frame(gpu, why);
    }
    if (tg_gpu_is_capturing(gpu)) {
        return tg_fail(TG_E_ARGUMENT, why, "decoding waits for the device, so that a CUDA graph cannot hold it");
    }
    tg_gpu_copy(gpu, space, from, len);
    *out = space;
    return tg_gpu_wait(gpu, why);
}

static void store(const tg_device *device, uint8_t *to, const void *from, size_t len)
{
    tg_gpu_enter(gpu_of(device));
    tg_gpu_copy(gpu_of(device), to, from, len);
}

const tg_executor tg_executor_cuda = {
    .name = "cuda",
    .open = tg_gpu_open,
    .close = tg_gpu_close,
    .reach = reach,
    .select = tg_gpu_select,
    .clip = clip,
    .draw = tg_gpu_draw,
    .lead = tg_gpu_lead,
    .follow = tg_gpu_follow,
    .length = tg_gpu_length,
    .write = tg_gpu_write,
    .seal = tg_gpu_seal,
    .verdict = tg_gpu_ask_refusal,
    .expect = tg_gpu_expect,
    .add_if_sound = tg_gpu_add_if_sound,
    .find = tg_gpu_find_chunks,
    .check = tg_gpu_check,
    .recall = tg_gpu_recall,
    .sum = tg_gpu_sum,
    .add = tg_gpu_add,
    .deliver = tg_gpu_deliver_sums,
    .sum_unchecked = tg_gpu_sum_unchecked,
    .sum_later = tg_gpu_sum_later,
    .late = tg_gpu_late,
    .copy = tg_gpu_copy_group,
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
    .note = tg_gpu_note,
    .lowrank = &tg_gpu_lowrank,
    .lgc = &tg_gpu_lgc_passes,
};
