#!/usr/bin/env python3
"""How fast recipes are on this machine, beside memcpy in the same run, and how far from the limit.

    bench/table.py [PROGRAM] [--n N] [--threads T] [--seconds S]

The limit of a recipe is what memory allows: the bytes an element that must move, against the 8 that memcpy moves
(4 read, 4 written). It assumes gradients too large for the caches, and counts nothing for the entries of a sparse
frame. Prints a table for bench/README.md.
"""

import argparse
import json
import subprocess

# recipe, bytes an element that encoding must move, and that adding a decoded frame must move
RECIPES = (
    ("fp32", 4 + 4, 4 + 8),               # read the gradient, write the frame; read the frame, read and write the sum
    ("fp16", 4 + 2, 2 + 8),
    ("ef+fp16", 4 + 8 + 2, 2 + 8),        # and read and write the residual
    ("ef+threshold@0.5", 4 + 8, 0),
    ("topk@0.01", 4 + 4, 0),              # the gradient twice: to measure, to write
    ("ef+topk@0.01+fp16", 8 + 4 + 8, 0),  # gradient and residual to measure, and once more to write
    ("ef+randomk@0.01", 4 + 8, 0),
    ("ef+randomblock@0.01", 4 + 8, 0),
)


def run(program, recipe, options):
    command = [program, "bench", "--recipe", recipe, "--n", str(options.n), "--threads", str(options.threads),
               "--seconds", str(options.seconds), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description="How fast recipes are, and how far from the limit.")
    parser.add_argument("program", nargs="?", default="build/release/tersegrad")
    parser.add_argument("--n", type=int, default=1 << 24)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    options = parser.parse_args()
    print(f"{options.n:,} elements of fp32, {options.threads} thread(s); 1.00 is memcpy with one thread\n")
    print("| recipe | ratio | encode | limit | decode and add | limit |")
    print("|---|---|---|---|---|---|")
    for recipe, encode, decode in RECIPES:
        r = run(options.program, recipe, options)
        limit = f"{8 / decode:.2f}" if decode else "entries alone"
        print(f"| `{recipe}` | {r['ratio']:.1f} | {r['encode_vs_memcpy']:.2f} | {8 / encode:.2f} | "
              f"{r['decode_vs_memcpy']:.2f} | {limit} |", flush=True)


if __name__ == "__main__":
    main()
