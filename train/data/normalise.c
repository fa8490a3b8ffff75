/* Normalises each channel of the training images to mean 0 and deviation 1. A byte has 256 values, so that a table is enough. */
#include "data/sets.h"

#include <math.h>

/* A histogram: exact, whatever the order of summation. */
static void count_bytes(uint64_t counts[256], const tr_data *d, uint32_t channel)
{
    const tr_part *train = &d->parts[TR_TRAIN];
    size_t plane = (size_t)d->shape.height * d->shape.width;
    for (size_t i = 0; i < train->n; i++) {
        const uint8_t *pixels = train->pixels + i * tr_image_len(&d->shape) + channel * plane;
        for (size_t p = 0; p < plane; p++) {
            counts[pixels[p]]++;
        }
    }
}

static void fill_channel(float out[256], const uint64_t counts[256])
{
    uint64_t n = 0, sum = 0;
    for (uint64_t b = 0; b < 256; b++) {
        n += counts[b];
        sum += counts[b] * b;
    }
    double mean = (double)sum / (double)n, squares = 0;
    for (int b = 0; b < 256; b++) {
        squares += (double)counts[b] * (b - mean) * (b - mean);
    }
    double deviation = sqrt(squares / (double)n);
    for (int b = 0; b < 256; b++) {
        out[b] = (float)((b - mean) / (deviation > 0 ? deviation : 1)); /* the deviation is 0 if all pixels are equal */
    }
}

void tr_normalise(tr_data *d)
{
    for (uint32_t c = 0; c < d->shape.channels; c++) {
        uint64_t counts[256] = {0};
        count_bytes(counts, d, c);
        fill_channel(d->normalised[c], counts);
    }
}
