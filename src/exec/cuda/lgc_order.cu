/* LGC: sorts values, and writes a permutation as bytes and reads it (exec/ordering.h). Each element is compared with all others, in
 * tiles in shared memory: for as many values as an autoencoder has, that is quicker than the steps of a sort, or of a search among
 * what remains, one after the other.
 *
 *     rank        of a value: how many are smaller
 *     digit       of the element at a place: how many at later places are smaller; the Lehmer code
 *     element     from digits: from its digit d on, go back over the places before it; each whose digit is at most d adds 1 to d
 */
#include "exec/cuda/kernel.h"
#include "exec/cuda/lgc.h"
#include "exec/cuda/values.h"

enum { THREADS = 256, TILE = 1024 };

/* ---- sorting -------------------------------------------------------------------------------------------------------------- */

__global__ static void make_keys(tg_gpu_lgc l, uint64_t *keys)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < l.coded_n) {
        float scale = l.scales[l.coded_tensor[i]], value = l.own[i];
        uint32_t bits = __float_as_uint(tg_with_nan(value / (scale > 0 ? scale : 1.0f), value, value));
        keys[i] = (uint64_t)(bits >> 31 ? ~bits : bits | 0x80000000u) << 32 | i; /* grows with the value; all are different */
    }
}

__global__ static void __launch_bounds__(THREADS) rank(tg_gpu_lgc l, const uint64_t *keys)
{
    __shared__ uint64_t others[TILE];
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x, key = i < l.coded_n ? keys[i] : 0;
    uint32_t smaller = 0;
    for (uint64_t from = 0; from < l.coded_n; from += TILE) {
        for (unsigned j = threadIdx.x; j < TILE; j += THREADS) {
            others[j] = from + j < l.coded_n ? keys[from + j] : ~0ull;
        }
        __syncthreads();
        TG_UNROLL
        for (unsigned j = 0; j < TILE; j++) {
            smaller += others[j] < key ? 1 : 0;
        }
        __syncthreads();
    }
    if (i < l.coded_n) {
        l.order[smaller] = (uint32_t)i;
    }
}

static uint32_t blocks_for(uint64_t n)
{
    return (uint32_t)((n + THREADS - 1) / THREADS);
}

void tg_gpu_lgc_choose_order(const tg_gpu_lgc *l, const tg_gpu_lgc_ordering *o)
{
    TG_LAUNCH(make_keys, blocks_for(l->coded_n), THREADS, l->stream, *l, o->keys);
    TG_LAUNCH(rank, blocks_for(l->coded_n), THREADS, l->stream, *l, o->keys);
}

/* ---- writing -------------------------------------------------------------------------------------------------------------- */

__global__ static void __launch_bounds__(THREADS) make_digits(tg_gpu_lgc l, uint32_t *digits)
{
    __shared__ uint32_t others[TILE];
    uint64_t first = (uint64_t)blockIdx.x * THREADS, i = first + threadIdx.x;
    uint32_t element = i < l.coded_n ? l.order[i] : 0, smaller = 0;
    for (uint64_t from = first / TILE * TILE; from < l.coded_n; from += TILE) {
        for (unsigned j = threadIdx.x; j < TILE; j += THREADS) {
            others[j] = from + j < l.coded_n ? l.order[from + j] : 0xffffffffu;
        }
        __syncthreads();
        for (unsigned j = i < from ? 0 : i - from < TILE ? (unsigned)(i - from) : (unsigned)TILE; j < TILE; j++) {
            smaller += others[j] < element ? 1 : 0;
        }
        __syncthreads();
    }
    if (i < l.coded_n) {
        digits[i] = smaller;
    }
}

/* Ors up to 57 bits from bit `at` on. */
TG_DEVICE void put_bits(uint32_t *words, uint64_t at, uint64_t bits)
{
    for (unsigned shift = (unsigned)(at % 32); bits != 0; at += 32 - shift, bits >>= 32 - shift, shift = 0) {
        atomicOr(&words[at / 32], (uint32_t)(bits << shift));
    }
}

__global__ static void clear_words(uint32_t *words, uint64_t n)
{
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) {
        words[i] = 0;
    }
}

/* A thread a group. */
__global__ static void write_groups(tg_gpu_lgc_ordering o)
{
    uint32_t number = blockIdx.x * THREADS + threadIdx.x;
    if (number >= o.group_n) {
        return;
    }
    const tg_gpu_lgc_digits g = o.groups[number];
    uint64_t sum = 0, unit = 1;
    for (uint32_t i = 0; i < g.n; i++) {
        sum += unit * o.digits[g.first + i];
        unit *= o.n - g.first - i;
    }
    put_bits(o.words, g.bit_at, sum);
}

void tg_gpu_lgc_write_order(const tg_gpu_lgc *l, const tg_gpu_lgc_ordering *o)
{
    uint64_t words = (o->len + 3) / 4;
    TG_LAUNCH(make_digits, blocks_for(o->n), THREADS, l->stream, *l, o->digits);
    TG_LAUNCH(clear_words, blocks_for(words), THREADS, l->stream, o->words, words);
    TG_LAUNCH(write_groups, blocks_for(o->group_n), THREADS, l->stream, *o);
}

/* ---- reading -------------------------------------------------------------------------------------------------------------- */

/* `n` bits from bit `at` on, of `len` bytes. */
TG_DEVICE uint64_t get_bits(const uint8_t *bytes, uint64_t len, uint64_t at, unsigned n)
{
    uint64_t bits = 0, byte = at / 8;
    for (unsigned got = 0; got < n + at % 8; got += 8, byte++) {
        uint64_t next = byte < len ? bytes[byte] : 0;
        bits |= got == 0 ? next >> at % 8 : got - at % 8 < 64 ? next << (got - at % 8) : 0;
    }
    return bits & ((1ull << n) - 1);
}

/* A thread a group. The one of the last group also checks that the bits that fill the last byte are 0. */
__global__ static void read_groups(tg_gpu_lgc_ordering o, const uint8_t *body, tg_gpu_lgc_verdict *verdict)
{
    uint32_t number = blockIdx.x * THREADS + threadIdx.x;
    if (number >= o.group_n) {
        return;
    }
    const tg_gpu_lgc_digits g = o.groups[number];
    const uint8_t *bytes = body + verdict->mask_len;
    uint64_t bits = verdict->is_bad ? 0 : get_bits(bytes, o.len, g.bit_at, g.bits), end = g.bit_at + g.bits;
    bool is_last = number + 1 == o.group_n;
    uint64_t rest = is_last && !verdict->is_bad ? get_bits(bytes, o.len, end, (unsigned)(o.len * 8 - end)) : 0;
    for (uint32_t i = 0; i < g.n; i++) {
        uint64_t left = o.n - g.first - i;
        o.digits[g.first + i] = (uint32_t)(bits % left);
        bits /= left;
    }
    if (bits != 0 || rest != 0) {
        verdict->is_bad = 1;
    }
}

__global__ static void __launch_bounds__(THREADS) find_elements(tg_gpu_lgc l, const uint32_t *digits)
{
    __shared__ uint32_t others[TILE];
    uint64_t first = (uint64_t)blockIdx.x * THREADS, i = first + threadIdx.x, last = first + THREADS - 1;
    uint32_t element = i < l.coded_n ? digits[i] : 0;
    for (uint64_t from = last / TILE * TILE;; from -= TILE) {
        for (unsigned j = threadIdx.x; j < TILE; j += THREADS) {
            others[j] = from + j < l.coded_n ? digits[from + j] : 0xffffffffu;
        }
        __syncthreads();
        for (unsigned j = i < from ? 0 : i - from < TILE ? (unsigned)(i - from) : (unsigned)TILE; j-- > 0;) {
            element += others[j] <= element ? 1 : 0;
        }
        __syncthreads();
        if (from == 0) {
            break;
        }
    }
    if (i < l.coded_n) {
        l.order[i] = element;
    }
}

void tg_gpu_lgc_read_order(const tg_gpu_lgc *l, const tg_gpu_lgc_ordering *o, const uint8_t *bytes)
{
    TG_LAUNCH(read_groups, blocks_for(o->group_n), THREADS, l->stream, *o, bytes, l->verdict);
    TG_LAUNCH(find_elements, blocks_for(o->n), THREADS, l->stream, *l, o->digits);
}
