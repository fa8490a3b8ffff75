/* Images as columns: the column of a place in the output holds all numbers that the window sees from there. */
#ifndef TR_UNFOLD_H
#define TR_UNFOLD_H

#include "net.h"

/* columns: (channels x window height x window width) rows of `group` x out height x out width, from `group` samples that
 * lie end to end at `images`. Places in the padding are 0. */
void tr_unfold(float *columns, const float *images, const tr_layer *l, size_t group);

/* The way back: adds every number of the columns to the place in the images that it came from. */
void tr_fold_add(float *images, const float *columns, const tr_layer *l, size_t group);

#endif
