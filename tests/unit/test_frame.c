/* The frame reader is strict: it refuses every invalid frame, and then writes nothing. */
#include "support.h"

#include "base/bytes.h"
#include "frame/frame.h"
#include "kernels/hash.h"

#include <stdlib.h>
#include <string.h>

/* A small frame of two units, one of them with explicit indices, and its description. */
typedef struct sample {
    test_model model;
    tg_codec *codec;
    uint8_t *bytes;
    size_t len;
} sample;

static const uint64_t lens[] = {60, 9};

static sample make_sample(const char *recipe)
{
    sample s = {.model = test_model_new(lens, 2, TG_FP32)};
    test_random random = {11};
    test_model_fill(&s.model, &random);
    s.model.tensors[1].kind = TG_BIAS;
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 7;
    opt.describe = 1;
    MUST(tg_codec_new(&s.codec, recipe, s.model.tensors, 2, &opt, why));
    size_t cap = tg_encode_bound(s.codec);
    uint8_t *room = test_room(cap);
    MUST(tg_encode(&s.len, s.codec, room, cap, 4, (const void *const *)s.model.grads, why));
    s.bytes = test_room(s.len);
    memcpy(s.bytes, room, s.len);
    free(room);
    return s;
}

static void free_sample(sample *s)
{
    free(s->bytes);
    tg_codec_free(s->codec);
    test_model_free(&s->model);
}

static const char *const recipes[] = {"topk@0.1",
                                      "randomk@0.2+fp16",
                                      "ef+topk@0.2+bitmap",
                                      "bf16",
                                      "ef+adabins@20+sign@scale=meanmax",
                                      "adabins@60+sign+adacomp8",
                                      "adabins@60+sign+adacomp16",
                                      "sign",
                                      "orq@3,bucket=50",
                                      "linear@5",
                                      "topk@0.2+natural",
                                      "ternary",
                                      "fp4+huffman",
                                      "fp8+rans",
                                      "topk@0.2+fp4+rans",
                                      "bf16+lossless",
                                      "orq@9+zstd"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

/* Both readers refuse it with an error, and outputs keep every byte. */
static void must_refuse(sample *s, const uint8_t *bytes, size_t len)
{
    test_model out = test_model_new(lens, 2, TG_FP32), untouched = test_model_new(lens, 2, TG_FP32);
    test_random random = {12};
    test_model_fill(&untouched, &random);
    test_model_copy(&out, &untouched);
    tg_codec *c = NULL;
    tg_detail reason = {""};
    tg_status status = tg_codec_from_frame(&c, NULL, bytes, len, NULL, &reason);
    assert_true(status < 0 && c == NULL && reason.text[0] != '\0');
    reason.text[0] = '\0';
    assert_true(tg_decode(s->codec, out.grads, bytes, len, &reason) < 0 && reason.text[0] != '\0');
    assert_true(tg_decode_add(s->codec, (float *const *)out.grads, 1, bytes, len, NULL) < 0);
    assert_true(test_model_equal(&out, &untouched));
    tg_detail private = {""};
    assert_true(tg_decode_add_private(s->codec, (float *const *)out.grads, 1, bytes, len, &private) < 0);
    assert_string_equal(private.text, reason.text);
    test_model_free(&untouched);
    test_model_free(&out);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    for (int r = 0; r < RECIPE_N; r++) {
        sample s = make_sample(recipes[r]);
        for (size_t len = 0; len < s.len; len++) {
            uint8_t *cut = test_room(len);
            memcpy(cut, s.bytes, len);
            must_refuse(&s, cut, len);
            free(cut);
        }
        uint8_t *longer = test_room(s.len + 1);
        memcpy(longer, s.bytes, s.len);
        longer[s.len] = 0;
        must_refuse(&s, longer, s.len + 1);
        free(longer);
        free_sample(&s);
    }
}

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    for (int r = 0; r < RECIPE_N; r++) {
        sample s = make_sample(recipes[r]);
        for (size_t bit = 0; bit < 8 * s.len; bit++) {
            s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            must_refuse(&s, s.bytes, s.len);
            s.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        MUST(tg_decode(s.codec, s.model.grads, s.bytes, s.len, why));
        free_sample(&s);
    }
}

/* ---- frames whose checksum is right, so that something else must refuse them ------------------------------------------- */

/* Recomputes fingerprint and checksum of a frame whose pieces, headers and then chunks, are where they were. */
static void seal(uint8_t *bytes, size_t len, size_t front, const size_t *piece_lens, size_t piece_n)
{
    tg_put64(bytes + 40, tg_hash(bytes + TG_FRAME_HEADER, front - TG_FRAME_HEADER));
    uint64_t *hashes = test_room((piece_n + 1) * sizeof *hashes);
    hashes[0] = tg_hash(bytes, front);
    size_t at = front;
    for (size_t i = 0; i < piece_n; i++) {
        hashes[i + 1] = tg_hash(bytes + at, piece_lens[i]);
        at += piece_lens[i];
    }
    assert_int_equal(at + TG_FRAME_CHECKSUM, len);
    tg_put64(bytes + at, tg_hash_words(hashes, piece_n + 1));
    free(hashes);
}

/* Changes of every byte of header, description, headers of chunks and first chunk, with all hashes put right: either refused, or what
 * comes out has the claimed number of elements. A sanitizer watches. */
static void sealed_damage_is_survived(void **state)
{
    (void)state;
    sample s = make_sample("topk@0.1");
    size_t front = TG_FRAME_HEADER + tg_get32(s.bytes + 20);
    size_t pieces[] = {6, s.len - front - TG_FRAME_CHECKSUM - 42, 36};
    uint8_t *bytes = test_room(s.len);
    memcpy(bytes, s.bytes, s.len);
    seal(bytes, s.len, front, pieces, 3);
    assert_memory_equal(bytes, s.bytes, s.len); /* the test seals as the library does */
    static const uint8_t changes[] = {1, 2, 3, 4, 7, 8, 16, 32, 64, 127, 128, 255};
    size_t accepted = 0;
    for (size_t at = 0; at < front + pieces[0] + pieces[1]; at++) {
        for (size_t k = 0; k < sizeof changes; k++) {
            memcpy(bytes, s.bytes, s.len);
            bytes[at] ^= changes[k];
            seal(bytes, s.len, front, pieces, 3);
            tg_codec *c = NULL;
            tg_frame_info info;
            if (tg_codec_from_frame(&c, &info, bytes, s.len, NULL, NULL) == TG_OK) {
                accepted++;
                assert_int_equal(info.header_len + info.payload_len, s.len);
            }
            tg_codec_free(c);
        }
    }
    assert_true(accepted > 0); /* names, kinds, seeds and values may be anything */
    free(bytes);
    free_sample(&s);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    sample s = make_sample("topk@0.1");
    tg_codec *c = NULL;
    void *const *out = s.model.grads;
    s.bytes[4] = 9;
    MUST_FAIL(TG_E_VERSION, "version 9", tg_decode(s.codec, out, s.bytes, s.len, why));
    MUST_FAIL(TG_E_VERSION, "version 9", tg_codec_from_frame(&c, NULL, s.bytes, s.len, NULL, why));
    s.bytes[4] = 3; /* the version before */
    MUST_FAIL(TG_E_VERSION, "version 3, and this library reads version 4",
              tg_decode(s.codec, out, s.bytes, s.len, why));
    s.bytes[4] = TG_FRAME_VERSION;
    s.bytes[0] = 'X';
    MUST_FAIL(TG_E_FRAME, "not a Tersegrad frame", tg_decode(s.codec, out, s.bytes, s.len, why));
    s.bytes[0] = 'T';
    MUST_FAIL(TG_E_FRAME, "header says", tg_decode(s.codec, out, s.bytes, s.len - 1, why));
    MUST_FAIL(TG_E_FRAME, "inside its header", tg_decode(s.codec, out, s.bytes, 50, why));
    s.bytes[s.len - 1] ^= 1;
    MUST_FAIL(TG_E_FRAME, "checksum", tg_decode(s.codec, out, s.bytes, s.len, why));
    s.bytes[s.len - 1] ^= 1;
    assert_null(c);
    free_sample(&s);
}

/* A frame for other tensors, another recipe, another seed. */
static void foreign_frames_are_refused(void **state)
{
    (void)state;
    sample s = make_sample("topk@0.1");
    uint64_t other_lens[] = {60, 10};
    test_model other = test_model_new(other_lens, 2, TG_FP32), halves = test_model_new(lens, 2, TG_FP16);
    tg_options opt = TG_OPTIONS_INIT, seeded = TG_OPTIONS_INIT;
    opt.has_seed = seeded.has_seed = 1;
    opt.seed = 7;
    seeded.seed = 8;
    const struct {
        const char *recipe;
        const test_model *model;
        const tg_options *opt;
    } cases[] = {{"topk@0.1", &other, &opt},
                 {"topk@0.1", &halves, &opt},
                 {"topk@0.2", &s.model, &opt},
                 {"topk@0.1+fp16", &s.model, &opt},
                 {"topk@0.1", &s.model, &seeded}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, cases[i].recipe, cases[i].model->tensors, 2, cases[i].opt, why));
        MUST_FAIL(TG_E_MISMATCH, "made for other tensors", tg_decode(c, cases[i].model->grads, s.bytes, s.len, why));
        tg_codec_free(c);
    }
    /* Without a description only a codec of the same kind can read it. */
    tg_codec *c = NULL;
    tg_options plain = opt;
    MUST(tg_codec_new(&c, "topk@0.1", s.model.tensors, 2, &plain, why));
    size_t cap = tg_encode_bound(c), len = 0;
    uint8_t *room = test_room(cap);
    MUST(tg_encode(&len, c, room, cap, 0, (const void *const *)s.model.grads, why));
    assert_true(len < s.len);
    tg_codec *none = NULL;
    MUST_FAIL(TG_E_MISMATCH, "does not describe itself", tg_codec_from_frame(&none, NULL, room, len, NULL, why));
    MUST(tg_decode(c, s.model.grads, room, len, why));
    MUST(tg_decode(s.codec, s.model.grads, room, len, why));
    free(room);
    tg_codec_free(c);
    test_model_free(&halves);
    test_model_free(&other);
    free_sample(&s);
}

/* A short frame that claims a huge model must not make the reader allocate memory or draw indices for it. */
static void refuse_bomb(const char *text, uint8_t select_id, uint64_t n, const char *sentence)
{
    uint8_t bytes[512] = {'T', 'G', 'F', 'R', TG_FRAME_VERSION, 7};
    size_t text_len = strlen(text);
    bytes[TG_FRAME_HEADER] = 1; /* has a seed */
    uint8_t *at = bytes + TG_FRAME_HEADER + 9;
    tg_put16(at, 1); /* recipes */
    tg_put16(at + 2, (uint16_t)text_len);
    memcpy(at + 4, text, text_len);
    at += 4 + text_len;
    const uint8_t ids[] = {1, select_id, 1, 2, 1};
    memcpy(at, ids, 5);
    tg_put32(at + 5, 1); /* tensors */
    tg_put16(at + 9, 4);
    memcpy(at + 11, "huge", 4);
    at[15] = TG_DENSE;
    at[16] = TG_FP32;
    tg_put16(at + 17, 0);
    at[19] = 1;
    tg_put64(at + 20, n);
    size_t front = (size_t)(at + 28 - bytes), len = front + TG_FRAME_CHECKSUM;
    tg_put32(bytes + 16, 1);
    tg_put32(bytes + 20, (uint32_t)(front - TG_FRAME_HEADER));
    tg_put64(bytes + 24, len);
    seal(bytes, len, front, NULL, 0);
    tg_codec *c = NULL;
    MUST_FAIL(TG_E_FRAME, sentence, tg_codec_from_frame(&c, NULL, bytes, len, NULL, why));
    assert_null(c);
}

static void bombs_are_refused(void **state)
{
    (void)state;
    refuse_bomb("threshold@1+fp32", 3, UINT64_C(1) << 59, "cannot hold them");
    refuse_bomb("fp32", 1, 1000, "cannot hold them");
    refuse_bomb("randomk@1,coords=shared+fp32", 4, UINT64_C(1) << 30, "cannot hold them");
    refuse_bomb("randomblock@1e-300,coords=shared+fp32", 5, UINT64_C(1) << 59, "no real one does");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_truncation_is_refused), cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(sealed_damage_is_survived),   cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(foreign_frames_are_refused),  cmocka_unit_test(bombs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
