/* The entropy stage alone: the coded packs against zstd, on the same symbols, in the same run.
 *
 *     bench_entropy [ROUNDS]      [default: 30]
 *
 * The symbols are the output of a quantizer on random values, a chunk of 262,144. All packs take turns in every round, and the best
 * round of each counts. Throughput is relative to memcpy of the symbols (two bytes each). Decoded symbols are compared before
 * anything is timed. */
#include "base/philox.h"
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const tg_symbol_part tg_symbol_huffman, tg_symbol_zstd;

enum { N = TG_CHUNK, PACKS = 5 };

typedef struct pack {
    const char *name;
    const tg_symbol_part *part;
    double params[TG_PARAM_CAP];
    uint8_t *bytes;
    void *room; /* workspace as in a codec: for all chunks */
    size_t len;
    double encode, decode; /* best seconds */
} pack;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *room(size_t len)
{
    void *at = aligned_alloc(64, (len + 63) / 64 * 64);
    if (at == NULL) {
        fprintf(stderr, "bench_entropy: no memory\n");
        exit(1);
    }
    return at;
}

/* ---- symbols --------------------------------------------------------------------------------------------------------- */

static void draw(float *values, const char *law)
{
    tg_stream stream = tg_stream_of(1, 0, 0, 0);
    uint32_t *words = room(2 * N * sizeof *words);
    tg_stream_words(words, &stream, 0, 2 * N, 0);
    for (size_t i = 0; i < N; i++) {
        double u = ((double)words[2 * i] + 0.5) * 0x1p-32, v = (double)words[2 * i + 1] * 0x1p-32;
        double normal = sqrt(-2 * log(u)) * cos(6.283185307179586 * v), laplace = (v < 0.5 ? -1 : 1) * -log(u);
        values[i] = (float)(strcmp(law, "gaussian") == 0  ? normal
                            : strcmp(law, "laplace") == 0 ? laplace
                                                          : normal * normal * normal);
    }
    free(words);
}

/* Quantizes the values with the recipe's quantizer. */
static uint32_t quantize(uint16_t *symbols, const float *values, const char *recipe, uint8_t *side)
{
    tg_recipe r;
    tg_detail why;
    if (tg_recipe_parse(&r, recipe, &why) != TG_OK) {
        fprintf(stderr, "bench_entropy: %s\n", why.text);
        exit(1);
    }
    const tg_quantize_part *part = tg_recipe_quantize(&r);
    const double *params = r.value[TG_STAGE_quantize];
    uint64_t bucket_n = part->bucket_fixed != 0 ? part->bucket_fixed : (uint64_t)params[part->bucket_param];
    bucket_n = bucket_n < N ? bucket_n : N; /* TG_BUCKET_CHUNK is more */
    float *work = room(N * sizeof *work), *clipped = room(N * sizeof *clipped);
    uint16_t *upper = room(N * sizeof *upper);
    void *space = room(part->scratch_len == NULL ? 64 : (size_t)part->scratch_len(params));
    tg_stream stream = tg_stream_of(2, 0, 0, 0);
    memcpy(work, values, N * sizeof *work);
    const tg_draws draws = tg_draw(upper, stream.key, 0, N, 0, work);
    for (uint64_t at = 0; at < N; at += bucket_n) {
        size_t n = (size_t)(N - at < bucket_n ? N - at : bucket_n);
        tg_bucket b = {.symbols = symbols + at,
                       .side = side,
                       .values = work + at,
                       .clipped = clipped,
                       .draws = tg_draws_from(&draws, (size_t)at),
                       .scratch = space,
                       .n = n};
        part->encode_bucket(&b, params);
    }
    free(space);
    free(upper);
    free(clipped);
    free(work);
    return part->base(params);
}

/* ---- timing ---------------------------------------------------------------------------------------------------------- */

static double best(double a, double b)
{
    return a == 0 || b < a ? b : a;
}

static void run(pack *packs, const uint16_t *symbols, uint32_t base, int rounds, double *copy)
{
    uint16_t *back = room(N * sizeof *back);
    for (int k = 0; k < PACKS; k++) {
        pack *p = &packs[k];
        tg_coding coding = {.base = base, .params = p->params};
        p->bytes = room((size_t)tg_plain_len(N, &coding) + 1);
        p->room = room((size_t)p->part->scratch_len(p->params));
        p->encode = p->decode = 0;
    }
    *copy = 0;
    for (int round = 0; round < rounds; round++) {
        double start = now();
        memcpy(back, symbols, N * sizeof *back);
        *copy = best(*copy, now() - start);
        for (int k = 0; k < PACKS; k++) {
            pack *p = &packs[k];
            tg_coding coding = {.base = base, .params = p->params, .scratch = p->room};
            memset(back, 0xff, N * sizeof *back);
            start = now();
            p->len = tg_coded_write(p->bytes, symbols, N, p->part, &coding);
            p->encode = best(p->encode, now() - start);
            start = now();
            bool read = tg_coded_read(back, p->bytes, p->len, N, p->part, &coding);
            p->decode = best(p->decode, now() - start);
            if (!read || memcmp(back, symbols, N * sizeof *back) != 0) {
                fprintf(stderr, "bench_entropy: %s does not give back what it was given\n", p->name);
                exit(1);
            }
        }
    }
    free(back);
}

static double entropy(const uint16_t *symbols)
{
    uint32_t counts[TG_BASE_MAX] = {0};
    double bits = 0;
    for (size_t i = 0; i < N; i++) {
        counts[symbols[i]]++;
    }
    for (uint32_t s = 0; s < TG_BASE_MAX; s++) {
        bits -= counts[s] == 0 ? 0 : counts[s] * log2((double)counts[s] / N);
    }
    return bits / N;
}

int main(int argc, char **argv)
{
    static const char *const laws[] = {"gaussian", "laplace", "cubed"};
    static const char *const recipes[] = {"fp4", "fp8", "fp8@e4m3", "orq@9", "ternary", "natural"};
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    uint16_t *symbols = room(N * sizeof *symbols);
    float *values = room(N * sizeof *values);
    uint8_t side[128];
    printf("%-9s %-9s %-9s %8s %8s %8s %8s %8s %8s\n", "values", "quantizer", "pack", "entropy", "bits", "encode",
           "decode", "Msym/s", "Msym/s");
    for (size_t i = 0; i < 18; i++) {
        pack packs[PACKS] = {{.name = "rans", .part = &tg_symbol_rans},
                             {.name = "huffman", .part = &tg_symbol_huffman},
                             {.name = "zstd@1", .part = &tg_symbol_zstd, .params = {1}},
                             {.name = "zstd@3", .part = &tg_symbol_zstd, .params = {3}},
                             {.name = "zstd@9", .part = &tg_symbol_zstd, .params = {9}}};
        double copy = 0;
        draw(values, laws[i / 6]);
        uint32_t base = quantize(symbols, values, recipes[i % 6], side);
        run(packs, symbols, base, rounds, &copy);
        for (int k = 0; k < PACKS; k++) {
            const pack *p = &packs[k];
            printf("%-9s %-9s %-9s %8.4f %8.4f %8.4f %8.4f %8.0f %8.0f\n", laws[i / 6], recipes[i % 6], p->name,
                   entropy(symbols), 8.0 * (double)p->len / N, copy / p->encode, copy / p->decode, N / p->encode / 1e6,
                   N / p->decode / 1e6);
            free(p->room);
            free(p->bytes);
        }
    }
    free(values);
    free(symbols);
    return 0;
}
