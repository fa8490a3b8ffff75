/* The models there are. */
#ifndef TR_MODELS_H
#define TR_MODELS_H

#include "layers/net.h"

typedef struct tr_design {
    const char *name;
    tr_task task;
    uint32_t least; /* height and width of the smallest image that it can take; 0 for text */
    /* Puts the layers down and returns the last signal: a number for each class. */
    tr_signal *(*build)(tr_net *net, const tr_shape *shape);
} tr_design;

/* NULL if there is none of this name. */
const tr_design *tr_design_find(const char *name);

#endif
