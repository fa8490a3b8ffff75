/* Loads .npy files and directories of them as tensors; see model.h. */
#include "model.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fail.h"
#include "file.h"
#include "npy.h"

#define SUFFIX ".npy"
enum { SUFFIX_LEN = 4, NAME_LEN_MAX = 255 };

static int has_suffix(const char *name)
{
    size_t len = strlen(name);
    return len > SUFFIX_LEN && strcmp(name + len - SUFFIX_LEN, SUFFIX) == 0;
}

char *cli_model_stem(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *stem = strdup(slash != NULL ? slash + 1 : path);
    if (stem != NULL && has_suffix(stem)) {
        stem[strlen(stem) - SUFFIX_LEN] = '\0';
    }
    return stem;
}

/* Room for one tensor more; 0 without memory. */
static int reserve_one(cli_model *m)
{
    size_t n = m->tensor_n + 1;
    tg_tensor *tensors = realloc(m->tensors, n * sizeof *tensors);
    if (tensors != NULL) {
        m->tensors = tensors;
    }
    void **grads = realloc(m->grads, n * sizeof *grads);
    if (grads != NULL) {
        m->grads = grads;
    }
    uint8_t **files = realloc(m->files, n * sizeof *files);
    if (files != NULL) {
        m->files = files;
    }
    return tensors != NULL && grads != NULL && files != NULL;
}

/* Takes the bytes of a whole file over if all is well. */
static int add_tensor(cli_model *m, const char *path, uint8_t *bytes, size_t bytes_len)
{
    cli_npy npy;
    char why[CLI_NPY_WHY];
    if (cli_npy_parse(&npy, bytes, bytes_len, why) != 0) {
        return cli_fail(CLI_FAILED, "cannot read %s: %s", path, why);
    }
    char *name = cli_model_stem(path);
    uint64_t *dims = malloc((npy.dim_n + 1) * sizeof *dims);
    if (name == NULL || dims == NULL || !reserve_one(m)) {
        free(name);
        free(dims);
        return cli_fail_memory();
    }
    if (strlen(name) > NAME_LEN_MAX) {
        free(name);
        free(dims);
        return cli_fail(CLI_FAILED, "cannot take %s: a tensor's name has at most 255 bytes", path);
    }
    memcpy(dims, npy.dims, npy.dim_n * sizeof *dims);
    size_t data_len = bytes_len - npy.data_at;
    if (npy.data_at % sizeof(float) != 0) { /* NumPy's own headers end on a multiple of 64; others need not */
        memmove(bytes, bytes + npy.data_at, data_len);
        npy.data_at = 0;
    }
    tg_tensor *tensor = &m->tensors[m->tensor_n];
    tensor->name = name;
    tensor->dims = dims;
    tensor->dim_n = npy.dim_n;
    tensor->kind = TG_OTHER;
    tensor->dtype = npy.dtype;
    m->files[m->tensor_n] = bytes;
    m->grads[m->tensor_n] = bytes + npy.data_at;
    m->tensor_n++;
    m->element_n += npy.element_n;
    m->len += data_len;
    return CLI_OK;
}

static int load_file(cli_model *m, const char *path)
{
    uint8_t *bytes;
    size_t bytes_len;
    int code = cli_file_read(&bytes, &bytes_len, path);
    if (code != CLI_OK) {
        return code;
    }
    code = add_tensor(m, path, bytes, bytes_len);
    if (code != CLI_OK) {
        free(bytes);
    }
    return code;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_texts(char **texts, size_t text_n)
{
    for (size_t i = 0; i < text_n; i++) {
        free(texts[i]);
    }
    free(texts);
}

/* The paths of all *.npy in a directory, sorted bytewise so that the order is the same everywhere. */
static int list_directory(char ***out, size_t *out_n, const char *path)
{
    char **paths = NULL;
    size_t path_n = 0;
    int code = CLI_OK;
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return cli_fail(CLI_FAILED, "cannot read %s: %s", path, strerror(errno));
    }
    for (struct dirent *entry; code == CLI_OK && (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.' || !has_suffix(entry->d_name)) {
            continue;
        }
        size_t cap = strlen(path) + strlen(entry->d_name) + 2;
        char *file = malloc(cap);
        char **grown = realloc(paths, (path_n + 1) * sizeof *paths);
        if (grown != NULL) {
            paths = grown;
        }
        if (file == NULL || grown == NULL) {
            free(file);
            code = cli_fail_memory();
        } else {
            snprintf(file, cap, "%s/%s", path, entry->d_name);
            paths[path_n++] = file;
        }
    }
    closedir(dir);
    if (code == CLI_OK && path_n == 0) {
        code = cli_fail(CLI_FAILED, "there is no .npy file in %s", path);
    }
    if (code != CLI_OK) {
        free_texts(paths, path_n);
        return code;
    }
    qsort(paths, path_n, sizeof *paths, by_text);
    *out = paths;
    *out_n = path_n;
    return CLI_OK;
}

static int load_path(cli_model *m, const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
        return load_file(m, path);
    }
    char **paths = NULL;
    size_t path_n = 0;
    int code = list_directory(&paths, &path_n, path);
    if (code != CLI_OK) {
        return code;
    }
    for (size_t i = 0; i < path_n && code == CLI_OK; i++) {
        code = load_file(m, paths[i]);
    }
    free_texts(paths, path_n);
    return code;
}

static int check_names(const cli_model *m)
{
    const char **names = malloc((m->tensor_n + 1) * sizeof *names);
    if (names == NULL) {
        return cli_fail_memory();
    }
    for (size_t t = 0; t < m->tensor_n; t++) {
        names[t] = m->tensors[t].name;
    }
    qsort(names, m->tensor_n, sizeof *names, by_text);
    int code = CLI_OK;
    for (size_t t = 1; t < m->tensor_n && code == CLI_OK; t++) {
        if (strcmp(names[t - 1], names[t]) == 0) {
            code = cli_fail(CLI_MISUSE, "two inputs would be the tensor '%s'; rename one of the files", names[t]);
        }
    }
    free(names);
    return code;
}

int cli_model_load(cli_model *out, const char *const *paths, size_t path_n)
{
    cli_model m = {0};
    int code = CLI_OK;
    for (size_t i = 0; i < path_n && code == CLI_OK; i++) {
        code = load_path(&m, paths[i]);
    }
    if (code == CLI_OK) {
        code = check_names(&m);
    }
    if (code != CLI_OK) {
        cli_model_free(&m);
        return code;
    }
    *out = m;
    return CLI_OK;
}

int cli_model_load_one(cli_model *out, const char *path)
{
    cli_model m = {0};
    int code = cli_model_load(&m, &path, 1);
    if (code == CLI_OK && m.tensor_n != 1) {
        code = cli_fail(CLI_FAILED, "%s is not one .npy file", path);
    } else if (code == CLI_OK && m.element_n == 0) {
        code = cli_fail(CLI_FAILED, "%s holds no elements to measure with", path);
    }
    if (code != CLI_OK) {
        cli_model_free(&m);
        return code;
    }
    *out = m;
    return CLI_OK;
}

void cli_model_free(cli_model *m)
{
    for (size_t t = 0; t < m->tensor_n; t++) {
        free((void *)m->tensors[t].name);
        free((void *)m->tensors[t].dims);
        free(m->files[t]);
    }
    free(m->tensors);
    free(m->grads);
    free(m->files);
    *m = (cli_model){0};
}
