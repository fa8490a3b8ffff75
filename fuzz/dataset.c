/* A byte that says what the rest is, and a file of a data set: idx images, idx labels, a batch of CIFAR-10, or gzip. It is
 * refused with an error, or its content has exactly the announced length. */
#include "data/cifar.h"
#include "data/gunzip.h"
#include "data/idx.h"

#include "support.h"

#include <string.h>

enum { UNPACKED_MAX = 1 << 18 }; /* a kilobyte of gzip may hold a megabyte */

static void check_idx(const uint8_t *file, size_t len, int is_labels, char *why)
{
    tr_idx idx;
    if ((is_labels ? tr_idx_labels : tr_idx_images)(&idx, file, len, why) != 0) {
        fuzz_check_sentence(why, TR_WHY);
        return;
    }
    PROMISE(idx.n > 0 && idx.n <= TR_IDX_COUNT_MAX, "the items are some, and not too many");
    PROMISE(idx.height > 0 && idx.height <= TR_IDX_SIDE_MAX && idx.width > 0 && idx.width <= TR_IDX_SIDE_MAX,
            "images have a size, and not too large a one");
    PROMISE(idx.data_at == (is_labels ? 8 : 16), "elements follow the header");
    PROMISE(len - idx.data_at == (uint64_t)idx.n * idx.height * idx.width, "the bytes are as many as announced");
    for (size_t i = idx.data_at; is_labels && i < len; i++) {
        PROMISE(file[i] < TR_IDX_CLASSES, "a label is a class");
    }
}

static void check_cifar(const uint8_t *file, size_t len, char *why)
{
    size_t n = 0;
    if (tr_cifar_records(&n, file, len, why) != 0) {
        fuzz_check_sentence(why, TR_WHY);
        return;
    }
    PROMISE(n > 0 && n * TR_CIFAR_RECORD_LEN == len, "a batch is whole records");
    for (size_t i = 0; i < n; i++) {
        PROMISE(file[i * TR_CIFAR_RECORD_LEN] < TR_CIFAR_CLASSES, "a label is a class");
    }
}

/* The content is decompressed again with the exact limit, which must succeed, and with a smaller one, which must fail. */
static void check_gzip(const uint8_t *file, size_t len, char *why)
{
    uint8_t *plain = NULL, *again = NULL;
    size_t plain_len = 0, again_len = 0;
    if (tr_gunzip(&plain, &plain_len, file, len, UNPACKED_MAX, why) != 0) {
        fuzz_check_sentence(why, TR_WHY);
        PROMISE(plain == NULL, "what is refused leaves nothing behind");
        return;
    }
    PROMISE(plain_len <= UNPACKED_MAX && tr_is_gzip(file, len), "only gzip is unpacked, and not too much of it");
    PROMISE(tr_gunzip(&again, &again_len, file, len, plain_len, why) == 0 && again_len == plain_len &&
                memcmp(again, plain, plain_len) == 0,
            "unpacked again it is the same");
    free(again);
    PROMISE(plain_len == 0 || tr_gunzip(&again, &again_len, file, len, plain_len - 1, why) != 0,
            "the limit is kept to the byte");
    check_idx(plain, plain_len, 0, why);
    free(plain);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    unsigned kind = fuzz_take8(&input) % 4;
    size_t file_len = input.left;
    uint8_t *file = fuzz_take_bytes(&input, &file_len);
    char *why = fuzz_room(TR_WHY, 'x');
    if (kind < 2) {
        check_idx(file, file_len, kind == 1, why);
    } else if (kind == 2) {
        check_cifar(file, file_len, why);
    } else {
        check_gzip(file, file_len, why);
    }
    free(why);
    free(file);
    return 0;
}
