#!/usr/bin/env python3
"""Runs the studies of docs/results.md and puts their tables into it. What has been run is kept in build/results and not
run again, so it can be stopped and started at any time.

    experiments/results.py [PROGRAM]      all studies whose data is there
    TG_DATA=DIR experiments/results.py    also those on DIR/cifar10 (the binary format)

A table stands between <!-- NAME --> and <!-- end --> in docs/results.md.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "build/results"
PAGE = ROOT / "docs/results.md"
SELECTS = ("topk", "randomk", "randomblock")


def recipe_of(select, ratio, feedback, scope, coords):
    return f"{'ef' if feedback else 'none'}+{select}@{ratio},scope={scope},coords={coords}"


def flags_of(study, recipe):
    return ["train", *study["flags"], "--recipe", recipe, "--json"]


def run(program, study, recipe):
    """The result of a run: from before if it was made already with the same flags."""
    name = re.sub(r"[^A-Za-z0-9.=-]+", "_", study["name"] + "_" + " ".join(study["kept_as"]) + "_" + recipe)
    path = KEPT / (name + ".json")
    if path.exists():
        return json.loads(path.read_text())
    start = time.monotonic()
    done = subprocess.run([program, *flags_of(study, recipe)], capture_output=True, text=True)
    if done.returncode == 2:
        sys.exit(done.stderr.strip())
    result = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"failed": done.stderr.splitlines()[-1]}
    KEPT.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(result))
    temporary.replace(path)
    said = f"{100 * result['test_accuracy']:.2f}%" if "failed" not in result else "failed"
    print(f"{study['name']}: {recipe}: {said}, {time.monotonic() - start:.0f} s", flush=True)
    return result


def cell(result):
    if "failed" in result:
        return "diverged"
    return f"{100 * result['test_accuracy']:.1f} ({result['ratio']:.0f}×)"


def grid(program, study):
    dense = run(program, study, "dense")
    lines = [f"Dense: {100 * dense['test_accuracy']:.1f}%. Each cell: test accuracy in percent, and in brackets how many times "
             "fewer bytes were sent.", "",
             "| select | feedback | scope | coords | " + " | ".join(f"{100 * float(r):g}%" for r in study["ratios"]) + " |",
             "|---|---|---|---|" + "---|" * len(study["ratios"])]
    for select in SELECTS:
        for feedback in (True, False):
            for scope in ("tensor", "model"):
                for coords in ("shared", "own"):
                    cells = [cell(run(program, study, recipe_of(select, ratio, feedback, scope, coords)))
                             for ratio in study["ratios"]]
                    lines.append(f"| `{select}` | {'yes' if feedback else 'no'} | {scope} | {coords} | {' | '.join(cells)} |")
    return lines


def put_table(name, lines):
    text = PAGE.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    if not rest:
        sys.exit(f"docs/results.md has no place for the table '{name}'")
    PAGE.write_text(before + begin + "\n".join(lines) + "\n" + end + rest.partition(end)[2], encoding="utf-8")


def cifar_part(folder):
    """A fixed 10,000 images for training: the first file, beside the test file, in a folder of their own."""
    part = pathlib.Path(tempfile.mkdtemp(prefix="cifar-part-"))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (part / name).symlink_to(folder / name)
    return part


def studies():
    fashion = ["--model", "lenet", "--data", "fashion", "--workers", "4", "--batch", "32", "--epochs", "1", "--rate", "0.005"]
    yield {"name": "fashion", "flags": fashion, "kept_as": fashion, "ratios": ("0.1", "0.01", "0.001")}
    folder = pathlib.Path(os.environ.get("TG_DATA", "/nowhere")) / "cifar10"
    if (folder / "data_batch_1.bin").exists():
        flags = ["--model", "resnet8", "--workers", "4", "--batch", "32", "--epochs", "4", "--rate", "0.02"]
        yield {"name": "cifar", "flags": [*flags, "--data", f"cifar10:{cifar_part(folder)}"], "kept_as": flags,
               "ratios": ("0.1", "0.01")}


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/release/tersegrad")
    for study in studies():
        put_table(study["name"], grid(program, study))


if __name__ == "__main__":
    main()
