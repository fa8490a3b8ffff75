#!/usr/bin/env python3
"""One training of a study: N workers on one device, real frames and residuals between them (tersegrad.torch.Workers).

    experiments/training.py --settings '{"recipe": "adacomp", ...}' --work DIR [--until SECONDS]

Writes DIR/result.json when it has finished. A training that is told to stop (SIGTERM, or --until seconds after its start)
saves DIR/checkpoint at the end of the epoch and exits with 75; the same command continues it. Settings and their defaults
are in settings.py. Usually grid.py starts this.

A step, with weights w that all workers share, momentum m and weight decay d:

    each worker:   g = gradient of its batch at w, in its own batch-norm statistics
    all workers:   G = average of g by the recipe
                   v = m v + (G + d w);   w = w - rate (G + d w + m v)             Nesterov, after averaging

With local_steps = H > 1 every worker takes H such steps by itself from w, with momentum of its own, and what is averaged by
the recipe is how far it came; w then moves by the average. Recipes with momentum feedback (dgc) have the momentum of the
gradients in the exchange; the optimizer then keeps momentum of the weight decay alone.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import platform
import signal
import sys
import time

import torch
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import data
import nets
import tersegrad
from settings import complete
from tersegrad.torch import Passes, Workers

STOPPED = 75
tersegrad._lib.tg_simd.restype = ctypes.c_char_p


class Flat:
    """A model whose parameters are views of one flat tensor, so that a step of the optimizer is a few operations."""

    def __init__(self, model, device):
        self.model = model.to(device)
        parameters = list(model.parameters())
        self.weights = torch.empty(sum(p.numel() for p in parameters), device=device)
        at = 0
        for p in parameters:
            view = self.weights[at:at + p.numel()].view(p.shape)
            view.copy_(p.detach())
            p.data = view
            at += p.numel()


class Training:
    def __init__(self, settings):
        self.set = s = complete(settings)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.is_gpu = self.device.type == "cuda"
        self.is_half = s["precision"] == "bf16"
        torch.manual_seed(s["seed"])
        torch.backends.cudnn.benchmark = True
        self.data = data.SETS[s["data"]](self.device, torch.bfloat16 if self.is_half else torch.float32, s["limit"])
        width = {} if s["width"] is None else {"width": s["width"]}
        self.flat = Flat(nets.MODELS[s["model"]](self.data.outputs, **width), self.device)
        self.workers = Workers(self.flat.model, s["workers"], s["recipe"], seed=s["seed"], rules=s["rules"], exchange=s["exchange"],
                               codec=os.environ.get("TG_CODEC"))
        self.passes = Passes(self.workers, self.flat.model, self._loss_of)
        self.has_momentum = not self.workers.recipe.startswith("momentum")
        rows = s["workers"] if s["local_steps"] > 1 else 1
        self.velocity = torch.zeros(rows, self.flat.weights.numel(), device=self.device)
        self.steps = self.data.steps(s["batch"], s["workers"])
        self.curve, self.counts, self.seconds = [], {}, 0.0
        self.flat.model.train()

    # ---- a step --------------------------------------------------------------------------------------------------------

    def _loss_of(self, x, y):
        # The cache of casts would outlive a replay of the graph.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_half, cache_enabled=False):
            return F.cross_entropy(self.flat.model(x).float(), y)

    def rate(self, step):
        s = self.set
        warm, all_of = s["warmup_epochs"] * self.steps, s["epochs"] * self.steps
        if step < warm:
            return s["rate"] * (step + 1) / warm
        return s["rate"] * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(all_of - warm, 1)))

    def _update(self, gradient, velocity, rate):
        s = self.set
        if self.has_momentum:
            gradient.add_(self.flat.weights, alpha=s["decay"])
            velocity.mul_(s["momentum"]).add_(gradient)
            gradient.add_(velocity, alpha=s["momentum"])
        else:
            velocity.mul_(s["momentum"]).add_(self.flat.weights, alpha=s["decay"])
            gradient.add_(velocity)
        self.flat.weights.add_(gradient, alpha=-rate)

    def _step(self, inputs, targets, step):
        """One exchange, at `step`: of one batch per worker, or of local_steps."""
        count = min(self.set["local_steps"], self.steps - step % self.steps)
        at = step % self.steps
        if self.set["local_steps"] == 1:
            self.passes(list(zip(inputs[at], targets[at])))
            average = self.workers.gradient(0)
            self.workers.reduce(average)
            self._update(average, self.velocity[0], self.rate(step))
            return 1
        start = self.flat.weights.clone()
        for worker in range(self.set["workers"]):
            self.flat.weights.copy_(start)
            own = self.workers.gradient(worker)
            for i in range(count):
                self.passes.run(worker, (inputs[at + i, worker], targets[at + i, worker]))
                self._update(own, self.velocity[worker], self.rate(step + i))
            torch.sub(start, self.flat.weights, out=own)
            self.workers.collect(worker, own)
        average = self.workers.gradient(0)
        self.workers.reduce(average)
        torch.sub(start, average, out=self.flat.weights)
        return count

    # ---- epochs --------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def test(self):
        """Loss and accuracy on the test part, with the workers' statistics averaged."""
        loss = right = count = 0
        with self.passes.evaluating():
            for x, y in self.data.test():
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_half):
                    out = self.flat.model(x).float()
                loss += F.cross_entropy(out, y, reduction="sum")
                right += (out.argmax(1) == y).sum()
                count += y.numel()
        return float(loss) / count, float(right) / count

    def epoch(self, epoch):
        begin = time.monotonic()
        s = self.set
        inputs, targets = self.data.epoch(s["seed"], epoch, s["batch"], s["workers"])
        self.passes.losses.zero_()
        step = 0
        while step < self.steps:
            step += self._step(inputs, targets, epoch * self.steps + step)
        loss = float(self.passes.losses.sum()) / (self.steps * s["workers"])
        test_loss, accuracy = self.test()
        self.seconds += time.monotonic() - begin
        stats = self.workers.stats()
        row = {"epoch": epoch + 1, "train_loss": round(loss, 5), "test_loss": round(test_loss, 5), "test_accuracy": round(accuracy, 5),
               "sent": self._count(stats, "sent"), "seconds": round(self.seconds, 2)}
        self.curve.append(row)
        if not math.isfinite(loss) or not math.isfinite(test_loss):
            raise tersegrad.Error("the loss is not finite", "NONFINITE")
        return row

    def _count(self, stats, name):
        """Counts of this process and of those before it."""
        return round(stats[name] + self.counts.get(name, 0))

    def result(self, status, reason=None):
        """All that is kept of a training. Bytes are those of one worker, as the exchange counted them."""
        stats = self.workers.stats()
        names = ("steps", "logical", "dense", "payload", "header", "received", "sent", "frame_bytes")
        meter = {name: self._count(stats, name) for name in names}
        taken = meter["steps"] if self.set["local_steps"] == 1 else len(self.curve) * self.steps
        share = taken / max(meter["steps"], 1)
        gpu = torch.cuda.get_device_name() if self.is_gpu else None
        return {"settings": self.set, "status": status, "reason": reason, "canonical": self.workers.recipe,
                "exchange": stats["exchange"], "parameters": self.flat.weights.numel(), "steps": taken,
                "accuracy": self.curve[-1]["test_accuracy"] if self.curve else None,
                "test_loss": self.curve[-1]["test_loss"] if self.curve else None,
                "ratio": round(share * meter["dense"] / max(meter["sent"], 1), 2),
                "frame_ratio": round(share * meter["logical"] / max(meter["frame_bytes"], 1), 2), "meter": meter,
                "seconds": round(self.seconds, 1), "waited": round(stats["seconds"] + self.counts.get("seconds", 0), 1),
                "exposed": round(stats["exposed"] + self.counts.get("exposed", 0), 1),
                "curve": self.curve, "date": time.strftime("%Y-%m-%d"),
                "versions": {"tersegrad": tersegrad.__version__, "torch": torch.__version__, "python": platform.python_version(),
                             "simd": tersegrad._lib.tg_simd().decode(), "device": gpu or "cpu"}}

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self, path):
        stats = self.workers.stats()
        names = ("steps", "logical", "dense", "payload", "header", "received", "sent", "frame_bytes", "seconds", "exposed")
        state = {"settings": self.set, "weights": self.flat.weights, "velocity": self.velocity, "buffers": self.passes.state_dict(),
                 "workers": self.workers.state_dict(), "curve": self.curve, "seconds": self.seconds,
                 "counts": {name: stats[name] + self.counts.get(name, 0) for name in names}}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path):
        state = torch.load(path, map_location=self.device)
        if state["settings"] != self.set:
            raise SystemExit(f"{path} is of a training with other settings")
        self.flat.weights.copy_(state["weights"])
        self.velocity.copy_(state["velocity"])
        self.passes.load_state_dict(state["buffers"])
        kept = state["workers"]
        kept["states"] = [part.cpu() for part in kept["states"]]
        self.workers.load_state_dict(kept)
        self.curve, self.seconds, self.counts = state["curve"], state["seconds"], state["counts"]


def run(settings, work, until):
    """The training from its checkpoint or its start; the exit status."""
    begin, asked = time.monotonic(), []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    work.mkdir(parents=True, exist_ok=True)
    checkpoint, status, reason = work / "checkpoint", "finished", None
    training = Training(settings)
    if checkpoint.exists():
        training.load(checkpoint)
    while len(training.curve) < training.set["epochs"]:
        epoch_begin = time.monotonic()
        try:
            row = training.epoch(len(training.curve))
        except tersegrad.Error as error:
            if error.code != "NONFINITE":
                raise
            status, reason = "diverged", str(error)
            break
        print(json.dumps(row), flush=True)
        write(work / "progress.json", training.result("unfinished"))
        now = time.monotonic()
        is_late = until is not None and now + (now - epoch_begin) * 1.2 > begin + until
        if (asked or is_late) and len(training.curve) < training.set["epochs"]:
            training.save(checkpoint)
            return STOPPED
    write(work / "result.json", training.result(status, reason))
    if checkpoint.exists():
        checkpoint.unlink()
    return 0


def write(path, result):
    path.with_suffix(".new").write_text(json.dumps(result))
    path.with_suffix(".new").replace(path)


def main():
    parser = argparse.ArgumentParser(description="One training of a study.")
    parser.add_argument("--settings", required=True, help="JSON; what is left out is as in settings.py")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="folder for the checkpoint and the result")
    parser.add_argument("--until", type=float, help="stop at the end of an epoch before so many seconds have passed")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("TG_TORCH_THREADS", "1")))
    sys.stdout.reconfigure(line_buffering=True)
    return run(json.loads(options.settings), options.work, options.until)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # threads of PyTorch and of Workers need not be waited for
