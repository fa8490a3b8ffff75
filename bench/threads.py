#!/usr/bin/env python3
"""How much faster recipes become with more threads, beside memcpy by as many: the machine's own limit.

    bench/threads.py [RECIPE...] [--threads 1,2,4,8,16] [--simd SET] [--program P] [--n N] [--rounds R] [--seconds S] [--out DIR]

Runs `tersegrad bench` on synthetic gradients for every recipe of bench/recipes.py and every number of threads, in turn and round
after round. A figure is the median of its rounds, as a ratio to memcpy with one thread of the same run; a speed-up is that ratio
over the one with one thread. Writes DIR/threads-KIND.csv and DIR/threads-KIND.md, and prints the latter. Needs Python and the
program alone. Only a machine with that many idle cores tells anything.
"""

import argparse
import csv
import json
import os
import pathlib
import statistics
import subprocess
import sys

import recipes

NAMES = {"encode": "Encode", "decode": "Decode and add", "sum": "Decode and add, private sums"}
COLUMNS = ("commit", "recipe", "dtype", "threads", "n", "simd", "rounds", "memcpy_gbps", "memcpy_threads_gbps", "memcpy_speedup",
           *(f"{what}_{unit}" for what in recipes.OPERATIONS for unit in ("vs_memcpy", "speedup")))


# ---- measuring -------------------------------------------------------------------------------------------------------------

def command(job, threads, options):
    return ["--recipe", job.recipe, "--dtype", job.dtype, "--threads", str(threads), "--n", str(options.n), "--seconds",
            str(options.seconds), "--json"]


def measure(jobs, options):
    """Results by job and number of threads, a list of rounds each."""
    rounds = {}
    for r in range(options.rounds):
        for job in jobs:
            for threads in options.threads:
                recipes.progress(f"round {r + 1} of {options.rounds}: {job.name}, threads {threads}")
                done = subprocess.run([str(options.program), "bench", *command(job, threads, options)], check=True,
                                      stdout=subprocess.PIPE, text=True, env=recipes.environment(options.simd))
                result = json.loads(done.stdout.splitlines()[-1])
                if options.simd and result["simd"] != options.simd:
                    sys.exit(f"this machine has no {options.simd}: the program used {result['simd']}")
                rounds.setdefault((job, threads), []).append(result)
    recipes.progress("")
    return rounds


# ---- figures ---------------------------------------------------------------------------------------------------------------

def summarise(rounds, measured):
    """Rows, in the order of the rounds' keys. The fewest threads of a recipe count as 1."""
    rows, least = [], {}
    for (job, threads), results in rounds.items():
        def median(name):
            return statistics.median(result[name] for result in results)
        row = {"commit": measured, "recipe": job.recipe, "dtype": job.dtype, "threads": threads, "n": results[0]["n"],
               "simd": results[0]["simd"], "rounds": len(results), "memcpy_gbps": median("memcpy_gbps"),
               "memcpy_threads_gbps": median("memcpy_threads_gbps"),
               "memcpy_speedup": statistics.median(result["memcpy_threads_gbps"] / result["memcpy_gbps"] for result in results)}
        for what in recipes.OPERATIONS:
            row[f"{what}_vs_memcpy"] = median(f"{what}_vs_memcpy")
        first = least.setdefault(job, row)
        for what in recipes.OPERATIONS:
            row[f"{what}_speedup"] = row[f"{what}_vs_memcpy"] / first[f"{what}_vs_memcpy"]
        rows.append(row)
    return rows


def limits(rows):
    """By number of threads: how much faster memcpy is, the median over all recipes."""
    counts = sorted({row["threads"] for row in rows})
    return {threads: statistics.median(row["memcpy_speedup"] for row in rows if row["threads"] == threads) for threads in counts}


def table(rows, what):
    """Speed-ups of one operation, a line a recipe, and memcpy's at the end."""
    allowed = limits(rows)
    counts = list(allowed)
    lines = [f"| recipe | {counts[0]} thread{'s' if counts[0] > 1 else ''}, of memcpy | "
             + " | ".join(f"{threads} threads" for threads in counts[1:]) + " |", "|---" * (len(counts) + 1) + "|"]
    by_key = {(row["recipe"], row["dtype"], row["threads"]): row for row in rows}
    for recipe, dtype in dict.fromkeys((row["recipe"], row["dtype"]) for row in rows):
        name = f"`{recipe}`" if dtype == "fp32" else f"`{recipe}` on {dtype}"
        first = by_key[recipe, dtype, counts[0]][f"{what}_vs_memcpy"]
        found = [f"{by_key[recipe, dtype, threads][f'{what}_speedup']:.2f}×" for threads in counts[1:]]
        lines.append(f"| {' | '.join([name, f'{first:.3f}', *found])} |")
    lines.append(f"| {' | '.join(['memcpy', '1', *(f'{allowed[threads]:.2f}×' for threads in counts[1:])])} |")
    return lines


def page(rows, kind):
    copied = statistics.median(row["memcpy_gbps"] for row in rows)
    lines = ["# Threads", "",
             f"{kind}, {rows[0]['commit']}, {rows[0]['n']:,} synthetic elements, median of {rows[0]['rounds']} rounds; 1 is memcpy with "
             f"one thread, {copied:.1f} GB/s. The last line of each table is what memcpy gains by as many threads."]
    for what in recipes.OPERATIONS:
        lines += ["", f"## {NAMES[what]}", "", *table(rows, what)]
    return lines


def save(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()} for row in rows)


# ---- the program -----------------------------------------------------------------------------------------------------------

def thread_counts(text):
    counts = [int(word) for word in text.split(",")]
    if not counts or sorted(set(counts)) != counts or counts[0] < 1:
        raise argparse.ArgumentTypeError("numbers of threads ascend, such as 1,2,4,8,16")
    return counts


def main():
    parser = argparse.ArgumentParser(description="How much faster recipes become with more threads, beside memcpy by as many.")
    parser.add_argument("recipes", nargs="*", help="only these, of those that bench/recipes.py has")
    parser.add_argument("--threads", type=thread_counts, default=[1, 2, 4, 8, 16])
    parser.add_argument("--simd", choices=recipes.SIMD, help="the instruction set [default: the best]")
    parser.add_argument("--program", type=pathlib.Path, default=recipes.ROOT / "build/release/tersegrad")
    parser.add_argument("--n", type=int, default=25_000_000, help="elements of a gradient")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each of memcpy, encode and decode, in a round")
    parser.add_argument("--out", type=pathlib.Path, default=recipes.RESULTS, help="where the two files go")
    options = parser.parse_args()
    jobs = [job for job in recipes.JOBS if not options.recipes or job.recipe in options.recipes]
    if not jobs:
        parser.error(f"there are {', '.join(job.recipe for job in recipes.JOBS)}")
    if options.threads[-1] > os.cpu_count():
        print(f"note: this machine has {os.cpu_count()} cores; more threads than that gain nothing", file=sys.stderr)
    measured = recipes.commit()  # before, because files may change meanwhile
    rows = summarise(measure(jobs, options), measured)
    kind = recipes.machine_kind(recipes.processor(), os.cpu_count(), rows[0]["simd"])
    lines = page(rows, kind)
    print("\n".join(lines))
    save(options.out / f"threads-{kind}.csv", rows)
    (options.out / f"threads-{kind}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
