/* How often each symbol occurs. */
#include "kernels/kernels.h"
#include "pack/pack.h"

#include <string.h>

void tg_count_symbols(uint32_t *counts, const uint16_t *symbols, size_t count, uint32_t base)
{
    memset(counts, 0, base * sizeof *counts);
    tg_kernels_best()->coders.count(counts, symbols, count, base);
}
