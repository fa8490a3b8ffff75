/* The check pass: finds the chunks of a body and validates every byte that could be wrong, on the GPU. Where all lengths are known
 * without the body, the host finds chunks by itself. All of it is launched at once, so that there is one wait; kernels after one that
 * has found no chunks see empty ones. */
#include "exec/cuda/run.h"

#include <string.h>

static tg_status damaged(const tg_plan *plan, size_t chunk, tg_detail *why)
{
    const tg_layout *l = plan->layout;
    return tg_fail(TG_E_FRAME, why, "the frame is damaged: what it holds of tensor '%.100s' makes no sense",
                   l->tensors[l->units[plan->grid->chunks[chunk].unit].pieces[0].tensor].name);
}

static tg_status too_long(tg_detail *why)
{
    return tg_fail(TG_E_FRAME, why, "the frame is damaged: it is longer than what it holds");
}

/* ---- bodies of known length ----------------------------------------------------------------------------------------------- */

static bool is_known(uint64_t *len, const tg_run *run, const tg_plan *plan, uint32_t cell)
{
    return tg_body_len(len, plan, cell, run->work->known_n);
}

/* Views of chunks whose lengths are known. */
static void find_known(tg_view *views, const tg_run *run, const tg_plan *plan, uint32_t cell)
{
    const tg_grid *grid = plan->grid;
    uint64_t at = 0;
    for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
        const tg_unit_plan *u = &plan->units[grid->chunks[i].unit];
        uint32_t count = u->coordinates == TG_AT_EVERY ? grid->chunks[i].n : run->work->known_n[i];
        bool has_none = u->route == TG_ROUTE_NONE;
        uint64_t side_len = has_none ? 0 : tg_side_len(&u->format, count);
        uint64_t len = has_none ? 0 : side_len + tg_symbols_len(&u->format, count);
        views[i - grid->first[cell]] = (tg_view){.start = at,
                                                 .side = at,
                                                 .symbols = at + side_len,
                                                 .indices = at + len,
                                                 .len = (uint32_t)len,
                                                 .count = has_none ? 0 : count};
        at += len;
    }
}

/* What is wrong with a body of another length than the known one. */
static tg_status refuse_length(const tg_view *views, const tg_plan *plan, uint32_t cell, size_t len, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
        const tg_view *v = &views[i - grid->first[cell]];
        if (v->start + v->len > len) {
            return damaged(plan, i, why);
        }
    }
    return too_long(why);
}

/* ---- launches ---------------------------------------------------------------------------------------------------------------- */

void tg_gpu_upload_views(const tg_run *run, size_t first, size_t end, const tg_view *views)
{
    tg_gpu_copy(run->gpu, (tg_view *)run->work->views.device + first, views, (end - first) * sizeof *views);
}

void tg_gpu_read_body(const tg_gpu_pass *p, const tg_run *run, const uint8_t *body)
{
    const tg_gpu_uses *uses = &run->uses;
    if (uses->symbols) {
        tg_gpu_read_symbols(p, body, run->work->scratch);
    }
    if (uses->words) {
        tg_gpu_read_words(p, body, run->work->scratch);
    }
    if (uses->sparse) {
        tg_gpu_read_indices(p, body, &run->selection);
    }
}

/* Views of a body on the device, to be downloaded unless their length is known. Those of a body of known length are uploaded once. Each cell
 * has its own on the host, because a copy may still read those of another one. */
static void launch_find(const tg_gpu_pass *p, tg_run *run, const tg_plan *plan, uint32_t cell, const uint8_t *body,
                        size_t len)
{
    tg_gpu_workspace *w = run->work;
    size_t first = p->first, end = first + p->chunk_n;
    tg_view *views = w->host_views + first;
    uint64_t known_len = 0;
    bool has_known = plan->has_draws || run->leader != NULL || run->is_leader; /* coordinates, in some chunks */
    if (!is_known(&known_len, run, plan, cell)) {
        uint32_t *known_n = has_known ? w->known_n_device + first : NULL;
        if (has_known) {
            tg_gpu_copy(run->gpu, known_n, w->known_n + first, (end - first) * sizeof *known_n);
        }
        tg_gpu_find(p, tg_gpu_spans_at(w->spans, run, cell), body, len, plan->headers_len[cell], known_n);
        w->has_known_views = false;
        return;
    }
    if (!w->has_known_views || w->known_run != run || w->known_cell != cell || has_known) {
        find_known(views, run, plan, cell);
        tg_gpu_upload_views(run, first, end, views);
        w->has_known_views = true;
        w->known_run = run;
        w->known_cell = cell;
    }
}

void tg_gpu_ready_views(const tg_gpu_pass *p, tg_run *run, uint32_t cell, const tg_body_view *body)
{
    if (run->uses.fixed) {
        launch_find(p, run, run->plan, cell, body->bytes, 0);
    } else {
        tg_gpu_upload_views(run, p->first, (size_t)p->first + p->chunk_n, body->chunks);
        run->work->has_known_views = false;
    }
}

/* Checks a body of fixed length, with front->len bytes before it: hashes, verdict and, if there are some, these bytes and the
 * checksum go to the host. With `judges`, the device finds out whether the frame is sound. The host is told nothing else of one that is, and
 * w->sides are those of its chunks. With `counts`, nobody waits, and frames that are not sound are counted. */
static void launch_fixed(const tg_gpu_pass *p, tg_run *run, uint32_t cell, const uint8_t *body, size_t len,
                         const tg_gpu_front *front, bool judges, bool counts)
{
    tg_gpu_workspace *w = run->work;
    const tg_gpu_bodies one = {.at = {body}, .n = 1};
    tg_gpu_check_leaves(p, &one, w->leaves, run->leaf_cap);
    tg_gpu_ending e = tg_gpu_ending_of(run, cell, body - front->len, len, p->first);
    e.sides = judges && !counts ? e.sides : NULL;
    e.verdict_to = w->verdict.host;
    e.sound = judges ? w->sound.device : NULL;
    e.sound_to = counts ? NULL : w->sound.host;
    e.refused = counts ? run->gpu->refused : NULL;
    w->is_verdict_clear = true;
    tg_gpu_end_check(p, &e, front, front->len > 0 ? w->ends.host : NULL, tg_gpu_hashes_of(run, cell));
}

/* Waits for the verdict of a check. With `frame`, what stands around the body of `len` bytes goes to the host, too. */
static tg_status check_all(tg_gpu_verdict *verdict, tg_run *run, const tg_plan *plan, uint32_t cell,
                           const uint8_t *body, size_t len, size_t front_len, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    tg_gpu_workspace *w = run->work;
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, grid->first[cell], grid->first[cell + 1]);
    tg_gpu_clear_verdict(run);
    launch_find(&p, run, plan, cell, body, len);
    if (run->uses.fixed) {
        const tg_gpu_front front = {.len = (uint32_t)front_len};
        launch_fixed(&p, run, cell, body, len, &front, false, false);
        return tg_gpu_await_verdict(verdict, run, why);
    }
    uint64_t known_len = 0;
    bool known = is_known(&known_len, run, plan, cell);
    if (known) { /* otherwise they were found */
        tg_gpu_spans_of(&p, tg_gpu_spans_at(w->spans, run, cell), body, plan->headers_len[cell]);
    }
    tg_gpu_hash_chunks(run, cell, w->spans);
    tg_gpu_read_body(&p, run, body);
    const tg_gpu_report report = {.views = known ? NULL : (tg_view *)w->views.host + p.first,
                                  .hashes = (uint64_t *)w->hashes.device + grid->first[cell] + 2 * (size_t)cell + 1,
                                  .hashes_to = tg_gpu_hashes_of(run, cell) + 1,
                                  .frame = body - front_len,
                                  .ends = front_len > 0 ? w->ends.host : NULL,
                                  .body_len = len,
                                  .front_len = (uint32_t)front_len,
                                  .verdict = w->verdict.host};
    tg_gpu_tell(&p, &report);
    w->is_verdict_clear = true;
    return tg_gpu_await_verdict(verdict, run, why);
}

/* Whether a body can be read at all: one of known length has that length, any other has its headers. */
static bool has_its_length(const tg_run *run, const tg_plan *plan, uint32_t cell, size_t len)
{
    uint64_t known_len = 0;
    return is_known(&known_len, run, plan, cell) ? known_len == len : len >= plan->headers_len[cell];
}

/* ---- the pass ---------------------------------------------------------------------------------------------------------------- */

void tg_gpu_expect(tg_run *run, const tg_plan *plan, uint32_t cell, const uint8_t *frame, size_t len, size_t front_len)
{
    run = tg_gpu_run_of(run, plan);
    tg_gpu_workspace *w = run->work;
    tg_gpu_enter(run->gpu);
    bool is_judged = w->is_judged && frame != NULL && frame == w->expected && len == w->expected_len;
    w->is_judged = false;
    if (is_judged) {
        return;
    }
    w->expected = w->held = NULL;
    if (frame == NULL || tg_gpu_is_capturing(run->gpu) || plan->has_draws || len < front_len + TG_GPU_CHECKSUM ||
        !has_its_length(run, plan, cell, len - front_len - TG_GPU_CHECKSUM) || !tg_gpu_can_use(run->gpu, frame)) {
        return; /* coordinates depend on the step, which is in the frame; anything else is found out step by step */
    }
    tg_gpu_verdict verdict;
    tg_detail why;
    if (check_all(&verdict, run, plan, cell, frame + front_len, len - front_len - TG_GPU_CHECKSUM, front_len, &why) ==
        TG_OK) {
        w->expected = frame;
        w->ends_len = front_len;
        w->expected_len = len;
        w->expected_body = frame + front_len;
        w->expected_cell = cell;
        w->expected_verdict = verdict;
    }
}

/* ---- adding at once ---------------------------------------------------------------------------------------------------------- */

static bool can_read(const tg_run *run, const uint8_t *frame)
{
    tg_gpu_workspace *w = run->work;
    if (frame != w->usable_source && !tg_gpu_can_use(run->gpu, frame)) {
        return false;
    }
    w->usable_source = frame;
    return true;
}

/* Whether a frame whose lengths are not known can be checked and added by kernels that nobody waits for in between. */
static bool can_add_lists(const tg_run *run, const tg_plan *plan)
{
    return run->uses.lists && run->leader == NULL && !run->is_leader && plan == run->plan &&
           plan->grid->first[1] <= TG_GPU_LISTS_MAX && tg_gpu_header_leaves(run, 0) <= run->leaf_cap;
}

/* The same of dense chunks with coded symbols or words. */
static bool can_add_coded(const tg_run *run, const tg_plan *plan)
{
    const tg_gpu_uses *uses = &run->uses;
    uint64_t known_len = 0;
    return (uses->symbols || uses->words) && !uses->fixed && !uses->sparse && run->leader == NULL && !run->is_leader &&
           plan == run->plan && !plan->has_draws && !is_known(&known_len, run, plan, 0) &&
           plan->grid->first[1] <= TG_GPU_LISTS_MAX && tg_gpu_header_leaves(run, 0) <= run->leaf_cap;
}

/* What a check on the device is about, and where it tells the host. */
static tg_gpu_ending check_of(tg_gpu_telling *told, const tg_gpu_pass *p, const tg_run *run, const tg_plan *plan,
                              const uint8_t *body, size_t len, const tg_gpu_front *front)
{
    const tg_gpu_workspace *w = run->work;
    tg_gpu_ending e = tg_gpu_ending_of(run, 0, body - front->len, len, p->first);
    e.verdict_to = w->verdict.host;
    e.sound = w->sound.device;
    e.sound_to = w->sound.host;
    *told = (tg_gpu_telling){.views = (tg_view *)w->views.host + p->first,
                             .words = tg_gpu_hashes_of(run, 0),
                             .ends = w->ends.host,
                             .leaves_done = w->done + TG_GPU_SEALS,
                             .headers_len = plan->headers_len[0]};
    return e;
}

/* Launches all of that: chunks are decoded, hashed in the meantime, and added. */
static void add_coded(const tg_gpu_pass *p, tg_run *run, const tg_plan *plan, const uint8_t *body, size_t len,
                      const tg_gpu_front *front, float weight)
{
    tg_gpu_telling told;
    tg_gpu_ending e = check_of(&told, p, run, plan, body, len, front);
    tg_gpu_pass adds = *p;
    adds.splits = 1; /* words are joined as they are added */
    launch_find(p, run, plan, 0, body, len);
    tg_gpu_read_body(&adds, run, body);
    tg_gpu_check_coded(p, &e, front, &told);
    run->work->is_verdict_clear = true;
    adds.sound = run->work->sound.device;
    if (run->uses.plain) {
        tg_gpu_pass plain = tg_gpu_plain_pass(&adds, run);
        tg_gpu_add_dense(&plain, body, weight, 0);
    }
    if (run->uses.dense_symbols) {
        tg_gpu_pass symbols = tg_gpu_symbols_pass(&adds);
        tg_gpu_add_dense(&symbols, body, weight, 0);
    }
}

/* Launches all of that, of lists. */
static void add_lists(const tg_gpu_pass *p, tg_run *run, const tg_plan *plan, const uint8_t *body, size_t len,
                      const tg_gpu_front *front, float weight)
{
    tg_gpu_workspace *w = run->work;
    tg_gpu_telling told;
    tg_gpu_ending e = check_of(&told, p, run, plan, body, len, front);
    w->is_verdict_clear = true;
    w->has_known_views = false;
    tg_gpu_check_lists(p, &e, front, &told);
    tg_gpu_pass adds = *p;
    adds.sound = w->sound.device;
    tg_gpu_add_lists(&adds, body, weight);
    if (run->uses.plain) {
        tg_gpu_pass plain = tg_gpu_plain_pass(&adds, run);
        tg_gpu_add_dense(&plain, body, weight, 0);
    }
}

static tg_status refuse_new_places(tg_detail *why)
{
    return tg_fail(TG_E_ARGUMENT, why,
                   "decode once from this frame to these sums before it is captured in a CUDA graph");
}

/* Whether all that kernels need to know of a frame's places is on the device. */
static bool is_ready(const tg_run *run, const uint8_t *description, size_t len)
{
    const tg_gpu_workspace *w = run->work;
    return w->has_known_views && w->known_run == run && w->known_cell == 0 &&
           memcmp(w->description.host, description, len) == 0;
}

/* Statistics of a sound body. */
static void note_added(tg_run *run, const uint8_t *body)
{
    tg_gpu_workspace *w = run->work;
    if (run->uses.fixed) { /* launch_find has made its views, launch_fixed its sides */
        tg_gpu_note_views(run, 0, w->host_views);
    } else {
        tg_gpu_note(run, 0, &(tg_body_view){.bytes = body, .chunks = w->views.host});
    }
}

tg_status tg_gpu_add_if_sound(bool *is_done, tg_run *run, const tg_plan *plan, const uint8_t *frame, size_t len,
                              const uint8_t *front, size_t front_len, const tg_sink *sink, tg_detail *why)
{
    tg_gpu_workspace *w = run->work;
    const tg_grid *grid = plan->grid;
    *is_done = false;
    tg_gpu_enter(run->gpu);
    w->expected = w->held = NULL;
    w->is_judged = false;
    bool captures = tg_gpu_is_capturing(run->gpu), is_list = can_add_lists(run, plan) && !captures;
    bool is_coded = grid->cells == 1 && can_add_coded(run, plan) && !captures;
    if ((!run->uses.fixed && !is_list && !is_coded) || grid->cells != 1 || len < front_len + TG_GPU_CHECKSUM ||
        !has_its_length(run, plan, 0, len - front_len - TG_GPU_CHECKSUM) || !can_read(run, frame)) {
        return TG_OK; /* it is found out step by step */
    }
    const uint8_t *body = frame + front_len;
    size_t body_len = len - front_len - TG_GPU_CHECKSUM, description_len = front_len - TG_GPU_FRONT;
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, grid->first[0], grid->first[1]);
    bool has_sums = tg_gpu_give_sums(&p, run, 0, sink->added, !captures);
    if (captures && !(has_sums && is_ready(run, front + TG_GPU_FRONT, description_len))) {
        return refuse_new_places(why);
    }
    tg_gpu_front expected = {.description = w->description.device, .len = (uint32_t)front_len};
    memcpy(expected.header, front, TG_GPU_FRONT);
    *(volatile uint32_t *)w->sound.host = 2;
    tg_gpu_clear_verdict(run);
    if (!captures) {
        tg_gpu_upload(run, &w->description, front + TG_GPU_FRONT, 0, description_len, 1);
        tg_gpu_close_stats(w, run);
    }
    if (is_list) {
        add_lists(&p, run, plan, body, body_len, &expected, sink->weight);
    } else if (is_coded) {
        add_coded(&p, run, plan, body, body_len, &expected, sink->weight);
    } else {
        if (!captures) {
            launch_find(&p, run, plan, 0, body, body_len);
        }
        launch_fixed(&p, run, 0, body, body_len, &expected, true, captures);
        p.sound = w->sound.device;
        tg_gpu_add_dense(&p, body, sink->weight, 0);
    }
    *is_done = captures;
    if (captures) {
        return TG_OK;
    }
    TG_TRY(tg_gpu_await_word(&w->expected_verdict, run, why));
    *is_done = *(const volatile uint32_t *)w->sound.host == 1;
    if (*is_done) {
        note_added(run, body);
        return TG_OK;
    }
    w->expected = frame;
    w->expected_body = body;
    w->ends_len = front_len;
    w->expected_len = len;
    w->expected_cell = 0;
    w->is_judged = true;
    return TG_OK;
}

/* ---- what was found ---------------------------------------------------------------------------------------------------------- */

/* Takes what a launch has found. */
static tg_status conclude(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t cell,
                          const tg_gpu_verdict *verdict, tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    tg_gpu_workspace *w = run->work;
    size_t first = grid->first[cell], end = grid->first[cell + 1];
    uint64_t known_len = 0;
    if (verdict->bad_chunk != 0) {
        size_t bad = UINT32_MAX - verdict->bad_chunk;
        return bad == end ? too_long(why) : damaged(plan, bad, why);
    }
    if (is_known(&known_len, run, plan, cell)) {
        find_known(view->chunks, run, plan, cell);
    } else {
        memcpy(view->chunks, (const tg_view *)w->views.host + first, (end - first) * sizeof *view->chunks);
    }
    if (hashes != NULL) {
        tg_gpu_take_hashes(hashes, run, cell);
        w->held = view->bytes;
        w->held_cell = cell;
    }
    return TG_OK;
}

tg_status tg_gpu_find_chunks(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len,
                             tg_detail *why)
{
    const tg_grid *grid = plan->grid;
    uint64_t known_len = 0;
    run = tg_gpu_run_of(run, plan);
    run->work->held = NULL;
    if (is_known(&known_len, run, plan, cell)) {
        find_known(view->chunks, run, plan, cell);
        return known_len == len ? TG_OK : refuse_length(view->chunks, plan, cell, len, why);
    }
    if (len < plan->headers_len[cell]) {
        return tg_fail(TG_E_FRAME, why, TG_SHORT_OF_HEADERS);
    }
    tg_gpu_pass p = tg_gpu_pass_of(run, plan, grid->first[cell], grid->first[cell + 1]);
    tg_gpu_verdict verdict;
    tg_gpu_clear_verdict(run);
    launch_find(&p, run, plan, cell, view->bytes, len);
    tg_gpu_download(run, &run->work->views, p.first, p.chunk_n, sizeof(tg_view));
    TG_TRY(tg_gpu_read_verdict(&verdict, run, why));
    return conclude(view, NULL, run, plan, cell, &verdict, why);
}

tg_status tg_gpu_check(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t cell,
                       size_t len, tg_detail *why)
{
    run = tg_gpu_run_of(run, plan);
    tg_gpu_workspace *w = run->work;
    if (!has_its_length(run, plan, cell, len)) {
        return tg_gpu_find_chunks(view, run, plan, cell, len, why);
    }
    tg_gpu_verdict verdict = w->expected_verdict;
    if (w->expected == NULL || w->expected_body != view->bytes || w->expected_cell != cell) {
        TG_TRY(check_all(&verdict, run, plan, cell, view->bytes, len, 0, why));
    }
    return conclude(view, hashes, run, plan, cell, &verdict, why);
}

void tg_gpu_recall(tg_body_view *view, tg_run *run, uint32_t cell)
{
    const tg_grid *grid = run->plan->grid;
    const tg_view *written = run->work->written.host;
    uint64_t known_len = 0;
    if (is_known(&known_len, run, run->plan, cell)) {
        find_known(view->chunks, run, run->plan, cell);
        return;
    }
    memcpy(view->chunks, written + grid->first[cell], (grid->first[cell + 1] - grid->first[cell]) * sizeof *written);
}
