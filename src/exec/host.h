/* The host executor's inside: threads over chunks, kernels by instruction set. */
#ifndef TG_EXEC_HOST_H
#define TG_EXEC_HOST_H

#include "base/pool.h"
#include "exec/exec.h"

/* A chunk that was encoded. */
typedef struct tg_written {
    uint8_t *bytes; /* where it is */
    tg_encoded as;
} tg_written;

/* What a run and the runs that share with it use in turns. */
/* The step whose coordinates are drawn, if any are. */
typedef struct tg_drawn {
    uint64_t step;
    bool is_drawn;
} tg_drawn;

/* Coordinates of chunks that were written or checked, a bit an element, in several places. */
typedef struct tg_kept {
    uint64_t *words, word_n; /* of each place */
    uint64_t *at;            /* of each chunk of the grid: its first word */
    uint32_t places;
} tg_kept;

typedef struct tg_workspace {
    tg_pool *pool;
    uint32_t workers;    /* threads of the pool */
    tg_scratch *scratch; /* one a worker */
    void *spaces;        /* of scratch->chunk */
    tg_written *written; /* one a chunk of the grid */
    uint32_t *known_n;   /* coordinates in a chunk that are known without a frame */
    tg_kept kept;
    uint64_t step;   /* that is encoded or decoded */
    tg_drawn *drawn; /* of each group */
} tg_workspace;

/* The measuring pass of one unit, one lane. */
typedef struct tg_lane_job {
    uint32_t unit, lane;
    size_t bad_tensor;
} tg_lane_job;

struct tg_run {
    const tg_plan *plan;
    tg_allocator allocator;
    tg_run *parent; /* whose workspace this is, and whose coordinates are used; NULL: its own */
    tg_workspace *work;
    tg_unit_work *units;
    tg_unit_stats *stats;
    tg_residuals residuals;
    tg_lane_job *lane_jobs; /* in the order of groups: those of group g begin at lane_first[g] */
    size_t *lane_first;
    bool only_decodes;
};

extern const tg_route *const tg_host_routes[TG_ROUTE_N];

/* Where the coordinates of a chunk are kept in a place. NULL: nowhere. */
uint64_t *tg_host_kept(const tg_run *run, const tg_plan *plan, const tg_chunk *chunk, uint32_t place);

/* Prefetches the start of what the select part keeps of a unit. It is too far from that of the next unit for hardware to do so. */
static inline void tg_host_prefetch_select(const tg_unit_work *w)
{
    enum { LINES = 3 };
    for (size_t i = 0; w->select != NULL && i < LINES; i++) {
        __builtin_prefetch((const char *)w->select + 64 * i, 1);
    }
}

/* Refuses a step because of a tensor, plus 1, with NaN or Inf. */
tg_status tg_host_refuse(const tg_run *run, size_t bad_tensor, const tg_source *source, tg_detail *why) TG_CHECKED;

tg_status tg_host_open(tg_run **out, const tg_plan *plan, const tg_run_options *opt, const tg_allocator *a,
                       tg_detail *why) TG_CHECKED;
void tg_host_close(tg_run *run);
tg_status tg_host_select(tg_run *run, uint32_t group, uint64_t step, const tg_source *source,
                         tg_detail *why) TG_CHECKED;
void tg_host_clip(tg_run *run, uint32_t group, const tg_source *source);
void tg_host_draw(tg_run *run, uint32_t group, uint64_t step);
void tg_host_follow(tg_run *run, const tg_plan *plan, uint32_t group, const tg_body_view *body);
bool tg_host_length(uint64_t *len, tg_run *run, uint32_t cell, uint64_t step);
tg_status tg_host_write(tg_body *bodies, tg_run *run, const tg_plan *plan, uint32_t from, uint32_t to,
                        const tg_source *source, tg_detail *why) TG_CHECKED;
void tg_host_seal(tg_run *run, const tg_plan *plan, uint32_t cell, const tg_body *body, uint8_t *frame,
                  const uint8_t *front, size_t front_len);
tg_status tg_host_find(tg_body_view *view, tg_run *run, const tg_plan *plan, uint32_t slice, size_t len,
                       tg_detail *why) TG_CHECKED;
tg_status tg_host_check(tg_body_view *view, uint64_t *hashes, tg_run *run, const tg_plan *plan, uint32_t slice,
                        size_t len, tg_detail *why) TG_CHECKED;
void tg_host_recall(tg_body_view *view, tg_run *run, uint32_t cell);
void tg_host_sum(tg_run *run, uint32_t slice, const tg_body_view *bodies, size_t body_n, const tg_sink *sink);
bool tg_host_sum_unchecked(tg_run *run, uint32_t slice, const tg_body_view *bodies, size_t body_n,
                           const tg_sink *sink) TG_CHECKED;
void tg_host_copy(tg_run *run, uint32_t group, void *const *to, void *const *from);

extern const struct tg_lowrank_passes tg_host_lowrank;
extern const struct tg_lgc_passes tg_host_lgc_passes;

/* The hash of a chunk, and of the headers of all, as a little-endian word. */
uint64_t tg_host_hash_chunk(const uint8_t *body, const tg_view *view);
uint64_t tg_host_hash_headers(const uint8_t *body, const tg_plan *plan, uint32_t cell);

/* Adds a chunk that was written or read to the statistics. */
void tg_host_note_chunk(tg_run *run, uint32_t unit, const tg_view *view, const uint8_t *chunk);

/* About how many nanoseconds one thread takes to check or to add the values of some chunks. */
uint64_t tg_host_time(const tg_plan *plan, const tg_chunk *chunks, const tg_view *views, size_t n);

#endif
