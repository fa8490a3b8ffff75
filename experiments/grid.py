#!/usr/bin/env python3
"""Runs the trainings of a grid that are not kept yet, several at a time, and keeps what comes of them.

    experiments/grid.py GRID [--jobs 8] [--limit SECONDS] [--list]

A grid is a TOML file under experiments/grids: `settings` that all trainings share (settings.py has the defaults), and a list
of `runs`, each with settings of its own; `seeds` of the grid or of a run. Each finished training is a line of JSON in
experiments/kept/GRID.jsonl, with all its settings; a training whose settings stand there already is not run again. With
--limit, or on SIGTERM, trainings save a checkpoint at the end of an epoch, and the next call continues them.
"""

import argparse
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import tomllib

from settings import complete

HERE = pathlib.Path(__file__).resolve().parent
STOPPED = 75


def read_grid(path):
    """Settings of each training of a grid in the order in which they are to run: all of the first seed come first."""
    grid = tomllib.loads(path.read_text())
    out = []
    for seed in sorted({seed for run in grid["runs"] for seed in run.get("seeds", grid.get("seeds", [0]))}):
        for run in grid["runs"]:
            if seed in run.get("seeds", grid.get("seeds", [0])):
                out.append(dict(grid.get("settings", {}), **{k: v for k, v in run.items() if k != "seeds"}, seed=seed))
    return out


def key(settings):
    """All settings as one line: what names a training."""
    return json.dumps(complete(settings), sort_keys=True)


def read_kept(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Job:
    def __init__(self, settings, work, until):
        name = hashlib.sha256(key(settings).encode()).hexdigest()[:12]
        self.settings, self.work = settings, work / name
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "settings.json").write_text(key(settings))
        command = [sys.executable, str(HERE / "training.py"), "--settings", json.dumps(settings), "--work", str(self.work)]
        with open(self.work / "log", "a") as log:
            self.process = subprocess.Popen(command + (["--until", str(until)] if until else []), stdout=log, stderr=log)

    def told(self):
        shown = {k: v for k, v in self.settings.items() if k in ("recipe", "local_steps", "rate", "epochs", "seed")}
        return " ".join(f"{name}={value}" for name, value in shown.items())


def finish(job, kept_path):
    """What an ended training left behind: a line for the kept ones, or a sentence."""
    code = job.process.returncode
    if code == 0:
        result = json.loads((job.work / "result.json").read_text())
        with open(kept_path, "a") as kept:
            kept.write(json.dumps(result) + "\n")
        return f"{result['status']}: accuracy {result['accuracy']}, ratio {result['ratio']}, {result['seconds']} s"
    if code == STOPPED:
        return "stopped at the end of an epoch; the next call continues it"
    tail = (job.work / "log").read_text().strip().split("\n")[-1]
    return f"failed with status {code}: {tail}"


def run(waiting, jobs, limit, kept_path, work):
    begin, running, asked, failures = time.monotonic(), [], [], 0
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    while waiting or running:
        left = None if limit is None else limit - (time.monotonic() - begin)
        is_over = asked or (left is not None and left < 30)
        while waiting and len(running) < jobs and not is_over:
            running.append(Job(waiting.pop(0), work, left))
        if asked:
            for job in running:
                job.process.terminate()
            asked.clear()
            waiting = []
        if is_over:
            waiting = []
        for job in [job for job in running if job.process.poll() is not None]:
            running.remove(job)
            failures += job.process.returncode not in (0, STOPPED)
            print(f"{time.monotonic() - begin:6.0f} s  {job.told()}: {finish(job, kept_path)}", flush=True)
        time.sleep(0.2)
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description="Run the trainings of a grid that are not kept yet.")
    parser.add_argument("grid", help="name of a file in experiments/grids, without .toml, or a path")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time [1]")
    parser.add_argument("--limit", type=float, help="seconds after which trainings stop at the end of an epoch")
    parser.add_argument("--kept", type=pathlib.Path, help="file of results [experiments/kept/GRID.jsonl]")
    parser.add_argument("--work", type=pathlib.Path, default=HERE.parent / "build/experiments", help="folder of checkpoints and logs")
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    options = parser.parse_args()
    path = pathlib.Path(options.grid)
    if path.suffix != ".toml":
        path = HERE / "grids" / f"{options.grid}.toml"
    kept_path = options.kept or HERE / "kept" / f"{path.stem}.jsonl"
    kept = {key(result["settings"]) for result in read_kept(kept_path)}
    waiting = [settings for settings in read_grid(path) if key(settings) not in kept]
    if options.list:
        print("\n".join(key(settings) for settings in waiting))
        return 0
    os.makedirs(kept_path.parent, exist_ok=True)
    return run(waiting, options.jobs, options.limit, kept_path, options.work)


if __name__ == "__main__":
    sys.exit(main())
