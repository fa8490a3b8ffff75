#!/usr/bin/env python3
"""What a step of the PyTorch hook costs beyond encoding and decoding: two ranks over loopback, a model of 200 tensors and a million
parameters. Needs the package and PyTorch.

    bench/torch_step.py [--rounds N] [--steps N] [--recipes A,B,...] [--group-len BYTES] [--page]

Each recipe is measured in turns with a hook that does nothing and with one that sends the messages of a step of that recipe, in their
order and size, by gloo and nothing else. All figures are of rank 0: medians over rounds of the mean time of a round's steps.

    more     beyond the hook that does nothing
    codec    encoding and decoding, by state.stats()
    beyond   more - codec: messages, waiting for the other rank, checks, threads, Python
    CPU      CPU time of the process, beyond the hook that does nothing
    gloo     the same messages by gloo, without anything else, beyond the hook that does nothing
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


class Messages:
    """A hook that sends messages, as lists of lengths that travel at once, after the last bucket."""

    def __init__(self, lengths):
        self.rounds = [[(torch.zeros(n, dtype=torch.uint8), torch.zeros(n, dtype=torch.uint8)) for n in round] for round in lengths]

    def send(self):
        group, peer = dist.group.WORLD, 1 - dist.get_rank()
        for round in self.rounds:
            works = [group.recv([there], peer, 1) for there, _ in round] + [group.send([here], peer, 1) for _, here in round]
            for work in works:
                work.wait()


def replay(messages: Messages, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    if bucket.is_last():
        messages.send()
    return nothing(None, bucket)


def lengths_of(run):
    """The messages of a step: those that are posted in one operation travel at once. The longer one of both ranks counts, so that both
    replay the same."""
    link, out = run.state._link, []
    start, post = link._post_facts, link._post

    def spy(sends, recvs, tag):
        out[-1] += [max(len(a), len(b)) for a, b in zip(sends, recvs) if len(a) + len(b) > 0]
        return post(sends, recvs, tag)

    def begin():
        out.append([])
        return start()
    link._post_facts, link._post = begin, spy
    run.step()
    del link._post_facts, link._post
    both = [None, None]
    dist.all_gather_object(both, out)
    return [[max(pair) for pair in zip(*rounds)] for rounds in zip(*both)]


class Run:
    """One hook, and what its steps took."""

    def __init__(self, state, hook, model=None):
        self.state = state
        self.ddp = nn.parallel.DistributedDataParallel(model or make_model(), gradient_as_bucket_view=True)
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
    gloo = Run(Messages(lengths_of(ours)), replay)
    gloo.step()
    gloo.warm()
    for _ in range(options.rounds):
        for run in (base, ours, gloo):
            run.round(options.steps)

    def median(*lists):
        return 1e3 * statistics.median(sum(values) for values in zip(*lists))
    nothing_wall, nothing_cpu, codec = [-t for t in base.wall], [-t for t in base.cpu], [-t for t in ours.codec]
    return {"recipe": recipe, "groups": state._exchange.group_n, "base": median(base.wall), "more": median(ours.wall, nothing_wall), "codec": median(ours.codec),
            "gloo": median(gloo.wall, nothing_wall), "beyond": median(ours.wall, codec, nothing_wall), "cpu": median(ours.cpu, nothing_cpu),
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
    names = ("more", "codec", "beyond", "cpu", "gloo", "first", "first_cpu")
    lines = ["| recipe | groups | more, ms | codec | beyond | CPU | gloo | first step | its CPU |", "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        lines.append(f"| `{row['recipe']}` | {row['groups']} | " + " | ".join(f"{row[name]:.1f}" for name in names) + " |")
    print(f"PyTorch {torch.__version__}; {2 * LAYERS} tensors, {LAYERS * WIDTH * (WIDTH + 1):,} parameters; a step without communication "
          f"takes {rows[0]['base']:.1f} ms\n", *lines, sep="\n")
    if options.page:
        put_table(pathlib.Path(__file__).resolve().parent.parent / "docs/pytorch.md", "step", lines)


if __name__ == "__main__":
    main()
