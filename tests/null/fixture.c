/* Makes one of everything that the public header knows. */
#include "null/fixture.h"

#include <stdlib.h>
#include <string.h>

static void *take(void *context, size_t len)
{
    (void)context;
    return malloc(len);
}

static void give(void *context, void *block)
{
    (void)context;
    free(block);
}

static tg_status pass_on(void *context, tg_op_kind kind, uint32_t from, uint32_t to, void *data, uint64_t len)
{
    (void)context, (void)kind, (void)from, (void)to, (void)data, (void)len;
    return TG_OK;
}

static void ignore_work(void *context, size_t group, const tg_work *work)
{
    (void)context, (void)group, (void)work;
}

static void ignore_op(void *context, size_t group, tg_talk talk, const tg_op *op)
{
    (void)context, (void)group, (void)talk, (void)op;
}

static size_t part_with_parameters(void)
{
    size_t index = 0;
    for (tg_part_info info = {0}; info.parameter_n == 0; index++) {
        MUST(tg_part_list(&info, index, why));
    }
    return index - 1;
}

int fixture_begin(void **state)
{
    fixture *f = test_room(sizeof *f);
    *f = (fixture){.dims = {FIXTURE_N},
                   .options = TG_OPTIONS_INIT,
                   .allocator = {take, give, NULL},
                   .tap = {pass_on, NULL},
                   .visitor = {ignore_work, ignore_op, NULL},
                   .part = part_with_parameters()};
    for (int i = 0; i < FIXTURE_N; i++) {
        f->grad[i] = (float)i;
    }
    f->tensor = (tg_tensor){"weight", f->dims, 1, TG_DENSE, TG_FP32};
    f->options.describe = 1;
    f->outer = (tg_outer){0.7f, 0.9f};
    f->rows[0] = f->grad;
    f->all[0] = f->rows;
    f->sums[0] = f->sum;
    MUST(tg_schedule_read(&f->schedule, "2", why));
    MUST(tg_codec_new(&f->codec, "ef+topk@0.1", &f->tensor, 1, &f->options, why));
    f->frame_cap = tg_encode_bound(f->codec);
    f->frame = test_room(f->frame_cap);
    f->made_frame = test_room(f->frame_cap);
    MUST(tg_encode(&f->frame_len, f->codec, f->frame, f->frame_cap, 0, (const void *const *)f->rows, why));
    MUST(tg_exchange_new(&f->exchange, "ef+topk@0.1", &f->tensor, 1, 0, 1, NULL, why));
    MUST(tg_exchange_new(&f->other, "ef+topk@0.1", &f->tensor, 1, 0, 1, NULL, why));
    MUST(tg_scatter_new(&f->scattered, "fp16", &f->tensor, 1, 0, 1, NULL, why));
    f->state_len = tg_state_len(f->exchange);
    f->state = test_room(f->state_len);
    MUST(tg_state_save(f->exchange, f->state, f->state_len, why));
    f->span = (tg_span){f->state, f->state_len};
    MUST(tg_threads_new(&f->threads, 1, 1000, NULL, why));
    MUST(tg_exchange_new(&f->reduced, "ef+topk@0.1", &f->tensor, 1, 0, 1, NULL, why));
    MUST(tg_reducer_new(&f->reducer, f->reduced, tg_threads_link(f->threads, 0), why));
    fixture_begin_mpi(f);
    *state = f;
    return 0;
}

int fixture_end(void **state)
{
    fixture *f = *state;
    fixture_end_mpi(f);
    tg_reducer_free(f->made.reducer);
    tg_reducer_free(f->reducer);
    tg_exchange_free(f->reduced);
    tg_threads_free(f->made.threads);
    tg_exchange_free(f->made.exchange);
    tg_codec_free(f->made.codec);
    tg_threads_free(f->threads);
    tg_exchange_free(f->scattered);
    tg_exchange_free(f->other);
    tg_exchange_free(f->exchange);
    tg_codec_free(f->codec);
    free(f->state);
    free(f->made_frame);
    free(f->frame);
    free(f);
    return 0;
}
