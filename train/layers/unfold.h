/* im2col: the column of an output position holds all input values in its window. */
#ifndef TR_UNFOLD_H
#define TR_UNFOLD_H

#include "net.h"

/* columns: (channels x window height x window width) rows of `group` x out height x out width, from `group`
 * contiguous samples at `images`. Positions in the padding are 0. */
void tr_unfold(float *columns, const float *images, const tr_layer *l, size_t group);

/* col2im: adds every value of the columns to the pixel that it came from. */
void tr_fold_add(float *images, const float *columns, const tr_layer *l, size_t group);

#endif
