#!/usr/bin/env python3
"""Times recipes and MPI's own all-reduce over slow links, hosts being network namespaces (bench/netns), and puts the tables
into bench/README.md. Needs root; build first: cmake --preset openmpi && cmake --build build/openmpi --target tersegrad bench_links

    bench/links.py [steps|accuracy ...]      both, or one of them; what was measured is kept in build/links
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

from tables import put_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "build/links"
PAGE = ROOT / "bench/README.md"
BUILD = ROOT / "build/openmpi"
RATES = ("100mbit", "1gbit", "10gbit")
PLAIN = ("mpi:fp32", "mpi:bf16")
RECIPES = ("bf16", "adacomp", "ef+topk@0.01+fp16", "random-block@0.01", "orq@9", "ef+fp4+rans", "powersgd",
           "ef+topk@0.001,coords=shared+autoencoder@ring,dense=1,learn=1,enough=1e9")
MODELS = {"lenet": 20, "resnet20": 20, "resnet50": 2}  # steps that are timed


def netns(hosts, rate, *command):
    line = [str(ROOT / "bench/netns"), "--hosts", str(hosts), "--rate", rate, "--quiet", "--", *map(str, command)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"links: {' '.join(line)}: {done.stderr.strip()}")
    return [json.loads(text) for text in done.stdout.splitlines() if text.startswith("{")]


def kept(name, make):
    path = KEPT / f"{name}.json"
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        result = make()
        path.write_text(json.dumps(result))
        print(f"links: {name}", flush=True)
    return json.loads(path.read_text())


# ---- a step ----------------------------------------------------------------------------------------------------------

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
        return max(0.0, fast["ms"] / 1e3 - sent / 10e9), sent
    (work, bits), (plain_work, plain_bits) = parts(ours), parts(plain)
    if bits > 0.98 * plain_bits or work <= plain_work:
        return "no clear rate"
    rate = (plain_bits - bits) / (work - plain_work) / 1e6
    return f"{rate / 1000:.1f} Gbit/s" if rate >= 1000 else f"{rate:.0f} Mbit/s"


def steps():
    for model, count in MODELS.items():
        for hosts in (2, 4):
            rows = {rate: kept(f"{model}-{hosts}-{rate}", lambda rate=rate: netns(
                hosts, rate, BUILD / "bench_links", model, count, *PLAIN, *RECIPES)) for rate in RATES}
            by_recipe = list(zip(*(rows[rate] for rate in RATES)))
            yield f"`{model}`, {hosts} hosts:"
            yield ""
            yield ("| recipe | bytes a worker sends (meter) | on the interface | 100 Mbit/s | 1 Gbit/s | 10 Gbit/s | against bf16 "
                   "all-reduce | faster below |")
            yield "|---|---|---|---|---|---|---|---|"
            bf16 = by_recipe[1]
            for row in by_recipe:
                first = row[0]
                meter, counted = first["meter_bytes"], first["interface_bytes"]
                faster = ", ".join(f"{b['ms'] / r['ms']:.2g}×" for r, b in zip(row, bf16))
                yield (f"| `{first['recipe'].split(',')[0] if 'auto' not in first['recipe'] else 'lgc-ring'}` | {f'{meter:,.0f}' if meter else ''} | {counted:,.0f}"
                       f"{f' (+{100 * (counted / meter - 1):.1f}%)' if meter else ''} | "
                       f"{' | '.join(told(r['ms']) for r in row)} | {faster} | {'' if first['recipe'] in PLAIN else break_even(row, bf16)} |")
            yield ""


# ---- time to an accuracy ----------------------------------------------------------------------------------------------

def train(recipe, rate):
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "run.jsonl"
        netns(2, rate, BUILD / "tersegrad", "train", "--recipe", recipe, "--steps", 300, "--batch", 64, "--test-every", 20, "--log", log, "--json")
        lines = [json.loads(text) for text in log.read_text().splitlines()]
    return [[line["step"], line["seconds"], line["test_accuracy"]] for line in lines if "test_accuracy" in line]


def accuracy():
    target, rates, recipes = 0.80, ("100mbit", "1gbit"), ("dense", "bf16", "adacomp", "ef+topk@0.01+fp16", "ef+fp4+rans")
    yield f"| recipe | {' | '.join(f'{rate}: seconds to {100 * target:.0f}%' for rate in rates)} | steps | accuracy after 300 steps |"
    yield "|---|" + "---|" * (len(rates) + 2)
    for recipe in recipes:
        curves = [kept(f"accuracy-{rate}-{recipe.replace('@', '-').replace('+', '_')}", lambda rate=rate: train(recipe, rate)) for rate in rates]
        cells, when = [], math.nan
        for curve in curves:
            reached = [point for point in curve if point[2] >= target]
            cells.append(f"{reached[0][1]:.1f}" if reached else "not reached")
            when = reached[0][0] if reached else when
        yield f"| `{recipe}` | {' | '.join(cells)} | {when:.0f} | {100 * curves[0][-1][2]:.1f}% |"


PARTS = {"steps": steps, "accuracy": accuracy}


def main():
    for name in sys.argv[1:] or PARTS:
        if name not in PARTS:
            sys.exit(__doc__)
        put_table(PAGE, f"links-{name}", list(PARTS[name]()))


if __name__ == "__main__":
    main()
