/* The round trip, held against what the library promises; see check.h. The comparisons know the recipe only by
 * its canonical text, as any other user of the library would.
 */
#include "check.h"

#include <tersegrad/experimental.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

enum { STEP_N = 2 }; /* the second step has a residual from the first */

/* What the canonical recipe says about the values that a decoder sees. */
typedef struct law {
    int has_residual; /* gradient + decay * old residual = decoded + new residual */
    double decay;
    int knows_values; /* each decoded value is 0 or the gradient's, rounded by the quantizer */
    int is_scaled;    /* ... times one number that is the same for all */
    double relative;  /* the quantizer's rounding */
    double absolute;
    double largest; /* larger values are written as this one */
} law;

typedef struct trial {
    const cli_check *check;
    law law;
    tg_codec *codecs[3]; /* the one that is judged, one more, and one with a single thread */
    uint8_t *frame, *again;
    size_t frame_cap, frame_len;
    float *grad; /* as binary32, as the policy for NaN and Inf leaves it */
    float *decoded, *old_residual, *residual;
    void *typed; /* decoded in the tensor's dtype */
} trial;

/* ---- the law of a recipe --------------------------------------------------------------------------- */

/* The part at *recipe: copies "name@..." to `part` and moves on to the next; 0 at the end. */
static int next_part(char part[TG_RECIPE_CAP], const char **recipe)
{
    size_t len = strcspn(*recipe, "+");
    if (len == 0) {
        return 0;
    }
    memcpy(part, *recipe, len);
    part[len] = '\0';
    *recipe += len + ((*recipe)[len] == '+');
    return 1;
}

static int is_part(const char *part, const char *name)
{
    size_t len = strlen(name);
    return strncmp(part, name, len) == 0 && (part[len] == '\0' || part[len] == '@');
}

/* Is this the name of a part of that stage? */
static int has_stage(const char *part, const char *stage)
{
    tg_part_info info;
    for (size_t i = 0; tg_part_list(&info, i, NULL) == TG_OK; i++) {
        if (is_part(part, info.name) && strcmp(info.stage, stage) == 0) {
            return 1;
        }
    }
    return 0;
}

static law law_of(const char *recipe)
{
    law l = {.decay = 1, .knows_values = 0};
    char part[TG_RECIPE_CAP];
    int other_feedback = 0;
    while (next_part(part, &recipe)) {
        const char *decay = strstr(part, "decay=");
        if (is_part(part, "ef")) {
            l.has_residual = 1;
            if (decay != NULL) {
                l.decay = strtod(decay + strlen("decay="), NULL);
            }
        } else if (has_stage(part, "feedback") && !is_part(part, "none")) {
            other_feedback = 1; /* a part that this program is older than */
        } else if (is_part(part, "fp32")) {
            l = (law){l.has_residual, l.decay, 1, l.is_scaled, 0, 0, INFINITY};
        } else if (is_part(part, "fp16")) {
            l = (law){l.has_residual, l.decay, 1, l.is_scaled, 0x1p-10, 6e-8, 65504};
        } else if (is_part(part, "bf16")) {
            l = (law){l.has_residual, l.decay, 1, l.is_scaled, 0x1p-7, 1e-40, 0x1.fep127};
        }
        if (strstr(part, "unbiased=yes") != NULL) {
            l.is_scaled = 1;
        }
    }
    if (other_feedback || l.has_residual) {
        l.knows_values = 0;
    }
    return l;
}

/* ---- comparisons ----------------------------------------------------------------------------------- */

static int complain(const trial *t, size_t at, const char *what)
{
    return cli_fail(CLI_FAILED, "the round trip of %s is wrong: %s at element %zu", t->check->recipe, what, at);
}

/* Nothing lost: what went in comes out now or is remembered. */
static int check_residual(const trial *t)
{
    for (size_t i = 0; i < t->check->n; i++) {
        double in = (double)t->grad[i] + t->law.decay * (double)t->old_residual[i];
        double out = (double)t->decoded[i] + (double)t->residual[i];
        double room =
            0x1p-22 * (fabs((double)t->grad[i]) + fabs((double)t->old_residual[i]) + fabs((double)t->decoded[i])) +
            1e-44;
        if (!isfinite(t->grad[i])) {
            continue; /* passed on, never remembered */
        }
        if (!(fabs(in - out) <= room)) {
            return complain(t, i, "gradient and residual do not add up");
        }
    }
    return CLI_OK;
}

/* The number by which an unbiased recipe scales what it sends: taken from the largest value that came
 * through, where rounding matters least. */
static double scale_of(const trial *t)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < t->check->n; i++) {
        double size = fabs((double)t->decoded[i]);
        if (!(size > 0) || !(size < t->law.largest) || t->grad[i] == 0 || !isfinite(t->grad[i])) {
            continue;
        }
        if (best == SIZE_MAX || size > fabs((double)t->decoded[best])) {
            best = i;
        }
    }
    return best == SIZE_MAX ? 1 : (double)t->decoded[best] / (double)t->grad[best];
}

/* What was sent is what was there, up to the quantizer's rounding. */
static int check_values(const trial *t)
{
    double scale = t->law.is_scaled ? scale_of(t) : 1;
    /* The scale itself was seen through the quantizer, and the product rounds as well. */
    double relative = t->law.is_scaled ? 2 * t->law.relative + 0x1p-21 : t->law.relative;
    if (!(scale > 0.999)) {
        return complain(t, 0, "values have shrunk");
    }
    for (size_t i = 0; i < t->check->n; i++) {
        double want = (double)t->grad[i] * scale;
        double got = (double)t->decoded[i];
        if (got == 0 || !isfinite(want)) {
            continue;
        }
        double room = relative * fabs(want) + t->law.absolute;
        int saturates = fabs(want) * (1 + relative) >= t->law.largest && fabs(got) >= t->law.largest;
        if (saturates && (got > 0) == (want > 0)) {
            continue;
        }
        if (!(fabs(got - want) <= room)) {
            return complain(t, i, "a value came back wrong");
        }
    }
    return CLI_OK;
}

/* The two ways to decode agree: into the tensor's own dtype, and added in binary32. */
static int check_typed(const trial *t)
{
    tg_dtype dtype = t->check->tensor->dtype;
    double relative = dtype == TG_FP32 ? 0 : dtype == TG_FP16 ? 0x1p-11 : 0x1p-8;
    double absolute = dtype == TG_FP32 ? 0 : dtype == TG_FP16 ? 3e-8 : 5e-41;
    double largest = dtype == TG_FP32 ? INFINITY : dtype == TG_FP16 ? 65504 : 0x1.fep127; /* finite stays finite */
    size_t element_len = tg_dtype_len(dtype);
    for (size_t i = 0; i < t->check->n; i++) {
        float value;
        double want = (double)t->decoded[i];
        tg_widen(&value, (const uint8_t *)t->typed + i * element_len, dtype, 1);
        if (!isfinite(value) || !isfinite(want)) {
            continue;
        }
        want = fmin(fmax(want, -largest), largest);
        if (!(fabs((double)value - want) <= relative * fabs(want) + absolute)) {
            return complain(t, i, "tg_decode and tg_decode_add differ");
        }
    }
    return CLI_OK;
}

static double nmse_of(const trial *t)
{
    double error = 0;
    double energy = 0;
    for (size_t i = 0; i < t->check->n; i++) {
        double off = (double)t->grad[i] - (double)t->decoded[i];
        error += off * off;
        energy += (double)t->grad[i] * (double)t->grad[i];
    }
    return energy > 0 ? error / energy : NAN;
}

/* ---- the trial ------------------------------------------------------------------------------------- */

static void free_trial(trial *t)
{
    for (size_t c = 0; c < sizeof t->codecs / sizeof *t->codecs; c++) {
        tg_codec_free(t->codecs[c]);
    }
    free(t->frame);
    free(t->again);
    free(t->grad);
    free(t->decoded);
    free(t->old_residual);
    free(t->residual);
    free(t->typed);
}

static int start_trial(trial *t, const cli_check *check)
{
    tg_detail why;
    *t = (trial){.check = check};
    tg_options single = *check->opt;
    single.threads = 1;
    for (size_t c = 0; c < 3; c++) {
        const tg_options *opt = c == 2 ? &single : check->opt;
        tg_status status = tg_codec_new(&t->codecs[c], check->recipe, check->tensor, 1, opt, &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
    }
    t->law = law_of(tg_codec_recipe(t->codecs[0], 0));
    t->frame_cap = tg_encode_bound(t->codecs[0]);
    t->frame = malloc(t->frame_cap);
    t->again = malloc(t->frame_cap);
    t->grad = calloc(check->n + 1, sizeof(float));
    t->decoded = calloc(check->n + 1, sizeof(float));
    t->old_residual = calloc(check->n + 1, sizeof(float));
    t->residual = calloc(check->n + 1, sizeof(float));
    t->typed = calloc(check->n + 1, sizeof(float));
    if (t->frame == NULL || t->again == NULL || t->grad == NULL || t->decoded == NULL || t->old_residual == NULL ||
        t->residual == NULL || t->typed == NULL) {
        return cli_fail_memory();
    }
    tg_widen(t->grad, check->grad, check->tensor->dtype, check->n);
    for (size_t i = 0; i < check->n && check->opt->nonfinite == TG_NONFINITE_ZERO; i++) {
        if (!isfinite(t->grad[i])) {
            t->grad[i] = 0;
        }
    }
    return CLI_OK;
}

/* Encodes one step three times; all frames must be the same bytes. */
static int encode_step(trial *t, uint64_t step)
{
    const void *grads[1] = {t->check->grad};
    tg_detail why;
    tg_status status = tg_encode(&t->frame_len, t->codecs[0], t->frame, t->frame_cap, step, grads, &why);
    for (size_t c = 1; c < 3 && status == TG_OK; c++) {
        size_t len;
        status = tg_encode(&len, t->codecs[c], t->again, t->frame_cap, step, grads, &why);
        if (status == TG_OK && (len != t->frame_len || memcmp(t->frame, t->again, len) != 0)) {
            return cli_fail(CLI_FAILED, "%s wrote other bytes %s", t->check->recipe,
                            c == 1 ? "when it encoded the same gradient again" : "with one thread than with several");
        }
    }
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

static int decode_step(trial *t)
{
    tg_detail why;
    float *sums[1] = {t->decoded};
    float *swap = t->old_residual;
    t->old_residual = t->residual;
    t->residual = swap;
    memset(t->decoded, 0, t->check->n * sizeof *t->decoded);
    tg_status status = tg_decode_add(t->codecs[0], sums, 1.0f, t->frame, t->frame_len, &why);
    if (status == TG_OK) {
        void *out[1] = {t->typed};
        status = tg_decode(t->codecs[0], out, t->frame, t->frame_len, &why);
    }
    if (status == TG_OK) {
        status = tg_codec_residual(t->codecs[0], t->residual, 0, &why);
    }
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

static int run_step(cli_check_result *out, trial *t, uint64_t step)
{
    int code = encode_step(t, step);
    if (code == CLI_OK) {
        code = decode_step(t);
    }
    if (code == CLI_OK) {
        code = check_typed(t);
    }
    if (code == CLI_OK && t->law.has_residual) {
        code = check_residual(t);
    }
    if (code == CLI_OK && t->law.knows_values) {
        code = check_values(t);
    }
    if (code != CLI_OK || step > 0) {
        return code;
    }
    tg_detail why;
    tg_status status = tg_frame_inspect(&out->info, t->codecs[0], t->frame, t->frame_len, &why);
    out->nmse = nmse_of(t);
    out->paper_len = tg_codec_paper_len(t->codecs[0], 0);
    return status == TG_OK ? CLI_OK : cli_fail_status(NULL, status, &why);
}

int cli_check_run(cli_check_result *out, const cli_check *check)
{
    trial t;
    cli_check_result result = {0};
    int code = start_trial(&t, check);
    for (uint64_t step = 0; step < STEP_N && code == CLI_OK; step++) {
        code = run_step(&result, &t, step);
    }
    if (code == CLI_OK) {
        snprintf(result.recipe, sizeof result.recipe, "%s", tg_codec_recipe(t.codecs[0], 0));
        result.law = t.law.has_residual   ? "gradient + residual = decoded + new residual"
                     : t.law.knows_values ? "every value sent is right"
                                          : "decoding works";
        *out = result;
    }
    free_trial(&t);
    return code;
}
