"""Checkpoints of `tersegrad train`: what --resume refuses, what --checkpoint may name, and what a killed run leaves behind.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

PROGRAM = str(pathlib.Path(os.environ.get("TERSEGRAD", "build/release/tersegrad")).resolve())
SMALL = ["train", "--model", "mlp", "--data", "glyphs", "--batch", "8", "--recipe", "ef+topk@0.05", "--workers", "2", "--steps", "4"]


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.checkpoint, self.log = self.path / "run.ck", self.path / "run.jsonl"
        self.files = ["--checkpoint", self.checkpoint]

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
        text = self.path / "some.txt"
        letters = bytes(range(97, 117)) * 200
        line = ["train", "--model", "charlstm", "--data", f"text:{text}", "--batch", 2, "--recipe", "dense", "--workers", 2, "--steps", 2,
                *self.files, "--resume"]
        text.write_bytes(letters)
        self.works(*line)
        for changed, which in ((b"?" + letters[1:], "training"), (letters[:-1] + b"?", "test")):
            text.write_bytes(changed)
            self.refuse(rf"cannot go on from {self.checkpoint}: it was saved by a run with {which}-data hash [0-9a-f]{{16}}, and this one "
                        r"has hash [0-9a-f]{16}; give the same data to go on with it$", *line)
        text.write_bytes(letters)
        self.works(*line)


if __name__ == "__main__":
    unittest.main()
