#!/usr/bin/env python3
"""Bucket quantizers against known properties: no bias, errors of a known size, optimal levels where promised.

Figures for values of a Gaussian, a Laplace distribution and the cube of a Gaussian, all in terms of

    NMSE = the squared error, summed over all values, over their squares, summed likewise

The figures of two-point rounding follow from its variance, (c - v)(v - a) for a value v between a and c. Everything is
drawn from fixed seeds, so that a test that passes once always does.

    test_quantizers.py [--library LIBRARY]

LIBRARY is libtersegrad.so beside the program, which is build/release/tersegrad unless the environment variable
TERSEGRAD names another. Needs NumPy.
"""

import argparse
import os
import pathlib
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_adacomp as library  # noqa: E402  the library, through its public header

BUCKET, BUCKETS = 300, 3000
RANDOM = ("bingrad@pb", "orq@9", "orq@4,levels=exact", "linear@16", "qsgd@16", "qsgd@3,norm=max", "ternary", "natural")
FIXED = ("bingrad@b", "bingrad@zero", "sign", "sign@scale=one", "fp4", "fp8@e4m3")


def but(recipe, bucket):
    """The quantizer with another bucket."""
    return recipe if recipe == "natural" else f"{recipe}{',' if '@' in recipe else '@'}bucket={bucket}"


def gaussian(n, seed):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def laplace(n, seed):
    return np.random.default_rng(seed).laplace(size=n).astype(np.float32)


def cubed(n, seed):
    return (np.random.default_rng(seed).standard_normal(n) ** 3).astype(np.float32)


def arrived(recipe, values, step=0):
    """The decoded values after one encoding."""
    with library.Codec(recipe, [len(values)]) as codec:
        return codec.decode(codec.encode(step, [values]))[0]


def nmse(values, out):
    values, out = values.astype(np.float64), out.astype(np.float64)
    return ((out - values) ** 2).sum() / (values ** 2).sum()


def in_32(numbers):
    """Rounded to binary32."""
    return numbers.astype(np.float32).astype(np.float64)


def around(levels, values):
    """The levels below and above each value; one that equals it is the lower one."""
    at = np.searchsorted(levels, values, side="right") - 1
    return levels[at], levels[np.minimum(at + 1, len(levels) - 1)]


# ---- No bias ---------------------------------------------------------------------------------------------------------

class Unbiased(unittest.TestCase):
    steps = 2000

    def check(self, recipe, values, bounds, those=slice(None)):
        """The mean of what arrives, against the variance of rounding between two bounds of each of those values."""
        total = np.zeros(len(values))
        with library.Codec(recipe, [len(values)]) as codec:
            first = codec.decode(codec.encode(0, [values]))[0].astype(np.float64)
            low, high = bounds(first)
            for step in range(self.steps):
                out = codec.decode(codec.encode(step, [values]))[0].astype(np.float64)
                self.assertTrue(np.all((out == low) | (out == high)), f"step {step} has a value of another level")
                total += out
        v, total, low, high = (numbers[those] for numbers in (values.astype(np.float64), total, low, high))
        error, deviation = total / self.steps - v, np.sqrt((high - v) * (v - low) / self.steps)
        # Bernstein's bound: a chance that is small has more weight in the tail than a Gaussian.
        self.assertTrue(np.all(np.abs(error) <= 5 * deviation + 10 * (high - low) / self.steps), "a value is biased")
        self.assertLess(abs(error.sum()), 4 * np.sqrt((deviation ** 2).sum()), "all values together are biased")
        often = deviation > 0.2 * (high - low) / np.sqrt(self.steps)
        self.assertGreater(often.sum(), len(v) / 10)
        self.assertTrue(0.8 < np.mean((error[often] / deviation[often]) ** 2) < 1.25, "the variance is another one")

    def values(self, seed):
        """Four buckets of 250: two distributions, few values, some far out."""
        far = gaussian(250, seed) * np.where(np.arange(250) % 50, 1, 30)
        few = np.random.default_rng(seed).integers(-3, 4, 250) * 0.3
        return np.concatenate([gaussian(250, seed + 1), cubed(250, seed + 2), far, few]).astype(np.float32)

    def rows(self, values):
        return values.astype(np.float64).reshape(-1, 250)

    def test_orq(self):
        def bounds(first):
            """A value on a level is decoded exactly."""
            pairs = [around(np.unique(out), row) for out, row in zip(self.rows(first), self.rows(values))]
            return np.concatenate([low for low, _ in pairs]), np.concatenate([high for _, high in pairs])

        values = self.values(1)
        for recipe in ("orq@3", "orq@17", "orq@2,levels=exact", "orq@6,levels=exact"):
            with self.subTest(recipe=recipe):
                self.check(but(recipe, 250), values, bounds)

    def test_linear(self):
        values = self.values(2)
        rows = self.rows(values)
        a, c = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
        for levels in (2, 16, 256):
            def bounds(_):
                below = np.minimum(np.floor((rows - a) / (c - a) * (levels - 1)), levels - 2)
                return [in_32(a + (c - a) * ((below + side) / (levels - 1))).reshape(-1) for side in (0, 1)]

            with self.subTest(levels=levels):
                self.check(but(f"linear@{levels}", 250), values, bounds)

    def grid(self, values, m, levels):
        """Bounds of a grid of magnitudes, with the signs of values."""
        below = np.minimum(np.floor(np.abs(values) / m * levels), levels - 1)
        sides = [in_32(np.copysign(m * ((below + side) / levels), values)).reshape(-1) for side in (0, 1)]
        return np.minimum(*sides), np.maximum(*sides)

    def test_qsgd(self):
        values = self.values(3)
        rows = self.rows(values)
        norms = {"l2": np.sqrt((rows ** 2).sum(1, keepdims=True)), "max": np.abs(rows).max(1, keepdims=True)}
        for levels, norm in ((1, "l2"), (16, "l2"), (255, "l2"), (1, "max"), (7, "max")):
            with self.subTest(levels=levels, norm=norm):
                self.check(but(f"qsgd@{levels},norm={norm}", 250), values,
                           lambda _: self.grid(rows, in_32(norms[norm]), levels))

    def test_ternary(self):
        values = self.values(4)
        rows = self.rows(values)
        self.check(but("ternary", 250), values, lambda _: self.grid(rows, np.abs(rows).max(1, keepdims=True), 1))

    def test_bingrad_pb(self):
        """Of values whose magnitude is not above b."""
        values = np.random.default_rng(6).uniform(-0.45, 0.45, 1000).astype(np.float32)
        values.reshape(-1, 250)[:, 0] = 150  # so that b is 150 over 250

        def bounds(first):
            b = np.abs(first)
            self.assertTrue(np.allclose(b, 0.6, 1e-6))
            return -b, b

        self.check(but("bingrad@pb", 250), values, bounds, values < 1)

    def test_natural(self):
        """From the least denormal on; of these, between 0 and the least that is none."""
        values = self.values(5) * np.float32(2) ** np.random.default_rng(5).integers(-140, 120, 1000).astype(np.float32)

        def bounds(_):
            size = np.abs(values.astype(np.float64))
            _, exponent = np.frexp(size)
            low = np.where(size < 2.0 ** -126, 0, np.ldexp(0.5, exponent))
            high = np.where(size == low, low, np.where(size < 2.0 ** -126, 2.0 ** -126, 2 * low))
            sides = np.copysign(low, values), np.copysign(high, values)
            return np.minimum(*sides), np.maximum(*sides)

        # Errors of all sizes at once: what is compared is relative, so that each value counts.
        self.check_relative(values, *bounds(None))

    def check_relative(self, values, low, high):
        scale = np.where(high > low, high - low, 1)
        total = np.zeros(len(values))
        with library.Codec("natural", [len(values)]) as codec:
            for step in range(self.steps):
                out = codec.decode(codec.encode(step, [values]))[0].astype(np.float64)
                self.assertTrue(np.all((out == low) | (out == high)), f"step {step} has a value of another power")
                total += (out - low) / scale
        chance = (values.astype(np.float64) - low) / scale
        error, deviation = total / self.steps - chance, np.sqrt(chance * (1 - chance) / self.steps)
        self.assertTrue(np.all(np.abs(error) <= 5 * deviation + 10 / self.steps), "a value is biased")
        self.assertLess(abs(error.sum()), 4 * np.sqrt((deviation ** 2).sum()), "all values together are biased")


class Chances(unittest.TestCase):
    """Rounding depends on seed, step, rank and position alone."""

    def symbols(self, recipe, step=0, threads=1, **more):
        values = cubed(3000, 9)
        with library.Codec(recipe, [len(values)], threads, **more) as codec:
            codec.encode(step + 1, [values])  # earlier steps have no influence
            return codec.encode(step, [values])[48:-8].tobytes()

    def test_random(self):
        for recipe in RANDOM:
            recipe = but(recipe, 300)
            with self.subTest(recipe=recipe):
                plain = self.symbols(recipe)
                self.assertEqual(plain, self.symbols(recipe, threads=3))
                self.assertEqual(plain, self.symbols(recipe, seed=0, has_seed=1))
                others = {self.symbols(recipe, step=1), self.symbols(recipe, step=2 ** 32),
                          self.symbols(recipe, rank=1), self.symbols(recipe, seed=1, has_seed=1)}
                self.assertEqual(len(others | {plain}), 5)

    def test_fixed(self):
        for recipe in FIXED:
            with self.subTest(recipe=recipe):
                self.assertEqual(self.symbols(recipe), self.symbols(recipe, step=7, rank=3, seed=5, has_seed=1))

    def test_equal_values_are_rounded_each_by_itself(self):
        values = np.tile(np.array([0, 1, 0.5, 0.5], np.float32), 2000)
        out = arrived("linear@2,bucket=65536", values)
        share = out.reshape(-1, 4)[:, 2:].mean()
        self.assertTrue(abs(share - 0.5) < 4 * 0.5 / np.sqrt(4000), f"a share of {share} is rounded up")


# ---- Errors of a known size ------------------------------------------------------------------------------------------

class Errors(unittest.TestCase):
    def near(self, found, known, share, what):
        self.assertTrue(abs(found - known) <= share * known, f"{what}: {found:.4f}, not {known}")

    def check(self, recipe, figures, buckets, share):
        for draw, known in zip((gaussian, laplace, cubed), figures):
            values = draw(BUCKET * buckets, 7)
            self.near(nmse(values, arrived(but(recipe, BUCKET), values)), known, share, f"{recipe}, {draw.__name__}")

    def test_linear(self):
        self.check("linear@3", (1.316, 2.230, 7.17), BUCKETS, 0.03)
        self.check("linear@5", (0.346, 0.652, 1.88), BUCKETS, 0.03)
        self.check("linear@9", (0.0866, 0.165, 0.478), BUCKETS, 0.03)

    def test_orq_greedy(self):
        self.check("orq@3", (1.283, 1.776, 1.787), BUCKETS, 0.03)
        self.check("orq@5", (0.268, 0.356, 0.358), BUCKETS, 0.03)
        self.check("orq@9", (0.0619, 0.0810, 0.0774), BUCKETS, 0.03)

    def test_orq_exact(self):
        self.check("orq@3,levels=exact", (1.282, 1.760, 1.770), 400, 0.04)
        self.check("orq@5,levels=exact", (0.268, 0.354, 0.356), 400, 0.04)
        self.check("orq@9,levels=exact", (0.0604, 0.0788, 0.0714), 400, 0.04)

    def test_ternary(self):
        self.check("ternary", (1.47, 2.15, 2.35), BUCKETS, 0.03)

    def test_bingrad_pb(self):
        for draw, known, b in ((gaussian, 0.454, 0.647), (laplace, 0.578, 0.807)):
            values = draw(8 * 65536, 7)
            out = arrived(but("bingrad@pb", 65536), values)
            self.near(nmse(values, out), known, 0.03, f"NMSE, {draw.__name__}")
            self.near(np.abs(out).mean(), b, 0.03, f"b, {draw.__name__}")

    def test_bingrad_b(self):
        for draw, known in ((gaussian, 0.363), (laplace, 0.500)):
            values = draw(8 * 65536, 7)
            self.near(nmse(values, arrived(but("bingrad@b,iters=100", 65536), values)), known, 0.03, draw.__name__)


# ---- The best levels -------------------------------------------------------------------------------------------------

def whole(values, numbers):
    """Numbers as the whole ones that stand for them where costs are computed, by the least and the largest value."""
    values, numbers = values.astype(np.float64), numbers.astype(np.float64)
    way = values.max() - values.min()
    return np.floor((numbers - values.min()) * (2.0 ** 22 / way if way else 0)).astype(np.int64)


def cost_of(values, levels):
    low, high = around(np.unique(levels), values)
    return ((high - values) * (values - low)).sum()


def least_cost(values, count):
    """By dynamic programming over all places for the last level but one, with costs summed up one by one."""
    x = np.sort(values)
    d = len(x)
    cost = np.full((d, d), 2 ** 60)
    for low in range(d):
        for high in range(low, d):
            inside = x[low:high + 1]
            cost[low, high] = ((x[high] - inside) * (inside - x[low])).sum()
    best = cost[0]
    for _ in range(count - 2):
        best = (best[:, None] + cost).min(0)
    return best[-1]


class BestLevels(unittest.TestCase):
    def buckets(self, rng):
        """One of each kind, of up to 60 values."""
        def size():
            return rng.integers(1, 61)

        normal = rng.standard_normal
        yield normal(size())
        yield normal(size()) ** 3
        yield rng.laplace(size=size()) * 1e-30
        yield rng.integers(-4, 5, size()) * 0.5   # ties
        yield rng.integers(-30, 31, size()) * 1.0
        yield np.arange(size()) * 0.25            # equal distances
        yield np.full(size(), normal())           # a constant
        yield rng.choice([-0.3, 1.7], size())     # two values
        yield rng.integers(-50, 51, size()) * 2.0 ** -149  # denormals
        yield np.append(normal(size() - 1), 1e4)
        yield normal(1)
        yield normal(60) + 100

    def test_no_levels_are_better(self):
        rng = np.random.default_rng(3)
        for count in (2, 3, 4, 5, 7, 8, 9, 13, 17):
            buckets = [bucket.astype(np.float32) for _ in range(3) for bucket in self.buckets(rng)]
            with library.Codec(f"orq@{count},bucket=60,levels=exact", [len(bucket) for bucket in buckets]) as codec:
                outs = codec.decode(codec.encode(0, buckets))
            for number, (bucket, out) in enumerate(zip(buckets, outs)):
                with self.subTest(levels=count, bucket=number):
                    levels, least = np.unique(out), least_cost(whole(bucket, bucket), count)
                    self.assertLessEqual(len(levels), count)
                    self.assertTrue(np.isin(levels, bucket).all(), "a level is on no value")
                    self.assertEqual(cost_of(whole(bucket, bucket), whole(bucket, levels)), least)

    def test_greedy_levels_are_not_much_worse(self):
        values = cubed(BUCKET * 100, 5)
        for count in (3, 5, 9, 17):
            greedy, exact = (nmse(values, arrived(f"orq@{count},bucket={BUCKET},levels={how}", values))
                             for how in ("greedy", "exact"))
            self.assertTrue(exact <= 1.02 * greedy <= 1.5 * exact, f"{count} levels: {greedy} and {exact}")


def main():
    parser = argparse.ArgumentParser(description="Hold quantizers against what is known of them.")
    parser.add_argument("--library", type=pathlib.Path, default=library.LIBRARY, help="libtersegrad.so")
    options, rest = parser.parse_known_args()
    library.LIBRARY = options.library.absolute()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
