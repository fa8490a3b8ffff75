/* Validates a batch of CIFAR-10. The format has no header, so that only its length and its labels can be wrong. */
#include "data/cifar.h"

#include "data/refuse.h"

int tr_cifar_records(size_t *out, const uint8_t *src, size_t src_len, char why[TR_WHY])
{
    if (src_len == 0) {
        return tr_data_refuse(why, "it is empty");
    }
    if (src_len % TR_CIFAR_RECORD_LEN != 0) {
        return tr_data_refuse(why, "its %zu bytes end within a record, as each has %d bytes", src_len,
                              TR_CIFAR_RECORD_LEN);
    }
    size_t n = src_len / TR_CIFAR_RECORD_LEN;
    for (size_t i = 0; i < n; i++) {
        unsigned label = src[i * TR_CIFAR_RECORD_LEN];
        if (label >= TR_CIFAR_CLASSES) {
            return tr_data_refuse(why, "the label of record %zu is %u, but classes go from 0 to %d", i, label,
                                  TR_CIFAR_CLASSES - 1);
        }
    }
    *out = n;
    return 0;
}
