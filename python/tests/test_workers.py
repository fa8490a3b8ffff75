"""Workers: the same averages, bytes and residuals as N processes over gloo and as lockstep, in one process.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import ctypes
import gc
import io
import time
import unittest

import numpy
import torch
from torch import nn

import tersegrad
import models
from ranks import RANKS
from tersegrad._exchange import Exchange
from tersegrad._library import Detail, lib, pointers
from tersegrad._torch_model import describe
from tersegrad.torch import Workers


RECIPES = ("dense", "adacomp", "ef+topk@0.1", "dgc@0.1", "powersgd@2", "terngrad", "ef+randomblock@0.2", models.LGC)


def train(model, workers, optimizer, steps):
    for step in steps:
        for worker in range(workers.n):
            model.zero_grad(set_to_none=True)
            models.loss_of(model, step, worker).backward()
            workers.collect(worker)
        workers.reduce()
        optimizer.step()


def gradients(model, step, worker):
    generator = torch.Generator().manual_seed(1000 * step + worker)
    return [torch.randn(p.shape, generator=generator) for p in model.parameters()]


def collect(workers, model, step):
    """Gradients of random numbers; returns them."""
    given = [gradients(model, step, worker) for worker in range(workers.n)]
    for worker, own in enumerate(given):
        for parameter, gradient in zip(model.parameters(), own):
            parameter.grad = gradient.clone()
        workers.collect(worker)
    return given


def setUpModule():
    """Sums of a backward pass depend on the number of threads; the processes that are compared with have one."""
    global threads
    threads = torch.get_num_threads()
    torch.set_num_threads(1)


def tearDownModule():
    torch.set_num_threads(threads)


class Lockstep:
    """The same exchanges driven by tg_lockstep_reduce."""

    def __init__(self, model, n, recipe, **options):
        tensors = [(name, tuple(p.shape), kind, "float32") for p, (name, kind) in describe(model).items()]
        self.exchanges = [Exchange(recipe, tensors, rank, n, options) for rank in range(n)]

    def reduce(self, step, given):
        """In place."""
        n = len(self.exchanges)
        rows = [pointers([g.data_ptr() for g in own]) for own in given]
        grads = (ctypes.c_void_p * n)(*(ctypes.addressof(row) for row in rows))
        ranks = (ctypes.c_void_p * n)(*(x.handle for x in self.exchanges))
        why = Detail()
        status = lib.tg_lockstep_reduce(None, ranks, ctypes.c_uint32(n), ctypes.c_uint64(step), grads, None, ctypes.byref(why))
        if status != 0:
            raise AssertionError(why.text)


class Averages(unittest.TestCase):
    def test_the_same_bits_and_bytes_as_processes_over_gloo(self):
        for world, recipe in ((1, "adacomp"), (2, "dense"), (3, "adacomp"), (3, "ef+topk@0.1"), (2, "powersgd@2"), (3, models.LGC)):
            with self.subTest(world=world, recipe=recipe):
                theirs = RANKS.run("train", world, recipe=recipe, steps=6, options={"seed": 5, "verify_every": 100})
                model = models.make_model("mlp")
                workers = Workers(model, world, recipe, seed=5, verify_every=100)
                train(model, workers, torch.optim.SGD(model.parameters(), lr=0.1), range(6))
                self.assertEqual(models.digest(models.weights_of(model)), theirs[0]["digest"])
                for rank, result in enumerate(theirs):
                    total = workers.meter(rank)[1]
                    self.assertEqual(total, {name: result["stats"]["total"][name] for name in total})

    def test_the_same_bits_residuals_and_bytes_as_lockstep(self):
        for n, recipe in [(4, recipe) for recipe in RECIPES] + [(7, "adacomp")]:
            with self.subTest(n=n, recipe=recipe):
                model = models.make_model("conv")
                workers, lockstep = Workers(model, n, recipe, seed=3), Lockstep(model, n, recipe, seed=3)
                for step in range(6):
                    given = collect(workers, model, step)
                    workers.reduce()
                    lockstep.reduce(step, given)
                    for parameter, average in zip(model.parameters(), given[0]):
                        self.assertTrue(torch.equal(parameter.grad, average))
                for worker, exchange in enumerate(lockstep.exchanges):
                    self.assertEqual(workers.meter(worker), exchange.meter())
                    for t, residual in enumerate(workers.residual(worker).values()):
                        expected = torch.empty_like(residual)
                        exchange.residual_to(expected.data_ptr(), t)
                        self.assertTrue(torch.equal(residual, expected))

    def test_the_meter_counts_what_the_link_carried(self):
        model = models.make_model("mlp")
        begin = time.monotonic()
        workers = Workers(model, 4, "ef+topk@0.1", seed=1)
        for step in range(3):
            collect(workers, model, step)
            workers.reduce()
        totals = [workers.meter(worker)[1] for worker in range(4)]
        for worker, total in enumerate(totals):
            self.assertEqual(total["payload"] + total["header"], workers._engine.links[worker].contents.sent_len)
        self.assertEqual(workers.stats()["sent"], sum(t["payload"] + t["header"] for t in totals) / 4)
        self.assertEqual(workers.stats()["steps"], 3)
        self.assertGreater(workers.stats()["ratio"], 1.5)
        self.assertGreater(workers.stats()["frame_bytes"], 0)
        self.assertGreater(workers.stats()["exposed"], 0)
        self.assertLess(workers.stats()["exposed"], time.monotonic() - begin)

    def test_nothing_is_lost(self):
        """Sum of all gradients = what was applied + what is left in the residuals."""
        for recipe in ("adacomp", "ef+topk@0.05", "ef+orq@3", "ef+randomblock@0.1"):
            with self.subTest(recipe=recipe):
                model = models.make_model("mlp")
                workers = Workers(model, 3, recipe, seed=2)
                given = [torch.zeros_like(p) for p in model.parameters()]
                applied = [torch.zeros_like(p) for p in model.parameters()]
                for step in range(8):
                    for own in collect(workers, model, step):
                        for total, gradient in zip(given, own):
                            total += gradient / 3
                    workers.reduce()
                    for total, parameter in zip(applied, model.parameters()):
                        total += parameter.grad
                left = [sum(parts) / 3 for parts in zip(*(workers.residual(worker).values() for worker in range(3)))]
                self.assertGreater(max(rest.abs().max() for rest in left), 0.01)
                for total, sent, rest in zip(given, applied, left):
                    numpy.testing.assert_allclose(total, sent + rest, atol=2e-5)

    def test_flat_gradients(self):
        model = models.make_model("conv")
        plain, flat = Workers(model, 2, "adacomp", seed=1), Workers(model, 2, "adacomp", seed=1)
        out = torch.empty(sum(p.numel() for p in model.parameters()))
        for step in range(3):
            given = collect(plain, model, step)
            plain.reduce()
            for worker, own in enumerate(given):
                flat.collect(worker, torch.cat([g.flatten() for g in own]))
            flat.reduce(out)
            self.assertTrue(torch.equal(out, torch.cat([p.grad.flatten() for p in model.parameters()])))
        self.assertEqual(plain.meter(), flat.meter())

    def test_half_precision_channels_last_and_parameters_without_gradient(self):
        model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(5, 3).half(), nn.Linear(3, 3))
        model[0].to(memory_format=torch.channels_last)
        workers = Workers(model, 2, "dense")
        for worker in range(2):
            for p in model.parameters():
                p.grad = torch.full_like(p, worker + 1.0)
            model[3].weight.grad = None
            workers.collect(worker)
        workers.reduce()
        for p in model.parameters():
            self.assertTrue((p.grad == (0 if p is model[3].weight else 1.5)).all())
        self.assertRaisesRegex(tersegrad.Error, "all of float32", workers.collect, 0, torch.zeros(10))


class AnotherRecipe(unittest.TestCase):
    def test_what_residuals_hold_is_sent_by_a_recipe_without_feedback(self):
        for recipe, exchange in (("ef+topk@0.05", "gather"), ("terse", "shard")):
            with self.subTest(recipe=recipe):
                model = models.make_model("mlp")
                workers = Workers(model, 4, recipe, seed=1, exchange=exchange)
                size = workers.gradient(0).numel()
                moved, sent = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
                for step in range(5):
                    for worker in range(4):
                        gradient = torch.randn(size, generator=torch.Generator().manual_seed(10 * step + worker))
                        moved += gradient.double() / 4
                        workers.collect(worker, gradient)
                    average = torch.empty(size)
                    workers.reduce(average)
                    sent += average.double()
                self.assertGreater(float((moved - sent).abs().max()), 0.1)
                workers.set_recipe("dense")
                self.assertRaisesRegex(tersegrad.Error, "save after it", workers.state_dict)
                for worker in range(4):
                    workers.collect(worker, torch.zeros(size))
                workers.reduce(average)
                numpy.testing.assert_allclose(sent + average.double(), moved, atol=1e-5)
                self.assertEqual((workers.recipe, workers.step, workers.stats()["steps"]), ("fp32", 6, 1))
                self.assertEqual(workers.state_dict()["step"], 6)


class Checkpoints(unittest.TestCase):
    def test_the_same_bits_after_loading(self):
        for recipe in ("adacomp", "dgc@0.1", "powersgd@2"):
            with self.subTest(recipe=recipe):
                model = models.make_model("mlp")
                workers, optimizer = Workers(model, 3, recipe, seed=1), torch.optim.SGD(model.parameters(), lr=0.1)
                train(model, workers, optimizer, range(4))
                file = io.BytesIO()
                torch.save({"model": model.state_dict(), "workers": workers.state_dict()}, file)
                train(model, workers, optimizer, range(4, 8))
                file.seek(0)
                saved, other = torch.load(file), models.make_model("mlp")
                other.load_state_dict(saved["model"])
                again = Workers(other, 3, recipe, seed=1)
                again.load_state_dict(saved["workers"])
                self.assertEqual(again.step, 4)
                train(other, again, torch.optim.SGD(other.parameters(), lr=0.1), range(4, 8))
                self.assertTrue(torch.equal(models.weights_of(model), models.weights_of(other)))

    def test_another_number_of_workers_keeps_the_mean_residual(self):
        model = models.make_model("mlp")
        four, two = Workers(model, 4, "ef+topk@0.05", seed=1), Workers(model, 2, "ef+topk@0.05", seed=1)
        collect(four, model, 0)
        four.reduce()
        two.load_state_dict(four.state_dict())
        for name in four.residual(0):
            numpy.testing.assert_allclose(sum(four.residual(w)[name] for w in range(4)) / 4,
                                          sum(two.residual(w)[name] for w in range(2)) / 2, atol=1e-6)

    def test_refuses_states_of_something_else(self):
        model = models.make_model("mlp")
        workers = Workers(model, 2, "adacomp")
        for state, reason in (({}, "not what"), (Workers(model, 2, "dense").state_dict(), "recipe"),
                              (Workers(models.make_model("other"), 2, "adacomp").state_dict(), "another model")):
            self.assertRaisesRegex(tersegrad.Error, reason, workers.load_state_dict, state)


class BadUse(unittest.TestCase):
    def test_a_nan_fails_the_step_by_name_and_the_next_one_works(self):
        model = models.make_model("mlp")
        workers = Workers(model, 3, "ef+topk@0.1", seed=1)
        collect(workers, model, 0)
        workers.reduce()
        before = workers.residual(1)["0.weight"]
        model.zero_grad(set_to_none=True)
        for worker in range(3):
            for p in model.parameters():
                p.grad = torch.zeros_like(p)
            model[2].weight.grad[3, 4] = float("nan") if worker == 1 else 0
            workers.collect(worker)
        with self.assertRaisesRegex(tersegrad.Error, "2.weight") as caught:
            workers.reduce()
        self.assertEqual(caught.exception.code, "NONFINITE")
        self.assertTrue(torch.equal(workers.residual(1)["0.weight"], before))
        self.assertEqual(workers.step, 1)
        collect(workers, model, 1)
        workers.reduce()
        self.assertEqual(workers.stats()["steps"], 2)

    def test_calls_out_of_order(self):
        model = models.make_model("mlp")
        self.assertRaisesRegex(tersegrad.Error, "0 workers", Workers, model, 0, "dense")
        self.assertRaisesRegex(tersegrad.Error, "no parameter", Workers, [], 2, "dense")
        self.assertRaises(tersegrad.Error, Workers, model, 2, "no such recipe")
        self.assertRaisesRegex(tersegrad.Error, "float64", Workers, nn.Linear(2, 2).double(), 2, "dense")
        workers = Workers(model, 2, "dense")
        models.loss_of(model, 0, 0).backward()
        workers.collect(0)
        self.assertRaisesRegex(tersegrad.Error, "no worker 2", workers.collect, 2)
        self.assertRaisesRegex(tersegrad.Error, "collected already", workers.collect, 0)
        self.assertRaisesRegex(tersegrad.Error, "worker 1 has no gradients", workers.reduce)
        self.assertRaisesRegex(tersegrad.Error, "under way", workers.state_dict)
        workers.collect(1)
        workers.reduce()

    def test_deleted_in_the_middle_of_a_step(self):
        model = models.make_model("mlp")
        workers = Workers(model, 2, "dense")
        models.loss_of(model, 0, 0).backward()
        workers.collect(0)
        del workers
        gc.collect()  # must not wait for worker 1


if __name__ == "__main__":
    unittest.main()
