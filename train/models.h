/* The table of models. */
#ifndef TR_MODELS_H
#define TR_MODELS_H

#include "layers/net.h"

typedef struct tr_design {
    const char *name;
    tr_task task;
    uint32_t least; /* smallest height and width of an image; 0 for text */
    /* Adds the layers and returns the last signal: a logit for each class. */
    tr_signal *(*build)(tr_net *net, const tr_shape *shape);
} tr_design;

/* NULL if no model has this name. */
const tr_design *tr_design_find(const char *name);

#endif
