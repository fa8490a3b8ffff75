/* What quantizers in buckets share; see bucket.h. */
#include "quantize/bucket.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

bool tg_bucket_admit(const tg_bucket *b, uint32_t side_len, uint32_t len)
{
    if (tg_all_finite(b->values, b->n)) {
        return true;
    }
    for (uint32_t at = 0; at < side_len; at += len) {
        if (len == 4) {
            tg_put_float(b->side + at, NAN);
        } else {
            tg_put16(b->side + at, tg_float_to_fp16(NAN));
        }
    }
    memset(b->symbols, 0, b->n * sizeof *b->symbols);
    return false;
}

tg_bucket tg_bucket_clip(const tg_bucket *b, double clip)
{
    tg_bucket clipped = *b;
    if (clip == 0) {
        return clipped;
    }
    double sum = 0, squares = 0;
    for (size_t i = 0; i < b->n; i++) {
        sum += (double)b->values[i];
    }
    double mean = sum / (double)b->n;
    for (size_t i = 0; i < b->n; i++) {
        double away = (double)b->values[i] - mean;
        squares += away * away;
    }
    float most = (float)fmin(clip * sqrt(squares / (double)b->n), (double)3.4028235e38f);
    for (size_t i = 0; i < b->n; i++) {
        float value = b->values[i];
        b->clipped[i] = value > most ? most : value < -most ? -most : value;
    }
    clipped.values = b->clipped;
    return clipped;
}

float tg_partition(float *a, size_t n, size_t m)
{
    size_t low = 0, high = n - 1;
    uint64_t draw = n; /* pivots from anywhere, so that no order of values is a bad one */
    while (low < high) {
        draw = draw * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t at = low + (size_t)((draw >> 33) % (high - low + 1));
        float pivot = a[at];
        a[at] = a[low];
        a[low] = pivot;
        size_t i = low, j = high;
        for (;;) {
            while (a[i] < pivot) {
                i++;
            }
            while (a[j] > pivot) {
                j--;
            }
            if (i >= j) {
                break;
            }
            float swap = a[i];
            a[i++] = a[j];
            a[j--] = swap;
        }
        if (m <= j) {
            high = j;
        } else {
            low = j + 1;
        }
    }
    return a[m];
}
