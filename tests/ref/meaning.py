"""The meaning of a recipe, in NumPy: computes the decoded gradients from the input without writing a frame.

Written from docs/format.md and the list that `tersegrad recipes` prints, and kept apart from both decoders: it shares
no code with them, not even the random numbers. It computes one step of a new encoder, so residuals are 0, and a
velocity is the gradient. Presets are not supported.

    expected(tensors, recipe, ...) -> arrays, one for each (name, array) of `tensors`, of the same dtype and shape
"""

import csv
import math
import pathlib
import re
from collections import namedtuple

import numpy as np

Recipe = namedtuple("Recipe", "feedback decay most select main warmup weight scope coords unbiased quantize how")
How = namedtuple("How", "scale form S bucket iters levels half norm clip format round hadamard block")  # the parameters of quantizers

STAGES = {"none": "feedback", "ef": "feedback", "momentum": "feedback",
          "all": "select", "topk": "select", "threshold": "select",
          "randomk": "select", "randomblock": "select", "adabins": "select",
          "fp32": "quantize", "fp16": "quantize", "bf16": "quantize", "sign": "quantize", "bingrad": "quantize",
          "orq": "quantize", "linear": "quantize", "qsgd": "quantize", "ternary": "quantize", "natural": "quantize",
          "fp4": "quantize", "fp8": "quantize", "mxfp8": "quantize", "mxfp4": "quantize", "nvfp4": "quantize",
          "hadamard": "rotation",
          "bitmap": "index pack", "gaps": "index pack", "adacomp8": "index pack", "adacomp16": "index pack",
          "bits": "symbol pack", "huffman": "symbol pack", "rans": "symbol pack", "lossless": "symbol pack",
          "zstd": "symbol pack"}
MAIN_KEYS = {"ratio": "main", "T": "main", "bin": "main"}
MAIN = {"momentum": "m", "bingrad": "form", "orq": "S", "linear": "S", "qsgd": "S", "fp8": "format",
        "mxfp8": "format", "hadamard": "hadamard", "huffman": "table", "zstd": "level"}
LEVELS = {"orq": 9, "linear": 16, "qsgd": 16}
RANDOM = ("randomk", "randomblock")
FP32, FP16 = np.dtype("<f4"), np.dtype("<f2")
SHAPES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "shapes.csv"


# ---- Recipes ---------------------------------------------------------------------------------------------------------

def bin_of(parameters, kind):
    """How many elements a bin has: as given, or by the kind of the tensor."""
    size = parameters.get("main", "auto")
    if size == "auto":
        size = parameters.get("conv", 50) if kind == "conv" else parameters.get("other", 500)
    return int(float(size))


def how_of(name, parameters):
    """The parameters of a quantizer; those that it does not have are ignored."""
    def number(key, default):
        return float(parameters.get(key, default))

    bucket = {"sign": 262144, "natural": 4096}.get(name) or int(number("bucket", 2048))
    return How(parameters.get("scale", "mean"), parameters.get("form", "b"), int(number("S", LEVELS.get(name, 0))),
               bucket, int(number("iters", 3)), parameters.get("levels", "greedy"), parameters.get("half") == "yes",
               parameters.get("norm", "l2"), number("clip", 0),
               {"fp4": "fp4", "mxfp4": "e2m1", "nvfp4": "e2m1"}.get(name) or
               parameters.get("format", "e4m3" if name == "mxfp8" else "e5m2"),
               parameters.get("round", "nearest"), int(parameters.get("hadamard", "no").replace("no", "0")),
               int(parameters.get("block", 64 if name == "mxfp8" else 32)))


def parse(text, has_seed, kind="other"):
    found, parameters = {}, {}
    for part in text.split("+"):
        name, _, rest = part.partition("@")
        found[STAGES[name]] = name
        for item in filter(None, rest.split(",")):
            key, equals, value = item.rpartition("=")
            key = MAIN_KEYS.get(key, key) if equals else MAIN.get(name, "main")
            parameters["most" if (name, key) == ("momentum", "clip") else key] = value
    select, quantize = found.get("select", "all"), found.get("quantize", "fp32")
    coords = parameters.get("coords", "auto" if select in RANDOM else "own")
    if coords == "auto":
        coords = "shared" if has_seed else "own"
    main = parameters.get("main", None if select in ("all", "threshold") else "0.01")
    if select == "adabins":
        main = bin_of(parameters, kind)
    # Packs are no part of it: they change bytes, not values, but two recipes that differ in them are two units. Nor are
    # the factor of momentum, which has no effect on a first step, and how owners answer, which has none on a gradient.
    packs = (found.get("index pack", "gaps"), found.get("symbol pack", "bits"), parameters.get("table", "counts"),
             float(parameters.get("level", 3)), float(parameters.get("m", 0.9)),
             parameters.get("again", "yes").replace("no", "yes"))
    return packs, Recipe(
        found.get("feedback", "none"), float(parameters.get("decay", 1)), float(parameters.get("most", 0)), select,
        None if main is None else float(main), float(parameters.get("warmup", 0)), float(parameters.get("weight", 2)),
        parameters.get("scope", "tensor"), coords, parameters.get("unbiased", "no") == "yes", quantize,
        how_of(quantize, parameters))


def matches(pattern, name):
    return re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), name, re.DOTALL)


def recipe_of(name, array, recipe, rules, kinds, dense_below, has_seed):
    kind = next((kind for pattern, kind in kinds if matches(pattern, name)), "other")
    for pattern, other in rules:
        if matches(pattern, name):
            return parse(other, has_seed, kind)
    if kind in ("norm", "bias") or array.size < dense_below:
        plain = "fp32" if array.dtype == FP32 else "fp16"
        # But with momentum, which the optimizer then lacks.
        momentum = [part for part in recipe.split("+") if part.partition("@")[0] == "momentum"]
        return parse("+".join([*momentum, plain]), has_seed)
    return parse(recipe, has_seed, kind)


# ---- Coordinates -----------------------------------------------------------------------------------------------------

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(key, *counter):
    """The four words of Philox4x32-7, for arrays of counters."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64).reshape(-1) for c in counter)
    k0, k1 = key % 2 ** 32, key // 2 ** 32
    for _ in range(7):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = b >> HALF ^ c1 ^ np.uint64(k0), b & LOW, a >> HALF ^ c3 ^ np.uint64(k1), a & LOW
        k0, k1 = (k0 + 0x9E3779B9) % 2 ** 32, (k1 + 0xBB67AE85) % 2 ** 32
    return c0, c1, c2, c3


def blocks(stream, first, n, third):
    """The words of n blocks from number `first` on, a row each; `third` is the third counter word."""
    block = np.arange(first, first + n, dtype=np.uint64)
    constant = np.full_like(block, third)
    return np.stack(philox(stream, block & LOW, block >> HALF, constant, np.zeros_like(block)), 1)


def p64(key, *counter):
    """The first two words as one number."""
    c0, c1, _, _ = philox(key, *counter)
    return (c0 | c1 << HALF).tolist()


def entries(ratio, n):
    return min(n, max(1, math.floor(ratio * n + 0.5))) if n else 0


def drawn(select, ratio, n, seed, step, unit, who):
    """The coordinates of a random part, ascending."""
    stream, = p64(seed, step % 2 ** 32, step // 2 ** 32, unit, who)
    b = entries(ratio, n)
    if select == "randomblock":
        start = next(numbers_below(stream, n)) if b else 0
        return sorted((start + j) % n for j in range(b))
    found, numbers = set(), numbers_below(stream, n)
    while len(found) < min(b, n - b):
        found.add(next(numbers))
    return sorted(found) if b <= n - b else sorted(set(range(n)) - found)


def numbers_below(stream, n):
    """below(0, n), below(1, n), …: two of each block."""
    first, size = 0, 8
    while True:
        words = blocks(stream, first, size, 0).reshape(-1, 2)
        for x in (words[:, 0] | words[:, 1] << HALF).tolist():
            yield x * n >> 64
        first, size = first + size, min(2 * size, 1 << 16)


def words(stream, first, n):
    """n numbers of 32 bits for random rounding, from number `first` on, which is a multiple of 8."""
    upper, lower = (
        np.stack([four & np.uint64(0xFFFF), four >> np.uint64(16)], 2).reshape(-1)[:n]
        for four in (blocks(stream, first // 8, -(-n // 8), k) for k in (1, 2)))
    return upper << np.uint64(16) | lower


def chance(w):
    """Such numbers as r in [0, 1): cut to the 24 bits of a binary32. In binary64."""
    wide = np.asarray(w).astype(np.float64)
    unit = np.ldexp(1.0, np.maximum(np.frexp(wide)[1] - 24, 0))
    return np.floor(wide / unit) * unit * 2.0 ** -32


def magnitude(values):
    """A number that ascends with the magnitude; a NaN is above all."""
    return values.view(np.uint32) & np.uint32(0x7FFFFFFF)


def largest_of_bins(values, recipe):
    """The largest magnitude of each bin, as such numbers."""
    return np.maximum.reduceat(magnitude(values), np.arange(0, len(values), int(recipe.main)))


def pushed(recipe, gradient, values):
    """What adabins sends: elements that reach the maximum of their bin when the gradient is added once more."""
    with np.errstate(over="ignore", invalid="ignore"):
        ahead = values + np.float32(recipe.weight - 1) * gradient
    largest = np.repeat(largest_of_bins(values, recipe), int(recipe.main))[:len(values)]
    return np.flatnonzero((magnitude(ahead) >= largest) & (values != 0))


def ratio_at(recipe, step):
    """The ratio of topk, which falls to its value from a quarter."""
    if step < recipe.warmup and recipe.main < 0.25:
        return 0.25 * (recipe.main / 0.25) ** (step / recipe.warmup)
    return recipe.main


def coordinates(recipe, gradient, values, seed, step, rank, unit):
    n = len(values)
    size = magnitude(values)
    if recipe.select == "all" or n == 0:
        return np.arange(n)
    if recipe.select == "topk":
        return np.sort(np.argsort(-size.astype(np.int64), kind="stable")[:entries(ratio_at(recipe, step), n)])
    if recipe.select == "threshold":  # against T as a binary32
        return np.flatnonzero(size >= np.float32(recipe.main).view(np.uint32))
    if recipe.select == "adabins":
        return pushed(recipe, gradient, values)
    who = 0 if recipe.coords == "shared" else rank + 1
    return np.array(drawn(recipe.select, recipe.main, n, seed or 0, step, unit, who))


# ---- Sums ------------------------------------------------------------------------------------------------------------

def tree(numbers):
    """Neighbours of the last axis are added until one number is left; 0 of none."""
    while numbers.shape[-1] > 1:
        pairs = numbers.shape[-1] // 2
        sums = numbers[..., 0:2 * pairs:2] + numbers[..., 1:2 * pairs:2]
        numbers = np.concatenate([sums, numbers[..., 2 * pairs:]], -1)
    return numbers[..., 0] if numbers.shape[-1] else np.zeros(numbers.shape[:-1])


def by_leaves(rows, partial=np.float64):
    """The sum of each row, by leaves; partial sums are of the type `partial`, all others in binary64."""
    rows = np.asarray(rows)
    n, width = rows.shape
    size = 1024 if width > 1024 else max(-(-width // 32), 1) * 32  # of a leaf; zeros at its end change nothing
    leaves = max(-(-width // size), 1)
    x = np.zeros((n, leaves * size), partial)
    x[:, :width] = rows
    sums = np.zeros((n, leaves, 32), partial)
    for k in range(size // 32):
        sums = sums + x.reshape(n, leaves, size // 32, 32)[:, :, k]
    sums = sums.astype(np.float64)
    for half in (16, 8, 4, 2, 1):
        sums = sums[..., :half] + sums[..., half:2 * half]
    return tree(sums[..., 0])


def sum_of(numbers):
    """The same of one row."""
    return float(by_leaves(np.asarray(numbers, np.float64)[None])[0])


# ---- Values ----------------------------------------------------------------------------------------------------------

def to_fp16(values):
    """binary32 to the nearest binary16 and back, ties to even; a finite value stays finite."""
    finite = np.isfinite(values)
    rounded = np.where(finite, np.clip(values, -65504, 65504), 0).astype(np.float16).astype(np.float32)
    return np.where(finite, rounded, values)


def to_bf16(values):
    """The same for bf16: in binary64, rounded to 8 significant bits, or to multiples of 2^-133 below 2^-126."""
    finite = np.isfinite(values)
    wide = np.where(finite, values, 0).astype(np.float64)
    _, exponent = np.frexp(wide)
    unit = np.ldexp(1.0, np.maximum(exponent - 8, -133))
    largest = (2 - 2.0 ** -7) * 2.0 ** 127
    rounded = np.clip(np.rint(wide / unit) * unit, -largest, largest).astype(np.float32)
    return np.where(finite, rounded, values)


def scale_of(recipe, values, sent, picked):
    """The one magnitude that signs stand for: a mean, or 1. What is sent is summed by chunk, empty ones included."""
    if recipe.how.scale == "one":
        return np.float32(1)
    if recipe.how.scale == "meanmax":
        largest = largest_of_bins(values, recipe)
        total, count = sum_of(largest.view(np.float32)), len(largest)
    else:
        firsts = np.searchsorted(sent, np.arange(262144, len(values), 262144))
        chunks = np.split(magnitude(picked).view(np.float32), firsts)
        total, count = float(tree(np.array([sum_of(chunk) for chunk in chunks]))), len(picked)
    return np.float32(total / count if count else 0)


# ---- Buckets ---------------------------------------------------------------------------------------------------------
#
# Each of these takes buckets of one size, one a row: the values v in binary64, the random numbers r in [0, 1). It gives
# back what arrives, in binary64.

def column(numbers):
    return np.asarray(numbers)[:, None]


def in_32(numbers):
    """Rounded to binary32; a finite number stays finite."""
    largest = float(np.finfo(np.float32).max)
    return np.clip(numbers, -largest, largest).astype(np.float32).astype(np.float64)


def ratio_of(a, b):
    """a/b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape), where=np.not_equal(b, 0))


def part_sums(v, which):
    """Of each row's values that are marked, with partial sums in binary32. Rows with values that are too large for
    these are scaled down."""
    scale = column(np.where(np.abs(v).max(1) < 2.0 ** 100, 1.0, 2.0 ** -30))
    return by_leaves(np.where(which, v * scale, 0), np.float32) / scale[:, 0]


def two_means(v, t):
    """The means of the values not above t and of those above it; of none, the other."""
    above = v > column(t)
    count = above.sum(1)
    low = ratio_of(part_sums(v, ~above), v.shape[1] - count)
    high = ratio_of(part_sums(v, above), count)
    return np.where(count == v.shape[1], high, low), np.where(count == 0, low, high)


def to_bingrad(how, v, r):
    if how.form == "pb":
        return to_sign_of_one(v, r)
    t = np.zeros(len(v)) if how.form == "zero" else part_sums(v, v == v) / v.shape[1]
    low, high = two_means(v, t)
    for _ in range(0 if how.form == "zero" else how.iters):
        t = (low + high) / 2
        low, high = two_means(v, t)
    return np.where(v > column(t), column(high), column(low))


def to_sign_of_one(v, r):
    """The sum of the k largest magnitudes over n, but no more than the last of them: b is the largest of these."""
    largest = -np.sort(-np.abs(v), 1)
    _, exponent = np.frexp(largest[:, :1])
    unit = np.ldexp(1.0, exponent - 1 - 36)
    counts = np.rint(largest / unit).astype(np.int64)
    largest, sums = counts * unit, np.cumsum(counts, 1) * unit  # below 2^53 of these, so all exact
    b = single(column(np.minimum(largest, sums / v.shape[1]).max(1)))
    up = single(r) * b < single(v) / np.float32(2) + b / np.float32(2)
    return np.where(up, b, -b).astype(np.float64)


def greedy_levels(x, S):
    """Numbers of the levels among the sorted values x."""
    number = np.arange(x.shape[1])
    levels = [np.zeros(len(x), int), np.full(len(x), x.shape[1] - 1)]
    while len(levels) < S:
        middles = []
        for k, j in zip(levels, levels[1:]):
            low, high = (np.take_along_axis(x, column(at), 1) for at in (k, j))
            inside = (number > column(k)) & (number <= column(j))
            ways = np.where(inside, np.floor((high - x) * ratio_of(2.0 ** 40, high - low)), 0).astype(np.int64)
            middles.append(k - (-ways.sum(1) >> 40))  # rounded up
        levels = [level for pair in zip(levels, middles) for level in pair] + levels[-1:]
    return np.stack(levels, 1)


def exact_levels(x, S):
    """The best levels of one row of sorted values, by trying all places for the level below each, level after level."""
    different = np.unique(x)
    if len(different) <= S:
        return np.append(different, np.full(S - len(different), different[-1]))
    y = np.floor((x - x[0]) * (2.0 ** 22 / (x[-1] - x[0]))).astype(np.int64)
    # The cost of values from number a to number c, between levels on these: of (c - v)(v - a), by running sums.
    number, total, squares = np.arange(len(y)), np.cumsum(y), np.cumsum(y * y)
    a, c = number[:, None], number[None, :]
    between = total[c] - total[a] + y[a]
    cost = (y[a] + y[c]) * between - (squares[c] - squares[a] + y[a] ** 2) - (c - a + 1) * y[a] * y[c]
    cost[a > c] = 2 ** 61  # more than all costs together
    best, before = cost[0], []
    for _ in range(S - 2):
        every = column(best) + cost
        before.append(every.argmin(0))  # the first of equal ones
        best = every.min(0)
    levels = [len(y) - 1]
    for choice in reversed(before):
        levels.append(choice[levels[-1]])
    return x[[0] + levels[::-1]]


def to_orq(how, v, r):
    x = np.sort(v, 1)
    if how.levels == "greedy":
        levels = np.take_along_axis(x, greedy_levels(x, how.S), 1)
    else:
        levels = np.array([exact_levels(row, how.S) for row in x]).reshape(-1, how.S)
    if how.half:
        levels = to_fp16(levels.astype(np.float32)).astype(np.float64)
    levels = levels + 0.0  # of -0 comes 0
    with np.errstate(over="ignore"):
        wide = np.isinf(single(levels[:, -1:]) - single(levels[:, :1]))
    half = np.where(wide, 0.5, 1)  # so that ways are finite
    scaled, value = single(levels * half), single(v * half)
    below = np.minimum(lower(scaled, value), how.S - 2)
    way, walked = (np.take_along_axis(scaled, below + 1, 1) - np.take_along_axis(scaled, below, 1),
                   value - np.take_along_axis(scaled, below, 1))
    a = np.take_along_axis(levels, below, 1)
    c = np.take_along_axis(levels, np.minimum(below + 1, how.S - 1), 1)
    return np.where(single(r) * way < walked, c, a)


def single(numbers):
    """In binary32, and so are results of arithmetic with it."""
    with np.errstate(over="ignore"):
        return np.asarray(numbers).astype(np.float32)


def lower(levels, v):
    """The number of the last level that is not above a value."""
    below = np.zeros(v.shape, int)
    for number in range(1, levels.shape[1]):
        below[v >= levels[:, number:number + 1]] = number
    return below


def up(t, r):
    """t rounded to a whole number without bias."""
    return np.floor(t) + (r < t - np.floor(t))


def to_linear(how, v, r):
    a, c = column(v.min(1)), column(v.max(1))
    x = up(ratio_of(v - a, c - a) * (how.S - 1), r)
    return a + (c - a) * (x / (how.S - 1))


def to_qsgd(how, v, r):
    m = np.abs(v).max(1) if how.norm == "max" else np.sqrt(by_leaves(v * v))
    m = column(in_32(m))
    shift = np.where(m < 2.0 ** -60, 2.0 ** 80, np.where(m > 2.0 ** 60, 2.0 ** -80, 1))
    x = single(np.abs(v)) * single(shift) * single(ratio_of(how.S, m * shift))
    x = up(np.minimum(x, single(how.S)), single(r)).astype(np.float64)
    return m * ((0 + np.where(v < 0, -x, x)) / how.S)  # of -0 comes 0


def to_ternary(how, v, r):
    m = column(np.abs(v).max(1))
    return np.where(single(r) * single(m) < single(np.abs(v)), np.where(v < 0, -m, m), 0 * m)


BUCKETS = {"bingrad": to_bingrad, "orq": to_orq, "linear": to_linear, "qsgd": to_qsgd, "ternary": to_ternary}


def clipped(v, times):
    if not times:
        return v
    spread = v - column(by_leaves(v) / v.shape[1])
    most = column(in_32(times * np.sqrt(by_leaves(spread * spread) / v.shape[1])))
    return np.where(v > most, most, np.where(v < -most, -most, v))


def in_buckets(recipe, values, chances):
    """The values of a chunk; those of full buckets at once, then those of a short one."""
    out, size = np.full(len(values), np.nan), recipe.how.bucket
    full = len(values) // size * size
    for first, last, width in ((0, full, size), (full, len(values), len(values) - full)):
        if first == last:
            continue
        v = values[first:last].astype(np.float64).reshape(-1, width)
        r = chance(chances[first:last]).reshape(-1, width)
        fine = np.isfinite(v).all(1)
        rows = out[first:last].reshape(-1, width)
        rows[fine] = BUCKETS[recipe.quantize](recipe.how, clipped(v[fine], recipe.how.clip), r[fine])
    return in_32(out)


def to_powers(values, chances):
    """`natural`: the sign and the exponent alone, which a fraction raises by chance."""
    bits = values.view(np.uint32)
    exponent, fraction = bits >> np.uint32(23) & np.uint32(255), bits & np.uint32(0x7FFFFF)
    raised = exponent + ((exponent < 254) & (chances >> np.uint64(9) < fraction))
    return (bits & np.uint32(0x80000000) | raised.astype(np.uint32) << np.uint32(23)).view(np.float32)


# ---- Tiny floats -----------------------------------------------------------------------------------------------------

TINY = {"fp4": ("fp4", 2, 1, 1), "e5m2": ("fp8", 5, 2, 15), "e4m3": ("fp8e4m3", 4, 3, 10)}


def tiny_values(bits, fraction_bits, bias):
    """All values of a format: from 0 on in steps, which double whenever a fraction is full, on both sides."""
    each = 2 ** fraction_bits
    full = np.arange((2 ** bits - 1) * each - 1) // each  # how often it was full before each step
    above = np.cumsum(2.0 ** (1 - bias - fraction_bits + np.maximum(full - 1, 0)))
    return np.concatenate([-above[::-1], [0.0], above])


def shapes(column):
    """(rho, reach) of all rows"""
    with open(SHAPES, encoding="ascii", newline="") as file:
        rows = list(csv.DictReader(file))
    return (np.array([float(row[name]) for row in rows]) for name in ("rho", column + "_reach"))


def reach_of(rho, form):
    """Between rows, or beyond both ends of the table."""
    column, *bits = TINY[form]
    at, reach = shapes(column)
    if rho < at[0]:
        return reach[0] * rho / at[0]
    values = tiny_values(*bits)
    at, reach = [*at, 1], [*reach, values[values >= reach[-1]].min()]
    row = min(np.searchsorted(at, rho, "right") - 1, len(at) - 2)
    return reach[row] + (reach[row + 1] - reach[row]) * ((rho - at[row]) / (at[row + 1] - at[row]))


def moments_of(v):
    """E1 and E2, or None if all values are 0."""
    count = np.count_nonzero(v)
    return (sum_of(np.abs(v)) / count, sum_of(v * v) / count) if count else None


def step_of(v, form):
    """The step that suits the values v, which are in binary64."""
    moments = moments_of(v)
    if moments is None:
        return 0.0
    mean, square = moments
    return float(in_32(mean / reach_of(mean * mean / square, form)))


def to_tiny(form, values):
    """Values of a chunk."""
    if not np.isfinite(values).all():
        return np.full(len(values), np.nan, np.float32)
    v = values.astype(np.float64)
    step = step_of(v, form)
    if step == 0:
        return np.zeros(len(v), np.float32)
    multiples = tiny_values(*TINY[form][1:]) * step
    above = (multiples[1:] + multiples[:-1]) / 2  # all exact
    return in_32(multiples[np.searchsorted(above, v)])


# ---- A scale for every few values ------------------------------------------------------------------------------------

SMALL = {"e4m3": (3, 6, 448.0), "e5m2": (2, 14, 57344.0), "e2m1": (1, 0, 6.0)}  # bits of fraction, -least exponent, largest


def small_magnitudes(form):
    """All magnitudes of a small float, ascending: number i has the bit pattern i."""
    fraction_bits, least, largest = SMALL[form]
    found, value, step = [0.0], 0.0, 2.0 ** (-least - fraction_bits)
    while value < largest:
        value += step
        found.append(value)
        if value >= 2 * step * 2 ** fraction_bits:
            step *= 2
    return np.array(found)


def to_small(form, t, r=None):
    """Magnitudes t, of binary32, as those of the format: nearest, ties to an even pattern, or by chance r."""
    all_ = small_magnitudes(form)
    t = np.minimum(t.astype(np.float64), all_[-1])
    low = np.minimum(np.searchsorted(all_, t, "right") - 1, len(all_) - 2)
    way, walked = all_[low + 1] - all_[low], t - all_[low]
    if r is not None:
        return all_[low + (r < walked / way)]
    return all_[low + ((2 * walked > way) | ((2 * walked == way) & (low % 2 == 1)))]


def butterflies(rows):
    """Sums and differences in binary32, of neighbours first."""
    half, width = 1, rows.shape[1]
    while half < width:
        a = rows.reshape(-1, width // (2 * half), 2, half)
        rows = np.stack([a[:, :, 0] + a[:, :, 1], a[:, :, 0] - a[:, :, 1]], 2).reshape(-1, width)
        half *= 2
    return rows


def rotation_signs(size, seed):
    bits = [int(w[0]) >> k & 1 for w in philox(seed, 0, 0, 3, 3) for k in range(32)]
    return 1 - 2 * np.array(bits[:size], np.float32)


def to_scaled(recipe, part, chances, seed):
    """Values of a chunk by `mxfp8`, `mxfp4` or `nvfp4`."""
    size, how = recipe.how.hadamard, recipe.how
    whole = len(part) // size * size if size else 0
    signs = rotation_signs(size, seed)
    with np.errstate(all="ignore"):
        turned = part.copy()
        if whole:
            turned[:whole] = butterflies(part[:whole].reshape(-1, size) * np.float32(1 / size) * signs).reshape(-1)
        r = chance(chances) if how.round == "random" else None
        out = single(nv_values(turned, r) if recipe.quantize == "nvfp4" else mx_values(how.format, how.block, turned, r))
        if whole:
            back = butterflies(out[:whole].reshape(-1, size) * np.float32(1 / size)) * np.float32(size) * signs
            largest = np.finfo(np.float32).max
            out[:whole] = np.where(np.isnan(back), back, np.clip(back, -largest, largest)).reshape(-1)
    return out


def mx_values(form, size, v, r):
    """In blocks: a power of two so that the largest has the exponent of the format's largest."""
    out, largest = np.full(len(v), np.nan), SMALL[form][2]
    top = math.frexp(largest)[1] - 1
    for first in range(0, len(v), size):
        block = v[first:first + size].astype(np.float64)
        most = np.abs(block).max()
        if not np.isfinite(most):
            continue
        exponent = math.frexp(most)[1] - 1 if most else -1000
        if r is not None and math.ldexp(most, -exponent) > math.ldexp(largest, -top) and most:
            exponent += 1
        scale = 2.0 ** min(max(exponent - top, -127), 127 - top)
        t = single(np.abs(block) / scale)
        got = to_small(form, t, None if r is None else r[first:first + size])
        out[first:first + size] = np.copysign(got * scale, block)
    return out


def nv_values(v, r):
    """In blocks of 16, whose e4m3 is relative to a number for all."""
    most = np.abs(v).max()
    if not np.isfinite(most):
        return np.full(len(v), np.nan)
    whole = np.float32(most) / np.float32(2688)
    out, scales = np.empty(len(v)), small_magnitudes("e4m3")
    for first in range(0, len(v), 16):
        block = v[first:first + 16]
        share = np.float32(0)
        if whole > 0:
            wanted = np.minimum(np.abs(block).max() / (np.float32(6) * whole), np.float32(448))
            share = to_small("e4m3", np.array([wanted]))[0] if r is None else scales[np.searchsorted(scales, float(wanted))]
        step = np.float32(np.float32(share) * whole)
        t = np.abs(block) / step if step > 0 else np.zeros(len(block), np.float32)
        got = to_small("e2m1", np.minimum(t, np.float32(6)), None if r is None else r[first:first + 16])
        out[first:first + 16] = np.copysign(got * share * float(whole), block.astype(np.float64))
    return out


def quantized(recipe, values, sent, picked, stream, seed=0):
    if recipe.quantize == "sign":
        return np.copysign(scale_of(recipe, values, sent, picked), picked)
    if recipe.quantize in QUANTIZE:
        return QUANTIZE[recipe.quantize](picked)
    out = np.empty(len(picked), np.float32)
    for chunk in np.unique(sent // 262144).tolist():
        inside = slice(*np.searchsorted(sent, [262144 * chunk, 262144 * (chunk + 1)]))
        part = picked[inside]
        if recipe.quantize in ("fp4", "fp8"):
            out[inside] = to_tiny(recipe.how.format, part)
            continue
        chances = words(stream, 262144 * chunk, len(part))
        if recipe.quantize in ("mxfp8", "mxfp4", "nvfp4"):
            out[inside] = to_scaled(recipe, part, chances, seed)
            continue
        natural = recipe.quantize == "natural"
        out[inside] = to_powers(part, chances) if natural else in_buckets(recipe, part, chances)
    return out


QUANTIZE = {"fp32": lambda values: values, "fp16": to_fp16, "bf16": to_bf16}


def no_longer_than(most, gradient):
    """The gradient scaled down to a Euclidean norm of `most` if its own is larger."""
    wide = gradient.astype(np.float64)
    norm = math.sqrt(sum_of(wide * wide))
    return np.float32(most / norm) * gradient if norm > most else gradient


def expected(tensors, recipe, rules=(), kinds=(), seed=None, step=0, rank=0, dense_below=0, nonfinite="error"):
    """The decoded `tensors`; arguments are those of `tersegrad encode`."""
    units = {}
    for number, (name, array) in enumerate(tensors):
        packs, chosen = recipe_of(name, array, recipe, rules, kinds, dense_below, seed is not None)
        spans = chosen.select != "all" and chosen.scope == "model"
        units.setdefault((packs, chosen) if spans else number, (chosen, []))[1].append(number)

    results = [None] * len(tensors)
    for unit, (chosen, members) in enumerate(units.values()):
        values = np.concatenate([tensors[t][1].reshape(-1).astype(np.float32) for t in members])
        if nonfinite == "zero":
            values[~np.isfinite(values)] = 0
        if chosen.most:
            values = no_longer_than(chosen.most, values)
        gradient = values
        if chosen.feedback != "none":
            values = values + np.float32(0)  # of -0 and a residual of 0 comes 0
        sent = coordinates(chosen, gradient, values, seed, step, rank, unit)
        picked = values[sent]
        if chosen.unbiased and len(sent):
            finite = np.isfinite(picked)
            with np.errstate(over="ignore"):
                picked = picked * np.float32(len(values) / len(sent))
            largest = np.finfo(np.float32).max
            picked = np.where(finite, np.clip(picked, -largest, largest), picked).astype(np.float32)
        out = np.zeros(len(values), np.float32)
        stream, = p64(seed or 0, step % 2 ** 32, step // 2 ** 32, unit, rank + 1)
        out[sent] = quantized(chosen, values, sent, picked, stream, seed or 0)
        ends = np.cumsum([tensors[t][1].size for t in members])
        for t, flat in zip(members, np.split(out, ends[:-1])):
            array = tensors[t][1]
            flat = to_fp16(flat).astype(np.float16) if array.dtype == FP16 else flat
            results[t] = flat.reshape(array.shape)
    return results


def agree(a, b):
    """Equal dtype, shape and bits, except that a NaN is as good as another."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    bits = np.uint32 if a.dtype == FP32 else np.uint16
    return bool(np.all((a.reshape(-1).view(bits) == b.reshape(-1).view(bits)) |
                       np.isnan(a.reshape(-1)) & np.isnan(b.reshape(-1))))
