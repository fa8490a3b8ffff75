#!/usr/bin/env python3
"""Training with the exchange on the GPU: the same losses, bytes and weights, to the bit, as on the CPU; and `bench` there.

The program is build/emulated/tersegrad, whose kernels run on the CPU, unless the environment variable TERSEGRAD names another.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from quick_lgc import quick_lgc

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "emulated" / "tersegrad"))
RUN = ("train", "--model", "mlp", "--data", "glyphs", "--workers", "2", "--batch", "8", "--json")


def run(*arguments):
    return subprocess.run((PROGRAM, *RUN, *arguments), capture_output=True, text=True, timeout=600, check=False)


def untimed(value):
    """What must be the same in every run: all but times."""
    if isinstance(value, dict):
        return {k: untimed(v) for k, v in value.items() if "seconds" not in k}
    return [untimed(v) for v in value] if isinstance(value, list) else value


class TrainTest(unittest.TestCase):
    def train(self, device, *arguments):
        done = run("--device", device, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return untimed(json.loads(done.stdout.splitlines()[-1]))

    def compare(self, *arguments):
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            logs = {device: pathlib.Path(folder) / device for device in ("cpu", "cuda")}
            cpu, gpu = (self.train(device, "--log", str(log), *arguments) for device, log in logs.items())
            self.assertEqual(cpu, gpu)
            self.assertIn("weights_hash", cpu)
            cpu, gpu = ([untimed(json.loads(line)) for line in log.read_text().splitlines()] for log in logs.values())
            self.assertEqual(cpu, gpu)
            self.assertGreaterEqual(len(cpu), 5)

    def test_in_flight(self):
        self.compare("--recipe", "ef+topk@0.01+fp16", "--steps", "5")

    def test_after_the_backward_pass(self):
        self.compare("--recipe", "ef+bf16", "--exchange", "shard", "--steps", "5", "--group-size", "0")

    def test_checkpoints(self):
        """Weights, momentum and residuals: the same bytes, so that a run goes on where the other device is."""
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            saved = {device: pathlib.Path(folder) / device for device in ("cpu", "cuda")}
            for device, path in saved.items():
                self.train(device, "--recipe", "ef+fp16", "--exchange", "shard", "--steps", "3", "--checkpoint", str(path))
            self.assertEqual(saved["cpu"].read_bytes(), saved["cuda"].read_bytes())

    def test_protocols_with_arithmetic_of_their_own(self):
        self.compare("--recipe", "powersgd@2", "--steps", "5")
        self.compare("--recipe", quick_lgc("ring"), "--steps", "5")

    def test_refusals(self):
        done = run("--device", "cuda", "--recipe", "fp32+zstd", "--steps", "1")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr, "tersegrad: 'zstd', which tensor 'dense1.weight' uses, has no kernel for the GPU; "
                                      "it runs on the CPU\n")


class BenchTest(unittest.TestCase):
    def test_threads_of_the_host_leave_device_memory_alone(self):
        done = subprocess.run((PROGRAM, "bench", "--recipe", "fp16", "--device", "cuda", "--n", "10000", "--threads", "3", "--seconds", "0.001", "--json"),
                              capture_output=True, text=True, timeout=600, check=False, env=dict(os.environ, TG_EMULATED_PROTECT="1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        told = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(told["memcpy_threads_gbps"], told["memcpy_gbps"])


if __name__ == "__main__":
    unittest.main()
