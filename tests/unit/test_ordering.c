/* Permutations as bytes: round trips, sizes against the bound, and invalid bytes. */
#include "exec/ordering.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void orders_survive_near_their_bound(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 2, 3, 7, 100, 1000, 20000};
    test_random random = {43};
    for (size_t k = 0; k < 7; k++) {
        size_t n = sizes[k], len = tg_ordering_len(n);
        uint32_t *order = test_room(n * sizeof *order), *back = test_room(n * sizeof *back);
        uint32_t *room = test_room((n + 1) * sizeof *room);
        uint8_t *bytes = test_room(len);
        double bound = 0;
        for (size_t i = 0; i < n; i++) {
            order[i] = (uint32_t)i;
            bound += log2((double)i + 1);
        }
        for (size_t i = n; i-- > 1;) {
            size_t j = (size_t)(test_bits(&random) % (i + 1));
            uint32_t swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        tg_ordering_write(bytes, order, n, room);
        assert_true(tg_ordering_read(back, bytes, n, room));
        assert_memory_equal(back, order, n * sizeof *order);
        assert_true(8 * (double)len < 1.02 * bound + 16);
        for (int hit = 0; hit < 50 && len > 0; hit++) { /* any bytes are a permutation, or refused */
            bytes[test_bits(&random) % len] = (uint8_t)test_bits(&random);
            if (tg_ordering_read(back, bytes, n, room)) {
                uint8_t *seen = test_room(n);
                memset(seen, 0, n);
                for (size_t i = 0; i < n; i++) {
                    assert_true(back[i] < n && seen[back[i]] == 0);
                    seen[back[i]] = 1;
                }
                free(seen);
            }
        }
        free(bytes);
        free(room);
        free(back);
        free(order);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(orders_survive_near_their_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
