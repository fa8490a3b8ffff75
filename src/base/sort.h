/* Heapsort of keys, ascending and in place; its time does not depend on their order. */
#ifndef TG_BASE_SORT_H
#define TG_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

static inline void tg_sift_down(uint64_t *keys, size_t at, size_t n)
{
    uint64_t key = keys[at];
    for (size_t child = 2 * at + 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && keys[child + 1] > keys[child] ? 1 : 0;
        if (keys[child] <= key) {
            break;
        }
        keys[at] = keys[child];
        at = child;
    }
    keys[at] = key;
}

static inline void tg_sort(uint64_t *keys, size_t n)
{
    for (size_t i = n / 2; i-- > 0;) {
        tg_sift_down(keys, i, n);
    }
    for (size_t end = n; end-- > 1;) {
        uint64_t largest = keys[0];
        keys[0] = keys[end];
        keys[end] = largest;
        tg_sift_down(keys, 0, end);
    }
}

#endif
