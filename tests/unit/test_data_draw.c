/* Drawing from data sets: the order of samples, shards of workers, augmentation; and the set of glyphs. The sets are created in
 * memory. */
#include "support.h"

#include "data.h"
#include "data/order.h"
#include "data/sets.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 9, IMAGE_LEN = SIDE * SIDE, CLASS_N = 10 };

/* Images whose pixels encode their position, and whose labels are their numbers; no pixel is black. */
static tr_data *make_images(size_t n, uint32_t shift_max, int is_mirrored)
{
    tr_data *d = calloc(1, sizeof *d);
    assert_non_null(d);
    d->shape = (tr_shape){TR_IMAGES, 1, SIDE, SIDE, CLASS_N, 1};
    d->shift_max = shift_max;
    d->is_mirrored = is_mirrored;
    tr_part *train = &d->parts[TR_TRAIN];
    train->n = n;
    train->pixels = test_room(n * IMAGE_LEN);
    train->labels = test_room(n);
    for (size_t i = 0; i < n; i++) {
        train->labels[i] = (uint8_t)i;
        for (size_t p = 0; p < IMAGE_LEN; p++) {
            train->pixels[i * IMAGE_LEN + p] = (uint8_t)(p + 1);
        }
    }
    for (int b = 0; b < 256; b++) {
        d->normalised[0][b] = (float)b; /* so that bytes can be seen in batches */
    }
    return d;
}

static tr_loader *loader_of(const tr_data *d, size_t batch_max)
{
    char why[TR_WHY];
    tr_loader *l = NULL;
    assert_int_equal(tr_loader_new(&l, d, batch_max, why), 0);
    return l;
}

/* ---- order ------------------------------------------------------------------------------------------------------------- */

static void an_order_is_a_permutation(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 65, 1000, 4096, 4097, 60000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t n = sizes[s], same = 0, fixed = 0;
        uint8_t *seen = test_room(n);
        memset(seen, 0, n);
        tr_order o = tr_order_of(n, 3, 0), again = tr_order_of(n, 3, 0), next = tr_order_of(n, 3, 1);
        for (size_t i = 0; i < n; i++) {
            size_t at = tr_order_at(&o, i);
            assert_true(at < n && !seen[at]);
            seen[at] = 1;
            assert_int_equal(tr_order_at(&again, i), at);
            same += tr_order_at(&next, i) == at;
            fixed += at == i;
        }
        if (n >= 63) { /* one in the mean, if orders are as good as random */
            assert_true(same < 10 && fixed < 10);
        }
        free(seen);
    }
}

/* Every sample comes first as often as every other: 16000 orders of 8, so 2000 each, deviation 42. */
static void orders_prefer_nothing(void **state)
{
    (void)state;
    size_t counts[8][8] = {{0}};
    for (uint64_t epoch = 0; epoch < 16000; epoch++) {
        tr_order o = tr_order_of(8, 11, epoch);
        for (size_t i = 0; i < 8; i++) {
            counts[i][tr_order_at(&o, i)]++;
        }
    }
    for (size_t i = 0; i < 64; i++) {
        assert_in_range(counts[i / 8][i % 8], 2000 - 250, 2000 + 250);
    }
}

/* ---- shards -------------------------------------------------------------------------------------------------------------- */

/* Draws an epoch by all workers and counts the samples. */
static void draw_epoch(uint8_t *drawn, tr_loader *l, uint64_t seed, uint64_t epoch, uint32_t workers, size_t batch,
                       uint64_t steps)
{
    for (uint64_t s = 0; s < steps; s++) {
        for (uint32_t w = 0; w < workers; w++) {
            tr_batch b = tr_loader_train(l, &(tr_draw){seed, epoch * steps + s, w, workers, batch, 1});
            assert_int_equal(b.n, batch);
            for (size_t i = 0; i < b.n; i++) {
                drawn[b.labels[i]]++;
            }
        }
    }
}

static void an_epoch_draws_no_sample_twice(void **state)
{
    (void)state;
    enum { N = 103 };
    tr_data *d = make_images(N, 2, 1);
    tr_loader *l = loader_of(d, 16);
    static const uint32_t worlds[] = {1, 2, 8, 11, 16};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        uint8_t left_out[N] = {0};
        for (size_t batch = 1; batch <= 6; batch++) {
            uint64_t steps = tr_data_steps_per_epoch(d, worlds[w], batch);
            assert_int_equal(steps, N / (worlds[w] * batch));
            for (uint64_t epoch = 0; epoch < 30; epoch++) {
                uint8_t drawn[N] = {0};
                draw_epoch(drawn, l, 9, epoch, worlds[w], batch, steps);
                size_t sum = 0;
                for (size_t i = 0; i < N; i++) {
                    assert_true(drawn[i] <= 1);
                    sum += drawn[i];
                    left_out[i] |= drawn[i] == 0;
                }
                assert_int_equal(sum, steps * worlds[w] * batch);
            }
        }
        size_t once_out = 0; /* not always the same ones */
        for (size_t i = 0; i < N; i++) {
            once_out += left_out[i];
        }
        assert_true(once_out > N / 2);
    }
    tr_loader_free(l);
    tr_data_free(d);
}

static void a_draw_is_the_same_whatever_came_before(void **state)
{
    (void)state;
    enum { BATCH = 12 };
    tr_data *d = make_images(100, 2, 1);
    tr_loader *one = loader_of(d, BATCH), *other = loader_of(d, 50);
    for (uint64_t step = 0; step < 40; step += 3) {
        tr_draw draw = {77, step, (uint32_t)(step % 4), 4, BATCH, 1};
        tr_batch a = tr_loader_train(one, &draw);
        (void)tr_loader_train(other, &(tr_draw){78, 1000 + step, 0, 1, 50, 0});
        tr_batch b = tr_loader_train(other, &draw);
        assert_memory_equal(a.labels, b.labels, BATCH * sizeof *a.labels);
        assert_memory_equal(a.pixels, b.pixels, BATCH * IMAGE_LEN * sizeof *a.pixels);
        draw.seed++;
        b = tr_loader_train(other, &draw);
        assert_memory_not_equal(a.labels, b.labels, BATCH * sizeof *a.labels);
    }
    tr_loader_free(other);
    tr_loader_free(one);
    tr_data_free(d);
}

static void draws_that_can_not_be_are_empty(void **state)
{
    (void)state;
    char why[TR_WHY];
    tr_data *d = make_images(20, 2, 1);
    tr_loader *l = loader_of(d, 8), *none = NULL;
    assert_int_equal(tr_data_steps_per_epoch(d, 3, 7), 0);
    assert_int_equal(tr_data_steps_per_epoch(d, 0, 7), 0);
    assert_int_equal(tr_data_steps_per_epoch(d, 1, 0), 0);
    assert_int_equal(tr_data_steps_per_epoch(d, UINT32_MAX, SIZE_MAX), 0);
    assert_int_equal(tr_loader_train(l, &(tr_draw){.workers = 3, .batch = 7}).n, 0);
    assert_int_equal(tr_loader_train(l, &(tr_draw){.workers = 1, .batch = 9}).n, 0);
    assert_int_equal(tr_loader_train(l, &(tr_draw){.workers = 2, .worker = 2, .batch = 7}).n, 0);
    assert_int_equal(tr_loader_train(l, &(tr_draw){.workers = 2, .worker = 1, .batch = 8, .step = UINT64_MAX}).n, 8);
    assert_int_equal(tr_loader_new(&none, d, 0, why), -1);
    assert_int_equal(tr_loader_new(&none, d, SIZE_MAX / 16, why), -1);
    assert_int_equal(tr_loader_new(&none, d, (size_t)1 << 50, why), -1);
    assert_non_null(strstr(why, "not enough memory"));
    assert_null(none);
    tr_loader_free(l);
    tr_data_free(d);
}

/* ---- moved images --------------------------------------------------------------------------------------------------------- */

/* Whether an image is the original, mirrored or not, shifted by (right, down) and filled with black. */
static bool is_view(const float *image, int right, int down, bool is_mirrored)
{
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < SIDE; x++) {
            int from_x = x - right, from_y = y - down;
            bool is_inside = from_x >= 0 && from_x < SIDE && from_y >= 0 && from_y < SIDE;
            int column = is_mirrored ? SIDE - 1 - from_x : from_x;
            float expected = is_inside ? (float)(from_y * SIDE + column + 1) : 0;
            if (image[y * SIDE + x] != expected) {
                return false;
            }
        }
    }
    return true;
}

/* Counts the allowed views of an image; exactly one must match. */
static void count_view(size_t *counts, const float *image, int shift, bool may_mirror)
{
    size_t at = 0, found = 0;
    for (int mirrored = 0; mirrored <= may_mirror; mirrored++) {
        for (int down = -shift; down <= shift; down++) {
            for (int right = -shift; right <= shift; right++, at++) {
                if (is_view(image, right, down, mirrored)) {
                    found++;
                    counts[at]++;
                }
            }
        }
    }
    assert_int_equal(found, 1);
}

static void check_views(uint32_t shift, int may_mirror)
{
    enum { N = 50, EPOCHS = 80 };
    size_t views = (2 * shift + 1) * (2 * shift + 1) * (may_mirror ? 2 : 1);
    size_t counts[2 * 9 * 9] = {0};
    tr_data *d = make_images(N, shift, may_mirror);
    tr_loader *l = loader_of(d, N);
    for (uint64_t step = 0; step < EPOCHS; step++) {
        tr_batch b = tr_loader_train(l, &(tr_draw){1, step, 0, 1, N, 1});
        for (size_t i = 0; i < N; i++) {
            count_view(counts, b.pixels + i * IMAGE_LEN, (int)shift, may_mirror);
        }
        b = tr_loader_train(l, &(tr_draw){1, step, 0, 1, N, 0});
        for (size_t i = 0; i < N; i++) {
            assert_true(is_view(b.pixels + i * IMAGE_LEN, 0, 0, false));
        }
    }
    for (size_t v = 0; v < views; v++) { /* each is drawn, none far too often */
        assert_in_range(counts[v], 1, 3 * N * EPOCHS / views);
    }
    tr_loader_free(l);
    tr_data_free(d);
}

static void images_move_within_bounds(void **state)
{
    (void)state;
    check_views(2, 0);
    check_views(2, 1);
    check_views(4, 1);
}

/* ---- glyphs ---------------------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint8_t *bytes, size_t len) /* FNV-1a */
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static void check_classes(const tr_data *d, tr_split split, size_t n)
{
    size_t counts[CLASS_N] = {0};
    assert_int_equal(tr_data_count(d, split), n);
    for (size_t i = 0; i < n; i++) {
        assert_true(d->parts[split].labels[i] < CLASS_N);
        counts[d->parts[split].labels[i]]++;
    }
    for (size_t c = 0; c < CLASS_N; c++) {
        assert_int_equal(counts[c], n / CLASS_N);
    }
}

/* How often the class whose mean image is nearest is the right one. */
static double nearest_mean(const tr_data *d)
{
    enum { LEN = 28 * 28 };
    static double means[CLASS_N][LEN];
    const tr_part *train = &d->parts[TR_TRAIN], *test = &d->parts[TR_TEST];
    for (size_t i = 0; i < train->n; i++) {
        for (size_t p = 0; p < LEN; p++) {
            means[train->labels[i]][p] += train->pixels[i * LEN + p] / ((double)train->n / CLASS_N);
        }
    }
    size_t right = 0;
    for (size_t i = 0; i < test->n; i++) {
        double nearest = INFINITY;
        size_t guess = 0;
        for (size_t c = 0; c < CLASS_N; c++) {
            double sum = 0;
            for (size_t p = 0; p < LEN; p++) {
                double apart = test->pixels[i * LEN + p] - means[c][p];
                sum += apart * apart;
            }
            guess = sum < nearest ? c : guess;
            nearest = sum < nearest ? sum : nearest;
        }
        right += guess == test->labels[i];
    }
    return (double)right / (double)test->n;
}

static void glyphs_are_drawn_alike_everywhere(void **state)
{
    (void)state;
    char why[TR_WHY];
    tr_data *d = NULL;
    assert_int_equal(tr_data_open(&d, "glyphs", why), 0);
    assert_string_equal(why, "");
    assert_string_equal(tr_data_name(d), "glyphs");
    tr_shape s = tr_data_shape(d);
    assert_true(s.channels == 1 && s.height == 28 && s.width == 28 && s.classes == CLASS_N && d->shift_max == 2);
    assert_false(d->is_mirrored);
    check_classes(d, TR_TRAIN, 20000);
    check_classes(d, TR_TEST, 4000);
    assert_int_equal(hash_of(d->parts[TR_TRAIN].pixels, 20000 * 784), UINT64_C(0xbba788175ada5a9f));
    assert_int_equal(hash_of(d->parts[TR_TEST].pixels, 4000 * 784), UINT64_C(0x34cd41f4b3dc0df0));
    double right = nearest_mean(d); /* a network does far better: the set can be learned, but not so easily */
    print_message("the nearest mean is right in %.1f %%\n", 100 * right);
    assert_true(right > 0.3 && right < 0.8);
    tr_data_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_order_is_a_permutation),         cmocka_unit_test(orders_prefer_nothing),
        cmocka_unit_test(an_epoch_draws_no_sample_twice),    cmocka_unit_test(a_draw_is_the_same_whatever_came_before),
        cmocka_unit_test(draws_that_can_not_be_are_empty),   cmocka_unit_test(images_move_within_bounds),
        cmocka_unit_test(glyphs_are_drawn_alike_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
