#!/usr/bin/env python3
"""The same PyTorch job under the hooks that PyTorch ships and under ours, on two hosts that are network namespaces
(bench/netns), and the table in docs/pytorch.md. Needs root, the package (pip install .), PyTorch, dataset-fashion-mnist.

    bench/torch_hooks.py          with the Python that has the package; what was measured is kept in build/links
"""

import json
import os
import pathlib
import subprocess
import sys
import time

from tables import put_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
KEPT = ROOT / "build/links"
PAGE = ROOT / "docs/pytorch.md"
RATES = ("100mbit", "1gbit")
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
    path = KEPT / f"torch-{rate}-{name.replace(':', '-').replace('@', '-').replace('+', '_')}.json"
    if not path.exists():
        line = [str(ROOT / "bench/netns"), "--hosts", "2", "--rate", rate, "--by", "env", "--quiet", "--", sys.executable, __file__, name]
        done = subprocess.run(line, capture_output=True, text=True, timeout=600)
        told = [text for text in done.stdout.splitlines() if text.startswith("{")]
        result = json.loads(told[-1]) if told else {"failed": (done.stderr.strip().splitlines() or ["?"])[-1]}
        KEPT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result))
        print(f"torch_hooks: {name} at {rate}: {result}", flush=True)
    return json.loads(path.read_text())


def main():
    lines = ["| hook | test accuracy, % | bytes a step and rank, on the interface | ms a step at 100 Mbit/s | at 1 Gbit/s |", "|---|---|---|---|---|"]
    for name in HOOKS:
        slow, fast = (measure(name, rate) for rate in RATES)
        shown = {"none": "none (all-reduce in fp32)"}.get(name, f"`{name}`")
        if "failed" in slow or "failed" in fast:
            lines.append(f"| {shown} | failed: {slow.get('failed', fast.get('failed'))} | | | |")
            continue
        lines.append(f"| {shown} | {100 * slow['accuracy']:.2f} | {slow['bytes']:,.0f} | {slow['ms']:.1f} | {fast['ms']:.1f} |")
    put_table(PAGE, "hooks", lines)


if __name__ == "__main__":
    if "RANK" in os.environ and len(sys.argv) > 1:
        work(sys.argv[1])
    else:
        main()
