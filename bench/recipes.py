#!/usr/bin/env python3
"""How fast recipes are here: beside their targets, beside what memory's bytes allow, and beside the last commit that was kept.

    make bench [ROUNDS=R] [SIMD=avx2] [SAVE=1]
    bench/recipes.py [RECIPE...] [--simd SET] [--program P] [--input FILE.npy] [--n N] [--rounds R] [--seconds S] [--save] [--page]

Runs `tersegrad bench` for every recipe with one thread and with two, all of them in turn and round after round, so that
drift meets all alike; a figure is the median of its rounds, as a ratio to memcpy of the same run. Its noise is how far rounds
lie apart. bench/results holds a file for each kind of machine and instruction set; what differs from its last commit by more
than the noise of both is told, better or worse. --save adds the rows of this run, --page puts the table into bench/README.md.
Nothing here passes or fails by a time. bench/threads.py measures more threads.
"""

import argparse
import csv
import datetime
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import typing

from tables import commit, put_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"
COLUMNS = ("date", "commit", "command", "recipe", "dtype", "threads", "n", "encode_vs_memcpy", "decode_vs_memcpy", "memcpy_gbps",
           "bits_per_value", "encode_noise", "decode_noise", "sum_vs_memcpy", "sum_noise")
OPERATIONS = ("encode", "decode", "sum")  # sum: decode and add to private sums
SIMD = ("scalar", "avx2", "avx512", "neon")
AVX2_SHARE = 0.5   # of what AVX-512 reaches: a vector holds half as many values
THREADS = (1, 2)
TWO_THREADS = 1.7  # how many times as fast two threads are to be, where memory allows it
SURE = 2           # a difference counts from so many times the noise


class Job(typing.NamedTuple):
    """A recipe, its targets for AVX-512 beside memcpy with one thread, and the bytes an element that must move beside the frame."""
    recipe: str
    encode_target: float
    decode_target: float
    encode_moves: int  # the gradient read; with feedback also the residual read and written
    decode_moves: int  # sums read and written; 0 for sparse frames, which touch their entries alone
    dtype: str = "fp32"

    @property
    def name(self):
        return self.recipe if self.dtype == "fp32" else f"{self.recipe} on {self.dtype}"


PLAIN, FEEDBACK = 4, 4 + 8  # the gradient; the gradient, and the residual in and out
MEASURED = 8 + FEEDBACK     # gradient and residual once more, before: what is sent depends on all of them
DENSE, SPARSE = 8, 0
JOBS = (
    Job("fp16", 0.9, 0.6, PLAIN, DENSE),
    Job("bf16", 0.9, 0.6, PLAIN, DENSE),
    Job("ef+randomblock@0.01", 0.55, 5, FEEDBACK, SPARSE),
    Job("adacomp", 0.5, 3, MEASURED, SPARSE),
    Job("ef+topk@0.01", 0.35, 5, MEASURED, SPARSE),
    Job("terngrad", 0.5, 0.5, PLAIN, DENSE),
    Job("qsgd@16", 0.5, 0.5, PLAIN, DENSE),
    Job("bingrad@b", 0.5, 0.5, PLAIN, DENSE),
    Job("bingrad@pb", 0.25, 0.5, PLAIN, DENSE),
    Job("natural", 0.5, 0.5, PLAIN, DENSE),
    Job("orq@3", 0.25, 0.5, PLAIN, DENSE),
    Job("orq@9", 0.12, 0.5, PLAIN, DENSE),
    Job("fp8", 0.4, 0.4, PLAIN, DENSE),
    Job("fp8+huffman", 0.15, 0.2, PLAIN, DENSE),
    Job("fp8+rans", 0.15, 0.2, PLAIN, DENSE),
    Job("ef+fp4+huffman", 0.15, 0.15, MEASURED, DENSE),
    Job("ef+fp4+rans", 0.15, 0.15, MEASURED, DENSE),
    Job("bf16+lossless", 0.15, 0.2, 2, DENSE, "bf16"),
)


# ---- figures -------------------------------------------------------------------------------------------------------------

def noise_of(values):
    """How far values lie from their median, as a share of it: by the median distance, so that one odd round does not count,
    scaled to be the standard deviation where they are Gaussian."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values) / middle


def calm(noises):
    """A few rounds can agree by accident: no noise is taken to be less than what is usual in the same run."""
    usual = statistics.median(noises)
    return [max(noise, usual) for noise in noises]


def summarise(rounds):
    """Rows by key from the rounds of each key: what `bench --json` said, and the noise."""
    rows = {}
    for key, results in rounds.items():
        row = {name: statistics.median(result[name] for result in results)
               for name in (*(f"{what}_vs_memcpy" for what in OPERATIONS), "memcpy_gbps", "bits_per_value")}
        row.update({f"{what}_noise": noise_of([result[f"{what}_vs_memcpy"] for result in results]) for what in OPERATIONS})
        rows[key] = row
    for name in (f"{what}_noise" for what in OPERATIONS):
        for row, noise in zip(rows.values(), calm([row[name] for row in rows.values()])):
            row[name] = noise
    return rows


def moved(before, after, noise_before, noise_after):
    """The factor by which a figure has changed, or None where noise alone could be the reason. Of factors the logarithm is
    taken, so that twice as fast and half as fast are as far."""
    return after / before if abs(math.log(after / before)) > SURE * math.hypot(noise_before, noise_after) else None


def compare(old, new):
    """(key, what, before, after) of all that has moved, the worst first; keys that either lacks have nothing to be held against."""
    found = []
    for key in old.keys() & new.keys():
        for what in OPERATIONS:
            if not all(rows[key].get(f"{what}_vs_memcpy") for rows in (old, new)):
                continue  # rows that were kept before this was measured
            before, after = (float(rows[key][f"{what}_vs_memcpy"]) for rows in (old, new))
            noises = (float(rows[key][f"{what}_noise"]) for rows in (old, new))
            if moved(before, after, *noises) is not None:
                found.append((key, what, before, after))
    return sorted(found, key=lambda row: (row[3] / row[2], row[0], row[1]))


# ---- what is kept ----------------------------------------------------------------------------------------------------------

def machine_kind(model, cores, simd):
    """A file's name from the processor's: its maker and what all of them are called say nothing."""
    text = re.sub(r"\((r|tm)\)|@|\bwith .*", " ", model.lower())
    said = [word for word in text.split() if word not in ("intel", "amd", "cpu", "processor") and not re.fullmatch(r"\d+-core", word)]
    return re.sub(r"[^a-z0-9.]+", "-", "-".join([*said, str(cores), simd])).strip("-")


def processor():
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def path_for(simd):
    return RESULTS / f"{machine_kind(processor(), os.cpu_count(), simd)}.csv"


def last_rows(path):
    """The commit that was kept last and its rows by key, the latest of each; None and nothing where there is no file."""
    if not path.exists():
        return None, {}
    with open(path, newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    last = rows[-1]["commit"] if rows else None
    return last, {(row["recipe"], row["dtype"], int(row["threads"]), int(row["n"])): row for row in rows if row["commit"] == last}


def save(path, rows):
    """Adds rows; those that are there get empty cells for columns that they lack."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = []
    if path.exists():
        with open(path, newline="", encoding="utf-8") as lines:
            kept = list(csv.DictReader(lines))
    with open(path, "w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *rows])


# ---- measuring -------------------------------------------------------------------------------------------------------------

def command(job, threads, options):
    return [*(["--dtype", job.dtype] if job.dtype != "fp32" else []), "--recipe", job.recipe, "--threads", str(threads), "--input",
            str(options.input), "--n", str(options.n), "--shift", str(options.shift), "--seconds", str(options.seconds), "--json"]


def progress(text):
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)


def environment(simd):
    """That of the program, with the best instruction set unless one is named."""
    found = {name: value for name, value in os.environ.items() if name != "TG_SIMD"}
    return {**found, "TG_SIMD": simd} if simd else found


def measure(jobs, options):
    """Results by key, a list of rounds each; and the instruction set that was used."""
    rounds, simd = {}, ""
    for r in range(options.rounds):
        for job in jobs:
            for threads in THREADS:
                progress(f"round {r + 1} of {options.rounds}: {job.name}, threads {threads}")
                done = subprocess.run([str(options.program), "bench", *command(job, threads, options)], check=True,
                                      stdout=subprocess.PIPE, text=True, env=environment(options.simd))
                result = json.loads(done.stdout.splitlines()[-1])
                if options.simd and result["simd"] != options.simd:
                    sys.exit(f"this machine has no {options.simd}: the program used {result['simd']}")
                rounds.setdefault((job.recipe, job.dtype, threads, result["n"]), []).append(result)
                simd = result["simd"]
    progress("")
    return rounds, simd


def limit(job, bits, moves):
    """What memory's bytes alone would allow, against the bytes that memcpy reads and writes."""
    copied = 2 * (4 if job.dtype == "fp32" else 2)
    return copied / (moves + bits / 8)


def rows_of(job, rows):
    """Those with one thread and with two."""
    return (next(row for key, row in rows.items() if key[:3] == (job.recipe, job.dtype, threads)) for threads in THREADS)


def targets_of(job, simd, avx512):
    """Targets for encode and decode. AVX2 is held against what AVX-512 reaches on the same kind of machine: its rows, if they are
    kept, or else its targets. Other instruction sets have none."""
    targets = {"encode": job.encode_target, "decode": job.decode_target}
    if simd == "avx512":
        return targets
    if simd != "avx2":
        return {what: None for what in targets}
    kept = next((row for key, row in avx512.items() if key[:3] == (job.recipe, job.dtype, 1)), {})
    return {what: round(AVX2_SHARE * float(kept.get(f"{what}_vs_memcpy", target)), 3) for what, target in targets.items()}


def text_of(target):
    return "" if target is None else f"{target}"


def table(jobs, rows, targets):
    lines = ["| recipe | bits | encode | noise | target | limit by bytes | decode and add | noise | target | limit by bytes "
             "| private sums | 2 threads: encode | decode |", "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for job in jobs:
        one, two = rows_of(job, rows)
        bits = one["bits_per_value"]
        decode_limit = f"{limit(job, bits, job.decode_moves):.2f}" if job.decode_moves else "entries alone"
        lines.append(
            f"| `{job.recipe}`{job.name.removeprefix(job.recipe)} | {bits:.2f} "
            f"| {one['encode_vs_memcpy']:.3f} | {one['encode_noise']:.1%} | {text_of(targets[job.name]['encode'])} "
            f"| {limit(job, bits, job.encode_moves):.2f} "
            f"| {one['decode_vs_memcpy']:.3f} | {one['decode_noise']:.1%} | {text_of(targets[job.name]['decode'])} | {decode_limit} "
            f"| {one['sum_vs_memcpy']:.3f} | {two['encode_vs_memcpy'] / one['encode_vs_memcpy']:.2f}× | {two['decode_vs_memcpy'] / one['decode_vs_memcpy']:.2f}× |")
    return lines


def tell_targets(jobs, rows, targets):
    """Which are missed, a line for each recipe that misses one."""
    lines, missed_n, all_n = [], 0, 0
    for job in jobs:
        one, two = rows_of(job, rows)
        missed = []
        for what, target in targets[job.name].items():
            found = one[f"{what}_vs_memcpy"]
            all_n += 1 if target is None else 2
            if target is not None and found < target:
                missed.append(f"{what} {found:.3f} of {target}")
            if two[f"{what}_vs_memcpy"] < TWO_THREADS * found:
                missed.append(f"{what} {two[f'{what}_vs_memcpy'] / found:.2f}× by two threads")
        missed_n += len(missed)
        if missed:
            lines.append(f"  {job.name}: {', '.join(missed)}")
    print(f"\nTargets (two threads: {TWO_THREADS}×, memory allowing): {all_n - missed_n} of {all_n} reached"
          + ("; missed:" if missed_n else "."))
    print("\n".join(lines))


def tell_moved(last, old, new):
    if not last:
        print("\nNothing is kept of this kind of machine, so there is nothing to compare with.")
        return
    found = compare(old, new)
    print(f"\nBeside {last}, " + ("this has moved by more than the noise of both:" if found
                                 else "nothing has moved by more than the noise of both."))
    for (recipe, dtype, threads, _), what, before, after in found:
        name = recipe if dtype == "fp32" else f"{recipe} on {dtype}"
        print(f"  {'better' if after > before else 'WORSE '}  {name}, {what}, threads {threads}: "
              f"{before:.3f} -> {after:.3f} ({after / before:.2f}×)")


def main():
    parser = argparse.ArgumentParser(description="How fast recipes are, beside targets and beside the last commit that was kept.")
    parser.add_argument("recipes", nargs="*", help="only these, of those that have targets")
    parser.add_argument("--simd", choices=SIMD, help="the instruction set [default: the best]")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/tersegrad")
    parser.add_argument("--input", type=pathlib.Path, default=pathlib.Path("build/gradients.npy"),
                        help="a row for each step; recorded by bench/gradients.py if it is not there")
    parser.add_argument("--n", type=int, default=25_000_000, help="elements of a gradient, from as many rows as it takes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each of memcpy, encode and decode, in a round")
    parser.add_argument("--save", action="store_true", help="add rows to bench/results")
    parser.add_argument("--page", action="store_true", help="put the table into bench/README.md")
    options = parser.parse_args()
    jobs = [job for job in JOBS if not options.recipes or job.recipe in options.recipes]
    if not jobs:
        parser.error(f"there are targets for {', '.join(job.recipe for job in JOBS)}")
    if options.rounds < 3:
        parser.error("fewer than three rounds say nothing about their noise")
    if not options.input.exists():
        subprocess.run([sys.executable, str(ROOT / "bench/gradients.py"), str(options.input), "--n", str(options.n),
                        "--program", str(options.program)], check=True)
    import numpy  # here, because bench/threads.py shares this file and must not need it
    options.shift = numpy.load(options.input, mmap_mode="r").shape[1]

    measured = commit()  # before, because files may change meanwhile
    rounds, simd = measure(jobs, options)
    rows = summarise(rounds)
    path = path_for(simd)
    last, old = last_rows(path)
    targets = {job.name: targets_of(job, simd, last_rows(path_for("avx512"))[1]) for job in jobs}
    copied = statistics.median(row["memcpy_gbps"] for row in rows.values())
    print(f"{next(iter(rows))[3]:,} elements of {options.input}, {measured}, {path.stem}, median of {options.rounds} rounds; "
          f"1 is memcpy with one thread, {copied:.1f} GB/s\n")
    lines = table(jobs, rows, targets)
    print("\n".join(lines))
    tell_targets(jobs, rows, targets)
    tell_moved(last, old, rows)
    if options.page:
        put_table(ROOT / "bench/README.md", "recipes", lines)
    if options.save:
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
        by_key = {(job.recipe, job.dtype): job for job in jobs}
        save(path, [{"date": date, "commit": measured, "recipe": key[0], "dtype": key[1], "threads": key[2], "n": key[3],
                     "command": " ".join([*([f"TG_SIMD={options.simd}"] if options.simd else []), "tersegrad", "bench", *command(by_key[key[:2]], key[2], options)]),
                     **{name: f"{value:.5g}" for name, value in row.items()}} for key, row in rows.items()])
        print(f"\nKept in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
