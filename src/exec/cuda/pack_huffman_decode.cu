/* The decoder of huffman (pack/huffman.c) on the GPU: a block a chunk, a thread a stream. It validates everything that it reads. All
 * streams but the last have as many symbols, so that threads of a warp do the same at the same time. */
#include "exec/cuda/pack_prefix.h"

enum { THREADS = TG_PACK_PARTS, VECTOR = 16 /* bytes of symbols that are stored at once */ };

typedef struct decode_space {
    uint16_t slots[TG_PREFIX_SLOT_N]; /* by the next 12 bits: length of the code in bits 0 to 5, its symbol above */
    uint32_t codes[TG_PACK_BASE];
    uint8_t lengths[TG_PACK_BASE];
    uint32_t first[TG_PREFIX_BITS + 1];
} decode_space;

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

/* ---- streams -------------------------------------------------------------------------------------------------------------- */

/* Bits of a stream, at least 12 of them between two codes: zeros after the last. */
typedef struct bit_reader {
    const uint32_t *next; /* aligned words: the first after those that are held */
    const uint8_t *end;   /* of the stream */
    uint64_t held, used;
    uint32_t held_n, ahead; /* the word before `next` is loaded before it is needed */
} bit_reader;

/* Up to 3 bytes before the stream, of other streams or lengths, are read and dropped. */
TG_DEVICE bit_reader start_bits(const uint8_t *at, uint32_t len)
{
    uint32_t place = (uint32_t)((uintptr_t)at % 4);
    const uint32_t *words = (const uint32_t *)(const void *)(at - place);
    bit_reader r = {words + 2, at + len, 0, 0, 32 - 8 * place, 0};
    r.held = tg_word_before(words, r.end) >> 8 * place;
    r.ahead = tg_word_before(words + 1, r.end);
    return r;
}

/* The slot of the next code, whose bits are consumed. */
TG_DEVICE uint32_t next_slot(bit_reader *r, const decode_space *d)
{
    if (r->held_n < 32) {
        r->held |= (uint64_t)r->ahead << r->held_n;
        r->held_n += 32;
        r->ahead = tg_word_before(r->next++, r->end);
    }
    uint32_t slot = d->slots[r->held & (TG_PREFIX_SLOT_N - 1)], bits = slot & 63;
    r->held >>= bits;
    r->held_n -= bits;
    r->used += bits;
    return slot;
}

/* Decodes `n` symbols; false if they do not end in the last byte, with zero bits after them. Whole vectors of symbols are stored at
 * once; `out` has the alignment of its symbols. */
template <class Symbol>
TG_DEVICE bool read_stream(Symbol *out, const decode_space *d, const uint8_t *at, uint32_t len, uint32_t n)
{
    const uint32_t in_vector = VECTOR / sizeof(Symbol), in_word = 4 / sizeof(Symbol), bits = 8 * sizeof(Symbol);
    bit_reader r = start_bits(at, len);
    uint32_t before = min((uint32_t)(VECTOR - tg_place_of(out)) % VECTOR / (uint32_t)sizeof(Symbol), n), i = 0;
    for (; i < before; i++) {
        out[i] = (Symbol)(next_slot(&r, d) >> 6);
    }
    for (; i + in_vector <= n; i += in_vector) {
        uint32_t words[4];
#pragma unroll
        for (uint32_t w = 0; w < 4; w++) {
            words[w] = 0;
#pragma unroll
            for (uint32_t k = 0; k < in_word; k++) {
                words[w] |= (next_slot(&r, d) >> 6) << k * bits;
            }
        }
        *(uint4 *)(void *)(out + i) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    for (; i < n; i++) {
        out[i] = (Symbol)(next_slot(&r, d) >> 6);
    }
    if ((r.used + 7) / 8 != len) {
        return false;
    }
    uint32_t rest = (uint32_t)(r.used % 8);
    return rest == 0 || at[len - 1] >> rest == 0;
}

/* Where the stream of a thread is: `len` bytes after *at. False if that or any other is not inside the chunk; the same for all. */
TG_DEVICE bool find_stream(const uint8_t **at, uint32_t *len, const uint8_t *end, uint32_t stream_n)
{
    uint32_t i = threadIdx.x, own = 0, all = 0;
    bool has_lengths = end - *at >= 2 * (int64_t)(stream_n - 1);
    if (has_lengths && i + 1 < stream_n) {
        own = (*at)[2 * i] | (uint32_t)(*at)[2 * i + 1] << 8;
    }
    uint32_t before = tg_sum_before_in_block(own, &all);
    const uint8_t *first = *at + 2 * (stream_n - 1);
    if (!has_lengths || end - first < (int64_t)all) {
        return false;
    }
    *at = first + before;
    *len = i + 1 < stream_n ? own : (uint32_t)(end - first - all);
    return true;
}

__global__ static void __launch_bounds__(THREADS)
    decode_chunks(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch, const __grid_constant__ tg_prefix_models models)
{
    __shared__ decode_space d;
    uint32_t chunk = p.first + blockIdx.x, len = 0;
    const tg_view *v = &p.space.views[chunk];
    tg_pack_job j;
    if (!tg_pack_job_of(&j, p, scratch, chunk, TG_PACK_SYMBOLS) || !j.is_coded || j.unit->symbol != TG_GPU_HUFFMAN ||
        v->is_joint) {
        return;
    }
    const uint8_t *bytes = body + v->symbols, *end = body + v->indices;
    if (bytes == end || bytes[0] == 0) { /* the plain form */
        return;
    }
    const uint8_t *model = tg_prefix_model_of(models, *j.unit, body + v->side);
    uint32_t head = read_lengths(&d, *j.unit, bytes, (uint64_t)(end - bytes), bytes[0], model);
    uint32_t stream_n = (j.count + TG_PACK_STREAM - 1) / TG_PACK_STREAM, from = threadIdx.x * TG_PACK_STREAM;
    const uint8_t *at = bytes + head;
    bool sound = head != 0 && tg_prefix_make_codes(d.codes, d.first, d.lengths, j.base);
    sound = sound && find_stream(&at, &len, end, stream_n);
    if (sound) {
        make_slots(&d, j.base);
        __syncthreads();
        if (threadIdx.x < stream_n) {
            uint32_t n = min((uint32_t)TG_PACK_STREAM, j.count - from);
            sound = j.is_wide ? read_stream((uint16_t *)(void *)j.symbols + from, &d, at, len, n)
                              : read_stream((uint8_t *)j.symbols + from, &d, at, len, n);
        }
    }
    if (!sound) {
        tg_refuse_chunk(p, chunk);
    }
}

void tg_pack_huffman_decode(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch)
{
    static const tg_prefix_models models = tg_prefix_models_pack();
    TG_LAUNCH(decode_chunks, p->chunk_n, THREADS, p->stream, *p, body, scratch, models);
}
