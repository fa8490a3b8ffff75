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
#include "temporary.h"

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
    char *temp = NULL;
    int fd = cli_temporary_open(&temp, path), code = CLI_OK;
    if (fd < 0) {
        return fail_write(path);
    }
    (void)fchmod(fd, mode); /* where a file system has no permissions, the bytes still count */
    if (write_all(fd, pieces, piece_n) != 0 || fsync(fd) != 0 || rename(temp, path) != 0) {
        code = fail_write(path);
        (void)unlink(temp);
    }
    (void)close(fd); /* after the rename: the lock ends with it; fsync has reported what could fail */
    free(temp);
    return code;
}

/* Puts the target of the symbolic link `path` into *target, as a path from here; NULL if `path` is no link. 0, or -1 with errno
 * set. */
static int follow(char **target, const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t dir_len = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    *target = NULL;
    char *room = malloc(dir_len + PATH_MAX + 1);
    if (room == NULL) {
        return -1;
    }
    ssize_t len = readlink(path, room + dir_len, PATH_MAX);
    if (len < 0) {
        free(room);
        return errno == EINVAL || errno == ENOENT ? 0 : -1; /* something else than a link, or nothing */
    }
    room[dir_len + (size_t)len] = '\0';
    if (room[dir_len] == '/') {
        memmove(room, room + dir_len, (size_t)len + 1);
    } else {
        memcpy(room, path, dir_len);
    }
    *target = room;
    return 0;
}

/* The file that symbolic links lead to from `path`, which need not exist: to be freed. NULL with errno set if there is none. */
static char *resolve(const char *path)
{
    enum { LINK_N_MAX = 40 }; /* as Linux */
    char *real = strdup(path);
    for (int i = 0; real != NULL; i++) {
        char *target = NULL;
        int code = follow(&target, real);
        if (code == 0 && target == NULL) {
            return real;
        }
        free(real);
        real = target;
        if (code == 0 && i == LINK_N_MAX) {
            free(real);
            real = NULL;
            errno = ELOOP;
        }
    }
    return NULL;
}

/* After symbolic links the file that they lead to is replaced, and the links stay. */
static int write_through_links(const char *path, mode_t mode, const cli_piece *pieces, size_t piece_n)
{
    char *real = resolve(path);
    if (real == NULL) {
        return fail_write(path);
    }
    int code = write_beside(real, mode, pieces, piece_n);
    free(real);
    return code;
}

/* What a path names that is no regular file. */
static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)                    ? "a directory"
           : S_ISFIFO(mode)                 ? "a FIFO"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
           : S_ISSOCK(mode)                 ? "a socket"
                                            : "something else";
}

int cli_file_write(const char *path, const cli_piece *pieces, size_t piece_n)
{
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode)) {
        return write_in_place(path, pieces, piece_n);
    }
    cli_file_clean(path);
    return cli_file_replace(path, pieces, piece_n);
}

int cli_file_replace(const char *path, const cli_piece *pieces, size_t piece_n)
{
    struct stat about;
    if (stat(path, &about) != 0) {
        return errno == ENOENT ? write_through_links(path, usual_mode(0666), pieces, piece_n) : fail_write(path);
    }
    if (!S_ISREG(about.st_mode)) {
        return cli_fail(CLI_FAILED, "cannot write %s: it is %s", path, kind_of(about.st_mode));
    }
    return write_through_links(path, about.st_mode & 0777, pieces, piece_n);
}

int cli_file_check_replaceable(const char *path)
{
    struct stat about;
    if (stat(path, &about) == 0) {
        return S_ISREG(about.st_mode) ? CLI_OK
                                      : cli_fail(CLI_FAILED, "cannot write %s: it is %s, not a regular file", path,
                                                 kind_of(about.st_mode));
    }
    char *real = errno == ENOENT ? resolve(path) : NULL;
    if (real == NULL) {
        return fail_write(path);
    }
    /* A new file needs a folder. */
    char *slash = strrchr(real, '/');
    if (slash != NULL) {
        slash[slash == real] = '\0';
    }
    int code = access(slash != NULL ? real : ".", W_OK | X_OK) == 0 ? CLI_OK : fail_write(path);
    free(real);
    return code;
}

void cli_file_clean(const char *path)
{
    char *real = resolve(path);
    if (real != NULL) {
        cli_temporary_clean(real);
    }
    free(real);
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

    char *temp = cli_temporary_name(out->path);
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
