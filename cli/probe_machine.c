/* Costs of this machine and of its GPU; see probe_machine.h. */
#include "probe_machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fail.h"
#include "probe_codecs.h"
#include "probe_gpu.h"
#include "probe_parts.h"
#include "progress.h"

uint32_t cli_machine_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

int cli_machine_measure(cli_machine *out, const cli_measuring *how)
{
    static const cli_device cpu = {NULL};
    cli_measuring own = *how;
    cli_workspace w;
    own.device = &cpu;
    int code = cli_workspace_open(&w, &own);
    cli_machine_kind(out->kind);
    out->cores = cli_machine_cores();
    code = code == CLI_OK ? cli_parts_measure(out, w.host, w.sums[0], (size_t)cli_measuring_largest(how)) : code;
    code = code == CLI_OK ? cli_costs_measure(&out->costs, &own, out->copy, &w) : code;
    cli_progress_clear();
    cli_workspace_close(&w);
    return code;
}

int cli_gpu_measure(cli_gpu *out, const cli_measuring *how)
{
    static const uint32_t one = 1;
    cli_measuring own = *how;
    cli_workspace w;
    own.threads = &one;
    own.thread_n = 1;
    int code = cli_workspace_open(&w, &own);
    snprintf(out->kind, sizeof out->kind, "%s", cli_device_name(how->device));
    code = code == CLI_OK ? cli_gpu_copies(out, &w, (size_t)cli_measuring_largest(how)) : code;
    code = code == CLI_OK ? cli_costs_measure(&out->costs, &own, out->copy, &w) : code;
    cli_progress_clear();
    cli_workspace_close(&w);
    return code;
}
