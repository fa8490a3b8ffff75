/* Adam; see adam.h. Uses no function of libm but the square root, which is correctly rounded on every machine. */
#include "autoencoder/adam.h"

#include <math.h>

static double power(double base, uint64_t exponent)
{
    double result = 1;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1) {
            result *= base;
        }
        base *= base;
    }
    return result;
}

void tg_adam_factors(float *step_size, float *root, double rate, uint64_t step)
{
    *step_size = (float)(rate / (1 - power(0.9, step)));
    *root = (float)sqrt(1 - power(0.999, step));
}

void tg_adam_step(float *weights, float *moments, const float *gradients, size_t n, double rate, uint64_t step)
{
    float *first = moments, *second = moments + n, step_size, root;
    tg_adam_factors(&step_size, &root, rate, step);
    for (size_t i = 0; i < n; i++) {
        float g = gradients[i];
        first[i] = 0.9f * first[i] + 0.1f * g;
        second[i] = 0.999f * second[i] + 0.001f * (g * g);
        weights[i] -= step_size * first[i] / (sqrtf(second[i]) / root + 1e-8f);
    }
}
