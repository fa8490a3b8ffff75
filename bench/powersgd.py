#!/usr/bin/env python3
"""A step of PowerSGD on ResNet-50's shapes beside the same arithmetic in PyTorch: one process, one rank, one thread, in turns.

    bench/powersgd.py [--ranks 4 ...] [--rounds N] [--library build/release/libtersegrad.so ...] [--page]

PyTorch's side is the arithmetic of its PowerSGD hook: M = gradient + error; P = M Q; P made orthonormal by torch.linalg.qr; Q = M' P;
the average P Q'; error = M - average. Ours is the whole step of an exchange of one rank, which also checks for NaN, and writes,
hashes and reads the frames of two all-reduces. Before anything is timed, both must return gradients of rank 2 as they are. Times are
those of the thread's CPU clock, the best of the rounds: machines are shared. Several libraries, such as an older one, are timed in
turns too. Prints a table; --page also puts it into bench/README.md. Needs PyTorch (Debian: python3-torch).
"""

import argparse
import ctypes
import os
import pathlib
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when PyTorch is loaded
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from tables import put_table

ROOT = pathlib.Path(__file__).resolve().parent.parent


def resnet50():
    shapes, width_in = [(64, 3 * 49)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            shapes += [(width, width_in), (width, 9 * width), (4 * width, width)]
            shapes += [(4 * width, width_in)] if block == 0 else []
            width_in = 4 * width
    return shapes + [(1000, 2048)]


class Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dims", ctypes.POINTER(ctypes.c_uint64)), ("dim_n", ctypes.c_uint32),
                ("kind", ctypes.c_uint32), ("dtype", ctypes.c_uint32)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("allocator", ctypes.c_void_p), ("rules", ctypes.c_void_p),
                ("rule_n", ctypes.c_size_t), ("seed", ctypes.c_uint64), ("dense_below", ctypes.c_uint64),
                ("has_seed", ctypes.c_uint32), ("threads", ctypes.c_uint32)] + [
                    (name, ctypes.c_uint32) for name in ("nonfinite", "rank", "describe")] + [
                        ("exchange", ctypes.c_char_p), ("verify_every", ctypes.c_uint64)]


class Ours:
    def __init__(self, library, shapes, rank):
        self.lib, self.step, self.why = ctypes.CDLL(str(library)), 0, ctypes.create_string_buffer(1024)
        tensors = (Tensor * len(shapes))(*(Tensor(f"t{i}".encode(), (ctypes.c_uint64 * 2)(*shape), 2, 2, 0)
                                           for i, shape in enumerate(shapes)))
        options = Options(size=ctypes.sizeof(Options), has_seed=1, seed=1, threads=1)
        self.handles = (ctypes.c_void_p * 1)()
        self.call("tg_exchange_new", ctypes.byref(self.handles), f"ef+lowrank@{rank}".encode(), tensors,
                  ctypes.c_size_t(len(shapes)), ctypes.c_uint32(0), ctypes.c_uint32(1), ctypes.byref(options))
        self.gradients = [torch.zeros(shape) for shape in shapes]
        self.spans = (ctypes.c_void_p * len(shapes))(*(g.data_ptr() for g in self.gradients))
        self.every = (ctypes.c_void_p * 1)(ctypes.addressof(self.spans))

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments, self.why) != 0:
            sys.exit(f"powersgd: {self.why.value.decode()}")

    def reduce(self):
        """self.gradients become averages. Returns milliseconds."""
        start = time.thread_time()
        self.call("tg_lockstep_reduce", None, self.handles, ctypes.c_uint32(1), ctypes.c_uint64(self.step), self.every, None)
        self.step += 1
        return (1e3 * (time.thread_time() - start),)

    def __del__(self):
        self.lib.tg_exchange_free(ctypes.c_void_p(self.handles[0]))


class Theirs:
    def __init__(self, shapes, rank):
        torch.manual_seed(1)
        self.gradients, self.errors, self.m = ([torch.zeros(shape) for shape in shapes] for _ in range(3))
        self.p = [torch.zeros(shape[0], rank) for shape in shapes]
        self.q = [2 * torch.rand(shape[1], rank) - 1 for shape in shapes]

    def reduce(self):
        """self.gradients become averages. Returns milliseconds: of the products with the orthonormal P, and of all."""
        start = time.thread_time()
        for g, error, m in zip(self.gradients, self.errors, self.m):
            torch.add(g, error, out=m)
        middle = time.thread_time()
        for m, p, q in zip(self.m, self.p, self.q):
            torch.matmul(m, q, out=p)
        self.p = [torch.linalg.qr(p)[0] for p in self.p]
        for m, p, q in zip(self.m, self.p, self.q):
            torch.matmul(m.t(), p, out=q)
        for g, p, q in zip(self.gradients, self.p, self.q):
            torch.matmul(p, q.t(), out=g)
        products = time.thread_time()
        for g, error, m in zip(self.gradients, self.errors, self.m):
            torch.sub(m, g, out=error)
        end = time.thread_time()
        return 1e3 * (products - middle), 1e3 * (end - middle), 1e3 * (end - start)


def check(sides, shapes):
    for name, side in sides.items():
        given = []
        for shape, gradient in zip(shapes, side.gradients):
            a, b = (torch.arange(n, dtype=torch.float64) for n in shape)
            given.append(torch.outer(torch.sin(a), torch.cos(b)) + torch.outer(torch.cos(3 * a), torch.sin(2 * b)))
            gradient.copy_(given[-1])
        side.reduce()
        off = max(float((average - want).abs().max()) for average, want in zip(side.gradients, given))
        if off > (1e-2 if name == "PyTorch" else 1e-4):  # its first Q may be nearly singular: it is off by 0.001 at rank 2
            sys.exit(f"powersgd: averages of {name} are off by {off}")


def measure(rank, libraries, rounds):
    shapes = [shape for shape in resnet50() if rank * sum(shape) < shape[0] * shape[1]]  # others are sent dense
    sides = {str(path): Ours(path.resolve(), shapes, rank) for path in libraries}
    sides["PyTorch"] = Theirs(shapes, rank)
    if rank >= 2:
        check(sides, shapes)
    random = torch.Generator().manual_seed(2)
    given = [torch.randn(shape, generator=random) for shape in shapes]
    found = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            for gradient, values in zip(side.gradients, given):
                gradient.copy_(values)
            found[name].append(side.reduce())
    products, with_residual, step = (min(column) for column in zip(*found.pop("PyTorch")))
    for name, times in found.items():
        ours = min(min(times))
        yield (f"| {rank} | {products:.1f} | {with_residual:.1f} | {step:.1f} | {ours:.1f} | "
               f"{ours / with_residual:.2f} | {ours / step:.2f} |" + (f" {name}" if len(found) > 1 else ""))


def main():
    parser = argparse.ArgumentParser(description="A step of PowerSGD beside PyTorch's products.")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8, 16, 64])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--library", type=pathlib.Path, nargs="+", default=[ROOT / "build/release/libtersegrad.so"])
    parser.add_argument("--page", action="store_true", help="put the table into bench/README.md")
    options = parser.parse_args()
    if options.page and len(options.library) > 1:
        parser.error("--page is for one library")
    torch.set_num_threads(1)
    lines = [f"PyTorch {torch.__version__}:", "",
             "| rank | its products, ms | and residual, ms | its step, ms | ours, ms | to products and residual | to its step |",
             "|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for rank in options.ranks:
        for line in measure(rank, options.library, options.rounds):
            print(line, flush=True)
            lines.append(line)
    if options.page:
        put_table(ROOT / "bench/README.md", "powersgd", lines)


if __name__ == "__main__":
    main()
