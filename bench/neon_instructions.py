#!/usr/bin/env python3
"""NEON in instructions: how many an element takes, by the scalar kernels and by those for NEON, in each kernel and each recipe.

For machines without an AArch64 CPU to time anything on: programs of build/neon run under qemu-aarch64, where a plugin
(bench/qemu_count.c) counts what they execute. Needs a C compiler and the packages of `scripts/install-deps neon`.

    cmake --preset neon && cmake --build build/neon --target tersegrad bench_kernels
    bench/neon_instructions.py [--page]

An instruction is not a unit of time: a look-up in four registers counts as much as an addition, and mispredicted branches and
waiting for memory do not count at all.
"""

import argparse
import collections
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from tables import put_table

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECIPES = [
    "fp16", "bf16", "ef+topk@0.01", "adacomp", "terngrad", "qsgd@16", "bingrad@b", "natural", "orq@3", "orq@9",
    "ef-signsgd", "ef+fp4+huffman", "ef+fp4+rans", "bf16+lossless"]  # fmt: skip
SIZES = (1 << 18, 1 << 19)  # elements; the difference is free of what starting takes
SETS = ("scalar", "neon")
ABREAST = 3  # kernels in a row of the page


class Counter:
    """Runs programs of a build folder and counts their instructions."""

    def __init__(self, build, folder):
        self.build, self.folder, self.plugin = build, folder, folder / "count.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.plugin, ROOT / "bench" / "qemu_count.c"], check=True)

    def run(self, simd, program, *arguments):
        """The instructions of each function, and what the program printed. Shared libraries are left out: loading them takes
        more or less from run to run, and they do no work on elements but for copying."""
        out = self.folder / "counts"
        command = ["qemu-aarch64", "-plugin", f"{self.plugin},out={out}", self.build / program, *arguments]
        ran = subprocess.run(command, env=dict(os.environ, TG_SIMD=simd), check=True, capture_output=True, text=True)
        counts = collections.Counter()
        for line in out.read_text().splitlines():
            function, count = line.rsplit(" ", 1)
            counts[function] += int(count)
        del counts["?"]
        return counts, ran.stdout

    def kernels(self):
        return self.run("scalar", "bench_kernels")[1].split()

    def kernel(self, simd, name):
        """Instructions per element: three calls against one, all else being equal."""
        three, _ = self.run(simd, "bench_kernels", name, "3")
        one, elements = self.run(simd, "bench_kernels", name, "1")
        return (three.total() - one.total()) / 2 / int(elements)

    def recipe(self, simd, recipe):
        """Instructions per element of each function, in encoding and in decoding by the program."""
        runs = []
        for n in SIZES:
            frame = self.folder / "frame.tg"
            encode, _ = self.run(simd, "tersegrad", "encode", "--recipe", recipe, self.gradient(n), frame)
            decode, _ = self.run(simd, "tersegrad", "decode", frame, self.folder / "back.npy")
            runs.append((encode, decode))
        elements = SIZES[1] - SIZES[0]
        return [{name: (more[name] - less[name]) / elements for name in more} for less, more in zip(*runs)]

    def gradient(self, n):
        path = self.folder / f"gradient{n}.npy"
        if not path.exists():
            normal = random.Random(1)
            header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({n},), }}"
            header += " " * (-(len(header) + 11) % 64) + "\n"
            start = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            path.write_bytes(start + struct.pack(f"<{n}f", *(normal.gauss(0, 0.01) for _ in range(n))))
        return path


def kernel_table(counter, only):
    cells = []
    for name in counter.kernels():
        if only in name:
            scalar, neon = (counter.kernel(simd, name) for simd in SETS)
            cells.append(f"`{name}` | {scalar:.2f} | {neon:.2f}")
            print(f"{name:20} scalar {scalar:6.2f}  neon {neon:6.2f}  {scalar / neon:5.1f}", flush=True)
    lines = ["|" + " kernel | scalar | NEON |" * ABREAST, "|" + "---|---|---|" * ABREAST]
    height = -(-len(cells) // ABREAST)
    for row in range(height):
        lines.append("| " + " | ".join((cells[row::height] + ["| | "] * ABREAST)[:ABREAST]) + " |")
    return lines


def recipe_table(counter, only, function_n):
    lines = ["| recipe | encode: scalar | NEON | ratio | decode: scalar | NEON | ratio |", "|---|---|---|---|---|---|---|"]
    for recipe in RECIPES:
        if only in recipe:
            scalar, neon = (counter.recipe(simd, recipe) for simd in SETS)
            cells = []
            for what, slow, fast in zip(("encode", "decode"), scalar, neon):
                both = sum(slow.values()), sum(fast.values())
                cells.append(f"{both[0]:.1f} | {both[1]:.1f} | {both[0] / both[1]:.1f}")
                print(f"{recipe:16} {what} scalar {both[0]:6.1f}  neon {both[1]:6.1f}  {both[0] / both[1]:5.1f}", flush=True)
                for name in sorted(fast, key=fast.get, reverse=True)[:function_n]:
                    print(f"    {fast[name]:6.2f} {name}")
            lines.append(f"| `{recipe}` | {' | '.join(cells)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "neon", help="where the programs are")
    parser.add_argument("--only", default="", metavar="WORD", help="kernels and recipes whose name contains it")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="the N functions that take most, of recipes")
    parser.add_argument("--page", action="store_true", help="write the tables into bench/README.md")
    arguments = parser.parse_args()
    if arguments.page and arguments.only:
        parser.error("the page has all kernels and recipes")
    with tempfile.TemporaryDirectory(prefix="tersegrad-bench-") as folder:
        counter = Counter(arguments.build, pathlib.Path(folder))
        tables = {"neon-recipes": recipe_table(counter, arguments.only, arguments.functions),
                  "neon-kernels": kernel_table(counter, arguments.only)}  # fmt: skip
    for name, lines in tables.items():
        if arguments.page:
            put_table(ROOT / "bench" / "README.md", name, lines)


if __name__ == "__main__":
    sys.exit(main())
