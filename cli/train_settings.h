/* From flags to the settings of a training run, for the commands that train. */
#ifndef CLI_TRAIN_SETTINGS_H
#define CLI_TRAIN_SETTINGS_H

#include "args.h"
#include "run.h"

/* The default of --group-size: bytes. Two to eight groups for the built-in models, so that the gradients of large last layers travel while
 * convolutions are differentiated. */
#define CLI_GROUP_SIZE "131072"

/* Reports flags that contradict each other and recipes that are not understood: before any data is read. */
int cli_train_check(const cli_args *args, const char *const *recipes, size_t recipe_n);

/* Opens the data that the flags name, shows a remark on it if there is one, and refuses a training set that does not fill
 * one step. Reports. */
int cli_train_data(tr_data **out, const cli_args *args);

/* Rows of a comparison may have local steps of their own: RECIPE:H, or RECIPE:SCHEDULE. Cuts the text at its first ':', and reads
 * what follows; otherwise *out is as the flags say. Reports. */
int cli_train_rounds(tg_schedule *out, char recipe[TG_RECIPE_CAP], const char *text, const cli_args *args);

/* With local steps and a recipe that drops something for good, notes that in one line. */
void cli_train_warn(const tr_settings *s);

/* What may help a run with these settings that has diverged: "try ...". */
const char *cli_train_hint(const tr_settings *s);

/* The settings as the flags say, with this recipe and seed; they point into `args`. */
tr_settings cli_train_settings(const cli_args *args, const tr_data *data, const char *recipe, uint64_t seed);

/* Gives a run these local steps. Their exchange hides behind no backward pass, and groups would only add headers: there are none
 * unless the flags ask for them. */
void cli_train_local(tr_settings *s, const cli_args *args, const tg_schedule *local);

/* Settings of one process, or of all workers if `link` is NULL. Where nothing is said about hosts, and the link knows that several
 * have several workers each, these sum among themselves first. */
void cli_train_place(tr_settings *s, tg_link *link, uint32_t rank);

#endif
