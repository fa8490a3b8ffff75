/* The loops of limits.c, included once per instruction set. Before the include, define
 *
 *     NAME(loop), TARGET, WIDTH, vector, and the operations zero, load, store, stream, add, total, load_half, store_half,
 *     stream_half
 *
 * Each loop processes elements [from, to) and returns a sum, or 0. It takes LINE elements at each of four positions in turn, which are
 * `span` elements apart: with a span of LINE it is sequential, with a span of PAGE it runs over four pages at once. */

/* clang-format off */
#define EACH_VECTOR(k, place)                                            \
    for (size_t i = from; i < to; i += 4 * span)                         \
        for (size_t j = i; j < i + span; j += LINE)                      \
            for (size_t place = 0; place < 4; place++)                   \
                for (size_t k = j + place * span, end = k + LINE; k < end; k += WIDTH)
/* clang-format on */

TARGET static float NAME(read_one)(const arrays *x, size_t span, size_t from, size_t to)
{
    vector sums[4] = {zero(), zero(), zero(), zero()};
    EACH_VECTOR(k, place)
    {
        sums[place] = add(sums[place], load(x->a + k));
    }
    return total(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

TARGET static float NAME(read_two)(const arrays *x, size_t span, size_t from, size_t to)
{
    vector sums[4] = {zero(), zero(), zero(), zero()};
    EACH_VECTOR(k, place)
    {
        sums[place] = add(sums[place], add(load(x->a + k), load(x->b + k)));
    }
    return total(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

TARGET static float NAME(copy)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        store(x->c + k, load(x->a + k));
    }
    return 0;
}

TARGET static float NAME(copy_streaming)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        stream(x->c + k, load(x->a + k));
    }
    return 0;
}

TARGET static float NAME(sum)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        store(x->c + k, add(load(x->a + k), load(x->b + k)));
    }
    return 0;
}

TARGET static float NAME(sum_streaming)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        stream(x->c + k, add(load(x->a + k), load(x->b + k)));
    }
    return 0;
}

TARGET static float NAME(accumulate)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        store(x->c + k, add(load(x->c + k), load(x->b + k)));
    }
    return 0;
}

TARGET static float NAME(halve)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        store_half(x->half + k, load(x->a + k));
    }
    return 0;
}

TARGET static float NAME(halve_streaming)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        stream_half(x->half + k, load(x->a + k));
    }
    return 0;
}

TARGET static float NAME(accumulate_halves)(const arrays *x, size_t span, size_t from, size_t to)
{
    EACH_VECTOR(k, place)
    {
        store(x->c + k, add(load(x->c + k), load_half(x->half + k)));
    }
    return 0;
}

static loop *const NAME(loops)[LOOP_N] = {
    NAME(read_one),      NAME(read_two),   NAME(copy),  NAME(copy_streaming),  NAME(sum),
    NAME(sum_streaming), NAME(accumulate), NAME(halve), NAME(halve_streaming), NAME(accumulate_halves),
};

#undef EACH_VECTOR
#undef NAME
#undef TARGET
#undef WIDTH
#undef vector
#undef zero
#undef load
#undef store
#undef stream
#undef add
#undef total
#undef load_half
#undef store_half
#undef stream_half
