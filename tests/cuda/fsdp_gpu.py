#!/usr/bin/env python3
"""Sharded training with gradients on a GPU: FSDP2 over NCCL, several ranks on one GPU (or one each), in about a minute. Prints a line a check,
then "ok" or what failed; exit status 0 or 1. Needs PyTorch 2.13 with CUDA.

    TG_LIBRARY=build/cuda/libtersegrad-cuda.so PYTHONPATH=python python3 tests/cuda/fsdp_gpu.py [--worlds 2,4] [--seconds 60] [--trace DIR]
    TG_LIBRARY=build/emulated/libtersegrad-cuda.so PYTHONPATH=python python3 tests/cuda/fsdp_gpu.py --emulated      over gloo, without a GPU
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))

# What makes the host wait for the device, in traces.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMalloc", "cudaFree", "cudaHostAlloc")
RECIPES = ("bf16", "mxfp8", "mxfp4", "ef+mxfp4", "mxfp4@hadamard=64", "nvfp4")


def known(recipes):
    import tersegrad
    names = {part["name"] for part in tersegrad.recipes()}
    return [each for each in recipes if all(part.partition("@")[0] in names for part in each.split("+"))]


# ---- a rank ------------------------------------------------------------------------------------------------------------------------


class Rank:
    def __init__(self, flags):
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        self.flags, self.torch, self.dist = flags, torch, dist
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cpu")
        if not flags.emulated:
            self.device = torch.device("cuda", self.rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
        dist.init_process_group("gloo" if flags.emulated else "nccl")
        self.mesh = init_device_mesh(self.device.type, (self.world,))
        self.failures = 0

    def say(self, name, is_good, text):
        """All ranks must be good."""
        told = self.torch.tensor([int(is_good)], device=self.device)
        self.dist.all_reduce(told, op=self.dist.ReduceOp.MIN)
        self.failures += int(told.item() == 0)
        if self.rank == 0:
            print(f"{'ok  ' if told.item() else 'FAIL'} {self.world} ranks, {name}: {text}", flush=True)

    def model(self, width, layers, mesh=None):
        from torch import nn
        from torch.distributed.fsdp import fully_shard
        self.torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(width, width + 3 * (n % 2 == 0)) if n % 2 == 0 else nn.Linear(width + 3, width) for n in range(layers)))
        for layer in list(model)[:-1]:
            fully_shard(layer, mesh=mesh or self.mesh)
        return fully_shard(model, mesh=mesh or self.mesh)

    def backward(self, model, step=0):
        torch = self.torch
        width = model[0].in_features
        x = torch.randn(16, width, generator=torch.Generator().manual_seed(100 * step + self.rank)).to(self.device)
        model(x).square().mean().backward()

    def check_sums(self, recipe, width):
        """The bits of a pass, against the sum in rank order of rows that a codec on the CPU has encoded and decoded."""
        import fsdp_jobs
        from tersegrad._torch_fsdp_scatter import ScatterComm
        from tersegrad.torch.fsdp import compress
        torch = self.torch
        model = self.model(width, 4)
        made = compress(model, recipe, seed=0)
        calls, call = [], ScatterComm.__call__

        def note(comm, output_tensor, input_tensor, group, op, async_op=False):
            given = input_tensor.clone()
            call(comm, output_tensor, input_tensor, group, op, async_op)
            calls.append((given, output_tensor))
        with mock.patch.object(ScatterComm, "__call__", note):
            self.backward(model)
        differing = n = 0
        for given, got in calls:
            rows = [other.cpu().view(self.world, -1)[self.rank] for other in fsdp_jobs.gathered(given)]
            total = fsdp_jobs.sum_of_decoded(recipe.replace("ef+", ""), rows)
            differing += int(((total / self.world).view(torch.int32) != got.cpu().view(torch.int32)).sum())
            n += got.numel()
        inside = made.stats()["inside"]
        ring = inside["dense"] / 2
        self.say(recipe, differing == 0 and inside["link"] == inside["sent"],
                 f"{differing} of {n} values differ from the sum of decoded rows; {inside['link'] / ring:.4f} of a bf16 ring")

    def check_waits(self, recipe, width):
        """Calls in a reduce-scatter that wait for the device or allocate, from the second step on."""
        from torch.profiler import ProfilerActivity, profile
        from tersegrad._torch_fsdp_scatter import RANGE
        from tersegrad.torch.fsdp import compress
        model = self.model(width, 4)
        compress(model, recipe)
        for step in range(3):
            self.backward(model, step)
        if not self.flags.emulated:
            self.torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
            self.backward(model, 3)
            if not self.flags.emulated:
                self.torch.cuda.synchronize()
        events = traced.events()
        ranges = [(event.time_range.start, event.time_range.end) for event in events if event.name == RANGE and "CPU" in str(event.device_type)]
        inside = [event.name for event in events for start, end in ranges
                  if start <= event.time_range.start and event.time_range.end <= end and event.name.startswith("cuda")]
        waits = sorted({name for name in inside if name.rstrip("_v0123456789") in WAITS or name in WAITS})
        if self.flags.trace and self.rank == 0:
            path = pathlib.Path(self.flags.trace, f"fsdp-{self.world}-{recipe.replace('+', '-').replace('@', '-')}.json")
            traced.export_chrome_trace(str(path))
        counts = {name: inside.count(name) for name in sorted(set(inside))}
        self.say(f"{recipe}, trace", len(ranges) == 4 and not waits,
                 f"{len(ranges)} reduce-scatters, waits {waits or 'none'}, calls {counts}")

    def time_of(self, call, n=8):
        torch = self.torch
        for _ in range(2):
            call()
        if self.flags.emulated:
            begin = time.monotonic()
            for _ in range(n):
                call()
            return 1000 * (time.monotonic() - begin) / n
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.dist.barrier()
        begin.record()
        for _ in range(n):
            call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end) / n

    def time_sums(self, width):
        """A deterministic reduce in bf16 beside an all-to-all and a sum in fp32, in one run and in turns."""
        from tersegrad.torch.fsdp import compress
        torch, dist = self.torch, self.dist
        model = self.model(width, 1)
        made = compress(model, "bf16")
        comm, group = made._scatters[0], self.mesh.get_group()
        row_n = made._groups[0].row_n
        given, out = torch.randn(self.world * row_n, device=self.device), torch.empty(row_n, device=self.device)
        got = torch.empty(self.world * row_n, dtype=torch.bfloat16, device=self.device)

        def plain():
            dist.all_to_all_single(got, given.bfloat16(), group=group)
            torch.sum(got.view(self.world, -1), 0, dtype=torch.float32, out=out).div_(self.world)
        times = [(self.time_of(lambda: comm(out, given, group, dist.ReduceOp.AVG)), self.time_of(plain)) for _ in range(3)]
        ours, theirs = (sorted(each)[1] for each in zip(*times))
        self.say("bf16, time", True, f"{self.world * row_n} values: {ours:.2f} ms, all-to-all and fp32 sum {theirs:.2f} ms, ratio {ours / theirs:.2f}")

    def check_replicas(self, recipe, width):
        """HSDP on four ranks: all hold the same weights, and what is owed is conserved."""
        from torch.distributed.device_mesh import init_device_mesh
        from tersegrad.torch.fsdp import compress
        torch = self.torch
        mesh = init_device_mesh(self.device.type, (2, self.world // 2), mesh_dim_names=("replicate", "shard"))
        model = self.model(width, 3, mesh["shard"])
        made = compress(model, recipe, replicas=mesh["replicate"], inside=known(("mxfp8", "bf16"))[0], verify_every=1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            self.backward(model, step)
            optimizer.step()
        own = torch.stack([p.to_local().double().sum() for p in model.parameters()]).sum().reshape(1)
        all_of = [torch.empty_like(own) for _ in range(2)]
        self.dist.all_gather(all_of, own, group=mesh["replicate"].get_group())
        between = made.stats()["between"]
        self.say(f"{recipe} between 2 replicas", bool(all_of[0] == all_of[1]) and between["steps"] == 3, f"{between['ratio']:.1f} times fewer bytes")

    def run(self):
        width = 61 if self.flags.emulated else 1021
        for recipe in known(RECIPES):
            self.check_sums(recipe, width)
        for recipe in known(("bf16", "mxfp8", "ef+mxfp4")):
            self.check_waits(recipe, width)
        self.time_sums(256 if self.flags.emulated else 8192)
        if self.world == 4:
            self.check_replicas("adacomp", width)
        self.dist.barrier()
        self.dist.destroy_process_group()
        return self.failures


def be_rank(flags):
    if flags.emulated:
        import torch
        import tersegrad.torch.fsdp as fsdp
        from tersegrad._torch_device import Device
        fsdp._device_of = lambda of: Device(torch.device("cpu"))
    try:
        sys.exit(1 if Rank(flags).run() else 0)
    except Exception as error:
        print(f"FAIL rank {os.environ['RANK']}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        os._exit(1)


# ---- all ranks ---------------------------------------------------------------------------------------------------------------------


def start(world, folder, port, flags):
    """NCCL takes two ranks on one GPU if they seem to be on different hosts."""
    out = []
    for rank in range(world):
        environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                           NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1",
                           KINETO_LOG_LEVEL="5", PYTHONWARNINGS="ignore")
        if flags.emulated:
            environment["TG_EMULATED_REACH"] = "1"
        with open(pathlib.Path(folder, f"{world}-{rank}"), "w") as log:
            out.append(subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--rank"], env=environment, stdout=None if rank == 0 else log,
                                        stderr=log, start_new_session=True))
    return out


def watch(processes, until):
    """Whether all ended well in time; ends those that are left once one has failed."""
    while time.monotonic() < until and any(process.poll() is None for process in processes):
        if any(process.poll() not in (None, 0) for process in processes):
            until = min(until, time.monotonic() + 3)
        time.sleep(0.1)
    late = [process for process in processes if process.poll() is None]
    for process in late:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return not late and all(process.returncode == 0 for process in processes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,4", help="numbers of ranks, one after the other")
    parser.add_argument("--seconds", type=float, default=60, help="until everything is ended")
    parser.add_argument("--trace", metavar="DIR", help="keep the profiler's traces of rank 0 there")
    parser.add_argument("--emulated", action="store_true", help="kernels on the CPU, over gloo: without times and traces of a GPU that count")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.rank:
        be_rank(flags)
    until, good = time.monotonic() + flags.seconds, True
    with tempfile.TemporaryDirectory() as folder:
        for at, world in enumerate(int(each) for each in flags.worlds.split(",")):
            begin = time.monotonic()
            is_good = watch(start(world, folder, 29611 + at, flags), until)
            print(f"{'ok  ' if is_good else 'FAIL'} {world} ranks in {time.monotonic() - begin:.0f} s", flush=True)
            for log in sorted(pathlib.Path(folder).glob(f"{world}-*")) if not is_good else ():
                print(f"--- {log.name}: {log.read_text()[-700:]}", flush=True)
            good = good and is_good
    print(json.dumps({"ok": good}))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
