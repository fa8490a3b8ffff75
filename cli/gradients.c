/* Gradients of a training run as files; see gradients.h. */
#include "gradients.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fail.h"
#include "file.h"
#include "npy.h"

static int add_param(cli_folder *folder, const tr_param *param, const float *grads)
{
    uint8_t header[CLI_NPY_HEADER_CAP];
    char name[300];
    cli_piece pieces[2] = {{header, cli_npy_header(header, TG_FP32, param->dims, param->dim_n)},
                           {grads + param->at, param->n * sizeof *grads}};
    snprintf(name, sizeof name, "%s.npy", param->name);
    return cli_folder_add(folder, name, pieces, 2);
}

static int make_folder(const char *dir)
{
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
        (void)cli_fail(CLI_FAILED, "cannot make the folder %s: %s", dir, strerror(errno));
        return -1;
    }
    return 0;
}

int cli_gradients_save(const char *dir, uint64_t step, tr_model *model, char why[TR_WHY])
{
    char path[4096];
    size_t n = 0;
    cli_folder folder;
    const float *grads = tr_model_grads(model, &n);
    why[0] = '\0'; /* whatever goes wrong here is reported */
    if (make_folder(dir) != 0) {
        return -1;
    }
    if (snprintf(path, sizeof path, "%s/step-%06" PRIu64, dir, step) >= (int)sizeof path) {
        (void)cli_fail(CLI_FAILED, "the name of the folder %.60s... is too long", dir);
        return -1;
    }
    if (cli_folder_open(&folder, path) != CLI_OK) {
        return -1;
    }
    int code = CLI_OK;
    for (size_t p = 0; p < tr_model_param_n(model) && code == CLI_OK; p++) {
        code = add_param(&folder, tr_model_param(model, p), grads);
    }
    if (code == CLI_OK) {
        code = cli_folder_commit(&folder);
    }
    cli_folder_discard(&folder);
    return code == CLI_OK ? 0 : -1;
}

int cli_gradients_save_all(const char *dir, uint64_t step, tr_model *const *models, uint32_t n, char why[TR_WHY])
{
    char path[4096];
    why[0] = '\0';
    int code = make_folder(dir);
    for (uint32_t w = 0; w < n && code == 0; w++) {
        /* A name that is cut here is too long for the step's folder, too. */
        (void)snprintf(path, sizeof path, "%s/worker-%u", dir, w);
        code = cli_gradients_save(path, step, models[w], why);
    }
    return code;
}
