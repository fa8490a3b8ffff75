/* Temporary files, each beside the file that it will replace: ".NAME.tersegrad-XXXXXX" for "NAME".
 *
 * A process holds a lock (flock) on its temporary file for as long as it writes to it. The kernel drops the lock when the process
 * ends, however it ends. So a temporary file without a lock was left behind by a process that was killed, and may be removed;
 * one with a lock belongs to a running process, of this job or another. */
#ifndef CLI_TEMPORARY_H
#define CLI_TEMPORARY_H

/* The name for mkstemp or mkdtemp to complete; NULL without memory. To be freed. */
char *cli_temporary_name(const char *path);

/* Creates a temporary file for `path` and locks it. Its file descriptor, or -1 with errno set. *name is to be freed. Rename the
 * file, or remove it, before the descriptor is closed. */
int cli_temporary_open(char **name, const char *path);

/* Removes the temporary files for `path` that killed processes left behind. It leaves alone: names that differ from the pattern in
 * any way, what is no regular file, files of other users, and those that are locked or on a file system without locks. */
void cli_temporary_clean(const char *path);

#endif
