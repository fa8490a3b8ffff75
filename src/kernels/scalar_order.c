/* Order statistics of buckets and lists of marked indices in plain C: part of the reference (scalar.c). */
#include "kernels/scalar.h"

#include "base/bits.h"

float tg_partition(float *a, size_t n, size_t m)
{
    size_t low = 0, high = n - 1;
    uint64_t draw = n; /* random pivots, so that no order of values is a bad case */
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

size_t tg_scalar_list_marks(uint32_t *list, const uint64_t *mask, uint32_t first, size_t n)
{
    size_t count = 0;
    for (size_t w = 0; w < tg_words(n); w++) {
        for (uint64_t word = mask[w]; word != 0; word &= word - 1) {
            list[count++] = first + (uint32_t)(w * 64 + tg_lowest(word));
        }
    }
    return count;
}

void tg_scalar_ends(float ends[2], const float *values, size_t n)
{
    ends[0] = ends[1] = values[0];
    for (size_t i = 1; i < n; i++) {
        ends[0] = values[i] < ends[0] ? values[i] : ends[0];
        ends[1] = values[i] > ends[1] ? values[i] : ends[1];
    }
}

tg_ordered tg_scalar_nth(float *scratch, const float *values, size_t n, size_t m)
{
    for (size_t i = 0; i < n; i++) {
        scratch[i] = values[i];
    }
    tg_ordered found = {.value = tg_partition(scratch, n, m)};
    for (size_t i = 0; i < n; i++) {
        found.less += values[i] < found.value ? 1 : 0;
        found.equal += values[i] == found.value ? 1 : 0;
    }
    return found;
}

void tg_scalar_split(float *out, const float *values, size_t n, const tg_ordered *at)
{
    float *less = out, *more = out + at->less + at->equal;
    for (size_t i = 0; i < n; i++) {
        if (values[i] < at->value) {
            *less++ = values[i];
        } else if (values[i] > at->value) {
            *more++ = values[i];
        }
    }
    for (size_t i = 0; i < at->equal; i++) {
        out[at->less + i] = at->value;
    }
}

uint64_t tg_scalar_ways_up(const float *values, double high, double scale, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (uint64_t)((high - (double)values[i]) * scale);
    }
    return sum;
}
