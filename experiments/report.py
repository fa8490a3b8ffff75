#!/usr/bin/env python3
"""Tables of docs/results.md and README.md and plots under docs/images, made from what experiments/kept holds. Runs no training.

    experiments/report.py [--kept FOLDER] [--page FILE] [--readme FILE] [--images FOLDER]

The section of a grid stands between <!-- GRID --> and <!-- end -->; that of the first table is made ahead of the page's first section if
it is not there.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import claims
from plots import plot
from rows import difference, read, spread
from settings import DEFAULTS
from tables import put_table

HEADING = "## Schemes in one setting: ResNet-18 on CIFAR-10"


# ---- the first table ---------------------------------------------------------------------------------------------------

def table(rows):
    yield "| recipe | local steps, learning rate | exchange | seeds | test accuracy, % | against dense, points | sent by a worker, whole run | ratio | frame ratio |"
    yield "|---|---|---|---|---|---|---|---|---|"
    dense = dense_of(rows)
    for row in sorted(rows, key=lambda row: row.ratio or 0):
        recipe, more = row.name()
        yield (f"| `{recipe}` | {more} | {row.exchange} | {', '.join(map(str, row.seeds))} | {row.accuracy_cell()} | {difference(row, dense)} | "
               f"{' | '.join(row.byte_cells())} |")


def dense_of(rows):
    """Dense training at the common rate, if there is any at that."""
    dense = [row for row in rows if row.settings["recipe"] == "dense" and not row.is_local]
    return min(dense, key=lambda row: row.settings["rate"] != DEFAULTS["rate"], default=None)


def section(rows):
    runs = [run for row in rows for run in row.runs]
    s, versions = runs[0]["settings"], runs[0]["versions"]
    dates = sorted({run["date"] for run in runs})
    seeds = sorted({run["settings"]["seed"] for run in runs})
    epochs = sorted({row.settings["epochs"] for row in rows}, reverse=True)
    yield HEADING
    yield ""
    yield (f"All 50,000 training images and all 10,000 test images, {runs[0]['parameters']:,} parameters, {s['workers']} workers × batch "
           f"{s['batch']}, SGD with Nesterov momentum {s['momentum']} after averaging, weight decay {s['decay']:g}, learning rate {s['rate']} with a "
           f"warm-up of {s['warmup_epochs']:g} epochs and a cosine to 0, random crops and flips, bf16 autocast. The workers share one "
           f"{versions['device']}. Each keeps its own batch-norm statistics, which are averaged for the test. Every gradient passes "
           "through the library's frames and residuals (`tersegrad.torch.Workers`). Nothing was tuned for any one recipe; "
           "a row with another learning rate says so. Accuracy is that of the last epoch.")
    yield ""
    yield (f"Seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
           + ("; with one seed, differences below half a point are not resolved" if min(len(row.runs) for row in rows) == 1 else "")
           + f". {' to '.join(sorted({dates[0], dates[-1]}))}, PyTorch {versions['torch']}, tersegrad {versions['tersegrad']}: "
           "`TG_DATA=DIR experiments/grid.py resnet18 local --jobs 5 --mps`. Every run with its settings, its curve and its byte counts is a line "
           "of `experiments/kept/resnet18.jsonl`, or of `local.jsonl` if it has local steps.")
    yield ""
    yield ("*Ratio* is what an uncompressed ring all-reduce sends, over what a worker sent by the exchange's own meter, headers "
           f"and all steps included. By `gather` each of {s['workers']} workers sends its frame to {s['workers'] - 1} others. *Frame ratio* "
           "is the size of the fp32 gradient over that of the one frame that a worker makes of it, which is closest to what papers report"
           + (f"; by `gather` it is {s['workers'] / 2:g} times the ratio" if s["workers"] != 2 else "") + ". With local steps both also "
           "count the steps without an exchange.")
    shares = [run["exposed"] / run["seconds"] for run in runs if run.get("exposed") and run.get("codec", "host") == "host"]
    if shares:
        on_gpu = sum(run.get("codec") == "device" for run in runs)
        yield ""
        where = "the CPU" if not on_gpu else f"the CPU in {len(runs) - on_gpu} of {len(runs)} runs and on the GPU in the others"
        yield (f"These runs measure accuracy and bytes, not speed: several trainings shared the device and the host. The codec ran on {where}; "
               f"the bits are the same. With the codec on the CPU, a training spent {100 * min(shares):.0f}% to {100 * max(shares):.0f}% of its time waiting for the exchange, dense included.")
    for count in epochs:
        yield ""
        yield f"### {count} epochs"
        yield ""
        yield from table([row for row in rows if row.settings["epochs"] == count])
    yield ""
    yield "![Test accuracy against bytes that a worker sends per step](images/frontier.svg)"
    yield ""


# ---- other tables ------------------------------------------------------------------------------------------------------

def eight_workers(rows):
    yield "### Eight workers"
    yield ""
    yield "Eight workers × batch 32, all else as in the first table. *Against dense* compares with the mean of dense with eight workers."
    yield ""
    yield from table(rows)
    yield ""


def narrow(rows):
    s, run = rows[0].settings, rows[0].runs[0]
    yield "## Another width"
    yield ""
    yield (f"ResNet-18 with a quarter of the channels ({run['parameters']:,} parameters), {s['epochs']} epochs on a CPU, all else as in the first "
           "table. `enough=0`: LGC whose code is never used, so that all workers' values at the leader's coordinates are sent, after the same dense "
           "steps. `TG_DATA=DIR experiments/grid.py narrow`:")
    yield ""
    yield from table(rows)
    yield ""


def loss_to(row, other):
    if other is None or row is other or row.loss is None or other.loss is None:
        return ""
    return f"{100 * (row.loss / other.loss - 1):+.2f}"


def language(rows):
    """Loss beside uncompressed local steps of the same length, and beside an exchange in every step."""
    yield "## Language models with local steps"
    yield ""
    yield ("The text of Shakespeare's plays by characters; the last tenth is the test part. Workers take H steps with AdamW, then average how far "
           "their weights moved. *Ratio* counts all steps. The loss is that of the last epoch. *Against dense frames* compares with uncompressed "
           "frames at the same H and learning rate, *against dense in every step* with uncompressed gradients in every step at their best rate. "
           "*Closed*: after the last round, one exchange of what residuals still hold. Rows of `terse` sent norms and biases in fp16. `TG_DATA=DIR experiments/grid.py text`:")
    yield ""
    for model in dict.fromkeys(row.settings["model"] for row in rows):
        own = [row for row in rows if row.settings["model"] == model]
        s, run = own[0].settings, own[0].runs[0]
        yield (f"`{model}`: {run['parameters']:,} parameters, {s['workers']} workers × batch {s['batch']} × {s['length']} characters, "
               f"{run['steps']:,} steps, AdamW inside (weight decay {s['decay']:g}, dropout {s['dropout']:g}), a cosine to 0.")
        yield ""
        yield ("| recipe | H | rate | exchange | seeds | test loss | against dense frames, % | against dense in every step, % | "
               "sent by a worker, whole run | ratio | frame ratio |")
        yield "|---|---|---|---|---|---|---|---|---|---|---|"
        dense = [row for row in own if row.settings["recipe"] == "dense" and not row.outside() and row.losses]
        every_step = min((row for row in dense if row.settings["local_steps"] == 1), key=lambda row: row.loss, default=None)
        for row in sorted(own, key=lambda row: (schedule_key(row), row.settings["rate"], row.ratio or 0)):
            h, rate = row.settings["local_steps"], row.settings["rate"]
            same = next((each for each in dense if (each.settings["local_steps"], each.settings["rate"]) == (h, rate)), None)
            loss = spread(row.losses, 4) if row.losses else "diverged"
            recipe = ", ".join([f"`{row.recipe()}`", *row.outside()])
            yield (f"| {recipe} | {h} | {rate:g} | {row.exchange} | {', '.join(map(str, row.seeds))} | {loss} | {loss_to(row, same)} | "
                   f"{loss_to(row, every_step)} | {' | '.join(row.byte_cells())} |")
        yield ""


def sharded(rows):
    """Loss of FSDP2 with compressed reduce-scatters beside PyTorch's own."""
    s, run = rows[0].settings, rows[0].runs[0]
    yield "## Sharded training"
    yield ""
    yield (f"A GPT of {run['parameters']:,} parameters on the text of Shakespeare's plays, sharded by PyTorch's FSDP2 among {s['workers']} ranks on one "
           f"{run['versions']['device']}, over NCCL; batch {s['batch']} × {s['length']} characters a rank, {run['steps']:,} steps, AdamW (rate "
           f"{s['rate']:g}, weight decay {s['decay']:g}, dropout {s['dropout']:g}), a cosine to 0. `dense` is PyTorch's own reduce-scatter in fp32; "
           f"*sent* counts reduce-scatters alone. Means of seeds ± half the distance from best to worst. PyTorch {run['versions']['torch']}, "
           f"{run['date']}. `TG_DATA=DIR experiments/sharded.py`:")
    yield ""
    yield "| recipe | seeds | test loss | of each seed | against dense, % | sent by a rank, whole run | ratio to fp32 | of a bf16 ring |"
    yield "|---|---|---|---|---|---|---|---|"
    dense = dense_of(rows)
    for row in sorted(rows, key=lambda row: row.ratio or 0):
        losses = ", ".join(f"{run['test_loss']:.4f}" for run in sorted(row.runs, key=lambda run: run["settings"]["seed"]))
        sent, ratio, _ = row.byte_cells()
        yield (f"| `{row.settings['recipe']}` | {', '.join(map(str, row.seeds))} | {spread(row.losses, 4)} | {losses} | {loss_to(row, dense)} | {sent} | "
               f"{ratio} | {2 / row.ratio:.3f} |")
    yield ""


def schedule_key(row):
    return int(str(row.settings["local_steps"]).split(",")[0].split(":")[-1])


def small(rows):
    """AdaComp beside dense of the same model and optimizer."""
    yield "## AdaComp on images, speech and text"
    yield ""
    yield ("By `gather` every worker gets the frames of all others. By `shard` the owner of a slice averages it and selects from the average a "
           "second time. *Moves exchanged*: each worker first takes its step with AdamW, and exchanges how far its weights moved. "
           "*Rare elements corrected*: an element of the average that comes after T steps of 0 counts as T equal ones in Adam's second moment "
           "(`experiments/optimizers.py`). "
           "`TG_DATA=DIR experiments/grid.py adacomp`, on a CPU:")
    yield ""
    yield ("| data, model | parameters | workers | optimizer | recipe | exchange | seeds | test accuracy, % | against dense, points | "
           "test loss | sent by a worker, whole run | ratio | frame ratio |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for row in sorted(rows, key=lambda row: [str(row.settings[n]) for n in ("data", "model")] + [row.settings["optimizer"] != "sgd", row.ratio or 0]):
        s = row.settings
        same = ("data", "model", "optimizer", "rate", "workers", "epochs")
        dense = next((each for each in rows if each.settings["recipe"] == "dense" and all(each.settings[n] == s[n] for n in same)), None)
        optimizer = f"{'SGD' if s['optimizer'] == 'sgd' else 'AdamW'}, {s['rate']:g}" 
        optimizer += (", moves exchanged" if row.is_local else "") + (", rare elements corrected" if s["rare"] else "")
        yield (f"| {s['data']}, `{s['model']}` | {row.runs[0]['parameters']:,} | {s['workers']} | {optimizer} | `{s['recipe']}` | {row.exchange} | "
               f"{', '.join(map(str, row.seeds))} | {row.accuracy_cell()} | {difference(row, dense)} | "
               f"{'' if row.loss is None else f'{row.loss:.3f}'} | {' | '.join(row.byte_cells())} |")
    yield ""


def learned(rows):
    """LGC beside dense and top-k of the same model."""
    yield "## LGC, complete trainings"
    yield ""
    yield ("0.1% of the values of each tensor. `coords=shared`: all workers send the values at a leader's coordinates, as LGC does, without a code. "
           "*Last epoch*: the ratio in that epoch alone, without LGC's first 500 steps, which are nearly dense. On CamVid the measure is the mean "
           "intersection over union of 11 classes. `TG_DATA=DIR experiments/grid.py lgc`:")
    yield ""
    yield ("| data, model | parameters | workers × batch | epochs | recipe | seeds | test accuracy or mean IoU, % | against dense, points | "
           "sent by a worker, whole run | ratio, whole run | ratio, last epoch |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    same = ("data", "model", "width", "workers", "epochs")
    for row in sorted(rows, key=lambda row: [str(row.settings[n]) for n in same] + [row.ratio or 0]):
        s = row.settings
        dense = next((each for each in rows if each.settings["recipe"] == "dense" and all(each.settings[n] == s[n] for n in same)), None)
        sent, ratio, _ = row.byte_cells()
        last = row.last_ratio()
        yield (f"| {s['data']}, `{s['model']}` | {row.runs[0]['parameters']:,} | {s['workers']} × {s['batch']} | {s['epochs']} | `{s['recipe']}` | "
               f"{', '.join(map(str, row.seeds))} | {row.accuracy_cell()} | {difference(row, dense)} | {sent} | {ratio} | {'' if last is None else f'{last:,.1f}'} |")
    yield ""


def times(ratio):
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def drawn(rows):
    """For the plot: the longest trainings of today's recipes, without variants that lost to the same recipe."""
    longest = max(row.settings["epochs"] for row in rows)
    return [row for row in rows if row.settings["epochs"] == longest and not row.is_earlier_terse and not row.outside()]


def short(rows):
    """For the README: what three seeds show of today's recipes."""
    yield "| recipe | local steps, learning rate | test accuracy, % | against dense, points | times fewer bytes |"
    yield "|---|---|---|---|---|"
    dense = dense_of(rows)
    for row in sorted(rows, key=lambda row: row.ratio or 0):
        if len(row.accuracies) >= 3 and not row.is_earlier_terse:
            recipe, more = row.name()
            yield f"| `{recipe}` | {more} | {row.accuracy_cell()} | {difference(row, dense)} | {times(row.ratio)} |"


# ---- the page ----------------------------------------------------------------------------------------------------------

def put_section(page, name, lines):
    """Into its place, which is made ahead of the first section if there is none."""
    text = page.read_text(encoding="utf-8")
    if f"<!-- {name} -->\n" not in text:
        before, mark_, after = text.partition("\n## ")
        page.write_text(f"{before}\n<!-- {name} -->\n<!-- end -->\n{mark_}{after}", encoding="utf-8")
    put_table(page, name, lines)


def put_all(kept, page, readme, images):
    local = read(kept / "local.jsonl")
    rows = read(kept / "resnet18.jsonl") + [row for row in local if row.settings["workers"] == 4]
    if not rows:
        print("report: nothing is kept")
        return
    put_section(page, "resnet18", list(section(rows)))
    for name, make, own in (("eight", eight_workers, [row for row in local if row.settings["workers"] == 8]),
                            ("narrow", narrow, read(kept / "narrow.jsonl")), ("text", language, read(kept / "text.jsonl")),
                            ("sharded", sharded, read(kept / "sharded.jsonl")), ("adacomp", small, read(kept / "adacomp.jsonl")),
                            ("lgc", learned, read(kept / "lgc.jsonl"))):
        if own:
            put_section(page, name, list(make(own)))
    for name, make in claims.TABLES.items():
        if own := read(kept / "claims.jsonl"):
            put_section(page, name, list(make(own)))
    longest = [row for row in rows if row.settings["epochs"] == 30]
    if readme is not None and longest:
        put_table(readme, "accuracy", list(short(longest)))
    images.mkdir(parents=True, exist_ok=True)
    (images / "frontier.svg").write_text("\n".join(plot(drawn(rows))) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description="Make tables and plots from kept results.")
    parser.add_argument("--kept", type=pathlib.Path, default=ROOT / "experiments/kept")
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/results.md")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("--images", type=pathlib.Path, default=ROOT / "docs/images")
    options = parser.parse_args()
    put_all(options.kept, options.page, options.readme, options.images)


if __name__ == "__main__":
    main()
