/* Recipes of a plan, and their costs; see plan_costs.h. */
#include "plan_costs.h"

#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "presets.h"
#include "probe_machine.h"

/* ---- recipes ------------------------------------------------------------------------------------------------------- */

int cli_plan_list(cli_plan *p, const char *const *recipes, size_t n)
{
    const char *names[CLI_PRESET_MAX];
    if (n == 0) {
        n = cli_presets_list(names);
        recipes = names;
    }
    p->rows = calloc(n, sizeof *p->rows);
    if (p->rows == NULL) {
        return cli_fail_memory();
    }
    for (size_t i = 0; i < n; i++) {
        tg_detail why = {""};
        tg_status status = tg_recipe_canonical(p->rows[i].canonical, recipes[i], &why);
        if (status != TG_OK) {
            return cli_fail_status(NULL, status, &why);
        }
        p->rows[i].recipe = recipes[i];
    }
    p->row_n = n;
    return CLI_OK;
}

/* ---- costs --------------------------------------------------------------------------------------------------------- */

int cli_plan_measure(cli_probe_data *out, const cli_plan *p, const cli_device *device)
{
    enum { MOST = 1 << 22, LEAST = 1 << 15 };
    const char **recipes = calloc(p->row_n + 1, sizeof *recipes);
    uint64_t n = p->setting.n < LEAST ? LEAST : p->setting.n > MOST ? MOST : p->setting.n;
    size_t recipe_n = 0;
    if (recipes == NULL) {
        return cli_fail_memory();
    }
    recipes[recipe_n++] = "fp32";
    for (size_t i = 0; i < p->row_n; i++) {
        const char *name = p->rows[i].canonical;
        if (strcmp(name, "fp32") != 0) {
            recipes[recipe_n++] = name;
        }
    }
    cli_measuring how = {.recipes = recipes,
                         .recipe_n = recipe_n,
                         .threads = &p->setting.threads,
                         .thread_n = 1,
                         .sizes = &n,
                         .size_n = 1,
                         .seconds = 1.0 / (double)recipe_n,
                         .device = device};
    int code = device->gpu != NULL ? cli_gpu_measure(&out->gpu, &how) : CLI_OK;
    how.recipe_n = device->gpu != NULL ? 0 : recipe_n; /* of the host, copies and messages count in any case */
    code = code == CLI_OK ? cli_machine_measure(&out->machine, &how) : code;
    free(recipes);
    return code;
}
