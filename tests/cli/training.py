"""What tests of `tersegrad train` share: how it is called on `glyphs`, which the program makes itself, and kills at random moments."""

import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

PROGRAM = str(pathlib.Path(os.environ.get("TERSEGRAD", "build/release/tersegrad")).resolve())
QUICK = ["--model", "mlp", "--data", "glyphs", "--batch", "8"]


def run(*arguments, **options):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300, **options)


class Training(unittest.TestCase):
    """Has a folder for each test."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def result(self, *arguments):
        done = run("train", *QUICK, "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def refuse(self, code, words, *arguments, quick=QUICK):
        done = run("train", *quick, *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("tersegrad: "))
        self.assertIn(words, done.stderr)

    def result_after_kills(self, most, seed, *arguments):
        """Of a run that is killed at random moments, at least once and at most so many times, and resumed. Also the number of kills."""
        generator, kills = random.Random(seed), 0
        while True:
            process = subprocess.Popen([PROGRAM, "train", *QUICK, *map(str, arguments), "--json"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            try:
                out, err = process.communicate(timeout=generator.uniform(0.05, 0.9) if kills < most else 300)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
                self.assertLessEqual(kills, most)
        self.assertEqual(process.returncode, 0, err)
        self.assertGreater(kills, 0)
        return json.loads(out.splitlines()[-1]), kills
