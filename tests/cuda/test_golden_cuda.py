#!/usr/bin/env python3
"""Golden frames on the GPU: the frames of tests/golden are encoded and decoded to the same bytes with --device cuda, and those of
tests/golden-errors refused.

Commands run in build/emulated/tersegrad_batch, whose kernels run on the CPU, unless the environment variable TERSEGRAD_BATCH names
another. Recipes without kernels are refused by the program; LACKING lists them, and the test fails if another one is refused.
GOLDEN_ONLY=TEXT takes frames whose names or recipes contain it, GOLDEN_EVERY=4 every fourth, JOBS=4 that many processes. With
GOLDEN_SECONDS=60 no frame is begun after a minute; frames are then in an order in which the first ones cover all recipes, short frames
first, and so all kernels.
"""

import collections
import concurrent.futures
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
BATCH = shlex.split(os.environ.get("TERSEGRAD_BATCH", str(ROOT / "build" / "emulated" / "tersegrad_batch")))
ONLY = os.environ.get("GOLDEN_ONLY", "")
EVERY = int(os.environ.get("GOLDEN_EVERY", "1"))
SECONDS = float(os.environ.get("GOLDEN_SECONDS", "inf"))
START = time.monotonic()
JOBS = int(os.environ.get("JOBS", min(os.cpu_count() or 1, 4)))
LACKING = ("zstd",)  # parts that run on the CPU alone
NO_KERNEL = "has no kernel for the GPU"

sys.path[:0] = [str(ROOT / "tests" / "golden"), str(ROOT / "tests" / "golden-errors")]
import golden  # noqa: E402
import golden_errors  # noqa: E402

LOCAL = threading.local()
PROCESSES = []
REPORTED = []  # lines of compute-sanitizer


def run(*arguments):
    """(status, what was printed) of a command, in the process of this thread."""
    if not hasattr(LOCAL, "process"):
        LOCAL.process = subprocess.Popen(BATCH, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        PROCESSES.append(LOCAL.process)
    LOCAL.process.stdin.write("\2".join(map(str, arguments)).encode() + b"\n")
    LOCAL.process.stdin.flush()
    printed = b""
    while True:
        line = LOCAL.process.stdout.readline()
        if not line:
            raise AssertionError(f"the process has ended: {printed.decode(errors='replace')}")
        if line.startswith(b"\1"):
            return int(line[1:]), printed.decode(errors="replace")
        if line.startswith(b"========="):
            REPORTED.append(line.decode(errors="replace"))
        else:
            printed += line


def covering(rows, kind_of, len_of):
    """All rows, the shortest of each kind first, then the second of each, and so on."""
    kinds = collections.defaultdict(list)
    for row in sorted(rows, key=len_of):
        kinds[kind_of(row)].append(row)
    ordered = [(number, row) for of_kind in kinds.values() for number, row in enumerate(of_kind)]
    return [row for _, row in sorted(ordered, key=lambda pair: pair[0])]


def lacks(recipes):
    return any(part in recipe for part in LACKING for recipe in recipes)


def decode(folder, frame):
    """(None, {name: array}), or (error text, None)."""
    (folder / "x.tg").write_bytes(frame)
    code, error = run("decode", "--device", "cuda", folder / "x.tg", folder / "out")
    if code != 0:
        return error, None
    names = golden.names_of(frame)
    return None, {name: np.load(folder / "out" if len(names) == 1 else folder / "out" / f"{name}.npy") for name in names}


def check_decoded(row, arrays):
    for entry in row["outputs"]:
        array = arrays[entry["name"]]
        if "file" in entry:
            expected = golden.stored(entry["file"])
            if array.dtype != expected.dtype or array.tobytes() != expected.tobytes():
                return f"decoded to other values of {entry['name']}"
        elif entry["dtype"] != "bf16" and golden.digest(array) != entry["sha256"]:
            return f"decoded to other values of {entry['name']}"
    return None


def try_row(row):
    """None: all is well; "lacking"; or what is wrong."""
    with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as name:
        folder = pathlib.Path(name)
        (folder / "in").mkdir()
        paths = [golden.save(folder / "in" / f"{entry['name']}.npy", golden.input_of(entry)) for entry in row["inputs"]]
        code, error = run("encode", "--device", "cuda", "--recipe", row["recipe"], *row["flags"], *paths,
                                 folder / "new.tg")
        if NO_KERNEL in error:
            return "lacking" if lacks(row["canonical"]) else error
        if code != 0:
            return f"encode: status {code}, {error}"
        if (folder / "new.tg").read_bytes() != golden.frame_of(row) and not row.get("decode_only"):
            return "encoded to other bytes"
        error, arrays = decode(folder, golden.frame_of(row))
        return error or check_decoded(row, arrays)


def try_bad(row):
    with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as name:
        error, _ = decode(pathlib.Path(name), golden_errors.frame_of(row))
        if error is None:
            return "was accepted"
        if NO_KERNEL in error:
            return "lacking"
        return None if error.startswith("tersegrad: ") and error.count("\n") == 1 else f"says: {error}"


class Golden(unittest.TestCase):
    def tearDown(self):
        """Processes end well; under compute-sanitizer, which reports at the end, only without errors."""
        for process in PROCESSES:
            said, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, "".join(REPORTED[:200]) + said.decode(errors="replace"))
        PROCESSES.clear()

    def for_each(self, function, rows, name_of, share):
        """With GOLDEN_SECONDS, until that share of them is over."""
        counts = collections.Counter()

        def in_time(row):
            return function(row) if time.monotonic() - START < SECONDS * share else "late"

        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            for row, outcome in zip(rows, pool.map(in_time, rows)):
                counts[outcome if outcome in ("lacking", "late") else "bad" if outcome else "good"] += 1
                with self.subTest(frame=name_of(row)):
                    self.assertIn(outcome, (None, "lacking", "late"))
        late = f", {counts['late']} not begun in {SECONDS:g} s" if counts["late"] else ""
        print(f"{len(rows)} frames: {counts['good']} good, {counts['bad']} bad, {counts['lacking']} of recipes that run on the CPU alone{late}",
              flush=True)
        self.assertGreater(counts["good"], 0)

    def test_frames(self):
        rows = [row for row in golden.rows() if ONLY in row["name"] + " " + row["recipe"]]
        rows = rows[::EVERY]
        if SECONDS < float("inf"):
            rows = covering(rows, lambda row: " ".join(row["canonical"]), lambda row: len(golden.frame_of(row)))
        self.for_each(try_row, rows, lambda row: f"{row['name']}, {row['recipe']}", 0.7)

    @unittest.skipIf(ONLY, "GOLDEN_ONLY is set")
    def test_refused_frames(self):
        rows = golden_errors.rows()["bad"][::EVERY]
        if SECONDS < float("inf"):
            rows = covering(rows, lambda row: row["rule"], lambda row: len(golden_errors.frame_of(row)))
        self.for_each(try_bad, rows, lambda row: row["file"], 1.0)


if __name__ == "__main__":
    unittest.main()
