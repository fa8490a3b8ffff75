/* Matrix products; see product.h.
 *
 * A panel of b is copied to a contiguous buffer. It is two vector registers wide, and as deep as the first-level cache allows.
 * Then a tile of c, as wide as the panel, stays in registers while the panel is read. */
#include "autoencoder/product.h"

#include "kernels/kernels.h"

#include <float.h>
#include <string.h>

_Static_assert(FLT_EVAL_METHOD == 0, "float arithmetic must round to float");

enum {
    TILE_HEIGHT = 4, /* rows of a tile: with two registers a row, eight independent sums */
    WIDEST = 32,     /* columns of the widest panel */
    DEPTH = 128      /* rows of a panel; the widest panel has 16 KiB */
};

#define TILE_NAME tile_plain
#define TILE_TARGET
#define TILE_LANES 4
#include "autoencoder/tile.h"

#if defined(__x86_64__)
#define TILE_NAME tile_avx2
#define TILE_TARGET __attribute__((target("avx2")))
#define TILE_LANES 8
#include "autoencoder/tile.h"

#define TILE_NAME tile_avx512
#define TILE_TARGET __attribute__((target("avx512f")))
#define TILE_LANES 16
#include "autoencoder/tile.h"
#endif

/* c += a * panel, for one tile of c. */
typedef void tile(float *c, size_t stride, tg_matrix a, const float *panel, size_t depth);

typedef struct variant {
    tile *tall; /* a tile of TILE_HEIGHT rows */
    tile *row;  /* a tile of one row */
    size_t width;
} variant;

static const variant variants[] = {
    {tile_plain, tile_plain_row, 8},
#if defined(__x86_64__)
    {tile_avx2, tile_avx2_row, 16},
    {tile_avx512, tile_avx512_row, 32},
#endif
};

/* On x86-64 there is a variant for each tg_simd_level. Elsewhere plain C is enough: its four lanes are a register of NEON. */
size_t tg_product_variant_n(void)
{
#if defined(__x86_64__)
    return (size_t)tg_simd_best() + 1;
#else
    return 1;
#endif
}

static tg_matrix part_of(tg_matrix m, size_t i, size_t j)
{
    return (tg_matrix){m.at + i * m.row + j * m.column, m.row, m.column};
}

/* Copies `depth` rows and `columns` columns of b to the panel, padded with zeros to its width. */
static void fill_panel(float *panel, size_t width, tg_matrix b, size_t depth, size_t columns)
{
    if (columns < width) {
        memset(panel, 0, depth * width * sizeof *panel);
    }
    if (b.column == 1) {
        for (size_t k = 0; k < depth; k++) {
            memcpy(panel + k * width, b.at + k * b.row, columns * sizeof *panel);
        }
        return;
    }
    for (size_t j = 0; j < columns; j++) { /* b is transposed: read along its rows */
        for (size_t k = 0; k < depth; k++) {
            panel[k * width + j] = b.at[k * b.row + j * b.column];
        }
    }
}

/* Computes all tiles in a column of tiles of c. */
static void pass_panel(const variant *v, float *c, size_t stride, tg_matrix a, const float *panel, size_t rows,
                       size_t depth)
{
    size_t i = 0;
    for (; i + TILE_HEIGHT <= rows; i += TILE_HEIGHT) {
        v->tall(c + i * stride, stride, part_of(a, i, 0), panel, depth);
    }
    for (; i < rows; i++) {
        v->row(c + i * stride, stride, part_of(a, i, 0), panel, depth);
    }
}

/* The same where c is narrower than a tile: through a buffer of full width. */
static void pass_narrow(const variant *v, float *c, size_t stride, tg_matrix a, const float *panel, size_t rows,
                        size_t columns, size_t depth)
{
    float wide[TILE_HEIGHT * WIDEST] = {0};
    for (size_t i = 0; i < rows; i += TILE_HEIGHT) {
        size_t height = rows - i < TILE_HEIGHT ? rows - i : TILE_HEIGHT;
        for (size_t r = 0; r < height; r++) {
            memcpy(wide + r * v->width, c + (i + r) * stride, columns * sizeof *wide);
        }
        pass_panel(v, wide, v->width, part_of(a, i, 0), panel, height, depth);
        for (size_t r = 0; r < height; r++) {
            memcpy(c + (i + r) * stride, wide + r * v->width, columns * sizeof *wide);
        }
    }
}

void tg_product_by(size_t number, float *c, size_t stride, tg_matrix a, tg_matrix b, size_t rows, size_t columns,
                   size_t inner)
{
    const variant *v = &variants[number];
    float panel[DEPTH * WIDEST];
    for (size_t j = 0; j < columns; j += v->width) {
        size_t width = columns - j < v->width ? columns - j : v->width;
        for (size_t k = 0; k < inner; k += DEPTH) {
            size_t depth = inner - k < DEPTH ? inner - k : DEPTH;
            fill_panel(panel, v->width, part_of(b, k, j), depth, width);
            if (width == v->width) {
                pass_panel(v, c + j, stride, part_of(a, 0, k), panel, rows, depth);
            } else {
                pass_narrow(v, c + j, stride, part_of(a, 0, k), panel, rows, width, depth);
            }
        }
    }
}

void tg_product(float *c, size_t stride, tg_matrix a, tg_matrix b, size_t rows, size_t columns, size_t inner)
{
    tg_product_by(tg_product_variant_n() - 1, c, stride, a, b, rows, columns, inner);
}
