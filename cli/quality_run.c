/* Measures a recipe on values; see quality_run.h.
 *
 * One step is off by bias and chance, the mean of T steps by bias and a Tth of the chance. So with E the error of one step
 * and M that of the mean, both squared, E = bias + chance and M = bias + chance / T, of which bias = (T M - E) / (T - 1).
 */
#include "quality_run.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

typedef struct trial {
    const float *values;
    size_t n;
    tg_codec *codec;
    uint8_t *frame;
    size_t frame_cap, frame_len;
    float *decoded;
    double *sums;  /* of what was decoded in all steps */
    double errors; /* summed squared errors of all steps */
} trial;

/* ---- recipes --------------------------------------------------------------------------------------- */

/* In canonical text feedback stands first, and is left out where there is none. */
static int has_feedback(const char *canonical)
{
    tg_part_info part;
    for (size_t i = 0; tg_part_list(&part, i, NULL) == TG_OK; i++) {
        size_t len = strlen(part.name);
        if (strcmp(part.stage, "feedback") == 0 && strcspn(canonical, "+@") == len &&
            memcmp(canonical, part.name, len) == 0) {
            return 1;
        }
    }
    return 0;
}

int cli_quality_check(const char *const *recipes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char canonical[TG_RECIPE_CAP];
        tg_detail why;
        tg_status status = tg_recipe_canonical(canonical, recipes[i], &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
        if (has_feedback(canonical)) {
            return cli_fail(CLI_MISUSE,
                            "%s has feedback, with which the error is not that of one step; leave the feedback out",
                            recipes[i]);
        }
    }
    return CLI_OK;
}

/* ---- measuring ------------------------------------------------------------------------------------- */

static void free_trial(trial *t)
{
    tg_codec_free(t->codec);
    free(t->frame);
    free(t->decoded);
    free(t->sums);
}

static int start_trial(trial *t, const char *recipe, const tg_tensor *tensor, const float *values, size_t n,
                       const tg_options *opt)
{
    tg_tensor wide = *tensor;
    tg_detail why;
    wide.dtype = TG_FP32;
    *t = (trial){.values = values, .n = n};
    tg_status status = tg_codec_new(&t->codec, recipe, &wide, 1, opt, &why);
    if (status != TG_OK) {
        return cli_fail_status(recipe, status, &why);
    }
    t->frame_cap = tg_encode_bound(t->codec);
    t->frame = malloc(t->frame_cap);
    t->decoded = calloc(n, sizeof *t->decoded);
    t->sums = calloc(n, sizeof *t->sums);
    return t->frame != NULL && t->decoded != NULL && t->sums != NULL ? CLI_OK : cli_fail_memory();
}

static int run_step(trial *t, const char *recipe, uint64_t step)
{
    const void *grads[1] = {t->values};
    void *out[1] = {t->decoded};
    tg_detail why;
    tg_status status = tg_encode(&t->frame_len, t->codec, t->frame, t->frame_cap, step, grads, &why);
    if (status == TG_OK) {
        status = tg_decode(t->codec, out, t->frame, t->frame_len, &why);
    }
    if (status != TG_OK) {
        return cli_fail_status(recipe, status, &why);
    }
    for (size_t i = 0; i < t->n; i++) {
        double off = (double)t->decoded[i] - (double)t->values[i];
        t->errors += off * off;
        t->sums[i] += (double)t->decoded[i];
    }
    return CLI_OK;
}

static void conclude(cli_quality_row *out, const trial *t, double frame_len)
{
    const double steps = CLI_QUALITY_STEPS;
    double energy = 0, mean_error = 0;
    for (size_t i = 0; i < t->n; i++) {
        double off = t->sums[i] / steps - (double)t->values[i];
        mean_error += off * off;
        energy += (double)t->values[i] * (double)t->values[i];
    }
    out->nmse = energy > 0 ? t->errors / steps / energy : NAN;
    out->bias = energy > 0 ? (steps * mean_error / energy - out->nmse) / (steps - 1) : NAN;
    out->bits = 8 * frame_len / (double)t->n;
}

int cli_quality_run(cli_quality_row *out, const tg_tensor *tensor, const float *values, size_t n, const tg_options *opt)
{
    trial t;
    double frame_len = 0;
    int code = start_trial(&t, out->recipe, tensor, values, n, opt);
    for (uint64_t step = 0; step < CLI_QUALITY_STEPS && code == CLI_OK; step++) {
        code = run_step(&t, out->recipe, step);
        frame_len += (double)t.frame_len / CLI_QUALITY_STEPS;
    }
    if (code == CLI_OK) {
        conclude(out, &t, frame_len);
    }
    free_trial(&t);
    return code;
}
