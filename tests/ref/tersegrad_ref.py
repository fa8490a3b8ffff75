#!/usr/bin/env python3
"""A second decoder of Tersegrad frame files, for checking the first.

Written from docs/format.md alone; kept apart from the C code on purpose, so that the page, the C library and this
module can be held against each other. Section numbers below are those of the page. It is strict: every frame that
breaks a rule of the page raises FormatError, with one sentence that names the rule.

    decode(data) -> (info, [(name, array), ...])

Arrays have the tensor's shape and dtype: fp32 is float32, fp16 is float16, and bf16, which NumPy lacks, is uint16
holding the bit patterns; info["tensors"][i]["dtype"] tells "bf16" from the others. Names are read as UTF-8, with
surrogate escapes for bytes that are not.

    tersegrad_ref.py FRAME.tg OUT      one tensor: OUT is a .npy file; otherwise a folder of NAME.npy ('/' becomes '_')
    tersegrad_ref.py --info FRAME.tg   what the frame says of itself, as JSON

Needs Python 3.8 and NumPy, nothing else.
"""

import argparse
import json
import math
import os
import re
import struct
import sys
from collections import namedtuple
from fractions import Fraction

import numpy as np

CHUNK = 1 << 18           # elements in a chunk
MAX_ELEMENTS = 1 << 60    # in all tensors of a frame together
DEFAULT_LIMIT = 1 << 28   # elements this decoder is willing to hold, unless told otherwise

DESCRIBED, INDICES, VALUES = 1, 2, 4
BITMAP, RUNS, EVERY, PLACES8, PLACES16 = 32, 33, 34, 35, 36
MAX_RICE = 18
PLACES = {PLACES8: 6, PLACES16: 14}  # bits of a place

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1


class FormatError(ValueError):
    """The frame breaks a rule of the format."""


class Unsupported(FormatError):
    """The frame is more than this decoder takes on, though no rule is known to be broken."""


def require(condition, message):
    if not condition:
        raise FormatError(message)


class Cursor:
    """Reads a buffer front to back and never past its end."""

    def __init__(self, view, where):
        self.view, self.where, self.at = view, where, 0

    def left(self):
        return len(self.view) - self.at

    def take(self, size, what):
        require(size <= self.left(), f"{self.where} ends inside {what}")
        self.at += size
        return self.view[self.at - size:self.at]

    def number(self, size, what):
        return int.from_bytes(self.take(size, what), "little")


# ---- XXH64 -----------------------------------------------------------------------------------------------------------

XP1, XP2, XP3, XP4, XP5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63,
                           0x27D4EB2F165667C5)


def rotl64(x, r):
    return (x << r | x >> (64 - r)) & MASK64


def xxh64_round(acc, lane):
    return rotl64((acc + lane * XP2) & MASK64, 31) * XP1 & MASK64


def xxh64(data, seed=0):
    view = memoryview(data)
    size = len(view)
    whole = size & ~31
    if whole:
        mask, p1, p2 = MASK64, XP1, XP2
        a, b, c, d = (seed + p1 + p2) & mask, (seed + p2) & mask, seed, (seed - p1) & mask
        for w, x, y, z in struct.iter_unpack("<4Q", view[:whole]):  # xxh64_round, written out for speed
            a = (a + w * p2) & mask
            b = (b + x * p2) & mask
            c = (c + y * p2) & mask
            d = (d + z * p2) & mask
            a = ((a << 31 | a >> 33) & mask) * p1 & mask
            b = ((b << 31 | b >> 33) & mask) * p1 & mask
            c = ((c << 31 | c >> 33) & mask) * p1 & mask
            d = ((d << 31 | d >> 33) & mask) * p1 & mask
        h = rotl64(a, 1) + rotl64(b, 7) + rotl64(c, 12) + rotl64(d, 18)
        for acc in (a, b, c, d):
            h = (h ^ xxh64_round(0, acc)) * XP1 + XP4
    else:
        h = seed + XP5
    h = (h + size) & MASK64
    tail = Cursor(view[whole:], "the tail")
    while tail.left() >= 8:
        h = (rotl64(h ^ xxh64_round(0, tail.number(8, "")), 27) * XP1 + XP4) & MASK64
    if tail.left() >= 4:
        h = (rotl64(h ^ tail.number(4, "") * XP1 & MASK64, 23) * XP2 + XP3) & MASK64
    while tail.left():
        h = rotl64(h ^ tail.number(1, "") * XP5 & MASK64, 11) * XP1 & MASK64
    h = (h ^ h >> 33) * XP2 & MASK64
    h = (h ^ h >> 29) * XP3 & MASK64
    return h ^ h >> 32


# ---- Section 5: coordinates that are drawn ---------------------------------------------------------------------------

def philox(key, c0, c1, c2, c3):
    """Philox4x32-10: four words. Counter words are ints, or uint64 arrays to draw many at once."""
    k0, k1 = key & MASK32, key >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & MASK32, p0 >> 32 ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def below(stream, i, m):
    """floor(x(i)·m / 2^64), without a product wider than 64 bits, so that i and m may be uint64 arrays."""
    lo, hi, _, _ = philox(stream, i & MASK32, i >> 32, 0, 0)
    m_lo, m_hi = m & MASK32, m >> 32
    cross, other = lo * m_hi, hi * m_lo
    carry = (lo * m_lo >> 32) + (cross & MASK32) + (other & MASK32)
    return hi * m_hi + (cross >> 32) + (other >> 32) + (carry >> 32)


def stream_of(seed, step, unit, who=0):
    o0, o1, _, _ = philox(seed, step & MASK32, step >> 32, unit, who)
    return o0 | o1 << 32


def draw_size(ratio, n):
    return min(n, max(1, math.floor(ratio * n + 0.5))) if n else 0


def draw_block(stream, n, b):
    """The coordinates of `randomblock`, ascending."""
    start = below(stream, 0, n) if n else 0
    wrapped = max(0, start + b - n)
    return np.concatenate([np.arange(wrapped, dtype=np.int64), np.arange(start, start + b - wrapped, dtype=np.int64)])


def draw_k(stream, n, b):
    """The coordinates of `randomk`, ascending: Floyd's sampling."""
    taken = bytearray(n)
    for first in range(0, b, CHUNK):
        i = np.arange(first, min(first + CHUNK, b), dtype=np.uint64)
        j = n - b + first
        for t in below(stream, i, i + np.uint64(n - b + 1)).tolist():
            taken[j if taken[t] else t] = 1
            j += 1
    return np.flatnonzero(np.frombuffer(taken, np.uint8)) if n else np.zeros(0, np.int64)


DRAWS = {"randomk": draw_k, "randomblock": draw_block}


# ---- Sections 7 and 8: recipes ---------------------------------------------------------------------------------------

STAGES = ("feedback", "select", "quantize", "index pack", "symbol pack")
PARTS = (
    {"none": 1, "ef": 2, "momentum": 3},
    {"all": 1, "topk": 2, "threshold": 3, "randomk": 4, "randomblock": 5, "adabins": 6},
    {"fp32": 1, "fp16": 2, "bf16": 3, "sign": 4, "bingrad": 5, "orq": 6, "linear": 7, "qsgd": 8, "ternary": 9,
     "natural": 10},  # 11, `lowrank`, is never in a frame
    {"bitmap": 1, "gaps": 2, "adacomp8": 3, "adacomp16": 4},
    {"bits": 1},
)
DEFAULTS = ("none", "all", None, "gaps", "bits")
STAGE_OF = {name: stage for stage, parts in enumerate(PARTS) for name in parts}
MAX_RECIPES = 255
MAX_TEXT = 255

# A parameter's values are choices, or the numbers from `low` (itself only if `closed`) to `high`, or the whole ones of
# them. A main one comes first.
Parameter = namedtuple("Parameter", "key choices default low high closed main whole",
                       defaults=(None,) * 4 + (False,) * 2)
SCOPE = Parameter("scope", ("tensor", "model"), "tensor")
RATIO = Parameter("ratio", None, "0.01", 0, 1, False, main=True)
RANDOM = (RATIO, SCOPE, Parameter("coords", ("own", "shared"), "auto"), Parameter("unbiased", ("no", "yes"), "no"))
COORDS = Parameter("coords", ("own", "shared"), "own")
BIN = Parameter("bin", None, "auto", 1, 16384, True, main=True, whole=True)
SPLIT = (BIN._replace(key="conv", default="50", main=False), BIN._replace(key="other", default="500", main=False))
BUCKET = Parameter("bucket", None, "2048", 1, 65536, True, whole=True)
CLIP = Parameter("clip", None, "0", 0, 1000, True)
LEVELS = Parameter("S", None, "16", 2, 256, True, main=True, whole=True)
PARAMETERS = {  # in canonical order
    "ef": (Parameter("decay", None, "1", 0, 1, True),),
    "momentum": (Parameter("m", None, "0.9", 0, 1, True, main=True), CLIP._replace(high=1e30)),
    "topk": (RATIO, SCOPE, COORDS, Parameter("warmup", None, "0", 0, 10 ** 9, True, whole=True)),
    "threshold": (Parameter("T", None, None, 0, (2 - 2 ** -23) * 2.0 ** 127, True, main=True), SCOPE, COORDS),
    "randomk": RANDOM,
    "randomblock": RANDOM,
    "adabins": (BIN, SCOPE, COORDS, *SPLIT, Parameter("weight", None, "2", 1, 100, True)),
    "sign": (Parameter("scale", ("mean", "meanmax", "one"), "mean"),),
    "bingrad": (Parameter("form", ("b", "pb", "zero"), "b", main=True), BUCKET,
                Parameter("iters", None, "3", 0, 100, True, whole=True), CLIP),
    "orq": (LEVELS._replace(default="9", high=17), BUCKET,
            Parameter("levels", ("greedy", "exact"), "greedy"), Parameter("half", ("no", "yes"), "no"), CLIP),
    "linear": (LEVELS, BUCKET, CLIP),
    "qsgd": (LEVELS._replace(low=1, high=255), BUCKET, Parameter("norm", ("l2", "max"), "l2"), CLIP),
    "ternary": (BUCKET, CLIP),
}
LARGEST_BIN = {"adacomp8": 64, "adacomp16": 16384}
GREEDY = (3, 5, 9, 17)

Recipe = namedtuple("Recipe", "text select quantize index_pack scope shared ratio bin layout")


def write_number(value):
    """A number as canonical text has it: "%.*g" in the fewest digits that read back the same."""
    for digits in range(1, 18):
        text = "%.*g" % (digits, value)
        if float(text) == value:
            break
    mantissa, e, exponent = text.partition("e")
    return mantissa + e + (str(int(exponent)) if e else "")


def parse_number(text):
    require(re.fullmatch(r"-?[0-9.]+(e-?[0-9]+)?", text), f"recipe number '{text}' is not in canonical form")
    try:
        value = float(text) + 0.0  # of -0 comes 0, so that it is not canonical
    except ValueError:
        value = math.nan
    require(math.isfinite(value), f"recipe number '{text}' is none, or beyond binary64")
    canonical = write_number(value)
    require(text == canonical, f"recipe number '{text}' is not in canonical form, which is '{canonical}'")
    return value


def parse_whole(text):
    require(re.fullmatch("0|[1-9][0-9]*", text), f"recipe number '{text}' is not a whole number in plain digits")
    return int(text)


def check_value(part, parameter, value):
    require(value != "auto", f"recipe part '{part}' has {parameter.key}=auto, which no frame may have")
    if parameter.choices:
        require(value in parameter.choices + (parameter.default,), f"recipe part '{part}' has {parameter.key}={value}")
        return
    number = parse_whole(value) if parameter.whole else parse_number(value)
    inside = parameter.low <= number <= parameter.high and (parameter.closed or number > parameter.low)
    require(inside, f"recipe part '{part}' has {parameter.key} outside its range: {value}")


def parse_parameters(part, text):
    """The parameters of a part that are given, by key."""
    known = PARAMETERS.get(part, ())
    keys = [parameter.key for parameter in known]
    given, last = {}, -1
    for place, item in enumerate(text.split(",")):
        found = re.fullmatch(r"(?:([A-Za-z0-9.-]+)=)?([A-Za-z0-9.-]+)", item)
        require(found, f"recipe part '{part}' has the malformed parameter '{item}'")
        key, value = found[1], found[2]
        require(key or place == 0, f"recipe part '{part}' has a value without key behind its first parameter")
        require(key or known and known[0].main, f"recipe part '{part}' has no main parameter")
        require(not key or key not in keys or not known[keys.index(key)].main,
                f"recipe part '{part}' gives its main parameter with a key")
        key = key or keys[0]
        require(key in keys, f"recipe part '{part}' has the unknown parameter '{key}'")
        require(key not in given, f"recipe part '{part}' gives '{key}' twice")
        require(keys.index(key) > last, f"recipe part '{part}' has its parameters out of order")
        last = keys.index(key)
        check_value(part, known[last], value)
        given[key] = value
        require(known[last].main or value != known[last].default,  # a main one always stands
                f"recipe part '{part}' spells out the default {key}={value}")
    return given


def parameters_of(part, at, text):
    """All parameters of a part by key, at their defaults if they are not given."""
    values = {parameter.key: parameter.default for parameter in PARAMETERS.get(part, ())}
    given = parse_parameters(part, text) if at else {}
    for parameter in PARAMETERS.get(part, ()):
        require(not parameter.main or parameter.key in given, f"recipe part '{part}' lacks its main parameter")
    values.update(given)
    require(values.get("coords") != "auto", f"recipe part '{part}' has coords=auto, which no frame may have")
    for parameter in SPLIT:
        require(parameter.key not in given, f"recipe part '{part}' has {parameter.key}, although its bin is decided")
    return values


def check_together(text, names, parameters):
    """Parts and parameters that do not go together."""
    given = parameters[2]
    require(given.get("levels") != "greedy" or parse_whole(given["S"]) in GREEDY,
            f"recipe '{text}' has greedy levels, but not 3, 5, 9 or 17 of them")
    require(given.get("scale") != "one" or names[0] == "none", f"recipe '{text}' has a scale of one and feedback")
    require(given.get("scale") != "meanmax" or names[1] == "adabins",
            f"recipe '{text}' has a scale that is taken of bins but has no bins")
    if names[3] not in LARGEST_BIN:
        return
    require(names[1] == "adabins" and names[2] == "sign",
            f"recipe '{text}' has index pack '{names[3]}' without adabins or without sign")
    require(parse_whole(parameters[1]["bin"]) <= LARGEST_BIN[names[3]],
            f"recipe '{text}' has bins too large for index pack '{names[3]}'")


def parse_recipe(raw, ids):
    text = bytes(raw).decode("latin-1")
    require(len(text) <= MAX_TEXT, f"a recipe text has {len(text)} bytes, more than {MAX_TEXT}")
    require(re.fullmatch("[!-~]+", text), "a recipe text is empty or not of printable ASCII")
    names, parameters, last = list(DEFAULTS), {}, -1
    for part in text.split("+"):
        name, at, rest = part.partition("@")
        require(name in STAGE_OF, f"recipe '{text}' has the unknown part '{name}'")
        stage = STAGE_OF[name]
        require(stage > last, f"recipe '{text}' has its parts out of order or two of one stage")
        require(name != DEFAULTS[stage], f"recipe '{text}' spells out the default part '{name}'")
        names[stage], last = name, stage
        parameters[stage] = parameters_of(name, at, rest)
    require(names[2], f"recipe '{text}' names no quantizer")
    require(names[1] != "all" or names[3] == "gaps", f"recipe '{text}' has an index pack but no indices")
    unbiased = parameters.get(1, {}).get("unbiased") == "yes"
    require(names[0] == "none" or not unbiased, f"recipe '{text}' is unbiased and has feedback")
    check_together(text, names, parameters)
    for stage, name in enumerate(names):
        require(ids[stage] == PARTS[stage][name],
                f"recipe '{text}' goes with {STAGES[stage]} id {ids[stage]}, not {PARTS[stage][name]} of '{name}'")

    given = parameters.get(1, {})
    ratio = parse_number(given["ratio"]) if names[1] in DRAWS else None
    return Recipe(text, names[1], names[2], names[3], given.get("scope"), given.get("coords") == "shared", ratio,
                  int(given["bin"]) if names[1] == "adabins" else None, layout_of(names[2], parameters[2]))


# ---- Section 2: description ------------------------------------------------------------------------------------------

KINDS = ("other", "conv", "dense", "recurrent", "embedding", "norm", "bias")
DTYPES = ("fp32", "fp16", "bf16")

Tensor = namedtuple("Tensor", "name kind dtype recipe shape size")


def parse_description(view):
    """(seed or None, recipes, tensors)"""
    cursor = Cursor(view, "the description")
    has_seed = cursor.number(1, "has_seed")
    require(has_seed <= 1, f"has_seed is {has_seed}, neither 0 nor 1")
    seed = cursor.number(8, "the seed")
    require(has_seed or seed == 0, "the seed is not 0 although has_seed is 0")

    recipes, recipe_n = [], cursor.number(2, "the number of recipes")
    require(recipe_n <= MAX_RECIPES, f"the description has {recipe_n} recipes, more than {MAX_RECIPES}")
    for _ in range(recipe_n):
        text = cursor.take(cursor.number(2, "a recipe's length"), "a recipe's text")
        recipes.append(parse_recipe(text, bytes(cursor.take(5, "a recipe's ids"))))
    require(len({recipe.text for recipe in recipes}) == len(recipes), "two recipes have the same text")

    tensors, names, used, total = [], set(), 0, 0
    for _ in range(cursor.number(4, "the number of tensors")):
        length = cursor.number(2, "a tensor's name length")
        require(1 <= length <= 255, f"a tensor's name is {length} bytes long, not 1 to 255")
        raw = bytes(cursor.take(length, "a tensor's name"))
        require(0 not in raw, "a tensor's name has a byte 0")
        require(raw not in names, "two tensors have the same name")
        names.add(raw)
        kind = cursor.number(1, "a tensor's kind")
        require(kind < len(KINDS), f"a tensor has the unknown kind {kind}")
        dtype = cursor.number(1, "a tensor's dtype")
        require(dtype < len(DTYPES), f"a tensor has the unknown dtype {dtype}")
        recipe = cursor.number(2, "a tensor's recipe number")
        require(recipe < len(recipes), f"a tensor has recipe number {recipe} of {len(recipes)}")
        require(recipe <= used, "the recipes do not stand in the order of their first use")
        used = max(used, recipe + 1)
        rank = cursor.number(1, "a tensor's number of dimensions")
        require(rank <= 64, f"a tensor has {rank} dimensions, more than 64")
        shape = struct.unpack(f"<{rank}Q", cursor.take(8 * rank, "a tensor's dimensions"))
        size = math.prod(shape)
        total += size
        require(total <= MAX_ELEMENTS, "the tensors have more than 2^60 elements together")
        tensors.append(Tensor(raw.decode("utf-8", "surrogateescape"), KINDS[kind], DTYPES[dtype], recipe, shape, size))
    require(used == len(recipes), "a recipe is used by no tensor")
    require(not cursor.left(), "the description has bytes behind its last tensor")
    return seed if has_seed else None, recipes, tensors


# ---- Section 4: a chunk ----------------------------------------------------------------------------------------------

MODES = {"bitmap": (BITMAP,), "gaps": (*range(MAX_RICE + 1), BITMAP, RUNS, EVERY), "adacomp8": (BITMAP, PLACES8),
         "adacomp16": (BITMAP, PLACES16)}
PLAIN = {"fp32": 32, "fp16": 16, "bf16": 16}  # bits of a symbol

# How values travel: symbols below `base`, in groups of `each` that take `bits`; `bucket` of them share `numbers`, which
# are of `dtype`. Symbols in whole bytes have base 0, and no buckets.
Layout = namedtuple("Layout", "quantize form base each bits bucket numbers dtype")


def group_of(base):
    """(symbols in a group, its bits)"""
    sizes = [(k, (base ** k - 1).bit_length()) for k in range(1, 9) if base ** k <= 1 << 48]
    return min(sizes, key=lambda size: (Fraction(size[1], size[0]), size[0]))


def layout_of(quantize, given):
    if quantize in PLAIN:
        return Layout(quantize, None, 0, 1, PLAIN[quantize], CHUNK, 0, "<f4")
    form, levels, half = given.get("form"), int(given.get("S", 0)), given.get("half") == "yes"
    base = {"sign": 2, "bingrad": 2, "orq": levels, "linear": levels, "qsgd": 2 * levels + 1, "ternary": 3,
            "natural": 512}[quantize]
    bucket = {"sign": CHUNK, "natural": 4096}.get(quantize) or int(given["bucket"])
    numbers = {"sign": 1, "bingrad": 1 if form == "pb" else 2, "orq": levels, "linear": 2, "qsgd": 1, "ternary": 1,
               "natural": 0}[quantize]
    return Layout(quantize, form, base, *group_of(base), bucket, numbers, "<f2" if half else "<f4")


def symbols_len(layout, count):
    groups = (count + layout.each - 1) // layout.each
    return (groups * layout.bits + 7) // 8


def symbols_max(layout, size):
    """The most symbols that `size` bytes have room for."""
    return size * 8 // layout.bits * layout.each


def numbers_len(layout, count):
    buckets = (count + layout.bucket - 1) // layout.bucket
    return buckets * layout.numbers * np.dtype(layout.dtype).itemsize


def read_groups(view, base, each, width, count):
    """`count` symbols below `base`, in groups of `each` that take `width` bits."""
    bits = np.unpackbits(np.frombuffer(view, np.uint8), bitorder="little")
    groups = (count + each - 1) // each
    require(not bits[groups * width:].any(), "the symbols have a bit set behind their last")
    rows = bits[:groups * width].reshape(groups, width)
    rest = np.zeros(groups, np.int64)
    for bit in range(width):
        rest |= rows[:, bit].astype(np.int64) << bit
    require(not groups or rest.max() < base ** each, "a group of symbols is beyond its largest")
    symbols = np.empty((groups, each), np.int64)
    for place in range(each):
        rest, symbols[:, place] = np.divmod(rest, base)
    symbols = symbols.reshape(-1)
    require(not symbols[count:].any(), "the last group has a symbol too many")
    return symbols[:count]


def turned(numbers, signs):
    """Numbers of binary32, with the sign bit turned of each whose sign is 1."""
    return (numbers.view(np.uint32) ^ signs.astype(np.uint32) << np.uint32(31)).view(np.float32)


def computed(layout, numbers, x):
    """What symbols x mean where that is computed: in binary64, rounded to binary32 once."""
    with np.errstate(invalid="ignore"):
        numbers = numbers.astype(np.float64)
        first, steps = numbers[:, 0], layout.base - 1
        if layout.quantize == "linear":
            values = first + (numbers[:, 1] - first) * (x / steps)
        elif layout.quantize == "qsgd":
            values = first * ((x - steps // 2) / (steps // 2))
        else:  # ternary
            values = np.where(x == 0, -first, np.where(x == 1, 0 * first, first))
        return values.astype(np.float32)


def values_of(layout, raw, x):
    """What symbols x mean, in the buckets whose numbers are `raw`."""
    if layout.quantize == "natural":
        return (x << 23).astype(np.uint32).view(np.float32)
    numbers = np.frombuffer(raw, layout.dtype).astype(np.float32).reshape(-1, layout.numbers)
    numbers = numbers[np.arange(len(x)) // layout.bucket]
    if layout.quantize == "sign":
        return turned(numbers[:, 0], x)
    if layout.form == "pb":
        return turned(numbers[:, 0], 1 - x)
    if layout.quantize in ("bingrad", "orq"):
        return numbers[np.arange(len(x)), x]
    return computed(layout, numbers, x)


def read_symbols(layout, count, numbers, view):
    """Symbols as binary32."""
    if layout.base:
        return values_of(layout, numbers, read_groups(view, layout.base, layout.each, layout.bits, count))
    if layout.quantize == "fp32":
        return np.frombuffer(view, "<f4")
    if layout.quantize == "fp16":
        return np.frombuffer(view, "<f2").astype(np.float32)
    return (np.frombuffer(view, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def read_rice(view, k, count, m):
    bits = np.unpackbits(np.frombuffer(view, np.uint8), bitorder="little")
    size = len(bits)
    stuck = size + 1  # where a code leads that runs past the end
    # For each bit: the first zero bit at or behind it, and where the next code starts if one starts here.
    zero = np.where(bits == 0, np.arange(size), stuck)
    zero = np.minimum.accumulate(zero[::-1])[::-1]
    after = zero + (1 + k)
    after[after > size] = stuck
    jump = after.tolist() + [stuck, stuck]
    starts, at = [], 0
    for _ in range(count):
        starts.append(at)
        at = jump[at]
    require(at != stuck, "a Rice code runs past its bytes")
    require((at + 7) // 8 == len(view), "a Rice code has more bytes than it needs")
    require(not bits[at:].any(), "a Rice code has a bit set behind its last")

    starts = np.array(starts, np.int64)
    stops = zero[starts]
    gaps = stops - starts
    for bit in range(k - 1, -1, -1):
        gaps = gaps << 1 | bits[stops + 1 + bit]
    positions = np.cumsum(gaps + 1) - 1
    require(positions[-1] < m, "a Rice code has a position outside its chunk")
    return positions


def read_bitmap(view, count, m):
    bits = np.unpackbits(np.frombuffer(view, np.uint8), bitorder="little")
    require(not bits[m:].any(), "a bitmap has a bit set behind its last")
    positions = np.flatnonzero(bits[:m])
    require(len(positions) == count, f"a bitmap has {len(positions)} bits set where count is {count}")
    return positions


def read_runs(view, count, m):
    raw = np.frombuffer(view, np.uint8).astype(np.int64)
    require(raw[-1] < 128, "the runs end inside a number")
    ends = np.flatnonzero(raw < 128)
    starts = np.concatenate([[0], ends[:-1] + 1])
    sizes = ends - starts + 1
    require(not np.any((sizes > 1) & (raw[ends] == 0)), "a number in the runs is longer than it needs to be")
    require(sizes.max() <= 3, "a run ends outside its chunk")  # 2^21 is more than any chunk has
    numbers = raw[starts] & 127
    for place in (1, 2):
        longer = sizes > place
        numbers[longer] |= (raw[starts[longer] + place] & 127) << 7 * place
    require(len(numbers) % 2 == 0, "the runs end inside a pair")
    skips, lengths = numbers[0::2], numbers[1::2] + 1
    require(skips[1:].all(), "two runs touch")
    stops = np.cumsum(skips + lengths)
    require(stops[-1] <= m, "a run ends outside its chunk")
    require(lengths.sum() == count, f"the runs have {lengths.sum()} elements where count is {count}")
    before = np.cumsum(lengths) - lengths
    return np.repeat(stops - lengths - before, lengths) + np.arange(count)


def read_places(view, mode, count, m, cell):
    """(positions, signs)"""
    bits = PLACES[mode]
    require(mode == PLACES8 or len(view) % 2 == 0, "the places end inside an entry")
    entries = np.frombuffer(view, np.uint8 if mode == PLACES8 else "<u2").astype(np.int64)
    codes, places = entries >> bits, entries & (1 << bits) - 1
    require(not np.any(codes == 3), "a place has code 3")
    require(codes[-1] != 0, "the last place has code 0")
    sent = codes != 0
    require(sent.sum() == count, f"the places have {sent.sum()} values where count is {count}")
    require(places[sent].max() < cell, "a place is outside its cell")
    # How many cells each entry goes on by: those that it skips, or one if its place does not ascend.
    onward = np.where(sent, 0, places + 1)
    onward[1:] += sent[1:] & sent[:-1] & (places[1:] <= places[:-1])
    positions = (np.cumsum(onward) * cell + places)[sent]
    require(positions[-1] < m, "a place is outside its chunk")
    return positions, codes[sent] - 1


def read_positions(view, mode, count, m):
    if count == 0:
        return np.zeros(0, np.int64)
    if mode == EVERY:
        return np.arange(m)
    if mode == BITMAP:
        return read_bitmap(view, count, m)
    return read_runs(view, count, m) if mode == RUNS else read_rice(view, mode, count, m)


def read_header(cursor, index_pack, m):
    """(count, mode, index_len), as far as the header alone tells right from wrong"""
    word, index_len = cursor.number(4, "a chunk's header"), cursor.number(2, "a chunk's header")
    count, mode = word & 0xFFFFFF, word >> 24
    require(count <= m, f"a chunk of {m} elements has count {count}")
    if count == 0:
        require(mode == 0 and index_len == 0, "a chunk of count 0 has another mode than 0 or index bytes")
        return count, mode, index_len
    require(any(mode in modes for modes in MODES.values()), f"a chunk has the unknown mode {mode}")
    require(mode in MODES[index_pack], f"a chunk has mode {mode}, which index pack '{index_pack}' does not allow")
    if mode == BITMAP:
        require(index_len == (m + 7) // 8, f"a bitmap of {m} elements has {index_len} bytes")
    elif mode == EVERY:
        require(count == m, f"a chunk of {m} elements has mode {EVERY} but count {count}")
        require(index_len == 0, f"a chunk of mode {EVERY} has index bytes")
    else:
        require(index_len > 0, "a chunk has no index bytes although its mode needs some")
    return count, mode, index_len


# ---- Sections 1, 3 and 6: the frame ----------------------------------------------------------------------------------

Header = namedtuple("Header", "magic version flags zero rank slice slices description_len frame_len step fingerprint")
Chunk = namedtuple("Chunk", "base m mode count numbers symbols indices")
HEADER = struct.Struct("<4sBBHIIIIQQQ")


def parse_header(view):
    require(len(view) >= HEADER.size + 8, f"a frame has at least {HEADER.size + 8} bytes, this one has {len(view)}")
    head = Header(*HEADER.unpack(view[:HEADER.size]))
    require(head.magic == b"TGFR", "the magic is not that of a frame")
    require(head.version == 1, f"the frame has version {head.version}, this decoder reads version 1")
    require(head.flags < 8, "a flag is set that version 1 does not know")
    require(head.flags & (INDICES | VALUES), "the frame has neither indices nor values")
    require(head.zero == 0, "the zero field is not 0")
    require(head.rank < MASK32, "the rank is beyond the largest")
    require(head.slices >= 1, "the frame is of 0 slices")
    require(head.slice < head.slices, f"the frame is slice {head.slice} of {head.slices}")
    require(head.flags & DESCRIBED or head.description_len == 0, "a frame that is not described has a description")
    require(head.frame_len == len(view), f"frame_len is {head.frame_len}, but there are {len(view)} bytes")
    require(head.flags & DESCRIBED, "a frame in a file must be described")
    require(head.flags & INDICES and head.flags & VALUES, "a frame in a file must have both indices and values")
    require(head.slices == 1, f"a frame in a file must be slice 0 of 1, not {head.slice} of {head.slices}")
    require(HEADER.size + head.description_len + 8 <= len(view), "the description does not fit into the frame")
    return head


def form_units(recipes, tensors):
    """Lists of tensor numbers, one for each unit."""
    units, of_recipe = [], {}
    for number, tensor in enumerate(tensors):
        if recipes[tensor.recipe].scope != "model":
            units.append([number])
        elif tensor.recipe in of_recipe:
            of_recipe[tensor.recipe].append(number)
        else:
            of_recipe[tensor.recipe] = [number]
            units.append(of_recipe[tensor.recipe])
    return units


def draw(recipe, seed, step, unit, n, room):
    """The coordinates of a unit, or None if they are not drawn; `room` is how many the frame has bytes for."""
    if not (recipe.shared and recipe.select in DRAWS):
        return None
    require(seed is not None, f"recipe '{recipe.text}' draws coordinates but the frame has no seed")
    b = draw_size(recipe.ratio, n)
    require(b <= room, "the frame ends inside a chunk's symbols")
    return DRAWS[recipe.select](stream_of(seed, step, unit), n, b)


def walk_unit(cursor, recipe, n, coordinates, hashes):
    """The chunks of one unit; their hashes are added to `hashes`."""
    chunks = []
    for base in range(0, n, CHUNK):
        start, m = cursor.at, min(CHUNK, n - base)
        count, mode, index_len = m, EVERY, 0
        if coordinates is not None:
            count, mode = int(np.subtract(*np.searchsorted(coordinates, [base + m, base]))), None
        elif recipe.select != "all":
            count, mode, index_len = read_header(cursor, recipe.index_pack, m)
        numbers = cursor.take(numbers_len(recipe.layout, count), "the numbers of a chunk's buckets")
        symbols = cursor.take(0 if mode in PLACES else symbols_len(recipe.layout, count), "a chunk's symbols")
        indices = cursor.take(index_len, "a chunk's indices")
        hashes.append(xxh64(cursor.view[start:cursor.at]))
        chunks.append(Chunk(base, m, mode, count, numbers, symbols, indices))
    return chunks


def decode_unit(recipe, n, coordinates, chunks):
    """The values of one unit, as binary32."""
    values = np.zeros(n, np.float32)
    sent = 0
    for chunk in chunks:
        if not chunk.count:
            continue
        if chunk.mode in PLACES:
            positions, signs = read_places(chunk.indices, chunk.mode, chunk.count, chunk.m, recipe.bin)
            values[chunk.base + positions] = values_of(recipe.layout, chunk.numbers, signs)
            continue
        if coordinates is not None:
            positions = coordinates[sent:sent + chunk.count]
        else:
            positions = chunk.base + read_positions(chunk.indices, chunk.mode, chunk.count, chunk.m)
        values[positions] = read_symbols(recipe.layout, chunk.count, chunk.numbers, chunk.symbols)
        sent += chunk.count
    return values


def to_bf16(values):
    """binary32 to the bits of bf16, to nearest, ties to even; a NaN stays one."""
    bits = values.view(np.uint32)
    nan = np.isnan(values)
    upper = bits >> np.uint32(16)
    rounded = (np.where(nan, 0, bits) + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
    return np.where(nan, upper | np.uint32(0x40), rounded).astype(np.uint16)


LARGEST = {"fp16": np.float32(65504), "bf16": np.uint32(0x7F7F0000).view(np.float32)}


def to_dtype(values, dtype):
    bits = values.view(np.uint32)
    values = np.where(np.isnan(values), bits | np.uint32(0x400000), bits).view(np.float32)  # every NaN is made quiet
    if dtype == "fp32":
        return values
    largest = LARGEST[dtype]
    values = np.where(np.isfinite(values), np.clip(values, -largest, largest), values)
    return to_bf16(values) if dtype == "bf16" else values.astype(np.float16)


def decode_view(view, limit):
    head = parse_header(view)
    body = HEADER.size + head.description_len
    description = view[HEADER.size:body]
    require(xxh64(description) == head.fingerprint, "the fingerprint is not that of the description")
    seed, recipes, tensors = parse_description(description)
    if sum(tensor.size for tensor in tensors) > limit:
        raise Unsupported(f"the tensors have more than {limit} elements together, too many for this decoder")

    # Find where chunks lie and see that the checksum holds before any of them is unpacked.
    units, walked, hashes = form_units(recipes, tensors), [], [xxh64(view[:body])]
    cursor = Cursor(view[body:-8], "the frame")
    for number, members in enumerate(units):
        recipe, n = recipes[tensors[members[0]].recipe], sum(tensors[t].size for t in members)
        coordinates = draw(recipe, seed, head.step, number, n, symbols_max(recipe.layout, cursor.left()))
        walked.append((recipe, n, coordinates, walk_unit(cursor, recipe, n, coordinates, hashes)))
    require(not cursor.left(), "the frame has bytes behind its last chunk")
    require(xxh64(struct.pack(f"<{len(hashes)}Q", *hashes)) == int.from_bytes(view[-8:], "little"),
            "the checksum does not hold")

    arrays = [None] * len(tensors)
    for members, unit in zip(units, walked):
        values, at = decode_unit(*unit), 0
        for t in members:
            flat = to_dtype(values[at:at + tensors[t].size], tensors[t].dtype)
            at += tensors[t].size
            try:
                arrays[t] = flat.reshape(tensors[t].shape)
            except (ValueError, OverflowError):
                raise Unsupported("a tensor has more or larger dimensions than NumPy can hold") from None

    info = {
        "version": head.version, "rank": head.rank, "step": head.step, "seed": seed,
        "fingerprint": f"{head.fingerprint:016x}", "recipes": [recipe.text for recipe in recipes],
        "tensors": [{"name": t.name, "kind": t.kind, "dtype": t.dtype, "recipe": t.recipe, "shape": list(t.shape)}
                    for t in tensors],
        "entries": sum(chunk.count for _, _, _, chunks in walked for chunk in chunks),
    }
    return info, [(tensor.name, array) for tensor, array in zip(tensors, arrays)]


def decode(data, limit=DEFAULT_LIMIT):
    """Decode the one frame that a file holds; tensors of more than `limit` elements together are refused."""
    try:
        return decode_view(memoryview(data).cast("B"), limit)
    except MemoryError:
        raise Unsupported("the frame needs more memory than there is") from None


# ---- Script ----------------------------------------------------------------------------------------------------------

def write_arrays(out, arrays):
    if len(arrays) == 1:
        with open(out, "wb") as file:
            np.save(file, arrays[0][1])
        return
    names = [name.replace("/", "_") + ".npy" for name, _ in arrays]
    if len(set(names)) < len(names):
        raise Unsupported("two tensors would be written to the same file")
    os.makedirs(out, exist_ok=True)
    for name, (_, array) in zip(names, arrays):
        with open(os.path.join(out, name), "wb") as file:
            np.save(file, array)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tersegrad_ref", description="Decode a Tersegrad frame file to .npy.")
    parser.add_argument("frame", metavar="FRAME")
    parser.add_argument("out", metavar="OUT", nargs="?")
    parser.add_argument("--info", action="store_true", help="print what the frame says of itself, as JSON")
    parser.add_argument("--limit", type=int, default=DEFAULT_LIMIT, help="most elements to decode (default 2^28)")
    options = parser.parse_args(arguments)
    if options.out is None and not options.info:
        parser.error("OUT is missing")
    try:
        with open(options.frame, "rb") as file:
            info, arrays = decode(file.read(), options.limit)
        if options.out is not None:
            write_arrays(options.out, arrays)
    except (FormatError, OSError) as error:
        print(f"tersegrad_ref: {error}", file=sys.stderr)
        return 1
    if options.info:
        print(json.dumps(info, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
