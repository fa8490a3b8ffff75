/* Tersegrad: workers of a data-parallel training job say less to each other and learn the same.
 *
 * The whole public interface; what only tests and studies need is in experimental.h. A gradient flows through one straight pipe,
 *
 *     feedback -> select -> quantize -> pack -> frame == exchange == frame -> unpack -> values -> sum
 *
 * and a recipe, a line of text such as "ef+topk@0.01+fp16", says which part stands at each stage.
 *
 * How to read the declarations:
 *   - Arguments: outputs first, then the object, then inputs; a length right after its pointer.
 *   - `_len` counts bytes, `_n` counts elements.
 *   - Every function that can fail returns tg_status and takes, last, a `tg_detail *why` that receives one
 *     sentence about the failure. `why` may be NULL. On failure no output is written and no object changes,
 *     except for the bytes behind a destination buffer, which are then meaningless.
 *   - NULL for an object, an output or an input that must be given is TG_E_ARGUMENT from every function that returns
 *     tg_status; so is NULL for an array of more than 0 elements. An argument that may be NULL is described as such.
 *     Other functions accept NULL: they return 0 or NULL or set their outputs to zeros, and do nothing else.
 *     Every `_free` accepts NULL.
 *   - One object serves one thread at a time; different objects are independent. The library keeps no
 *     global state, prints nothing and never ends the process.
 */
#ifndef TERSEGRAD_TERSEGRAD_H
#define TERSEGRAD_TERSEGRAD_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define TG_API __attribute__((visibility("default")))
#define TG_CHECKED __attribute__((warn_unused_result))
#else
#define TG_API
#define TG_CHECKED
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TG_VERSION_MAJOR 0
#define TG_VERSION_MINOR 1
#define TG_VERSION_PATCH 0

/* "0.1.0", the version of the library that runs (the macros are the version that was compiled against). */
TG_API const char *tg_version(void);

/* The best instruction set that hot loops use here: "avx512", "avx2", "neon" or "scalar". TG_SIMD=avx2 or =scalar in the environment forbids higher ones. */
TG_API const char *tg_simd(void);

/* ---- status ---------------------------------------------------------------------------------------- */

typedef enum tg_status {
    TG_OK = 0,
    TG_MORE = 1,         /* no failure: tg_exchange_next has handed out an operation to carry out */
    TG_E_ARGUMENT = -1,  /* the caller broke a rule of this header */
    TG_E_RECIPE = -2,    /* the recipe is not understood or makes no sense */
    TG_E_MEMORY = -3,    /* an allocation failed */
    TG_E_SPACE = -4,     /* the destination is smaller than the bound */
    TG_E_NONFINITE = -5, /* a gradient holds NaN or Inf, or a residual would, and the policy is to refuse it */
    TG_E_FRAME = -6,     /* the bytes are not an intact frame */
    TG_E_VERSION = -7,   /* the bytes come from a version or use a part that this library does not know */
    TG_E_MISMATCH = -8,  /* made for other tensors, another recipe, seed, step or slice */
    TG_E_PEER = -9,      /* another rank failed; the detail names it and gives its reason */
    TG_E_LINK = -10,     /* the link lost a rank, timed out or was aborted */
    TG_E_DIVERGED = -11, /* ranks hold different averaged gradients */
    TG_E_STATE = -12,    /* the bytes are not an intact saved state */
    TG_E_NO_EFFECT = -13 /* the recipe compresses, but not one tensor would be compressed */
} tg_status;

/* A few words for a status, never NULL. */
TG_API const char *tg_status_text(tg_status status);

/* One sentence about a failure, always terminated. */
typedef struct tg_detail {
    char text[256];
} tg_detail;

/* ---- memory ---------------------------------------------------------------------------------------- */

/* Where memory comes from. `acquire` returns NULL on failure and memory aligned for any type otherwise;
 * `release` accepts NULL. Both may be called from the threads that a codec was asked to use. */
typedef struct tg_allocator {
    void *(*acquire)(void *context, size_t len);
    void (*release)(void *context, void *block);
    void *context;
} tg_allocator;

/* ---- recipes --------------------------------------------------------------------------------------- */

/* A recipe is parts joined by '+'; a part is NAME, NAME@VALUE, NAME@KEY=VALUE,... or NAME@VALUE,KEY=VALUE,...
 * where a bare VALUE sets the main parameter. A preset stands for a whole recipe. */

#define TG_RECIPE_CAP 256 /* room for any canonical text, its end included */

/* Writes the canonical text of `recipe`: parts in the order of the stages, what is at its default left
 * out, the quantizer always named. Two recipes mean the same exactly if their canonical texts are equal. */
TG_API tg_status tg_recipe_canonical(char out[TG_RECIPE_CAP], const char *recipe, tg_detail *why) TG_CHECKED;

/* One parameter of a part or of a preset; texts live as long as the program. */
typedef struct tg_parameter_info {
    const char *name;
    const char *summary;
    char range[80];    /* such as "(0, 1]" or "shared|own" */
    char standard[32]; /* its value when it is not given; empty if it must be given */
    int is_main;       /* set by a bare value */
} tg_parameter_info;

/* A part, or a preset (stage "preset"). */
typedef struct tg_part_info {
    const char *name;
    const char *stage; /* "feedback", "select", "quantize", "pack (indices)", "pack (symbols)", "preset" */
    const char *summary;
    const char *expansion; /* of a preset: its recipe, '$' where the value goes; NULL for a part */
    uint32_t id;           /* of a part: its permanent number on the wire; 0 for a preset */
    size_t parameter_n;
} tg_part_info;

/* Lists parts in the order of the pipe, then presets: index 0, 1, ... until TG_E_ARGUMENT. */
TG_API tg_status tg_part_list(tg_part_info *out, size_t index, tg_detail *why) TG_CHECKED;
TG_API tg_status tg_part_parameter(tg_parameter_info *out, size_t index, size_t parameter, tg_detail *why) TG_CHECKED;

/* ---- tensors --------------------------------------------------------------------------------------- */

typedef enum tg_dtype { TG_FP32 = 0, TG_FP16 = 1, TG_BF16 = 2 } tg_dtype;

typedef enum tg_kind {
    TG_OTHER = 0,
    TG_CONV = 1,
    TG_DENSE = 2,
    TG_RECURRENT = 3,
    TG_EMBEDDING = 4,
    TG_NORM = 5, /* norms and biases travel uncompressed unless a rule names them */
    TG_BIAS = 6
} tg_kind;

TG_API const char *tg_dtype_name(tg_dtype dtype); /* "fp32"; NULL if there is none such */
TG_API size_t tg_dtype_len(tg_dtype dtype);       /* 4 or 2; 0 if there is none such */
TG_API const char *tg_kind_name(tg_kind kind);    /* "conv"; NULL if there is none such */

/* A tensor of the model. Names are 1 to 255 bytes of text and differ from each other; at most 64
 * dimensions, and none means a single element. Everything is copied by whoever is given it. */
typedef struct tg_tensor {
    const char *name;
    const uint64_t *dims;
    uint32_t dim_n;
    tg_kind kind;
    tg_dtype dtype;
} tg_tensor;

/* Elements in a tensor. */
TG_API tg_status tg_tensor_elements(uint64_t *out, const tg_tensor *tensor, tg_detail *why) TG_CHECKED;

/* n elements of a dtype to fp32, and back: to nearest, ties to even, finite values stay finite. */
TG_API void tg_widen(float *out, const void *src, tg_dtype dtype, size_t n);
TG_API void tg_narrow(void *out, const float *src, tg_dtype dtype, size_t n);

/* ---- options --------------------------------------------------------------------------------------- */

/* What to do with NaN and Inf in a gradient, and with finite gradients that are so large that error feedback overflows fp32:
 * gradient plus residual (or plus velocity, for momentum), or what is left of it when the decoded values are subtracted.
 * A residual is finite after every step, whatever the policy. `lowrank` multiplies: there a sum overflows from 2^126 over the
 * square root of the matrix's rows on, rounded up to a power of two.
 * Averages of finite values are finite by every policy and exchange: where the sum overflows, it is taken of values that are
 * scaled down. Only what LGC decodes from its learned codes may overflow: ERROR refuses that on all ranks, ZERO takes it as 0,
 * PASS lets it through. */
typedef enum tg_nonfinite {
    TG_NONFINITE_ERROR = 0, /* refuse the step and name the tensor; the sentence tells which of the two it was */
    TG_NONFINITE_ZERO = 1,  /* take NaN and Inf as 0; a sum that overflows as the largest finite value, and a residual
                               (or velocity) that does as 0 */
    TG_NONFINITE_PASS = 2   /* let NaN and Inf through; they are never kept in a residual. What overflows: as by ZERO */
} tg_nonfinite;

/* Tensors whose name matches `pattern` ('*' any run, '?' any one character) use `recipe`, whatever their
 * kind and size. The first rule that matches counts. */
typedef struct tg_rule {
    const char *pattern;
    const char *recipe;
} tg_rule;

/* Whether a name matches such a pattern: 1 or 0. */
TG_API int tg_name_matches(const char *pattern, const char *name);

/* Start from TG_OPTIONS_INIT; all else zero is the standard behaviour. Copied by whoever is given it.
 * Later versions of this struct have more members at the end. A struct of an older version, which is shorter, is accepted
 * and its missing members count as zero; one of a newer version, which is longer, is accepted if all bytes that this
 * library does not know are zero, and TG_E_ARGUMENT otherwise. */
typedef struct tg_options {
    size_t size;                   /* sizeof(tg_options) where the caller was compiled */
    const tg_allocator *allocator; /* NULL: malloc and free */
    const tg_rule *rules;
    size_t rule_n;
    uint64_t seed;        /* the seed that all ranks share, if has_seed */
    uint64_t dense_below; /* tensors of fewer elements travel uncompressed */
    uint32_t has_seed;    /* 0: no shared seed; random coordinates are then each rank's own */
    uint32_t threads;     /* threads that share the work of one call; 0 counts as 1 */
    tg_nonfinite nonfinite;
    /* of a codec alone */
    uint32_t rank;     /* whose own random coordinates to draw, and whom frames name as their author */
    uint32_t describe; /* 1: frames carry their description, so that tg_codec_from_frame can read them */
    /* of an exchange alone */
    const char *
        exchange; /* "allreduce", "gather", "shard", "server", "lowrank", "lgc-ring", "lgc-server"; NULL: chosen by recipe, world */
    uint64_t verify_every; /* compare a hash of the averages on all ranks every so many steps; 0: never */
} tg_options;

#define TG_OPTIONS_INIT                                                         \
    {                                                                           \
        sizeof(tg_options), 0, 0, 0, 0, 0, 0, 0, TG_NONFINITE_ERROR, 0, 0, 0, 0 \
    }

/* ---- codec: gradients to a frame and back ------------------------------------------------------------- */

typedef struct tg_codec tg_codec;

/* A codec for the gradients of `tensors` by `recipe`. `opt` may be NULL. All memory is taken here. */
TG_API tg_status tg_codec_new(tg_codec **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                              const tg_options *opt, tg_detail *why) TG_CHECKED;
TG_API void tg_codec_free(tg_codec *c);

/* The largest frame that tg_encode may write. */
TG_API size_t tg_encode_bound(const tg_codec *c);

/* Encodes one step's gradients, grads[t] being tensor t's elements in its dtype, into a frame of *dst_len
 * bytes. dst_cap must be at least tg_encode_bound(c). Updates the residual, on success alone. */
TG_API tg_status tg_encode(size_t *dst_len, tg_codec *c, void *dst, size_t dst_cap, uint64_t step,
                           const void *const *grads, tg_detail *why) TG_CHECKED;

/* Adds weight times each decoded value to sums[t], in fp32. The frame is checked whole before anything is
 * added. Costs work in proportion to the entries that were sent where a selection spans one tensor. */
TG_API tg_status tg_decode_add(tg_codec *c, float *const *sums, float weight, const void *src, size_t src_len,
                               tg_detail *why) TG_CHECKED;

/* Writes the decoded gradient of tensor t into out[t], in its dtype; entries that were not sent are 0. */
TG_API tg_status tg_decode(tg_codec *c, void *const *out, const void *src, size_t src_len, tg_detail *why) TG_CHECKED;

/* The canonical recipe that tensor t travels by, after rules and policy; valid as long as the codec. */
TG_API const char *tg_codec_recipe(const tg_codec *c, size_t tensor);

/* Copies the residual of tensor t to out (its number of elements); zeros where there is no feedback. */
TG_API tg_status tg_codec_residual(const tg_codec *c, float *out, size_t tensor, tg_detail *why) TG_CHECKED;

/* What one tensor took in a frame. Where one selection spans several tensors, its share by elements. */
typedef struct tg_traffic {
    uint64_t len;       /* bytes, the headers of its chunks included */
    uint64_t entries;   /* values sent */
    uint64_t bins;      /* bins that they were chosen in; 0 for recipes without bins */
    double shape;       /* exponent of the generalised normal that was fitted to it (2: a normal one), ... */
    double scale;       /* ... and the scale that follows, both as means over chunks; 0 for recipes that fit none */
} tg_traffic;

/* What tensor t took in the last frame that this codec has encoded, decoded or inspected; zeros before there was one. */
TG_API tg_status tg_codec_traffic(tg_traffic *out, const tg_codec *c, size_t tensor, tg_detail *why) TG_CHECKED;

/* ---- frames in files ---------------------------------------------------------------------------------- */

/* What a described frame says of itself. Sizes in bytes; header_len + payload_len is the frame's length. */
typedef struct tg_frame_info {
    uint32_t version;
    uint32_t rank;
    uint32_t slice, slices;
    uint64_t step;
    uint64_t payload_len; /* symbols and indices */
    uint64_t header_len;  /* all the rest */
    uint64_t index_len;   /* the indices' part of payload_len */
    uint64_t entry_n;     /* values sent */
    uint64_t element_n;   /* elements that the frame stands for */
    uint64_t checksum;
    uint64_t fingerprint; /* of tensors, recipes and seed */
} tg_frame_info;

/* Makes a codec from a described frame, with no need to know how it was made, and checks the frame whole.
 * `info` may be NULL. Of `opt`, the allocator and threads are used. */
TG_API tg_status tg_codec_from_frame(tg_codec **out, tg_frame_info *info, const void *src, size_t src_len,
                                     const tg_options *opt, tg_detail *why) TG_CHECKED;

/* The same facts of a frame for a codec that is there already. */
TG_API tg_status tg_frame_inspect(tg_frame_info *info, tg_codec *c, const void *src, size_t src_len,
                                  tg_detail *why) TG_CHECKED;

TG_API size_t tg_codec_tensors(const tg_codec *c);

/* Tensor t as the codec knows it; valid as long as the codec. */
TG_API tg_status tg_codec_tensor(tg_tensor *out, const tg_codec *c, size_t tensor, tg_detail *why) TG_CHECKED;

/* ---- exchange: who sends what to whom, without doing it ------------------------------------------------ */

typedef struct tg_exchange tg_exchange;

typedef struct tg_span {
    void *data;
    uint64_t len;
} tg_span;

typedef enum tg_op_kind { TG_ALLGATHERV = 0, TG_ALLTOALLV = 1, TG_BROADCAST = 2, TG_GATHERV = 3 } tg_op_kind;

/* One collective operation. On every rank sends[p] goes to rank p and what rank p sent here lands in
 * recvs[p]; both ends agree on lengths. The kind only says which pattern the spans follow, so that an
 * engine may use its own collective:
 *     allgatherv   sends[p] is the same span for every p
 *     alltoallv    any
 *     broadcast    only sends of `root` and recvs[root] are not empty, all sends of root the same span
 *     gatherv      only sends[root] and recvs of root are not empty
 * What a rank would say to itself never travels: sends[rank] and recvs[rank] are always empty. */
typedef struct tg_op {
    tg_op_kind kind;
    uint32_t root;
    uint32_t rank, world;
    const tg_span *sends; /* world of them; only read */
    const tg_span *recvs; /* world of them; written through */
} tg_op;

/* Bytes of one step or of all, as this rank sends them to others and they to it; counted where they are handed out. */
typedef struct tg_meter {
    uint64_t steps;    /* that succeeded */
    uint64_t logical;  /* bytes of gradient that entered the pipe */
    uint64_t dense;    /* bytes that this rank would send to all-reduce the same gradients uncompressed */
    uint64_t payload;  /* symbols and indices handed to the link */
    uint64_t header;   /* all else handed to the link */
    uint64_t received; /* what others handed to their links for this rank */
} tg_meter;

/* An exchange for rank `rank` of `world`. All ranks must be given the same recipe, tensors and options. */
TG_API tg_status tg_exchange_new(tg_exchange **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                                 uint32_t rank, uint32_t world, const tg_options *opt, tg_detail *why) TG_CHECKED;
TG_API void tg_exchange_free(tg_exchange *x);

/* Starts a step. grads[t] are tensor t's elements in its dtype; they must stay in place until the step ends
 * and are replaced by the averages over all ranks when it succeeds. All else that goes wrong on this rank
 * (a NaN, say) is told to the others and comes back from tg_exchange_next on every rank. */
TG_API tg_status tg_exchange_begin(tg_exchange *x, uint64_t step, void *const *grads, tg_detail *why) TG_CHECKED;

/* TG_MORE: carry out *op, then call again. TG_OK: the step is done. Anything else but TG_E_LINK: the step has
 * failed on every rank, gradients and residuals are as they were before it, and the next step may begin.
 * (Only when ranks have DIVERGED are the gradients already replaced.) TG_E_LINK: what came over the link cannot
 * be understood, and other ranks may see it otherwise; give the link up, as tg_reduce does. */
TG_API tg_status tg_exchange_next(tg_exchange *x, tg_op *op, tg_detail *why) TG_CHECKED;

/* Gives up the step in progress, as when the link has failed; nothing changes. */
TG_API void tg_exchange_cancel(tg_exchange *x);

TG_API const char *tg_exchange_name(const tg_exchange *x);
TG_API const char *tg_exchange_recipe(const tg_exchange *x, size_t tensor);
TG_API void tg_exchange_meter(const tg_exchange *x, tg_meter *last, tg_meter *total);

/* What tensor t took in the frames that this rank made of its own gradients in the last step: once, however many peers
 * they went to. */
TG_API tg_status tg_exchange_traffic(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why) TG_CHECKED;

/* The residual of this rank's tensor t, as tg_codec_residual. */
TG_API tg_status tg_exchange_residual(const tg_exchange *x, float *out, size_t tensor, tg_detail *why) TG_CHECKED;

/* ---- saved state --------------------------------------------------------------------------------------- */

/* The size of the state of this rank, and the state itself: residuals and the last step. Between steps. */
TG_API size_t tg_state_len(const tg_exchange *x);
TG_API tg_status tg_state_save(const tg_exchange *x, void *dst, size_t dst_cap, tg_detail *why) TG_CHECKED;

/* Restores state. With the same world the state of this rank is enough, and what follows is the same to the
 * bit. With another world give the states of all old ranks: residuals are then shared out so that their
 * mean over the ranks, which is what the model still has to receive, stays the same; the exchange may be another
 * one then, too, where neither is "lowrank" or learns. */
TG_API tg_status tg_state_load(tg_exchange *x, const tg_span *states, size_t state_n, tg_detail *why) TG_CHECKED;

/* Another recipe in the middle of a run. x, which is new and for the same tensors, rank and world, takes over what `from`
 * still owes the model, residuals and what owners keep of their answers, and its last step. Every rank does so between the
 * same two steps; nothing travels, and over the ranks together what is owed stays the same. Tensor by tensor, what x has no
 * memory for (its recipe has no feedback, or its exchange remembers in a way of its own) goes to left[t], as many floats as
 * the tensor has elements, zeros if there is nothing: the caller adds it to this rank's next gradient. With `left` NULL
 * that is TG_E_MISMATCH instead. `from` stays as it is. */
TG_API tg_status tg_exchange_adopt(float *const *left, tg_exchange *x, const tg_exchange *from,
                                   tg_detail *why) TG_CHECKED;

/* ---- links: those who carry operations out --------------------------------------------------------------- */

/* One rank's end of a link. `carry` returns when the operation is done on this rank. `abort` makes every
 * other rank's carry fail at once with `reason`. A link of your own fills in these members. */
typedef struct tg_link tg_link;
struct tg_link {
    tg_status (*carry)(tg_link *self, const tg_op *op, tg_detail *why);
    void (*abort)(tg_link *self, const char *reason);
    uint64_t sent_len; /* bytes that this rank's end has carried to others, by the link's own count */
};

/* Compares what all ranks were set up with, before the first step: version, seed, exchange, names, shapes and recipes of
 * tensors, options, and lines "name value\n" of the caller's own (`facts`, may be NULL). All ranks call it. TG_E_MISMATCH, on
 * all of them: one was set up otherwise, and the sentence names it and both values. Otherwise a failure is one of the link. */
TG_API tg_status tg_handshake(const tg_exchange *x, tg_link *link, const char *facts, tg_detail *why) TG_CHECKED;

/* A whole step: begin, then next and carry until it is done. */
TG_API tg_status tg_reduce(tg_exchange *x, tg_link *link, uint64_t step, void *const *grads, tg_detail *why) TG_CHECKED;

/* N ranks that are threads of this process. A rank that does not come to an operation within timeout_ms
 * fails it for all with a sentence that names it. */
typedef struct tg_threads tg_threads;
TG_API tg_status tg_threads_new(tg_threads **out, uint32_t world, uint32_t timeout_ms, const tg_allocator *allocator,
                                tg_detail *why) TG_CHECKED;
TG_API tg_link *tg_threads_link(tg_threads *t, uint32_t rank); /* NULL if rank is not of this world */
TG_API void tg_threads_free(tg_threads *t);

#ifdef __cplusplus
}
#endif

#endif
