#!/usr/bin/env python3
"""Speed of recipes on a GPU, as a fraction of a device-to-device copy of the same fp32 input, measured in the same process.

    bench/gpu.py [--program PROGRAM] [--recipes 'A;B'] [--limit 120] [--save]
    bench/gpu.py --page          measures nothing: the table of bench/README.md, from the last rows that are kept

Tables, in this order, as far as --limit seconds allow: 25 M and 1 M elements beside the targets; what ten lines of PyTorch reach
(bench/gpu_peers.py); the 160 tensors of ResNet-50 beside one tensor; a step of PowerSGD; 250 M elements, of a few recipes. `tersegrad
bench` first compares a frame with the CPU's, byte by byte. The policy for NaN is `zero`, so that encoding of fixed length does not wait.
--save appends to bench/results/gpu.csv.
"""

import argparse
import csv
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from tables import commit, put_table, read_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
# recipe: encode and decode at 25 M elements, as fractions of a copy; whether frames have a fixed length
TARGETS = {
    "fp16": (1.0, 0.85, True), "bf16": (1.0, 0.85, True), "fp8": (1.0, 0.85, True), "ef+fp16": (0.6, 0.85, True),
    "ef+fp8": (0.6, 0.85, True), "ef-signsgd": (0.6, 0.85, True), "ef+randomblock@0.01": (0.6, 5, False),
    "terngrad": (0.7, 0.8, True), "qsgd@16": (0.7, 0.8, True), "bingrad@b": (0.7, 0.8, True), "natural": (0.7, 0.8, True),
    "adacomp": (0.5, 4, False), "ef+topk@0.01": (0.45, 4, False), "orq@3": (0.3, 0.8, True), "orq@9": (0.15, 0.8, True),
    "ef+fp8+rans": (0.45, 0.6, False), "ef+fp4+rans": (0.45, 0.6, False), "ef+fp8+huffman": (0.22, 0.3, False),
    "ef+fp4+huffman": (0.22, 0.3, False), "bf16+lossless": (0.5, 0.6, False),
}
SMALL, LARGE, HUGE = 1000000, 25000000, 250000000
SMALL_GBPS = (120, 300)  # coded, of fixed length
OF_SHAPES = ("fp16", "terngrad", "adacomp", "ef+topk@0.01")
OF_HUGE = ("fp16", "ef+fp8", "terngrad")
COLUMNS = ("date", "gpu", "recipe", "n", "copy_gbps", "encode_gbps", "decode_gbps", "encode_vs_copy", "decode_vs_copy", "ratio", "commit")


def gpu_name():
    if shutil.which("nvidia-smi") is None:
        return "unknown"
    done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"


class Table:
    def __init__(self, options):
        self.options, self.end, self.gpu = options, time.monotonic() + options.limit, gpu_name()
        self.rows, self.failed, self.left_out = [], False, []

    def has_time(self, what, seconds=2.0):
        if time.monotonic() + seconds < self.end:
            return True
        self.left_out.append(what)
        return False

    def bench(self, recipe, *flags):
        """What `tersegrad bench` found, or None."""
        command = [self.options.program, "bench", "--recipe", recipe, "--device", "cuda", "--nonfinite", "zero", "--json",
                   "--seconds", str(self.options.seconds), "--threads", str(min(os.cpu_count() or 1, 16)), *flags]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(10, self.end - time.monotonic() + 10))
        except subprocess.TimeoutExpired:
            self.left_out.append(recipe)
            return None
        if done.returncode != 0:
            print(f"{recipe:20} {done.stderr.strip()}", flush=True)
            self.failed = True
            return None
        return json.loads(done.stdout.splitlines()[-1])

    def line(self, recipe, n):
        r = self.bench(recipe, "--n", str(n))
        if r is None:
            return
        encode, decode, is_fixed = TARGETS.get(recipe, (0, 0, False))
        aims = f"{SMALL_GBPS[is_fixed]:>6} GB/s" if n == SMALL else f"{encode:>5g} {decode:>5g}"
        print(f"{recipe:20} {n // 1000000:>4} M {r['memcpy_gbps']:6.0f} | {r['encode_gbps']:6.0f} {r['decode_gbps']:6.0f} {r['sum_gbps']:6.0f} | "
              f"{r['encode_vs_memcpy']:6.3f} {r['decode_vs_memcpy']:6.3f} {r['sum_vs_memcpy']:6.3f} | {aims:11} | {r['ratio']:6.1f}",
              flush=True)
        self.rows.append([datetime.date.today().isoformat(), self.gpu, recipe, n] + [f"{r[key]:.4g}" for key in (
            "memcpy_gbps", "encode_gbps", "decode_gbps", "encode_vs_memcpy", "decode_vs_memcpy", "ratio")] + [self.options.commit or commit()])

    def shapes(self, recipe):
        r = self.bench(recipe, "--shapes", str(ROOT / "bench" / "shapes" / "resnet50.txt"))
        if r is not None:
            print(f"{recipe:20} 160 tensors of ResNet-50, times as long as one: encode {r['encode_vs_one_tensor']:.2f}, "
                  f"decode {r['decode_vs_one_tensor']:.2f}", flush=True)

    def run(self, name, command, seconds):
        """Another program's lines."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=max(5.0, min(seconds, self.end - time.monotonic())))
            lines = done.stdout if done.returncode == 0 else done.stdout + done.stderr[-300:]
        except subprocess.TimeoutExpired as late:
            lines = (late.stdout or b"").decode() + f"{name}: stopped after {seconds:g} s"
        except OSError as error:
            lines = f"{name}: {error}"
        print(lines.rstrip(), flush=True)

    def save(self):
        path = ROOT / "bench" / "results" / "gpu.csv"
        is_new = not path.exists()
        with open(path, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(([COLUMNS] if is_new else []) + self.rows)


def page():
    """The last of each figure: a row lacks what was measured of kernels that were not kept."""
    last, of = {}, set()
    for row in read_rows(ROOT / "bench" / "results" / "gpu.csv"):
        for column, value in row.items():
            if value != "":
                last[row["recipe"], int(row["n"]), column] = value, row["date"], row["commit"] or "an earlier commit"
                if int(row["n"]) in (LARGE, SMALL):
                    gpu = row["gpu"]

    def told(recipe, n, column, form):
        value, *when = last[recipe, n, column]
        of.add(tuple(when))
        return format(value, form)

    table = [f"| `{recipe}` | {told(recipe, LARGE, 'encode_vs_copy', '.2f')} | {encode:g} | {told(recipe, LARGE, 'decode_vs_copy', '.2f')} | {decode:g} | "
             f"{told(recipe, SMALL, 'encode_gbps', '.0f')} | {told(recipe, SMALL, 'decode_gbps', '.0f')} | {SMALL_GBPS[is_fixed]} | "
             f"{told(recipe, LARGE, 'ratio', '.1f')} |" for recipe, (encode, decode, is_fixed) in TARGETS.items() if (recipe, SMALL, "ratio") in last]
    dates = sorted({date for date, _ in of})
    lines = [f"{gpu}, {' and '.join(dates)}, commits {' and '.join(sorted({name for _, name in of}))}:", "",
             "| recipe | encode, 25 M | target | decode into a sum, 25 M | target | encode, 1 M, GB/s | decode, 1 M, GB/s | target | ratio |", "|---|---|---|---|---|---|---|---|---|", *table]
    put_table(ROOT / "bench" / "README.md", "gpu", lines)


def common_flags(description, recipes, limit):
    """A parser with the flags that all benchmarks of the GPU have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "cuda" / "tersegrad"))
    parser.add_argument("--recipes", default=";".join(recipes))
    parser.add_argument("--limit", type=float, default=limit, help="seconds for all of it; what does not fit is left out, and named")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--page", action="store_true", help="make the table of bench/README.md from what is kept, and measure nothing")
    return parser


def main():
    parser = common_flags(__doc__, TARGETS, 120)
    parser.add_argument("--n", default=f"{LARGE},{SMALL}")
    parser.add_argument("--seconds", type=float, default=0.15, help="of timing, for each recipe and size")
    parser.add_argument("--commit", help="what is measured, where there is no repository")
    parser.add_argument("--only-recipes", action="store_true", help="no peers, shapes, PowerSGD, 250 M")
    options = parser.parse_args()
    if options.page:
        page()
        return
    table = Table(options)
    print("recipe                   n    copy | encode decode  sum  GB/s | of copy: enc, dec, sum | target      |  ratio")
    for n in map(int, options.n.split(",")):
        for recipe in options.recipes.split(";"):
            if table.has_time(f"{recipe} at {n}"):
                table.line(recipe, n)
    if not options.only_recipes:
        if table.has_time("peers", 15):
            table.run("peers", [sys.executable, str(ROOT / "bench" / "gpu_peers.py")], 45)
        for recipe in OF_SHAPES:
            if table.has_time(f"{recipe} with shapes", 3):
                table.shapes(recipe)
        step = ROOT / "build" / "cuda" / "bench_gpu_step"
        if step.exists() and table.has_time("PowerSGD", 8):
            table.run("PowerSGD", [str(step), "--ranks", "1", "--steps", "20", "--check", "1",
                                   str(ROOT / "bench" / "shapes" / "resnet50.txt"), "powersgd@4"], 20)
        for recipe in OF_HUGE:
            if table.has_time(f"{recipe} at {HUGE}", 15):
                table.line(recipe, HUGE)
    if table.left_out:
        print(f"left out, no time: {', '.join(table.left_out)}")
    if options.save:
        table.save()
    sys.exit(table.failed)


if __name__ == "__main__":
    main()
