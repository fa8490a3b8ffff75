/* Memory bandwidth limits: plain loops over 25 million floats, with one thread and with two, against memcpy of the same bytes in the
 * same run.
 *
 *     bench_limits [ROUNDS]      [default: 15]
 *
 * A recipe cannot be faster than a loop that reads and writes the same memory. All loops take turns in every round, and the median
 * of the rounds counts. Loops use AVX-512 or AVX2 if the CPU has them; otherwise they are scalar, without non-temporal stores. Each
 * loop runs sequentially, and over four pages at once, as memcpy does, so that more cache lines are in flight. Results are compared
 * before anything is timed. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 32, PAGE = 1024, N = 25 * 1000 * 1000 / (8 * PAGE) * (8 * PAGE), ROUND_MAX = 1000 };
enum {
    READ_ONE,
    READ_TWO,
    COPY,
    COPY_STREAMING,
    SUM,
    SUM_STREAMING,
    ACCUMULATE,
    HALVE,
    HALVE_STREAMING,
    ACCUMULATE_HALVES,
    LOOP_N
};

typedef struct arrays {
    float *a, *b, *c;
    uint16_t *half;
} arrays;

typedef float loop(const arrays *x, size_t span, size_t from, size_t to);

static const struct about {
    const char *name;
    int bytes; /* per element, as the loop's name says; the CPU may also read lines before they are overwritten */
    int is_streaming;
} about[LOOP_N] = {
    [READ_ONE] = {"read a", 4, 0},
    [READ_TWO] = {"read a and b", 8, 0},
    [COPY] = {"c = a", 8, 0},
    [COPY_STREAMING] = {"c = a, streaming", 8, 1},
    [SUM] = {"c = a + b", 12, 0},
    [SUM_STREAMING] = {"c = a + b, streaming", 12, 1},
    [ACCUMULATE] = {"c += b", 12, 0},
    [HALVE] = {"h = half of a", 6, 0},
    [HALVE_STREAMING] = {"h = half of a, streaming", 6, 1},
    [ACCUMULATE_HALVES] = {"c += h", 10, 0},
};

/* ---- instruction sets ------------------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
#include <immintrin.h>

#define NAME(loop) avx512_##loop
#define TARGET __attribute__((target("avx512f")))
#define WIDTH 16
#define vector __m512
#define zero _mm512_setzero_ps
#define load _mm512_loadu_ps
#define store _mm512_storeu_ps
#define stream _mm512_stream_ps
#define add _mm512_add_ps
#define total _mm512_reduce_add_ps
#define load_half(at) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(at)))
#define to_halves(v) _mm512_maskz_cvtps_ph((__mmask16)0xffff, (v), _MM_FROUND_TO_NEAREST_INT)
#define store_half(at, v) _mm256_storeu_si256((__m256i *)(at), to_halves(v))
#define stream_half(at, v) _mm256_stream_si256((__m256i *)(at), to_halves(v))
#include "limits_loops.h"

__attribute__((target("avx2"))) static float avx2_total(__m256 v)
{
    float parts[8], sum = 0;
    _mm256_storeu_ps(parts, v);
    for (int i = 0; i < 8; i++) {
        sum += parts[i];
    }
    return sum;
}

#define NAME(loop) avx2_##loop
#define TARGET __attribute__((target("avx2,f16c")))
#define WIDTH 8
#define vector __m256
#define zero _mm256_setzero_ps
#define load _mm256_loadu_ps
#define store _mm256_storeu_ps
#define stream _mm256_stream_ps
#define add _mm256_add_ps
#define total avx2_total
#define load_half(at) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(at)))
#define store_half(at, v) _mm_storeu_si128((__m128i *)(at), _mm256_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT))
#define stream_half(at, v) _mm_stream_si128((__m128i *)(at), _mm256_cvtps_ph((v), _MM_FROUND_TO_NEAREST_INT))
#include "limits_loops.h"
#endif

static float plain_zero(void)
{
    return 0;
}

static float plain_load(const float *at)
{
    return *at;
}

static void plain_store(float *at, float v)
{
    *at = v;
}

static float plain_add(float a, float b)
{
    return a + b;
}

static float plain_total(float v)
{
    return v;
}

/* Halves are truncated bf16: the conversion is not measured. */
static float plain_load_half(const uint16_t *at)
{
    uint32_t bits = (uint32_t)*at << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static void plain_store_half(uint16_t *at, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    *at = (uint16_t)(bits >> 16);
}

#define NAME(loop) plain_##loop
#define TARGET
#define WIDTH 1
#define vector float
#define zero plain_zero
#define load plain_load
#define store plain_store
#define stream plain_store
#define add plain_add
#define total plain_total
#define load_half plain_load_half
#define store_half plain_store_half
#define stream_half plain_store_half
#include "limits_loops.h"

static loop *const *best_loops(const char **name)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        *name = "AVX-512";
        return avx512_loops;
    }
    if (__builtin_cpu_supports("avx2")) { /* every CPU with AVX2 has F16C */
        *name = "AVX2";
        return avx2_loops;
    }
#endif
    *name = "plain C";
    return plain_loops;
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

typedef struct share {
    const arrays *x;
    loop *run; /* NULL: memcpy */
    size_t span, from, to;
    float sum;
} share;

static void *run_share(void *context)
{
    share *s = context;
    if (s->run != NULL) {
        s->sum = s->run(s->x, s->span, s->from, s->to);
    } else {
        memcpy(s->x->c + s->from, s->x->a + s->from, (s->to - s->from) * sizeof(float));
        __asm__ volatile("" : : "r"(s->x->c) : "memory"); /* otherwise the compiler could omit the copy */
    }
    return NULL;
}

static void stop(const char *sentence)
{
    fprintf(stderr, "bench_limits: %s\n", sentence);
    exit(1);
}

/* How a loop is run. */
static const struct way {
    int threads;
    size_t span;
} ways[] = {{1, LINE}, {1, PAGE}, {2, LINE}, {2, PAGE}};

enum { WAY_N = sizeof ways / sizeof *ways };

static float run_all(const arrays *x, loop *run, const struct way *way)
{
    share shares[2];
    pthread_t other;
    size_t half = way->threads == 2 ? N / 2 : N;
    shares[0] = (share){x, run, way->span, 0, half, 0};
    shares[1] = (share){x, run, way->span, half, N, 0};
    if (half < N && pthread_create(&other, NULL, run_share, &shares[1]) != 0) {
        stop("a thread could not be started");
    }
    run_share(&shares[0]);
    if (half < N) {
        pthread_join(other, NULL);
    }
    return shares[0].sum + shares[1].sum;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds(const arrays *x, loop *run, const struct way *way)
{
    static volatile float kept; /* so that the compiler cannot omit the sums */
    double start = now();
    kept = run_all(x, run, way);
    (void)kept;
    return now() - start;
}

/* ---- checking -------------------------------------------------------------------------------------------------------- */

/* Small integers, whose sums are exact in any order. */
static void fill(const arrays *x)
{
    for (size_t i = 0; i < N; i++) {
        x->a[i] = (float)(i % 7) - 3;
        x->b[i] = (float)(i % 5) - 2;
        x->c[i] = 9;
        x->half[i] = 1;
    }
}

static void expect(const arrays *x, int with_b, const char *name)
{
    for (size_t i = 0; i < N; i++) {
        if (x->c[i] != x->a[i] + (with_b ? x->b[i] : 0)) {
            stop(name);
        }
        x->c[i] = 0;
    }
}

static void check(const arrays *x, loop *const *loops, const struct way *way)
{
    float sum = 0;
    fill(x);
    for (size_t i = 0; i < N; i++) {
        sum += x->a[i];
    }
    if (run_all(x, loops[READ_ONE], way) != sum) {
        stop("the sum of a is wrong");
    }
    for (size_t i = 0; i < N; i++) {
        sum += x->b[i];
    }
    if (run_all(x, loops[READ_TWO], way) != sum) {
        stop("the sum of a and b is wrong");
    }
    for (int l = COPY; l <= SUM_STREAMING; l++) {
        run_all(x, loops[l], way);
        expect(x, l >= SUM, about[l].name);
    }
    run_all(x, loops[COPY], way);
    run_all(x, loops[ACCUMULATE], way);
    expect(x, 1, about[ACCUMULATE].name);
    for (int l = HALVE; l <= HALVE_STREAMING; l++) {
        run_all(x, loops[l], way);
        run_all(x, loops[ACCUMULATE_HALVES], way);
        expect(x, 0, about[l].name);
    }
}

/* ---- the table ------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, by_value);
    return times[n / 2];
}

static void *room(size_t len)
{
    void *at = aligned_alloc(64, len);
    if (at == NULL) {
        stop("there is not enough memory");
    }
    return at;
}

static void print_row(const char *name, int bytes, const double found[WAY_N], double copied)
{
    printf("| %s | %d | %.3f | %.2f | %.3f | %.2f | %.2f | %.2f |\n", name, bytes, 1e9 * found[0] / N,
           copied / found[0], 1e9 * found[1] / N, copied / found[1], copied / found[2], copied / found[3]);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 15;
    const char *set;
    loop *const *loops = best_loops(&set);
    arrays x = {room(N * sizeof(float)), room(N * sizeof(float)), room(N * sizeof(float)), room(N * sizeof(uint16_t))};
    static double times[LOOP_N + 1][WAY_N][ROUND_MAX]; /* memcpy is the last */
    double found[LOOP_N + 1][WAY_N];
    if (rounds < 1 || rounds > ROUND_MAX) {
        stop("ROUNDS is 1 to 1000");
    }
    for (size_t w = 0; w < WAY_N; w++) {
        check(&x, loops, &ways[w]);
    }
    for (int r = 0; r < rounds; r++) {
        for (size_t l = 0; l <= LOOP_N; l++) {
            for (size_t w = 0; w < WAY_N; w++) {
                times[l][w][r] = seconds(&x, l < LOOP_N ? loops[l] : NULL, &ways[w]);
            }
        }
    }
    for (size_t l = 0; l <= LOOP_N; l++) {
        for (size_t w = 0; w < WAY_N; w++) {
            found[l][w] = median(times[l][w], rounds);
        }
    }
    double copied = found[LOOP_N][0];
    printf("%d floats, %s, median of %d rounds; 1 is memcpy with one thread, %.1f GB/s\n\n", N, set, rounds,
           1e-9 * N * sizeof(float) / copied);
    printf("| loop | bytes an element | ns | of memcpy | four pages at once, ns | of memcpy "
           "| 2 threads, of memcpy | four pages at once |\n|---|---|---|---|---|---|---|---|\n");
    printf("| `memcpy(c, a)` | 8 | %.3f | 1.00 | | | %.2f | |\n", 1e9 * copied / N, copied / found[LOOP_N][2]);
    for (int l = 0; l < LOOP_N; l++) {
        if (!about[l].is_streaming || loops != plain_loops) {
            print_row(about[l].name, about[l].bytes, found[l], copied);
        }
    }
    free(x.half);
    free(x.c);
    free(x.b);
    free(x.a);
    return 0;
}
