#!/usr/bin/env python3
"""One training of a study: N workers on one device, real frames and residuals between them (tersegrad.torch.Workers).

    experiments/training.py --settings '{"recipe": "adacomp", ...}' --work DIR [--until SECONDS]

Writes DIR/result.json when it has finished. A training that is told to stop (SIGTERM, or --until seconds after its start)
saves DIR/checkpoint at the end of the epoch and exits with 75; the same command continues it. Settings and their defaults
are in settings.py. Usually grid.py starts this.

A step, with weights w that all workers share:

    each worker:   g = gradient of its batch at w, in its own batch-norm statistics
    all workers:   G = average of g by the recipe;  a step of the optimizer with G

With local_steps every worker takes so many steps by itself from w, with an optimizer of its own, and what is averaged by the recipe is how
far it came; the outer step then moves w (docs/local-steps.md). A round ends with its epoch, too. Recipes with momentum feedback (dgc) have
the momentum of the gradients in the exchange; the optimizer then keeps momentum of the weight decay alone. On a GPU passes are captured
in CUDA graphs. Dropout is in them: each replay draws new numbers, but a training that was stopped does not continue with the same ones.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import data
import joint
import nets
import tersegrad
from optimizers import OPTIMIZERS, Flat, clip
from settings import complete
from tersegrad.local import Outer, Schedule
from tersegrad.torch import Passes, Workers

STOPPED = 75
METER = ("steps", "logical", "dense", "payload", "header", "received", "sent", "frame_bytes")
tersegrad._lib.tg_simd.restype = ctypes.c_char_p


class Training:
    def __init__(self, settings):
        self.set = s = complete(settings)
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.is_gpu = self.device.type == "cuda"
        self.is_half = s["precision"] == "bf16"
        torch.manual_seed(s["seed"])
        torch.backends.cudnn.benchmark = True
        self.data = data.SETS[s["data"]](self.device, torch.bfloat16 if self.is_half else torch.float32, s)
        self.schedule, self.outer = Schedule(s["local_steps"]), Outer(s["outer"])
        self.is_local = not self.schedule.is_one
        self.flat = Flat(nets.make(s, self.data), self.device, s["workers"] if self.is_local else 0)
        self.workers = self._make_workers(s["recipe"], s["exchange"])
        self.passes = self._make_passes()
        size = self.flat.weights.numel()
        self.optimizer = OPTIMIZERS[s["optimizer"]](s, s["workers"] if self.is_local else 1, size, self.device,
                                                    self.workers.recipe.startswith("momentum"))
        self.velocity = torch.zeros(size if self.outer.momentum else 0, device=self.device)
        self.mixers = self._make_workers(s["momentum_recipe"], None) if s["momentum_every"] else None
        self.steps = s["steps"] or self.data.steps(s["batch"], s["workers"])
        self.curve, self.counts, self.seconds, self.before_closing = [], {}, 0.0, None
        self.canonical, self.exchange = self.workers.recipe, self.workers.stats()["exchange"]
        self.flat.model.train()

    def _make_workers(self, recipe, exchange):
        return Workers(self.flat.model, self.set["workers"], recipe, seed=self.set["seed"], rules=self.set["rules"], exchange=exchange,
                       codec=os.environ.get("TG_CODEC"))

    def _make_passes(self):
        model = self.flat.model
        if self.is_gpu and not self.is_local and joint.fits(model):
            return joint.JointPasses(self.workers, model, self._outputs_of, self.data.loss)
        # Graphs draw the numbers of dropout from one place in memory, so they run one after the other. A cuDNN LSTM is not captured.
        return Passes(self.workers, model, lambda x, y: self.data.loss(self._outputs_of(x), y), streams=1 if self.set["dropout"] else 4,
                      graphs=not any(isinstance(m, torch.nn.LSTM) for m in model.modules()),
                      bind=self.flat.bind if self.is_local else None)

    # ---- a step --------------------------------------------------------------------------------------------------------

    def _outputs_of(self, x):
        # The cache of casts would outlive a replay of the graph.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_half, cache_enabled=False):
            return self.flat.model(x).float()

    def rate(self, step):
        s = self.set
        warm, all_of = s["warmup_epochs"] * self.steps, s["epochs"] * self.steps
        if step < warm:
            return s["rate"] * (step + 1) / warm
        return s["rate"] * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(all_of - warm, 1)))

    def _update(self, row, weights, gradient, step):
        if self.set["clip"] is not None:
            clip(gradient, self.set["clip"])
        self.optimizer.step(row, weights, gradient, self.rate(step), step)

    def _step(self, inputs, targets, step):
        """One exchange, at `step`: of one batch per worker, or of the local steps of a round, which ends with its epoch. The steps taken."""
        at = step % self.steps
        if self.is_local:
            count = min(self.schedule.round(step).steps, self.steps - at)
            self._round(inputs[at:at + count], targets[at:at + count], step)
            return count
        self.passes(list(zip(inputs[at], targets[at])))
        average = self.workers.gradient(0)
        self.workers.reduce(average)
        self._update(0, self.flat.weights, average, step)
        return 1

    def _round(self, inputs, targets, step):
        """Workers train by themselves from the same weights, each on its stream, and exchange how far they came."""
        self.passes.capture(list(zip(inputs[0], targets[0])))
        for worker, own in enumerate(self.flat.own):
            gradient = self.workers.gradient(worker)
            with self.passes.stream(worker):
                own.copy_(self.flat.weights)
                for i, (x, y) in enumerate(zip(inputs, targets)):
                    self.passes.run(worker, (x[worker], y[worker]))
                    self._update(worker, own, gradient, step + i)
                self.outer.move(self.flat.weights, own, out=gradient)
                self.workers.collect(worker, gradient)
        self.passes.join()
        average = self.workers.gradient(0)
        self.workers.reduce(average)
        self.outer.step(self.flat.weights, self.velocity if self.outer.momentum else None, average)
        if self.mixers is not None and self.workers.step % self.set["momentum_every"] == 0:
            self._mix()

    def _mix(self):
        """The workers' momentum becomes its average, through frames as well."""
        momentum = self.optimizer.state[0]
        for worker, own in enumerate(momentum):
            self.mixers.collect(worker, own)
        average = self.mixers.gradient(0)
        self.mixers.reduce(average)
        momentum.copy_(average.expand_as(momentum))

    def close(self):
        """One more exchange, by the recipe of `closing`: of what the residuals still hold. Part of the last epoch."""
        before, row = self._stats(), self.curve[-1]
        self.counts = {name: self._count(before, name) for name in (*METER, "seconds", "exposed")}
        self.workers.set_recipe(self.set["closing"], self.set["exchange"])
        for worker in range(self.set["workers"]):
            gradient = self.workers.gradient(worker)
            gradient.zero_()
            self.workers.collect(worker, gradient)
        average = self.workers.gradient(0)
        self.workers.reduce(average)
        if self.is_local:
            self.flat.weights.sub_(average)
        else:  # what is left of gradients, at the last rate that was not zero
            self.flat.weights.sub_(average, alpha=self.rate(self.set["epochs"] * self.steps - 1))
        self.before_closing = {name: row[name] for name in ("test_loss", "test_accuracy", "sent")}
        test_loss, accuracy = self.test()
        row.update(test_loss=round(test_loss, 5), test_accuracy=round(accuracy, 5), sent=self._count(self._stats(), "sent"))

    # ---- epochs --------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def test(self):
        """Loss and accuracy on the test part, with the workers' statistics averaged."""
        self.flat.bind()
        score = data.Score(self.data.outputs, self.device)
        with self.passes.evaluating():
            for x, y in self.data.test():
                with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_half):
                    out = self.flat.model(x).float()
                score.add(out, y)
        return score.result(self.data.measure)

    def epoch(self, epoch):
        begin = time.monotonic()
        s = self.set
        inputs, targets = self.data.epoch(s["seed"], epoch, s["batch"], s["workers"], self.steps)
        self.passes.losses.zero_()
        step = 0
        while step < self.steps:
            step += self._step(inputs, targets, epoch * self.steps + step)
        loss = float(self.passes.losses.sum()) / (self.steps * s["workers"])
        test_loss, accuracy = self.test()
        self.seconds += time.monotonic() - begin
        stats = self._stats()
        row = {"epoch": epoch + 1, "train_loss": round(loss, 5), "test_loss": round(test_loss, 5), "test_accuracy": round(accuracy, 5),
               "sent": self._count(stats, "sent"), "seconds": round(self.seconds, 2)}
        self.curve.append(row)
        if not math.isfinite(loss) or not math.isfinite(test_loss):
            raise tersegrad.Error("the loss is not finite", "NONFINITE")
        return row

    def _stats(self):
        """What all exchanges have counted, those of momentum included."""
        stats = self.workers.stats()
        if self.mixers is not None:
            more = self.mixers.stats()
            stats = dict(stats, **{name: stats[name] + more[name] for name in (*METER, "seconds", "exposed") if name not in ("steps", "dense", "logical")})
        return stats

    def _count(self, stats, name):
        """Counts of this process and of those before it."""
        return round(stats[name] + self.counts.get(name, 0))

    def result(self, status, reason=None):
        """All that is kept of a training. Bytes are those of one worker, as the exchange counted them."""
        stats = self._stats()
        meter = {name: self._count(stats, name) for name in METER}
        taken = len(self.curve) * self.steps if self.is_local or self.before_closing else meter["steps"]
        share = taken / max(meter["steps"], 1)
        gpu = torch.cuda.get_device_name() if self.is_gpu else None
        return {"settings": self.set, "status": status, "reason": reason, "canonical": self.canonical,
                "exchange": self.exchange, "codec": stats["codec"], "parameters": self.flat.weights.numel(), "steps": taken,
                "accuracy": self.curve[-1]["test_accuracy"] if self.curve else None,
                "test_loss": self.curve[-1]["test_loss"] if self.curve else None,
                "ratio": round(share * meter["dense"] / max(meter["sent"], 1), 2),
                "frame_ratio": round(share * meter["logical"] / max(meter["frame_bytes"], 1), 2), "meter": meter,
                "seconds": round(self.seconds, 1), "waited": round(stats["seconds"] + self.counts.get("seconds", 0), 1),
                "exposed": round(stats["exposed"] + self.counts.get("exposed", 0), 1),
                "before_closing": self.before_closing, "curve": self.curve, "date": time.strftime("%Y-%m-%d"),
                "versions": {"tersegrad": tersegrad.__version__, "torch": torch.__version__, "python": platform.python_version(),
                             "simd": tersegrad._lib.tg_simd().decode(), "device": gpu or "cpu"}}

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def save(self, path):
        stats = self._stats()
        state = {"settings": self.set, "weights": self.flat.weights, "optimizer": self.optimizer.state, "velocity": self.velocity,
                 "buffers": self.passes.state_dict(), "workers": self.workers.state_dict(),
                 "mixers": None if self.mixers is None else self.mixers.state_dict(), "random": torch.get_rng_state(),
                 "curve": self.curve, "seconds": self.seconds,
                 "counts": {name: stats[name] + self.counts.get(name, 0) for name in (*METER, "seconds", "exposed")}}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)

    def load(self, path):
        state = torch.load(path, map_location=self.device)
        if state["settings"] != self.set:
            raise SystemExit(f"{path} is of a training with other settings")
        self.flat.weights.copy_(state["weights"])
        self.velocity.copy_(state["velocity"])
        for own, saved in zip(self.optimizer.state, state["optimizer"]):
            own.copy_(saved)
        self.passes.load_state_dict(state["buffers"])
        for workers, kept in ((self.workers, state["workers"]), (self.mixers, state["mixers"])):
            if workers is not None:
                workers.load_state_dict(dict(kept, states=[part.cpu() for part in kept["states"]]))
        torch.set_rng_state(state["random"].cpu())
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
    if training.set["closing"] is not None and status == "finished":
        training.close()
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
