"""Passes: gradients and statistics of workers, as by hand.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import unittest

import torch
from torch import nn

import models
import tersegrad
from tersegrad.torch import Passes, Workers


def batches(step, n, size=8):
    return [tuple(each[:size] for each in models.batch(step, worker)) for worker in range(n)]


def loss_of(model):
    return lambda x, y: nn.functional.cross_entropy(model(x), y)


class ByHand:
    """Workers one after the other, with their statistics swapped."""

    def __init__(self, n, recipe):
        self.model = models.make_model("conv")
        self.workers = Workers(self.model, n, recipe, seed=1)
        self.statistics = [{k: v.clone() for k, v in self.model.state_dict().items() if "running" in k} for _ in range(n)]
        self.losses = [0.0] * n

    def step(self, batches):
        for worker, (x, y) in enumerate(batches):
            self.model.load_state_dict(self.statistics[worker], strict=False)
            self.model.zero_grad(set_to_none=True)
            loss = loss_of(self.model)(x, y)
            loss.backward()
            self.losses[worker] += float(loss)
            self.workers.collect(worker)
            self.statistics[worker] = {k: v.clone() for k, v in self.model.state_dict().items() if "running" in k}
        self.workers.reduce()


class TestPasses(unittest.TestCase):
    def setUp(self):
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)

    def test_as_by_hand(self):
        for memory in (torch.contiguous_format, torch.channels_last):
            with self.subTest(memory=memory):
                model = models.make_model("conv").to(memory_format=memory)
                by_hand = ByHand(3, "adacomp")
                by_hand.model.to(memory_format=memory)
                by_hand.workers = Workers(by_hand.model, 3, "adacomp", seed=1)
                workers = Workers(model, 3, "adacomp", seed=1)
                passes = Passes(workers, model, loss_of(model))
                optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, by_hand.model)]
                for step in range(5):
                    own = batches(step, 3, 8 if step < 4 else 5)  # a last batch that is shorter
                    passes(own)
                    workers.reduce()
                    by_hand.step(own)
                    for optimizer in optimizers:
                        optimizer.step()
                self.assertTrue(torch.equal(models.weights_of(model), models.weights_of(by_hand.model)))
                self.assertEqual(workers.meter(), by_hand.workers.meter())
                torch.testing.assert_close(passes.losses, torch.tensor(by_hand.losses))
                for worker in range(3):
                    self.assertEqual({k: v.tolist() for k, v in workers.residual(worker).items()},
                                     {k: v.tolist() for k, v in by_hand.workers.residual(worker).items()})
                with passes.evaluating():
                    self.assertFalse(model.training)
                    mean = sum(each["2.running_var"] for each in by_hand.statistics) / 3
                    torch.testing.assert_close(model[2].running_var, mean)
                self.assertTrue(model.training)
                self.assertTrue(torch.equal(model[2].running_var, by_hand.statistics[0]["2.running_var"]))

    def test_states(self):
        model = models.make_model("conv")
        workers = Workers(model, 2, "dense")
        passes = Passes(workers, model, loss_of(model))
        passes(batches(0, 2))
        workers.reduce()
        kept = passes.state_dict()
        passes(batches(1, 2))
        workers.reduce()
        self.assertFalse(torch.equal(kept[1][0], passes.state_dict()[1][0]))
        passes.load_state_dict(kept)
        self.assertTrue(torch.equal(kept[1][0], passes.state_dict()[1][0]))
        self.assertRaisesRegex(tersegrad.Error, "another number of workers", passes.load_state_dict, kept[:1])

    def test_workers_with_weights_of_their_own(self):
        """bind() is asked before each pass, and what it gives the model is what the worker computes with."""
        model = models.make_model("conv")
        workers = Workers(model, 2, "dense", seed=1)
        scales = [1.0, 0.0]
        first = next(model.parameters())
        kept, asked = first.detach().clone(), []

        def bind(worker):
            asked.append(worker)
            first.data = kept * scales[worker]
        passes = Passes(workers, model, loss_of(model), bind=bind)
        for worker, batch in enumerate(batches(0, 2)):
            with passes.stream(worker):
                passes.run(worker, batch)
        passes.join()
        self.assertEqual(asked, [0, 1])
        self.assertNotEqual(float(passes.losses[0]), float(passes.losses[1]))

    def test_batches_for_other_workers(self):
        model = models.make_model("mlp")
        passes = Passes(Workers(model, 2, "dense"), model, loss_of(model))
        self.assertRaisesRegex(tersegrad.Error, "3 batches were given for 2 workers", passes, batches(0, 3))


if __name__ == "__main__":
    unittest.main()
