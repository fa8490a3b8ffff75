/* Steps of the low-rank exchange: against a computation in fp64, and with the same bits for every instruction set and number of
 * threads. Each step runs in a process of its own, since a process chooses its instruction set once. */
#include "support.h"

#include "base/half.h"
#include "kernels/hash.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORLD = 2, STEPS = 2, STATE_HEADER = 72 };

typedef struct shape {
    uint64_t rows, columns;
} shape;

/* A row and a column alone, primes, one or several leaves along rows and along columns, with and without rest. */
static const shape shapes[] = {{1, 2500}, {2500, 1}, {2, 3001},  {3001, 2},  {7, 5},     {13, 17},  {127, 131},
                               {31, 33},  {32, 64},  {1025, 11}, {17, 1025}, {67, 2053}, {2053, 67}};
enum { SHAPE_N = sizeof shapes / sizeof *shapes };

typedef struct scenario {
    uint32_t rank;
    tg_dtype dtype;
    tg_nonfinite nonfinite;
    bool has_extremes; /* NaN, Inf, and values that overflow */
    bool in_bf16;      /* factors travel so */
} scenario;

typedef struct job {
    scenario of;
    tg_tensor tensors[SHAPE_N];
    tg_exchange *ranks[WORLD];
    void *grads[WORLD][SHAPE_N];
} job;

static uint64_t elements(size_t t)
{
    return shapes[t].rows * shapes[t].columns;
}

static bool is_matrix(const job *j, size_t t)
{
    return j->of.rank * (shapes[t].rows + shapes[t].columns) < elements(t);
}

static job *job_new(const scenario *of, uint32_t threads)
{
    static const char *const names = "abcdefghijklmnopqrstuvwxyz";
    static char name[SHAPE_N][2];
    job *j = test_room(sizeof *j);
    char recipe[48];
    snprintf(recipe, sizeof recipe, "ef+lowrank@%u%s", of->rank, of->in_bf16 ? ",factors=bf16" : "");
    *j = (job){.of = *of};
    for (size_t t = 0; t < SHAPE_N; t++) {
        name[t][0] = names[t];
        j->tensors[t] = (tg_tensor){name[t], &shapes[t].rows, 2, TG_DENSE, of->dtype};
        for (int r = 0; r < WORLD; r++) {
            j->grads[r][t] = test_room(elements(t) * sizeof(float));
        }
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        tg_options opt = TG_OPTIONS_INIT;
        opt.has_seed = 1;
        opt.seed = 5;
        opt.threads = threads;
        opt.nonfinite = of->nonfinite;
        MUST(tg_exchange_new(&j->ranks[r], recipe, j->tensors, SHAPE_N, r, WORLD, &opt, why));
    }
    return j;
}

static void job_free(job *j)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        tg_exchange_free(j->ranks[r]);
        for (size_t t = 0; t < SHAPE_N; t++) {
            free(j->grads[r][t]);
        }
    }
    free(j);
}

static void fill(job *j, uint64_t step)
{
    static const float extremes[] = {3e38f, -3e38f, INFINITY, -INFINITY, NAN, 1e37f};
    for (uint32_t r = 0; r < WORLD; r++) {
        test_random random = {100 * step + r};
        for (size_t t = 0; t < SHAPE_N; t++) {
            float *values = test_room(elements(t) * sizeof *values);
            for (uint64_t i = 0; i < elements(t); i++) {
                values[i] = test_gaussian(&random);
            }
            for (size_t k = 0; j->of.has_extremes && t % 3 == 0 && k < 6; k++) {
                values[test_bits(&random) % elements(t)] = extremes[(k + t / 3) % 6];
            }
            tg_narrow(j->grads[r][t], values, j->of.dtype, elements(t));
            free(values);
        }
    }
}

static void reduce(job *j, uint64_t step)
{
    void *const *all[WORLD] = {j->grads[0], j->grads[1]};
    MUST(tg_lockstep_reduce(NULL, j->ranks, WORLD, step, all, NULL, why));
}

static uint8_t *state_of(const tg_exchange *x, size_t *len)
{
    *len = tg_state_len(x);
    uint8_t *bytes = test_room(*len);
    MUST(tg_state_save(x, bytes, *len, why));
    return bytes;
}

/* All that ranks hold after some steps, as a hash. */
static uint64_t hash_of_steps(const scenario *of, uint32_t threads)
{
    uint64_t hashes[STEPS * WORLD * (SHAPE_N + 1)];
    size_t n = 0;
    job *j = job_new(of, threads);
    for (uint64_t step = 0; step < STEPS; step++) {
        fill(j, step);
        reduce(j, step);
        for (int r = 0; r < WORLD; r++) {
            size_t len;
            uint8_t *state = state_of(j->ranks[r], &len);
            hashes[n++] = tg_hash(state, len);
            free(state);
            for (size_t t = 0; t < SHAPE_N; t++) {
                hashes[n++] = tg_hash(j->grads[r][t], elements(t) * tg_dtype_len(of->dtype));
            }
        }
    }
    job_free(j);
    return tg_hash(hashes, n * sizeof *hashes);
}

/* ---- the definition in fp64 ------------------------------------------------------------------------------------------ */

static double dot(const double *a, const double *b, uint64_t n, uint64_t stride)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += a[i * stride] * b[i * stride];
    }
    return sum;
}

static void orthonormalise(double *p, uint64_t rows, uint32_t rank)
{
    for (uint32_t k = 0; k < rank; k++) {
        for (uint32_t b = 0; b < 2 * k; b++) { /* twice */
            double share = dot(p + k, p + b % k, rows, rank);
            for (uint64_t i = 0; i < rows; i++) {
                p[i * rank + k] -= share * p[i * rank + b % k];
            }
        }
        double norm = sqrt(dot(p + k, p + k, rows, rank));
        for (uint64_t i = 0; i < rows; i++) {
            p[i * rank + k] /= norm;
        }
    }
}

/* The average of matrix t, from all ranks' M and the Q that the step starts from. */
static void expected_average(double *average, const float *const m[WORLD], const float *q, const shape *s,
                             uint32_t rank)
{
    double *p = test_room(s->rows * rank * sizeof *p), *next = test_room(s->columns * rank * sizeof *next);
    double *mean = test_room(s->rows * s->columns * sizeof *mean);
    memset(next, 0, s->columns * rank * sizeof *next);
    for (uint64_t e = 0; e < s->rows * s->columns; e++) {
        mean[e] = ((double)m[0][e] + (double)m[1][e]) / WORLD;
    }
    for (uint64_t i = 0; i < s->rows; i++) {
        for (uint32_t k = 0; k < rank; k++) {
            double sum = 0;
            for (uint64_t j = 0; j < s->columns; j++) {
                sum += mean[i * s->columns + j] * (double)q[k * s->columns + j];
            }
            p[i * rank + k] = sum;
        }
    }
    orthonormalise(p, s->rows, rank);
    for (uint64_t e = 0; e < s->rows * s->columns; e++) {
        for (uint32_t k = 0; k < rank; k++) {
            next[e % s->columns * rank + k] += mean[e] * p[e / s->columns * rank + k];
        }
    }
    for (uint64_t e = 0; e < s->rows * s->columns; e++) {
        average[e] = dot(p + e / s->columns * rank, next + e % s->columns * rank, rank, 1);
    }
    free(mean);
    free(next);
    free(p);
}

static const float *factors_of(const job *j, const uint8_t *state, size_t t)
{
    uint64_t at = 0;
    for (size_t u = 0; u < SHAPE_N; u++) {
        at += is_matrix(j, u) ? elements(u) : 0;
        at += is_matrix(j, u) && u < t ? j->of.rank * shapes[u].columns : 0;
    }
    return (const float *)(const void *)(state + STATE_HEADER) + at;
}

/* A NaN counts as infinite. */
static double larger(double a, double b)
{
    return b <= a ? a : (isnan(b) ? INFINITY : b);
}

/* The largest error relative to the largest magnitude of M, over all matrices and steps. */
static double error_of_steps(const scenario *of)
{
    double worst = 0;
    job *j = job_new(of, 2);
    for (uint64_t step = 0; step < STEPS; step++) {
        size_t len;
        uint8_t *state = state_of(j->ranks[0], &len);
        float *m[SHAPE_N][WORLD];
        fill(j, step);
        for (size_t t = 0; t < SHAPE_N; t++) {
            for (int r = 0; r < WORLD; r++) {
                m[t][r] = test_room(elements(t) * sizeof(float));
                MUST(tg_exchange_residual(j->ranks[r], m[t][r], t, why));
                for (uint64_t e = 0; e < elements(t); e++) {
                    m[t][r][e] += ((const float *)j->grads[r][t])[e];
                }
            }
        }
        reduce(j, step);
        for (size_t t = 0; t < SHAPE_N; t++) {
            double *average = test_room(elements(t) * sizeof *average), largest = 0, off = 0;
            float *residual = test_room(elements(t) * sizeof *residual);
            MUST(tg_exchange_residual(j->ranks[1], residual, t, why));
            if (is_matrix(j, t)) {
                expected_average(average, (const float *const *)m[t], factors_of(j, state, t), &shapes[t], of->rank);
            }
            for (uint64_t e = 0; e < elements(t); e++) {
                double want = is_matrix(j, t) ? average[e] : ((double)m[t][0][e] + (double)m[t][1][e]) / WORLD;
                double left = is_matrix(j, t) ? (double)m[t][1][e] - want : 0;
                largest = larger(largest, fabs((double)m[t][1][e]));
                off = larger(off, fabs((double)((const float *)j->grads[0][t])[e] - want));
                off = larger(off, fabs((double)residual[e] - left));
            }
            worst = larger(worst, off / largest);
            free(residual);
            free(average);
            free(m[t][0]);
            free(m[t][1]);
        }
        free(state);
    }
    job_free(j);
    return worst;
}

/* ---- in a process of its own ----------------------------------------------------------------------------------------- */

typedef struct answer {
    uint64_t hash;
    double error;
} answer;

static answer ask(int level, const scenario *of, uint32_t threads, bool for_error)
{
    static const char *const names[TG_SIMD_LEVELS] = {"scalar", "avx2", "avx512", "neon"};
    answer got = {0, 0};
    int ends[2], status = 1;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        setenv("TG_SIMD", names[level], 1);
        if (for_error) {
            got.error = error_of_steps(of);
        } else {
            got.hash = hash_of_steps(of, threads);
        }
        _exit(write(ends[1], &got, sizeof got) == sizeof got ? 0 : 1);
    }
    close(ends[1]);
    assert_true(child > 0 && read(ends[0], &got, sizeof got) == sizeof got);
    assert_true(waitpid(child, &status, 0) == child && status == 0);
    close(ends[0]);
    return got;
}

static void same_everywhere(const scenario *of)
{
    static const uint32_t threads[] = {1, 2, 3, 8};
    uint64_t first = ask(TG_SIMD_SCALAR, of, 1, false).hash;
    for (int level = TG_SIMD_SCALAR + 1; level < TG_SIMD_LEVELS; level++) {
        if (tg_kernels_of((tg_simd_level)level) != NULL) {
            assert_int_equal(ask(level, of, threads[level % 4], false).hash, first);
        }
    }
    for (size_t k = 0; k < 4; k++) {
        assert_int_equal(ask((int)tg_simd_best(), of, threads[k], false).hash, first);
    }
}

static void bits_are_the_same_everywhere(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {1, 3, 4, 64};
    for (size_t k = 0; k < 4; k++) {
        same_everywhere(&(scenario){.rank = ranks[k]});
    }
    same_everywhere(&(scenario){.rank = 4, .dtype = TG_FP16});
    same_everywhere(&(scenario){.rank = 2, .dtype = TG_BF16});
    same_everywhere(&(scenario){.rank = 4, .in_bf16 = true});
}

static void so_are_they_for_nan_and_inf(void **state)
{
    (void)state;
    static const tg_dtype dtypes[] = {TG_FP32, TG_FP16, TG_BF16};
    same_everywhere(&(scenario){.rank = 4, .nonfinite = TG_NONFINITE_ZERO, .has_extremes = true});
    for (size_t k = 0; k < 3; k++) {
        same_everywhere(&(scenario){
            .rank = 4, .dtype = dtypes[k], .nonfinite = TG_NONFINITE_PASS, .has_extremes = true, .in_bf16 = k == 0});
    }
}

static void steps_are_those_of_the_definition(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {1, 2, 4, 12, 17, 64};
    for (size_t k = 0; k < 5; k++) {
        double error = ask((int)tg_simd_best(), &(scenario){.rank = ranks[k]}, 0, true).error;
        printf("rank %u: off by %.2g of the largest element\n", ranks[k], error);
        assert_true(error < 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_the_same_everywhere),
        cmocka_unit_test(so_are_they_for_nan_and_inf),
        cmocka_unit_test(steps_are_those_of_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
