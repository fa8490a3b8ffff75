/* Tersegrad: compresses the gradients that workers of a data-parallel training job send to each other.
 *
 * This is the whole public interface. What only tests and studies need is in experimental.h. A gradient goes through one
 * pipeline:
 *
 *     feedback -> select -> quantize -> pack -> frame == exchange == frame -> unpack -> values -> sum
 *
 * A recipe, a line of text such as "ef+topk@0.01+fp16", names the part at each stage.
 *
 * How to read the declarations:
 *   - Arguments: outputs first, then the object, then inputs. A length comes right after its pointer.
 *   - `_len` counts bytes, `_n` counts elements.
 *   - Every function that can fail returns tg_status. Its last argument, `tg_detail *why`, receives one sentence about the
 *     failure; it may be NULL. On failure no output is written and no object changes. The only exception is the content of
 *     a destination buffer, which is then undefined.
 *   - A function that returns tg_status returns TG_E_ARGUMENT if an object, an output or a required input is NULL, or if an
 *     array of more than 0 elements is NULL. Arguments that may be NULL are described as such.
 *   - Other functions accept NULL: they return 0 or NULL, or set their outputs to zeros, and do nothing else. Every `_free`
 *     accepts NULL.
 *   - An object must not be used by two threads at the same time. Different objects are independent. The library keeps no
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

/* The version of the library at run time, such as "0.1.0". The macros above are the version at compile time. */
TG_API const char *tg_version(void);

/* The instruction set in use: "avx512", "avx2", "neon" or "scalar". By default it is the best that the CPU supports. The
 * environment variable TG_SIMD (such as TG_SIMD=avx2) selects a lower one; values that the CPU does not support are ignored. */
TG_API const char *tg_simd(void);

/* ---- status ---------------------------------------------------------------------------------------- */

typedef enum tg_status {
    TG_OK = 0,
    TG_MORE = 1,         /* not a failure: tg_exchange_next has returned an operation to perform */
    TG_E_ARGUMENT = -1,  /* an argument breaks a rule of this header */
    TG_E_RECIPE = -2,    /* the recipe cannot be parsed, or its parts do not go together */
    TG_E_MEMORY = -3,    /* an allocation failed */
    TG_E_SPACE = -4,     /* the destination buffer is smaller than the bound */
    TG_E_NONFINITE = -5, /* a gradient contains NaN or Inf, or a residual would, and the policy is TG_NONFINITE_ERROR */
    TG_E_FRAME = -6,     /* the bytes are not a valid frame */
    TG_E_VERSION = -7,   /* the bytes have a version, or use a part, that this library does not know */
    TG_E_MISMATCH = -8,  /* tensors, recipe, seed, step or slice differ from what was expected */
    TG_E_PEER = -9,      /* another rank failed; the detail has its number and its reason */
    TG_E_LINK = -10,     /* the link lost a rank, timed out or was aborted */
    TG_E_DIVERGED = -11, /* the averaged gradients differ between ranks */
    TG_E_STATE = -12,    /* the bytes are not a valid saved state */
    TG_E_NO_EFFECT = -13 /* the recipe compresses, but the policy exempts every tensor */
} tg_status;

/* A short description of a status; never NULL. */
TG_API const char *tg_status_text(tg_status status);

/* One sentence about a failure, terminated by a zero byte. */
typedef struct tg_detail {
    char text[256];
} tg_detail;

/* ---- memory ---------------------------------------------------------------------------------------- */

/* A memory allocator. `acquire` returns memory aligned for any type, or NULL on failure. `release` accepts NULL. Both may be
 * called from any thread of a codec or an exchange. */
typedef struct tg_allocator {
    void *(*acquire)(void *context, size_t len);
    void (*release)(void *context, void *block);
    void *context;
} tg_allocator;

/* ---- recipes --------------------------------------------------------------------------------------- */

/* A recipe is a list of parts joined by '+'. A part is NAME, NAME@VALUE, NAME@KEY=VALUE,... or NAME@VALUE,KEY=VALUE,...
 * A VALUE without a key sets the part's main parameter. A preset is a name for a whole recipe. */

#define TG_RECIPE_CAP 256 /* bytes that are enough for any canonical text with its terminating zero */

/* Writes the canonical text of `recipe`: parts in the order of the stages, without parts and parameters that are at their
 * defaults, but always with the quantizer. Two recipes mean the same exactly if their canonical texts are equal. */
TG_API tg_status tg_recipe_canonical(char out[TG_RECIPE_CAP], const char *recipe, tg_detail *why) TG_CHECKED;

/* One parameter of a part or of a preset. The texts are static. */
typedef struct tg_parameter_info {
    const char *name;
    const char *summary;
    char range[80];    /* the accepted values, such as "(0, 1]" or "own|shared" */
    char standard[32]; /* the default value; empty if the parameter is required */
    int is_main;       /* 1: this is the main parameter, set by a value without a key */
} tg_parameter_info;

/* A part or a preset. The texts are static. */
typedef struct tg_part_info {
    const char *name;
    const char *stage; /* "feedback", "select", "quantize", "pack (indices)", "pack (symbols)", "preset" */
    const char *summary;
    const char *expansion; /* the recipe of a preset, with '$' in place of its value; NULL for a part */
    uint32_t id;           /* the permanent number of a part in frames; 0 for a preset */
    size_t parameter_n;
} tg_part_info;

/* Lists all parts in the order of the pipeline, then all presets. Call with index 0, 1, ... until TG_E_ARGUMENT. */
TG_API tg_status tg_part_list(tg_part_info *out, size_t index, tg_detail *why) TG_CHECKED;
/* Parameter number `parameter` of the part or preset at `index`. */
TG_API tg_status tg_part_parameter(tg_parameter_info *out, size_t index, size_t parameter, tg_detail *why) TG_CHECKED;

/* ---- tensors --------------------------------------------------------------------------------------- */

typedef enum tg_dtype { TG_FP32 = 0, TG_FP16 = 1, TG_BF16 = 2 } tg_dtype;

typedef enum tg_kind {
    TG_OTHER = 0,
    TG_CONV = 1,
    TG_DENSE = 2,
    TG_RECURRENT = 3,
    TG_EMBEDDING = 4,
    TG_NORM = 5, /* norms and biases are sent uncompressed unless a rule matches them, or ef@small= says otherwise */
    TG_BIAS = 6
} tg_kind;

TG_API const char *tg_dtype_name(tg_dtype dtype); /* such as "fp32"; NULL if the dtype is unknown */
TG_API size_t tg_dtype_len(tg_dtype dtype);       /* bytes of an element, 4 or 2; 0 if the dtype is unknown */
TG_API const char *tg_kind_name(tg_kind kind);    /* such as "conv"; NULL if the kind is unknown */

/* A tensor of the model. The name has 1 to 255 bytes and is unique in the model. There are at most 64 dimensions; a tensor
 * without dimensions has one element. Functions that take a tensor copy the name and the dimensions. */
typedef struct tg_tensor {
    const char *name;
    const uint64_t *dims;
    uint32_t dim_n;
    tg_kind kind;
    tg_dtype dtype;
} tg_tensor;

/* The number of elements of a tensor. */
TG_API tg_status tg_tensor_elements(uint64_t *out, const tg_tensor *tensor, tg_detail *why) TG_CHECKED;

/* Converts n elements of a dtype to fp32, and back. Narrowing rounds to nearest, ties to even; finite values stay finite. */
TG_API void tg_widen(float *out, const void *src, tg_dtype dtype, size_t n);
TG_API void tg_narrow(void *out, const float *src, tg_dtype dtype, size_t n);

/* ---- options --------------------------------------------------------------------------------------- */

/* The policy for NaN and Inf in a gradient, and for finite gradients that are so large that error feedback overflows fp32.
 * Error feedback overflows if gradient plus residual does (or plus velocity, for momentum), or if the new residual does, which
 * is that sum minus the decoded values.
 *
 * A residual is finite after every step, with any policy. `lowrank` multiplies matrices: there a sum counts as an overflow
 * from 2^126 divided by the square root of the matrix's rows on, where the root is rounded up to a power of two.
 *
 * Averages of finite values are finite with any policy and any exchange: where the sum would overflow, the values are scaled
 * down before they are summed. Only the values that LGC decodes from its learned codes may overflow. Then ERROR fails the
 * step on all ranks, ZERO replaces the values by 0, and PASS lets them through. */
typedef enum tg_nonfinite {
    /* Fail the step. The sentence names the tensor and says whether it was NaN or Inf, or an overflow. */
    TG_NONFINITE_ERROR = 0,
    /* Replace NaN and Inf by 0, a sum that overflows by the largest finite value, and a residual or velocity that overflows
     * by 0. */
    TG_NONFINITE_ZERO = 1,
    /* Send NaN and Inf, but never keep them in a residual. Overflows are treated as by ZERO. */
    TG_NONFINITE_PASS = 2
} tg_nonfinite;

/* Tensors whose name matches `pattern` use `recipe`, whatever their kind and size. In a pattern '*' matches any number of
 * characters and '?' exactly one. The first rule that matches is used. */
typedef struct tg_rule {
    const char *pattern;
    const char *recipe;
} tg_rule;

/* Whether a name matches a pattern of tg_rule: 1 or 0. */
TG_API int tg_name_matches(const char *pattern, const char *name);

typedef struct tg_device tg_device; /* a GPU: tg_cuda_open of cuda.h */
/* Options of a codec or an exchange. Initialise with TG_OPTIONS_INIT; zero in any other member is the default. Functions that
 * take options copy them.
 *
 * Later versions of this struct have more members at the end. A struct of an older version, which is shorter, is accepted; its
 * missing members count as zero. A struct of a newer version, which is longer, is accepted if all bytes that this library does
 * not know are zero; otherwise the result is TG_E_ARGUMENT. */
typedef struct tg_options {
    size_t size;                   /* sizeof(tg_options) when the caller was compiled */
    const tg_allocator *allocator; /* NULL: malloc and free */
    const tg_rule *rules;
    size_t rule_n;
    uint64_t seed;        /* a seed that is the same on all ranks; used if has_seed is not 0 */
    uint64_t dense_below; /* tensors with fewer elements are sent uncompressed */
    uint32_t has_seed;    /* 0: no shared seed; each rank then draws its own random coordinates */
    uint32_t threads;     /* number of threads that work on one call; 0 means 1 */
    tg_nonfinite nonfinite;
    /* only for a codec */
    uint32_t rank;     /* rank that is written into frames, and that own random coordinates are drawn for */
    uint32_t describe; /* 1: frames contain a description of the tensors and recipes, which tg_codec_from_frame needs */
    /* only for an exchange */
    /* "allreduce", "gather", "shard", "server", "lowrank", "lgc-ring" or "lgc-server"; NULL: chosen by recipe and world */
    const char *exchange;
    uint64_t verify_every; /* every this many steps, compare a hash of the averages between all ranks; 0: never */
    /* Groups of tensors, for tg_reducer; the same on all ranks. */
    uint64_t group_len; /* bytes of a group, from the last tensor to the first, first ones smaller; 0: one group */
    const uint32_t *group_of; /* instead: the group of each tensor, from 0 without gaps; NULL: by group_len */
    /* Ranks of a host: rank r is on host r / host_size, and the number of ranks is a multiple. They sum in fp32 first; the lowest
     * rank of each host exchanges the mean by the recipe (docs/steps.md). 0 or 1: all ranks do. Not for LGC. */
    uint32_t host_size;
    const tg_device *device; /* NULL: the CPU; else gradients, averages, sums and frames are in its memory */
} tg_options;

#define TG_OPTIONS_INIT                                                                     \
    {                                                                                       \
        sizeof(tg_options), 0, 0, 0, 0, 0, 0, 0, TG_NONFINITE_ERROR, 0, 0, 0, 0, 0, 0, 0, 0 \
    }

/* ---- codec: gradients to a frame and back ------------------------------------------------------------- */

typedef struct tg_codec tg_codec;

/* Creates a codec that compresses the gradients of `tensors` with `recipe`. `opt` may be NULL. All memory is allocated here. */
TG_API tg_status tg_codec_new(tg_codec **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                              const tg_options *opt, tg_detail *why) TG_CHECKED;
TG_API void tg_codec_free(tg_codec *c);

/* The maximum length of a frame in bytes. */
TG_API size_t tg_encode_bound(const tg_codec *c);

/* Encodes the gradients of one step into a frame of *dst_len bytes. grads[t] are the elements of tensor t in its dtype.
 * dst_cap must be at least tg_encode_bound(c). On success the residual is updated. */
TG_API tg_status tg_encode(size_t *dst_len, tg_codec *c, void *dst, size_t dst_cap, uint64_t step,
                           const void *const *grads, tg_detail *why) TG_CHECKED;

/* Decodes a frame and adds `weight` times each value to sums[t], in fp32. The whole frame is validated before anything is
 * added. The time is proportional to the number of entries sent, if each selection spans one tensor. */
TG_API tg_status tg_decode_add(tg_codec *c, float *const *sums, float weight, const void *src, size_t src_len,
                               tg_detail *why) TG_CHECKED;

/* Decodes a frame and writes the gradient of tensor t to out[t], in its dtype. Elements that were not sent are 0. */
TG_API tg_status tg_decode(tg_codec *c, void *const *out, const void *src, size_t src_len, tg_detail *why) TG_CHECKED;

/* The canonical text of the recipe that tensor t uses, after rules and policy. Valid as long as the codec. */
TG_API const char *tg_codec_recipe(const tg_codec *c, size_t tensor);

/* Copies the residual of tensor t to `out`, one float for each element; zeros if its recipe has no feedback. */
TG_API tg_status tg_codec_residual(const tg_codec *c, float *out, size_t tensor, tg_detail *why) TG_CHECKED;

/* The size of one tensor in a frame. Where one selection spans several tensors, each has a share by its elements. */
typedef struct tg_traffic {
    uint64_t len;     /* bytes, including the headers of its chunks */
    uint64_t entries; /* values sent */
    uint64_t bins;    /* bins of the selection; 0 for recipes without bins */
    /* Means over chunks; 0 for recipes that fit no distribution. */
    double shape; /* exponent of the fitted generalised normal distribution; 2: normal */
    double scale; /* the quantizer's scale that follows from the fit */
} tg_traffic;

/* The size of tensor t in the last frame that this codec encoded, decoded or inspected; zeros if there was none. */
TG_API tg_status tg_codec_traffic(tg_traffic *out, const tg_codec *c, size_t tensor, tg_detail *why) TG_CHECKED;

/* ---- frames in files ---------------------------------------------------------------------------------- */

/* Facts about a frame. Its length is header_len + payload_len. */
typedef struct tg_frame_info {
    uint32_t version;
    uint32_t rank;
    uint32_t slice, slices;
    uint64_t step;
    uint64_t payload_len; /* bytes of symbols and indices */
    uint64_t header_len;  /* all other bytes */
    uint64_t index_len;   /* bytes of indices, which are part of payload_len */
    uint64_t entry_n;     /* values sent */
    uint64_t element_n;   /* elements of the tensors in the frame */
    uint64_t checksum;
    uint64_t fingerprint; /* a hash of tensors, recipes and seed */
} tg_frame_info;

/* Creates a codec for a frame that contains its description, and validates the whole frame. `info` may be NULL. `opt` may be
 * NULL; only its allocator and threads are used. */
TG_API tg_status tg_codec_from_frame(tg_codec **out, tg_frame_info *info, const void *src, size_t src_len,
                                     const tg_options *opt, tg_detail *why) TG_CHECKED;

/* Validates a frame of an existing codec and writes the facts about it to *info. */
TG_API tg_status tg_frame_inspect(tg_frame_info *info, tg_codec *c, const void *src, size_t src_len,
                                  tg_detail *why) TG_CHECKED;

/* The number of tensors. */
TG_API size_t tg_codec_tensors(const tg_codec *c);

/* A tensor of the codec. Its name and dimensions are valid as long as the codec. */
TG_API tg_status tg_codec_tensor(tg_tensor *out, const tg_codec *c, size_t tensor, tg_detail *why) TG_CHECKED;

/* ---- exchange: which rank sends what to which rank ------------------------------------------------ */

/* An exchange averages gradients over all ranks. It performs no communication itself: it returns one collective operation
 * after another, and the caller performs them, usually through a tg_link. */
typedef struct tg_exchange tg_exchange;

/* A piece of memory. */
typedef struct tg_span {
    void *data;
    uint64_t len;
} tg_span;

typedef enum tg_op_kind { TG_ALLGATHERV = 0, TG_ALLTOALLV = 1, TG_BROADCAST = 2, TG_GATHERV = 3 } tg_op_kind;

/* One collective operation. On every rank sends[p] is sent to rank p, and recvs[p] receives what rank p sends to this rank.
 * Sender and receiver have the same length. The kind says which pattern the spans follow, so that a library's own collective
 * can be used:
 *     allgatherv   sends[p] is the same span for every p
 *     alltoallv    any spans
 *     broadcast    only the sends of `root` and recvs[root] are not empty; all sends of root are the same span
 *     gatherv      only sends[root] and the recvs of root are not empty
 * A rank sends nothing to itself: sends[rank] and recvs[rank] are always empty. */
typedef struct tg_op {
    tg_op_kind kind;
    uint32_t root;
    uint32_t rank, world;
    const tg_span *sends; /* `world` spans, only read */
    const tg_span *recvs; /* `world` spans, written to */
} tg_op;

/* Bytes that this rank sent and received, in one step or in all. They are counted in the operations that the exchange
 * returns. */
typedef struct tg_meter {
    uint64_t steps;    /* number of successful steps */
    uint64_t logical;  /* bytes of the gradients before compression */
    uint64_t dense;    /* bytes that this rank would send in an all-reduce of the uncompressed gradients */
    uint64_t payload;  /* bytes of symbols and indices sent */
    uint64_t header;   /* all other bytes sent */
    uint64_t received; /* bytes received from other ranks */
    /* Nanoseconds, where tg_reduce or a tg_reducer performs the steps; 0 otherwise. In a step in flight they overlap. */
    uint64_t encode_ns;  /* encoding */
    uint64_t decode_ns;  /* checking, summing and writing averages */
    uint64_t wire_ns;    /* operations under way, at least one */
    uint64_t wait_ns;    /* of a group: ready, but not yet encoded. Of a step: the sum over groups */
    uint64_t exposed_ns; /* of a step: what tg_reduce or tg_reducer_wait took, and the caller could not compute */
    uint64_t between;    /* bytes sent to ranks of other hosts; without host_size every rank counts as a host */
} tg_meter;

/* Creates the exchange of rank `rank` of `world`. All ranks must use the same recipe, tensors and options. `opt` may be NULL. */
TG_API tg_status tg_exchange_new(tg_exchange **out, const char *recipe, const tg_tensor *tensors, size_t tensor_n,
                                 uint32_t rank, uint32_t world, const tg_options *opt, tg_detail *why) TG_CHECKED;
TG_API void tg_exchange_free(tg_exchange *x);

/* Starts a step. grads[t] are the elements of tensor t in its dtype. They must stay valid until the step ends, and are
 * replaced by the averages over all ranks if it succeeds. An error in the data of this rank, such as a NaN, is not returned
 * here: it is sent to all ranks, and tg_exchange_next returns it on every rank. */
TG_API tg_status tg_exchange_begin(tg_exchange *x, uint64_t step, void *const *grads, tg_detail *why) TG_CHECKED;

/* Continues a step.
 *     TG_MORE        perform *op, then call again
 *     TG_OK          the step is done
 *     TG_E_LINK      the bytes received cannot be understood. Other ranks may have a different result; abort the link, as
 *                    tg_reduce does
 *     any other      the step has failed on every rank. Gradients and residuals are as before the step, and the next step may
 *                    begin. (Only with TG_E_DIVERGED are the gradients already replaced.) */
TG_API tg_status tg_exchange_next(tg_exchange *x, tg_op *op, tg_detail *why) TG_CHECKED;

/* Cancels the step in progress, for example because the link has failed. Gradients and residuals do not change. */
TG_API void tg_exchange_cancel(tg_exchange *x);

/* The name of the exchange, such as "allreduce". */
TG_API const char *tg_exchange_name(const tg_exchange *x);
/* The canonical text of the recipe that a tensor uses, after rules and policy. Valid as long as the exchange. */
TG_API const char *tg_exchange_recipe(const tg_exchange *x, size_t tensor);
/* The bytes of the last step and of all steps. Either output may be NULL. */
TG_API void tg_exchange_meter(const tg_exchange *x, tg_meter *last, tg_meter *total);
/* The same for one group, without votes and announced lengths; `logical` and `dense` are those of its tensors. */
TG_API void tg_exchange_group_meter(const tg_exchange *x, size_t group, tg_meter *last, tg_meter *total);

/* The size of tensor t in the frames that this rank encoded from its own gradients in the last step. A frame counts once,
 * whatever the number of ranks that it was sent to. */
TG_API tg_status tg_exchange_traffic(tg_traffic *out, const tg_exchange *x, size_t tensor, tg_detail *why) TG_CHECKED;

/* Copies this rank's residual of a tensor to `out`, as tg_codec_residual does. With host_size, the lowest rank of a host has the
 * host's residual, and the others have zeros. */
TG_API tg_status tg_exchange_residual(const tg_exchange *x, float *out, size_t tensor, tg_detail *why) TG_CHECKED;

/* ---- saved state --------------------------------------------------------------------------------------- */

/* The state of this rank: residuals and the number of the last step. tg_state_len is its size in bytes; dst_cap must be at
 * least that. Not to be called during a step. */
TG_API size_t tg_state_len(const tg_exchange *x);
TG_API tg_status tg_state_save(const tg_exchange *x, void *dst, size_t dst_cap, tg_detail *why) TG_CHECKED;

/* Restores saved state. If the number of ranks is the same, the state of this rank is enough, and later steps give the same
 * bits as without the interruption. If the number of ranks has changed, pass the states of all old ranks. Their residuals are
 * then distributed so that the mean over all ranks stays the same, because that mean is what the model has not received yet.
 * In that case the exchange may be a different one too, unless either is "lowrank" or learns (LGC). Another host_size counts as
 * another number of ranks. */
TG_API tg_status tg_state_load(tg_exchange *x, const tg_span *states, size_t state_n, tg_detail *why) TG_CHECKED;

/* Changes the recipe in the middle of a run. x is a new exchange for the same tensors, rank and world. It takes over the
 * residuals of `from`, including those of owners' answers, and the number of its last step. Every rank must do this between
 * the same two steps. Nothing is sent, and the sum of all residuals over the ranks stays the same.
 *
 * x may not be able to hold the residual of some tensor t: its recipe has no feedback, or its exchange keeps state of another
 * kind. That residual is written to left[t], one float for each element, and the caller must add it to this rank's next
 * gradient. left[t] is zeros if nothing is left. If `left` is NULL, a residual that cannot be held is TG_E_MISMATCH. `from`
 * does not change. */
TG_API tg_status tg_exchange_adopt(float *const *left, tg_exchange *x, const tg_exchange *from,
                                   tg_detail *why) TG_CHECKED;

/* ---- links: how operations are performed --------------------------------------------------------------- */

/* One rank's end of a link. `carry` performs an operation and returns when it is done on this rank. `abort` makes all operations
 * fail at once with `reason` on every other rank. To write a link of your own, fill in these two members and zero the others.
 *
 * The members after sent_len are for several operations at once, each on a channel. On one channel, a rank's nth operation
 * belongs to every other rank's nth operation; different channels are independent. `carry` uses channel 0. */
typedef struct tg_link tg_link;
struct tg_link {
    tg_status (*carry)(tg_link *self, const tg_op *op, tg_detail *why);
    void (*abort)(tg_link *self, const char *reason);
    uint64_t sent_len; /* bytes sent to other ranks, counted by the link itself */

    /* Starts an operation on a channel that has none under way. *op, its spans and their memory must stay as they are until the
     * operation is done or the link has failed. NULL: the link performs one operation at a time, by `carry`. */
    tg_status (*start)(tg_link *self, uint32_t channel, const tg_op *op, tg_detail *why);

    /* TG_OK: the operation on the channel is done on this rank. TG_MORE: it is under way. Any other: the link has failed. */
    tg_status (*test)(tg_link *self, uint32_t channel, tg_detail *why);

    /* From now on the link calls notify(context), from any thread, whenever `test` may return something new; `start` and `test`
     * may then be called from any one thread at a time. It may call it inside `start`, `test` and `abort` of any rank, too: hold no
     * lock there that notify takes. `notify` must not call the link. With notify NULL, the link stops calling before this returns.
     * NULL: call `test` again and again, from the thread that made the link. */
    void (*listen)(tg_link *self, void (*notify)(void *context), void *context);

    uint32_t channel_n; /* channels are 0 to channel_n - 1 */

    /* Ranks of a host, for tg_options.host_size, if all hosts have as many, and ranks are numbered host by host; 0: unknown. */
    uint32_t host_size;
};

/* Checks before the first step that all ranks have the same configuration: version, seed, exchange, names, shapes and recipes
 * of tensors, options, and `facts`, the caller's own lines "name value\n", which may be NULL. All ranks must call it. If a
 * rank differs, it returns TG_E_MISMATCH on all ranks, and the sentence has that rank, the setting and both values. Any other
 * failure is a failure of the link. */
TG_API tg_status tg_handshake(const tg_exchange *x, tg_link *link, const char *facts, tg_detail *why) TG_CHECKED;

/* Performs a whole step: calls tg_exchange_begin, then tg_exchange_next and the link's `carry` until the step is done. */
TG_API tg_status tg_reduce(tg_exchange *x, tg_link *link, uint64_t step, void *const *grads, tg_detail *why) TG_CHECKED;

/* A reducer performs steps while the caller computes. Tensors are in groups (tg_options.group_len). A group is encoded, sent and
 * checked when all its gradients are ready (docs/steps.md). Groups change no bits of averages and residuals. If the link can
 * listen, the reducer has a thread of its own. Otherwise ready, test and wait make progress; without `start`, only wait does. */
typedef struct tg_reducer tg_reducer;

/* Creates a reducer. The exchange and the link must outlive it. Between steps, other functions may use the exchange. */
TG_API tg_status tg_reducer_new(tg_reducer **out, tg_exchange *x, tg_link *link, tg_detail *why) TG_CHECKED;
/* A step that has begun is cancelled, and its link aborted. */
TG_API void tg_reducer_free(tg_reducer *r);

/* Starts a step. The array must stay valid until the step ends; grads[t] is read when tensor t is reported ready. */
TG_API tg_status tg_reducer_begin(tg_reducer *r, uint64_t step, void *const *grads, tg_detail *why) TG_CHECKED;

/* The gradient of a tensor is complete. The caller must not touch it until the step ends. A tensor that is reported twice, or that
 * does not exist, fails the step on all ranks, unless all groups are done; tg_reducer_wait returns why. */
TG_API tg_status tg_reducer_ready(tg_reducer *r, size_t tensor, tg_detail *why) TG_CHECKED;
/* The same for several tensors in one call. */
TG_API tg_status tg_reducer_ready_all(tg_reducer *r, const size_t *tensors, size_t tensor_n, tg_detail *why) TG_CHECKED;

/* TG_OK: tg_reducer_wait would not wait. TG_MORE: it would. */
TG_API tg_status tg_reducer_test(tg_reducer *r, tg_detail *why) TG_CHECKED;

/* Waits until the step has ended, and returns as tg_reduce does. A tensor that is not ready fails the step on all ranks. */
TG_API tg_status tg_reducer_wait(tg_reducer *r, tg_detail *why) TG_CHECKED;

/* The number of groups, and the group of a tensor. Groups are numbered in the order of their gradients. */
TG_API size_t tg_exchange_groups(const tg_exchange *x);
TG_API size_t tg_exchange_group(const tg_exchange *x, size_t tensor);

/* A link between ranks that are threads of this process. An operation that a rank does not start within timeout_ms fails. */
typedef struct tg_threads tg_threads;
TG_API tg_status tg_threads_new(tg_threads **out, uint32_t world, uint32_t timeout_ms, const tg_allocator *allocator,
                                tg_detail *why) TG_CHECKED;
/* The end of one rank; NULL if rank is not below world. */
TG_API tg_link *tg_threads_link(tg_threads *t, uint32_t rank);
TG_API void tg_threads_free(tg_threads *t);

#ifdef __cplusplus
}
#endif

#endif
