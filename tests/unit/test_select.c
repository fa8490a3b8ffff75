/* Select parts against their definitions, by brute force. */
#include "base/bits.h"
#include "plan/plan.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const tg_select_part tg_select_topk, tg_select_threshold, tg_select_randomk, tg_select_randomblock;

typedef struct ranked {
    float magnitude;
    uint64_t index;
} ranked;

static int by_magnitude_then_index(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->magnitude != y->magnitude) {
        return x->magnitude > y->magnitude ? -1 : 1;
    }
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Marks with a sort what topk should mark. */
static void topk_by_sorting(bool *sent, const float *u, uint64_t n, double ratio)
{
    ranked *all = test_room(n * sizeof *all);
    for (uint64_t i = 0; i < n; i++) {
        all[i] = (ranked){fabsf(u[i]), i};
        sent[i] = false;
    }
    qsort(all, n, sizeof *all, by_magnitude_then_index);
    uint64_t k = (uint64_t)fmax(1, floor(ratio * (double)n + 0.5));
    for (uint64_t i = 0; i < k; i++) {
        sent[all[i].index] = true;
    }
    free(all);
}

static void measure_lane(void *scratch, const float *u, uint64_t n, uint32_t lane, uint64_t lane_n)
{
    for (uint64_t at = lane * lane_n; at < n && at < (lane + 1) * lane_n; at += 64) {
        uint64_t left = n - at;
        tg_select_topk.measure(scratch, lane, at, u + at, left < 64 ? (size_t)left : 64);
    }
}

/* The sample that topk gets before it measures: none, or a misleading one. */
typedef enum told { NOTHING, TOO_SMALL, TOO_LARGE, OWN } told;

/* Runs topk as the codec does: in lanes and blocks, and again if a guess was wrong. */
static void run_topk(uint64_t *mask, const float *u, uint64_t n, double ratio, uint32_t lanes, told what)
{
    float sample[500];
    for (size_t i = 0; i < 500; i++) {
        sample[i] = what == TOO_SMALL ? 1e-40f : what == TOO_LARGE ? 1e30f : u[i * 7 % n];
    }
    double params[TG_PARAM_CAP] = {0, 0, ratio};
    uint64_t lane_n = (n / 64 + lanes) / lanes * 64;
    void *scratch = test_room((size_t)tg_select_topk.scratch_len(params, n, lanes, lane_n));
    for (bool again = false, done = false; !done; again = true) {
        tg_select_topk.start(scratch, params, n, lanes, lane_n);
        if (what != NOTHING && !again) {
            tg_select_topk.estimate(scratch, sample, 500);
        }
        for (uint32_t lane = 0; lane < lanes; lane++) {
            measure_lane(scratch, u, n, lane, lane_n);
        }
        done = tg_select_topk.finish(scratch);
        for (uint32_t turn = 0; done && lanes > 1 && turn < tg_select_topk.turns; turn++) {
            for (uint32_t l = 0; l < lanes; l++) {
                tg_select_topk.sift(scratch, l, turn);
            }
            tg_select_topk.combine(scratch, turn);
        }
        assert_true(done || (what != NOTHING && !again));
    }
    memset(mask, 0, tg_words(n) * sizeof *mask);
    for (uint64_t at = 0; at < n; at += 64) {
        uint64_t left = n - at;
        tg_select_topk.mark(mask + at / 64, scratch, params, at, NULL, left < 64 ? (size_t)left : 64);
        uint32_t list[64];
        uint64_t listed = 0, most = at % 128 == 0 ? 64 : 3;
        uint64_t count = tg_select_topk.list(list, most, scratch, at, left < 64 ? left : 64);
        for (uint64_t i = 0; count <= most && i < count; i++) {
            assert_true(i == 0 || list[i] > list[i - 1]);
            listed |= UINT64_C(1) << list[i];
        }
        assert_int_equal(count, tg_mask_count(mask + at / 64, 64));
        assert_true(count > most || listed == mask[at / 64]);
    }
    free(scratch);
}

static void topk_is_what_sorting_gives(void **state)
{
    (void)state;
    test_random r = {5};
    static const uint64_t sizes[] = {1, 2, 3, 63, 64, 65, 997, 4096, 20011};
    static const double ratios[] = {1e-9, 0.001, 0.01, 0.1, 0.5, 0.9, 1};
    for (int i = 0; i < 9 * 7 * 5; i++) {
        uint64_t n = sizes[i % 9];
        double ratio = ratios[i / 9 % 7];
        float *u = test_room(n * sizeof *u);
        for (uint64_t j = 0; j < n; j++) {
            switch (i / 63) {
            case 0: u[j] = test_gaussian(&r); break;
            case 1: u[j] = (float)(test_bits(&r) % 5) - 2; break; /* many ties */
            case 2: u[j] = 0; break;
            case 3: u[j] = (float)j; break;                 /* ascending: every element beats the last */
            default: u[j] = (float)(n - j) * 1e-44f; break; /* denormals, descending */
            }
        }
        bool *expected = test_room(n * sizeof *expected);
        topk_by_sorting(expected, u, n, ratio);
        for (uint32_t lanes = 1; lanes <= 5; lanes += 2) {
            uint64_t *mask = test_room(tg_words(n) * sizeof *mask);
            run_topk(mask, u, n, ratio, lanes, (told)((i + (int)lanes) % 4));
            for (uint64_t j = 0; j < n; j++) {
                assert_int_equal(mask[j / 64] >> j % 64 & 1, expected[j]);
            }
            free(mask);
        }
        free(expected);
        free(u);
    }
}

static void threshold_is_inclusive(void **state)
{
    (void)state;
    const float u[] = {0.5f, -0.5f, 0.49999997f, 0, INFINITY, NAN, -0.0f, 1};
    double params[TG_PARAM_CAP] = {0, 0, 0.5};
    uint64_t mask = 0;
    tg_select_threshold.mark(&mask, NULL, params, 0, u, 8);
    assert_int_equal(mask, 0xb3);
    mask = 0;
    params[2] = 0;
    tg_select_threshold.mark(&mask, NULL, params, 0, u, 8);
    assert_int_equal(mask, 0xff);
}

/* The definition of docs/format.md section 5, with plain arrays. */
static void draw_by_definition(bool *taken, bool block, uint64_t n, uint64_t b, const tg_stream *s)
{
    memset(taken, 0, n);
    uint64_t start = tg_stream_below(s, 0, n), wanted = b <= n - b ? b : n - b;
    for (uint64_t i = 0; block && i < b; i++) {
        taken[(start + i) % n] = true;
    }
    for (uint64_t i = 0, count = 0; !block && count < wanted; i++) {
        uint64_t at = tg_stream_below(s, i, n);
        count += taken[at] ? 0 : 1;
        taken[at] = true;
    }
    for (uint64_t i = 0; !block && wanted < b && i < n; i++) {
        taken[i] = !taken[i];
    }
}

static void draws_follow_the_definition(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 7, 64, 65, 1000, 4097};
    static const double ratios[] = {1e-6, 0.01, 0.3, 0.5, 0.8, 1};
    for (uint64_t i = 0; i < 7 * 6 * 2 * 5; i++) {
        uint64_t n = sizes[i % 7];
        double params[TG_PARAM_CAP] = {0, 1, ratios[i / 7 % 6], 0};
        bool block = i / 42 % 2;
        const tg_select_part *part = block ? &tg_select_randomblock : &tg_select_randomk;
        tg_stream s = tg_stream_of(9, i, 2, 0);
        void *scratch = test_room((size_t)part->scratch_len(params, n, 1, n));
        part->draw(scratch, params, n, &s);
        bool *taken = test_room(n);
        draw_by_definition(taken, block, n, part->most(params, n), &s);
        uint64_t count = 0;
        for (uint64_t at = 0; at < n; at += 64) {
            uint64_t mask = 0;
            size_t m = n - at < 64 ? (size_t)(n - at) : 64;
            part->mark(&mask, scratch, params, at, NULL, m);
            for (size_t j = 0; j < m; j++) {
                assert_int_equal(mask >> j & 1, taken[at + j]);
                count += taken[at + j];
            }
        }
        assert_int_equal(count, part->most(params, n));
        free(taken);
        free(scratch);
    }
}

/* Every element is as likely as any other: 4000 draws of 10 of 100, five standard deviations allowed. */
static void draws_are_fair(void **state)
{
    (void)state;
    double params[TG_PARAM_CAP] = {0, 1, 0.1, 0};
    for (int which = 0; which < 2; which++) {
        const tg_select_part *part = which ? &tg_select_randomblock : &tg_select_randomk;
        int counts[100] = {0};
        void *scratch = test_room((size_t)part->scratch_len(params, 100, 1, 100));
        for (uint64_t step = 0; step < 4000; step++) {
            tg_stream s = tg_stream_of(1, step, 0, 0);
            uint64_t mask[2] = {0};
            part->draw(scratch, params, 100, &s);
            part->mark(mask, scratch, params, 0, NULL, 100);
            for (int i = 0; i < 100; i++) {
                counts[i] += (int)(mask[i / 64] >> i % 64 & 1);
            }
        }
        for (int i = 0; i < 100; i++) {
            assert_in_range(counts[i], 400 - 95, 400 + 95);
        }
        free(scratch);
    }
}

/* Orders in which simple pivots take quadratic time, which at this size would be hours. */
static void no_order_is_a_bad_one(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    float *u = test_room(N * sizeof *u);
    uint64_t *mask = test_room(N / 8);
    for (int order = 0; order < 4; order++) {
        for (uint32_t i = 0; i < N; i++) {
            uint32_t distance = i < N / 2 ? i : N - i;
            u[i] = order == 0   ? (i < N - 2 ? 0x1p-54f : (float)(i - N + 3)) /* all equal, then two that are larger */
                   : order == 1 ? (float)i
                   : order == 2 ? (float)(N - i)
                                : (float)distance;
        }
        for (int k = 0; k < 2; k++) {
            run_topk(mask, u, N, k == 0 ? 1 : 0.5, 1, NOTHING);
            assert_int_equal(tg_mask_count(mask, N), k == 0 ? N : N / 2);
        }
    }
    free(mask);
    free(u);
}

static void ratios_round_and_stay_in_range(void **state)
{
    (void)state;
    assert_int_equal(tg_ratio_entries(0.01, 0), 0);
    assert_int_equal(tg_ratio_entries(0.01, 1), 1);
    assert_int_equal(tg_ratio_entries(0.01, 149), 1);
    assert_int_equal(tg_ratio_entries(0.01, 150), 2);
    assert_int_equal(tg_ratio_entries(1, UINT64_C(1) << 60), UINT64_C(1) << 60);
    assert_int_equal(tg_ratio_entries(1, 3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topk_is_what_sorting_gives),     cmocka_unit_test(threshold_is_inclusive),
        cmocka_unit_test(draws_follow_the_definition),    cmocka_unit_test(draws_are_fair),
        cmocka_unit_test(ratios_round_and_stay_in_range), cmocka_unit_test(no_order_is_a_bad_one),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
