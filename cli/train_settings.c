/* The settings of a training run; see train_settings.h. */
#include "train_settings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fail.h"

/* Whether a recipe keeps the momentum itself, so that the optimizer must have none. */
static int keeps_momentum(const char *recipe)
{
    char canonical[TG_RECIPE_CAP];
    return tg_recipe_canonical(canonical, recipe, NULL) == TG_OK && strncmp(canonical, "momentum", 8) == 0;
}

int cli_train_check(const cli_args *args, const char *const *recipes, size_t recipe_n)
{
    if (cli_args_has(args, CLI_FLAG_STEPS) && cli_args_has(args, CLI_FLAG_EPOCHS)) {
        return cli_fail(CLI_MISUSE, "--steps and --epochs both say how long to train; give one");
    }
    for (size_t i = 0; i < recipe_n; i++) {
        char canonical[TG_RECIPE_CAP], recipe[TG_RECIPE_CAP];
        tg_schedule rounds;
        tg_detail why = {""};
        int code = cli_train_rounds(&rounds, recipe, recipes[i], args);
        if (code != CLI_OK) {
            return code;
        }
        tg_status status = tg_recipe_canonical(canonical, recipe, &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
        if (!tg_schedule_is_one(&rounds) && keeps_momentum(recipe)) {
            return cli_fail(CLI_MISUSE,
                            "'%s' adds up momentum, and the moves of local steps have that of the optimizer in them; "
                            "use a recipe with ef",
                            recipe);
        }
    }
    return CLI_OK;
}

int cli_train_rounds(tg_schedule *out, char recipe[TG_RECIPE_CAP], const char *text, const cli_args *args)
{
    size_t len = strcspn(text, ":");
    tg_detail why = {""};
    if (len >= TG_RECIPE_CAP) {
        return cli_fail(CLI_MISUSE, "the recipe is longer than %d characters", TG_RECIPE_CAP - 1);
    }
    memcpy(recipe, text, len);
    recipe[len] = '\0';
    *out = args->local;
    if (text[len] == ':' && tg_schedule_read(out, text + len + 1, &why) != TG_OK) {
        return cli_fail(CLI_MISUSE, "%s: %s", text, why.text);
    }
    return CLI_OK;
}

void cli_train_warn(const tr_settings *s)
{
    char canonical[TG_RECIPE_CAP] = "";
    int is_read = tg_recipe_canonical(canonical, s->recipe, NULL) == TG_OK;
    if (is_read && !tg_schedule_is_one(&s->local) && strncmp(canonical, "ef", 2) != 0 &&
        strncmp(canonical, "fp32", 4) != 0) {
        cli_note("'%s' has no error feedback: what it drops of the workers' moves is lost; ef+%s keeps it", s->recipe,
                 canonical);
    }
}

int cli_train_data(tr_data **out, const cli_args *args)
{
    char why[TR_WHY] = "";
    tr_data *data = NULL;
    if (tr_data_open(&data, args->data, why) != 0) {
        return cli_fail(CLI_FAILED, "%s", why);
    }
    if (why[0] != '\0') {
        cli_note("%s", why);
    }
    if (tr_data_steps_per_epoch(data, args->workers, (size_t)args->batch) == 0) {
        size_t samples = tr_data_count(data, TR_TRAIN);
        tr_data_free(data);
        return cli_fail(CLI_MISUSE,
                        "%s has %zu training samples, fewer than the %" PRIu64 " that one step of %u workers takes",
                        args->data, samples, args->batch * args->workers, args->workers);
    }
    *out = data;
    return CLI_OK;
}

/* Whether a recipe learns from the gradients of workers, not of hosts. */
static int learns(const char *recipe)
{
    char canonical[TG_RECIPE_CAP];
    return tg_recipe_canonical(canonical, recipe, NULL) == TG_OK && strstr(canonical, "autoencoder") != NULL;
}

void cli_train_place(tr_settings *s, tg_link *link, uint32_t rank)
{
    uint32_t found = link != NULL ? link->host_size : 0;
    int is_worth_it = found > 1 && found < s->workers && !learns(s->recipe) && s->device == NULL;
    for (size_t i = 0; i < s->rule_n; i++) {
        is_worth_it = is_worth_it && !learns(s->rules[i].recipe);
    }
    s->link = link;
    s->rank = rank;
    s->host_size = s->host_size == 0 && is_worth_it ? found : s->host_size;
}

tr_settings cli_train_settings(const cli_args *a, const tr_data *data, const char *recipe, uint64_t seed)
{
    uint64_t epoch = tr_data_steps_per_epoch(data, a->workers, (size_t)a->batch);
    uint64_t steps = cli_args_has(a, CLI_FLAG_STEPS) ? a->steps : (uint64_t)ceil(a->epochs * (double)epoch);
    tr_settings s = {.model = a->model,
                     .recipe = recipe,
                     .exchange = a->exchange,
                     .rules = a->rule_list,
                     .rule_n = a->rules.n / 2,
                     .dense_below = a->dense_below,
                     .nonfinite = (tg_nonfinite)a->nonfinite,
                     .workers = a->workers,
                     .host_size = a->hosts,
                     .batch = (size_t)a->batch,
                     .steps = steps,
                     .seed = seed,
                     .augment = a->augment,
                     .outer = a->outer,
                     .quorum = a->quorum,
                     .grace = a->grace,
                     .late_rank = a->late.rank,
                     .late_seconds = a->late.seconds,
                     .optimizer = tr_optimizer_standard(),
                     .test_every = cli_args_has(a, CLI_FLAG_TEST_EVERY) ? a->test_every : epoch,
                     .verify_every = a->verify_every,
                     .save_every = a->checkpoint != NULL ? a->checkpoint_every : 0,
                     .slow_bits = a->link.bits,
                     .slow_latency = a->link.latency};
    tr_optimizer_options *o = &s.optimizer;
    o->rule = (tr_rule)a->optimizer;
    o->rate = cli_args_has(a, CLI_FLAG_RATE) ? a->rate : o->rule == TR_ADAM ? 0.001 : 0.01;
    o->momentum = !cli_args_has(a, CLI_FLAG_MOMENTUM) && keeps_momentum(recipe) ? 0 : a->momentum;
    o->nesterov = a->nesterov;
    o->weight_decay = a->weight_decay;
    o->decline = (tr_decline)a->schedule;
    o->warmup = a->warmup;
    o->steps = steps;
    o->drop = 0.1;
    o->drop_every = steps / 3 + 1;
    cli_train_local(&s, a, &a->local);
    return s;
}

void cli_train_local(tr_settings *s, const cli_args *args, const tg_schedule *local)
{
    int is_given = cli_args_has(args, CLI_FLAG_GROUP_SIZE);
    s->local = *local;
    s->group_len = tg_schedule_is_one(local) || is_given ? args->group_size : 0;
}

const char *cli_train_hint(const tr_settings *s)
{
    char canonical[TG_RECIPE_CAP];
    int feeds_back = tg_recipe_canonical(canonical, s->recipe, NULL) == TG_OK && strncmp(canonical, "ef", 2) == 0;
    if (feeds_back && s->optimizer.momentum > 0 && s->optimizer.rule == TR_SGD) {
        return "try a lower --rate, --warmup, --momentum 0 (with a residual, momentum counts a gradient twice), or a "
               "recipe "
               "that sends more, such as a larger ratio";
    }
    if (feeds_back) {
        return "try a lower --rate, --warmup, or a recipe that sends more, such as a larger ratio";
    }
    return strcmp(s->recipe, "dense") == 0 ? "try a lower --rate or --warmup"
                                           : "try a lower --rate or --warmup, or another recipe";
}
