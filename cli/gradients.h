/* Keeps the gradients of a training run as folders of .npy files, for other commands and for people who study them. */
#ifndef CLI_GRADIENTS_H
#define CLI_GRADIENTS_H

#include "run.h"

/* Writes DIR/step-000012/NAME.npy for each parameter; makes DIR. 0, or -1 after a report, with `why` empty. */
int cli_gradients_save(const char *dir, uint64_t step, tr_model *model, char why[TR_WHY]);

/* The same for all workers, as DIR/worker-3/step-000012/NAME.npy. */
int cli_gradients_save_all(const char *dir, uint64_t step, tr_model *const *models, uint32_t n, char why[TR_WHY]);

#endif
