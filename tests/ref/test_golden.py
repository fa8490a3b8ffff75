#!/usr/bin/env python3
"""Golden frames: those of tests/golden are encoded and decoded to the same bits, those of tests/golden-errors refused.

Needs NumPy. The program is build/release/tersegrad unless the environment variable TERSEGRAD names another. Frames are
checked in parallel, by one worker process per CPU. For a slow program, GOLDEN_THREADS=1 runs it with that many threads
only, and GOLDEN_EVERY=4 on every fourth golden frame only.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import json
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "release" / "tersegrad"))
THREADS = [int(number) for number in os.environ.get("GOLDEN_THREADS", "1,3").split(",")]
EVERY = int(os.environ.get("GOLDEN_EVERY", "1"))

sys.path[:0] = [str(ROOT / "tests" / "golden"), str(ROOT / "tests" / "golden-errors")]
import golden  # noqa: E402
import golden_errors  # noqa: E402

import archive  # noqa: E402, in tests/ref, like the next
import tersegrad_ref as ref  # noqa: E402

CHECK = unittest.TestCase()  # its assertions, for functions that run in worker processes


def attempt(function, row):
    """(result, None) of function(row, folder), or (None, error text); the folder is empty and temporary."""
    try:
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            return function(row, pathlib.Path(folder)), None
    except Exception:
        return None, traceback.format_exc()


class Case(unittest.TestCase):
    def for_each(self, function, rows, script):
        """Results of function(row, folder), by several processes; a failure names the frame and how to extract it."""
        results = []
        context = multiprocessing.get_context("fork")  # workers share the archives, which are loaded already
        with concurrent.futures.ProcessPoolExecutor(mp_context=context) as pool:
            outcomes = pool.map(functools.partial(attempt, function), rows, chunksize=4)
            for row, (result, error) in zip(rows, outcomes):
                name = row["name"] if "name" in row else row["file"].removesuffix(".tg")
                with self.subTest(frame=name):
                    if error is not None:
                        self.fail(f"{error}'{script} extract {name} DIR' writes this frame to a folder")
                    results.append(result)
        return results

    def check_archive(self, path, frames, others):
        """The archive holds exactly what the manifest lists, and in the form that archive.py writes."""
        files = archive.load(path)
        self.assertEqual(set(files), {*frames, *others})
        self.assertEqual([name for name in frames if golden.digest(files[name]) != frames[name]], [], "other frames")
        self.assertTrue(archive.dump(files) == path.read_bytes(), "sorted, not compressed, at a fixed time")


class Archive(unittest.TestCase):
    def test_the_bytes_depend_on_the_files_only(self):
        files = {"b/2": b"two", "a": b"", "b/1": bytes(1000)}
        dumped = archive.dump(files)
        self.assertEqual(dumped, archive.dump(dict(sorted(files.items()))))
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            path = pathlib.Path(folder) / "x.zip"
            self.assertEqual(archive.load(path), {})
            archive.store(path, files)
            self.assertEqual((archive.load(path), path.read_bytes()), (files, dumped))

    def test_changes_are_found_and_additions_are_none(self):
        old = {"a": b"1", "b": b"2", "c": b"3"}
        self.assertEqual(archive.changes(old, {**old, "d": b"4"}), [])
        self.assertEqual(archive.changes(old, {"b": b"3", "c": b"3"}), ["b would change", "a would be removed"])


# ---- tests/golden ----------------------------------------------------------------------------------------------------

def check_outputs(row, arrays):
    CHECK.assertEqual([name for name, _ in arrays], [entry["name"] for entry in row["outputs"]])
    for entry, (name, array) in zip(row["outputs"], arrays):
        CHECK.assertEqual((array.dtype, list(array.shape)), (golden.DTYPES[entry["dtype"]], entry["shape"]), name)
        if "file" in entry:
            CHECK.assertEqual(array.tobytes(), golden.stored(entry["file"]).tobytes(), name)
        else:
            CHECK.assertEqual(golden.digest(array), entry["sha256"], name)


def check_encoding(row, folder):
    tensors = [(entry["name"], golden.input_of(entry)) for entry in row["inputs"]]
    for threads in THREADS:
        frame = golden.encode(PROGRAM, folder, row, tensors, threads)
        if row.get("decode_only"):
            check_outputs(row, ref.decode(frame)[1])
        else:
            CHECK.assertTrue(frame == golden.frame_of(row), f"other bytes with {threads} threads")


def check_decoding(row, folder):
    for threads in THREADS:
        check_outputs(row, golden.decode(PROGRAM, folder, golden.frame_of(row), threads))


def check_reference(row, _):
    info, arrays = ref.decode(golden.frame_of(row))
    CHECK.assertEqual(info["recipes"], row["canonical"])
    check_outputs(row, arrays)


def parts_and_modes(row, _):
    """({(stage, id)} of the parts in the frame's recipes, modes of its chunks)"""
    stages = ("feedback", "select", "quantize", "pack (indices)", "pack (symbols)")
    frame, parts = golden.frame_of(row), set()
    for recipe in golden.opened(frame)[2]:
        text = len(recipe.text).to_bytes(2, "little") + recipe.text.encode()
        at = frame.index(text) + len(text)
        parts.update(zip(stages, frame[at:at + 5]))
    modes = golden.modes_of(frame)
    CHECK.assertEqual(modes, row["modes"])
    return parts, modes


class Golden(Case):
    @classmethod
    def setUpClass(cls):
        cls.rows = golden.rows()
        golden.files()

    def of_all(self, function, rows):
        return self.for_each(function, rows, "tests/golden/golden.py")

    def test_encoding_gives_the_same_bytes(self):
        self.of_all(check_encoding, self.rows[::EVERY])

    def test_the_program_decodes_the_same_bits(self):
        self.of_all(check_decoding, self.rows[::EVERY])

    def test_the_reference_decodes_the_same_bits(self):
        self.of_all(check_reference, self.rows)

    def test_every_part_and_mode_is_there(self):
        """A part that is added later must come with a golden frame."""
        listed = json.loads(subprocess.run([PROGRAM, "recipes", "--json"], capture_output=True, check=True).stdout)
        there, modes = (set().union(*sets) for sets in zip(*self.of_all(parts_and_modes, self.rows)))
        never = ("lowrank", "autoencoder")  # in a frame
        parts = {(part["stage"], part["id"]) for part in listed["parts"] if part["name"] not in never}
        self.assertLessEqual(parts, there)
        self.assertLessEqual({ref.BITMAP, ref.RUNS, ref.EVERY, ref.PLACES8, ref.PLACES16, ref.GEOMETRIC}, modes)
        self.assertGreaterEqual(len([mode for mode in modes if mode <= ref.MAX_RICE]), 8)

    def test_the_archive_is_what_the_manifest_lists(self):
        entries = [entry.get("repeat", entry) for row in self.rows for entry in row["inputs"] + row["outputs"]]
        self.check_archive(golden.ARCHIVE, {row["frame"]: row["sha256"] for row in self.rows},
                           {entry["file"] for entry in entries if "file" in entry})

    def test_a_frame_can_be_extracted(self):
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            folder = pathlib.Path(folder)
            row = next(row for row in self.rows if row["name"] == "all-fp16")
            subprocess.run([sys.executable, golden.FOLDER / "golden.py", "extract", "all-fp16", folder / "of" / "it"],
                           check=True, capture_output=True, timeout=golden.TIMEOUT)
            self.assertEqual((folder / "of" / "it" / "all-fp16.tg").read_bytes(), golden.frame_of(row))
            for inner, entry in (("in", row["inputs"][0]), ("out", row["outputs"][0])):
                array = np.load(folder / "of" / "it" / inner / "w.npy")
                self.assertEqual(array.tobytes(), golden.stored(entry["file"]).tobytes())


# ---- tests/golden-errors ---------------------------------------------------------------------------------------------

def run_program(*arguments):
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=golden.TIMEOUT)
    return done.returncode, done.stdout, done.stderr.decode("utf-8", "backslashreplace")


def check_refusal(row, folder):
    path = folder / "x.tg"
    path.write_bytes(golden_errors.frame_of(row))
    for command in (("inspect", path), ("decode", path, folder / "out")):
        code, out, err = run_program(*command)
        CHECK.assertEqual((code, out, len(err.splitlines())), (1, b"", 1), f"{command[0]} ({row['rule']}): {err}")
        CHECK.assertTrue(err.startswith("tersegrad: "), err)
        CHECK.assertIn(row["program"], err.partition(".tg: ")[2])
        CHECK.assertEqual(list(folder.iterdir()), [path])


def check_refusal_by_reference(row, _):
    with CHECK.assertRaises(ref.FormatError, msg=row["rule"]) as caught:
        ref.decode(golden_errors.frame_of(row))
    CHECK.assertNotIsInstance(caught.exception, ref.Unsupported)
    CHECK.assertIn(row["reference"], str(caught.exception))


def check_unusual(row, folder):
    frame = golden_errors.frame_of(row)
    (folder / "x.tg").write_bytes(frame)
    code, out, err = run_program("inspect", "--json", folder / "x.tg")
    CHECK.assertEqual((code, err), (0, ""))
    CHECK.assertEqual(json.loads(out)["tensors"], len(row["tensors"]))
    CHECK.assertEqual(golden.names_of(frame), list(row["tensors"]))
    (check_bytes if row.get("beyond_numpy") else check_decoders)(row, frame, folder)


def check_decoders(row, frame, folder):
    _, theirs = ref.decode(frame)
    CHECK.assertEqual({name: golden.digest(array) for name, array in theirs}, row["tensors"])
    for (name, array), (_, other) in zip(golden.decode(PROGRAM, folder, frame), theirs):
        if other.dtype == np.uint16:  # bf16, which the program writes as fp32
            other = (other.astype(np.uint32) << np.uint32(16)).view(np.float32)
        CHECK.assertEqual((array.dtype, array.shape), (other.dtype, other.shape), name)
        CHECK.assertEqual(array.tobytes(), other.tobytes(), name)


def check_bytes(row, frame, folder):
    """For a shape that np.load and the reference decoder cannot hold: compares the elements in the file."""
    with contextlib.suppress(ref.Unsupported):
        ref.decode(frame)
    golden.works(PROGRAM, "decode", folder / "x.tg", folder / "out")
    raw = (folder / "out").read_bytes()
    elements = raw[10 + int.from_bytes(raw[8:10], "little"):]
    CHECK.assertEqual([hashlib.sha256(elements).hexdigest()], list(row["tensors"].values()))


class Errors(Case):
    @classmethod
    def setUpClass(cls):
        cls.rows = golden_errors.rows()
        golden_errors.files()

    def of_all(self, function, rows):
        return self.for_each(function, rows, "tests/golden-errors/golden_errors.py")

    def test_the_program_refuses(self):
        self.of_all(check_refusal, self.rows["bad"])

    def test_the_reference_refuses(self):
        self.of_all(check_refusal_by_reference, self.rows["bad"])

    def test_odd_frames_are_read(self):
        self.of_all(check_unusual, self.rows["good"])

    def test_the_archive_is_what_the_manifest_lists(self):
        rows = self.rows["bad"] + self.rows["good"]
        self.check_archive(golden_errors.ARCHIVE, {row["file"]: row["sha256"] for row in rows}, set())

    def test_the_archive_is_what_its_script_makes(self):
        done = subprocess.run([sys.executable, golden_errors.FOLDER / "make.py", "--check"], capture_output=True,
                              text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_a_frame_can_be_extracted(self):
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            subprocess.run([sys.executable, golden_errors.FOLDER / "golden_errors.py", "extract", "bad/magic", folder],
                           check=True, capture_output=True, timeout=golden.TIMEOUT)
            self.assertEqual((pathlib.Path(folder) / "magic.tg").read_bytes(),
                             golden_errors.frame_of({"file": "bad/magic.tg"}))


if __name__ == "__main__":
    unittest.main()
