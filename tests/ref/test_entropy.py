#!/usr/bin/env python3
"""Coded symbols and indices by their sizes: near what entropy allows, and at most a byte longer than the plain form.

Sizes are those that the reference decoder finds in frames, chunk headers aside. Everything is drawn from fixed seeds.

Needs NumPy. The program is build/release/tersegrad unless the environment variable TERSEGRAD names another, and the
library, which takes bf16 tensors as well, is libtersegrad.so beside it.
"""

import unittest

import numpy as np

import by_program
from by_program import CHUNK, PROGRAM
import golden
import test_adacomp as library  # the library, through its public header
import tersegrad_ref as ref



def gaussian(n, seed):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def laplace(n, seed):
    return np.random.default_rng(seed).laplace(size=n).astype(np.float32)


def cubed(n, seed):
    return (np.random.default_rng(seed).standard_normal(n) ** 3).astype(np.float32)


def counts_of(symbols, base):
    counts = np.bincount(symbols, minlength=base)
    return counts[counts > 0].astype(np.float64)


def entropy(symbols, base):
    """Bits of all symbols together, by their own counts."""
    counts = counts_of(symbols, base)
    return -(counts * np.log2(counts / counts.sum())).sum()


def prefix_bits(symbols, base):
    """The same by the best prefix code."""
    counts = counts_of(symbols, base).tolist()
    return by_program.prefix_cost(counts) if len(counts) > 1 else len(symbols)


class Chunks(by_program.Case):
    def chunks(self, recipe, values, *flags):
        """(layout, chunk, its symbols) of all chunks"""
        frame = self.encode(recipe, values, *flags)
        for _, parsed, _, chunk in golden.chunks_of(frame, []):
            yield parsed.layout, chunk, ref.uncoded(parsed.layout, chunk.count, chunk.numbers, chunk.symbols)


# ---- Symbols ---------------------------------------------------------------------------------------------------------

class Symbols(Chunks):
    def check(self, recipe, values, bound, share, each=0, least=0):
        """Against a bound on bits, and so much more; `each` are bits a symbol that do not count, `least` those that may be more."""
        for layout, chunk, symbols in self.chunks(recipe, values):
            bits = bound(symbols, layout.base)
            limit = max((1 + share) * bits + each * len(symbols), bits + least * len(symbols))
            self.assertLessEqual(len(chunk.symbols) * 8, limit,
                                 f"{recipe}: {len(chunk.symbols)} bytes, not {bits / 8:.0f}")
            self.assertLessEqual(len(chunk.symbols), ref.symbols_len(layout, chunk.count) + 1)

    def test_rans(self):
        """Within 1% of the entropy, or 1/32 bit a symbol, frequencies and states included."""
        for recipe in ("fp4+rans", "fp8@e4m3+rans", "orq@9+rans", "qsgd@16+rans", "natural+rans"):
            for draw in (gaussian, laplace, cubed):
                for n in (65536, CHUNK) if recipe == "fp4+rans" else (131072,) if recipe == "natural+rans" else (65536,):
                    with self.subTest(recipe=recipe, draw=draw.__name__, n=n):
                        self.check(recipe, draw(n, 1), entropy, 0.01, least=1 / 32)

    def test_huffman(self):
        """Within 1% of the best prefix code, lengths of codes included. A stream of 1,024 symbols has a length, and ends in a whole byte."""
        for recipe in ("fp4+huffman", "fp8@e5m2+huffman", "orq@9+huffman", "linear@256+huffman"):
            for draw in (gaussian, cubed):
                with self.subTest(recipe=recipe, draw=draw.__name__):
                    self.check(recipe, draw(CHUNK, 2), prefix_bits, 0.01, 24 / 1024)

    def test_huffman_by_the_model(self):
        """No worse than 3% above the best code where the values are of the model: normal, and of Laplace."""
        for recipe in ("fp4+huffman@model", "fp8@e5m2+huffman@model", "fp8@e4m3+huffman@model"):
            for draw in (gaussian, laplace):
                with self.subTest(recipe=recipe, draw=draw.__name__):
                    self.check(recipe, draw(65536, 3), prefix_bits, 0.03, 24 / 1024)

    def test_never_much_beyond_the_plain_form(self):
        """Symbols that coding cannot shorten are sent plain, one byte longer."""
        random = np.random.default_rng(4)
        for recipe in ("sign+rans", "sign+huffman", "sign+zstd", "linear@256+rans", "linear@256+huffman",
                       "linear@256+zstd"):
            for n in (1, 2, 50, 3000):
                values = random.uniform(-1, 1, n).astype(np.float32)
                for layout, chunk, _ in self.chunks(recipe, values):
                    self.assertLessEqual(len(chunk.symbols), ref.symbols_len(layout, chunk.count) + 1)
        values = random.integers(0, 2 ** 32, 3000, np.uint32).view(np.float32)
        for recipe in ("fp32+lossless", "fp32+zstd"):
            for layout, chunk, _ in self.chunks(recipe, values, "--nonfinite", "pass"):
                self.assertLessEqual(len(chunk.symbols), ref.symbols_len(layout, chunk.count) + 1)

    def test_one_symbol(self):
        """A chunk of equal symbols takes almost no bytes."""
        for recipe, most in (("fp4+rans", 20), ("sign+rans", 10), ("fp4+huffman", CHUNK // 8 + 3 * CHUNK // 1024 + 30),
                             ("bf16+zstd", 100)):
            for _, chunk, _ in self.chunks(recipe, np.full(CHUNK, 0.5, np.float32)):
                self.assertLessEqual(len(chunk.symbols), most, recipe)


# ---- Floats ----------------------------------------------------------------------------------------------------------

class Floats(Chunks):
    def test_of_fp32(self):
        """Nothing is lost, and fp32 takes 84% of its bytes."""
        values = gaussian(CHUNK + 1001, 5)
        frame = self.encode("fp32+lossless", values)
        self.assertLessEqual(len(frame), 0.84 * values.nbytes)
        (_, out), = golden.decode(PROGRAM, self.dir, frame)
        self.assertTrue(np.array_equal(out.view(np.uint32), values.view(np.uint32)))
        (_, out), = ref.decode(frame)[1]
        self.assertTrue(np.array_equal(out.view(np.uint32), values.view(np.uint32)))

    def through_the_library(self, recipe, values, dtype):
        """The length of a frame, after both decoders gave back the same bits."""
        with library.Codec(recipe, [len(values)], dtype=dtype, describe=1) as codec:
            frame = codec.encode(0, [values]).copy()
            out, = codec.decode(frame)
        self.assertTrue(np.array_equal(out.view(np.uint16), values.view(np.uint16)))
        (_, out), = ref.decode(frame.tobytes())[1]
        self.assertTrue(np.array_equal(out.view(np.uint16), values.view(np.uint16)))
        return len(frame)

    def test_of_16_bits(self):
        """bf16 takes 67% of its bytes, fp16 about 88%."""
        values = gaussian(CHUNK, 6)
        halves = values.astype(np.float16)
        self.assertLessEqual(self.through_the_library("fp16+lossless", halves, "fp16"), 0.9 * halves.nbytes)
        upper = ref.to_bf16(values)
        self.assertLessEqual(self.through_the_library("bf16+lossless", upper, "bf16"), 0.67 * upper.nbytes)
        self.through_the_library("fp32+lossless", upper[:5000], "bf16")
        self.through_the_library("bf16+zstd", upper[:5000], "bf16")

    def test_near_the_entropy_of_exponents(self):
        """Lower bytes are plain; the upper byte of the rotated word takes its entropy: within 1% of both together."""
        values = laplace(CHUNK, 7)
        for recipe, kind, lower in (("fp32+lossless", "<u4", 3), ("bf16+lossless", "<u2", 1)):
            (layout, chunk, words), = self.chunks(recipe, values)
            words = np.frombuffer(words, kind)
            upper = words.astype(np.int64) << 1 >> 8 * lower & 255
            bits = entropy(upper, 256) + 8 * lower * len(words)
            self.assertLessEqual(len(chunk.symbols) * 8, 1.01 * bits)


# ---- Indices ---------------------------------------------------------------------------------------------------------

class Indices(Chunks):
    def test_random_sets(self):
        """Within 2% of what it takes to tell a random set of that density."""
        values = np.ones(4 * CHUNK, np.float32)
        for density in (0.001, 0.01, 0.03, 0.1):
            frame = self.encode(f"randomk@{density},coords=own+fp32+gaps+rans", values, "--step", "3")
            chunks = [chunk for _, _, _, chunk in golden.chunks_of(frame, [])]
            count, found = sum(chunk.count for chunk in chunks), sum(len(chunk.indices) for chunk in chunks)
            bits = -np.log2(density) - (1 - density) / density * np.log2(1 - density)
            with self.subTest(density=density):
                self.assertAlmostEqual(count / len(values), density, 5)
                self.assertLessEqual(abs(found * 8 / (bits * count) - 1), 0.02)
                self.assertIn(ref.GEOMETRIC, golden.modes_of(frame))

    def test_no_mode_is_shorter(self):
        """Against a plain bitmap, and Rice codes as index pack `gaps` has them without `rans`."""
        for n, density in ((100, 0.1), (5000, 0.003), (5000, 0.5), (50000, 0.02), (50000, 0.9)):
            values = gaussian(n, 8)
            with_rans, without = (sum(len(chunk.indices) for _, _, _, chunk in golden.chunks_of(
                self.encode(f"topk@{density}+fp16{pack}", values), [])) for pack in ("+rans", ""))
            self.assertLessEqual(with_rans, without)


if __name__ == "__main__":
    unittest.main()
