/* LGC's autoencoder on a GPU; see learner.h. The passes over chains are those of autoencoder/chain.c and training.c, for a batch. */
#include "exec/cuda/learner.h"

#include "autoencoder/adam.h"

#include <math.h>
#include <string.h>

enum { TAPS = 3, LEAF = 1024 };

/* ---- chains ------------------------------------------------------------------------------------------------------------ */

/* A layer in terms of its two signals. */
typedef struct pair {
    uint32_t coarse_channels, fine_channels, n, taps;
} pair;

static pair pair_of(const tg_layer *l)
{
    switch (l->kind) {
    case TG_LAYER_HALVE:
        return (pair){(uint32_t)l->out_channels, (uint32_t)l->in_channels, (uint32_t)(l->in_n / 2), TAPS};
    case TG_LAYER_DOUBLE: return (pair){(uint32_t)l->in_channels, (uint32_t)l->out_channels, (uint32_t)l->in_n, TAPS};
    case TG_LAYER_POINT: break;
    }
    return (pair){(uint32_t)l->out_channels, (uint32_t)l->in_channels, (uint32_t)l->in_n, 1};
}

static tg_gpu_product product_of(const tg_gpu_chain *c, size_t layer, const float *weights, uint64_t weight_stride)
{
    pair p = pair_of(&c->chain.layers[layer]);
    uint64_t stride = tg_chain_tape_n(&c->chain);
    return (tg_gpu_product){.w = weights + c->chain.weight_at[layer],
                            .w_stride = weight_stride,
                            .w_coarse = p.fine_channels * p.taps,
                            .w_row = 1,
                            .in_stride = stride,
                            .out_stride = stride,
                            .of_stride = stride,
                            .coarse_channels = p.coarse_channels,
                            .fine_channels = p.fine_channels,
                            .n = p.n,
                            .taps = p.taps};
}

/* Runs all layers on the inputs of a batch, which are on their tapes. Sequence b has the weights at `weights` + b * weight_stride. */
static void forward(const tg_gpu_learner *l, const tg_gpu_chain *c, const float *weights, uint64_t weight_stride,
                    uint32_t batch)
{
    for (size_t i = 0; i < c->chain.layer_n; i++) {
        const tg_layer *layer = &c->chain.layers[i];
        tg_gpu_product p = product_of(c, i, weights, weight_stride);
        p.in = c->tapes + c->chain.tape_at[i];
        p.out = c->tapes + c->chain.tape_at[i + 1];
        p.bias = p.w + (uint64_t)p.coarse_channels * p.w_coarse;
        p.then = layer->is_linear ? TG_GPU_SUM_PLAIN : TG_GPU_SUM_LEAKY;
        p.batch = batch;
        p.stream = l->gpu->stream;
        if (layer->kind == TG_LAYER_DOUBLE) {
            tg_gpu_layer_up(&p);
        } else {
            tg_gpu_layer_down(&p);
        }
    }
}

/* The gradient with respect to the input of layer i from that with respect to its output. A gradient with respect to a layer's output
 * has the slope of its activation. */
static void back_layer(const tg_gpu_learner *l, const tg_gpu_chain *c, size_t i, const float *weights,
                       uint64_t weight_stride, uint32_t batch)
{
    const tg_layer *layer = &c->chain.layers[i];
    tg_gpu_product p = product_of(c, i, weights, weight_stride);
    p.in = c->backs + c->chain.tape_at[i + 1];
    p.out = c->backs + c->chain.tape_at[i];
    p.of = c->tapes + c->chain.tape_at[i];
    p.then = i > 0 ? TG_GPU_SUM_BACK : TG_GPU_SUM_PLAIN;
    p.batch = batch;
    p.stream = l->gpu->stream;
    if (layer->kind == TG_LAYER_HALVE) {
        tg_gpu_layer_up(&p);
        return;
    }
    if (layer->kind == TG_LAYER_POINT) { /* W' in place of W */
        p.w_coarse = 1;
        p.w_row = p.fine_channels;
        p.coarse_channels = (uint32_t)layer->in_channels;
        p.fine_channels = (uint32_t)layer->out_channels;
    }
    tg_gpu_layer_down(&p);
}

/* The gradients of a batch, whose outputs' are there, and of the weights. With `apart`, each sequence has weights of its own. */
static void backward(const tg_gpu_learner *l, const tg_gpu_chain *c, size_t weight_at, bool apart, uint32_t batch,
                     bool to_input)
{
    uint64_t stride = apart ? tg_chain_weight_n(&c->chain) : 0;
    for (size_t i = c->chain.layer_n; i-- > (to_input ? 0 : 1);) {
        back_layer(l, c, i, l->weights + weight_at, stride, batch);
    }
    const tg_gpu_weights w = {.layers = c->layers,
                              .tiles = c->tiles,
                              .tile_n = c->tile_n,
                              .batch = batch,
                              .apart = apart,
                              .gradients = l->gradients + weight_at,
                              .tapes = c->tapes,
                              .backs = c->backs,
                              .tape_stride = tg_chain_tape_n(&c->chain),
                              .gradient_stride = stride,
                              .stream = l->gpu->stream};
    tg_gpu_layer_weights(&w);
}

/* The input and the output of the first sequence's tape; the gradient with respect to the output. */
static float *input_of(const tg_gpu_chain *c)
{
    return c->tapes;
}

static float *output_of(const tg_gpu_chain *c)
{
    return c->tapes + c->chain.tape_at[c->chain.layer_n];
}

static float *back_of(const tg_gpu_chain *c)
{
    return c->backs + c->chain.tape_at[c->chain.layer_n];
}

/* ---- tables for gradients ------------------------------------------------------------------------------------------------ */

static tg_gpu_trained trained_of(const tg_chain *c, size_t i)
{
    const tg_layer *layer = &c->layers[i];
    pair p = pair_of(layer);
    bool doubles = layer->kind == TG_LAYER_DOUBLE;
    return (tg_gpu_trained){.coarse_at = c->tape_at[doubles ? i : i + 1],
                            .fine_at = c->tape_at[doubles ? i + 1 : i],
                            .weight_at = c->weight_at[i],
                            .coarse_channels = p.coarse_channels,
                            .fine_channels = p.fine_channels,
                            .n = p.n,
                            .taps = p.taps,
                            .bias_n = (uint32_t)layer->out_channels,
                            .bias_positions = (uint32_t)tg_layer_out_n(layer),
                            .coarse_is_gradient = !doubles};
}

/* Tiles of all layers, those with the longest sums first; `out` may be NULL, to count them. */
static uint32_t cut_weights(tg_gpu_weight_tile *out, const tg_gpu_trained *layers, size_t layer_n)
{
    uint32_t n = 0;
    bool longest_last = layers[0].n < layers[layer_n - 1].n;
    for (size_t k = 0; k < layer_n; k++) {
        uint32_t i = (uint32_t)(longest_last ? layer_n - 1 - k : k), rows = layers[i].fine_channels * layers[i].taps;
        for (uint32_t c = 0; c < layers[i].coarse_channels; c += TG_GPU_WEIGHT_TILE) {
            for (uint32_t row = 0; row < rows; row += TG_GPU_WEIGHT_TILE, n++) {
                if (out != NULL) {
                    out[n] = (tg_gpu_weight_tile){.layer = i, .coarse = c, .row = row};
                }
            }
        }
        for (uint32_t c = 0; c < layers[i].bias_n; c += TG_GPU_BIAS_TILE, n++) {
            if (out != NULL) {
                out[n] = (tg_gpu_weight_tile){.layer = i, .is_bias = 1, .coarse = c};
            }
        }
    }
    return n;
}

static tg_status upload(void *out, const tg_gpu *gpu, const void *from, uint64_t len, tg_detail *why)
{
    void *block = NULL;
    TG_TRY(tg_gpu_acquire(&block, gpu, len, why));
    memcpy(out, &block, sizeof block);
    tg_gpu_copy(gpu, block, from, len);
    return tg_gpu_wait(gpu, why);
}

static tg_status open_tables(tg_gpu_chain *c, const tg_gpu_learner *l, tg_detail *why)
{
    tg_gpu_trained layers[TG_CHAIN_CAP] = {{0}};
    tg_gpu_weight_tile *tiles = NULL;
    for (size_t i = 0; i < c->chain.layer_n; i++) {
        layers[i] = trained_of(&c->chain, i);
    }
    c->tile_n = cut_weights(NULL, layers, c->chain.layer_n);
    TG_TRY(upload(&c->layers, l->gpu, layers, c->chain.layer_n * sizeof *layers, why));
    TG_TRY(tg_acquire(&tiles, &l->allocator, c->tile_n, sizeof *tiles, why));
    (void)cut_weights(tiles, layers, c->chain.layer_n);
    tg_status status = upload(&c->tiles, l->gpu, tiles, c->tile_n * sizeof *tiles, why);
    tg_release(&l->allocator, tiles);
    return status;
}

static tg_status open_chain(tg_gpu_chain *c, const tg_gpu_learner *l, const tg_chain *chain, uint32_t sequences,
                            uint64_t kept, tg_detail *why)
{
    uint64_t tape_n = tg_chain_tape_n(chain), cap = kept / tape_n;
    c->chain = *chain;
    c->cap = cap >= sequences ? sequences : cap > 1 ? (uint32_t)cap : 1;
    TG_TRY(open_tables(c, l, why));
    TG_TRY(tg_gpu_acquire(&c->tapes, l->gpu, c->cap * tape_n * sizeof *c->tapes, why));
    TG_TRY(tg_gpu_acquire(&c->backs, l->gpu, c->cap * tape_n * sizeof *c->backs, why));
    tg_gpu_fill(l->gpu, c->tapes, 0, c->cap * tape_n * sizeof *c->tapes); /* what pads values stays 0 */
    return TG_OK;
}

static void close_chain(const tg_gpu_chain *c, const tg_gpu *gpu)
{
    tg_gpu_release(gpu, c->backs);
    tg_gpu_release(gpu, c->tapes);
    tg_gpu_release(gpu, c->tiles);
    tg_gpu_release(gpu, c->layers);
}

/* ---- creation ------------------------------------------------------------------------------------------------------------ */

static tg_status draw_weights(const tg_gpu_learner *l, const tg_autoencoder_chains *chains, uint64_t seed,
                              tg_detail *why)
{
    float *weights = NULL;
    TG_TRY(tg_acquire(&weights, &l->allocator, l->weight_n, sizeof *weights, why));
    tg_autoencoder_start(weights, chains, l->config.decoder_n, seed);
    tg_gpu_copy(l->gpu, l->weights, weights, l->weight_n * sizeof *weights);
    tg_gpu_fill(l->gpu, l->moments, 0, 2 * l->weight_n * sizeof *l->moments);
    tg_status status = tg_gpu_wait(l->gpu, why);
    tg_release(&l->allocator, weights);
    return status;
}

static tg_status acquire(tg_gpu_learner *l, tg_detail *why)
{
    const tg_gpu *gpu = l->gpu;
    uint64_t value_n = l->config.value_n, leaf_n = (value_n + LEAF - 1) / LEAF;
    TG_TRY(tg_gpu_acquire(&l->weights, gpu, l->weight_n * sizeof *l->weights, why));
    TG_TRY(tg_gpu_acquire(&l->moments, gpu, 2 * l->weight_n * sizeof *l->moments, why));
    TG_TRY(tg_gpu_acquire(&l->gradients, gpu, l->weight_n * sizeof *l->gradients, why));
    TG_TRY(tg_gpu_acquire(&l->codes, gpu, l->workers * l->code_n * sizeof *l->codes, why));
    TG_TRY(tg_gpu_acquire(&l->mean, gpu, value_n * sizeof *l->mean, why));
    TG_TRY(tg_gpu_acquire(&l->mean_code, gpu, l->code_n * sizeof *l->mean_code, why));
    TG_TRY(tg_gpu_acquire(&l->code_gradient, gpu, l->code_n * sizeof *l->code_gradient, why));
    TG_TRY(tg_gpu_acquire(&l->decoded, gpu, value_n * sizeof *l->decoded, why));
    TG_TRY(tg_gpu_acquire(&l->leaves, gpu, 2 * leaf_n * sizeof *l->leaves, why));
    TG_TRY(tg_gpu_acquire(&l->learned, gpu, sizeof *l->learned, why));
    return tg_gpu_pin(&l->learned_here, gpu, sizeof *l->learned_here, why);
}

tg_status tg_gpu_learner_open(tg_gpu_learner *l, const tg_gpu *gpu, const tg_autoencoder_config *config,
                              uint32_t workers, uint64_t seed, uint64_t kept, const tg_allocator *a, tg_detail *why)
{
    TG_TRY(tg_autoencoder_check(config, why));
    tg_autoencoder_chains chains = tg_autoencoder_lay(config);
    *l = (tg_gpu_learner){.gpu = gpu,
                          .allocator = *a,
                          .config = *config,
                          .padded_n = chains.padded_n,
                          .weight_n = chains.weight_n,
                          .code_n = tg_autoencoder_code_n_of(config),
                          .workers = workers};
    tg_gpu_enter(gpu);
    TG_TRY(acquire(l, why));
    TG_TRY(open_chain(&l->encoder, l, &chains.encoder, workers, kept, why));
    TG_TRY(open_chain(&l->decoder, l, &chains.decoder, config->decoder_n, kept, why));
    return draw_weights(l, &chains, seed, why);
}

void tg_gpu_learner_close(tg_gpu_learner *l)
{
    const tg_gpu *gpu = l->gpu;
    if (gpu == NULL) {
        return;
    }
    close_chain(&l->decoder, gpu);
    close_chain(&l->encoder, gpu);
    tg_gpu_unpin(gpu, l->learned_here);
    void *const blocks[] = {l->learned, l->leaves,    l->decoded, l->code_gradient, l->mean_code,
                            l->mean,    l->gradients, l->moments, l->weights,       l->codes};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        tg_gpu_release(gpu, blocks[i]);
    }
}

/* ---- forward --------------------------------------------------------------------------------------------------------------- */

static uint64_t decoder_at(const tg_gpu_learner *l, uint32_t decoder)
{
    return tg_chain_weight_n(&l->encoder.chain) + decoder * tg_chain_weight_n(&l->decoder.chain);
}

/* Encodes a batch, value_n floats each. */
static void run_encoder(const tg_gpu_learner *l, const float *values, uint32_t batch)
{
    const tg_gpu_chain *c = &l->encoder;
    tg_gpu_learn_place(input_of(c), tg_chain_tape_n(&c->chain), values, l->config.value_n, l->config.value_n,
                       l->padded_n, batch, l->gpu->stream);
    forward(l, c, l->weights, 0, batch);
}

/* Decodes one code with a batch of decoders from `first` on. Innovations, value_n floats for each, take the place of what is decoded. */
static void run_decoders(const tg_gpu_learner *l, uint32_t first, const float *code, const float *innovations,
                         uint32_t batch)
{
    const tg_gpu_chain *c = &l->decoder;
    uint64_t stride = tg_chain_tape_n(&c->chain);
    tg_gpu_learn_place(input_of(c), stride, code, 0, l->code_n, l->code_n, batch, l->gpu->stream);
    forward(l, c, l->weights + decoder_at(l, first), tg_chain_weight_n(&c->chain), batch);
    if (innovations != NULL) {
        tg_gpu_learn_replace(output_of(c), stride, innovations, l->config.value_n, batch, l->gpu->stream);
    }
}

void tg_gpu_learner_encode(float *code, tg_gpu_learner *l, const float *values)
{
    run_encoder(l, values, 1);
    tg_gpu_copy(l->gpu, code, output_of(&l->encoder), l->code_n * sizeof *code);
    tg_gpu_learn_unify(code, l->code_n, l->gpu->stream);
}

void tg_gpu_learner_decode(float *values, tg_gpu_learner *l, uint32_t decoder, const float *code,
                           const float *innovation)
{
    run_decoders(l, decoder, code, innovation, 1);
    tg_gpu_copy(l->gpu, values, output_of(&l->decoder), l->config.value_n * sizeof *values);
    tg_gpu_learn_unify(values, l->config.value_n, l->gpu->stream);
}

/* ---- training ---------------------------------------------------------------------------------------------------------------- */

/* What is encoded in a step, and what the gradients with respect to codes follow from. */
typedef struct coded {
    const float *sequences;
    float *codes;
    uint32_t workers, chosen;
    bool is_common;
} coded;

/* Encodes the sequences, as many at a time as have tapes. Tapes are then those of the last batch. */
static void encode_all(const tg_gpu_learner *l, const coded *of)
{
    const tg_gpu_chain *c = &l->encoder;
    for (uint32_t first = 0; first < of->workers; first += c->cap) {
        uint32_t batch = of->workers - first < c->cap ? of->workers - first : c->cap;
        run_encoder(l, of->sequences + first * l->config.value_n, batch);
        tg_gpu_learn_place(of->codes + first * l->code_n, l->code_n, output_of(c), tg_chain_tape_n(&c->chain),
                           l->code_n, l->code_n, batch, l->gpu->stream);
    }
}

static void set_code_gradients(const tg_gpu_learner *l, const coded *of, uint32_t first, uint32_t batch)
{
    const tg_gpu_chain *c = &l->encoder;
    uint64_t stride = tg_chain_tape_n(&c->chain);
    if (of->is_common) {
        double factor = 4 * l->config.code_weight / (double)l->code_n;
        tg_gpu_learn_similarity(back_of(c), stride, of->codes, l->code_n, first, batch, of->workers, factor,
                                l->code_gradient, of->chosen, l->learned, l->gpu->stream);
    } else {
        tg_gpu_learn_share(back_of(c), stride, l->code_gradient, l->code_n, batch, (float)l->workers, l->gpu->stream);
    }
}

/* Backward passes of all encodings, the last worker first. */
static void encode_back_all(const tg_gpu_learner *l, const coded *of)
{
    const tg_gpu_chain *c = &l->encoder;
    uint32_t first = (of->workers - 1) / c->cap * c->cap;
    for (bool is_last = true;; is_last = false, first -= c->cap) {
        uint32_t batch = of->workers - first < c->cap ? of->workers - first : c->cap;
        if (!is_last) { /* a later batch has overwritten the tapes */
            run_encoder(l, of->sequences + first * l->config.value_n, batch);
        }
        set_code_gradients(l, of, first, batch);
        backward(l, c, 0, false, batch, false);
        if (first == 0) {
            return;
        }
    }
}

static void begin_training(const tg_gpu_learner *l)
{
    tg_gpu_enter(l->gpu);
    tg_gpu_fill(l->gpu, l->gradients, 0, l->weight_n * sizeof *l->gradients);
    tg_gpu_fill(l->gpu, l->learned, 0, sizeof *l->learned);
}

/* Updates the weights, and reads the verdict. l->decoded has the average that is decoded. */
static tg_status end_training(double *error, const tg_gpu_learner *l, const float *sequences, uint64_t step,
                              tg_detail *why)
{
    float step_size, root;
    tg_adam_factors(&step_size, &root, l->config.rate, step);
    tg_gpu_learn_error(l->learned, l->leaves, l->decoded, sequences, l->config.value_n, l->config.value_n, l->workers,
                       l->gpu->stream);
    tg_gpu_learn_check(l->learned, l->gradients, l->weight_n, l->gpu->stream);
    tg_gpu_learn_adam(l->weights, l->moments, l->gradients, l->weight_n, step_size, root, l->learned, l->gpu->stream);
    tg_gpu_copy(l->gpu, l->learned_here, l->learned, sizeof *l->learned);
    TG_TRY(tg_gpu_wait(l->gpu, why));
    double norm = sqrt(l->learned_here->squares[1]);
    *error = norm > 0 ? sqrt(l->learned_here->squares[0]) / norm : 0;
    if (l->learned_here->is_bad != 0) {
        return tg_fail(TG_E_NONFINITE, why, "the loss of the autoencoder or its gradient is not finite");
    }
    return TG_OK;
}

static float loss_factor(const tg_gpu_learner *l, double weight)
{
    return (float)(2 * weight / (double)l->config.value_n);
}

tg_status tg_gpu_learner_train_mean(double *error, tg_gpu_learner *l, const float *sequences, uint64_t step,
                                    tg_detail *why)
{
    const tg_gpu_chain *d = &l->decoder;
    uint64_t value_n = l->config.value_n;
    void *stream = l->gpu->stream;
    const coded of = {.sequences = sequences, .codes = l->codes, .workers = l->workers};
    begin_training(l);
    encode_all(l, &of);
    tg_gpu_learn_mean(l->mean_code, l->codes, l->code_n, l->code_n, l->workers, true, stream);
    tg_gpu_learner_decode(l->decoded, l, 0, l->mean_code, NULL);
    tg_gpu_learn_mean(l->mean_code, l->codes, l->code_n, l->code_n, l->workers, false, stream);
    tg_gpu_learn_mean(l->mean, sequences, value_n, value_n, l->workers, false, stream);
    run_decoders(l, 0, l->mean_code, NULL, 1);
    tg_gpu_learn_loss(back_of(d), 0, output_of(d), 0, l->mean, 0, value_n, l->padded_n, 1, loss_factor(l, 1),
                      l->learned, stream);
    backward(l, d, decoder_at(l, 0), true, 1, true);
    tg_gpu_copy(l->gpu, l->code_gradient, d->backs, l->code_n * sizeof *l->code_gradient);
    encode_back_all(l, &of);
    return end_training(error, l, sequences, step, why);
}

/* Decoders [first, first + batch): forward, and what they add to the average that is decoded; backward. */
static void train_decoders(const tg_gpu_learner *l, const float *sequences, const float *innovations, const float *code,
                           uint32_t first, uint32_t batch)
{
    const tg_gpu_chain *d = &l->decoder;
    uint64_t value_n = l->config.value_n, stride = tg_chain_tape_n(&d->chain), at = first * value_n;
    void *stream = l->gpu->stream;
    run_decoders(l, first, code, innovations != NULL ? innovations + at : NULL, batch);
    tg_gpu_learn_add(l->decoded, output_of(d), stride, value_n, batch, (float)l->workers, first == 0, stream);
    tg_gpu_learn_loss(back_of(d), stride, output_of(d), stride, sequences + at, value_n, value_n, l->padded_n, batch,
                      loss_factor(l, l->config.value_weight), l->learned, stream);
    backward(l, d, decoder_at(l, first), true, batch, true);
    tg_gpu_learn_add(l->code_gradient, d->backs, stride, l->code_n, batch, 1.0f, first == 0, stream);
}

tg_status tg_gpu_learner_train_common(double *error, tg_gpu_learner *l, const float *sequences,
                                      const float *innovations, uint32_t chosen, uint64_t step, tg_detail *why)
{
    uint32_t cap = l->decoder.cap;
    coded of = {sequences, l->codes, l->workers, chosen, true};
    if (l->config.code_weight == 0) { /* no other code is used */
        of = (coded){sequences + chosen * l->config.value_n, l->codes + chosen * l->code_n, 1, 0, true};
    }
    begin_training(l);
    encode_all(l, &of);
    for (uint32_t first = 0; first < l->workers; first += cap) {
        uint32_t batch = l->workers - first < cap ? l->workers - first : cap;
        train_decoders(l, sequences, innovations, l->codes + chosen * l->code_n, first, batch);
    }
    encode_back_all(l, &of);
    return end_training(error, l, sequences, step, why);
}
