#!/usr/bin/env python3
"""The hook on a GPU, over NCCL: several ranks on one GPU, which NCCL takes for ranks of several hosts that talk over sockets.

    PYTHONPATH=python TG_LIBRARY=build/cuda/libtersegrad-cuda.so python3 tests/cuda/gpu_torch.py [--limit 240] [--only bits,ddp,bad,time,link,workers]

bits     2 and 4 ranks, every preset: replicas are the same to the bit, and the same as over gloo on CPUs for the same gradients
ddp      2 ranks: AMP with GradScaler, bf16, no_sync, unused parameters, static_graph, bucket views, checkpointing, torch.compile, gloo
bad      2 ranks: what goes wrong is an exception on every rank, with the reason, and nobody waits for ever (gpu_bad.py)
time     1 rank: a step of a ResNet-50 and of a GPT with no hook, PyTorch's own hooks and ours. Nothing travels, so what is more than no hook is
         what the codec adds to a step (gpu_time.py)
link     2 ranks, the same over the loopback and over links of 1, 10 and 25 Gbit/s: each process sends late (slow_link.c)
workers  one process: 4 Workers on several streams of the GPU give the bits of the codec on the host; a step of a ResNet-18 with them, and how
         much of it is the exchange (gpu_workers.py)

Ranks that do not end within the limit are killed. Exit status 1 if anything differs or fails. --json FILE keeps all that was measured;
bench/gpu_hooks.py makes tables of it. Without a GPU (--cpu, with emulated kernels) it does the same with less, to test itself.
"""

import argparse
import concurrent.futures
import gc
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "cuda")]
import gpu_bad
import gpu_time
import gpu_workers
from quick_lgc import quick_lgc

SLOW = {"lgc-ring", "lgc-server"}  # quick_lgc is tried in their place


# ---- on a rank -----------------------------------------------------------------------------------------------------------------

class Rank:
    def __init__(self, flags, rank, world, folder):
        import torch
        import torch.distributed as dist
        self.torch, self.dist, self.flags, self.rank, self.world = torch, dist, flags, rank, world
        self.device = torch.device("cpu") if flags.cpu else torch.device("cuda", 0)
        self.until = flags.until
        if not flags.cpu:
            torch.cuda.set_device(0)
        backend = "gloo" if flags.cpu else "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, init_method=f"file://{folder}/ranks", rank=rank, world_size=world)
        self.gloo = dist.new_group(backend="gloo")

    def say(self, **what):
        if self.rank == 0:
            print(json.dumps(what), flush=True)

    def goes_on(self, needed=1.0, until=None):
        """Whether there is time for more, until then or in all: as rank 0 says."""
        flag = self.torch.tensor([int(time.time() + needed < min(self.until, until or self.until))])
        self.dist.broadcast(flag, 0, group=self.gloo)
        return bool(flag.item())

    def agree(self, data, error):
        """(whether bytes are the same on all ranks, the first error)."""
        own = (hashlib.sha256(data).hexdigest(), error)
        all_of = [None] * self.world
        self.dist.all_gather_object(all_of, own, group=self.gloo)
        return len({digest for digest, _ in all_of}) == 1, next((e for _, e in all_of if e), None)


def bits(r):
    import tersegrad
    from tersegrad.torch import Reducer
    torch = r.torch
    presets = [part["name"] for part in tersegrad.recipes() if part["stage"] == "preset"]
    recipes = ["dense", "fp16", "bf16", quick_lgc("ring"), quick_lgc("server"), "ef+topk@0.01", "ef+fp8", *presets]
    for recipe in [name for name in recipes if name not in SLOW][:5 if r.flags.cpu else None]:
        if not r.goes_on(2):
            r.say(kind="bits", world=r.world, recipe=recipe, result="no time left")
            continue
        outs, error = [], None
        for device, group in ((r.device, None), (torch.device("cpu"), r.gloo)):
            shapes = ((64, 32, 3, 3), (64,), (300, 257), (300,), (1000, 300), (1000,))
            parameters = [torch.nn.Parameter(torch.zeros(shape, device=device)) for shape in shapes]
            reducer, out = None, []
            try:
                reducer = Reducer(parameters, recipe, process_group=group, group_len=200_000, overlap=False, seed=3)
                for step in range(4):
                    draw = torch.Generator().manual_seed(1000 * step + r.rank)
                    for p in parameters:
                        p.grad = torch.randn(p.shape, generator=draw).to(device)
                    reducer.reduce()
                    out.append(torch.cat([p.grad.cpu().flatten() for p in parameters]))
                out += [residual.flatten() for residual in reducer.residual().values()]
            except tersegrad.Error as failed:
                error = error or f"{device.type}: {failed}"
            outs.append(torch.cat(out) if out else torch.zeros(0))
            del reducer, parameters
            gc.collect()
        averages_n = sum(64 * 288 + 64 + 300 * 257 + 300 + 300_000 + 1000 for _ in range(4))
        same, error = r.agree(outs[0][:averages_n].numpy().tobytes(), error)
        as_cpu, _ = r.agree(b"" if torch.equal(outs[0], outs[1]) else bytes([1 + r.rank]), None)
        as_cpu = as_cpu and torch.equal(outs[0], outs[1])
        result = error or ("same" if same and as_cpu else f"REPLICAS {'same' if same else 'differ'}, CPU {'same' if as_cpu else 'differs'}")
        r.say(kind="bits", world=r.world, recipe=recipe, result=result)


class Net:
    """Makes models for the cases of ddp."""

    def __new__(cls, torch, case):
        nn = torch.nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.some, self.last = nn.Linear(64, 256), nn.Linear(256, 256), nn.Linear(256, 10)
                self.conv, self.norm = nn.Conv1d(1, 8, 3, padding=1), nn.BatchNorm1d(8)

            def forward(self, x):
                x = torch.relu(self.first(self.norm(self.conv(x.unsqueeze(1))).mean(1)))
                if case == "checkpoint":
                    x = torch.utils.checkpoint.checkpoint(self.some, x, use_reentrant=False)
                elif case != "unused":
                    x = self.some(x)
                return self.last(x)
        return Model()


CASES = ("plain", "amp", "bf16", "no_sync", "unused", "static_graph", "views", "checkpoint", "compile", "gloo")


def run_case(r, case):
    from torch.nn.parallel import DistributedDataParallel
    from tersegrad.torch import State, hook
    torch = r.torch
    group = r.gloo if case == "gloo" else None
    torch.manual_seed(1)
    model = Net(torch, case).to(r.device)
    ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=25 if case == "compile" else 0.1, find_unused_parameters=case == "unused",
                                  static_graph=case == "static_graph", gradient_as_bucket_view=case == "views")
    scaler = torch.amp.GradScaler(r.device.type, init_scale=1024.0) if case == "amp" else None
    state = State("ef+topk@0.05", process_group=group, scaler=scaler, group_len=100_000, verify_every=1)
    ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    run = torch.compile(ddp, backend="aot_eager") if case == "compile" else ddp
    draw, residuals = torch.Generator().manual_seed(r.rank), []
    for step in range(5):
        optimizer.zero_grad()
        x, y = torch.randn(16, 64, generator=draw).to(r.device), torch.randint(10, (16,), generator=draw).to(r.device)
        residuals.append(state.residual())
        with torch.autocast(r.device.type, torch.float16 if case == "amp" and not r.flags.cpu else torch.bfloat16, enabled=case in ("amp", "bf16")):
            if case == "no_sync":
                with ddp.no_sync():
                    torch.nn.functional.cross_entropy(run(x), y).backward()
            loss = torch.nn.functional.cross_entropy(run(x), y)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss * float("inf") if (step, r.rank) == (2, 1) else loss).backward()
            scaler.step(optimizer)
            scaler.update()
    state.check()
    if case == "amp":
        kept = all(torch.equal(residuals[2][name], residuals[3][name]) for name in residuals[2])
        assert (scaler.get_scale(), state.skipped, kept) == (512.0, 1, True), (scaler.get_scale(), state.skipped, kept)
    weights = torch.cat([p.detach().float().cpu().flatten() for p in model.parameters()])
    assert torch.isfinite(weights).all() and state.stats()["total"]["steps"] == (4 if case == "amp" else 5)
    return weights.numpy().tobytes()


def ddp(r):
    for case in CASES:
        if not r.goes_on(3):
            r.say(kind="ddp", case=case, result="no time left")
            continue
        data, error = b"", None
        try:
            data = run_case(r, case)
        except Exception as failed:  # of any kind: the others go on
            error = f"rank {r.rank}: {type(failed).__name__}: {failed}"
        gc.collect()
        same, error = r.agree(data, error)
        r.say(kind="ddp", case=case, result=error or ("same" if same else "REPLICAS differ"))


# ---- all ranks -----------------------------------------------------------------------------------------------------------------

def start(flags, part, world, seconds, model=""):
    """Runs ranks, and returns what rank 0 said. Ranks that do not end in time are killed."""
    with tempfile.TemporaryDirectory() as folder:
        slow = gpu_time.build_delay(folder) if part == "link" else None
        if part == "link" and slow is None:
            return [{"kind": "skipped", "part": part, "why": "no slow link: there is no compiler"}]
        processes = []
        try:
            for rank in range(world):
                environment = dict(os.environ, NCCL_HOSTID=f"host-{rank}", NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="2",
                                   NCCL_IB_DISABLE="1", **({"LD_PRELOAD": str(slow)} if slow else {}))
                command = [sys.executable, __file__, "--rank", str(rank), "--world", str(world), "--folder", folder, "--part", part,
                           "--until", str(time.time() + max(seconds - 4, 4)), "--model", model] + (["--cpu"] if flags.cpu else [])
                with open(f"{folder}/out-{rank}", "wb") as out, open(f"{folder}/err-{rank}", "wb") as err:
                    processes.append(subprocess.Popen(command, stdout=out, stderr=err, env=environment))
            until = time.monotonic() + seconds
            while any(process.poll() is None for process in processes) and time.monotonic() < until:
                time.sleep(0.1)
                if any(process.poll() not in (None, 0) for process in processes):
                    until = min(until, time.monotonic() + 5)  # the others learn of it by then
        finally:
            late = [rank for rank, process in enumerate(processes) if process.poll() is None]
            for process in processes:
                if process.poll() is None:
                    process.kill()
                process.wait()
        said = [json.loads(line) for line in pathlib.Path(folder, "out-0").read_text().splitlines() if line.startswith("{")]
        bad = [rank for rank, process in enumerate(processes) if process.returncode != 0]
        if bad:
            text = pathlib.Path(folder, f"err-{bad[0]}").read_text().strip().splitlines()[-12:]
            said.append({"kind": "failed", "part": part, "world": world, "late": late, "ranks": bad, "why": text})
    return said


def report(said):
    """Prints what was said as lines and tables; returns how many things went wrong."""
    wrong = 0
    for line in said:
        if line["kind"] in ("bits", "ddp", "bad"):
            is_well = line["result"] in ("same", "raised", "no time left") or "kernel" in line["result"]
            wrong += not is_well
            who = line.get("who") or f"{line.get('world', 2)} ranks"
            print(f"{line['kind']:5} {who}  {line.get('recipe', line.get('case')):24} {line['result']}", flush=True)
        elif line["kind"] == "failed":
            wrong += 1
            print(f"FAILED {line['part']} of {line['world']} ranks: ranks {line['ranks']}, killed {line['late']}\n  " + "\n  ".join(line["why"]), flush=True)
        elif line["kind"] == "setup":
            print(f"{line['part']:5} {line['world']} ranks  {line['model']}: {line['seconds']:.1f} s until all models and hooks are warm", flush=True)
        elif line["kind"] == "skipped":
            print(f"{line['part']:5} skipped: {line['why']}", flush=True)
        elif line["kind"] == "workers":
            print(f"workers {line['n']}  {line['model']}  {line['recipe']:14} {line['ms']:8.2f} ms, without the exchange {line['alone_ms']:8.2f} ms: "
                  f"{100 * line['share']:5.1f}%  codec {line['codec']}", flush=True)
    times = [line for line in said if line["kind"] == "time"]
    for line in times:
        plain = next((other["ms"] for other in times if other["hook"] == "none" and all(other[key] == line[key] for key in ("model", "gbit"))), float("nan"))
        sent = "" if line["sent"] is None else f"  {line['sent']:,} bytes"
        rate = f" {line['gbit']:g} Gbit/s by {line['by']}" if line["gbit"] else ""
        print(f"time  {line['world']} ranks{rate}  {line['model']:10} {line['hook']:16} {line['ms']:8.2f} ms  {100 * (line['ms'] / plain - 1):+7.1f}%{sent}", flush=True)
    return wrong


# (share of the time, what runs at the same time: part, ranks, model). What is timed runs alone.
RUNS = ((25, [("bits", 2, "")]), (20, [("ddp", 2, "")]), (50, [("bad", 2, ""), ("stall", 2, ""), ("death", 2, "")]),
        (25, [("time", 1, "ResNet-50")]), (25, [("time", 1, "GPT")]), (60, [("link", 2, "ResNet-50")]), (50, [("link", 2, "GPT-25M")]),
        (25, [("workers", 1, "")]), (15, [("bits", 4, "")]))


def runs_of(flags):
    for share, parts in RUNS:
        if parts[0][0] in flags.only.split(",") and not (flags.cpu and parts[0][2] == "ResNet-50"):  # CPUs have one model
            yield share, [(part, world, "" if flags.cpu else model) for part, world, model in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=240, help="seconds, in all")
    parser.add_argument("--only", default="bits,ddp,bad,time,link,workers")
    parser.add_argument("--json", help="where to keep what was measured")
    parser.add_argument("--cpu", action="store_true", help="without a GPU, to test this script")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--model", default="", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.rank is not None:
        rank = Rank(flags, flags.rank, flags.world, flags.folder)
        {"bits": bits, "ddp": ddp, "bad": gpu_bad.bad, "stall": gpu_bad.stall, "death": gpu_bad.death, "time": gpu_time.timing, "link": gpu_time.timing,
         "workers": gpu_workers.workers}[flags.part](rank)
        rank.dist.barrier(group=rank.gloo)
        rank.dist.destroy_process_group()
        return 0
    end, wrong, all_said = time.monotonic() + flags.limit, 0, []
    runs = list(runs_of(flags))
    for at, (share, parts) in enumerate(runs):
        left = max(end - time.monotonic(), 1)
        seconds = max(left * share / sum(other for other, _ in runs[at:]), min(left, 20))
        with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
            for said in [pool.submit(start, flags, part, world, seconds, model) for part, world, model in parts]:
                wrong += report(said.result())
                all_said += said.result()
    if flags.json:
        pathlib.Path(flags.json).write_text("".join(json.dumps(line) + "\n" for line in all_said))
    print(f"gpu_torch: {wrong} wrong", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
