"""Shapes for `tersegrad plan`, and advice while training.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import json
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

import torch
from torch import nn

from ranks import RANKS
from tersegrad import _torch_advice
from tersegrad._library import TensorSpec
from tersegrad._torch_advice import Advice, program
from tersegrad.torch import shapes, write_shapes


def model():
    out = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 4, bias=False).to(torch.bfloat16), nn.Linear(4, 2))
    out[3].weight.requires_grad = False
    return out


COUNTS = {"exposed_seconds": 0.05, "encode_seconds": 0.001, "wire_seconds": 0.05, "decode_seconds": 0.001, "sent": 8e6, "received": 8e6}
TENSORS = [TensorSpec("weight", (1024, 1024), "dense", "float32"), TensorSpec("other", (1024, 1024), "conv", "float32")]


class Shapes(unittest.TestCase):
    def test_shapes(self):
        self.assertEqual(shapes(model()), [
            {"name": "0.weight", "shape": [8, 3, 3, 3], "kind": "conv", "dtype": "fp32"},
            {"name": "0.bias", "shape": [8], "kind": "bias", "dtype": "fp32"},
            {"name": "1.weight", "shape": [8], "kind": "norm", "dtype": "fp32"},
            {"name": "1.bias", "shape": [8], "kind": "norm", "dtype": "fp32"},
            {"name": "2.weight", "shape": [4, 8], "kind": "dense", "dtype": "bf16"},
            {"name": "3.bias", "shape": [2], "kind": "bias", "dtype": "fp32"}])

    @unittest.skipIf(program() is None, "the program is not installed")
    def test_plan_reads_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "shapes.json"
            write_shapes(model(), path)
            done = subprocess.run([program(), "plan", "--shapes", path, "--rate", "1gbit", "--compute", "1ms", "--recipes", "bf16", "--json"],
                                  capture_output=True, text=True, check=True)
        told = json.loads(done.stdout)
        self.assertEqual((told["params"], told["tensors"]), (8 * 27 + 8 + 8 + 8 + 32 + 2, 6))


class Advices(unittest.TestCase):
    def advice(self):
        out = Advice()
        for step in range(_torch_advice.LAST_STEP + 1):
            if out.take(step, 0.1 * step, COUNTS):
                break
        self.assertEqual(out.steps, _torch_advice.LAST_STEP - _torch_advice.FIRST_STEP)
        return out

    def test_measured(self):
        self.assertIn("in 17 steps, one took 100 ms, of which 50 exposed", self.advice().measured())

    @unittest.skipIf(program() is None, "the program is not installed")
    def test_predicted(self):
        """1.28 Gbit/s: dense gradients of 8 MB are half of the step."""
        self.assertRegex(self.advice().predicted("fp32", TENSORS, 4, 0, 0), "at least 1.28 Gbit/s: (Use|Do not)")

    def test_device(self):
        """Of gradients on GPUs, the program is asked for a GPU's costs; what it answers without one is told."""
        done = subprocess.CompletedProcess([], 2, "", "tersegrad: this program was built without CUDA\n")
        for device in ("cpu", "cuda"):
            with mock.patch.object(_torch_advice, "program", lambda: "tersegrad"), mock.patch.object(subprocess, "run", return_value=done) as asked:
                told = self.advice().predicted("fp32", TENSORS, 4, 0, 0, device)
            line = asked.call_args[0][0]
            self.assertEqual(line[line.index("--device") + 1], device)
            self.assertEqual(told, "no prediction: tersegrad: this program was built without CUDA")

    def test_without_the_program(self):
        with mock.patch.object(_torch_advice, "program", lambda: None):
            self.assertIn("not installed", self.advice().predicted("fp32", TENSORS, 4, 0, 0))

    def test_a_training_gives_it_once(self):
        """On rank 0 alone; the thread that predicts has ended with the job."""
        results = RANKS.run("advise", 2)
        self.assertEqual([result["lines"] for result in results[1:]], [[]])
        lines = results[0]["lines"]
        self.assertEqual(len(lines), 2, lines)
        self.assertIn("in 17 steps", lines[0])


if __name__ == "__main__":
    unittest.main()
