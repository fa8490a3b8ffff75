/* The autoencoder of LGC as two chains of layers: construction and forward passes. See autoencoder.h; training.c trains it. */
#include "autoencoder/inside.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    SHRINKS = 1 << TG_AUTOENCODER_HALVINGS, /* input length over code length */
    LAYER_N = TG_AUTOENCODER_HALVINGS + 1,
    CHANNEL_CAP = 1 << 12,
    DECODER_CAP = 1 << 16,
    KEPT_CAP = 1 << 12
};

/* With these limits no count of floats overflows 64 bits: 2^28 values, 2^12 channels, 2^12 tapes. */
static const size_t value_cap = (size_t)1 << 28;
_Static_assert(sizeof(size_t) >= 8, "size_t holds the largest count");

/* ---- construction ------------------------------------------------------------------------------------------------------ */

tg_autoencoder_config tg_autoencoder_standard(size_t value_n)
{
    return (tg_autoencoder_config){.value_n = value_n,
                                   .encoder_channels = {64, 128, 256, 64},
                                   .code_channels = 4,
                                   .decoder_channels = {32, 64, 128, 32},
                                   .decoder_n = 1,
                                   .rate = 0.001,
                                   .value_weight = 0.5,
                                   .code_weight = 0.5,
                                   .kept_n = 4};
}

static tg_status check_count(const char *what, uint64_t count, uint64_t most, tg_detail *why)
{
    if (count >= 1 && count <= most) {
        return TG_OK;
    }
    return tg_fail(TG_E_ARGUMENT, why, "an autoencoder must have 1 to %" PRIu64 " %s, not %" PRIu64, most, what, count);
}

tg_status tg_autoencoder_check(const tg_autoencoder_config *config, tg_detail *why)
{
    TG_TRY(check_count("values", config->value_n, value_cap, why));
    TG_TRY(check_count("channels in its code", config->code_channels, CHANNEL_CAP, why));
    for (size_t i = 0; i < TG_AUTOENCODER_HALVINGS; i++) {
        TG_TRY(check_count("channels in a layer", config->encoder_channels[i], CHANNEL_CAP, why));
        TG_TRY(check_count("channels in a layer", config->decoder_channels[i], CHANNEL_CAP, why));
    }
    TG_TRY(check_count("decoders", config->decoder_n, DECODER_CAP, why));
    TG_TRY(check_count("kept workers", config->kept_n, KEPT_CAP, why));
    if (!(isfinite(config->rate) && config->rate > 0)) {
        return tg_fail(TG_E_ARGUMENT, why, "the learning rate of an autoencoder must be above 0, not %g", config->rate);
    }
    if (!(isfinite(config->value_weight) && config->value_weight >= 0) ||
        !(isfinite(config->code_weight) && config->code_weight >= 0)) {
        return tg_fail(TG_E_ARGUMENT, why, "the weights of the loss must be at least 0, not %g and %g",
                       config->value_weight, config->code_weight);
    }
    return TG_OK;
}

tg_autoencoder_chains tg_autoencoder_lay(const tg_autoencoder_config *config)
{
    tg_autoencoder_chains c = {.padded_n = (config->value_n + SHRINKS - 1) / SHRINKS * SHRINKS};
    size_t encoded = 1, decoded = config->code_channels;
    size_t encoded_n = c.padded_n, decoded_n = c.padded_n / SHRINKS;
    c.encoder.layer_n = c.decoder.layer_n = LAYER_N;
    for (size_t i = 0; i < TG_AUTOENCODER_HALVINGS; i++) {
        c.encoder.layers[i] = (tg_layer){TG_LAYER_HALVE, false, encoded, config->encoder_channels[i], encoded_n};
        c.decoder.layers[i] = (tg_layer){TG_LAYER_DOUBLE, false, decoded, config->decoder_channels[i], decoded_n};
        encoded = config->encoder_channels[i];
        decoded = config->decoder_channels[i];
        encoded_n /= 2;
        decoded_n *= 2;
    }
    c.encoder.layers[LAYER_N - 1] = (tg_layer){TG_LAYER_POINT, true, encoded, config->code_channels, encoded_n};
    c.decoder.layers[LAYER_N - 1] = (tg_layer){TG_LAYER_POINT, true, decoded, 1, decoded_n};
    tg_chain_measure(&c.encoder);
    tg_chain_measure(&c.decoder);
    c.weight_n = tg_chain_weight_n(&c.encoder) + config->decoder_n * tg_chain_weight_n(&c.decoder);
    return c;
}

void tg_autoencoder_start(float *weights, const tg_autoencoder_chains *c, uint32_t decoder_n, uint64_t seed)
{
    tg_chain_start(weights, &c->encoder, seed, 0);
    weights += tg_chain_weight_n(&c->encoder);
    for (uint32_t d = 0; d < decoder_n; d++, weights += tg_chain_weight_n(&c->decoder)) {
        tg_chain_start(weights, &c->decoder, seed, LAYER_N * (d + 1));
    }
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* One of several arrays of zeros that are allocated as one block. */
typedef struct array {
    float **at;
    size_t n;
} array;

static tg_status acquire_arrays(float **block, const array *arrays, size_t array_n, const tg_allocator *a,
                                tg_detail *why)
{
    uint64_t n = 0;
    for (size_t i = 0; i < array_n; i++) {
        n += arrays[i].n;
    }
    TG_TRY(tg_acquire(block, a, n, sizeof **block, why));
    float *at = *block;
    for (size_t i = 0; i < array_n; i++) {
        *arrays[i].at = at;
        at += arrays[i].n;
    }
    return TG_OK;
}

static tg_status acquire_all(tg_autoencoder *ae, tg_detail *why)
{
    const array learned[] = {{&ae->weights, ae->weight_n}, {&ae->moments, 2 * ae->weight_n}};
    size_t flow_n = larger(tg_chain_flow_n(&ae->encoder), tg_chain_flow_n(&ae->decoder));
    size_t code_n = tg_autoencoder_code_n(ae);
    const array scratch[] = {
        {&ae->gradients, ae->weight_n},
        {&ae->tapes, ae->config.kept_n * tg_chain_tape_n(&ae->encoder)},
        {&ae->decoder_tape, tg_chain_tape_n(&ae->decoder)},
        {&ae->codes, ae->config.decoder_n * code_n},
        {&ae->code_gradient, code_n},
        {&ae->mean, ae->config.value_n},
        {&ae->workspace.flow[0], flow_n},
        {&ae->workspace.flow[1], flow_n},
        {&ae->workspace.scratch, larger(tg_chain_scratch_n(&ae->encoder), tg_chain_scratch_n(&ae->decoder))}};
    TG_TRY(acquire_arrays(&ae->learned, learned, sizeof learned / sizeof *learned, &ae->allocator, why));
    return acquire_arrays(&ae->scratch, scratch, sizeof scratch / sizeof *scratch, &ae->allocator, why);
}

float *tg_autoencoder_decoder_part(const tg_autoencoder *ae, float *of_all_weights, uint32_t decoder)
{
    return of_all_weights + tg_chain_weight_n(&ae->encoder) + decoder * tg_chain_weight_n(&ae->decoder);
}

tg_status tg_autoencoder_new(tg_autoencoder **out, const tg_autoencoder_config *config, uint64_t seed,
                             const tg_allocator *a, tg_detail *why)
{
    tg_allocator allocator = tg_allocator_or_standard(a);
    tg_autoencoder *ae = NULL;
    TG_TRY(tg_autoencoder_check(config, why));
    TG_TRY(tg_acquire(&ae, &allocator, 1, sizeof *ae, why));
    ae->allocator = allocator;
    ae->config = *config;
    tg_autoencoder_chains chains = tg_autoencoder_lay(config);
    ae->padded_n = chains.padded_n;
    ae->encoder = chains.encoder;
    ae->decoder = chains.decoder;
    ae->weight_n = chains.weight_n;
    tg_status status = acquire_all(ae, why);
    if (status != TG_OK) {
        tg_autoencoder_free(ae);
        return status;
    }
    tg_autoencoder_start(ae->weights, &chains, config->decoder_n, seed);
    *out = ae;
    return TG_OK;
}

void tg_autoencoder_free(tg_autoencoder *ae)
{
    if (ae == NULL) {
        return;
    }
    tg_allocator a = ae->allocator;
    tg_release(&a, ae->scratch);
    tg_release(&a, ae->learned);
    tg_release(&a, ae);
}

/* ---- properties ----------------------------------------------------------------------------------------------------------- */

size_t tg_autoencoder_code_n_of(const tg_autoencoder_config *config)
{
    return config->code_channels * ((config->value_n + SHRINKS - 1) / SHRINKS);
}

size_t tg_autoencoder_code_n(const tg_autoencoder *ae)
{
    return tg_autoencoder_code_n_of(&ae->config);
}

size_t tg_autoencoder_weight_n(const tg_autoencoder *ae)
{
    return ae->weight_n;
}

float *tg_autoencoder_weights(tg_autoencoder *ae)
{
    return ae->weights;
}

tg_optimizer_state tg_autoencoder_optimizer_state(tg_autoencoder *ae)
{
    return (tg_optimizer_state){.moments = ae->moments, .moment_n = 2 * ae->weight_n, .step = &ae->step};
}

/* ---- forward --------------------------------------------------------------------------------------------------------- */

const float *tg_autoencoder_run_encoder(tg_autoencoder *ae, float *tape, const float *values)
{
    memcpy(tape, values, ae->config.value_n * sizeof *tape); /* the padding after them is always 0 */
    return tg_chain_forward(tape, &ae->encoder, ae->weights, &ae->workspace);
}

const float *tg_autoencoder_run_decoder(tg_autoencoder *ae, uint32_t decoder, const float *code,
                                        const float *innovation)
{
    assert(decoder < ae->config.decoder_n);
    float *tape = ae->decoder_tape;
    memcpy(tape, code, tg_autoencoder_code_n(ae) * sizeof *tape);
    const float *weights = tg_autoencoder_decoder_part(ae, ae->weights, decoder);
    float *values = tg_chain_forward(tape, &ae->decoder, weights, &ae->workspace);
    for (size_t i = 0; innovation != NULL && i < ae->config.value_n; i++) {
        values[i] = innovation[i] != 0 ? innovation[i] : values[i];
    }
    return values;
}

void tg_autoencoder_encode(float *code, tg_autoencoder *ae, const float *values)
{
    memcpy(code, tg_autoencoder_run_encoder(ae, ae->tapes, values), tg_autoencoder_code_n(ae) * sizeof *code);
}

void tg_autoencoder_decode(float *values, tg_autoencoder *ae, uint32_t decoder, const float *code,
                           const float *innovation)
{
    memcpy(values, tg_autoencoder_run_decoder(ae, decoder, code, innovation), ae->config.value_n * sizeof *values);
}
