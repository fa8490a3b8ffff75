/* The two chains of layers of the autoencoder, whatever computes them: layers that halve or double the length, then a 1x1 convolution. */
#ifndef TG_AUTOENCODER_CHAINS_H
#define TG_AUTOENCODER_CHAINS_H

#include "autoencoder/autoencoder.h"
#include "autoencoder/chain.h"

typedef struct tg_autoencoder_chains {
    size_t padded_n; /* length of the input */
    tg_chain encoder, decoder;
    size_t weight_n; /* of the encoder and all decoders */
} tg_autoencoder_chains;

/* Refuses a config that makes no sense. */
tg_status tg_autoencoder_check(const tg_autoencoder_config *config, tg_detail *why) TG_CHECKED;

tg_autoencoder_chains tg_autoencoder_lay(const tg_autoencoder_config *config);

/* The weights before the first training step: those of the encoder, then of each decoder. */
void tg_autoencoder_start(float *weights, const tg_autoencoder_chains *c, uint32_t decoder_n, uint64_t seed);

#endif
