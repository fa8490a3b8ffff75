/* Formats with a scale for every few values: small floats of OCP MX and NVFP4 in the form that kernels take. */
#ifndef TG_KERNELS_BLOCKS_H
#define TG_KERNELS_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define TG_MX_BLOCK 32      /* values that share a power of two: at least, as OCP says, ... */
#define TG_MX_BLOCK_MAX 128 /* ... and at most */
#define TG_NV_BLOCK 16      /* values that share a small float */
#define TG_MX_NAN 255       /* the scale of a block with a NaN */
#define TG_ROTATION_MAX 128 /* values of a rotation */
#define TG_NO_INFINITY UINT32_MAX

/* Small floats of OCP MX. A symbol is the bits of one: sign, exponent, fraction. */
typedef struct tg_block_format {
    uint32_t fraction_bits, bias;
    uint32_t sign;     /* the sign bit of a symbol */
    uint32_t most;     /* symbol of the largest finite value ... */
    uint32_t infinity; /* ... and of infinity, TG_NO_INFINITY: none. All other symbols above `most` are NaN */
    uint32_t exponent; /* of the largest value ... */
    uint32_t fraction; /* ... its fraction, as the lower 23 bits of a float ... */
    float largest;     /* ... and itself */
} tg_block_format;

extern const tg_block_format tg_e4m3, tg_e5m2, tg_e2m1;

#endif
