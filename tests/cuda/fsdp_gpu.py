#!/usr/bin/env python3
"""Sharded training with gradients on a GPU: FSDP2 over NCCL, several ranks on one GPU (or one each), in about two minutes. Prints a line a check,
then "ok" or what failed; exit status 0 or 1. Needs PyTorch 2.9 or later with CUDA.

    TG_LIBRARY=build/cuda/libtersegrad-cuda.so PYTHONPATH=python python3 tests/cuda/fsdp_gpu.py [--worlds 2,4] [--only time --mps] [--seconds 180]
    TG_LIBRARY=build/emulated/libtersegrad-cuda.so PYTHONPATH=python python3 tests/cuda/fsdp_gpu.py --emulated      over gloo, without a GPU

sums          a backward pass by AVG, SUM and PREMUL_SUM, against the sum in rank order of rows that a codec on the CPU has decoded; bytes
reduce        the deterministic reduce on the GPU over NCCL and on the CPU over gloo, for several sizes and cuts: differing bits
waits         a profiler's trace of a reduce-scatter, and whether the host is back while the device is still busy with what was before
time          of the deterministic reduce, beside an all-to-all and a sum in fp32
replicas      HSDP: averages and residuals against those of a CPU for the same shards; the memory of residuals
checkpoints   to the same bits; and with another number of replicas
bad           calls that are refused, with the reason on every rank
example       examples/torch_gpt_fsdp.py by torchrun
"""

import hashlib
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
import types
from unittest import mock

import one_gpu
from one_gpu import ROOT, differing, known

sys.path.insert(0, str(ROOT / "python" / "tests"))

# What makes the host wait for the device, in traces.
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMalloc", "cudaFree", "cudaHostAlloc")
# Of a bf16 ring, at most: bits a value over 16, with space for headers.
BYTES = {"bf16": 1.001, "mxfp8": 0.51, "mxfp8@block=32": 0.517, "mxfp4": 0.27, "ef+mxfp4": 0.27, "mxfp4@hadamard=64": 0.27, "nvfp4": 0.285}
OPTIONS = {"seed": 0, "rules": None, "dense_below": 0, "nonfinite": "pass", "exchange": None, "threads": 1, "verify_every": 0}


class Rank(one_gpu.Rank):
    def __init__(self, flags):
        super().__init__(flags)
        from torch.distributed.device_mesh import init_device_mesh
        self.mesh = init_device_mesh(self.device.type, (self.world,))
        self.width = 61 if flags.emulated else 1021

    def model(self, width, layers, mesh=None, **options):
        from torch import nn
        from torch.distributed.fsdp import fully_shard
        self.torch.manual_seed(1)
        model = nn.Sequential(*(nn.Linear(width, width + 3 * (n % 2 == 0)) if n % 2 == 0 else nn.Linear(width + 3, width) for n in range(layers)))
        for layer in list(model)[:-1]:
            fully_shard(layer, mesh=mesh or self.mesh, **options)
        return fully_shard(model, mesh=mesh or self.mesh, **options)

    def backward(self, model, step=0):
        torch = self.torch
        width = model[0].in_features
        x = torch.randn(16, width, generator=torch.Generator().manual_seed(100 * step + self.rank)).to(self.device)
        model(x).square().mean().backward()

    # ---- sums ----------------------------------------------------------------------------------------------------------------------

    def check_sums(self, recipe, op="AVG", dtype="float32"):
        """The bits of a pass, against the sum in rank order of rows that a codec on the CPU has encoded and decoded."""
        import fsdp_jobs
        from tersegrad._torch_fsdp_scatter import ScatterComm
        from tersegrad.torch.fsdp import compress
        from torch.distributed.fsdp import MixedPrecisionPolicy
        torch = self.torch
        model = self.model(self.width, 4, mp_policy=MixedPrecisionPolicy(reduce_dtype=getattr(torch, dtype)))
        made = compress(model, recipe, seed=0)
        for module in model.modules():
            if op != "AVG" and hasattr(module, "set_gradient_divide_factor"):
                module.set_gradient_divide_factor(3.0)
                module.set_force_sum_reduction_for_comms(op == "SUM")
        calls, call = [], ScatterComm.__call__

        def note(comm, output_tensor, input_tensor, group, op, async_op=False):
            given = input_tensor.clone()
            call(comm, output_tensor, input_tensor, group, op, async_op)
            calls.append((given, output_tensor.clone(), str(getattr(op, "op", op))))
        with mock.patch.object(ScatterComm, "__call__", note):
            self.backward(model)
        self.synchronize()
        divisor = {"AVG": self.world, "SUM": 1.0, "PREMUL_SUM": 3.0}[op]
        wrong = n = 0
        for given, got, _ in calls:
            rows = [other.view(self.world, -1)[self.rank] for other in fsdp_jobs.gathered(given.cpu(), self.gloo)]
            total = fsdp_jobs.sum_of_decoded(recipe.replace("ef+", ""), rows)
            wrong += differing((total / divisor).to(got.dtype), got)
            n += got.numel()
        inside = made.stats()["inside"]
        ratio = inside["link"] / (inside["logical"] * (2 if dtype == "bfloat16" else 1) / 2 * (self.world - 1) / self.world)
        is_by = {each.rpartition(".")[2] for _, _, each in calls} == {op}
        self.say(f"sums, {recipe}, {op} in {dtype}", wrong == 0 and is_by and inside["link"] == inside["sent"] and
                 (self.flags.emulated or ratio <= BYTES[recipe]),
                 f"{wrong} of {n} values differ from the sum of decoded rows; {ratio:.4f} of a bf16 ring")

    # ---- the deterministic reduce --------------------------------------------------------------------------------------------------

    def comm(self, recipe, row_n, dtype, device):
        from tersegrad._torch_fsdp_scatter import ScatterComm
        group = types.SimpleNamespace(name="rows", shards=self.world, shard=self.rank, row_n=row_n, dtype=dtype)
        return ScatterComm(group, recipe, OPTIONS, device)

    def reduced(self, recipe, given, pieces, on_gpu):
        """Columns of (world, n) in so many pieces, each a reduce-scatter of its own."""
        from tersegrad._torch_device import Device
        torch = self.torch
        of, device, group = (self.device, Device(self.device), self.mesh.get_group()) if on_gpu else (torch.device("cpu"), None, self.gloo)
        out = []
        for piece in torch.tensor_split(given, pieces, 1):
            if piece.shape[1] > 0:
                comm = self.comm(recipe, piece.shape[1], str(given.dtype).split(".")[-1], device)
                there, got = piece.contiguous().to(of), torch.empty(piece.shape[1], dtype=given.dtype, device=of)
                comm(got, there, group, self.dist.ReduceOp.AVG)
                self.synchronize()
                out.append(got.cpu())
        return torch.cat(out)

    def check_reduce(self, recipe):
        import fsdp_jobs
        torch, wire = self.torch, {"bf16": "bfloat16", "fp16": "float16", "dense": "float32"}[recipe]
        wrong = n = 0
        for size in (1, 7, 1000, 4099) if self.flags.emulated else (1, 7, 1000, 65_537, 3_000_001):
            for dtype in (torch.float32, torch.bfloat16):
                draw = torch.Generator().manual_seed(1000 * size + self.rank)
                given = torch.randn(self.world, size, generator=draw) * 2.0 ** torch.randint(-12, 12, (self.world, size), generator=draw)
                given = given.to(dtype)
                total = torch.zeros(size)
                for other in fsdp_jobs.gathered(given, self.gloo):
                    total += other[self.rank].float().to(getattr(torch, wire)).float()
                expected = (total / self.world).to(dtype)
                for pieces, on_gpu in ((1, True), (3, True), (1, False), (3, False)):
                    wrong += differing(self.reduced(recipe, given, pieces, on_gpu), expected)
                    n += size
        self.say(f"reduce, {recipe}", wrong == 0, f"{wrong} of {n} values differ from sums in rank order: 2 dtypes, whole and in 3 pieces, "
                 f"{self.device.type} over {'gloo' if self.flags.emulated else 'NCCL'} and cpu over gloo")

    def time_of(self, call, n=6):
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

    def kernels_of(self, call, n=4):
        """Milliseconds of the device in everything but messages, and the longest of it."""
        from torch.profiler import ProfilerActivity, profile
        if self.flags.emulated:
            return 0.0, ""
        with profile(activities=[ProfilerActivity.CUDA]) as traced:
            for _ in range(n):
                call()
            self.synchronize()
        each_of = [each for each in traced.key_averages() if "nccl" not in each.key.lower() and each.self_device_time_total > 0]
        each_of.sort(key=lambda each: -each.self_device_time_total)
        longest = ", ".join(f"{each.key[:24]} {each.count // n} x {each.self_device_time_total / each.count:.0f} us" for each in each_of[:6])
        return sum(each.self_device_time_total for each in each_of) / 1000 / n, longest

    def reduces(self, row_n):
        """A deterministic reduce in bf16, and an all-to-all and a sum in fp32."""
        from tersegrad._torch_device import Device
        torch, dist, group = self.torch, self.dist, self.mesh.get_group()
        comm = self.comm("bf16", row_n, "float32", Device(self.device))
        given, out = torch.randn(self.world * row_n, device=self.device), torch.empty(row_n, device=self.device)
        got = torch.empty(self.world * row_n, dtype=torch.bfloat16, device=self.device)

        def plain():
            dist.all_to_all_single(got, given.bfloat16(), group=group)
            torch.sum(got.view(self.world, -1), 0, dtype=torch.float32, out=out).div_(self.world)

        def own():
            comm(out, given, group, dist.ReduceOp.AVG)
        return own, plain

    def time_reduce(self, row_n):
        """Both in one run and in turns."""
        own, plain = self.reduces(row_n)
        times = [(self.time_of(own), self.time_of(plain)) for _ in range(7)]
        ours, theirs = (sorted(each)[3] for each in zip(*times))
        self.say("time", self.flags.emulated or ours <= 1.1 * theirs,
                 f"{self.world * row_n} values: {ours:.3f} ms, all-to-all and fp32 sum {theirs:.3f} ms, ratio {ours / theirs:.3f}")

    def trace_reduce(self, row_n):
        own, plain = self.reduces(row_n)
        (kernels, longest), (others, _) = self.kernels_of(own), self.kernels_of(plain)
        self.say("time, kernels", True, f"{self.world * row_n} values: beside messages {kernels:.3f} ms ({longest}), of the other {others:.3f} ms")

    # ---- waits ---------------------------------------------------------------------------------------------------------------------

    def check_trace(self, recipe):
        """Calls in a reduce-scatter that wait for the device or allocate, from the second step on."""
        from torch.profiler import ProfilerActivity, profile
        from tersegrad._torch_fsdp_scatter import RANGE
        from tersegrad.torch.fsdp import compress
        model = self.model(self.width, 4)
        compress(model, recipe)
        for step in range(3):
            self.backward(model, step)
        self.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as traced:
            self.backward(model, 3)
            self.synchronize()
        events = traced.events()
        ranges = [(event.time_range.start, event.time_range.end) for event in events if event.name == RANGE and "CPU" in str(event.device_type)]
        inside = [event.name for event in events for start, end in ranges
                  if start <= event.time_range.start and event.time_range.end <= end and event.name.startswith("cuda")]
        waits = sorted({name for name in inside if name.rstrip("_v0123456789") in WAITS or name in WAITS})
        if self.flags.trace and self.rank == 0:
            path = pathlib.Path(self.flags.trace, f"fsdp-{self.world}-{recipe.replace('+', '-').replace('@', '-')}.json")
            traced.export_chrome_trace(str(path))
        counts = {name: inside.count(name) for name in sorted(set(inside))}
        self.say(f"waits, {recipe}, trace", len(ranges) == 4 and not waits and (self.flags.emulated or any("Launch" in name for name in counts)),
                 f"{len(ranges)} reduce-scatters, waits {waits or 'none'}, calls {counts}")

    def check_returns(self, recipe, row_n):
        """The device is given some tenths of a second to do, and then a reduce-scatter: the host must be back before the device is done."""
        from tersegrad._torch_device import Device
        torch = self.torch
        comm = self.comm(recipe, row_n, "float32", Device(self.device))
        given, out = torch.randn(self.world * row_n, device=self.device), torch.empty(row_n, device=self.device)
        for _ in range(3):
            comm(out, given, self.mesh.get_group(), self.dist.ReduceOp.AVG)
        torch.cuda.synchronize()
        self.dist.barrier(group=self.gloo)
        busy, done = torch.cuda.Event(), torch.cuda.Event()
        torch.cuda._sleep(1_000_000_000)
        busy.record()
        begin = time.monotonic()
        comm(out, given, self.mesh.get_group(), self.dist.ReduceOp.AVG)
        back, is_back = time.monotonic() - begin, not busy.query()
        done.record()
        done.synchronize()
        self.say(f"waits, {recipe}, host", is_back,
                 f"the host is back after {1000 * back:.2f} ms, the device done after {1000 * (time.monotonic() - begin):.0f} ms")

    # ---- replicas ------------------------------------------------------------------------------------------------------------------

    def replicas(self, layers=3, width=None, replicas_n=2):
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh(self.device.type, (replicas_n, self.world // replicas_n), mesh_dim_names=("replicate", "shard"))
        return self.model(width or self.width, layers, mesh["shard"]), mesh["replicate"]

    def train(self, model, steps, first=0):
        optimizer = self.torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(first, first + steps):
            optimizer.zero_grad()
            self.backward(model, step)
            optimizer.step()

    def digest(self, model):
        own = self.torch.cat([p.detach().full_tensor().flatten().cpu() for p in model.parameters()])
        return hashlib.sha256(own.numpy().tobytes()).hexdigest()

    def check_replicas(self, recipe):
        """What exchanges between replicas do with shards, against exchanges on the CPU that are given the same."""
        from tersegrad._torch_fsdp_replicas import Between, ReplicaLink, residuals_of
        from tersegrad.torch.fsdp import compress
        model, between = self.replicas()
        made = compress(model, recipe, replicas=between, inside=known(("mxfp8", "bf16"))[0], verify_every=1)
        noted = []
        for at, own in enumerate(made._betweens):
            def note(shard, at=at, own=own):
                given = shard.clone()
                own(shard)
                noted.append((at, given, shard.clone()))
            made._groups[at].of._all_reduce_hook = note
        self.train(model, 3)
        self.synchronize()
        ranks = self.dist.get_process_group_ranks(between.get_group())
        gloo = self.dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
        link = ReplicaLink(gloo, None)
        on_cpu = [Between(group, made.recipe, made._replica, made.replicas, dict(OPTIONS, verify_every=1), None) for group in made._groups]
        wrong = n = 0
        for at, given, taken in noted:
            on_cpu[at].link = link
            shard = given.cpu()
            on_cpu[at](shard)
            wrong += differing(shard, taken)
            n += shard.numel()
        for ours, theirs in zip(made._betweens, on_cpu):
            wrong += sum(differing(a, b) for a, b in zip(residuals_of(ours.exchange), residuals_of(theirs.exchange)))
        stats = made.stats()["between"]
        self.say(f"replicas, {recipe}", wrong == 0 and self.are_same(self.digest(model)) and stats["steps"] == 3 and len(noted) == 9,
                 f"{wrong} of {n} averages and residuals differ from a CPU's; weights are the same on all ranks; {stats['ratio']:.1f} times fewer bytes")

    def check_memory(self):
        """Device memory of exchanges with feedback and without. Ranks take turns, since they share a GPU."""
        from tersegrad._torch_device import Device
        from tersegrad._torch_fsdp_groups import find_groups
        from tersegrad._torch_fsdp_replicas import Between
        torch = self.torch
        model, _ = self.replicas(2, 4096)
        groups, device, kept = find_groups(model), Device(self.device), []
        parameters, shards = sum(p.numel() for p in model.parameters()), self.world // 2
        more = [0, 0]
        for turn in range(self.world):
            for at, recipe in enumerate(("fp16", "ef+fp16")) if turn == self.rank else ():
                torch.cuda.synchronize()
                free = torch.cuda.mem_get_info()[0]
                kept += [Between(group, recipe, 0, 2, OPTIONS, device) for group in groups]
                torch.cuda.synchronize()
                more[at] = free - torch.cuda.mem_get_info()[0]
            self.dist.barrier(group=self.gloo)
        took, own = more[1] - more[0], 2 * 4 * parameters // shards
        self.say("replicas, memory", abs(took - own) <= 0.01 * own + len(groups) * (8 << 20),
                 f"{took} bytes more with feedback; 2 x 4 x {parameters} parameters / {shards} shards are {own}")

    # ---- checkpoints ---------------------------------------------------------------------------------------------------------------

    def check_checkpoints(self):
        import torch.distributed.checkpoint as checkpoint
        from tersegrad.torch import fsdp
        folder, digests, made = str(pathlib.Path(self.flags.folder, f"same-{self.world}")), [], None
        for resumed in (False, True):
            made = model = None  # with two ranks both meshes have the process group of all ranks
            model, between = self.replicas()
            made = fsdp.compress(model, "ef+topk@0.1", replicas=between, inside="ef+bf16")
            if resumed:
                state = {"model": model.state_dict()}
                checkpoint.load(state, checkpoint_id=folder)
                model.load_state_dict(state["model"])
                fsdp.load(made, folder, prefix="compressor")
            else:
                self.train(model, 3)
                checkpoint.save({"model": model.state_dict(), "compressor": made.state_dict()}, checkpoint_id=folder)
            self.train(model, 3, first=3)
            digests.append(self.digest(model))
        self.say("checkpoints", digests[0] == digests[1] and self.are_same(digests), "3 steps, a checkpoint, 3 steps: the same bits resumed")

    def check_other_replicas(self):
        """Two replicas save; four load, and the mean of their residuals is the same."""
        import torch.distributed.checkpoint as checkpoint
        from tersegrad.torch import fsdp
        torch, folder = self.torch, pathlib.Path(self.flags.folder, "replicas")
        if self.world != 2 and not folder.exists():
            return
        model, between = self.replicas(replicas_n=self.world)
        made = fsdp.compress(model, "ef+topk@0.1", replicas=between)
        if self.world == 2:
            self.train(model, 2)
            checkpoint.save({"compressor": made.state_dict()}, checkpoint_id=str(folder))
        else:
            fsdp.load(made, str(folder), prefix="compressor")
        owed = torch.cat([each.flatten() for each in made.residual().values()])
        self.dist.all_reduce(owed, group=self.gloo)
        owed /= self.world
        if self.world == 2:
            if self.rank == 0:
                torch.save(owed, folder / "mean")
            return
        before = torch.load(folder / "mean")
        far = float((owed - before).abs().max() / before.abs().max())
        self.train(model, 1)
        self.say("checkpoints", far < 1e-5, f"of 2 replicas in {self.world}: the mean residual differs by {far:.1e} of its largest value")

    # ---- bad use -------------------------------------------------------------------------------------------------------------------

    def check_bad_use(self):
        """A reason on every rank, at once, and a model that works when it is compressed properly."""
        import fsdp_jobs
        from tersegrad.torch.fsdp import compress
        from torch.distributed.device_mesh import init_device_mesh
        model, between = self.replicas()
        both = init_device_mesh(self.device.type, (2, self.world // 2), mesh_dim_names=("replicate", "shard"))
        cases = {"'topk' has indices": lambda: compress(model, "topk@0.1"),
                 "rank 1 has recipe 'bf16', but rank 0 has 'fp16'": lambda: compress(model, "bf16" if self.rank == 1 else "fp16"),
                 "would do it a second time": lambda: compress(self.model(self.width, 2, both), "adacomp", replicas=both["replicate"]),
                 "in common in place of": lambda: compress(self.model(self.width, 2), "adacomp", replicas=between),
                 "a mesh of 2 dimensions": lambda: compress(model, "adacomp", replicas=both)}
        wrong = [words for words, call in cases.items() if words not in (fsdp_jobs.sentence_of(call) or "")]
        compress(model, "adacomp", replicas=between, inside="mxfp8")
        wrong += [] if "is compressed already" in (fsdp_jobs.sentence_of(lambda: compress(model, "mxfp8")) or "") else ["second"]
        self.train(model, 1)
        self.synchronize()
        self.say("bad use", not wrong, f"{len(cases) + 1} cases, each with its reason on every rank" if not wrong else f"not said: {wrong}")

    def run(self):
        parts = {"sums": self.run_sums, "reduce": self.run_reduce, "waits": self.run_waits, "time": self.run_times, "replicas": self.run_replicas,
                 "checkpoints": self.run_checkpoints, "bad": self.check_bad_use}
        for name, part in parts.items():
            if not self.flags.only or name in self.flags.only.split(","):
                part()

    def run_sums(self):
        for recipe in known(BYTES):
            self.check_sums(recipe)
        for recipe, op, dtype in (("bf16", "SUM", "float32"), ("bf16", "PREMUL_SUM", "float32"), ("mxfp8", "PREMUL_SUM", "float32"),
                                  ("mxfp8", "SUM", "bfloat16"), ("bf16", "AVG", "bfloat16")):
            self.check_sums(recipe, op, dtype)

    def run_reduce(self):
        for recipe in ("bf16", "fp16", "dense"):
            self.check_reduce(recipe)

    def run_waits(self):
        for recipe in known(("bf16", "mxfp8", "ef+mxfp4")):
            self.check_trace(recipe)
            if not self.flags.emulated:
                self.check_returns(recipe, 1_000_000)

    def run_times(self):
        for row_n in (10_000,) if self.flags.emulated else (262_144, 2_097_152, 16_777_216):
            self.time_reduce(row_n)
        if not self.flags.emulated:
            self.trace_reduce(262_144)

    def run_replicas(self):
        for recipe in ("adacomp", "ef+mxfp4", "ef+topk@0.01"):
            self.check_replicas(recipe)
        if not self.flags.emulated:
            self.check_memory()

    def run_checkpoints(self):
        self.check_checkpoints()
        self.check_other_replicas()


def run_example(flags, until):
    """Short trainings by torchrun, which gives all ranks one environment: a shell gives each a host of its own, for NCCL."""
    if flags.only and "example" not in flags.only.split(","):
        return True
    good, world = True, max(int(each) for each in flags.worlds.split(","))
    for n, options in ((2, "--recipe mxfp8"), (world, f"--recipe adacomp+inside=mxfp8 --replicas {world // 2 if world > 2 else 2}")):
        with tempfile.TemporaryDirectory() as folder:
            program = shlex.join([sys.executable, str(ROOT / "examples/torch_gpt_fsdp.py"), *shlex.split(options), "--steps", "20", "--save", folder])
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(n), "--no-python", "sh", "-c",
                       f"NCCL_HOSTID=rank$RANK exec {program}"]
            try:
                done = subprocess.run(command, env=one_gpu.environment_of(flags), capture_output=True, text=True, check=False,
                                      timeout=max(5, min(120, until - time.monotonic())))
                ended, said = done.returncode == 0, done.stdout + ("" if done.returncode == 0 else done.stderr[-2000:])
            except subprocess.TimeoutExpired as late:
                ended, said = False, f"no end after {late.timeout:.0f} s: {str(late.stderr)[-1000:]}"
        lines = said.strip().splitlines()
        print(f"{'ok  ' if ended else 'FAIL'} {n} ranks, example, {options}: {' | '.join(lines[-2:] if ended else lines)}", flush=True)
        good = good and ended
    return good


def add_options(parser):
    parser.add_argument("--only", help="some of sums,reduce,waits,time,replicas,checkpoints,bad,example")
    parser.add_argument("--trace", metavar="DIR", help="keep the profiler's traces of rank 0 there")


if __name__ == "__main__":
    one_gpu.main(Rank, __doc__, add_options, run_example)
