#!/usr/bin/env python3
"""Time to an accuracy with local steps over 10 Mbit/s, two hosts being network namespaces (bench/netns); puts the table into
docs/local-steps.md. Needs root; build first: cmake --preset openmpi && cmake --build build/openmpi --target tersegrad

    bench/local.py      what was measured is kept in build/local; remove that folder to measure again
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from tables import put_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "build/local"
PAGE = ROOT / "docs/local-steps.md"
RATE, TARGET, EVERY, STEPS = "10mbit", 0.75, 10, 150
FLAGS = ["--model", "lenet", "--batch", "16", "--schedule", "constant", "--test-every", str(EVERY), "--verify-every", "0", "--json"]
ROWS = (("bf16", "1"), ("adacomp", "1"), ("dense", "4"), ("adacomp", "4"), ("terse", "4"), ("terse", "1,40:4"))


def train(recipe, every):
    """Points of [steps, seconds of training until then, bytes of a worker until then, accuracy]; tests take no time here."""
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "run.jsonl"
        line = [ROOT / "bench/netns", "--hosts", 2, "--rate", RATE, "--quiet", "--", ROOT / "build/openmpi/tersegrad", "train", *FLAGS,
                "--recipe", recipe, "--local-steps", every, "--steps", STEPS, "--log", log]
        done = subprocess.run([str(word) for word in line], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"local: {recipe}: {done.stderr.strip()}")
        points, seconds, sent = [], 0.0, 0.0
        for entry in map(json.loads, log.read_text().splitlines()):
            if "test_accuracy" in entry:
                points.append([entry["step"], seconds, sent, entry["test_accuracy"]])
            elif "loss" in entry:
                seconds += sum(entry["seconds"][name] for name in ("compute", "exposed", "update"))
                sent += (entry["payload_bytes"] + entry["header_bytes"]) / 2
    return points


def kept(recipe, every):
    path = KEPT / f"{recipe}-{every.replace(':', '_')}.json"
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(train(recipe, every)))
        print(f"local: {recipe}, {every}", flush=True)
    return json.loads(path.read_text())


def table():
    yield f"| recipe | local steps | seconds to {100 * TARGET:.0f}% | steps | bytes that a worker sent | times as fast as bf16 in every step |"
    yield "|---|---|---|---|---|---|"
    first = None
    for recipe, every in ROWS:
        reached = next((point for point in kept(recipe, every) if point[3] >= TARGET), None)
        first = reached if first is None else first
        cells = ["not reached"] + [""] * 3 if reached is None else [f"{reached[1]:.1f}", str(reached[0]), f"{reached[2]:,.0f}", f"{first[1] / reached[1]:.1f}"]
        yield f"| `{recipe}` | {every} | {' | '.join(cells)} |"


if __name__ == "__main__":
    put_table(PAGE, "local", list(table()))
