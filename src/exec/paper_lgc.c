/* LGC on paper: a step of the last phase, in which codes are sent. The phases before it are left out. See paper.h. */
#include "exec/lgc.h"
#include "exec/ordering.h"
#include "exec/paper.h"

static tg_paper *paper_of(const tg_lgc *l)
{
    return (tg_paper *)(uintptr_t)(const void *)l->device; /* the device is the first member */
}

static void note(const tg_lgc *l, tg_work work)
{
    tg_paper *paper = paper_of(l);
    paper->note(paper, &work);
}

/* A pass over all tensors. */
static void note_tensors(const tg_lgc *l, tg_pass pass)
{
    note(l, (tg_work){.pass = pass, .elements = l->size.n, .chunks = l->layout->tensor_n});
}

/* A pass over tensors that are sent at a leader's indices. */
static void note_sparse(const tg_lgc *l, tg_pass pass)
{
    tg_work work = {.pass = pass, .elements = l->size.sparse_n};
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        work.chunks += l->tensors[t].role != TG_LGC_WHOLE;
    }
    note(l, work);
}

/* A pass over elements of the vector, which is sent as it is. */
static void note_vector(const tg_lgc *l, tg_pass pass, uint64_t frames, uint64_t n)
{
    note(l, (tg_work){.pass = pass, .frames = frames, .dense_elements = n});
}

static tg_status open(tg_lgc *l, tg_detail *why)
{
    (void)why;
    l->progress.phase = TG_LGC_PHASE_CODE;
    paper_of(l)->residual_len += 2 * l->size.feedback_n * sizeof(float); /* current and next */
    return TG_OK;
}

static void close(tg_lgc *l)
{
    (void)l;
}

static tg_status load(tg_lgc *l, void *const *grads, tg_detail *why)
{
    (void)grads;
    (void)why;
    note_tensors(l, TG_PASS_ENCODE);
    return TG_OK;
}

/* Bytes of the leader's indices. */
static uint64_t guess_mask(const tg_lgc *l)
{
    const double *bits = paper_of(l)->bits;
    uint64_t bound = tg_lgc_mask_bound(l->size.sparse_n);
    double len = bits == NULL ? (double)bound : 0;
    for (size_t t = 0; t < l->layout->tensor_n && bits != NULL; t++) {
        len += l->tensors[t].role == TG_LGC_WHOLE ? 0 : bits[t] * (double)l->tensors[t].n / 8;
    }
    return len < (double)bound ? (uint64_t)(len + 0.5) : bound;
}

static void lead(uint8_t *body, uint64_t *lead_len, uint64_t *code_len, tg_lgc *l)
{
    bool has_order = l->params[TG_LGC_ORDER] == TG_LGC_BY_VALUE;
    (void)body;
    note_sparse(l, TG_PASS_LEAD);
    paper_of(l)->is_exact = false;
    *lead_len = guess_mask(l) + (has_order ? tg_ordering_len((size_t)l->size.coded_n) : 0);
    *code_len = l->is_server ? l->size.code_n * tg_dtype_len(tg_lgc_code_type(l)) : 0;
}

static bool follow(tg_lgc *l, const uint8_t *body, uint64_t len)
{
    (void)body;
    (void)len;
    note_sparse(l, TG_PASS_FOLLOW);
    return true;
}

static void fill(tg_lgc *l) /* its work is part of what a rank does that follows */
{
    (void)l;
}

static void put(uint8_t *out, const tg_lgc *l, bool of_average, uint64_t from, uint64_t to)
{
    (void)out;
    (void)of_average;
    note_vector(l, TG_PASS_ENCODE, 1, to - from);
}

static void average(tg_lgc *l, const uint8_t *const *bodies, uint64_t from, uint64_t to)
{
    (void)bodies;
    note_vector(l, TG_PASS_CHECK_SUM, l->world, to - from);
}

static void take(tg_lgc *l, const uint8_t *bytes, uint64_t from, uint64_t to)
{
    (void)bytes;
    note_vector(l, TG_PASS_COPY, 1, to - from);
}

static uint64_t innovate(uint8_t *out, tg_lgc *l)
{
    (void)out;
    paper_of(l)->is_exact = false;
    return tg_lgc_mask_bound(l->size.coded_n) + 4 * l->size.innovation_n;
}

static void note_decode(const tg_lgc *l)
{
    note(l, (tg_work){.pass = TG_PASS_DECODE, .elements = l->size.coded_n, .chunks = 1});
}

static bool add_innovation(tg_lgc *l, uint32_t p, const uint8_t *bytes, uint64_t len)
{
    (void)p;
    (void)bytes;
    (void)len;
    note_decode(l);
    return true;
}

static void end_innovations(tg_lgc *l)
{
    (void)l;
}

static tg_status check(tg_lgc *l, tg_detail *why)
{
    (void)why;
    if (!l->is_server) {
        note_decode(l);
    }
    return TG_OK;
}

static void finish(tg_lgc *l, void *const *grads, uint64_t step)
{
    (void)grads;
    (void)step;
    note_tensors(l, TG_PASS_COPY);
}

const tg_lgc_passes tg_paper_lgc_passes = {.open = open,
                                           .close = close,
                                           .load = load,
                                           .lead = lead,
                                           .follow = follow,
                                           .fill = fill,
                                           .put = put,
                                           .average = average,
                                           .take = take,
                                           .innovate = innovate,
                                           .add_innovation = add_innovation,
                                           .end_innovations = end_innovations,
                                           .check = check,
                                           .finish = finish};
