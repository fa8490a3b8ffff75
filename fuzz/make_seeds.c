/* Writes the seeds of all fuzz targets: make_seeds DIRECTORY gives DIRECTORY/TARGET/NAME. The same bytes every time.
 * Sound inputs of every kind, so that a fuzzer starts inside, and inputs that are damaged where a reader must look. */
#include "base/bits.h"
#include "base/bytes.h"
#include "body_cases.h"
#include "frame/frame.h"
#include "npy.h"
#include "support.h"
#include "worlds.h"

#include <string.h>
#include <sys/stat.h>

enum { SEED_CAP = 4096, NAME_CAP = 64, PATH_CAP = 1024 };

static const char *directory;

static void write_seed(const char *target, const char *name, const void *bytes, size_t len)
{
    char path[PATH_CAP];
    (void)snprintf(path, sizeof path, "%s/%s", directory, target);
    (void)mkdir(directory, 0777); /* either may be there already; if not, opening the file fails */
    (void)mkdir(path, 0777);
    (void)snprintf(path, sizeof path, "%s/%s/%s", directory, target, name);
    FILE *file = fopen(path, "wb");
    bool written = file != NULL && fwrite(bytes, 1, len, file) == len;
    written = file != NULL && fclose(file) == 0 && written;
    PROMISE(written && len < SEED_CAP, "a seed is small and can be written");
}

/* An input that is put together from pieces. */
typedef struct draft {
    uint8_t bytes[SEED_CAP];
    size_t len;
} draft;

static void add_bytes(draft *d, const void *bytes, size_t len)
{
    PROMISE(len <= sizeof d->bytes - d->len, "a seed is small");
    if (len > 0) {
        memcpy(d->bytes + d->len, bytes, len);
    }
    d->len += len;
}

static void add8(draft *d, unsigned value)
{
    add_bytes(d, &(uint8_t){(uint8_t)value}, 1);
}

static void add16(draft *d, size_t value)
{
    add8(d, (unsigned)value & 0xff);
    add8(d, (unsigned)(value >> 8) & 0xff);
}

static void add32(draft *d, size_t value)
{
    add16(d, value & 0xffff);
    add16(d, value >> 16);
}

/* ---- gradients -------------------------------------------------------------------------------------------------------- */

/* Mostly small numbers, a few large ones, some in runs; the same on every machine. */
static float gradient(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 31;
    float magnitude = (float)(z & 1023) / 1024.0f;
    bool large = z >> 20 & 1 ? (z >> 32) % 40 == 0 : i % 50 > 46;
    return (z >> 11 & 1 ? -1.0f : 1.0f) * (large ? 4.0f + magnitude : magnitude / 4.0f);
}

static void fill(float *out, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        out[i] = gradient(i);
    }
}

/* ---- frames ----------------------------------------------------------------------------------------------------------- */

/* Two tensors in fp32, whose elements are given; more that are empty or hold one element. */
typedef struct frame_case {
    const char *name, *recipe;
    uint64_t first, second;
    bool has_seed, odd_tensors, nonfinite;
} frame_case;

static const frame_case frame_cases[] = {
    {"dense_fp32", "fp32", 12, 5, false, true, false},
    {"dense_fp16", "fp16", 30, 3, false, false, false},
    {"dense_bf16", "bf16", 30, 3, true, false, false},
    {"nonfinite", "fp32", 10, 2, false, false, true},
    {"topk", "topk@0.1+fp16", 200, 20, false, true, false},
    {"topk_model", "ef+topk@0.05,scope=model+bf16", 300, 200, false, true, false},
    {"topk_shared", "ef+topk@0.1,coords=shared+fp16", 100, 30, true, false, false},
    {"threshold_every", "threshold@0+fp16", 20, 7, false, false, false},
    {"threshold_none", "threshold@100+fp16", 20, 7, false, false, false},
    {"threshold_bitmap", "threshold@0.2+fp16+bitmap", 100, 65, false, false, false},
    {"two_chunks", "topk@0.0001,scope=model+fp16", 100, TG_CHUNK, false, false, false},
    {"randomk", "randomk@0.1+fp16", 200, 30, true, true, false},
    {"randomk_own", "ef+randomk@0.1+fp16", 200, 30, false, false, false},
    {"randomk_unbiased", "randomk@0.1,unbiased=yes+fp32", 90, 30, true, false, false},
    {"randomblock", "randomblock@0.1+bf16", 200, 30, true, false, false},
    {"randomblock_model", "ef+randomblock@0.2,scope=model+fp16", 90, 60, true, true, false},
    {"randomblock_own", "randomblock@0.3+fp16", 100, 30, false, false, false},
};

/* The frame of a case, as tg_encode writes it. */
static draft encode(const frame_case *of)
{
    static const uint64_t shape[] = {2, 3, 0};
    const tg_tensor tensors[] = {
        {.name = "first", .dims = &of->first, .dim_n = 1, .kind = TG_DENSE, .dtype = TG_FP32},
        {.name = "second", .dims = &of->second, .dim_n = 1, .kind = TG_RECURRENT, .dtype = TG_FP32},
        {.name = "empty", .dims = shape, .dim_n = 3, .kind = TG_CONV, .dtype = TG_FP16},
        {.name = "scalar", .dim_n = 0, .kind = TG_NORM, .dtype = TG_BF16},
    };
    float *first = fuzz_room(of->first * sizeof *first, 0), *second = fuzz_room(of->second * sizeof *second, 0);
    fill(first, of->first);
    fill(second, of->second);
    if (of->nonfinite) {
        tg_put32((uint8_t *)first, 0x7f800000u);       /* infinity */
        tg_put32((uint8_t *)(first + 1), 0xffc00001u); /* NaN */
        tg_put32((uint8_t *)(first + 2), 0x80000000u); /* -0 */
    }
    uint16_t half = 0x3f80;
    const void *grads[] = {first, second, NULL, &half};
    tg_options options = TG_OPTIONS_INIT;
    options.describe = 1;
    options.has_seed = of->has_seed;
    options.seed = 12345;
    options.nonfinite = TG_NONFINITE_PASS;
    tg_codec *c = NULL;
    PROMISE(tg_codec_new(&c, of->recipe, tensors, of->odd_tensors ? 4 : 2, &options, NULL) == TG_OK, "a codec is made");
    draft d = {.len = 0};
    uint8_t *frame = fuzz_room(tg_encode_bound(c), 0);
    size_t len = 0;
    PROMISE(tg_encode(&len, c, frame, tg_encode_bound(c), 3, grads, NULL) == TG_OK, "a gradient is encoded");
    add_bytes(&d, frame, len);
    free(frame);
    tg_codec_free(c);
    free(second);
    free(first);
    return d;
}

/* Damage: `len` bytes at a place are replaced. Places count from the frame's start, its body's or its end. */
typedef enum place { FROM_START, FROM_BODY, FROM_END } place;

typedef struct damage {
    const char *name;
    place from;
    int at;
    size_t len;
    uint8_t bytes[8];
} damage;

static const damage frame_damages[] = {
    {"bad_magic", FROM_START, 0, 4, "TGST"},
    {"bad_version", FROM_START, 4, 1, {2}},
    {"bad_flags", FROM_START, 5, 1, {15}},
    {"not_described", FROM_START, 5, 1, {6}},
    {"values_alone", FROM_START, 5, 1, {5}},
    {"zero_set", FROM_START, 6, 1, {1}},
    {"slice_one_of_two", FROM_START, 12, 5, {1, 0, 0, 0, 2}},
    {"no_slices", FROM_START, 16, 1, {0}},
    {"description_too_long", FROM_START, 20, 4, {255, 255, 255, 255}},
    {"bad_length", FROM_START, 24, 1, {0}},
    {"other_step", FROM_START, 32, 1, {4}},
    {"bad_fingerprint", FROM_START, 40, 1, {0}},
    {"bad_checksum", FROM_END, -8, 1, {0}},
};

/* What only a frame whose checksum is right again can show. The description ends with the tensor "second". */
static const damage body_damages[] = {
    {"seed_flag", FROM_START, 48, 1, {2}},
    {"seed_without_flag", FROM_START, 49, 1, {1}},
    {"no_recipes", FROM_START, 57, 2, {0, 0}},
    {"many_recipes", FROM_START, 57, 2, {255, 255}},
    {"long_recipe", FROM_START, 59, 2, {255, 255}},
    {"name_with_escape", FROM_BODY, -16, 1, {27}},
    {"unknown_kind", FROM_BODY, -13, 1, {7}},
    {"unknown_dtype", FROM_BODY, -12, 1, {3}},
    {"recipe_not_there", FROM_BODY, -11, 1, {9}},
    {"many_dimensions", FROM_BODY, -9, 1, {65}},
    {"dimensions_missing", FROM_BODY, -9, 1, {8}},
    {"claims_2_to_40", FROM_BODY, -8, 8, {0, 0, 0, 0, 0, 1, 0, 0}},
    {"claims_2_to_63", FROM_BODY, -8, 8, {0, 0, 0, 0, 0, 0, 0, 128}},
    {"one_element_less", FROM_BODY, -8, 1, {19}},
    {"count_above_n", FROM_BODY, 0, 3, {255, 255, 255}},
    {"count_zero", FROM_BODY, 0, 3, {0, 0, 0}},
    {"mode_unknown", FROM_BODY, 3, 1, {35}},
    {"mode_bitmap", FROM_BODY, 3, 1, {32}},
    {"mode_runs", FROM_BODY, 3, 1, {33}},
    {"index_len_long", FROM_BODY, 4, 2, {255, 255}},
};

static void write_damaged_frame(const char *target, const draft *sound, const damage *what)
{
    draft d = *sound;
    size_t body_at = TG_FRAME_HEADER + tg_get32(d.bytes + 20);
    size_t from = what->from == FROM_START ? 0 : (what->from == FROM_BODY ? body_at : d.len);
    memcpy(d.bytes + (size_t)((int)from + what->at), what->bytes, what->len);
    write_seed(target, what->name, d.bytes, d.len);
}

static void write_frames(void)
{
    for (size_t i = 0; i < sizeof frame_cases / sizeof *frame_cases; i++) {
        draft d = encode(&frame_cases[i]);
        write_seed("frame", frame_cases[i].name, d.bytes, d.len);
        write_seed("frame_resealed", frame_cases[i].name, d.bytes, d.len);
    }
    draft sound = encode(&(frame_case){.recipe = "topk@0.1+fp16", .first = 60, .second = 20});
    for (size_t i = 0; i < sizeof frame_damages / sizeof *frame_damages; i++) {
        write_damaged_frame("frame", &sound, &frame_damages[i]);
    }
    for (size_t i = 0; i < sizeof body_damages / sizeof *body_damages; i++) {
        write_damaged_frame("frame_resealed", &sound, &body_damages[i]);
    }
    write_seed("frame", "cut_in_header", sound.bytes, TG_FRAME_HEADER - 1);
    write_seed("frame", "cut_in_body", sound.bytes, sound.len - TG_FRAME_CHECKSUM - 1);
    write_seed("frame_resealed", "one_byte_missing", sound.bytes, sound.len - 1);
    add8(&sound, 0);
    write_seed("frame_resealed", "one_byte_more", sound.bytes, sound.len);
}

/* ---- bodies ----------------------------------------------------------------------------------------------------------- */

static void add_body(draft *d, tg_codec *c, const tg_grid *grid, uint32_t slice, unsigned holds,
                     const tg_source *source)
{
    tg_body body = {.dst = fuzz_room((size_t)tg_body_bound(c, grid, slice, holds), 0)};
    PROMISE(tg_codec_write(c, &body, grid, slice, slice + 1, holds, source, NULL) == TG_OK, "a body is written");
    add_bytes(d, body.dst, body.len);
    free(body.dst);
}

/* A seed of the target `body`, which says how such an input is laid out. */
static void write_body(size_t index, uint32_t slice, unsigned holds, const tg_source *source)
{
    const fuzz_body_case *with = fuzz_body_case_at(index);
    tg_codec *c = with->codec;
    unsigned step = 5;
    draft said = {.len = 0}, d = {.len = 0};
    c->led_given = false;
    PROMISE(tg_codec_select(c, step, source, NULL) == TG_OK, "coordinates are chosen");
    add_body(&said, c, with->whole, 0, TG_HAS_INDICES, source);
    PROMISE(tg_body_read(c->views, c->view_hashes, c, with->whole, 0, TG_HAS_INDICES, said.bytes, said.len, NULL) ==
                TG_OK,
            "what a leader says is sound");
    tg_codec_take_led(c, with->whole, c->views);
    add8(&d, (unsigned)index);
    add8(&d, holds == TG_HAS_VALUES);
    add8(&d, slice);
    add8(&d, step);
    add16(&d, said.len);
    add_bytes(&d, said.bytes, said.len);
    add_body(&d, c, c->grid, slice, holds, source);
    char name[NAME_CAP];
    (void)snprintf(name, sizeof name, "case_%zu_slice_%u_%s", index, slice, holds == TG_HAS_VALUES ? "values" : "both");
    write_seed("body", name, d.bytes, d.len);
}

static void write_bodies(void)
{
    for (size_t i = 0; i < fuzz_body_case_n; i++) {
        const tg_codec *c = fuzz_body_case_at(i)->codec;
        float *flat = fuzz_room((size_t)c->flat_n * sizeof *flat, 0);
        fill(flat, c->flat_n);
        tg_source source = {.flat = flat};
        for (uint32_t slice = 0; slice < c->grid->slices; slice++) {
            write_body(i, slice, TG_HAS_INDICES | TG_HAS_VALUES, &source);
            if (slice == 0 && tg_codec_known(c, 0, TG_HAS_VALUES) != TG_KNOWN_TOLD) {
                write_body(i, slice, TG_HAS_VALUES, &source);
            }
        }
        free(flat);
    }
    /* A leader who says nothing, of three units, after others have said something. */
    static const uint8_t nothing_led[] = {FUZZ_BODY_CASE_LED,           1, 0, 5, 3 * TG_CHUNK_HEADER, 0,
                                          [3 * TG_CHUNK_HEADER + 5] = 0};
    write_seed("body", "nothing_led", nothing_led, sizeof nothing_led);
}

/* ---- packs ------------------------------------------------------------------------------------------------------------ */

static void write_packed(const char *name, unsigned mode, size_t n, size_t count, const void *bytes, size_t len)
{
    draft d = {.len = 0};
    add8(&d, mode);
    add32(&d, n - 1); /* the target adds the one back, as no chunk is empty */
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
        if (tg_parts[i].stage == TG_STAGE_index) {
            const tg_index_part *part = (const void *)tg_parts[i].part;
            uint8_t mode = 0;
            size_t len = part->write(bytes, &mode, mask, n, count);
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

static void write_packs(void)
{
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
    write_packed("every_but_one", TG_MODE_EVERY, 3, 2, NULL, 0);
    write_packed("one_more_than_every", TG_MODE_EVERY, 3, 4, NULL, 0);
}

/* ---- recipes ---------------------------------------------------------------------------------------------------------- */

static void write_recipes(void)
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

/* A file with this header text, which may hold a 0, and `data_len` bytes behind it. */
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

static void write_arrays(void)
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

/* ---- states ----------------------------------------------------------------------------------------------------------- */

/* A seed of the target `state`, which says how such an input is laid out: `loads` is given state_n states from `from`. */
static void write_states(const char *name, size_t loads, unsigned repairs, const fuzz_rank *from, size_t state_n,
                         const damage *what)
{
    draft d = {.len = 0};
    add8(&d, (unsigned)loads);
    add8(&d, repairs);
    add8(&d, (unsigned)state_n);
    for (size_t s = 0; s < state_n; s++) {
        add16(&d, from[s].saved_len);
        add_bytes(&d, from[s].saved, from[s].saved_len);
        if (what != NULL) {
            memcpy(d.bytes + d.len - from[s].saved_len + what->at, what->bytes, what->len);
        }
    }
    write_seed("state", name, d.bytes, d.len);
}

static const damage state_damages[] = {
    {"bad_version", FROM_START, 4, 1, {2}},
    {"bad_flag", FROM_START, 5, 1, {2}},
    {"step_without_flag", FROM_START, 5, 1, {0}},
    {"zero_set", FROM_START, 6, 1, {1}},
    {"rank_of_nobody", FROM_START, 16, 1, {9}},
    {"no_world", FROM_START, 20, 1, {0}},
    {"large_world", FROM_START, 20, 4, {255, 255, 255, 255}},
    {"bytes_behind_name", FROM_START, 39, 1, {1}},
    {"other_step", FROM_START, 40, 1, {77}},
    {"many_residuals", FROM_START, 48, 8, {255, 255, 255, 255, 255, 255, 255, 255}},
    {"residual_as_answer", FROM_START, 48, 1, {1}},
    {"zero_at_end_set", FROM_START, 71, 1, {1}},
    {"residual_nan", FROM_START, 72, 4, {1, 0, 192, 127}},
};

static void write_all_states(void)
{
    enum { AS_IT_IS = 0, REPAIRED = 3 };
    const fuzz_rank *ranks = fuzz_ranks();
    for (size_t i = 0; i < FUZZ_RANK_N; i++) {
        char name[NAME_CAP];
        (void)snprintf(name, sizeof name, "rank_%02zu_its_own", i);
        write_states(name, i, REPAIRED, &ranks[i], 1, NULL);
        (void)snprintf(name, sizeof name, "rank_%02zu_other_world", i);
        size_t base = i / 3 * 3; /* rank 0 of 1, then ranks 0 and 1 of 2 */
        write_states(name, i, REPAIRED, &ranks[i == base ? base + 1 : base], i == base ? 2 : 1, NULL);
    }
    write_states("as_it_is", 4, AS_IT_IS, &ranks[4], 1, NULL);
    write_states("of_another_exchange", 1, REPAIRED, &ranks[4], 2, NULL);
    write_states("of_one_rank_of_two", 0, REPAIRED, &ranks[1], 1, NULL);
    write_states("of_two_worlds", 3, REPAIRED, &ranks[3], 3, NULL);
    write_states("none", 0, REPAIRED, NULL, 0, NULL);
    for (size_t i = 0; i < sizeof state_damages / sizeof *state_damages; i++) {
        write_states(state_damages[i].name, 4, REPAIRED, &ranks[4], 2, &state_damages[i]);
    }
}

int main(int argument_n, char **arguments)
{
    if (argument_n != 2) {
        (void)fprintf(stderr, "usage: make_seeds DIRECTORY\n");
        return 1;
    }
    directory = arguments[1];
    write_frames();
    write_bodies();
    write_packs();
    write_recipes();
    write_arrays();
    write_all_states();
    return 0;
}
