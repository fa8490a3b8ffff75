#!/usr/bin/env python3
"""A step of PowerSGD's arithmetic in PyTorch on a GPU, on the shapes of a model, one rank.

    bench/powersgd_gpu.py [--ranks 4 ...] [--rounds N] [--shapes bench/shapes/resnet50.txt]

As the communication hook of PyTorch: M = gradient + error; P = M Q; P made orthonormal; Q = M' P; the average P Q'; error = M - average,
once tensor by tensor, and once batched by shape, as the hook does since PyTorch 1.11, with its own function for orthonormal columns. Times
are of CUDA events, the median of the rounds. bench/gpu_step.c times ours, which also writes, hashes, checks and reads frames. Needs PyTorch
with CUDA.
"""

import argparse
import pathlib
import statistics

import torch
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import _orthogonalize

ROOT = pathlib.Path(__file__).resolve().parent.parent


def matrices(path, rank):
    """Shapes of tensors that are sent in factors."""
    for line in path.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        dims = [int(d) for d in line.split()[1].split("x")]
        columns = 1
        for d in dims[1:]:
            columns *= d
        if len(dims) > 1 and rank * (dims[0] + columns) < dims[0] * columns:
            yield dims[0], columns


class Alone:
    """Tensor by tensor."""

    def __init__(self, shapes, rank):
        self.gradients = [torch.randn(shape, device="cuda") for shape in shapes]
        self.errors = [torch.zeros_like(g) for g in self.gradients]
        self.q = [torch.randn(shape[1], rank, device="cuda") for shape in shapes]

    def multiply(self):
        self.m = [g + e for g, e in zip(self.gradients, self.errors)]
        self.p = [m @ q for m, q in zip(self.m, self.q)]

    def orthonormalise(self):
        self.p = [torch.linalg.qr(p)[0] for p in self.p]

    def multiply_back(self):
        self.q = [m.t() @ p for m, p in zip(self.m, self.p)]

    def settle(self):
        for i, (m, p, q) in enumerate(zip(self.m, self.p, self.q)):
            torch.matmul(p, q.t(), out=self.gradients[i])
            torch.sub(m, self.gradients[i], out=self.errors[i])


class Batched(Alone):
    """All matrices of a shape together."""

    def __init__(self, shapes, rank):
        counts = {}
        for shape in shapes:
            counts[shape] = counts.get(shape, 0) + 1
        self.gradients = [torch.randn((n, *shape), device="cuda") for shape, n in counts.items()]
        self.errors = [torch.zeros_like(g) for g in self.gradients]
        self.q = [torch.randn(n, shape[1], rank, device="cuda") for shape, n in counts.items()]

    def multiply(self):
        self.m = [g + e for g, e in zip(self.gradients, self.errors)]
        self.p = [torch.bmm(m, q) for m, q in zip(self.m, self.q)]

    def orthonormalise(self):
        for p in self.p:
            _orthogonalize(p)

    def multiply_back(self):
        self.q = [torch.bmm(m.transpose(1, 2), p) for m, p in zip(self.m, self.p)]

    def settle(self):
        for i, (m, p, q) in enumerate(zip(self.m, self.p, self.q)):
            torch.bmm(p, q.transpose(1, 2), out=self.gradients[i])
            torch.sub(m, self.gradients[i], out=self.errors[i])


PARTS = ("multiply", "orthonormalise", "multiply_back", "settle")


def measure(side, rounds):
    """Milliseconds of each part and of all."""
    times = []
    for _ in range(rounds + 3):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(PARTS) + 1)]
        events[0].record()
        for part, event in zip(PARTS, events[1:]):
            getattr(side, part)()
            event.record()
        torch.cuda.synchronize()
        times.append([a.elapsed_time(b) for a, b in zip(events, events[1:])] + [events[0].elapsed_time(events[-1])])
    return [statistics.median(column) for column in zip(*times[3:])]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--shapes", type=pathlib.Path, default=ROOT / "bench" / "shapes" / "resnet50.txt")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}; ms: " + ", ".join(PARTS) + ", all")
    for rank in options.ranks:
        shapes = list(matrices(options.shapes, rank))
        for name, kind in (("tensor by tensor", Alone), ("batched by shape", Batched)):
            times = measure(kind(shapes, rank), options.rounds)
            print(f"rank {rank}, {name}: " + " ".join(f"{t:.3f}" for t in times), flush=True)


if __name__ == "__main__":
    main()
