/* Models for small images and for text: those that papers commonly compare with. */
#include "models.h"
#include "layers/layers.h"

#include <stdio.h>
#include <string.h>

static tr_signal *classify(tr_net *net, tr_signal *x, const char *name, const tr_shape *shape)
{
    size_t in_n = x->channels * tr_signal_area(x);
    return tr_dense(net, x, name, shape->classes, tr_start_glorot(in_n, shape->classes));
}

static tr_signal *dense_relu(tr_net *net, tr_signal *x, const char *name, size_t features)
{
    return tr_relu(net, tr_dense(net, x, name, features, tr_start_he(x->channels * tr_signal_area(x))));
}

/* ---- mlp ------------------------------------------------------------------------------------------------------------- */

static tr_signal *build_mlp(tr_net *net, const tr_shape *shape)
{
    tr_signal *x = tr_pixels(net, shape);
    x = dense_relu(net, x, "dense1", 256);
    x = dense_relu(net, x, "dense2", 256);
    return classify(net, x, "dense3", shape);
}

/* ---- lenet: LeCun et al. 1998, with the sizes that Caffe made common ---------------------------------------------------- */

/* ReLU and max pooling commute; after the pool there are fewer values to process. */
static tr_signal *conv_pool(tr_net *net, tr_signal *x, const char *name, size_t features)
{
    x = tr_conv(net, x, name, features, (tr_window){5, 5, 1, 0}, true);
    return tr_relu(net, tr_pool_max(net, x, (tr_window){2, 2, 2, 0}));
}

static tr_signal *build_lenet(tr_net *net, const tr_shape *shape)
{
    tr_signal *x = tr_pixels(net, shape);
    x = conv_pool(net, x, "conv1", 20);
    x = conv_pool(net, x, "conv2", 50);
    x = dense_relu(net, x, "dense1", 500);
    return classify(net, x, "dense2", shape);
}

/* ---- residual nets for small images: He et al. 2016, section 4.2 ---------------------------------------------------------- */

/* A convolution and its norm, named block + conv and block + norm. */
static tr_signal *conv_norm(tr_net *net, tr_signal *x, const char *block, const char *conv, const char *norm,
                            size_t features, tr_window window)
{
    char name[48];
    (void)snprintf(name, sizeof name, "%s%s", block, conv);
    x = tr_conv(net, x, name, features, window, false);
    (void)snprintf(name, sizeof name, "%s%s", block, norm);
    return tr_norm(net, x, name);
}

/*     in --- conv1 - norm1 - relu - conv2 - norm2 --- add - relu
 *         |                                           |
 *         `--- identity, or shortcut - norm ----------'
 * Where the number of features changes, the shortcut is a 1 x 1 convolution. */
static tr_signal *residual_block(tr_net *net, tr_signal *in, const char *block, size_t features)
{
    bool changes = in->channels != features;
    size_t stride = changes ? 2 : 1;
    tr_signal *main = conv_norm(net, in, block, "conv1", "norm1", features, (tr_window){3, 3, stride, 1});
    main = tr_relu(net, main);
    main = conv_norm(net, main, block, "conv2", "norm2", features, (tr_window){3, 3, 1, 1});
    tr_signal *side = in;
    if (changes) {
        side = conv_norm(net, in, block, "shortcut", "shortcut.norm", features, (tr_window){1, 1, stride, 0});
    }
    return tr_relu(net, tr_add(net, main, side));
}

static tr_signal *build_resnet(tr_net *net, const tr_shape *shape, unsigned blocks)
{
    tr_signal *x = tr_pixels(net, shape);
    x = tr_relu(net, conv_norm(net, x, "", "conv1", "norm1", 16, (tr_window){3, 3, 1, 1}));
    for (unsigned stage = 1; stage <= 3; stage++) {
        for (unsigned b = 1; b <= blocks; b++) {
            char block[32];
            (void)snprintf(block, sizeof block, "stage%u.block%u.", stage, b);
            x = residual_block(net, x, block, (size_t)8 << stage);
        }
    }
    x = tr_pool_mean(net, x, (tr_window){x->height, x->width, 1, 0});
    return classify(net, x, "dense", shape);
}

static tr_signal *build_resnet8(tr_net *net, const tr_shape *shape)
{
    return build_resnet(net, shape, 1);
}

static tr_signal *build_resnet20(tr_net *net, const tr_shape *shape)
{
    return build_resnet(net, shape, 3);
}

/* ---- charlstm --------------------------------------------------------------------------------------------------------------- */

static tr_signal *build_charlstm(tr_net *net, const tr_shape *shape)
{
    tr_signal *x = tr_embedding(net, "embedding", shape->classes, shape->sequence, 64);
    x = tr_lstm(net, x, "lstm", 256);
    return classify(net, x, "dense", shape);
}

/* ---- the table --------------------------------------------------------------------------------------------------------------- */

static const tr_design designs[] = {
    {"mlp", TR_IMAGES, 1, build_mlp},         {"lenet", TR_IMAGES, 16, build_lenet},
    {"resnet8", TR_IMAGES, 1, build_resnet8}, {"resnet20", TR_IMAGES, 1, build_resnet20},
    {"charlstm", TR_TEXT, 0, build_charlstm},
};

const char *const tr_model_names[] = {"mlp", "lenet", "resnet8", "resnet20", "charlstm", NULL};

const tr_design *tr_design_find(const char *name)
{
    for (size_t i = 0; i < sizeof designs / sizeof *designs; i++) {
        if (strcmp(name, designs[i].name) == 0) {
            return &designs[i];
        }
    }
    return NULL;
}
