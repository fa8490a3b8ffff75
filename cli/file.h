/* Files in and out. A file is read whole. What is written appears under its name complete or not at all: it is written to a
 * temporary file (or directory) beside its place (temporary.h), which is renamed when all of it is on the disk. */
#ifndef CLI_FILE_H
#define CLI_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads all of `path` into memory that the caller frees; never NULL on success. */
int cli_file_read(uint8_t **out, size_t *out_len, const char *path);

/* A run of bytes of a file to be written. */
typedef struct cli_piece {
    const void *data;
    size_t len;
} cli_piece;

/* Writes the pieces, one after the other, as the file `path`, over a file that is there. A device or a FIFO is written in place.
 * Symbolic links are followed, to a file that need not exist yet; a loop of them is refused. */
int cli_file_write(const char *path, const cli_piece *pieces, size_t piece_n);

/* Likewise, but refuses anything that is there and no regular file. */
int cli_file_replace(const char *path, const cli_piece *pieces, size_t piece_n);

/* Whether cli_file_replace can be expected to work, before there is anything to write. Reports. Opens nothing. */
int cli_file_check_replaceable(const char *path);

/* Removes temporary files for `path` that killed processes have left behind; cli_file_write does so itself. */
void cli_file_clean(const char *path);

/* A directory that is being written: add files, then commit or discard it. */
typedef struct cli_folder {
    char *path; /* where it will stand */
    char *temp; /* where it grows */
    char **names;
    size_t name_n;
} cli_folder;

/* Refuses a `path` that is there already, unless it is an empty directory. */
int cli_folder_open(cli_folder *out, const char *path);
int cli_folder_add(cli_folder *f, const char *name, const cli_piece *pieces, size_t piece_n);
int cli_folder_commit(cli_folder *f);
void cli_folder_discard(cli_folder *f); /* does nothing after a commit */

#endif
