#!/usr/bin/env python3
"""Times recipes and MPI's own all-reduce over slow links, hosts being network namespaces (bench/netns). Needs root; build first:
cmake --preset openmpi && cmake --build build/openmpi --target tersegrad bench_links

    sudo bench/links.py --save --page             measures steps (6 minutes on a quiet machine), keeps the rows in bench/results/links.csv,
                                                  and makes the tables of bench/README.md from all rows that are kept
    sudo bench/links.py accuracy --save --page    trains to an accuracy (3 minutes), likewise
    bench/links.py --kept --page                  measures nothing
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

from tables import commit, keep_rows, measured, put_table, read_rows

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS_KEPT, ACCURACY_KEPT = (ROOT / "bench/results" / name for name in ("links.csv", "links-accuracy.csv"))
PAGE = ROOT / "bench/README.md"
BUILD = ROOT / "build/openmpi"
RATES = {"100mbit": 100, "1gbit": 1000, "10gbit": 10000}
PLAIN = ("mpi:fp32", "mpi:bf16")
LGC = "ef+topk@0.001,coords=shared+autoencoder@ring,dense=1,learn=1,enough=1e9"
RECIPES = ("bf16", "adacomp", "ef+topk@0.01+fp16", "random-block@0.01", "orq@9", "ef+fp4+rans", "powersgd", LGC)
MODELS = {"lenet": 20, "resnet20": 20, "resnet50": 1}  # steps that are timed
# Steps before those, of MPI and of recipes. The first steps of a residual are not like later ones; a long message takes 25 seconds.
WARM = {"lenet": (3, 20), "resnet20": (3, 20), "resnet50": (1, 5)}
LONG = ("bf16", "orq@9", "ef+fp4+rans")  # recipes that warm up as MPI does
HOSTS = (2, 4)
TARGET, TRAINED_RATES = 0.80, ("100mbit", "1gbit")
TRAINED = ("dense", "bf16", "adacomp", "ef+topk@0.01+fp16", "ef+fp4+rans")


def netns(hosts, rate, *command):
    line = [str(ROOT / "bench/netns"), "--hosts", str(hosts), "--rate", rate, "--quiet", "--", *map(str, command)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"links: {' '.join(line)}: {done.stderr.strip()}")
    return [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]


def times(ratio):
    """With two digits."""
    return f"{float(f'{ratio:.2g}'):g}"


def shown(recipe):
    return "lgc-ring" if recipe == LGC else recipe


# ---- steps -------------------------------------------------------------------------------------------------------------

STEP_COLUMNS = ("model", "hosts", "mbit", "recipe", "ms", "meter_bytes", "interface_bytes")


def measure_steps(of, save):
    for model, steps in MODELS.items():
        for hosts in HOSTS:
            for rate, mbit in RATES.items():
                found = []
                for warm, recipes in zip(WARM[model], ((*PLAIN, *LONG), [recipe for recipe in RECIPES if recipe not in LONG])):
                    found += netns(hosts, rate, BUILD / "bench_links", "--warm", warm, model, steps, *recipes)
                rows = [{"model": model, "hosts": hosts, "mbit": mbit, "recipe": shown(row["recipe"]), "ms": round(row["ms"], 2),
                         "meter_bytes": round(row["meter_bytes"]), "interface_bytes": round(row["interface_bytes"])} for row in found]
                print(f"{model}, {hosts} hosts, {rate}:", ", ".join(f"{row['recipe']} {told(row['ms'])}" for row in rows), flush=True)
                if save:
                    keep_rows(STEPS_KEPT, STEP_COLUMNS, STEP_COLUMNS[:4], rows, of)


def told(ms):
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.0f} ms" if ms >= 100 else f"{ms:.1f} ms"


def break_even(ours, plain):
    """The rate below which a recipe is faster than plain all-reduce, each taking a time of its own, which the fastest link shows,
    and its bytes over the rate. Where one side was faster at every rate that was measured, that is the answer."""
    faster = [mine["ms"] < theirs["ms"] for mine, theirs in zip(ours, plain)]
    if all(faster):
        return "every rate"
    if not any(faster):
        return "no rate"

    def parts(rows):
        fast = rows[-1]
        sent = fast["interface_bytes"] * 8
        return max(0.0, fast["ms"] / 1e3 - sent / (fast["mbit"] * 1e6)), sent
    (work, bits), (plain_work, plain_bits) = parts(ours), parts(plain)
    if bits > 0.98 * plain_bits or work <= plain_work:
        return "no clear rate"
    rate = (plain_bits - bits) / (work - plain_work) / 1e6
    return f"{rate / 1000:.1f} Gbit/s" if rate >= 1000 else f"{rate:.0f} Mbit/s"


def by_recipe(rows, model, hosts):
    """{recipe: its rows by rate}."""
    found = {}
    for row in sorted(rows, key=lambda row: row["mbit"]):
        if (row["model"], row["hosts"]) == (model, hosts):
            found.setdefault(row["recipe"], []).append(row)
    return found


def step_tables(rows):
    yield f"These tables were {measured(rows)}."
    yield ""
    for model in MODELS:
        for hosts in HOSTS:
            found = by_recipe(rows, model, hosts)
            yield f"`{model}`, {hosts} hosts:"
            yield ""
            yield ("| recipe | bytes a worker sends (meter) | on the interface | 100 Mbit/s | 1 Gbit/s | 10 Gbit/s | against bf16 "
                   "all-reduce | faster below |")
            yield "|---|---|---|---|---|---|---|---|"
            bf16 = found["mpi:bf16"]
            for recipe, row in found.items():
                meter, counted = row[0]["meter_bytes"], row[0]["interface_bytes"]
                faster = ", ".join(f"{times(b['ms'] / r['ms'])}×" for r, b in zip(row, bf16))
                yield (f"| `{recipe}` | {f'{meter:,.0f}' if meter else ''} | {counted:,.0f}"
                       f"{f' (+{100 * (counted / meter - 1):.1f}%)' if meter else ''} | "
                       f"{' | '.join(told(r['ms']) for r in row)} | {faster} | {'' if recipe in PLAIN else break_even(row, bf16)} |")
            yield ""
    yield from step_statements(rows)


def span(values):
    low, high = min(values), max(values)
    return times(low) if times(low) == times(high) else f"{times(low)} to {times(high)}"


def step_statements(rows):
    """What the tables say of each recipe, and of bf16."""
    times = {(row["model"], row["hosts"], row["mbit"], row["recipe"]): row["ms"] for row in rows}

    def ratios(recipe, plain, mbit, hosts=HOSTS):
        return [times[model, n, mbit, plain] / times[model, n, mbit, recipe] for model in MODELS for n in hosts]
    yield "Times as fast as MPI's bf16 all-reduce, over all models and numbers of hosts:"
    yield ""
    for mbit, name in zip(RATES.values(), ("100 Mbit/s", "1 Gbit/s", "10 Gbit/s")):
        told_of = ", ".join(f"`{shown(recipe)}` {span(ratios(shown(recipe), 'mpi:bf16', mbit))}" for recipe in RECIPES)
        yield f"- **At {name}**: {told_of}."
    by_hosts = "; ".join(f"{n} hosts " + ", ".join(span(ratios("bf16", "mpi:bf16", mbit, (n,))) for mbit in RATES.values()) for n in HOSTS)
    yield (f"- **Our `bf16`** sends as many bytes as MPI's bf16 all-reduce, so it saves none, and its time depends on the implementation. Times as fast, "
           f"at the three rates: {by_hosts}. Against MPI's **fp32** all-reduce, which sends twice as much: "
           f"{', '.join(span(ratios('bf16', 'mpi:fp32', mbit)) for mbit in RATES.values())}.")


# ---- time to an accuracy ----------------------------------------------------------------------------------------------

ACCURACY_COLUMNS = ("mbit", "recipe", "seconds", "steps", "accuracy")


def train(recipe, rate):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "run.jsonl"
        netns(2, rate, BUILD / "tersegrad", "train", "--recipe", recipe, "--steps", 300, "--batch", 64, "--test-every", 20, "--log", log, "--json")
        lines = [json.loads(text) for text in log.read_text().splitlines()]
    return [line for line in lines if "test_accuracy" in line]


def measure_accuracy(of, save):
    for recipe in TRAINED:
        rows = []
        for rate in TRAINED_RATES:
            curve = train(recipe, rate)
            reached = next((line for line in curve if line["test_accuracy"] >= TARGET), {})
            rows.append({"mbit": RATES[rate], "recipe": recipe, "seconds": round(reached.get("seconds", math.nan), 1), "steps": reached.get("step", ""),
                         "accuracy": round(curve[-1]["test_accuracy"], 4)})
        print(rows, flush=True)
        if save:
            keep_rows(ACCURACY_KEPT, ACCURACY_COLUMNS, ACCURACY_COLUMNS[:2], rows, of)


def accuracy_tables(rows):
    yield f"{measured(rows).capitalize()}:"
    yield ""
    yield f"| recipe | {' | '.join(f'{rate}: seconds to {100 * TARGET:.0f}%' for rate in TRAINED_RATES)} | steps | accuracy after 300 steps |"
    yield "|---|" + "---|" * (len(TRAINED_RATES) + 2)
    of = {(row["recipe"], row["mbit"]): row for row in rows}
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        found = [of[recipe, RATES[rate]] for rate in TRAINED_RATES]
        cells = ["not reached" if math.isnan(row["seconds"]) else f"{row['seconds']:.1f}" for row in found]
        yield f"| `{recipe}` | {' | '.join(cells)} | {found[0]['steps']:.0f} | {100 * found[0]['accuracy']:.1f}% |"


PARTS = {"steps": (measure_steps, STEPS_KEPT, step_tables), "accuracy": (measure_accuracy, ACCURACY_KEPT, accuracy_tables)}


def main():
    parser = argparse.ArgumentParser(description="Recipes and MPI's all-reduce over slow links.")
    parser.add_argument("part", nargs="*", default=["steps"], help="steps, accuracy or both; steps unless given")
    parser.add_argument("--kept", action="store_true", help="measure nothing: the rows that are kept")
    parser.add_argument("--save", action="store_true", help="keep the rows in bench/results")
    parser.add_argument("--page", action="store_true", help="put the tables of all kept rows into bench/README.md")
    options = parser.parse_args()
    if not set(options.part) <= set(PARTS):
        parser.error("a part is steps or accuracy")
    of = commit()  # before, because files may change meanwhile
    for name in [] if options.kept else options.part:
        PARTS[name][0](of, options.save)
    for name, (_, path, tables) in PARTS.items():
        if options.page:
            put_table(PAGE, f"links-{name}", list(tables(read_rows(path))))


if __name__ == "__main__":
    main()
