/* What tests of hosts share. */
#include "hosts.h"

const test_run test_hosts_runs[TEST_HOSTS_RUN_N] = {
    {"dense", NULL},
    {"fp16", "gather"},
    {"terngrad", "server"},
    {"ef+topk@0.05", "shard"},
    {"ef+topk@0.05+fp16", NULL},
    {"ef+topk@0.05,coords=shared", "allreduce"},
    {"ef+randomblock@0.1", "allreduce"},
    {"randomk@0.1,coords=own", "gather"},
    {"adacomp", NULL},
    {"ef+fp4+rans", "gather"},
    {"ef+fp4+rans", "shard"},
    {"dgc@0.05", "gather"},
    {"powersgd@2", NULL},
    {"ef@again=fp16+topk@0.05", "shard"},
};

test_setup test_hosts_setup(size_t run)
{
    const test_run *of = &test_hosts_runs[run];
    return (test_setup){
        .recipe = of->recipe, .exchange = of->exchange, .lens = test_run_lens, .tensor_n = TEST_RUN_TENSOR_N};
}
