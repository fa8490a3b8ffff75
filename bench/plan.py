#!/usr/bin/env python3
"""Predicts steps with `tersegrad plan`, then measures them with bench_links, hosts being network namespaces (bench/netns).

    bench/plan.py [--set first|fresh] [--limit SECONDS] [--only TEXT] [--list]

There are two sets of settings. How plan treats shared cores was found on the first. The fresh set has other rates, models and recipes, and
nothing was fitted to it.

Every host stays on its share of the cores (netns --pin). With as many cores as ranks, ranks compute on them (CPU time). With fewer, hosts
share cores, as those of a real cluster never do: there computing is a timed wait, as if an accelerator computed, and plan is told so
(--compute-on device); codecs, sums and messages still share the cores, and plan is told how many a host has (--cores, a fraction).

For each network (hosts, ranks of a host, rate) `tersegrad probe` measures it first. Then, for each setting on it, the step is
predicted and kept, and measured afterwards. Rows are kept in build/plan/SET, one file a setting, so that a run may be stopped and
continued; --limit ends one after so many seconds, at the next setting. When all rows are there, writes them to bench/results and the set's
table in bench/README.md. Prints predicted and measured steps, how many are within 15%, how often "pays or not" against a bf16 all-reduce
was right, and the misses.

Needs root and a machine without other work: what is measured while other processes use the cores is measured again. Build first:
    cmake --preset openmpi && cmake --build build/openmpi --target tersegrad bench_links
"""

import argparse
import csv
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import time

from tables import put_table

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/openmpi"
PAGE = ROOT / "bench/README.md"
CLOSE = 0.15
LONGEST = 200  # seconds of a command
EAGER = str(16 << 20)  # bytes
MARGIN = 0.05  # steps that are closer than this are neither a gain nor a loss
BUSY = 0.04  # cores that other work may take during a measurement
PATIENCE = 4  # times that one is repeated for that
COMPUTE = {"lenet": 10, "small": 20, "gpt": 100, "resnet20": 15, "mlp": 25, "resnet50": 150}  # milliseconds of one core
GROUP = {"lenet": 65536, "small": 524288, "gpt": 4000000, "resnet20": 131072, "mlp": 524288, "resnet50": 8000000}  # bytes
COLUMNS = ("setting", "model", "hosts", "ranks", "rate", "mode", "recipe", "predicted_ms", "measured_ms", "ratio", "predicted_bytes",
           "measured_bytes")


@dataclasses.dataclass(frozen=True)
class Set:
    name: str
    recipes: tuple
    settings: tuple  # of (model, hosts, ranks of a host, rate, mode)

    @property
    def kept(self):
        return ROOT / "build/plan" / self.name

    @property
    def title(self):
        """Of its table and of its file of results."""
        return "plan" if self.name == "first" else f"plan-{self.name}"


def first():
    found = []
    for hosts in (2, 4, 8):
        for rate in ("10mbit", "100mbit", "1gbit", "10gbit"):
            for mode in ("flat", "overlap"):
                found += [("lenet", hosts, 1, rate, mode), ("small", hosts, 1, rate, mode)]
                if rate in ("1gbit", "10gbit") or (rate == "100mbit" and hosts == 2):
                    found.append(("gpt", hosts, 1, rate, mode))
    for hosts in (2, 4):
        for rate in ("100mbit", "1gbit"):
            found += [("lenet", hosts, 2, rate, "hosts"), ("small", hosts, 2, rate, "hosts")]
        found.append(("gpt", hosts, 2, "1gbit", "hosts"))
    return Set("first", ("ef+topk@0.01", "terngrad"), tuple(found))


def fresh():
    found = []
    for hosts, rate in ((2, "30mbit"), (2, "300mbit"), (2, "2gbit"), (4, "300mbit"), (4, "5gbit"), (8, "300mbit")):
        for mode in ("flat", "overlap"):
            found += [("resnet20", hosts, 1, rate, mode), ("mlp", hosts, 1, rate, mode)]
            if (hosts, rate) == (2, "2gbit"):
                found.append(("resnet50", hosts, 1, rate, mode))
    for hosts, rate in ((2, "300mbit"), (4, "2gbit")):
        found += [("resnet20", hosts, 2, rate, "hosts"), ("mlp", hosts, 2, rate, "hosts")]
    return Set("fresh", ("adacomp", "orq@3", "random-block", "powersgd"), tuple(found))


SETS = {own.name: own for own in (first(), fresh())}


class Failure(Exception):
    pass


def run(*command, environment=None):
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        out, said = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired as error:
        process.terminate()  # netns then removes what it has made
        process.communicate()
        raise Failure(f"{' '.join(words)}: not done after {LONGEST} s") from error
    if process.returncode != 0:
        raise Failure(f"{' '.join(words)}: {(said or out).strip()[-500:]}")
    return out


def netns(hosts, ranks, rate, *command):
    # Ranks that wait for messages leave the cores to those that work: there are fewer cores than ranks. MPI sends even large messages
    # without asking the receiver first: on slow links its own all-reduces would else take once or twice the time of their bytes, at random.
    # Nor are packets lost, which a plan does not predict.
    environment = dict(os.environ, OMPI_MCA_mpi_yield_when_idle="1", OMPI_MCA_btl_tcp_eager_limit=EAGER, OMPI_MCA_btl_tcp_max_send_size=EAGER)
    return run(ROOT / "bench/netns", "--hosts", hosts, "--ranks", ranks, "--rate", rate, "--lossless", "--pin", "--quiet", "--", *command,
               environment=environment)


# ---- measured inputs -------------------------------------------------------------------------------------------------

def probe(path, by, *flags):
    """A probe's file, which bears its name only if no other work disturbed the measurement."""
    if not path.exists():
        disturbed = path.with_suffix(".disturbed")
        alone(by, BUILD / "tersegrad", "probe", *flags, disturbed)
        disturbed.rename(path)
    return path


def machine(own):
    gradient = own.kept / "gradient.npy"
    if not gradient.exists():
        for model in sorted({setting[0] for setting in own.settings}):
            run(BUILD / "bench_links", "describe", model, own.kept / f"{model}.json", gradient)
    return probe(own.kept / "machine.json", run, "--recipes", ";".join(own.recipes), "--input", gradient, "--seconds", 0.4)


def network(own, hosts, ranks, rate):
    def on_hosts(*command):
        return netns(hosts, ranks, rate, *command)
    return probe(own.kept / f"network-{hosts}x{ranks}-{rate}.json", on_hosts, "--probe", machine(own), "--seconds", 0.08)


# ---- one setting -----------------------------------------------------------------------------------------------------

def compute_on(setting):
    """Where ranks are more than cores, a device computes, and cores are left to codecs and messages."""
    return "device" if setting[1] * setting[2] > os.cpu_count() else "host"


def predict(own, setting):
    model, hosts, ranks, rate, mode = setting
    told = json.loads(run(
        BUILD / "tersegrad", "plan", "--probe", network(own, hosts, ranks, rate), "--shapes", own.kept / f"{model}.json", "--compute",
        f"{COMPUTE[model]}ms", "--backward", f"{COMPUTE[model]}ms", "--compute-on", compute_on(setting), "--cores",
        os.cpu_count() / hosts, "--group-size", GROUP[model], "--recipes", ";".join(own.recipes), "--json"))
    key = {"flat": "step_ms", "overlap": "step_overlapped_ms", "hosts": "step_hosts_ms"}[mode]
    plain = told["bf16"]["step_ms" if mode == "flat" else "step_overlapped_ms"]
    found = {"mpi:bf16": {"ms": plain, "bytes": told["bf16"]["bytes"]}}
    for row in told["recipes"]:
        found[row["recipe"]] = {"ms": row[key], "bytes": row["hosts_bytes" if mode == "hosts" else "bytes"]}
    return found


def measure(own, setting, expected):
    model, hosts, ranks, rate, mode = setting
    longest = max(row["ms"] for row in expected.values())
    steps = max(3, min(15, int(1800 / longest)))
    flags = ["--compute", COMPUTE[model], "--compute-on", compute_on(setting), "--warm", 1 if longest > 1000 else 3]
    flags += [] if mode == "flat" else ["--group", GROUP[model]]
    flags += ["--hosts", ranks] if mode == "hosts" else []
    lines = netns(hosts, ranks, rate, BUILD / "bench_links", *flags, model, steps, "mpi:bf16", *own.recipes).splitlines()
    return {row["recipe"]: {"ms": row["median_ms"], "bytes": row["meter_bytes"]} for row in map(json.loads, lines)}


def others():
    """CPU seconds of each process and of those it has started that have ended. Not of this one, of the first, which inherits ranks, and
    of the kernel's, which are busy with the network."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(path.parent.name) not in (1, os.getpid()) and fields[1] != "2":
            found[path.parent.name, fields[19]] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return found


def alone(measurement, *arguments):
    """A measurement, and again as often as other processes have used the cores meanwhile: those that were there before."""
    for _ in range(PATIENCE):
        before, begin = others(), time.monotonic()
        found = measurement(*arguments)
        after, spent = others(), time.monotonic() - begin
        used = sum(after[who] - before[who] for who in before if who in after)
        if used <= BUSY * spent:
            return found
        print(f"plan: other processes took {used / spent:.2f} cores; once more", file=sys.stderr, flush=True)
    raise Failure("the machine has other work")


def name_of(setting):
    model, hosts, ranks, rate, mode = setting
    return f"{model}-{hosts}x{ranks}-{rate}-{mode}"


def kept(own, setting):
    """A setting's prediction is on the disk before it is measured."""
    path = own.kept / f"{name_of(setting)}.json"
    row = json.loads(path.read_text()) if path.exists() else {"predicted": predict(own, setting)}
    if "measured" not in row:
        path.write_text(json.dumps(row))
        row["measured"] = alone(measure, own, setting, row["predicted"])
        path.write_text(json.dumps(row))
    return row


# ---- all -------------------------------------------------------------------------------------------------------------

def table(rows):
    for setting, row in rows:
        for recipe, told in row["predicted"].items():
            measured = row["measured"][recipe]
            yield dict(zip(COLUMNS, (name_of(setting), *setting[:5], recipe, round(told["ms"], 3), round(measured["ms"], 3),
                                     round(told["ms"] / measured["ms"], 3), round(told["bytes"]), round(measured["bytes"]))))


def verdict(row, recipe, which):
    """1: pays, -1: does not, 0: too close to tell."""
    ratio = row[which]["mpi:bf16"]["ms"] / row[which][recipe]["ms"]
    return 0 if abs(ratio - 1) < MARGIN else 1 if ratio > 1 else -1


def reason(own, row):
    """Where the difference may be from, by what can be told from the numbers."""
    crowd = row["hosts"] * row["ranks"]
    if row["recipe"] == "mpi:bf16":
        return "MPI's all-reduces took another time than those of the probe"
    rate = json.loads(network(own, row["hosts"], row["ranks"], row["rate"]).read_text())["network"]["rate"]  # bytes a second
    if row["mode"] != "hosts" and row["measured_bytes"] / row["measured_ms"] > rate / 1e3:
        return "the step's bytes went faster than those of the probe's large messages, by which the rate is set"
    if crowd > os.cpu_count():
        return f"codecs and messages of {crowd} ranks share {os.cpu_count()} cores"
    return "time of the codec or of messages"


def report(own, rows):
    lines = list(table(rows))
    misses = [line for line in lines if abs(line["ratio"] - 1) > CLOSE]
    print(f"{'setting':<28} {'recipe':<14} {'predicted ms':>12} {'measured ms':>12} {'ratio':>6}")
    for line in lines:
        print(f"{line['setting']:<28} {line['recipe']:<14} {line['predicted_ms']:>12.1f} {line['measured_ms']:>12.1f} {line['ratio']:>6.2f}"
              f"{'  *' if line in misses else ''}")
    well, all_of = right(own, rows)
    print(f"\n{len(rows)} settings, within {CLOSE:.0%}: {share(lines)}; pays or not against bf16: {well} of {all_of} right "
          f"({well / all_of:.0%}; differences below {MARGIN:.0%} count as either)")
    for line in misses:
        print(f"miss: {line['setting']} {line['recipe']}: {line['ratio']:.2f} of the measured; {reason(own, line)}")
    return lines


def share(lines):
    near = sum(abs(line["ratio"] - 1) <= CLOSE for line in lines)
    return f"{near} of {len(lines)} ({near / len(lines):.0%})"


def right(own, rows):
    """Verdicts that were right, and all. One that is too close to tell, on either side, is."""
    pairs = [(verdict(row, recipe, "predicted"), verdict(row, recipe, "measured")) for _, row in rows for recipe in own.recipes]
    return sum(told == found or 0 in (told, found) for told, found in pairs), len(pairs)


def summary(own, rows, lines):
    """A table of how many predictions were near, for bench/README.md."""
    yield f"{len(rows)} settings of {os.cpu_count()} cores, {time.strftime('%Y-%m-%d')}. Predictions within {CLOSE:.0%} of the measured step:"
    yield ""
    yield "| | " + " | ".join(["mpi:bf16", *own.recipes]) + " |"
    yield "|---" * (2 + len(own.recipes)) + "|"
    for name, mode in (("after the backward pass", "flat"), ("during it", "overlap"), ("hosts that sum first", "hosts")):
        parts = [[line for line in lines if line["mode"] == mode and line["recipe"] == recipe]
               for recipe in ("mpi:bf16", *own.recipes)]
        yield f"| {name} | " + " | ".join(map(share, parts)) + " |"
    well, all_of = right(own, rows)
    yield ""
    yield f"All together {share(lines)}; pays or not against bf16: {well} of {all_of} right ({well / all_of:.0%}), differences below {MARGIN:.0%} counting as either."
    misses = [line for line in lines if abs(line["ratio"] - 1) > CLOSE]
    if misses:
        yield ""
        yield "| miss | recipe | predicted, ms | measured, ms | ratio | reason |"
        yield "|---" * 6 + "|"
    for line in misses:
        yield (f"| {line['setting']} | `{line['recipe']}` | {line['predicted_ms']:.1f} | {line['measured_ms']:.1f} | {line['ratio']:.2f} | "
               f"{reason(own, line)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--set", choices=SETS, default="first", help="of settings [default: first]")
    parser.add_argument("--limit", type=float, default=1e9, help="end after so many seconds, at the next setting")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--list", action="store_true", help="name the settings, and end")
    options = parser.parse_args()
    own = SETS[options.set]
    chosen = [s for s in own.settings if options.only in name_of(s)]
    if options.list:
        print("\n".join(map(name_of, chosen)))
        return
    own.kept.mkdir(parents=True, exist_ok=True)
    begin, rows = time.monotonic(), []
    for setting in chosen:
        if time.monotonic() - begin > options.limit:
            break
        before = time.monotonic()
        try:
            rows.append((setting, kept(own, setting)))
            print(f"plan: {name_of(setting)}, {time.monotonic() - before:.1f} s", file=sys.stderr, flush=True)
        except Failure as failure:
            print(f"plan: {name_of(setting)} failed: {failure}", file=sys.stderr, flush=True)
    lines = report(own, rows) if rows else []
    if len(rows) == len(own.settings):
        put_table(PAGE, own.title, summary(own, rows, lines))
        with open(ROOT / f"bench/results/{own.title}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    elif not options.only:
        print(f"plan: {len(own.settings) - len(rows)} settings are left; run this again", file=sys.stderr)


if __name__ == "__main__":
    main()
