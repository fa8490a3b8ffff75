/* Any bytes as saved states: a refused load changes nothing; an accepted one restores the saved state, or the mean over the ranks of
 * another world.
 *
 * The input: rank that loads, repairs, number of states (a byte each); for each state its length (two bytes) and it. */
#include "base/bytes.h"
#include "base/half.h"
#include "kernels/hash.h"
#include "support.h"
#include "worlds.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { STATE_MAX = 3, HEADER_LEN = 72, CHECKSUM_LEN = 8 };
enum { REPAIR_MODEL = 1, REPAIR_CHECKSUM = 2 };

/* Repairs what a fuzzer cannot guess, so that the rest of a state is reached. */
static void repair(const tg_span *state, const fuzz_rank *rank, unsigned repairs)
{
    uint8_t *bytes = state->data;
    if (state->len < HEADER_LEN + CHECKSUM_LEN) {
        return;
    }
    if ((repairs & REPAIR_MODEL) != 0) {
        memcpy(bytes, rank->saved, 5);         /* magic and version */
        memcpy(bytes + 8, rank->saved + 8, 8); /* fingerprint */
    }
    if ((repairs & REPAIR_CHECKSUM) != 0) {
        size_t at = (size_t)state->len - CHECKSUM_LEN;
        tg_put64(bytes + at, tg_hash(bytes, at));
    }
}

static void reset(const fuzz_rank *rank)
{
    tg_span saved = {rank->saved, rank->saved_len};
    PROMISE(tg_state_load(rank->exchange, &saved, 1, NULL) == TG_OK, "a state that was saved can be loaded");
}

static bool is_same(const uint8_t *state, size_t len, const tg_span *span)
{
    return span->len == len && memcmp(span->data, state, len) == 0;
}

static float residual(const uint8_t *state, uint64_t i)
{
    return tg_bits_float(tg_get32(state + HEADER_LEN + 4 * i));
}

/* Whether owners of another exchange had residuals, which are now part of the ranks' residuals. */
static bool holds_answers(const uint8_t *state, const tg_span *spans, size_t span_n)
{
    bool holds = false;
    for (size_t s = 0; s < span_n; s++) {
        const uint8_t *from = spans[s].data;
        holds = holds || (tg_get64(from + 56) > 0 && memcmp(from + 24, state + 24, 16) != 0);
    }
    return holds;
}

/* Every rank of a new world starts with the mean residual of the old one. */
static void check_shared_out(const uint8_t *state, const tg_span *spans, size_t span_n)
{
    uint64_t n = holds_answers(state, spans, span_n) ? 0 : tg_get64(state + 48);
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0;
        for (size_t s = 0; s < span_n; s++) {
            sum += (double)residual(spans[s].data, i);
        }
        float mean = (float)(sum / (double)span_n), got = residual(state, i);
        PROMISE(got == mean || (isnan(got) && isnan(mean)), "the mean of the residuals is kept");
    }
}

static void check_accepted(const fuzz_rank *rank, const uint8_t *state, const tg_span *spans, size_t span_n)
{
    if (tg_get32((const uint8_t *)spans[0].data + 20) == rank->world) {
        bool found = false;
        for (size_t s = 0; s < span_n; s++) {
            found = found || is_same(state, rank->saved_len, &spans[s]);
        }
        PROMISE(found, "what was loaded is what is saved, to the byte");
    } else {
        check_shared_out(state, spans, span_n);
    }
    if (rank->world == 1) { /* whatever the residuals, a step succeeds or fails with an error */
        tg_detail why;
        memset(&why, 'x', sizeof why);
        if (fuzz_step_alone(rank, 1000, &why) != TG_OK) {
            fuzz_check_sentence(why.text, sizeof why.text);
        }
    }
}

static void load_and_check(const fuzz_rank *rank, const tg_span *spans, size_t span_n)
{
    tg_detail why;
    memset(&why, 'x', sizeof why);
    reset(rank);
    tg_status status = tg_state_load(rank->exchange, spans, span_n, &why);
    PROMISE(tg_state_len(rank->exchange) == rank->saved_len, "loading does not change the size of a state");
    uint8_t *state = fuzz_room(rank->saved_len, 0);
    PROMISE(tg_state_save(rank->exchange, state, rank->saved_len, NULL) == TG_OK, "a state can be saved");
    if (status == TG_OK) {
        check_accepted(rank, state, spans, span_n);
    } else {
        PROMISE(memcmp(state, rank->saved, rank->saved_len) == 0, "a load that is refused changes nothing");
        fuzz_check_sentence(why.text, sizeof why.text);
    }
    free(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    fuzz_input input = {data, len};
    const fuzz_rank *rank = &fuzz_ranks()[fuzz_take8(&input) % FUZZ_RANK_N];
    unsigned repairs = fuzz_take8(&input);
    size_t span_n = fuzz_take8(&input) % (STATE_MAX + 1);
    tg_span spans[STATE_MAX];
    for (size_t s = 0; s < span_n; s++) {
        size_t state_len = fuzz_take16(&input);
        spans[s].data = fuzz_take_bytes(&input, &state_len);
        spans[s].len = state_len;
        repair(&spans[s], rank, repairs);
    }
    load_and_check(rank, spans, span_n);
    for (size_t s = 0; s < span_n; s++) {
        free(spans[s].data);
    }
    return 0;
}
