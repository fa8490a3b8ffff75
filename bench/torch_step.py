#!/usr/bin/env python3
"""What a step of the PyTorch hook costs beyond encoding and decoding: two ranks over loopback, a model of 200 tensors and a million
parameters. Needs the package and PyTorch.

    bench/torch_step.py [--rounds N] [--steps N] [--recipes A,B,...] [--group-len BYTES] [--page]

Each recipe is measured in turns with a hook that does nothing, with no hook (PyTorch's own all-reduce of all gradients), and with hooks
that send and receive as many bytes as the recipe does, or all-reduce as many, by the same process group. All figures are of rank 0: medians over rounds of the mean
time of a round's steps.

    more     beyond the hook that does nothing
    codec    encoding and decoding, by state.stats()
    wire     one message of as many bytes as the recipe sends, to the other rank and from it, beyond the hook that does nothing
    beyond   more - codec - wire: further messages, checks, threads, Python
    CPU      CPU time of the process, beyond the hook that does nothing
    DDP      without a hook, beyond the hook that does nothing
    bytes    all-reduce of as many bytes as the recipe sends, likewise
    first    the first step, which makes the exchange and compares setups, with model= given, beyond a later one of the hook that does nothing
"""

import argparse
import gc
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn

from tables import put_table
from tersegrad.torch import State, hook

LAYERS, WIDTH = 100, 100
RECIPES = "ef+topk@0.01,adacomp,fp16,dense"


def nothing(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


class Bytes:
    """Bytes for hooks that do something with them after the last bucket."""

    def __init__(self, length):
        self.sent, self.received = (torch.zeros(max(1, length // 4)) for _ in range(2))


def all_reduce(state: Bytes, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    if bucket.is_last():
        dist.all_reduce(state.sent)
    return nothing(None, bucket)


def send_and_receive(state: Bytes, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    if bucket.is_last():
        peer = 1 - dist.get_rank()
        works = [dist.irecv(state.received, peer), dist.isend(state.sent, peer)]
        for work in works:
            work.wait()
    return nothing(None, bucket)


class Run:
    """One hook, and what its steps took."""

    def __init__(self, state, hook, model=None):
        self.state = state
        self.ddp = nn.parallel.DistributedDataParallel(model or make_model(), gradient_as_bucket_view=True)
        if hook is not None:
            self.ddp.register_comm_hook(state, hook)
        self.x = torch.randn(1, WIDTH)
        self.wall, self.cpu, self.codec = [], [], []

    def step(self):
        self.ddp.zero_grad(set_to_none=False)
        self.ddp(self.x).sum().backward()

    def warm(self):
        for _ in range(5):
            self.step()

    def timed(self, steps):
        dist.barrier()
        before = self.codec_seconds()
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return wall / steps, cpu / steps, (self.codec_seconds() - before) / steps

    def round(self, steps):
        for kept, value in zip((self.wall, self.cpu, self.codec), self.timed(steps)):
            kept.append(value)

    def codec_seconds(self):
        total = self.state.stats()["total"] if isinstance(self.state, State) else {}
        return total.get("encode_seconds", 0) + total.get("decode_seconds", 0)


def measure(recipe, options):
    """One row: milliseconds."""
    base = Run(None, nothing)
    base.step()
    base.warm()
    model = make_model()
    state = State(recipe, model=model, **({} if options.group_len is None else {"group_len": options.group_len}))
    ours = Run(state, hook, model)
    first = ours.timed(1)
    ours.warm()
    length = torch.tensor(state.stats()["last"]["sent"])
    dist.all_reduce(length, dist.ReduceOp.MAX)
    plain, same, wire = Run(None, None), Run(Bytes(int(length)), all_reduce), Run(Bytes(int(length)), send_and_receive)
    for run in (plain, same, wire):
        run.warm()
    for _ in range(options.rounds):
        for run in (base, ours, plain, same, wire):
            run.round(options.steps)

    def median(*lists):
        return 1e3 * statistics.median(sum(values) for values in zip(*lists))
    nothing_wall, nothing_cpu = [-t for t in base.wall], [-t for t in base.cpu]
    more, codec, on_wire = median(ours.wall, nothing_wall), median(ours.codec), median(wire.wall, nothing_wall)
    return {"recipe": recipe, "groups": state._exchange.group_n, "sent": state.stats()["last"]["sent"], "base": median(base.wall), "more": more,
            "codec": codec, "wire": on_wire, "beyond": more - codec - on_wire, "cpu": median(ours.cpu, nothing_cpu),
            "plain": median(plain.wall, nothing_wall), "same": median(same.wall, nothing_wall),
            "first": 1e3 * first[0] - median(base.wall), "first_cpu": 1e3 * first[1] - median(base.cpu)}


def work(options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + options.file, rank=options.rank, world_size=2)
    for recipe in options.recipes.split(","):
        row = measure(recipe, options)
        gc.collect()  # the State; where there are several, each has a thread
        if options.rank == 0:
            print(json.dumps(row), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="What a step of the hook costs beyond encoding and decoding.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--group-len", type=int)
    parser.add_argument("--page", action="store_true", help="write the table into docs/pytorch.md")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        work(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        ranks = [subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--rank", str(rank), "--file", folder + "/store"],
                                  stdout=subprocess.PIPE, env=environment, text=True) for rank in range(2)]
        said = [rank.communicate()[0] for rank in ranks]
    rows = [json.loads(line) for line in said[0].splitlines()]
    names = ("more", "codec", "wire", "beyond", "cpu", "plain", "same", "first", "first_cpu")
    lines = ["| recipe | bytes | more, ms | codec | wire | beyond | CPU | DDP | all-reduce of the bytes | first step | its CPU |",
             "|---|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| `{row['recipe']}` | {row['sent']:,} | " + " | ".join(f"{row[name]:.1f}" for name in names) + " |")
    print(f"PyTorch {torch.__version__}; {2 * LAYERS} tensors, {LAYERS * WIDTH * (WIDTH + 1):,} parameters; a step without communication "
          f"takes {rows[0]['base']:.1f} ms\n", *lines, sep="\n")
    if options.page:
        put_table(pathlib.Path(__file__).resolve().parent.parent / "docs/pytorch.md", "step", lines)


if __name__ == "__main__":
    main()
