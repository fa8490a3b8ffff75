/* The state of a run as bytes: weights, moments, each worker's running statistics and residuals. Everything random is a
 * pure function of seed and step, so nothing else is needed to go on with the same bits.
 *
 *     "TGTR", version u32, hash of the settings u64, steps done u64, bytes so far (dense, payload, header, logical) u64,
 *     traffic of each kind so far (bytes, entries, bins, bytes as papers count) u64, recent losses, the last test, weights, moments, then for each worker its buffers and its exchange's state; XXH64 of all of it
 *
 * An array is its length in bytes as u64, then its bytes. Numbers are little-endian, as the machines are that this runs on. */
#include "team.h"

#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "saved runs are written as they lie in memory, which needs a little-endian machine"
#endif

enum { VERSION = 2, TEXT_CAP = 4096, CHECKSUM_LEN = 8 };

static const char magic[4] = {'T', 'G', 'T', 'R'};

uint64_t tr_hash(const void *bytes, size_t len)
{
    return XXH64(bytes, len, 0);
}

/* ---- what must be the same ------------------------------------------------------------------------------------- */

static uint64_t hash_settings(const tr_settings *s, const tr_data *data)
{
    const tr_optimizer_options *o = &s->optimizer;
    char text[TEXT_CAP];
    int len = snprintf(text, sizeof text,
                       "%s|%s|%zu|%s|%s|%" PRIu64 "|%d|%u|%zu|%" PRIu64 "|%" PRIu64
                       "|%d|%d %a %a %d %a %a %a %a %d %" PRIu64 " %a %" PRIu64,
                       s->model, tr_data_name(data), tr_data_count(data, TR_TRAIN), s->recipe,
                       s->exchange == NULL ? "" : s->exchange, s->dense_below, (int)s->nonfinite, s->workers, s->batch,
                       s->steps, s->seed, s->augment, (int)o->rule, o->rate, o->momentum, o->nesterov, o->beta1,
                       o->beta2, o->epsilon, o->weight_decay, (int)o->decline, o->warmup, o->drop, o->drop_every);
    uint64_t hash = tr_hash(text, len < 0 ? 0 : (size_t)len < sizeof text ? (size_t)len : sizeof text - 1);
    for (size_t i = 0; i < s->rule_n; i++) {
        (void)snprintf(text, sizeof text, "%016" PRIx64 "%s=%s", hash, s->rules[i].pattern, s->rules[i].recipe);
        hash = tr_hash(text, strlen(text));
    }
    return hash;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* With `at` NULL only counts. */
typedef struct writer {
    uint8_t *at;
    size_t len;
} writer;

static void put(writer *w, const void *bytes, size_t len)
{
    if (w->at != NULL) {
        memcpy(w->at + w->len, bytes, len);
    }
    w->len += len;
}

static void put64(writer *w, uint64_t value)
{
    put(w, &value, sizeof value);
}

static void put_floats(writer *w, const float *values, size_t n)
{
    put64(w, n * sizeof *values);
    put(w, values, n * sizeof *values);
}

static int put_exchange(writer *w, const tg_exchange *x, char why[TR_WHY])
{
    size_t len = tg_state_len(x);
    tg_detail reason = {""};
    put64(w, len);
    if (w->at != NULL && tg_state_save(x, w->at + w->len, len, &reason) != TG_OK) {
        (void)snprintf(why, TR_WHY, "%s", reason.text);
        return -1;
    }
    w->len += len;
    return 0;
}

static int put_all(writer *w, const tr_team *t, char why[TR_WHY])
{
    size_t n = 0;
    uint32_t version = VERSION;
    put(w, magic, sizeof magic);
    put(w, &version, sizeof version);
    put64(w, hash_settings(t->settings, t->data));
    put64(w, t->done);
    put64(w, t->total.dense);
    put64(w, t->total.payload);
    put64(w, t->total.header);
    put64(w, t->total.logical);
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        put(w, &t->kinds[kind].sum, sizeof t->kinds[kind].sum);
    }
    put(w, t->recent, sizeof t->recent);
    put64(w, t->test.step);
    put(w, &t->test.loss, sizeof t->test.loss);
    put(w, &t->test.accuracy, sizeof t->test.accuracy);
    const tr_worker *first = &t->workers[0]; /* weights and moments are the same on all */
    const float *values = tr_model_weights(first->model, &n);
    put_floats(w, values, n);
    values = tr_optimizer_state(first->optimizer, &n);
    put_floats(w, values, n);
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        values = tr_model_buffers(t->workers[r].model, &n);
        put_floats(w, values, n);
        if (put_exchange(w, t->workers[r].exchange, why) != 0) {
            return -1;
        }
    }
    return 0;
}

size_t tr_saved_len(const tr_team *t)
{
    writer counting = {NULL, 0};
    char ignored[TR_WHY];
    (void)put_all(&counting, t, ignored);
    return counting.len + CHECKSUM_LEN;
}

int tr_saved_write(uint8_t *dst, size_t dst_len, const tr_team *t, char why[TR_WHY])
{
    writer w = {dst, 0};
    if (put_all(&w, t, why) != 0) {
        return -1;
    }
    uint64_t checksum = tr_hash(dst, dst_len - CHECKSUM_LEN);
    memcpy(dst + w.len, &checksum, sizeof checksum);
    return 0;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const uint8_t *at;
    size_t left;
} reader;

static int refuse(char why[TR_WHY], const char *sentence)
{
    (void)snprintf(why, TR_WHY, "%s", sentence);
    return -1;
}

static int get(reader *r, void *out, size_t len)
{
    if (len > r->left) {
        return -1;
    }
    memcpy(out, r->at, len);
    r->at += len;
    r->left -= len;
    return 0;
}

static uint64_t get64(reader *r)
{
    uint64_t value = 0;
    return get(r, &value, sizeof value) == 0 ? value : 0;
}

/* An array of exactly n floats; with `out` NULL it is only passed by. */
static int get_floats(reader *r, float *out, size_t n)
{
    uint64_t len = get64(r);
    if (len != n * sizeof *out || len > r->left) {
        return -1;
    }
    if (out != NULL) {
        memcpy(out, r->at, (size_t)len);
    }
    r->at += len;
    r->left -= (size_t)len;
    return 0;
}

static int open_saved(reader *r, uint64_t *steps, const tr_settings *s, const tr_data *data, const uint8_t *src,
                      size_t src_len, char why[TR_WHY])
{
    uint32_t version = 0;
    uint64_t checksum = 0;
    if (src_len < 64 || memcmp(src, magic, sizeof magic) != 0) {
        return refuse(why, "it is not a saved run");
    }
    memcpy(&version, src + 4, sizeof version);
    if (version != VERSION) {
        return refuse(why, "it was saved by another version of this program");
    }
    memcpy(&checksum, src + src_len - CHECKSUM_LEN, sizeof checksum);
    if (checksum != tr_hash(src, src_len - CHECKSUM_LEN)) {
        return refuse(why, "it is damaged");
    }
    *r = (reader){src + 8, src_len - 8 - CHECKSUM_LEN};
    if (get64(r) != hash_settings(s, data)) {
        return refuse(why, "it was saved by a run with other settings; give the same flags to go on with it");
    }
    *steps = get64(r);
    return 0;
}

int tr_saved_steps(uint64_t *out, const tr_settings *s, const tr_data *data, const void *saved, size_t saved_len,
                   char why[TR_WHY])
{
    reader r;
    return open_saved(&r, out, s, data, saved, saved_len, why);
}

static int get_worker(reader *r, tr_worker *w, char why[TR_WHY])
{
    size_t n = 0;
    float *buffers = tr_model_buffers(w->model, &n);
    if (get_floats(r, buffers, n) != 0) {
        return refuse(why, "it does not fit the model");
    }
    uint64_t len = get64(r);
    if (len > r->left) {
        return refuse(why, "it does not fit the exchange");
    }
    tg_detail reason = {""};
    tg_span span = {(void *)(uintptr_t)r->at, len}; /* only read */
    if (tg_state_load(w->exchange, &span, 1, &reason) != TG_OK) {
        return refuse(why, reason.text);
    }
    r->at += len;
    r->left -= (size_t)len;
    return 0;
}

/* Weights and moments lie there once, and go to every worker. */
static int get_shared(const reader *from, reader *behind, tr_worker *w, char why[TR_WHY])
{
    size_t weight_n = 0, moment_n = 0;
    float *weights = tr_model_weights(w->model, &weight_n), *moments = tr_optimizer_state(w->optimizer, &moment_n);
    *behind = *from;
    if (get_floats(behind, weights, weight_n) != 0 || get_floats(behind, moments, moment_n) != 0) {
        return refuse(why, "it does not fit the model");
    }
    return 0;
}

int tr_saved_read(tr_team *t, const uint8_t *src, size_t src_len, char why[TR_WHY])
{
    reader r, behind = {NULL, 0};
    if (open_saved(&r, &t->first_step, t->settings, t->data, src, src_len, why) != 0) {
        return -1;
    }
    t->total.dense = get64(&r);
    t->total.payload = get64(&r);
    t->total.header = get64(&r);
    t->total.logical = get64(&r);
    int sound = 1;
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        sound = get(&r, &t->kinds[kind].sum, sizeof t->kinds[kind].sum) == 0 && sound;
    }
    sound = get(&r, t->recent, sizeof t->recent) == 0 && sound;
    t->test.step = get64(&r);
    sound = get(&r, &t->test.loss, sizeof t->test.loss) == 0 &&
            get(&r, &t->test.accuracy, sizeof t->test.accuracy) == 0 && sound;
    if (!sound) {
        return refuse(why, "it is too short");
    }
    for (uint32_t w = 0; w < t->settings->workers; w++) {
        if (get_shared(&r, &behind, &t->workers[w], why) != 0) {
            return -1;
        }
    }
    for (uint32_t w = 0; w < t->settings->workers; w++) {
        if (get_worker(&behind, &t->workers[w], why) != 0) {
            return -1;
        }
    }
    t->done = t->first_step;
    return behind.left == 0 ? 0 : refuse(why, "it has bytes behind its end");
}
