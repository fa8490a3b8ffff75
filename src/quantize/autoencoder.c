/* LGC (arXiv 2103.08870): the values at a leader's coordinates travel as a short code that an autoencoder has learned in
 * the first part of the run. That takes exchanges of its own (exchange/lgc.c), so this is a name and numbers. */
#include "quantize/autoencoder.h"
#include "quantize/quantize.h"

static const char *const form_choices[] = {"ring", "server", NULL};
static const char *const code_choices[] = {"fp32", "fp16", "bf16", NULL}; /* as tg_dtype */
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
                     .summary = "codes are all-reduced (ring), or the leader's code and innovations go to a server",
                     .choices = form_choices,
                     .is_main = true},
    [TG_LGC_DENSE] = STEPS("dense", "steps at first in which all is sent", 200),
    [TG_LGC_LEARN] = STEPS("learn", "steps after them in which the autoencoder learns", 300),
    [TG_LGC_ENOUGH] = WEIGHT("enough", "relative error above which it goes on learning", 1e9, 0.5),
    [TG_LGC_CODE] = {.name = "code", .summary = "type in which codes travel", .choices = code_choices},
    [TG_LGC_ORDER] = {.name = "order",
                      .summary = "order of the values: of the leader's own values, or of indices",
                      .choices = order_choices},
    [TG_LGC_REFRESH] = STEPS("refresh", "steps after which it learns again; 0: never", 0),
    [TG_LGC_AGAIN] = STEPS("again", "steps for which it then learns", 20),
    [TG_LGC_OWN] = {.name = "own", .summary = "feedback of what the autoencoder itself misses", .choices = yes_choices},
    [TG_LGC_FIRST] = {.name = "first",
                      .summary = "the first layer: all of it, or as the last one, at the leader's coordinates",
                      .choices = first_choices},
    [TG_LGC_SHARE] = WEIGHT("share", "share of the values that are innovations, for a server", 1, 0.1),
    [TG_LGC_RATE] = WEIGHT("rate", "learning rate of the autoencoder", 1, 1e-3),
    [TG_LGC_LAMBDA1] = WEIGHT("lambda1", "weight of what a server reconstructs", 1e6, 0.5),
    [TG_LGC_LAMBDA2] = WEIGHT("lambda2", "weight of what codes of workers differ by, for a server", 1e6, 0.5),
    [TG_LGC_ENCODER] = CHANNELS("e1", "channels of the encoder's first layer", 64),
    [TG_LGC_ENCODER + 1] = CHANNELS("e2", "of its second", 128),
    [TG_LGC_ENCODER + 2] = CHANNELS("e3", "of its third", 256),
    [TG_LGC_ENCODER + 3] = CHANNELS("e4", "of its fourth", 64),
    [TG_LGC_CHANNELS] = CHANNELS("z", "channels of the code, of which each has a sixteenth of the values", 4),
    [TG_LGC_DECODER] = CHANNELS("d1", "channels of the decoder's first layer", 32),
    [TG_LGC_DECODER + 1] = CHANNELS("d2", "of its second", 64),
    [TG_LGC_DECODER + 2] = CHANNELS("d3", "of its third", 128),
    [TG_LGC_DECODER + 3] = CHANNELS("d4", "of its fourth", 32),
};

static const char *exchange(const double *p)
{
    return p[TG_LGC_FORM] == TG_LGC_RING ? "lgc-ring" : "lgc-server";
}

const tg_quantize_part tg_quantize_autoencoder = {
    .part = {.name = "autoencoder",
             .summary = "values as a code that is learned during the run",
             .params = params,
             .param_n = TG_LGC_PARAM_N},
    .exchange = exchange,
    .needs_leader = true,
};
