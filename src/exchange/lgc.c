/* LGC, learned gradient compression (arXiv 2103.08870): an autoencoder, trained during the run, learns what the workers'
 * gradients have in common. Three phases:
 *
 *     1  dense    all is sent and averaged
 *     2  learn    a leader, another rank each step, tells the coordinates of its largest magnitudes; all ranks show all
 *                 others their values there, which are averaged; the autoencoder learns from them, alike on all ranks
 *     3  code     the leader tells its coordinates; values there travel as codes
 *
 *     ring                                                server
 *     L   ->  all     coordinates, and their order        L   ->  all     coordinates, order, and the leader's code
 *     all ->  owners  whole tensors, last layer, code     all ->  rank 0  whole tensors, last layer, innovation
 *     owners -> all   their means; the mean code is       rank 0 -> all   averages of all that, values of each worker
 *                     decoded to the mean values                          being decoded from its innovation and the code
 *
 * A rank remembers what it has not sent: everything but what is at the leader's coordinates. The first layer travels whole,
 * and so does what is exempt from the recipe; the last layer's values are not encoded. */
#include "exchange/lgc.h"

#include "base/bits.h"
#include "base/half.h"

#include <string.h>

/* ---- making one ------------------------------------------------------------------------------------------------------ */

static bool is_learned(const tg_layout *layout, size_t t)
{
    return tg_recipe_quantize(layout->units[layout->tensor_unit[t]].recipe)->needs_leader;
}

static void count(tg_lgc *l, tg_lgc_tensor *tensor)
{
    l->n += tensor->n;
    if (tensor->role == TG_LGC_WHOLE) {
        l->whole_n += tensor->n;
        return;
    }
    tensor->sparse_at = l->sparse_n;
    l->sparse_n += tensor->n;
    *(tensor->role == TG_LGC_CODED ? &l->coded_n : &l->picked_n) += tensor->k;
}

static tg_lgc_role end_role(const tg_recipe *recipe, bool is_first)
{
    return is_first && recipe->value[TG_STAGE_quantize][TG_LGC_FIRST] == TG_LGC_FIRST_DENSE ? TG_LGC_WHOLE
                                                                                            : TG_LGC_PICKED;
}

/* Which tensor travels how. Those that the recipe is for: the first one whole or picked, the last one picked, the others
 * coded. */
static tg_status assign(tg_lgc *l, tg_detail *why)
{
    const tg_layout *layout = l->layout;
    size_t first = 0, last = 0, learned = 0;
    for (size_t t = 0; t < layout->tensor_n; t++) {
        if (is_learned(layout, t)) {
            first = learned == 0 ? t : first;
            last = t;
            learned++;
        }
    }
    if (learned < 3) {
        return tg_fail(
            TG_E_RECIPE, why,
            "'autoencoder' is for models of at least three tensors beside norms and biases, and this one has %zu",
            learned);
    }
    for (size_t t = 0; t < layout->tensor_n; t++) {
        const tg_recipe *recipe = layout->units[layout->tensor_unit[t]].recipe;
        tg_lgc_tensor *tensor = &l->tensors[t];
        tensor->n = layout->tensor_elements[t];
        tensor->at = l->n;
        tensor->role = !is_learned(layout, t)    ? TG_LGC_WHOLE
                       : t == first || t == last ? end_role(recipe, t == first)
                                                 : TG_LGC_CODED;
        tensor->feedback = tg_recipe_feedback(recipe);
        tensor->feedback_params = recipe->value[TG_STAGE_feedback];
        tensor->select_params = recipe->value[TG_STAGE_select];
        tensor->k = tensor->role == TG_LGC_WHOLE ? 0 : tg_select_topk.most(tensor->select_params, tensor->n);
        tensor->memory_at = l->memory_n;
        l->memory_n += tensor->n * tensor->feedback->planes;
        l->params = is_learned(layout, t) ? recipe->value[TG_STAGE_quantize] : l->params;
        count(l, tensor);
    }
    if (l->coded_n == 0 || l->coded_n >= UINT32_MAX) {
        return tg_fail(TG_E_RECIPE, why, "'autoencoder' has %s values to encode", l->coded_n == 0 ? "no" : "too many");
    }
    return TG_OK;
}

static tg_status make_autoencoder(tg_lgc *l, tg_detail *why)
{
    tg_autoencoder_config config = tg_autoencoder_standard((size_t)l->coded_n);
    for (int i = 0; i < TG_AUTOENCODER_HALVINGS; i++) {
        config.encoder_channels[i] = (uint32_t)l->params[TG_LGC_ENCODER + i];
        config.decoder_channels[i] = (uint32_t)l->params[TG_LGC_DECODER + i];
    }
    config.code_channels = (uint32_t)l->params[TG_LGC_CHANNELS];
    config.decoder_n = l->is_server ? l->world : 1;
    config.has_innovation = l->is_server;
    config.rate = l->params[TG_LGC_RATE];
    config.value_weight = l->params[TG_LGC_LAMBDA1];
    config.code_weight = l->params[TG_LGC_LAMBDA2];
    TG_TRY(tg_autoencoder_new(&l->autoencoder, &config, l->layout->seed, &l->allocator, why));
    l->code_n = tg_autoencoder_code_n(l->autoencoder);
    l->innovation_n = l->is_server ? tg_ratio_entries(l->params[TG_LGC_SHARE], l->coded_n) : 0;
    return TG_OK;
}

static uint64_t longest(const tg_lgc *l)
{
    uint64_t n = l->coded_n;
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        n = l->tensors[t].n > n ? l->tensors[t].n : n;
    }
    return n;
}

/* Bytes that the select part may need, for any tensor or for an innovation. */
static uint64_t scratch_len(const tg_lgc *l)
{
    const double share[TG_PARAM_CAP] = {[TG_SELECT_RATIO] = l->params[TG_LGC_SHARE]};
    uint64_t most = tg_select_topk.scratch_len(share, l->coded_n, 1, l->coded_n);
    for (size_t t = 0; t < l->layout->tensor_n; t++) {
        const tg_lgc_tensor *tensor = &l->tensors[t];
        if (tensor->role != TG_LGC_WHOLE) {
            uint64_t len = tg_select_topk.scratch_len(tensor->select_params, tensor->n, 1, tensor->n);
            most = len > most ? len : most;
        }
    }
    return most;
}

enum { COUNTERS = 6 };

static uint64_t saved_n(tg_lgc *l)
{
    return l->memory_n + l->layout->tensor_n + COUNTERS + tg_autoencoder_weight_n(l->autoencoder) +
           tg_autoencoder_optimizer_state(l->autoencoder).moment_n;
}

static tg_status acquire(tg_lgc *l, tg_detail *why)
{
    const tg_allocator *a = &l->allocator;
    uint64_t sequences = l->world * l->coded_n, vector = l->n + l->code_n + l->coded_n;
    TG_TRY(tg_acquire(&l->u, a, l->n, sizeof *l->u, why));
    TG_TRY(tg_acquire(&l->g, a, l->n, sizeof *l->g, why));
    TG_TRY(tg_acquire(&l->saved, a, saved_n(l), sizeof *l->saved, why));
    TG_TRY(tg_acquire(&l->next, a, l->memory_n, sizeof *l->next, why));
    TG_TRY(tg_acquire(&l->mask, a, tg_words(l->sparse_n) + 1, sizeof *l->mask, why));
    TG_TRY(tg_acquire(&l->part, a, tg_words(longest(l)) + 1, sizeof *l->part, why));
    TG_TRY(tg_acquire_room(&l->scratch, a, scratch_len(l), why));
    TG_TRY(tg_acquire(&l->keys, a, l->coded_n, sizeof *l->keys, why));
    TG_TRY(tg_acquire(&l->order, a, l->coded_n, sizeof *l->order, why));
    TG_TRY(tg_acquire(&l->room, a, l->coded_n + 1, sizeof *l->room, why));
    TG_TRY(tg_acquire(&l->values, a, l->world * (l->coded_n + l->picked_n), sizeof *l->values, why));
    TG_TRY(tg_acquire(&l->sequences, a, sequences, sizeof *l->sequences, why));
    TG_TRY(tg_acquire(&l->innovations, a, l->is_server ? sequences : 0, sizeof *l->innovations, why));
    TG_TRY(tg_acquire(&l->rows, a, 2 * (uint64_t)l->world, sizeof *l->rows, why));
    TG_TRY(tg_acquire(&l->code, a, l->code_n, sizeof *l->code, why));
    TG_TRY(tg_acquire(&l->mean_code, a, l->code_n, sizeof *l->mean_code, why));
    TG_TRY(tg_acquire(&l->decoded, a, l->coded_n, sizeof *l->decoded, why));
    TG_TRY(tg_acquire(&l->means, a, l->coded_n + l->picked_n, sizeof *l->means, why));
    TG_TRY(tg_acquire(&l->vector, a, vector, sizeof *l->vector, why));
    return tg_acquire(&l->average, a, vector, sizeof *l->average, why);
}

/* Room for messages, where an exchange has it. */
static tg_status acquire_messages(tg_exchange *x, const tg_lgc *l, tg_detail *why)
{
    uint64_t most = tg_lgc_message_max(l), room = 0;
    if (!tg_multiply(&room, most, x->world)) {
        return tg_fail(TG_E_MEMORY, why, "the messages of %u ranks do not fit into memory", x->world);
    }
    x->in_cap = (size_t)most;
    TG_TRY(tg_acquire_room(&x->out, &x->allocator, room, why));
    TG_TRY(tg_acquire(&x->in, &x->allocator, x->world, sizeof *x->in, why));
    TG_TRY(tg_acquire_room(&x->in_room, &x->allocator, room, why));
    for (uint32_t p = 0; p < x->world; p++) {
        x->in[p].data = x->in_room + p * x->in_cap;
    }
    return TG_OK;
}

tg_status tg_lgc_new(tg_lgc **out, tg_exchange *x, const tg_options *opt, tg_detail *why)
{
    tg_lgc *l = NULL;
    TG_TRY(tg_acquire(&l, &x->allocator, 1, sizeof *l, why));
    *out = l; /* freed with the exchange, whatever happens here */
    l->allocator = x->allocator;
    l->layout = x->codec->layout;
    l->nonfinite = opt->nonfinite;
    l->rank = x->rank;
    l->world = x->world;
    TG_TRY(tg_acquire(&l->tensors, &l->allocator, l->layout->tensor_n, sizeof *l->tensors, why));
    TG_TRY(assign(l, why));
    l->is_server = l->params[TG_LGC_FORM] == TG_LGC_SERVER;
    TG_TRY(make_autoencoder(l, why));
    TG_TRY(acquire(l, why));
    l->scales = l->saved + l->memory_n;
    for (uint32_t p = 0; p < l->world; p++) {
        l->rows[p] = l->sequences + p * l->coded_n;
        l->rows[l->world + p] = l->is_server ? l->innovations + p * l->coded_n : NULL;
    }
    for (uint64_t i = 0; i < l->coded_n; i++) {
        l->order[i] = (uint32_t)i; /* and it stays so with order=index */
    }
    uint32_t dense = (uint32_t)l->params[TG_LGC_DENSE], learn = (uint32_t)l->params[TG_LGC_LEARN];
    l->progress = (tg_lgc_progress){
        .phase = dense > 0 ? TG_LGC_PHASE_DENSE : TG_LGC_PHASE_LEARN, .left = dense > 0 ? dense : learn, .error = -1};
    return acquire_messages(x, l, why);
}

void tg_lgc_free(tg_lgc *l)
{
    if (l == NULL) {
        return;
    }
    tg_allocator a = l->allocator;
    void *const all[] = {l->average,     l->vector,    l->means,  l->decoded, l->mean_code, l->code, (void *)l->rows,
                         l->innovations, l->sequences, l->values, l->room,    l->order,     l->keys, l->scratch,
                         l->part,        l->mask,      l->next,   l->saved,   l->g,         l->u,    l->tensors};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tg_release(&a, all[i]);
    }
    tg_autoencoder_free(l->autoencoder);
    tg_release(&a, l);
}

/* ---- facts ----------------------------------------------------------------------------------------------------------- */

static void residual(const tg_exchange *x, float *out, size_t t)
{
    const tg_lgc *l = x->lgc;
    const tg_lgc_tensor *tensor = &l->tensors[t];
    if (tensor->feedback->planes > 0) {
        memcpy(out, l->saved + tensor->memory_at, tensor->n * sizeof *out);
    } else {
        memset(out, 0, tensor->n * sizeof *out);
    }
}

/* What a tensor took of what this rank has said in the last step; of what tensors have in common, shares by entries. */
static tg_status traffic(tg_traffic *out, const tg_exchange *x, size_t t, tg_detail *why)
{
    const tg_lgc *l = x->lgc;
    (void)why;
    const tg_lgc_tensor *tensor = &l->tensors[t];
    bool all = l->last_phase <= TG_LGC_PHASE_DENSE || tensor->role == TG_LGC_WHOLE;
    *out = (tg_traffic){.entries = all ? tensor->n : tensor->k};
    double entries = (double)out->entries, lead = (double)l->lead_len / (double)(l->coded_n + l->picked_n);
    double each = tensor->role == TG_LGC_CODED ? (double)l->coded_len / (double)l->coded_n : 4;
    out->len = (uint64_t)(entries * (all ? 4 : each + lead) + 0.5);
    return TG_OK;
}

void tg_lgc_learning(tg_learning *out, const tg_lgc *l)
{
    const tg_lgc_progress *p = &l->progress;
    *out = (tg_learning){.phase = p->phase, .left = p->left, .extended = p->extended, .error = (double)p->error};
}

/* ---- saved state ----------------------------------------------------------------------------------------------------- */

/* Counters as the bits of floats, which a load puts back bit by bit; they stay below what would be a NaN. */
static float *memory(const tg_exchange *x, uint64_t *n)
{
    tg_lgc *l = x->lgc;
    float *at = l->scales + l->layout->tensor_n;
    tg_optimizer_state optimizer = tg_autoencoder_optimizer_state(l->autoencoder);
    const tg_lgc_progress *p = &l->progress;
    const uint32_t counters[COUNTERS] = {p->phase, p->left, p->extended, l->last_phase, (uint32_t)*optimizer.step};
    for (int i = 0; i < COUNTERS; i++) {
        at[i] = tg_bits_float(counters[i]);
    }
    at[COUNTERS - 1] = p->error;
    at += COUNTERS;
    size_t weight_n = tg_autoencoder_weight_n(l->autoencoder);
    memcpy(at, tg_autoencoder_weights(l->autoencoder), weight_n * sizeof *at);
    memcpy(at + weight_n, optimizer.moments, optimizer.moment_n * sizeof *at);
    *n = saved_n(l);
    return l->saved;
}

static void restored(const tg_exchange *x)
{
    tg_lgc *l = x->lgc;
    const float *at = l->scales + l->layout->tensor_n;
    tg_optimizer_state optimizer = tg_autoencoder_optimizer_state(l->autoencoder);
    uint32_t phase = tg_float_bits(at[0]);
    l->progress = (tg_lgc_progress){.phase = phase >= TG_LGC_PHASE_DENSE && phase <= TG_LGC_PHASE_CODE ? phase : 1,
                                    .left = tg_float_bits(at[1]),
                                    .extended = tg_float_bits(at[2]),
                                    .error = at[COUNTERS - 1]};
    l->last_phase = tg_float_bits(at[3]);
    *optimizer.step = tg_float_bits(at[4]);
    at += COUNTERS;
    size_t weight_n = tg_autoencoder_weight_n(l->autoencoder);
    memcpy(tg_autoencoder_weights(l->autoencoder), at, weight_n * sizeof *at);
    memcpy(optimizer.moments, at + weight_n, optimizer.moment_n * sizeof *at);
}

/* ---- the protocols --------------------------------------------------------------------------------------------------- */

static tg_status suits(const tg_layout *layout, tg_detail *why)
{
    const char *own = tg_layout_exchange(layout);
    if (own != NULL && strncmp(own, "lgc", 3) == 0) {
        return TG_OK;
    }
    return tg_fail(TG_E_RECIPE, why, "the exchanges lgc-ring and lgc-server carry recipes with 'autoencoder' alone");
}

#define LGC(called, of_one_world)                                                                                  \
    {                                                                                                              \
        .name = (called), .rounds = tg_lgc_rounds, .suits = suits, .say = tg_lgc_say, .hear = tg_lgc_hear,         \
        .finish = tg_lgc_finish, .residual = residual, .traffic = traffic, .memory = memory, .restored = restored, \
        .of_world = (of_one_world)                                                                                 \
    }

const tg_protocol tg_protocol_lgc_ring = LGC("lgc-ring", NULL);
const tg_protocol tg_protocol_lgc_server = LGC("lgc-server", "learned decoders");
