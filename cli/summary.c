/* Recipes, counts and sizes of a frame; see summary.h. */
#include "summary.h"

#include <tersegrad/experimental.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"
#include "text.h"

static int by_recipe(const void *a, const void *b)
{
    return strcmp(((const cli_group *)a)->recipe, ((const cli_group *)b)->recipe);
}

static int by_elements(const void *a, const void *b)
{
    const cli_group *x = a;
    const cli_group *y = b;
    if (x->element_n != y->element_n) {
        return x->element_n < y->element_n ? 1 : -1;
    }
    return strcmp(x->recipe, y->recipe);
}

/* Sorted by recipe first, because a hostile frame may hold very many tensors. */
static size_t merge_groups(cli_group *groups, size_t n)
{
    size_t kept = 0;
    qsort(groups, n, sizeof *groups, by_recipe);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && strcmp(groups[kept - 1].recipe, groups[i].recipe) == 0) {
            groups[kept - 1].tensor_n += groups[i].tensor_n;
            groups[kept - 1].element_n += groups[i].element_n;
        } else {
            groups[kept++] = groups[i];
        }
    }
    qsort(groups, kept, sizeof *groups, by_elements);
    return kept;
}

int cli_summary_new(cli_summary *out, const tg_codec *codec)
{
    cli_summary s = {.tensor_n = tg_codec_tensors(codec)};
    s.groups = calloc(s.tensor_n + 1, sizeof *s.groups);
    if (s.groups == NULL) {
        return cli_fail_memory();
    }
    for (size_t t = 0; t < s.tensor_n; t++) {
        tg_tensor tensor;
        uint64_t element_n = 0;
        tg_detail why;
        tg_status status = tg_codec_tensor(&tensor, codec, t, &why);
        if (status == TG_OK) {
            status = tg_tensor_elements(&element_n, &tensor, &why);
        }
        if (status != TG_OK) {
            free(s.groups);
            return cli_fail_status(NULL, status, &why);
        }
        s.groups[t] = (cli_group){tg_codec_recipe(codec, t), 1, element_n};
        s.element_n += element_n;
        s.gradient_len += element_n * tg_dtype_len(tensor.dtype);
        uint64_t paper_len = tg_codec_paper_len(codec, t);
        s.paper_len += paper_len;
        s.paper_gradient_len += paper_len > 0 ? element_n * tg_dtype_len(tensor.dtype) : 0;
    }
    s.group_n = merge_groups(s.groups, s.tensor_n);
    *out = s;
    return CLI_OK;
}

void cli_summary_free(cli_summary *s)
{
    free(s->groups);
    *s = (cli_summary){0};
}

const char *cli_summary_recipe(const cli_summary *s)
{
    return s->group_n > 0 ? s->groups[0].recipe : NULL;
}

static double ratio_of(const cli_summary *s, const tg_frame_info *info)
{
    double frame_len = (double)(info->header_len + info->payload_len);
    return s->element_n > 0 ? (double)s->gradient_len / frame_len : NAN;
}

double cli_summary_paper_ratio(const cli_summary *s)
{
    return s->paper_len > 0 ? (double)s->paper_gradient_len / (double)s->paper_len : NAN;
}

static double bits_of(const cli_summary *s, const tg_frame_info *info)
{
    double frame_len = (double)(info->header_len + info->payload_len);
    return s->element_n > 0 ? frame_len * 8 / (double)s->element_n : NAN;
}

static void add_recipes(cli_table *table, const cli_summary *s)
{
    enum { SHOWN_MAX = 8 };
    char line[TG_RECIPE_CAP + 64], count[CLI_NUMBER_CAP];
    for (size_t g = 0; g < s->group_n && g < SHOWN_MAX; g++) {
        const cli_group *group = &s->groups[g];
        if (s->group_n == 1) {
            snprintf(line, sizeof line, "%s", group->recipe);
        } else {
            snprintf(line, sizeof line, "%s (%" PRIu64 " tensor%s, %s values)", group->recipe, group->tensor_n,
                     group->tensor_n == 1 ? "" : "s", cli_text_count(count, group->element_n));
        }
        cli_table_row(table, g > 0 ? "" : s->group_n == 1 ? "recipe" : "recipes", line);
    }
    if (s->group_n > SHOWN_MAX) {
        snprintf(line, sizeof line, "and %s more", cli_text_count(count, s->group_n - SHOWN_MAX));
        cli_table_row(table, "", line);
    }
}

void cli_summary_rows(cli_table *table, const cli_summary *s, const tg_frame_info *info)
{
    char line[256];
    char a[CLI_NUMBER_CAP], b[CLI_NUMBER_CAP], c[CLI_NUMBER_CAP];
    add_recipes(table, s);
    snprintf(line, sizeof line, "%s tensor%s, %s value%s, %s bytes", cli_text_count(a, s->tensor_n),
             s->tensor_n == 1 ? "" : "s", cli_text_count(b, s->element_n), s->element_n == 1 ? "" : "s",
             cli_text_count(c, s->gradient_len));
    cli_table_row(table, "gradient", line);
    snprintf(line, sizeof line, "%s value%s", cli_text_count(a, info->entry_n), info->entry_n == 1 ? "" : "s");
    cli_table_row(table, "sent", line);
    snprintf(line, sizeof line, "%s bytes", cli_text_count(a, info->header_len + info->payload_len));
    cli_table_row(table, "frame", line);
    snprintf(line, sizeof line, "%s bytes: symbols %s, indices %s", cli_text_count(a, info->payload_len),
             cli_text_count(b, info->payload_len - info->index_len), cli_text_count(c, info->index_len));
    cli_table_row(table, "  payload", line);
    snprintf(line, sizeof line, "%s bytes", cli_text_count(a, info->header_len));
    cli_table_row(table, "  header", line);
    if (s->element_n > 0) {
        snprintf(line, sizeof line, "%s to 1, %s bits per value", cli_text_short(a, ratio_of(s, info)),
                 cli_text_short(b, bits_of(s, info)));
        cli_table_row(table, "ratio", line);
        if (s->paper_len > 0) {
            snprintf(line, sizeof line, "%s to 1 as the scheme's paper counts",
                     cli_text_short(a, cli_summary_paper_ratio(s)));
            cli_table_row(table, "", line);
        }
    }
}

void cli_summary_json(cli_json *json, const cli_summary *s, const tg_frame_info *info)
{
    cli_json_text(json, "recipe", cli_summary_recipe(s));
    cli_json_array(json, "recipes");
    for (size_t g = 0; g < s->group_n; g++) {
        cli_json_text(json, NULL, s->groups[g].recipe);
    }
    cli_json_end(json);
    cli_json_count(json, "step", info->step);
    cli_json_count(json, "rank", info->rank);
    cli_json_count(json, "tensors", s->tensor_n);
    cli_json_count(json, "elements", s->element_n);
    cli_json_count(json, "entries", info->entry_n);
    cli_json_count(json, "gradient_bytes", s->gradient_len);
    cli_json_count(json, "frame_bytes", info->header_len + info->payload_len);
    cli_json_count(json, "payload_bytes", info->payload_len);
    cli_json_count(json, "index_bytes", info->index_len);
    cli_json_count(json, "header_bytes", info->header_len);
    cli_json_number(json, "ratio", ratio_of(s, info));
    cli_json_number(json, "paper_ratio", cli_summary_paper_ratio(s));
    cli_json_number(json, "bits_per_value", bits_of(s, info));
}
