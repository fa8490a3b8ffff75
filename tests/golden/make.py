#!/usr/bin/env python3
"""Makes golden.zip and manifest.json from the cases below and a given program.

    make.py PROGRAM           adds what is new; fails and writes nothing if an existing file would change or go
    make.py PROGRAM --anew    makes all frames again, for a new version of the format: within one, frames are permanent

A frame whose bytes depend on the version of the zstd library is made once and then kept, except with --anew. A frame is
written only if the program, the reference decoder and tests/ref/meaning.py agree on what it decodes to.
"""

import argparse
import concurrent.futures
import functools
import io
import json
import pathlib
import sys
import tempfile

import numpy as np

import golden

import archive  # this and the next two are in tests/ref, which golden.py adds to the path
import meaning
import tersegrad_ref as ref

STORED_LEN_MAX = 1600  # bytes of elements; a larger output is kept as its SHA-256
CHUNK = 262144


# ---- Inputs ----------------------------------------------------------------------------------------------------------

def of_bits(dtype, *bits):
    return np.array(bits, np.uint32 if dtype == "fp32" else np.uint16).view(golden.DTYPES[dtype])


STORED = {
    # Zeros, denormals and both ends of the range; halfway between two of fp16, of bf16, and a hair beside; what
    # rounds up to the next power of two; what is beyond fp16.
    "finite32": np.concatenate([
        of_bits("fp32", 0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00007FFF, 0x00008000, 0x00008001, 0x00018000,
                0x007FFFFF, 0x00800000, 0x33000000, 0x33000001, 0x33800000, 0x33C00000, 0xB3C00000, 0x387FC000,
                0x387FE000, 0x387FF000, 0x38800000, 0x3F800000, 0x3F801000, 0x3F803000, 0x3F801001, 0x3F800FFF,
                0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x3FFFF000, 0x3FFF8000, 0xBFFFFFFF, 0x477FE000,
                0x477FEFFF, 0x477FF000, 0xC77FF000, 0x47800000, 0x7149F2CA, 0x7F7F0000, 0x7F7F7FFF, 0x7F7F8000,
                0x7F7FFFFF, 0xFF7FFFFF), np.array([0.1, -0.25, 3, -1e-20, 1 / 3], "<f4")]),
    "finite16": of_bits("fp16", 0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3BFF, 0x3C00, 0x3C01, 0x3C03, 0x3C04,
                        0x3C05, 0x3C0C, 0xBFFF, 0x5640, 0xE7FF, 0x7800, 0x7BFF, 0xFBFF),
    "nonfinite32": np.array([1, np.nan, -2, np.inf, 0.5, -np.inf, -0.0, 1e-40, 70000, np.nan, 3e38, -7], "<f4"),
    "nonfinite16": np.array([1, np.nan, -2, np.inf, 0.5, -np.inf, -0.0, 6e-8, 65504, -7], "<f2"),
    "zeros": np.tile(np.array([0, -0.0, 0, 0], "<f4"), 11)[:41],
    "equal": np.where(np.arange(60) % 3 == 1, -0.25, 0.25).astype("<f4").reshape(3, 4, 5),
    "denormal": np.arange(-24, 25, dtype="<f4") * np.float32(1e-45),
    "alike": np.full(23, 0.1, "<f4"),
    "alike-16": np.full((4, 9), -0.3, "<f2"),
    "outliers": np.concatenate([np.array([1000, -3, -3000], "<f4"), np.linspace(-1, 1, 41, dtype="<f4") ** 3,
                                np.array([500, 1e-30], "<f4")]),
    "blocks": np.repeat(np.array([0, 2, 0, -3, 0, 1, 0], "<f4"), [7, 60, 130, 1, 40, 60, 2]),
    "empty": np.zeros(0, "<f4"),
    "empty-16": np.zeros((3, 0, 2), "<f2"),
    "scalar": np.array(-1.75, "<f4"),
    "scalar-16": np.array(0.375, "<f2"),
    "one": np.array([2.5], "<f4"),
    "two": np.array([0.5, -8], "<f4"),
}


def stored(name):
    return {"file": f"inputs/{name}.npy"}


def repeated(name, shape):
    return {"repeat": {"file": f"inputs/{name}.npy", "shape": list(shape)}}


def made(seed, shape, dtype="fp32"):
    return {"formula": {"seed": seed, "shape": list(shape), "dtype": dtype}}


# ---- Cases -----------------------------------------------------------------------------------------------------------

CASES = []


def case(name, covers, recipe, flags, **tensors):
    """One frame; `tensors` in the order in which they are given to the program, '__' standing for '.' in names."""
    inputs = [{"name": tensor.replace("__", "."), **entry} for tensor, entry in tensors.items()]
    row = {"name": name, "covers": covers, "recipe": recipe, "flags": flags.split(), "inputs": inputs}
    if "zstd" in recipe + flags:
        row["decode_only"] = True
    CASES.append(row)


prime = made(1, [997])

# Every element, by quantizer, dtype and value.
case("all-fp32", "every element, fp32: nothing is lost", "fp32", "", w=stored("finite32"))
case("all-fp16", "every element, fp16: ties, denormals, saturation", "fp16", "", w=stored("finite32"))
case("all-bf16", "every element, bf16: ties, denormals, saturation", "bf16", "", w=stored("finite32"))
case("all-fp32-of-16", "an fp16 tensor, symbols of fp32", "fp32", "", w=stored("finite16"))
case("all-fp16-of-16", "an fp16 tensor, symbols of fp16: nothing is lost", "fp16", "", w=stored("finite16"))
case("all-bf16-of-16", "an fp16 tensor, symbols of bf16: the largest rounds beyond fp16", "bf16", "",
     w=stored("finite16"))
case("all-ef", "feedback before every element; of -0 comes 0", "ef+fp16", "", w=stored("finite32"))
case("all-two-chunks", "every element, two chunks", "bf16", "", w=repeated("finite16", [CHUNK // 64 + 1, 64]))
case("topk-two-chunks", "every element by topk, two chunks", "topk@1+fp16", "", w=repeated("equal", [CHUNK + 1]))

# NaN and Inf.
case("pass-fp32", "NaN and Inf let through", "fp32", "--nonfinite pass", w=stored("nonfinite32"))
case("pass-fp16", "NaN and Inf let through as fp16", "fp16", "--nonfinite pass", w=stored("nonfinite32"))
case("pass-bf16", "NaN and Inf let through as bf16", "bf16", "--nonfinite pass", w=stored("nonfinite32"))
case("pass-of-16", "NaN and Inf of fp16 tensors let through", "bf16", "--nonfinite pass", w=stored("nonfinite16"))
case("pass-topk", "a NaN is larger than Inf, and Inf than all else", "topk@0.34", "--nonfinite pass",
     w=stored("nonfinite32"))
case("pass-threshold", "NaN and Inf are above any threshold", "threshold@100+fp16", "--nonfinite pass",
     w=stored("nonfinite32"))
case("zero-topk", "NaN and Inf taken as 0", "topk@0.9", "--nonfinite zero", w=stored("nonfinite32"))

# Values of which many are alike.
case("zeros-topk", "all zero: ties go to the lower index, and a -0 stays one", "topk@0.1", "", w=stored("zeros"))
case("zeros-threshold", "all zero, a threshold of 0 sends every element", "threshold@0", "", w=stored("zeros"))
case("zeros-nothing", "nothing reaches the threshold: a chunk of count 0", "threshold@0.5", "", w=stored("zeros"))
case("equal-topk", "all equal: ties go to the lower index", "topk@0.3", "", w=stored("equal"))
case("equal-threshold", "as large as the threshold is large enough", "threshold@0.25+bf16", "", w=stored("equal"))
case("denormal-topk", "the largest of denormals", "topk@0.2", "", w=stored("denormal"))
case("denormal-fp16", "denormals that fp16 takes as 0", "topk@0.2+fp16", "", w=stored("denormal"))

# The ways to write indices: Rice codes from dense to sparse, bitmap, runs, none.
case("ratio-standard", "a main parameter at its default stands all the same", "topk", "", w=prime)
case("unbiased-overflow", "a finite value stays finite, however much it is scaled", "randomblock@0.3,unbiased=yes",
     "--seed 5", w=stored("finite32"))
case("rice-half", "half of the elements", "topk@0.5", "", w=prime)
case("rice-fifth", "a fifth of the elements", "topk@0.2+fp16", "", w=prime)
case("rice-tenth", "a tenth of the elements", "topk@0.1+bf16", "", w=prime)
case("rice-30th", "one in 30", "topk@0.03", "", w=prime)
case("rice-100th", "one in 100, of fp16", "topk@0.012", "", w=made(3, [5000], "fp16"))
case("rice-1000th", "one in 1,000", "topk@0.001+fp16", "", w=made(4, [40009]))
case("rice-10000th", "one in 10,000, three chunks", "topk@0.0001", "", w=made(5, [600011]))
case("rice-single", "one element of a full chunk", "topk@1e-9", "", w=made(6, [CHUNK]))
case("ratio-digits", "a ratio of 17 digits", "topk@0.30000000000000004", "", w=prime)
case("threshold-rice", "a threshold", "threshold@0.75", "", w=prime)
case("threshold-most", "about two thirds of the elements", "threshold@0.03+fp16", "", w=prime)
case("threshold-tiny", "a threshold with an exponent", "threshold@1e-5", "", w=prime)
case("threshold-largest", "the largest threshold", "threshold@3.4028234663852886e38", "", w=stored("finite32"))
case("runs", "blocks of elements, of lengths of one byte and two", "threshold@1", "", w=stored("blocks"))
case("runs-two-chunks", "a run to the end of a chunk, and on from the start of the next", "randomblock@0.012+fp16",
     "--rank 1 --step 188", w=made(7, [CHUNK + 5000], "fp16"))
case("every-topk", "all elements by topk", "topk@1+bf16", "", w=prime)
case("pack-bitmap", "a bitmap although it costs more", "topk@0.05+fp16+bitmap", "", w=prime)
case("pack-bitmap-nothing", "a bitmap pack of count 0", "threshold@1e30+bitmap", "", w=prime)
case("pack-bitmap-every", "a bitmap of all ones", "threshold@0+bitmap", "", w=stored("equal"))
case("chunk-of-none", "three chunks, nothing sent in two of them", "topk@0.00001,scope=model", "",
     a=stored("two"), b=stored("blocks"), c=made(9, [2 * CHUNK]))

# Feedback.
case("ef", "feedback", "ef+topk@0.05", "", w=prime)
case("ef-decay", "feedback that fades", "ef@decay=0.9+topk@0.05+fp16", "--step 12 --rank 3", w=prime)
case("ef-decay-0", "feedback that is off", "ef@decay=0+threshold@0.5", "", w=prime)

case("ef-again", "answers with all values, which change no frame of a gradient", "ef@again=fp16+topk@0.05", "--step 2", w=prime)
case("momentum-again", "the same behind momentum", "momentum@again=fp32+topk@0.1", "", w=prime)
case("momentum", "feedback of momentum; of -0 comes 0", "momentum+fp32", "", w=stored("finite32"))
case("momentum-clip", "a gradient of a smaller norm", "momentum@0.9,clip=0.5+topk@0.1+fp16", "", w=made(1, [5000]))
case("momentum-clip-not", "a norm that is small enough", "momentum@0.9,clip=1e6+topk@0.1+fp16", "", w=prime)
case("momentum-topk", "feedback of momentum, behind it topk", "momentum@0.5+topk@0.05+fp16", "--step 7", w=prime)
for step in (0, 1, 5, 9, 10):
    case(f"warmup-{step}", "a ratio that falls from a quarter", "topk@0.01,warmup=10", f"--step {step}", w=prime)
case("warmup-none", "a ratio of a quarter or more does not fall", "topk@0.3,warmup=10", "--step 3", w=prime)

# Coordinates that are drawn: shared, from the seed, and own, in the frame.
case("randomk-shared", "drawn alike by all ranks", "randomk@0.1", "--seed 7", w=prime)
case("randomk-step", "another step, of more than 32 bits", "randomk@0.1+fp16", "--seed 7 --step 1099511627777 --rank 2",
     w=prime)
case("randomk-seed-0", "seed 0 is a seed", "randomk@0.1,coords=shared", "--seed 0", w=prime)
case("randomk-largest", "the largest seed and step", "randomk@0.5+bf16",
     "--seed 18446744073709551615 --step 18446744073709551615 --rank 4294967294", w=prime)
case("randomk-own", "without a seed: a rank's own", "randomk@0.1", "--rank 5 --step 3", w=prime)
case("randomk-own-seed", "a rank's own, although there is a seed", "randomk@0.1,coords=own+fp16",
     "--seed 9 --rank 4294967294", w=prime)
case("randomk-own-bitmap", "a rank's own as a bitmap", "randomk@0.1,coords=own+bitmap", "--seed 9", w=prime)
case("randomk-unbiased", "scaled by n/b before it is rounded", "randomk@0.3,unbiased=yes+fp16", "--seed 7", w=prime)
case("randomk-chunks", "three chunks", "randomk@0.001", "--seed 11", w=made(10, [2 * CHUNK + 11]))
case("randomk-one", "at least one element", "randomk@0.001", "--seed 11", w=made(10, [17]))
case("randomk-half", "as many are drawn as are not", "randomk@0.5", "--seed 11", w=made(10, [1000]))
case("randomk-most", "those that are left out are drawn", "randomk@0.7+fp16", "--seed 11", w=prime)
case("randomk-most-own", "the same of a rank's own", "randomk@0.9,coords=own+bf16", "--seed 11 --rank 1", w=prime)
case("randomk-all", "every element is drawn", "randomk@1", "--seed 11", w=made(10, [17]))
case("randomblock-shared", "a block", "randomblock@0.2", "--seed 7 --step 1", w=prime)
case("randomblock-wrap", "a block around the end", "randomblock@0.2", "--seed 7 --step 7", w=prime)
case("randomblock-own", "a rank's own block: one run", "randomblock@0.2+fp16", "--rank 1 --step 0", w=prime)
case("randomblock-own-wrap", "a rank's own block around the end: two runs", "randomblock@0.2", "--rank 1 --step 6",
     w=prime)
case("randomblock-chunks", "three chunks, two of them without a byte", "randomblock@0.002+fp16", "--seed 7 --step 1",
     w=made(11, [2 * CHUNK + 12345], "fp16"))
case("randomblock-unbiased", "scaled by n/b", "randomblock@0.3,unbiased=yes,coords=own", "--seed 7", w=prime)

# Several tensors.
model = dict(conv__weight=made(20, [8, 3, 3, 3]), conv__bias=made(21, [8]), norm=made(22, [8], "fp16"),
             fc=made(23, [10, 72], "fp16"), none=stored("empty"))
case("model-tensors", "each tensor selects for itself", "topk@0.05", "", **model)
case("model-topk", "one selection spans the model", "topk@0.05,scope=model+fp16", "", **model)
case("model-threshold", "one unit of all tensors", "threshold@0.9,scope=model", "", **model)
case("model-randomk", "drawn from the whole model", "randomk@0.1,scope=model", "--seed 3", **model)
case("model-randomk-units", "drawn for each tensor, by its unit's number", "randomk@0.1", "--seed 3", **model)
case("model-randomblock", "a block across tensors", "randomblock@0.5,scope=model,coords=own+bf16", "--seed 3 --step 2",
     **model)
case("model-led", "coordinates of a leader, in a file like any others", "topk@0.05,scope=model,coords=shared", "",
     **model)
case("model-led-threshold", "the same by a threshold", "threshold@0.9,coords=shared+fp16", "", **model)
case("kinds", "norms and biases travel uncompressed, each in its dtype", "ef+topk@0.05+fp16",
     "--kind *bias=bias --kind norm=norm --kind conv*=conv --kind fc=dense", **model)
case("kinds-others", "the other kinds", "topk@0.1", "--kind a=recurrent --kind b=embedding --kind c=other",
     a=stored("equal"), b=stored("two"), c=stored("blocks"))
case("rules", "three recipes, numbered by first use, two of scope model",
     "topk@0.1,scope=model+bf16", "--rule *.bias=randomk@0.5,scope=model --rule n*=fp16 --seed 1 --kind fc=norm",
     **model)
case("rules-units", "units of scope model stand where their first tensor stands",
     "topk@0.2,scope=model", "--rule b*=randomk@0.2,scope=model --rule ?2=fp16 --seed 5",
     a0=made(30, [40]), b1=made(31, [50]), x2=made(32, [7]), a3=made(33, [60], "fp16"), b4=made(34, [33]),
     x5=made(35, [9]))
case("dense-below", "small tensors travel uncompressed", "threshold@0.5", "--dense-below 100", **model)

# Signs and one scale, behind every way to select.
case("sign-all", "every element by its sign; of 0 comes the scale, of -0 its negative", "sign", "",
     w=stored("finite32"))
case("sign-all-of-16", "an fp16 tensor, a scale of fp32", "sign", "--nonfinite zero", w=stored("nonfinite16"))
case("sign-all-ef", "feedback before signs; of -0 comes 0", "ef+sign", "", w=stored("zeros"))
case("sign-all-chunks", "every element, two chunks, each with the scale", "sign", "",
     w=repeated("finite16", [CHUNK + 9]))
case("sign-topk", "signs of the largest", "topk@0.1+sign", "", w=prime)
case("sign-topk-ef", "signs of the largest, with feedback", "ef+topk@0.05+sign", "", w=made(50, [2003], "fp16"))
case("sign-bitmap", "signs and a bitmap", "threshold@0.7+sign+bitmap", "", w=prime)
case("sign-nothing", "a chunk of count 0 has no scale", "threshold@1e30+sign", "", w=prime)
case("sign-every", "signs of all elements by topk", "topk@1+sign", "", w=prime)
case("sign-runs", "signs of blocks", "threshold@1+sign", "", w=stored("blocks"))
case("sign-randomk", "signs at coordinates that are drawn", "randomk@0.1+sign", "--seed 7", w=prime)
case("sign-randomk-own", "signs at a rank's own coordinates", "randomk@0.1+sign", "--rank 5 --step 3", w=prime)
case("sign-randomk-unbiased", "the scale is of what is sent, so by n/b larger", "randomk@0.3,unbiased=yes+sign",
     "--seed 7", w=prime)
case("sign-randomblock-chunks", "three chunks, two of them without a byte, and so without a scale",
     "randomblock@0.002+sign", "--seed 7 --step 1", w=made(11, [2 * CHUNK + 12345], "fp16"))
case("sign-pass", "a scale of NaN and the signs of NaN and Inf", "sign", "--nonfinite pass", w=stored("nonfinite32"))
case("sign-tree", "a scale over five chunks, one without entries", "threshold@0.95,scope=model+sign", "",
     a=made(116, [CHUNK - 100]), b=repeated("zeros", [CHUNK + 200]), c=made(117, [2 * CHUNK + 5001]))
case("sign-model", "one scale spans the model", "topk@0.05,scope=model+sign", "", **model)

# Bins.
adacomp = "ef+adabins@{}+sign@scale=meanmax"
case("adacomp", "AdaComp", adacomp.format(50), "", w=prime)
case("adacomp-500", "AdaComp, a short last bin", adacomp.format(500), "--step 9 --rank 2", w=prime)
case("adacomp-bin-1", "bins of one: every element but zeros", adacomp.format(1), "--nonfinite zero",
     w=stored("nonfinite32"))
case("adacomp-bin-whole", "a bin as long as the tensor", adacomp.format(997), "", w=prime)
case("adacomp-bin-longer", "bins longer than the tensor", adacomp.format(16384), "", w=prime)
case("adacomp-last-of-1", "a last bin of one element", adacomp.format(12), "", w=prime)
case("adacomp-zeros", "all zero: nothing is sent", adacomp.format(10), "", w=stored("zeros"))
case("adacomp-zero-bin", "bins of zeros send nothing but count in the scale", adacomp.format(7), "",
     w=stored("blocks"))
case("adacomp-leaves", "a scale of many bins", adacomp.format(3), "", w=made(118, [20011]))
case("adacomp-equal", "all equal: every element is the largest of its bin", adacomp.format(8), "", w=stored("equal"))
case("adacomp-denormal", "denormals", adacomp.format(10), "", w=stored("denormal"))
case("adacomp-finite", "sums beyond the largest finite value", adacomp.format(6), "", w=stored("finite32"))
case("adacomp-of-16", "an fp16 tensor", adacomp.format(50), "", w=made(51, [5000], "fp16"))
case("adacomp-finite-of-16", "an fp16 tensor: denormals and the largest", adacomp.format(4), "", w=stored("finite16"))
case("adacomp-chunks", "a bin across the border of two chunks", adacomp.format(500), "", w=made(52, [CHUNK + 1234]))
case("adacomp-chunks-sparse", "three chunks, nothing sent in the second",
     "ef+adabins@16384,scope=model+sign@scale=meanmax", "", a=made(53, [CHUNK - 100]),
     b=repeated("zeros", [CHUNK + 20000]), c=made(54, [999], "fp16"))
case("adacomp-weight-1", "weight 1: the largest of each bin alone", "ef+adabins@50,weight=1+sign@scale=meanmax", "",
     w=prime)
case("adacomp-weight-3", "weight 3", "ef+adabins@50,weight=3+sign@scale=meanmax", "", w=prime)
case("adacomp-weight-whole", "the largest weight, in its canonical form", "adabins@100,weight=100+sign", "", w=prime)
case("adacomp-weight-part", "a weight that is not whole", "ef@decay=0.5+adabins@20,weight=1.25+sign", "", w=prime)
case("adacomp-pass", "NaN and Inf let through: a NaN is the largest of its bin", adacomp.format(4), "--nonfinite pass",
     w=stored("nonfinite32"))
case("adacomp-pass-weight-1", "the same with weight 1", "ef+adabins@4,weight=1+fp32", "--nonfinite pass",
     w=stored("nonfinite32"))
case("adacomp-pass-of-16", "NaN and Inf of an fp16 tensor", "adabins@3,weight=3+sign@scale=meanmax",
     "--nonfinite pass", w=stored("nonfinite16"))
case("adacomp-zero", "NaN and Inf taken as 0", adacomp.format(4), "--nonfinite zero", w=stored("nonfinite32"))
case("adabins-fp32", "bins, values as they are", "adabins@50", "", w=prime)
case("adabins-fp16", "bins, values of fp16", "ef+adabins@50+fp16", "", w=prime)
case("adabins-bf16", "bins, values of bf16", "ef+adabins@100+bf16", "", w=made(3, [5000], "fp16"))
case("adabins-bitmap", "bins and a bitmap", "adabins@50,weight=1+sign+bitmap", "", w=prime)
case("adabins-mean", "bins, a scale of what is sent", "ef+adabins@50+sign", "", w=prime)
case("adacomp-model", "bins across tensors, one scale", "ef+adabins@50,scope=model+sign@scale=meanmax", "", **model)
case("adacomp-led", "coordinates of a leader, in a file like any others",
     "ef+adabins@50,coords=shared+sign@scale=meanmax", "", **model)
case("adacomp-auto", "bins by kind: 50 for a convolution, 500 for all else", "ef+adabins+sign@scale=meanmax",
     "--kind *bias=bias --kind norm=norm --kind conv*=conv --kind fc=dense", **model)
case("adacomp-auto-model", "the same: two units of scope model",
     "ef+adabins@auto,scope=model+sign@scale=meanmax", "--kind conv*=conv --kind fc=dense", **model)
case("adacomp-auto-other", "bins by kind, of other sizes; kinds count for rules as well",
     "ef+adabins@conv=9,other=64,weight=1+sign@scale=meanmax+adacomp8",
     "--kind conv*=conv --kind fc=dense --rule *.bias=adabins@conv=3+bf16", **model)

# Places and signs.
sparse = dict(a=stored("two"), b=repeated("zeros", [50000]), c=made(55, [700]), d=repeated("zeros", [3000]),
              e=stored("one"))
case("adacomp8", "places and signs in bytes", "ef+adabins@50,weight=1+sign@scale=meanmax+adacomp8", "", w=prime)
case("adacomp8-64", "the longest bins that bytes have room for", "adabins@64,weight=1+sign+adacomp8", "",
     w=made(56, [6400]))
case("adacomp8-bin-1", "bins of one: no place but 0", "adabins@1+sign+adacomp8", "", w=stored("one"))
case("adacomp8-skips", "cells that are skipped, by several bytes where one is not enough",
     "adabins@7,scope=model,weight=1+sign+adacomp8", "", **sparse)
case("adacomp8-bitmap", "many values: the bitmap is shorter", "ef+adabins@8+sign@scale=meanmax+adacomp8", "", w=prime)
case("adacomp8-zeros", "nothing is sent", "ef+adabins@50+sign@scale=meanmax+adacomp8", "", w=stored("zeros"))
case("adacomp8-of-16", "an fp16 tensor", "ef+adabins@40,weight=1+sign@scale=meanmax+adacomp8", "",
     w=made(57, [3001], "fp16"))
case("adacomp8-chunks", "cells start anew in each chunk, bins do not",
     "ef+adabins@50,weight=1+sign@scale=meanmax+adacomp8", "", w=made(58, [CHUNK + 321]))
case("adacomp8-pass", "places, signs and a scale of NaN", "adabins@64,weight=1+sign+adacomp8", "--nonfinite pass",
     w=stored("nonfinite32"), v=made(59, [640]))
case("adacomp16", "places and signs in pairs of bytes", "ef+adabins@500,weight=1+sign@scale=meanmax+adacomp16", "",
     w=made(4, [40009]))
case("adacomp16-16384", "the longest bins", "adabins@16384,weight=1.0625+sign+adacomp16", "", w=made(60, [100003]))
case("adacomp16-skips", "cells that are skipped, by several pairs of bytes where one is not enough",
     "adabins@1,scope=model+sign+adacomp16", "", **{**sparse, "c": stored("scalar-16")})
case("adacomp16-bitmap", "many values: the bitmap is shorter", "ef+adabins@500+sign@scale=meanmax+adacomp16", "",
     w=made(3, [5000], "fp16"))
case("adacomp16-chunks", "cells start anew in each chunk, bins do not",
     "ef+adabins@1000,weight=1.5+sign@scale=meanmax+adacomp16", "", w=made(61, [CHUNK + 4321], "fp16"))
case("adacomp16-led", "coordinates of a leader, in a file", "adabins@100,coords=shared,weight=1+sign+adacomp16", "",
     w=made(62, [3000]))

# Buckets: every quantizer that has them.
buckets = {
    "bingrad-b": "bingrad@b", "bingrad-pb": "bingrad@pb", "bingrad-zero": "bingrad@zero", "orq": "orq@9",
    "orq-exact": "orq@6,levels=exact", "linear": "linear@16", "qsgd": "qsgd@16", "qsgd-max": "qsgd@4,norm=max",
    "ternary": "ternary"}


def but(text, **parameters):
    """A part with more parameters."""
    return text + ("," if "@" in text else "@") + ",".join(f"{key}={value}" for key, value in parameters.items())


for name, text in buckets.items():
    case(name, "one bucket, not full", text, "", w=prime)
    case(f"{name}-50", "buckets of 50, the last one short", but(text, bucket=50), "--seed 21", w=prime)
    case(f"{name}-7", "buckets of 7, the last one short; an fp16 tensor", but(text, bucket=7), "--step 3 --rank 2",
         w=made(70, [500], "fp16"))
    case(f"{name}-1", "buckets of one", but(text, bucket=1), "", w=made(71, [29]))
    case(f"{name}-chunks", "buckets start anew in each chunk", f"topk@0.015+{but(text, bucket=500)}", "--seed 3",
         w=made(73, [CHUNK + 70001]))
    case(f"{name}-alike", "all zero, all alike, two values, few", but(text, bucket=30), "", a=stored("zeros"),
         b=stored("alike"), c=stored("alike-16"), d=stored("equal"), e=stored("blocks"))
    case(f"{name}-finite", "both ends of the range, denormals", but(text, bucket=20), "", a=stored("finite32"),
         b=stored("denormal"))
    case(f"{name}-finite-of-16", "an fp16 tensor: denormals and the largest", but(text, bucket=6), "",
         w=stored("finite16"))
    case(f"{name}-pass", "a bucket with NaN or Inf is one of NaN", but(text, bucket=2), "--nonfinite pass",
         w=stored("nonfinite32"), v=stored("nonfinite16"))
    case(f"{name}-zero", "NaN and Inf taken as 0", but(text, bucket=5), "--nonfinite zero", w=stored("nonfinite16"))
    case(f"{name}-clip", "values far out are clipped; without a deviation all are, to 0",
         but(text, bucket=48, clip=2.5), "", w=stored("outliers"), v=stored("alike"))
    case(f"{name}-clip-most", "most values are clipped", but(text, clip=0.5), "", w=prime)
    case(f"{name}-topk", "behind topk, with feedback", f"ef+topk@0.1+{but(text, bucket=30)}", "", w=prime)
    case(f"{name}-randomk", "at coordinates that are drawn", f"randomk@0.1+{but(text, bucket=30)}", "--seed 7", w=prime)
    case(f"{name}-randomk-own", "at a rank's own coordinates, scaled", f"randomk@0.1,unbiased=yes+{text}",
         "--rank 4294967294 --step 18446744073709551615", w=prime)
    case(f"{name}-model", "across tensors", f"threshold@0.5,scope=model+{but(text, bucket=40)}", "--seed 5 --rank 1",
         **model)
case("buckets-standard", "two buckets of the standard size", "linear@3", "", w=made(72, [2500]))
case("buckets-units", "each unit has chances of its own", "ternary@bucket=64", "--seed 5", **model)
case("buckets-ef", "every element, with feedback", "ef+orq@3,bucket=100", "", w=prime)
case("buckets-adabins", "behind bins", "ef+adabins@50+orq@5,bucket=20", "", w=prime)
case("buckets-adabins-linear", "behind bins, a bitmap", "adabins@20,weight=1+linear@4,bucket=20+bitmap", "", w=prime)
case("buckets-threshold", "behind a threshold", "ef@decay=0.9+threshold@0.6+qsgd@7", "--rank 1", w=prime)
case("buckets-threshold-nothing", "nothing is sent: no bucket", "threshold@1e30+ternary", "", w=prime)
case("buckets-threshold-chunks", "three chunks, nothing sent in the second", "threshold@0.9,scope=model+orq@3",
     "--seed 2", a=made(74, [CHUNK - 100]), b=repeated("zeros", [CHUNK + 200]), c=made(75, [999], "fp16"))
case("buckets-randomblock-chunks", "a block across the border of two chunks", "randomblock@0.006+qsgd@3,bucket=100",
     "--seed 7 --step 12", w=made(76, [2 * CHUNK + 12345], "fp16"))
case("buckets-rules", "two quantizers, two units of scope model", "topk@0.2,scope=model+bingrad@pb",
     "--rule *.bias=randomk@0.5,scope=model+natural --rule n*=ternary --seed 1", **model)
case("buckets-of-64-thousand", "the largest buckets, two chunks", "randomk@0.3+bingrad@b,bucket=65536", "--seed 3",
     w=made(77, [CHUNK + 9000]))
case("buckets-every-chunks", "every element, two chunks of five buckets and one", "bingrad@zero,bucket=60000", "",
     w=repeated("equal", [CHUNK + 100]))


def several(name, covers, recipes):
    """A tensor by each recipe."""
    rules = [f"--rule w{number}={recipe}" for number, recipe in enumerate(recipes)]
    tensors = {f"w{number}": made(90 + number, [127]) for number in range(len(recipes))}
    case(name, covers, recipes[0], " ".join(["--step 8", *rules]), **tensors)


several("bingrad-iters", "steps to the best threshold", [f"bingrad@b,bucket=100,iters={i}" for i in (0, 1, 2, 3, 100)])
several("orq-levels", "greedy levels", [f"orq@{levels},bucket=100" for levels in (3, 5, 9, 17)])
several("orq-levels-exact", "the best levels", [f"orq@{s},bucket=100,levels=exact" for s in range(2, 18)])
several("orq-half", "levels that travel as fp16", [f"orq@{levels},bucket=100,half=yes" for levels in (3, 5, 9, 17)] +
        [f"orq@{s},bucket=100,levels=exact,half=yes" for s in (2, 4, 8, 16)])
several("linear-levels", "levels at equal distances", [f"linear@{s},bucket=100" for s in (2, 3, 5, 17, 100, 255, 256)])
several("qsgd-levels", "levels of magnitudes", [f"qsgd@{s},bucket=100,norm={norm}" for s in (1, 2, 3, 5, 100, 254, 255)
                                                for norm in ("l2", "max")])
case("orq-exact-large", "the best levels of many values", "orq@7,levels=exact", "", w=made(78, [1500]))
case("orq-half-finite", "levels beyond fp16, and below it", "orq@5,bucket=9,half=yes", "", w=stored("finite32"))
case("orq-half-of-16", "levels of an fp16 tensor as they are", "orq@5,bucket=30,half=yes", "",
     w=made(79, [301], "fp16"))
case("qsgd-norm-beyond", "a norm beyond the largest finite value", "qsgd@3", "", w=repeated("finite32", [200]))
leaves = ["bingrad@b", "bingrad@zero", "bingrad@pb", "orq@9", "linear@16", "qsgd@16", "qsgd@4,norm=max,clip=2.5",
          "ternary", "bingrad@b,clip=1.5", "linear@4,clip=2"]
case("leaves", "sums of several leaves, a number that is no power of two, and a short one", "fp4",
     " ".join(f"--rule w{number}={but(recipe, bucket=5100)}" for number, recipe in enumerate(leaves)),
     **{f"w{number}": made(120 + number, [7003]) for number in range(len(leaves))}, t=made(119, [7003]))
case("natural", "powers of two", "natural", "", w=prime)
case("natural-finite", "denormals and both ends of the range", "natural", "--seed 1", a=stored("finite32"),
     b=stored("finite16"), c=stored("denormal"), d=stored("zeros"))
case("natural-pass", "NaN and Inf are Inf", "natural", "--nonfinite pass", w=stored("nonfinite32"),
     v=stored("nonfinite16"))
case("natural-zero", "NaN and Inf taken as 0", "natural", "--nonfinite zero", w=stored("nonfinite32"))
case("natural-topk", "behind topk, with feedback", "ef+topk@0.2+natural", "--rank 9", w=prime)
case("natural-randomk", "at coordinates that are drawn, scaled", "randomk@0.3,unbiased=yes+natural", "--seed 7",
     w=prime)
case("natural-chunks", "two chunks", "topk@0.01+natural", "--seed 3", w=made(73, [CHUNK + 70001]))
case("natural-model", "across tensors", "topk@0.2,scope=model+natural", "--seed 5", **model)
for number, flags in enumerate(("", "--seed 1", "--step 1", "--rank 1", "--step 4294967296",
                                "--seed 18446744073709551615 --step 18446744073709551615 --rank 4294967294")):
    case(f"chances-{number}", "seed, step and rank decide what is rounded up", "linear@2,bucket=50", flags,
         w=made(80, [120]))
case("sign-one", "signs alone", "sign@scale=one", "", w=stored("finite32"))
case("sign-one-topk", "signs of the largest", "topk@0.1+sign@scale=one", "", w=prime)
case("sign-one-randomk", "signs at coordinates that are drawn", "randomk@0.1,unbiased=yes+sign@scale=one", "--seed 7",
     w=prime)
case("sign-one-adacomp8", "places and signs", "adabins@50,weight=1+sign@scale=one+adacomp8", "", w=prime)
case("sign-one-pass", "the signs of NaN and Inf", "sign@scale=one", "--nonfinite pass", w=stored("nonfinite32"))
case("sign-one-chunks", "two chunks, an fp16 tensor", "sign@scale=one", "", w=repeated("finite16", [CHUNK + 9]))

# Tiny floats, and every way to write their symbols.
tiny = {"fp4": "fp4", "fp8": "fp8@e5m2", "fp8-e4m3": "fp8@e4m3"}
packs = {"bits": "", "huffman": "+huffman", "model": "+huffman@model", "rans": "+rans"}


def by_packs(name, covers, recipe, flags, **tensors):
    """Each tensor by each pack."""
    rules = [f"--rule *-{pack}={recipe}{end}" for pack, end in packs.items()]
    case(name, covers, recipe, " ".join([flags, *rules]),
         **{f"{tensor}-{pack}": entry for tensor, entry in tensors.items() for pack in packs})


for name, text in tiny.items():
    for pack, end in {**packs, "zstd": "+zstd"}.items():
        case(f"{name}-{pack}", "every element", text + end, "", w=made(100, [5003]))
    by_packs(f"{name}-of-16", "an fp16 tensor", text, "--step 3", w=made(101, [997], "fp16"))
    by_packs(f"{name}-alike", "all zero, all alike, denormals", text, "", a=stored("zeros"), b=stored("alike"),
             c=stored("alike-16"), d=stored("denormal"))
    by_packs(f"{name}-finite", "both ends of the range, values far out", text, "", a=stored("finite32"),
             b=stored("finite16"), c=stored("outliers"), d=stored("blocks"))
    by_packs(f"{name}-pass", "values with NaN or Inf are NaN", text, "--nonfinite pass", a=stored("nonfinite32"),
             b=stored("nonfinite16"))
    by_packs(f"{name}-topk", "behind topk, with feedback", f"ef@decay=0.9+topk@0.1+{text}", "", w=made(102, [2003]))
    by_packs(f"{name}-randomk", "at coordinates that are drawn", f"randomk@0.2+{text}", "--seed 7", w=made(103, [2003]))
    case(f"{name}-across", "across tensors", f"threshold@0.1,scope=model+{text}+rans", "--rank 1", **model)
    by_packs(f"{name}-chunks", "three chunks", f"topk@0.003+{text}", "", w=made(73, [2 * CHUNK + 70001]))
    by_packs(f"{name}-every-chunks", "every element, two chunks", text, "", w=repeated("equal", [CHUNK + 100]))
case("fp4-zero", "NaN and Inf taken as 0", "fp4+rans", "--nonfinite zero", w=stored("nonfinite32"))
case("fp4-randomk-own", "at a rank's own coordinates, scaled", "randomk@0.1,unbiased=yes+fp4+huffman",
     "--rank 4294967294 --step 18446744073709551615", w=prime)
case("fp4-nothing", "nothing is sent: neither a code nor numbers", "threshold@1e30+fp4+rans", "", w=prime)
case("fp4-every", "all elements by topk", "topk@1+fp4+huffman@model", "", w=prime)
case("fp4-bitmap", "a bitmap, and symbols that are coded", "topk@0.2+fp4+bitmap+rans", "", w=prime)
case("fp4-adabins", "behind bins", "ef+adabins@20+fp4+huffman", "", w=prime)
case("fp4-rules", "three packs, units of scope model", "topk@0.2,scope=model+fp4+rans",
     "--rule *.bias=topk@0.2,scope=model+fp4+huffman --rule n*=fp4", **model)
case("fp4-states-1", "one state of a range code", "fp4+rans", "", w=made(104, [1001]))
case("fp4-states-4", "four states of a range code", "fp4+rans", "", w=made(104, [4011]))
case("fp4-states-16", "16 states of a range code", "fp4+rans", "", w=made(104, [16011]))
case("fp4-states-32", "32 states of a range code", "fp4+rans", "", w=made(104, [30011]))
case("fp4-segments", "segments of a range code, the last of them short", "fp4+rans", "", w=made(104, [200003]))
case("fp8-segments", "more segments of a range code", "fp8+rans", "", w=made(104, [262144]))
case("fp4-streams", "streams of a prefix code", "fp4+huffman", "--rule b=fp4+huffman@model", a=made(104, [8193]),
     b=made(104, [8192]))
case("lossless-segments", "many segments behind lower bytes", "bf16+lossless", "", w=made(104, [100003]))
case("lossless-states-4", "four states of a range code behind lower bytes", "bf16+lossless", "", w=made(104, [10007]))
case("fp4-refit", "a step that fits, of several", "ef+fp4@refit=5+huffman", "--step 4", w=prime)
case("fp8-refit", "parameters in canonical order", "ef+topk@0.2+fp8@refit=100,format=e4m3+rans", "", w=prime)
case("co3", "CO3: tiny floats, a prefix code, feedback that fades", "ef@decay=0.9+fp4+huffman", "--step 4", w=prime)

# Symbols that are coded, of every quantizer that has them.
symbols = ["sign", "sign@scale=one", "bingrad@b", "bingrad@pb", "bingrad@zero", "orq@3", "orq@9", "linear@16",
           "linear@256", "qsgd@1", "qsgd@16", "qsgd@255", "ternary", "natural"]


def coded(name, covers, pack, entry):
    """A tensor by each of these quantizers."""
    rules = [f"--rule w{number}={recipe}+{pack}" for number, recipe in enumerate(symbols)]
    case(name, covers, symbols[0], " ".join(["--step 8", *rules]), **{f"w{i}": entry for i in range(len(symbols))})


for pack in ("huffman", "rans", "zstd"):
    coded(f"coded-{pack}", "symbols of every quantizer", pack, made(105, [2003]))
    coded(f"coded-{pack}-few", "symbols of few values", pack, repeated("equal", [1500]))
    case(f"coded-{pack}-chunks", "buckets start anew in each chunk", f"topk@0.015+orq@9,bucket=500+{pack}", "--seed 3",
         w=made(73, [CHUNK + 70001]))
    case(f"coded-{pack}-drawn", "at coordinates that are drawn; a chunk without any",
         f"randomblock@0.1+ternary@bucket=300+{pack}", "--seed 7 --step 1", w=made(106, [2 * CHUNK + 12345], "fp16"))
    case(f"coded-{pack}-none", "three chunks, nothing sent in the second", f"threshold@0.9,scope=model+orq@3+{pack}",
         "--seed 2", a=made(74, [CHUNK - 100]), b=repeated("zeros", [CHUNK + 200]), c=made(75, [999], "fp16"))
    case(f"coded-{pack}-pass", "buckets of NaN", f"linear@5,bucket=3+{pack}", "--nonfinite pass",
         w=stored("nonfinite32"), v=stored("nonfinite16"))
case("coded-zstd-levels", "levels of zstd", "natural+zstd@1", "--rule b=natural+zstd@9 --rule c=fp4+zstd@5",
     a=made(107, [2003]), b=made(107, [2003]), c=made(107, [2003]))

# A scale for every few values.
scaled = {"mxfp8": "mxfp8", "mxfp8-e5m2": "mxfp8@e5m2", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
for name, text in scaled.items():
    drawn = but(text, round="random")
    case(name, "every element, the last block short", text, "", w=made(120, [5003]))
    case(f"{name}-of-16", "an fp16 tensor", text, "--step 3", w=made(121, [997], "fp16"))
    case(f"{name}-random", "rounded at random, with feedback", f"ef+{drawn}", "--seed 9 --step 2 --rank 3", w=made(122, [5003]))
    case(f"{name}-random-finite", "rounded at random, both ends of the range", drawn, "", a=stored("finite32"),
         b=stored("denormal"), c=stored("outliers"))
    case(f"{name}-alike", "all zero, all alike, denormals", text, "", a=stored("zeros"), b=stored("alike"),
         c=stored("alike-16"), d=stored("denormal"), e=stored("equal"))
    case(f"{name}-finite", "both ends of the range, values far out", text, "", a=stored("finite32"),
         b=stored("finite16"), c=stored("outliers"), d=stored("blocks"))
    case(f"{name}-pass", "blocks with NaN or Inf are NaN", text, "--nonfinite pass", a=stored("nonfinite32"),
         b=stored("nonfinite16"), c=repeated("nonfinite32", [300]))
    case(f"{name}-zero", "NaN and Inf taken as 0", text, "--nonfinite zero", w=stored("nonfinite16"))
    case(f"{name}-topk", "behind topk, with feedback", f"ef@decay=0.9+topk@0.1+{text}", "", w=made(123, [2003]))
    case(f"{name}-chunks", "blocks start anew in each chunk", f"topk@0.015+{drawn}", "--seed 3", w=made(73, [CHUNK + 70001]))
    case(f"{name}-randomk", "at coordinates that are drawn", f"randomk@0.2+{drawn}", "--seed 7", w=made(124, [2003]))
    case(f"{name}-model", "across tensors", f"threshold@0.5,scope=model+{text}", "--rank 1", **model)
    case(f"{name}-hadamard", "rotated, the end as it is", f"hadamard@64+{text}", "--seed 11", w=made(125, [5003]),
         v=stored("outliers"))
    case(f"{name}-hadamard-32", "rotated by 32, rounded at random, without a seed", f"ef+hadamard@32+{drawn}",
         "--rank 1", w=made(126, [1001]))
    case(f"{name}-hadamard-topk", "behind topk, rotated by 128", f"ef+topk@0.3+hadamard@128+{text}", "--seed 12",
         w=made(127, [2003]), v=stored("finite32"))
    case(f"{name}-hadamard-finite", "both ends of the range, rotated", f"hadamard@32+{text}", "--seed 13",
         a=repeated("finite32", [700]), b=repeated("denormal", [400]))
    case(f"{name}-hadamard-pass", "a rotation of NaN", f"hadamard@32+{text}", "--nonfinite pass",
         a=repeated("nonfinite32", [300]))
    for pack in ("huffman", "rans", "zstd"):
        case(f"{name}-{pack}", "symbols that are coded", f"{text}+{pack}", "", w=made(128, [5003]))
for number, recipe in enumerate(("mxfp8@block=32", "ef+mxfp4@round=random,block=128", "hadamard@32+mxfp8@block=128",
                                 "topk@0.3+hadamard@32+mxfp4@block=64", "mxfp8@e5m2,block=32")):
    case(f"scaled-block-{number}", "blocks of other lengths, rotations shorter than they are", recipe, "--seed 14", w=made(130, [1001]))
case("scaled-nothing", "nothing is sent: no block and no head", "threshold@1e30+nvfp4", "", w=prime)
case("scaled-adabins", "behind bins", "ef+adabins@20+mxfp4", "", w=prime)
case("scaled-rules", "several in a frame", "mxfp8", "--seed 4 --rule b=nvfp4 --rule c=hadamard@32+mxfp4 --rule d=fp16",
     a=prime, b=prime, c=prime, d=prime)
case("scaled-every-chunks", "every element, two chunks", "mxfp4", "", w=repeated("finite16", [CHUNK // 64 + 3, 64]))
case("scaled-chunks", "a head for each chunk", "nvfp4", "", w=made(129, [CHUNK + 4001]))
for number, recipe in enumerate(("mxfp8", "mxfp4@round=random", "nvfp4", "hadamard@32+nvfp4")):
    case(f"scaled-shapes-{number}", "no element, no dimension, one element, two", recipe, "--seed 2", a=stored("empty"),
         b=stored("empty-16"), c=stored("scalar"), d=stored("scalar-16"), e=stored("one"), f=stored("two"))

# Values of which nothing is lost.
for pack in ("lossless", "zstd"):
    for text in ("fp32", "fp16", "bf16"):
        case(f"{pack}-{text}", "tensors of fp32 and fp16, short and long", f"{text}+{pack}", "", a=stored("finite32"),
             b=stored("finite16"), c=made(108, [2003]), d=made(109, [2003], "fp16"), e=repeated("zeros", [3000]),
             f=repeated("alike", [500]), g=stored("denormal"))
        case(f"{pack}-{text}-pass", "NaN and Inf let through", f"{text}+{pack}", "--nonfinite pass",
             a=repeated("nonfinite32", [600]), b=stored("nonfinite16"))
        case(f"{pack}-{text}-chunks", "behind topk, three chunks", f"topk@0.003+{text}+{pack}", "",
             w=made(73, [2 * CHUNK + 70001]))
    case(f"{pack}-randomk", "at coordinates that are drawn, scaled", f"randomk@0.5,unbiased=yes+fp16+{pack}",
         "--seed 7", w=prime)
    case(f"{pack}-bitmap", "a bitmap, with feedback", f"ef+topk@0.4+bf16+bitmap+{pack}", "", w=prime)
    case(f"{pack}-every-chunks", "every element, two chunks", f"bf16+{pack}", "", w=repeated("equal", [CHUNK + 100]))

# Geometric indices.
for text in ("fp32", "fp16", "bf16", "sign", "orq@9,bucket=100", "fp8@e5m2", "natural"):
    name = text.partition("@")[0]
    case(f"geometric-{name}", "gaps by a range code", f"topk@0.1+{text}+rans", "", w=made(110, [7001]))
for number, (ratio, size) in enumerate(((0.9, 997), (0.7, 5003), (0.03, 40009), (0.01, 600011), (0.001, 600011))):
    case(f"geometric-{number}", "from dense to sparse", f"topk@{ratio}+fp16+rans", "", w=made(111, [size]))
case("geometric-threshold", "a threshold, an fp16 tensor", "ef+threshold@0.5+fp32+rans", "",
     w=made(112, [9001], "fp16"))
case("geometric-randomk", "a rank's own", "randomk@0.1+fp16+rans", "--rank 5 --step 3", w=made(113, [9001]))
case("geometric-model", "across tensors", "topk@0.1,scope=model+bf16+rans", "", a=made(114, [3000]),
     b=made(115, [20, 70], "fp16"), c=stored("blocks"))
case("geometric-not", "runs, a bitmap, every element and none are shorter", "threshold@1+fp16+rans",
     "--rule b=topk@0.5+fp32+rans --rule c=topk@1+fp16+rans --rule d=threshold@1e30+fp16+rans", a=stored("blocks"),
     b=prime, c=stored("equal"), d=prime)
case("geometric-drawn", "no indices: the pack has nothing to do", "randomk@0.1+fp16+rans", "--seed 7", w=prime)

# Shapes.
for number, recipe in enumerate(("fp32", "topk@0.5+fp16", "threshold@1", "randomk@0.5", "randomblock@0.5,coords=own",
                                 "ef+adabins@2+sign@scale=meanmax", "adabins@2+sign+adacomp8", "sign",
                                 "sign@scale=one", "natural", *buckets.values(), "fp4", "fp4+huffman@model",
                                 "fp8+rans", "fp8@e4m3+huffman", "fp32+lossless", "bf16+lossless",
                                 "topk@0.5+fp16+rans", "ternary+rans", "natural+huffman", "fp16+zstd", "sign+zstd")):
    case(f"shapes-{number}", "no element, no dimension, one element, two", recipe, "--seed 2", a=stored("empty"),
         b=stored("empty-16"), c=stored("scalar"), d=stored("scalar-16"), e=stored("one"), f=stored("two"))
case("empty", "one tensor without elements", "topk@0.1", "", w=stored("empty-16"))
case("scalar", "one tensor without dimensions", "topk@0.1", "", w=stored("scalar"))
case("dimensions", "32 dimensions", "topk@0.1", "", w=made(40, [2, 1, 3, 1] + [1] * 27 + [5]))
case("names", "names beyond ASCII, with spaces, and long", "fp16", "",
     **{"größe 重み": stored("one"), "a b\tc": stored("one"), "n" * 250: stored("two")})


# ---- Making ----------------------------------------------------------------------------------------------------------

def options_of(flags):
    """Flags of `tersegrad encode` as arguments of meaning.expected."""
    options = {"rules": [], "kinds": []}
    for flag, value in zip(flags[::2], flags[1::2]):
        if flag in ("--rule", "--kind"):
            options[flag[2:] + "s"].append(tuple(value.split("=", 1)))
        else:
            options[flag[2:].replace("-", "_")] = value if flag == "--nonfinite" else int(value)
    return options


def make_row(program, anew, source):
    """(row of the manifest, files to store as {name: bytes})"""
    with tempfile.TemporaryDirectory() as folder:
        return make_row_in(pathlib.Path(folder), program, anew, source)


def make_row_in(folder, program, anew, source):
    row = dict(source)
    tensors = [(entry["name"], golden.input_of(entry, in_cases)) for entry in row["inputs"]]
    frame = golden.encode(program, folder, row, tensors, 1)
    assert frame == golden.encode(program, folder, row, tensors, 3), f"{row['name']}: other bytes with three threads"
    path = f"frames/{row['name']}.tg"
    if row.get("decode_only") and not anew:
        frame = golden.files().get(path, frame)
    info, theirs = ref.decode(frame)
    ours = golden.decode(program, folder, frame)
    meant = meaning.expected(tensors, row["recipe"], **options_of(row["flags"]))
    files = {path: frame}
    outputs = []
    for number, ((name, array), (_, other), third) in enumerate(zip(ours, theirs, meant)):
        what = f"{row['name']}, tensor '{name}'"
        assert array.tobytes() == other.tobytes(), f"{what}: program and reference decoder differ"
        assert meaning.agree(array, third), f"{what}: it is not what the recipe means"
        entry = {"name": name, "dtype": "fp32" if array.dtype == np.float32 else "fp16", "shape": list(array.shape)}
        if array.nbytes <= STORED_LEN_MAX:
            entry["file"] = f"outputs/{row['name']}.{number}.npy"
            files[entry["file"]] = npy(array)
        else:
            entry["sha256"] = golden.digest(array)
        outputs.append(entry)
    row.update(frame=path, sha256=golden.digest(frame), canonical=info["recipes"], modes=golden.modes_of(frame),
               outputs=outputs)
    return row, files


def in_cases(file):
    return STORED[pathlib.PurePath(file).stem]


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def main():
    parser = argparse.ArgumentParser(description="Make the golden frames.")
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("--anew", action="store_true", help="make all frames again, for a new version of the format")
    options = parser.parse_args()
    assert len({case["name"] for case in CASES}) == len(CASES), "two cases have the same name"

    rows, files = [], {f"inputs/{name}.npy": npy(array) for name, array in STORED.items()}
    old = golden.files()  # before the workers start, so that they share it
    with concurrent.futures.ProcessPoolExecutor() as pool:
        make = functools.partial(make_row, pathlib.Path(options.program).resolve(), options.anew)
        for row, new in pool.map(make, CASES, chunksize=4):
            rows.append(row)
            files.update(new)

    changes = archive.changes(old, files)
    if changes and not options.anew:
        print("\n".join(changes), "golden frames are permanent; nothing was written", sep="\n", file=sys.stderr)
        return 1
    archive.store(golden.ARCHIVE, files)
    golden.MANIFEST.write_text(json.dumps({"frames": rows}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(rows)} frames, {golden.ARCHIVE.stat().st_size} bytes, {len(set(files) - set(old))} files new")
    return 0


if __name__ == "__main__":
    sys.exit(main())
