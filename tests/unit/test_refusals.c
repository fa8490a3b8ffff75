/* Frames that are checked while they are summed: tg_decode_add_private and exchanges refuse what the strict reader refuses, with its
 * status and its sentence. A step that fails so has changed nothing. */
#include "world.h"

#include "base/bytes.h"
#include "exchange/exchange.h"
#include "kernels/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t changes[] = {1, 2, 8, 0x55, 0x80, 0xff};
enum { CHANGE_N = sizeof changes, CHECKSUM = 8 };

/* Writes the right checksum to a frame whose chunks can be found, so that something else must refuse it. */
static void seal(tg_codec *c, const tg_plan *plan, uint32_t slice, uint8_t *frame, size_t len)
{
    size_t front = TG_FRAME_HEADER + tg_get32(frame + 20), first = plan->grid->first[slice];
    tg_body_view view = {.bytes = frame + front, .chunks = c->views};
    if (c->executor->find(&view, c->run, plan, slice, len - front - CHECKSUM, NULL) == TG_OK) {
        (void)!c->executor->check(&view, c->hashes + 1, c->run, plan, slice, len - front - CHECKSUM, NULL);
        c->hashes[0] = tg_hash(frame, front);
        tg_put64(frame + len - CHECKSUM, tg_hash_words(c->hashes, 2 + plan->grid->first[slice + 1] - first));
    }
}

/* ---- one frame ------------------------------------------------------------------------------------------------------------- */

static const char *const recipes[] = {"topk@0.1",
                                      "ef+topk@0.2+bitmap",
                                      "randomk@0.2+fp16",
                                      "bf16",
                                      "ef+adabins@20+sign@scale=meanmax",
                                      "adabins@60+sign+adacomp8",
                                      "sign",
                                      "orq@3,bucket=50",
                                      "orq@9",
                                      "linear@5",
                                      "qsgd@16",
                                      "topk@0.2+natural",
                                      "ternary",
                                      "fp4+huffman",
                                      "fp8+rans",
                                      "topk@0.2+fp4+rans",
                                      "bf16+lossless",
                                      "orq@9+zstd"};
enum { RECIPE_N = sizeof recipes / sizeof *recipes };

typedef struct sums {
    test_model checked, private;
} sums;

/* Returns whether the frame was accepted. */
static bool compare(tg_codec *c, const sums *s, const uint8_t *frame, size_t len)
{
    tg_detail checked = {""}, private = {""};
    test_model_copy((test_model *)(uintptr_t)&s->private, &s->checked);
    tg_status status = tg_decode_add(c, (float *const *)s->checked.grads, 0.5f, frame, len, &checked);
    assert_int_equal(tg_decode_add_private(c, (float *const *)s->private.grads, 0.5f, frame, len, &private), status);
    assert_string_equal(private.text, checked.text);
    for (size_t t = 0; t < s->checked.tensor_n && status == TG_OK; t++) {
        size_t n = (size_t)s->checked.tensors[t].dims[0];
        assert_memory_equal(s->private.grads[t], s->checked.grads[t], n * sizeof(float));
    }
    return status == TG_OK;
}

/* Changes every `every`th byte after the header. */
static void damage_frames(const uint64_t *lens, size_t tensor_n, const char *recipe, uint32_t threads, size_t every)
{
    test_model m = test_model_new(lens, tensor_n, TG_FP32);
    sums s = {test_model_new(lens, tensor_n, TG_FP32), test_model_new(lens, tensor_n, TG_FP32)};
    test_random random = {21};
    tg_options opt = TG_OPTIONS_INIT;
    opt.threads = threads;
    tg_codec *c = NULL;
    test_model_fill(&m, &random);
    MUST(tg_codec_new(&c, recipe, m.tensors, tensor_n, &opt, why));
    test_frame frame = test_encode(c, 3, &m);
    uint8_t *bytes = test_room(frame.len);
    assert_true(compare(c, &s, frame.bytes, frame.len));
    size_t refused = 0;
    for (size_t at = TG_FRAME_HEADER; at < frame.len - CHECKSUM; at += every) {
        for (size_t k = 0; k < CHANGE_N; k++) {
            memcpy(bytes, frame.bytes, frame.len);
            bytes[at] ^= changes[k];
            refused += compare(c, &s, bytes, frame.len) ? 0 : 1;
            seal(c, c->plan, 0, bytes, frame.len);
            (void)compare(c, &s, bytes, frame.len);
        }
    }
    assert_true(refused > 0);
    assert_true(compare(c, &s, frame.bytes, frame.len)); /* and a sound frame is still accepted */
    free(bytes);
    free(frame.bytes);
    tg_codec_free(c);
    test_model_free(&s.private);
    test_model_free(&s.checked);
    test_model_free(&m);
}

static void private_sums_refuse_the_same(void **state)
{
    static const uint64_t lens[] = {60, 0, 9};
    (void)state;
    for (size_t r = 0; r < RECIPE_N; r++) {
        damage_frames(lens, 3, recipes[r], 1, 1);
    }
}

/* More than one chunk, and more than one portion of a chunk. */
static void long_frames_are_refused_the_same(void **state)
{
    static const uint64_t lens[] = {TG_CHUNK + 20000, 5};
    (void)state;
    for (size_t r = 0; r < RECIPE_N; r++) {
        damage_frames(lens, 2, recipes[r], (uint32_t)(1 + r % 3), 9001 * TEST_EVERY);
    }
}

/* ---- exchanges ------------------------------------------------------------------------------------------------------------- */

static const uint64_t lens[] = {200, 3, 40};
enum { TENSOR_N = 3, WORLD = 3 };

static const struct {
    const char *recipe, *exchange;
} runs[] = {
    {"ef+topk@0.1+fp16", "gather"},
    {"ef+adabins@50+sign@scale=meanmax+adacomp8", "gather"},
    {"ef+fp4+rans", "gather"},
    {"fp16+lossless", "gather"},
    {"ef+topk@0.1", "shard"},
    {"orq@9", "shard"},
    {"ef+fp8+huffman", "shard"},
    {"ef+topk@0.2+fp4+rans", "shard"},
    {"ef@again=fp16+topk@0.2", "shard"},
    {"ef+topk@0.1+bf16", "server"},
    {"ef+natural+zstd", "server"},
    {"terngrad", "server"},
    {"ef+randomblock@0.1", "allreduce"},
    {"fp16+lossless", "allreduce"},
    {"ef+topk@0.1,coords=shared", "allreduce"},
    {"ef+topk@0.05,coords=shared+fp16+rans", "allreduce"},
};
enum { RUN_N = sizeof runs / sizeof *runs };

/* A frame that one rank forges. */
typedef struct forgery {
    const test_world *w;
    uint64_t at, seen; /* which frame, and how many there were */
    size_t byte;       /* which one of its body, from the front */
    uint8_t change;
    bool is_sealed;
    uint32_t from, to;
    tg_status status; /* of the strict reader ... */
    tg_detail why;    /* ... and what the exchange must say */
} forgery;

static tg_status forge(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    forgery *f = context;
    uint8_t *frame = data;
    /* Of frames with a body: drawn coordinates may leave a slice empty. */
    if (len <= TG_FRAME_HEADER + CHECKSUM || memcmp(frame, "TGFR", 4) != 0 || f->seen++ != f->at) {
        return TG_OK;
    }
    tg_carrier *carrier = f->w->ranks[to]->carrier;
    tg_codec *c = kind == TG_ALLTOALLV ? carrier->codec : tg_carrier_reader(carrier); /* of gradients, or of answers */
    const tg_plan *plan = (frame[5] & TG_HAS_VALUES) != 0 ? c->plan : carrier->leader;
    uint32_t slice = tg_get32(frame + 12);
    f->from = from;
    f->to = to;
    frame[TG_FRAME_HEADER + f->byte % (len - TG_FRAME_HEADER - CHECKSUM)] ^= f->change;
    if (f->is_sealed) {
        seal(c, plan, slice, frame, (size_t)len);
    }
    tg_detail reason = {""};
    tg_body_view view = {.chunks = c->views};
    tg_expected expected = {.plan = plan, .slice = slice, .check_author = true, .rank = from};
    f->status = tg_frame_read(&view, NULL, c, &expected, frame, (size_t)len, &reason);
    (void)snprintf(f->why.text, sizeof f->why.text, "from rank %u: %.200s", from, reason.text);
    return TG_OK;
}

static test_world make_world(size_t run)
{
    test_setup setup = {.recipe = runs[run].recipe, .exchange = runs[run].exchange, .lens = lens, .tensor_n = TENSOR_N};
    return test_world_new(WORLD, &setup);
}

/* Returns the number of frames of a step. */
static uint64_t try_forgery(size_t run, forgery *f)
{
    test_world w = make_world(run), twin = make_world(run);
    tg_tap tap = {forge, f};
    tg_detail reason = {""};
    test_world_fill(&w, 0);
    test_world_fill(&twin, 0);
    f->w = &w;
    tg_status status = test_world_reduce(&w, 0, &tap, &reason);
    if (f->status != TG_OK) {
        assert_true(status < 0);
        assert_int_equal(w.outcomes[f->to].status, f->status);
        assert_string_equal(w.outcomes[f->to].why.text, f->why.text);
        assert_true(test_world_same(&w, &twin));
        MUST(test_world_reduce(&w, 0, NULL, why));
        MUST(test_world_reduce(&twin, 0, NULL, why));
        assert_true(test_world_same(&w, &twin));
    }
    test_world_free(&twin);
    test_world_free(&w);
    return f->seen;
}

static void exchanges_refuse_the_same(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        forgery none = {.at = UINT64_MAX};
        uint64_t frames = try_forgery(run, &none), tried = 0, refused = 0, sealed = 0;
        assert_true(frames > 0);
        for (uint64_t at = 0; at < frames; at++) {
            for (size_t byte = 5 * ((run + at) % TEST_EVERY); byte < 70; byte += 5 * TEST_EVERY) {
                tried++;
                forgery f = {.at = at, .byte = byte, .change = changes[(at + byte) % CHANGE_N]};
                (void)try_forgery(run, &f);
                refused += f.status != TG_OK ? 1 : 0;
                forgery hostile = {.at = at, .byte = byte, .change = f.change, .is_sealed = true};
                (void)try_forgery(run, &hostile);
                sealed += hostile.status != TG_OK ? 1 : 0;
            }
        }
        assert_int_equal(refused, tried); /* damage is always found; what is sealed may be another sound frame */
        assert_true(sealed < refused || TEST_EVERY > 1); /* too few cases to be sure of one */
    }
}

/* Of several bad frames the first rank's is named, as if they were read one after the other. */
static tg_status forge_all(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    uint8_t *frame = data;
    (void)context;
    (void)kind;
    (void)to;
    if (len >= TG_FRAME_HEADER && memcmp(frame, "TGFR", 4) == 0) {
        frame[from == 2 ? 0 : len - 1] ^= 1; /* the magic of rank 2, which is found first; checksums of others */
    }
    return TG_OK;
}

static void the_first_bad_frame_is_named(void **state)
{
    (void)state;
    for (size_t run = 0; run < RUN_N; run++) {
        test_world w = make_world(run);
        tg_tap tap = {forge_all, NULL};
        tg_detail reason = {""};
        bool is_led = strstr(runs[run].recipe, "coords=shared") != NULL;
        test_world_fill(&w, 0);
        assert_true(test_world_reduce(&w, 0, &tap, &reason) < 0);
        for (uint32_t r = 0; r < WORLD && !is_led; r++) { /* rank 0 tells the others */
            assert_non_null(strstr(w.outcomes[r].why.text, "from rank 1: the frame is damaged: its checksum"));
        }
        test_world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(private_sums_refuse_the_same),
        cmocka_unit_test(long_frames_are_refused_the_same),
        cmocka_unit_test(exchanges_refuse_the_same),
        cmocka_unit_test(the_first_bad_frame_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
