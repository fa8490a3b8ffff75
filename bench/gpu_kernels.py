#!/usr/bin/env python3
"""What limits each kernel on a GPU: its time, memory traffic, instructions and occupancy, as Nsight Compute (`ncu`) counts them.

    bench/gpu_kernels.py [--program PROGRAM] [--n 25000000] [--recipes 'A;B'] [--limit 240] [--commit C] [--save]
    bench/gpu_kernels.py --page          measures nothing: the table of bench/README.md, from the rows that are kept

For each recipe ncu watches a short `tersegrad bench --device cuda`, whose calls encode and decode in turns; the median call of a kernel
counts. ncu measures kernels one by one, with cold caches, so their times add up to more than a call takes. --save keeps rows in
bench/results/gpu-kernels.csv. The table has kernels of 5 us or more at 25 M elements.
"""

import collections
import csv
import os
import pathlib
import re
import subprocess
import sys
import time

from gpu import LARGE, TARGETS, common_flags
from tables import commit, keep_rows, measured, put_table, read_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results" / "gpu-kernels.csv"
# column: ncu's metric, and by what it is divided
METRICS = {
    "us": ("gpu__time_duration.sum", 1e-6), "read_mb": ("dram__bytes_read.sum", 1e6), "written_mb": ("dram__bytes_write.sum", 1e6),
    "memory_percent": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1), "issue_percent": ("sm__inst_issued.avg.pct_of_peak_sustained_elapsed", 1),
    "occupancy_percent": ("sm__warps_active.avg.pct_of_peak_sustained_active", 1), "registers": ("launch__registers_per_thread", 1),
    "block": ("launch__block_size", 1), "grid": ("launch__grid_size", 1), "warp_instructions_m": ("smsp__inst_executed.sum", 1e6),
}
# What warps wait for, in cycles for each instruction of a processor; and the words of the table.
STALLS = {"barrier": "barriers", "membar": "fences", "long_scoreboard": "memory", "short_scoreboard": "shared memory", "mio_throttle": "shared memory",
          "lg_throttle": "loads in queue", "wait": "instructions before", "math_pipe_throttle": "arithmetic", "branch_resolving": "branches",
          "no_instruction": "instruction fetch", "imc_miss": "constants", "not_selected": "other warps", "dispatch_stall": "dispatch",
          "drain": "stores at the end", "sleeping": "sleep"}
STALL_METRIC = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
WATCHED = dict(METRICS, **{name: (STALL_METRIC.format(name), 1) for name in STALLS})
COLUMNS = ("recipe", "n", "kernel", "calls", *METRICS, "stalls")
UNITS = {"ns": 1e-9, "us": 1e-6, "usecond": 1e-6, "nsecond": 1e-9, "ms": 1e-3, "msecond": 1e-3, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
FEW_BLOCKS = 132  # processors of an H200
LEAST_US = 5


def kernels(lines):
    """{kernel: [{column: value}, one for each call]} from ncu's CSV."""
    calls = collections.OrderedDict()
    column_of = {metric: (column, divisor) for column, (metric, divisor) in WATCHED.items()}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        column, divisor = column_of[row["Metric Name"]]
        value = float(row["Metric Value"].replace(",", "")) * UNITS.get(row["Metric Unit"], 1) / divisor
        name = re.sub(r"\(.*|^void ", "", row["Kernel Name"])
        calls.setdefault((int(row["ID"]), name), {})[column] = value
    found = collections.OrderedDict()
    for (_, name), values in calls.items():
        found.setdefault(name, []).append(values)
    return found


def profile(program, recipe, n, calls, seconds):
    command = ["ncu", "--clock-control", "none", "--csv", "--metrics", ",".join(metric for metric, _ in WATCHED.values()), "-c", str(calls), program, "bench",
               "--recipe", recipe, "--device", "cuda", "--n", str(n), "--seconds", "0.001", "--nonfinite", "zero", "--threads", str(len(os.sched_getaffinity(0)))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        print(f"left out: {recipe}")
        return
    found = kernels(done.stdout.splitlines())
    if not found:
        sys.exit(f"gpu_kernels: {' '.join(command)}: {(done.stderr or done.stdout).strip()[-300:]}")
    for name, calls in found.items():
        middle = sorted(calls, key=lambda values: values["us"])[len(calls) // 2]
        yield {"recipe": recipe, "n": n, "kernel": name, "calls": len(calls), **{column: f"{middle[column]:.4g}" for column in METRICS},
               "stalls": " ".join(f"{name}:{middle[name]:.2g}" for name in sorted(STALLS, key=middle.get, reverse=True)[:3])}


def limit_of(row):
    """What holds a kernel back, by the largest share of what the GPU has."""
    if row["memory_percent"] >= 60:
        return "memory"
    if row["issue_percent"] >= 60:
        return "instructions"
    if row["grid"] < FEW_BLOCKS:
        return "few blocks"
    waits = collections.OrderedDict()
    for name, _, cycles in (part.partition(":") for part in row.get("stalls", "").split()):
        waits.setdefault(STALLS[name], float(cycles))
    return "waits: " + ", ".join(list(waits)[:2]) if waits else "latency"


def page():
    rows = [row for row in read_rows(RESULTS) if row["n"] == LARGE]
    lines = [f"{measured(rows)[0].upper()}{measured(rows)[1:]}.", "",
             "| recipe | kernel | µs | MB read, written | of memory's speed | of issue slots | occupancy | registers | blocks | held back by | commit |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    for recipe in TARGETS:
        first = True
        for row in rows:
            if row["recipe"] == recipe and row["us"] >= LEAST_US:
                name = f"`{recipe}`" if first else ""
                lines.append(f"| {name} | {row['kernel']} | {row['us']:.0f} | {row['read_mb']:.0f}, {row['written_mb']:.0f} | {row['memory_percent']:.0f}% | "
                             f"{row['issue_percent']:.0f}% | {row['occupancy_percent']:.0f}% | {row['registers']:.0f} | {row['grid']:.0f} | {limit_of(row)} | {row['commit'][:7]} |")
                first = False
    put_table(ROOT / "bench" / "README.md", "gpu-kernels", lines)


def main():
    parser = common_flags(__doc__, [recipe for recipe in TARGETS if recipe not in ("bf16", "ef+fp16")], 240)
    parser.add_argument("--n", type=int, default=LARGE)
    parser.add_argument("--calls", type=int, default=40, help="calls of kernels that ncu watches, of each recipe; 24 have every kernel at least once [40]")
    parser.add_argument("--commit", help="what is measured, where there is no repository")
    options = parser.parse_args()
    if options.page:
        page()
        return
    end, rows = time.monotonic() + options.limit, []
    print(f"{'recipe':22} {'kernel':32} {'us':>7} {'MB read':>8} {'written':>8} {'memory':>7} {'issue':>6} {'occupied':>8} {'limit'}")
    for recipe in options.recipes.split(";"):
        if time.monotonic() > end - 10:
            print(f"left out: {recipe}")
            continue
        for row in profile(options.program, recipe, options.n, options.calls, max(10, end - time.monotonic())):
            rows.append(row)
            numbers = dict({name: float(row[name]) for name in METRICS}, stalls=row["stalls"])
            print(f"{recipe:22} {row['kernel'][:32]:32} {numbers['us']:7.1f} {numbers['read_mb']:8.1f} {numbers['written_mb']:8.1f} {numbers['memory_percent']:6.0f}% "
                  f"{numbers['issue_percent']:5.0f}% {numbers['occupancy_percent']:7.0f}% {limit_of(numbers)}", flush=True)
    if options.save:
        keep_rows(RESULTS, COLUMNS, ("recipe", "n"), rows, options.commit or commit())


if __name__ == "__main__":
    main()
