/* Shared by tests; see support.h. */
#include "support.h"

#include "base/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_CAP = 24 };

uint64_t test_bits(test_random *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u); /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

double test_uniform(test_random *r)
{
    return (double)(test_bits(r) >> 11) * 0x1p-53;
}

float test_gaussian(test_random *r)
{
    double radius = sqrt(-2 * log(1 - test_uniform(r)));
    return (float)(radius * cos(6.283185307179586 * test_uniform(r)));
}

void *test_room(size_t len)
{
    void *room = malloc(len == 0 ? 1 : len);
    assert_non_null(room);
    return room;
}

test_model test_model_new(const uint64_t *lens, size_t tensor_n, tg_dtype dtype)
{
    test_model m = {.tensors = test_room(tensor_n * sizeof *m.tensors),
                    .dims = test_room(tensor_n * sizeof *m.dims),
                    .shapes = test_room(tensor_n * sizeof *m.shapes),
                    .names = test_room(tensor_n * NAME_CAP),
                    .grads = test_room(tensor_n * sizeof *m.grads),
                    .tensor_n = tensor_n};
    for (size_t t = 0; t < tensor_n; t++) {
        (void)snprintf(m.names + NAME_CAP * t, NAME_CAP, "t%zu", t);
        m.dims[t] = lens[t];
        m.tensors[t] = (tg_tensor){
            .name = m.names + NAME_CAP * t, .dims = &m.dims[t], .dim_n = 1, .kind = TG_DENSE, .dtype = dtype};
        m.grads[t] = calloc((size_t)lens[t] + 1, tg_dtype_len(dtype));
        assert_non_null(m.grads[t]);
    }
    return m;
}

void test_model_free(test_model *m)
{
    for (size_t t = 0; t < m->tensor_n; t++) {
        free(m->grads[t]);
    }
    free(m->grads);
    free(m->names);
    free(m->shapes);
    free(m->dims);
    free(m->tensors);
}

void test_model_shape(test_model *m, const uint64_t *rows)
{
    for (size_t t = 0; t < m->tensor_n; t++) {
        if (rows[t] != 0) {
            m->shapes[t][0] = rows[t];
            m->shapes[t][1] = m->dims[t] / rows[t];
            m->tensors[t].dims = m->shapes[t];
            m->tensors[t].dim_n = 2;
        }
    }
}

float test_model_get(const test_model *m, size_t tensor, uint64_t element)
{
    switch (m->tensors[tensor].dtype) {
    case TG_FP32: return ((const float *)m->grads[tensor])[element];
    case TG_FP16: return tg_fp16_to_float(((const uint16_t *)m->grads[tensor])[element]);
    case TG_BF16: return tg_bf16_to_float(((const uint16_t *)m->grads[tensor])[element]);
    }
    return 0;
}

void test_model_set(test_model *m, size_t tensor, uint64_t element, float value)
{
    switch (m->tensors[tensor].dtype) {
    case TG_FP32: ((float *)m->grads[tensor])[element] = value; break;
    case TG_FP16: ((uint16_t *)m->grads[tensor])[element] = tg_float_to_fp16(value); break;
    case TG_BF16: ((uint16_t *)m->grads[tensor])[element] = tg_float_to_bf16(value); break;
    }
}

void test_model_fill(test_model *m, test_random *r)
{
    for (size_t t = 0; t < m->tensor_n; t++) {
        for (uint64_t i = 0; i < m->dims[t]; i++) {
            test_model_set(m, t, i, test_gaussian(r));
        }
    }
}

static size_t grad_len(const test_model *m, size_t t)
{
    return (size_t)m->dims[t] * tg_dtype_len(m->tensors[t].dtype);
}

void test_model_copy(test_model *to, const test_model *from)
{
    for (size_t t = 0; t < from->tensor_n; t++) {
        memcpy(to->grads[t], from->grads[t], grad_len(from, t));
    }
}

bool test_model_equal(const test_model *a, const test_model *b)
{
    for (size_t t = 0; t < a->tensor_n; t++) {
        if (memcmp(a->grads[t], b->grads[t], grad_len(a, t)) != 0) {
            return false;
        }
    }
    return true;
}

uint64_t test_model_elements(const test_model *m)
{
    uint64_t n = 0;
    for (size_t t = 0; t < m->tensor_n; t++) {
        n += m->dims[t];
    }
    return n;
}

test_frame test_encode(tg_codec *c, uint64_t step, const test_model *m)
{
    size_t bound = tg_encode_bound(c);
    uint8_t *room = test_room(bound);
    test_frame f = {.len = 0};
    MUST(tg_encode(&f.len, c, room, bound, step, (const void *const *)m->grads, why));
    assert_true(f.len <= bound);
    f.bytes = test_room(f.len);
    memcpy(f.bytes, room, f.len);
    free(room);
    return f;
}

void test_expect_same_frames(tg_codec *a, tg_codec *b, uint64_t step, const test_model *m)
{
    test_frame f = test_encode(a, step, m), g = test_encode(b, step, m);
    assert_int_equal(f.len, g.len);
    assert_memory_equal(f.bytes, g.bytes, f.len);
    free(f.bytes);
    free(g.bytes);
}

void test_decode(test_model *out, const test_frame *f)
{
    tg_codec *c = NULL;
    tg_frame_info info;
    MUST(tg_codec_from_frame(&c, &info, f->bytes, f->len, NULL, why));
    assert_int_equal(info.header_len + info.payload_len, f->len);
    MUST(tg_decode(c, out->grads, f->bytes, f->len, why));
    tg_codec_free(c);
}

static void *acquire(void *context, size_t len)
{
    test_allocator *a = context;
    a->calls++;
    if (a->fail_at != 0 && (a->persistent ? a->calls >= a->fail_at : a->calls == a->fail_at)) {
        return NULL;
    }
    void *block = malloc(len);
    if (block != NULL) {
        memset(block, 0xa5, len); /* so that code that relies on zeros fails */
        a->held++;
    }
    return block;
}

static void release(void *context, void *block)
{
    test_allocator *a = context;
    a->held -= block != NULL;
    free(block);
}

void test_allocator_start(test_allocator *a, uint64_t fail_at, bool persistent)
{
    *a = (test_allocator){.fail_at = fail_at, .persistent = persistent};
    a->allocator = (tg_allocator){acquire, release, a};
}
