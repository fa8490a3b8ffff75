#!/usr/bin/env python3
"""The same PyTorch job under the hooks that PyTorch ships and under ours, on two hosts that are network namespaces (bench/netns).
Needs root, the package (pip install .), PyTorch, dataset-fashion-mnist.

    sudo bench/torch_hooks.py --save --page    with the Python that has the package: measures (5 minutes on a quiet machine), keeps the
                                               rows in bench/results/torch-hooks.csv, and makes the table of docs/pytorch.md from them
    bench/torch_hooks.py --kept --page         measures nothing
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from tables import commit, keep_rows, measured, put_table, read_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
KEPT = ROOT / "bench/results/torch-hooks.csv"
COLUMNS = ("torch", "mbit", "hook", "ms", "bytes", "accuracy", "failed")
PAGE = ROOT / "docs/pytorch.md"
RATES = {"100mbit": 100, "1gbit": 1000}
HOOKS = ("none", "torch:fp16", "torch:bf16", "torch:powersgd", "bf16", "adacomp", "ef+topk@0.01+fp16", "powersgd", "co3")
STEPS, WARM, BATCH = 200, 20, 32


# ---- on a host ---------------------------------------------------------------------------------------------------------

def interface_sent():
    for line in pathlib.Path("/proc/net/dev").read_text().splitlines():
        if line.strip().startswith("eth0:"):
            return int(line.split()[9])
    return 0


def register(ddp, name):
    """The hook of this name; what it needs stays with the model."""
    if name.startswith("torch:"):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
        if name == "torch:powersgd":
            ddp.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=10),
                                   powerSGD_hook.powerSGD_hook)
        else:
            ddp.register_comm_hook(None, getattr(default_hooks, name.removeprefix("torch:") + "_compress_hook"))
    elif name != "none":
        from tersegrad.torch import State, hook
        ddp.register_comm_hook(State(name), hook)


def work(name):
    import torch
    import torch.distributed as dist
    from torch_fashion import make_model, read
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = "/usr/share/datasets/fashion-mnist"
    images = read(data, "train-images-idx3-ubyte").unsqueeze(1).float().div_(255)
    labels = read(data, "train-labels-idx1-ubyte").long()
    torch.manual_seed(1)
    ddp = torch.nn.parallel.DistributedDataParallel(make_model())
    register(ddp, name)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.02, momentum=0.9)
    order = torch.Generator().manual_seed(1)
    for step in range(STEPS):
        if step == WARM:
            dist.barrier()
            begin, sent = time.monotonic(), interface_sent()
        mine = torch.randint(len(images), (world, BATCH), generator=order)[rank]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(ddp(images[mine]), labels[mine]).backward()
        optimizer.step()
    dist.barrier()
    if rank == 0:
        spent, sent = time.monotonic() - begin, interface_sent() - sent
        images = read(data, "t10k-images-idx3-ubyte").unsqueeze(1).float().div_(255)
        labels = read(data, "t10k-labels-idx1-ubyte").long()
        with torch.no_grad():
            right = sum((ddp.module(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
        print(json.dumps({"hook": name, "ms": 1000 * spent / (STEPS - WARM), "bytes": sent / (STEPS - WARM), "accuracy": right / len(labels),
                          "torch": torch.__version__}), flush=True)
    dist.barrier()


# ---- the table -----------------------------------------------------------------------------------------------------------

def measure(name, rate):
    line = [str(ROOT / "bench/netns"), "--hosts", "2", "--rate", rate, "--by", "env", "--quiet", "--", sys.executable, __file__, "--work", name]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600)
    told = [text for text in done.stdout.splitlines() if text.startswith("{")]
    row = json.loads(told[-1]) if told else {"hook": name, "failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
    print(f"torch_hooks: {name} at {rate}: {row}", flush=True)
    return {**row, "mbit": RATES[rate]}


def table(rows):
    of = {(row["hook"], row["mbit"]): row for row in rows}
    versions = ", ".join(sorted({row["torch"] for row in rows if row["torch"]}))
    yield f"PyTorch {versions}; {measured(rows)}:"
    yield ""
    yield "| hook | test accuracy, % | bytes a step and rank, on the interface | ms a step at 100 Mbit/s | at 1 Gbit/s |"
    yield "|---|---|---|---|---|"
    for name in dict.fromkeys(row["hook"] for row in rows):
        slow, fast = (of[name, mbit] for mbit in RATES.values())
        shown = {"none": "none (all-reduce in fp32)"}.get(name, f"`{name}`")
        if slow["failed"] or fast["failed"]:
            yield f"| {shown} | failed: {slow['failed'] or fast['failed']} | | | |"
        else:
            yield f"| {shown} | {100 * slow['accuracy']:.2f} | {slow['bytes']:,.0f} | {slow['ms']:.1f} | {fast['ms']:.1f} |"
    yield ""
    for mbit, rate in ((100, "100 Mbit/s"), (1000, "1 Gbit/s")):
        none = of["none", mbit]["ms"]
        ratios = {name: none / row["ms"] for (name, at), row in of.items() if at == mbit and name != "none" and not row["failed"]}
        ordered = sorted(ratios, key=lambda name: -ratios[name])
        yield f"- At {rate}, times as fast as no hook: " + ", ".join(f"`{name}` {ratios[name]:.2f}" for name in ordered) + "."


def main():
    parser = argparse.ArgumentParser(description="PyTorch's hooks and ours.")
    parser.add_argument("--kept", action="store_true", help="measure nothing: the rows that are kept")
    parser.add_argument("--save", action="store_true", help="keep the rows in bench/results/torch-hooks.csv")
    parser.add_argument("--page", action="store_true", help="put the table of all kept rows into docs/pytorch.md")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.work)
        return
    of = commit()  # before, because files may change meanwhile
    for name in [] if options.kept else HOOKS:
        rows = [measure(name, rate) for rate in RATES]
        if options.save:
            keep_rows(KEPT, COLUMNS, ("mbit", "hook"), rows, of)
    if options.page:
        put_table(PAGE, "hooks", list(table(read_rows(KEPT))))


if __name__ == "__main__":
    main()
