#!/usr/bin/env python3
"""Steps with and without compression while the backward pass computes: two hosts that are network namespaces (bench/netns) with a
core each, in turns in one run. Needs root, the package (pip install .) and PyTorch; for --mpi, build/openmpi/bench_links.

    bench/overlap.py [--rates 100mbit,1gbit,...] [--rounds N] [--mpi]

A GPT of 10 M parameters under PyTorch's DistributedDataParallel, without a hook, with PyTorch's hooks and with ours. A round takes some
steps with each of them, one after the other; the figures are medians over rounds. "computing" are steps without communication
(no_sync). "own work" is the CPU time of encoding and decoding by state.stats(). "shown" is what a step takes beyond both.
--mpi does the same with bench_links: computing is emulated there, and MPI_Iallreduce in bf16 is overlapped in the same way.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Not "torch:powersgd": over gloo its buckets' all-reduces start in another order on another rank, and PyTorch 2.13 ends the process.
HOOKS = ("none", "torch:fp16", "fp16", "bf16", "terngrad", "orq@9", "co3", "adacomp", "ef+topk@0.01", "powersgd@4")
MPI = ("mpi:fp32", "mpi:bf16", "fp16", "bf16", "terngrad", "orq@9", "ef+fp4+rans", "adacomp", "powersgd@4")
STEPS, WARM = 3, 3  # a round's steps of each; the first steps, which are not timed
GROUP, COMPUTE_MS = 4 << 20, 220


# ---- on a host: PyTorch --------------------------------------------------------------------------------------------------

def make_gpt(torch):
    """Six blocks of width 320 over 4,000 words: about 10 M parameters."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            y = self.norm1(x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
            return x + self.down(torch.relu(self.up(self.norm2(x))))

    class GPT(nn.Module):
        def __init__(self, words=4000, width=320, places=64):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(places, width)
            self.blocks = nn.ModuleList(Block(width) for _ in range(6))
            self.head = nn.Linear(width, words, bias=False)

        def forward(self, tokens):
            x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    torch.manual_seed(1)
    return GPT()


def register(ddp, name):
    """The hook of this name; returns the State if it is one of ours."""
    if name.startswith("torch:"):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
        if name == "torch:powersgd":
            ddp.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2),
                                   powerSGD_hook.powerSGD_hook)
        else:
            ddp.register_comm_hook(None, getattr(default_hooks, name[len("torch:"):] + "_compress_hook"))
    elif name != "none":
        from tersegrad.torch import State, hook
        state = State(name)
        ddp.register_comm_hook(state, hook)
        return state
    return None


class Job:
    """A model of its own under one hook."""

    def __init__(self, torch, name, batch):
        self.torch, self.name, self.batch = torch, name, batch
        self.ddp = torch.nn.parallel.DistributedDataParallel(make_gpt(torch))
        self.state = None if name == "computing" else register(self.ddp, name)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.01)
        self.ms = []

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        output = self.ddp(self.batch[:, :-1])
        self.torch.nn.functional.cross_entropy(output.flatten(0, 1), self.batch[:, 1:].flatten()).backward()
        self.optimizer.step()

    def steps(self, n, timed):
        self.torch.distributed.barrier()
        begin = time.monotonic()
        for _ in range(n):
            if self.name == "computing":
                with self.ddp.no_sync():
                    self.step()
            else:
                self.step()
        if timed:
            self.ms.append(1000 * (time.monotonic() - begin) / n)

    def own_ms(self):
        """Encoding and decoding, a step."""
        total = {} if self.state is None else self.state.stats()["total"]
        return 1000 * (total.get("encode_seconds", 0) + total.get("decode_seconds", 0)) / max(total.get("steps", 1), 1)


def work(rounds):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {int(os.environ["RANK"]) % os.cpu_count()})
    dist.init_process_group("gloo")
    batch = torch.randint(4000, (4, 65), generator=torch.Generator().manual_seed(dist.get_rank()))
    jobs = [Job(torch, name, batch) for name in ("computing", *HOOKS)]
    for job in jobs:
        job.steps(WARM, False)
    for _ in range(rounds):
        for job in jobs:
            job.steps(STEPS, True)
    if dist.get_rank() == 0:
        for job in jobs:
            print(json.dumps({"name": job.name, "ms": statistics.median(job.ms), "least_ms": min(job.ms), "own_ms": job.own_ms(),
                              "torch": torch.__version__}), flush=True)
    dist.barrier()


# ---- the tables ------------------------------------------------------------------------------------------------------------

def netns(rate, *command, by="mpirun"):
    line = [str(ROOT / "bench/netns"), "--hosts", "2", "--rate", rate, "--quiet", "--by", by, "--", *map(str, command)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=1800)
    told = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    if done.returncode != 0 or not told:
        sys.exit(f"overlap: {' '.join(line)}: {done.stderr.strip()[-400:]}")
    return told


def by_torch(rate, rounds):
    rows = {row["name"]: row for row in netns(rate, sys.executable, __file__, "--work", rounds, by="env")}
    computing, none = rows.pop("computing")["ms"], rows["none"]["ms"]
    lines = [f"At {rate}: computing {computing:.0f} ms.", "",
             "| hook | ms a step | times as fast as no hook | own work, ms | shown, ms |", "|---|---|---|---|---|"]
    for name, row in rows.items():
        shown = row["ms"] - computing - row["own_ms"]
        own = f"{row['own_ms']:.0f}" if row["own_ms"] else "–"
        lines.append(f"| {'none' if name == 'none' else f'`{name}`'} | {row['ms']:.0f} | {none / row['ms']:.2f} | {own} | {shown:.0f} |")
    return lines + [""]


def by_mpi(rate, rounds):
    program = ROOT / "build/openmpi/bench_links"
    lines = [f"At {rate}: computing {COMPUTE_MS} ms, emulated.", "",
             "| | ms a step, afterwards | while computing | own work, ms | shown, ms |", "|---|---|---|---|---|"]
    for name in MPI:
        after, during = ([], [])
        for _ in range(rounds):
            after += netns(rate, program, "--compute", COMPUTE_MS, "gpt", STEPS, name)
            during += netns(rate, program, "--compute", COMPUTE_MS, "--group", GROUP, "gpt", STEPS, name)
        slow, fast = (statistics.median(row["ms"] for row in rows) for rows in (after, during))
        own = statistics.median(row["encode_ms"] + row["decode_ms"] for row in during)
        lines.append(f"| `{name}` | {slow:.0f} | {fast:.0f} | {f'{own:.0f}' if own else '–'} | {fast - COMPUTE_MS - own:.0f} |")
    return lines + [""]


def main():
    parser = argparse.ArgumentParser(description="Steps while the backward pass computes.")
    parser.add_argument("--rates", default="100mbit,1gbit,3gbit,10gbit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mpi", action="store_true", help="bench_links instead of PyTorch")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
        return
    for rate in options.rates.split(","):
        print("\n".join((by_mpi if options.mpi else by_torch)(rate, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
