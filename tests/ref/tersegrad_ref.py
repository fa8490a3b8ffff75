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

Needs Python 3.8 and NumPy; docs/shapes.csv for codes that are taken from it, and libzstd for symbol pack `zstd`.
"""

import argparse
import csv
import ctypes
import functools
import json
import math
import os
import pathlib
import re
import struct
import sys
from collections import namedtuple
from fractions import Fraction

import numpy as np

CHUNK = 1 << 18           # elements in a chunk
MAX_ELEMENTS = 1 << 60    # in all tensors of a frame together
DEFAULT_LIMIT = 1 << 28   # elements that this decoder accepts by default

DESCRIBED, INDICES, VALUES = 1, 2, 4
BITMAP, RUNS, EVERY, PLACES8, PLACES16, GEOMETRIC = 32, 33, 34, 35, 36, 37
MAX_RICE = 18
PLACES = {PLACES8: 6, PLACES16: 14}  # bits of a place

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1


class FormatError(ValueError):
    """The frame breaks a rule of the format."""


class Unsupported(FormatError):
    """The frame may be valid, but is beyond the limits of this decoder."""


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


# ---- H: XXH3 of leaves -----------------------------------------------------------------------------------------------

P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
STRIPE, BLOCK = 64, 1024  # bytes of long inputs that are taken at once, and between two scrambles
LEAF = 4096


def word(raw, at, size=8):
    return int.from_bytes(raw[at:at + size], "little")


def rotl64(x, r):
    return (x << r | x >> (64 - r)) & MASK64


def swapped(x):
    """The bytes of a word in reverse order."""
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def folded(a, b):
    """The halves of a product of 128 bits, one xor the other."""
    product = a * b
    return product >> 64 ^ product & MASK64


def avalanche(h):
    h = (h ^ h >> 37) * 0x165667919E3779F9 & MASK64
    return h ^ h >> 32


def avalanche_64(h):
    """That of XXH64, which the shortest inputs have."""
    h = (h ^ h >> 33) * P64[1] & MASK64
    h = (h ^ h >> 29) * P64[2] & MASK64
    return h ^ h >> 32


def xxh3_short(raw):
    """Up to 16 bytes."""
    size = len(raw)
    if size > 8:
        low = word(raw, 0) ^ word(SECRET, 24) ^ word(SECRET, 32)
        high = word(raw, size - 8) ^ word(SECRET, 40) ^ word(SECRET, 48)
        return avalanche((size + swapped(low) + high + folded(low, high)) & MASK64)
    if size > 3:
        h = (word(raw, size - 4, 4) | word(raw, 0, 4) << 32) ^ word(SECRET, 8) ^ word(SECRET, 16)
        h = (h ^ rotl64(h, 49) ^ rotl64(h, 24)) * 0x9FB21C651E98DF25 & MASK64
        h = (h ^ (h >> 35) + size) * 0x9FB21C651E98DF25 & MASK64
        return h ^ h >> 28
    if size:
        combined = raw[0] << 16 | raw[size >> 1] << 24 | raw[-1] | size << 8
        return avalanche_64(combined ^ word(SECRET, 0, 4) ^ word(SECRET, 4, 4))
    return avalanche_64(word(SECRET, 56) ^ word(SECRET, 64))


def mixed(raw, at, secret):
    """16 bytes with 16 of the secret."""
    return folded(word(raw, at) ^ word(SECRET, secret), word(raw, at + 8) ^ word(SECRET, secret + 8))


def xxh3_middle(raw):
    """17 to 240 bytes."""
    size = len(raw)
    h = size * P64[0]
    if size <= 128:
        for i in range((size - 1) // 32 + 1):  # from both ends towards the middle
            h += mixed(raw, 16 * i, 32 * i) + mixed(raw, size - 16 * (i + 1), 32 * i + 16)
        return avalanche(h & MASK64)
    for i in range(8):
        h += mixed(raw, 16 * i, 16 * i)
    h = avalanche(h & MASK64)
    for i in range(8, size // 16):
        h += mixed(raw, 16 * i, 16 * (i - 8) + 3)
    return avalanche(h + mixed(raw, size - 16, 136 - 17) & MASK64)


def secret_words(at):
    return np.frombuffer(SECRET[at:at + STRIPE], "<u8")


def taken(stripes, secret):
    """What stripes add to the eight sums: the last two axes are stripes and words, and stripes are added up."""
    keyed = stripes ^ secret
    products = (keyed & np.uint64(MASK32)) * (keyed >> np.uint64(32))
    return (products + stripes[..., [1, 0, 3, 2, 5, 4, 7, 6]]).sum(-2, dtype=np.uint64)


def xxh3_long(rows):
    """A list of the hashes of the rows of a uint8 array, which have more than 240 bytes: all rows at once."""
    rows = np.ascontiguousarray(rows)
    n, size = rows.shape
    per_block = BLOCK // STRIPE
    keys = np.stack([secret_words(8 * i) for i in range(per_block)])
    blocks = (size - 1) // BLOCK
    whole = rows[:, :blocks * BLOCK].copy().view("<u8").reshape(n, blocks, per_block, 8)
    sums = np.tile(np.array([P32[2], *P64[:4], P32[1], P64[4], P32[0]], np.uint64), (n, 1))
    added = taken(whole, keys)
    for block in range(blocks):
        sums += added[:, block]
        sums = (sums ^ sums >> np.uint64(47) ^ secret_words(len(SECRET) - STRIPE)) * np.uint64(P32[0])
    left = (size - 1 - blocks * BLOCK) // STRIPE
    rest = rows[:, blocks * BLOCK:blocks * BLOCK + left * STRIPE].copy().view("<u8").reshape(n, left, 8)
    sums += taken(rest, keys[:left])
    last = rows[:, size - STRIPE:].copy().view("<u8").reshape(n, 1, 8)
    sums += taken(last, secret_words(len(SECRET) - STRIPE - 7))
    merged = (sums ^ secret_words(11)).tolist()
    return [avalanche((size * P64[0] + sum(folded(row[i], row[i + 1]) for i in (0, 2, 4, 6))) & MASK64)
            for row in merged]


def xxh3(data):
    """XXH3 of 64 bits, with seed 0 and the default secret."""
    if len(data) <= 240:
        return xxh3_short(bytes(data)) if len(data) <= 16 else xxh3_middle(bytes(data))
    return xxh3_long(np.frombuffer(data, np.uint8)[None])[0]


def hash_of(data):
    """H of the page."""
    view = memoryview(data)
    if len(view) <= LEAF:
        return xxh3(view)
    whole = len(view) // LEAF * LEAF
    hashes = xxh3_long(np.frombuffer(view[:whole], np.uint8).reshape(-1, LEAF))
    if whole < len(view):
        hashes.append(xxh3(view[whole:]))
    return xxh3(struct.pack(f"<{len(hashes)}Q", *hashes))


# ---- Section 5: coordinates that are drawn ---------------------------------------------------------------------------

def philox(key, c0, c1, c2, c3):
    """Philox4x32-7: four words. Counter words are ints, or uint64 arrays to draw many at once."""
    k0, k1 = key & MASK32, key >> 32
    for _ in range(7):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & MASK32, p0 >> 32 ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def draws(stream, first, count):
    """(o0 or o2, o1 or o3) of draws `first`, which is even, to first + count - 1, as uint64 arrays"""
    j = np.arange(first // 2, (first + count + 1) // 2, dtype=np.uint64)
    four = np.stack(philox(stream, j & np.uint64(MASK32), j >> np.uint64(32), 0, 0), 1)
    return four.reshape(-1, 2)[:count].T


def below(stream, first, count, m):
    """floor(x(i)·m / 2^64) for i from `first` on, without a product wider than 64 bits."""
    lo, hi = draws(stream, first, count)
    m_lo, m_hi = np.uint64(m & MASK32), np.uint64(m >> 32)
    half, low = np.uint64(32), np.uint64(MASK32)
    cross, other = lo * m_hi, hi * m_lo
    carry = (lo * m_lo >> half) + (cross & low) + (other & low)
    return (hi * m_hi + (cross >> half) + (other >> half) + (carry >> half)).tolist()


def stream_of(seed, step, unit, who=0):
    o0, o1, _, _ = philox(seed, step & MASK32, step >> 32, unit, who)
    return o0 | o1 << 32


def draw_size(ratio, n):
    return min(n, max(1, math.floor(ratio * n + 0.5))) if n else 0


def draw_block(stream, n, b):
    """The coordinates of `randomblock`, ascending."""
    start = below(stream, 0, 1, n)[0] if n else 0
    wrapped = max(0, start + b - n)
    return np.concatenate([np.arange(wrapped, dtype=np.int64), np.arange(start, start + b - wrapped, dtype=np.int64)])


def draw_k(stream, n, b):
    """The coordinates of `randomk`, ascending: the first draws that differ, or all others."""
    drawn, missing, first = bytearray(n), min(b, n - b), 0
    while missing:
        count = min(2 * missing, CHUNK)
        for t in below(stream, first, count, n):
            if missing and not drawn[t]:
                drawn[t] = 1
                missing -= 1
        first += count
    return np.flatnonzero(np.frombuffer(drawn, np.uint8) == (b <= n - b)) if n else np.zeros(0, np.int64)


DRAWS = {"randomk": draw_k, "randomblock": draw_block}


# ---- Sections 7 and 8: recipes ---------------------------------------------------------------------------------------

STAGES = ("feedback", "select", "quantize", "index pack", "symbol pack")
PARTS = (
    {"none": 1, "ef": 2, "momentum": 3},
    {"all": 1, "topk": 2, "threshold": 3, "randomk": 4, "randomblock": 5, "adabins": 6},
    {"fp32": 1, "fp16": 2, "bf16": 3, "sign": 4, "bingrad": 5, "orq": 6, "linear": 7, "qsgd": 8, "ternary": 9,
     "natural": 10, "fp8": 12, "fp4": 13, "mxfp4": 16,
     "nvfp4": 17, "mxfp8": 18},  # 11, `lowrank`, and 14, `autoencoder`, are never in a frame; 15 is not used any more
    {"bitmap": 1, "gaps": 2, "adacomp8": 3, "adacomp16": 4},
    {"bits": 1, "huffman": 2, "rans": 3, "lossless": 4, "zstd": 5},
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
BLOCKS = (Parameter("round", ("nearest", "random"), "nearest"), Parameter("hadamard", ("no", "32", "64", "128"), "no"))
SHARED = Parameter("block", None, "32", 32, 128, True, whole=True)
REFIT = Parameter("refit", None, "1", 1, 10 ** 9, True, whole=True)
LEVELS = Parameter("S", None, "16", 2, 256, True, main=True, whole=True)
AGAIN = Parameter("again", ("fp32", "fp16", "bf16"), "yes")
PARAMETERS = {  # in canonical order
    "ef": (Parameter("decay", None, "1", 0, 1, True), AGAIN),
    "momentum": (Parameter("m", None, "0.9", 0, 1, True, main=True), CLIP._replace(high=1e30), AGAIN),
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
    "fp8": (Parameter("format", ("e5m2", "e4m3"), "e5m2", main=True), REFIT),
    "fp4": (REFIT,),
    "mxfp8": (Parameter("format", ("e4m3", "e5m2"), "e4m3", main=True), *BLOCKS, SHARED._replace(default="64")),
    "mxfp4": (*BLOCKS, SHARED),
    "nvfp4": BLOCKS,
    "huffman": (Parameter("table", ("counts", "model"), "counts", main=True),),
    "zstd": (Parameter("level", None, "3", 1, 9, True, main=True, whole=True),),
}
LARGEST_BIN = {"adacomp8": 64, "adacomp16": 16384}
GREEDY = (3, 5, 9, 17)

Recipe = namedtuple("Recipe", "text select quantize index_pack symbol_pack scope shared ratio bin layout")


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
    require(given.get("block", "32") in ("32", "64", "128"), f"recipe '{text}' has blocks that are not of 32, 64 or 128 values")
    check_symbol_pack(text, names, parameters)
    if names[3] not in LARGEST_BIN:
        return
    require(names[1] == "adabins" and names[2] == "sign",
            f"recipe '{text}' has index pack '{names[3]}' without adabins or without sign")
    require(parse_whole(parameters[1]["bin"]) <= LARGEST_BIN[names[3]],
            f"recipe '{text}' has bins too large for index pack '{names[3]}'")


def check_symbol_pack(text, names, parameters):
    quantize, pack = names[2], names[4]
    if pack == "bits":
        return
    require(names[3] not in LARGEST_BIN, f"recipe '{text}' has index pack '{names[3]}', which leaves no symbols")
    with_indices = pack == "rans" and names[1] != "all" and names[3] == "gaps"
    require(pack == "zstd" or with_indices or (quantize in PLAIN) == (pack == "lossless"),
            f"recipe '{text}' has symbol pack '{pack}', which does not go with '{quantize}'")
    require(parameters[4].get("table") != "model" or quantize in FORMATS,
            f"recipe '{text}' takes its code from a model that '{quantize}' does not have")


def parse_recipe(raw, ids, seed=0):
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
    table = parameters.get(4, {}).get("table")
    return Recipe(text, names[1], names[2], names[3], names[4], given.get("scope"), given.get("coords") == "shared",
                  ratio, int(given["bin"]) if names[1] == "adabins" else None,
                  layout_of(names[2], parameters[2], names[4], table, seed))


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
        recipes.append(parse_recipe(text, bytes(cursor.take(5, "a recipe's ids")), seed))
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
FORMATS = {"fp4": {None: ("fp4", 2, 1, 1)},  # by form: columns of docs/shapes.csv, bits of exponent and fraction, bias
           "fp8": {"e5m2": ("fp8", 5, 2, 15), "e4m3": ("fp8e4m3", 4, 3, 10)}}
FITTED = np.dtype([("step", "<f4"), ("row", "u1")])

# How values travel: symbols below `base`, in groups of `each` that take `bits`; `bucket` of them share `numbers`, which
# are of `dtype`. Symbols in whole bytes have base 0, and no buckets. `coded` is the pack that codes them, if one does,
# and `table` where its code comes from.
# `head` bytes stand before the numbers of a chunk, and `signs` are those of a rotation.
Layout = namedtuple("Layout", "quantize form base each bits bucket numbers dtype coded table head signs",
                    defaults=(None, None, 0, ()))


def group_of(base):
    """(symbols in a group, its bits)"""
    sizes = [(k, (base ** k - 1).bit_length()) for k in range(1, 9) if base ** k <= 1 << 48]
    return min(sizes, key=lambda size: (Fraction(size[1], size[0]), size[0]))


@functools.lru_cache(None)
def values_of_format(quantize, form):
    """All values of a format, ascending."""
    _, exponent_bits, fraction_bits, bias = FORMATS[quantize][form]
    fractions = [fraction / 2 ** fraction_bits for fraction in range(2 ** fraction_bits)]
    found = {fraction * 2.0 ** (1 - bias) for fraction in fractions}
    found |= {(1 + fraction) * 2.0 ** (e - bias) for fraction in fractions for e in range(1, 2 ** exponent_bits - 1)}
    return np.array(sorted(found | {-value for value in found}))


# Quantizers with a scale for every few values: bits of exponent and of fraction, and bias, by form.
SMALL = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m1": (2, 1, 1)}
SCALED = ("mxfp8", "mxfp4", "nvfp4")


@functools.lru_cache(None)
def values_of_small(form):
    """What the bit patterns of a small float of OCP MX mean, in their order."""
    exponent_bits, fraction_bits, bias = SMALL[form]
    found = []
    for pattern in range(1 << exponent_bits + fraction_bits):
        exponent, fraction = divmod(pattern, 1 << fraction_bits)
        value = math.ldexp(fraction + (1 << fraction_bits) * (exponent > 0), max(exponent, 1) - bias - fraction_bits)
        if form == "e5m2" and exponent == 31:
            value = math.nan if fraction else math.inf
        if form == "e4m3" and pattern == 127:
            value = math.nan
        found.append(value)
    return np.array(found + [-value for value in found])


def block_layout(quantize, given, coded, table, seed):
    form = given.get("format", "e2m1")
    base = 2 << sum(SMALL[form][:2])
    size = 0 if given["hadamard"] == "no" else int(given["hadamard"])
    words = philox(seed, 0, 0, 3, 3)
    signs = tuple(-1.0 if words[i // 32] >> i % 32 & 1 else 1.0 for i in range(size))
    return Layout(quantize, form, base, *group_of(base), int(given.get("block", 16)), 1, "u1", coded, table,
                  4 if quantize == "nvfp4" else 0, signs)


def one_nan(values):
    """In binary32; all NaNs have the same bits."""
    with np.errstate(over="ignore", invalid="ignore"):
        bits = np.asarray(values).astype(np.float32).view(np.uint32)
    return np.where(np.isnan(values), np.uint32(0x7FC00000), bits).astype(np.uint32).view(np.float32)


def turned_back(rows, signs):
    """The inverse of the rotation of each row."""
    size = np.float32(len(signs))
    with np.errstate(over="ignore", invalid="ignore"):
        x = rows * (np.float32(1) / size)
        half = 1
        while half < len(signs):
            pairs = x.reshape(len(x), -1, 2, half)
            x = np.concatenate([pairs[:, :, :1] + pairs[:, :, 1:], pairs[:, :, :1] - pairs[:, :, 1:]], 2).reshape(len(x), -1)
            half *= 2
        x = x * size * np.array(signs, np.float32)
        largest = np.finfo(np.float32).max
        return one_nan(np.where(x > largest, largest, np.where(x < -largest, -largest, x)))


def block_values(layout, raw, x):
    """What symbols x of a chunk mean, `raw` being what stands before them."""
    scales = np.frombuffer(raw[layout.head:], np.uint8)
    with np.errstate(over="ignore", invalid="ignore"):
        if layout.quantize == "nvfp4":
            scales = values_of_small("e4m3")[scales] * np.frombuffer(raw[:4], "<f4").astype(np.float64)
        else:
            scales = np.where(scales == 255, np.nan, np.ldexp(1.0, scales.astype(np.int64) - 127))
        values = one_nan(values_of_small(layout.form)[x] * scales[np.arange(len(x)) // layout.bucket])
    whole = len(x) // len(layout.signs) * len(layout.signs) if layout.signs else 0
    if whole:
        values[:whole] = turned_back(values[:whole].reshape(-1, len(layout.signs)), layout.signs).reshape(-1)
    return values


def layout_of(quantize, given, pack, table, seed=0):
    if quantize in PLAIN:
        return Layout(quantize, None, 0, 1, PLAIN[quantize], CHUNK, 0, "<f4",
                      pack if pack in ("lossless", "zstd") else None)
    coded = None if pack == "bits" else pack
    if quantize in FORMATS:
        base = len(values_of_format(quantize, given.get("format")))
        return Layout(quantize, given.get("format"), base, *group_of(base), CHUNK, 1, FITTED, coded, table)
    if quantize in SCALED:
        return block_layout(quantize, given, coded, table, seed)
    form, levels, half = given.get("form"), int(given.get("S", 0)), given.get("half") == "yes"
    base = {"sign": 2, "bingrad": 2, "orq": levels, "linear": levels, "qsgd": 2 * levels + 1, "ternary": 3,
            "natural": 512}[quantize]
    bucket = {"sign": CHUNK, "natural": 4096}.get(quantize) or int(given["bucket"])
    numbers = {"sign": 1, "bingrad": 1 if form == "pb" else 2, "orq": levels, "linear": 2, "qsgd": 1, "ternary": 1,
               "natural": 0}[quantize]
    return Layout(quantize, form, base, *group_of(base), bucket, numbers, "<f2" if half else "<f4", coded, table)


def symbols_len(layout, count):
    groups = (count + layout.each - 1) // layout.each
    return (groups * layout.bits + 7) // 8


def symbols_max(layout, size):
    """The most symbols that fit into `size` bytes. A coded chunk may have any number."""
    if layout.coded:
        return size * CHUNK
    return size * 8 // layout.bits * layout.each


def numbers_len(layout, count):
    buckets = (count + layout.bucket - 1) // layout.bucket
    return (layout.head if count else 0) + buckets * layout.numbers * np.dtype(layout.dtype).itemsize


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


def times_step(layout, raw, x):
    """What symbols x of `fp4` and `fp8` mean."""
    with np.errstate(invalid="ignore"):
        step = np.frombuffer(raw, layout.dtype)["step"].astype(np.float64)
        values = values_of_format(layout.quantize, layout.form)[x] * step[np.arange(len(x)) // layout.bucket]
        largest = float(np.finfo(np.float32).max)
        return np.where(np.isfinite(values), np.clip(values, -largest, largest), values).astype(np.float32)


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
    if layout.quantize in FORMATS:
        return times_step(layout, raw, x)
    if layout.quantize in SCALED:
        return block_values(layout, raw, x)
    numbers = np.frombuffer(raw, layout.dtype).astype(np.float32).reshape(-1, layout.numbers)
    numbers = numbers[np.arange(len(x)) // layout.bucket]
    if layout.quantize == "sign":
        return turned(numbers[:, 0], x)
    if layout.form == "pb":
        return turned(numbers[:, 0], 1 - x)
    if layout.quantize in ("bingrad", "orq"):
        return numbers[np.arange(len(x)), x]
    return computed(layout, numbers, x)


# ---- Section 4: symbols that are coded -------------------------------------------------------------------------------

SHAPES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "shapes.csv"
LONGEST = 12  # bits of a prefix code
STREAM = 1024  # symbols of a stream of prefix codes
ROUNDS = 1024  # the most symbols of a state
STATE_MIN = 1 << 15  # of geometric indices
LETTERS, LETTER_BITS = 64, 12  # of geometric indices
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@functools.lru_cache(None)
def lengths_of_shapes(column):
    """The lengths of a format's prefix codes, row by row."""
    with open(SHAPES, encoding="ascii", newline="") as file:
        return [[int(digit, 16) for digit in row[column + "_lengths"]] for row in csv.DictReader(file)]


def prefix_of(lengths):
    """(symbols, their lengths) by the next LONGEST bits, of the canonical prefix code that has these lengths"""
    lengths = np.array(lengths)
    require(lengths.max() <= LONGEST, f"a prefix code has a length above {LONGEST}")
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    share = 1 << LONGEST - lengths[order]  # of all that may come next
    require(share.sum() <= 1 << LONGEST, "a prefix code has more codes than there is room for")
    require(share.sum() == 1 << LONGEST, "a prefix code is not full")
    symbol_of = np.repeat(order, share)
    return symbol_of, lengths[symbol_of]


def code_starts(bits, after, count, words):
    """Where `count` codes start that fill whole bytes, given where a code that starts at each bit ends."""
    size = len(bits)
    stuck = size + 1  # where a code leads that runs past the end
    jump = np.where(after > size, stuck, after).tolist() + [stuck, stuck]
    starts, at = [], 0
    for _ in range(count):
        starts.append(at)
        at = jump[at]
    require(at != stuck, f"a {words} code runs past its bytes")
    require((at + 7) // 8 == size // 8, f"a {words} code has more bytes than it needs")
    require(not bits[at:].any(), f"a {words} code has a bit set behind its last")
    return np.array(starts, np.int64)


def read_stream(view, prefix, count):
    """`count` symbols of a prefix code."""
    bits = np.unpackbits(np.frombuffer(view, np.uint8), bitorder="little")
    size = len(bits)
    padded = np.concatenate([bits, np.zeros(LONGEST, np.uint8)])
    ahead = np.zeros(size, np.int64)
    for place in range(LONGEST):
        ahead = ahead << 1 | padded[place:place + size]
    after = np.arange(size) + prefix[1][ahead]
    return prefix[0][ahead[code_starts(bits, after, count, "prefix")]]


def read_streams(view, prefix, count):
    """The same of all streams."""
    cursor, number = Cursor(view, "a prefix code"), -(-count // STREAM)
    sizes = [cursor.number(2, "the lengths of its streams") for _ in range(number - 1)]
    streams = [cursor.take(size, "a stream") for size in sizes]
    streams.append(cursor.take(cursor.left(), "a stream"))
    return np.concatenate([read_stream(stream, prefix, min(STREAM, count - STREAM * i)) for i, stream in enumerate(streams)])


def read_huffman(layout, form, count, numbers, view):
    require(1 <= form <= 2, f"a chunk has the unknown form {form}")
    if form == 2:
        require(layout.table == "model", "a chunk takes its prefix code from a model, which its recipe does not")
        rows = lengths_of_shapes(FORMATS[layout.quantize][layout.form][0])
        row = int(np.frombuffer(numbers, layout.dtype)["row"][0])
        require(row < len(rows), f"a chunk takes its prefix code from row {row}, which is not in the table")
        return read_streams(view, prefix_of(rows[row]), count)
    size = (layout.base + 1) // 2
    require(size <= len(view), "a chunk ends inside the lengths of its prefix code")
    raw = np.frombuffer(view[:size], np.uint8)
    halves = np.stack([raw & 15, raw >> 4], 1).reshape(-1).astype(np.int64)
    require(not halves[layout.base:].any(), "the lengths of a prefix code have a half byte set behind their last")
    return read_streams(view[size:], prefix_of(halves[:layout.base]), count)


def read_frequencies(view, base, bits):
    """(frequencies of all symbols, how many bytes they take)"""
    cursor, width = Cursor(view, "a table of frequencies"), 1 if base <= 256 else 2
    first, last = cursor.number(width, "its first symbol"), cursor.number(width, "its last symbol")
    require(first <= last < base, f"a table of frequencies is of symbols {first} to {last}")
    number = last - first
    raw = np.frombuffer(cursor.take((number + 1) // 2, "its sizes"), np.uint8)
    sizes = np.stack([raw & 15, raw >> 4], 1).reshape(-1).tolist()
    require(not any(sizes[number:]), "the frequencies have a half byte set behind their sizes")
    require(max(sizes[:number], default=0) <= 14, "a frequency is above the sum of all")
    total = sum(sizes[:number])
    row = np.unpackbits(np.frombuffer(cursor.take((total + 7) // 8, "its frequencies"), np.uint8), bitorder="little").tolist()
    frequencies, at = [0] * base, 0
    for symbol, size in zip(range(first, last), sizes):
        frequencies[symbol] = (1 << size | sum(row[at + i] << i for i in range(size))) - 1
        at += size
    require(not any(row[at:]), "the frequencies have a bit set behind their last")
    require(sum(frequencies) < 1 << bits, f"the frequencies add up to {sum(frequencies)}, and leave nothing for the last")
    require(number == 0 or frequencies[first] > 0, "the first symbol has no frequency")
    frequencies[last] = (1 << bits) - sum(frequencies)
    return frequencies, len(view) - cursor.left()


class RangeCode:
    """States, and the words that they take in; symbols come out of the states in turn. States are at least `least`."""

    def __init__(self, states, words, least):
        self.least, self.words = least, iter(words)
        self.states = [self.filled(x) for x in states]

    def filled(self, x):
        if x >= self.least:
            return x
        word = next(self.words, None)
        require(word is not None, "a range code lacks a word")
        return x << 16 | word

    def symbols(self, frequencies, bits, count):
        number, f = len(self.states), np.array(frequencies)
        symbol_of = np.repeat(np.arange(len(f)), f)
        share, rest = f[symbol_of].tolist(), (np.arange(1 << bits) - (np.cumsum(f) - f)[symbol_of]).tolist()
        symbol_of, mask, found = symbol_of.tolist(), (1 << bits) - 1, []
        states, filled, least = self.states, self.filled, self.least
        for i in range(count):
            x = states[i % number]
            slot = x & mask
            found.append(symbol_of[slot])
            x = share[slot] * (x >> bits) + rest[slot]
            states[i % number] = x if x >= least else filled(x)
        return found

    def plain(self, bits):
        """Bits that are all as likely, out of the first state."""
        x = self.states[0]
        self.states[0] = self.filled(x >> bits)
        return x & (1 << bits) - 1

    def end(self):
        require(all(x == self.least for x in self.states), "a range code does not end in the state that it must")
        require(next(self.words, None) is None, "a range code has a word left over")


def range_form(form):
    """(bits of frequencies, states of a segment)"""
    bits, states = form >> 4, form & 15
    require(8 <= bits <= 14 and states in (0, 2, 4, 5), f"a chunk has the unknown form {form}")
    return bits, 1 << states


def read_segment(view, states, frequencies, bits, count):
    numbers = np.frombuffer(view, "<u2").tolist()
    require(all(numbers[:states]), "a range code has a state of 0")
    code = RangeCode(numbers[:states], numbers[states:], 2 << bits)
    symbols = code.symbols(frequencies, bits, count)
    code.end()
    return symbols


def read_range(view, base, form, count):
    bits, states = range_form(form)
    frequencies, size = read_frequencies(view, base, bits)
    cursor = Cursor(view[size:], "a range code")
    if max(frequencies) == 1 << bits:
        require(states == 1, "one symbol has all, and there is more than one state")
        require(cursor.left() == 0, "one symbol has all, and something is behind its frequency")
        return np.full(count, frequencies.index(1 << bits), np.int64)
    number = 1 + cursor.number(1, "the number of its segments") if states == 32 else 1
    each = -(-count // number)
    each = -(-each // 32) * 32 if states == 32 else each
    require((number - 1) * each < count, f"{count} symbols are in {number} segments")
    require(each <= ROUNDS * states, f"a segment of {states} states has {each} symbols")
    words = [cursor.number(2, "the lengths of its segments") for _ in range(number - 1)]
    segments = [cursor.take(2 * (states + n), "a segment") for n in words]
    segments.append(cursor.take(cursor.left(), "a segment"))
    require(len(segments[-1]) >= 2 * states, "a range code ends inside its states")
    require(len(segments[-1]) % 2 == 0, "a range code ends inside a word")
    symbols = [read_segment(segment, states, frequencies, bits, min(each, count - each * i))
               for i, segment in enumerate(segments)]
    return np.array([symbol for segment in symbols for symbol in segment], np.int64)


def read_lossless(form, width, count, view):
    """Words of `width` bytes, as bytes."""
    range_form(form)
    size = count * (width - 1)
    require(len(view) >= size, "a chunk ends inside the lower bytes of its words")
    words = np.zeros((count, 8), np.uint8)
    words[:, :width - 1] = np.frombuffer(view[:size], np.uint8).reshape(count, width - 1)
    words[:, width - 1] = read_range(view[size:], 256, form, count)
    words = words.view("<u8").reshape(-1)
    return (words >> np.uint64(1) | (words & np.uint64(1)) << np.uint64(8 * width - 1)).astype(f"<u{width}").tobytes()


@functools.lru_cache(None)
def zstd():
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise Unsupported("the frame needs libzstd, which is not there") from None
    for name, result, arguments in (
            ("ZSTD_getFrameContentSize", ctypes.c_ulonglong, (ctypes.c_char_p, ctypes.c_size_t)),
            ("ZSTD_findFrameCompressedSize", ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t)),
            ("ZSTD_decompress", ctypes.c_size_t, (ctypes.c_char_p, ctypes.c_size_t) * 2),
            ("ZSTD_isError", ctypes.c_uint, (ctypes.c_size_t,))):
        getattr(library, name).restype, getattr(library, name).argtypes = result, arguments
    return library


def read_zstd(form, size, view):
    """The content, which has `size` bytes."""
    require(form == 1, f"a chunk has the unknown form {form}")
    raw, library = bytes(view), zstd()
    require(raw[:4] == ZSTD_MAGIC, "a chunk has no frame of zstd")
    told = library.ZSTD_getFrameContentSize(raw, len(raw))
    require(told < 2 ** 64 - 2, "a frame of zstd does not tell its content's size")
    require(told == size, f"a frame of zstd has a content of {told} bytes, not {size}")
    length = library.ZSTD_findFrameCompressedSize(raw, len(raw))
    require(not library.ZSTD_isError(length), "a frame of zstd is damaged")
    require(length == len(raw), "a chunk has bytes behind its frame of zstd")
    content = ctypes.create_string_buffer(max(size, 1))
    done = library.ZSTD_decompress(content, size, raw, len(raw))
    require(not library.ZSTD_isError(done) and done == size, "a frame of zstd is damaged")
    return content.raw[:size]


def uncoded(layout, count, numbers, view):
    """Symbols, or the words of `fp32`, `fp16` and `bf16` as bytes."""
    form, rest = 0, view
    if layout.coded:
        form, rest = view[0], view[1:]
        plain_len = symbols_len(layout, count)
        require(form != 0 or len(rest) == plain_len, f"a plain form has {len(rest)} bytes, not {plain_len}")
    if form == 0:
        return read_groups(rest, layout.base, layout.each, layout.bits, count) if layout.base else rest
    if layout.coded == "huffman":
        return read_huffman(layout, form, count, numbers, rest)
    if layout.coded == "rans":
        return read_range(rest, layout.base, form, count)
    if layout.coded == "lossless":
        return read_lossless(form, layout.bits // 8, count, rest)
    width = layout.bits // 8 if not layout.base else 1 if layout.base <= 256 else 2
    content = read_zstd(form, count * width, rest)
    if not layout.base:
        return content
    symbols = np.frombuffer(content, f"<u{width}").astype(np.int64)
    require(symbols.max() < layout.base, "a symbol is not below its base")
    return symbols


def read_symbols(layout, count, numbers, view):
    """Symbols as binary32."""
    view = uncoded(layout, count, numbers, view)
    if layout.base:
        return values_of(layout, numbers, view)
    if layout.quantize == "fp32":
        return np.frombuffer(view, "<f4")
    if layout.quantize == "fp16":
        return np.frombuffer(view, "<f2").astype(np.float32)
    return (np.frombuffer(view, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


# ---- Section 4: indices ----------------------------------------------------------------------------------------------

def letters_of(count, m):
    """(bits of a gap that are taken as they are, frequencies of letters)"""
    s, k = ((m - count) << 32) // m, 0
    while count << k + 4 <= m:
        s, k = s * s >> 32, k + 1
    a = [1 << LETTER_BITS]
    for j in range(LETTERS - 1):
        less = max(a[j] * s >> 32, LETTERS - 1 - j)
        a.append(less if less < a[j] else a[j] - 1)
    return k, [a[j] - a[j + 1] for j in range(LETTERS - 1)] + a[-1:]


def read_geometric(view, count, m):
    require(len(view) >= 4 and len(view) % 2 == 0, f"geometric indices have {len(view)} bytes")
    k, frequencies = letters_of(count, m)
    state = int.from_bytes(view[:4], "little")
    require(STATE_MIN <= state < STATE_MIN << 16, "a range code has a state outside its range")
    code, positions, at = RangeCode([state], np.frombuffer(view[4:], "<u2").tolist(), STATE_MIN), [], -1
    symbol_of = np.repeat(np.arange(LETTERS), frequencies).tolist()
    starts = (np.cumsum(frequencies) - frequencies).tolist()
    for _ in range(count):
        q = 0
        while True:
            x = code.states[0]
            slot = x & (1 << LETTER_BITS) - 1
            letter = symbol_of[slot]
            code.states[0] = code.filled(frequencies[letter] * (x >> LETTER_BITS) + slot - starts[letter])
            q += letter
            require(q << k < m, "geometric indices have a position outside their chunk")
            if letter < LETTERS - 1:
                break
        at += 1 + (q << k | code.plain(k))
        require(at < m, "geometric indices have a position outside their chunk")
        positions.append(at)
    code.end()
    return np.array(positions, np.int64)


def read_rice(view, k, count, m):
    bits = np.unpackbits(np.frombuffer(view, np.uint8), bitorder="little")
    size = len(bits)
    # For each bit: the first zero bit at or after it, and where the next code starts if one starts here.
    zero = np.where(bits == 0, np.arange(size), size + 1)
    zero = np.minimum.accumulate(zero[::-1])[::-1]
    after = zero + (1 + k)
    starts = code_starts(bits, after, count, "Rice")
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
    if mode == GEOMETRIC:
        return read_geometric(view, count, m)
    return read_runs(view, count, m) if mode == RUNS else read_rice(view, mode, count, m)


def allows(recipe, mode):
    return mode in MODES[recipe.index_pack] or (
        mode == GEOMETRIC and recipe.index_pack == "gaps" and recipe.symbol_pack == "rans")


def header_len(recipe):
    """Bytes of the header of a chunk."""
    is_explicit = recipe.select != "all" and not (recipe.shared and recipe.select in DRAWS)
    return (6 if is_explicit else 0) + (4 if recipe.layout.coded else 0)


def read_header(headers, recipe, m):
    """(count, mode, index_len), as far as the header alone tells right from wrong"""
    word, index_len = headers.number(4, "a chunk's header"), headers.number(2, "a chunk's header")
    count, mode = word & 0xFFFFFF, word >> 24
    require(count <= m, f"a chunk of {m} elements has count {count}")
    if count == 0:
        require(mode == 0 and index_len == 0, "a chunk of count 0 has another mode than 0 or index bytes")
        return count, mode, index_len
    require(mode == GEOMETRIC or any(mode in modes for modes in MODES.values()),
            f"a chunk has the unknown mode {mode}")
    require(allows(recipe, mode), f"a chunk has mode {mode}, which recipe '{recipe.text}' does not allow")
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
    require(head.version == 4, f"the frame has version {head.version}, this decoder reads version 4")
    require(head.flags < 8, "a flag is set that version 4 does not know")
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
    """(recipe, number of elements, tensor numbers) of each unit"""
    units, of_recipe = [], {}
    for number, tensor in enumerate(tensors):
        if recipes[tensor.recipe].scope != "model":
            units.append([number])
        elif tensor.recipe in of_recipe:
            of_recipe[tensor.recipe].append(number)
        else:
            of_recipe[tensor.recipe] = [number]
            units.append(of_recipe[tensor.recipe])
    return [(recipes[tensors[members[0]].recipe], sum(tensors[t].size for t in members), members) for members in units]


def take_headers(cursor, units):
    size = sum(-(-n // CHUNK) * header_len(recipe) for recipe, n, _ in units)
    return Cursor(cursor.take(size, "the headers of its chunks"), "the frame")


def draw(recipe, seed, step, unit, n, room):
    """The indices of a unit, or None if they are not drawn; `room` is how many the frame has bytes for."""
    if not (recipe.shared and recipe.select in DRAWS):
        return None
    require(seed is not None, f"recipe '{recipe.text}' draws coordinates but the frame has no seed")
    b = draw_size(recipe.ratio, n)
    require(b <= room, "the frame ends inside a chunk's symbols")
    return DRAWS[recipe.select](stream_of(seed, step, unit), n, b)


def read_coded_len(headers, count, plain_len):
    size = headers.number(4, "a chunk's header")
    if count:
        require(1 <= size <= plain_len + 1, f"a chunk has a coded_len of {size}, not 1 to {plain_len + 1}")
    else:
        require(size == 0, "a chunk without values has a coded_len")
    return size


def walk_unit(headers, cursor, recipe, n, coordinates, hashes):
    """The chunks of one unit; their hashes are added to `hashes`."""
    chunks = []
    for base in range(0, n, CHUNK):
        start, m = cursor.at, min(CHUNK, n - base)
        count, mode, index_len = m, EVERY, 0
        if coordinates is not None:
            count, mode = int(np.subtract(*np.searchsorted(coordinates, [base + m, base]))), None
        elif recipe.select != "all":
            count, mode, index_len = read_header(headers, recipe, m)
        size = 0 if mode in PLACES else symbols_len(recipe.layout, count)
        if recipe.layout.coded:
            size = read_coded_len(headers, count, size)
        numbers = cursor.take(numbers_len(recipe.layout, count), "the numbers of a chunk's buckets")
        symbols = cursor.take(size, "a chunk's symbols")
        indices = cursor.take(index_len, "a chunk's indices")
        hashes.append(hash_of(cursor.view[start:cursor.at]))
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
    require(hash_of(description) == head.fingerprint, "the fingerprint is not that of the description")
    seed, recipes, tensors = parse_description(description)
    if sum(tensor.size for tensor in tensors) > limit:
        raise Unsupported(f"the tensors have more than {limit} elements together, too many for this decoder")

    # Find where chunks lie and see that the checksum holds before any of them is unpacked.
    units = form_units(recipes, tensors)
    cursor = Cursor(view[body:-8], "the frame")
    headers = take_headers(cursor, units)
    walked, hashes = [], [hash_of(view[:body]), hash_of(headers.view)]
    for number, (recipe, n, members) in enumerate(units):
        coordinates = draw(recipe, seed, head.step, number, n, symbols_max(recipe.layout, cursor.left()))
        walked.append((recipe, n, coordinates, walk_unit(headers, cursor, recipe, n, coordinates, hashes)))
    require(not cursor.left(), "the frame has bytes behind its last chunk")
    require(hash_of(struct.pack(f"<{len(hashes)}Q", *hashes)) == int.from_bytes(view[-8:], "little"),
            "the checksum does not hold")

    arrays = [None] * len(tensors)
    for (_, _, members), unit in zip(units, walked):
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
