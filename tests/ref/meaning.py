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

Recipe = namedtuple("Recipe", "feedback decay select main scope coords unbiased quantize")

STAGES = {"none": "feedback", "ef": "feedback", "all": "select", "topk": "select", "threshold": "select",
          "randomk": "select", "randomblock": "select", "fp32": "quantize", "fp16": "quantize", "bf16": "quantize",
          "bitmap": "index pack", "gaps": "index pack", "bits": "symbol pack"}
RANDOM = ("randomk", "randomblock")
FP32, FP16 = np.dtype("<f4"), np.dtype("<f2")


# ---- Recipes ---------------------------------------------------------------------------------------------------------

def parse(text, has_seed):
    found, parameters = {}, {}
    for part in text.split("+"):
        name, _, rest = part.partition("@")
        found[STAGES[name]] = name
        for item in filter(None, rest.split(",")):
            key, equals, value = item.rpartition("=")
            parameters[key if equals and key not in ("ratio", "T") else "main"] = value
    select = found.get("select", "all")
    coords = parameters.get("coords", "auto" if select in RANDOM else "own")
    if coords == "auto":
        coords = "shared" if has_seed else "own"
    main = parameters.get("main", None if select in ("all", "threshold") else "0.01")
    # The index pack is no part of it: it changes bytes, not values, but two recipes that differ in it are two units.
    return found.get("index pack", "gaps"), Recipe(
        found.get("feedback", "none"), float(parameters.get("decay", 1)), select, None if main is None else float(main),
        parameters.get("scope", "tensor"), coords, parameters.get("unbiased", "no") == "yes",
        found.get("quantize", "fp32"))


def matches(pattern, name):
    return re.fullmatch("".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern), name, re.DOTALL)


def recipe_of(name, array, recipe, rules, kinds, dense_below, has_seed):
    for pattern, other in rules:
        if matches(pattern, name):
            return parse(other, has_seed)
    kind = next((kind for pattern, kind in kinds if matches(pattern, name)), "other")
    if kind in ("norm", "bias") or array.size < dense_below:
        return parse("fp32" if array.dtype == FP32 else "fp16", has_seed)
    return parse(recipe, has_seed)


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


def coordinates(recipe, values, seed, step, rank, unit):
    n = len(values)
    size = values.view(np.uint32) & np.uint32(0x7FFFFFFF)  # ascends with the magnitude; a NaN is above all
    if recipe.select == "all" or n == 0:
        return np.arange(n)
    if recipe.select == "topk":
        return np.sort(np.argsort(-size.astype(np.int64), kind="stable")[:entries(recipe.main, n)])
    if recipe.select == "threshold":  # against T as a binary32
        return np.flatnonzero(size >= np.float32(recipe.main).view(np.uint32))
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
        if chosen.feedback == "ef":
            values = values + np.float32(0)  # of -0 and a residual of 0 comes 0
        sent = coordinates(chosen, values, seed, step, rank, unit)
        picked = values[sent]
        if chosen.unbiased and len(sent):
            finite = np.isfinite(picked)
            with np.errstate(over="ignore"):
                picked = picked * np.float32(len(values) / len(sent))
            largest = np.finfo(np.float32).max
            picked = np.where(finite, np.clip(picked, -largest, largest), picked).astype(np.float32)
        out = np.zeros(len(values), np.float32)
        out[sent] = QUANTIZE[chosen.quantize](picked)
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
