"""Checkpoints of `tersegrad train`: what --resume refuses, what --checkpoint may name, and what a killed run leaves behind.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import fcntl
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(os.environ.get("TERSEGRAD", "build/release/tersegrad")).resolve())
LETTERS = bytes(range(97, 117)) * 200


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.checkpoint, self.log = self.path / "run.ck", self.path / "run.jsonl"
        self.files = ["--checkpoint", self.checkpoint]
        data = tempfile.NamedTemporaryFile()  # a text, because it is read faster than images are drawn
        self.addCleanup(data.close)
        data.write(LETTERS)
        data.flush()
        self.text = pathlib.Path(data.name)
        self.endless = ["train", "--model", "charlstm", "--data", f"text:{data.name}", "--batch", "2", "--recipe", "ef+topk@0.05", "--workers",
                        "2"]
        self.small = [*self.endless, "--steps", "2"]

    def works(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refuse(self, words, *arguments):
        """Exit status 1, one sentence with these words, and every file as it was."""
        def content():
            return {p.name: p.read_bytes() for p in self.path.iterdir() if p.is_file() and not p.is_symlink()}
        before = content()
        done = run(*arguments)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, words)
        self.assertEqual(content(), before)


class Data(Case):
    def test_other_data_is_refused(self):
        line = [*self.small, *self.files, "--resume"]
        self.works(*line)
        for changed, which in ((b"?" + LETTERS[1:], "training"), (LETTERS[:-1] + b"?", "test")):
            self.text.write_bytes(changed)
            self.refuse(rf"cannot go on from {self.checkpoint}: it was saved by a run with {which}-data hash [0-9a-f]{{16}}, and this one "
                        r"has hash [0-9a-f]{16}; give the same data to go on with it$", *line)
        self.text.write_bytes(LETTERS)
        self.works(*line)


class Place(Case):
    def test_other_commands_refuse_a_loop_of_links(self):
        page = self.path / "page.html"
        page.symlink_to("page.html")
        done = run("compare", "--model", "mlp", "--data", "glyphs", "--batch", 8, "--workers", 2, "--steps", 2, "--recipes", "dense", "--page",
                   page)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"cannot write {page}: Too many levels of symbolic links", done.stderr)
        self.assertTrue(page.is_symlink())


if __name__ == "__main__":
    unittest.main()
