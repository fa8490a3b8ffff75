/* See blocks.h. */
#include "cuda/blocks.h"

#include "exec/cuda/gpu_calls.h"
#include "support.h"

enum { BLOCKS_MAX = 64, MORE = 64 }; /* kernels read whole words */

static void *blocks[BLOCKS_MAX];
static size_t block_n;

void *block_new(const void *from, uint64_t len)
{
    const char *why = NULL;
    assert_true(block_n < BLOCKS_MAX);
    assert_int_equal(tg_gpu_call_acquire(&blocks[block_n], len + MORE, 0, &why), 0);
    if (from != NULL) {
        tg_gpu_call_copy(blocks[block_n], from, len, NULL);
    }
    return blocks[block_n++];
}

void block_get(void *to, const void *from, uint64_t len)
{
    const char *why = NULL;
    tg_gpu_call_copy(to, from, len, NULL);
    if (tg_gpu_call_wait(NULL, &why) != 0) {
        fail_msg("%s", why);
    }
}

void blocks_free(void)
{
    while (block_n > 0) {
        tg_gpu_call_release(blocks[--block_n], 0);
    }
}
