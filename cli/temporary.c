/* Temporary files; see temporary.h. */
#include "temporary.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK ".tersegrad-"

enum { RANDOM_LEN = 6, NAME_LEN_MAX = 128 }; /* of a longer name the beginning: file systems limit names to 255 bytes */

static size_t folder_len(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

static int name_len(const char *name)
{
    size_t len = strlen(name);
    return len > NAME_LEN_MAX ? NAME_LEN_MAX : (int)len;
}

char *cli_temporary_name(const char *path)
{
    size_t folder = folder_len(path);
    int len = name_len(path + folder);
    size_t cap = folder + (size_t)len + sizeof "." MARK "XXXXXX";
    char *name = malloc(cap);
    if (name != NULL) {
        (void)snprintf(name, cap, "%.*s.%.*s" MARK "XXXXXX", (int)folder, path, len, path + folder);
    }
    return name;
}

/* Waits for the lock. Where a file system has none the file is written all the same, and not cleaned up by others. */
static void lock(int fd)
{
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
}

int cli_temporary_open(char **name, const char *path)
{
    enum { ATTEMPTS = 100 };
    for (int i = 0; i < ATTEMPTS; i++) {
        struct stat about;
        *name = cli_temporary_name(path);
        int fd = *name != NULL ? mkstemp(*name) : -1;
        if (fd < 0) {
            break;
        }
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
        lock(fd);
        if (fstat(fd, &about) == 0 && about.st_nlink > 0) {
            return fd;
        }
        /* Another process has removed it before it was locked. */
        (void)close(fd);
        free(*name);
        *name = NULL;
        errno = EAGAIN;
    }
    int reason = errno;
    free(*name);
    *name = NULL;
    errno = reason;
    return -1;
}

/* Whether `entry` is the name of a temporary file for a file called `name`, completed by mkstemp. */
static int is_temporary(const char *entry, const char *name)
{
    size_t len = (size_t)name_len(name), mark_len = sizeof MARK - 1;
    if (entry[0] != '.' || strncmp(entry + 1, name, len) != 0 || strncmp(entry + 1 + len, MARK, mark_len) != 0) {
        return 0;
    }
    const char *random = entry + 1 + len + mark_len;
    for (int i = 0; i < RANDOM_LEN; i++) {
        if (!isalnum((unsigned char)random[i])) {
            return 0;
        }
    }
    return random[RANDOM_LEN] == '\0';
}

static int is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static void remove_if_stale(int folder, const char *entry)
{
    struct stat opened, named;
    int fd = openat(folder, entry, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    /* The name is checked again once the lock is held: the file may have been renamed to its place meanwhile. */
    if (fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0 && fstatat(folder, entry, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_same_file(&opened, &named)) {
        (void)unlinkat(folder, entry, 0);
    }
    (void)close(fd);
}

void cli_temporary_clean(const char *path)
{
    size_t len = folder_len(path);
    char *folder = len > 0 ? strndup(path, len) : strdup(".");
    DIR *entries = folder != NULL ? opendir(folder) : NULL;
    for (struct dirent *e; entries != NULL && (e = readdir(entries)) != NULL;) {
        if (is_temporary(e->d_name, path + len)) {
            remove_if_stale(dirfd(entries), e->d_name);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    free(folder);
}
