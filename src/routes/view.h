/* Where the parts of a chunk are in a body. Plain data, which devices know, too. */
#ifndef TG_ROUTES_VIEW_H
#define TG_ROUTES_VIEW_H

#include <stdbool.h>
#include <stdint.h>

/* A chunk in a body, its header apart: offsets from the start of the body. */
typedef struct tg_view {
    uint64_t start;
    uint64_t side;    /* of what travels with its buckets */
    uint64_t symbols; /* of its values */
    uint64_t indices;
    uint32_t len; /* of all of it */
    uint32_t count;
    uint16_t index_len;
    uint8_t mode;   /* of the indices */
    bool is_listed; /* indices are read as a list, because they are few */
    bool is_joint;  /* indices and symbols are one */
} tg_view;

/* Coordinates of a chunk of n elements that are kept beside it take a bit an element: a list where that fits, else a mask. */
static inline bool tg_is_kept_as_list(const tg_view *v, uint32_t n)
{
    return v->is_listed && v->count <= n / 32;
}

#endif
