/* What the files of the autoencoder share, and no other file sees. */
#ifndef TG_AUTOENCODER_INSIDE_H
#define TG_AUTOENCODER_INSIDE_H

#include "autoencoder/autoencoder.h"
#include "autoencoder/chain.h"

struct tg_autoencoder {
    tg_allocator allocator;
    tg_autoencoder_config config;
    size_t padded_n; /* places of the input */
    tg_chain encoder, decoder;
    size_t weight_n; /* of the encoder and all decoders */
    uint64_t step;
    float *learned; /* room for what must be saved: weights, moments */
    float *weights, *moments;
    float *scratch;               /* room for all others */
    float *gradients;             /* by the weights */
    float *tapes, *decoder_tape;  /* kept_n of the encoder; one that all decoders share */
    float *codes, *code_gradient; /* one a decoder; one */
    float *mean;                  /* of the values */
    tg_chain_desk desk;
};

/* The part of one decoder in an array that has something for every weight. */
float *tg_autoencoder_decoder_part(const tg_autoencoder *ae, float *of_all_weights, uint32_t decoder);

/* Return the code on `tape`, one of the encoder's, or the values on the decoders' tape. */
const float *tg_autoencoder_run_encoder(tg_autoencoder *ae, float *tape, const float *values);
const float *tg_autoencoder_run_decoder(tg_autoencoder *ae, uint32_t decoder, const float *code,
                                        const float *innovation);

#endif
