/* The executor on paper; see paper.h. What is drawn from the seed is drawn by the host's executor, whose lengths depend on it. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */

#include "exec/paper.h"

#include "exec/host.h"
#include "exec/lowrank.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory that nobody touches ---------------------------------------------------------------------------------------- */

struct tg_reserved {
    void *at;
    size_t len;
    tg_reserved *next;
    tg_allocator allocator; /* of this */
};

static tg_status acquire(void *out, const tg_device *device, const tg_allocator *a, uint64_t len, tg_detail *why)
{
    tg_paper *paper = (tg_paper *)(uintptr_t)(const void *)device; /* the device is the first member */
    tg_reserved *r = NULL;
    TG_TRY(tg_acquire(&r, a, 1, sizeof *r, why));
    r->allocator = *a;
    r->len = len > 0 && len <= SIZE_MAX ? (size_t)len : 1;
    r->at = mmap(NULL, r->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r->at == MAP_FAILED || r->len < len) {
        tg_release(a, r);
        return tg_fail(TG_E_MEMORY, why, "there is not enough address space");
    }
    r->next = paper->reserved;
    paper->reserved = r;
    memcpy(out, &r->at, sizeof r->at);
    return TG_OK;
}

/* All of it is given back with the paper. */
static void release(const tg_device *device, const tg_allocator *a, void *block)
{
    (void)device;
    (void)a;
    (void)block;
}

/* ---- runs -------------------------------------------------------------------------------------------------------------- */

typedef struct paper_run {
    tg_run *host; /* draws, and knows lengths */
    const tg_plan *plan;
    tg_paper *paper;
    tg_allocator allocator;
} paper_run;

static paper_run *run_of(const tg_run *run)
{
    return (paper_run *)(uintptr_t)(const void *)run;
}

static void close(tg_run *run)
{
    paper_run *r = run_of(run);
    if (r != NULL) {
        tg_allocator a = r->allocator;
        tg_host_close(r->host);
        tg_release(&a, r);
    }
}

static tg_status open(tg_run **out, const tg_plan *plan, const tg_run_options *opt, const tg_allocator *a,
                      tg_detail *why)
{
    paper_run *r = NULL;
    TG_TRY(tg_acquire(&r, a, 1, sizeof *r, why));
    r->plan = plan;
    r->paper = (tg_paper *)(uintptr_t)(const void *)opt->device;
    r->allocator = *a;
    const tg_run_options host = {.threads = 1,
                                 .only_decodes = true,
                                 .is_stateless = true,
                                 .shares = opt->shares != NULL ? run_of(opt->shares)->host : NULL};
    tg_status status = tg_host_open(&r->host, plan, &host, a, why);
    if (status != TG_OK) {
        tg_release(a, r);
        return status;
    }
    r->paper->residual_len += opt->only_decodes ? 0 : 2 * plan->residual_n * sizeof(float); /* current and next */
    *out = (tg_run *)(void *)r;
    return TG_OK;
}

/* ---- lengths ------------------------------------------------------------------------------------------------------------ */

/* Bits an element of a unit; NAN if the longest length counts. */
static double bits_of(const tg_paper *paper, const tg_unit *unit)
{
    double sum = 0;
    if (paper->bits == NULL || unit->n == 0) {
        return (double)NAN;
    }
    for (size_t i = 0; i < unit->piece_n; i++) {
        sum += paper->bits[unit->pieces[i].tensor] * (double)unit->pieces[i].n;
    }
    return sum / (double)unit->n;
}

/* Bytes of the values of a chunk that has its share of the largest number of coordinates. */
static uint64_t most_values_len(const tg_unit_plan *u, const tg_chunk *chunk)
{
    double share = (double)chunk->n / (double)u->unit->n;
    uint64_t count = (uint64_t)(share * (double)u->stages.select->most(u->stages.select_params, u->unit->n) + 0.5);
    return tg_side_len(&u->format, count) + tg_symbols_len(&u->format, count);
}

/* The length of a chunk that depends on gradients, with its header. */
static uint64_t guess_chunk(const tg_paper *paper, const tg_plan *plan, const tg_chunk *chunk)
{
    const tg_unit_plan *u = &plan->units[chunk->unit];
    uint64_t header = u->header_len, bound = tg_chunk_bound(plan, chunk) + header, len = bound;
    double bits = bits_of(paper, u->unit);
    if (u->coordinates == TG_AT_LEADER) { /* values alone */
        len = header + most_values_len(u, chunk);
    } else if (!isnan(bits)) {
        uint64_t values = plan->holds == TG_HAS_INDICES ? most_values_len(u, chunk) : 0;
        len = (uint64_t)(bits * (double)chunk->n / 8 + 0.5);
        len = len > values + header ? len - values : header;
    }
    return len < bound ? len : bound;
}

static uint64_t body_len(const paper_run *r, const tg_plan *plan, uint32_t cell)
{
    const tg_grid *grid = plan->grid;
    uint64_t len = 0, limit = tg_body_limit(plan, cell);
    for (size_t i = grid->first[cell]; i < grid->first[cell + 1]; i++) {
        uint64_t chunk_len = 0;
        if (!tg_chunk_len(&chunk_len, plan, i, r->host->work->known_n)) {
            chunk_len = guess_chunk(r->paper, plan, &grid->chunks[i]);
            r->paper->is_exact = false;
        }
        len += chunk_len;
    }
    return len < limit ? len : limit;
}

/* ---- notes -------------------------------------------------------------------------------------------------------------- */

/* Whether a unit travels as it is. */
static bool is_dense(const tg_plan *plan, uint32_t unit)
{
    const tg_layout *l = plan->layout;
    return strcmp(l->recipes[l->tensor_recipe[l->units[unit].pieces[0].tensor]].text, "fp32") == 0;
}

/* Notes a pass over cells [from, to). */
static void note(const paper_run *r, tg_pass pass, const tg_plan *plan, uint32_t from, uint32_t to, uint64_t frames)
{
    tg_work work = {.pass = pass, .frames = frames};
    for (size_t i = plan->grid->first[from]; i < plan->grid->first[to]; i++) {
        const tg_chunk *chunk = &plan->grid->chunks[i];
        bool dense = is_dense(plan, chunk->unit);
        if (plan->units[chunk->unit].route != TG_ROUTE_NONE) {
            *(dense ? &work.dense_elements : &work.elements) += chunk->n;
            *(dense ? &work.dense_chunks : &work.chunks) += 1;
        }
    }
    r->paper->note(r->paper, &work);
}

/* ---- passes ------------------------------------------------------------------------------------------------------------- */

static tg_status reach(tg_run *run, const void *const *tensors, const void *frame, tg_detail *why)
{
    (void)run;
    (void)tensors;
    (void)frame;
    (void)why;
    return TG_OK;
}

static tg_status choose(tg_run *run, uint32_t group, uint64_t step, const tg_source *source, tg_detail *why)
{
    (void)source;
    (void)why;
    tg_host_draw(run_of(run)->host, group, step);
    return TG_OK;
}

static void clip(tg_run *run, uint32_t group, const tg_source *source)
{
    (void)run;
    (void)group;
    (void)source;
}

static void draw(tg_run *run, uint32_t group, uint64_t step)
{
    tg_host_draw(run_of(run)->host, group, step);
}

static void follow(tg_run *run, const tg_plan *plan, uint32_t group, const tg_body_view *body)
{
    (void)run;
    (void)plan;
    (void)group;
    (void)body;
}

static bool length(uint64_t *len, tg_run *run, uint32_t cell, uint64_t step)
{
    return tg_host_length(len, run_of(run)->host, cell, step);
}

static tg_status write(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                       const tg_source *source, tg_detail *why)
{
    const paper_run *r = run_of(run);
    (void)source;
    (void)why;
    for (uint32_t cell = from; cell < to; cell++) {
        bodies[cell - from].len = bodies[cell - from].payload_len = (size_t)body_len(r, plan, cell);
    }
    note(r, TG_PASS_ENCODE, plan, from, to, to - from);
    return TG_OK;
}

static void seal(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame,
                 const uint8_t *front, size_t front_len)
{
    (void)run;
    (void)plan;
    (void)cell;
    (void)body;
    (void)frame;
    (void)front;
    (void)front_len;
}

static tg_status verdict(tg_run *run, const tg_source *source, tg_detail *why)
{
    (void)run;
    (void)source;
    (void)why;
    return TG_OK;
}

static tg_status find(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t cell, size_t len, tg_detail *why)
{
    (void)view;
    (void)run;
    (void)plan;
    (void)cell;
    (void)len;
    (void)why;
    return TG_OK;
}

static tg_status check(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t cell,
                       size_t len, tg_detail *why)
{
    (void)view;
    (void)hashes;
    (void)len;
    (void)why;
    note(run_of(run), TG_PASS_CHECK, plan, cell, cell + 1, 1);
    return TG_OK;
}

static void sum(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink)
{
    (void)bodies;
    (void)sink;
    note(run_of(run), TG_PASS_SUM, run_of(run)->plan, cell, cell + 1, body_n);
}

static bool sum_unchecked(tg_run *run, uint32_t cell, const tg_body_view *bodies, size_t body_n, const tg_sink *sink)
{
    (void)bodies;
    (void)sink;
    note(run_of(run), TG_PASS_CHECK_SUM, run_of(run)->plan, cell, cell + 1, body_n);
    return true;
}

static void copy(tg_run *run, uint32_t group, void *const *to, void *const *from)
{
    const tg_plan *plan = run_of(run)->plan;
    (void)to;
    (void)from;
    note(run_of(run), TG_PASS_COPY, plan, group * plan->grid->slices, (group + 1) * plan->grid->slices, 1);
}

static void commit(tg_run *run)
{
    (void)run;
}

static uint64_t hash(tg_run *run, const void *data, size_t len)
{
    (void)run;
    (void)data;
    (void)len;
    return 0;
}

/* ---- PowerSGD -------------------------------------------------------------------------------------------------------------- */

/* Notes a product with every matrix of groups [from, to). */
static void note_product(const tg_lowrank *l, uint32_t from, uint32_t to)
{
    tg_paper *paper = run_of(l->run)->paper;
    tg_work work = {.pass = TG_PASS_MULTIPLY};
    for (size_t i = l->order_first[from]; i < l->order_first[to]; i++) {
        const tg_factorization *m = &l->matrices[l->order[i]];
        work.elements += m->rows * m->columns;
        work.chunks++;
    }
    paper->note(paper, &work);
}

static tg_status open_lowrank(tg_lowrank *l, tg_detail *why)
{
    (void)why;
    run_of(l->run)->paper->residual_len += l->saved_n * sizeof(float);
    return TG_OK;
}

static void close_lowrank(tg_lowrank *l)
{
    (void)l;
}

static tg_status multiply(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    (void)grads;
    (void)why;
    note_product(l, group, group + 1);
    return TG_OK;
}

static tg_status verdict_lowrank(tg_lowrank *l, uint32_t group, void *const *grads, tg_detail *why)
{
    (void)l;
    (void)group;
    (void)grads;
    (void)why;
    return TG_OK;
}

static void multiply_back(tg_lowrank *l, uint32_t group, void *const *grads, uint64_t step)
{
    (void)grads;
    (void)step;
    note_product(l, group, group + 1);
}

static void average(tg_lowrank *l, uint32_t group, void *const *out)
{
    (void)out;
    note_product(l, group, group + 1);
}

static void settle(tg_lowrank *l, void *const *grads)
{
    (void)grads;
    note_product(l, 0, l->grid->groups);
}

static const tg_lowrank_passes lowrank = {.open = open_lowrank,
                                          .close = close_lowrank,
                                          .multiply = multiply,
                                          .verdict = verdict_lowrank,
                                          .multiply_back = multiply_back,
                                          .average = average,
                                          .settle = settle};

/* ---- what outlines have no use for ---------------------------------------------------------------------------------------- */

static void save(float *out, const tg_run *run, uint64_t at, uint64_t n)
{
    (void)run;
    (void)at;
    memset(out, 0, (size_t)n * sizeof *out);
}

static void load(tg_run *run, uint64_t at, const float *values, uint64_t n)
{
    (void)run;
    (void)at;
    (void)values;
    (void)n;
}

static tg_status fetch(const uint8_t **out, void *space, const tg_device *device, const tg_run *run,
                       const uint8_t *from, size_t len, tg_detail *why)
{
    (void)device;
    (void)run;
    (void)from;
    (void)why;
    memset(space, 0, len);
    *out = space;
    return TG_OK;
}

static void store(const tg_device *device, uint8_t *to, const void *from, size_t len)
{
    (void)device;
    (void)to;
    (void)from;
    (void)len;
}

static void wait(const tg_run *run)
{
    (void)run;
}

static tg_unit_stats stats(const tg_run *run, size_t unit)
{
    (void)run;
    (void)unit;
    return (tg_unit_stats){0};
}

static void note_body(tg_run *run, uint32_t cell, const tg_body_view *body)
{
    (void)run;
    (void)cell;
    (void)body;
}

static const tg_executor executor = {
    .name = "paper",
    .open = open,
    .close = close,
    .reach = reach,
    .select = choose,
    .clip = clip,
    .draw = draw,
    .follow = follow,
    .length = length,
    .write = write,
    .seal = seal,
    .verdict = verdict,
    .find = find,
    .check = check,
    .sum = sum,
    .sum_unchecked = sum_unchecked,
    .copy = copy,
    .commit = commit,
    .hash = hash,
    .acquire = acquire,
    .release = release,
    .fetch = fetch,
    .store = store,
    .wait = wait,
    .save = save,
    .load = load,
    .is_paper = true,
    .lowrank = &lowrank,
    .lgc = &tg_paper_lgc_passes,
    .stats = stats,
    .note = note_body,
};

void tg_paper_begin(tg_paper *paper)
{
    *paper = (tg_paper){.device = {&executor}, .is_exact = true};
}

void tg_paper_end(tg_paper *paper)
{
    while (paper->reserved != NULL) {
        tg_reserved *r = paper->reserved;
        paper->reserved = r->next;
        tg_allocator a = r->allocator;
        (void)munmap(r->at, r->len);
        tg_release(&a, r);
    }
}
