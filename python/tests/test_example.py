"""The examples as a person runs them: torch_fashion.py on a few images that are made up here, the others on what they make up themselves.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import gzip
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy
import torch

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch_fashion.py"


def write_images(folder):
    draw = numpy.random.default_rng(1)
    for name, n in (("train", 200), ("t10k", 100)):
        images, labels = draw.integers(0, 256, (n, 28, 28), numpy.uint8), draw.integers(0, 10, n, numpy.uint8)
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            header = bytes([0, 0, 8, array.ndim]) + numpy.array(array.shape, ">u4").tobytes()
            with gzip.open(f"{folder}/{name}-{kind}-ubyte.gz", "wb", 1) as out:
                out.write(header + array.tobytes())


class Example(unittest.TestCase):
    def run_example(self, *launcher, recipe="ef+topk@0.01+fp16"):
        with tempfile.TemporaryDirectory() as folder:
            write_images(folder)
            done = subprocess.run([sys.executable, *launcher, str(EXAMPLE), "--data", folder, "--steps", "3", "--recipe", recipe],
                                  capture_output=True, text=True, timeout=60, env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of the test images", done.stdout)
        return done.stdout

    def test_starts_its_ranks(self):
        out = self.run_example()
        self.assertIn("tersegrad: ef+topk@0.01+fp16 by gather, 2 ranks, 3 steps", out)

    @unittest.skipUnless(int(torch.__version__.split(".")[0]) >= 2, "Debian's torchrun of 1.13 does not start")
    def test_by_torchrun(self):
        out = self.run_example("-m", "torch.distributed.run", "--nproc-per-node", "2")
        self.assertEqual(out.count("2 ranks, 3 steps"), 1)


class Others(unittest.TestCase):
    def run_example(self, name, *arguments, launcher=()):
        environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TG_DATA="/nowhere", MASTER_PORT=str(29700 + os.getpid() % 200))
        done = subprocess.run([sys.executable, *launcher, str(EXAMPLE.with_name(name)), "--steps", "3", "--batch", "2", *arguments],
                              capture_output=True, text=True, timeout=120, env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_cifar_by_workers(self):
        out = self.run_example("torch_cifar.py", "--width", "2", "--workers", "3", "--recipe", "ef+topk@0.1")
        self.assertIn("ef+topk@0.1 by gather, 3 workers", out)
        self.assertIn("of the test images", out)

    def test_gpt_on_one_rank(self):
        out = self.run_example("torch_gpt.py", "--width", "16", "--layers", "1", "--bf16")
        self.assertIn("bits a byte", out)
        self.assertIn("1 ranks, 3 steps", out)

    @unittest.skipUnless(int(torch.__version__.split(".")[0]) >= 2, "Debian's torchrun of 1.13 does not start")
    def test_cifar_by_torchrun(self):
        out = self.run_example("torch_cifar.py", "--width", "2", launcher=("-m", "torch.distributed.run", "--nproc-per-node", "2"))
        self.assertEqual(out.count("2 ranks, 3 steps"), 1)


if __name__ == "__main__":
    unittest.main()
