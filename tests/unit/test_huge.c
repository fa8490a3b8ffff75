/* Sizes beyond 32 bits. Memory is reserved but not committed: untouched pages cost nothing, and random blocks touch few. */
#define _DEFAULT_SOURCE /* MAP_NORESERVE */

#include "support.h"

#include "base/philox.h"

#include <string.h>
#include <sys/mman.h>

static void *reserve(uint64_t len)
{
    void *room = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(room != MAP_FAILED);
    return room;
}

static void more_than_four_billion_elements(void **state)
{
    (void)state;
    const uint64_t n = (UINT64_C(1) << 33) + 1001, block = 8590; /* round(1e-6 n) */
    tg_tensor tensor = {"huge", &n, 1, TG_EMBEDDING, TG_BF16};
    uint16_t *grad = reserve(n * sizeof *grad);
    float *sums = reserve(n * sizeof *sums);
    tg_options opt = TG_OPTIONS_INIT;
    opt.has_seed = 1;
    opt.seed = 2;
    opt.nonfinite = TG_NONFINITE_PASS; /* so that elements that are not sent are not read */
    static const char *const recipes[] = {"randomblock@1e-6", "randomblock@1e-6,coords=own"};
    for (uint32_t own = 0; own < 2; own++) {
        tg_codec *c = NULL;
        MUST(tg_codec_new(&c, recipes[own], &tensor, 1, &opt, why));
        size_t cap = tg_encode_bound(c), len = 0;
        uint8_t *frame = reserve(cap);
        uint64_t beyond = 0;
        for (uint64_t step = 0; step < 3; step++) {
            tg_stream stream = tg_stream_of(2, step, 0, own);
            uint64_t first = tg_stream_below(&stream, 0, n), last = (first + block - 1) % n, after = (last + 1) % n;
            grad[first] = 0x3f80; /* 1 */
            grad[last] = 0xc000;  /* -2 */
            grad[after] = 0x4040; /* 3, which is not sent */
            MUST(tg_encode(&len, c, frame, cap, step, (const void *const *)&grad, why));
            tg_frame_info info;
            MUST(tg_frame_inspect(&info, c, frame, len, why));
            assert_int_equal(info.entry_n, block);
            assert_int_equal(info.element_n, n);
            MUST(tg_decode_add(c, &sums, 1, frame, len, why));
            assert_true(sums[first] == 1 && sums[last] == -2 && sums[after] == 0);
            beyond += first > UINT32_MAX;
            sums[first] = sums[last] = 0;
            grad[first] = grad[last] = grad[after] = 0;
        }
        assert_true(beyond > 0);
        munmap(frame, cap);
        tg_codec_free(c);
    }
    munmap(sums, n * sizeof *sums);
    munmap(grad, n * sizeof *grad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(more_than_four_billion_elements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
