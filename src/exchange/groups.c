/* Which tensors are encoded and sent together. The default goes from the last tensor to the first, about the order in which a backward
 * pass finishes gradients. The first groups are a 1/8, 1/4 and 1/2 as long, so that the link has work early. Near the end none is longer
 * than what comes after it, down to 1/4: nothing is computed any more while the last group travels. A group ends between two tensors,
 * where it is nearest to the length that it should have. */
#include "exchange/exchange.h"

enum { FIRST_SHARE = 8, LAST_SHARE = 4 };

/* How long a group is if the whole is `len` and so many bytes are left for it and those after it. */
static uint64_t len_of_next(uint64_t len, uint64_t share, uint64_t left)
{
    uint64_t half = left / 2 > len / LAST_SHARE ? left / 2 : len / LAST_SHARE;
    return len / share < half ? len / share : half;
}

static uint64_t len_of(const tg_layout *l, size_t tensor)
{
    return l->tensor_elements[tensor] * tg_dtype_len(l->tensors[tensor].dtype);
}

/* Groups of `len` bytes; returns their number. */
static uint32_t cut_by_len(uint32_t *group_of, const tg_layout *l, uint64_t len)
{
    uint64_t left = 0, filled = 0, share = FIRST_SHARE;
    uint32_t group = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        left += len_of(l, t);
    }
    for (size_t t = l->tensor_n; t-- > 0;) {
        group_of[l->tensor_unit[t]] = group;
        filled += len_of(l, t);
        /* A group ends if its length is nearer to the target without the next tensor. */
        if (t > 0 && filled + len_of(l, t - 1) / 2 >= len_of_next(len, share, left)) {
            group++;
            left -= filled;
            filled = 0;
            share = share > 1 ? share / 2 : 1;
        }
    }
    return group + 1;
}

/* As the caller says; fails if a group is empty or too many are wanted. */
static tg_status take_given(uint32_t *n, uint32_t *group_of, const tg_layout *l, const uint32_t *given, tg_detail *why)
{
    bool used[TG_GROUP_MAX] = {false};
    *n = 0;
    for (size_t t = 0; t < l->tensor_n; t++) {
        if (given[t] >= TG_GROUP_MAX) {
            return tg_fail(TG_E_ARGUMENT, why, "tensor '%.100s' is in group %u; there are at most %d groups",
                           l->tensors[t].name, given[t], TG_GROUP_MAX);
        }
        used[given[t]] = true;
        *n = given[t] >= *n ? given[t] + 1 : *n;
        group_of[l->tensor_unit[t]] = given[t];
    }
    for (uint32_t g = 0; g < *n; g++) {
        if (!used[g]) {
            return tg_fail(TG_E_ARGUMENT, why, "group %u has no tensors, but group %u has", g, *n - 1);
        }
    }
    return TG_OK;
}

/* Whether every unit is one tensor. */
static bool is_by_tensor(const tg_layout *l)
{
    return l->unit_n == l->tensor_n;
}

tg_status tg_groups_choose(tg_groups *out, uint32_t **space, const tg_layout *l, const tg_protocol *protocol,
                           const tg_options *opt, const tg_allocator *a, tg_detail *why)
{
    uint32_t n = 0;
    *out = (tg_groups){NULL, 1};
    if (l->tensor_n == 0 || !is_by_tensor(l) || protocol->is_one_group ||
        (opt->group_len == 0 && opt->group_of == NULL)) {
        return TG_OK;
    }
    TG_TRY(tg_acquire(space, a, l->unit_n, sizeof **space, why));
    if (opt->group_of != NULL) {
        tg_status status = take_given(&n, *space, l, opt->group_of, why);
        if (status != TG_OK) {
            tg_release(a, *space);
            *space = NULL;
            return status;
        }
    } else {
        for (uint64_t len = opt->group_len; n == 0 || n > TG_GROUP_MAX; len *= 2) {
            n = cut_by_len(*space, l, len);
        }
    }
    *out = (tg_groups){*space, n};
    return TG_OK;
}

size_t tg_exchange_groups(const tg_exchange *x)
{
    return x == NULL ? 0 : x->lane_n;
}

size_t tg_exchange_group(const tg_exchange *x, size_t tensor)
{
    if (x == NULL || tensor >= x->codec->layout->tensor_n) {
        return 0;
    }
    return x->codec->grid->group_of[x->codec->layout->tensor_unit[tensor]];
}
