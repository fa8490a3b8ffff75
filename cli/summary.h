/* What a codec and its frame amount to: recipes, counts and sizes, as rows for a person and as JSON. Shared by
 * the commands that make or read frames, so that they use the same words and keys.
 */
#ifndef CLI_SUMMARY_H
#define CLI_SUMMARY_H

#include "json.h"
#include "table.h"
#include "tersegrad/tersegrad.h"

/* Tensors that travel by the same recipe. */
typedef struct cli_group {
    const char *recipe;
    uint64_t tensor_n;
    uint64_t element_n;
} cli_group;

typedef struct cli_summary {
    cli_group *groups; /* those with most elements first */
    size_t group_n;
    uint64_t tensor_n;
    uint64_t element_n;
    uint64_t gradient_len;       /* bytes of gradient in the tensors' own dtypes */
    uint64_t paper_len;          /* as the scheme's paper counts, of the tensors for which it does ... */
    uint64_t paper_gradient_len; /* ... and bytes of their gradient */
} cli_summary;

/* Of the codec's last frame. Points into `codec`, which must live as long. */
int cli_summary_new(cli_summary *out, const tg_codec *codec);
void cli_summary_free(cli_summary *s);

/* The recipe that most elements travel by; NULL if there are no tensors. */
const char *cli_summary_recipe(const cli_summary *s);

/* Gradient over frame as the scheme's paper counts; NAN if it does not. */
double cli_summary_paper_ratio(const cli_summary *s);

/* Rows "what, value" for a table of two columns. */
void cli_summary_rows(cli_table *table, const cli_summary *s, const tg_frame_info *info);

/* Members of an open object: recipe, tensors, elements, step, rank, entries and all sizes. */
void cli_summary_json(cli_json *json, const cli_summary *s, const tg_frame_info *info);

#endif
