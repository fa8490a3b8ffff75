/* Reading files whole and writing them all or nothing; see file.h. */
#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail.h"

static int fail_read(const char *path)
{
    return cli_fail(CLI_FAILED, "cannot read %s: %s", path, strerror(errno));
}

static int fail_write(const char *path)
{
    return cli_fail(CLI_FAILED, "cannot write %s: %s", path, strerror(errno));
}

/* ---- reading --------------------------------------------------------------------------------------- */

/* Reads to the end of `fd`. The size of a file is a hint alone: a pipe has none, and a file may grow. */
static int read_all(uint8_t **out, size_t *out_len, int fd, size_t hint, const char *path)
{
    size_t cap = hint + 1; /* one more, so that the read that finds the end needs no more room */
    size_t len = 0;
    uint8_t *data = malloc(cap);
    while (data != NULL) {
        ssize_t got = read(fd, data + len, cap - len > SSIZE_MAX ? SSIZE_MAX : cap - len);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            free(data);
            return fail_read(path);
        }
        if (got == 0) {
            *out = data;
            *out_len = len;
            return CLI_OK;
        }
        len += (size_t)got;
        if (len < cap) {
            continue;
        }
        cap = cap <= SIZE_MAX / 2 - 65536 ? cap * 2 + 65536 : 0;
        uint8_t *grown = cap > 0 ? realloc(data, cap) : NULL;
        if (grown == NULL) {
            free(data);
        }
        data = grown;
    }
    return cli_fail_memory();
}

int cli_file_read(uint8_t **out, size_t *out_len, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail_read(path);
    }
    struct stat about;
    size_t hint = 0;
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && (uint64_t)about.st_size < SIZE_MAX) {
        hint = (size_t)about.st_size;
    }
    int code = read_all(out, out_len, fd, hint, path);
    close(fd);
    return code;
}

/* ---- writing --------------------------------------------------------------------------------------- */

/* 0, or -1 with errno set. */
static int write_all(int fd, const cli_piece *pieces, size_t piece_n)
{
    for (size_t p = 0; p < piece_n; p++) {
        const uint8_t *at = pieces[p].data;
        size_t left = pieces[p].len;
        while (left > 0) {
            ssize_t put = write(fd, at, left > SSIZE_MAX ? SSIZE_MAX : left);
            if (put < 0 && errno == EINTR) {
                continue;
            }
            if (put < 0) {
                return -1;
            }
            at += put;
            left -= (size_t)put;
        }
    }
    return 0;
}

/* Writes and closes `fd`, whatever happens. A full disk may show as late as in fsync or close. */
static int write_and_close(int fd, const cli_piece *pieces, size_t piece_n, int is_regular)
{
    int failed = write_all(fd, pieces, piece_n) != 0 || (is_regular && fsync(fd) != 0);
    int reason = errno;
    if (close(fd) != 0 && !failed) {
        return -1;
    }
    errno = reason;
    return failed ? -1 : 0;
}

/* The permissions that a plain open or mkdir would have given; mkstemp and mkdtemp give fewer. */
static mode_t usual_mode(mode_t all)
{
    mode_t mask = umask(0);
    umask(mask);
    return all & ~mask;
}

/* "DIR/.NAME.XXXXXX" for "DIR/NAME"; NULL without memory. */
static char *temporary_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t dir_len = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    /* Half of a long name is enough: the name must not grow beyond what a file system takes. */
    int name_len = strlen(path + dir_len) > 128 ? 128 : (int)strlen(path + dir_len);
    size_t cap = dir_len + (size_t)name_len + sizeof "..XXXXXX";
    char *temp = malloc(cap);
    if (temp != NULL) {
        snprintf(temp, cap, "%.*s.%.*s.XXXXXX", (int)dir_len, path, name_len, path + dir_len);
    }
    return temp;
}

/* A device or a pipe is written in place: to rename a file over it would replace it. */
static int write_in_place(const char *path, const cli_piece *pieces, size_t piece_n)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write_and_close(fd, pieces, piece_n, 0) != 0) {
        return fail_write(path);
    }
    return CLI_OK;
}

static int write_beside(const char *path, mode_t mode, const cli_piece *pieces, size_t piece_n)
{
    char *temp = temporary_beside(path);
    if (temp == NULL) {
        return cli_fail_memory();
    }
    int fd = mkstemp(temp);
    int code = fd < 0 ? fail_write(path) : CLI_OK;
    if (fd >= 0) {
        (void)fchmod(fd, mode); /* where a file system has no permissions, the bytes still count */
        if (write_and_close(fd, pieces, piece_n, 1) != 0 || rename(temp, path) != 0) {
            code = fail_write(path);
            unlink(temp);
        }
    }
    free(temp);
    return code;
}

/* What the symbolic link `path` says, as a path from here; NULL if it is no link. */
static char *follow(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t dir_len = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    char *target = malloc(dir_len + PATH_MAX + 1);
    if (target == NULL) {
        return NULL;
    }
    ssize_t len = readlink(path, target + dir_len, PATH_MAX);
    if (len < 0) {
        free(target);
        return NULL;
    }
    target[dir_len + (size_t)len] = '\0';
    if (target[dir_len] == '/') {
        memmove(target, target + dir_len, (size_t)len + 1);
    } else {
        memcpy(target, path, dir_len);
    }
    return target;
}

/* Behind a symbolic link, the file that it leads to is replaced and the link stays. */
static int write_through_links(const char *path, mode_t mode, const cli_piece *pieces, size_t piece_n)
{
    enum { LINK_N_MAX = 32 };
    char *real = strdup(path);
    if (real == NULL) {
        return cli_fail_memory();
    }
    for (int i = 0; i < LINK_N_MAX; i++) {
        char *target = follow(real);
        if (target == NULL) {
            break;
        }
        free(real);
        real = target;
    }
    int code = write_beside(real, mode, pieces, piece_n);
    free(real);
    return code;
}

int cli_file_write(const char *path, const cli_piece *pieces, size_t piece_n)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        return write_through_links(path, usual_mode(0666), pieces, piece_n);
    }
    if (S_ISDIR(about.st_mode)) {
        return cli_fail(CLI_FAILED, "cannot write %s: it is a directory", path);
    }
    if (!S_ISREG(about.st_mode)) {
        return write_in_place(path, pieces, piece_n);
    }
    return write_through_links(path, about.st_mode & 0777, pieces, piece_n);
}

/* ---- directories ----------------------------------------------------------------------------------- */

/* Is there something in the directory, other than itself and its parent? */
static int has_entries(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return 1;
    }
    int found = 0;
    for (struct dirent *entry; !found && (entry = readdir(dir)) != NULL;) {
        found = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(dir);
    return found;
}

int cli_folder_open(cli_folder *out, const char *path)
{
    *out = (cli_folder){0};
    struct stat about;
    if (stat(path, &about) == 0) {
        if (!S_ISDIR(about.st_mode)) {
            return cli_fail(CLI_FAILED, "cannot write %s: several tensors need a directory, and this is a file", path);
        }
        if (has_entries(path)) {
            return cli_fail(CLI_FAILED, "cannot write %s: the directory is not empty; give a new one", path);
        }
    }
    out->path = strdup(path);
    if (out->path == NULL) {
        return cli_fail_memory();
    }
    for (size_t len = strlen(out->path); len > 1 && out->path[len - 1] == '/';) {
        out->path[--len] = '\0';
    }

    char *temp = temporary_beside(out->path);
    if (temp == NULL) {
        cli_folder_discard(out);
        return cli_fail_memory();
    }
    if (mkdtemp(temp) == NULL) {
        int code = fail_write(path);
        free(temp);
        cli_folder_discard(out);
        return code;
    }
    out->temp = temp;
    return CLI_OK;
}

static char *join(const char *folder, const char *name)
{
    size_t cap = strlen(folder) + strlen(name) + 2;
    char *path = malloc(cap);
    if (path != NULL) {
        snprintf(path, cap, "%s/%s", folder, name);
    }
    return path;
}

int cli_folder_add(cli_folder *f, const char *name, const cli_piece *pieces, size_t piece_n)
{
    char **names = realloc(f->names, (f->name_n + 1) * sizeof *names);
    if (names == NULL) {
        return cli_fail_memory();
    }
    f->names = names;
    char *copy = strdup(name);
    char *path = join(f->temp, name);
    int code = CLI_OK;
    if (copy == NULL || path == NULL) {
        code = cli_fail_memory();
    } else {
        /* O_EXCL: on a file system that ignores case, "A" and "a" must not fall into one file. */
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0) {
            code = cli_fail(CLI_FAILED, "cannot write %s in %s: %s", name, f->path, strerror(errno));
        } else {
            f->names[f->name_n++] = copy;
            copy = NULL;
            if (write_and_close(fd, pieces, piece_n, 1) != 0) {
                code = fail_write(f->path);
            }
        }
    }
    free(path);
    free(copy);
    return code;
}

int cli_folder_commit(cli_folder *f)
{
    if (chmod(f->temp, usual_mode(0777)) != 0 || rename(f->temp, f->path) != 0) {
        return fail_write(f->path);
    }
    free(f->temp);
    f->temp = NULL;
    return CLI_OK;
}

void cli_folder_discard(cli_folder *f)
{
    for (size_t i = 0; i < f->name_n; i++) {
        char *path = f->temp != NULL ? join(f->temp, f->names[i]) : NULL;
        if (path != NULL) {
            unlink(path);
        }
        free(path);
        free(f->names[i]);
    }
    if (f->temp != NULL) {
        rmdir(f->temp);
    }
    free(f->names);
    free(f->temp);
    free(f->path);
    *f = (cli_folder){0};
}
