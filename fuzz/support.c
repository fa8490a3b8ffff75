/* Shared by fuzz targets; see support.h. */
#include "support.h"

#include <string.h>

/* ---- memory ------------------------------------------------------------------------------------------------------- */

void *fuzz_room(size_t len, int fill)
{
    void *room = malloc(len == 0 ? 1 : len);
    PROMISE(room != NULL, "the machine has memory for a small input");
    return memset(room, fill, len);
}

/* The header of every block; keeps the block aligned for any type. */
typedef union front {
    size_t len;
    max_align_t aligned;
} front;

/* Caches the last large block that was freed. A codec's workspace always has the same size, and new pages from the system would take
 * longer than everything else that an input does. */
enum { LARGE = 1 << 20 };
static front *spare;

static front *take_block(size_t len)
{
    if (spare == NULL || spare->len != len) {
        return malloc(sizeof(front) + len);
    }
    front *block = spare;
    spare = NULL;
    return block;
}

static void *acquire(void *context, size_t len)
{
    fuzz_budget *budget = context;
    front *block = len > budget->limit - budget->held ? NULL : take_block(len);
    if (block == NULL) {
        return NULL;
    }
    block->len = len;
    budget->held += len;
    return memset(block + 1, 0xa5, len); /* so that code that relies on zeros fails */
}

static void release(void *context, void *block)
{
    fuzz_budget *budget = context;
    if (block != NULL) {
        front *start = (front *)block - 1;
        budget->held -= start->len;
        if (start->len >= LARGE) {
            front *swap = spare;
            spare = start;
            start = swap;
        }
        free(start);
    }
}

void fuzz_budget_start(fuzz_budget *budget, size_t limit)
{
    *budget = (fuzz_budget){.allocator = {acquire, release, budget}, .limit = limit};
}

/* ---- input -------------------------------------------------------------------------------------------------------- */

uint8_t fuzz_take8(fuzz_input *input)
{
    if (input->left == 0) {
        return 0;
    }
    input->left--;
    return *input->at++;
}

uint16_t fuzz_take16(fuzz_input *input)
{
    unsigned low = fuzz_take8(input);
    return (uint16_t)(low | (unsigned)fuzz_take8(input) << 8);
}

uint32_t fuzz_take32(fuzz_input *input)
{
    uint32_t low = fuzz_take16(input);
    return low | (uint32_t)fuzz_take16(input) << 16;
}

uint8_t *fuzz_take_bytes(fuzz_input *input, size_t *len)
{
    *len = *len < input->left ? *len : input->left;
    uint8_t *bytes = fuzz_room(*len, 0);
    if (*len > 0) {
        memcpy(bytes, input->at, *len);
        input->at += *len;
        input->left -= *len;
    }
    return bytes;
}

/* ---- errors ------------------------------------------------------------------------------------------------------- */

void fuzz_check_sentence(const char *text, size_t cap)
{
    PROMISE(memchr(text, '\0', cap) != NULL, "a sentence is terminated");
    PROMISE(text[0] != '\0', "a failure says why");
    for (const char *c = text; *c != '\0'; c++) {
        PROMISE((unsigned char)*c >= 0x20 && *c != 0x7f, "a sentence is one line without control characters");
    }
}
