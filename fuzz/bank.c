/* Sound frames of every recipe. */
#include "bank.h"

#include "kernels/hash.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

enum { GUARD = 64, GUARD_FILL = 0x5a, TENSOR_N = 5, CASE_MAX = 160, TEXT_CAP = 128 };

/* ---- recipes ----------------------------------------------------------------------------------------------------------- */

/* Every select part in both scopes and all ways to know coordinates; every quantizer in every form; every pack with every
 * quantizer that it changes the bytes of. Presets are added, and recipes for parts of the table that are not named here. */
static const char *const small_recipes[] = {
    "fp32",
    "fp16",
    "bf16",
    "topk@0.1+fp32",
    "ef+topk@0.1+fp16",
    "topk@0.2,scope=model+bf16",
    "topk@0.3+fp16+bitmap",
    "ef+topk@0.1,coords=shared+fp16",
    "topk@0.1+fp16+rans",
    "topk@0.3,scope=model+fp32+rans",
    "topk@0.1+fp16+lossless",
    "topk@0.1+fp32+zstd",
    "threshold@0.4+fp32",
    "threshold@0+fp16",
    "threshold@100+fp16",
    "ef+threshold@1,scope=model+bf16+bitmap",
    "randomk@0.2+fp16",
    "randomk@0.2,coords=own+fp32",
    "randomk@0.2,unbiased=yes,scope=model+bf16",
    "randomblock@0.2+fp16",
    "randomblock@0.2,coords=own,scope=model+bf16",
    "adabins@20+fp16",
    "adabins@20,scope=model+sign@scale=meanmax",
    "ef+adabins@7+sign@scale=meanmax+adacomp8",
    "adabins@50+sign+adacomp16",
    "adabins@20+sign+rans",
    "sign",
    "sign@scale=one",
    "ef+sign+huffman",
    "sign+rans",
    "topk@0.2+sign+zstd",
    "bingrad@b,bucket=30",
    "bingrad@pb,bucket=30",
    "ef+bingrad@zero,bucket=30+rans",
    "orq@2,bucket=20,levels=exact",
    "orq@3,bucket=20+huffman",
    "orq@5,bucket=20",
    "orq@9,bucket=40,half=yes",
    "orq@17,bucket=40,levels=exact+rans",
    "topk@0.3+orq@9+zstd",
    "linear@2,bucket=16",
    "linear@16,bucket=16",
    "linear@256+huffman",
    "linear@256+rans",
    "randomk@0.3+linear@7",
    "qsgd@1",
    "qsgd@4,bucket=16+huffman",
    "qsgd@16,norm=max+rans",
    "qsgd@255+zstd",
    "ternary",
    "ternary@bucket=16+rans",
    "topk@0.3+ternary+huffman",
    "natural",
    "natural+huffman",
    "natural+rans",
    "natural+zstd",
    "fp4",
    "fp4+huffman",
    "fp4+huffman@model",
    "fp4+rans",
    "topk@0.3+fp4+zstd",
    "fp8",
    "fp8@e4m3+huffman",
    "fp8+huffman@model",
    "topk@0.2+fp8@e4m3+rans",
    "randomblock@0.4+fp8+zstd",
    "momentum+topk@0.1+fp16",
    "fp32+lossless",
    "fp16+lossless",
    "bf16+lossless",
    "fp32+zstd",
    "bf16+zstd@9",
};

/* More than one block of 4,096 elements, and enough symbols for several streams. */
static const char *const middle_recipes[] = {"fp4+huffman", "ternary+rans", "topk@0.02+fp16", "qsgd@16",
                                             "adabins@64+sign+adacomp8"};

/* More than one chunk, at little cost. */
static const char *const large_recipes[] = {
    "topk@0.0003+fp16",        "topk@0.0003,scope=model+fp16+rans", "randomblock@0.0005+bf16",
    "threshold@4+fp32+bitmap", "adabins@9000+sign+adacomp16",       "randomk@0.0005+fp4+huffman"};

enum {
    SMALL_N = sizeof small_recipes / sizeof *small_recipes,
    MIDDLE_N = sizeof middle_recipes / sizeof *middle_recipes,
    LARGE_N = sizeof large_recipes / sizeof *large_recipes
};

static const uint64_t small_dims[TENSOR_N] = {90, 37, 0, 1, 130};
static const uint64_t middle_dims[TENSOR_N] = {9000, 37, 0, 1, 5000};
static const uint64_t large_dims[TENSOR_N] = {600, TG_CHUNK + 100, 0, 1, TG_CHUNK};

typedef struct row {
    char recipe[TEXT_CAP];
    const uint64_t *dims;
} row;

static struct {
    row rows[CASE_MAX];
    size_t n, small_n;
    fuzz_bank_case cases[CASE_MAX];
} bank;

static void add_rows(const char *const *recipes, size_t n, const uint64_t *dims)
{
    for (size_t i = 0; i < n; i++) {
        PROMISE(bank.n < CASE_MAX, "the bank has room for all recipes");
        (void)snprintf(bank.rows[bank.n].recipe, TEXT_CAP, "%s", recipes[i]);
        bank.rows[bank.n++].dims = dims;
    }
}

/* Lowrank and LGC have exchanges of their own, and no frame of the whole model. */
static bool has_frame(const char *recipe)
{
    return strstr(recipe, "lowrank") == NULL && strstr(recipe, "autoencoder") == NULL;
}

/* Whether a recipe names a part: at its start or after '+', not inside another name or as the value of a parameter. */
static bool has_part(const char *recipe, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = recipe; at != NULL; at = strchr(at, '+')) {
        at += at != recipe;
        if (strncmp(at, name, len) == 0 && (at[len] == '\0' || at[len] == '+' || at[len] == '@')) {
            return true;
        }
    }
    return false;
}

/* Whether the bank has frames of a part, or need not have them: defaults are in every frame, exchanges of their own in none. */
static bool is_covered(const tg_part_info *part)
{
    static const char *const defaults[] = {"none", "all", "gaps", "bits"};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        if (strcmp(part->name, defaults[i]) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < bank.n; i++) {
        if (has_part(bank.rows[i].recipe, part->name)) {
            return true;
        }
    }
    return !has_frame(part->name);
}

/* Adds the recipe BEFORE NAME AFTER if it is accepted: with the defaults of the part, or with a main value if it needs one. */
static void add_composed(const char *name, const char *before, const char *after)
{
    static const char *const values[] = {"", "@0.5", "@1", "@16"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char text[TEXT_CAP], canonical[TG_RECIPE_CAP];
        const char *recipe = text;
        int len = snprintf(text, sizeof text, "%s%s%s%s", before, name, values[i], after);
        if (len < TEXT_CAP && tg_recipe_canonical(canonical, recipe, NULL) == TG_OK) {
            add_rows(&recipe, 1, small_dims);
            return;
        }
    }
}

/* Adds recipes for a part that the lists above do not name, such as a new one: those of its stage that are accepted. */
static void compose_rows(const tg_part_info *part)
{
    static const struct {
        const char *stage, *before, *after;
    } forms[] = {
        {"feedback", "", "+topk@0.1+fp16"},
        {"feedback", "", "+sign"},
        {"select", "", "+fp16"},
        {"select", "ef+", "+sign"},
        {"quantize", "", ""},
        {"quantize", "ef+topk@0.3+", ""},
        {"pack (indices)", "topk@0.2+fp16+", ""},
        {"pack (indices)", "adabins@20+sign+", ""},
        {"pack (symbols)", "qsgd@16+", ""},
        {"pack (symbols)", "topk@0.3+fp16+", ""},
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(part->stage, forms[i].stage) == 0) {
            add_composed(part->name, forms[i].before, forms[i].after);
        }
    }
}

static void open_bank(void)
{
    if (bank.n > 0) {
        return;
    }
    add_rows(small_recipes, SMALL_N, small_dims);
    tg_part_info part;
    for (size_t i = 0; tg_part_list(&part, i, NULL) == TG_OK; i++) {
        if (strcmp(part.stage, "preset") == 0) {
            if (has_frame(part.expansion)) {
                add_rows(&part.name, 1, small_dims);
            }
        } else if (!is_covered(&part)) {
            compose_rows(&part);
            if (!is_covered(&part)) {
                (void)fprintf(stderr, "no recipe could be composed for '%s': add one to small_recipes\n", part.name);
            }
            PROMISE(is_covered(&part), "every part has a recipe in the bank");
        }
    }
    add_rows(middle_recipes, MIDDLE_N, middle_dims);
    bank.small_n = bank.n;
    add_rows(large_recipes, LARGE_N, large_dims);
}

size_t fuzz_bank_n(void)
{
    open_bank();
    return bank.n;
}

size_t fuzz_bank_small_n(void)
{
    open_bank();
    return bank.small_n;
}

/* ---- frames ------------------------------------------------------------------------------------------------------------ */

/* Mostly small values, a few large ones. */
static float gradient(uint64_t i)
{
    uint64_t z = (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z ^= z >> 31;
    float magnitude = (float)(z & 1023) / 1024.0f;
    return (z >> 11 & 1 ? -1.0f : 1.0f) * ((z >> 32) % 20 == 0 ? 4.0f + magnitude : magnitude / 4.0f);
}

static void fill(const tg_tensor *tensors, void *const *grads, uint64_t seed)
{
    for (size_t t = 0; t < TENSOR_N; t++) {
        size_t len = tg_dtype_len(tensors[t].dtype);
        for (uint64_t i = 0; i < tensors[t].dims[0]; i++) {
            float value = gradient(seed * 1000003 + t * 7919 + i);
            tg_narrow((uint8_t *)grads[t] + i * len, &value, tensors[t].dtype, 1);
        }
    }
}

static void encode(fuzz_bank_case *of, const row *from, const tg_tensor *tensors)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        tg_options options = TG_OPTIONS_INIT;
        options.has_seed = 1;
        options.seed = 7;
        options.describe = 1;
        options.rank = rank;
        tg_codec *c = NULL;
        tg_detail why = {""};
        if (tg_codec_new(&c, from->recipe, tensors, TENSOR_N, &options, &why) != TG_OK) {
            (void)fprintf(stderr, "%s: %s\n", from->recipe, why.text);
        }
        PROMISE(c != NULL, "a recipe of the bank suits its tensors");
        for (uint64_t step = 0; step < 2; step++) {
            size_t cap = tg_encode_bound(c), len = 0;
            uint8_t *frame = fuzz_room(cap, 0);
            fill(tensors, of->once, 2 * step + rank);
            PROMISE(tg_encode(&len, c, frame, cap, step, (const void *const *)of->once, NULL) == TG_OK,
                    "a gradient can be encoded");
            fuzz_bank_frame *kept = &of->frames[2 * rank + step];
            kept->bytes = fuzz_room(len, 0);
            kept->len = len;
            memcpy(kept->bytes, frame, len);
            free(frame);
        }
        tg_codec_free(c);
    }
    PROMISE(tg_codec_from_frame(&of->codec, NULL, of->frames[0].bytes, of->frames[0].len, NULL, NULL) == TG_OK,
            "a frame that was encoded can be opened");
}

static void *guarded(size_t len)
{
    uint8_t *room = fuzz_room(len + (size_t)2 * GUARD, GUARD_FILL);
    return room + GUARD;
}

const fuzz_bank_case *fuzz_bank_at(size_t index)
{
    static const tg_dtype dtypes[TENSOR_N] = {TG_FP32, TG_FP16, TG_FP32, TG_FP32, TG_BF16};
    static const tg_kind kinds[TENSOR_N] = {TG_DENSE, TG_CONV, TG_OTHER, TG_BIAS, TG_EMBEDDING};
    static const char *const names[TENSOR_N] = {"first", "second", "empty", "bias", "last"};
    open_bank();
    fuzz_bank_case *made = &bank.cases[index];
    if (made->codec != NULL) {
        return made;
    }
    tg_tensor tensors[TENSOR_N];
    made->once = fuzz_room(TENSOR_N * sizeof *made->once, 0);
    made->again = fuzz_room(TENSOR_N * sizeof *made->again, 0);
    made->sums = fuzz_room(TENSOR_N * sizeof *made->sums, 0);
    for (size_t t = 0; t < TENSOR_N; t++) {
        const uint64_t *dim = &bank.rows[index].dims[t];
        tensors[t] = (tg_tensor){.name = names[t], .dims = dim, .dim_n = 1, .kind = kinds[t], .dtype = dtypes[t]};
        made->once[t] = guarded((size_t)*dim * tg_dtype_len(dtypes[t]));
        made->again[t] = guarded((size_t)*dim * tg_dtype_len(dtypes[t]));
        made->sums[t] = guarded((size_t)*dim * sizeof(float));
    }
    encode(made, &bank.rows[index], tensors);
    for (size_t f = 0; f < FUZZ_BANK_FRAMES; f++) {
        PROMISE(tg_decode(made->codec, made->once, made->frames[f].bytes, made->frames[f].len, NULL) == TG_OK,
                "a frame that was encoded decodes");
        made->decoded[f] = fuzz_bank_hash(made, made->once);
    }
    return made;
}

const tg_recipe_row *fuzz_bank_recipe(size_t index)
{
    return fuzz_bank_at(index)->codec->layout->recipes;
}

/* ---- rooms --------------------------------------------------------------------------------------------------------------- */

static size_t room_len(const fuzz_bank_case *of, size_t t, bool in_fp32)
{
    const tg_layout *l = of->codec->layout;
    return (size_t)l->tensor_elements[t] * (in_fp32 ? sizeof(float) : tg_dtype_len(l->tensors[t].dtype));
}

void fuzz_bank_refill(const fuzz_bank_case *of, int once, int again, int sums)
{
    for (size_t t = 0; t < TENSOR_N; t++) {
        memset(of->once[t], once, room_len(of, t, false));
        memset(of->again[t], again, room_len(of, t, false));
        memset(of->sums[t], sums, room_len(of, t, true));
    }
}

static bool is_all(const uint8_t *bytes, size_t len, int fill_byte)
{
    return len == 0 || (bytes[0] == (uint8_t)fill_byte && memcmp(bytes, bytes + 1, len - 1) == 0);
}

bool fuzz_bank_untouched(const fuzz_bank_case *of, int once, int again, int sums)
{
    bool untouched = true;
    for (size_t t = 0; t < TENSOR_N; t++) {
        untouched = untouched && is_all(of->once[t], room_len(of, t, false), once) &&
                    is_all(of->again[t], room_len(of, t, false), again) &&
                    is_all((const uint8_t *)of->sums[t], room_len(of, t, true), sums);
    }
    return untouched;
}

static void check_guard(const void *room, size_t len)
{
    const uint8_t *start = room;
    PROMISE(is_all(start - GUARD, GUARD, GUARD_FILL) && is_all(start + len, GUARD, GUARD_FILL),
            "nothing is written beside the elements of a tensor");
}

void fuzz_bank_check_guards(const fuzz_bank_case *of)
{
    for (size_t t = 0; t < TENSOR_N; t++) {
        check_guard(of->once[t], room_len(of, t, false));
        check_guard(of->again[t], room_len(of, t, false));
        check_guard(of->sums[t], room_len(of, t, true));
    }
}

uint64_t fuzz_bank_hash(const fuzz_bank_case *of, void *const *room)
{
    uint64_t hashes[2] = {0, 0}; /* of all before, and of the next */
    for (size_t t = 0; t < TENSOR_N; t++) {
        hashes[1] = tg_hash(room[t], room_len(of, t, false));
        hashes[0] = tg_hash_words(hashes, 2);
    }
    return hashes[0];
}
