/* The decoder of huffman (pack/huffman.c) on the GPU: a block a stream. It validates everything that it reads.
 *
 * Codes begin where the one before ends, but a decoder that begins in the middle of a code soon meets the true codes (Klein and
 * Wiseman, 2003; Weissenberger and Schmidt, 2018). So the bits of a window are cut into equal spans, a thread each. All
 * decode their span, at first from its first bit, then again from where the thread before ended, until none of them begins
 * elsewhere than before: then each begins where a sequential decoder would. */
#include "exec/cuda/pack_prefix.h"

enum { THREADS = 256, SPAN = 256 /* bits */, WINDOW = THREADS * SPAN, STAGE = 8192 /* symbols */ };
enum { BITS_WORDS = WINDOW / 32 + 8 }; /* a reader is up to three words ahead */

typedef struct decode_space {
    uint16_t slots[TG_PREFIX_SLOT_N]; /* by the next 12 bits: length of the code in bits 0 to 5, its symbol above */
    uint4 bits[BITS_WORDS / 4 + 1];
    uint4 symbols[2 * STAGE / 16 + 1];
    uint32_t codes[TG_PACK_BASE];
    uint8_t lengths[TG_PACK_BASE];
    uint32_t first[TG_PREFIX_BITS + 1];
    uint32_t ends[THREADS]; /* the bit of the window after the last code of a span */
    uint32_t last_end;      /* the bit after the last symbol of the stream, from the start of its window */
} decode_space;

/* A stream that is read. */
typedef struct stream_job {
    const uint8_t *bytes;
    uint64_t len;
    uint8_t *out; /* where its first symbol goes */
    uint32_t count;
    bool is_wide;
} stream_job;

/* ---- the code ----------------------------------------------------------------------------------------------------------- */

/* Code lengths of a chunk into shared memory. Returns the bytes before the streams, 0 if they are damaged; the same for all. */
TG_DEVICE uint32_t read_lengths(decode_space *d, const tg_gpu_unit &u, const uint8_t *bytes, uint64_t len,
                                uint32_t form, const uint8_t *model)
{
    uint32_t head = form == TG_FORM_COUNTS ? 1 + (u.base + 1) / 2 : 1;
    bool bad = len < head || (form != TG_FORM_COUNTS && (form != TG_FORM_MODEL || model == nullptr));
    for (uint32_t s = threadIdx.x; s < u.base && !bad; s += THREADS) {
        const uint8_t *pairs = form == TG_FORM_COUNTS ? bytes + 1 : model;
        d->lengths[s] = pairs[s / 2] >> s % 2 * 4 & 15;
    }
    if (bad) {
        return 0;
    }
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < u.base; s += THREADS) {
        bad = bad || d->lengths[s] > TG_PREFIX_BITS;
    }
    bad = bad || (form == TG_FORM_COUNTS && u.base % 2 == 1 && bytes[head - 1] >> 4 != 0);
    return __syncthreads_or(bad) ? 0 : head;
}

/* Slots of a complete code; a warp a symbol. */
TG_DEVICE void make_slots(decode_space *d, uint32_t base)
{
    for (uint32_t s = threadIdx.x / TG_WARP; s < base; s += THREADS / TG_WARP) {
        uint32_t code = d->codes[s], length = code & 0xff;
        if (length == 0) {
            continue;
        }
        for (uint32_t i = (code >> 8) + (tg_lane() << length); i < TG_PREFIX_SLOT_N; i += TG_WARP << length) {
            d->slots[i] = (uint16_t)(length | s << 6);
        }
    }
}

/* ---- spans -------------------------------------------------------------------------------------------------------------- */

/* Bits of the window from some bit on, at least 32 of them between two codes. */
typedef struct bit_reader {
    const uint32_t *next; /* the word after those that are held */
    uint64_t held;
    uint32_t held_n;
} bit_reader;

TG_DEVICE bit_reader start_bits(const uint32_t *words, uint32_t bit)
{
    const uint32_t *at = words + bit / 32;
    bit_reader r = {at + 2, (at[0] | (uint64_t)at[1] << 32) >> bit % 32, 64 - bit % 32};
    return r;
}

/* The slot of the next code, whose bits are consumed. */
TG_DEVICE uint32_t next_slot(bit_reader *r, const decode_space *d)
{
    uint32_t slot = d->slots[r->held & (TG_PREFIX_SLOT_N - 1)], bits = slot & 63;
    r->held >>= bits;
    r->held_n -= bits;
    if (r->held_n < 32) {
        r->held |= (uint64_t)*r->next++ << r->held_n;
        r->held_n += 32;
    }
    return slot;
}

/* Decodes from `bit` until a code ends at `end` or after it; returns the bit after it and counts the codes. */
TG_DEVICE uint32_t skip_span(const decode_space *d, const uint32_t *words, uint32_t bit, uint32_t end, uint32_t *count)
{
    uint32_t n = 0;
    bit_reader r = start_bits(words, bit);
    for (; bit < end; n++) {
        bit += next_slot(&r, d) & 63;
    }
    *count = n;
    return bit;
}

/* Finds where the codes of each span begin, the first of them at bit `start` of the window, and how many codes it has. `end` is
 * where the stream ends. Returns where this thread's begin. */
TG_DEVICE uint32_t find_spans(decode_space *d, const uint32_t *words, uint32_t start, uint32_t end, uint32_t *count)
{
    uint32_t until = min((threadIdx.x + 1) * SPAN, end), begins = ~0u, from = threadIdx.x * SPAN;
    bool has_span = from < end, changes = has_span;
    *count = 0;
    if (threadIdx.x == 0) {
        from = start;
    }
    while (__syncthreads_or(changes)) {
        if (changes) {
            begins = from;
            d->ends[threadIdx.x] = skip_span(d, words, begins, until, count);
        }
        __syncthreads();
        from = threadIdx.x == 0 ? start : d->ends[threadIdx.x - 1];
        changes = has_span && from != begins;
    }
    return begins;
}

/* Decodes the symbols of all spans again and writes them, staged: symbol number `before` of the window and those after it are this
 * thread's, `count` of them. `all` are those of the window that belong to the stream. */
TG_DEVICE void write_symbols(decode_space *d, const uint32_t *words, uint8_t *out, bool is_wide, uint32_t bit,
                             uint32_t before, uint32_t count, uint32_t all, bool has_last)
{
    uint32_t symbol_len = is_wide ? 2 : 1, at = before, end = min(before + count, all);
    bit_reader r = start_bits(words, count > 0 ? bit : 0);
    for (uint32_t first = 0; first < all; first += STAGE) {
        uint32_t n = min((uint32_t)STAGE, all - first);
        uint8_t *to = out + first * symbol_len, *staged = (uint8_t *)d->symbols + tg_place_of(to);
        for (; at < min(end, first + n); at++) {
            uint32_t slot = next_slot(&r, d);
            bit += slot & 63;
            if (is_wide) {
                ((uint16_t *)(void *)staged)[at - first] = (uint16_t)(slot >> 6);
            } else {
                staged[at - first] = (uint8_t)(slot >> 6);
            }
            if (has_last && at + 1 == all) {
                d->last_end = bit;
            }
        }
        __syncthreads();
        tg_stage_out(to, d->symbols, n * symbol_len);
        __syncthreads();
    }
}

/* ---- streams ---------------------------------------------------------------------------------------------------------------- */

/* Stages the bytes of a window, zeros after the last; returns the words in which its first bit is the lowest. */
TG_DEVICE void stage_window(decode_space *d, const uint8_t *bytes, uint64_t len)
{
    uint8_t *to = (uint8_t *)d->bits;
    const uint32_t most = 4 * BITS_WORDS;
    uint32_t n = len < most ? (uint32_t)len : most, shift = (uint32_t)((uintptr_t)bytes % 4) * 8;
    uint32_t *words = (uint32_t *)(void *)to;
    const uint32_t *from = (const uint32_t *)(const void *)(bytes - shift / 8);
    for (uint32_t i = threadIdx.x; i < BITS_WORDS; i += THREADS) {
        uint32_t word = 0;
        if (4 * i + 8 <= n) { /* both aligned words hold bytes of the stream */
            word = __funnelshift_r(from[i], shift == 0 ? 0 : from[i + 1], shift);
        } else {
            for (uint32_t b = 0; b < 4 && 4 * i + b < n; b++) {
                word |= (uint32_t)bytes[4 * i + b] << 8 * b;
            }
        }
        words[i] = word;
    }
}

/* Decodes a stream; returns whether it is sound, the same for all threads. */
TG_DEVICE bool read_stream(decode_space *d, const stream_job &s)
{
    const uint32_t *words = (const uint32_t *)(const void *)d->bits;
    uint64_t byte = 0;            /* of the window */
    uint32_t start = 0, done = 0; /* its first code; symbols of windows before it */
    for (; done < s.count;) {
        if (byte >= s.len || start >= 8 * (s.len - byte)) {
            return false; /* the codes end late */
        }
        uint64_t left = 8 * (s.len - byte);
        uint32_t end = left < WINDOW ? (uint32_t)left : (uint32_t)WINDOW, count = 0, all = 0;
        stage_window(d, s.bytes + byte, s.len - byte);
        __syncthreads();
        uint32_t bit = find_spans(d, words, start, end, &count), before = tg_sum_before_in_block(count, &all);
        uint32_t last = d->ends[THREADS - 1];
        bool has_last = all >= s.count - done;
        all = min(all, s.count - done);
        write_symbols(d, words, s.out + (uint64_t)done * (s.is_wide ? 2 : 1), s.is_wide, bit, before, count, all,
                      has_last);
        done += all;
        if (has_last) {
            uint32_t stop = d->last_end, rest = stop % 8 == 0 ? 0 : words[stop / 32] >> stop % 32;
            uint64_t bytes_taken = byte + (stop + 7) / 8;
            rest &= stop % 8 == 0 ? 0 : (1u << (8 - stop % 8)) - 1;
            __syncthreads();
            return bytes_taken == s.len && rest == 0;
        }
        __syncthreads();
        start = last - WINDOW;
        byte += WINDOW / 8;
    }
    return s.len == 0;
}

/* Finds a stream of a chunk, of which `len` bytes at `bytes` are the streams, and the lengths of the first three. */
TG_DEVICE bool find_stream(stream_job *s, const tg_pack_job &j, const uint8_t *bytes, uint64_t len, bool four,
                           uint32_t number)
{
    uint32_t each = tg_pack_stream_each(j.count, TG_PACK_STREAMS);
    *s = {bytes, len, (uint8_t *)j.symbols, j.count, j.is_wide};
    if (!four) {
        return true;
    }
    if (j.count < TG_PACK_FOUR_FROM || len < 4 * (TG_PACK_STREAMS - 1)) {
        return false;
    }
    const uint8_t *starts = bytes;
    bytes += 4 * (TG_PACK_STREAMS - 1);
    len -= 4 * (TG_PACK_STREAMS - 1);
    for (uint32_t i = 0; i < TG_PACK_STREAMS; i++) {
        uint64_t here = i + 1 < TG_PACK_STREAMS ? tg_load32(starts + 4 * i) : len;
        if (here > len) {
            return false;
        }
        if (i == number) {
            s->bytes = bytes;
            s->len = here;
            s->count = i + 1 < TG_PACK_STREAMS ? each : j.count - each * (TG_PACK_STREAMS - 1);
            s->out += (uint64_t)i * each * (j.is_wide ? 2 : 1);
        }
        bytes += here;
        len -= here;
    }
    return true;
}

/* A block a stream. */
__global__ static void __launch_bounds__(THREADS) decode_streams(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch,
                                                                 const __grid_constant__ tg_prefix_models models)
{
    __shared__ decode_space d;
    uint32_t chunk = p.first + blockIdx.x / TG_PACK_STREAMS, number = blockIdx.x % TG_PACK_STREAMS;
    const tg_view *v = &p.space.views[chunk];
    tg_pack_job j;
    if (!tg_pack_job_of(&j, p, scratch, chunk, TG_PACK_SYMBOLS) || !j.is_coded || j.unit->symbol != TG_GPU_HUFFMAN ||
        v->is_joint) {
        return;
    }
    const uint8_t *bytes = body + v->symbols;
    uint64_t len = v->indices - v->symbols;
    if (len == 0 || bytes[0] == 0) { /* the plain form */
        return;
    }
    bool four = bytes[0] > TG_FORM_FOUR;
    if (!four && number > 0) {
        return;
    }
    const uint8_t *model = tg_prefix_model_of(models, *j.unit, body + v->side);
    uint32_t head = read_lengths(&d, *j.unit, bytes, len, bytes[0] - (four ? (uint32_t)TG_FORM_FOUR : 0u), model);
    stream_job s;
    bool sound = head != 0 && tg_prefix_make_codes(d.codes, d.first, d.lengths, j.base);
    sound = sound && find_stream(&s, j, bytes + head, len - head, four, number);
    if (sound) {
        make_slots(&d, j.base);
        __syncthreads();
        sound = read_stream(&d, s);
    }
    if (!sound && threadIdx.x == 0) {
        tg_refuse_chunk(p, chunk);
    }
}

void tg_pack_huffman_decode(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch)
{
    static const tg_prefix_models models = tg_prefix_models_pack();
    TG_LAUNCH(decode_streams, p->chunk_n * TG_PACK_STREAMS, THREADS, p->stream, *p, body, scratch, models);
}
