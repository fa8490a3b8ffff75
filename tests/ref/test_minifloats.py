#!/usr/bin/env python3
"""Minifloats: every value and every midpoint, and the table that fits the step, docs/shapes.csv.

The table is held against integrals of its own: generalised normals, whose density is proportional to exp(-|t|^b), by
Gauss and Legendre in panels of log t that no edge of a cell cuts; the error itself is integrated, cell by cell.

Needs NumPy. The program is build/release/tersegrad unless the environment variable TERSEGRAD names another.
"""

import csv
import math
import unittest

import numpy as np

import by_program
from by_program import CHUNK, PROGRAM, ROOT
import golden
import meaning
import tersegrad_ref as ref

FORMATS = {"fp4": "fp4", "fp8@e5m2": "e5m2", "fp8@e4m3": "e4m3"}  # by recipe, as meaning.py calls them
with open(ROOT / "docs" / "shapes.csv", encoding="ascii", newline="") as file:
    ROWS = list(csv.DictReader(file))


def values_of(recipe):
    return meaning.tiny_values(*meaning.TINY[FORMATS[recipe]][1:])


def column_of(recipe):
    return meaning.TINY[FORMATS[recipe]][0]


class Chunks(by_program.Case):
    def symbols(self, recipe, values):
        """(symbols, step, row) by the program, of one chunk"""
        (_, parsed, _, chunk), = golden.chunks_of(self.encode(recipe, values), [])
        step, row = np.frombuffer(chunk.numbers, ref.FITTED)[0]
        return ref.uncoded(parsed.layout, chunk.count, chunk.numbers, chunk.symbols), float(step), int(row)


# ---- Values ----------------------------------------------------------------------------------------------------------

def beside(values, up):
    return np.nextafter(values.astype(np.float32), np.float32(np.inf if up else -np.inf))


def with_step_of_one(wanted, size, form):
    """`size` elements, of which the first are `wanted`: magnitudes that are all alike make the step 1.

    From large ones down, until the step is below 1; then halving, and some of them by one place larger. What is left
    is far less than the rounding of the step to binary32, so that it is 1 whatever the order of sums.
    """
    def filled(fill, larger):
        fill = np.full(size - len(wanted), fill, np.float32)
        fill[:larger] = beside(fill[:larger], True)
        fill[1::2] *= -1
        return np.concatenate([wanted, fill])

    def excess(fill, larger=0):
        v = np.abs(filled(fill, larger).astype(np.float64))
        v = v[v != 0]
        mean = v.mean()
        return mean / meaning.reach_of(mean * mean / (v * v).mean(), form) - 1

    high = 8.0
    while excess(high) > 0:
        low, high = high, high * 0.9
        assert high > 0.01, "these values are too large for a step of 1"
    for _ in range(30):
        middle = np.float32((low + high) / 2)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    few, many = 0, size
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if excess(high, middle) > 0 else (middle, many)
    assert abs(excess(high, few)) < 1e-8
    return filled(high, few)


class Values(Chunks):
    # The largest value that a step of 1 leaves possible, and how many others that takes.
    ROOM = {"fp4": (4, 20000), "fp8@e5m2": (200, CHUNK), "fp8@e4m3": (40, CHUNK)}

    def test_every_value_and_midpoint(self):
        """A value is itself; halfway between two is the lower one, and a hair above that the higher one."""
        for recipe, (most, size) in self.ROOM.items():
            values = values_of(recipe)
            number, middles = np.arange(len(values)), (values[1:] + values[:-1]) / 2
            beyond = [values[0] * 1.25, values[-1] * 1.25, 0.0, -0.0, 1e-30, -1e-30]
            zero = len(values) // 2
            for what, wanted, meant in (
                    ("values", np.concatenate([values, beyond]), [*number, 0, len(values) - 1] + [zero] * 4),
                    ("midpoints", middles, number[:-1]), ("above midpoints", beside(middles, True), number[1:]),
                    ("below midpoints", beside(middles, False), number[:-1])):
                inside = np.abs(wanted) <= most
                wanted, meant = wanted[inside].astype(np.float32), np.array(meant)[inside]
                with self.subTest(recipe=recipe, what=what):
                    self.assertGreater(len(wanted), 0.7 * len(values))
                    found, step, _ = self.symbols(recipe, with_step_of_one(wanted, size, FORMATS[recipe]))
                    self.assertEqual(step, 1)
                    wrong = np.flatnonzero(found[:len(wanted)] != meant)
                    self.assertEqual([(wanted[i], found[i], meant[i]) for i in wrong], [])

    def test_any_step(self):
        """The nearest multiple of the frame's step, by exact products over all multiples."""
        rng = np.random.default_rng(3)
        for recipe in FORMATS:
            values = values_of(recipe)
            for power, size in ((1, 3001), (3, 3001), (0.2, 500), (8, 500), (1, 1)):
                v = (np.sign(rng.standard_normal(size)) * np.abs(rng.standard_normal(size)) ** power).astype(np.float32)
                v *= np.float32(10.0 ** rng.uniform(-30, 20))
                found, step, _ = self.symbols(recipe, v)
                away = np.abs(values[None, :] * step - v.astype(np.float64)[:, None])
                np.testing.assert_array_equal(found, away.argmin(1))

    def test_the_ends_of_the_range(self):
        """Equal values are exact up to rounding; a step that would be too large is clamped."""
        largest = np.finfo(np.float32).max
        for recipe in FORMATS:
            for value in (1.0, -0.3, 1e-38, 1e38):
                v = np.full(50, value, np.float32)
                out, = [array for _, array in golden.decode(PROGRAM, self.dir, self.encode(recipe, v))]
                np.testing.assert_allclose(out, v, rtol=1e-6)
            _, step, row = self.symbols(recipe, np.array([largest] + [1e-3] * 3000, np.float32))
            self.assertEqual((step, row), (largest, 0))

    def test_zeros(self):
        """They do not influence the step, and are decoded as 0."""
        v = np.random.default_rng(4).standard_normal(1000).astype(np.float32)
        for recipe in FORMATS:
            found, step, row = self.symbols(recipe, v)
            more = np.concatenate([np.zeros(500, np.float32), v, np.full(2000, -0.0, np.float32)])
            again, other_step, other_row = self.symbols(recipe, more)
            self.assertEqual(row, other_row)
            self.assertLessEqual(abs(step - other_step), 1e-6 * step)
            zero = len(values_of(recipe)) // 2
            self.assertTrue(np.all(again[:500] == zero) and np.all(again[1500:] == zero))
            _, array = ref.decode(self.encode(recipe, more))[1][0]
            self.assertFalse(array[:500].view(np.uint32).any() or array[1500:].view(np.uint32).any())


class Presets(Chunks):
    def test_co3(self):
        v = np.random.default_rng(5).laplace(size=5000).astype(np.float32)
        self.assertEqual(self.encode("co3", v), self.encode("ef@decay=0.9+fp4+huffman@counts", v))
        self.assertEqual(self.encode("co3@fp8", v), self.encode("ef@decay=0.9+fp8@e5m2+huffman@counts", v))


# ---- The table -------------------------------------------------------------------------------------------------------

NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)


class Shape:
    """A generalised normal of a = 1, on the side above 0."""

    def __init__(self, b):
        gamma = [math.lgamma(k / b) for k in (1, 2, 3)]
        self.b, self.density = b, b / math.exp(gamma[0])
        self.mean, self.square = math.exp(gamma[1] - gamma[0]), math.exp(gamma[2] - gamma[0])
        self.rho = self.mean ** 2 / self.square
        top = math.log(400) / b  # beyond it lies exp(-400)
        # Far below the top only masses count, and these fall with t.
        self.panels = np.arange(top - 40 - 12 / b, top + 0.25, 0.25)

    def cells(self, values, s):
        """(mass, squared error over the square) of what becomes each of the values over s, which are not negative"""
        edges = np.log((values[1:] + values[:-1]) / 2 / s)
        bounds = np.unique(np.concatenate([self.panels, edges[(edges > self.panels[0]) & (edges < self.panels[-1])]]))
        half = np.diff(bounds)[:, None] / 2
        y = bounds[:-1, None] + half * (1 + NODES)
        t = np.exp(y)
        mass = self.density * np.exp(y - t ** self.b) * half * WEIGHTS
        cell = np.searchsorted(edges, bounds[:-1] + half[:, 0])
        error = mass * (t - (values / s)[cell][:, None]) ** 2
        return [np.bincount(cell, part.sum(1), len(values)) for part in (mass, error / self.square)]

    def error(self, values, s):
        return self.cells(values, s)[1].sum()


def least(shape, values):
    """(the scale of the least error, that error), by a scan of 30 octaves and a finer one around the best"""
    def best(scales):
        errors = [shape.error(values, s) for s in scales]
        return scales[int(np.argmin(errors))], min(errors)

    s, _ = best(2.0 ** np.arange(-12, 8, 1 / 4) / shape.mean)
    s, _ = best(s * 2.0 ** np.arange(-1 / 4, 1 / 4, 1 / 32))
    return best(s * 2.0 ** np.arange(-1 / 32, 1 / 32, 1 / 512))


def both_sides(mass):
    return np.concatenate([mass[:0:-1] / 2, mass[:1], mass[1:] / 2])


def entropy(masses):
    masses = masses[masses > 0]
    return -(masses * np.log2(masses)).sum()


class Table(unittest.TestCase):
    def test_integrals(self):
        """What is known of them: all mass, both moments, and rho as the table has it."""
        for row in ROWS[::3]:
            shape = Shape(float(row["shape"]))
            mass, error = shape.cells(np.array([0.0, 1.0]), 1e12)
            self.assertAlmostEqual(mass.sum(), 1, 6)
            self.assertAlmostEqual(error.sum(), 1, 5)
            self.assertAlmostEqual(shape.rho / float(row["rho"]), 1, 4)

    def check(self, b, reach, recipe, share):
        shape, values = Shape(b), values_of(recipe)
        values = values[values >= 0]
        _, lowest = least(shape, values)
        found = shape.error(values, reach / shape.mean)
        self.assertLessEqual(found, (1 + share) * lowest, f"{recipe}, shape {b}: NMSE {found:.5g}, not {lowest:.5g}")

    def test_rows(self):
        for recipe in FORMATS:
            for row in ROWS[::4]:
                with self.subTest(recipe=recipe, shape=row["shape"]):
                    self.check(float(row["shape"]), float(row[column_of(recipe) + "_reach"]), recipe, 0.005)

    def test_between_rows(self):
        for recipe in FORMATS:
            for low, high in list(zip(ROWS, ROWS[1:]))[2::6]:
                b = math.sqrt(float(low["shape"]) * float(high["shape"]))
                with self.subTest(recipe=recipe, shape=b):
                    reach = meaning.reach_of(Shape(b).rho, FORMATS[recipe])
                    self.check(b, reach, recipe, 0.01)

    def test_lengths(self):
        """Every code is full, and hardly longer than the best that there is."""
        for recipe in FORMATS:
            values = values_of(recipe)
            for row in ROWS:
                lengths = np.array([int(digit, 16) for digit in row[column_of(recipe) + "_lengths"]])
                self.assertEqual(len(lengths), len(values))
                self.assertEqual(((2.0 ** -lengths).sum(), (lengths > 0).all()), (1, True))
            for row in ROWS[3::8]:
                shape, lengths = Shape(float(row["shape"])), [int(d, 16) for d in row[column_of(recipe) + "_lengths"]]
                mass, _ = shape.cells(values[values >= 0], float(row[column_of(recipe) + "_reach"]) / shape.mean)
                masses = both_sides(mass)
                self.assertLess(masses @ lengths, 1.02 * by_program.prefix_cost(masses), f"{recipe}, shape {row['shape']}")

    KNOWN = (  # of fp4: shape, scale, NMSE, bits by entropy and by a prefix code
        ("0.3", "0.0009", "0.143", "0.82", "1.28"), ("0.4", "0.0124", "0.108", "1.37", "1.58"),
        ("0.5", "0.0527", "0.082", "1.80", "1.88"), ("0.6", "0.130", "0.066", "2.12", "2.16"),
        ("0.8", "0.368", "0.047", "2.53", "2.58"), ("1.0", "0.650", "0.036", "2.78", "2.84"),
        ("1.5", "1.292", "0.025", "3.10", "3.14"), ("2.0", "1.752", "0.020", "3.24", "3.28"))

    def test_known_figures(self):
        """Each within 3%, and what its last digit leaves open."""
        values = values_of("fp4")
        values = values[values >= 0]
        for b, *known in self.KNOWN:
            shape = Shape(float(b))
            s, error = least(shape, values)
            masses = both_sides(shape.cells(values, s)[0])
            reach = meaning.reach_of(shape.rho, "fp4") / shape.mean
            for what, found, text in zip(("scale", "NMSE", "entropy", "prefix code", "scale by the table"),
                                         (s, error, entropy(masses), by_program.prefix_cost(masses), reach), known + known[:1]):
                open_digit = 0.5 * 10.0 ** -len(text.partition(".")[2])
                self.assertLessEqual(abs(found - float(text)), 0.03 * float(text) + open_digit,
                                     f"shape {b}, {what}: {found:.5g}, not {text}")


class Fit(Chunks):
    def test_samples(self):
        """Step and row of values that have a shape, and the error that they then have."""
        rng = np.random.default_rng(6)
        rhos = np.array([float(row["rho"]) for row in ROWS])
        for recipe, form in FORMATS.items():
            for b in (0.4, 1.0, 2.0):
                t = rng.gamma(1 / b, size=200000) ** (1 / b) * rng.choice([-1, 1], 200000)
                v = (t * 10.0 ** rng.uniform(-6, 3)).astype(np.float32)
                found, step, row = self.symbols(recipe, v)
                with self.subTest(recipe=recipe, shape=b):
                    wide = v.astype(np.float64)
                    fitted = meaning.step_of(wide, form)
                    self.assertEqual(step, fitted)
                    rho = np.abs(wide).mean() ** 2 / (wide ** 2).mean()
                    self.assertEqual(row, np.abs(rhos - rho).argmin())
                    values = values_of(recipe)
                    error = ((values[found] * step - wide) ** 2).sum() / (wide ** 2).sum()
                    known = Shape(b).error(values[values >= 0], Shape(b).mean ** -1 * meaning.reach_of(rho, form))
                    self.assertLess(abs(error - known), 0.08 * known)


if __name__ == "__main__":
    unittest.main()
