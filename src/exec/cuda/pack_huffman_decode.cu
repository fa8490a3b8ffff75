/* The decoder of huffman (pack/huffman.c) on the GPU: a block a chunk makes the table and finds the streams, then a thread decodes a
 * stream. It validates everything that it reads. All streams but the last have as many symbols, so that threads of a warp do the same
 * at the same time. */
#include "exec/cuda/pack_prefix.h"

enum { THREADS = TG_PACK_PARTS, VECTOR = 16 /* bytes of symbols that are stored at once */ };
enum { SLOT_VECTORS = TG_PREFIX_SLOT_N / 8 /* of 16 bytes */ };
enum { SHARES = TG_PACK_PARTS / TG_WARP /* blocks of a chunk, of a warp each, that decode */ };
enum { STAGED = 28672 /* bytes of streams of a block in shared memory: of 7 bits a symbol */ };

typedef struct table_space {
    alignas(16)
        uint16_t slots[TG_PREFIX_SLOT_N]; /* by the next 12 bits: length of the code in bits 0 to 5, its symbol above */
    uint32_t codes[TG_PACK_BASE];
    uint8_t lengths[TG_PACK_BASE];
} table_space;
static_assert((uint32_t)SLOT_VECTORS <= (uint32_t)TG_PACK_BASE, "slots are where an encoder has its plans");

/* ---- the code ----------------------------------------------------------------------------------------------------------- */

/* Code lengths of a chunk into shared memory. Returns the bytes before the streams, 0 if they are damaged; the same for all. */
TG_DEVICE uint32_t read_lengths(table_space *d, const tg_gpu_unit &u, const uint8_t *bytes, uint64_t len, uint32_t form,
                                const uint8_t *model)
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
TG_DEVICE void make_slots(table_space *d, uint32_t base)
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

/* In shared memory: streams side by side, after a vector that nothing is in, and the table. */
enum { VECTORS = 1 + STAGED / 16 + 2, WORDS = 4 * VECTORS };
typedef struct decode_space {
    uint4 vectors[VECTORS];
    uint16_t slots[TG_PREFIX_SLOT_N];
} decode_space;

/* Codes after bit `at`. A thread decodes one after the other, so what matters is how long the next one takes: words are loaded before it is
 * known which of them are needed; a code's length is used where it stands, among the bits of its slot; and bit `at` itself, which is no
 * part of the code, is held so that the code is twice its number, the place of its slot in bytes. */
typedef struct bit_reader {
    const uint32_t *words;
    const uint16_t *slots;
    uint32_t at, first; /* word number `first` is ahead[0] */
    uint32_t low, high; /* 64 bits from `at` on when they were held, of which codes have been dropped */
    uint32_t ahead[5];
} bit_reader;

/* Loads words ahead[from] to ahead[4]. A damaged stream may end after the last word. Streams of STAGED bytes begin up to 15 bytes after the
 * first one, so that the others do not. */
TG_DEVICE void load_ahead(bit_reader *r, uint32_t from)
{
    const uint32_t *words = r->words + min(r->first, (uint32_t)(WORDS - 5));
    TG_UNROLL
    for (uint32_t i = 0; i < 5; i++) {
        r->ahead[i] = i >= from ? words[i] : r->ahead[i];
    }
}

TG_DEVICE bit_reader reader_of(const decode_space &d, uint32_t byte)
{
    bit_reader r = {(const uint32_t *)(const void *)d.vectors, d.slots, 8 * byte - 1, (8 * byte - 1) / 32, 0, 0, {}};
    load_ahead(&r, 0);
    return r;
}

/* Holds the next 64 bits. Since the last time, up to 48 have been consumed: then some are of the second word after the first. */
TG_DEVICE void hold_bits(bit_reader *r)
{
    uint32_t by = r->at / 32 - r->first;
    TG_UNROLL
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t next = by == 1 ? r->ahead[i + 1] : r->ahead[i + 2];
        r->ahead[i] = by == 0 ? r->ahead[i] : next;
    }
    r->first = r->at / 32;
    load_ahead(r, 3);
    r->low = __funnelshift_r(r->ahead[0], r->ahead[1], r->at % 32);
    r->high = __funnelshift_r(r->ahead[1], r->ahead[2], r->at % 32);
}

/* The symbol of the next code, whose bits are consumed; up to four after bits were held. Shifts use the lowest 5 bits of a slot: the length,
 * which is below 16. */
TG_DEVICE uint32_t next_symbol(bit_reader *r)
{
    uint32_t place = r->low & 2 * (TG_PREFIX_SLOT_N - 1);
    uint32_t slot = *(const uint16_t *)(const void *)((const uint8_t *)(const void *)r->slots + place);
    r->low = __funnelshift_r(r->low, r->high, slot);
    r->high = __funnelshift_r(r->high, 0, slot);
    r->at += slot & 63;
    return slot >> 6;
}

/* Decodes `n` symbols from byte `at` of shared memory on; false if they do not end in the last byte, with zero bits after them. Whole
 * vectors of symbols are stored at once; `out` has the alignment of its symbols. */
template <class Symbol>
TG_DEVICE bool read_stream(Symbol *out, const decode_space &d, uint32_t at, uint32_t len, uint32_t n)
{
    const uint32_t in_vector = VECTOR / sizeof(Symbol), in_word = 4 / sizeof(Symbol), bits = 8 * sizeof(Symbol);
    bit_reader r = reader_of(d, at);
    uint32_t before = min((uint32_t)(VECTOR - tg_place_of(out)) % VECTOR / (uint32_t)sizeof(Symbol), n), i = 0;
    TG_ROLL
    for (; i < before; i++) {
        hold_bits(&r);
        out[i] = (Symbol)next_symbol(&r);
    }
    TG_ROLL
    for (; i + in_vector <= n; i += in_vector) {
        uint32_t words[4];
        TG_UNROLL
        for (uint32_t w = 0; w < 4; w++) {
            words[w] = 0;
            hold_bits(&r);
            TG_UNROLL
            for (uint32_t k = 0; k < in_word; k++) {
                words[w] |= next_symbol(&r) << k * bits;
            }
        }
        *(uint4 *)(void *)(out + i) = make_uint4(words[0], words[1], words[2], words[3]);
    }
    TG_ROLL
    for (; i < n; i++) {
        hold_bits(&r);
        out[i] = (Symbol)next_symbol(&r);
    }
    uint32_t used = r.at + 1 - 8 * at, rest = used % 8;
    if ((used + 7) / 8 != len) {
        return false;
    }
    return rest == 0 || ((const uint8_t *)(const void *)d.vectors)[at + len - 1] >> rest == 0;
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

/* Whether the symbols of a chunk are decoded here, and what they are. */
TG_DEVICE bool job_of(tg_pack_job *j, const tg_gpu_pass &p, uint8_t *scratch, uint32_t chunk)
{
    return tg_pack_job_of(j, p, scratch, chunk, TG_PACK_SYMBOLS) && j->is_coded && j->unit->symbol == TG_GPU_HUFFMAN &&
           !p.space.views[chunk].is_joint;
}

/* To scratch: the slots of a chunk's code in the place of plans, where its streams begin in the place of their lengths, and their
 * number; 0: the chunk is of another form, or damaged. */
__global__ static void __launch_bounds__(THREADS)
    read_codes(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch, const __grid_constant__ tg_prefix_models models)
{
    __shared__ table_space d;
    uint32_t chunk = p.first + blockIdx.x, len = 0;
    const tg_view *v = &p.space.views[chunk];
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!job_of(&j, p, scratch, chunk)) {
        return;
    }
    tg_pack_code *code = tg_pack_scratch_of(p, scratch, chunk).code;
    const uint8_t *bytes = body + v->symbols, *end = body + v->indices, *at = bytes;
    bool is_plain = bytes == end || bytes[0] == 0, sound = false;
    uint32_t stream_n = (j.count + TG_PACK_STREAM - 1) / TG_PACK_STREAM;
    if (!is_plain) {
        const uint8_t *model = tg_prefix_model_of(models, *j.unit, body + v->side);
        uint32_t head = read_lengths(&d, *j.unit, bytes, (uint64_t)(end - bytes), bytes[0], model);
        at += head;
        sound = head != 0 && tg_prefix_make_codes(d.codes, d.lengths, j.base);
        sound = sound && find_stream(&at, &len, end, stream_n);
    }
    if (sound) {
        make_slots(&d, j.base);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < (uint32_t)SLOT_VECTORS; i += THREADS) {
            code->plans[i] = ((const uint4 *)(const void *)d.slots)[i];
        }
        code->part_len[threadIdx.x] = threadIdx.x < stream_n ? (uint32_t)(at - bytes) : 0;
    }
    if (threadIdx.x == 0) {
        code->part_n = sound ? stream_n : 0;
        if (!sound && !is_plain) {
            tg_refuse_chunk(p, chunk);
        }
    }
}

/* Copies `len` bytes to shared + tg_place_of(from), all vectors at once. A warp. */
TG_DEVICE void stage_streams(uint4 *shared, const uint8_t *from, uint32_t len)
{
    uint32_t place = tg_place_of(from), end = place + len, whole = end / 16;
    const uint4 *vectors =
        (const uint4 *)(const void *)(from - place); /* what is before the first stream is in the frame, too */
    TG_UNROLL_BY(4)
    for (uint32_t v = tg_lane(); v < whole; v += TG_WARP) {
        TG_COPY_ASYNC(shared + v, vectors + v, 16);
    }
    TG_COMMIT_COPIES();
    if (16 * whole + tg_lane() < end) {
        ((uint8_t *)(void *)shared)[16 * whole + tg_lane()] = (from - place)[16 * whole + tg_lane()];
    }
    TG_WAIT_COPIES(0);
}

__global__ static void __launch_bounds__(TG_WARP) decode_streams(tg_gpu_pass p, const uint8_t *body, uint8_t *scratch)
{
    __shared__ decode_space d;
    uint32_t chunk = p.first + blockIdx.x / SHARES, first = blockIdx.x % SHARES * TG_WARP, i = first + threadIdx.x;
    tg_pack_job j;
    tg_after_previous();
    tg_next_may_begin();
    if (!job_of(&j, p, scratch, chunk)) {
        return;
    }
    const tg_pack_code *code = tg_pack_scratch_of(p, scratch, chunk).code;
    uint32_t stream_n = code->part_n;
    if (first >= stream_n) {
        return;
    }
    const uint8_t *bytes = body + p.space.views[chunk].symbols;
    uint32_t all_end = (uint32_t)(p.space.views[chunk].indices - p.space.views[chunk].symbols);
    uint32_t at = i < stream_n ? code->part_len[i] : all_end, end = i + 1 < stream_n ? code->part_len[i + 1] : all_end;
    for (uint32_t k = threadIdx.x; k < (uint32_t)SLOT_VECTORS; k += TG_WARP) {
        ((uint4 *)(void *)d.slots)[k] = code->plans[k];
    }
    bool sound = true;
    for (uint32_t done = 0, lanes = min(stream_n - first, TG_WARP);
         done < lanes;) { /* as many streams as fit; most often all */
        uint32_t start = __shfl_sync(TG_ALL_LANES, at, (int)done);
        bool fits = threadIdx.x >= done && threadIdx.x < lanes && end - start <= STAGED;
        uint32_t fit = (uint32_t)__popc(__ballot_sync(TG_ALL_LANES, fits));
        if (fit == 0) { /* longer than codes of so many symbols can be */
            sound = false;
            break;
        }
        uint32_t stop = __shfl_sync(TG_ALL_LANES, end, (int)(done + fit - 1));
        stage_streams(d.vectors + 1, bytes + start, stop - start);
        __syncwarp();
        if (fits) {
            uint32_t n = min((uint32_t)TG_PACK_STREAM, j.count - i * TG_PACK_STREAM),
                     from = 16 + tg_place_of(bytes + start) + at - start;
            sound = j.is_wide ? read_stream((uint16_t *)(void *)j.symbols + i * TG_PACK_STREAM, d, from, end - at, n)
                              : read_stream((uint8_t *)j.symbols + i * TG_PACK_STREAM, d, from, end - at, n);
        }
        __syncwarp();
        done += fit;
    }
    if (!sound) {
        tg_refuse_chunk(p, chunk);
    }
}

void tg_pack_huffman_decode(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch)
{
    static const tg_prefix_models models = tg_prefix_models_pack();
    TG_LAUNCH_EARLY(read_codes, p->overlaps, p->chunk_n, THREADS, p->stream, *p, body, scratch, models);
    TG_LAUNCH_EARLY(decode_streams, p->overlaps, p->chunk_n * SHARES, TG_WARP, p->stream, *p, body, scratch);
}
