"""What a recipe means, in NumPy: the gradients that come out for those that went in, computed without any frame.

Written from docs/format.md and the list that `tersegrad recipes` prints, and kept apart from both decoders: it shares
no code with them, not even the random numbers. It knows one step of a fresh encoder, so error feedback has nothing to
remember yet. Presets are not known here.

    expected(tensors, recipe, ...) -> arrays, one for each (name, array) of `tensors`, of the same dtype and shape
"""

import math
import re
from collections import namedtuple

import numpy as np

Recipe = namedtuple("Recipe", "feedback decay select main weight scope coords unbiased quantize scale")

STAGES = {"none": "feedback", "ef": "feedback", "all": "select", "topk": "select", "threshold": "select",
          "randomk": "select", "randomblock": "select", "adabins": "select",
          "fp32": "quantize", "fp16": "quantize", "bf16": "quantize", "sign": "quantize",
          "bitmap": "index pack", "gaps": "index pack", "adacomp8": "index pack", "adacomp16": "index pack",
          "bits": "symbol pack"}
MAIN_KEYS = ("ratio", "T", "bin")
RANDOM = ("randomk", "randomblock")
FP32, FP16 = np.dtype("<f4"), np.dtype("<f2")


# ---- Recipes ---------------------------------------------------------------------------------------------------------

def bin_of(parameters, kind):
    """How many elements a bin has: as given, or by the kind of the tensor."""
    size = parameters.get("main", "auto")
    if size == "auto":
        size = parameters.get("conv", 50) if kind == "conv" else parameters.get("other", 500)
    return int(float(size))


def parse(text, has_seed, kind="other"):
    found, parameters = {}, {}
    for part in text.split("+"):
        name, _, rest = part.partition("@")
        found[STAGES[name]] = name
        for item in filter(None, rest.split(",")):
            key, equals, value = item.rpartition("=")
            parameters[key if equals and key not in MAIN_KEYS else "main"] = value
    select = found.get("select", "all")
    coords = parameters.get("coords", "auto" if select in RANDOM else "own")
    if coords == "auto":
        coords = "shared" if has_seed else "own"
    main = parameters.get("main", None if select in ("all", "threshold") else "0.01")
    if select == "adabins":
        main = bin_of(parameters, kind)
    # The index pack is no part of it: it changes bytes, not values, but two recipes that differ in it are two units.
    return found.get("index pack", "gaps"), Recipe(
        found.get("feedback", "none"), float(parameters.get("decay", 1)), select, None if main is None else float(main),
        float(parameters.get("weight", 2)), parameters.get("scope", "tensor"), coords,
        parameters.get("unbiased", "no") == "yes", found.get("quantize", "fp32"), parameters.get("scale", "mean"))


def matches(pattern, name):
    return re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), name, re.DOTALL)


def recipe_of(name, array, recipe, rules, kinds, dense_below, has_seed):
    kind = next((kind for pattern, kind in kinds if matches(pattern, name)), "other")
    for pattern, other in rules:
        if matches(pattern, name):
            return parse(other, has_seed, kind)
    if kind in ("norm", "bias") or array.size < dense_below:
        return parse("fp32" if array.dtype == FP32 else "fp16", has_seed)
    return parse(recipe, has_seed, kind)


# ---- Coordinates -----------------------------------------------------------------------------------------------------

LOW, HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def p64(key, *counter):
    """The first two words of Philox4x32-10 as one number, for arrays of counters."""
    c0, c1, c2, c3 = (np.asarray(c, np.uint64).reshape(-1) for c in counter)
    k0, k1 = key % 2 ** 32, key // 2 ** 32
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = b >> HALF ^ c1 ^ np.uint64(k0), b & LOW, a >> HALF ^ c3 ^ np.uint64(k1), a & LOW
        k0, k1 = (k0 + 0x9E3779B9) % 2 ** 32, (k1 + 0xBB67AE85) % 2 ** 32
    return (c0 | c1 << HALF).tolist()


def entries(ratio, n):
    return min(n, max(1, math.floor(ratio * n + 0.5))) if n else 0


def drawn(select, ratio, n, seed, step, unit, who):
    """The coordinates of a random part, ascending."""
    stream, = p64(seed, step % 2 ** 32, step // 2 ** 32, unit, who)
    b = entries(ratio, n)
    x = p64(stream, np.arange(b), np.zeros(b), np.zeros(b), np.zeros(b))
    if select == "randomblock":
        start = x[0] * n >> 64
        return sorted((start + j) % n for j in range(b))
    taken = set()
    for i, j in enumerate(range(n - b, n)):
        t = x[i] * (j + 1) >> 64
        taken.add(j if t in taken else t)
    return sorted(taken)


def magnitude(values):
    """A number that ascends with the magnitude; a NaN is above all."""
    return values.view(np.uint32) & np.uint32(0x7FFFFFFF)


def largest_of_bins(values, recipe):
    """The largest magnitude of each bin, as such numbers."""
    return np.maximum.reduceat(magnitude(values), np.arange(0, len(values), int(recipe.main)))


def pushed(recipe, gradient, values):
    """What adabins sends: that which the gradient, counted once more, brings up to the largest of its bin."""
    with np.errstate(over="ignore", invalid="ignore"):
        ahead = values + np.float32(recipe.weight - 1) * gradient
    largest = np.repeat(largest_of_bins(values, recipe), int(recipe.main))[:len(values)]
    return np.flatnonzero((magnitude(ahead) >= largest) & (values != 0))


def coordinates(recipe, gradient, values, seed, step, rank, unit):
    n = len(values)
    size = magnitude(values)
    if recipe.select == "all" or n == 0:
        return np.arange(n)
    if recipe.select == "topk":
        return np.sort(np.argsort(-size.astype(np.int64), kind="stable")[:entries(recipe.main, n)])
    if recipe.select == "threshold":  # against T as a binary32
        return np.flatnonzero(size >= np.float32(recipe.main).view(np.uint32))
    if recipe.select == "adabins":
        return pushed(recipe, gradient, values)
    who = 0 if recipe.coords == "shared" else rank + 1
    return np.array(drawn(recipe.select, recipe.main, n, seed or 0, step, unit, who))


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


def sum_of(numbers):
    """A sum in binary64, from the first to the last."""
    total = 0.0
    for number in numbers.view(np.float32).tolist():
        total += number
    return total


def sum_by(sizes, numbers, positions):
    """The same of sums: over parts of sizes[0] elements, in these over parts of sizes[1] elements, and so on."""
    if not sizes or not len(numbers):
        return sum_of(numbers)
    firsts = np.flatnonzero(np.diff(positions // sizes[0])) + 1
    total = 0.0
    for part, at in zip(np.split(numbers, firsts), np.split(positions, firsts)):
        total += sum_by(sizes[1:], part, at)
    return total


def scale_of(recipe, values, sent, picked):
    """The one magnitude that signs stand for: a mean. What is sent is summed by chunk, and there by 4,096 elements."""
    if recipe.scale == "meanmax":
        largest = largest_of_bins(values, recipe)
        total, count = sum_of(largest), len(largest)
    else:
        total, count = sum_by((262144, 4096), magnitude(picked), sent), len(picked)
    return np.float32(total / count if count else 0)


def quantized(recipe, values, sent, picked):
    if recipe.quantize == "sign":
        return np.copysign(scale_of(recipe, values, sent, picked), picked)
    return QUANTIZE[recipe.quantize](picked)


QUANTIZE = {"fp32": lambda values: values, "fp16": to_fp16, "bf16": to_bf16}


def expected(tensors, recipe, rules=(), kinds=(), seed=None, step=0, rank=0, dense_below=0, nonfinite="error"):
    """What comes out for `tensors`; arguments are those of `tersegrad encode`."""
    units = {}
    for number, (name, array) in enumerate(tensors):
        pack, chosen = recipe_of(name, array, recipe, rules, kinds, dense_below, seed is not None)
        spans = chosen.select != "all" and chosen.scope == "model"
        units.setdefault((pack, chosen) if spans else number, (chosen, []))[1].append(number)

    results = [None] * len(tensors)
    for unit, (chosen, members) in enumerate(units.values()):
        values = np.concatenate([tensors[t][1].reshape(-1).astype(np.float32) for t in members])
        if nonfinite == "zero":
            values[~np.isfinite(values)] = 0
        gradient = values
        if chosen.feedback == "ef":
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
        out[sent] = quantized(chosen, values, sent, picked)
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
