/* What tests of hosts share: recipes. */
#ifndef TG_TESTS_HOSTS_H
#define TG_TESTS_HOSTS_H

#include "flight.h"

enum { TEST_HOSTS_RUN_N = 14 };

extern const test_run test_hosts_runs[TEST_HOSTS_RUN_N];

test_setup test_hosts_setup(size_t run);

#endif
