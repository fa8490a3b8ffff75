/* The handshake: before the first step every rank sends its setup to all others, as lines of text. All ranks find the same first
 * difference, and report it with both values. (Without a handshake the first step would fail too, but could not say why.)
 *
 *     all -> all   "TGHS", u32 version of the handshake, u64 len
 *     all -> all   len bytes of text: lines "name value", those of the exchange, then those of the caller */
#include "base/bytes.h"
#include "exchange/exchange.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 4, HEADER_LEN = 16, TEXT_MAX = 1 << 24 };

/* ---- the setup of a rank ----------------------------------------------------------------------------------------------- */

/* Appends text at `at`; with `at` NULL it only counts bytes. */
typedef struct writer {
    char *at;
    size_t len;
} writer;

static void put_line(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put_line(writer *w, const char *format, ...)
{
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int wanted = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    size_t len = wanted < 0 ? 0 : (size_t)wanted < sizeof line - 1 ? (size_t)wanted : sizeof line - 2;
    line[len++] = '\n';
    if (w->at != NULL) {
        memcpy(w->at + w->len, line, len);
    }
    w->len += len;
}

static void put_tensor(writer *w, const tg_layout *l, size_t t)
{
    const tg_tensor *tensor = &l->tensors[t];
    char shape[256] = "";
    size_t len = 0;
    for (uint32_t d = 0; d < tensor->dim_n && len < sizeof shape; d++) {
        int more = snprintf(shape + len, sizeof shape - len, "%s%" PRIu64, d == 0 ? "" : "x", tensor->dims[d]);
        len += more < 0 ? 0 : (size_t)more;
    }
    put_line(w, "recipe of '%s' %s", tensor->name, l->recipes[l->tensor_recipe[t]].text);
    put_line(w, "shape of '%s' %s %s", tensor->name, tg_dtype_name(tensor->dtype), shape);
}

/* `facts` are the caller's own lines; may be NULL. */
static void put_all(writer *w, const tg_exchange *x, const char *facts)
{
    const tg_layout *l = x->codec->layout;
    put_line(w, "version %s", tg_version());
    put_line(w, "world %u", x->world);
    put_line(w, "host size %u", x->host_size);
    if (facts != NULL) {
        size_t len = strlen(facts);
        if (w->at != NULL) {
            memcpy(w->at + w->len, facts, len);
        }
        w->len += len;
    }
    if (l->has_seed) {
        put_line(w, "seed %" PRIu64, l->seed);
    } else {
        put_line(w, "seed none");
    }
    put_line(w, "exchange %s", x->protocol->name);
    put_line(w, "number of tensors %zu", l->tensor_n);
    for (size_t t = 0; t < l->tensor_n; t++) {
        put_tensor(w, l, t);
    }
    put_line(w, "options %016" PRIx64, x->agreement);
}

/* ---- differences --------------------------------------------------------------------------------------------------------- */

static size_t line_len(const char *text, size_t len)
{
    const char *end = memchr(text, '\n', len);
    return end == NULL ? len : (size_t)(end - text);
}

/* Length of the name of a line: the common prefix of both lines, up to its last space. */
static int name_len(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t space = 0;
    for (size_t i = 0; i < a_len && i < b_len && a[i] == b[i]; i++) {
        space = a[i] == ' ' ? i : space;
    }
    return (int)space;
}

static int at_most(size_t len, int cap)
{
    return len > (size_t)cap ? cap : (int)len;
}

/* Compares the setup of rank p with that of rank 0. */
static tg_status compare(const char *first, size_t first_len, const char *other, size_t other_len, uint32_t p,
                         tg_detail *why)
{
    bool same_len = first_len == other_len;
    while (first_len > 0 || other_len > 0) {
        size_t a = line_len(first, first_len), b = line_len(other, other_len);
        if (a != b || memcmp(first, other, a) != 0) {
            int name = name_len(first, a, other, b), skip = name + (name > 0);
            return tg_fail(TG_E_MISMATCH, why, "rank %u has %.*s '%.*s', but rank 0 has '%.*s'", p,
                           name == 0 ? 5 : at_most((size_t)name, 60), name == 0 ? "setup" : first,
                           at_most(b - (size_t)skip, 60), other + skip, at_most(a - (size_t)skip, 60), first + skip);
        }
        a += a < first_len;
        b += b < other_len;
        first += a;
        other += b;
        first_len -= a;
        other_len -= b;
    }
    return same_len ? TG_OK
                    : tg_fail(TG_E_MISMATCH, why, "the setup of rank %u ends differently from that of rank 0", p);
}

/* ---- messages ------------------------------------------------------------------------------------------------------------ */

/* Buffers of a handshake. */
typedef struct table {
    tg_span *sends, *recvs;
    uint8_t *headers;
    char *texts; /* the setups of all ranks, in rank order */
    uint64_t texts_len;
} table;

static void release(table *t, const tg_allocator *a)
{
    tg_release(a, t->texts);
    tg_release(a, t->headers);
    tg_release(a, t->recvs);
    tg_release(a, t->sends);
}

/* Sends the same bytes to all ranks, and receives theirs into t->recvs. */
static tg_status all_gather(const tg_exchange *x, tg_link *link, const table *t, const void *bytes, uint64_t len,
                            tg_detail *why)
{
    for (uint32_t p = 0; p < x->world; p++) {
        t->sends[p] = (tg_span){(void *)(uintptr_t)bytes, p == x->rank ? 0 : len};
    }
    tg_op op = {.kind = TG_ALLGATHERV, .rank = x->rank, .world = x->world, .sends = t->sends, .recvs = t->recvs};
    return link->carry(link, &op, why);
}

static tg_status exchange_headers(const tg_exchange *x, tg_link *link, table *t, uint64_t len, tg_detail *why)
{
    uint8_t own[HEADER_LEN] = {'T', 'G', 'H', 'S'};
    tg_put32(own + 4, VERSION);
    tg_put64(own + 8, len);
    for (uint32_t p = 0; p < x->world; p++) {
        t->recvs[p] = (tg_span){t->headers + (size_t)p * HEADER_LEN, p == x->rank ? 0 : HEADER_LEN};
    }
    TG_TRY(all_gather(x, link, t, own, sizeof own, why));
    memcpy(t->headers + (size_t)x->rank * HEADER_LEN, own, sizeof own);
    for (uint32_t p = 0; p < x->world; p++) {
        const uint8_t *header = t->headers + (size_t)p * HEADER_LEN;
        if (memcmp(header, "TGHS", 4) != 0 || tg_get64(header + 8) > TEXT_MAX) {
            return tg_fail(TG_E_LINK, why, "the message from rank %u is not a handshake", p);
        }
        if (tg_get32(header + 4) != VERSION) {
            return tg_fail(TG_E_VERSION, why, "rank %u uses handshake version %u, but rank %u uses version %u", p,
                           tg_get32(header + 4), x->rank, (unsigned)VERSION);
        }
        t->texts_len += tg_get64(header + 8);
    }
    return TG_OK;
}

static tg_status exchange_texts(const tg_exchange *x, tg_link *link, table *t, const char *facts, tg_detail *why)
{
    TG_TRY(tg_acquire_room(&t->texts, &x->allocator, t->texts_len, why));
    char *at = t->texts, *own = at;
    for (uint32_t p = 0; p < x->world; p++) {
        uint64_t len = tg_get64(t->headers + (size_t)p * HEADER_LEN + 8);
        t->recvs[p] = (tg_span){at, p == x->rank ? 0 : len};
        own = p == x->rank ? at : own;
        at += len;
    }
    writer w = {own, 0};
    put_all(&w, x, facts);
    return all_gather(x, link, t, own, w.len, why);
}

static tg_status compare_all(const tg_exchange *x, const table *t, tg_detail *why)
{
    const char *at = t->texts;
    size_t first_len = (size_t)tg_get64(t->headers + 8);
    for (uint32_t p = 0; p < x->world; p++) {
        size_t len = (size_t)tg_get64(t->headers + (size_t)p * HEADER_LEN + 8);
        TG_TRY(compare(t->texts, first_len, at, len, p, why));
        at += len;
    }
    return TG_OK;
}

tg_status tg_handshake(const tg_exchange *x, tg_link *link, const char *facts, tg_detail *why)
{
    TG_NEED(x, why);
    TG_NEED(link, why);
    TG_NEED(link->carry, why);
    const tg_allocator *a = &x->allocator;
    writer counting = {NULL, 0};
    put_all(&counting, x, facts);
    if (counting.len > TEXT_MAX) {
        return tg_fail(TG_E_ARGUMENT, why, "the setup to compare is longer than %d bytes", TEXT_MAX);
    }
    table t = {0};
    tg_status status = tg_acquire(&t.sends, a, x->world, sizeof *t.sends, why);
    if (status == TG_OK) {
        status = tg_acquire(&t.recvs, a, x->world, sizeof *t.recvs, why);
    }
    if (status == TG_OK) {
        status = tg_acquire(&t.headers, a, x->world, HEADER_LEN, why);
    }
    if (status == TG_OK) {
        status = exchange_headers(x, link, &t, counting.len, why);
    }
    if (status == TG_OK) {
        status = exchange_texts(x, link, &t, facts, why);
    }
    if (status == TG_OK) {
        status = compare_all(x, &t, why);
    }
    release(&t, a);
    return status;
}
