#!/usr/bin/env python3
"""Keeps steps of DistributedDataParallel on a GPU, which tests/cuda/gpu_torch.py measures, and makes the tables of docs/pytorch.md.

    python3 tests/cuda/gpu_torch.py --limit 200 --only time,link,workers --json steps.json       on a machine with a GPU
    bench/gpu_hooks.py --of COMMIT --save --page steps.json

The time of a hook is a median. `none` and all hooks take turns, in one run.
"""

import argparse
import json
import pathlib

from tables import ROOT, commit, keep_rows, measured, put_table, read_rows

KEPT, PAGE = ROOT / "bench" / "results" / "gpu-hooks.csv", ROOT / "docs" / "pytorch.md"
COLUMNS = ("torch", "ranks", "gbit", "by", "model", "hook", "ms", "n", "sent")


def rows_of(path):
    """The rows of a run; those of Workers have the milliseconds without the exchange as the hook `none`."""
    rows = []
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        if said["kind"] == "time" and said["ms"] == said["ms"]:
            rows.append({"torch": ".".join(said["torch"].split(".")[:2]), "ranks": said["world"], "gbit": f"{said['gbit']:g}", "by": said["by"],
                         "model": said["model"], "hook": said["hook"], "ms": round(said["ms"], 2), "n": said["n"],
                         "sent": "" if said["sent"] is None else said["sent"]})
        elif said["kind"] == "workers":
            for hook, ms in (("none", said["alone_ms"]), (said["recipe"], said["ms"])):
                row = {"ranks": 1, "gbit": "0", "by": f"{said['n']} workers", "model": said["model"], "hook": hook, "ms": round(ms, 2)}
                rows += [row] if row not in rows else []
    return rows


def shown(name):
    return {"none": "none"}.get(name, f"`{name}`")


def with_share(row, rows):
    """Milliseconds, and how much more that is than without a hook."""
    none = next((other["ms"] for other in rows if other["hook"] == "none" and other["model"] == row["model"]), None)
    more = "" if none is None or row["hook"] == "none" else f" ({100 * (row['ms'] / none - 1):+.1f}%)"
    return f"{row['ms']:.1f}{more}"


def tables(rows):
    steps = [row for row in rows if "workers" not in str(row["by"])]
    hooks = list(dict.fromkeys(row["hook"] for row in steps))
    versions = ", ".join(sorted({row["torch"] for row in steps if row["torch"]}))
    yield f"One H200, PyTorch {versions}, NCCL between ranks on the same GPU over loopback sockets; {measured(rows)}."
    yield ""
    alone = [row for row in steps if row["ranks"] == 1]
    models = list(dict.fromkeys(row["model"] for row in alone))
    if alone:
        yield "Milliseconds per step with one rank, where nothing is sent, and the increase over no hook:"
        yield ""
        yield "| hook | " + " | ".join(models) + " |"
        yield "|---" * (1 + len(models)) + "|"
        for hook in hooks:
            own = [next((row for row in alone if row["hook"] == hook and row["model"] == model), None) for model in models]
            if any(own):
                yield f"| {shown(hook)} | " + " | ".join("" if row is None else with_share(row, alone) for row in own) + " |"
        yield ""
    two = [row for row in steps if row["ranks"] == 2]
    rates = sorted({row["gbit"] for row in two}, key=lambda rate: (rate == 0, rate))
    for model in dict.fromkeys(row["model"] for row in two):
        of = {(row["hook"], row["gbit"]): row for row in two if row["model"] == model}
        how = ", by a delay in `send` (tests/cuda/slow_link.c)" if any(row["by"] for row in of.values()) else ""
        yield f"{model}, two ranks, milliseconds per step at these link rates per rank{how}:"
        yield ""
        yield "| hook | bytes sent by a rank | " + " | ".join("loopback" if rate == 0 else f"{rate:g} Gbit/s" for rate in rates) + " |"
        yield "|---" * (2 + len(rates)) + "|"
        for hook in hooks:
            own = [of.get((hook, rate)) for rate in rates]
            sent = next((row["sent"] for row in own if row is not None), "")
            if any(own):
                yield (f"| {shown(hook)} | {'' if sent == '' else f'{sent:,.0f}'} | " +
                       " | ".join("" if row is None else f"{row['ms']:.1f}" for row in own) + " |")
        yield ""
    workers = [row for row in rows if "workers" in str(row["by"])]
    if workers:
        none = next(row["ms"] for row in workers if row["hook"] == "none")
        shares = [f"`{row['hook']}` {row['ms']:.1f} ms ({100 * max(0, 1 - none / row['ms']):.0f}%)" for row in workers if row["hook"] != "none"]
        yield f"`Workers`, {workers[0]['model']}, {workers[0]['by']}: the passes and the optimizer take {none:.1f} ms. With the exchange, and its share of the step: {', '.join(shares)}."
        yield ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", help="what gpu_torch.py has written")
    parser.add_argument("--of", help="the commit that was measured")
    parser.add_argument("--save", action="store_true", help=f"keep the rows in {KEPT.relative_to(ROOT)}")
    parser.add_argument("--page", action="store_true", help=f"put the tables of all kept rows into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    rows = [row for run in options.runs for row in rows_of(run)]
    if options.save:
        keep_rows(KEPT, COLUMNS, ("ranks", "gbit", "by", "model", "hook"), rows, options.of or commit())
    lines = list(tables(read_rows(KEPT))) if KEPT.exists() else []
    if options.page:
        put_table(PAGE, "gpu-hooks", lines)
    else:
        print("\n".join(lines))


if __name__ == "__main__":
    main()
