/* Writes the seeds of all fuzz targets: make_seeds DIRECTORY gives DIRECTORY/TARGET/NAME. The same bytes every time.
 * Valid inputs of every kind, so that a fuzzer starts deep in the code, and inputs that are damaged where a reader must check. */
#include "base/bytes.h"
#include "base/half.h"
#include "body_cases.h"
#include "frame/frame.h"
#include "seeds.h"
#include "worlds.h"

#include <string.h>

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

/* Two tensors in fp32 with the given numbers of elements; more that are empty or hold one element. */
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
    {"adacomp", "ef+adabins@50+sign@scale=meanmax", 400, 30, false, true, false},
    {"adacomp8", "ef+adabins@50,scope=model+sign@scale=meanmax+adacomp8", 400, 30, false, false, false},
    {"adacomp16", "adabins@60+sign+adacomp16", 3000, 1, false, false, false},
    {"fp4", "ef@decay=0.9+fp4", 90, 30, false, true, false},
    {"fp4_model", "fp4+huffman@model", 300, 30, false, true, false},
    {"fp8_huffman", "fp8@e4m3+huffman", 900, 30, false, false, false},
    {"fp8_rans", "fp8+rans", 900, 30, false, false, false},
    {"topk_rans", "ef+topk@0.05+fp4+rans", 3000, 70, false, true, false},
    {"ternary_rans", "ternary+rans", 3000, 70, false, false, false},
    {"lossless", "bf16+lossless", 900, 70, false, true, false},
    {"lossless_nonfinite", "fp32+lossless", 300, 2, false, false, true},
    {"zstd", "orq@9+zstd@1", 900, 70, false, false, false},
    {"zstd_words", "fp32+zstd", 300, 70, false, false, false},
    {"sign", "sign", 30, 5, false, false, false},
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
    {"bad_version", FROM_START, 4, 1, {1}},
    {"bad_flags", FROM_START, 5, 1, {15}},
    {"not_described", FROM_START, 5, 1, {6}},
    {"values_alone", FROM_START, 5, 1, {5}},
    {"zero_set", FROM_START, 6, 1, {1}},
    {"rank_beyond", FROM_START, 8, 4, {255, 255, 255, 255}},
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

static void add_body(draft *d, tg_codec *c, const tg_plan *plan, uint32_t slice, const tg_source *source)
{
    tg_body body = {.bytes = fuzz_room((size_t)tg_body_bound(plan, slice), 0), .hashes = c->hashes};
    PROMISE(c->executor->write(&body, c->run, plan, slice, slice + 1, source, NULL) == TG_OK, "a body is written");
    add_bytes(d, body.bytes, body.len);
    free(body.bytes);
}

/* A seed of the target `body`; body.c describes its layout. */
static void write_body(size_t index, uint32_t slice, bool has_values_alone, const tg_source *source)
{
    const fuzz_body_case *with = fuzz_body_case_at(index);
    tg_codec *leads = with->values, *c = has_values_alone ? with->values : with->both;
    unsigned step = 5;
    draft said = {.len = 0}, d = {.len = 0};
    PROMISE(leads->executor->select(leads->run, 0, step, source, NULL) == TG_OK, "coordinates are chosen");
    add_body(&said, leads, with->leader, 0, source);
    tg_body_view view = {.bytes = said.bytes, .chunks = leads->views};
    PROMISE(leads->executor->check(&view, leads->hashes, leads->run, with->leader, 0, said.len, NULL) == TG_OK,
            "what a leader says is sound");
    leads->executor->follow(leads->run, with->leader, 0, &view);
    PROMISE(c == leads || c->executor->select(c->run, 0, step, source, NULL) == TG_OK, "coordinates are chosen");
    add8(&d, (unsigned)index);
    add8(&d, has_values_alone);
    add8(&d, slice);
    add8(&d, step);
    add16(&d, said.len);
    add_bytes(&d, said.bytes, said.len);
    add_body(&d, c, c->plan, slice, source);
    char name[NAME_CAP];
    (void)snprintf(name, sizeof name, "case_%zu_slice_%u_%s", index, slice, has_values_alone ? "values" : "both");
    write_seed("body", name, d.bytes, d.len);
}

/* Gradients of all tensors, in their dtypes. */
static void **make_gradients(const tg_layout *layout)
{
    void **grads = fuzz_room(layout->tensor_n * sizeof *grads, 0);
    uint64_t at = 0;
    for (size_t t = 0; t < layout->tensor_n; t++) {
        tg_dtype dtype = layout->tensors[t].dtype;
        grads[t] = fuzz_room((size_t)layout->tensor_elements[t] * tg_dtype_len(dtype), 0);
        for (uint64_t i = 0; i < layout->tensor_elements[t]; i++, at++) {
            float value = gradient(at);
            if (dtype == TG_FP32) {
                ((float *)grads[t])[i] = value;
            } else {
                ((uint16_t *)grads[t])[i] = dtype == TG_FP16 ? tg_float_to_fp16(value) : tg_float_to_bf16(value);
            }
        }
    }
    return grads;
}

static void write_bodies(void)
{
    for (size_t i = 0; i < fuzz_body_case_n; i++) {
        const tg_codec *c = fuzz_body_case_at(i)->both, *values = fuzz_body_case_at(i)->values;
        void **grads = make_gradients(c->layout);
        tg_source source = {.grads = (const void *const *)grads};
        for (uint32_t slice = 0; slice < c->grid->slices; slice++) {
            write_body(i, slice, false, &source);
            if (slice == 0 && values->plan->units[0].coordinates != TG_AT_INDICES) {
                write_body(i, slice, true, &source);
            }
        }
        for (size_t t = 0; t < c->layout->tensor_n; t++) {
            free(grads[t]);
        }
        free(grads);
    }
    /* A leader's message without indices, of three units, after other messages had some. */
    static const uint8_t nothing_led[] = {FUZZ_BODY_CASE_LED,           1, 0, 5, 3 * TG_INDEX_HEADER, 0,
                                          [3 * TG_INDEX_HEADER + 5] = 0};
    write_seed("body", "nothing_led", nothing_led, sizeof nothing_led);
}

/* ---- states ----------------------------------------------------------------------------------------------------------- */

/* A seed of the target `state`; state.c describes its layout. `loads` loads state_n states from `from` on. */
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
    {"bad_version", FROM_START, 4, 1, {1}},
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
    set_directory(arguments[1]);
    write_frames();
    write_bodies();
    write_packs();
    write_recipes();
    write_arrays();
    write_datasets();
    write_all_states();
    return 0;
}
