#!/usr/bin/env python3
"""Random rounding as meaning.py has it is not biased: how often a value is rounded up, for many probabilities.

The random numbers are those of Philox with 7 rounds, 16 + 16 bits a value, cut to the 24 bits of a binary32. A
frequency is accepted within 5 standard errors, and must be exact for probabilities of 0 and 1. Seeds are fixed, so that
a test that passes once always does. The program is not needed.

    TG_DRAWS=100000000 python3 -m unittest test_rounding

TG_DRAWS is the number of draws for each probability, by default 2^22, which takes two seconds; 10^8 takes ten.
"""

import math
import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import meaning  # noqa: E402

DRAWS = int(os.environ.get("TG_DRAWS", 1 << 22))
BATCH = 1 << 16
STREAM = 0x0123456789ABCDEF
CHANCES = (0.0, 2.0 ** -32, 2.0 ** -31, 2.0 ** -28, 2.0 ** -24, 2.0 ** -20, 1e-6, 2.0 ** -16, 1e-3, 0.1, 1 / 3, 0.5,
           0.9, 0.999, 1 - 2.0 ** -16, 1.0)


def batches(total, stream=STREAM):
    """Arrays of the numbers w, `total` of them."""
    for first in range(0, total, BATCH):
        yield meaning.words(stream, first, min(BATCH, total - first))


class Case(unittest.TestCase):
    def near(self, count, total, p, what):
        """Within 5 standard errors; that is exact for 0 and 1."""
        away, error = abs(count - total * p), math.sqrt(total * p * (1 - p))
        self.assertLessEqual(away, 5 * error, f"{what}: {count} of {total}, with a probability of {p}")


class Numbers(Case):
    def test_frequencies(self):
        counts = np.zeros(len(CHANCES), np.int64)
        for w in batches(DRAWS):
            r = meaning.chance(w)
            self.assertTrue(r.min() >= 0 and r.max() < 1)
            counts += [int(meaning.up(p, r).sum()) for p in CHANCES]
        for p, count in zip(CHANCES, counts.tolist()):
            self.near(count, DRAWS, p, "rounded up")

    def test_each_of_eight_values_that_share_a_block(self):
        counts, total = np.zeros((3, 8), np.int64), DRAWS // 8
        for w in batches(8 * total):
            r = meaning.chance(w).reshape(-1, 8)
            counts += [(r < p).sum(0) for p in (2.0 ** -8, 0.3, 0.5)]
        for p, row in zip((2.0 ** -8, 0.3, 0.5), counts.tolist()):
            for place, count in enumerate(row):
                self.near(count, total, p, f"value {place} of a block")

    def test_both_halves_are_uniform(self):
        """Chi-squared over all 2^16 values of a half, and of one half given the upper byte of the other."""
        counts = np.zeros((3, 65536), np.int64)
        for w in batches(DRAWS):
            upper, lower = w >> np.uint64(16), w & np.uint64(0xFFFF)
            for row, half in enumerate((upper, lower, upper >> np.uint64(8) << np.uint64(8) | lower >> np.uint64(8))):
                counts[row] += np.bincount(half.astype(np.int64), minlength=65536)
        for row in counts:
            share = DRAWS / 65536
            found = ((row - share) ** 2).sum() / share
            self.assertLess(abs(found - 65535), 5 * math.sqrt(2 * 65535))

    def test_neighbours_do_not_depend_on_each_other(self):
        for apart in (1, 2, 4, 7, 8, 16):
            both = total = 0
            for w in batches(min(DRAWS, 1 << 22)):
                high = meaning.chance(w) < 0.25
                both += int((high[:-apart] & high[apart:]).sum())
                total += len(w) - apart
            self.near(both, total, 1 / 16, f"two that are {apart} apart")

    def test_all_numbers(self):
        """Of all 2^32 numbers w, how many are below p: no less than p has, and by less than one place of r more."""
        for p in CHANCES + tuple(np.random.default_rng(1).random(50)) + tuple(2.0 ** -np.arange(1.0, 33)):
            low, high = 0, 2 ** 32  # r does not fall with w
            while low < high:
                middle = (low + high) // 2
                low, high = (middle + 1, high) if meaning.chance(np.uint64(middle)) < p else (low, middle)
            self.assertTrue(0 <= low - p * 2 ** 32 < max(1, p * 2.0 ** 9), p)
            if np.float32(p) == p and (p * 2 ** 32) % 1 == 0:  # as fine as r, and no finer
                self.assertEqual(low, p * 2 ** 32)

    def test_the_upper_half_decides(self):
        """r lies between draw / 2^16 and (draw + 1) / 2^16, as the page says."""
        edges = np.array([0, 1, 0xFFFF], np.uint64)
        for upper in (0, 1, 2, 255, 256, 257, 32767, 32768, 65535):
            r = meaning.chance(np.uint64(upper << 16) | edges) * 2 ** 16
            self.assertTrue(r.min() >= upper and r.max() < upper + 1)


class Quantizers(Case):
    """Buckets of 0, 1 and many values p, by the rule of each quantizer."""

    def check(self, recipe, chances, values=lambda p: p, ends=(0.0, 1.0), low=0.0):
        """`values` gives the value that is rounded up with probability p; `ends` come first in each bucket."""
        _, parsed = meaning.parse(recipe, False)
        width, total = 64, max(min(DRAWS, 1 << 24) // 32, 1 << 16)
        for number, p in enumerate(chances):
            up = 0
            for w in batches(total, STREAM + number):
                v = np.full((-(-len(w) // width), width), values(p), np.float32)
                v[:, :len(ends)] = ends
                r = meaning.chance(w).reshape(v.shape)
                out = meaning.BUCKETS[parsed.quantize](parsed.how, v.astype(np.float64), r)[:, len(ends):]
                self.assertTrue(np.all((out == low) | (out == out.max())), "a value of another level")
                up += int((out > low).sum())
            self.near(up, total // width * (width - len(ends)), p, recipe)

    SOME = (0.0, 2.0 ** -20, 1e-3, 0.1, 0.5, 0.999, 1.0)

    def test_linear(self):
        self.check("linear@2", self.SOME)

    def test_qsgd(self):
        self.check("qsgd@1,norm=max", self.SOME)

    def test_ternary(self):
        self.check("ternary", self.SOME)

    def test_orq(self):
        """With three different values in a bucket and two levels."""
        self.check("orq@2,levels=exact", self.SOME)

    def test_bingrad_pb(self):
        """Between -b and b, for a first value that is so large that b is its share."""
        v = np.zeros((1, 64))
        v[0, 0] = 64
        b = float(np.abs(meaning.to_sign_of_one(v, np.zeros_like(v)))[0, 0])
        self.assertEqual(b, 1)
        self.check("bingrad@pb", (0.0, 1e-3, 0.1, 0.5, 0.999, 1.0), lambda p: 2 * p - 1, (64.0,), -1.0)

    def test_natural(self):
        """1 + p between 1 and 2, for fractions of 23 bits."""
        total = max(min(DRAWS, 1 << 24) // 32, 1 << 16)
        for p in (0.0, 2.0 ** -20, 1e-3, 0.1, 0.5, 0.999):
            p = float(np.float32(1 + p)) - 1
            up = sum(int((meaning.to_powers(np.full(len(w), 1 + p, np.float32), w) == 2).sum()) for w in batches(total))
            self.near(up, total, p, "natural")


if __name__ == "__main__":
    unittest.main()
