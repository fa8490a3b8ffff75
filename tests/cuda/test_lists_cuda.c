/* Frames that are added to sums at once, of sparse recipes, fixed length or coded symbols, against the host: the same sums and statistics, and
 * of damaged frames the same refusal, with sums as they were. Some damaged frames have the right checksum, so that the front, coordinates and
 * symbols themselves are refused. */
#include "base/bytes.h"
#include "base/fields.h"
#include "frame/codec.h"
#include "kernels/hash.h"
#include "support.h"

#include "tersegrad/cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSOR_MAX = 5, STEP_N = 2, DAMAGE_N = 5, PLACES = 4 };

typedef struct layout {
    size_t tensor_n;
    uint64_t lens[TENSOR_MAX];
} layout;

static const layout layouts[] = {{1, {300001}}, {5, {40000, 3, 1, 270000, 700}}, {1, {1}}};

static const char *const recipes[] = {"adacomp",
                                      "ef+topk@0.01",
                                      "ef+topk@0.3+bf16",
                                      "ef+topk@0.02+fp16+bitmap",
                                      "ef+threshold@2",
                                      "ef+randomblock@0.01",
                                      "ef+randomblock@0.4+fp16",
                                      "ef+topk@0.01+sign",
                                      "bf16",
                                      "ef+fp8",
                                      "terngrad",
                                      "ef+fp8+rans",
                                      "ef+fp4+rans",
                                      "ef+fp8+huffman",
                                      "bf16+lossless",
                                      "fp32+lossless"};

typedef struct bench {
    const layout *layout;
    tg_device *device;
    tg_codec *host, *gpu;
    float *grads, *sums, *back, *device_sums;
    uint8_t *frame, *bad, *device_frame;
    size_t n, cap, len;
    const void *of_grads[TENSOR_MAX];
    float *of_sums[TENSOR_MAX], *of_device[TENSOR_MAX];
} bench;

static void open_bench(bench *b, const char *recipe, const layout *l)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    tg_tensor tensors[TENSOR_MAX];
    *b = (bench){.layout = l};
    MUST(tg_cuda_open(&b->device, 0, NULL, why));
    for (size_t t = 0; t < l->tensor_n; t++) {
        tensors[t] = (tg_tensor){.name = names[t], .dtype = TG_FP32, .dims = &l->lens[t], .dim_n = 1};
        b->n += l->lens[t];
    }
    tg_options opt = TG_OPTIONS_INIT;
    MUST(tg_codec_new(&b->host, recipe, tensors, l->tensor_n, &opt, why));
    opt.device = b->device;
    MUST(tg_codec_new(&b->gpu, recipe, tensors, l->tensor_n, &opt, why));
    b->cap = tg_encode_bound(b->host);
    b->grads = calloc(b->n, sizeof(float));
    b->sums = calloc(b->n, sizeof(float));
    b->back = calloc(b->n, sizeof(float));
    b->frame = malloc(b->cap);
    b->bad = malloc(b->cap + 8);
    assert_true(b->grads != NULL && b->sums != NULL && b->back != NULL && b->frame != NULL && b->bad != NULL);
    MUST(tg_cuda_acquire((void **)&b->device_sums, b->device, b->n * sizeof(float), why));
    MUST(tg_cuda_acquire((void **)&b->device_frame, b->device, b->cap + PLACES + 8, why));
    for (size_t i = 5; i < b->n; i += 1009) { /* stays what it is, whatever is added */
        b->sums[i] = NAN;
    }
    MUST(tg_cuda_copy(b->device, b->device_sums, b->sums, b->n * sizeof(float), why));
    for (size_t t = 0, at = 0; t < l->tensor_n; at += l->lens[t++]) {
        b->of_grads[t] = b->grads + at;
        b->of_sums[t] = b->sums + at;
        b->of_device[t] = b->device_sums + at;
    }
}

static void close_bench(bench *b)
{
    tg_codec_free(b->gpu);
    tg_codec_free(b->host);
    tg_cuda_release(b->device, b->device_frame);
    tg_cuda_release(b->device, b->device_sums);
    tg_cuda_close(b->device);
    free(b->grads);
    free(b->sums);
    free(b->back);
    free(b->frame);
    free(b->bad);
}

/* A reason, but for the tensor: where several are damaged, the host names any of them. */
static void forget_tensor(tg_detail *why)
{
    char *name = strstr(why->text, "tensor '");
    if (name != NULL) {
        *name = '\0';
    }
}

/* Adds a frame on both sides, from any place on the device: the same status, reason and sums. Returns whether it was sound. */
static bool add_both(bench *b, const uint8_t *frame, size_t len, size_t place, float weight, const char *what)
{
    tg_detail host_why = {""}, gpu_why = {""};
    tg_status host = tg_decode_add(b->host, b->of_sums, weight, frame, len, &host_why);
    MUST(tg_cuda_copy(b->device, b->device_frame + place, frame, len, why));
    tg_status gpu = tg_decode_add(b->gpu, b->of_device, weight, b->device_frame + place, len, &gpu_why);
    forget_tensor(&host_why);
    forget_tensor(&gpu_why);
    if (host != gpu || strcmp(host_why.text, gpu_why.text) != 0) {
        fail_msg("%s: the host says %d, %s; the GPU says %d, %s", what, (int)host, host_why.text, (int)gpu,
                 gpu_why.text);
    }
    MUST(tg_cuda_copy(b->device, b->back, b->device_sums, b->n * sizeof(float), why));
    MUST(tg_cuda_wait(b->device, why));
    if (memcmp(b->back, b->sums, b->n * sizeof(float)) != 0) {
        fail_msg("%s: other sums", what);
    }
    for (size_t t = 0; host != TG_OK && t < b->layout->tensor_n; t++) { /* of the last frame that was sound */
        tg_traffic of_host, of_gpu;
        MUST(tg_codec_traffic(&of_host, b->host, t, why));
        MUST(tg_codec_traffic(&of_gpu, b->gpu, t, why));
        if (of_host.len != of_gpu.len || of_host.entries != of_gpu.entries || of_host.shape != of_gpu.shape ||
            of_host.scale != of_gpu.scale) {
            fail_msg("%s: other statistics of tensor %zu", what, t);
        }
    }
    return host == TG_OK;
}

/* The checksum of b->bad, whose headers are those of b->frame, which the host has decoded last. */
static void seal(const bench *b)
{
    const tg_codec *c = b->host;
    const uint8_t *body = b->bad + c->front_len;
    size_t chunk_n = c->plan->grid->first[1];
    uint64_t *words = calloc(2 + chunk_n, sizeof *words);
    assert_true(words != NULL);
    words[0] = TG_LITTLE64(tg_hash(b->bad, c->front_len));
    words[1] = TG_LITTLE64(tg_hash(body, c->plan->headers_len[0]));
    for (size_t i = 0; i < chunk_n; i++) {
        words[2 + i] = TG_LITTLE64(tg_hash(body + c->views[i].start, c->views[i].len));
    }
    tg_put_field(b->bad + b->len - 8, 8, tg_hash(words, (2 + chunk_n) * sizeof *words));
    free(words);
}

/* A frame with some bytes changed, with a checksum that is right or not. */
static void damage(bench *b, test_random *r, size_t from, size_t to, bool seals)
{
    memcpy(b->bad, b->frame, b->len);
    for (uint64_t n = 1 + test_bits(r) % 3; n > 0 && from < to; n--) {
        b->bad[from + test_bits(r) % (to - from)] ^= (uint8_t)(1 + test_bits(r) % 255);
    }
    if (seals) {
        seal(b);
    }
}

/* Frames of some steps, each whole, cut off, longer, and damaged in all parts. */
static uint32_t try_recipe(const char *recipe, const layout *l)
{
    bench b;
    test_random r = {.state = 77 + l->tensor_n};
    char what[160];
    uint32_t refused = 0;
    open_bench(&b, recipe, l);
    for (uint64_t step = 0; step < STEP_N; step++) {
        for (size_t i = 0; i < b.n; i++) {
            b.grads[i] = test_gaussian(&r);
        }
        MUST(tg_encode(&b.len, b.host, b.frame, b.cap, 5 * step, b.of_grads, why));
        snprintf(what, sizeof what, "%s, %zu tensors, step %u", recipe, l->tensor_n, (unsigned)step);
        for (size_t place = 0; place < PLACES; place++) {
            assert_true(add_both(&b, b.frame, b.len, place, 0.5f + (float)place, what));
        }
        size_t body = b.host->front_len, chunks = body + b.host->plan->headers_len[0], end = b.len - 8;
        for (uint32_t i = 0; i < DAMAGE_N; i++) {
            bool seals = i % 2 == 0;
            assert_true(add_both(&b, b.frame, b.len, 0, 1.0f, what)); /* seal needs its views */
            bool is_front = i == 4;
            size_t from = is_front || i == 3 ? 0 : seals ? chunks : body, to = is_front ? body : seals ? end : b.len;
            damage(&b, &r, from, to, seals);
            snprintf(what, sizeof what, "%s, %zu tensors, step %u, damage %u", recipe, l->tensor_n, (unsigned)step, i);
            refused += add_both(&b, b.bad, b.len, i % PLACES, 1.0f, what) ? 0 : 1;
        }
        assert_false(add_both(&b, b.frame, b.len - 1, 0, 1.0f, "cut off"));
        memcpy(b.bad, b.frame, b.len);
        b.bad[b.len] = 0;
        assert_false(add_both(&b, b.bad, b.len + 1, 1, 1.0f, "longer"));
    }
    close_bench(&b);
    return refused;
}

static void lists_are_added_as_on_the_cpu(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
            uint32_t refused = try_recipe(recipes[i], &layouts[l]);
            assert_true(refused >= STEP_N * DAMAGE_N / 4); /* half of them have a wrong checksum */
        }
    }
}

/* ---- more chunks than kernels that find all of them at once can take ------------------------------------------------------------ */

enum { MANY = 1100, EACH_MAX = 8, MANY_N = MANY * EACH_MAX };

typedef struct many {
    tg_tensor tensors[MANY];
    char names[MANY][8];
    uint64_t lens[MANY];
    const void *grads[MANY], *device_grads[MANY];
    float *sums[MANY], *device_sums[MANY];
    float values[MANY_N], added[MANY_N], back[MANY_N];
} many;

static void place_many(many *m, float *device_values, float *device_added)
{
    for (uint32_t t = 0, at = 0; t < MANY; at += (uint32_t)m->lens[t++]) {
        snprintf(m->names[t], sizeof m->names[t], "t%u", t);
        m->lens[t] = 1 + t % EACH_MAX;
        m->tensors[t] = (tg_tensor){.name = m->names[t], .dtype = TG_FP32, .dims = &m->lens[t], .dim_n = 1};
        m->grads[t] = m->values + at;
        m->sums[t] = m->added + at;
        m->device_grads[t] = device_values + at;
        m->device_sums[t] = device_added + at;
    }
}

static void try_many(many *m, tg_device *device, const char *recipe)
{
    tg_codec *host = NULL, *gpu = NULL;
    tg_options opt = TG_OPTIONS_INIT;
    test_random r = {.state = 5};
    float *device_values = NULL, *device_added = NULL;
    uint8_t *device_frame = NULL;
    MUST(tg_cuda_acquire((void **)&device_values, device, sizeof m->values, why));
    MUST(tg_cuda_acquire((void **)&device_added, device, sizeof m->added, why));
    MUST(tg_cuda_fill(device, device_added, 0, sizeof m->added, why));
    memset(m->added, 0, sizeof m->added);
    place_many(m, device_values, device_added);
    MUST(tg_codec_new(&host, recipe, m->tensors, MANY, &opt, why));
    opt.device = device;
    MUST(tg_codec_new(&gpu, recipe, m->tensors, MANY, &opt, why));
    size_t cap = tg_encode_bound(host), len = 0, gpu_len = 0;
    uint8_t *frame = malloc(cap), *back = malloc(cap);
    assert_true(frame != NULL && back != NULL);
    MUST(tg_cuda_acquire((void **)&device_frame, device, cap, why));
    for (uint64_t step = 0; step < STEP_N; step++) {
        for (size_t i = 0; i < MANY_N; i++) {
            m->values[i] = test_gaussian(&r);
        }
        MUST(tg_cuda_copy(device, device_values, m->values, sizeof m->values, why));
        MUST(tg_encode(&len, host, frame, cap, step, m->grads, why));
        MUST(tg_encode(&gpu_len, gpu, device_frame, cap, step, m->device_grads, why));
        MUST(tg_cuda_copy(device, back, device_frame, gpu_len, why));
        MUST(tg_cuda_wait(device, why));
        assert_int_equal(len, gpu_len);
        assert_memory_equal(frame, back, len);
        MUST(tg_decode_add(host, m->sums, 0.5f, frame, len, why));
        MUST(tg_decode_add(gpu, m->device_sums, 0.5f, device_frame, len, why));
        frame[len - 20] ^= 1;
        MUST(tg_cuda_copy(device, device_frame, frame, len, why));
        MUST_FAIL(TG_E_FRAME, "damaged", tg_decode_add(gpu, m->device_sums, 0.5f, device_frame, len, why));
        MUST(tg_cuda_copy(device, m->back, device_added, sizeof m->added, why));
        MUST(tg_cuda_wait(device, why));
        assert_memory_equal(m->back, m->added, sizeof m->added);
    }
    tg_codec_free(gpu);
    tg_codec_free(host);
    tg_cuda_release(device, device_frame);
    tg_cuda_release(device, device_added);
    tg_cuda_release(device, device_values);
    free(frame);
    free(back);
}

static void frames_of_many_chunks_are_those_of_the_cpu(void **state)
{
    static const char *const of_many[] = {"adacomp", "ef+topk@0.3", "ef+randomblock@0.4", "ef+topk@0.3+fp16+lossless"};
    static many m;
    tg_device *device = NULL;
    (void)state;
    MUST(tg_cuda_open(&device, 0, NULL, why));
    for (size_t i = 0; i < sizeof of_many / sizeof *of_many; i++) {
        try_many(&m, device, of_many[i]);
    }
    tg_cuda_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_of_many_chunks_are_those_of_the_cpu),
                                       cmocka_unit_test(lists_are_added_as_on_the_cpu)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
