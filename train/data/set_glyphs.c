/* A data set that needs no files: digits that the program draws, the same in every run. */
#include "data/glyph.h"
#include "data/random.h"
#include "data/refuse.h"
#include "data/sets.h"

#include <stdlib.h>

enum { TRAIN_N = 20000, TEST_N = 4000, SEED = 28, SHIFT_MAX = 2 };

/* Draws samples [first, first + n) of an unlimited sequence. */
static int draw_part(tr_part *part, size_t first, size_t n, char why[TR_WHY])
{
    part->pixels = malloc(n * TR_GLYPH_LEN);
    part->labels = malloc(n);
    if (part->pixels == NULL || part->labels == NULL) {
        return tr_data_refuse_memory(why);
    }
    for (size_t i = 0; i < n; i++) {
        part->labels[i] = (uint8_t)((first + i) % TR_GLYPH_CLASSES);
        tr_glyph_draw(part->pixels + i * TR_GLYPH_LEN, part->labels[i],
                      tr_random_key(TR_RANDOM_GLYPH, SEED, first + i));
    }
    part->n = n;
    part->usual_n = n;
    return 0;
}

int tr_set_glyphs(tr_data *d, const char *place, char why[TR_WHY])
{
    if (place != NULL) {
        return tr_data_refuse(why, "'glyphs' takes no folder, because it is drawn and not read");
    }
    d->shape = (tr_shape){TR_IMAGES, 1, TR_GLYPH_SIDE, TR_GLYPH_SIDE, TR_GLYPH_CLASSES, 1};
    d->shift_max = SHIFT_MAX;
    if (draw_part(&d->parts[TR_TRAIN], 0, TRAIN_N, why) != 0) {
        return -1;
    }
    return draw_part(&d->parts[TR_TEST], TRAIN_N, TEST_N, why);
}
