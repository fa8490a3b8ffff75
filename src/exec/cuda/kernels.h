/* The launches of all kernels, as C functions: what the executor's passes call. Pointers are to device memory unless stated
 * otherwise; a tg_gpu_pass itself is in host memory. A launch returns at once; faults are reported by the next wait.
 *
 * A launch covers chunks [first, first + chunk_n) of a pass and skips those that are not its concern, by route, kind of values
 * and coordinates. Chunks of no elements do not exist. The order of launches when a cell is written:
 *
 *     tg_gpu_start_views                                          offsets of chunks whose count is known
 *     tg_gpu_encode_plain      tg_gpu_quantize_dense              dense: values to bytes or words; to symbols
 *     tg_gpu_select_sparse     tg_gpu_quantize_values             sparse: coordinates, values, offsets; symbols
 *     tg_gpu_pack_symbols      tg_gpu_pack_words                  symbols and words to bytes
 *     tg_gpu_apply_scales                                         scales of units, and their residuals
 *     tg_gpu_write_indices     tg_gpu_end_chunks                  coordinates; lengths
 *
 * Where all chunks are dense and of fixed length, tg_gpu_pack_leaves packs symbols last, and tg_gpu_end_frames ends frames. When a
 * body is read:
 *
 *     tg_gpu_find                                                 chunks of a body
 *     tg_gpu_check_leaves      tg_gpu_end_check                   in place of the next two, of fixed length
 *     tg_gpu_check_lists       tg_gpu_add_lists                   in place of all of these, of lists that are added at once
 *     tg_gpu_check_coded                                          before values are added at once, of coded chunks
 *     tg_gpu_read_symbols      tg_gpu_read_words                  bytes to symbols and words, checked
 *     tg_gpu_read_indices                                         coordinates, checked
 *     tg_gpu_add_dense         tg_gpu_add_sparse                  values to sums
 *     tg_gpu_deliver                                              sums to where they belong
 *     tg_gpu_judge_bodies                                         whether all bodies of a cell are sound, of fixed length
 *     tg_gpu_average_plain                                        in place of all of these, of plain values of all bodies
 */
#ifndef TG_EXEC_CUDA_KERNELS_H
#define TG_EXEC_CUDA_KERNELS_H

#include "exec/cuda/tables.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tg_gpu_span {
    const uint8_t *bytes;
    uint64_t len;
} tg_gpu_span;

/* ---- hash.cu -------------------------------------------------------------------------------------------------------------- */

/* out[i]: the hash of span i. `leaves` has space for span_n * leaf_cap words; no span has more than leaf_cap leaves, which is at
 * most 512. Up to 7 bytes before and after a span must be readable. */
void tg_gpu_hash(uint64_t *out, uint64_t *leaves, const tg_gpu_span *spans, uint32_t span_n, uint32_t leaf_cap,
                 void *stream);

/* The second half of it, where leaves are hashed. */
void tg_gpu_hash_spans(uint64_t *out, const uint64_t *leaves, const tg_gpu_span *spans, uint32_t span_n,
                       uint32_t leaf_cap, void *stream);

/* ---- finish.cu: frames and checks of bodies of fixed length, whose leaves are hashed ------------------------------------------- */

enum {
    TG_GPU_FRONT = 48,
    TG_GPU_RANK_AT = 8,
    TG_GPU_STEP_AT = 32,
    TG_GPU_CHECKSUM = 8
}; /* bytes of a header, and where rank and step are in it; of a checksum */

/* What stands before a body. */
typedef struct tg_gpu_front {
    uint8_t header[TG_GPU_FRONT];
    const uint8_t *description;
    uint32_t len; /* of both */
    uint64_t hash;
} tg_gpu_front;

typedef struct tg_gpu_ending {
    uint8_t *frame;
    uint64_t body_len;
    uint64_t *words;         /* of the front, of headers, then of chunks: the last ones are written */
    uint32_t first, chunk_n; /* its chunks */
    uint32_t block, block_n; /* the blocks that have it; set by launches */
    const uint64_t *leaves;
    uint32_t leaf_cap;          /* chunk first + i has its leaves at i * leaf_cap */
    uint32_t *done;             /* 0 */
    uint64_t *sides;            /* NULL, or where the first bytes beside each chunk's values go */
    tg_gpu_verdict *verdict;    /* of the pass; cleared if it is handed over ... */
    tg_gpu_verdict *verdict_to; /* ... to this pinned memory of the host; NULL: it is not */
    uint32_t *
        sound; /* of a check: 1 if the frame is sound, that is, front, chunks and checksum are right, else 0; NULL: not asked */
    uint32_t *sound_to; /* pinned: the same, after all else that goes to the host; NULL: it is not told */
    uint32_t *refused;  /* pinned: counts frames that are not; NULL: it is not counted */
} tg_gpu_ending;

/* Frames that are sealed by one kernel. */
enum { TG_GPU_SEALS = 8 };
typedef struct tg_gpu_seals {
    tg_gpu_ending e[TG_GPU_SEALS];
    tg_gpu_front fronts[TG_GPU_SEALS];
    uint32_t n;
} tg_gpu_seals;

/* Front and checksum around bodies. The step is at p->step_at, if that is set. */
void tg_gpu_end_frames(const tg_gpu_pass *p, tg_gpu_seals *s);

/* To pinned memory of the host: `ends`, front->len bytes before the body and the checksum, unless that is NULL; words[2], ...: hashes of
 * chunks. With e->sound, `front` is what must stand before the body, but for rank and step; else its length alone counts. With e->sound, too,
 * the launch before this one is tg_gpu_check_leaves, and of a frame that is sound the host is told that alone. e->sides is written then. */
void tg_gpu_end_check(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_front *front, uint8_t *ends,
                      uint64_t *words);

/* ---- check_lists.cu: frames of sparse chunks whose values are plain or signs, dense ones of plain values among them --------------- */

enum { TG_GPU_LISTS_MAX = 1024 }; /* chunks of such a frame */

/* What else a check needs, and where it tells the host. */
typedef struct tg_gpu_telling {
    tg_view *views;        /* pinned: of chunks */
    uint64_t *words;       /* pinned: words[1], ...: hashes of headers and chunks */
    uint8_t *ends;         /* pinned: what stands before the body, and the checksum */
    uint32_t *leaves_done; /* device: 1 + chunk_n of them, 0 */
    uint64_t headers_len;
} tg_gpu_telling;

/* Finds the chunks of a frame, reads their coordinates, hashes and judges it as tg_gpu_end_check does with e->sound, which is not NULL.
 * Coordinates of random blocks are those of the step in the frame. For tg_gpu_add_lists. */
void tg_gpu_check_lists(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_front *front,
                        const tg_gpu_telling *t);

/* The same for dense chunks with coded symbols or words, without reading them: tg_gpu_find has found them, and tg_gpu_read_symbols or
 * tg_gpu_read_words, the launch before this one, decodes them. For tg_gpu_add_dense. */
void tg_gpu_check_coded(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_front *front,
                        const tg_gpu_telling *t);

/* add_listed.cu: adds the values of such a frame's sparse chunks, if p->sound says so. */
void tg_gpu_add_lists(const tg_gpu_pass *p, const uint8_t *body, float weight);

/* ---- gather.cu: bodies whose chunks were written aside --------------------------------------------------------------------------- */

/* What moving them needs, and where it tells the host. */
typedef struct tg_gpu_gathering {
    uint64_t *sides;       /* NULL, or where the first bytes beside each chunk's values go */
    uint32_t *leaves_done; /* device: 1 + chunk_n of them, 0 */
    tg_view *views_to;     /* pinned: of chunks */
    uint64_t *words_to;    /* pinned: words[1], ...: hashes of headers, if there are some, and of chunks */
    uint64_t headers_len;
    uint32_t seals; /* set by launches */
} tg_gpu_gathering;

/* tg_gpu_place_chunks, tg_gpu_move, tg_gpu_hash_spans and tg_gpu_tell in one, of up to TG_GPU_LISTS_MAX chunks. e->frame is where the body
 * goes; e->sound_to becomes 1 when all is told. */
void tg_gpu_gather(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_gathering *g);

/* The same for chunks that are in their places, whose lengths the host knows: nothing is moved and nobody is told. Seals the frame, whose body
 * of e->body_len bytes is at e->frame, with front->hash. */
void tg_gpu_seal_places(const tg_gpu_pass *p, const tg_gpu_ending *e, const tg_gpu_gathering *g,
                        const tg_gpu_front *front);

/* ---- hash.cu, too ---------------------------------------------------------------------------------------------------------- */

/* Writes what stands before the body of a frame, and the checksum after it: the hash of n words, the first of which are set to that of
 * the front and, if there are no headers, to the hash of no bytes. n is at most 512 * 512. */
void tg_gpu_seal_frame(uint8_t *frame, const tg_gpu_front *front, uint64_t body_len, uint64_t *words, uint32_t n,
                       int has_headers, void *stream);

/* The same with a checksum that is known. */
void tg_gpu_put_seal(uint8_t *frame, const tg_gpu_front *front, uint64_t body_len, uint64_t checksum, void *stream);

/* Bodies of a cell of fixed length, each with its checksum after it. */
typedef struct tg_gpu_judging {
    tg_gpu_bodies bodies;
    uint64_t fronts[TG_GPU_BODIES]; /* hashes of what stands before them */
    uint64_t body_len;
    uint64_t *leaves; /* hashes of leaves, as tg_gpu_check_leaves has them */
    uint64_t *words;  /* space for 2 + chunk_n of each */
    uint32_t *done;   /* 0; 1 + chunk_n of them */
    uint32_t leaf_cap;
    uint32_t are_aligned; /* all bodies begin at a multiple of 16 */
    uint32_t number;      /* of the first body ... */
    uint32_t *late;    /* ... 0, or 2^32 - 1 less the number of the first one that is not sound; never cleared here */
    uint32_t *late_to; /* pinned: the same */
} tg_gpu_judging;

/* Finds out whether bodies are sound, whose leaves are hashed: a block each. Clears the verdict of the pass. */
void tg_gpu_judge_bodies(const tg_gpu_pass *p, const tg_gpu_judging *j);

/* ---- average.cu -------------------------------------------------------------------------------------------------------------- */

typedef struct tg_gpu_averaging {
    void *const *averages; /* by tensor; NULL: p->few */
    float divisor;
    uint8_t is_first, is_last;
} tg_gpu_averaging;

/* Sums of several bodies, in their order, all of whose values are plain: those that are in space.sums are added to, unless `is_first`.
 * They stay there unless `is_last`: then they are delivered as tg_gpu_deliver does, without a look for overflows. Hashes leaves and finds
 * out whether bodies are sound. */
void tg_gpu_average_plain(const tg_gpu_pass *p, const tg_gpu_judging *j, const tg_gpu_averaging *to);

/* ---- frame.cu: chunks in bodies ------------------------------------------------------------------------------------------- */

/* Views of dense chunks. Offsets are from the chunk's start. */
void tg_gpu_start_views(const tg_gpu_pass *p);

/* Ends chunks that are in place: view.len, and where the chunk is, to spans: those of a cell after one for its headers, as
 * tg_gpu_spans_of writes them. The first 8 bytes beside a chunk's values go to sides[chunk], unless that is NULL. */
void tg_gpu_end_chunks(const tg_gpu_pass *p, uint64_t *sides, tg_gpu_span *spans);

/* sides[chunk], likewise, of a body whose views are on the device. */
void tg_gpu_read_sides(const tg_gpu_pass *p, uint64_t *sides, const uint8_t *body);

/* The body of the cell of the pass: spans[0] is where headers are, then where each chunk is, by its view. */
void tg_gpu_spans_of(const tg_gpu_pass *p, tg_gpu_span *spans, const uint8_t *body, uint64_t headers_len);

/* Ends chunks of a cell that are not in place: as tg_gpu_end_chunks, and view.start, one after the other behind the headers, which it
 * writes. Offsets of views are then from the start of the body. spans[0], ... of the cell are where they belong. */
void tg_gpu_place_chunks(const tg_gpu_pass *p, uint64_t *sides, tg_gpu_span *spans, uint8_t *body,
                         uint64_t headers_len);

/* Copies chunks from out[chunk] to spans[1], ... of their cell, and hashes leaves of spans[0], ... to hashes[i * leaf_cap], ..., unless
 * that is NULL. */
void tg_gpu_move(const tg_gpu_pass *p, const tg_gpu_span *spans, uint64_t *hashes, uint32_t leaf_cap);

/* Finds the chunks of a body of `len` bytes, which are at least those of its headers. known_n[i] values are in chunk first + i, if its
 * coordinates are known without the body; NULL: no chunk has such ones. Spans as tg_gpu_spans_of has them. verdict->bad_chunk: a chunk
 * that cannot be one, or first + chunk_n if bytes are left over. */
void tg_gpu_find(const tg_gpu_pass *p, tg_gpu_span *spans, const uint8_t *body, uint64_t len, uint64_t headers_len,
                 const uint32_t *known_n);

/* What the host has to know of a pass, to its pinned memory; NULL: not that. */
typedef struct tg_gpu_report {
    tg_view *views;         /* of the chunks of the pass */
    const uint64_t *hashes; /* of headers, then of chunks; to ... */
    uint64_t *hashes_to;
    const uint8_t *frame; /* its first front_len bytes and the 8 after its body, to ... */
    uint8_t *ends;
    uint64_t body_len;
    uint32_t front_len;
    tg_gpu_verdict *verdict; /* cleared on the device then */
} tg_gpu_report;

void tg_gpu_tell(const tg_gpu_pass *p, const tg_gpu_report *report);

/* Sums over a divisor: to tensors in their dtypes (`averages`, or p->few if that is NULL), or to the domain laid end to end. verdict->overflows: a quotient is not
 * finite, and so does space.overflows of its chunk. With `share` > 0 only such chunks are delivered: sums are then of values times
 * it, of value_n bodies, and averages of finite values are finite. */
void tg_gpu_deliver(const tg_gpu_pass *p, void *const *averages, float *flat, float divisor, float share,
                    uint32_t value_n);

/* ---- clip.cu ---------------------------------------------------------------------------------------------------------------- */

/* space.clips of units [unit_first, unit_first + unit_n). `leaves` has space for a number each 1,024 elements and unit. */
void tg_gpu_clip(const tg_gpu_pass *p, double *leaves, uint32_t unit_first, uint32_t unit_n);

/* ---- plain.cu: dense, fixed bytes a value ------------------------------------------------------------------------------------ */

/* Routes plain and verbatim: values to out[chunk], and hashes of leaves of chunk first + i to hashes[i * leaf_cap], ..., unless
 * that is NULL. Route words: to space.words. With feedback, the next residual. */
void tg_gpu_encode_plain(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap);

/* ---- quantize*.cu: values and symbols ---------------------------------------------------------------------------------------- */

/* What kernels below lack to encode a unit, as part of a sentence; NULL: nothing. A host function. */
const char *tg_gpu_quantize_lacks(const tg_gpu_unit *unit);

/* Bytes of scratch that a bucket of a unit needs; as many buckets are quantized at a time as there are slots of so many. 0: none.
 * A host function. */
uint64_t tg_gpu_quantize_scratch(const tg_gpu_unit *unit);

/* The kinds of kernels that a unit needs, to be joined over all units into tg_gpu_pass.kinds, so that others are not launched. A
 * host function. */
uint32_t tg_gpu_quantize_kinds(const tg_gpu_unit *unit);

/* Whether a unit's quantizer packs the symbols of chunks of fixed length itself, so that pack_leaves has nothing to do with it. A host
 * function. */
int tg_gpu_rounds_leaves(const tg_gpu_unit *unit);

/* How many blocks of the GPU that is current hold parts of chunks in shared memory at once, while a step is fitted to them (hold.cu), so that
 * a pass is given parts; 0: it cannot. A host function. TG_HOLD=0 in the environment: it is not to. */
uint32_t tg_gpu_blocks_that_hold(void);

/* Routes buckets, fitted and scaled: gradients to space.symbols. What travels with buckets goes to out[chunk] + view.side. With
 * feedback the next residual, which for `scaled` is the whole sum for now. For `scaled` with a mean also the sums of leaves of
 * magnitudes: leaf i of a chunk to space.magnitudes[chunk.leaf_at + i]. */
void tg_gpu_quantize_dense(const tg_gpu_pass *p);

/* Sparse chunks whose values are symbols: view.count values in space.values to space.symbols, the side to out[chunk] + view.side.
 * With feedback, what is decoded is subtracted from the next residual at space.positions; for signs, whose scale is not known
 * yet, that waits for tg_gpu_apply_scales. For signs with a mean also the sums of leaves of magnitudes. */
void tg_gpu_quantize_values(const tg_gpu_pass *p);

/* Units with a scale, dense and sparse: computes space.scales, writes them to the side of each chunk, and subtracts what is
 * decoded from the next residual. The scale of bins is in space.scales; where bins select, tg_gpu_select_sparse does all that. Of chunks of
 * fixed length, tg_gpu_pack_leaves writes scales, and the next step subtracts them: what is subtracted is kept (tg_gpu_unit.pending_at). */
void tg_gpu_apply_scales(const tg_gpu_pass *p);

/* signs.cu: subtracts what is pending from the residuals of all units. */
void tg_gpu_subtract_pending(const tg_gpu_unit *units, uint32_t unit_n, float *residuals, void *stream);

/* Adds weight times the values of a body's chunks to sums, or sets them; tg_sum_at of load.h says where they are. Dense chunks;
 * symbols and words are in space, or plain values and packed bits in the body. With p->splits, words of lossless coding are as they come
 * from the coder: lower bytes in the body, upper ones in space.scratch. */
void tg_gpu_add_dense(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets);

/* The same for sparse chunks, whose coordinates are in space.positions. Elements that are not sent stay as they are. */
void tg_gpu_add_sparse(const tg_gpu_pass *p, const uint8_t *body, float weight, int sets);

/* ---- pack*.cu: symbols and words to bytes and back ------------------------------------------------------------------------------ */

/* Symbols of all chunks that have some: as bits, or coded with the form byte, to out[chunk] + view.symbols. Sets view.indices to
 * where they end. `scratch` has tg_gpu_pack_scratch bytes, aligned to 256. */
void tg_gpu_pack_symbols(const tg_gpu_pass *p, uint8_t *scratch);

/* pack_leaves.cu: the same for chunks of fixed length, leaf by leaf, with hashes of leaves as tg_gpu_encode_plain has them. */
void tg_gpu_pack_leaves(const tg_gpu_pass *p, uint64_t *hashes, uint32_t leaf_cap);

/* Hashes leaves of bodies of fixed length, chunk first + i of body b to hashes[(b * chunk_n + i) * leaf_cap], ..., and checks their symbols.
 * Damage goes to the verdict, and the hash of a leaf that has some is another. */
void tg_gpu_check_leaves(const tg_gpu_pass *p, const tg_gpu_bodies *bodies, uint64_t *hashes, uint32_t leaf_cap);

/* Words of chunks with coded words, from space.words. */
void tg_gpu_pack_words(const tg_gpu_pass *p, uint8_t *scratch);

/* Bytes of scratch that packing or reading takes if chunks are coded, with up to chunk_n chunks in a pass and element_n elements in
 * all. A host function. */
uint64_t tg_gpu_pack_scratch(uint32_t chunk_n, uint64_t element_n);

/* The name of the unit's symbol pack, if these kernels lack it; else NULL. A host function; the unit is in host memory. */
const char *tg_gpu_pack_lacks(const tg_gpu_unit *unit);

/* Reads symbols, words: from `body` by space.views to space.symbols and space.words, for all chunks with `coded`, and for sparse
 * chunks with bits. Dense bits are only checked here, because tg_gpu_add_dense reads them again. With p->splits, words are not joined.
 * Damage goes to the verdict. */
void tg_gpu_read_symbols(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch);
void tg_gpu_read_words(const tg_gpu_pass *p, const uint8_t *body, uint8_t *scratch);

/* ---- select*.cu, index*.cu: coordinates -------------------------------------------------------------------------------------------- */

/* What selection keeps of a unit between its kernels, and lists of drawn coordinates. */
typedef struct tg_gpu_selection tg_gpu_selection;

/* Sparse routes: coordinates to space.positions, and views of chunks. Gradient + residual there, times the gain: plain values to
 * out[chunk] + view.symbols or to space.words, others to space.values, signs to space.symbols, too. The next residual is complete if
 * values are plain, or signs of bins, else the whole sum for now; velocities are complete. Maxima of bins to `maxima`, those of a unit
 * from units[i].flat_at on (one a bin), and the scales that are their means to space.scales. Indices, unless symbols before them are
 * coded. verdict->again: it must be done again, with more effort (select.h). */
void tg_gpu_select_sparse(const tg_gpu_pass *p, tg_gpu_selection *selection, float *maxima);

/* Explicit indices of all chunks: after the values, or both as one (joint), with the mode, by the rules of index_write of the unit's recipe.
 * Sets mode, index_len, is_joint, is_listed. */
void tg_gpu_write_indices(const tg_gpu_pass *p);

/* Coordinates of sparse chunks to space.positions: explicit ones from `body`, checked; drawn ones from the selection. Joint
 * symbols to space.symbols. */
void tg_gpu_read_indices(const tg_gpu_pass *p, const uint8_t *body, const tg_gpu_selection *selection);

#ifdef __cplusplus
}
#endif
#endif
