"""The frames of this folder.

A bad one breaks one rule of docs/format.md; lengths, fingerprint and checksum are those of the bytes that are there,
except where they are the point, so that this rule is what refuses it. A good one is odd but breaks none: no encoder
would write most of them.
"""

import csv
import hashlib
import pathlib
import struct
import sys
from unittest import mock

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ref"))
import meaning  # noqa: E402
import tersegrad_ref as ref  # noqa: E402
from frame_writer import (  # noqa: E402
    BITMAP, EVERY, GEOMETRIC, IDS, PLACES8, PLACES16, RUNS, Chunk, bucketed, chunk_header, coded, fitted, floats, geometric_of,
    group_size, ids_of, lossless, pack_groups, pack_places, pack_range, pack_segment, pack_segments, prefixed, range_form, range_of, ranged, segments_of, streams_of,
    raw_chunk, signed, single, turned_left, write_bitmap, write_chunk, write_codes, write_description, write_frame,
    write_frequencies, write_geometric, write_groups, write_lengths, write_places, write_recipe, write_rice,
    write_runs, write_streams, write_tensor, zstd_frame)

CHUNK = 262144
BAD, GOOD = {}, {}


def bad(name, rule, program, reference, frame):
    """`program` and `reference` are words of the sentences with which they refuse the frame."""
    assert name not in BAD
    BAD[name] = {"file": f"bad/{name}.tg", "rule": rule, "program": program, "reference": reference}, frame


def good(name, about, frame, beyond_numpy=False, **arrays):
    """`arrays` are what its tensors decode to, bf16 as uint16."""
    assert name not in GOOD
    row = {"file": f"good/{name}.tg", "about": about,
           "tensors": {tensor: hashlib.sha256(array.tobytes()).hexdigest() for tensor, array in arrays.items()}}
    if beyond_numpy:
        row["beyond_numpy"] = True
    GOOD[name] = row, frame


def placed(n, positions, values, dtype="<f4"):
    array = np.zeros(n, dtype)
    array[positions] = values
    return array


def changed(frame, at, byte):
    frame = bytearray(frame)
    assert frame[at] != byte
    frame[at] = byte
    return bytes(frame)


# ---- Section 1: layout -----------------------------------------------------------------------------------------------

one = floats([1.5])
plain = single("fp32", (1,), [one])
good("plain", "the plainest frame: most in bad/ are this one but for one thing", plain, w=placed(1, 0, 1.5))
good("largest-header", "the largest rank and step", single("fp32", (1,), [one], rank=2 ** 32 - 2, step=2 ** 64 - 1),
     w=placed(1, 0, 1.5))

bad("nothing", "a frame has a header", "not a Tersegrad frame", "at least 56", b"")
bad("magic-alone", "a frame has a header", "inside its header", "at least 56", plain[:4])
bad("header-cut", "a frame has a header", "inside its header", "at least 56", plain[:47])
bad("header-alone", "a frame has a description and a checksum", "inside its header", "at least 56", plain[:48])
bad("cut-in-description", "frame_len is the length of the frame", "its header says", "frame_len", plain[:60])
bad("cut-by-one", "frame_len is the length of the frame", "its header says", "frame_len", plain[:-1])
bad("one-more", "frame_len is the length of the frame", "its header says", "frame_len", plain + b"\0")
bad("twice", "a file holds one frame", "its header says", "frame_len", plain + plain)
for number, value in enumerate((0, len(plain) - 1, len(plain) + 1, 2 ** 64 - 1)):
    bad(f"frame-len-{number}", "frame_len is the length of the frame", "its header says", "frame_len",
        single("fp32", (1,), [one], frame_len=value))
bad("magic", "the magic is TGFR", "not a Tersegrad frame", "magic", single("fp32", (1,), [one], magic=b"TGFS"))
for version in (0, 1, 2, 3, 5, 255):
    bad(f"version-{version}", "the version is 4", "version", f"has version {version}",
        single("fp32", (1,), [one], version=version))
frame_of_version_1 = bytes.fromhex(
    "54474652010700000300000000000000010000002a000000660000000000000000000000000000008951ba431b55f1b60000000000000000"
    "000100040066703332010101020101000000010077000000000101000000000000000000c03fcc633ffcbb6d98ac")
frame_of_version_2 = bytes.fromhex(
    "54474652020700000300000000000000010000002a00000066000000000000000000000000000000cfbc4d13c30727320000000000000000"
    "000100040066703332010101020101000000010077000000000101000000000000000000c03f50265e585fb75d40")
bad("version-1-whole", "the version is 4, and the first version had other hashes", "version", "has version 1",
    frame_of_version_1)
bad("version-1-as-4", "the fingerprint is H of the description, not the hash of version 1", "fingerprint",
    "fingerprint", changed(frame_of_version_1, 4, 4))
bad("version-2-whole", "the version is 4, and the second version had no hash of headers", "version", "has version 2",
    frame_of_version_2)
bad("version-2-as-4", "the checksum has a hash of headers", "checksum", "checksum", changed(frame_of_version_2, 4, 4))
for bit in (3, 7):
    bad(f"flag-{bit}", "flags other than bits 0 to 2 are 0", "header", "flag",
        single("fp32", (1,), [one], flags=7 | 1 << bit))
bad("neither", "a frame has indices or values", "header", "neither", single("fp32", (1,), [one], flags=1))
for number, value in enumerate((1, 0x8000)):
    bad(f"zero-{number}", "the zero field is 0", "header", "zero", single("fp32", (1,), [one], zero=value))
bad("slices-0", "there is at least one slice", "header", "0 slices", single("fp32", (1,), [one], slices=0))
bad("slice-1-of-1", "slice is below slices", "header", "slice 1 of 1", single("fp32", (1,), [one], slice=1))
bad("slice-0-of-2", "a file holds slice 0 of 1", "slice 0 of 2", "slice 0 of 1",
    single("fp32", (3,), [floats([1, 2])], slices=2))
bad("slice-1-of-2", "a file holds slice 0 of 1", "slice 1 of 2", "slice 0 of 1",
    single("fp32", (3,), [floats([3])], slice=1, slices=2))
bad("rank-beyond", "a rank is at most 2^32-2", "header", "rank", single("fp32", (1,), [one], rank=2 ** 32 - 1))
bad("values-alone", "a file holds a frame with indices and values", "holds values alone", "both",
    single("fp32", (1,), [one], flags=5))
bad("indices-alone", "a file holds a frame with indices and values", "holds indices alone", "both",
    single("topk@0.5,coords=shared+fp32", (8,), [chunk_header(1, 0, 1) + write_rice([2], 0)], flags=3))
bad("not-described", "a file holds a described frame", "does not describe itself", "described",
    write_frame(b"", [one], flags=6, fingerprint=ref.hash_of(write_description(["fp32"], [("w", (1,))]))))
bad("not-described-but", "description_len is 0 unless described", "header", "has a description",
    single("fp32", (1,), [one], flags=6))
bad("description-len-0", "a description holds at least has_seed, the seed and two numbers", "description",
    "description ends", write_frame(b"", [one]))
bad("description-len-long", "the description lies in the frame", "header", "does not fit",
    single("fp32", (1,), [one], description_len=len(plain) - 48 - 8 + 1))
bad("description-len-longest", "the description lies in the frame", "header", "does not fit",
    single("fp32", (1,), [one], description_len=2 ** 32 - 1))
bad("fingerprint", "the fingerprint is that of the description", "fingerprint", "fingerprint",
    single("fp32", (1,), [one], fingerprint=ref.hash_of(write_description(["fp32"], [("v", (1,))]))))
bad("description-flip", "the fingerprint is that of the description", "fingerprint", "fingerprint",
    changed(plain, plain.index(b"fp32"), ord("g")))

# ---- Section 2: description ------------------------------------------------------------------------------------------

W = ("w", (1,))
described = write_description(["fp32"], [W])


def of_description(description):
    return write_frame(description, [one])


good("seed-0", "seed 0 is a seed, and a recipe that draws nothing may have one", single("fp32", (1,), [one], 0),
     w=placed(1, 0, 1.5))
good("seed-largest", "the largest seed", single("fp32", (1,), [one], 2 ** 64 - 1), w=placed(1, 0, 1.5))
bad("has-seed-2", "has_seed is 0 or 1", "canonical form", "has_seed", of_description(b"\2" + described[1:]))
bad("has-seed-255", "has_seed is 0 or 1", "canonical form", "has_seed", of_description(b"\xff" + described[1:]))
bad("seed-without", "the seed is 0 if has_seed is 0", "canonical form", "seed is not 0",
    of_description(b"\0\1" + described[2:]))

good("no-tensors", "a frame of no tensors has no recipes", write_frame(write_description([], []), []))
bad("recipes-0", "there is a recipe if there is a tensor", "recipe number 0 of 0", "recipe number 0 of 0",
    of_description(write_description([], [W])))
bad("recipes-more", "the description has as many recipes as it says", "description", "recipe text",
    of_description(described[:9] + b"\2" + described[10:]))
bad("recipes-65535", "the description has as many recipes as it says", "description", "65535 recipes",
    of_description(described[:9] + b"\xff\xff" + described[11:]))
bad("recipe-text-long", "a recipe's text lies in the description", "recipe", "description ends",
    of_description(described[:11] + b"\xff\x00" + described[13:]))
bad("recipe-text-longest", "a recipe's text lies in the description", "recipe", "description ends",
    of_description(described[:11] + b"\xff\xff" + described[13:]))
bad("recipe-unused", "every recipe is used", "canonical form", "used by no tensor",
    of_description(write_description(["fp32", "fp16"], [W])))
bad("recipe-unused-first", "every recipe is used", "canonical form", "order",
    of_description(write_description(["fp16", "fp32"], [("w", (1,), 1)])))
bad("recipe-without-tensors", "every recipe is used", "canonical form", "used by no tensor",
    write_frame(write_description(["fp32"], []), []))
bad("recipes-order", "recipes stand in the order of their first use", "canonical form", "order",
    write_frame(write_description(["fp32", "fp16"], [("w", (1,), 1), ("v", (1,), 0)]), [b"\0\0", one]))
bad("recipes-alike", "no two recipes have the same text", "canonical form", "same text",
    write_frame(write_description(["fp32", "fp32"], [("w", (1,), 0), ("v", (1,), 1)]), [one, one]))
bad("recipe-number", "a tensor's recipe is one of the description's", "recipe number 1 of 1", "recipe number 1 of 1",
    of_description(write_description(["fp32"], [("w", (1,), 1)])))


def tensors_counted(count):
    """A description of one tensor that says it has `count`."""
    return write_description(["fp32"], [])[:-4] + struct.pack("<I", count) + write_tensor(*W)


several = [f"threshold@{i}.5+fp32" for i in range(256)]
crowd = [(f"t{i}", (1,), i) for i in range(256)]
good("recipes-255", "as many recipes as there may be",
     write_frame(write_description(several[:255], crowd[:255]), [raw_chunk(1, EVERY, one, b"")] * 255),
     **{f"t{i}": placed(1, 0, 1.5) for i in range(255)})
bad("recipes-256", "there are at most 255 recipes", "255", "256 recipes",
    write_frame(write_description(several, crowd), [raw_chunk(1, EVERY, one, b"")] * 256))

bad("tensors-more", "the description has as many tensors as it says", "description", "description ends",
    of_description(tensors_counted(2)))
bad("tensors-most", "the description has as many tensors as it says", "description", "description ends",
    of_description(tensors_counted(2 ** 32 - 1)))
bad("description-behind", "nothing stands behind the last tensor", "after its end", "behind its last tensor",
    of_description(described + b"\0"))
for number, cut in enumerate((1, 8, 9, 10, 12, 13, 14, 15, 16, 17, 19)):
    bad(f"description-cut-{number}", "the description is whole", "description", "description ends",
        of_description(described[:-cut]))

good("name-longest", "a name of 255 bytes", of_description(write_description(["fp32"], [("x" * 255, (1,))])),
     **{"x" * 255: placed(1, 0, 1.5)})
good("name-bytes", "a name that is not UTF-8", of_description(write_description(["fp32"], [(b"\xff/\n", (1,))])),
     **{b"\xff/\n".decode("utf-8", "surrogateescape"): placed(1, 0, 1.5)})
bad("name-empty", "a name has at least 1 byte", "name", "0 bytes",
    of_description(write_description(["fp32"], [("", (1,))])))
bad("name-256", "a name has at most 255 bytes", "name", "256 bytes",
    of_description(write_description(["fp32"], [("x" * 256, (1,))])))
bad("name-byte-0", "a name has no byte 0", "name", "byte 0",
    of_description(write_description(["fp32"], [("w\0", (1,))])))
bad("names-alike", "names differ", "two tensors are called 'w'", "same name",
    write_frame(write_description(["fp32"], [W, ("v", (1,)), W]), [one] * 3))
bad("kind-7", "kinds are 0 to 6", "unknown kind", "kind 7",
    of_description(write_description(["fp32"], [("w", (1,), 0, 0, 7)])))
bad("kind-255", "kinds are 0 to 6", "unknown kind", "kind 255",
    of_description(write_description(["fp32"], [("w", (1,), 0, 0, 255)])))
bad("dtype-3", "dtypes are 0 to 2", "dtype", "dtype 3", single("fp32", (1,), [one], dtype=3))
bad("dtype-255", "dtypes are 0 to 2", "dtype", "dtype 255", single("fp32", (1,), [one], dtype=255))
good("kinds", "every kind",
     write_frame(write_description(["fp32"], [(f"k{k}", (1,), 0, 0, k) for k in range(7)]), [one] * 7),
     **{f"k{k}": placed(1, 0, 1.5) for k in range(7)})

good("dimensions-32", "32 dimensions", single("fp32", (1,) * 32, [one]), w=placed(1, 0, 1.5))
good("dimensions-64", "64 dimensions", single("fp32", (1,) * 64, [one]), beyond_numpy=True, w=placed(1, 0, 1.5))
good("dimensions-0", "no dimension: one element", single("fp32", (), [one]), w=placed(1, 0, 1.5))
good("dimension-of-0", "no element: no chunk", single("topk@0.5+fp32", (5, 0), []), w=placed(0, [], []))
good("dimension-of-0-and-more", "no element, whatever the other dimensions are",
     single("fp32", (2 ** 63, 2 ** 63, 0, 5), []),
     beyond_numpy=True, w=placed(0, [], []))
bad("dimensions-65", "a tensor has at most 64 dimensions", "64", "65 dimensions", single("fp32", (1,) * 65, [one]))
bad("dimensions-255", "a tensor has at most 64 dimensions", "64", "255 dimensions", single("fp32", (1,) * 255, [one]))
for number, shape in enumerate(((2 ** 60 + 1,), (2 ** 64 - 1,), (2 ** 30, 2 ** 30, 2))):
    bad(f"elements-{number}", "a tensor has at most 2^60 elements", "2^60 elements", "2^60",
        single("fp32", shape, [one]))
bad("elements-overflow-to-0", "a product beyond 64 bits is not 0", "2^60 elements", "2^60",
    single("fp32", (2 ** 32, 2 ** 32), []))
bad("elements-overflow-to-1", "a product beyond 64 bits is not 1", "2^60 elements", "2^60",
    single("fp32", (274177, 67280421310721), [one]))  # 2^64 + 1
bad("elements-together", "all tensors have at most 2^60 elements", "2^60 elements together", "2^60",
    of_description(write_description(["fp32"], [("w", (2 ** 59,)), ("v", (2 ** 59 + 1,))])))

# ---- Sections 7 and 8: recipes ---------------------------------------------------------------------------------------

half = raw_chunk(4, BITMAP, floats([1, 2, 3, 4]), b"\x55")  # of 8 elements
halves = placed(8, [0, 2, 4, 6], [1, 2, 3, 4])
half_signed = raw_chunk(4, BITMAP, signed(1.5, [0, 1, 1, 0]), b"\x55")
halves_signed = placed(8, [0, 2, 4, 6], [1.5, -1.5, -1.5, 1.5])


def of_recipe(text, ids=None, seed=None):
    """A frame of 8 elements by a recipe; its chunk is right for a selection that is told."""
    chunk = half_signed if "sign" in text else half
    return write_frame(write_description([write_recipe(text, ids)], [("w", (8,))], seed), [chunk])


stages = ("feedback", "select", "quantize", "pack (indices)", "pack (symbols)")
rich = "ef+topk@0.5+fp32+bitmap"
good("recipe-rich", "a recipe that names a part of all stages but one", of_recipe(rich), w=halves)
for stage, words in enumerate(stages):
    known = set(IDS[stage].values())
    for other in (0, max(known) + 1, 255):
        ids = bytearray(ids_of(rich))
        ids[stage] = other
        bad(f"id-{stage}-{other}", f"{words} has no part {other}", f"{words} part number {other}", f"id {other}",
            of_recipe(rich, ids))
    for other in sorted(known - {ids_of(rich)[stage]}):
        ids = bytearray(ids_of(rich))
        ids[stage] = other
        bad(f"id-{stage}-{other}-of-another", "text and ids name the same parts", "canonical form", f"id {other}",
            of_recipe(rich, ids))
ids = bytearray(ids_of(rich))
ids[2] = 15
bad("id-2-15", "quantize has no part 15 any more", "part number 15", "id 15", of_recipe(rich, ids))
bad("part-of-the-future", "a part that version 2 does not have", "part number 9", "unknown part",
    of_recipe("best@0.5+fp32", (1, 9, 1, 2, 1)))
bad("part-unknown", "a part that version 2 does not have", "no part or preset 'best'", "unknown part",
    of_recipe("best@0.5+fp32", (1, 2, 1, 2, 1)))

TOPK = (1, 2, 1, 2, 1)
THRESHOLD = (1, 3, 1, 2, 1)
OWN = (1, 4, 1, 2, 1)
EF = (2, 2, 1, 2, 1)
BINS = (1, 6, 4, 2, 1)
IN_8, IN_16 = (1, 6, 4, 3, 1), (1, 6, 4, 4, 1)
MOMENTUM = (3, 2, 1, 2, 1)
SIGN, BINGRAD, ORQ, LINEAR, QSGD, TERNARY, NATURAL = ((1, 1, quantize, 2, 1) for quantize in range(4, 11))
FP8, FP4 = (1, 1, 12, 2, 1), (1, 1, 13, 2, 1)
HUFFMAN, RANS, LOSSLESS, ZSTD = ((1, 1, 13 if pack != 4 else 1, 2, pack) for pack in range(2, 6))  # of fp4, fp32
NOT_CANONICAL = (
    # name, rule, text, ids, words of the program and of the reference decoder
    ("empty", "a recipe has a part", "", (1, 1, 1, 2, 1), "empty", "empty"),
    ("preset", "presets are for people", "dense", (1, 1, 1, 2, 1), "canonical form", "unknown part"),
    ("no-quantizer", "the quantizer is always named", "topk@0.5", TOPK, "canonical form", "no quantizer"),
    ("order", "parts stand in the order of their stages", "fp32+topk@0.5", TOPK, "canonical form", "order"),
    ("two-of-a-stage", "one part of each stage", "topk@0.5+threshold@1+fp32", TOPK, "stage", "two of one stage"),
    ("same-twice", "one part of each stage", "topk@0.5+fp32+fp32", TOPK, "stage", "two of one stage"),
    ("none", "`none` is left out", "none+topk@0.5+fp32", TOPK, "canonical form", "default part"),
    ("all", "`all` is left out", "all+fp32", (1, 1, 1, 2, 1), "canonical form", "default part"),
    ("gaps", "`gaps` is left out", "topk@0.5+fp32+gaps", TOPK, "canonical form", "default part"),
    ("bits", "`bits` is left out", "topk@0.5+fp32+bits", TOPK, "canonical form", "default part"),
    ("plus-behind", "no part is empty", "topk@0.5+fp32+", TOPK, "part is missing", "unknown part"),
    ("plus-before", "no part is empty", "+topk@0.5+fp32", TOPK, "part is missing", "unknown part"),
    ("plus-twice", "no part is empty", "topk@0.5++fp32", TOPK, "part is missing", "unknown part"),
    ("capital", "names are in small letters", "topk@0.5+FP32", TOPK, "no part", "unknown part"),
    ("space", "no spaces", "topk@0.5+fp32 ", TOPK, "no part", "printable"),
    ("byte-0", "no byte 0", "topk@0.5+fp32\0", TOPK, "recipe", "printable"),
    ("not-ascii", "no letters beyond ASCII", "topk@0.5+fp\xb332", TOPK, "no part", "printable"),
    ("at-nothing", "no parameter is empty", "topk@+fp32", TOPK, "ratio", "malformed"),
    ("comma-behind", "no parameter is empty", "topk@0.5,+fp32", TOPK, "topk", "malformed"),
    ("equals-twice", "a parameter is key=value", "topk@0.5,scope=model=model+fp32", TOPK, "scope", "malformed"),
    ("key-empty", "a key is not empty", "topk@=0.5+fp32", TOPK, "topk", "malformed"),
    ("main-with-key", "the main parameter has no key", "randomk@ratio=0.5,coords=own+fp32",
     OWN, "canonical form", "key"),
    ("main-not-first", "the main parameter comes first", "randomk@coords=own,0.5+fp32",
     OWN, "needs a key", "without key"),
    ("main-twice", "a parameter is given once", "randomk@0.5,0.5,coords=own+fp32", OWN, "needs a key", "without key"),
    ("scope-default", "parameters at their default are left out", "topk@0.5,scope=tensor+fp32", TOPK, "canonical form",
     "default scope"),
    ("coords-default", "parameters at their default are left out", "topk@0.5,coords=own+fp32", TOPK, "canonical form",
     "default coords"),
    ("scope-unknown", "a scope is tensor or model", "topk@0.5,scope=layer+fp32", TOPK, "scope", "scope=layer"),
    ("scope-twice", "a parameter is given once", "topk@0.5,scope=model,scope=model+fp32", TOPK, "twice", "twice"),
    ("coords-unknown", "coords are own or shared", "topk@0.5,coords=theirs+fp32", TOPK, "coords", "coords=theirs"),
    ("coords-auto", "coords are decided", "randomk@0.5,coords=auto+fp32", OWN, "canonical form", "coords=auto"),
    ("coords-left-out", "coords are decided", "randomk@0.5+fp32", OWN, "canonical form", "coords=auto"),
    ("ratio-0", "a ratio is above 0", "randomk@0,coords=own+fp32", OWN, "ratio", "ratio"),
    ("ratio-above-1", "a ratio is at most 1", "randomk@1.5,coords=own+fp32", OWN, "ratio", "ratio"),
    ("ratio-negative", "a ratio is above 0", "randomk@-0.5,coords=own+fp32", OWN, "ratio", "ratio"),
    ("number-0-behind", "numbers are the shortest", "randomk@0.50,coords=own+fp32", OWN, "canonical form", "canonical"),
    ("number-0-before", "numbers are the shortest", "randomk@00.5,coords=own+fp32", OWN, "canonical form", "canonical"),
    ("number-no-0", "numbers are the shortest", "randomk@.5,coords=own+fp32", OWN, "canonical form", "canonical"),
    ("number-point", "numbers are the shortest", "randomk@1.,coords=own+fp32", OWN, "canonical form", "canonical"),
    ("number-digits", "numbers are the shortest", "randomk@0.50000000000000001,coords=own+fp32", OWN, "canonical form",
     "canonical"),
    ("number-capital", "numbers are the shortest", "randomk@5E-1,coords=own+fp32", OWN, "canonical form", "canonical"),
    ("number-nan", "numbers are finite", "randomk@nan,coords=own+fp32", OWN, "ratio", "canonical"),
    ("number-inf", "numbers are finite", "randomk@1e999,coords=own+fp32", OWN, "ratio", "beyond"),
    ("number-exponent", "numbers are as printf writes them", "randomk@5e-1,coords=own+fp32", OWN, "canonical form",
     "canonical"),
    ("number-exponent-0", "numbers are as printf writes them, less zeros", "topk@1e-05+fp32", TOPK, "canonical form",
     "canonical"),
    ("number-no-exponent", "numbers are as printf writes them", "topk@0.00001+fp32", TOPK, "canonical form",
     "canonical"),
    ("number-100", "numbers are as printf writes them, in the fewest digits", "threshold@100+fp32", THRESHOLD,
     "canonical form", "canonical"),
    ("number-minus-0", "0 has no sign", "threshold@-0+fp32", THRESHOLD, "canonical form", "canonical"),
    ("number-two-points", "a number has one point", "topk@0.5.5+fp32", TOPK, "ratio", "none"),
    ("topk-ratio-0", "a ratio is above 0", "topk@0+fp32", TOPK, "ratio", "ratio"),
    ("topk-ratio-2", "a ratio is at most 1", "topk@2+fp32", TOPK, "ratio", "ratio"),
    ("threshold-without", "a threshold has a T", "threshold+fp32", THRESHOLD, "needs a value for T", "lacks its main"),
    ("topk-without", "the main parameter always stands", "topk+fp32", TOPK, "canonical form", "lacks its main"),
    ("randomk-without", "the main parameter always stands", "randomk@coords=own+fp32", OWN, "canonical form",
     "lacks its main"),
    ("unbiased-with-feedback", "unbiased goes without feedback", "ef+randomk@0.5,coords=own,unbiased=yes+fp32",
     (2,) + OWN[1:], "without feedback", "has feedback"),
    ("threshold-negative", "T is at least 0", "threshold@-1+fp32", THRESHOLD, "T must be", "T outside"),
    ("threshold-large", "T is finite as a binary32", "threshold@1e39+fp32", THRESHOLD, "T must be", "T outside"),
    ("decay-default", "parameters at their default are left out", "ef@decay=1+topk@0.5+fp32", EF, "canonical form",
     "default decay"),
    ("decay-large", "a decay is at most 1", "ef@decay=2+topk@0.5+fp32", EF, "decay", "decay outside"),
    ("decay-without-key", "a decay has a key", "ef@0.5+topk@0.5+fp32", EF, "bare value", "no main"),
    ("unbiased-default", "parameters at their default are left out", "randomk@0.5,coords=own,unbiased=no+fp32", OWN,
     "canonical form", "default unbiased"),
    ("unbiased-unknown", "unbiased is no or yes", "randomk@0.5,coords=own,unbiased=so+fp32", OWN, "unbiased",
     "unbiased=so"),
    ("unbiased-topk", "topk knows no unbiased", "topk@0.5,unbiased=yes+fp32", TOPK, "no parameter",
     "unknown parameter"),
    ("parameter-unknown", "parameters are those of the table", "topk@0.5,sort=no+fp32", TOPK, "no parameter",
     "unknown parameter"),
    ("parameter-of-fp32", "fp32 has no parameters", "topk@0.5+fp32@bits=8", TOPK, "no parameter", "unknown parameter"),
    ("parameter-order", "parameters stand in the order of the table", "topk@0.5,coords=shared,scope=model+fp32", TOPK,
     "canonical form", "order"),
    ("all-with-bitmap", "select `all` has no index pack", "fp32+bitmap", (1, 1, 1, 1, 1), "bitmap", "no indices"),
    ("text-256", "a recipe text has at most 255 bytes", "topk@0." + "1" * 244 + "+fp32", TOPK, "recipe", "256 bytes"),
    ("number-hex", "numbers are decimal", "randomk@0x1p-1,coords=own+fp32", OWN, "ratio", "canonical"),
    ("bin-auto", "bins are decided", "adabins@auto+sign", BINS, "canonical form", "bin=auto"),
    ("bin-auto-conv", "bins are decided", "adabins@auto,conv=64+sign", BINS, "canonical form", "bin=auto"),
    ("bin-left-out", "bins are decided", "adabins+sign", BINS, "canonical form", "lacks its main"),
    ("bin-exponent", "whole numbers are plain digits", "adabins@5e2+sign", BINS, "canonical form", "plain digits"),
    ("bin-exponent-ten", "whole numbers are plain digits, not as printf writes ten", "adabins@1e1+sign", BINS,
     "canonical form", "plain digits"),
    ("bin-0-before", "whole numbers have no 0 before them", "adabins@050+sign", BINS, "canonical form",
     "plain digits"),
    ("bin-point", "whole numbers have no point", "adabins@50.0+sign", BINS, "canonical form", "plain digits"),
    ("bin-part", "bins are whole", "adabins@1.5+sign", BINS, "bin", "plain digits"),
    ("bin-0", "a bin has at least 1 element", "adabins@0+sign", BINS, "bin", "bin outside"),
    ("bin-negative", "a bin has at least 1 element", "adabins@-1+sign", BINS, "bin", "plain digits"),
    ("bin-16385", "a bin has at most 16384 elements", "adabins@16385+sign", BINS, "bin", "bin outside"),
    ("bin-2-64", "a bin has at most 16384 elements", "adabins@18446744073709551617+sign", BINS, "bin", "bin outside"),
    ("bin-word", "no word but auto stands for a bin", "adabins@all+sign", BINS, "bin", "plain digits"),
    ("bin-with-key", "the main parameter has no key", "adabins@bin=50+sign", BINS, "canonical form", "key"),
    ("conv", "bins are decided: nothing is left for conv to say", "adabins@50,conv=64+sign", BINS, "canonical form",
     "has conv"),
    ("other", "bins are decided: nothing is left for other to say", "adabins@50,other=64+sign", BINS, "canonical form",
     "has other"),
    ("conv-default", "parameters at their default are left out", "adabins@50,conv=50+sign", BINS, "canonical form",
     "default conv"),
    ("other-0", "other is at least 1", "adabins@50,other=0+sign", BINS, "other", "other outside"),
    ("weight-default", "parameters at their default are left out", "adabins@50,weight=2+sign", BINS, "canonical form",
     "default weight"),
    ("weight-100", "a weight is not a whole number by the table", "adabins@50,weight=100+sign", BINS, "canonical form",
     "canonical"),
    ("weight-small", "a weight is at least 1", "adabins@50,weight=0.5+sign", BINS, "weight", "weight outside"),
    ("weight-large", "a weight is at most 100", "adabins@50,weight=101+sign", BINS, "weight", "weight outside"),
    ("weight-topk", "topk knows no weight", "topk@0.5,weight=3+fp32", TOPK, "no parameter", "unknown parameter"),
    ("adabins-order", "parameters stand in the order of the table", "adabins@50,weight=3,scope=model+sign", BINS,
     "canonical form", "order"),
    ("adabins-auto-coords", "coords of adabins know no auto", "adabins@50,coords=auto+sign", BINS, "coords",
     "coords=auto"),
    ("scale-default", "parameters at their default are left out", "adabins@50+sign@scale=mean", BINS, "canonical form",
     "default scale"),
    ("scale-unknown", "a scale is mean, meanmax or one", "adabins@50+sign@scale=max", BINS, "scale", "scale=max"),
    ("scale-without-key", "a scale has a key", "adabins@50+sign@meanmax", BINS, "bare value", "no main"),
    ("scale-of-fp32", "fp32 has no scale", "topk@0.5+fp32@scale=mean", TOPK, "no parameter", "unknown parameter"),
    ("meanmax-topk", "scale=meanmax needs bins", "topk@0.5+sign@scale=meanmax", (1, 2, 4, 2, 1), "bins", "no bins"),
    ("meanmax-all", "scale=meanmax needs bins", "sign@scale=meanmax", (1, 1, 4, 2, 1), "bins", "no bins"),
    ("adacomp8-65", "bins of adacomp8 have at most 64 elements", "adabins@65+sign+adacomp8", IN_8, "64", "too large"),
    ("adacomp8-500", "bins of adacomp8 have at most 64 elements", "adabins@500+sign+adacomp8", IN_8, "64", "too large"),
    ("adacomp8-topk", "adacomp8 goes with adabins", "topk@0.5+sign+adacomp8", (1, 2, 4, 3, 1), "adacomp8",
     "without adabins"),
    ("adacomp8-fp32", "adacomp8 goes with sign", "adabins@50+fp32+adacomp8", (1, 6, 1, 3, 1), "adacomp8",
     "without sign"),
    ("adacomp16-topk", "adacomp16 goes with adabins", "topk@0.5+sign+adacomp16", (1, 2, 4, 4, 1), "adacomp16",
     "without adabins"),
    ("adacomp16-bf16", "adacomp16 goes with sign", "adabins@50+bf16+adacomp16", (1, 6, 3, 4, 1), "adacomp16",
     "without sign"),
    ("all-with-adacomp8", "select `all` has no index pack", "sign+adacomp8", (1, 1, 4, 3, 1), "adacomp8",
     "no indices"),
    ("adacomp-twice", "one part of each stage", "adabins@50+sign+adacomp8+adacomp16", IN_8, "stage",
     "two of one stage"),
    ("preset-adacomp", "presets are for people", "adacomp@50", BINS, "canonical form", "unknown part"),
    ("momentum-without", "the main parameter always stands", "momentum+topk@0.5+fp32", MOMENTUM, "canonical form",
     "lacks its main"),
    ("momentum-above-1", "m is at most 1", "momentum@1.5+topk@0.5+fp32", MOMENTUM, "m must be", "m outside"),
    ("momentum-with-key", "the main parameter has no key", "momentum@m=0.5+topk@0.5+fp32", MOMENTUM, "canonical form",
     "key"),
    ("momentum-clip-default", "parameters at their default are left out", "momentum@0.9,clip=0+topk@0.5+fp32", MOMENTUM,
     "canonical form", "default clip"),
    ("momentum-clip-large", "clip is at most 1e30", "momentum@0.9,clip=1e31+topk@0.5+fp32", MOMENTUM, "clip",
     "clip outside"),
    ("momentum-decay", "momentum knows no decay", "momentum@0.9,decay=0.5+topk@0.5+fp32", MOMENTUM, "no parameter",
     "unknown parameter"),
    ("momentum-ef", "one part of each stage", "ef+momentum@0.9+topk@0.5+fp32", MOMENTUM, "stage", "two of one stage"),
    ("momentum-unbiased", "unbiased goes without feedback", "momentum@0.9+randomk@0.5,coords=own,unbiased=yes+fp32",
     (3,) + OWN[1:], "without feedback", "has feedback"),
    ("one-with-momentum", "scale=one goes without feedback", "momentum@0.9+sign@scale=one", (3,) + SIGN[1:], "vote",
     "and feedback"),
    ("warmup-default", "parameters at their default are left out", "topk@0.5,warmup=0+fp32", TOPK, "canonical form",
     "default warmup"),
    ("warmup-exponent", "whole numbers are plain digits", "topk@0.5,warmup=1e3+fp32", TOPK, "canonical form",
     "plain digits"),
    ("warmup-large", "a warm-up has at most 1e9 steps", "topk@0.5,warmup=1000000001+fp32", TOPK, "warmup",
     "warmup outside"),
    ("warmup-order", "parameters stand in the order of the table", "topk@0.5,warmup=5,scope=model+fp32", TOPK,
     "canonical form", "order"),
    ("warmup-randomk", "randomk knows no warmup", "randomk@0.5,coords=own,warmup=5+fp32", OWN, "no parameter",
     "unknown parameter"),
    ("lowrank", "lowrank is never in a frame", "lowrank@4", (1, 1, 11, 2, 1), "no frame", "unknown part"),
    ("autoencoder", "autoencoder is never in a frame", "topk@0.01,coords=shared+autoencoder@ring", (1, 2, 14, 2, 1), "no frame",
     "unknown part"),
    ("lowrank-ef", "lowrank is never in a frame", "ef+lowrank@2", (2, 1, 11, 2, 1), "no frame", "unknown part"),
    ("one-with-feedback", "scale=one goes without feedback", "ef+sign@scale=one", (2,) + SIGN[1:], "vote",
     "and feedback"),
    ("one-with-feedback-topk", "scale=one goes without feedback", "ef@decay=0.5+topk@0.5+sign@scale=one",
     (2, 2, 4, 2, 1), "vote", "and feedback"),
    ("one-without-key", "a scale has a key", "sign@one", SIGN, "bare value", "no main"),
    ("bingrad-without", "the main parameter always stands", "bingrad", BINGRAD, "canonical form", "lacks its main"),
    ("bingrad-without-form", "the main parameter always stands", "bingrad@bucket=7", BINGRAD, "canonical form",
     "lacks its main"),
    ("bingrad-with-key", "the main parameter has no key", "bingrad@form=b", BINGRAD, "canonical form", "key"),
    ("bingrad-form", "forms are b, pb and zero", "bingrad@c", BINGRAD, "form", "form=c"),
    ("bingrad-form-number", "forms are b, pb and zero", "bingrad@2", BINGRAD, "form", "form=2"),
    ("bingrad-form-capital", "forms are b, pb and zero", "bingrad@PB", BINGRAD, "form", "form=PB"),
    ("bingrad-bucket-0", "a bucket has at least 1 value", "bingrad@b,bucket=0", BINGRAD, "bucket", "bucket outside"),
    ("bingrad-bucket-65537", "a bucket has at most 65536 values", "bingrad@pb,bucket=65537", BINGRAD, "bucket",
     "bucket outside"),
    ("bingrad-bucket-2-64", "a bucket has at most 65536 values", "bingrad@b,bucket=18446744073709551617", BINGRAD,
     "bucket", "bucket outside"),
    ("bingrad-bucket-default", "parameters at their default are left out", "bingrad@b,bucket=2048", BINGRAD,
     "canonical form", "default bucket"),
    ("bingrad-bucket-exponent", "whole numbers are plain digits", "bingrad@b,bucket=1e3", BINGRAD, "canonical form",
     "plain digits"),
    ("bingrad-iters-101", "iters is at most 100", "bingrad@b,iters=101", BINGRAD, "iters", "iters outside"),
    ("bingrad-iters-negative", "iters is at least 0", "bingrad@b,iters=-1", BINGRAD, "iters", "plain digits"),
    ("bingrad-iters-part", "iters is whole", "bingrad@b,iters=2.5", BINGRAD, "iters", "plain digits"),
    ("bingrad-iters-default", "parameters at their default are left out", "bingrad@b,iters=3", BINGRAD,
     "canonical form", "default iters"),
    ("bingrad-iters-exponent", "whole numbers are plain digits", "bingrad@b,iters=1e1", BINGRAD, "canonical form",
     "plain digits"),
    ("bingrad-order", "parameters stand in the order of the table", "bingrad@b,iters=4,bucket=7", BINGRAD,
     "canonical form", "order"),
    ("bingrad-order-clip", "parameters stand in the order of the table", "bingrad@b,clip=1,iters=4", BINGRAD,
     "canonical form", "order"),
    ("clip-default", "parameters at their default are left out", "bingrad@b,clip=0", BINGRAD, "canonical form",
     "default clip"),
    ("clip-10", "a clip is not a whole number by the table", "linear@4,clip=10", LINEAR, "canonical form",
     "canonical"),
    ("clip-1000", "a clip is not a whole number by the table", "qsgd@4,clip=1000", QSGD, "canonical form", "canonical"),
    ("clip-digits", "numbers are the shortest", "ternary@clip=2.50", TERNARY, "canonical form", "canonical"),
    ("clip-large", "a clip is at most 1000", "ternary@clip=1001", TERNARY, "clip", "clip outside"),
    ("clip-negative", "a clip is at least 0", "orq@9,clip=-1", ORQ, "clip", "clip outside"),
    ("orq-without", "the main parameter always stands", "orq", ORQ, "canonical form", "lacks its main"),
    ("orq-with-key", "the main parameter has no key", "orq@S=9", ORQ, "canonical form", "key"),
    ("orq-1", "S of orq is at least 2", "orq@1,levels=exact", ORQ, "S", "S outside"),
    ("orq-18", "S of orq is at most 17", "orq@18,levels=exact", ORQ, "S", "S outside"),
    ("orq-33", "S of orq is at most 17", "orq@33", ORQ, "S", "S outside"),
    ("orq-2-greedy", "greedy levels are 3, 5, 9 or 17", "orq@2", ORQ, "greedy", "greedy levels"),
    ("orq-4-greedy", "greedy levels are 3, 5, 9 or 17", "orq@4", ORQ, "greedy", "greedy levels"),
    ("orq-16-greedy", "greedy levels are 3, 5, 9 or 17", "orq@16,bucket=7,half=yes", ORQ, "greedy", "greedy levels"),
    ("orq-0-before", "whole numbers have no 0 before them", "orq@09", ORQ, "canonical form", "plain digits"),
    ("orq-levels", "levels are greedy or exact", "orq@9,levels=best", ORQ, "levels", "levels=best"),
    ("orq-levels-default", "parameters at their default are left out", "orq@9,levels=greedy", ORQ, "canonical form",
     "default levels"),
    ("orq-half", "half is no or yes", "orq@9,half=1", ORQ, "half", "half=1"),
    ("orq-half-default", "parameters at their default are left out", "orq@9,half=no", ORQ, "canonical form",
     "default half"),
    ("orq-bucket-0", "a bucket has at least 1 value", "orq@9,bucket=0", ORQ, "bucket", "bucket outside"),
    ("orq-order", "parameters stand in the order of the table", "orq@9,half=yes,levels=exact", ORQ, "canonical form",
     "order"),
    ("orq-order-bucket", "parameters stand in the order of the table", "orq@9,levels=exact,bucket=7", ORQ,
     "canonical form", "order"),
    ("orq-twice", "a parameter is given once", "orq@9,bucket=7,bucket=7", ORQ, "twice", "twice"),
    ("orq-iters", "orq knows no iters", "orq@9,iters=4", ORQ, "no parameter", "unknown parameter"),
    ("linear-without", "the main parameter always stands", "linear@bucket=7", LINEAR, "canonical form",
     "lacks its main"),
    ("linear-1", "S of linear is at least 2", "linear@1", LINEAR, "S", "S outside"),
    ("linear-257", "S of linear is at most 256", "linear@257", LINEAR, "S", "S outside"),
    ("linear-exponent", "whole numbers are plain digits", "linear@1.6e1", LINEAR, "canonical form", "plain digits"),
    ("linear-exponent-20", "whole numbers are plain digits, not as printf writes 20", "linear@2e1", LINEAR,
     "canonical form", "plain digits"),
    ("linear-part", "S is whole", "linear@2.5", LINEAR, "S", "plain digits"),
    ("linear-norm", "linear knows no norm", "linear@4,norm=max", LINEAR, "no parameter", "unknown parameter"),
    ("linear-bucket", "a bucket has at most 65536 values", "linear@4,bucket=65537", LINEAR, "bucket",
     "bucket outside"),
    ("qsgd-without", "the main parameter always stands", "qsgd", QSGD, "canonical form", "lacks its main"),
    ("qsgd-0", "S of qsgd is at least 1", "qsgd@0", QSGD, "S", "S outside"),
    ("qsgd-256", "S of qsgd is at most 255", "qsgd@256", QSGD, "S", "S outside"),
    ("qsgd-point", "whole numbers have no point", "qsgd@16.0", QSGD, "canonical form", "plain digits"),
    ("qsgd-norm", "a norm is l2 or max", "qsgd@4,norm=l1", QSGD, "norm", "norm=l1"),
    ("qsgd-norm-default", "parameters at their default are left out", "qsgd@4,norm=l2", QSGD, "canonical form",
     "default norm"),
    ("qsgd-order", "parameters stand in the order of the table", "qsgd@4,norm=max,bucket=7", QSGD, "canonical form",
     "order"),
    ("ternary-value", "ternary has no main parameter", "ternary@7", TERNARY, "bare value", "no main"),
    ("ternary-levels", "ternary knows no S", "ternary@S=3", TERNARY, "no parameter", "unknown parameter"),
    ("ternary-bucket-part", "a bucket is whole", "ternary@bucket=7.5", TERNARY, "bucket", "plain digits"),
    ("ternary-bucket-default", "parameters at their default are left out", "ternary@bucket=2048", TERNARY,
     "canonical form", "default bucket"),
    ("ternary-order", "parameters stand in the order of the table", "ternary@clip=1,bucket=7", TERNARY,
     "canonical form", "order"),
    ("natural-bucket", "natural has no parameters", "natural@bucket=7", NATURAL, "no parameter", "unknown parameter"),
    ("natural-value", "natural has no parameters", "natural@9", NATURAL, "natural", "no main"),
    ("sign-bucket", "sign knows no bucket", "sign@bucket=7", SIGN, "no parameter", "unknown parameter"),
    ("fp16-bucket", "fp16 has no parameters", "fp16@bucket=7", (1, 1, 2, 2, 1), "no parameter", "unknown parameter"),
    ("two-quantizers", "one part of each stage", "orq@9+ternary", ORQ, "stage", "two of one stage"),
    ("all-with-bitmap-orq", "select `all` has no index pack", "orq@9+bitmap", (1, 1, 6, 1, 1), "bitmap", "no indices"),
    ("adacomp8-orq", "adacomp8 goes with sign", "adabins@50+orq@9+adacomp8", (1, 6, 6, 3, 1), "adacomp8",
     "without sign"),
    ("adacomp16-bingrad", "adacomp16 goes with sign", "adabins@50+bingrad@b+adacomp16", (1, 6, 5, 4, 1), "adacomp16",
     "without sign"),
    ("fp4-value", "fp4 has no parameters", "fp4@e2m1", FP4, "fp4", "no main"),
    ("fp4-bucket", "fp4 has no parameters", "fp4@bucket=7", FP4, "no parameter", "unknown parameter"),
    ("fp8-without", "the main parameter always stands", "fp8", FP8, "canonical form", "lacks its main"),
    ("fp8-with-key", "the main parameter has no key", "fp8@format=e4m3", FP8, "canonical form", "key"),
    ("fp8-format", "formats are e5m2 and e4m3", "fp8@e3m4", FP8, "format", "format=e3m4"),
    ("fp8-format-capital", "formats are e5m2 and e4m3", "fp8@E5M2", FP8, "format", "format=E5M2"),
    ("fp8-bucket", "fp8 knows no bucket", "fp8@e5m2,bucket=7", FP8, "no parameter", "unknown parameter"),
    ("huffman-without", "the main parameter always stands", "fp4+huffman", HUFFMAN, "canonical form", "lacks its main"),
    ("huffman-with-key", "the main parameter has no key", "fp4+huffman@table=model", HUFFMAN, "canonical form", "key"),
    ("huffman-table", "a table is counts or model", "fp4+huffman@best", HUFFMAN, "table", "table=best"),
    ("rans-value", "rans has no parameters", "fp4+rans@12", RANS, "rans", "no main"),
    ("lossless-value", "lossless has no parameters", "fp32+lossless@12", LOSSLESS, "lossless", "no main"),
    ("zstd-without", "the main parameter always stands", "fp4+zstd", ZSTD, "canonical form", "lacks its main"),
    ("zstd-with-key", "the main parameter has no key", "fp4+zstd@level=3", ZSTD, "canonical form", "key"),
    ("zstd-0", "a level is at least 1", "fp4+zstd@0", ZSTD, "level", "level outside"),
    ("zstd-10", "a level is at most 9", "fp4+zstd@10", ZSTD, "level", "level outside"),
    ("zstd-negative", "a level is at least 1", "fp4+zstd@-1", ZSTD, "level", "plain digits"),
    ("zstd-part", "a level is whole", "fp4+zstd@2.5", ZSTD, "level", "plain digits"),
    ("zstd-exponent", "whole numbers are plain digits", "fp4+zstd@3e0", ZSTD, "canonical form", "plain digits"),
    ("huffman-fp32", "huffman codes symbols with a base", "fp32+huffman@counts", (1, 1, 1, 2, 2), "huffman",
     "does not go with"),
    ("huffman-topk-fp16", "huffman codes symbols with a base", "topk@0.5+fp16+huffman@counts", (1, 2, 2, 2, 2),
     "huffman", "does not go with"),
    ("rans-fp32", "rans codes symbols with a base, or indices", "fp32+rans", (1, 1, 1, 2, 3), "rans",
     "does not go with"),
    ("rans-bf16", "rans codes symbols with a base, or indices", "bf16+rans", (1, 1, 3, 2, 3), "rans",
     "does not go with"),
    ("rans-bitmap-fp32", "rans codes indices in gaps alone", "topk@0.5+fp32+bitmap+rans", (1, 2, 1, 1, 3), "rans",
     "does not go with"),
    ("lossless-sign", "lossless codes floats alone", "sign+lossless", (1, 1, 4, 2, 4), "lossless", "does not go with"),
    ("lossless-fp4", "lossless codes floats alone", "fp4+lossless", (1, 1, 13, 2, 4), "lossless", "does not go with"),
    ("lossless-natural", "lossless codes floats alone", "topk@0.5+natural+lossless", (1, 2, 10, 2, 4), "lossless",
     "does not go with"),
    ("model-sign", "table=model goes with fp4 and fp8", "sign+huffman@model", (1, 1, 4, 2, 2), "model", "model"),
    ("model-orq", "table=model goes with fp4 and fp8", "orq@9+huffman@model", (1, 1, 6, 2, 2), "model", "model"),
    ("model-natural", "table=model goes with fp4 and fp8", "natural+huffman@model", (1, 1, 10, 2, 2), "model", "model"),
    ("adacomp8-rans", "adacomp8 leaves no symbols", "adabins@50+sign+adacomp8+rans", (1, 6, 4, 3, 3), "adacomp8",
     "leaves no symbols"),
    ("adacomp16-huffman", "adacomp16 leaves no symbols", "adabins@50+sign+adacomp16+huffman@counts", (1, 6, 4, 4, 2),
     "adacomp16", "leaves no symbols"),
    ("adacomp8-zstd", "adacomp8 leaves no symbols", "adabins@50+sign+adacomp8+zstd@3", (1, 6, 4, 3, 5), "adacomp8",
     "leaves no symbols"),
    ("two-symbol-packs", "one part of each stage", "fp4+rans+zstd@3", RANS, "stage", "two of one stage"),
    ("packs-order", "parts stand in the order of their stages", "topk@0.5+fp4+rans+bitmap", (1, 2, 13, 1, 3),
     "canonical form", "order"),
    ("mxfp8-without", "the main parameter always stands", "mxfp8", (1, 1, 18, 2, 1), "canonical form", "lacks its main"),
    ("mxfp8-format", "formats are e4m3 and e5m2", "mxfp8@e3m4", (1, 1, 18, 2, 1), "format", "format=e3m4"),
    ("mxfp8-id", "an id belongs to a part", "mxfp8@e4m3", (1, 1, 16, 2, 1), "canonical form", "id 16"),
    ("mxfp8-id-15", "15 was mxfp8 when its blocks were of 32 by default", "mxfp8@e4m3", (1, 1, 15, 2, 1), "part number 15", "id 15"),
    ("mxfp8-block-64", "defaults are left out", "mxfp8@e4m3,block=64", (1, 1, 18, 2, 1), "canonical form", "default"),
    ("mxfp4-block-32", "defaults are left out", "mxfp4@block=32", (1, 1, 16, 2, 1), "canonical form", "default"),
    ("mxfp4-value", "mxfp4 has no main parameter", "mxfp4@e2m1", (1, 1, 16, 2, 1), "mxfp4", "no main"),
    ("mxfp4-hadamard-no", "defaults are left out", "mxfp4@hadamard=no", (1, 1, 16, 2, 1), "canonical form", "default"),
    ("mxfp4-hadamard-16", "rotations are of 32, 64 or 128", "mxfp4@hadamard=16", (1, 1, 16, 2, 1), "hadamard", "hadamard=16"),
    ("mxfp4-hadamard-part", "the rotation is a parameter", "hadamard@32+mxfp4", (1, 1, 16, 2, 1), "canonical form", "unknown part"),
    ("mxfp4-block-48", "blocks are of 32, 64 or 128", "mxfp4@block=48", (1, 1, 16, 2, 1), "blocks have", "blocks that are not"),
    ("mxfp4-order", "parameters stand in their order", "mxfp4@block=64,round=random", (1, 1, 16, 2, 1), "canonical form", "order"),
    ("mxfp4-inside", "what is for a model is not in a frame", "mxfp4+inside=bf16", (1, 1, 16, 2, 1), "canonical form", "unknown part"),
    ("nvfp4-block", "nvfp4 has blocks of 16", "nvfp4@block=32", (1, 1, 17, 2, 1), "no parameter", "unknown parameter"),
    ("all-with-bitmap-rans", "select `all` has no index pack", "fp4+bitmap+rans", (1, 1, 13, 1, 3), "bitmap",
     "no indices"),
    ("preset-co3", "presets are for people", "co3@fp4", (2, 1, 13, 2, 2), "canonical form", "unknown part"),
)
for name, rule, text, ids, program, reference in NOT_CANONICAL:
    every = {1: floats(range(8)), 4: signed(1.5, [1] * 8)}
    told_by = {1: half, 3: raw_chunk(4, BITMAP, bytes(8), b"\x55"), 4: half_signed}
    chunk = every.get(ids[2], bytes(80)) if ids[1] == 1 else told_by.get(ids[2], chunk_header(0, 0, 0))
    frame = write_frame(write_description([write_recipe(text, ids)], [("w", (8,))]), [chunk])
    bad(f"recipe-{name}", rule, program, reference, frame)
NUMBERS = ("0", "1", "1e1", "99", "1e2", "101", "0.0001", "1e-5", "1.5e-5", "1e20", "123456789", "0.1",
           "0.30000000000000004", "3.4028234663852886e38", "5e-324", "5.9604644775390625e-8")
good("recipe-topk", "the recipe of the ones that are not canonical, in canonical form",
     of_recipe("topk@0.5+fp32"), w=halves)
good("recipe-own", "the same for a random part", of_recipe("randomk@0.5,coords=own+fp32"), w=halves)
good("recipe-numbers", "numbers as printf writes them in the fewest digits",
     write_frame(write_description([f"threshold@{number}+fp32" for number in NUMBERS],
                                   [(f"t{i}", (8,), i) for i in range(len(NUMBERS))]), [half] * len(NUMBERS)),
     **{f"t{i}": halves for i in range(len(NUMBERS))})
good("recipe-parameters", "parameters that a decoder does not need",
     of_recipe("ef@decay=0.25+topk@0.5,scope=model+fp32"),
     w=halves)
WHOLE = ("1", "9", "10", "50", "64", "100", "101", "500", "1000", "16384")
good("recipe-whole", "whole numbers in plain digits",
     write_frame(write_description([f"adabins@{number}+sign" for number in WHOLE],
                                   [(f"t{i}", (8,), i) for i in range(len(WHOLE))]), [half_signed] * len(WHOLE)),
     **{f"t{i}": halves_signed for i in range(len(WHOLE))})
for number, text in enumerate((
        "adabins@64+sign@scale=meanmax+adacomp8",
        "ef+adabins@16384,scope=model,coords=shared,weight=1e2+sign+adacomp16",
        "ef@decay=0.5+adabins@7,weight=1.5+sign@scale=meanmax+bitmap")):
    good(f"recipe-adacomp-{number}", "parts and parameters of AdaComp", of_recipe(text), w=halves_signed)
OF_BUCKETS = (
    ("bingrad@b", 2, 2), ("bingrad@pb,bucket=8,iters=0,clip=1e3", 2, 1), ("bingrad@zero,bucket=65536,iters=100", 2, 2),
    ("orq@3", 3, 3), ("orq@5,bucket=10,clip=2.5", 5, 5), ("orq@17", 17, 17), ("orq@2,levels=exact", 2, 2),
    ("orq@16,bucket=1000,levels=exact,clip=1e1", 16, 16), ("linear@2", 2, 2), ("linear@256,bucket=16", 256, 2),
    ("qsgd@1", 3, 1), ("qsgd@255,norm=max,clip=0.5", 511, 1), ("ternary", 3, 1), ("ternary@bucket=100", 3, 1),
    ("natural", 512, 0))
good("recipe-buckets", "quantizers that have buckets, and their parameters",
     write_frame(write_description([text for text, _, _ in OF_BUCKETS],
                                   [(f"t{i}", (8,), i) for i in range(len(OF_BUCKETS))]),
                 [bucketed([0] * numbers, [0] * 8, base) for _, base, numbers in OF_BUCKETS]),
     **{f"t{i}": placed(8, range(8), -0.0 if text[:3] in ("ter", "qsg") or "pb" in text else 0)
        for i, (text, _, _) in enumerate(OF_BUCKETS)})
good("recipe-momentum", "feedback of momentum", of_recipe("momentum@0.9,clip=1e30+topk@0.5,warmup=1000000000+fp32"),
     w=halves)
good("recipe-one", "signs of one", of_recipe("topk@0.5+sign@scale=one"), w=halves_signed)
bad("shared-without-seed-k", "coordinates that are shared are drawn from a seed", "seed", "seed",
    single("randomk@0.5,coords=shared+fp32", (8,), [floats([1, 2, 3, 4])]))
bad("shared-without-seed-block", "coordinates that are shared are drawn from a seed", "seed", "seed",
    single("randomblock@0.5,coords=shared+fp32", (8,), [floats([1, 2, 3, 4])]))

# ---- Section 3: units and chunks -------------------------------------------------------------------------------------

SECOND = CHUNK + 1
good("two-chunks", "an element in each of two chunks",
     single("topk@1e-5+fp32", (SECOND,), [write_chunk(18, [CHUNK - 1], CHUNK, one), write_chunk(EVERY, [0], 1, one)]),
     w=placed(SECOND, [CHUNK - 1, CHUNK], 1.5))
good("chunks-of-count-0", "nothing was sent", single("threshold@1+fp16", (SECOND,), [chunk_header(0, 0, 0)] * 2),
     w=placed(SECOND, [], []))
good("units", "units stand where their first tensor stands; tensors of a unit lie end to end",
     write_frame(write_description(["topk@0.5,scope=model+fp32", "fp16", "threshold@1,scope=model+fp32"],
                                   [("a", (2,), 0), ("b", (1,), 1), ("c", (0,), 0), ("d", (2,), 2), ("e", (2,), 0),
                                    ("f", (1,), 2)]),
                 [write_chunk(0, [1, 3], 4, floats([1, 2])), b"\0\x3c", write_chunk(0, [2], 3, floats([5]))]),
     a=placed(2, 1, 1), b=placed(1, 0, 1), c=placed(0, [], []), d=placed(2, [], []), e=placed(2, 1, 2),
     f=placed(1, 0, 5))
bad("chunk-missing", "a unit has all its chunks", "tensor 'w'", "frame ends",
    single("topk@1e-5+fp32", (SECOND,), [write_chunk(18, [CHUNK - 1], CHUNK, one)]))
bad("chunk-content-missing", "a unit has all its chunks", "tensor 'w'", "frame ends",
    single("topk@1e-5+fp32", (SECOND,), [write_chunk(18, [CHUNK - 1], CHUNK, one), chunk_header(1, EVERY, 0)]))
bad("chunk-too-many", "a unit has no more chunks", "longer than", "behind its last chunk",
    single("topk@0.5+fp32", (8,), [half, chunk_header(0, 0, 0)]))
bad("chunk-too-long", "a chunk has at most 262,144 elements", "tensor 'w'", "outside",
    single("topk@1e-5+fp32", (SECOND,), [raw_chunk(1, 18, one, write_rice([CHUNK], 18)), chunk_header(0, 0, 0)]))
bad("chunk-of-no-elements", "a unit of no elements has no chunk", "longer than", "behind its last chunk",
    single("topk@0.5+fp32", (0,), [chunk_header(0, 0, 0)]))
bad("chunks-of-tensors", "tensors of a recipe of scope=model have one chunk together",
    "longer than", "behind its last chunk",
    write_frame(write_description(["topk@0.5,scope=model+fp32"], [("a", (2,)), ("b", (2,))]),
                [write_chunk(0, [1], 2, one), write_chunk(0, [0], 2, one)]))
bad("chunk-of-model", "tensors of a recipe of scope=tensor have chunks of their own", "tensor 'a'", "frame ends",
    write_frame(write_description(["topk@0.5+fp32"], [("a", (2,)), ("b", (2,))]),
                [write_chunk(0, [1, 2], 4, floats([1, 2]))]))
bad("symbol-missing", "select `all` has a symbol for every element", "tensor 'w'", "frame ends",
    single("fp32", (3,), [floats([1, 2])]))
bad("symbol-too-many", "select `all` has no more symbols", "longer than", "behind its last chunk",
    single("fp32", (3,), [floats([1, 2, 3, 4])]))
bad("symbol-cut", "symbols are whole", "tensor 'w'", "frame ends", single("fp32", (3,), [floats([1, 2, 3])[:-1]]))
bad("symbols-of-16", "symbols have the quantizer's width, not the tensor's", "tensor 'w'", "frame ends",
    single("fp32", (2,), [b"\0\x3c\0\x3c"], dtype=1))
bad("all-with-header", "a chunk of select `all` has no header", "longer than", "behind its last chunk",
    single("fp32", (3,), [raw_chunk(3, EVERY, floats([1, 2, 3]), b"")]))
both = write_description(["topk@0.5+fp32", "fp32"], [("a", (2,)), ("b", (1,), 1), ("c", (2,))])
good("headers-of-some", "headers stand first, of the chunks that have one",
     write_frame(both, [write_chunk(0, [1], 2, one), one, write_chunk(EVERY, [0, 1], 2, floats([1, 2]))]),
     a=placed(2, 1, 1.5), b=placed(1, 0, 1.5), c=placed(2, [0, 1], [1, 2]))
bad("headers-within", "headers stand before all chunks", "tensor 'c'", "count 12582912",
    write_frame(both, [b"".join(part for chunk in (write_chunk(0, [1], 2, one), Chunk(b"", one),
                                                   write_chunk(EVERY, [0, 1], 2, floats([1, 2])))
                                for part in (chunk.header, chunk.content))]))

# ---- Section 4: a chunk ----------------------------------------------------------------------------------------------

some = [0, 1, 2, 17, 30, 31, 39]
sevens = floats(range(1, 8))


def told(chunk, recipe="topk@0.2+fp32", n=40):
    return single(recipe, (n,), [chunk])


def good_chunk(name, about, mode, positions, n=40, recipe="topk@0.2+fp32"):
    """A chunk that says where its values are, which are 1, 2, 3 …"""
    values = range(1, len(positions) + 1)
    good(name, about, told(write_chunk(mode, positions, n, floats(values)), recipe, n), w=placed(n, positions, values))


def bad_chunk(name, rule, reference, chunk, n=40, recipe="topk@0.2+fp32"):
    bad(name, rule, "tensor 'w'", reference, told(chunk, recipe, n))


everywhere = list(range(40))
packed = "topk@0.2+fp32+bitmap"
for mode in [*range(19), BITMAP, RUNS]:
    good_chunk(f"mode-{mode}", f"mode {mode} by index pack `gaps`", mode, some)
good_chunk("mode-34", "mode 34", EVERY, everywhere)
for mode in (0, BITMAP, RUNS):
    good_chunk(f"every-by-{mode}", f"every element, though by mode {mode}", mode, everywhere)
good_chunk("bitmap-32", "mode 32 by index pack `bitmap`", BITMAP, some, recipe=packed)
good_chunk("bitmap-every", "every element by index pack `bitmap`", BITMAP, everywhere, recipe=packed)
good_chunk("bitmap-0", "count 0 has mode 0 by index pack `bitmap` as well", 0, [], recipe=packed)
good_chunk("bitmap-tail", "a bitmap whose last byte is not full", BITMAP, [0, 8], n=9)
good_chunk("led", "coords=shared of a selection by value: told, in a file",
           2, some, recipe="topk@0.2,coords=shared+fp32")
good_chunk("rice-far", "a Rice code of many ones", 8, [0, CHUNK - 1], n=CHUNK)
good_chunk("runs-far", "numbers of three bytes", RUNS, [0, CHUNK - 1], n=CHUNK)

bad_chunk("count-above", "count is at most m", "count 41", raw_chunk(41, EVERY, floats(range(41)), b""))
bad_chunk("count-largest", "count is at most m", "count 16777215", chunk_header(2 ** 24 - 1, 0, 0))
for mode in (1, BITMAP, RUNS, EVERY):
    bad_chunk(f"count-0-mode-{mode}", "count 0 has mode 0", "count 0", chunk_header(0, mode, 0))
bad_chunk("count-0-bitmap", "count 0 has mode 0 by index pack `bitmap` as well", "count 0",
          raw_chunk(0, BITMAP, b"", bytes(5)), recipe=packed)
bad_chunk("count-0-index", "count 0 has no indices", "count 0", raw_chunk(0, 0, b"", b"\0"))
for mode in (19, 31, 37, 64, 128, 255):
    rule = "mode 37 needs symbol pack `rans`" if mode == GEOMETRIC else f"there is no mode {mode}"
    bad_chunk(f"mode-{mode}", rule, f"mode {mode}",
              raw_chunk(7, mode, sevens, write_rice(some, min(mode, 18))))
bad("mode-35", "index pack `gaps` does not allow mode 35, which has no symbols", "longer than", "mode 35",
    told(raw_chunk(7, PLACES8, sevens, write_rice(some, 18))))
for mode in (0, 3, RUNS):
    bad_chunk(f"bitmap-mode-{mode}", "index pack `bitmap` allows mode 32 alone", "does not allow",
              write_chunk(mode, some, 40, sevens), recipe=packed)
bad_chunk("bitmap-mode-34", "index pack `bitmap` allows mode 32 alone", "does not allow",
          write_chunk(EVERY, everywhere, 40, floats(range(40))), recipe=packed)
bad("chunk-header-cut", "a chunk has a header", "too short for the headers", "header", told(chunk_header(0, 0, 0)[:5]))
bad_chunk("chunk-symbols-cut", "a chunk has count symbols", "symbols", chunk_header(7, 0, 5) + sevens[:-1])
bad_chunk("chunk-indices-cut", "a chunk has index_len bytes of indices", "indices",
          chunk_header(7, BITMAP, 5) + sevens + write_bitmap(some, 40)[:-1])

rice = write_rice(some, 2)
bad_chunk("rice-empty", "a Rice code has the bytes that it needs", "no index bytes", raw_chunk(7, 2, sevens, b""))
bad_chunk("rice-short", "a Rice code has the bytes that it needs", "past its bytes", raw_chunk(7, 2, sevens, rice[:-1]))
bad_chunk("rice-long", "a Rice code has no more bytes than it needs", "more bytes",
          raw_chunk(7, 2, sevens, rice + b"\0"))
bad_chunk("rice-long-set", "a Rice code has no more bytes than it needs", "more bytes",
          raw_chunk(7, 2, sevens, rice + b"\1"))
bad_chunk("rice-bit-behind", "bits behind the last are 0", "behind its last",
          raw_chunk(7, 2, sevens, rice[:-1] + bytes([rice[-1] | 0x80])))
bad_chunk("rice-outside", "positions are below m", "outside", raw_chunk(7, 2, sevens, write_rice(some[:-1] + [40], 2)))
bad_chunk("rice-far-outside", "positions are below m", "outside", raw_chunk(1, 18, one, write_rice([2 ** 22], 18)))
bad_chunk("rice-endless", "a Rice code's ones end", "past its bytes", raw_chunk(1, 0, one, b"\xff" * 5))
bad_chunk("rice-endless-long", "a Rice code's ones end", "past its bytes", raw_chunk(1, 18, one, b"\xff" * 300))
bad_chunk("rice-low-bits-cut", "a Rice code has its low bits", "past its bytes", raw_chunk(1, 9, one, b"\0"))
bad_chunk("rice-count-more", "a Rice code has count positions", "past its bytes",
          raw_chunk(9, 2, floats(range(9)), rice))
bad_chunk("rice-count-less", "a Rice code has count positions", "more bytes", raw_chunk(2, 2, sevens[:8], rice))

bitmap = write_bitmap(some, 40)
bad_chunk("bitmap-short", "a bitmap has (m+7)/8 bytes", "bitmap of 40", raw_chunk(7, BITMAP, sevens, bitmap[:-1]))
bad_chunk("bitmap-long", "a bitmap has (m+7)/8 bytes", "bitmap of 40", raw_chunk(7, BITMAP, sevens, bitmap + b"\0"))
bad_chunk("bitmap-empty", "a bitmap has (m+7)/8 bytes", "bitmap of 40", raw_chunk(7, BITMAP, sevens, b""))
bad_chunk("bitmap-more", "a bitmap has count bits set", "bits set",
          raw_chunk(7, BITMAP, sevens, write_bitmap(some + [20], 40)))
bad_chunk("bitmap-less", "a bitmap has count bits set", "bits set",
          raw_chunk(7, BITMAP, sevens, write_bitmap(some[1:], 40)))
bad_chunk("bitmap-bit-behind", "bits behind the last are 0", "behind its last",
          raw_chunk(2, BITMAP, floats([1, 2]), b"\1\2"), n=9)
bad_chunk("bitmap-bit-behind-more", "bits behind the last are 0", "behind its last",
          raw_chunk(2, BITMAP, floats([1, 2]), b"\1\x81"), n=9)
bad_chunk("bitmap-pack-long", "a bitmap has (m+7)/8 bytes", "bitmap of 40",
          raw_chunk(7, BITMAP, sevens, bitmap + b"\0"), recipe=packed)
bad_chunk("bitmap-pack-less", "a bitmap has count bits set", "bits set",
          raw_chunk(7, BITMAP, sevens, write_bitmap(some[1:], 40)), recipe=packed)

runs = write_runs(some)  # 0 2, 14 0, 12 1, 7 0
bad_chunk("runs-empty", "runs have the bytes that they need", "no index bytes", raw_chunk(7, RUNS, sevens, b""))
bad_chunk("runs-number-cut", "a number ends", "inside a number", raw_chunk(7, RUNS, sevens, runs[:-1] + b"\x80"))
bad_chunk("runs-pair-cut", "runs are pairs", "inside a pair", raw_chunk(7, RUNS, sevens, runs[:-1]))
bad_chunk("runs-pair-begun", "runs are pairs", "inside a pair", raw_chunk(7, RUNS, sevens, runs + b"\0"))
bad_chunk("runs-skip-long", "no number is longer than it needs to be", "longer",
          raw_chunk(7, RUNS, sevens, b"\x80\0" + runs[1:]))
bad_chunk("runs-length-long", "no number is longer than it needs to be", "longer",
          raw_chunk(7, RUNS, sevens, runs[:1] + b"\x82\0" + runs[2:]))
bad_chunk("runs-touch", "runs are apart", "touch", raw_chunk(7, RUNS, sevens, b"\0\2\0\3"))
bad_chunk("runs-less", "runs have count elements", "count is 7", raw_chunk(7, RUNS, sevens, runs[:-2]))
bad_chunk("runs-more", "runs have count elements", "count is 6", raw_chunk(6, RUNS, sevens[:-4], runs))
bad_chunk("runs-end-outside", "runs end inside the chunk", "outside", raw_chunk(7, RUNS, sevens, b"\x22\6"))
bad_chunk("runs-start-outside", "runs end inside the chunk", "outside", raw_chunk(1, RUNS, one, b"\x28\0"))
bad_chunk("runs-skip-far", "runs end inside the chunk", "outside", raw_chunk(1, RUNS, one, b"\xff\xff\xff\x7f\0"))
bad_chunk("runs-skip-2-64", "a number that overflows is none", "outside",
          raw_chunk(1, RUNS, one, b"\x80" * 9 + b"\2\0"))
bad_chunk("runs-length-2-64", "a number that overflows is none", "outside",
          raw_chunk(1, RUNS, one, b"\0" + b"\xff" * 9 + b"\1"))

bad_chunk("every-less", "mode 34 has count = m", "count 7", raw_chunk(7, EVERY, sevens, b""))
bad_chunk("every-index", "mode 34 has no indices", "index bytes", raw_chunk(40, EVERY, floats(range(40)), b"\0"))

# Places and signs.
turns = [0, 1, 1, 0, 0, 1, 0]  # of `some`
seven_signs = signed(1.5, turns)
scale = floats([1.5])
some_signed = placed(40, some, [-1.5 if turn else 1.5 for turn in turns])
in_8, in_16 = "adabins@10,weight=3+sign+adacomp8", "ef+adabins@10+sign@scale=meanmax+adacomp16"
PACKS = ((8, PLACES8, in_8), (16, PLACES16, in_16))


def good_places(name, about, chunk, values, recipe, **more):
    good(name, about, single(recipe, (len(values),), [chunk], **more), w=values)


for mode in (0, 2, BITMAP, RUNS):
    good_places(f"sign-{mode}", "a scale, then signs, then indices", write_chunk(mode, some, 40, seven_signs),
                some_signed, "topk@0.2+sign")
good_places("sign-34", "a scale and signs", write_chunk(EVERY, everywhere, 40, signed(-2, [1] + [0] * 39)),
            placed(40, everywhere, [2] + [-2] * 39), "threshold@0.5+sign")
good_places("sign-0-told", "count 0 has no scale", chunk_header(0, 0, 0), placed(40, [], []), "topk@0.2+sign")
good_places("sign-all", "a scale and signs of every element", signed(3, [0, 1, 0, 0, 1, 1, 0, 1, 1]),
            placed(9, range(9), [3, -3, 3, 3, -3, -3, 3, -3, -3]), "sign")
for bits, mode, recipe in PACKS:
    good_places(f"places{bits}", "header, scale, places with their signs",
                raw_chunk(7, mode, scale, write_places(some, turns, 10, mode)), some_signed, recipe)
    good_places(f"places{bits}-bitmap", "a bitmap although places are shorter",
                write_chunk(BITMAP, [3], 40, signed(1.5, [1])), placed(40, 3, -1.5), recipe)
    good_places(f"places{bits}-0", "count 0 has mode 0 and no scale", chunk_header(0, 0, 0), placed(40, [], []), recipe)
    good_places(f"places{bits}-same-place", "a place that is not larger is one of the next cell",
                raw_chunk(3, mode, scale, pack_places([(1, 4), (2, 4), (1, 3)], mode)),
                placed(40, [4, 14, 23], [1.5, -1.5, 1.5]), recipe)
    good_places(f"places{bits}-skip-needless", "a cell is skipped that the place alone would skip",
                raw_chunk(2, mode, scale, pack_places([(1, 4), (0, 0), (2, 2)], mode)),
                placed(40, [4, 12], [1.5, -1.5]), recipe)
    good_places(f"places{bits}-skips", "cells are skipped one by one",
                raw_chunk(1, mode, scale, pack_places([(0, 0), (0, 0), (0, 0), (2, 9)], mode)),
                placed(40, 39, -1.5), recipe)
    good_places(f"places{bits}-far", "as many cells as an entry can skip, and more",
                raw_chunk(2, mode, scale, write_places([9, CHUNK - 1], [1, 0], 3, mode)),
                placed(CHUNK, [9, CHUNK - 1], [-1.5, 1.5]), f"adabins@3+sign+adacomp{bits}")
    good_places(f"places{bits}-bin-1", "cells of one element",
                raw_chunk(2, mode, scale, pack_places([(1, 0), (2, 0)], mode)), placed(40, [0, 1], [1.5, -1.5]),
                f"adabins@1+sign+adacomp{bits}")
    largest = 64 if bits == 8 else 16384
    good_places(f"places{bits}-largest", "the largest place and the largest bin",
                raw_chunk(2, mode, scale, pack_places([(2, largest - 1), (1, largest - 1)], mode)),
                placed(2 * largest, [largest - 1, 2 * largest - 1], [-1.5, 1.5]),
                f"adabins@{largest}+sign+adacomp{bits}")
    good_places(f"places{bits}-bin-longer", "a cell longer than its chunk",
                raw_chunk(1, mode, scale, pack_places([(1, 4)], mode)), placed(5, 4, 1.5), recipe)
for name, bits in (("minus", 0xBFC00000), ("minus-0", 0x80000000), ("inf", 0x7F800000), ("nan", 0x7FA00001)):
    raw = struct.pack("<I", bits)
    quiet = bits | (0x400000 if name == "nan" else 0)
    good_places(f"scale-{name}", "a scale is any binary32", raw + b"\2",
                np.array([quiet, quiet ^ 0x80000000], "<u4"), "sign")
    good_places(f"scale-{name}-places", "a scale is any binary32",
                raw_chunk(2, PLACES8, raw, pack_places([(1, 0), (2, 1)], PLACES8)),
                np.array([quiet, quiet ^ 0x80000000], "<u4"), in_8)
good_places("scale-of-16", "a scale beyond fp16 of an fp16 tensor", signed(70000, [1, 0]),
            np.array([-65504, 65504], "<f2"), "sign", dtype=1)
good_places("scale-of-bf16", "a scale between two of bf16", floats([1.00390625]) + b"\2",
            np.array([0x3F80, 0xBF80], "<u2"), "sign", dtype=2)
good("scales-differ", "a reader does not check that the chunks of a unit have the same scale",
     single("adabins@50+sign+adacomp8", (SECOND,),
            [raw_chunk(1, PLACES8, floats([2]), pack_places([(1, 1)], PLACES8)),
             write_chunk(BITMAP, [0], 1, signed(3, [1]))]),
     w=placed(SECOND, [1, CHUNK], [2, -3]))

for bits, mode, recipe in PACKS:
    def bad_places(name, rule, reference, count, entries, n=40):
        chunk = raw_chunk(count, mode, scale, pack_places(entries, mode))
        bad_chunk(f"places{bits}-{name}", rule, reference, chunk, n, recipe)

    bad_places("code-3", "code 3 does not occur", "code 3", 1, [(3, 2)])
    bad_places("code-3-among", "code 3 does not occur", "code 3", 2, [(1, 2), (3, 4), (1, 5)])
    bad_places("skip-last", "the last entry is a value", "code 0", 1, [(1, 2), (0, 0)])
    bad_places("skip-alone", "the last entry is a value", "code 0", 1, [(0, 0)])
    bad_places("place-l", "places are below L", "outside its cell", 1, [(1, 10)])
    bad_places("place-l-among", "places are below L", "outside its cell", 2, [(2, 12), (1, 3)])
    bad_places("outside", "positions are below m", "outside its chunk", 1, [(1, 5)], n=5)
    bad_places("outside-last-cell", "positions are below m", "outside its chunk", 1, [(0, 2), (1, 8)], n=38)
    bad_places("outside-by-skip", "positions are below m", "outside its chunk", 1, [(0, 3), (1, 0)])
    bad_places("outside-by-place", "positions are below m", "outside its chunk", 5,
               [(1, 9), (1, 9), (2, 9), (1, 9), (1, 9)])
    bad_places("count-more", "count entries are values", "2 values where count is 3", 3, [(1, 2), (0, 0), (1, 3)])
    bad_places("count-less", "count entries are values", "2 values where count is 1", 1, [(1, 2), (1, 3)])
    bad_places("empty", "places have the bytes that they need", "no index bytes", 1, [])
    bad_chunk(f"places{bits}-count-0", "count 0 has mode 0", "count 0", chunk_header(0, mode, 0), 40, recipe)
    bad_chunk(f"places{bits}-no-scale", "the scale stands before the places", "frame ends",
              raw_chunk(4, mode, b"", pack_places([(1, 1), (1, 2), (1, 3), (1, 4)], mode)), 40, recipe)
    bad_chunk(f"places{bits}-scale-cut", "a scale is whole", "chunk's buckets",
              chunk_header(1, mode, bits // 8) + b"\0\0\0", 40, recipe)
    bad_chunk(f"places{bits}-cut", "places lie in the frame", "indices",
              chunk_header(2, mode, bits // 4) + scale + pack_places([(1, 1)], mode), 40, recipe)
    other = PLACES16 if bits == 8 else PLACES8
    for number, chunk in ((0, write_chunk(0, some, 40, seven_signs)), (3, write_chunk(3, some, 40, seven_signs)),
                          (RUNS, write_chunk(RUNS, some, 40, seven_signs)),
                          (EVERY, write_chunk(EVERY, everywhere, 40, signed(1, [0] * 40))),
                          (other, raw_chunk(7, other, scale, write_places(some, turns, 10, other)))):
        bad_chunk(f"adacomp{bits}-mode-{number}", f"index pack `adacomp{bits}` allows modes 32 and {mode}",
                  "does not allow", chunk, recipe=recipe)
bad_chunk("places16-half", "an entry of mode 36 is two bytes", "inside an entry",
          raw_chunk(1, PLACES16, scale, b"\1\x40\0"), recipe=in_16)
bad_chunk("places16-byte", "an entry of mode 36 is two bytes", "inside an entry",
          raw_chunk(1, PLACES16, scale, b"\x40"), recipe=in_16)
for mode in (PLACES8, PLACES16):
    places = write_places(some, turns, 10, mode)
    for name, recipe in (("gaps", "adabins@10+sign"), ("topk", "topk@0.2+sign")):
        bad_chunk(f"mode-{mode}-{name}", f"index pack `gaps` does not allow mode {mode}", f"mode {mode}",
                  raw_chunk(7, mode, scale, places), recipe=recipe)
    for name, recipe in (("fp32", "adabins@10+fp32"), ("topk-fp32", "topk@0.2+fp32")):
        bad_chunk(f"mode-{mode}-{name}", f"index pack `gaps` does not allow mode {mode}", f"mode {mode}",
                  raw_chunk(7, mode, b"", places), recipe=recipe)
    bad_chunk(f"mode-{mode}-bitmap", "index pack `bitmap` allows mode 32 alone", "does not allow",
              raw_chunk(7, mode, scale, places), recipe="adabins@10+sign+bitmap")
bad("places8-symbols", "symbols are among the places, and nowhere else", "longer than", "behind its last chunk",
    told(raw_chunk(7, PLACES8, scale, write_places(some, turns, 10, PLACES8)) + b"\0", in_8))

# Signs.
bad_chunk("sign-scale-cut", "a scale is whole", "chunk's buckets", chunk_header(1, 0, 1) + b"\0\0\0",
          recipe="topk@0.2+sign")
bad_chunk("sign-scale-none", "a chunk of signs has a scale", "frame ends", raw_chunk(7, 2, b"\0", write_rice(some, 2)),
          recipe="topk@0.2+sign")
bad_chunk("sign-symbols-cut", "a chunk has a sign for each value", "symbols", chunk_header(9, EVERY, 0) + scale + b"\0",
          9, "topk@0.2+sign")
bad_chunk("sign-all-scale-cut", "a scale is whole", "chunk's buckets", scale[:3], 3, "sign")
bad_chunk("sign-all-cut", "a chunk has a sign for each element", "symbols", scale + b"\0", 9, "sign")
bad("sign-all-none", "a chunk of signs has a scale", "longer than", "behind its last chunk",
    told(signed(1, [0] * 8) + b"\0", "sign", 8))
bad("sign-0-scale", "count 0 has no scale", "longer than", "behind its last chunk",
    told(chunk_header(0, 0, 0) + scale, "topk@0.2+sign"))
bad_chunk("sign-bit-behind", "bits behind the last are 0", "behind their last",
          raw_chunk(7, 2, scale + b"\x80", write_rice(some, 2)), recipe="topk@0.2+sign")
bad_chunk("sign-bit-behind-bitmap", "bits behind the last are 0", "behind their last",
          raw_chunk(7, BITMAP, scale + b"\xff", write_bitmap(some, 40)), recipe=in_8)
bad_chunk("sign-bit-behind-every", "bits behind the last are 0", "behind their last",
          raw_chunk(9, EVERY, scale + b"\xff\2", b""), 9, "topk@0.2+sign")
bad_chunk("sign-all-bit-behind", "bits behind the last are 0", "behind their last", scale + b"\x08", 3, "sign")
bad_chunk("sign-all-bit-behind-far", "bits behind the last are 0", "behind their last", scale + b"\0\x80", 9, "sign")

# Buckets and groups.
BUCKETS = (  # recipe, base, numbers of a bucket of 3, two buckets of them, what symbols mean in each
    ("bingrad-b", "bingrad@b,bucket=3", 2, [-1, 2, 5, 0.25], [[-1, 2], [5, 0.25]]),
    ("bingrad-pb", "bingrad@pb,bucket=3", 2, [1.5, -4], [[-1.5, 1.5], [4, -4]]),
    ("bingrad-zero", "bingrad@zero,bucket=3", 2, [-1, 2, 5, 0.25], [[-1, 2], [5, 0.25]]),
    ("orq-3", "orq@3,bucket=3", 3, [-1, 0.5, 7, 4, 3, 2], [[-1, 0.5, 7], [4, 3, 2]]),
    ("orq-5", "orq@5,bucket=3", 5, range(10), [range(5), range(5, 10)]),
    ("orq-17", "orq@17,bucket=3", 17, range(34), [range(17), range(17, 34)]),
    ("orq-4-exact", "orq@4,bucket=3,levels=exact", 4, range(8), [range(4), range(4, 8)]),
    ("linear-5", "linear@5,bucket=3", 5, [-1, 1, 8, 0], [[-1, -0.5, 0, 0.5, 1], [8, 6, 4, 2, 0]]),
    ("qsgd-4", "qsgd@4,bucket=3", 9, [4, -8], [range(-4, 5), range(8, -9, -2)]),
    ("ternary", "ternary@bucket=3", 3, [5, -2], [[-5, 0, 5], [2, -0.0, -2]]),
    ("natural", "natural", 512, [], [[2.0 ** (x - 127) if x else 0 for x in range(255)]] * 2),
)
for name, recipe, base, numbers, means in BUCKETS:
    symbols = [base // 2, len(means[0]) - 1, 0, 1, 0] if base < 512 else [128, 254, 0, 1, 120]
    symbols = [min(symbol, len(means[0]) - 1) for symbol in symbols]
    values = [float(means[i // 3][symbol]) for i, symbol in enumerate(symbols)]
    body, size = bucketed(numbers, symbols, base), 4 * len(numbers)
    good_places(f"buckets-{name}", "two buckets, one of them short", body, placed(5, range(5), values), recipe)
    good_places(f"buckets-{name}-told", "the same behind a header", raw_chunk(5, BITMAP, body, b"\x5d"),
                placed(8, [0, 2, 3, 4, 6], values), f"topk@0.5+{recipe}")
    bad_chunk(f"buckets-{name}-cut", "there is a symbol for each value", "symbols", body[:-1], 5, recipe)
    bad(f"buckets-{name}-long", "there is no more than a symbol for each value", "longer than",
        "behind its last chunk", told(body + b"\0", recipe, 5))
    if numbers:
        bad_chunk(f"buckets-{name}-numbers-cut", "each bucket has its numbers", "chunk's buckets", body[:size - 1], 5,
                  recipe)
        bad_chunk(f"buckets-{name}-numbers-few", "each bucket has its numbers", "frame ends",
                  floats(list(numbers)[:len(numbers) // 2]) + body[size:], 5, recipe)
        bad(f"buckets-{name}-numbers-many", "a bucket has no more numbers", "longer than", "behind its last chunk",
            told(floats([0]) + bucketed(numbers, [0] * 5, base), recipe, 5))
        bad_chunk(f"buckets-{name}-told-numbers-cut", "each bucket has its numbers", "chunk's buckets",
                  chunk_header(5, BITMAP, 1) + body[:size - 1], 8, f"topk@0.5+{recipe}")
        bad(f"buckets-{name}-0", "a chunk without values has no bucket", "longer than", "behind its last chunk",
            told(chunk_header(0, 0, 0) + floats([0] * (len(numbers) // 2)), f"topk@0.5+{recipe}", 8))
GROUPS = (("orq@3", 3), ("orq@5", 5), ("orq@6,levels=exact", 6), ("orq@9", 9), ("orq@17", 17), ("linear@100", 100),
          ("qsgd@50", 101), ("qsgd@255", 511), ("ternary", 3))
for recipe, base in GROUPS:
    each, bits = group_size(base)
    name = "group-" + recipe.partition(",")[0].replace("@", "-")
    ahead = floats([1] * {"orq": base, "lin": 2}.get(recipe[:3], 1))

    def of_groups(groups, count):
        return single(recipe, (count,), [ahead + pack_groups(groups, bits)])

    def bad_group(what, rule, reference, groups, count):
        bad(f"{name}-{what}", rule, "tensor 'w'", reference, of_groups(groups, count))

    large = base ** each
    bad_group("beyond", "a group is below base^k", "beyond its largest", [large], each)
    bad_group("largest", "a group is below base^k", "beyond its largest", [2 ** bits - 1], each)
    bad_group("beyond-among", "a group is below base^k", "beyond its largest", [0, large, 0], 3 * each)
    bad_group("beyond-last", "a group is below base^k", "beyond its largest", [0, large], each + 1)
    if each > 1:
        bad_group("too-many", "a group has 0 for symbols that it lacks", "a symbol too many", [base ** (each - 1)],
                  each - 1)
        bad_group("too-many-behind", "a group has 0 for symbols that it lacks", "a symbol too many", [0, base],
                  each + 1)
        bad_group("too-many-last", "a group has 0 for symbols that it lacks", "a symbol too many", [0, large - 1],
                  each + 1)
    if bits % 8:
        raw = bytearray(ahead + pack_groups([0] * 3, bits))
        for what, bit in (("behind", 3 * bits % 8), ("behind-last", 7)):
            raw[-1] = 1 << bit
            bad(f"{name}-{what}", "bits behind the last group are 0", "tensor 'w'", "behind their last",
                single(recipe, (3 * each,), [bytes(raw)]))
for what, byte in (("behind", 0x08), ("behind-last", 0x80)):
    bad_chunk(f"group-bingrad-{what}", "bits behind the last group are 0", "behind their last",
              floats([1, 2]) + bytes([byte]), 3, "bingrad@b")
    bad_chunk(f"group-natural-{what}", "bits behind the last group are 0", "behind their last",
              b"\0\0\0" + bytes([byte]), 3, "natural")
good_places("group-largest", "the largest groups that there are", bucketed([1], [2] * 7, 3),
            placed(7, range(7), 1), "ternary")
good_places("group-17", "eight symbols of base 17", bucketed(range(17), range(17), 17),
            placed(17, range(17), range(17)), "orq@17")
good_places("orq-half", "levels of binary16", struct.pack("<6e", -1, 0.5, 7, 65504, 2 ** -24, 2) +
            write_groups([2, 0, 0, 1], 3), placed(4, range(4), [7, -1, 65504, 2 ** -24]), "orq@3,bucket=2,half=yes")
bad_chunk("orq-half-cut", "levels of binary16 have two bytes", "symbols",
          struct.pack("<3e", 1, 2, 3), 4, "orq@3,half=yes")
bad("orq-half-long", "levels of binary16 have two bytes", "longer than", "behind its last chunk",
    told(floats([1, 2, 3]) + b"\0", "orq@3,half=yes", 4))
good_places("linear-64-bits", "a value is computed in binary64 and rounded once",
            bucketed([0.1, 0.7], [0, 1, 2, 3], 4),
            (np.float64(np.float32(0.1)) + (np.float64(np.float32(0.7)) - np.float32(0.1)) * (np.arange(4) / 3))
            .astype("<f4"), "linear@4")
good_places("linear-largest", "distances beyond binary32", bucketed([-3e38, 3e38], [0, 1, 2], 3),
            placed(3, range(3), np.array([-3e38, 0, 3e38], "<f4")), "linear@3")
good_places("linear-turned", "levels may descend", bucketed([1, -1], [0, 1, 2], 3), placed(3, range(3), [1, 0, -1]),
            "linear@3")
good_places("qsgd-64-bits", "a value is computed in binary64 and rounded once", bucketed([1 / 3], range(7), 7),
            (np.float64(np.float32(1 / 3)) * (np.arange(-3, 4) / 3)).astype("<f4"), "qsgd@3")
good_places("ternary-minus", "a negative number: of 0 comes -0", bucketed([-1], [0, 1, 2], 3),
            np.array([0x3F800000, 0x80000000, 0xBF800000], "<u4"), "ternary")
good_places("ternary-0", "a number of 0: of -m comes -0", bucketed([0], [0, 1, 2], 3),
            np.array([0x80000000, 0, 0], "<u4"), "ternary")
good_places("natural-specials", "every sign and exponent that is special",
            write_groups([0, 256, 255, 511, 1, 257, 254, 510], 512),
            np.array([0, 1 << 31, 0x7F800000, 0xFF800000, 0x00800000, 0x80800000, 0x7F000000, 0xFF000000], "<u4"),
            "natural")
for name, bits in (("minus-0", 0x80000000), ("inf", 0x7F800000), ("nan", 0x7FA00001), ("denormal", 1)):
    raw, quiet = struct.pack("<I", bits), bits | (0x400000 if name == "nan" else 0)
    for recipe, numbers, other in (("bingrad@b", raw * 2, quiet), ("bingrad@pb", raw, quiet ^ 0x80000000),
                                   ("orq@2,levels=exact", raw * 2, quiet)):
        good_places(f"numbers-{name}-{recipe[:9].replace('@', '-')}", "a number is any binary32", numbers + b"\2",
                    np.array([other, quiet], "<u4"), recipe)
good_places("natural-buckets", "a bucket of 4096 has no numbers", write_groups([130] * 5000, 512),
            placed(5000, range(5000), 8), "natural")
good("buckets-chunks", "buckets start anew in each chunk",
     single("ternary@bucket=65536", (CHUNK + 3,), [bucketed(range(1, 5), [2] * CHUNK, 3), bucketed([9], [2, 0, 1], 3)]),
     w=placed(CHUNK + 3, range(CHUNK + 3), [*np.repeat([1, 2, 3, 4], 65536), 9, -9, 0]))
good_places("buckets-of-16", "values beyond fp16 of an fp16 tensor", bucketed([70000], [0, 1, 2], 3),
            np.array([-65504, 0, 65504], "<f2"), "ternary", dtype=1)
good_places("buckets-of-bf16", "values between two of bf16", bucketed([1.00390625], [0, 1, 2], 3),
            np.array([0xBF80, 0, 0x3F80], "<u2"), "ternary", dtype=2)

# Tiny floats.
TINY = (("fp4", "fp4", 11, meaning.tiny_values(2, 1, 1)), ("fp8", "fp8@e5m2", 247, meaning.tiny_values(5, 2, 15)),
        ("fp8-e4m3", "fp8@e4m3", 239, meaning.tiny_values(4, 3, 10)))
for name, recipe, base, values in TINY:
    every = list(range(base))

    def of_step(step):
        largest = float(np.finfo("<f4").max)
        return np.clip(values * float(np.float32(step)), -largest, largest).astype("<f4")

    for what, step in (("1", 1), ("third", 1 / 3), ("0", 0), ("minus", -1.5), ("denormal", 1e-44), ("largest", 3e38)):
        good_places(f"{name}-{what}", "every value of the format, times a step",
                    fitted(step) + write_groups(every, base), of_step(step), recipe)
    good_places(f"{name}-inf", "a step of Inf", fitted(np.inf) + write_groups([0, 1, base - 1], base),
                placed(3, range(3), [-np.inf, -np.inf, np.inf]), recipe)
    good_places(f"{name}-row", "a row that is not in the table, where no code is taken from it",
                fitted(1, 255) + write_groups(every, base), of_step(1), recipe)
    good_places(f"{name}-told", "step and row stand behind the header",
                raw_chunk(2, BITMAP, fitted(2, 7) + write_groups([0, base - 2], base), b"\x14"),
                placed(5, [2, 4], 2 * values[[0, base - 2]]), f"topk@0.5+{recipe}")
    good_places(f"{name}-of-16", "values beyond fp16 of an fp16 tensor",
                fitted(1e6) + write_groups([0, base // 2, base - 1], base), np.array([-65504, 0, 65504], "<f2"), recipe,
                dtype=1)
    body = fitted(1) + write_groups(every, base)
    bad_chunk(f"{name}-cut", "there is a symbol for each value", "symbols", body[:-1], base, recipe)
    bad(f"{name}-long", "there is no more than a symbol for each value", "longer than", "behind its last chunk",
        told(body + b"\0", recipe, base))
    bad_chunk(f"{name}-numbers-cut", "step and row are whole", "chunk's buckets", body[:4], 1, recipe)
    bad_chunk(f"{name}-row-none", "step and row are whole", "symbols", body[:4] + body[5:], base, recipe)
    each, bits = group_size(base)
    bad_chunk(f"{name}-beyond", "a group is below base^k", "beyond its largest",
              fitted(1) + pack_groups([base ** each], bits), each, recipe)
    bad(f"{name}-0-numbers", "a chunk without values has no bucket", "longer than", "behind its last chunk",
        told(chunk_header(0, 0, 0) + fitted(1), f"topk@0.5+{recipe}", 8))

# Symbols that are coded: what all packs have in common.
N = 400  # values, so that codes are shorter than the plain form
trits = [0 if i % 29 == 3 else 2 if i % 17 == 5 else 1 for i in range(N)]  # of ternary: most are 0
ones = placed(N, range(N), [trit - 1 for trit in trits])
trits_plain = write_groups(trits, 3)
halfs_in = [0x3C00 + i % 3 for i in range(N)]  # of fp16
halfs_out = np.array(halfs_in, "<u2").view("<f2").astype("<f4")
halfs_plain = np.array(halfs_in, "<u2").tobytes()
CODED = (  # name, recipe, numbers, plain form, a form of its own, forms that there are not, what it means
    ("huffman", "ternary+huffman@counts", floats([1]), trits_plain, prefixed(trits, [2, 1, 2]), (3, 4, 5, 16, 255), ones),
    ("rans", "ternary+rans", floats([1]), trits_plain, ranged(trits, 3),
     (1, 4, 16, 127, 0x70, 0xA1, 0xA3, 0xA6, 0xA7, 0xA8, 0xAF, 0xF0, 0xF2, 255), ones),
    ("lossless", "fp16+lossless", b"", halfs_plain, lossless(halfs_in, 2),
     (1, 4, 16, 127, 0x70, 0xA1, 0xA3, 0xA6, 0xA7, 0xA8, 0xAF, 0xF0, 0xF2, 255), halfs_out),
    ("zstd", "ternary+zstd@3", floats([1]), trits_plain, b"\1" + zstd_frame((1, N)), (2, 4, 255), placed(N, [], [])),
    ("zstd-words", "fp16+zstd@3", b"", halfs_plain, b"\1" + zstd_frame((0, 2 * N)), (2, 4, 255), placed(N, [], [])),
)


def bad_coded(name, rule, reference, body, recipe, numbers=b"", n=N, coded_len=None):
    bad_chunk(name, rule, reference, coded(body, numbers, coded_len), n, recipe)


for name, recipe, numbers, plain_form, form, unknown, means in CODED:
    plainly, size = b"\0" + plain_form, len(plain_form)
    values = halfs_out if plain_form is halfs_plain else ones
    good_places(f"coded-{name}", "a form of its own", coded(form, numbers), means, recipe)
    good_places(f"coded-{name}-plain", "the plain form", coded(plainly, numbers), values, recipe)
    good_places(f"coded-{name}-told", "coded_len stands behind index_len",
                raw_chunk(N, BITMAP, coded(form, numbers), b"\xff" * 50 + b"\0"),
                np.concatenate([means, np.zeros(3, "<f4")]), f"topk@0.5+{recipe}")
    good_places(f"coded-{name}-none", "a chunk of count 0 has a coded_len of 0", chunk_header(0, 0, 0) + coded(b""),
                placed(9, [], []), f"topk@0.5+{recipe}")
    good_places(f"coded-{name}-drawn", "at coordinates that are drawn", coded(plainly, numbers), values,
                f"randomblock@1,coords=shared+{recipe}", seed=7)

    def refused(what, rule, reference, body, coded_len=None):
        bad_coded(f"coded-{name}-{what}", rule, reference, body, recipe, numbers, N, coded_len)

    refused("len-0", "coded_len is at least 1", "coded_len of 0", b"")
    bad(f"coded-{name}-len-0-form", "coded_len is at least 1", "longer than", "coded_len of 0",
        told(coded(form, numbers, 0), recipe, N))
    refused("plain-long", "coded_len is at most 1 more than the plain form", f"coded_len of {size + 2}",
            plainly + b"\0")
    refused("len-largest", "coded_len is at most 1 more than the plain form", "coded_len of 4294967295", form,
            2 ** 32 - 1)
    refused("len-beyond", "coded bytes lie in the frame", "symbols", form, len(form) + 1)
    refused("plain-short", "the plain form is whole", "plain form", plainly[:-1])
    refused("plain-alone", "the plain form is whole", "plain form", b"\0")
    refused("form-alone", "something follows a form", "", form[:1])
    for number in unknown:
        refused(f"form-{number}", f"there is no form {number}", f"unknown form {number}",
                bytes([number]) + form[1:])
    bad(f"coded-{name}-len-cut", "coded_len is whole", "too short for the headers", "header",
        told(coded(form, numbers)[:3], recipe, N))
    bad_chunk(f"coded-{name}-len-none", "coded symbols have a coded_len", "", numbers + form, N, recipe)
    bad(f"coded-{name}-none-none", "a chunk of count 0 has a coded_len", "too short for the headers", "header",
        told(chunk_header(0, 0, 0), f"topk@0.5+{recipe}", 9))
    bad_chunk(f"coded-{name}-none-len", "a chunk of count 0 has a coded_len of 0", "without values",
              chunk_header(0, 0, 0) + coded(b"\0"), 9, f"topk@0.5+{recipe}")
    if numbers:
        first = numbers + struct.pack("<I", len(form)) + form
        bad_chunk(f"coded-{name}-numbers-first", "numbers stand behind coded_len", "coded_len", first, N, recipe)
        raw = bytearray(plainly)
        raw[1] = 255
        refused("plain-beyond", "a group is below base^k", "beyond its largest", bytes(raw))
bad("rans-floats-coded", "rans leaves symbols of fp16 as they are", "longer than", "behind its last chunk",
    told(raw_chunk(4, BITMAP, coded(b"\0" + bytes(8)), b"\x0f"), "topk@0.5+fp16+rans", 8))
good_places("rans-floats", "rans leaves symbols of fp16 as they are",
            raw_chunk(4, BITMAP, halfs_plain[:8], b"\x0f"), placed(8, range(4), halfs_out[:4]), "topk@0.5+fp16+rans")
good_places("rans-floats-drawn", "rans has nothing to do here", halfs_plain[:8], halfs_out[:4],
            "randomk@1,coords=shared+fp16+rans", seed=7)
good("coded-chunks", "each chunk has a form of its own",
     single("sign+rans", (2 * CHUNK + 5,),
            [coded(ranged([0] * CHUNK, 2, 8, 1, [256, 0]), floats([1])),
             coded(ranged([1] * CHUNK, 2, 14, 1, [0, 1 << 14]), floats([2])), coded(b"\0\x12", floats([3]))]),
     w=placed(2 * CHUNK + 5, range(2 * CHUNK + 5), [*np.repeat([1, -2], CHUNK), 3, -3, 3, 3, -3]))

# Prefix codes.
of_trits, first_lengths = "ternary+huffman@counts", write_lengths([2, 1, 2])


def prefix(lengths, stream):
    return b"\1" + write_lengths(lengths) + stream


def bad_prefix(name, rule, reference, body, recipe=of_trits, numbers=floats([1]), n=N):
    bad_coded(f"prefix-{name}", rule, reference, body, recipe, numbers, n)


stream = write_codes(trits, [2, 1, 2])
for number, lengths in enumerate(([0, 2, 2], [3, 1, 3], [12, 12, 1], [2, 2, 2], [12, 0, 0])):
    bad_prefix(f"not-full-{number}", "codes are full", "not full", prefix(lengths, stream))
bad_prefix("empty", "codes are full", "not full", prefix([0, 0, 0], stream))
bad_prefix("single", "codes are full, also where one symbol occurs", "not full", prefix([0, 1, 0], bytes(50)))
bad_prefix("over-full", "codes are not more than full", "more codes", prefix([1, 1, 1], stream))
bad_prefix("over-full-2", "codes are not more than full", "more codes", prefix([2, 1, 1], stream))
for length in (13, 14, 15):
    bad_prefix(f"length-{length}", "lengths are at most 12", "above 12", prefix([length, 1, 2], stream))
bad_prefix("half", "a half byte that is left over is 0", "half byte", b"\1" + bytes([0x12, 0x12]) + stream)
bad_prefix("lengths-cut", "lengths are whole", "inside the lengths", b"\1" + first_lengths[:1])
bad_prefix("lengths-alone", "there is a code for each symbol", "past its bytes", prefix([2, 1, 2], b""))
bad_prefix("short", "there is a code for each symbol", "past its bytes", prefix([2, 1, 2], stream[:-1]))
bad_prefix("long", "no whole byte is left over", "more bytes", prefix([2, 1, 2], stream + b"\0"))
bad_prefix("long-set", "no whole byte is left over", "more bytes", prefix([2, 1, 2], stream + b"\xff"))
assert not stream[-1] >> 7
bad_prefix("behind", "bits behind the last are 0", "behind its last",
           prefix([2, 1, 2], stream[:-1] + bytes([stream[-1] | 0x80])))
bad_prefix("code-cut", "the last code is whole", "past its bytes", prefix([2, 1, 2], bytes(50) + b"\x80"), n=N + 8)
bad_prefix("symbol-more", "a code has a symbol for each value", "past its bytes",
           prefix([2, 1, 2], write_codes([1] * N, [2, 1, 2])), n=N + 1)
bad_prefix("symbol-less", "a code has no more symbols", "more bytes",
           prefix([2, 1, 2], write_codes([1] * (N + 8), [2, 1, 2])))
long_lengths = [12, 12, *range(11, 0, -1), 0, 0, 0, 0]
deep = [0, 1, 11, 12, 2, 0] + [12] * 394
good_places("prefix-long", "codes of one bit and of twelve", coded(prefixed(deep, long_lengths), floats(range(17))),
            placed(N, range(N), deep), "orq@17+huffman@counts")
good_places("prefix-two", "one symbol occurs, and another has a code", coded(prefixed([1] * N, [1, 1, 0]), floats([1])),
            placed(N, [], []), of_trits)
sixteens = [i % 16 for i in range(2048)]
good_places("prefix-flat", "codes of one length", coded(prefixed(sixteens, [4] * 16 + [0]), floats(range(17))),
            placed(2048, range(2048), sixteens), "orq@17+huffman@counts")

with open(meaning.SHAPES, encoding="ascii", newline="") as file:
    SHAPES = list(csv.DictReader(file))
MANY = 8192
for (name, recipe, base, values), column in zip(TINY, ("fp4", "fp8", "fp8e4m3")):
    modelled = f"{recipe}+huffman@model"
    for row in (0, len(SHAPES) // 2, len(SHAPES) - 1):
        lengths = [int(digit, 16) for digit in SHAPES[row][column + "_lengths"]]
        usual = sorted(range(base), key=lambda x: lengths[x])[:4 if base == 11 else 30]
        symbols = [usual[i * i % 41 % len(usual)] for i in range(N)]
        good_places(f"{name}-model-{row}", "a code from the table",
                    coded(b"\2" + write_codes(symbols, lengths), fitted(0.5, row)),
                    placed(N, range(N), values[symbols] / 2), modelled)
    stream, last = write_codes(symbols, lengths), fitted(1, row)
    good_places(f"{name}-model-plain", "the plain form although there is a table, and a row that is not in it",
                coded(b"\0" + write_groups(symbols, base), fitted(1, 255)), placed(N, range(N), values[symbols]),
                modelled)
    own = [0] * (base - 2) + [1, 1]
    largest = [base - 1 - i % 2 for i in range(5 * N)]
    good_places(f"{name}-model-own", "a code of its own although there is a table, and a row that is not in it",
                coded(prefixed(largest, own), fitted(1, 255)), placed(5 * N, range(5 * N), values[largest]), modelled)
    for beyond in (len(SHAPES), 255):
        bad_prefix(f"{name}-row-{beyond}", "a code is taken from a row that there is", f"row {beyond}",
                   b"\2" + stream, modelled, fitted(1, beyond))
    bad_prefix(f"{name}-no-model", "form 2 needs table=model", "recipe does not", b"\2" + stream,
               f"{recipe}+huffman@counts", last)
    bad_prefix(f"{name}-model-short", "there is a code for each symbol", "past its bytes", b"\2" + stream[:-1],
               modelled, last)
    bad_prefix(f"{name}-model-long", "no whole byte is left over", "more bytes", b"\2" + stream + b"\0", modelled, last)
    more = [symbols[i % N] for i in range(MANY + 1)]
    good_places(f"{name}-model-streams", "a code from the table, many streams",
                coded(b"\2" + write_streams(more, lengths), fitted(2, row)),
                placed(MANY + 1, range(MANY + 1), 2 * values[more]), modelled)
    bad_prefix(f"{name}-streams-row", "a code is taken from a row that there is", f"row {len(SHAPES)}",
               b"\2" + write_streams(more, lengths), modelled, fitted(1, len(SHAPES)), MANY + 1)
bad_prefix("sign-no-model", "form 2 needs table=model", "recipe does not", b"\2" + bytes(20), "sign+huffman@counts")

for n in (1023, 1024, 1025, 2047, 2048, 2049, 4096, 5121, MANY + 3):
    many = [trits[i % N] for i in range(n)]
    means = placed(n, range(n), [trit - 1 for trit in many])
    good_places(f"prefix-streams-{n}", "streams of 1024 symbols, the last of which may have fewer",
                coded(prefixed(many, [2, 1, 2]), floats([1] * -(-n // 2048))), means, of_trits)
streams = streams_of(many, [2, 1, 2])


def bad_streams(name, rule, reference, streams, sizes=None, n=MANY + 3, cut=None):
    sizes = [len(stream) for stream in streams[:-1]] if sizes is None else sizes
    raw = b"".join(struct.pack("<H", size) for size in sizes) + b"".join(streams)
    bad_prefix(f"streams-{name}", rule, reference, b"\1" + first_lengths + raw[:cut], numbers=floats([1] * 5), n=n)


def with_stream(number, raw):
    return streams[:number] + [raw] + streams[number + 1:]


sizes = [len(stream) for stream in streams[:-1]]
bad_prefix("streams-none", "the lengths of streams are there", "prefix code ends", b"\1" + first_lengths, n=MANY + 3,
           numbers=floats([1] * 5))
bad_streams("sizes-cut", "the lengths of streams are whole", "prefix code ends", streams, cut=2 * len(sizes) - 1)
bad_streams("one", "streams have 1024 symbols", "", [write_codes(many, [2, 1, 2])], [])
bad_streams("few", "there are as many streams as symbols need", "", streams[:-1])
bad_streams("more", "there are no more streams than symbols need", "", streams + [streams[-1]])
for number in (0, 3, len(sizes) - 1):
    bad_streams(f"beyond-{number}", "streams lie in the chunk", "prefix code ends", streams,
                [65535 if i == number else size for i, size in enumerate(sizes)])
    bad_streams(f"short-{number}", "each stream has its codes", "", streams,
                [size - (i == number) for i, size in enumerate(sizes)])
    bad_streams(f"long-{number}", "each stream has its codes alone", "more bytes",
                with_stream(number, streams[number] + b"\0"))
    bad_streams(f"none-{number}", "each stream has its codes", "past its bytes", with_stream(number, b""))
    bad_streams(f"swapped-{number}", "each stream has its codes", "",
                streams, [size + (i == number) - (i == number - 1) for i, size in enumerate(sizes)])
bad_streams("last-short", "the last stream has its codes", "past its bytes", streams[:-1] + [streams[-1][:-1]])
bad_streams("last-long", "the last stream has its codes alone", "more bytes", streams[:-1] + [streams[-1] + b"\0"])
bad_streams("last-none", "the last stream has its codes", "past its bytes", streams[:-1] + [b""])
for number, stream in enumerate(streams):
    if sum([2, 1, 2][trit] for trit in many[1024 * number:1024 * number + 1024]) % 8:
        bad_streams(f"behind-{number}", "bits behind the last are 0", "behind its last",
                    with_stream(number, stream[:-1] + bytes([stream[-1] | 0x80])))

# Range codes.
in_range = "ternary+rans"


def bad_range(name, rule, reference, body, n=N, recipe=in_range, numbers=floats([1])):
    bad_coded(f"range-{name}", rule, reference, body, recipe, numbers, n)


for bits in range(8, 15):
    for states, segments in ((1, 1), (4, 1), (16, 1), (32, 1), (32, 2), (32, 3), (32, 7)):
        n = 900 if states == 1 else 5 * N if segments < 7 else 20 * N
        body = ranged([trits[i % N] for i in range(n)], 3, bits, states, segments=segments)
        name = f"range-{bits}-{states}" + (f"-{segments}" if segments > 1 else "")
        good_places(name, "every precision and number of states", coded(body, floats([1] * -(-n // 2048))),
                    np.tile(ones, 20)[:n], in_range)
shared = [200, 3600, 296]
good_places("range-last", "the last symbol has all", coded(ranged([2] * 700, 3, 8, 1, [0, 0, 256]), floats([1])),
            placed(700, range(700), 1), in_range)
good_places("range-one", "one symbol has all: nothing follows", coded(ranged([1] * N, 3, 14, 1, [0, 1 << 14, 0]),
                                                                    floats([1])), placed(N, [], []), in_range)
good_places("range-unlike", "frequencies that are not those of the symbols",
            coded(ranged(trits, 3, 12, 1, [1000, 2000, 1096]), floats([1])), ones, in_range)
good_places("range-rare", "symbols of frequency 1", coded(ranged([1] * 399 + [0], 3, 14, 1, [1, (1 << 14) - 2, 1]),
                                                        floats([1])), placed(N, N - 1, -1), in_range)
good_places("range-unused", "a frequency for a symbol that does not occur",
            coded(ranged([1] * N, 3, 12, 4, [96, 3900, 100]), floats([1])), placed(N, [], []), in_range)
for states, segments, n in ((1, 1, 1024), (4, 1, 4096), (16, 1, 16384), (32, 1, 32768), (32, 2, 65536)):
    few = [trits[i % N] for i in range(n)]
    good_places(f"range-most-{n}", "as many symbols as states may take",
                coded(ranged(few, 3, 12, states, shared, segments), floats([1] * -(-n // 2048))),
                placed(n, range(n), [trit - 1 for trit in few]), in_range)
    bad_coded(f"range-beyond-{n}", "a state takes 1024 symbols at most", "symbols",
              ranged(few + [1], 3, 12, states, shared, segments), in_range, floats([1] * -(-(n + 1) // 2048)), n + 1)
powers = [127 + (i % 9 == 1) for i in range(N)]
good_places("range-512", "a base of 512", coded(ranged(powers, 512)),
            placed(N, range(N), [2.0 ** (x - 127) for x in powers]), "natural+rans")
good_places("range-sign", "a base of 2", coded(ranged([int(i % 50 == 7) for i in range(N)], 2), floats([1])),
            placed(N, range(N), [-1 if i % 50 == 7 else 1 for i in range(N)]), "sign+rans")

table = write_frequencies(shared)
ahead = range_form(12, 1) + table
x, words = range_of(trits, shared, 12)
bad_range("frequencies-more", "frequencies add up to 2^B", "leave nothing",
          range_form(12, 1) + write_frequencies([3600, 700, 1]) + pack_segment(x, words))
bad_range("frequencies-all", "the last symbol has a frequency", "leave nothing",
          range_form(12, 1) + write_frequencies([3600, 496, 1]) + pack_segment(x, words))
bad_range("frequency-more", "frequencies add up to 2^B", "leave nothing",
          range_form(12, 1) + write_frequencies([4097, 0, 1]) + pack_segment(x, words))
bad_range("frequency-far", "a frequency has no more than 14 bits", "above the sum",
          range_form(12, 1) + write_frequencies([40000, 0, 1]) + pack_segment(x, words))
bad_range("frequencies-none", "frequencies are there", "first symbol", range_form(12, 1))
bad_range("frequencies-no-last", "the last symbol is there", "last symbol", range_form(12, 1) + b"\0")
bad_range("frequencies-no-sizes", "the sizes of frequencies are there", "inside its sizes", range_form(12, 1) + b"\0\2")
bad_range("frequencies-cut", "frequencies are whole", "inside its frequencies", ahead[:-1])
bad_range("frequencies-cut-512", "frequencies are whole", "inside its sizes",
          range_form(12, 1) + struct.pack("<HH", 0, 511) + bytes(60), recipe="natural+rans", numbers=b"")
bad_range("frequencies-backward", "the first symbol is not behind the last", "of symbols 2 to 0",
          range_form(12, 1) + write_frequencies(shared, 2, 0) + pack_segment(x, words))
bad_range("frequencies-beyond", "the last symbol is below the base", "of symbols 0 to 3",
          range_form(12, 1) + write_frequencies(shared + [1]) + pack_segment(x, words))
bad_range("frequencies-first", "the first symbol has a frequency", "no frequency",
          range_form(12, 1) + write_frequencies([0, 3600, 496], 0) +
          pack_segment(*range_of([1] * 390 + [2] * 10, [0, 3600, 496], 12)))
bad_range("frequencies-half", "a half byte that is left over is 0", "half byte", range_form(12, 1) + b"\1\2\x1b" + bytes(2) +
          pack_segment(x, words))
raw = bytearray(ahead)
assert not raw[-1] >> 7
raw[-1] |= 0x80
bad_range("frequencies-behind", "bits behind the last frequency are 0", "behind their last",
          bytes(raw) + pack_segment(x, words))
bad_range("one-more", "nothing follows where one symbol has all", "behind its frequency", range_form(12, 1) + b"\1\1\0")
bad_range("one-states", "nothing follows where one symbol has all", "behind its frequency",
          range_form(12, 1) + b"\1\1" + pack_segment([2 << 12]))
for states in (4, 16, 32):
    bad_range(f"one-{states}", "L is 0 where one symbol has all", "more than one state", range_form(12, states) + b"\1\1")
bad_range("state-0", "a state is at least 1", "state of 0", ahead + pack_segment([0], words))
bad_range("states-cut", "states are whole", "inside its states", ahead + pack_segment(x)[:1])
bad_range("states-none", "states are there", "inside its states", ahead)
bad_range("states-few", "there are as many states as the form says", "", range_form(12, 4) + table +
          pack_segment(x, words))
bad_range("states-many", "there are as many states as the form says", "", ahead +
          pack_segment(*range_of(trits, shared, 12, 4)))
bad_range("states-lack", "states take words before the first symbol", "lacks a word", range_form(12, 4) + table +
          pack_segment([1, 1, 1, 1], [5, 6, 7]))
bad_range("odd", "words are whole", "inside a word", ahead + pack_segment(x, words) + b"\0")
bad_range("odd-cut", "words are whole", "inside a word", ahead + pack_segment(x, words)[:-1])
bad_range("word-missing", "there are words for all states", "lacks a word", ahead + pack_segment(x, words[:-1]))
bad_range("words-missing", "there are words for all states", "lacks a word", ahead + pack_segment(x))
bad_range("word-more", "no word is left over", "left over", ahead + pack_segment(x, words + [0]))
bad_range("end", "every state ends in 2^(B+1)", "does not end",
          ahead + pack_segment(*range_of(trits, shared, 12, ends=[(2 << 12) + 1])))
bad_range("end-large", "every state ends in 2^(B+1)", "does not end",
          ahead + pack_segment(*range_of(trits, shared, 12, ends=[(2 << 28) - 1])))
x, words = range_of(trits, shared, 12, 4)
for last in (0, 3):
    ends = [(2 << 12) + (i == last) for i in range(4)]
    bad_range(f"end-of-{last}", "every state ends in 2^(B+1)", "does not end",
              range_form(12, 4) + table + pack_segment(*range_of(trits, shared, 12, 4, ends)))
bad_range("count-more", "a code has a symbol for each value", "", ahead + pack_segment(*range_of(trits, shared, 12)),
          n=N + 1)
bad_range("count-less", "a code has no more symbols", "", ahead + pack_segment(*range_of(trits, shared, 12)), n=N - 1)
bad_range("swapped", "words stand in the order in which they are taken", "", range_form(12, 4) + table +
          pack_segment(x, words[::-1]))

# Segments.
several, MORE = range_form(12, 32) + table, 20 * N
some_trits = [trits[i % N] for i in range(MORE)]
segments = segments_of(some_trits, shared, 12, 32, 3)


def bad_segments(name, rule, reference, parts, number=None, sizes=None, cut=None):
    sizes = [len(words) for _, words in parts[:-1]] if sizes is None else sizes
    number = len(parts) if number is None else number
    raw = bytes([number - 1]) + pack_segment(sizes) + b"".join(pack_segment(*part) for part in parts)
    bad_range(f"segments-{name}", rule, reference, several + raw[:cut], MORE, numbers=floats([1] * 4))


sizes = [len(words) for _, words in segments[:-1]]
bad_segments("none", "the number of segments is there", "number of its segments", segments, cut=0)
bad_segments("sizes-none", "the lengths of segments are there", "lengths of its segments", segments, cut=1)
bad_segments("sizes-cut", "the lengths of segments are whole", "lengths of its segments", segments, cut=4)
bad_segments("empty", "segments lie in the chunk", "inside a segment", segments, cut=5)
bad_segments("few", "there are as many segments as their number says", "", segments, 2, sizes[:1])
bad_segments("many", "there are as many segments as their number says", "", segments, 4, sizes + [0])
bad_segments("most", "no segment is empty", "in 256 segments", segments, 256, sizes + [0] * 253, 1400)
bad_segments("no-symbols", "no segment is empty", "in 64 segments", segments, 64, sizes + [0] * 61)
for which in (0, 1):
    bad_segments(f"beyond-{which}", "segments lie in the chunk", "inside a segment", segments,
                 sizes=[65535 if i == which else size for i, size in enumerate(sizes)])
    bad_segments(f"short-{which}", "a segment has its words", "", segments,
                 sizes=[size - (i == which) for i, size in enumerate(sizes)])
    bad_segments(f"long-{which}", "a segment has its words alone", "", segments,
                 sizes=[size + (i == which) for i, size in enumerate(sizes)])
bad_segments("states-cut", "the states of the last segment are whole", "inside its states", segments[:2] + [([1] * 31, [])])
for which in range(3):
    held, words = segments[which]

    def with_segment(*part):
        return segments[:which] + [part] + segments[which + 1:]

    bad_segments(f"word-more-{which}", "no word is left over", "left over", with_segment(held, words + [0]))
    bad_segments(f"word-missing-{which}", "there are words for all states", "lacks a word", with_segment(held, words[:-1]))
    bad_segments(f"state-0-{which}", "a state is at least 1", "state of 0", with_segment(held[:31] + [0], words))
    ends = [(2 << 12) + (i == 31) for i in range(32)]
    each = -(-MORE // 3 // 32) * 32
    part = range_of(some_trits[which * each:(which + 1) * each], shared, 12, 32, ends)
    bad_segments(f"end-{which}", "every state ends in 2^(B+1)", "does not end", with_segment(*part))
bad_segments("swapped", "segments stand in their order", "", [segments[2], *segments[:2]])

# Floats of which nothing is lost.
DTYPE_WORDS = (("fp32", 4, "<u4"), ("fp16", 2, "<u2"), ("bf16", 2, "<u2"))
for name, width, kind in DTYPE_WORDS:
    top = {"fp32": 0x3F800000, "fp16": 0x3C00, "bf16": 0x3F80}[name]
    sign_bit = 1 << 8 * width - 1
    words = [(top + 3 * (i % 5)) ^ (sign_bit if i % 3 == 1 else 0) for i in range(600)] + [0, sign_bit, 1, top - 1]
    means = np.array(words, kind)
    means = (means.view("<f4") if name == "fp32" else means.view("<f2").astype("<f4") if name == "fp16" else
             (means.astype("<u4") << 16).view("<f4"))
    recipe = f"{name}+lossless"
    for states in (1, 4, 16, 32):
        good_places(f"lossless-{name}-{states}", "signs among the lower bytes, exponents by a range code",
                    coded(lossless(words, width, 12, states)), means, recipe)
    good_places(f"lossless-{name}-segments", "several segments", coded(lossless(words, width, 12, 32, 4)), means, recipe)
    good_places(f"lossless-{name}-of-16", "an fp16 tensor", coded(lossless(words[:600], width, 8)),
                means[:600].astype("<f2"), recipe, dtype=1)
    good_places(f"lossless-{name}-of-bf16", "a bf16 tensor", coded(lossless(words[:600], width, 8)),
                (meaning.to_bf16(means[:600]).view("<u4") >> 16).astype("<u2"), recipe, dtype=2)
    lower, upper = turned_left(words, width)
    code = ranged(upper, 256)

    def bad_words(what, rule, reference, body):
        bad_coded(f"lossless-{name}-{what}", rule, reference, body, recipe, n=len(words))

    bad_words("lower-cut", "lower bytes are whole", "inside the lower bytes", code[:1] + lower[:-1])
    bad_words("lower-alone", "a range code is behind the lower bytes", "first symbol", code[:1] + lower)
    bad_words("lower-none", "lower bytes are there", "", code)
    bad_words("odd", "words are whole", "inside a word", code[:1] + lower + code[1:] + b"\0")
    bad_words("word-more", "no word is left over", "left over", code[:1] + lower + code[1:] + b"\0\0")
    bad_words("word-missing", "there are words for all states", "lacks a word", code[:1] + lower + code[1:-2])
    bad_words("lower-more", "there are no more lower bytes than words need", "", code[:1] + lower + b"\0\0" + code[1:])

# zstd.
in_zstd, numbered = "ternary+zstd@3", floats([1])


def bad_zstd(name, rule, reference, frame, recipe=in_zstd, numbers=numbered, n=N):
    bad_coded(f"zstd-{name}", rule, reference, b"\1" + frame, recipe, numbers, n)


ZSTD_ONES = zstd_frame((1, N))
good_places("zstd-blocks", "several blocks", coded(b"\1" + zstd_frame((1, N - 30), bytes(trits[-30:])), numbered),
            placed(N, range(N - 30, N), [trit - 1 for trit in trits[-30:]]), in_zstd)
checked = bytearray(ZSTD_ONES)  # zstd's own checksum is the lower half of an XXH64
checked[4] |= 4
good_places("zstd-checksum", "a frame with a checksum",
            coded(b"\1" + checked + struct.pack("<I", 0xB9E7BE90), numbered), placed(N, [], []), in_zstd)
good_places("zstd-window", "a window that is told",
            coded(b"\1" + ZSTD_ONES[:4] + b"\x80\x00" + ZSTD_ONES[5:], numbered), placed(N, [], []), in_zstd)
good_places("zstd-512", "two bytes a symbol where the base is above 256",
            coded(b"\1" + zstd_frame((0, 2 * N - 20), struct.pack("<10H", *range(502, 512)))),
            np.concatenate([np.zeros(N - 10, "<u4"), np.arange(502, 512, dtype="<u4") << 23]), "natural+zstd@1")
good_places("zstd-256", "one byte a symbol where the base is 256",
            coded(b"\1" + zstd_frame((255, N)), floats([0, 255])), placed(N, range(N), 255), "linear@256+zstd@9")
for name, recipe, word in (("fp32", "fp32+zstd@3", 0x3F3F3F3F), ("fp16", "fp16+zstd@3", 0x3F3F),
                           ("bf16", "bf16+zstd@3", 0x3F3F)):
    width = 4 if name == "fp32" else 2
    value = np.array([word << (16 if name == "bf16" else 0)], "<u4" if name != "fp16" else "<u2")
    value = value.view("<f4" if name != "fp16" else "<f2").astype("<f4")[0]
    good_places(f"zstd-{name}", "words", coded(b"\1" + zstd_frame((0x3F, N * width))), placed(N, range(N), value),
                recipe)
    bad_zstd(f"{name}-size", "the content has as many words as there are values", "content of",
             zstd_frame((0x3F, N * width - 1)), recipe, b"")
    bad_zstd(f"{name}-size-more", "the content has as many words as there are values", "content of",
             zstd_frame((0x3F, N * width + width)), recipe, b"")
bad_zstd("none", "there is a frame of zstd", "no frame", b"")
bad_zstd("magic", "there is a frame of zstd", "no frame", b"\x27" + ZSTD_ONES[1:])
bad_zstd("magic-alone", "a frame of zstd is whole", "", ZSTD_ONES[:4])
bad_zstd("skippable", "a frame that is skipped is none", "no frame",
         b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + bytes(4))
bad_zstd("skippable-first", "there is one frame", "no frame",
         b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + bytes(4) + ZSTD_ONES)
bad_zstd("skippable-behind", "there is one frame", "behind its frame",
         ZSTD_ONES + b"\x50\x2a\x4d\x18" + struct.pack("<I", 4) + bytes(4))
bad_zstd("cut", "a frame of zstd is whole", "damaged", ZSTD_ONES[:-1])
bad_zstd("cut-block", "a frame of zstd is whole", "damaged", ZSTD_ONES[:-2])
bad_zstd("cut-header", "a frame of zstd is whole", "", ZSTD_ONES[:8])
bad_zstd("behind", "nothing is behind the frame", "behind its frame", ZSTD_ONES + b"\0")
bad_zstd("twice", "there is one frame", "", zstd_frame((1, N // 2)) * 2)
bad_zstd("again", "there is one frame", "behind its frame", ZSTD_ONES * 2)
bad_zstd("size-less", "the content has a byte for each symbol", f"content of {N - 1} bytes", zstd_frame((1, N - 1)))
bad_zstd("size-more", "the content has a byte for each symbol", f"content of {N + 1} bytes", zstd_frame((1, N + 1)))
bad_zstd("size-0", "the content has a byte for each symbol", "content of 0 bytes", zstd_frame(b""))
bad_zstd("size-largest", "the content has a byte for each symbol", "content of", zstd_frame((1, N), size=2 ** 32 - 1))
bad_zstd("size-false", "the content has the size that is told", "damaged", zstd_frame((1, N - 1), size=N))
bad_zstd("size-false-more", "the content has the size that is told", "damaged", zstd_frame((1, N + 1), size=N))
bad_zstd("size-none", "the frame tells its content's size", "does not tell",
         ZSTD_ONES[:4] + b"\x00\x00" + ZSTD_ONES[9:])
bad_zstd("block", "a frame of zstd is sound", "damaged", ZSTD_ONES[:9] + bytes([ZSTD_ONES[9] | 6]) + ZSTD_ONES[10:])
bad_zstd("reserved", "a frame of zstd is sound", "", ZSTD_ONES[:4] + bytes([ZSTD_ONES[4] | 8]) + ZSTD_ONES[5:])
bad_zstd("dictionary", "there is no dictionary", "damaged",
         ZSTD_ONES[:4] + bytes([ZSTD_ONES[4] | 1, 5]) + ZSTD_ONES[5:])
bad_zstd("checksum", "a checksum holds", "damaged", bytes(checked) + bytes(4))
bad_zstd("checksum-cut", "a frame of zstd is whole", "damaged", bytes(checked) + bytes(3))
for what, recipe, numbers, base in (("ternary", in_zstd, numbered, 3), ("sign", "sign+zstd@3", numbered, 2),
                                    ("fp4", "fp4+zstd@3", fitted(1), 11), ("fp8", "fp8@e5m2+zstd@3", fitted(1), 247),
                                    ("e4m3", "fp8@e4m3+zstd@3", fitted(1), 239),
                                    ("linear", "linear@255+zstd@3", floats([1, 2]), 255)):
    for symbol in sorted({base, 255}):
        bad_zstd(f"symbol-{what}-{'beyond' if symbol == base else 'largest'}", "symbols are below the base",
                 "not below its base", zstd_frame((symbol, N)), recipe, numbers)
    bad_zstd(f"symbol-{what}-last", "symbols are below the base", "not below its base",
             zstd_frame((0, N - 1), bytes([base])), recipe, numbers)
bad_zstd("symbol-512", "symbols are below the base", "not below its base",
         zstd_frame((0, 2 * N - 2), struct.pack("<H", 512)), "natural+zstd@3", b"")
bad_zstd("symbol-511", "symbols are below the base", "not below its base",
         zstd_frame((0, 2 * N - 2), struct.pack("<H", 511)), "qsgd@255+zstd@3", numbered)
bad_zstd("symbol-wide", "two bytes a symbol where the base is above 256", "content of", zstd_frame((0, N)),
         "natural+zstd@3", b"")
bad_zstd("symbol-narrow", "one byte a symbol where the base is 256", "content of", zstd_frame((0, 2 * N)),
         "linear@256+zstd@3", floats([1, 2]))

# Geometric indices.
in_gaps = "topk@0.2+fp32+rans"
for name, positions, n in (
        ("some", some, 40), ("first", [0], 40), ("last", [39], 40), ("every", everywhere, 40), ("one-of-one", [0], 1),
        ("all-but-one", everywhere[:7] + everywhere[8:], 40), ("single", [CHUNK - 1], CHUNK),
        ("single-first", [0], CHUNK), ("pair", [0, CHUNK - 1], CHUNK), ("far", [*range(64), CHUNK - 1], CHUNK),
        ("thousand", list(range(7, CHUNK, 261)), CHUNK)):
    good_chunk(f"geometric-{name}", "gaps by a range code", GEOMETRIC, positions, n, in_gaps)
good_chunk("geometric-led", "coords=shared of a selection by value: told, in a file", GEOMETRIC, some,
           recipe="topk@0.2,coords=shared+fp32+rans")
good_places("geometric-coded", "indices and symbols by range codes",
            raw_chunk(N, GEOMETRIC, coded(ranged(trits, 3), floats([1])), write_geometric(range(0, 3 * N, 3), 3 * N)),
            placed(3 * N, range(0, 3 * N, 3), [trit - 1 for trit in trits]), "topk@0.2+ternary+rans")
good_places("geometric-others", "rans allows the other modes of gaps as well", write_chunk(2, some, 40, sevens),
            placed(40, some, range(1, 8)), in_gaps)


def bad_geometric(name, rule, reference, indices, count=7, n=40, recipe=in_gaps):
    chunk = raw_chunk(count, GEOMETRIC, floats(range(count)), indices)
    bad_chunk(f"geometric-{name}", rule, reference, chunk, n, recipe)


bad_geometric("empty", "a state is there", "no index bytes", b"")
for size in (1, 2, 3):
    bad_geometric(f"cut-{size}", "a state is whole", f"{size} bytes", write_geometric(some, 40)[:size])
bad_geometric("odd", "words are whole", "bytes", write_geometric(some, 40) + b"\0")
bad_geometric("word-more", "no word is left over", "left over", write_geometric(some, 40) + b"\0\0")
x, words = geometric_of(some, 7, 40)
assert words
bad_geometric("word-missing", "there are words for all positions", "lacks a word", pack_range(x, words[:-1]))
for what, bad_x in (("0", 0), ("small", 2 ** 15 - 1), ("large", 2 ** 31), ("largest", 2 ** 32 - 1)):
    bad_geometric(f"state-{what}", "a state is from 2^15 up to but not 2^31", "outside its range",
                  pack_range([bad_x], words))
bad_geometric("end", "the state ends in 2^15", "does not end", pack_range(*geometric_of(some, 7, 40, 2 ** 15 + 1)))
bad_geometric("outside", "positions are below m", "outside", pack_range(*geometric_of(some[:-1] + [40], 7, 40)))
bad_geometric("outside-first", "positions are below m", "outside", pack_range(*geometric_of([40], 1, 40)), 1)
bad_geometric("outside-far", "positions are below m", "outside", pack_range(*geometric_of([60000], 1, 40)), 1)
bad_geometric("outside-chunk", "positions are below m", "outside", pack_range(*geometric_of([CHUNK], 1, CHUNK)), 1,
              CHUNK)
bad_geometric("count-more", "there is a position for each value", "", write_geometric(some, 40), 8)
bad_geometric("count-less", "there is no more than a position for each value", "", write_geometric(some, 40), 6)
for name, recipe, symbols in (("huffman", "topk@0.2+sign+huffman@counts", coded(b"\0" + bytes(1), floats([1]))),
                              ("zstd", "topk@0.2+fp32+zstd@3", coded(b"\0" + sevens)),
                              ("lossless", "topk@0.2+fp32+lossless", coded(b"\0" + sevens)),
                              ("bitmap", "topk@0.2+sign+bitmap+rans", coded(b"\0" + bytes(1), floats([1]))),
                              ("sign", "topk@0.2+sign", signed(1, [0] * 7))):
    bad_chunk(f"geometric-{name}", "mode 37 needs index pack `gaps` and symbol pack `rans`", "does not allow",
              raw_chunk(7, GEOMETRIC, symbols, write_geometric(some, 40)), recipe=recipe)
bad_chunk("geometric-0", "count 0 has mode 0", "count 0", chunk_header(0, GEOMETRIC, 0), recipe=in_gaps)

# Symbols and dtypes.
tricky = np.array([0x00000000, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x7F7FFFFF],
                  "<u4")
good("fp32-specials", "fp32 symbols as they are", single("fp32", (8,), [tricky.tobytes()]), w=tricky)
halfs = np.array([0x0000, 0x8000, 0x3C00, 0x7C00, 0xFC00, 0x7E00, 0x0001, 0x7BFF], "<u2")
good("fp16-specials", "fp16 symbols, exact in fp32",
     single("fp16", (8,), [halfs.tobytes()]), w=halfs.view("<f2").astype("<f4"))
good("fp16-of-16", "fp16 symbols of an fp16 tensor", single("fp16", (8,), [halfs.tobytes()], dtype=1), w=halfs)
uppers = np.array([0x0000, 0x8000, 0x3F80, 0x7F80, 0xFF80, 0x7FC0, 0x0001, 0x7F7F], "<u2")
good("bf16-specials", "bf16 symbols, exact in fp32",
     single("bf16", (8,), [uppers.tobytes()]), w=uppers.astype("<u4") << 16)
good("bf16-of-bf16", "bf16 symbols of a bf16 tensor", single("bf16", (8,), [uppers.tobytes()], dtype=2), w=uppers)
wide = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x80000001, 0x7F800000, 0xFF7FFFFF], "<u4")
good("fp32-of-bf16", "fp32 symbols of a bf16 tensor: to nearest, ties to even; the largest stays finite",
     single("fp32", (6,), [wide.tobytes()], dtype=2),
     w=np.array([0x3F80, 0x3F82, 0x3F81, 0x8000, 0x7F80, 0xFF7F], "<u2"))
good("fp32-of-16", "fp32 symbols of an fp16 tensor: to nearest, ties to even; the largest stays finite",
     single("fp32", (6,), [floats([2049, 2051, 65519, 65520, -1e30, 3e-8])], dtype=1),
     w=np.array([2048, 2052, 65504, 65504, -65504, 6e-8], "<f2"))

loud = np.array([0x7F800001, 0xFFA00000, 0x7FBFFFFF, 0xFFFFFFFF], "<u4")
good("nan-of-32", "a NaN is made quiet and keeps its payload", single("fp32", (4,), [loud.tobytes()]),
     w=loud | 0x400000)
good("nan-of-16", "a NaN of fp16 keeps what it has room for", single("fp32", (4,), [loud.tobytes()], dtype=1),
     w=np.array([0x7E00, 0xFF00, 0x7FFF, 0xFFFF], "<u2"))
good("nan-of-bf16", "a NaN of bf16 keeps what it has room for", single("fp32", (4,), [loud.tobytes()], dtype=2),
     w=np.array([0x7FC0, 0xFFE0, 0x7FFF, 0xFFFF], "<u2"))
good("nan-by-fp16", "a NaN by way of fp16 symbols", single("fp16", (2,), [b"\x01\x7c\x00\xff"]),
     w=np.array([0x7FC02000, 0xFFE00000], "<u4"))
good("nan-by-bf16", "a NaN by way of bf16 symbols", single("bf16", (2,), [b"\x81\x7f\xe0\xff"]),
     w=np.array([0x7FC10000, 0xFFE00000], "<u4"))

# ---- Section 4: a scale for every few values ---------------------------------------------------------------------------

SMALL = {"mxfp8@e4m3": ([0x38, 0xB8, 0x01, 0x7E, 0x7F, 0xFF, 0x80], [1, -1, 2 ** -9, 448, np.nan, np.nan, -0.0]),
         "mxfp8@e5m2": ([0x3C, 0xBC, 0x01, 0x7B, 0x7C, 0xFC, 0x7D], [1, -1, 2 ** -16, 57344, np.inf, -np.inf, np.nan]),
         "mxfp4": ([2, 10, 1, 7, 3, 15, 8], [1, -1, 0.5, 6, 1.5, -6, -0.0])}


def one_nan(values):
    """In binary32; a NaN has no sign."""
    array = np.array(values, "<f4")
    array[np.isnan(array)] = np.frombuffer(b"\0\0\xc0\x7f", "<f4")[0]
    return array


def small_cases():
    for text, (symbols, values) in SMALL.items():
        base, name = 16 if text == "mxfp4" else 256, text.replace("@", "-")
        for exponent, factor in ((127, 1), (130, 8), (0, 2.0 ** -127), (254, 2.0 ** 127), (255, np.nan)):
            with np.errstate(over="ignore", invalid="ignore"):
                expected = one_nan((np.array(values) * factor).astype(np.float32))
            good(f"{name}-scale-{exponent}", "every kind of value, NaN and Inf among them, times a power of two",
                 single(text, (7,), [bytes([exponent]) + write_groups(symbols, base)]), w=expected)
        bad(f"{name}-no-scale", "a block has a scale", "makes no sense", "ends inside", single(text, (7,), [write_groups(symbols, base)]))
    for number, (e4m3, whole, factor) in enumerate(((0x38, 1, 1), (0xB8, 2, -2), (0x7F, 1, np.nan), (0, np.inf, np.nan),
                                                    (0x7E, 2.0 ** 120, 448 * 2.0 ** 120), (0x38, np.nan, np.nan))):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = one_nan((np.array(SMALL["mxfp4"][1]) * factor).astype(np.float32))
        good(f"nvfp4-scale-{number}", "every e2m1, times an e4m3 and a single",
             single("nvfp4", (7,), [floats([whole]) + bytes([e4m3]) + write_groups(SMALL["mxfp4"][0], 16)]), w=expected)
    bad("nvfp4-no-head", "a chunk has a single", "makes no sense", "ends inside", single("nvfp4", (7,), [bytes([0x38]) + write_groups([1] * 7, 16)]))
    bad("mxfp4-last-bits", "bits after the last symbol are 0", "makes no sense", "bit set",
        single("mxfp4", (7,), [bytes([127]) + b"\x11" * 4]))


small_cases()

# ---- Section 5: coordinates that are drawn ---------------------------------------------------------------------------

for select in ("randomk", "randomblock"):
    recipe = f"{select}@0.5,coords=shared+fp32"
    at = meaning.drawn(select, 0.5, 8, 7, 2 ** 40, 0, 0)
    good(f"drawn-{select}", "symbols alone, at coordinates that are drawn",
         single(recipe, (8,), [floats([1, 2, 3, 4])], 7, step=2 ** 40),
         w=placed(8, at, [1, 2, 3, 4]))
    bad(f"drawn-{select}-short", "a symbol for each coordinate", "tensor 'w'", "frame ends",
        single(recipe, (8,), [floats([1, 2, 3])], 7))
    bad(f"drawn-{select}-long", "no more symbols than coordinates", "longer than", "behind its last chunk",
        single(recipe, (8,), [floats([1, 2, 3, 4, 5])], 7))
    bad(f"drawn-{select}-told", "a chunk whose coordinates are drawn has no header",
        "longer than", "behind its last chunk",
        single(recipe, (8,), [half], 7))
    recipe = f"{select}@0.5,coords=shared+sign"
    at = meaning.drawn(select, 0.5, 8, 7, 5, 0, 0)
    good(f"drawn-{select}-sign", "a scale and signs, at coordinates that are drawn",
         single(recipe, (8,), [signed(2, [1, 0, 0, 1])], 7, step=5), w=placed(8, at, [-2, 2, 2, -2]))
    bad(f"drawn-{select}-sign-behind", "bits behind the last are 0", "tensor 'w'", "behind their last",
        single(recipe, (8,), [signed(2, [1, 0, 0, 1, 1])], 7))
    bad(f"drawn-{select}-sign-cut", "a scale is whole", "tensor 'w'", "frame ends",
        single(recipe, (8,), [scale[:3]], 7))
    bad(f"drawn-{select}-sign-none", "a sign for each coordinate", "tensor 'w'", "frame ends",
        single(recipe, (8,), [scale], 7))
    recipe = f"{select}@0.5,coords=shared+orq@3,bucket=3"
    levels = [1, 2, 3, 4, 5, 6]
    good(f"drawn-{select}-orq", "two buckets, at coordinates that are drawn",
         single(recipe, (8,), [bucketed(levels, [0, 2, 1, 2], 3)], 7, step=5), w=placed(8, at, [1, 3, 2, 6]))
    bad(f"drawn-{select}-orq-cut", "each bucket has its numbers", "tensor 'w'", "frame ends",
        single(recipe, (8,), [bucketed(levels[:3], [0, 2, 1, 2], 3)], 7))
    bad(f"drawn-{select}-orq-none", "a symbol for each coordinate", "tensor 'w'", "frame ends",
        single(recipe, (8,), [floats(levels)], 7))
    bad(f"drawn-{select}-orq-too-many", "a group has 0 for symbols that it lacks", "tensor 'w'", "a symbol too many",
        single(recipe, (8,), [bucketed(levels, [0, 2, 1, 2, 1], 3)], 7))
    bad(f"drawn-{select}-orq-long", "no more symbols than coordinates", "longer than", "behind its last chunk",
        single(recipe, (8,), [bucketed(levels, [0, 2, 1, 2], 3) + b"\0"], 7))
at, = meaning.drawn("randomblock", 1e-9, 2 * CHUNK, 7, 0, 0, 0)
lonely = [one if at // CHUNK == c else b"" for c in (0, 1)]
good("drawn-empty-chunk", "a chunk without bytes counts in the checksum",
     single("randomblock@1e-9,coords=shared+fp32", (2 * CHUNK,), lonely, 7),
     w=placed(2 * CHUNK, at, 1.5))
lonely_signed = [signed(1.5, [1]) if at // CHUNK == c else b"" for c in (0, 1)]
good("drawn-empty-chunk-sign", "a chunk without coordinates has no scale",
     single("randomblock@1e-9,coords=shared+sign", (2 * CHUNK,), lonely_signed, 7), w=placed(2 * CHUNK, at, -1.5))
bad("drawn-empty-chunk-scale", "a chunk without coordinates has no scale", "longer than", "behind its last chunk",
    single("randomblock@1e-9,coords=shared+sign", (2 * CHUNK,), [chunk or scale for chunk in lonely_signed], 7))

# ---- Section 6: checksum ---------------------------------------------------------------------------------------------

two = [write_chunk(0, [1], 2, one), write_chunk(0, [0], 2, one)]
pair = write_description(["topk@0.5+fp32"], [("a", (2,)), ("b", (2,))])
good("two-hashes", "two chunks", write_frame(pair, two), a=placed(2, 1, 1.5), b=placed(2, 0, 1.5))
for number, size in enumerate((4096, 4100, 8192, 9000)):
    ones = np.full(size // 4, 1.5, "<f4")
    good(f"hash-leaves-{number}", "a chunk at or beyond the end of a leaf of 4,096 bytes",
         single("fp32", ones.shape, [ones.tobytes()]), w=ones)
    if size > 4096:
        with mock.patch.object(ref, "hash_of", ref.xxh3):
            frame = single("fp32", ones.shape, [ones.tobytes()])
        bad(f"hash-whole-{number}", "more than 4,096 bytes are hashed by leaves", "checksum", "checksum", frame)
many = [(f"t{i}", (1,)) for i in range(600)]
good("hash-many", "more than 4,096 bytes of description and of hashes",
     write_frame(write_description(["fp32"], many), [one] * 600), **{name: placed(1, 0, 1.5) for name, _ in many})
with mock.patch.object(ref, "hash_of", ref.xxh3):
    frame = write_frame(write_description(["fp32"], many), [one] * 600)
bad("hash-many-whole", "more than 4,096 bytes are hashed by leaves", "fingerprint", "fingerprint", frame)
bad("checksum-zero", "the checksum holds", "checksum", "checksum", plain[:-8] + bytes(8))
bad("checksum-last-bit", "the checksum holds", "checksum", "checksum", changed(plain, len(plain) - 1, plain[-1] ^ 0x80))
bad("checksum-symbol", "the checksum is of the symbols", "checksum", "checksum",
    changed(plain, len(plain) - 9, plain[-9] ^ 1))
bad("checksum-rank", "the checksum is of the header", "checksum", "checksum", changed(plain, 8, plain[8] ^ 1))
bad("checksum-step", "the checksum is of the header", "checksum", "checksum", changed(plain, 39, plain[39] ^ 1))
bad("checksum-whole", "the checksum is of hashes", "checksum", "checksum",
    plain[:-8] + struct.pack("<Q", ref.hash_of(plain[:-8])))
bad("checksum-joined", "each chunk has a hash of its own", "checksum", "checksum",
    write_frame(pair, two, hashed=[two[0].header + two[1].header, two[0].content + two[1].content]))
bad("checksum-swapped", "hashes stand in the order of the chunks", "checksum", "checksum",
    write_frame(pair, two, hashed=[two[0].header + two[1].header, two[1].content, two[0].content]))
bad("checksum-headers-none", "headers have a hash", "checksum", "checksum",
    write_frame(pair, two, hashed=[two[0].content, two[1].content]))
bad("checksum-headers-first", "headers have a hash of their own", "checksum", "checksum",
    write_frame(pair, two, hashed=[b"", two[0].header + two[1].header + two[0].content, two[1].content]))
bad("checksum-headers-apart", "headers have one hash together", "checksum", "checksum",
    write_frame(pair, two, hashed=[two[0].header, two[1].header, two[0].content, two[1].content]))
bad("checksum-header", "the checksum is of headers", "checksum", "checksum",
    write_frame(pair, two, hashed=[bytes(12), two[0].content, two[1].content]))
bad("checksum-no-headers", "headers of no bytes count", "checksum", "checksum",
    single("fp32", (1,), [one], hashed=[one]))
bad("checksum-empty-chunk", "a chunk without bytes counts", "checksum", "checksum",
    single("randomblock@1e-9,coords=shared+fp32", (2 * CHUNK,), lonely, 7, hashed=[b"", one]))
bad("checksum-turned", "the checksum is little-endian", "checksum", "checksum", plain[:-8] + plain[:-9:-1])
