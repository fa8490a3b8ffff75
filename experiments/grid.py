#!/usr/bin/env python3
"""Runs the trainings of grids that are not kept yet, several at a time on one device, and keeps what comes of them.

    experiments/grid.py GRID... [--jobs 8] [--limit SECONDS] [--whole] [--mps] [--out FOLDER] [--list]
    experiments/grid.py GRID... --try                      every training in a small form, to see that it runs
    experiments/grid.py --take FOLDER                      what another machine left in --out joins experiments/kept

A grid is a TOML file under experiments/grids: `settings` that all trainings share (settings.py has the defaults), and a list
of `runs`, each with settings of its own; `seeds` of the grid or of a run. Each finished training is a line of JSON in
experiments/kept/GRID.jsonl, with all its settings; a training whose settings stand there already is not run again.

A setting of a run that is a list stands for a run with each of its values. Where two runs are the same training, it is run once.

A run may have a `priority` (a number, or one for each seed; 9 if it has none): the lowest of all grids go first, then the lowest seeds.
It may have `cost`, the seconds that it takes alone. With --limit, or on SIGTERM, trainings save a checkpoint at the end of an epoch, and
the next call continues them. With --whole a training is started only if it is likely to end within the limit: by its cost, and by the pace
of those that run. A training that fails is told and logged, and run once more if a device failed; the others go on.
"""

import argparse
import hashlib
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import tomllib

import mps
from settings import complete

HERE = pathlib.Path(__file__).resolve().parent
STOPPED = 75
COST = 60         # seconds alone, of a run that does not say
MARGIN = 10       # seconds before the limit at which a training is expected to have ended
NOT_SETTINGS = ("seeds", "priority", "cost")
SHOWN = ("data", "model", "recipe", "exchange", "local_steps", "outer", "optimizer", "rate", "workers", "epochs", "seed")


class Training:
    """A training of a grid: its settings, and when it is to run."""

    def __init__(self, grid, settings, priority=9, cost=COST):
        self.grid, self.settings, self.priority, self.cost = grid, settings, priority, cost
        self.key, self.tries = key(settings), 0
        self.name = hashlib.sha256(self.key.encode()).hexdigest()[:12]

    def told(self):
        return self.grid + ": " + " ".join(f"{name}={self.settings[name]}" for name in SHOWN if name in self.settings)


def key(settings):
    """All settings as one line: what names a training."""
    return json.dumps(complete(settings), sort_keys=True)


def read_grid(path):
    """The trainings of a grid in the order in which they are to run."""
    grid = tomllib.loads(path.read_text())
    out = []
    for run in grid["runs"]:
        seeds = run.get("seeds", grid.get("seeds", [0]))
        priorities = run.get("priority", 9)
        if not isinstance(priorities, list):
            priorities = [priorities] * len(seeds)
        for own in combinations({name: value for name, value in run.items() if name not in NOT_SETTINGS}):
            for seed, priority in zip(seeds, priorities, strict=True):
                out.append(Training(path.stem, {**grid.get("settings", {}), **own, "seed": seed}, priority, run.get("cost", COST)))
    first = {}  # of equal trainings
    for training in in_order(out):
        first.setdefault(training.key, training)
    return list(first.values())


def combinations(settings):
    """Settings with one value of every list."""
    choices = [value if isinstance(value, list) else [value] for value in settings.values()]
    return [dict(zip(settings, chosen)) for chosen in itertools.product(*choices)]


def in_order(trainings):
    return sorted(trainings, key=lambda each: (each.priority, each.settings["seed"]))


def read_kept(folder, name):
    path = folder / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def keys_of(folder, name):
    return {key(result["settings"]) for result in read_kept(folder, name)}


def keep(result, folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.jsonl", "a") as kept:
        kept.write(json.dumps(result) + "\n")


class Job:
    """A training that runs."""

    def __init__(self, training, work, until, environment=None):
        self.training, self.work = training, work / training.name
        self.begin = time.monotonic()
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "settings.json").write_text(training.key)
        command = [sys.executable, str(HERE / "training.py"), "--settings", json.dumps(training.settings), "--work", str(self.work)]
        with open(self.work / "log", "a") as log:
            self.process = subprocess.Popen(command + (["--until", str(until)] if until else []), stdout=log, stderr=log, env=environment)

    def log(self):
        return (self.work / "log").read_text(errors="replace").strip()

    def pace(self):
        """Seconds that it takes for a second of its cost, as far as it has come; None if it has not come far."""
        try:
            progress = json.loads((self.work / "progress.json").read_text())
        except (OSError, ValueError):
            return None
        share = len(progress["curve"]) / progress["settings"]["epochs"]
        return progress["seconds"] / (share * self.training.cost)


class Runner:
    def __init__(self, trainings, jobs, limit, out, work, is_whole=False, environment=None):
        self.waiting, self.jobs, self.limit, self.out, self.work = in_order(trainings), jobs, limit, out, work
        self.is_whole, self.environment = is_whole, environment
        self.begin, self.running, self.paces, self.failures, self.asked = time.monotonic(), [], [], 0, False

    def left(self):
        return None if self.limit is None else self.limit - (time.monotonic() - self.begin)

    def say(self, text):
        print(f"{time.monotonic() - self.begin:6.0f} s  {text}", flush=True)

    def _next(self):
        """The first training that is worth a start; None if there is none."""
        left = self.left()
        if self.asked or (left is not None and left < 2 * MARGIN):
            self.waiting.clear()
        if left is None or not self.is_whole:
            return self.waiting.pop(0) if self.waiting else None
        paces = [pace for pace in (job.pace() for job in self.running) if pace is not None] + self.paces[-2:]
        pace = sorted(paces)[len(paces) // 2] if paces else 1.0
        for training in self.waiting:
            if training.cost * pace * 1.1 < left - MARGIN:
                self.waiting.remove(training)
                return training
        return None

    def _environment_of(self, training):
        """What ended with a fault of the GPU is tried once more with the codec on the CPU."""
        return dict(self.environment or os.environ, TG_CODEC="host") if training.tries else self.environment

    def _end(self, job):
        """What an ended training left behind: a line for the kept ones, or a sentence."""
        training, code = job.training, job.process.returncode
        if code == 0:
            result = json.loads((job.work / "result.json").read_text())
            keep(result, self.out, training.grid)
            self.paces.append((time.monotonic() - job.begin) / training.cost)
            told = (f"{result['status']}: accuracy {result['accuracy']}, loss {result['test_loss']}, ratio {result['ratio']}, "
                    f"{result['seconds']} s")
        elif code == STOPPED:
            told = "stopped at the end of an epoch; the next call continues it" + self._progress(job)
        else:
            told = f"failed with status {code}: {job.log().splitlines()[-1] if job.log() else 'no output'}"
            with open(self.out / "failures.log", "a") as log:
                log.write(f"{training.told()}\n{job.log()[-4000:]}\n\n")
            training.tries += 1
            if "CUDA" in job.log() and training.tries == 1:
                self.waiting = in_order([training, *self.waiting])
            else:
                self.failures += 1
        self.say(f"{training.told()}: {told}")

    @staticmethod
    def _progress(job):
        try:
            row = json.loads((job.work / "progress.json").read_text())["curve"][-1]
        except (OSError, ValueError, IndexError):
            return ""
        return f"; epoch {row['epoch']}: accuracy {row['test_accuracy']}, loss {row['test_loss']}"

    def run(self):
        signal.signal(signal.SIGTERM, self._ask)
        self.out.mkdir(parents=True, exist_ok=True)
        while self.waiting or self.running:
            while len(self.running) < self.jobs and (training := self._next()) is not None:
                self.running.append(Job(training, self.work, self.left(), self._environment_of(training)))
            if not self.running:
                break  # nothing else can end within the limit
            for job in [job for job in self.running if job.process.poll() is not None]:
                self.running.remove(job)
                self._end(job)
            time.sleep(0.1)
        return 1 if self.failures else 0

    def _ask(self, *_):
        self.asked = True
        for job in self.running:
            job.process.terminate()


def shortened(training):
    """The same training as far as it can go wrong: a narrow model, two exchanges at least, one epoch."""
    s = complete(training.settings)
    rounds = 2 * max(int(part.split(":")[-1]) for part in str(s["local_steps"]).split(","))
    small = {"epochs": 1, "warmup_epochs": 0.5, "batch": 4, "width": 12, "limit": 4 * s["workers"] * rounds, "precision": "fp32"}
    if s["data"] == "text":
        small.update(steps=rounds, length=16, limit=None)
    return Training(training.grid, dict(training.settings, **small), training.priority, 1)


def take(folder):
    """What lies in a folder of results joins the kept ones; what is there already stays."""
    for path in sorted(folder.glob("*.jsonl")):
        there, n = keys_of(HERE / "kept", path.stem), 0
        for result in read_kept(folder, path.stem):
            if key(result["settings"]) not in there:
                there.add(key(result["settings"]))
                keep(result, HERE / "kept", path.stem)
                n += 1
        print(f"{path.stem}: {n} trainings are new")
    return 0


def main():
    parser = argparse.ArgumentParser(description="Run the trainings of grids that are not kept yet.")
    parser.add_argument("grids", nargs="*", metavar="grid", help="name of a file in experiments/grids, without .toml, or a path")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time [1]")
    parser.add_argument("--limit", type=float, help="seconds after which trainings stop at the end of an epoch")
    parser.add_argument("--whole", action="store_true", help="start only what is likely to end within the limit")
    parser.add_argument("--mps", action="store_true", help="share the GPU through NVIDIA's MPS daemon, if it can be started")
    parser.add_argument("--below", type=int, default=100, help="only trainings of a priority below this one")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "kept", help="folder of results [experiments/kept]")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parent / "build/experiments", help="folder of checkpoints and logs")
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    parser.add_argument("--try", dest="is_try", action="store_true", help="run every training in a small form, and keep nothing")
    parser.add_argument("--take", type=pathlib.Path, metavar="FOLDER", help="keep the results in a folder, and run nothing")
    options = parser.parse_args()
    if options.take is not None:
        return take(options.take)
    if not options.grids:
        parser.error("no grid is named")
    waiting = []
    for name in options.grids:
        path = pathlib.Path(name) if name.endswith(".toml") else HERE / "grids" / f"{name}.toml"
        kept = keys_of(HERE / "kept", path.stem) | keys_of(options.out, path.stem)
        waiting += [training for training in read_grid(path) if training.key not in kept and training.priority < options.below]
    waiting = in_order(waiting)
    if options.list:
        print("\n".join(f"{each.priority}  {each.cost:4} s  {each.told()}" for each in waiting))
        return 0
    if options.is_try:
        with tempfile.TemporaryDirectory() as folder:
            small = {key(dict(each.settings, seed=0)): shortened(each) for each in reversed(waiting)}  # one seed of each
            return Runner(small.values(), options.jobs, options.limit, pathlib.Path(folder), pathlib.Path(folder) / "work").run()
    with mps.daemon(options.work, options.mps) as environment:
        if environment is not None:
            environment.setdefault("TG_CODEC", "host")  # see experiments/README.md
        return Runner(waiting, options.jobs, options.limit, options.out, options.work, options.whole, environment).run()


if __name__ == "__main__":
    sys.exit(main())
