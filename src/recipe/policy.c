/* Chooses the recipe of each tensor: that of the first rule that matches its name; else, for norms, biases and small
 * tensors, uncompressed in the tensor's own dtype, or as `ef` says; else the caller's recipe. */
#include "recipe/policy.h"

#include "recipe/parsing.h"

#include <inttypes.h>
#include <string.h>

/* On a mismatch only the last '*' is extended, by one character. So the time is at most the product of the lengths. */
int tg_name_matches(const char *pattern, const char *name)
{
    if (pattern == NULL || name == NULL) {
        return 0;
    }
    const char *star = NULL, *retry = NULL;
    while (*name != '\0') {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star != NULL) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return 0;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

static tg_status parse_resolved(tg_recipe *out, const char *recipe, bool has_seed, tg_kind kind, tg_detail *why)
{
    TG_TRY(tg_recipe_parse(out, recipe, why));
    return tg_recipe_resolve(out, has_seed, kind, why);
}

static const tg_rule *find_rule(const tg_options *opt, const char *name)
{
    for (size_t i = 0; i < opt->rule_n; i++) {
        if (tg_name_matches(opt->rules[i].pattern, name)) {
            return &opt->rules[i];
        }
    }
    return NULL;
}

/* How tensors travel that the recipe does not compress: in their own type, or rounded as `ef` says, with what rounding takes away in
 * a residual. */
static tg_recipe exempt_recipe(const tg_recipe *wanted, tg_dtype dtype)
{
    tg_recipe r = tg_recipe_dense(dtype);
    const tg_feedback_part *feedback = tg_recipe_feedback(wanted);
    if (feedback->also_dense) {
        r.part[TG_STAGE_feedback] = wanted->part[TG_STAGE_feedback];
        memcpy(r.value[TG_STAGE_feedback], wanted->value[TG_STAGE_feedback], sizeof wanted->value[TG_STAGE_feedback]);
        tg_recipe_set_value(&r, TG_STAGE_feedback, "again", TG_AGAIN_YES); /* the answer is as plain as it is */
    }
    if (feedback == &tg_feedback_ef && wanted->value[TG_STAGE_feedback][TG_EF_SMALL] > TG_SMALL_SAME) {
        const char *name =
            feedback->part.params[TG_EF_SMALL].choices[(size_t)wanted->value[TG_STAGE_feedback][TG_EF_SMALL]];
        bool is_shorter = dtype == TG_FP32 || strcmp(name, "fp8") == 0;
        if (is_shorter) {
            tg_recipe_set_part(&r, TG_STAGE_feedback, &feedback->part);
            tg_recipe_set_part(&r, TG_STAGE_quantize, tg_part_find(name, strlen(name))->part);
        }
    }
    return r;
}

void tg_policy_inside(char out[TG_RECIPE_CAP], const char *recipe)
{
    tg_recipe wanted;
    if (tg_recipe_parse(&wanted, recipe, NULL) != TG_OK) {
        wanted = tg_recipe_standard(); /* was parsed before */
    }
    tg_recipe_write_inside(out, &wanted);
}

int tg_policy_again(const char *recipe)
{
    tg_recipe wanted;
    bool is_read = tg_recipe_parse(&wanted, recipe, NULL) == TG_OK;
    return is_read ? (int)tg_recipe_value(&wanted, TG_STAGE_feedback, "again") : TG_AGAIN_YES;
}

tg_status tg_policy_apply(tg_recipe *recipes, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                          const tg_options *opt, tg_detail *why)
{
    tg_recipe wanted;
    bool has_seed = opt->has_seed != 0;
    TG_TRY(tg_recipe_parse(&wanted, recipe, why));
    for (size_t i = 0; i < opt->rule_n; i++) { /* an invalid rule is an error even if it matches no tensor */
        tg_recipe unused;
        if (opt->rules[i].pattern == NULL) {
            return tg_fail(TG_E_ARGUMENT, why, "rule %zu has no pattern", i);
        }
        TG_TRY(tg_recipe_parse(&unused, opt->rules[i].recipe, why));
    }
    uint64_t element_n = 0;
    bool all_exempt = true, all_same = tg_recipe_value(&wanted, TG_STAGE_feedback, "small") == TG_SMALL_SAME;
    for (size_t t = 0; t < tensor_n; t++) {
        uint64_t n = 0;
        TG_TRY(tg_tensor_elements(&n, &tensors[t], why));
        const tg_rule *rule = find_rule(opt, tensors[t].name);
        bool exempt = !all_same && (tensors[t].kind == TG_NORM || tensors[t].kind == TG_BIAS || n < opt->dense_below);
        if (rule != NULL) {
            TG_TRY(parse_resolved(&recipes[t], rule->recipe, has_seed, tensors[t].kind, why));
        } else if (exempt) {
            recipes[t] = exempt_recipe(&wanted, tensors[t].dtype);
        } else {
            TG_TRY(parse_resolved(&recipes[t], recipe, has_seed, tensors[t].kind, why));
        }
        all_exempt = all_exempt && rule == NULL && exempt;
        element_n |= n;
    }
    char wanted_text[TG_RECIPE_CAP];
    tg_recipe_write(wanted_text, &wanted);
    if (all_exempt && element_n > 0 && strcmp(wanted_text, "fp32") != 0) {
        return tg_fail(TG_E_NO_EFFECT, why,
                       "recipe '%s' would compress nothing: every tensor is a norm, a bias or has fewer than %" PRIu64
                       " elements; use 'dense' to send all tensors uncompressed",
                       wanted_text, opt->dense_below);
    }
    return TG_OK;
}
