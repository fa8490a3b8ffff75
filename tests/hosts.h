/* What tests of hosts share: recipes and tensors. */
#ifndef TG_TESTS_HOSTS_H
#define TG_TESTS_HOSTS_H

#include "flight.h"

enum { TEST_HOSTS_TENSOR_N = 7, TEST_HOSTS_RUN_N = 13 };

typedef struct test_hosts_run {
    const char *recipe, *exchange;
} test_hosts_run;

extern const test_hosts_run test_hosts_runs[TEST_HOSTS_RUN_N];
extern const uint64_t test_hosts_lens[TEST_HOSTS_TENSOR_N];
extern const uint32_t test_hosts_groups[TEST_HOSTS_TENSOR_N]; /* three of them */

test_setup test_hosts_setup(size_t run);

#endif
