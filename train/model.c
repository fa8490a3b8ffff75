/* A model: a design from models.c, built for a shape, with its buffers. */
#include "model.h"
#include "layers/layers.h"
#include "layers/matrix.h"
#include "models.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct tr_model {
    tr_net net;
    tr_signal *last;
};

/* ---- creation ---------------------------------------------------------------------------------------------------------- */

/* Larger sizes are refused. So the arithmetic below cannot overflow, and sizes fit the ints of OpenBLAS. */
enum { SIZE_MOST = 1 << 24 };

static int refuse(char why[TR_WHY], const char *sentence)
{
    (void)snprintf(why, TR_WHY, "%s", sentence);
    return -1;
}

static int check_images(const tr_design *d, const tr_shape *shape, char why[TR_WHY])
{
    if (shape->channels == 0 || shape->height == 0 || shape->width == 0) {
        return refuse(why, "the images have no pixels");
    }
    if ((double)shape->channels * shape->height * shape->width > SIZE_MOST) {
        return refuse(why, "the images have more than 2^24 numbers each");
    }
    if (shape->height < d->least || shape->width < d->least) {
        (void)snprintf(why, TR_WHY, "images of %u x %u are too small for the model '%s', which needs %u x %u",
                       shape->height, shape->width, d->name, d->least, d->least);
        return TR_MISUSE;
    }
    return 0;
}

static int check_shape(const tr_design *d, const tr_shape *shape, size_t batch_max, char why[TR_WHY])
{
    if (d->task != shape->task) {
        (void)snprintf(why, TR_WHY, "the model '%s' learns from %s, but the data are %s", d->name,
                       d->task == TR_TEXT ? "text" : "images", shape->task == TR_TEXT ? "text" : "images");
        return TR_MISUSE;
    }
    if (shape->classes == 0 || shape->classes > SIZE_MOST) {
        return refuse(why, "the data must have 1 to 2^24 classes");
    }
    if (d->task == TR_TEXT && shape->sequence == 0) {
        return refuse(why, "a sample of text must have at least one character");
    }
    if (batch_max == 0 || batch_max > SIZE_MOST || batch_max * (d->task == TR_TEXT ? shape->sequence : 1) > SIZE_MOST) {
        return refuse(why, "a batch must have 1 to 2^24 samples, or characters of text");
    }
    return d->task == TR_IMAGES ? check_images(d, shape, why) : 0;
}

static int refuse_name(const char *name, char why[TR_WHY])
{
    int len = snprintf(why, TR_WHY, "there is no model '%.64s'; there are", name);
    for (size_t i = 0; tr_model_names[i] != NULL; i++) {
        len += snprintf(why + len, TR_WHY - (size_t)len, "%s %s", i > 0 ? "," : "", tr_model_names[i]);
    }
    return TR_MISUSE;
}

int tr_model_new(tr_model **out, const char *name, const tr_shape *shape, size_t batch_max, uint64_t seed,
                 char why[TR_WHY])
{
    const tr_design *d = tr_design_find(name);
    if (d == NULL) {
        return refuse_name(name, why);
    }
    int unfit = check_shape(d, shape, batch_max, why);
    if (unfit != 0) {
        return unfit;
    }
    tr_model *m = malloc(sizeof *m);
    if (m != NULL) {
        tr_net_init(&m->net, batch_max);
        m->last = d->build(&m->net, shape);
    }
    if (m == NULL || tr_net_take_memory(&m->net) != 0) {
        (void)snprintf(why, TR_WHY, "there is not enough memory for the model '%s' with batches of %zu", name,
                       batch_max);
        tr_model_free(m);
        return -1;
    }
    tr_matrix_one_thread();
    tr_net_start(&m->net, seed);
    *out = m;
    return 0;
}

void tr_model_free(tr_model *m)
{
    if (m != NULL) {
        tr_net_release(&m->net);
        free(m);
    }
}

/* ---- queries ------------------------------------------------------------------------------------------------------------- */

size_t tr_model_param_n(const tr_model *m)
{
    return m->net.param_n;
}

const tr_param *tr_model_param(const tr_model *m, size_t index)
{
    return index < m->net.param_n ? &m->net.params[index] : NULL;
}

float *tr_model_weights(tr_model *m, size_t *n)
{
    *n = m->net.weight_n;
    return m->net.weights;
}

float *tr_model_grads(tr_model *m, size_t *n)
{
    *n = m->net.weight_n;
    return m->net.grads;
}

float *tr_model_buffers(tr_model *m, size_t *n)
{
    *n = m->net.buffer_n;
    return m->net.buffers;
}

/* ---- running --------------------------------------------------------------------------------------------------------------- */

static tr_pass pass_over(const tr_model *m, const tr_batch *batch, bool training)
{
    assert(batch->n > 0 && batch->n <= m->net.batch_max);
    return (tr_pass){.batch = batch, .n = batch->n, .training = training, .scratch = m->net.scratch};
}

tr_score tr_model_train(tr_model *m, const tr_batch *batch, const tr_ready *ready)
{
    tr_pass pass = pass_over(m, batch, true);
    tr_net_forward(&m->net, &pass);
    tr_score score = tr_softmax(m->last, &pass);
    tr_net_backward(&m->net, &pass, ready);
    return score;
}

tr_score tr_model_test(tr_model *m, const tr_batch *batch)
{
    tr_pass pass = pass_over(m, batch, false);
    tr_net_forward(&m->net, &pass);
    return tr_softmax(m->last, &pass);
}
