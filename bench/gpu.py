#!/usr/bin/env python3
"""Speed of recipes on a GPU, as a fraction of a device-to-device copy of the same fp32 input, measured in the same process.

    bench/gpu.py [--program PROGRAM] [--n 25000000,1000000] [--recipes 'A;B'] [--save]

`tersegrad bench` first compares a frame with the CPU's, byte by byte. --save appends to bench/results/gpu.csv.
"""

import argparse
import csv
import datetime
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECIPES = ("fp16;bf16;fp8;ef+fp16;ef+fp8;ef+randomblock@0.01;ef-signsgd;terngrad;qsgd@16;bingrad@b;natural;adacomp;ef+topk@0.01;orq@3;orq@9;"
           "ef+fp8+rans;ef+fp4+rans;ef+fp8+huffman;ef+fp4+huffman;bf16+lossless")
COLUMNS = ("date", "gpu", "recipe", "n", "copy_gbps", "encode_gbps", "decode_gbps", "encode_vs_copy", "decode_vs_copy", "ratio")


def gpu_name():
    done = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"


def measure(program, recipe, n, seconds):
    done = subprocess.run([program, "bench", "--recipe", recipe, "--n", str(n), "--seconds", str(seconds), "--device", "cuda", "--json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "cuda" / "tersegrad"))
    parser.add_argument("--n", default="25000000,1000000")
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    gpu, rows, failed = gpu_name(), [], False
    print(f"{'recipe':22} {'elements':>11} {'copy GB/s':>10} {'encode':>8} {'decode':>8} {'of copy: encode':>16} {'decode':>8} {'ratio':>8}")
    for n in map(int, options.n.split(",")):
        for recipe in options.recipes.split(";"):
            try:
                r = measure(options.program, recipe, n, options.seconds)
            except RuntimeError as error:
                print(f"{recipe:22} {n:>11,} {error}")
                failed = True
                continue
            print(f"{recipe:22} {n:>11,} {r['memcpy_gbps']:10.0f} {r['encode_gbps']:8.0f} {r['decode_gbps']:8.0f} "
                  f"{r['encode_vs_memcpy']:16.3f} {r['decode_vs_memcpy']:8.3f} {r['ratio']:8.1f}", flush=True)
            rows.append([datetime.date.today().isoformat(), gpu, recipe, n] + [f"{r[key]:.4g}" for key in (
                "memcpy_gbps", "encode_gbps", "decode_gbps", "encode_vs_memcpy", "decode_vs_memcpy", "ratio")])
    if options.save:
        path = ROOT / "bench" / "results" / "gpu.csv"
        is_new = not path.exists()
        with open(path, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerows(([COLUMNS] if is_new else []) + rows)
    sys.exit(failed)


if __name__ == "__main__":
    main()
