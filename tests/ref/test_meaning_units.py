#!/usr/bin/env python3
"""Unit tests of meaning.py against the sentences of docs/format.md, one number at a time. The program is not needed."""

import itertools
import os
import sys
import unittest
from fractions import Fraction

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import meaning  # noqa: E402
import tersegrad_ref as ref  # noqa: E402


def plain_sum(numbers, partial=float):
    """A sum by leaves; `partial` rounds a partial sum to its type."""
    leaves = []
    for first in range(0, len(numbers), 1024):
        sums = [partial(0)] * 32
        for place, number in enumerate(numbers[first:first + 1024]):
            sums[place % 32] = partial(sums[place % 32] + partial(number))
        sums = [float(number) for number in sums]
        for h in (16, 8, 4, 2, 1):
            for low in range(h):
                sums[low] = sums[low] + sums[low + h]
        leaves.append(sums[0])
    while len(leaves) > 1:
        leaves = [leaves[i] + leaves[i + 1] if i + 1 < len(leaves) else leaves[i] for i in range(0, len(leaves), 2)]
    return leaves[0] if leaves else 0.0


def spread(rng, n):
    """Values of all magnitudes, so that the order of a sum shows."""
    return (rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 6, n)).astype(np.float32)


def bucket_of(recipe, values, chances=None):
    """One bucket by a quantizer, with r for each value, or r of 0.5."""
    parsed = meaning.parse(recipe, False)[1]
    v = np.array(values, np.float32).astype(np.float64)[None]
    r = np.full(v.shape, 0.5) if chances is None else np.array(chances, np.float64)[None]
    return meaning.BUCKETS[parsed.quantize](parsed.how, v, r)[0]


class Sums(unittest.TestCase):
    SIZES = (0, 1, 2, 31, 32, 33, 63, 64, 1000, 1023, 1024, 1025, 1056, 2048, 2049, 3000, 5121, 9 * 1024 + 5)

    def test_by_leaves(self):
        rng = np.random.default_rng(1)
        for n in self.SIZES:
            rows = np.stack([spread(rng, n) for _ in range(3)]).astype(np.float64)
            self.assertEqual(meaning.by_leaves(rows).tolist(), [plain_sum(row.tolist()) for row in rows])
            self.assertEqual(meaning.sum_of(rows[0]), plain_sum(rows[0].tolist()))

    def test_partial_sums_in_binary32(self):
        rng = np.random.default_rng(2)
        for n in self.SIZES:
            row = spread(rng, n)
            found = meaning.by_leaves(row.astype(np.float64)[None], np.float32)
            self.assertEqual(found.tolist(), [plain_sum(row.tolist(), np.float32)])

    def test_the_order_shows(self):
        row = spread(np.random.default_rng(3), 5000)
        self.assertNotEqual(meaning.sum_of(row), float(np.cumsum(row.astype(np.float64))[-1]))

    def test_tree(self):
        for n in range(1, 20):
            # A sum of texts shows which numbers are added to which.
            numbers = np.array([Node(str(i)) for i in range(n)], object)
            texts = [str(i) for i in range(n)]
            while len(texts) > 1:
                texts = [f"({texts[i]}+{texts[i + 1]})" if i + 1 < len(texts) else texts[i]
                         for i in range(0, len(texts), 2)]
            self.assertEqual(meaning.tree(numbers).item().text, texts[0])

    def test_scale_of_signs(self):
        """Chunks without entries count in the tree."""
        rng = np.random.default_rng(4)
        for n, share in ((5 * 262144 + 77, 0.004), (262144, 0.01), (900, 0.5), (0, 0.5)):
            values = spread(rng, n)
            values[262144:2 * 262144] = 0
            sent = np.flatnonzero((rng.random(n) < share) & (values != 0))
            sums = [plain_sum(np.abs(values[sent[sent // 262144 == chunk]]).tolist())
                    for chunk in range(-(-n // 262144))]
            recipe = meaning.parse("threshold@0+sign", False)[1]
            while len(sums) > 1:
                sums = [sum(sums[i:i + 2]) for i in range(0, len(sums), 2)]
            expected = np.float32(sums[0] / len(sent)) if n else np.float32(0)
            self.assertEqual(meaning.scale_of(recipe, values, sent, values[sent]), expected)


class Node:
    def __init__(self, text):
        self.text = text

    def __add__(self, other):
        return Node(f"({self.text}+{other.text})")


class Chances(unittest.TestCase):
    def test_words(self):
        """Word by word, from the other module's Philox."""
        stream = 0xFEDCBA9876543210
        for first, n in ((0, 1), (0, 50), (8, 9), (262144, 20), (2 ** 35 - 8, 24)):
            found = []
            for i in range(first, first + n):
                halves = []
                for k in (1, 2):
                    o = ref.philox(stream, i // 8 % 2 ** 32, i // 2 ** 35, k, 0)
                    eight = [half for word in o for half in (word % 2 ** 16, word // 2 ** 16)]
                    halves.append(eight[i % 8])
                found.append(halves[0] * 2 ** 16 + halves[1])
            self.assertEqual(meaning.words(stream, first, n).tolist(), found)

    def test_philox_known_answers(self):
        self.assertEqual([int(word[0]) for word in meaning.philox(0, 0, 0, 0, 0)],
                         [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48])
        self.assertEqual([int(word[0]) for word in meaning.philox(2 ** 64 - 1, *[2 ** 32 - 1] * 4)],
                         [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662])

    def test_24_bits(self):
        numbers = [0, 1, 2 ** 24 - 1, 2 ** 24, 2 ** 24 + 1, 2 ** 25 + 3, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1]
        numbers += np.random.default_rng(5).integers(0, 2 ** 32, 100).tolist()
        for w, r in zip(numbers, meaning.chance(np.array(numbers, np.uint64)).tolist()):
            cut = max(w.bit_length() - 24, 0)
            self.assertEqual(r, (w >> cut << cut) / 2 ** 32)
            self.assertEqual(np.float32(r), r)


class TwoLevels(unittest.TestCase):
    def test_b(self):
        """bingrad@b of values by sums as the page has them."""
        rng = np.random.default_rng(6)
        for n, iters in ((1, 3), (2, 0), (700, 3), (3000, 3), (5000, 0)):
            v = rng.standard_normal(n).astype(np.float32)
            t = plain_sum(v.tolist(), np.float32) / n
            for turn in range(iters + 1):
                means = []
                for group in (v.astype(np.float64) <= t, v.astype(np.float64) > t):
                    total = plain_sum(np.where(group, v, np.float32(0)).tolist(), np.float32)
                    means.append(total / group.sum() if group.any() else None)
                low, high = (means[i] if means[i] is not None else means[1 - i] for i in (0, 1))
                if turn < iters:
                    t = (low + high) / 2
            expected = np.where(v.astype(np.float64) > t, high, low)
            self.assertEqual(bucket_of(f"bingrad@b,iters={iters}", v).tolist(), expected.tolist())

    def test_pb(self):
        """b is the least of all numbers that the page allows, by exact arithmetic."""
        rng = np.random.default_rng(7)
        for n, power in ((1, 1), (2, 1), (5, 3), (40, 1), (300, 5), (2048, 9)):
            v = (np.sign(rng.standard_normal(n)) * np.abs(rng.standard_normal(n)) ** power).astype(np.float32)
            sizes = sorted((Fraction(float(abs(x))) for x in v), reverse=True)
            unit = Fraction(2) ** (int(np.frexp(np.float64(sizes[0]))[1]) - 1 - 36)
            total, best = Fraction(0), None
            for k in range(n + 1):  # k magnitudes are above b
                lowest = max(sizes[k] if k < n else Fraction(0), total / n)
                if k == 0 or lowest < sizes[k - 1]:
                    best = lowest if best is None else min(best, lowest)
                if k < n:
                    total += round(sizes[k] / unit) * unit
            self.assertEqual(abs(bucket_of("bingrad@pb", v)[0]), np.float32(float(best)))

    def test_pb_rounds_in_binary32(self):
        v, r = np.array([3, 1, -1, 0.25, -0.5], np.float32), np.array([0.5, 0.9, 0, 0.6, 0.25], np.float32)
        b = np.float32(np.abs(bucket_of("bingrad@pb", v)[0]))
        expected = [float(b if r[i] * b < v[i] / np.float32(2) + b / np.float32(2) else -b) for i in range(5)]
        self.assertEqual(bucket_of("bingrad@pb", v, r).tolist(), expected)

    def test_pb_of_zeros(self):
        out = bucket_of("bingrad@pb", [0, -0.0, 0], [0, 0.3, 0.9])
        self.assertTrue(np.all(out == 0) and np.all(np.signbit(out)))


class Levels(unittest.TestCase):
    def test_exact_levels_by_trying_all(self):
        """The least cost; of levels that cost the same, those that going back through the smallest k finds."""
        rng = np.random.default_rng(8)
        for trial in range(60):
            x = np.sort((rng.standard_normal(9) * 10.0 ** rng.uniform(-1, 2, 9)).astype(np.float32)).astype(np.float64)
            if trial % 3 == 0:
                x = np.sort(rng.integers(-4, 5, 9).astype(np.float64))
            for S in (2, 3, 4, 6):
                self.assertEqual(meaning.exact_levels(x, S).tolist(), self.tried(x, S), (x.tolist(), S))

    def tried(self, x, S):
        different = sorted(set(x.tolist()))
        if len(different) <= S:
            return different + [different[-1]] * (S - len(different))
        y = [int(np.floor((value - x[0]) * (2.0 ** 22 / (x[-1] - x[0])))) for value in x]

        def cost(places):
            return sum((y[c] - y[i]) * (y[i] - y[a]) for a, c in zip(places, places[1:]) for i in range(a, c + 1))

        inner = itertools.combinations_with_replacement(range(len(x)), S - 2)
        every = [(0, *places, len(x) - 1) for places in inner]
        # Going back: the last place but one is the smallest, then the one before it, and so on.
        best = min(every, key=lambda places: (cost(places), places[::-1]))
        return [x[i] for i in best]

    def test_greedy_sums_are_exact(self):
        """Of many values: in integers, where a sum in binary64 would round."""
        x = np.sort(np.random.default_rng(9).standard_normal(60000).astype(np.float32).astype(np.float64))
        share = 2.0 ** 40 / (x[-1] - x[0])
        total = sum(int((x[-1] - value) * share) for value in x[1:].tolist())
        self.assertEqual(meaning.greedy_levels(x[None], 3)[0].tolist(), [0, -(-total // 2 ** 40), 59999])

    def test_no_level_is_negative_zero(self):
        for recipe in ("orq@3", "orq@4,levels=exact", "orq@3,half=yes"):
            out = bucket_of(recipe, [-0.0, 0.0, -0.0, 1e-30, -1e-30])
            self.assertFalse(np.any((out == 0) & np.signbit(out)), recipe)


class Norms(unittest.TestCase):
    def test_qsgd(self):
        v = spread(np.random.default_rng(10), 3000)
        m = np.float32(np.sqrt(plain_sum([float(x) * float(x) for x in v])))
        out = bucket_of("qsgd@1", v, np.zeros(3000))  # every value but 0 is rounded up
        self.assertEqual(np.abs(out).max(), float(m))

    def test_clip(self):
        v = spread(np.random.default_rng(11), 3000).astype(np.float64)
        mean = plain_sum(v.tolist()) / 3000
        most = np.float32(0.5 * np.sqrt(plain_sum([(x - mean) * (x - mean) for x in v.tolist()]) / 3000))
        found = meaning.clipped(v[None], 0.5)[0]
        self.assertEqual((found.max(), found.min()), (most, -most))
        inside = np.abs(v) <= most
        self.assertTrue(inside.any() and np.array_equal(found[inside], v[inside]))

    def test_momentum(self):
        g = spread(np.random.default_rng(12), 3000)
        norm = np.sqrt(plain_sum([float(x) * float(x) for x in g]))
        for clip, expected in ((2.0, np.float32(2 / norm) * g), (float(norm) * 1.01, g)):
            out, = meaning.expected([("w", g)], f"momentum@0.5,clip={clip!r}+fp32")
            self.assertTrue(np.array_equal(out, expected))
        quantizer = meaning.parse("momentum@clip=3+qsgd@clip=2", False)[1]
        self.assertEqual((quantizer.most, quantizer.how.clip), (3, 2))

    def test_minifloats(self):
        """Zeros are no values of a mean, but have places in its sum."""
        v = spread(np.random.default_rng(13), 5000)
        v[::3] = 0
        wide = v.astype(np.float64)
        count = int((v != 0).sum())
        mean = plain_sum(np.abs(wide).tolist()) / count
        square = plain_sum((wide * wide).tolist()) / count
        self.assertEqual(meaning.moments_of(wide), (mean, square))
        self.assertEqual(meaning.step_of(wide, "fp4"), np.float32(mean / meaning.reach_of(mean * mean / square, "fp4")))
        self.assertIsNone(meaning.moments_of(np.zeros(5)))

    def test_reach(self):
        """On rows, halfway between two, and beyond both ends."""
        for form, (column, *bits) in meaning.TINY.items():
            at, reach = meaning.shapes(column)
            for row in (0, 5, len(at) - 1):
                self.assertAlmostEqual(meaning.reach_of(at[row], form), reach[row], 12)
            self.assertAlmostEqual(meaning.reach_of((at[3] + at[4]) / 2, form) / ((reach[3] + reach[4]) / 2), 1, 12)
            self.assertAlmostEqual(meaning.reach_of(at[0] / 4, form), reach[0] / 4, 12)
            values = meaning.tiny_values(*bits)
            self.assertAlmostEqual(meaning.reach_of(1.0, form), values[values >= reach[-1]].min(), 12)


class Coordinates(unittest.TestCase):
    def test_first_draws_that_differ(self):
        for n, ratio in ((1, 1), (2, 0.5), (10, 0.5), (10, 0.6), (1000, 0.3), (1000, 0.5), (1000, 0.8), (1000, 1)):
            for step in range(3):
                stream = ref.stream_of(5, step, 1, 4)
                b = meaning.entries(ratio, n)
                found, i = set(), 0
                while len(found) < min(b, n - b):
                    o = ref.philox(stream, i // 2, 0, 0, 0)[i % 2 * 2:]
                    found.add((o[0] + 2 ** 32 * o[1]) * n // 2 ** 64)
                    i += 1
                kept = found if b <= n - b else set(range(n)) - found
                self.assertEqual(meaning.drawn("randomk", ratio, n, 5, step, 1, 4), sorted(kept))
                self.assertEqual(len(kept), b)

    def test_both_modules_agree(self):
        for n, ratio in ((997, 0.1), (997, 0.5), (997, 0.9), (262144, 0.5), (300007, 0.001), (300007, 0.75)):
            for select in ("randomk", "randomblock"):
                b = ref.draw_size(ratio, n)
                self.assertEqual(meaning.drawn(select, ratio, n, 11, 2 ** 40, 3, 0),
                                 ref.DRAWS[select](ref.stream_of(11, 2 ** 40, 3), n, b).tolist())


if __name__ == "__main__":
    unittest.main()
