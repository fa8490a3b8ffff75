/* A checkpoint: weights, moments, each worker's running statistics and residuals. All randomness is a pure function of seed and
 * step, so that a resumed run computes the same bits without any other state. With local steps, every worker has weights and moments
 * of its own; common are the weights with which the round has begun, and the velocity of the outer step.
 *
 *     "TGTR", u32 version, settings as text, u64 steps done
 *     u64 bytes so far: dense, payload, header, logical, received; u64 steps of all workers, u64 exchanges
 *     u64 traffic of each kind so far: bytes, entries, bins, bytes as papers count
 *     recent losses, the last test
 *     weights, moments; or, with local steps, the round's first weights, the outer velocity (or nothing)
 *     for each worker: its buffers, its exchange's state, and with local steps its weights and moments
 *     XXH64 of all of it
 *
 * An array or a text is its length in bytes as u64, then its bytes. Numbers are little-endian. Threads and processes write the same
 * checkpoints, and can resume from each other's. */
#include "hash.h"
#include "local.h"
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "checkpoints are written in the machine's byte order, which must be little-endian"
#endif

enum { VERSION = 6, CHECKSUM_LEN = 8 };

static const char magic[4] = {'T', 'G', 'T', 'R'};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Appends bytes at `at`; with `at` NULL it only counts them. */
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
    if (n > 0) {
        put(w, values, n * sizeof *values);
    }
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

/* A worker's own part. */
static int put_worker(writer *part, const tr_worker *w, char why[TR_WHY])
{
    size_t n = 0;
    const float *values = tr_model_buffers(w->model, &n);
    put_floats(part, values, n);
    if (put_exchange(part, w->exchange, why) != 0) {
        return -1;
    }
    if (w->start != NULL) {
        values = tr_model_weights(w->model, &n);
        put_floats(part, values, n);
        values = tr_optimizer_state(w->optimizer, &n);
        put_floats(part, values, n);
    }
    return 0;
}

int tr_saved_worker(tr_worker *w, char why[TR_WHY])
{
    writer counting = {NULL, 0};
    (void)put_worker(&counting, w, why); /* only what is written can fail */
    size_t len = counting.len;
    if (len != w->saved_len) {
        free(w->saved);
        w->saved = malloc(len);
        w->saved_len = w->saved == NULL ? 0 : len;
    }
    if (w->saved == NULL) {
        (void)snprintf(why, TR_WHY, "there is not enough memory to save the run");
        return -1;
    }
    writer part = {w->saved, 0};
    return put_worker(&part, w, why);
}

/* What all workers have in common. */
static void shared_arrays(float **weights, size_t *weight_n, float **moments, size_t *moment_n, const tr_worker *w)
{
    *weights = tr_model_weights(w->model, weight_n);
    if (w->start != NULL) {
        *weights = w->start;
        *moments = w->velocity;
        *moment_n = w->velocity != NULL ? *weight_n : 0;
    } else {
        *moments = tr_optimizer_state(w->optimizer, moment_n);
    }
}

static void put_all(writer *w, const tr_team *t)
{
    float *weights = NULL, *moments = NULL;
    size_t weight_n = 0, moment_n = 0;
    uint32_t version = VERSION;
    char text[TR_SETTINGS_CAP];
    tr_settings_text(text, t->settings, t->data);
    put(w, magic, sizeof magic);
    put(w, &version, sizeof version);
    put64(w, strlen(text));
    put(w, text, strlen(text));
    put64(w, t->done);
    put64(w, t->total.dense);
    put64(w, t->total.payload);
    put64(w, t->total.header);
    put64(w, t->total.logical);
    put64(w, t->total.received);
    put64(w, t->total.steps);
    put64(w, t->exchanges);
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        put(w, &t->kinds[kind].sum, sizeof t->kinds[kind].sum);
        put(w, &t->kinds[kind].paper_len, sizeof t->kinds[kind].paper_len);
    }
    put(w, t->recent, sizeof t->recent);
    put64(w, t->test.step);
    put(w, &t->test.loss, sizeof t->test.loss);
    put(w, &t->test.accuracy, sizeof t->test.accuracy);
    shared_arrays(&weights, &weight_n, &moments, &moment_n, &t->workers[0]);
    put_floats(w, weights, weight_n);
    put_floats(w, moments, moment_n);
    for (uint32_t r = 0; r < t->settings->workers; r++) {
        put(w, t->parts[r].data, (size_t)t->parts[r].len);
    }
}

size_t tr_saved_len(const tr_team *t)
{
    writer counting = {NULL, 0};
    put_all(&counting, t);
    return counting.len + CHECKSUM_LEN;
}

void tr_saved_write(uint8_t *dst, size_t dst_len, const tr_team *t)
{
    writer w = {dst, 0};
    put_all(&w, t);
    uint64_t checksum = tr_hash(0, dst, dst_len - CHECKSUM_LEN);
    memcpy(dst + w.len, &checksum, sizeof checksum);
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

/* Reads an array of exactly n floats; with `out` NULL it is skipped. */
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

/* Validates a checkpoint and reads its settings and number of steps. The reader is then after the number of steps. */
static int open_saved(reader *r, uint64_t *steps, char text[TR_SETTINGS_CAP], const uint8_t *src, size_t src_len,
                      char why[TR_WHY])
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
    if (checksum != tr_hash(0, src, src_len - CHECKSUM_LEN)) {
        return refuse(why, "it is damaged");
    }
    *r = (reader){src + 8, src_len - 8 - CHECKSUM_LEN};
    uint64_t len = get64(r);
    if (len >= TR_SETTINGS_CAP || get(r, text, (size_t)len) != 0) {
        return refuse(why, "it is too short");
    }
    text[len] = '\0';
    *steps = get64(r);
    return 0;
}

/* Opens a checkpoint, and checks that a run with these settings can resume from it. */
static int open_fitting(reader *r, uint64_t *steps, uint32_t *workers, const tr_settings *s, const tr_data *data,
                        const uint8_t *src, size_t src_len, char why[TR_WHY])
{
    char saved[TR_SETTINGS_CAP], now[TR_SETTINGS_CAP];
    if (open_saved(r, steps, saved, src, src_len, why) != 0) {
        return -1;
    }
    tr_settings_text(now, s, data);
    *workers = tr_settings_workers(saved);
    if (*workers == 0) {
        return refuse(why, "its settings have no number of workers");
    }
    if (tr_settings_compare(saved, now, why) != 0) {
        return -1;
    }
    if (*workers != s->workers && !tr_is_between_rounds(s, *steps)) {
        (void)snprintf(
            why, TR_WHY,
            "it was saved by %u workers inside a round of local steps, after step %llu, and another number of "
            "workers can go on at a round's end only; give --workers %u",
            *workers, (unsigned long long)*steps, *workers);
        return -1;
    }
    return 0;
}

int tr_saved_steps(uint64_t *out, const tr_settings *s, const tr_data *data, const void *saved, size_t saved_len,
                   char why[TR_WHY])
{
    reader r;
    uint32_t workers = 0;
    return open_fitting(&r, out, &workers, s, data, saved, saved_len, why);
}

/* The parts of all workers of the saved run: where each is. */
typedef struct parts {
    uint32_t workers;
    const uint8_t **buffers;
    const uint8_t **weights, **moments; /* local steps only */
    tg_span *states;                    /* of exchanges */
} parts;

static int find_floats(const uint8_t **out, reader *r, size_t n, char why[TR_WHY])
{
    *out = r->left >= 8 ? r->at + 8 : NULL;
    return get_floats(r, NULL, n) == 0 ? 0 : refuse(why, "it does not fit the model");
}

static int find_parts(parts *p, reader *r, const tr_worker *like, char why[TR_WHY])
{
    size_t buffer_n = 0, weight_n = 0, moment_n = 0;
    (void)tr_model_buffers(like->model, &buffer_n);
    (void)tr_model_weights(like->model, &weight_n);
    (void)tr_optimizer_state(like->optimizer, &moment_n);
    for (uint32_t i = 0; i < p->workers; i++) {
        if (find_floats(&p->buffers[i], r, buffer_n, why) != 0) {
            return -1;
        }
        uint64_t len = get64(r);
        if (len > r->left) {
            return refuse(why, "it does not fit the exchange");
        }
        p->states[i] = (tg_span){(void *)(uintptr_t)r->at, len}; /* only read */
        r->at += len;
        r->left -= (size_t)len;
        if (like->start != NULL && (find_floats(&p->weights[i], r, weight_n, why) != 0 ||
                                    find_floats(&p->moments[i], r, moment_n, why) != 0)) {
            return -1;
        }
    }
    return r->left == 0 ? 0 : refuse(why, "it has extra bytes at its end");
}

/* The mean over all old workers, for moments of new ones. */
static void average_saved(float *out, size_t n, const uint8_t *const *all, uint32_t workers)
{
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (uint32_t r = 0; r < workers; r++) {
            float one = 0;
            memcpy(&one, all[r] + i * sizeof one, sizeof one);
            sum += one;
        }
        out[i] = sum / (float)workers;
    }
}

/* With local steps: a worker's own weights and moments. Another number of workers begins a round: weights are the shared ones, which
 * the model has already. */
static void get_own(tr_worker *w, const parts *p)
{
    size_t weight_n = 0, moment_n = 0;
    float *weights = tr_model_weights(w->model, &weight_n), *moments = tr_optimizer_state(w->optimizer, &moment_n);
    if (p->workers == w->team->settings->workers) {
        memcpy(weights, p->weights[w->rank], weight_n * sizeof *weights);
        memcpy(moments, p->moments[w->rank], moment_n * sizeof *moments);
    } else {
        memcpy(weights, w->start, weight_n * sizeof *weights);
        average_saved(moments, moment_n, p->moments, p->workers);
    }
}

/* Restores a worker: its own part, or with another number of workers, or other hosts, its share of all parts. */
static int get_worker(tr_worker *w, const parts *p, char why[TR_WHY])
{
    size_t n = 0;
    float *own = tr_model_buffers(w->model, &n);
    if (n > 0) {
        memcpy(own, p->buffers[w->rank % p->workers], n * sizeof *own);
    }
    if (w->start != NULL) {
        get_own(w, p);
    }
    tg_detail reason = {""};
    if (tg_state_load(w->exchange, p->states, p->workers, &reason) != TG_OK) {
        return refuse(why, reason.text);
    }
    return 0;
}

static int get_workers(reader *r, tr_team *t, uint32_t workers, char why[TR_WHY])
{
    parts p = {workers, calloc(workers, sizeof(const uint8_t *)), calloc(workers, sizeof(const uint8_t *)),
               calloc(workers, sizeof(const uint8_t *)), calloc(workers, sizeof(tg_span))};
    int is_there = p.buffers != NULL && p.weights != NULL && p.moments != NULL && p.states != NULL;
    int code = is_there ? find_parts(&p, r, &t->workers[0], why) : refuse(why, "there is not enough memory");
    for (uint32_t i = 0; code == 0 && i < t->worker_n; i++) {
        code = get_worker(&t->workers[i], &p, why);
    }
    free(p.states);
    free(p.moments);
    free(p.weights);
    free(p.buffers);
    return code;
}

/* What is common is stored once; every worker reads it. *end is set to the position after it. */
static int get_shared(const reader *from, reader *end, tr_worker *w, char why[TR_WHY])
{
    float *weights = NULL, *moments = NULL;
    size_t weight_n = 0, moment_n = 0;
    shared_arrays(&weights, &weight_n, &moments, &moment_n, w);
    *end = *from;
    if (get_floats(end, weights, weight_n) != 0 || get_floats(end, moments, moment_n) != 0) {
        return refuse(why, "it does not fit the model");
    }
    return 0;
}

int tr_saved_read(tr_team *t, const uint8_t *src, size_t src_len, char why[TR_WHY])
{
    reader r, end = {NULL, 0};
    uint32_t workers = 0;
    if (open_fitting(&r, &t->first_step, &workers, t->settings, t->data, src, src_len, why) != 0) {
        return -1;
    }
    t->total.dense = get64(&r);
    t->total.payload = get64(&r);
    t->total.header = get64(&r);
    t->total.logical = get64(&r);
    t->total.received = get64(&r);
    t->total.steps = get64(&r);
    t->exchanges = get64(&r);
    int sound = 1;
    for (int kind = 0; kind < TR_KIND_N; kind++) {
        sound = get(&r, &t->kinds[kind].sum, sizeof t->kinds[kind].sum) == 0 && sound;
        sound = get(&r, &t->kinds[kind].paper_len, sizeof t->kinds[kind].paper_len) == 0 && sound;
    }
    sound = get(&r, t->recent, sizeof t->recent) == 0 && sound;
    t->test.step = get64(&r);
    sound = get(&r, &t->test.loss, sizeof t->test.loss) == 0 &&
            get(&r, &t->test.accuracy, sizeof t->test.accuracy) == 0 && sound;
    if (!sound) {
        return refuse(why, "it is too short");
    }
    for (uint32_t i = 0; i < t->worker_n; i++) {
        if (get_shared(&r, &end, &t->workers[i], why) != 0) {
            return -1;
        }
    }
    t->done = t->first_step;
    return get_workers(&end, t, workers, why);
}
