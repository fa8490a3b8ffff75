"""The PyTorch package with its codec on a GPU, or with emulated kernels on the CPU: the bits, bytes and states of the codec on the host.

    TG_LIBRARY=build/emulated/libtersegrad-cuda.so TG_EMULATED_REACH=1 PYTHONPATH=python python3 tests/cuda/test_torch_cuda.py
"""

import gc
import os
import pathlib
import sys
import unittest

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))
import models
import tersegrad
from tersegrad.torch import Workers

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
RECIPES = ("dense", "fp16", "adacomp", "ef+topk@0.1", "dgc@0.1", "terngrad", "ef+randomblock@0.2", "ef+fp4+rans", "powersgd@2")


def setUpModule():
    if DEVICE.type == "cpu" and "TG_EMULATED_REACH" not in os.environ:
        raise unittest.SkipTest("there is no GPU, and kernels are not emulated (scripts/check-cuda)")


def gradients(model, step, worker):
    generator = torch.Generator().manual_seed(1000 * step + worker)
    return [torch.randn(p.shape, generator=generator) for p in model.parameters()]


def collect(workers, model, step):
    for worker in range(workers.n):
        for parameter, gradient in zip(model.parameters(), gradients(model, step, worker)):
            parameter.grad = gradient.to(parameter.device, parameter.dtype)
        workers.collect(worker)


def averages(workers, model, step):
    collect(workers, model, step)
    workers.reduce()
    return [p.grad.cpu().clone() for p in model.parameters()]


def pair(n, recipe, model="conv", **options):
    """Workers with the codec on the device, and with the codec on the host; a model for each."""
    there, here = models.make_model(model).to(DEVICE), models.make_model(model)
    return (Workers(there, n, recipe, codec="device", **options), there), (Workers(here, n, recipe, codec="host", **options), here)


class Codec(unittest.TestCase):
    def assert_same(self, a, b):
        for one, other in zip(a, b):
            self.assertTrue(torch.equal(one, other))

    def test_the_bits_bytes_and_residuals_of_the_host(self):
        for n, recipe in [(3, recipe) for recipe in RECIPES] + [(6, "adacomp"), (1, "ef+topk@0.1")]:
            with self.subTest(n=n, recipe=recipe):
                (device, there), (host, here) = pair(n, recipe, seed=3, verify_every=3)
                self.assertEqual((device.codec, host.codec), ("device", "host"))
                for step in range(5):
                    self.assert_same(averages(device, there, step), averages(host, here, step))
                for worker in range(n):
                    self.assertEqual(device.meter(worker), host.meter(worker))
                    self.assert_same(device.residual(worker).values(), host.residual(worker).values())
                self.assertEqual(device.stats()["frame_bytes"], host.stats()["frame_bytes"])

    def test_states_pass_from_one_to_the_other(self):
        (device, there), (host, here) = pair(3, "ef+topk@0.1", seed=3)
        averages(device, there, 0)
        host.load_state_dict(device.state_dict())
        self.assert_same(averages(device, there, 1), averages(host, here, 1))
        device.load_state_dict(host.state_dict())
        self.assert_same(averages(device, there, 2), averages(host, here, 2))

    def test_another_recipe_takes_over_residuals(self):
        for recipe, exchange in (("ef+topk@0.1", "gather"), ("terse", "shard")):
            with self.subTest(recipe=recipe):
                (device, there), (host, here) = pair(4, recipe, seed=3, exchange=exchange)
                for step in range(3):
                    self.assert_same(averages(device, there, step), averages(host, here, step))
                for workers in (device, host):
                    workers.set_recipe("fp4+rans")
                for step in range(3, 5):
                    self.assert_same(averages(device, there, step), averages(host, here, step))

    def test_half_precision(self):
        for dtype in (torch.float16, torch.bfloat16):
            there, here = nn.Linear(40, 30).to(DEVICE, dtype), nn.Linear(40, 30).to(dtype=dtype)
            device, host = Workers(there, 2, "adacomp", codec="device"), Workers(here, 2, "adacomp", codec="host")
            for step in range(3):
                self.assert_same(averages(device, there, step), averages(host, here, step))

    def test_flat_gradients_in_place(self):
        (device, there), (host, here) = pair(2, "adacomp", seed=1)
        out = torch.empty(sum(p.numel() for p in there.parameters()), device=DEVICE)
        for step in range(3):
            for worker in range(2):
                own = device.gradient(worker)
                own.copy_(torch.cat([g.flatten() for g in gradients(there, step, worker)]))
                device.collect(worker, own)
            device.reduce(out)
            expected = averages(host, here, step)
            self.assertTrue(torch.equal(out.cpu(), torch.cat([g.flatten() for g in expected])))

    def test_a_nan_fails_the_step_by_name_and_the_next_one_works(self):
        (device, there), (host, here) = pair(3, "ef+topk@0.1", "mlp", seed=1)
        self.assert_same(averages(device, there, 0), averages(host, here, 0))
        for worker in range(3):
            for p, gradient in zip(there.parameters(), gradients(there, 1, worker)):
                p.grad = gradient.to(DEVICE)
            there[2].weight.grad[3, 4] = float("nan") if worker == 1 else 0
            device.collect(worker)
        with self.assertRaisesRegex(tersegrad.Error, "2.weight") as caught:
            device.reduce()
        self.assertEqual((caught.exception.code, device.step), ("NONFINITE", 1))
        self.assert_same(averages(device, there, 1), averages(host, here, 1))

    def test_deleted_in_the_middle_of_a_step(self):
        (device, there), _ = pair(2, "adacomp")
        for parameter in there.parameters():
            parameter.grad = torch.ones_like(parameter)
        device.collect(0)
        del device
        gc.collect()

    def test_recipes_without_kernels(self):
        model = models.make_model("mlp").to(DEVICE)
        with self.assertRaisesRegex(tersegrad.Error, "kernel"):
            Workers(model, 2, "fp16+zstd", codec="device")
        self.assertEqual(Workers(model, 2, "fp16+zstd").codec, "host")
        self.assertRaisesRegex(tersegrad.Error, "codec is 'gpu'", Workers, model, 2, "fp16", codec="gpu")


if __name__ == "__main__":
    unittest.main()
