#!/usr/bin/env python3
"""Steps with and without compression while the backward pass computes: two hosts that are network namespaces (bench/netns) with a
core each, in turns in one run. Needs root, the package (pip install .) and PyTorch; for --mpi, build/openmpi/bench_links.

    sudo bench/overlap.py --save --page          measures (40 minutes on a quiet machine), keeps the rows in bench/results/overlap.csv,
                                                 and makes the tables of bench/README.md from all rows that are kept
    sudo bench/overlap.py --mpi --save --page    the same with bench_links (5 minutes)
    bench/overlap.py --kept --page               measures nothing
    bench/overlap.py [--rates 100mbit,1gbit,...] [--launches N] [--rounds N] [--hooks A,B,...]

A GPT of 10 M parameters under PyTorch's DistributedDataParallel, without a hook, with PyTorch's hooks and with ours, each step with
words of its own. Gradients are views of DistributedDataParallel's buckets in all rows (gradient_as_bucket_view=True), so that it copies
none. A round takes some steps with each hook, one after the other, and one before them that is not timed: a model that has waited for
its turn for seconds finds its memory cold. Which pages of memory a model gets is chance, and makes it some milliseconds faster or slower for as
long as its process runs. So the job is launched several times. The figures are of rank 0: the median over launches of medians over rounds.

    computing    steps without communication (no_sync): forward and backward pass, optimizer
    empty hook   with a hook that does nothing: what DistributedDataParallel itself costs
    in step      the same, and ranks wait for each other in every step (an all-reduce of one number after the last bucket)
    floor        a hook that hands the bytes of a recipe to gloo in the same messages, and does nothing else (bench/floor.py)
    own work     encoding and decoding by state.stats(), by the clock: on a core that also computes it contains pauses
    CPU          CPU time of the process beyond that of computing: own work, messages, Python; and how much of it gloo's thread takes,
                 most of it in the kernel, which copies each message and cuts it into packets
    beyond       what a step takes beyond own work and computing: computing alone, or in step
    first steps  steps 2 to 4 of recipes with a residual, which is empty at first: AdaComp sends several times as much then
    later steps  from step 21 on; of hooks without a residual, from step 4 on

--mpi does the same with bench_links: computing is emulated there, and MPI_Iallreduce in bf16 is overlapped in the same way.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

from floor import Floor, floor_hook
from tables import commit, keep_rows, measured, put_table, read_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "bench/results/overlap.csv"
PAGE = ROOT / "bench/README.md"
COLUMNS = ("torch", "by", "mbit", "hook", "phase", "ms", "cpu_ms", "gloo_ms", "own_ms", "sent")
KEY = ("by", "mbit", "hook", "phase")
# Not "torch:powersgd": over gloo its buckets' all-reduces start in another order on another rank, and PyTorch 2.13 ends the process.
# Not "torch:bf16": it needs CUDA and NCCL.
FED = ("co3", "adacomp", "ef+topk@0.01", "powersgd@4")  # with a residual
HOOKS = ("none", "empty", "in step", "torch:fp16", "floor:fp16", "fp16", "bf16", "terngrad", "orq@9", *FED)
MPI = ("mpi:fp32", "mpi:bf16", "fp16", "bf16", "terngrad", "orq@9", "ef+fp4+rans", "adacomp", "powersgd@4")
FIRST, WARM_FED, WARM = 3, 20, 3  # steps: those timed after the first, and those before later ones
GROUP, COMPUTE_MS = 4 << 20, 200


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


def empty_hook(_, bucket):
    import torch
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def in_step_hook(number, bucket):
    import torch
    if bucket.is_last():
        torch.distributed.all_reduce(number)
    return empty_hook(None, bucket)


def compute_gradients(torch, ddp, words):
    batch = torch.randint(4000, (4, 65), generator=words)
    torch.nn.functional.cross_entropy(ddp(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()).backward()


def register(torch, ddp, name):
    """The hook of this name; returns the State if it is one of ours."""
    if name == "empty":
        ddp.register_comm_hook(None, empty_hook)
    elif name.startswith("floor:"):
        words = torch.Generator().manual_seed(0)
        ddp.register_comm_hook(Floor(torch, ddp, name[len("floor:"):], lambda twin: compute_gradients(torch, twin, words)), floor_hook)
    elif name == "in step":
        ddp.register_comm_hook(torch.zeros(1), in_step_hook)
    elif name.startswith("torch:"):
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


def gloo_seconds():
    """CPU time of gloo's threads so far."""
    total = 0
    for task in pathlib.Path("/proc/self/task").iterdir():
        if (task / "comm").read_text(encoding="ascii").startswith("gloo_tcp"):
            total += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total * 1e-9


class Job:
    """A model of its own under one hook."""

    def __init__(self, torch, name, seed):
        self.torch, self.name = torch, name
        self.words = torch.Generator().manual_seed(seed)
        self.ddp = torch.nn.parallel.DistributedDataParallel(make_gpt(torch), gradient_as_bucket_view=True)
        self.state = None if name == "computing" else register(torch, self.ddp, name)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.01)
        self.timed = {"first": [], "later": []}  # (ms, CPU ms, that of gloo's thread, own ms, bytes sent) a step

    def step(self):
        self.optimizer.zero_grad(set_to_none=False)
        compute_gradients(self.torch, self.ddp, self.words)
        self.optimizer.step()

    def steps(self, n):
        for _ in range(n):
            if self.name == "computing":
                with self.ddp.no_sync():
                    self.step()
            else:
                self.step()

    def counts(self):
        """Seconds of encoding and decoding, and bytes, in all."""
        total = {} if self.state is None else self.state.stats()["total"]
        return total.get("encode_seconds", 0) + total.get("decode_seconds", 0), total.get("sent", 0)

    def time(self, n, phase):
        self.torch.distributed.barrier()
        own, sent = self.counts()
        begin, cpu, gloo = time.monotonic(), time.process_time(), gloo_seconds()
        self.steps(n)
        spent, cpu, gloo = time.monotonic() - begin, time.process_time() - cpu, gloo_seconds() - gloo
        new_own, new_sent = self.counts()
        self.timed[phase].append((1e3 * spent / n, 1e3 * cpu / n, 1e3 * gloo / n, 1e3 * (new_own - own) / n, (new_sent - sent) / n))

    def warm(self):
        if self.name in FED:
            self.steps(1)
            self.time(FIRST, "first")
            self.steps(WARM_FED - 1 - FIRST)
        else:
            self.steps(WARM)

    def rows(self):
        for phase, timed in self.timed.items():
            if timed:
                ms, cpu, gloo, own, sent = (statistics.median(column) for column in zip(*timed))
                yield {"torch": self.torch.__version__, "by": "torch", "hook": self.name, "phase": phase, "ms": round(ms, 1),
                       "cpu_ms": round(cpu, 1), "gloo_ms": round(gloo, 1), "own_ms": round(own, 1) if own else "", "sent": round(sent) if sent else ""}


def work(hooks, rounds, steps):
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {int(os.environ["RANK"]) % os.cpu_count()})
    dist.init_process_group("gloo")
    jobs = [Job(torch, name, dist.get_rank()) for name in ("computing", *hooks)]
    for job in jobs:
        job.warm()
    for _ in range(rounds):
        for job in jobs:
            job.steps(1)
            job.time(steps, "later")
    if dist.get_rank() == 0:
        for job in jobs:
            for row in job.rows():
                print(json.dumps(row), flush=True)
    dist.barrier()


# ---- measuring -------------------------------------------------------------------------------------------------------------

def mbit_of(rate):
    return int(float(rate[:-4]) * {"gbit": 1000, "mbit": 1}[rate[-4:]])


def rounds_of(rate, options):
    """Rounds of a launch, and steps of each: a step without a hook takes 3.5 s at 100 Mbit/s."""
    is_slow = mbit_of(rate) < 500
    return options.rounds or (2 if is_slow else 4), 2 if is_slow else 3


def netns(rate, *command, by="mpirun"):
    line = [str(ROOT / "bench/netns"), "--hosts", "2", "--rate", rate, "--quiet", "--by", by, "--", *map(str, command)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=1800)
    told = [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]
    if done.returncode != 0 or not told:
        sys.exit(f"overlap: {' '.join(line)}: {done.stderr.strip()[-400:]}")
    return told


def median_row(rows):
    """Of the rows of one hook in all launches."""
    def median(column):
        found = [row[column] for row in rows if row[column] != ""]
        return statistics.median(found) if found else ""
    return {**rows[0], **{column: median(column) for column in ("ms", "cpu_ms", "gloo_ms", "own_ms", "sent")}}


def by_torch(rate, options):
    rounds, steps = rounds_of(rate, options)
    launches = {}
    for _ in range(options.launches):
        for row in netns(rate, sys.executable, __file__, "--work", rounds, steps, "--hooks", options.hooks, by="env"):
            launches.setdefault((row["hook"], row["phase"]), []).append(row)
    return [{**median_row(rows), "mbit": mbit_of(rate)} for rows in launches.values()]


def by_mpi(rate, options):
    program, steps = ROOT / "build/openmpi/bench_links", rounds_of(rate, options)[1]
    rows = []
    for phase, group in (("afterwards", []), ("while computing", ["--group", GROUP])):
        for row in netns(rate, program, "--compute", COMPUTE_MS, *group, "gpt", steps, *MPI):
            own = row["encode_ms"] + row["decode_ms"]
            rows.append({"by": "mpi", "mbit": mbit_of(rate), "hook": row["recipe"], "phase": phase, "ms": round(row["ms"], 1),
                         "own_ms": round(own, 1) if own else "", "sent": round(row["meter_bytes"]) or ""})
    return rows


# ---- the tables ------------------------------------------------------------------------------------------------------------

def shown_rate(mbit):
    return f"{mbit / 1000:g} Gbit/s" if mbit >= 1000 else f"{mbit:g} Mbit/s"


def shown_hook(name):
    if name.startswith("floor:"):
        return f"bytes of `{name[len('floor:'):]}` alone"
    return {"none": "none", "computing": "computing alone", "empty": "empty hook", "in step": "empty hook, in step"}.get(name, f"`{name}`")


class Kept:
    """Rows of one kind, by hook, phase and rate."""

    def __init__(self, rows, by):
        self.rows = [row for row in rows if row["by"] == by]
        self.of = {(row["hook"], row["phase"], row["mbit"]): row for row in self.rows}
        self.rates = sorted({row["mbit"] for row in self.rows}, reverse=True)
        self.hooks = list(dict.fromkeys(row["hook"] for row in self.rows))
        self.later = [hook for hook in self.hooks if any((hook, "later", mbit) in self.of for mbit in self.rates)]

    def get(self, hook, phase, mbit, column):
        """A number, or None."""
        value = self.of.get((hook, phase, mbit), {}).get(column, "")
        return None if value == "" else value


def cell(value, form):
    return "–" if value is None else format(value, form)


def break_even(found):
    """The rate below which ours is faster, of (Mbit/s, our ms, their ms): between two rates by the logarithms of rates and ratios."""
    found = sorted(found)
    gains = [math.log(theirs / ours) for _, ours, theirs in found]
    faster = sum(gain > 0 for gain in gains)
    if faster in (0, len(gains)):
        return "every rate" if faster else "no rate"
    if any(gain > 0 for gain in gains[faster:]):
        return "no clear rate"
    low, high = (math.log(mbit) for mbit, _, _ in found[faster - 1:faster + 1])
    return shown_rate(float(f"{math.exp(low + (high - low) * gains[faster - 1] / (gains[faster - 1] - gains[faster])):.2g}"))


def break_evens(kept, phase, plain, hooks):
    """A statement on the rates below which hooks are faster than one of them."""
    told = []
    for hook in hooks:
        found = [(mbit, kept.get(hook, phase, mbit, "ms"), kept.get(plain, phase, mbit, "ms")) for mbit in kept.rates]
        if found and all(None not in each for each in found):
            told.append(f"{shown_hook(hook)} {break_even(found)}")
    return ", ".join(told)


def lines_of(header, rows):
    yield "| " + " | ".join(header) + " |"
    yield "|" + "---|" * len(header)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def torch_tables(rows):
    kept = Kept(rows, "torch")
    versions = ", ".join(sorted({row["torch"] for row in kept.rows}))
    yield f"PyTorch {versions}; {measured(kept.rows)}. Later steps, milliseconds, and how many times as fast as no hook:"
    yield ""

    def faster(hook, mbit):
        ms, none = kept.get(hook, "later", mbit, "ms"), kept.get("none", "later", mbit, "ms")
        return None if ms is None or none is None or hook == "computing" else none / ms
    yield from lines_of(["hook", *(text for mbit in kept.rates for text in (shown_rate(mbit) + ", ms", "times"))],
                        ([shown_hook(hook), *(text for mbit in kept.rates for text in (cell(kept.get(hook, "later", mbit, "ms"), ".0f"),
                                                                                     cell(faster(hook, mbit), ".2f")))] for hook in kept.later))
    yield ""
    yield ("Own work; what a step shows beyond own work and computing alone, and beyond own work and computing in step, as a share of both; CPU "
           "time of all threads beyond computing alone, and that of gloo's thread:")
    yield ""

    def shown(hook, base, mbit):
        ms, computing, own = (kept.get(name, "later", mbit, column) for name, column in ((hook, "ms"), (base, "ms"), (hook, "own_ms")))
        if ms is None or computing is None:
            return "–"
        more = ms - computing - (own or 0)
        return f"{more:.0f}" + ("" if own is None else f" ({100 * more / (computing + own):.0f}%)")

    def cpu(hook, mbit):
        both = [kept.get(name, "later", mbit, "cpu_ms") for name in (hook, "computing")]
        return "–" if None in both else f"{both[0] - both[1]:.0f}, " + cell(kept.get(hook, "later", mbit, "gloo_ms"), ".0f")
    yield from lines_of(["hook", *(text for mbit in kept.rates for text in (shown_rate(mbit) + ": own", "beyond alone", "beyond in step", "CPU, gloo"))],
                        ([shown_hook(hook), *(text for mbit in kept.rates for text in (
                            cell(kept.get(hook, "later", mbit, "own_ms"), ".0f"), shown(hook, "computing", mbit), shown(hook, "in step", mbit), cpu(hook, mbit)))]
                         for hook in kept.later if hook != "computing"))
    yield ""
    yield from first_steps(kept)
    for name in ("fp16", "bf16"):
        ratios = [(kept.get("torch:fp16", "later", mbit, "ms"), kept.get(name, "later", mbit, "ms"), mbit) for mbit in kept.rates]
        told = ", ".join(f"{theirs / ours:.2f} at {shown_rate(mbit)}" for theirs, ours, mbit in ratios if theirs and ours)
        if told:
            yield f"- `{name}` beside PyTorch's fp16 hook, times as fast: {told}."
    told = break_evens(kept, "later", "none", [hook for hook in kept.later if hook not in ("computing", "none", "empty", "in step", "floor:fp16")])
    if told:
        yield f"- Faster than no hook below: {told}."


def first_steps(kept):
    """Recipes with a residual, whose first steps send more."""
    hooks = [hook for hook in kept.hooks if any((hook, "first", mbit) in kept.of for mbit in kept.rates)]
    if not hooks:
        return
    rates = [mbit for mbit in kept.rates if any((hook, "first", mbit) in kept.of for hook in hooks)]
    yield "First steps (2 to 4), in which residuals are still small, beside later ones:"
    yield ""

    def pair(hook, mbit, column, form):
        return " / ".join(cell(kept.get(hook, phase, mbit, column), form) for phase in ("first", "later"))
    yield from lines_of(["hook", "bytes sent, first / later", *(shown_rate(mbit) + ", ms" for mbit in rates)],
                        ([shown_hook(hook), pair(hook, rates[0], "sent", ",.0f"), *(pair(hook, mbit, "ms", ".0f") for mbit in rates)]
                         for hook in hooks))
    yield ""


def mpi_tables(rows):
    kept = Kept(rows, "mpi")
    yield f"{COMPUTE_MS} ms of emulated computing; {measured(kept.rows)}. Milliseconds a step:"
    yield ""
    yield from lines_of(["", *(text for mbit in kept.rates for text in (shown_rate(mbit) + ": afterwards", "while computing", "own work"))],
                        ([shown_hook(hook), *(text for mbit in kept.rates for text in (
                            cell(kept.get(hook, "afterwards", mbit, "ms"), ".0f"), cell(kept.get(hook, "while computing", mbit, "ms"), ".0f"),
                            cell(kept.get(hook, "while computing", mbit, "own_ms"), ".0f")))] for hook in kept.hooks))
    yield ""
    for phase in ("while computing", "afterwards"):
        told = break_evens(kept, phase, "mpi:bf16", [hook for hook in kept.hooks if not hook.startswith("mpi:")])
        if told:
            yield f"- Faster than `MPI_Allreduce` in bf16, both {phase}, below: {told}."


TABLES = {"torch": torch_tables, "mpi": mpi_tables}


def main():
    parser = argparse.ArgumentParser(description="Steps while the backward pass computes.")
    parser.add_argument("--rates", default="100mbit,1gbit,3gbit,10gbit")
    parser.add_argument("--launches", type=int, default=5, help="of PyTorch's side [default: 5]")
    parser.add_argument("--rounds", type=int, help="of a launch: 4, and 2 on slow links")
    parser.add_argument("--hooks", default=",".join(HOOKS), help="of PyTorch's side")
    parser.add_argument("--mpi", action="store_true", help="bench_links instead of PyTorch")
    parser.add_argument("--kept", action="store_true", help="measure nothing: the rows that are kept")
    parser.add_argument("--save", action="store_true", help="keep the rows in bench/results/overlap.csv")
    parser.add_argument("--page", action="store_true", help="put the tables of all kept rows into bench/README.md")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.hooks.split(","), *options.work)
        return
    of = commit()  # before, because files may change meanwhile
    kind = "mpi" if options.mpi else "torch"
    for rate in [] if options.kept else options.rates.split(","):
        rows = (by_mpi if options.mpi else by_torch)(rate, options)
        print("\n".join(TABLES[kind]([{"date": "now", "commit": of, "torch": "", **row} for row in rows])), "", sep="\n", flush=True)
        if options.save:
            keep_rows(KEPT, COLUMNS, KEY, rows, of)
    for kind in TABLES if options.page else ():
        rows = read_rows(KEPT)
        if any(row["by"] == kind for row in rows):
            put_table(PAGE, f"overlap-{kind}", list(TABLES[kind](rows)))


if __name__ == "__main__":
    main()
