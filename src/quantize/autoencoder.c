/* LGC (arXiv 2103.08870): the values at a leader's coordinates are sent as a short code. An autoencoder learns the code in
 * the first part of the run. This file only declares the parameters; the work is done by exchanges (exchange/lgc.c). */
#include "quantize/autoencoder.h"
#include "quantize/quantize.h"

static const char *const form_choices[] = {"ring", "server", NULL};
static const char *const type_choices[] = {"fp32", "fp16", "bf16", NULL}; /* as tg_dtype */
static const char *const order_choices[] = {"value", "index", NULL};
static const char *const first_choices[] = {"dense", "sparse", NULL};
static const char *const yes_choices[] = {"no", "yes", NULL};

#define STEPS(called, why, default_n)                                                                              \
    {                                                                                                              \
        .name = (called), .summary = (why), .lowest = 0, .highest = 1e9, .is_whole = true, .standard = (default_n) \
    }
#define CHANNELS(called, why, default_n)                                                                            \
    {                                                                                                               \
        .name = (called), .summary = (why), .lowest = 1, .highest = 4096, .is_whole = true, .standard = (default_n) \
    }
#define WEIGHT(called, why, most, default_x)                                                        \
    {                                                                                               \
        .name = (called), .summary = (why), .lowest = 0, .highest = (most), .standard = (default_x) \
    }

static const tg_param params[TG_LGC_PARAM_N] = {
    [TG_LGC_FORM] = {.name = "form",
                     .summary =
                         "ring: all-reduce the codes; server: send the leader's code and innovations to a server",
                     .choices = form_choices,
                     .is_main = true},
    [TG_LGC_DENSE] = STEPS("dense", "steps at the start in which everything is sent", 200),
    [TG_LGC_LEARN] = STEPS("learn", "steps after these in which the autoencoder is trained", 300),
    [TG_LGC_ENOUGH] = WEIGHT("enough", "relative error above which training continues", 1e9, 0.5),
    [TG_LGC_CODE] = {.name = "code", .summary = "type of the codes on the wire", .choices = type_choices},
    [TG_LGC_ORDER] = {.name = "order",
                      .summary = "order of the values: sorted by the leader's values, or by index",
                      .choices = order_choices},
    [TG_LGC_REFRESH] = STEPS("refresh", "steps after which it is trained again; 0: never", 0),
    [TG_LGC_AGAIN] = STEPS("again", "steps of that training", 20),
    [TG_LGC_OWN] = {.name = "own", .summary = "error feedback of the autoencoder's own error", .choices = yes_choices},
    [TG_LGC_FIRST] = {.name = "first",
                      .summary =
                          "the model's first layer: sent dense, or sparse at the leader's coordinates like the last",
                      .choices = first_choices},
    [TG_LGC_SHARE] = WEIGHT("share", "server: fraction of the values that are sent as innovations", 1, 0.1),
    [TG_LGC_RATE] = WEIGHT("rate", "learning rate of the autoencoder", 1, 1e-3),
    [TG_LGC_LAMBDA1] = WEIGHT("lambda1", "server: weight of the reconstruction loss", 1e6, 0.5),
    [TG_LGC_LAMBDA2] = WEIGHT("lambda2", "server: weight of the similarity loss between the workers' codes", 1e6, 0),
    [TG_LGC_ENCODER] = CHANNELS("e1", "channels of the encoder's layer 1", 64),
    [TG_LGC_ENCODER + 1] = CHANNELS("e2", "channels of the encoder's layer 2", 128),
    [TG_LGC_ENCODER + 2] = CHANNELS("e3", "channels of the encoder's layer 3", 256),
    [TG_LGC_ENCODER + 3] = CHANNELS("e4", "channels of the encoder's layer 4", 64),
    [TG_LGC_CHANNELS] = CHANNELS("z", "channels of the code; each has 1/16 of the number of values", 4),
    [TG_LGC_DECODER] = CHANNELS("d1", "channels of the decoder's layer 1", 32),
    [TG_LGC_DECODER + 1] = CHANNELS("d2", "channels of the decoder's layer 2", 64),
    [TG_LGC_DECODER + 2] = CHANNELS("d3", "channels of the decoder's layer 3", 128),
    [TG_LGC_DECODER + 3] = CHANNELS("d4", "channels of the decoder's layer 4", 32),
    [TG_LGC_WHOLE_TYPE] =
        {.name = "whole",
         .summary = "type of values that are sent whole: in dense steps, and of the first layer, norms and biases",
         .choices = type_choices},
};

static const char *exchange(const double *p)
{
    return p[TG_LGC_FORM] == TG_LGC_RING ? "lgc-ring" : "lgc-server";
}

const tg_quantize_part tg_quantize_autoencoder = {
    .part = {.name = "autoencoder",
             .summary = "LGC: values as a code that an autoencoder learns during the run",
             .params = params,
             .param_n = TG_LGC_PARAM_N},
    .exchange = exchange,
    .needs_leader = true,
};
