#!/usr/bin/env python3
"""Golden frames: those of tests/golden are made and decoded to the last bit, those of tests/golden-errors refused.

Needs NumPy. The program is build/release/tersegrad unless the environment variable TERSEGRAD names another. Where it is
slow, GOLDEN_THREADS=1 has it run with that many threads alone, and GOLDEN_EVERY=4 on every fourth frame alone.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "release" / "tersegrad"))
ERRORS = ROOT / "tests" / "golden-errors"
THREADS = [int(number) for number in os.environ.get("GOLDEN_THREADS", "1,3").split(",")]
EVERY = int(os.environ.get("GOLDEN_EVERY", "1"))

sys.path.insert(0, str(ROOT / "tests" / "golden"))
import golden  # noqa: E402
import tersegrad_ref as ref  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tersegrad-test-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)


class Golden(Case):
    def check_outputs(self, row, arrays):
        self.assertEqual([name for name, _ in arrays], [entry["name"] for entry in row["outputs"]])
        for entry, (name, array) in zip(row["outputs"], arrays):
            self.assertEqual((array.dtype, list(array.shape)), (golden.DTYPES[entry["dtype"]], entry["shape"]), name)
            if "file" in entry:
                self.assertEqual(array.tobytes(), golden.stored(entry["file"]).tobytes(), name)
            else:
                self.assertEqual(golden.digest(array), entry["sha256"], name)

    def test_encoding_gives_the_same_bytes(self):
        for row in golden.rows()[::EVERY]:
            tensors = [(entry["name"], golden.input_of(entry)) for entry in row["inputs"]]
            for threads in THREADS:
                with self.subTest(frame=row["name"], threads=threads):
                    frame = golden.encode(PROGRAM, self.dir, row, tensors, threads)
                    if row.get("decode_only"):
                        self.check_outputs(row, ref.decode(frame)[1])
                    else:
                        self.assertTrue(frame == golden.frame_of(row))

    def test_the_program_decodes_the_same_bits(self):
        for row in golden.rows()[::EVERY]:
            for threads in THREADS:
                with self.subTest(frame=row["name"], threads=threads):
                    self.check_outputs(row, golden.decode(PROGRAM, self.dir, golden.frame_of(row), threads))

    def test_the_reference_decodes_the_same_bits(self):
        for row in golden.rows():
            with self.subTest(frame=row["name"]):
                info, arrays = ref.decode(golden.frame_of(row))
                self.assertEqual(info["recipes"], row["canonical"])
                self.check_outputs(row, arrays)

    def test_every_part_and_mode_is_there(self):
        """A part that is added later must come with a golden frame."""
        listed = json.loads(subprocess.run([PROGRAM, "recipes", "--json"], capture_output=True, check=True).stdout)
        stages = ("feedback", "select", "quantize", "pack (indices)", "pack (symbols)")
        there, modes = set(), set()
        for row in golden.rows():
            frame = golden.frame_of(row)
            _, _, recipes, _ = golden.opened(frame)
            for recipe in recipes:
                text = len(recipe.text).to_bytes(2, "little") + recipe.text.encode()
                at = frame.index(text) + len(text)
                there.update(zip(stages, frame[at:at + 5]))
            self.assertEqual(golden.modes_of(frame), row["modes"], row["name"])
            modes.update(row["modes"])
        listed = [part for part in listed["parts"] if part["name"] not in ("lowrank", "autoencoder")]  # never in a frame
        parts = {(part["stage"], part["id"]) for part in listed}
        self.assertLessEqual(parts, there)
        self.assertLessEqual({ref.BITMAP, ref.RUNS, ref.EVERY, ref.PLACES8, ref.PLACES16, ref.GEOMETRIC}, modes)
        self.assertGreaterEqual(len([mode for mode in modes if mode <= ref.MAX_RICE]), 8)


class Errors(Case):
    manifest = json.loads((ERRORS / "manifest.json").read_text(encoding="utf-8"))

    def run_program(self, *arguments):
        done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, timeout=golden.TIMEOUT)
        return done.returncode, done.stdout, done.stderr.decode("utf-8", "backslashreplace")

    def test_the_program_refuses(self):
        for row in self.manifest["bad"]:
            for command in (("inspect", ERRORS / row["file"]), ("decode", ERRORS / row["file"], self.dir / "out")):
                with self.subTest(frame=row["file"], rule=row["rule"], command=command[0]):
                    code, out, err = self.run_program(*command)
                    self.assertEqual((code, out, len(err.splitlines())), (1, b"", 1), err)
                    self.assertTrue(err.startswith("tersegrad: "), err)
                    self.assertIn(row["program"], err.partition(".tg: ")[2])
                    self.assertEqual(list(self.dir.iterdir()), [])

    def test_the_reference_refuses(self):
        for row in self.manifest["bad"]:
            with self.subTest(frame=row["file"], rule=row["rule"]):
                with self.assertRaises(ref.FormatError) as caught:
                    ref.decode((ERRORS / row["file"]).read_bytes())
                self.assertNotIsInstance(caught.exception, ref.Unsupported)
                self.assertIn(row["reference"], str(caught.exception))

    def test_odd_frames_are_read(self):
        for row in self.manifest["good"]:
            with self.subTest(frame=row["file"], about=row["about"]):
                frame = (ERRORS / row["file"]).read_bytes()
                code, out, err = self.run_program("inspect", "--json", ERRORS / row["file"])
                self.assertEqual((code, err), (0, ""))
                self.assertEqual(json.loads(out)["tensors"], len(row["tensors"]))
                self.assertEqual(golden.names_of(frame), list(row["tensors"]))
                if row.get("beyond_numpy"):
                    self.check_bytes(frame, row)
                else:
                    self.check_decoders(frame, row)

    def check_decoders(self, frame, row):
        _, theirs = ref.decode(frame)
        self.assertEqual({name: golden.digest(array) for name, array in theirs}, row["tensors"])
        for (name, array), (_, other) in zip(golden.decode(PROGRAM, self.dir, frame), theirs):
            if other.dtype == np.uint16:  # bf16, which the program writes as fp32
                other = (other.astype(np.uint32) << np.uint32(16)).view(np.float32)
            self.assertEqual((array.dtype, array.shape, array.tobytes()), (other.dtype, other.shape, other.tobytes()))

    def check_bytes(self, frame, row):
        """A shape that np.load and the reference decoder do not support; the elements are compared all the same."""
        with contextlib.suppress(ref.Unsupported):
            ref.decode(frame)
        (self.dir / "x.tg").write_bytes(frame)
        golden.works(PROGRAM, "decode", self.dir / "x.tg", self.dir / "out")
        raw = (self.dir / "out").read_bytes()
        elements = raw[10 + int.from_bytes(raw[8:10], "little"):]
        self.assertEqual([hashlib.sha256(elements).hexdigest()], list(row["tensors"].values()))

    def test_the_folder_is_what_its_script_makes(self):
        done = subprocess.run([sys.executable, ERRORS / "make.py", "--check"], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
