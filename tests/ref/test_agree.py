#!/usr/bin/env python3
"""Random frames: the program, the reference decoder and the meaning of the recipe agree on all of them.

Random recipes, shapes and values with fixed seeds, encoded by the program, decoded by both, and computed by meaning.py;
random frames that no encoder would write; and damaged frames, which both decoders refuse. If damaged frames get correct
hashes, both decoders accept or refuse the same ones.

Needs NumPy. The program is build/release/tersegrad unless the environment variable TERSEGRAD names another.
"""

import os
import pathlib
import random
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "release" / "tersegrad"))

sys.path[:0] = [str(ROOT / "tests" / "ref"), str(ROOT / "tests" / "golden")]
import golden  # noqa: E402
import meaning  # noqa: E402
import tersegrad_ref as ref  # noqa: E402
from frame_writer import (  # noqa: E402
    BITMAP, EVERY, GEOMETRIC, PLACES8, PLACES16, RUNS, coded, lossless, prefixed, ranged, raw_chunk, write_chunk,
    write_codes, write_description, write_frame, write_groups, write_places, zstd_frame)

CHUNK = 262144
SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 31, 63, 64, 65, 127, 251, 997, 1000)
LARGE = (CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK, 2 * CHUNK + 17, 700001)


# ---- Random cases ----------------------------------------------------------------------------------------------------

def random_ratio(rng):
    return rng.choice(("1", "0.5", "0.3", "0.1", "0.05", "0.01", "0.003", "1e-6", "5.9604644775390625e-8",
                       repr(rng.uniform(0.001, 1))))


def random_bins(rng):
    """(parameters of adabins, the largest bin that may come of them)"""
    size, conv, other = (rng.choice((1, 2, 3, 7, 50, 64, 64, 500, 1000, 16384)) for _ in range(3))
    weight = rng.choice(([], [], ["weight=1"], ["weight=3"], ["weight=1.3"], ["weight=100"]))
    if rng.random() < 0.6:
        return [str(size)] + weight, size
    return [f"conv={conv}", f"other={other}"] + weight, max(conv, other)


def random_buckets(rng, may_be_exact):
    """A quantizer that has buckets of its own."""
    name = rng.choice(("bingrad", "bingrad", "orq", "orq", "linear", "qsgd", "ternary", "natural"))
    if name == "natural":
        return name
    given = [f"bucket={rng.choice((1, 2, 3, 7, 50, 300, 300, 2048, 65536))}"] if rng.random() < 0.8 else []
    if name == "bingrad":
        given += [rng.choice(("form=b", "form=pb", "form=zero")), f"iters={rng.choice((0, 1, 3, 10))}"]
    elif name == "orq" and may_be_exact and rng.random() < 0.4:
        given = [f"S={rng.randint(2, 17)}", f"bucket={rng.choice((1, 2, 7, 50, 200))}", "levels=exact"]
    elif name == "orq":
        given.append(f"S={rng.choice((3, 5, 9, 17))}")
    elif name == "linear":
        given.append(f"S={rng.choice((2, 3, 16, 200, 256))}")
    elif name == "qsgd":
        given += [f"S={rng.choice((1, 2, 16, 255))}", f"norm={rng.choice(('l2', 'max'))}"]
    if name == "orq" and rng.random() < 0.3:
        given.append("half=yes")
    if rng.random() < 0.3:
        given.append(f"clip={rng.choice(('0.3', '1', '2.5', '1000'))}")
    return f"{name}@{','.join(given)}" if given else name


def random_blocks(rng):
    """A quantizer with a scale for every few values."""
    name = rng.choice(("mxfp8@e4m3", "mxfp8@e5m2", "mxfp4", "nvfp4"))
    given = [rng.choice(("round=nearest", "round=random")), f"hadamard={rng.choice(('no', 'no', '32', '64', '128'))}"]
    given += [f"block={rng.choice((32, 64, 128))}"] * (name != "nvfp4")
    return name + (",", "@")["@" not in name] + ",".join(given)


def random_symbol_pack(rng, selects, index_pack, quantize):
    """One that goes with the other parts."""
    name = quantize.partition("@")[0]
    packs = ["", "bits"]
    if index_pack in ("adacomp8", "adacomp16"):
        return rng.choice(packs)
    if name in ("", *meaning.QUANTIZE):
        packs += ["lossless", "lossless", "zstd"] + ["rans"] * 3 * (selects and index_pack != "bitmap")
    else:
        packs += ["huffman", "huffman@table=counts", "rans", "rans", f"zstd@{rng.randint(1, 9)}"]
    return rng.choice(packs + ["huffman@model"] * 3 * (name in ("fp4", "fp8")))


def random_recipe(rng, has_seed, may_be_exact):
    parts = [rng.choice(("", "", "none", "ef", "ef", f"ef@decay={rng.choice(('0', '0.5', '0.9', '1'))}",
                         "momentum", f"momentum@{rng.choice(('0', '0.5', '1'))}", "momentum@clip=0.7",
                         "ef@again=fp16", "momentum@again=fp32"))]
    select = rng.choice(("", "all", "topk", "topk", "threshold", "threshold", "randomk", "randomblock") +
                        ("adabins",) * 4)
    quantize = rng.choice(("", "fp32", "fp16", "bf16", "sign", "sign", "fp4", "fp4", "fp8", "fp8@e5m2", "fp8@e4m3") +
                          (random_buckets(rng, may_be_exact),) * 8 + (random_blocks(rng),) * 4)
    index_pack, selects = "", select not in ("", "all")
    if select not in ("", "all"):
        is_random, packs = select in meaning.RANDOM, ["", "", "gaps", "bitmap"]
        threshold = rng.choice(("0", "1e-30", "0.1", "0.5", "0.7", "1", "3", "1e20", repr(rng.uniform(0, 2))))
        given = [threshold if select == "threshold" else random_ratio(rng)]
        if select == "adabins":
            given, largest = random_bins(rng)
            if quantize == "sign":
                packs += ["adacomp8"] * 4 * (largest <= 64) + ["adacomp16"] * 2
                quantize += rng.choice(("", "@scale=mean", "@scale=meanmax"))
        if rng.random() < 0.3:
            given.append(f"scope={rng.choice(('model', 'model', 'tensor'))}")
        if rng.random() < 0.4:
            given.append("coords=" + rng.choice(("own",) + ("shared",) * (has_seed or not is_random) +
                                                ("auto",) * is_random))
        if select == "topk" and rng.random() < 0.2:
            given.append(f"warmup={rng.choice((0, 1, 2, 1000))}")
        if is_random and parts[0] in ("", "none") and rng.random() < 0.3:
            given.append("unbiased=yes")
        select += "@" + ",".join(given)
        index_pack = rng.choice(packs)
    if quantize == "sign" and parts[0] in ("", "none") and rng.random() < 0.3:
        quantize += "@scale=one"
    parts += [select, quantize, index_pack, random_symbol_pack(rng, selects, index_pack, quantize)]
    rng.shuffle(parts)
    return "+".join(filter(None, parts)) or "fp32"


def random_values(rng, n, may_be_infinite):
    numbers = np.random.default_rng(rng.randrange(2 ** 32))
    normal = numbers.standard_normal(n)
    values = {
        "heavy": lambda: normal / (0.05 + numbers.random(n)),
        "few": lambda: numbers.integers(-3, 4, n) * 0.25,
        "sparse": lambda: np.where(numbers.random(n) < 0.03, normal, 0),
        "blocks": lambda: np.where(np.arange(n) // 40 % 3 == 1, normal, 0),
        "zeros": lambda: np.where(numbers.random(n) < 0.5, 0.0, -0.0),
        "equal": lambda: np.full(n, rng.choice((1.0, -0.5, 70000.0))),
        "tiny": lambda: normal * 10.0 ** numbers.uniform(-46, -36, n),
        "huge": lambda: normal * 10.0 ** numbers.uniform(3, 38, n),
        "halves": lambda: 1 + numbers.integers(0, 1 << 12, n) / 2.0 ** 12,  # many lie halfway between two of fp16
    }[rng.choice(("heavy", "heavy", "few", "sparse", "blocks", "zeros", "equal", "tiny", "huge", "halves"))]()
    if may_be_infinite and n:
        at = numbers.integers(0, n, 1 + n // 50)
        values[at] = numbers.choice([np.nan, np.inf, -np.inf], len(at))
    return values


def random_array(rng, size, may_be_infinite):
    shape, rest = [], size
    for divisor in (2, 3, 5, 1):
        if rest and rest % divisor == 0 and rng.random() < 0.3:
            shape.append(divisor)
            rest //= divisor
    shape.insert(rng.randint(0, len(shape)), rest)
    values = random_values(rng, size, may_be_infinite)
    dtype = rng.choice((np.float32, np.float32, np.float16))
    largest = np.finfo(dtype).max
    values = np.where(np.isfinite(values), np.clip(values, -largest, largest), values).astype(dtype)
    return values.reshape(() if size == 1 and rng.random() < 0.3 else shape)


def random_case(seed, sizes, tensors_max):
    """(tensors, arguments of meaning.expected, flags of `tersegrad encode`)"""
    rng = random.Random(seed)
    options = {"seed": rng.choice((None, 0, 7, rng.randrange(2 ** 64))), "dense_below": 0, "rules": [], "kinds": [],
               "step": rng.choice((0, 1, rng.randrange(2 ** 64))),
               "rank": rng.choice((0, 1, rng.randrange(2 ** 32 - 1))),
               "nonfinite": rng.choice(("error", "pass", "zero"))}
    count = rng.choice((1, 1, rng.randint(2, tensors_max)))
    tensors = [(f"t{i}", random_array(rng, rng.choice(sizes), options["nonfinite"] != "error")) for i in range(count)]
    has_seed = options["seed"] is not None
    may_be_exact = max(sizes) <= 1000  # else it takes too long here
    recipe = random_recipe(rng, has_seed, may_be_exact)
    if count > 1 and rng.random() < 0.6:  # the first tensor keeps the recipe, so that it has an effect
        options["kinds"] = [(f"t{i}", rng.choice(("conv", "dense", "bias", "norm"))) for i in range(1, count)]
        options["rules"] = [(f"t{i}", random_recipe(rng, has_seed, may_be_exact)) for i in range(1, count)
                            if rng.random() < 0.3]
        options["dense_below"] = rng.choice((0, tensors[0][1].size))
    if options["nonfinite"] == "pass":  # a norm of NaN or Inf has no meaning
        recipe = recipe.replace("momentum@clip=0.7", "momentum")
        options["rules"] = [(name, rule.replace("momentum@clip=0.7", "momentum")) for name, rule in options["rules"]]
    flags = []
    for key, value in options.items():
        if key in ("rules", "kinds"):
            for pattern, what in value:
                flags += [f"--{key[:-1]}", f"{pattern}={what}"]
        elif value is not None:
            flags += [f"--{key.replace('_', '-')}", str(value)]
    return tensors, {"recipe": recipe, **options}, flags


def random_lengths(rng, base):
    """Lengths of a full prefix code."""
    leaves = [1, 1]
    while len(leaves) < base and rng.random() < 0.9:
        depth = leaves.pop(rng.randrange(len(leaves)))
        leaves += [min(depth + 1, 12)] * 2 if depth < 12 else [12]
    lengths = leaves + [0] * (base - len(leaves))
    rng.shuffle(lengths)
    return lengths


def random_form(rng, layout, symbols, numbers):
    """Symbols in a form of their pack, which changes those that it has no room for."""
    states = [n for n in (1, 4, 32) if len(symbols) <= n * ref.ROUNDS]
    if layout.coded == "lossless":
        return lossless(symbols, layout.bits // 8, 14, rng.choice(states))
    if layout.coded == "rans":
        return ranged(symbols, layout.base, rng.choice((10, 12, 14)), rng.choice(states))
    if layout.coded == "huffman":
        lengths, form = random_lengths(rng, layout.base), 1
        if layout.table == "model" and rng.random() < 0.7:
            lengths, form = ref.lengths_of_shapes(ref.FORMATS[layout.quantize][layout.form][0])[numbers[4]], 2
        usable = sorted((x for x in range(layout.base) if lengths[x]), key=lambda x: lengths[x])[:20]
        symbols[:] = [usable[symbol % len(usable)] for symbol in symbols]
        return prefixed(symbols, lengths) if form == 1 else b"\2" + write_codes(symbols, lengths)
    width = layout.bits // 8 if not layout.base else 1 if layout.base <= 256 else 2
    many = len(symbols) * 3 // 4
    symbols[:many] = [0] * many
    return b"\1" + zstd_frame((0, many * width), b"".join(x.to_bytes(width, "little") for x in symbols[many:]))


def random_symbols(rng, layout, count):
    """Numbers of buckets and symbols."""
    if count == 0:
        return coded(b"") if layout.coded else b""
    numbers = random_numbers(rng, layout, count)
    below = layout.base or 1 << layout.bits
    symbols = [rng.choice((0, below - 1, rng.randrange(below))) for _ in range(count)]
    if layout.coded and rng.random() < 0.8:
        few = [rng.randrange(below) for _ in range(rng.choice((1, 2, 3)))]  # so that a form may be short enough
        symbols = [rng.choice(few) for _ in range(count)]
        form = random_form(rng, layout, symbols, numbers)
        if len(form) <= ref.symbols_len(layout, count) + 1:
            return coded(form, numbers)
    if layout.base:
        plain = write_groups(symbols, layout.base)
    else:
        plain = b"".join(symbol.to_bytes(layout.bits // 8, "little") for symbol in symbols)
    return coded(b"\0" + plain, numbers) if layout.coded else numbers + plain


def random_numbers(rng, layout, count):
    if layout.quantize in ref.FORMATS:
        step = rng.choice((0.0, -0.0, 1.0, rng.uniform(-2, 2), 1e-44, 3e38))
        return np.array([(step, rng.randrange(43))], layout.dtype).tobytes()
    numbers = np.frombuffer(rng.randbytes(ref.numbers_len(layout, count)), layout.dtype)
    if layout.quantize in ("linear", "qsgd", "ternary"):  # which NaN comes of computing with one is nobody's rule
        numbers = np.where(np.isfinite(numbers), numbers, 1).astype(layout.dtype)
    return numbers.tobytes()


def random_chunk(rng, recipe, m):
    """A chunk that says where its values are."""
    positions = sorted(rng.sample(range(m), rng.randint(0, m)))
    modes = {"gaps": [0, 1, 2, 5, 9, 18, BITMAP, RUNS], "bitmap": [BITMAP], "adacomp8": [BITMAP, PLACES8, PLACES8],
             "adacomp16": [BITMAP, PLACES16, PLACES16]}[recipe.index_pack]
    modes += [EVERY] * 8 * (len(positions) == m and recipe.index_pack == "gaps")
    modes += [GEOMETRIC] * 8 * (recipe.index_pack == "gaps" and recipe.symbol_pack == "rans")
    mode = rng.choice(modes)
    if mode in (PLACES8, PLACES16) and positions:
        signs = [rng.randrange(2) for _ in positions]
        return raw_chunk(len(positions), mode, rng.randbytes(4), write_places(positions, signs, recipe.bin, mode))
    return write_chunk(mode, positions, m, random_symbols(rng, recipe.layout, len(positions)))


def random_frame(rng):
    """A frame that is right but that no encoder would write: any positions, any mode, any symbols, any dtype."""
    texts = rng.sample(("topk@0.2+fp32", "threshold@0.5,scope=model+fp16", "ef+topk@0.5,coords=shared+bf16",
                        "randomk@0.5,coords=shared+fp16", "randomblock@0.3,scope=model,coords=shared+fp32",
                        "randomk@0.1,coords=own+fp32+bitmap", "fp32", "bf16", "fp16",
                        "ef@decay=0.5+threshold@2+fp32+bitmap", "randomblock@0.3,coords=own,unbiased=yes+fp16",
                        "sign", "adabins@7+sign+adacomp8", "ef+adabins@3,weight=1.5+sign@scale=meanmax+adacomp16",
                        "adabins@500,scope=model+sign", "randomk@0.4,coords=shared+sign",
                        "adabins@64,coords=shared+sign+adacomp8", "adabins@5+fp16", "sign@scale=one",
                        "bingrad@b,bucket=7", "topk@0.3+bingrad@pb,bucket=3", "bingrad@zero", "orq@3,bucket=9",
                        "topk@0.2+orq@17,bucket=20,half=yes", "orq@2,bucket=1,levels=exact", "linear@5,bucket=11",
                        "threshold@1,scope=model+linear@256", "qsgd@1,bucket=3", "randomk@0.5,coords=shared+qsgd@255",
                        "qsgd@10,bucket=100,norm=max,clip=2.5", "ternary@bucket=6", "natural", "topk@0.5+natural",
                        "randomblock@0.6,coords=shared+orq@9,bucket=5", "fp4", "fp8@e5m2+rans",
                        "fp8@e4m3+huffman@model",
                        "topk@0.5+fp4+huffman@model", "randomk@0.7,coords=shared+fp4+zstd@3", "fp4+huffman@counts",
                        "fp32+lossless", "topk@0.9+fp16+lossless", "randomk@0.7,coords=shared+bf16+lossless",
                        "fp16+zstd@1", "natural+zstd@9", "natural+rans", "topk@0.9+qsgd@255,bucket=200+rans",
                        "topk@0.3+fp32+rans", "threshold@1,scope=model+bf16+rans", "randomk@0.2,coords=own+sign+rans",
                        "orq@17,bucket=90,half=yes+huffman@counts", "ternary@bucket=300+rans", "sign+zstd@5",
                        "bingrad@pb,bucket=500+rans", "topk@0.4+linear@256,bucket=40+bitmap+huffman@counts"),
                       rng.randint(1, 3))
    shapes = ((), (1,), (5,), (3, 4), (2, 0), (40,), (9,), (17,), (300,), (1200,))
    tensors = [(f"t{i}", rng.choice(shapes), i if i < len(texts) else rng.randrange(len(texts)), rng.randrange(3),
                rng.randrange(7)) for i in range(len(texts) + rng.randint(0, 2))]
    seed, step = rng.choice((0, 5, 2 ** 63)), rng.choice((0, 1, 2 ** 40))
    description = write_description(texts, tensors, seed)
    _, recipes, parsed = ref.parse_description(memoryview(description))
    chunks = []
    for recipe, n, _ in ref.form_units(recipes, parsed):
        if n and recipe.select == "all":
            chunks.append(random_symbols(rng, recipe.layout, n))
        elif n and recipe.shared and recipe.select in meaning.RANDOM:
            chunks.append(random_symbols(rng, recipe.layout, meaning.entries(recipe.ratio, n)))
        elif n:
            chunks.append(random_chunk(rng, recipe, n))
    return write_frame(description, chunks, step=step)


def damaged(rng, frame):
    """The frame with a few bytes of description and chunks changed, gone or added; description_len most often right."""
    frame, size = bytearray(frame), len(frame)
    description_len = int.from_bytes(frame[20:24], "little")
    end = rng.choice((48 + description_len, len(frame) - 8))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(48, min(end, len(frame) - 8))
        what = rng.randrange(4)
        if what == 0:
            frame[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            frame[at] = rng.choice((0, 1, 2, 32, 33, 34, 35, 36, 37, 64, 127, 128, 160, 255))
        elif what == 2:
            frame.insert(at, rng.randrange(256))
        else:
            del frame[at]
    if end == 48 + description_len and rng.random() < 0.8:
        frame[20:24] = (description_len + len(frame) - size).to_bytes(4, "little")
    return bytes(frame)


# ---- Tests -----------------------------------------------------------------------------------------------------------

class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tersegrad-test-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def encode(self, tensors, recipe, flags, threads=1):
        return golden.encode(PROGRAM, self.dir, {"recipe": recipe, "flags": flags}, tensors, threads)

    def same_bits(self, ours, theirs):
        self.assertEqual([name for name, _ in ours], [name for name, _ in theirs])
        for (name, array), (_, other) in zip(ours, theirs):
            if other.dtype == np.uint16:  # bf16, which the program writes as fp32
                other = (other.astype(np.uint32) << np.uint32(16)).view(np.float32)
            self.assertEqual((array.dtype, array.shape), (other.dtype, other.shape), name)
            self.assertTrue(array.tobytes() == other.tobytes(), f"{name}: the program and the reference decoder differ")

    def program_refuses(self, frame):
        (self.dir / "bad.tg").write_bytes(frame)
        code, err = golden.run(PROGRAM, "inspect", self.dir / "bad.tg")
        self.assertIn(code, (0, 1), err)
        if code == 1:
            self.assertTrue(err.startswith("tersegrad: ") and len(err.splitlines()) == 1, err)
        return code == 1

    def reference_refuses(self, frame):
        try:
            ref.decode(frame, golden.ELEMENT_MAX)
        except ref.FormatError:
            return True
        return False


class Encoded(Case):
    def check(self, seed, sizes, tensors_max):
        tensors, options, flags = random_case(seed, sizes, tensors_max)
        with self.subTest(seed=seed, recipe=options["recipe"], flags=" ".join(flags)):
            rng = random.Random(seed)
            frame = self.encode(tensors, options["recipe"], flags, rng.choice((1, 2, 3, 5)))
            info, theirs = ref.decode(frame)
            self.same_bits(golden.decode(PROGRAM, self.dir, frame, rng.choice((1, 2, 3))), theirs)
            for key in ("step", "rank", "seed"):
                self.assertEqual(info[key], options[key])
            for (name, array), meant in zip(theirs, meaning.expected(tensors, **options)):
                self.assertTrue(meaning.agree(array, meant), f"{name} is not what the recipe means")

    def test_small(self):
        for seed in range(320):
            self.check(seed, SIZES, 5)

    def test_large(self):
        for seed in range(1000, 1014):
            self.check(seed, LARGE, 2)


class Written(Case):
    def test_frames_that_no_encoder_writes(self):
        rng = random.Random(1)
        for number in range(80):
            with self.subTest(number=number):
                frame = random_frame(rng)
                self.same_bits(golden.decode(PROGRAM, self.dir, frame), ref.decode(frame)[1])


class Damaged(Case):
    def test_every_flipped_bit_and_cut_is_refused(self):
        rng = random.Random(2)
        for seed in range(2000, 2030):
            tensors, options, flags = random_case(seed, (1, 9, 64, 251), 3)
            frame = self.encode(tensors, options["recipe"], flags)
            for number in range(10):
                with self.subTest(seed=seed, number=number):
                    bad = bytearray(frame)
                    if number < 7:
                        bit = rng.randrange(8 * len(bad))
                        bad[bit // 8] ^= 1 << bit % 8
                    else:
                        del bad[rng.randrange(len(bad)):]
                    self.assertTrue(self.program_refuses(bytes(bad)) and self.reference_refuses(bytes(bad)))

    def test_damage_with_correct_hashes(self):
        rng = random.Random(3)
        taken = refused = 0
        while taken + refused < 500:
            bad = golden.sealed(damaged(rng, random_frame(rng)))
            try:
                _, theirs = ref.decode(bad, golden.ELEMENT_MAX)
            except ref.Unsupported:
                continue
            except ref.FormatError:
                theirs = None
            with self.subTest(number=taken + refused):
                self.assertEqual(self.program_refuses(bad), theirs is None)
                if theirs is not None:
                    self.check_bits(bad, theirs)
            taken, refused = taken + (theirs is not None), refused + (theirs is None)
        self.assertGreater(min(taken, refused), 30)

    def check_bits(self, frame, theirs):
        """Damage may have made names that are not those of files, and shapes without elements that np.load refuses."""
        names = [name for name, _ in theirs if len(theirs) > 1]
        if all("/" not in name and name not in (".", "..") for name in names) and all(
                max(array.shape, default=0) <= golden.ELEMENT_MAX for _, array in theirs):
            self.same_bits(golden.decode(PROGRAM, self.dir, frame), theirs)


if __name__ == "__main__":
    unittest.main()
