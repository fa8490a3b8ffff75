"""Tables of the grid `claims`: CO3's correction, quantizers at equal levels and in buckets of several sizes, random blocks at tuned rates."""

import re

from rows import difference

CO3 = re.compile(r"(?P<feedback>ef(@decay=(?P<decay>[\d.]+))?\+)?(?P<format>fp[48])(@refit=(?P<refit>\d+))?\+(?P<code>huffman|rans)")
QUANTIZER = re.compile(r"(?P<feedback>ef\+)?(?P<name>(bingrad|sign|orq|ternary|linear|qsgd)(@(?!bucket)\w+)?)([,@]bucket=(?P<bucket>\d+))?")
LEVELS = {"bingrad@b": 2, "bingrad@pb": 2, "bingrad@zero": 2, "sign": 2, "orq@3": 3, "ternary": 3, "linear@3": 3, "qsgd@1": 3,
          "orq@5": 5, "linear@5": 5, "qsgd@2": 5, "orq@9": 9, "linear@9": 9, "qsgd@4": 9}
BUCKETS = (128, 512, 2048, 8192)
ONCE = 10 ** 6  # refit: longer than any training here
SHARED = ("data", "model", "width", "limit", "workers", "batch", "epochs", "optimizer", "momentum", "rate")  # with dense beside a row


def dense_beside(row, rows):
    """The row of dense with the same model, data, optimizer and rate."""
    return next((each for each in rows if each.settings["recipe"] == "dense"
                 and all(each.settings[name] == row.settings[name] for name in SHARED)), None)


def accuracy(row, rows):
    """Test accuracy, and its distance to dense in brackets."""
    if row is None:
        return ""
    far = difference(row, dense_beside(row, rows))
    return row.accuracy_cell() + (f" ({far})" if far else "")


def loss(row):
    return "" if row is None else f"{row.train_loss:.3f}" if row.train_loss is not None else "diverged"


def by_recipe(rows, pattern, *names):
    """{(model, momentum, rate, groups of the recipe that are named): row} of the recipes that a pattern describes, in the order of the file."""
    found = {}
    for row in rows:
        match = pattern.fullmatch(row.settings["recipe"])
        if match:
            found[(row.settings["model"], row.settings["momentum"], row.settings["rate"], *(match[name] for name in names))] = row
    return found


# ---- CO3 ---------------------------------------------------------------------------------------------------------------

def co3(rows):
    """A line for each format and age of the step; three columns for no correction, a decay of 0.9 and of 1."""
    found = by_recipe(rows, CO3, "format", "refit", "feedback", "code")
    yield ("| model | SGD | format | step fitted | no correction, % | decay 0.9 | decay 1 | training loss: none | 0.9 | 1 | "
           "bits a value, `huffman`: none, 0.9, 1 | `rans` |")
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for model, momentum, rate, form, refit in sorted({key[:5] for key in found}, key=lambda key: (key[0], -key[1], -key[2], key[3], int(key[4] or 1))):
        own = [[found.get((model, momentum, rate, form, refit, feedback, code)) for feedback in (None, "ef@decay=0.9+", "ef+")]
               for code in ("huffman", "rans")]
        bits = [", ".join(f"{bits_of(row):.2f}" for row in of_code if row is not None and bits_of(row)) for of_code in own]
        age = "in every step" if refit is None else "once" if int(refit) == ONCE else f"every {refit} steps"
        yield (f"| `{model}` | {rate:g}, {f'momentum {momentum:g}' if momentum else 'no momentum'} | `{form}` | {age} | "
               + " | ".join([accuracy(row, rows) for row in own[0]] + [loss(row) for row in own[0]] + bits) + " |")


def bits_of(row):
    """Bits a value of whole frames, with seed 0: they differ from seed to seed, and `rans` has this one alone."""
    return next((32 / run["frame_ratio"] for run in row.runs if run["settings"]["seed"] == 0 and run["status"] == "finished"), None)


# ---- quantizers --------------------------------------------------------------------------------------------------------

def quantizers(rows):
    """Equal levels in buckets of 2,048, without and with feedback."""
    found = by_recipe(rows, QUANTIZER, "name", "bucket", "feedback")
    yield "| model | rate | levels | quantizer | without feedback, % | training loss | with feedback | training loss | frame ratio |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for job in sorted({key[:3] for key in found}, key=lambda job: (job[0], -job[2])):
        model, _, rate = job
        dense = dense_beside(next(row for key, row in found.items() if key[:3] == job), rows)
        if dense is not None:
            yield f"| `{model}` | {rate:g} | | `dense` | {dense.accuracy_cell()} | {loss(dense)} | | | 1.0 |"
        for name, levels in LEVELS.items():
            own = [found.get((*job, name, None, feedback)) for feedback in (None, "ef+")]
            if any(own):
                ratio = next((f"{row.frame_ratio:.1f}" for row in own if row is not None and row.frame_ratio), "")
                yield (f"| `{model}` | {rate:g} | {levels} | `{name}` | "
                       + " | ".join(cell for row in own for cell in (accuracy(row, rows), loss(row))) + f" | {ratio} |")


def buckets(rows):
    """Quantizers over sizes of buckets; how many times smaller a frame is in brackets."""
    found = by_recipe(rows, QUANTIZER, "name", "bucket", "feedback")
    yield "| quantizer | feedback | " + " | ".join(f"{size:,}" for size in BUCKETS) + " |"
    yield "|---|---|---|---|---|---|"
    for *job, name, feedback in dict.fromkeys((*key[:4], key[5]) for key in found if key[4] is not None):
        own = [found.get((*job, name, None if size == 2048 else str(size), feedback)) for size in BUCKETS]
        yield (f"| `{name}` | {'yes' if feedback else 'no'} | "
               + " | ".join("" if row is None else row.accuracy_cell() + (f" ({row.frame_ratio:.1f}×)" if row.frame_ratio else "") for row in own) + " |")


# ---- random blocks -----------------------------------------------------------------------------------------------------

def blocks(rows):
    """Training losses of seed 0 at every rate, and all seeds at the best of them."""
    sparse = [row for row in rows if re.search("random|topk", row.settings["recipe"])]
    names = ("data", "model", "momentum", "epochs")
    jobs = dict.fromkeys(tuple(row.settings[name] for name in names) for row in sparse)
    rates = sorted({row.settings["rate"] for row in sparse}, reverse=True)
    dense = [row for row in rows if row.settings["recipe"] == "dense" and row.settings["rate"] in rates]
    yield ("| data, model | momentum | epochs | recipe | " + " | ".join(f"loss at {rate:g}" for rate in rates)
           + " | seeds at the best rate | test accuracy, % | training loss | ratio | frame ratio |")
    yield "|---|---|---|---|" + "---|" * (len(rates) + 5)
    for job in jobs:
        data, model, momentum, epochs = job
        own = [row for row in dense + sparse if tuple(row.settings[name] for name in names) == job]
        best = {recipe: best_rate([row for row in own if row.settings["recipe"] == recipe]) for recipe in
                dict.fromkeys(row.settings["recipe"] for row in own)}
        for recipe, chosen in best.items():
            at = {row.settings["rate"]: first_loss(row) for row in own if row.settings["recipe"] == recipe}
            cells = [("diverged" if at[rate] is None else f"**{at[rate]:.3f}**" if chosen and rate == chosen.settings["rate"] else f"{at[rate]:.3f}")
                     if rate in at else "" for rate in rates]
            if chosen is None:
                cells += [""] * 5
            else:
                far = difference(chosen, best.get("dense"))
                cells += [", ".join(map(str, chosen.seeds)), chosen.accuracy_cell() + (f" ({far})" if far else ""), loss(chosen),
                          f"{chosen.ratio:,.1f}", f"{chosen.frame_ratio:,.1f}"]
            yield f"| {data}, `{model}` | {momentum:g} | {epochs} | `{recipe}` | " + " | ".join(cells) + " |"


def first_loss(row):
    """Training loss of seed 0 in the last epoch; None if it diverged."""
    return next((run["curve"][-1]["train_loss"] for run in row.runs if run["settings"]["seed"] == 0 and run["status"] == "finished"), None)


def best_rate(rows):
    """The row whose seed 0 has the least training loss; None if all diverged."""
    return min((row for row in rows if first_loss(row) is not None), key=first_loss, default=None)


TABLES = {"claims-co3": co3, "claims-quantizers": quantizers, "claims-buckets": buckets, "claims-blocks": blocks}
