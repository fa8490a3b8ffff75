#!/usr/bin/env python3
"""Runs the studies of docs/results.md with the program `tersegrad train`, and puts their tables into the page. What has been run is
a line of experiments/kept/program.jsonl and not run again, so it can be stopped and started at any time.

    experiments/results.py [--program FILE] [STUDY ...]    all studies whose data is there, or those that are named
    TG_DATA=DIR experiments/results.py                     also those on DIR/cifar10 (the binary format) and
                                                           DIR/text/tinyshakespeare.txt
    experiments/results.py --kept                          runs nothing: tables of the studies all of whose runs are kept

A table stands between <!-- STUDY --> and <!-- end --> in docs/results.md.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from tables import put_table

KEPT = ROOT / "experiments/kept/program.jsonl"
PAGE = ROOT / "docs/results.md"
DATA = pathlib.Path(os.environ.get("TG_DATA", "/nowhere"))


# ---- Runs ------------------------------------------------------------------------------------------------------------

class Missing(Exception):
    """A run is not kept, and none is to be made."""


class Study:
    """Runs of the program. Data is named by a word, so that kept results do not depend on where it lies."""

    def __init__(self, name, program, kept=KEPT):
        self.name, self.program, self.path = name, program, kept
        lines = kept.read_text().splitlines() if kept.exists() else []
        self.kept = {line["run"]: line["result"] for line in map(json.loads, lines)}
        self.places = {"fashion": "fashion", "text": f"text:{DATA}/text/tinyshakespeare.txt"}

    def place(self, data):
        if data == "cifar" and data not in self.places:
            self.places[data] = f"cifar10:{cifar_part(DATA / 'cifar10')}"
        return self.places[data]

    def train(self, data, flags, recipe):
        """The result of a training run: from before if it was made already with the same flags. Without a program, raises Missing."""
        told = f"{data} {flags} --recipe {recipe}"
        if told in self.kept:
            return self.kept[told]
        if self.program is None:
            raise Missing(told)
        start = time.monotonic()
        command = [self.program, "train", "--data", self.place(data), *flags.split(), "--test-every", "0", "--recipe", recipe,
                   "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 2:
            sys.exit(done.stderr.strip())
        if done.returncode == 0:
            result = json.loads(done.stdout.splitlines()[-1])
            result.pop("curve", None)
        else:
            result = {"failed": done.stderr.strip().split("\n")[-1]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a") as kept:
            kept.write(json.dumps({"run": told, "date": time.strftime("%Y-%m-%d"), "result": result}) + "\n")
        self.kept[told] = result
        said = "failed" if "failed" in result else f"{100 * result['test_accuracy']:.2f}%, loss {result['test_loss']:.4f}"
        print(f"{self.name}: {told}: {said}, {time.monotonic() - start:.0f} s", flush=True)
        return result


def cifar_part(folder):
    """A fixed 10,000 images for training: the first file, beside the test file, in a folder of their own."""
    part = pathlib.Path(tempfile.mkdtemp(prefix="cifar-part-"))
    for name in ("data_batch_1.bin", "test_batch.bin"):
        (part / name).symlink_to(folder / name)
    return part


HAS = {"fashion": lambda: True, "cifar": lambda: (DATA / "cifar10/data_batch_1.bin").exists(),
       "text": lambda: (DATA / "text/tinyshakespeare.txt").exists()}


# ---- The random-block study ------------------------------------------------------------------------------------------

def grid(data, flags):
    def lines(study):
        ratios = ("0.1", "0.01", "0.001")
        dense = study.train(data, flags, "dense")
        yield (f"Dense: {100 * dense['test_accuracy']:.1f}%. Each cell: test accuracy in percent, and in brackets how many times "
               "fewer bytes were sent.")
        yield ""
        yield "| select | feedback | scope | coords | " + " | ".join(f"{100 * float(r):g}%" for r in ratios) + " |"
        yield "|---|---|---|---|" + "---|" * len(ratios)
        for select in ("topk", "randomk", "randomblock"):
            for feedback in ("ef", "none"):
                for scope in ("tensor", "model"):
                    for coords in ("shared", "own"):
                        recipes = [f"{feedback}+{select}@{ratio},scope={scope},coords={coords}" for ratio in ratios]
                        cells = [grid_cell(study.train(data, flags, recipe)) for recipe in recipes]
                        yield (f"| `{select}` | {'yes' if feedback == 'ef' else 'no'} | {scope} | {coords} | "
                               f"{' | '.join(cells)} |")
    return data, lines


def grid_cell(result):
    if "failed" in result:
        return "diverged"
    return f"{100 * result['test_accuracy']:.1f} ({result['ratio']:.0f}×)"


# ---- AdaComp ---------------------------------------------------------------------------------------------------------

SEEDS = (1, 2, 3)


def adacomp(data, model, epochs, rates, batch, measure):
    """Dense and AdaComp for both optimizers, 4 workers and 8 by `shard`, the batch of all workers together being the same."""
    def lines(study):
        what, better = ("test accuracy, %", 100) if measure == "test_accuracy" else ("test loss", 1)
        yield (f"| workers | optimizer | dense: {what} | AdaComp | difference | convolutions: ratio (as the paper counts), "
               "entries a bin | dense, recurrent, embedding |")
        yield "|---|---|---|---|---|---|---|"
        for workers in (4, 8):
            for optimizer, rate in rates.items():
                flags = f"--model {model} --workers {workers} --batch {batch // workers} {epochs} --optimizer {optimizer} --rate {rate}"
                ways = {"dense": "", "adacomp": " --exchange shard" if workers > 4 else ""}
                runs = {recipe: [study.train(data, f"{flags} --seed {seed}{way}", recipe) for seed in SEEDS] for recipe, way in ways.items()}
                if any("failed" in run for both in runs.values() for run in both):
                    yield f"| {workers} | {optimizer} | diverged | | | | |"
                    continue
                dense, ours = ([better * run[measure] for run in runs[recipe]] for recipe in ("dense", "adacomp"))
                difference = mean(ours) - mean(dense)
                told = f"{difference:+.2f}" if better == 100 else f"{100 * difference / mean(dense):+.2f}%"
                yield (f"| {workers} | {optimizer} {rate} | {spread(dense)} | {spread(ours)} | {told} | "
                       f"{kinds(runs['adacomp'], ('conv',))} | {kinds(runs['adacomp'], ('dense', 'recurrent', 'embedding'))} |")
    return data, lines


def mean(values):
    return sum(values) / len(values)


def spread(values, digits=None):
    digits = digits or (2 if mean(values) > 10 else 4)
    return f"{mean(values):.{digits}f} ±{(max(values) - min(values)) / 2:.{digits}f}"


def kinds(runs, names):
    """Ratio, ratio as the paper counts and entries a bin of the parameters of these kinds, over runs."""
    found = [kind for run in runs for kind in run["kinds"] if kind["kind"] in names]
    if not found:
        return "–"
    elements = sum(kind["elements"] for kind in found)
    ours, paper = (elements / sum(kind["elements"] / kind[key] for kind in found) for key in ("ratio", "paper_ratio"))
    rates = [kind["entries_per_bin"] for kind in found if kind["elements"] == max(k["elements"] for k in found)]
    return f"{ours:.0f} ({paper:.0f}), {mean(rates):.1f}"


# ---- Quantizers ------------------------------------------------------------------------------------------------------

QUANTIZERS = {2: ("bingrad@b", "bingrad@pb", "bingrad@zero", "sign", "sign@scale=one"),
              3: ("orq@3", "ternary", "ternary@clip=2.5", "qsgd@1", "linear@3"),
              5: ("orq@5", "qsgd@2", "linear@5"),
              9: ("orq@9", "qsgd@4", "linear@9")}


def levels(data, flags, leave_out=()):
    """Every quantizer without and with feedback, over seeds."""
    def lines(study):
        def cell(recipe):
            return accuracy_cell([study.train(data, f"{flags} --seed {seed}", recipe) for seed in SEEDS])

        yield f"Dense: {cell('dense')}."
        yield ""
        yield "| levels | quantizer | without feedback | with feedback | frame: times smaller |"
        yield "|---|---|---|---|---|"
        for count, recipes in QUANTIZERS.items():
            for recipe in (r for r in recipes if not r.startswith(leave_out)):
                votes = recipe == "sign@scale=one"  # of which no rest can be sent later
                plain, kept = cell(recipe), "–" if votes else cell(f"ef+{recipe}")
                ratio = frame_ratio(study.train(data, f"{flags} --seed 1", recipe))
                yield f"| {count} | `{recipe}` | {plain} | {kept} | {ratio:.1f} |"
    return data, lines


def accuracy_cell(runs):
    diverged = sum("failed" in run for run in runs)
    return "diverged" if diverged == len(runs) else f"{diverged} of {len(runs)} diverged" if diverged else spread(
        [100 * run["test_accuracy"] for run in runs], 2)


def frame_ratio(run):
    """Bytes of fp32 gradients over bytes in frames, for weights."""
    sizes = [(kind["elements"], kind["ratio"]) for kind in run.get("kinds", []) if kind["kind"] in ("conv", "dense")]
    return sum(n for n, _ in sizes) / sum(n / r for n, r in sizes) if sizes else float("nan")


# ---- CO3 -------------------------------------------------------------------------------------------------------------

def co3(data, flags):
    """Each format without correction and with it, over seeds; decays; bits a value by both codes."""
    def lines(study):
        def runs(recipe):
            return [study.train(data, f"{flags} --seed {seed}", recipe) for seed in SEEDS]

        def bits(recipe):
            return f"{32 / frame_ratio(study.train(data, f'{flags} --seed 1', recipe)):.2f}"

        dense = runs("dense")
        yield f"Dense: {accuracy_cell(dense)}."
        yield ""
        yield "| format | decay | test accuracy, % | difference to dense | bits a value, `huffman` | bits a value, `rans` |"
        yield "|---|---|---|---|---|---|"
        for form in ("fp8@e5m2", "fp8@e4m3", "fp4"):
            for decay in ("none", "0.5", "0.9", "1") if form == "fp4" else ("none", "0.9"):
                feedback = "" if decay == "none" else f"ef@decay={decay}+"
                ours = runs(f"{feedback}{form}+huffman")
                told = "diverged" if any("failed" in run for run in ours) else format(
                    100 * (mean([r["test_accuracy"] for r in ours]) - mean([r["test_accuracy"] for r in dense])), "+.2f")
                yield (f"| `{form}` | {'no correction' if decay == 'none' else decay} | {accuracy_cell(ours)} | {told} | "
                       f"{bits(f'{feedback}{form}+huffman')} | {bits(f'{feedback}{form}+rans')} |")
    return data, lines


# ---- LGC -------------------------------------------------------------------------------------------------------------

TOPK = "ef+topk@0.001+fp32+rans"
RING, SERVER = (f"ef+topk@0.001,coords=shared+autoencoder@{form},first=sparse" for form in ("ring", "server"))
OPTIONS = (RING, "ef+topk@0.001,coords=shared+autoencoder@ring", f"{RING},order=index,enough=9", f"{RING},code=bf16",
           f"{RING},own=yes", f"{RING},refresh=300,again=30", f"{RING},learn=600",
           "momentum+topk@0.001,coords=shared+autoencoder@ring,first=sparse", "ef+topk@0.001,coords=shared+fp32+rans")


def lgc(data, flags, rows):
    """Dense, top-k and LGC: a row for every (workers, steps, seeds, recipes); the batch of all workers is 64 or 32."""
    def lines(study):
        yield ("| workers | steps | recipe | test accuracy, % | against dense, points | ratio, all of the run | ratio, once codes are sent | "
               "bytes a worker and step then, up and down | relative error, learned |")
        yield "|---|---|---|---|---|---|---|---|---|"
        for workers, batch, steps, seeds, recipes in rows:
            def runs(recipe):
                return [study.train(data, f"{flags} --workers {workers} --batch {batch} --steps {steps} --seed {seed}", recipe)
                        for seed in seeds]
            dense = runs("dense")
            for recipe in ("dense", *recipes):
                yield f"| {workers} | {steps} | `{recipe}` | " + " | ".join(lgc_cells(runs(recipe), dense)) + " |"
    return data, lines


def lgc_cells(runs, dense):
    if any("failed" in run for run in runs):
        return [accuracy_cell(runs), "", "", "", "", ""]
    has_codes = all(run.get("code_ratio") for run in runs)
    def over(key, digits=0):
        return f"{mean([run[key] for run in runs]):,.{digits}f}"
    difference = 100 * (mean([run["test_accuracy"] for run in runs]) - mean([run["test_accuracy"] for run in dense]))
    accuracy = accuracy_cell(runs) if len(runs) > 1 else f"{100 * runs[0]['test_accuracy']:.2f}"
    return [accuracy, "" if runs[0] is dense[0] or runs == dense else f"{difference:+.2f}", over("ratio"),
            over("code_ratio") if has_codes else "",
            f"{over('code_up_bytes_per_step')}, {over('code_down_bytes_per_step')}" if has_codes else over("wire_bytes_per_step"),
            over("learned_error", 2) if all(run.get("learned_error") for run in runs) else ""]


# ---- All of them -----------------------------------------------------------------------------------------------------

STUDIES = {
    "fashion": grid("fashion", "--model lenet --workers 4 --batch 32 --epochs 1 --rate 0.005"),
    "cifar": grid("cifar", "--model resnet8 --workers 4 --batch 32 --epochs 2 --rate 0.02"),
    "adacomp-lenet": adacomp("fashion", "lenet", "--epochs 3", {"sgd": 0.02, "adam": 0.001}, 128, "test_accuracy"),
    "adacomp-resnet8": adacomp("cifar", "resnet8", "--epochs 3", {"sgd": 0.05, "adam": 0.002}, 128, "test_accuracy"),
    "adacomp-charlstm": adacomp("text", "charlstm", "--steps 300", {"sgd": 0.5, "adam": 0.002}, 32, "test_loss"),
    "levels-lenet": levels("fashion", "--model lenet --workers 4 --batch 32 --steps 250 --rate 0.01"),
    "levels-resnet8": levels("cifar", "--model resnet8 --workers 4 --batch 32 --epochs 2 --rate 0.02",
                             leave_out=("linear", "ternary@clip")),
    "co3-lenet": co3("fashion", "--model lenet --workers 4 --batch 32 --epochs 1 --rate 0.01"),
    "lgc-lenet": lgc("fashion", "--model lenet --rate 0.01", [(4, 16, 6000, SEEDS, (TOPK, RING, SERVER)),
                                                              (4, 16, 2500, (1,), (TOPK, RING, SERVER)),
                                                              (4, 16, 1000, (1,), (TOPK, RING, SERVER)),
                                                              (8, 8, 1000, (1,), (TOPK, RING, SERVER))]),
    "lgc-options": lgc("fashion", "--model lenet --rate 0.01", [(4, 16, 1500, (1,), OPTIONS)]),
    "lgc-resnet8": lgc("cifar", "--model resnet8 --rate 0.02", [(4, 8, 2500, (1,), (TOPK, RING, SERVER)),
                                                                (8, 4, 2500, (1,), (TOPK, RING, SERVER, f"{SERVER},lambda2=0.5",
                                                                                    f"{SERVER},share=0.2"))]),
    "lgc-resnet20": lgc("cifar", "--model resnet20 --rate 0.02", [(4, 8, 700, (1,), (TOPK, RING, SERVER)),
                                                                  (8, 4, 700, (1,), (TOPK, RING, SERVER))]),
    "co3-resnet8": co3("cifar", "--model resnet8 --workers 4 --batch 32 --epochs 2 --rate 0.02"),
}


def main():
    parser = argparse.ArgumentParser(description="Run the studies of docs/results.md.")
    parser.add_argument("studies", metavar="STUDY", nargs="*", help=f"{', '.join(STUDIES)} [default: all whose data is there]")
    parser.add_argument("--program", default=str(ROOT / "build/release/tersegrad"))
    parser.add_argument("--kept", action="store_true", help="run nothing")
    options = parser.parse_args()
    for name in options.studies or STUDIES:
        if name not in STUDIES:
            parser.error(f"there is no study '{name}'; there are {', '.join(STUDIES)}")
        data, lines = STUDIES[name]
        if options.kept:
            with contextlib.suppress(Missing):
                put_table(PAGE, name, list(lines(Study(name, None))))
        elif HAS[data]():
            put_table(PAGE, name, list(lines(Study(name, options.program))))
        elif options.studies:
            sys.exit(f"{name} needs data that TG_DATA does not have")


if __name__ == "__main__":
    main()
