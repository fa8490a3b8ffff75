/* The innermost loop of a product, for one instruction set. A template: a file that includes it first defines
 *
 *     TILE_NAME       the name of the function; TILE_NAME_row is the version for one row
 *     TILE_TARGET     the attribute that enables the instruction set, or nothing
 *     TILE_LANES      floats of a vector register
 *     TILE_HEIGHT     rows of a tile, the same for all instruction sets
 *
 * The code uses vectors of exactly TILE_LANES floats, because compilers do not vectorise these nested loops well by themselves,
 * and do not keep longer vectors in registers. There is no include guard; the first three names are undefined at the end. */

#define TILE_JOIN(a, b) a##b
#define TILE_PART(name, part) TILE_JOIN(name, part)
#define TILE_VECTOR TILE_PART(TILE_NAME, _vector)
#define TILE_ANY TILE_PART(TILE_NAME, _any)

typedef float TILE_VECTOR __attribute__((vector_size(4 * TILE_LANES), aligned(4), may_alias));

/* `height` is constant wherever this is inlined, so that all sums stay in registers. */
TILE_TARGET static inline __attribute__((always_inline)) void TILE_ANY(float *c, size_t stride, tg_matrix a,
                                                                       const float *panel, size_t depth, size_t height)
{
    TILE_VECTOR left[TILE_HEIGHT], right[TILE_HEIGHT];
    for (size_t i = 0; i < height; i++) {
        left[i] = *(const TILE_VECTOR *)(c + i * stride);
        right[i] = *(const TILE_VECTOR *)(c + i * stride + TILE_LANES);
    }
    for (size_t k = 0; k < depth; k++) {
        TILE_VECTOR b_left = *(const TILE_VECTOR *)(panel + k * 2 * TILE_LANES);
        TILE_VECTOR b_right = *(const TILE_VECTOR *)(panel + k * 2 * TILE_LANES + TILE_LANES);
        for (size_t i = 0; i < height; i++) {
            float factor = a.at[i * a.row + k * a.column];
            left[i] += factor * b_left;
            right[i] += factor * b_right;
        }
    }
    for (size_t i = 0; i < height; i++) {
        *(TILE_VECTOR *)(c + i * stride) = left[i];
        *(TILE_VECTOR *)(c + i * stride + TILE_LANES) = right[i];
    }
}

TILE_TARGET static void TILE_NAME(float *c, size_t stride, tg_matrix a, const float *panel, size_t depth)
{
    TILE_ANY(c, stride, a, panel, depth, TILE_HEIGHT);
}

TILE_TARGET static void TILE_PART(TILE_NAME, _row)(float *c, size_t stride, tg_matrix a, const float *panel,
                                                   size_t depth)
{
    TILE_ANY(c, stride, a, panel, depth, 1);
}

#undef TILE_ANY
#undef TILE_VECTOR
#undef TILE_PART
#undef TILE_JOIN
#undef TILE_LANES
#undef TILE_TARGET
#undef TILE_NAME
