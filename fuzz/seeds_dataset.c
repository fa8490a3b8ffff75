/* Seeds of the target `dataset`: files of data sets, valid and damaged ones. */
#include "seeds.h"

#include <string.h>
#include <zlib.h>

enum { IMAGES, LABELS, CIFAR, GZIP, RECORD_LEN = 3073 };

static void add_big_endian(draft *d, uint32_t value)
{
    for (int shift = 24; shift >= 0; shift -= 8) {
        add8(d, value >> shift & 0xff);
    }
}

/* An idx file: the numbers of its header, then `data_len` elements. */
static draft idx_draft(unsigned kind, const uint32_t *numbers, size_t number_n, size_t data_len)
{
    draft d = {.len = 0};
    add8(&d, kind);
    for (size_t i = 0; i < number_n; i++) {
        add_big_endian(&d, numbers[i]);
    }
    for (size_t i = 0; i < data_len; i++) {
        add8(&d, (unsigned)i % 10);
    }
    return d;
}

static void write_idx(const char *name, unsigned kind, const uint32_t *numbers, size_t number_n, size_t data_len)
{
    draft d = idx_draft(kind, numbers, number_n, data_len);
    write_seed("dataset", name, d.bytes, d.len);
}

#define IDX(name, kind, data_len, ...) \
    write_idx(name, kind, (const uint32_t[]){__VA_ARGS__}, sizeof(uint32_t[]){__VA_ARGS__} / 4, data_len)

static void write_batch(const char *name, size_t len, unsigned label)
{
    draft d = {.len = 0};
    add8(&d, CIFAR);
    add8(&d, label);
    for (size_t i = 1; i < len; i++) {
        add8(&d, (unsigned)(i * 7) & 0xff);
    }
    write_seed("dataset", name, d.bytes, d.len);
}

/* `plain` as gzip, `times` over. It is stored, not compressed, because the bytes of a compressor may change between versions. */
static void write_gzip(const char *name, const void *plain, size_t plain_len, size_t times)
{
    uint8_t packed[SEED_CAP / 2];
    z_stream z = {.next_in = (Bytef *)(uintptr_t)plain,
                  .avail_in = (uInt)plain_len,
                  .next_out = packed,
                  .avail_out = sizeof packed};
    PROMISE(deflateInit2(&z, Z_NO_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK &&
                deflate(&z, Z_FINISH) == Z_STREAM_END && deflateEnd(&z) == Z_OK,
            "a seed can be packed");
    draft d = {.len = 0};
    add8(&d, GZIP);
    for (size_t i = 0; i < times; i++) {
        add_bytes(&d, packed, z.total_out);
    }
    write_seed("dataset", name, d.bytes, d.len);
}

void write_datasets(void)
{
    IDX("images", IMAGES, 24, 0x803, 2, 3, 4);
    IDX("images_one_short", IMAGES, 23, 0x803, 2, 3, 4);
    IDX("images_one_more", IMAGES, 25, 0x803, 2, 3, 4);
    IDX("images_none", IMAGES, 0, 0x803, 0, 28, 28);
    IDX("images_of_product_zero", IMAGES, 0, 0x803, 0x10000, 0x10000, 0x10000);
    IDX("images_too_wide", IMAGES, 257, 0x803, 1, 1, 257);
    IDX("labels", LABELS, 12, 0x801, 12);
    IDX("labels_too_many", LABELS, 12, 0x801, 0xffffffff);
    IDX("labels_as_images", IMAGES, 12, 0x801, 12);
    write_batch("record", RECORD_LEN, 9);
    write_batch("record_of_no_class", RECORD_LEN, 10);
    write_batch("record_cut_off", RECORD_LEN - 1, 0);
    draft d = idx_draft(IMAGES, (const uint32_t[]){0x803, 2, 3, 4}, 4, 24);
    write_gzip("gzip_images", d.bytes + 1, d.len - 1, 1);
    write_gzip("gzip_two_streams", d.bytes + 1, d.len - 1, 2);
    write_gzip("gzip_nothing", "", 0, 1);
}
