/* Counts the instructions that a program executes under qemu's user emulation, by function: a plugin for qemu 6 to 9, for
 * bench/neon_instructions.py. Debian has no package with the header of the interface, so the little that is needed of it is
 * declared here. Only functions of the program itself have names, not those of shared libraries. Counts of several threads may
 * be short by a few. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the interface, version 1 -------------------------------------------------------------------------------------------- */

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { ADD_U64 = 0 };

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
const char *qemu_plugin_insn_symbol(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int op, void *at, uint64_t operand);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*call)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_atexit_cb(plugin_id id, void (*call)(plugin_id, void *), void *data);
int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* ---- counting ------------------------------------------------------------------------------------------------------------ */

/* One block of instructions that are executed together, once translated. */
typedef struct block {
    struct block *next;
    const char *function;
    uint64_t count; /* instructions executed */
} block;

static block *blocks;
static char out_path[4096];

static void translated(plugin_id id, struct qemu_plugin_tb *tb)
{
    block *b = calloc(1, sizeof *b);
    const char *name = qemu_plugin_insn_symbol(qemu_plugin_tb_get_insn(tb, 0));
    (void)id;
    if (b == NULL) {
        abort();
    }
    b->function = name != NULL && name[0] != '\0' ? name : "?";
    b->next = blocks;
    blocks = b;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, ADD_U64, &b->count, qemu_plugin_tb_n_insns(tb));
}

static void at_exit(plugin_id id, void *data)
{
    FILE *out = fopen(out_path, "w");
    (void)id;
    (void)data;
    for (const block *b = blocks; out != NULL && b != NULL; b = b->next) {
        (void)fprintf(out, "%s %" PRIu64 "\n", b->function, b->count);
    }
    if (out == NULL || fclose(out) != 0) {
        abort();
    }
}

/* The argument out=FILE names the file that gets a line per block: function and count. */
__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || strncmp(argv[0], "out=", 4) != 0 || strlen(argv[0]) >= sizeof out_path) {
        return 1;
    }
    strcpy(out_path, argv[0] + 4);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
