/* gpu_calls.h on the CPU, for tests. Copies must stay inside blocks (memory.h). Work is done when it is put on a stream, or late (late.h). */
#include "exec/cuda/gpu_calls.h"

#include "exec/cuda/emulate/calls.h"
#include "exec/cuda/emulate/late.h"
#include "exec/cuda/emulate/memory.h"
#include "exec/cuda/emulate/stream.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int captures; /* the stream counts as captured */

static void refuse_capture(int is_bad)
{
    if (captures && is_bad) {
        tg_emulated_give_up("a CUDA graph cannot hold this");
    }
}

void tg_emulated_capture(int is_on)
{
    captures = is_on;
}

int tg_gpu_call_is_capturing(void *stream)
{
    (void)stream;
    return captures;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------- */

int tg_gpu_call_find(int ordinal, void *stream, const char **why)
{
    (void)stream;
    *why = "the emulation has one GPU, number 0";
    return ordinal != 0;
}

void tg_gpu_call_name(char *out, size_t cap, int ordinal)
{
    (void)ordinal;
    (void)snprintf(out, cap, "emulated GPU");
}

void tg_gpu_call_enter(int ordinal)
{
    (void)ordinal;
}

int tg_gpu_call_acquire(void **out, uint64_t len, int pinned, const char **why)
{
    refuse_capture(1);
    *out = tg_emulated_take(len, pinned);
    *why = "out of memory";
    return *out == NULL;
}

/* Waits for all that is under way, as CUDA does. */
void tg_gpu_call_release(void *block, int pinned)
{
    tg_emulated_do_all();
    tg_emulated_give_back(block, pinned);
}

/* A copy, or a fill if there is no `from`. */
typedef struct transfer {
    void *to;
    const void *from;
    uint64_t len;
    int byte;
    uint8_t own[]; /* of a copy from pageable memory, whose bytes are taken at once */
} transfer;

static void do_transfer(void *context)
{
    transfer *t = context;
    bool is_fill = t->from == NULL, checks_to = is_fill || tg_emulated_is_device(t->to);
    if ((checks_to && !tg_emulated_has(t->to, t->len)) ||
        (!is_fill && tg_emulated_is_device(t->from) && !tg_emulated_has(t->from, t->len))) {
        tg_emulated_give_up("what is copied or filled is not inside a block");
    }
    tg_emulated_unlock();
    if (is_fill) {
        memset(t->to, t->byte, t->len);
    } else {
        memmove(t->to, t->from, t->len);
    }
    tg_emulated_lock();
    free(t);
}

static void put_transfer(void *to, const void *from, int byte, uint64_t len, int takes, void *stream)
{
    transfer *t = malloc(sizeof *t + (takes ? len : 0));
    if (t == NULL) {
        tg_emulated_give_up("there is no memory for a copy");
        return;
    }
    *t = (transfer){.to = to, .from = takes ? t->own : from, .len = len, .byte = byte};
    if (takes) {
        memcpy(t->own, from, len);
    }
    tg_emulated_put(stream, do_transfer, t);
}

/* Copies to pageable memory are done when the call returns. Those from pageable memory take its bytes at once, unless TG_EMULATED_PAGEABLE is
 * in the environment: CUDA does not promise it. */
void tg_gpu_call_copy(void *to, const void *from, uint64_t len, void *stream)
{
    bool is_to_late = tg_emulated_is_device(to), is_from_late = tg_emulated_is_device(from);
    refuse_capture(!is_to_late || !is_from_late);
    is_to_late = is_to_late || tg_emulated_is_pinned(to);
    is_from_late = is_from_late || tg_emulated_is_pinned(from);
    bool takes = !is_from_late && tg_emulated_is_late() && getenv("TG_EMULATED_PAGEABLE") == NULL;
    put_transfer(to, from, 0, len, takes, stream);
    if (!is_to_late) {
        tg_emulated_do(stream, UINT64_MAX);
    }
}

void tg_gpu_call_fill(void *to, int byte, uint64_t len, void *stream)
{
    put_transfer(to, NULL, byte, len, 0, stream);
}

static _Atomic uint64_t waits;

uint64_t tg_emulated_waits(void)
{
    return waits;
}

int tg_gpu_call_wait(void *stream, const char **why)
{
    waits++;
    refuse_capture(1);
    tg_emulated_do(stream, UINT64_MAX);
    *why = NULL;
    return 0;
}

int tg_gpu_call_overlaps(int ordinal)
{
    (void)ordinal;
    return 0;
}

int tg_gpu_call_processors(int ordinal)
{
    (void)ordinal;
    return 1; /* so that blocks take several tiles even of short frames */
}

int tg_gpu_call_can_use(const void *at, int ordinal)
{
    (void)ordinal;
    return tg_emulated_has(at, 1);
}

/* ---- streams: kernels and copies are done at once, or late (late.h); others may put work on a stream that takes time (stream.h) ----- */

typedef struct emulated_mark {
    void *stream;
    uint64_t late;              /* steps that were put on the stream before the mark */
    tg_emulated_stream *others; /* NULL: nothing else on it takes time */
    uint64_t at;
} emulated_mark;

int tg_gpu_call_new_stream(void **out, const char **why)
{
    tg_emulated_stream *stream = calloc(1, sizeof *stream);
    *out = stream;
    *why = "out of memory";
    if (stream != NULL) {
        stream->magic = TG_EMULATED_STREAM;
    }
    return stream == NULL;
}

void tg_gpu_call_free_stream(void *stream)
{
    tg_emulated_do(stream, UINT64_MAX);
    free(stream);
}

int tg_gpu_call_new_mark(void **out, const char **why)
{
    *out = calloc(1, sizeof(emulated_mark));
    *why = "out of memory";
    return *out == NULL;
}

void tg_gpu_call_free_mark(void *mark)
{
    free(mark);
}

int tg_gpu_call_mark(void *mark, void *stream, const char **why)
{
    emulated_mark *m = mark;
    tg_emulated_stream *s = stream;
    *why = NULL;
    m->stream = stream;
    m->late = tg_emulated_put_n(stream);
    m->others = s != NULL && s->magic == TG_EMULATED_STREAM ? s : NULL;
    m->at = m->others != NULL ? atomic_load(&m->others->put) : 0;
    return 0;
}

int tg_gpu_call_follow(void *stream, void *mark, const char **why)
{
    const emulated_mark *m = mark;
    *why = NULL;
    if (tg_emulated_is_late() && m->late > 0) {
        tg_emulated_follow(stream, m->stream, m->late);
    }
    return 0;
}

int tg_gpu_call_passed(void *mark, const char **why)
{
    const emulated_mark *m = mark;
    *why = NULL;
    if (!tg_emulated_is_done(m->stream, m->late)) {
        tg_emulated_do_one(m->stream); /* by the next time, or a later one */
        return 1;
    }
    return m->others != NULL && atomic_load(&m->others->done) < m->at;
}

int tg_gpu_call_idle(void *stream, const char **why)
{
    *why = NULL;
    if (!tg_emulated_is_done(stream, tg_emulated_put_n(stream))) {
        tg_emulated_do_one(stream);
        return 1;
    }
    return 0;
}

int tg_gpu_call_await(void *mark, const char **why)
{
    const emulated_mark *m = mark;
    waits++;
    refuse_capture(1);
    tg_emulated_do(m->stream, m->late);
    while (tg_gpu_call_passed(mark, why) != 0) {
        sched_yield();
    }
    return 0;
}
