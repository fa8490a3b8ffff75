#!/usr/bin/env python3
"""Where the time of a step with the hook goes: what host threads do and wait for, what is on the GPU, and what of it overlaps.

    PYTHONPATH=python TG_LIBRARY=build/cuda/libtersegrad-cuda.so python3 tests/cuda/trace_hook.py [--model resnet,gpt] [--hooks none,adacomp,...]

One rank, so that nothing travels. For each hook: milliseconds of a step without the profiler (median; `none` takes turns with it); then of three
steps under torch.profiler the time of parts of the hook, calls of CUDA by thread, and for each stream its kernels, how long it is
busy, how much of that no other stream is, and how long it works on after the last kernel of the backward pass. `--json FILE` keeps all of it.
Without a GPU (--cpu, with emulated kernels) the tables are short.
"""

import argparse
import collections
import gc
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples"), str(ROOT / "tests" / "cuda")]
import gpu_time
import gpu_torch

STEPS = 3  # under the profiler


# ---- the hook's parts on the host --------------------------------------------------------------------------------------------

class Clock:
    """Sums of the time in functions of the package, by thread."""

    def __init__(self):
        self.sums = collections.defaultdict(lambda: [0, 0.0])

    def wrap(self, owner, name):
        inner = getattr(owner, name)

        def timed(*arguments, **options):
            begin = time.perf_counter()
            try:
                return inner(*arguments, **options)
            finally:
                entry = self.sums[f"{owner.__name__}.{name}", threading.current_thread().name]
                entry[0] += 1
                entry[1] += time.perf_counter() - begin
        setattr(owner, name, timed)

    def take(self):
        out = [{"part": part, "thread": thread, "n": n / STEPS, "ms": 1000 * seconds / STEPS} for (part, thread), (n, seconds) in self.sums.items()]
        self.sums.clear()
        return sorted(out, key=lambda row: -row["ms"])


def watch(clock):
    from tersegrad import _exchange, _torch_device, _torch_link, _torch_wire, torch as package
    for owner, names in ((package.State, ("_collect", "_begin_pass", "_take", "_end_late", "_finish", "_end", "_count")), (_exchange.Flight, ("begin", "ready", "wait")),
                         (_torch_device.Device, ("meet", "lead", "finish")), (_torch_link.TorchLink, ("_start", "_test")),
                         (_torch_wire.GroupWire, ("_post",))):
        for name in names:
            clock.wrap(owner, name)


# ---- the profiler's events ---------------------------------------------------------------------------------------------------

def union(spans):
    """Disjoint spans, in order."""
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in spans)


def common(a, b):
    """The length of what two lists of disjoint spans share."""
    i = j = 0
    out = 0.0
    while i < len(a) and j < len(b):
        out += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return out


def read(trace):
    """Tables of a chrome trace. Times are in microseconds there."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    gpu = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    calls = [e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    streams = collections.defaultdict(list)
    for e in gpu:
        streams[e["args"].get("stream")].append(e)
    spans = {stream: union([(e["ts"], e["ts"] + e["dur"]) for e in own]) for stream, own in streams.items()}
    main = max(spans, key=lambda stream: length(spans[stream]), default=None)
    rows = []
    for stream, own in streams.items():
        others = union([tuple(span) for other, all_of in spans.items() if other != stream for span in all_of])
        kernels = collections.Counter()
        for e in own:
            kernels[e["name"].split("(")[0][-60:]] += e["dur"]
        rows.append({"stream": stream, "is_main": stream == main, "n": len(own) / STEPS, "busy_ms": length(spans[stream]) / 1000 / STEPS,
                     "alone_ms": (length(spans[stream]) - common(spans[stream], others)) / 1000 / STEPS,
                     "kernels": [(name, us / 1000 / STEPS) for name, us in kernels.most_common(14)]})
    by_thread = collections.defaultdict(lambda: [0, 0.0])
    for e in calls:
        entry = by_thread[e["tid"], e["name"]]
        entry[0] += 1
        entry[1] += e["dur"]
    threads = [{"thread": tid, "call": name, "n": n / STEPS, "ms": us / 1000 / STEPS} for (tid, name), (n, us) in by_thread.items()]
    return {"streams": sorted(rows, key=lambda row: -row["busy_ms"]), "calls": sorted(threads, key=lambda row: -row["ms"])[:24],
            "gpu_busy_ms": length(union([tuple(s) for all_of in spans.values() for s in all_of])) / 1000 / STEPS}


# ---- steps -------------------------------------------------------------------------------------------------------------------

def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def trace(r, clock, job):
    torch = r.torch
    clock.sums.clear()
    kinds = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if r.device.type == "cuda" else [])
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(STEPS):
            job.step()
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        return read(json.loads(pathlib.Path(folder, "trace.json").read_text()))


def show(row):
    print(f"\n== {row['model']} {row['hook']}: {row['ms']:.2f} ms a step, none {row['none_ms']:.2f} ({100 * (row['ms'] / row['none_ms'] - 1):+.1f}%); "
          f"forward {row['marks'][0]:.2f}, backward {row['marks'][1]:.2f}, optimizer {row['marks'][2]:.2f}, rest {row['marks'][3]:.2f}; "
          f"GPU busy {row['gpu_busy_ms']:.2f}", flush=True)
    if row["stats"]:
        print("   stats: " + ", ".join(f"{name} {value:.3f}" for name, value in row["stats"].items()))
    for part in row["parts"][:9]:
        print(f"   host   {part['part']:28} {part['thread']:20} {part['n']:7.1f} times {part['ms']:8.3f} ms")
    for call in row["calls"][:8]:
        print(f"   call   {call['call'][:36]:36} thread {call['thread']!s:8} {call['n']:7.1f} times {call['ms']:8.3f} ms")
    for stream in row["streams"]:
        print(f"   stream {stream['stream']!s:6}{'main' if stream['is_main'] else '    '} {stream['n']:7.1f} kernels, busy {stream['busy_ms']:7.3f} ms, "
              f"alone {stream['alone_ms']:7.3f} ms")
        if not stream["is_main"]:
            print("            " + ", ".join(f"{name.split('<')[0]} {ms:.3f}" for name, ms in stream["kernels"]))
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ResNet-50,GPT")
    parser.add_argument("--hooks", default="torch:allreduce,torch:fp16,adacomp,ef+topk@0.01,ef+fp8")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--bucket-mb", type=float, default=25, help="of DistributedDataParallel, with all hooks and without one")
    parser.add_argument("--json")
    parser.add_argument("--cpu", action="store_true", help="without a GPU, to test this script")
    flags = parser.parse_args()
    flags.until = time.time() + 3600
    rows, clock = [], Clock()
    with tempfile.TemporaryDirectory() as folder:
        r = gpu_torch.Rank(flags, 0, 1, folder)
        watch(clock)
        for what, make, batch, loss_of in gpu_time.models_of(r):
            if what not in flags.model.split(","):
                continue
            plain = gpu_time.Job(r, "none", make, batch, loss_of, flags.bucket_mb)
            for name in flags.hooks.split(","):
                if flags.cpu and name.startswith("torch:"):
                    continue
                job = gpu_time.Job(r, name, make, batch, loss_of, flags.bucket_mb)
                for _ in range(5):
                    plain.step()
                    job.step()
                plain.times, job.times, job.marks = [], [], []
                for _ in range(2 if flags.cpu else flags.rounds):
                    plain.step()
                    plain.step()
                    job.step()
                    job.step()
                row = {"model": what, "hook": name, "ms": statistics.median(job.times), "none_ms": statistics.median(plain.times), "marks": medians(job.marks)}
                row.update(trace(r, clock, job))
                last = job.state.stats()["last"] if job.state is not None else {}
                row["stats"] = {key: 1000 * value for key, value in last.items() if key.endswith("seconds")}
                if job.state is not None:
                    row["stats"]["groups"] = job.state._made().group_n
                row["parts"] = clock.take()
                rows.append(row)
                show(row)
                del job
                gc.collect()
        r.dist.destroy_process_group()
    print("\nmodel      hook               ms     none    more  hook's calls and their ms  exposed ms  GPU busy ms")
    for row in rows:
        calls = next((part for part in row["parts"] if part["part"] == "State._collect"), {"n": 0, "ms": 0})
        print(f"{row['model']:10} {row['hook']:16} {row['ms']:7.2f} {row['none_ms']:7.2f} {100 * (row['ms'] / row['none_ms'] - 1):+6.1f}% "
              f"{calls['n']:9.0f} {calls['ms']:8.3f} {row['stats'].get('exposed_seconds', 0):20.3f} {row['gpu_busy_ms']:11.2f}")
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
