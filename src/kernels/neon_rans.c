/* The range coder for NEON: eight states at a time, in two vectors. Whether a state needs a word is unpredictable, so nothing branches
 * on it: a mask of eight bits chooses a byte shuffle that moves words to their places. */
#include "kernels/neon.h"

#if defined(__AARCH64EL__)
#include "kernels/rans.h"

#include <string.h>

enum { LANES = 8, TABLE_MAX = 16 }; /* entries of 16 bits in the two vectors of a table look-up */

/* ---- shuffles ------------------------------------------------------------------------------------------------------------ */

/* Rows of a table with an entry for each mask of eight bits. */
#define FOUR_ROWS(row, m) row(m), row((m) + 1), row((m) + 2), row((m) + 3)
#define ROWS_16(row, m) FOUR_ROWS(row, m), FOUR_ROWS(row, (m) + 4), FOUR_ROWS(row, (m) + 8), FOUR_ROWS(row, (m) + 12)
#define ROWS_64(row, m) ROWS_16(row, m), ROWS_16(row, (m) + 16), ROWS_16(row, (m) + 32), ROWS_16(row, (m) + 48)
#define ROWS_256(row) ROWS_64(row, 0), ROWS_64(row, 64), ROWS_64(row, 128), ROWS_64(row, 192)

/* The byte shuffle of 16-bit lane i: its two bytes. */
#define LANE(i) (uint16_t)((i)*0x0202 + 0x0100)

/* How many bits of a mask are set below lane l, and in all. */
#define BELOW(m, l) __builtin_popcount((unsigned)(m) & ((1u << (l)) - 1))
#define COUNT(m) __builtin_popcount((unsigned)(m))
static const uint8_t counts[256] = {ROWS_256(COUNT)};

/* Words in sequence to the marked lanes, and zeros to the others. */
#define TO_LANE(m, l) ((m) >> (l)&1) != 0 ? LANE(BELOW(m, l)) : 0xffff
#define TO_LANES(m)                                                                                              \
    {                                                                                                            \
        TO_LANE(m, 0), TO_LANE(m, 1), TO_LANE(m, 2), TO_LANE(m, 3), TO_LANE(m, 4), TO_LANE(m, 5), TO_LANE(m, 6), \
            TO_LANE(m, 7)                                                                                        \
    }
static const uint16_t to_lanes[256][LANES] = {ROWS_256(TO_LANES)};

/* The marked lanes to the end of a vector. Lane o gets the marked lane that has o + COUNT - 8 marked ones before it: as many lanes
 * as have no more than that up to and including themselves. */
#define UP_TO(m, l, o) (BELOW(m, (l) + 1) <= (o) + COUNT(m) - 8 ? 1 : 0)
#define FROM_LANE(m, o)                                                                                        \
    LANE(UP_TO(m, 0, o) + UP_TO(m, 1, o) + UP_TO(m, 2, o) + UP_TO(m, 3, o) + UP_TO(m, 4, o) + UP_TO(m, 5, o) + \
         UP_TO(m, 6, o) + UP_TO(m, 7, o))
#define TO_END(m)                                                                                             \
    {                                                                                                         \
        FROM_LANE(m, 0), FROM_LANE(m, 1), FROM_LANE(m, 2), FROM_LANE(m, 3), FROM_LANE(m, 4), FROM_LANE(m, 5), \
            FROM_LANE(m, 6), FROM_LANE(m, 7)                                                                  \
    }
static const uint16_t to_end[256][LANES] = {ROWS_256(TO_END)};

/* One bit for each lane that is all ones. */
TG_NEON_INLINE uint32_t mask_of(uint16x8_t marks)
{
    static const uint16_t bits[LANES] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u16(vandq_u16(marks, vld1q_u16(bits)));
}

TG_NEON_INLINE uint8x16_t shuffle_of(const uint16_t row[LANES])
{
    return vreinterpretq_u8_u16(vld1q_u16(row));
}

/* ---- look-ups ------------------------------------------------------------------------------------------------------------ */

/* Sixteen entries of 16 bits. Compilers keep such a pair of registers only as a variable of its own, not as part of a structure. */
typedef uint8x16x2_t table;

TG_NEON_INLINE table table_of(const uint16_t entries[TABLE_MAX])
{
    return vld1q_u8_x2((const uint8_t *)entries);
}

/* `at` are byte shuffles, as LANE says. */
TG_NEON_INLINE uint16x8_t entries_at(const table *t, uint16x8_t at)
{
    return vreinterpretq_u16_u8(vqtbl2q_u8(*t, vreinterpretq_u8_u16(at)));
}

TG_NEON_INLINE uint16x8_t lower_halves(uint32x4_t low, uint32x4_t high)
{
    return vuzp1q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
}

/* Eight lanes of 32 bits. */
typedef struct eight {
    uint32x4_t low, high;
} eight;

TG_NEON_INLINE eight load(const uint32_t *states)
{
    return (eight){vld1q_u32(states), vld1q_u32(states + 4)};
}

TG_NEON_INLINE void store(uint32_t *states, eight x)
{
    vst1q_u32(states, x.low);
    vst1q_u32(states + 4, x.high);
}

TG_NEON_INLINE eight widen(uint16x8_t x)
{
    return (eight){vmovl_u16(vget_low_u16(x)), vmovl_high_u16(x)};
}

TG_NEON_INLINE eight shift(eight x, int32x4_t by)
{
    return (eight){vshlq_u32(x.low, by), vshlq_u32(x.high, by)};
}

/* ---- encoding ------------------------------------------------------------------------------------------------------------ */

/* Entries of eight symbols. `log` is negative: a shift to the right. */
typedef struct planned {
    uint16x8_t frequency, start;
    int16x8_t log;
    eight inverse;
} planned;

/* The same entries in 16-bit parts, for up to TABLE_MAX symbols. The inverse has two. */
typedef struct parts {
    uint16_t frequency[TABLE_MAX], start[TABLE_MAX], log[TABLE_MAX], lower[TABLE_MAX], upper[TABLE_MAX];
} parts;

static void parts_of(parts *p, const tg_rans_plans *plans)
{
    memset(p, 0, sizeof *p);
    for (uint32_t s = 0; s < plans->span && s < TABLE_MAX; s++) {
        uint64_t plan = plans->plans[plans->first + s];
        p->frequency[s] = (uint16_t)((plan >> TG_PLAN_FREQUENCY & TG_PLAN_MASK) + 1);
        p->start[s] = (uint16_t)(plan >> TG_PLAN_START & TG_PLAN_MASK);
        p->log[s] = (uint16_t)(0 - (plan >> TG_PLAN_LOG));
        p->lower[s] = (uint16_t)plan;
        p->upper[s] = (uint16_t)(plan >> 16);
    }
}

TG_NEON_INLINE uint32x4_t two_plans(const uint64_t *plans, const uint16_t *symbols)
{
    return vreinterpretq_u32_u64(vcombine_u64(vld1_u64(plans + symbols[0]), vld1_u64(plans + symbols[1])));
}

TG_NEON_INLINE planned look(const uint16_t *symbols, const uint64_t *plans)
{
    uint32x4x2_t front = vuzpq_u32(two_plans(plans, symbols), two_plans(plans, symbols + 2));
    uint32x4x2_t back = vuzpq_u32(two_plans(plans, symbols + 4), two_plans(plans, symbols + 6));
    const uint16x8_t mask = vdupq_n_u16(TG_PLAN_MASK);
    uint16x8_t lower = lower_halves(front.val[1], back.val[1]);
    uint16x8_t upper = vuzp2q_u16(vreinterpretq_u16_u32(front.val[1]), vreinterpretq_u16_u32(back.val[1]));
    /* The start crosses the middle of the upper 32 bits. */
    uint16x8_t start = vandq_u16(vsliq_n_u16(vshrq_n_u16(lower, TG_PLAN_START - 32), upper, 48 - TG_PLAN_START), mask);
    int16x8_t log = vreinterpretq_s16_u16(vshrq_n_u16(upper, TG_PLAN_LOG - 48));
    return (planned){.frequency = vaddq_u16(vandq_u16(lower, mask), vdupq_n_u16(1)),
                     .start = start,
                     .log = vnegq_s16(log),
                     .inverse = {front.val[0], back.val[0]}};
}

/* The upper halves of products. */
TG_NEON_INLINE uint32x4_t multiply(uint32x4_t a, uint32x4_t b)
{
    uint64x2_t low = vmull_u32(vget_low_u32(a), vget_low_u32(b)), high = vmull_high_u32(a, b);
    return vuzp2q_u32(vreinterpretq_u32_u64(low), vreinterpretq_u32_u64(high));
}

/* Encodes one symbol into each of eight states. Emitted words are put in front of `at`, where there is space for eight; returns the
 * new `at`. */
TG_NEON_INLINE uint8_t *push(uint32_t *states, uint8_t *at, planned p, uint16x8_t total)
{
    eight x = load(states);
    uint16x8_t gives = vcgeq_u16(lower_halves(vshrq_n_u32(x.low, 17), vshrq_n_u32(x.high, 17)), p.frequency);
    uint32_t mask = mask_of(gives);
    uint8x16_t words = vreinterpretq_u8_u16(lower_halves(x.low, x.high));
    vst1q_u8(at - 2 * LANES, vqtbl1q_u8(words, shuffle_of(to_end[mask])));
    at -= 2 * (size_t)counts[mask];
    int16x8_t by = vreinterpretq_s16_u16(vandq_u16(gives, vdupq_n_u16((uint16_t)-16)));
    x.low = vshlq_u32(x.low, vmovl_s16(vget_low_s16(by)));
    x.high = vshlq_u32(x.high, vmovl_high_s16(by));
    /* (x * inverse) >> (31 + log) is the upper half of 2 x * inverse, shifted by log. */
    uint32x4_t low = multiply(vaddq_u32(x.low, x.low), p.inverse.low);
    uint32x4_t high = multiply(vaddq_u32(x.high, x.high), p.inverse.high);
    low = vshlq_u32(low, vmovl_s16(vget_low_s16(p.log)));
    high = vshlq_u32(high, vmovl_high_s16(p.log));
    /* quotient * 2^bits + x mod frequency */
    eight rest = widen(vsubq_u16(total, p.frequency));
    x.low = vmlaq_u32(vaddw_u16(x.low, vget_low_u16(p.start)), low, rest.low);
    x.high = vmlaq_u32(vaddw_high_u16(x.high, p.start), high, rest.high);
    store(states, x);
    return at;
}

/* Encodes the last `count` symbols, a multiple of eight, of one segment, or of each of two. Entries from registers, where symbols
 * are few. */
TG_NEON_INLINE void push_few(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, size_t count,
                             const tg_rans_plans *plans)
{
    parts p;
    parts_of(&p, plans);
    const table frequencies = table_of(p.frequency), starts = table_of(p.start), logs = table_of(p.log);
    const table lowers = table_of(p.lower), uppers = table_of(p.upper);
    const uint16x8_t first = vdupq_n_u16((uint16_t)(plans->first * 0x0202 - 0x0100)), both = vdupq_n_u16(0x0202);
    const uint16x8_t total = vdupq_n_u16((uint16_t)(1u << plans->bits));
    for (; count > 0; count -= LANES) {
        for (size_t k = 0; k < writer_n; k++) {
            w[k].count -= LANES;
            uint16x8_t place = vsubq_u16(vmulq_u16(vld1q_u16(w[k].symbols + w[k].count), both), first);
            uint16x8x2_t inverse = vzipq_u16(entries_at(&lowers, place), entries_at(&uppers, place));
            planned plan = {.frequency = entries_at(&frequencies, place),
                            .start = entries_at(&starts, place),
                            .log = vreinterpretq_s16_u16(entries_at(&logs, place)),
                            .inverse = {vreinterpretq_u32_u16(inverse.val[0]), vreinterpretq_u32_u16(inverse.val[1])}};
            w[k].at = push(w[k].states + (w[k].count & (lane_n - 1)), w[k].at, plan, total);
        }
    }
}

TG_NEON_INLINE void push_many(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, size_t count,
                              const tg_rans_plans *plans)
{
    const uint16x8_t total = vdupq_n_u16((uint16_t)(1u << plans->bits));
    const uint64_t *entries = plans->plans;
    for (; count > 0; count -= LANES) {
        for (size_t k = 0; k < writer_n; k++) {
            w[k].count -= LANES;
            planned plan = look(w[k].symbols + w[k].count, entries);
            w[k].at = push(w[k].states + (w[k].count & (lane_n - 1)), w[k].at, plan, total);
        }
    }
}

static void push_any(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, size_t count, const tg_rans_plans *plans)
{
    bool are_few = plans->span <= TABLE_MAX;
    if (writer_n == 2) {
        are_few ? push_few(w, 2, lane_n, count, plans) : push_many(w, 2, lane_n, count, plans);
    } else {
        are_few ? push_few(w, 1, lane_n, count, plans) : push_many(w, 1, lane_n, count, plans);
    }
}

void tg_neon_rans_push(tg_rans_writer *w, size_t writer_n, uint32_t lane_n, const tg_rans_plans *plans)
{
    size_t common = SIZE_MAX;
    for (size_t i = 0; i < writer_n; i++) {
        tg_rans_push_rest(&w[i], lane_n < LANES ? 0 : lane_n, lane_n, plans);
        common = w[i].count < common ? w[i].count : common;
    }
    for (size_t i = 0; i < writer_n; i++) {
        push_any(&w[i], 1, lane_n, w[i].count - (writer_n == 2 ? common : 0), plans);
    }
    if (writer_n == 2) {
        push_any(w, 2, lane_n, common, plans);
    }
}

/* ---- decoding ------------------------------------------------------------------------------------------------------------ */

/* The symbols of eight states, and what the states become before they take words. */
typedef struct pulled {
    uint16x8_t symbol;
    eight next;
} pulled;

_Static_assert((int)TG_RANS_FEW <= (int)LANES, "a vector holds a table of few symbols");

/* A table of few symbols: eight entries of 16 bits. */
TG_NEON_INLINE uint8x16_t few_of(const uint32_t words[TG_RANS_FEW])
{
    uint16_t entries[LANES] = {0};
    for (int e = 0; e < TG_RANS_FEW; e++) {
        entries[e] = (uint16_t)words[e];
    }
    return shuffle_of(entries);
}

TG_NEON_INLINE uint16x8_t few_at(uint8x16_t t, uint16x8_t at)
{
    return vreinterpretq_u16_u8(vqtbl1q_u8(t, vreinterpretq_u8_u16(at)));
}

TG_NEON_INLINE uint32x4_t four_slots(const uint32_t *slots, uint64_t at)
{
    uint32x4_t four = vld1q_dup_u32(slots + (at & 0xffff));
    four = vld1q_lane_u32(slots + (at >> 16 & 0xffff), four, 1);
    four = vld1q_lane_u32(slots + (at >> 32 & 0xffff), four, 2);
    return vld1q_lane_u32(slots + (at >> 48), four, 3);
}

/* (frequency - 1) * top + top + offset */
TG_NEON_INLINE uint32x4_t next_of(uint32x4_t slots, uint32x4_t top)
{
    uint32x4_t less = vandq_u32(vshrq_n_u32(slots, 8), vdupq_n_u32(4095));
    return vmlaq_u32(vsraq_n_u32(top, slots, 20), less, top);
}

/* `has_upper`, a constant, says that there are symbols from 256 on. */
TG_NEON_INLINE pulled look_up(uint16x8_t low, eight top, const uint32_t *slots, uint16x8_t upper, bool has_upper)
{
    uint64x2_t places = vreinterpretq_u64_u16(low);
    uint32x4_t front = four_slots(slots, vgetq_lane_u64(places, 0));
    uint32x4_t back = four_slots(slots, vgetq_lane_u64(places, 1));
    uint16x8_t symbol = vandq_u16(lower_halves(front, back), vdupq_n_u16(255));
    if (has_upper) {
        symbol = vorrq_u16(symbol, vandq_u16(vcgeq_u16(low, upper), vdupq_n_u16(256)));
    }
    return (pulled){symbol, {next_of(front, top.low), next_of(back, top.high)}};
}

/* Of few symbols, by binary search in registers. */
TG_NEON_INLINE pulled search(uint16x8_t low, eight top, uint8x16_t symbols, uint8x16_t starts, uint8x16_t frequencies)
{
    uint16x8_t at = vdupq_n_u16(LANE(0));
    for (uint16_t step = TG_RANS_FEW / 2; step > 0; step /= 2) {
        uint16x8_t further = vaddq_u16(at, vdupq_n_u16((uint16_t)(step * 0x0202)));
        at = vbslq_u16(vcgeq_u16(low, few_at(starts, further)), further, at);
    }
    eight frequency = widen(few_at(frequencies, at)), offset = widen(vsubq_u16(low, few_at(starts, at)));
    return (pulled){few_at(symbols, at),
                    {vmlaq_u32(offset.low, frequency.low, top.low), vmlaq_u32(offset.high, frequency.high, top.high)}};
}

/* Eight states take words from `at`, where there are eight, if they need them; returns the new `at`. */
TG_NEON_INLINE const uint8_t *refill(uint32_t *states, eight next, const uint8_t *at, uint32x4_t start)
{
    const uint32x4_t word = vdupq_n_u32(16); /* bits */
    uint32x4_t is_low[2] = {vcltq_u32(next.low, start), vcltq_u32(next.high, start)};
    uint32_t mask = mask_of(lower_halves(is_low[0], is_low[1]));
    uint16x8_t words = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(at), shuffle_of(to_lanes[mask])));
    next.low = vshlq_u32(next.low, vreinterpretq_s32_u32(vandq_u32(is_low[0], word)));
    next.high = vshlq_u32(next.high, vreinterpretq_s32_u32(vandq_u32(is_low[1], word)));
    store(states, (eight){vaddw_u16(next.low, vget_low_u16(words)), vaddw_high_u16(next.high, words)});
    return at + 2 * (size_t)counts[mask];
}

/* Rounds of all states, of one segment or of two. `reader_n`, `are_few` and `has_upper` are constants. */
TG_NEON_INLINE void pull_rounds(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                                const tg_rans_slots *slots, bool are_few, bool has_upper)
{
    const int32x4_t above = vdupq_n_s32(-(int32_t)slots->bits);
    const uint32x4_t start = vdupq_n_u32(tg_rans_start(slots->bits));
    const uint16x8_t lowest = vdupq_n_u16((uint16_t)((1u << slots->bits) - 1));
    const uint16x8_t upper = vdupq_n_u16((uint16_t)slots->upper);
    const uint8x16_t few = few_of(slots->few_symbol), starts = few_of(slots->few_start);
    const uint8x16_t frequencies = few_of(slots->few_frequency);
    const uint32_t *all = slots->slots;
    const uint8_t *at[2] = {r[0].at, r[reader_n - 1].at};
    const size_t count = r[0].left < r[reader_n - 1].left ? r[0].left : r[reader_n - 1].left, need = 2 * (size_t)lane_n;
    size_t i = 0;
    for (; count - i >= lane_n && (size_t)(end - at[0]) >= need && (size_t)(end - at[1]) >= need; i += lane_n) {
        for (uint32_t l = 0; l < lane_n; l += LANES) {
            for (size_t k = 0; k < reader_n; k++) {
                eight x = load(r[k].states + l), top = shift(x, above);
                uint16x8_t low = vandq_u16(lower_halves(x.low, x.high), lowest);
                pulled p =
                    are_few ? search(low, top, few, starts, frequencies) : look_up(low, top, all, upper, has_upper);
                vst1q_u16(r[k].symbols + i + l, p.symbol);
                at[k] = refill(r[k].states + l, p.next, at[k], start);
            }
        }
        at[1] = reader_n == 1 ? at[0] : at[1];
    }
    for (size_t k = 0; k < reader_n; k++) {
        tg_rans_advance(&r[k], at[k], i);
    }
}

TG_NEON_INLINE void pull_any(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                             const tg_rans_slots *slots)
{
    if (slots->few_n > 0) {
        pull_rounds(r, reader_n, lane_n, end, slots, true, false);
    } else if (slots->upper >> slots->bits == 0) {
        pull_rounds(r, reader_n, lane_n, end, slots, false, true);
    } else {
        pull_rounds(r, reader_n, lane_n, end, slots, false, false);
    }
}

void tg_neon_rans_pull(tg_rans_reader *r, size_t reader_n, uint32_t lane_n, const uint8_t *end,
                       const tg_rans_slots *slots)
{
    reader_n == 2 ? pull_any(r, 2, lane_n, end, slots) : pull_any(r, 1, lane_n, end, slots);
}
#endif
