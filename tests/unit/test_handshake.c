/* The handshake: a difference is reported with both values, and a peer may send anything. The peer is simulated. */
#include "support.h"

#include "base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_LEN = 16, TEXT_CAP = 4096 };

/* A link from rank 0 of 2 to a peer that sends this. */
typedef struct script {
    tg_link link; /* first */
    uint8_t header[HEADER_LEN];
    char text[TEXT_CAP];
    int operations;
    char said[TEXT_CAP]; /* by rank 0 */
    size_t said_len;
} script;

static tg_status carry(tg_link *self, const tg_op *op, tg_detail *why)
{
    script *s = (script *)(void *)self;
    (void)why;
    assert_int_equal(op->sends[0].len + op->recvs[0].len, 0);
    if (s->operations++ == 0) {
        assert_int_equal(op->recvs[1].len, HEADER_LEN);
        memcpy(op->recvs[1].data, s->header, HEADER_LEN);
        return TG_OK;
    }
    assert_in_range(op->sends[1].len, 1, TEXT_CAP - 1);
    assert_in_range(op->recvs[1].len, 0, TEXT_CAP);
    memcpy(s->said, op->sends[1].data, (size_t)op->sends[1].len);
    s->said_len = (size_t)op->sends[1].len;
    memcpy(op->recvs[1].data, s->text, (size_t)op->recvs[1].len);
    return TG_OK;
}

static void ignore(tg_link *self, const char *reason)
{
    (void)self;
    (void)reason;
}

static const uint64_t dims[] = {6, 50};
static const tg_tensor tensor = {"conv.weight", dims, 2, TG_CONV, TG_FP32};

static tg_exchange *make_exchange(const tg_allocator *allocator)
{
    tg_options opt = TG_OPTIONS_INIT;
    tg_exchange *x = NULL;
    opt.allocator = allocator;
    opt.has_seed = 1;
    opt.seed = 5;
    MUST(tg_exchange_new(&x, "ef+topk@0.1", &tensor, 1, 0, 2, &opt, why));
    return x;
}

static script says(const char *text, size_t len)
{
    script s = {.link = {.carry = carry, .abort = ignore}, .header = {'T', 'G', 'H', 'S', 4}};
    memcpy(s.text, text, len);
    tg_put64(s.header + 8, len);
    return s;
}

/* Records what rank 0 sends. */
static script hear(const tg_exchange *x)
{
    script s = says("", 0);
    assert_int_equal(tg_handshake(x, &s.link, "rate 0.1\n", NULL), TG_E_MISMATCH);
    return s;
}

static void the_same_is_agreed_upon(void **state)
{
    (void)state;
    tg_exchange *x = make_exchange(NULL);
    script said = hear(x), s = says(said.said, said.said_len);
    MUST(tg_handshake(x, &s.link, "rate 0.1\n", why));
    s = says(said.said, said.said_len);
    assert_int_equal(tg_handshake(x, &s.link, NULL, NULL), TG_E_MISMATCH);
    tg_exchange_free(x);
}

static void what_differs_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *ours, *theirs, *sentence;
    } cases[] = {
        {"version 0.1.0", "version 0.0.9", "rank 1 has version '0.0.9', but rank 0 has '0.1.0'"},
        {"seed 5", "seed none", "rank 1 has seed 'none', but rank 0 has '5'"},
        {"exchange gather", "exchange shard", "rank 1 has exchange 'shard', but rank 0 has 'gather'"},
        {"rate 0.1", "rate 0.25", "rank 1 has rate '0.25', but rank 0 has '0.1'"},
        {"ef+topk@0.1", "ef+topk@0.2", "rank 1 has recipe of 'conv.weight' 'ef+topk@0.2"},
        {"6x50", "50x6", "rank 1 has shape of 'conv.weight' fp32 '50x6', but rank 0 has '6x50'"},
        {"number of tensors 1", "number of tensors 2", "rank 1 has number of tensors '2', but rank 0 has '1'"},
    };
    tg_exchange *x = make_exchange(NULL);
    script said = hear(x);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TEXT_CAP];
        const char *at = strstr(said.said, cases[i].ours);
        assert_non_null(at);
        int len = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - said.said), said.said, cases[i].theirs,
                           at + strlen(cases[i].ours));
        script s = says(text, (size_t)len);
        MUST_FAIL(TG_E_MISMATCH, cases[i].sentence, tg_handshake(x, &s.link, "rate 0.1\n", why));
    }
    tg_exchange_free(x);
}

static void a_peer_may_send_anything(void **state)
{
    (void)state;
    tg_exchange *x = make_exchange(NULL);
    script said = hear(x), s = says(said.said, said.said_len);
    s.header[0] = 'X';
    MUST_FAIL(TG_E_LINK, "is not a handshake", tg_handshake(x, &s.link, "rate 0.1\n", why));
    s = says(said.said, said.said_len);
    s.header[4] = 1;
    MUST_FAIL(TG_E_VERSION, "handshake version 1", tg_handshake(x, &s.link, "rate 0.1\n", why));
    s = says(said.said, said.said_len);
    tg_put64(s.header + 8, UINT64_MAX);
    MUST_FAIL(TG_E_LINK, "is not a handshake", tg_handshake(x, &s.link, "rate 0.1\n", why));
    for (size_t len = 0; len < said.said_len; len++) { /* cut anywhere */
        s = says(said.said, len);
        MUST_FAIL(TG_E_MISMATCH, "rank 1", tg_handshake(x, &s.link, "rate 0.1\n", why));
    }
    test_random random = {1};
    for (int k = 0; k < 2000; k++) { /* any byte */
        char text[TEXT_CAP];
        memcpy(text, said.said, said.said_len);
        size_t at = (size_t)(test_bits(&random) % said.said_len);
        text[at] = (char)((uint8_t)text[at] ^ (uint8_t)(1 + test_bits(&random) % 255));
        s = says(text, said.said_len);
        MUST_FAIL(TG_E_MISMATCH, "rank 1", tg_handshake(x, &s.link, "rate 0.1\n", why));
    }
    tg_exchange_free(x);
}

static void too_little_memory_is_an_error(void **state)
{
    (void)state;
    test_allocator poor;
    test_allocator_start(&poor, 0, false);
    tg_exchange *x = make_exchange(&poor.allocator);
    script said = hear(x);
    int64_t held = poor.held;
    uint64_t n = 1; /* the allocation that fails */
    for (tg_status status = TG_E_MEMORY; status != TG_OK; n++) {
        script s = says(said.said, said.said_len);
        poor.calls = 0;
        poor.fail_at = n;
        status = tg_handshake(x, &s.link, "rate 0.1\n", NULL);
        assert_true(status == TG_OK || status == TG_E_MEMORY);
        assert_int_equal(poor.held, held);
    }
    assert_in_range(n, 5, 7);
    tg_exchange_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_is_agreed_upon),
        cmocka_unit_test(what_differs_is_named),
        cmocka_unit_test(a_peer_may_send_anything),
        cmocka_unit_test(too_little_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
