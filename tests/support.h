/* Shared by tests: gradients, models, an allocator that fails on demand. */
#ifndef TG_TESTS_SUPPORT_H
#define TG_TESTS_SUPPORT_H

#include "tersegrad/experimental.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Under a sanitizer, which makes them ten times as slow, the longest tests take one case of so many, another one for each recipe,
 * and large worlds are smaller. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TEST_EVERY = 5, TEST_MANY_LOG = 7 };
#else
enum { TEST_EVERY = 1, TEST_MANY_LOG = 10 };
#endif
enum { TEST_MANY = 1 << TEST_MANY_LOG }; /* ranks of a large world */

/* Fails the test with the error if `call` fails. */
#define MUST(call)                                                                     \
    do {                                                                               \
        tg_detail must_why = {""};                                                     \
        tg_detail *why = &must_why;                                                    \
        tg_status must_status = (call);                                                \
        if (must_status != TG_OK) {                                                    \
            fail_msg("%s: %s: %s", #call, tg_status_text(must_status), must_why.text); \
        }                                                                              \
        (void)why;                                                                     \
    } while (0)

/* Fails the test unless `call`, which passes `why` on, fails with `expected` and an error that contains `part`. */
#define MUST_FAIL(expected, part, call)                                                                     \
    do {                                                                                                    \
        tg_detail must_why = {""};                                                                          \
        tg_detail *why = &must_why;                                                                         \
        tg_status must_status = (call);                                                                     \
        if (must_status != (expected) || strstr(must_why.text, part) == NULL) {                             \
            fail_msg("%s: got '%s' with '%s', expected '%s' with '%s'", #call, tg_status_text(must_status), \
                     must_why.text, tg_status_text(expected), part);                                        \
        }                                                                                                   \
        (void)why;                                                                                          \
    } while (0)

/* Random numbers of a test's own, unrelated to the library's. */
typedef struct test_random {
    uint64_t state;
} test_random;

uint64_t test_bits(test_random *r);
double test_uniform(test_random *r); /* [0, 1) */
float test_gaussian(test_random *r);

/* A model of `tensor_n` tensors with a gradient each: one-dimensional, until they are given a shape. */
typedef struct test_model {
    tg_tensor *tensors;
    uint64_t *dims;        /* elements */
    uint64_t (*shapes)[2]; /* of those that are matrices */
    char *names;
    void **grads;
    size_t tensor_n;
} test_model;

test_model test_model_new(const uint64_t *lens, size_t tensor_n, tg_dtype dtype);
void test_model_free(test_model *m);
/* Makes matrices of so many rows of tensors whose entry is not 0. */
void test_model_shape(test_model *m, const uint64_t *rows);
/* Gradients from N(0, 1), in the tensors' dtype. */
void test_model_fill(test_model *m, test_random *r);
void test_model_copy(test_model *to, const test_model *from);
bool test_model_equal(const test_model *a, const test_model *b);
float test_model_get(const test_model *m, size_t tensor, uint64_t element);
void test_model_set(test_model *m, size_t tensor, uint64_t element, float value);
uint64_t test_model_elements(const test_model *m);

/* A frame in a buffer of its exact length. */
typedef struct test_frame {
    uint8_t *bytes;
    size_t len;
} test_frame;

test_frame test_encode(tg_codec *c, uint64_t step, const test_model *m);

/* Encodes by both codecs, and fails the test if their frames differ. */
void test_expect_same_frames(tg_codec *a, tg_codec *b, uint64_t step, const test_model *m);
/* Decodes a frame by its own description. */
void test_decode(test_model *out, const test_frame *f);

/* Fails the nth acquisition (from 1; 0: none), once or from then on, and counts the blocks that are not freed. */
typedef struct test_allocator {
    tg_allocator allocator;
    uint64_t calls, fail_at;
    bool persistent;
    int64_t held;
} test_allocator;

void test_allocator_start(test_allocator *a, uint64_t fail_at, bool persistent);

/* Allocates exactly `len` bytes, so that a sanitizer detects any access past the end. */
void *test_room(size_t len);

#endif
