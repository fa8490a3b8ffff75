#!/usr/bin/env python3
"""Tables of docs/results.md and plots under docs/images, made from what experiments/kept holds. Runs no training.

    experiments/report.py [--kept FOLDER] [--page FILE] [--images FOLDER]

The section of a grid stands between <!-- GRID --> and <!-- end -->; a page without it gets it ahead of its first section.
"""

import argparse
import json
import math
import pathlib
import sys
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from tables import put_table

HEADING = "## Schemes in one setting: ResNet-18 on CIFAR-10"


class Row:
    """The trainings that differ in nothing but their seed."""

    def __init__(self, runs):
        first = runs[0]
        self.settings, self.runs = first["settings"], runs
        self.seeds = sorted(run["settings"]["seed"] for run in runs)
        self.diverged = [run for run in runs if run["status"] == "diverged"]
        finished = [run for run in runs if run["status"] == "finished"]
        self.accuracies = [100 * run["accuracy"] for run in finished]
        self.sent = mean([run["meter"]["sent"] for run in finished]) if finished else None
        self.sent_per_step = mean([run["meter"]["sent"] / run["steps"] for run in finished]) if finished else None
        self.ratio = mean([run["ratio"] for run in finished]) if finished else None
        self.frame_ratio = mean([run["frame_ratio"] for run in finished]) if finished else None

    @property
    def accuracy(self):
        return mean(self.accuracies) if self.accuracies else None

    def name(self):
        s, more = self.settings, []
        if s["local_steps"] > 1:
            more.append(f"{s['local_steps']} local steps")
        if s["rate"] != 0.1:
            more.append(f"rate {s['rate']:g}")
        return s["recipe"], ", ".join(more)

    def accuracy_cell(self):
        if not self.accuracies:
            return "diverged"
        cell = f"{self.accuracy:.2f}"
        if len(self.accuracies) > 1:
            cell += f" ±{(max(self.accuracies) - min(self.accuracies)) / 2:.2f}"
        return cell + (f" ({len(self.diverged)} of {len(self.runs)} diverged)" if self.diverged else "")


def mean(values):
    return sum(values) / len(values)


def read(path):
    """Rows of a file of results, in the order in which they stand there first."""
    groups = {}
    for line in path.read_text().splitlines():
        run = json.loads(line)
        key = json.dumps({k: v for k, v in run["settings"].items() if k != "seed"}, sort_keys=True)
        groups.setdefault(key, []).append(run)
    return [Row(runs) for runs in groups.values()]


# ---- the table ---------------------------------------------------------------------------------------------------------

def size(number):
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB" if number >= 1e6 else f"{number / 1e3:,.0f} KB"


def table(rows):
    yield "| recipe | | exchange | seeds | test accuracy, % | to dense | sent by a worker, whole run | ratio | frame ratio |"
    yield "|---|---|---|---|---|---|---|---|---|"
    dense = next((row for row in rows if row.settings["recipe"] == "dense" and row.settings["local_steps"] == 1), None)
    for row in sorted(rows, key=lambda row: row.ratio or 0):
        recipe, more = row.name()
        bytes_cells = ["", "", ""] if row.sent is None else [size(row.sent), f"{row.ratio:,.1f}", f"{row.frame_ratio:,.1f}"]
        is_compared = dense is not None and row is not dense and row.accuracy is not None and dense.accuracy is not None
        difference = f"{row.accuracy - dense.accuracy:+.2f}" if is_compared else ""
        yield (f"| `{recipe}` | {more} | {row.runs[0]['exchange']} | {', '.join(map(str, row.seeds))} | {row.accuracy_cell()} | {difference} | "
               f"{' | '.join(bytes_cells)} |")


def section(rows):
    runs = [run for row in rows for run in row.runs]
    s, versions = runs[0]["settings"], runs[0]["versions"]
    dates = sorted({run["date"] for run in runs})
    seeds = sorted({run["settings"]["seed"] for run in runs})
    epochs = sorted({row.settings["epochs"] for row in rows}, reverse=True)
    yield HEADING
    yield ""
    yield (f"All 50,000 training images and all 10,000 test images, {runs[0]['parameters']:,} parameters, {s['workers']} workers × batch "
           f"{s['batch']}, SGD with Nesterov momentum {s['momentum']} after averaging, weight decay {s['decay']:g}, rate {s['rate']} with a "
           f"warm-up of {s['warmup_epochs']:g} epochs and a cosine to 0, random crops and flips, bf16 autocast. The workers share one "
           f"{versions['device']} and each keeps its own batch-norm statistics, which are averaged for the test. Every gradient passes "
           "through the library's frames and residuals on the host (`tersegrad.torch.Workers`). Nothing was tuned for any one recipe; "
           "a row with a rate of its own says so. Accuracy is that of the last epoch.")
    yield ""
    yield (f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
           + ("; with one seed, differences below half a point are not resolved" if min(len(row.runs) for row in rows) == 1 else "")
           + f". {' to '.join(sorted({dates[0], dates[-1]}))}, PyTorch {versions['torch']}, tersegrad {versions['tersegrad']}: "
           "`TG_DATA=DIR experiments/grid.py resnet18 --jobs 10`. Every run with its settings, its curve and its byte counts is a line "
           "of `experiments/kept/resnet18.jsonl`.")
    yield ""
    yield ("*Ratio* compares what an uncompressed ring all-reduce sends with what a worker sent, by the exchange's own meter, headers "
           f"and all steps counted. By `gather` each of {s['workers']} workers sends its frame to {s['workers'] - 1} others. *Frame ratio* "
           "compares the gradient in fp32 with the one frame that a worker makes of it, which is closest to what papers report"
           + (f"; by `gather` it is {s['workers'] / 2:g} times the ratio" if s["workers"] != 2 else "") + ". With local steps both count "
           "the steps without an exchange too.")
    shares = [run["exposed"] / run["seconds"] for run in runs if run.get("exposed")]
    if shares:
        yield ""
        yield (f"These runs measure accuracy and bytes, not speed: several trainings shared the device and the host, and the codec ran on "
               f"the CPU. In {100 * min(shares):.0f}% to {100 * max(shares):.0f}% of a training's time, dense included, its next "
               "forward pass waited for the exchange.")
    for count in epochs:
        yield ""
        yield f"### {count} epochs"
        yield ""
        yield from table([row for row in rows if row.settings["epochs"] == count])
    yield ""
    yield "![Test accuracy against bytes that a worker sends per step](images/frontier.svg)"
    yield ""


# ---- the plot ----------------------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 520, 60, 30, 40, 60


def frontier(rows):
    """Rows that no other beats in both accuracy and bytes."""
    best, out = -1.0, []
    for row in sorted(rows, key=lambda row: (row.sent, -row.accuracy)):
        if row.accuracy > best:
            best = row.accuracy
            out.append(row)
    return out


def plot(rows):
    """Accuracy against bytes as an SVG; bytes on a logarithmic axis."""
    rows = [row for row in rows if row.accuracy is not None]
    best = max(row.accuracy for row in rows)
    low = math.floor(min(row.accuracy for row in rows if row.accuracy > best - 8) - 0.4)
    high = math.ceil(best + 0.2)
    powers = [math.log10(row.sent_per_step) for row in rows]
    first = math.floor(2 * min(powers)) / 2
    last = max(math.ceil(2 * max(powers)) / 2, first + 0.5)

    def x(sent):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(sent) - first) / (last - first)

    def y(accuracy):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - max(accuracy, low)) / (high - low)

    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield f'<text x="{LEFT}" y="22" font-size="15">ResNet-18 on CIFAR-10, 4 workers: test accuracy (%) against bytes that a worker sends per step</text>'
    for accuracy in range(low, high + 1, 1 if high - low <= 16 else 2):
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(accuracy):.1f}" y2="{y(accuracy):.1f}" stroke="#e4e4e4"/>'
        yield f'<text x="{LEFT - 8}" y="{y(accuracy) + 4:.1f}" text-anchor="end">{accuracy}</text>'
    for power in range(math.ceil(first), math.floor(last) + 1):
        yield f'<line x1="{x(10 ** power):.1f}" x2="{x(10 ** power):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>'
        yield f'<text x="{x(10 ** power):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size(10 ** power)}</text>'
    longest = max(row.settings["epochs"] for row in rows)
    shorter = sorted({row.settings["epochs"] for row in rows if row.settings["epochs"] != longest})
    legend = f"filled: {longest} epochs" + (f"; hollow: {', '.join(map(str, shorter))} epochs" if shorter else "")
    below = f"; points on the lower edge are below {low}" if any(row.accuracy < low for row in rows) else ""
    yield f'<text x="{LEFT}" y="{HEIGHT - 14}">{legend}{below}; the line joins what no other run of {longest} epochs beats</text>'
    line = frontier([row for row in rows if row.settings["epochs"] == longest])
    points = " ".join(f"{x(row.sent_per_step):.1f},{y(row.accuracy):.1f}" for row in line)
    yield f'<polyline points="{points}" fill="none" stroke="#9db8d8" stroke-width="2"/>'
    taken = [(x(row.sent_per_step) - 5, y(row.accuracy) + 4, 10) for row in rows]
    for begin, end in zip(line, line[1:]):  # labels keep clear of the line too
        for i in range(21):
            share = i / 20
            taken.append((x(begin.sent_per_step) * (1 - share) + x(end.sent_per_step) * share,
                          y(begin.accuracy) * (1 - share) + y(end.accuracy) * share + 2, 1))
    for row in sorted(rows, key=lambda row: -row.accuracy):
        yield from mark(row, x(row.sent_per_step), y(row.accuracy), row.settings["epochs"] == longest, low, taken)
    yield "</svg>"


def mark(row, x, y, is_filled, low, taken):
    """A point and its label, which moves down until it is clear of points and of labels before it."""
    recipe, more = row.name()
    label = recipe.replace("ef+adabins@500+sign@scale=meanmax", "AdaComp, bins of 500") + (f", {more}" if more else "")
    label += f" ({row.accuracy:.1f})" if row.accuracy < low else ""
    length, is_left = 6.3 * len(label), x > WIDTH * 0.72
    begin, at = x - 9 - length if is_left else x + 9, y + 4
    while any(abs(at - other) < 13 and begin < there + long and there < begin + length for there, other, long in taken):
        at += 3
    taken.append((begin, at, length))
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{"#1f5fa8" if is_filled else "#ffffff"}" stroke="#1f5fa8" stroke-width="1.5"/>'
    yield f'<text x="{x - 9 if is_left else x + 9:.1f}" y="{at:.1f}"{" text-anchor=" + chr(34) + "end" + chr(34) if is_left else ""}>{escape(label)}</text>'


# ---- the page ----------------------------------------------------------------------------------------------------------

def put_section(page, name, lines):
    """Into its place, which is made ahead of the first section if there is none."""
    text = page.read_text(encoding="utf-8")
    if f"<!-- {name} -->\n" not in text:
        before, mark_, after = text.partition("\n## ")
        page.write_text(f"{before}\n<!-- {name} -->\n<!-- end -->\n{mark_}{after}", encoding="utf-8")
    put_table(page, name, lines)


def main():
    parser = argparse.ArgumentParser(description="Make tables and plots from kept results.")
    parser.add_argument("--kept", type=pathlib.Path, default=ROOT / "experiments/kept")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/results.md")
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs/images")
    options = parser.parse_args()
    path = options.kept / "resnet18.jsonl"
    if not path.exists():
        print("report: nothing is kept")
        return
    rows = read(path)
    put_section(options.page, "resnet18", list(section(rows)))
    options.images.mkdir(parents=True, exist_ok=True)
    (options.images / "frontier.svg").write_text("\n".join(plot(rows)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
