/* One bit for each element. */
#include "base/bits.h"
#include "base/bytes.h"
#include "pack/pack.h"

#include <string.h>

static uint64_t limit(uint64_t n, uint64_t count)
{
    (void)count;
    return n / 8 + 1;
}

static size_t write(uint8_t *out, uint8_t *mode, const uint64_t *mask, const uint32_t *list, size_t n, size_t count)
{
    (void)list;
    (void)count;
    *mode = TG_MODE_BITMAP;
    size_t len = tg_bitmap_len(n);
    for (size_t byte = 0; byte < len; byte++) {
        out[byte] = (uint8_t)(mask[byte / 8] >> byte % 8 * 8);
    }
    return len;
}

static bool read(uint64_t *mask, uint8_t mode, const uint8_t *bytes, size_t len, size_t n, size_t count)
{
    if (mode != TG_MODE_BITMAP || len != tg_bitmap_len(n)) {
        return false;
    }
    memset(mask, 0, ((n + 63) / 64) * sizeof *mask);
    for (size_t byte = 0; byte < len; byte++) {
        mask[byte / 8] |= (uint64_t)bytes[byte] << byte % 8 * 8;
    }
    if (n % 64 != 0 && mask[n / 64] >> n % 64 != 0) {
        return false;
    }
    return tg_mask_count(mask, n) == count;
}

const tg_index_part tg_index_bitmap = {
    .part = {.name = "bitmap", .summary = "one bit for each element"},
    .limit = limit,
    .write = write,
    .read = read,
};
