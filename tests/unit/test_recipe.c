/* Recipes: grammar, presets, canonical text, and a clear error for every mistake. */
#include "recipe/presets.h"
#include "recipe/recipe.h"
#include "support.h"

#include <stdio.h>
#include <string.h>

static void canonical_texts(void **state)
{
    (void)state;
    static const struct {
        const char *given, *canonical;
    } cases[] = {
        {"fp32", "fp32"},
        {"dense", "fp32"},
        {"none+all+fp32+bits", "fp32"},
        {"fp16", "fp16"},
        {"topk", "topk@0.01+fp32"},
        {"topk@0.010", "topk@0.01+fp32"},
        {"topk@ratio=0.01", "topk@0.01+fp32"},
        {"fp16+topk@1e-2+ef", "ef+topk@0.01+fp16"},
        {"ef+topk@0.001+fp16+gaps", "ef+topk@0.001+fp16"},
        {"ef@decay=1+topk@0.1+bitmap", "ef+topk@0.1+fp32+bitmap"},
        {"ef@decay=0.9+fp16", "ef@decay=0.9+fp16"},
        {"topk@0.01,coords=shared,scope=model", "topk@0.01,scope=model,coords=shared+fp32"},
        {"topk@scope=model", "topk@0.01,scope=model+fp32"},
        {"randomblock@0.1,unbiased=yes", "randomblock@0.1,unbiased=yes+fp32"},
        {"randomk@0.1,coords=auto", "randomk@0.1+fp32"},
        {"random-block", "ef+randomblock@0.01+fp32"},
        {"random-block@0.5,scope=model+bf16", "ef+randomblock@0.5,scope=model+bf16"},
        {"threshold@1e+20", NULL}, /* '+' ends a part */
        {"threshold@1e20", "threshold@1e20+fp32"},
        {"threshold@0", "threshold@0+fp32"},
        {"adacomp", "ef@again=no+adabins@auto+sign@scale=meanmax"},
        {"adacomp@100", "ef@again=no+adabins@100+sign@scale=meanmax"},
        {"adacomp@conv=64,other=1e3", "ef@again=no+adabins@auto,conv=64,other=1000+sign@scale=meanmax"},
        {"adabins", "adabins@auto+fp32"},
        {"orq@9,levels=greedy", "orq@9"},
        {"terse", "ef@small=fp8+adabins@500+sign@scale=meanmax+rans"},
        {"terse@800", "ef@small=fp8+adabins@800+sign@scale=meanmax+rans"},
        {"sparseloco", "ef@decay=0.95,small=same,again=no+topk@0.015625+fp4+rans"},
        {"ef@again=yes,small=own+topk", "ef+topk@0.01+fp32"},
        {"ef@again=fp16+topk", "ef@again=fp16+topk@0.01+fp32"},
        {"momentum@again=fp32+topk@0.1", "momentum@0.9,again=fp32+topk@0.1+fp32"},
        {"co3", "ef@decay=0.9+fp4+huffman@counts"},
        {"co3@fp8", "ef@decay=0.9+fp8@e5m2+huffman@counts"},
        {"co3@fp8@e4m3", "ef@decay=0.9+fp8@e4m3+huffman@counts"},
        {"rans+topk@0.1+fp16", "topk@0.1+fp16+rans"},
        {"zstd", "fp32+zstd@3"},
        {"lossless", "fp32+lossless"},
        {"orq@4,bucket=1e2,levels=exact", "orq@4,bucket=100,levels=exact"},
        {"onebit", "ef+bingrad@zero"},
        {"terngrad", "ternary"},
        {"signsgd", "sign@scale=one"},
        {"ef-signsgd", "ef+sign"},
        {"adabins@weight=2+sign@scale=mean+adacomp8", "adabins@auto+sign+adacomp8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TG_RECIPE_CAP], again[TG_RECIPE_CAP];
        if (cases[i].canonical == NULL) {
            assert_int_equal(tg_recipe_canonical(text, cases[i].given, NULL), TG_E_RECIPE);
            continue;
        }
        MUST(tg_recipe_canonical(text, cases[i].given, why));
        assert_string_equal(text, cases[i].canonical);
        MUST(tg_recipe_canonical(again, text, why));
        assert_string_equal(again, text);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *given, *sentence;
    } cases[] = {
        {"", "empty"},
        {"ef+", "missing"},
        {"+fp16", "missing"},
        {"ef++fp16", "missing"},
        {"zap", "no part or preset 'zap'"},
        {"topk@2", "ratio must be in (0, 1], not '2'"},
        {"topk@0", "ratio must be in (0, 1]"},
        {"topk@-1", "ratio must be in"},
        {"topk@nan", "ratio must be in"},
        {"topk@", "ratio must be in"},
        {"topk@0.1,0.2", "needs a key"},
        {"topk@0.1,ratio=0.2", "given twice"},
        {"topk@0.1,colour=red", "no parameter 'colour'"},
        {"topk@0.1,scope=world", "scope must be in tensor|model, not 'world'"},
        {"topk@0.1,coords=auto", "coords must be in own|shared"},
        {"ef@1", "takes no bare value"},
        {"ef@decay=1.5", "decay must be in [0, 1]"},
        {"threshold", "needs a value for T"},
        {"threshold@-1", "T must be in"},
        {"fp16+fp32", "'fp16' and 'fp32' are both parts of stage quantize"},
        {"ef+none", "stage feedback"},
        {"gaps+fp16", "'gaps' packs indices, but 'all' sends none"},
        {"ef+randomk@0.1,unbiased=yes", "without feedback"},
        {"dense@3", "takes no value"},
        {"random-block@7", "ratio must be in"},
        {"adabins@0", "bin must be in [1, 16384], whole, or auto, not '0'"},
        {"adabins@50.5", "bin must be in"},
        {"adabins@16385", "bin must be in"},
        {"topk+sign@scale=meanmax", "'sign' takes its scale from bins, but 'topk' has no bins"},
        {"adabins+fp16+adacomp8", "'adacomp8' packs signs in bins"},
        {"topk+sign+adacomp16", "'adacomp16' packs signs in bins"},
        {"fp16+rans", "'rans' packs symbols, but 'fp16' makes none; use 'lossless' to pack floats"},
        {"topk@0.1+fp16+bitmap+rans", "'rans' packs symbols"},
        {"huffman", "'huffman' packs symbols"},
        {"fp4+lossless", "'lossless' packs floats, but 'fp4' makes symbols"},
        {"orq@9+huffman@model", "needs a quantizer that fits a distribution"},
        {"adabins@50+sign+adacomp8+rans", "'adacomp8' packs the signs together with the indices"},
        {"fp4+rans+huffman", "stage pack (symbols)"},
        {"zstd@22", "level must be in [1, 9], whole"},
        {"fp8@e3m4", "format must be in e5m2|e4m3"},
        {"ef+lowrank+rans", "sends whole matrices"},
        {"orq@4", "levels=greedy needs S to be 3, 5, 9 or 17; levels=exact takes any S"},
        {"orq@18,levels=exact", "S must be in [2, 17], whole"},
        {"ef+sign@scale=one", "is a vote"},
        {"bingrad@c", "form must be in b|pb|zero"},
        {"ef@again=fp8+topk", "again must be in yes|no|fp32|fp16|bf16, not 'fp8'"},
        {"none@again=fp16+topk", "'none' has no parameter 'again'"},
        {"ef@again=fp16+lowrank", "'lowrank' has an exchange of its own, in which no owner answers with all values"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tg_detail why = {""};
        char text[TG_RECIPE_CAP] = "untouched";
        assert_int_equal(tg_recipe_canonical(text, cases[i].given, &why), TG_E_RECIPE);
        if (strstr(why.text, cases[i].sentence) == NULL) {
            fail_msg("'%s': '%s' does not say '%s'", cases[i].given, why.text, cases[i].sentence);
        }
        assert_string_equal(text, "untouched");
        assert_null(strchr(why.text, '\n'));
    }
    char text[TG_RECIPE_CAP], longest[4000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    MUST_FAIL(TG_E_RECIPE, "longer", tg_recipe_canonical(text, longest, why));
    MUST_FAIL(TG_E_ARGUMENT, "no recipe", tg_recipe_canonical(text, NULL, why));
}

/* Every select x quantize x index pack x feedback is understood, survives its text, or is refused with a sentence. */
static void every_combination(void **state)
{
    (void)state;
    static const char *const feedbacks[] = {"none", "ef", "ef@decay=0.5"};
    static const char *const selects[] = {"all",         "topk@0.1",        "threshold@0.5",
                                          "randomk@0.1", "randomblock@0.1", "adabins@50"};
    static const char *const scopes[] = {"", ",scope=model"}, *const coords[] = {"", ",coords=own", ",coords=shared"};
    static const char *const quantizers[] = {"fp32", "fp16", "bf16", "sign"};
    static const char *const packs[] = {"", "+gaps", "+bitmap"};
    int understood = 0;
    for (int i = 0; i < 3 * 6 * 2 * 3 * 4 * 3; i++) {
        int f = i % 3, s = i / 3 % 6, sc = i / 18 % 2, co = i / 36 % 3, q = i / 108 % 4, p = i / 432;
        char given[128], text[TG_RECIPE_CAP], again[TG_RECIPE_CAP];
        bool sparse = s != 0;
        (void)snprintf(given, sizeof given, "%s+%s%s%s+%s%s", feedbacks[f], selects[s], sparse ? scopes[sc] : "",
                       sparse ? coords[co] : "", quantizers[q], packs[p]);
        if (!sparse && p != 0) {
            MUST_FAIL(TG_E_RECIPE, "", tg_recipe_canonical(text, given, why));
            continue;
        }
        MUST(tg_recipe_canonical(text, given, why));
        MUST(tg_recipe_canonical(again, text, why));
        assert_string_equal(again, text);
        understood++;
    }
    assert_int_equal(understood, 3 * 4 * (5 * 2 * 3 * 3 + 2 * 3));
}

static void coordinates_are_decided_by_the_seed(void **state)
{
    (void)state;
    tg_recipe r;
    char text[TG_RECIPE_CAP];
    MUST(tg_recipe_parse(&r, "randomk@0.1", why));
    MUST(tg_recipe_resolve(&r, true, TG_OTHER, why));
    tg_recipe_write(text, &r);
    assert_string_equal(text, "randomk@0.1,coords=shared+fp32");
    MUST(tg_recipe_parse(&r, "randomk@0.1", why));
    MUST(tg_recipe_resolve(&r, false, TG_OTHER, why));
    tg_recipe_write(text, &r);
    assert_string_equal(text, "randomk@0.1,coords=own+fp32");
    MUST(tg_recipe_parse(&r, "randomblock@0.1,coords=shared", why));
    MUST_FAIL(TG_E_RECIPE, "needs a seed", tg_recipe_resolve(&r, false, TG_OTHER, why));
}

static void bins_are_decided_by_the_kind(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        tg_kind kind;
        const char *resolved;
    } cases[] = {
        {"adacomp", TG_CONV, "ef+adabins@50+sign@scale=meanmax"},
        {"adacomp", TG_DENSE, "ef+adabins@500+sign@scale=meanmax"},
        {"adacomp", TG_EMBEDDING, "ef+adabins@500+sign@scale=meanmax"},
        {"adacomp@conv=64,other=1000", TG_CONV, "ef+adabins@64+sign@scale=meanmax"},
        {"adacomp@conv=64,other=1000", TG_RECURRENT, "ef+adabins@1000+sign@scale=meanmax"},
        {"adacomp@9,conv=64", TG_CONV, "ef+adabins@9+sign@scale=meanmax"},
        {"adabins@weight=3+fp16", TG_OTHER, "adabins@500,weight=3+fp16"},
    };
    tg_recipe r;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TG_RECIPE_CAP];
        MUST(tg_recipe_parse(&r, cases[i].given, why));
        MUST(tg_recipe_resolve(&r, true, cases[i].kind, why));
        tg_recipe_write(text, &r);
        assert_string_equal(text, cases[i].resolved);
    }
    MUST(tg_recipe_parse(&r, "adabins+sign+adacomp8", why));
    MUST_FAIL(TG_E_RECIPE, "bins of at most 64", tg_recipe_resolve(&r, true, TG_DENSE, why));
    MUST(tg_recipe_parse(&r, "adabins+sign+adacomp8", why));
    MUST(tg_recipe_resolve(&r, true, TG_CONV, why));
}

/* Names are unique, so that a word means one thing; ids are unique within a stage. */
static void names_and_ids_are_unique(void **state)
{
    (void)state;
    for (size_t i = 0; i < tg_part_n; i++) {
        assert_int_not_equal(tg_parts[i].id, 0);
        assert_true(tg_parts[i].part->param_n <= TG_PARAM_CAP);
        assert_null(tg_preset_find(tg_parts[i].part->name, strlen(tg_parts[i].part->name)));
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(tg_parts[i].part->name, tg_parts[j].part->name);
            assert_true(tg_parts[i].stage != tg_parts[j].stage || tg_parts[i].id != tg_parts[j].id);
        }
    }
}

static void lists_hold_everything(void **state)
{
    (void)state;
    tg_part_info info;
    size_t n = 0;
    while (tg_part_list(&info, n, NULL) == TG_OK) {
        assert_non_null(info.summary);
        for (size_t p = 0; p < info.parameter_n; p++) {
            tg_parameter_info parameter;
            MUST(tg_part_parameter(&parameter, n, p, why));
            assert_int_not_equal(strlen(parameter.range), 0);
        }
        tg_parameter_info none;
        assert_int_equal(tg_part_parameter(&none, n, info.parameter_n, NULL), TG_E_ARGUMENT);
        n++;
    }
    assert_int_equal(n, tg_part_n + tg_preset_n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(canonical_texts),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(every_combination),
        cmocka_unit_test(coordinates_are_decided_by_the_seed),
        cmocka_unit_test(bins_are_decided_by_the_kind),
        cmocka_unit_test(names_and_ids_are_unique),
        cmocka_unit_test(lists_hold_everything),
    };
    return cmocka_run_group_tests_name("recipe", tests, NULL, NULL);
}
