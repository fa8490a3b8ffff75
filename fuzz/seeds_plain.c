/* Seeds of the targets whose input needs no codec: packs, recipes, .npy files. */
#include "base/bits.h"
#include "npy.h"
#include "plan/plan.h"
#include "seeds.h"

#include <string.h>

/* ---- packs ------------------------------------------------------------------------------------------------------------ */

static void write_packed(const char *name, unsigned mode, size_t n, size_t count, const void *bytes, size_t len)
{
    draft d = {.len = 0};
    add8(&d, mode);
    add32(&d, n - 1); /* the target adds 1, because no chunk is empty */
    add32(&d, count);
    add_bytes(&d, bytes, len);
    write_seed("unpack", name, d.bytes, d.len);
}

/* A mask of every `stride`th run of `run` elements, by every index part. */
static void write_mask(size_t n, size_t stride, size_t run)
{
    uint64_t *mask = fuzz_room(tg_words(n) * sizeof *mask, 0);
    uint8_t *bytes = fuzz_room(tg_bitmap_len(n), 0);
    for (size_t at = stride / 2; at < n; at += stride) {
        tg_mask_fill(mask, at, at + run < n ? at + run : n);
    }
    size_t count = (size_t)tg_mask_count(mask, n);
    for (size_t i = 0; i < tg_part_n; i++) {
        const tg_index_part *part = (const void *)tg_parts[i].part;
        if (tg_parts[i].stage == TG_STAGE_index && part->cell_max == 0) { /* the others write the same bitmap */
            uint8_t mode = 0;
            size_t len =
                (part->write_rans != NULL ? part->write_rans : part->write)(bytes, &mode, mask, NULL, n, count);
            char name[NAME_CAP];
            (void)snprintf(name, sizeof name, "%s_%zu_of_%zu", part->part.name, count, n);
            if (len < SEED_CAP / 4) {
                write_packed(name, mode, n, count, bytes, len);
            }
        }
    }
    free(bytes);
    free(mask);
}

/* Numbers of which the small ones are frequent, by every coded pack: as symbols, and as words. */
static void write_coded(size_t count, uint32_t base)
{
    size_t word_len = base == 2 ? 2 : 4;
    uint8_t *words = fuzz_room(count * word_len, 0);
    uint16_t *symbols = fuzz_room(count * sizeof *symbols, 0);
    for (size_t i = 0; i < count; i++) {
        uint32_t z = (uint32_t)((i + 1) * 0x9e3779b97f4a7c15u >> 33);
        symbols[i] = (uint16_t)((z & z >> 7 & z >> 13) % base);
        for (size_t b = 0; b < 2; b++) {
            words[word_len * i + b] = (uint8_t)(symbols[i] >> 8 * b);
        }
        words[word_len * (i + 1) - 1] |= 0x3f;
    }
    for (size_t i = 0; i < tg_part_n; i++) {
        const tg_symbol_part *part = (const void *)tg_parts[i].part;
        if (tg_parts[i].stage != TG_STAGE_symbol || (!part->codes_symbols && !part->codes_words)) {
            continue;
        }
        double params[TG_PARAM_CAP] = {part->part.param_n > 0 ? part->part.params[0].standard : 0};
        tg_coding coding = {.base = part->codes_symbols ? base : 0, .word_len = (uint32_t)word_len, .params = params};
        coding.scratch = fuzz_room((size_t)part->scratch_len(params), 0);
        uint8_t *bytes = fuzz_room((size_t)tg_plain_len(count, &coding) + 1, 0);
        const void *all = part->codes_symbols ? (const void *)symbols : (const void *)words;
        size_t len = tg_coded_write(bytes, all, count, part, &coding);
        char name[NAME_CAP];
        (void)snprintf(name, sizeof name, "%s_%zu_below_%u", part->part.name, count, base);
        write_packed(name, 0, count, count, bytes, len);
        free(bytes);
        free(coding.scratch);
    }
    free(symbols);
    free(words);
}

void write_packs(void)
{
    write_coded(1, 2);
    write_coded(700, 2);
    write_coded(700, 9);
    write_coded(900, 257);
    write_mask(1, 1, 1);
    write_mask(64, 3, 1);
    write_mask(65, 40, 20);
    write_mask(1000, 90, 1);
    write_mask(5000, 2500, 900);
    write_mask(20000, 1999, 1);
    write_mask(TG_CHUNK, 50021, 1);
    write_mask(TG_CHUNK, 100000, 77);
    write_packed("rice_bit_behind_end", 0, 8, 1, (const uint8_t[]){0x05}, 1);
    write_packed("rice_byte_behind_end", 0, 8, 1, (const uint8_t[]){0x01, 0x00}, 2);
    write_packed("rice_without_end", 0, 8, 1, (const uint8_t[]){0xff}, 1);
    write_packed("rice_beyond_n", 0, 1, 1, (const uint8_t[]){0x01}, 1);
    write_packed("rice_widest", TG_MODE_RICE_MAX, TG_CHUNK, 1, (const uint8_t[]){0xfe, 0xff, 0x07}, 3);
    write_packed("rice_too_wide", TG_MODE_RICE_MAX + 1, TG_CHUNK, 1, (const uint8_t[]){0xfe, 0xff, 0x0f}, 3);
    write_packed("runs_long_number", TG_MODE_RUNS, 8, 3, (const uint8_t[]){0x82, 0, 2}, 3);
    write_packed("runs_too_long_number", TG_MODE_RUNS, 8, 3, (const uint8_t[]){0x82, 0x80, 0x80, 1, 2}, 5);
    write_packed("runs_that_touch", TG_MODE_RUNS, 8, 3, (const uint8_t[]){2, 0, 0, 1}, 4);
    write_packed("runs_beyond_n", TG_MODE_RUNS, 8, 7, (const uint8_t[]){2, 6}, 2);
    write_packed("runs_half_a_pair", TG_MODE_RUNS, 8, 3, (const uint8_t[]){2}, 1);
    write_packed("bitmap_bit_behind_end", TG_MODE_BITMAP, 3, 3, (const uint8_t[]){13}, 1);
    write_packed("places_in_bytes", TG_MODE_ADACOMP8, 120, 4, (const uint8_t[]){0x44, 0x89, 0x02, 0x49, 0x81}, 5);
    write_packed("places_in_pairs", TG_MODE_ADACOMP16, 900, 2, (const uint8_t[]){4, 0x40, 0, 0, 9, 0x80}, 6);
    write_packed("places_of_no_code", TG_MODE_ADACOMP8, 120, 1, (const uint8_t[]){0xc4}, 1);
    write_packed("places_and_a_skip", TG_MODE_ADACOMP8, 120, 1, (const uint8_t[]){0x44, 0x00}, 2);
    write_packed("every_but_one", TG_MODE_EVERY, 3, 2, NULL, 0);
    write_packed("one_more_than_every", TG_MODE_EVERY, 3, 4, NULL, 0);
}

/* ---- recipes ---------------------------------------------------------------------------------------------------------- */

void write_recipes(void)
{
    static const char *const texts[] = {
        "fp32",
        "dense",
        "dense@1",
        "ef-topk@0.05,scope=model",
        "random-k",
        "random-block@0.25+bf16",
        "ef+topk@0.01+fp16",
        "bitmap+bf16+topk@ratio=0.5,coords=shared,scope=model+ef",
        "threshold@1e-30+fp32+gaps+bits",
        "threshold@1e20",
        "co3",
        "co3@fp8@e4m3",
        "fp4+huffman@model",
        "orq@9+huffman@model",
        "fp16+rans",
        "topk@0.1+fp16+rans",
        "fp8+lossless",
        "bf16+lossless",
        "fp32+zstd@9",
        "threshold@0",
        "threshold@-0",
        "threshold",
        "randomk@0.1,unbiased=yes,coords=own",
        "ef+randomk@0.1,unbiased=yes",
        "randomblock@1,coords=auto",
        "topk@0.30000000000000004",
        "topk@1e-300",
        "topk@0",
        "topk@1.5",
        "topk@nan",
        "topk@0.1,0.2",
        "topk@0.1,ratio=0.2",
        "topk@scope=planet",
        "topk@",
        "topk+randomk",
        "all+bitmap",
        "+",
        "fp32+",
        "fp8",
        "adacomp@conv=64,other=1000",
        "adabins@auto,weight=3+sign@scale=meanmax+adacomp8",
        "adabins@5e1+sign+adacomp16",
        "adabins@0.5",
        "topk@0.1\n+fp16",
        "\033[2Jtopk",
        "",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char name[NAME_CAP];
        (void)snprintf(name, sizeof name, "text_%02zu", i);
        write_seed("recipe", name, texts[i], strlen(texts[i]));
    }
    char preset[600] = "ef-topk@0."; /* longer than any recipe may be */
    memset(preset + strlen(preset), '1', sizeof preset - 12);
    write_seed("recipe", "too_long", preset, strlen(preset));
}

/* ---- .npy files ------------------------------------------------------------------------------------------------------- */

static void write_array(const char *name, tg_dtype dtype, const uint64_t *dims, uint32_t dim_n, size_t element_n)
{
    uint8_t header[CLI_NPY_HEADER_CAP];
    size_t header_len = cli_npy_header(header, dtype, dims, dim_n);
    draft d = {.len = 0};
    add_bytes(&d, header, header_len);
    for (size_t i = 0; i < element_n * tg_dtype_len(dtype); i++) {
        add8(&d, (unsigned)i * 7);
    }
    write_seed("npy", name, d.bytes, d.len);
}

/* A file with this header text, which may hold a 0, and `data_len` bytes after it. */
static void write_text_array(const char *name, unsigned version, const char *text, size_t text_len, size_t data_len)
{
    draft d = {.len = 0};
    add_bytes(&d, "\x93NUMPY", 6);
    add8(&d, version);
    add8(&d, 0);
    add16(&d, text_len);
    if (version > 1) {
        add16(&d, 0);
    }
    add_bytes(&d, text, text_len);
    for (size_t i = 0; i < data_len; i++) {
        add8(&d, (unsigned)i);
    }
    write_seed("npy", name, d.bytes, d.len);
}

void write_arrays(void)
{
    static const uint64_t ones[CLI_NPY_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    write_array("vector", TG_FP32, (const uint64_t[]){5}, 1, 5);
    write_array("matrix", TG_FP16, (const uint64_t[]){3, 4}, 2, 12);
    write_array("scalar", TG_FP32, NULL, 0, 1);
    write_array("empty", TG_FP32, (const uint64_t[]){7, 0, UINT64_MAX}, 3, 0);
    write_array("most_dimensions", TG_FP16, ones, CLI_NPY_DIMS, 1);
    write_array("too_short", TG_FP32, (const uint64_t[]){5}, 1, 4);
    write_array("overflow", TG_FP32, (const uint64_t[]){UINT64_MAX, 2}, 2, 0);
    write_array("overflow_to_zero", TG_FP32, (const uint64_t[]){UINT64_C(1) << 32, UINT64_C(1) << 32}, 2, 0);
    write_array("overflow_bytes", TG_FP32, (const uint64_t[]){UINT64_C(1) << 62}, 1, 0);
#define TEXT_ARRAY(name, version, text, data_len) write_text_array(name, version, text, sizeof text - 1, data_len)
    TEXT_ARRAY("other_order", 1, "{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}", 8);
    TEXT_ARRAY("version_2", 2, "{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }\n", 4);
    TEXT_ARRAY("version_3", 3, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }\n", 8);
    TEXT_ARRAY("version_4", 4, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", 4);
    TEXT_ARRAY("column_major", 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 16);
    TEXT_ARRAY("big_endian", 1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }", 4);
    TEXT_ARRAY("structured", 1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,), }", 4);
    TEXT_ARRAY("not_a_tuple", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", 4);
    TEXT_ARRAY("leading_zero", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (01,), }", 4);
    TEXT_ARRAY("negative", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", 4);
    TEXT_ARRAY("key_twice", 1, "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", 4);
    TEXT_ARRAY("key_missing", 1, "{'descr': '<f4', 'shape': (1,), }", 4);
    TEXT_ARRAY("more_behind", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x", 4);
    TEXT_ARRAY("zero_in_dtype", 1, "{'descr': '<f4\0x', 'fortran_order': False, 'shape': (1,), }", 4);
    TEXT_ARRAY("zero_in_key", 1, "{'descr\0x': '<f4', 'fortran_order': False, 'shape': (1,), }", 4);
    TEXT_ARRAY("escape_in_dtype", 1, "{'descr': '\033[2J', 'fortran_order': False, 'shape': (1,), }", 4);
#undef TEXT_ARRAY
}
