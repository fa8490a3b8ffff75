"""What tests of the program share: how it is called, gradients, and a folder for each test.

Needs NumPy. The program is build/release/tersegrad unless the environment variable TERSEGRAD names another.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "release" / "tersegrad"))
TIMEOUT = 120

RECIPES = [
    "dense", "fp16", "bf16",
    "topk@0.1", "topk@0.1+fp16", "topk@0.3+bf16+bitmap", "topk@0.01,scope=model",
    "threshold@0.5", "threshold@0.5+fp16",
    "randomk@0.1", "randomk@0.1+bf16", "randomk@0.1,coords=shared", "randomk@0.1,coords=own+bitmap",
    "randomblock@0.1", "randomblock@0.1,coords=shared+fp16", "randomblock@0.1,coords=own",
    "ef+topk@0.05", "ef@decay=0.9+randomblock@0.1+fp16", "ef+fp16", "ef-topk@0.02",
    "adacomp", "adacomp@20+adacomp8", "ef+adabins@7+fp16", "topk@0.1+sign", "ef+sign", "orq@9", "ef+bingrad@b", "terngrad",
    "onebit", "topk@0.1+qsgd@4", "natural", "dgc@0.1", "signsgd",
]


def run(*arguments, **keywords):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT,
                          **keywords)


def gradient(n, dtype=np.float32, seed=1):
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(n) * 0.1 / (0.05 + generator.random(n))).astype(dtype)


def same(a, b):
    """Equal dtype, shape and bits, except that a zero has no sign and NaN is NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="tersegrad-test-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def save(self, name, array):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb") as file:
            np.save(file, array)
        return path

    def tree(self):
        return {str(p.relative_to(self.dir)): p.read_bytes() if p.is_file() else None
                for p in sorted(self.dir.rglob("*"))}

    def works(self, *arguments, **keywords):
        done = run(*arguments, **keywords)
        self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
        return done.stdout

    def json(self, *arguments, **keywords):
        return json.loads(self.works(*arguments, "--json", **keywords).splitlines()[-1])

    def fails(self, code, *arguments, says=None, prints="", **keywords):
        """Runs a command that must fail: its exit status, one line on stderr, and nothing written."""
        before = self.tree()
        done = run(*arguments, **keywords)
        lines = done.stderr.splitlines()
        self.assertEqual(done.returncode, code, (arguments, done.stderr))
        self.assertEqual(len(lines), 1, (arguments, done.stderr))
        self.assertTrue(lines[0].startswith("tersegrad: ") and len(lines[0]) > 20, lines)
        if prints is not None:
            self.assertEqual(done.stdout, prints, arguments)
        if says is not None:
            self.assertIn(says, lines[0])
        self.assertEqual(self.tree(), before, arguments)
        return done

    def round_trip(self, array, recipe, *flags):
        source = self.save("in.npy", array)
        frame, back = self.dir / "out.tg", self.dir / "back.npy"
        self.works("encode", "--recipe", recipe, *flags, source, frame)
        self.works("decode", frame, back)
        return np.load(back)
