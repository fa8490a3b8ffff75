/* Checkpoint files; see checkpoint.h.
 *
 *     "TGCK", u32 version, u64 length of the log, the run as tr_hooks.save gives it, u64 XXH64 of everything before it
 *
 * Numbers are little-endian. */
#include "checkpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fail.h"
#include "file.h"
#include "hash.h"

enum { VERSION = 2, HEADER_LEN = 16, CHECKSUM_LEN = 8 };
static const uint8_t magic[4] = {'T', 'G', 'C', 'K'};

static void put(uint8_t *to, uint64_t value, int len)
{
    for (int i = 0; i < len; i++) {
        to[i] = (uint8_t)(value >> 8 * i);
    }
}

static uint64_t get(const uint8_t *from, int len)
{
    uint64_t value = 0;
    for (int i = len; i-- > 0;) {
        value = value << 8 | from[i];
    }
    return value;
}

static uint64_t checksum(const uint8_t header[HEADER_LEN], const void *run, size_t run_len)
{
    return tr_hash(tr_hash(0, header, HEADER_LEN), run, run_len);
}

int cli_checkpoint_prepare(const char *path)
{
    int code = cli_file_check_replaceable(path);
    if (code == CLI_OK) {
        cli_file_clean(path);
    }
    return code;
}

static int refuse(const char *path, const char *reason)
{
    return cli_fail(CLI_FAILED, "cannot go on from %s: %s", path, reason);
}

static int check(const uint8_t *bytes, size_t len, const char *path)
{
    if (len < HEADER_LEN || memcmp(bytes, magic, sizeof magic) != 0) {
        return refuse(path, "it is not a checkpoint");
    }
    if (get(bytes + 4, 4) != VERSION) {
        return cli_fail(CLI_FAILED,
                        "cannot go on from %s: it is a checkpoint of version %u, and this program has version %d", path,
                        (unsigned)get(bytes + 4, 4), VERSION);
    }
    if (len < HEADER_LEN + CHECKSUM_LEN ||
        get(bytes + len - CHECKSUM_LEN, 8) != checksum(bytes, bytes + HEADER_LEN, len - HEADER_LEN - CHECKSUM_LEN)) {
        return refuse(path, "it is damaged");
    }
    return CLI_OK;
}

int cli_checkpoint_read(cli_checkpoint *out, const char *path)
{
    *out = (cli_checkpoint){.log_len = CLI_NO_LOG};
    struct stat about;
    if (stat(path, &about) != 0 && errno == ENOENT) {
        return CLI_OK;
    }
    uint8_t *bytes = NULL;
    size_t len = 0;
    int code = cli_file_read(&bytes, &len, path);
    if (code != CLI_OK) {
        return code;
    }
    code = check(bytes, len, path);
    if (code != CLI_OK) {
        free(bytes);
        return code;
    }
    out->log_len = get(bytes + 8, 8);
    out->run_len = len - HEADER_LEN - CHECKSUM_LEN;
    memmove(bytes, bytes + HEADER_LEN, out->run_len);
    out->run = bytes;
    return CLI_OK;
}

int cli_checkpoint_write(const char *path, const cli_checkpoint *c)
{
    uint8_t header[HEADER_LEN], end[CHECKSUM_LEN];
    memcpy(header, magic, sizeof magic);
    put(header + 4, VERSION, 4);
    put(header + 8, c->log_len, 8);
    put(end, checksum(header, c->run, c->run_len), 8);
    cli_piece pieces[3] = {{header, sizeof header}, {c->run, c->run_len}, {end, sizeof end}};
    return cli_file_replace(path, pieces, 3);
}
