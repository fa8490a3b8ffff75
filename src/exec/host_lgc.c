/* LGC's passes on the host: memory, and the table of passes. See host_lgc.h. */
#include "exec/host_lgc.h"

#include "base/bits.h"
#include "exec/host.h"

static uint64_t longest(const tg_lgc *l)
{
    uint64_t n = l->size.coded_n;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        n = l->tensors[t].n > n ? l->tensors[t].n : n;
    }
    return n;
}

/* Scratch bytes that the select part needs for any tensor, or for an innovation. */
static uint64_t scratch_len(const tg_lgc *l)
{
    const double share[TG_PARAM_CAP] = {[TG_SELECT_RATIO] = l->params[TG_LGC_SHARE]};
    uint64_t most = tg_select_topk.scratch_len(share, l->size.coded_n, 1, l->size.coded_n);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            uint64_t len = tg_select_topk.scratch_len(tensor->select_params, tensor->n, 1, tensor->n);
            most = len > most ? len : most;
        }
    }
    return most;
}

static tg_status acquire(tg_host_lgc *h, tg_detail *why)
{
    const tg_lgc *l = h->lgc;
    const tg_allocator *a = &l->allocator;
    const tg_lgc_size *size = &l->size;
    uint64_t sequences = l->world * size->coded_n, vector = size->n + size->code_n + size->coded_n;
    TG_TRY(tg_acquire(&h->input.u, a, size->n, sizeof *h->input.u, why));
    TG_TRY(tg_acquire(&h->input.g, a, size->n, sizeof *h->input.g, why));
    TG_TRY(tg_acquire(&h->state.saved, a, size->feedback_n + l->layout->tensor_n, sizeof *h->state.saved, why));
    TG_TRY(tg_acquire(&h->state.next, a, size->feedback_n, sizeof *h->state.next, why));
    TG_TRY(tg_acquire(&h->lead.mask, a, tg_words(size->sparse_n) + 1, sizeof *h->lead.mask, why));
    TG_TRY(tg_acquire(&h->lead.part, a, tg_words(longest(l)) + 1, sizeof *h->lead.part, why));
    TG_TRY(tg_acquire_room(&h->lead.scratch, a, scratch_len(l), why));
    TG_TRY(tg_acquire(&h->lead.keys, a, size->coded_n, sizeof *h->lead.keys, why));
    TG_TRY(tg_acquire(&h->lead.order, a, size->coded_n, sizeof *h->lead.order, why));
    TG_TRY(tg_acquire(&h->lead.order_scratch, a, size->coded_n + 1, sizeof *h->lead.order_scratch, why));
    TG_TRY(tg_acquire(&h->of.values, a, l->world * (size->coded_n + size->picked_n), sizeof *h->of.values, why));
    TG_TRY(tg_acquire(&h->of.sequences, a, sequences, sizeof *h->of.sequences, why));
    TG_TRY(tg_acquire(&h->of.innovations, a, l->is_server ? sequences : 0, sizeof *h->of.innovations, why));
    TG_TRY(tg_acquire(&h->of.rows, a, 2 * (uint64_t)l->world, sizeof *h->of.rows, why));
    TG_TRY(tg_acquire(&h->of.code, a, size->code_n, sizeof *h->of.code, why));
    TG_TRY(tg_acquire(&h->of.mean_code, a, size->code_n, sizeof *h->of.mean_code, why));
    TG_TRY(tg_acquire(&h->of.decoded, a, size->coded_n, sizeof *h->of.decoded, why));
    TG_TRY(tg_acquire(&h->sum.means, a, size->coded_n + size->picked_n, sizeof *h->sum.means, why));
    TG_TRY(tg_acquire(&h->sum.vector, a, vector, sizeof *h->sum.vector, why));
    return tg_acquire(&h->sum.average, a, vector, sizeof *h->sum.average, why);
}

static tg_status open(tg_lgc *l, tg_detail *why)
{
    tg_host_lgc *h = NULL;
    TG_TRY(tg_acquire(&h, &l->allocator, 1, sizeof *h, why));
    l->own = h;
    h->lgc = l;
    TG_TRY(tg_autoencoder_new(&h->autoencoder, &l->config, l->layout->seed, &l->allocator, why));
    TG_TRY(acquire(h, why));
    h->state.scales = h->state.saved + l->size.feedback_n;
    for (uint32_t p = 0; p < l->world; p++) {
        h->of.rows[p] = h->of.sequences + p * l->size.coded_n;
        h->of.rows[l->world + p] = l->is_server ? h->of.innovations + p * l->size.coded_n : NULL;
    }
    for (uint64_t i = 0; i < l->size.coded_n; i++) {
        h->lead.order[i] = (uint32_t)i; /* with order=index it never changes */
    }
    tg_optimizer_state optimizer = tg_autoencoder_optimizer_state(h->autoencoder);
    l->saved[0] = (tg_lgc_section){h->state.saved, l->size.feedback_n + l->layout->tensor_n};
    l->saved[1] = (tg_lgc_section){tg_autoencoder_weights(h->autoencoder), tg_autoencoder_weight_n(h->autoencoder)};
    l->saved[2] = (tg_lgc_section){optimizer.moments, optimizer.moment_n};
    return TG_OK;
}

static void close(tg_lgc *l)
{
    tg_host_lgc *h = l->own;
    if (h == NULL) {
        return;
    }
    void *const all[] = {
        h->sum.average,     h->sum.vector,     h->sum.means,    h->of.decoded, h->of.mean_code,       h->of.code,
        (void *)h->of.rows, h->of.innovations, h->of.sequences, h->of.values,  h->lead.order_scratch, h->lead.order,
        h->lead.keys,       h->lead.scratch,   h->lead.part,    h->lead.mask,  h->state.next,         h->state.saved,
        h->input.g,         h->input.u};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tg_release(&l->allocator, all[i]);
    }
    tg_autoencoder_free(h->autoencoder);
    tg_release(&l->allocator, h);
}

const tg_lgc_passes tg_host_lgc_passes = {
    .open = open,
    .close = close,
    .load = tg_host_lgc_load,
    .lead = tg_host_lgc_write_lead,
    .follow = tg_host_lgc_follow,
    .fill = tg_host_lgc_fill,
    .put = tg_host_lgc_put,
    .average = tg_host_lgc_average,
    .take = tg_host_lgc_take,
    .innovate = tg_host_lgc_innovate,
    .add_innovation = tg_host_lgc_add_innovation,
    .end_innovations = tg_host_lgc_end_innovations,
    .check = tg_host_lgc_check,
    .finish = tg_host_lgc_finish,
};
