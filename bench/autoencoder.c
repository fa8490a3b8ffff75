/* Speed of the autoencoder on one core: its matrix products, with every instruction set of this CPU and with plain loops of the same
 * order, which must give the same bits; then encoding, decoding and a training step with four workers.
 *
 *     cmake --build build/release --target bench_autoencoder && build/release/bench_autoencoder [VALUES] */
#include "autoencoder/autoencoder.h"
#include "autoencoder/product.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WORKERS = 4, ROUNDS = 7, LARGEST = 768 * 768 };

static float a[LARGEST], b[LARGEST], c[LARGEST], wanted[LARGEST];

/* CPU time of this thread, because machines are shared. */
static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void fill(float *out, size_t n)
{
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
}

static void die(const char *what)
{
    fprintf(stderr, "bench_autoencoder: %s\n", what);
    exit(1);
}

/* ---- products -------------------------------------------------------------------------------------------------------- */

static void multiply_plainly(float *out, tg_matrix x, tg_matrix y, size_t rows, size_t columns, size_t inner)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            for (size_t k = 0; k < inner; k++) {
                out[i * columns + j] += x.at[i * x.row + k * x.column] * y.at[k * y.row + j * y.column];
            }
        }
    }
}

/* Columns of the table: plain loops, then each instruction set. */
static void time_product(const char *name, tg_matrix x, tg_matrix y, size_t rows, size_t columns, size_t inner)
{
    printf("%-46s", name);
    for (size_t way = 0; way <= tg_product_variant_n(); way++) {
        double best = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            memset(c, 0, sizeof c);
            double start = seconds();
            if (way == 0) {
                multiply_plainly(c, x, y, rows, columns, inner);
            } else {
                tg_product_by(way - 1, c, columns, x, y, rows, columns, inner);
            }
            double took = seconds() - start;
            best = took < best ? took : best;
            if (way == 0) {
                memcpy(wanted, c, sizeof wanted);
            } else if (memcmp(wanted, c, sizeof wanted) != 0) {
                die("a product has other bits than plain loops");
            }
        }
        printf(" %7.1f", 2e-9 * (double)(rows * columns * inner) / best);
    }
    printf("\n");
}

static void time_products(void)
{
    static const char *const names[] = {"plain C", "AVX2", "AVX-512"};
    fill(a, LARGEST);
    fill(b, LARGEST);
    printf("%-46s %7s", "products, GFLOP/s", "loops");
    for (size_t way = 0; way < tg_product_variant_n(); way++) {
        printf(" %7s", names[way]);
    }
    printf("\n");
    time_product("forward, 256 x 384 by 384 x 128", tg_rows(a, 384), tg_rows(b, 128), 256, 128, 384);
    time_product("by the input, (256 x 384)' by 256 x 128", tg_transposed(tg_rows(a, 384)), tg_rows(b, 128), 384, 128,
                 256);
    time_product("by the weights, 256 x 128 by (384 x 128)'", tg_rows(a, 128), tg_transposed(tg_rows(b, 128)), 256, 384,
                 128);
}

/* ---- the autoencoder ------------------------------------------------------------------------------------------------- */

/* FLOP per value of a pass through the standard encoder or decoder. */
static const double encoder_flop =
    2 * (64 * 3 / 2.0 + 128 * 64 * 3 / 4.0 + 256 * 128 * 3 / 8.0 + 64 * 256 * 3 / 16.0 + 4 * 64 / 16.0);
static const double decoder_flop =
    2 * (32 * 4 * 3 / 16.0 + 64 * 32 * 3 / 8.0 + 128 * 64 * 3 / 4.0 + 32 * 128 * 3 / 2.0 + 32);

static void show(const char *name, double took, double flop)
{
    printf("%-46s %7.1f ms %7.1f GFLOP/s\n", name, 1e3 * took, 1e-9 * flop / took);
}

static void time_autoencoder(size_t value_n)
{
    tg_autoencoder_config config = tg_autoencoder_standard(value_n);
    tg_autoencoder *ae = NULL;
    tg_detail why = {""};
    float *values = malloc(WORKERS * value_n * sizeof *values);
    const float *rows[WORKERS];
    double best[3] = {1e9, 1e9, 1e9}, loss = 0;
    if (values == NULL || tg_autoencoder_new(&ae, &config, 1, NULL, &why) != TG_OK) {
        die("out of memory");
    }
    float *code = malloc(tg_autoencoder_code_n(ae) * sizeof *code);
    if (code == NULL) {
        die("out of memory");
    }
    fill(values, WORKERS * value_n);
    for (size_t i = 0; i < WORKERS; i++) {
        rows[i] = values + i * value_n;
    }
    for (int round = 0; round < ROUNDS; round++) {
        double times[4] = {seconds()};
        tg_autoencoder_encode(code, ae, values);
        times[1] = seconds();
        tg_autoencoder_decode(values, ae, 0, code, NULL);
        times[2] = seconds();
        if (tg_autoencoder_train_mean(&loss, ae, rows, WORKERS, &why) != TG_OK) {
            die(why.text);
        }
        times[3] = seconds();
        for (int i = 0; i < 3; i++) {
            best[i] = times[i + 1] - times[i] < best[i] ? times[i + 1] - times[i] : best[i];
        }
    }
    double n = (double)value_n;
    printf("%zu values, the standard channels\n", value_n);
    show("encode", best[0], n * encoder_flop);
    show("decode", best[1], n * decoder_flop);
    show("a step of training, 4 workers", best[2], 3 * n * (WORKERS * encoder_flop + decoder_flop));
    free(code);
    free(values);
    tg_autoencoder_free(ae);
}

int main(int argc, char **argv)
{
    size_t value_n = argc > 1 ? strtoul(argv[1], NULL, 10) : 11200; /* a thousandth of a ResNet-18 */
    if (value_n == 0) {
        die("how many values?");
    }
    time_products();
    time_autoencoder(value_n);
    return 0;
}
