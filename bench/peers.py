#!/usr/bin/env python3
"""Jobs of the codec beside the same jobs written in plain PyTorch operations, and beside zstd: one process, one thread, in turns.

    bench/peers.py [--input build/gradients.npy] [--rounds R] [--library build/release/libtersegrad.so] [--page]

A job is to encode: from a gradient to what is sent, the residual brought up to date; and to decode: from what is sent to a
dense array. PyTorch's side is what people write, a few whole-array operations, and is let off lightly: it packs no bits
(levels are int8, indices int32), keeps no checksum and looks for no NaN. Before anything is timed, both sides' results are
held against each other: the same entries, the same values, and where rounding is random the same levels, no bias and the
same error. Needs NumPy and PyTorch (Debian: python3-torch); libzstd. --page puts the tables into bench/README.md.
"""

import argparse
import ctypes
import ctypes.util
import pathlib
import shutil
import statistics
import sys
import time

import numpy
import torch

from tables import put_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUCKET = 2048
RATIO = 0.01


def check(condition, sentence):
    if not condition:
        sys.exit(f"peers: {sentence}")


# ---- PyTorch ---------------------------------------------------------------------------------------------------------------

class Half:
    def __init__(self, n):
        del n

    def encode(self, g):
        return g.half()

    def decode(self, sent):
        return sent.float()


class Feedback:
    def __init__(self, n):
        self.n, self.k = n, round(RATIO * n)
        self.residual = torch.zeros(n)


class TopK(Feedback):
    def encode(self, g):
        self.residual += g
        index = torch.topk(self.residual.abs(), self.k, sorted=False).indices
        values = self.residual[index]
        self.residual[index] = 0
        return index.int(), values

    def decode(self, sent):
        index, values = sent
        return torch.zeros(self.n).index_copy_(0, index.long(), values)


class RandomBlock(Feedback):
    def encode(self, g):
        self.residual += g
        start = int(torch.randint(self.n, ()))
        values = torch.cat([self.residual[start:start + self.k], self.residual[:max(0, start + self.k - self.n)]])
        self.residual[start:start + self.k] = 0
        self.residual[:max(0, start + self.k - self.n)] = 0
        return start, values

    def decode(self, sent):
        start, values = sent
        out = torch.zeros(self.n)
        first = min(self.k, self.n - start)
        out[start:start + first] = values[:first]
        out[:self.k - first] = values[first:]
        return out


class Sign(Feedback):
    def encode(self, g):
        self.residual += g
        scale = self.residual.abs().mean()
        is_positive = self.residual >= 0
        self.residual -= torch.where(is_positive, scale, -scale)
        return is_positive, scale

    def decode(self, sent):
        is_positive, scale = sent
        return torch.where(is_positive, scale, -scale)


class Qsgd:
    """Multiples of a bucket's unit: a sixteenth of its norm."""

    def __init__(self, n):
        self.n = n

    def unit(self, x):
        return x.norm(dim=1, keepdim=True).clamp_min_(1e-38) / 16

    def encode(self, g):
        x = g.view(-1, BUCKET)
        unit = self.unit(x)
        steps = (x.abs() / unit + torch.rand(x.shape)).floor_()
        return (steps * x.sign()).to(torch.int8), unit

    def decode(self, sent):
        steps, unit = sent
        return (steps * unit).view(-1)

    def interval(self, x):
        """The level below each value, and how far the next one is."""
        unit = self.unit(x).double()
        return (x / unit).floor() * unit, unit.expand_as(x)


class Ternary(Qsgd):
    def unit(self, x):
        return x.abs().amax(dim=1, keepdim=True).clamp_min_(1e-38)

    def encode(self, g):
        x = g.view(-1, BUCKET)
        unit = self.unit(x)
        is_sent = torch.rand(x.shape) < x.abs() / unit
        return (is_sent * x.sign()).to(torch.int8), unit


class Orq3:
    """A bucket's ends, and between them the value that has as large a share of values above it as the mean is on the way."""

    def __init__(self, n):
        self.n = n

    def levels(self, x):
        ordered = x.sort(dim=1).values
        low, high = ordered[:, :1], ordered[:, -1:]
        below = (high - ordered[:, 1:]).sum(dim=1, keepdim=True, dtype=torch.float64)
        place = (below / (high - low).double().clamp_min_(1e-38)).ceil().long().clamp_max_(BUCKET - 1)
        return low, ordered.gather(1, place), high

    def encode(self, g):
        x = g.view(-1, BUCKET)
        low, middle, high = self.levels(x)
        is_upper = x >= middle
        start, end = torch.where(is_upper, middle, low), torch.where(is_upper, high, middle)
        goes_up = torch.rand(x.shape) * (end - start) < x - start
        return is_upper.to(torch.int8) + goes_up, torch.cat([low, middle, high], 1)

    def decode(self, sent):
        symbols, levels = sent
        return levels.gather(1, symbols.long()).view(-1)

    def interval(self, x):
        low, middle, high = (level.double() for level in self.levels(x))
        is_upper = x >= middle
        start = torch.where(is_upper, middle, low)
        return start, torch.where(is_upper, high, middle) - start


# ---- ours ------------------------------------------------------------------------------------------------------------------

def load_package(library):
    """The package as it is in this checkout, with a library that was built."""
    place = ROOT / "build/peers"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(ROOT / "python/tersegrad", place / "tersegrad")
    shutil.copy(library, place / "tersegrad/libtersegrad.so")
    sys.path.insert(0, str(place))
    import tersegrad._library as loaded
    return loaded


class Ours:
    """A codec by the package's table of functions; Codec itself also copies the frame, into bytes that Python owns."""

    def __init__(self, c, recipe, n):
        self.c, self.step, self.handle, self.length = c, 0, ctypes.c_void_p(), ctypes.c_size_t()
        tensors = c.make_tensors([("array", (n,), "other", "float32")])
        c.call("tg_codec_new", ctypes.byref(self.handle), recipe.encode(), tensors, 1, c.make_options(seed=1))
        self.room = numpy.zeros(c.lib.tg_encode_bound(self.handle), numpy.uint8)
        self.out = numpy.zeros(n, numpy.float32)

    def encode(self, g):
        self.c.call("tg_encode", ctypes.byref(self.length), self.handle, self.room.ctypes.data, self.room.size, self.step,
                    self.c.pointers([g.data_ptr()]))
        self.step += 1
        return self.length.value

    def decode(self, length):
        self.c.call("tg_decode", self.handle, self.c.pointers([self.out.ctypes.data]), self.room.ctypes.data, length)
        return torch.from_numpy(self.out)

    def residual(self):
        out = numpy.zeros_like(self.out)
        self.c.call("tg_codec_residual", self.handle, out.ctypes.data_as(ctypes.POINTER(ctypes.c_float)), 0)
        return torch.from_numpy(out)

    def __del__(self):
        self.c.lib.tg_codec_free(self.handle)


# ---- checks ----------------------------------------------------------------------------------------------------------------

def check_equal(name, g, ours, theirs):
    """The same values, and with feedback the same residuals, for three steps. Where a sum is involved, its order shows: one
    part in 100,000 of the largest."""
    for step in range(3):
        a, b = ours.decode(ours.encode(g)).clone(), theirs.decode(theirs.encode(g))
        near = 1e-5 * float(b.abs().max()) if isinstance(theirs, Sign) else 0
        if isinstance(theirs, TopK):  # of equal magnitudes at the edge either may choose
            both = (a != 0) & (b != 0)
            check(int((a != 0).sum()) == int((b != 0).sum()) == theirs.k, f"{name}: not {theirs.k} entries in step {step}")
            check(float(both.sum()) > 0.9999 * theirs.k, f"{name}: other entries in step {step}")
            check(torch.equal(a[both], b[both]), f"{name}: other values in step {step}")
            check(bool((a.abs()[a != 0].min() - b.abs()[b != 0].min()).abs() < 1e-6 * b.abs().max()), f"{name}: not the largest")
            continue
        off = (a - b).abs()
        # A value next to 0 has one sign or the other by the order of the sum that the residual holds.
        check(float((off > near).float().mean()) <= (1e-4 if isinstance(theirs, Sign) else 0), f"{name}: other values in step {step}")


def check_block(name, g, ours, theirs):
    """A block of as many neighbours, around the end if need be, sent as they are; and nothing lost."""
    for side in (ours, theirs):
        back = side.decode(side.encode(g)).clone()
        residual = side.residual() if side is ours else side.residual
        check(torch.equal(back + residual, g), f"{name}: something is lost")
        check(int((back != 0).sum()) <= theirs.k and int((residual == 0).sum()) >= theirs.k, f"{name}: not a block of {theirs.k}")
        ends = torch.nonzero((back != 0).diff()).numel()  # as often as it changes between sent and not
        check(ends <= 3 + 2 * int(((g == 0) & (residual == 0)).sum()), f"{name}: not one block")


def check_rounding(name, g, ours, theirs):
    """Each value goes to one of the levels next to it, on the average to itself. With p its place between them, the error is
    Bernoulli's, and both its sum and its squares' are held to six standard deviations around what they must be. A level
    that is a value of the bucket may be the next one, by the order of a sum: in fewer than one bucket of a thousand."""
    start, width = (part.reshape(-1) for part in theirs.interval(g.view(-1, BUCKET)))
    place = g - start
    p = (place / width.clamp_min(1e-300)).clamp_(0, 1)
    variance = width ** 2 * p * (1 - p)
    for side in (ours, theirs):
        back = side.decode(side.encode(g)).double()
        off = back - g
        between = torch.minimum((back - start).abs(), (back - start - width).abs()) > 1e-3 * width + 1e-30
        check(float(between.view(-1, BUCKET).any(dim=1).float().mean()) < 1e-3, f"{name}: values go to other levels")
        bias = float(off.sum()) / float(variance.sum()) ** 0.5
        check(abs(bias) < 6, f"{name}: a bias of {bias:.1f} deviations")
        excess = float((off ** 2 - variance).sum()) / float((width ** 2 * variance * (1 - 2 * p) ** 2).sum()) ** 0.5
        check(abs(excess) < 6, f"{name}: an error of {excess:.1f} deviations more than it must be")


JOBS = (
    ("fp16", Half, check_equal),
    ("ef+topk@0.01", TopK, check_equal),
    ("ef+randomblock@0.01", RandomBlock, check_block),
    ("ef-signsgd", Sign, check_equal),
    ("qsgd@16", Qsgd, check_rounding),
    ("terngrad", Ternary, check_rounding),
    ("orq@3", Orq3, check_rounding),
)


# ---- zstd ------------------------------------------------------------------------------------------------------------------

class Zstd:
    """libzstd at level 1 on the bytes of the gradient as bf16."""

    def __init__(self, g):
        self.lib = ctypes.CDLL(ctypes.util.find_library("zstd"))
        for name in ("ZSTD_compress", "ZSTD_decompress", "ZSTD_compressBound"):
            getattr(self.lib, name).restype = ctypes.c_size_t
        self.raw = g.bfloat16().view(torch.int16).numpy()
        self.room = numpy.zeros(self.lib.ZSTD_compressBound(ctypes.c_size_t(self.raw.nbytes)), numpy.uint8)
        self.out = numpy.zeros_like(self.raw)

    def encode(self, _):
        return self.lib.ZSTD_compress(ctypes.c_void_p(self.room.ctypes.data), ctypes.c_size_t(self.room.nbytes),
                                      ctypes.c_void_p(self.raw.ctypes.data), ctypes.c_size_t(self.raw.nbytes), 1)

    def decode(self, length):
        self.lib.ZSTD_decompress(ctypes.c_void_p(self.out.ctypes.data), ctypes.c_size_t(self.out.nbytes),
                                 ctypes.c_void_p(self.room.ctypes.data), ctypes.c_size_t(length))
        return self.out


def check_packs(sides, g):
    """Whatever packs them, the same values come back."""
    backs = {name: side.decode(side.encode(g)) for name, side in sides.items()}
    zstd = torch.from_numpy(backs.pop("libzstd 1 on the bytes of bf16").copy()).view(torch.bfloat16).float()
    check(torch.equal(zstd, g.bfloat16().float()), "zstd: other values")
    for group in ("bf16", "ef+fp4"):
        values = [back for name, back in backs.items() if name.startswith(group + "+")]
        check(all(torch.equal(values[0], other) for other in values), f"{group}: other values by another pack")


# ---- the tables ------------------------------------------------------------------------------------------------------------

def times(sides, g, rounds):
    """Median milliseconds (encode, decode) of each side, in turns; and what the last encode returned."""
    found = {name: ([], []) for name in sides}
    sent = {}
    for r in range(rounds + 1):
        for name, side in sides.items():
            start = time.perf_counter()
            sent[name] = side.encode(g)
            middle = time.perf_counter()
            side.decode(sent[name])
            if r > 0:  # the first is for warming up
                found[name][0].append(1e3 * (middle - start))
                found[name][1].append(1e3 * (time.perf_counter() - middle))
    return {name: tuple(map(statistics.median, both)) for name, both in found.items()}, sent


def torch_table(c, g, rounds):
    lines = ["| recipe | encode: PyTorch, ms | ours, ms | times as fast | decode: PyTorch, ms | ours, ms | times as fast |",
             "|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    n = g.numel()
    for recipe, job, compare in JOBS:
        compare(recipe, g, Ours(c, recipe, n), job(n))
        found, _ = times({"ours": Ours(c, recipe, n), "theirs": job(n)}, g, rounds)
        (encode, decode), (their_encode, their_decode) = found["ours"], found["theirs"]
        lines.append(f"| `{recipe}` | {their_encode:.1f} | {encode:.1f} | {their_encode / encode:.1f} | {their_decode:.1f} | "
                     f"{decode:.1f} | {their_decode / decode:.1f} |")
        print(lines[-1], flush=True)
    return lines


def zstd_table(c, g, rounds):
    lines = ["| what | bits a value | encode, ms | decode, ms |", "|---|---|---|---|"]
    print("\n" + "\n".join(lines))
    recipes = ("bf16+lossless", "bf16+zstd@1", "ef+fp4+huffman", "ef+fp4+rans", "ef+fp4+zstd@1")

    def sides():
        return {**{recipe: Ours(c, recipe, g.numel()) for recipe in recipes}, "libzstd 1 on the bytes of bf16": Zstd(g)}
    check_packs(sides(), g)
    found, sent = times(sides(), g, rounds)
    for name, (encode, decode) in found.items():
        shown = f"`{name}`" if name in recipes else name
        lines.append(f"| {shown} | {8 * sent[name] / g.numel():.2f} | {encode:.1f} | {decode:.1f} |")
        print(lines[-1])
    return lines


def main():
    parser = argparse.ArgumentParser(description="The codec beside PyTorch and zstd.")
    parser.add_argument("--input", type=pathlib.Path, default=ROOT / "build/gradients.npy", help="see bench/gradients.py")
    parser.add_argument("--n", type=int, default=25_000_000, help="elements")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--library", type=pathlib.Path, default=ROOT / "build/release/libtersegrad.so")
    parser.add_argument("--page", action="store_true", help="put the tables into bench/README.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    c = load_package(options.library)
    g = torch.from_numpy(numpy.load(options.input).ravel()[:options.n // BUCKET * BUCKET])  # whole buckets
    print(f"{g.numel():,} elements, one thread, PyTorch {torch.__version__}, median of {options.rounds} rounds\n")
    tables = {"peers-torch": torch_table(c, g, options.rounds), "peers-zstd": zstd_table(c, g, options.rounds)}
    if options.page:
        for name, lines in tables.items():
            put_table(ROOT / "bench/README.md", name, lines)


if __name__ == "__main__":
    main()
