"""Kept trainings as rows of a table."""

import json
import re

from settings import complete

# What `terse` was before it sent small tensors in fp8.
EARLIER_TERSE = re.compile(r"ef@small=fp16\+adabins@(\d+)\+sign@scale=meanmax\+gaps\+rans")


class Row:
    """The trainings that differ in nothing but their seed."""

    def __init__(self, runs):
        first = runs[0]
        self.settings, self.runs = complete(first["settings"]), runs
        self.seeds = sorted(run["settings"]["seed"] for run in runs)
        self.diverged = [run for run in runs if run["status"] == "diverged"]
        finished = [run for run in runs if run["status"] == "finished"]
        self.accuracies = [100 * run["accuracy"] for run in finished]
        self.losses = [run["test_loss"] for run in finished if "test_loss" in run]
        self.train_losses = [run["curve"][-1]["train_loss"] for run in finished if run.get("curve")]
        self.sent = mean([run["meter"]["sent"] for run in finished]) if finished else None
        self.sent_per_step = mean([run["meter"]["sent"] / run["steps"] for run in finished]) if finished else None
        self.ratio = mean([run["ratio"] for run in finished]) if finished else None
        self.frame_ratio = mean([run["frame_ratio"] for run in finished]) if finished else None
        self.exchange = first["exchange"]

    @property
    def accuracy(self):
        return mean(self.accuracies) if self.accuracies else None

    @property
    def loss(self):
        return mean(self.losses) if self.losses else None

    @property
    def train_loss(self):
        """Of the last epoch."""
        return mean(self.train_losses) if self.train_losses else None

    @property
    def is_local(self):
        return self.settings["local_steps"] != 1

    @property
    def is_earlier_terse(self):
        return EARLIER_TERSE.fullmatch(self.settings["recipe"]) is not None

    def recipe(self):
        return EARLIER_TERSE.sub(lambda found: f"terse@{found[1]}".removesuffix("@500"), self.settings["recipe"])

    def name(self):
        """The recipe, and what else sets the row apart."""
        s, more = self.settings, []
        if self.is_local:
            more.append(f"{s['local_steps']} local steps" if isinstance(s["local_steps"], int) else f"local steps {s['local_steps']}")
        more += self.outside()
        if s["optimizer"] == "sgd" and s["model"] == "resnet18" and s["rate"] != 0.1:
            more.append(f"rate {s['rate']:g}")
        if self.is_earlier_terse:
            more.append("small tensors in fp16")
        return self.recipe(), ", ".join(more)

    def outside(self):
        """What is done with averages of local steps, beyond averaging."""
        s, more = self.settings, []
        if s["outer"] != "average":
            more.append(s["outer"].replace("nesterov@", "outer Nesterov ").replace(",", ", "))
        if s["momentum_every"]:
            more.append(f"momentum averaged every {s['momentum_every']} rounds by {s['momentum_recipe']}")
        if s["closing"]:
            more.append(f"closed by `{s['closing']}`")
        return more

    def accuracy_cell(self):
        if not self.accuracies:
            return "diverged"
        told = spread(self.accuracies, 2) + (f" ({len(self.diverged)} of {len(self.runs)} diverged)" if self.diverged else "")
        before = [100 * run["before_closing"]["test_accuracy"] for run in self.runs if run.get("before_closing")]
        return told + (f" ({spread(before, 2)} before closing)" if before else "")

    def byte_cells(self):
        return ["", "", ""] if self.sent is None else [size(self.sent), f"{self.ratio:,.1f}", f"{self.frame_ratio:,.1f}"]

    def last_ratio(self):
        """The ratio of the last epoch alone; None if all diverged."""
        def of(run):
            curve = run["curve"]
            sent = curve[-1]["sent"] - (curve[-2]["sent"] if len(curve) > 1 else 0)
            return run["meter"]["dense"] / self.settings["epochs"] / sent
        ratios = [of(run) for run in self.runs if run["status"] == "finished"]
        return mean(ratios) if ratios else None


def mean(values):
    return sum(values) / len(values)


def difference(row, dense):
    """Points of accuracy that a row is above dense."""
    if dense is None or row is dense or row.accuracy is None or dense.accuracy is None:
        return ""
    return f"{row.accuracy - dense.accuracy:+.2f}"


def spread(values, digits):
    """The mean, and half of the distance from best to worst."""
    return f"{mean(values):.{digits}f}" + (f" ±{(max(values) - min(values)) / 2:.{digits}f}" if len(values) > 1 else "")


def read(path):
    """Rows of a file of results, in the order in which they stand there first."""
    groups = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        run = json.loads(line)
        key = json.dumps({k: v for k, v in complete(run["settings"]).items() if k != "seed"}, sort_keys=True)
        groups.setdefault(key, []).append(run)
    return [Row(runs) for runs in groups.values()]


def size(number):
    return f"{number / 1e9:,.1f} GB" if number >= 1e9 else f"{number / 1e6:,.0f} MB" if number >= 1e6 else f"{number / 1e3:,.0f} KB"
