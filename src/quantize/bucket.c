/* See bucket.h. */
#include "quantize/bucket.h"

#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

bool tg_bucket_check_finite(const tg_bucket *b, uint32_t side_len, uint32_t len)
{
    if (b->is_finite || tg_all_finite(b->values, b->n)) {
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

/* The sum by leaves of value - mean, or of its square. */
static double sum_deviations(const tg_bucket *b, double mean, bool squared)
{
    tg_tree leaves;
    leaves.n = 0;
    for (size_t at = 0; at < b->n; at += TG_SUM_LEAF) {
        double parts[TG_SUM_PARTS] = {0};
        for (size_t i = at; i < b->n && i < at + TG_SUM_LEAF; i++) {
            double deviation = (double)b->values[i] - mean;
            parts[i % TG_SUM_PARTS] += squared ? deviation * deviation : deviation;
        }
        tg_tree_add(&leaves, tg_fold(parts));
    }
    return tg_tree_sum(&leaves);
}

const tg_bucket *tg_bucket_clip(tg_bucket *clipped, const tg_bucket *b, double clip)
{
    if (clip == 0) {
        return b;
    }
    double mean = sum_deviations(b, 0, false) / (double)b->n;
    double variance = sum_deviations(b, mean, true) / (double)b->n;
    float limit = (float)fmin(clip * sqrt(variance), (double)3.4028235e38f);
    for (size_t i = 0; i < b->n; i++) {
        float value = b->values[i];
        b->clipped[i] = value > limit ? limit : value < -limit ? -limit : value;
    }
    *clipped = *b;
    clipped->values = b->clipped;
    return clipped;
}
