/* The private parts of the autoencoder, for the files of this folder. */
#ifndef TG_AUTOENCODER_INSIDE_H
#define TG_AUTOENCODER_INSIDE_H

#include "autoencoder/autoencoder.h"
#include "autoencoder/chains.h"

struct tg_autoencoder {
    tg_allocator allocator;
    tg_autoencoder_config config;
    size_t padded_n; /* length of the input */
    tg_chain encoder, decoder;
    size_t weight_n; /* of the encoder and all decoders */

    /* Learned state. `learned` is the block that has weights and moments. */
    float *learned;
    float *weights, *moments;
    uint64_t step;

    /* Workspace. `scratch` is the block that has all arrays below. */
    float *scratch;
    float *gradients;     /* with respect to the weights */
    float *tapes;         /* of the encoder, kept_n of them */
    float *decoder_tape;  /* shared by all decoders */
    float *codes;         /* one for each decoder */
    float *code_gradient; /* with respect to one code */
    float *mean;          /* of the workers' values */
    tg_chain_workspace workspace;
};

/* The section of one decoder in an array with one element for every weight. */
float *tg_autoencoder_decoder_part(const tg_autoencoder *ae, float *of_all_weights, uint32_t decoder);

/* Forward passes. They return the code, which is on `tape`, and the decoded values, which are on the decoders' tape. */
const float *tg_autoencoder_run_encoder(tg_autoencoder *ae, float *tape, const float *values);
const float *tg_autoencoder_run_decoder(tg_autoencoder *ae, uint32_t decoder, const float *code,
                                        const float *innovation);

#endif
