#!/usr/bin/env python3
"""Trainings of a GPT of 10.8 million parameters on Shakespeare, sharded by PyTorch's FSDP2, with the reduce-scatter of gradients as PyTorch does
it (`dense`) and compressed by tersegrad.torch.fsdp. Ranks are processes over NCCL, on one GPU or one each; without a GPU, over gloo.

    TG_DATA=DIR experiments/sharded.py [--jobs N] [--mps] [--limit SECONDS] [--out FOLDER]     again, to continue with those that did not end
    TG_DATA=DIR experiments/sharded.py --try --out FOLDER              a few steps of a small model, to see that it runs

A finished training is a line of experiments/kept/sharded.jsonl, and is not run again; report.py makes the table of docs/results.md.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys
import tempfile
import time

import grid
import mps
from settings import complete

HERE = pathlib.Path(__file__).resolve().parent
RECIPES, SEEDS = ("dense", "mxfp8", "ef+mxfp4"), (0, 1, 2)
SETTINGS = {"data": "text", "model": "gpt", "workers": 2, "batch": 32, "length": 128, "epochs": 4, "steps": 200, "warmup_epochs": 0.5,
            "optimizer": "adamw", "rate": 1e-3, "decay": 0.1, "clip": 1.0, "dropout": 0.2}
SMALL = {"width": 48, "batch": 4, "length": 32, "epochs": 1, "steps": 12, "limit": 20_000}


# ---- a rank ------------------------------------------------------------------------------------------------------------------------


def rate_at(s, step):
    warm, all_of = s["warmup_epochs"] * s["steps"], s["epochs"] * s["steps"]
    return s["rate"] * ((step + 1) / warm if step < warm else 0.5 * (1 + math.cos(math.pi * (step - warm) / max(all_of - warm, 1))))


def shard(s, symbols, device):
    """The model, sharded layer by layer; weights travel in bf16, gradients are reduced in fp32."""
    import nets
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    torch.manual_seed(s["seed"])
    model = nets.make(s, symbols).to(device)
    options = {"mesh": init_device_mesh(device.type, (s["workers"],)), "reshard_after_forward": False,
               "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for layer in model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def evaluate(model, text):
    """Loss and accuracy on the test part; all ranks compute the same."""
    import data
    import torch
    model.eval()
    score = data.Score(text.outputs, text.device)
    with torch.no_grad():
        for x, y in text.test():
            score.add(model(x).float(), y)
    model.train()
    return score.result(text.measure)


def train(s, out):
    import data
    import torch
    import torch.distributed as dist
    from tersegrad.torch import fsdp
    rank = int(os.environ["RANK"])
    device = torch.device("cuda", rank % torch.cuda.device_count()) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    text = data.SETS[s["data"]](device, torch.bfloat16, s)
    model = shard(s, text, device)
    compressor = None if s["recipe"] == "dense" else fsdp.compress(model, s["recipe"], seed=s["seed"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=s["rate"], betas=(s["momentum"], s["beta2"]), weight_decay=s["decay"])
    torch.manual_seed(1000 * s["seed"] + rank)  # of dropout: every rank has its own
    begin, curve = time.monotonic(), []
    for epoch in range(s["epochs"]):
        inputs, targets = text.epoch(s["seed"], epoch, s["batch"], s["workers"], s["steps"])
        total = torch.zeros((), device=device)
        for at in range(s["steps"]):
            optimizer.param_groups[0]["lr"] = rate_at(s, epoch * s["steps"] + at)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs[at, rank]).float(), targets[at, rank])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), s["clip"])
            optimizer.step()
            total += loss.detach()
        test_loss, accuracy = evaluate(model, text)
        curve.append({"epoch": epoch + 1, "train_loss": round(total.item() / s["steps"], 5), "test_loss": round(test_loss, 5),
                      "test_accuracy": round(accuracy, 5), "seconds": round(time.monotonic() - begin, 2)})
    if rank == 0:
        (out / "result.json").write_text(json.dumps(result_of(s, model, compressor, curve, device)))
    dist.barrier()
    dist.destroy_process_group()


def result_of(s, model, compressor, curve, device):
    import tersegrad
    import torch
    parameters, steps = sum(p.numel() for p in model.parameters()), s["epochs"] * s["steps"]
    ring = 4 * parameters * (s["workers"] - 1) // s["workers"] * steps
    counts = {"steps": steps, "logical": 4 * parameters * steps, "dense": ring, "sent": ring}
    if compressor is not None:
        inside = compressor.stats()["inside"]
        counts = {name: inside[name] for name in ("steps", "logical", "dense", "payload", "header", "received", "sent", "link")}
    ratio = round(counts["dense"] / counts["sent"], 3)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    return {"settings": s, "status": "finished", "canonical": s["recipe"] if compressor is None else compressor.recipe, "exchange": "reduce-scatter",
            "parameters": parameters, "steps": steps, "accuracy": curve[-1]["test_accuracy"], "test_loss": curve[-1]["test_loss"], "ratio": ratio,
            "frame_ratio": ratio, "meter": counts, "seconds": curve[-1]["seconds"], "curve": curve, "date": time.strftime("%Y-%m-%d"),
            "versions": {"torch": torch.__version__, "tersegrad": tersegrad.__version__, "device": name}}


# ---- all trainings -----------------------------------------------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Started:
    """The ranks of a training. NCCL takes several on one GPU if they seem to be on different hosts."""

    def __init__(self, settings, environment):
        self.settings, self.folder, self.begin = settings, tempfile.TemporaryDirectory(), time.monotonic()
        port, path = free_port(), pathlib.Path(self.folder.name)
        self.log = open(path / "log", "w+")
        own = dict(environment, WORLD_SIZE=str(settings["workers"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), NCCL_SOCKET_IFNAME="lo",
                   GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
        self.ranks = [subprocess.Popen([sys.executable, str(HERE / "sharded.py"), "--rank", json.dumps(settings), "--out", str(path)],
                                       env=dict(own, RANK=str(rank), LOCAL_RANK=str(rank), NCCL_HOSTID=f"{port}-{rank}"),
                                       stdout=self.log, stderr=self.log, start_new_session=True) for rank in range(settings["workers"])]

    def is_running(self):
        if any(rank.poll() not in (None, 0) for rank in self.ranks):
            self.end()
        return any(rank.poll() is None for rank in self.ranks)

    def end(self):
        for rank in self.ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()

    def result(self):
        """What it left; None, with the end of its log, if it failed."""
        name = f"{self.settings['recipe']}, seed {self.settings['seed']}"
        path = pathlib.Path(self.folder.name, "result.json")
        self.log.seek(0)
        if any(rank.returncode != 0 for rank in self.ranks) or not path.exists():
            print(f"sharded: {name} failed: {self.log.read()[-1500:]}", flush=True)
            return None
        out = json.loads(path.read_text())
        print(f"sharded: {name}: test loss {out['test_loss']}, ratio {out['ratio']}, {out['seconds']} s", flush=True)
        return out


def run_all(waiting, options, environment):
    """Whether all ended well within the limit. What is not likely to end then is not started."""
    until, running, good, longest = time.monotonic() + options.limit, [], True, 0.0
    while (running or (waiting and time.monotonic() + longest < until)) and time.monotonic() < until:
        while waiting and len(running) < options.jobs and time.monotonic() + longest < until:
            running.append(Started(waiting.pop(0), environment))
        for each in [each for each in running if not each.is_running()]:
            running.remove(each)
            result = each.result()
            good, longest = good and result is not None, max(longest, time.monotonic() - each.begin)
            if result is not None:
                grid.keep(result, options.out, "sharded")
        time.sleep(0.2)
    for each in running:
        each.end()
    if waiting or running:
        print(f"sharded: {len(waiting) + len(running)} trainings did not end in time", flush=True)
    return good and not waiting and not running


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, help="trainings at a time [5 that share a GPU by MPS, else 1: kernels of NCCL wait for each other]")
    parser.add_argument("--mps", action="store_true", help="share the GPU by NVIDIA's MPS daemon")
    parser.add_argument("--limit", type=float, default=3600, help="seconds; what has not ended then is given up")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "kept", help="folder of results [experiments/kept]")
    parser.add_argument("--try", action="store_true", dest="is_small", help="a small model and few steps")
    parser.add_argument("--recipes", default=";".join(RECIPES), help="separated by semicolons")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        train(json.loads(options.rank), options.out)
        sys.stdout.flush()
        os._exit(0)  # the result is written; a rank has aborted at its exit once, for a cause that was not found
    options.out.mkdir(parents=True, exist_ok=True)
    kept = grid.keys_of(HERE / "kept", "sharded") | grid.keys_of(options.out, "sharded")
    wanted = [complete(dict(SETTINGS, **(SMALL if options.is_small else {}), recipe=recipe, seed=int(seed)))
              for seed in options.seeds.split(",") for recipe in options.recipes.split(";")]
    with mps.daemon(options.out, options.mps) as environment:
        options.jobs = options.jobs or (5 if environment else 1)
        good = run_all([each for each in wanted if grid.key(each) not in kept], options, environment or dict(os.environ))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
