#!/usr/bin/env python3
"""AdaComp against its definition, step by step: sent positions, decoded values and residuals, bit for bit.

The definition is written here once more, in NumPy and from the paper's terms, and shares no code with the library or
the other tests. With g a step's gradient and r the residual (0 at first), in binary32:

    G = r + g,  H = G + (weight - 1) * g,  gmax = the largest |G| of a bin
    scale = the mean of gmax over all bins, which are summed by leaves (docs/format.md)
    i is sent if gmax > 0 and |H[i]| >= gmax and G[i] is not 0; it arrives as scale with the sign of G[i]; r = G - sent

    test_adacomp.py [--library LIBRARY] [--gradients DIR]

LIBRARY is libtersegrad.so beside the program, which is build/release/tersegrad unless the environment variable
TERSEGRAD names another. DIR has folders step-NNNNNN with a .npy of each tensor, as `train --gradients` writes them;
without it the program records the first steps of a training itself.
Needs NumPy.
"""

import argparse
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "release" / "tersegrad")))
LIBRARY = PROGRAM.parent / "libtersegrad.so"
GRADIENTS = None  # the folder of --gradients, if it is given

STEPS = 50
SIZES = (1, 49, 50, 51, 499, 1000, 300007)  # the last has two chunks
BINS = (1, 7, 50, 500, 16384)
THREADS = (1, 3)


# ---- The definition --------------------------------------------------------------------------------------------------

def by_leaves(numbers):
    """A sum in binary64: 32 partial sums for each 1,024 numbers, folded by halves; then pairs, pairs of these, …"""
    leaves = []
    for first in range(0, len(numbers), 1024):
        sums = [0.0] * 32
        for place, number in enumerate(numbers[first:first + 1024].tolist()):
            sums[place % 32] += number
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [sums[i] + sums[half + i] for i in range(half)]
        leaves += sums
    while len(leaves) > 1:
        leaves = [sum(leaves[i:i + 2]) for i in range(0, len(leaves), 2)]
    return leaves[0]


class AdaComp:
    def __init__(self, n, size, weight=2):
        self.residual = np.zeros(n, np.float32)
        self.size, self.once_more = size, np.float32(weight - 1)

    def step(self, g):
        """(positions that are sent, what arrives)"""
        G = self.residual + g
        H = G + self.once_more * g
        gmax = np.maximum.reduceat(np.abs(G), np.arange(0, len(G), self.size))
        scale = np.float32(by_leaves(gmax) / len(gmax))
        limit = np.repeat(gmax, self.size)[:len(G)]
        sent = np.flatnonzero((limit > 0) & (np.abs(H) >= limit) & (G != 0))
        arrived = np.zeros(len(G), np.float32)
        arrived[sent] = np.where(G[sent] < 0, -scale, scale)
        self.residual = G - arrived
        return sent, arrived


# ---- The library, through its public header --------------------------------------------------------------------------

class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dims", ctypes.POINTER(ctypes.c_uint64)), ("dim_n", ctypes.c_uint32),
                ("kind", ctypes.c_int), ("dtype", ctypes.c_int)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("allocator", ctypes.c_void_p), ("rules", ctypes.c_void_p),
                ("rule_n", ctypes.c_size_t), ("seed", ctypes.c_uint64), ("dense_below", ctypes.c_uint64),
                ("has_seed", ctypes.c_uint32), ("threads", ctypes.c_uint32), ("nonfinite", ctypes.c_int),
                ("rank", ctypes.c_uint32), ("describe", ctypes.c_uint32), ("exchange", ctypes.c_char_p),
                ("verify_every", ctypes.c_uint64)]


class Traffic(ctypes.Structure):
    _fields_ = [("len", ctypes.c_uint64), ("entries", ctypes.c_uint64), ("bins", ctypes.c_uint64),
                ("shape", ctypes.c_double), ("scale", ctypes.c_double)]


class Detail(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char * 256)]


def pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


class Codec:
    """A codec of one or several tensors, which have the given numbers of elements; those of bf16 are their bits."""

    def __init__(self, recipe, sizes, threads=1, dtype="fp32", **more):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.library.tg_encode_bound.restype = ctypes.c_size_t
        self.library.tg_codec_free.restype = None
        number, self.element = {"fp32": (0, np.float32), "fp16": (1, np.float16), "bf16": (2, np.uint16)}[dtype]
        tensors = (Tensor * len(sizes))(*(Tensor(f"t{i}".encode(), (ctypes.c_uint64 * 1)(n), 1, 0, number)
                                          for i, n in enumerate(sizes)))
        options = Options(size=ctypes.sizeof(Options), threads=threads, **more)
        self.codec = ctypes.c_void_p()
        self.must("tg_codec_new", ctypes.byref(self.codec), recipe.encode(), tensors, ctypes.c_size_t(len(sizes)),
                  ctypes.byref(options))
        self.sizes = sizes
        self.room = np.empty(self.library.tg_encode_bound(self.codec), np.uint8)

    def must(self, name, *arguments):
        why = Detail()
        status = getattr(self.library, name)(*arguments, ctypes.byref(why))
        if status != 0:
            raise AssertionError(f"{name}: {why.text.decode()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.tg_codec_free(self.codec)

    def encode(self, step, gradients):
        gradients = [np.ascontiguousarray(gradient, self.element) for gradient in gradients]
        size = ctypes.c_size_t()
        self.must("tg_encode", ctypes.byref(size), self.codec, ctypes.c_void_p(self.room.ctypes.data),
                  ctypes.c_size_t(len(self.room)), ctypes.c_uint64(step), pointers(gradients))
        return self.room[:size.value]

    def decode(self, frame):
        out = [np.empty(n, self.element) for n in self.sizes]
        self.must("tg_decode", self.codec, pointers(out), ctypes.c_void_p(frame.ctypes.data),
                  ctypes.c_size_t(len(frame)))
        return out

    def residual(self, tensor=0):
        out = np.empty(self.sizes[tensor], np.float32)
        self.must("tg_codec_residual", self.codec, ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(tensor))
        return out

    def traffic(self, tensor=0):
        out = Traffic()
        self.must("tg_codec_traffic", ctypes.byref(out), self.codec, ctypes.c_size_t(tensor))
        return out


def recipe_of(size, weight=2):
    return f"ef+adabins@{size},weight={weight}+sign@scale=meanmax"


# ---- Tests -----------------------------------------------------------------------------------------------------------

class Case(unittest.TestCase):
    def same(self, ours, theirs, what):
        self.assertTrue(np.array_equal(ours.view(np.uint32), theirs.view(np.uint32)), f"{what} differs")

    def compare(self, recipe, size, steps, threads=THREADS, weight=2):
        """Codecs of each number of threads against the definition; `steps` yields lists of flat gradients."""
        codecs, plain = [], None
        try:
            for step, gradients in enumerate(steps):
                if plain is None:
                    sizes = [len(gradient) for gradient in gradients]
                    plain = [AdaComp(n, size, weight) for n in sizes]
                    codecs = [Codec(recipe, sizes, count) for count in threads]
                meant = [one.step(gradient) for one, gradient in zip(plain, gradients)]
                for codec in codecs:
                    decoded = codec.decode(codec.encode(step, gradients))
                    for tensor, (sent, arrived) in enumerate(meant):
                        what = f"step {step}, tensor {tensor} of {codec.sizes[tensor]}:"
                        traffic = codec.traffic(tensor)
                        self.assertEqual(traffic.entries, len(sent), f"{what} entries")
                        self.assertEqual(traffic.bins, -(-codec.sizes[tensor] // size), f"{what} bins")
                        self.same(decoded[tensor], arrived, f"{what} what arrives")
                        self.same(codec.residual(tensor), plain[tensor].residual, f"{what} what is remembered")
        finally:
            for codec in codecs:
                codec.__exit__()
        return plain


def drifting(n, steps, seed=0):
    """Gradients of N(0, 1), each element with a drift of its own, whose deviation is 0.1."""
    rng = np.random.default_rng(seed)
    drift = np.float32(0.1) * rng.standard_normal(n, dtype=np.float32)
    for _ in range(steps):
        yield rng.standard_normal(n, dtype=np.float32) + drift


class Definition(Case):
    def test_every_size_and_bin(self):
        for n in SIZES:
            for size in BINS:
                with self.subTest(n=n, bin=size):
                    self.compare(recipe_of(size), size, ([g] for g in drifting(n, STEPS, n + size)))

    def test_several_tensors(self):
        sizes = (3, 1000, 501, 1)
        steps = zip(*(drifting(n, STEPS, n) for n in sizes))
        self.compare(recipe_of(50), 50, (list(gradients) for gradients in steps))

    def test_weights(self):
        for weight in (1, 1.3, 3, 100):
            with self.subTest(weight=weight):
                self.compare(recipe_of(50, weight), 50, ([g] for g in drifting(1234, STEPS)), weight=weight)

    def test_packs(self):
        """Packs do not change the decoded values."""
        for pack in ("gaps", "bitmap", "adacomp8", "adacomp16"):
            with self.subTest(pack=pack):
                self.compare(f"{recipe_of(50)}+{pack}", 50, ([g] for g in drifting(2777, STEPS)))

    def test_bins_of_zeros(self):
        def steps():
            for g in drifting(340, STEPS):
                g[100:150] = 0
                g[300:] = -0.0
                yield [g]

        plain, = self.compare(recipe_of(50), 50, steps())
        self.assertTrue(np.all(plain.residual[100:150] == 0) and np.all(plain.residual[300:] == 0))

    def test_a_bin_of_zeros_still_has_a_residual(self):
        """If a gradient becomes 0, the residual is still sent."""
        def steps():
            for step, g in enumerate(drifting(200, STEPS)):
                yield [g if step < 10 else np.zeros_like(g)]

        self.compare(recipe_of(50), 50, steps())

    def test_all_zero(self):
        self.compare(recipe_of(50), 50, ([np.zeros(333, np.float32)] for _ in range(3)))

    def test_magnitudes(self):
        """Denormals and values near the largest."""
        for factor in (1e-44, 1e-38, 1e37):
            with self.subTest(factor=factor):
                self.compare(recipe_of(50), 50, ([g * np.float32(factor)] for g in drifting(333, 20)))


class SteadyState(Case):
    def entries_of_a_bin(self, size, weight):
        """The mean over steps 150 to 300."""
        n, entries, bins = 20000, 0, 0
        with Codec(recipe_of(size, weight), [n]) as codec:
            for step, gradient in enumerate(drifting(n, 300, size)):
                codec.encode(step, [gradient])
                if step >= 150:
                    entries, bins = entries + codec.traffic().entries, bins + codec.traffic().bins
        return entries / bins

    def check(self, size, weight, least, most):
        with self.subTest(bin=size, weight=weight):
            found = self.entries_of_a_bin(size, weight)
            self.assertTrue(least <= found <= most, f"{found:.2f} entries a bin, not {least:.2f} to {most:.2f}")

    def test_about_five_entries_a_bin(self):
        for size in (50, 500):
            self.check(size, 2, 4.3, 6.2)

    def test_other_weights(self):
        for size, weight, about in ((50, 1, 1), (500, 1, 1), (50, 3, 10), (500, 3, 37)):
            self.check(size, weight, 0.75 * about, 1.25 * about)


class Conservation(Case):
    def test_gradients_are_sent_or_in_the_residual(self):
        n = 5000
        for size in (7, 50, 500):
            with self.subTest(bin=size), Codec(recipe_of(size), [n]) as codec:
                total, arrived, largest = np.zeros(n), np.zeros(n), 0
                for step, gradient in enumerate(drifting(n, STEPS, size)):
                    total += gradient
                    arrived += codec.decode(codec.encode(step, [gradient]))[0]
                    largest = max(largest, np.abs(codec.residual()).max() + np.abs(gradient).max())
                # Each step rounds twice: G, and what is left of it.
                error = np.abs(total - arrived - codec.residual()).max()
                self.assertLessEqual(error, STEPS * 2 * largest * 2.0 ** -24)


class Recorded(Case):
    def record(self, folder):
        subprocess.run([PROGRAM, "train", "--data", "glyphs", "--recipe", "dense", "--workers", "1", "--steps", str(STEPS),
                        "--test-every", "0", "--gradients", folder], check=True, capture_output=True)

    def steps(self, recorded):
        folders = sorted(recorded.glob("step-*"))
        self.assertTrue(folders, f"{recorded} has no step-NNNNNN")
        names = sorted(path.name for path in folders[0].glob("*.npy"))
        for folder in folders:
            yield [np.load(folder / name).astype(np.float32).reshape(-1) for name in names]

    def test_recorded_gradients(self):
        with tempfile.TemporaryDirectory() as temporary:
            recorded = GRADIENTS or pathlib.Path(temporary) / "gradients"
            if GRADIENTS is None:
                self.record(recorded)
            for size in (50, 500):
                with self.subTest(bin=size):
                    self.compare(recipe_of(size), size, self.steps(recorded))


def main():
    global LIBRARY, GRADIENTS
    parser = argparse.ArgumentParser(description="Hold AdaComp against its definition.")
    parser.add_argument("--library", type=pathlib.Path, default=LIBRARY, help="libtersegrad.so")
    parser.add_argument("--gradients", type=pathlib.Path, help="folder of step-NNNNNN/TENSOR.npy [default: recorded now]")
    options, rest = parser.parse_known_args()
    LIBRARY, GRADIENTS = options.library.absolute(), options.gradients
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
