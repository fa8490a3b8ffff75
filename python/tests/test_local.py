"""LocalSteps: rounds by hand and by the class, overlapped and sharded ones, checkpoints inside rounds, what is refused."""

import tempfile
import unittest

import numpy
import torch

from tersegrad import Error
from tersegrad.local import Outer, Round, Schedule
from test_torch import RANKS, TORCH, OnRanks


class Arithmetic(unittest.TestCase):
    def test_schedules(self):
        schedule = Schedule("1,200:4,2000:8")
        self.assertEqual((schedule.text, schedule.least, schedule.is_one), ("1,200:4,2000:8", 1, False))
        self.assertEqual(schedule.round(205), Round(201, 204, 4))
        self.assertEqual(schedule.round(205).end, 208)
        self.assertTrue(Schedule(1).is_one)
        for text, words in ((0, "would never end"), ("1,9:2,5:4", "goes backwards"), ("x", "is not understood")):
            with self.assertRaisesRegex(Error, words):
                Schedule(text)
        with self.assertRaisesRegex(Error, "is not understood"):
            Outer("mean")

    def test_operations_give_the_bits_of_the_library(self):
        """What is not contiguous takes PyTorch's operations, as tensors on other devices do."""
        generator = torch.Generator().manual_seed(3)

        def draw(dtype=torch.float32):
            return torch.randn(37, 41, generator=generator).to(dtype)

        def apart(tensor):
            return torch.empty(tensor.shape[::-1], dtype=tensor.dtype).t().copy_(tensor)
        for text in ("average", "nesterov", "nesterov@lr=0.3,momentum=0.77"):
            outer = Outer(text)
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                start, weights, velocity = draw(), draw(dtype), draw() if outer.momentum else None
                others = [None if t is None else apart(t) for t in (start, weights, velocity)]
                self.assertFalse(others[0].is_contiguous())
                move, other = outer.move(start, weights), outer.move(others[0], others[1])
                self.assertTrue(torch.equal(move, other))
                outer.step(start, velocity, move)
                outer.step(others[0], others[2], other)
                self.assertTrue(torch.equal(start, others[0]))
                self.assertTrue(velocity is None or torch.equal(velocity, others[2]))
                for keep in (0.3, 0.0):
                    outer.mix(weights, start, keep)
                    outer.mix(others[1], others[0], keep)
                    self.assertTrue(torch.equal(weights, others[1]))
        large = torch.tensor([1e6, -1e6, 3e38, float("inf")])
        for dtype in (torch.float16, torch.bfloat16):
            one, other = torch.zeros(4, dtype=dtype), torch.zeros(4, 2, dtype=dtype)[:, 0]
            outer.mix(one, large)
            outer.mix(other, large)
            self.assertTrue(torch.equal(one, other) and torch.isfinite(one[:3]).all())
        with self.assertRaisesRegex(Error, "float64"):
            outer.move(torch.zeros(2), torch.zeros(2, dtype=torch.float64))


class Rounds(OnRanks):
    def test_equals_rounds_by_hand(self):
        for outer, rate, momentum in (("average", 1.0, 0.0), ("nesterov@lr=0.5,momentum=0.25", 0.5, 0.25)):
            by_hand = self.identical(self.run_all("by_hand", 3, steps=8, every=4, rate=rate, momentum=momentum))
            got = self.identical(self.run_all("local", 3, recipe="dense", every=4, outer=outer))
            self.assertEqual(got["before"], by_hand["digest"])
            self.assertEqual(got["digest"] == got["before"], momentum == 0)  # synchronize() after a round goes on with the velocity

    def test_ranks_are_equal_after_rounds_and_count_all_steps(self):
        results = self.run_all("local", 2, recipe="ef+topk@0.1", every="1,2:3", steps=8)
        self.assertEqual(len({r["before"] for r in results}), 1)
        stats = self.identical(results)["stats"]
        self.assertEqual((stats["steps"], stats["exchanges"], stats["local_steps"]), (8, 5, "1,2:3"))  # one by synchronize()
        elements = 20 * 32 + 32 + 32 * 32 + 32 + 32 * 5 + 5
        self.assertEqual(stats["dense"], 8 * 4 * elements)
        self.assertAlmostEqual(stats["ratio"], stats["dense"] / stats["sent"])
        self.assertIn("in every step", stats["ratio_against"])
        inside = self.run_all("local", 2, recipe="ef+topk@0.1", every=3, steps=7)
        self.assertEqual(len({r["before"] for r in inside}), 2)
        self.identical(inside)

    def test_optimizers_accumulation_schedulers_and_models(self):
        for options in ({"optimizer": "adamw"}, {"optimizer": "two"}, {"accumulate": 3}, {"scheduled": True}, {"model": "conv"},
                        {"model": "channels last"}, {"model": "frozen", "optimizer": "adamw"}, {"group_len": 1000},
                        {"recipe": "terse"}, {"recipe": "sparseloco"}, {"exchange": "shard"}, {"rules": {"*bias": "ef+topk@0.5"}}):
            with self.subTest(**options):
                got = self.identical(self.run_all("local", 2, **{"recipe": "ef+topk@0.2", "every": 3, **options}))
                self.assertEqual(got["stats"]["steps"], 8)
                self.assertGreater(got["residual"], 0)
        self.assertLess(got["rate"] if "scheduled" in options else 0, 0.1)

    def test_a_step_that_a_scaler_skips_counts(self):
        got = self.identical(self.run_all("amp", 2))
        self.assertEqual((got["exchanges"], got["finite"]), (2, True))

    def test_buffers_are_averaged_when_told(self):
        for when, on_demand in (("demand", False), ("demand", True), ("round", False)):
            for result in self.run_all("buffers", 3, when=when, on_demand=on_demand):
                self.assertEqual(result["tracked"], 4)
                if when == "round" or on_demand:
                    numpy.testing.assert_allclose(result["got"], result["mean"], rtol=1e-6)
                    self.assertGreater(result["sent"], 0)
                else:
                    self.assertEqual((result["got"], result["sent"]), (result["own"], 0))


class Overlapped(OnRanks):
    def test_equals_the_picture(self):
        for every, fragments, mix in ((4, 1, 0.5), (4, 2, 0.25), (5, 3, 0.0), (3, 3, 0.75)):
            with self.subTest(every=every, fragments=fragments, mix=mix):
                arguments = {"steps": 13, "every": every, "fragments": fragments, "mix": mix}
                hands, results = self.run_all("overlapped_by_hand", 2, **arguments), self.run_all("overlapped", 2, **arguments)
                self.identical(results)
                for by_hand, got in zip(hands, results):
                    self.close(got["weights"], by_hand["weights"])

    def test_traffic_is_even(self):
        got = self.run_all("overlapped", 2, steps=12, every=6, fragments=3, mix=0.5)[0]
        self.assertEqual(sum(got["parts"]), 6)
        steps = numpy.diff([0, *got["sent"]])
        self.assertEqual([bool(step) for step in steps], [False, True] * 6)
        whole = self.run_all("overlapped", 2, steps=12, every=6, fragments=1, mix=0.5)[0]
        self.assertLess(max(steps), 0.8 * max(numpy.diff([0, *whole["sent"]])))


class Checkpoints(OnRanks):
    def test_resumed_at_any_step_ends_in_the_same_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            for at, options in ((4, {"every": 4}), (6, {"every": 4, "outer": "nesterov"}), (1, {"every": "1,3:4"}), (7, {"every": 4, "overlap": True}),
                                (4, {"every": 4, "overlap": True, "fragments": 2, "outer": "nesterov", "mix": 0.25}), (5, {"every": 3, "recipe": "terse"})):
                with self.subTest(at=at, **options):
                    for result in self.run_all("resumed", 2, folder=folder, at=at, **options):
                        self.assertEqual(result["resumed"], result["straight"])

    def test_another_number_of_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            before = self.run_all("other_world", 3, folder=folder, saves=8)
            self.assertGreater(max(map(abs, before[0]["owed"])), 0)
            for result in self.run_all("other_world", 2, folder=folder, saves=0):
                self.assertEqual(result["steps"], 9)
            for result in self.ranks.run("other_world", 3, folder=folder, saves=0, every=3):  # at the end of a round H may change
                self.assertNotIn("error", result)
        with tempfile.TemporaryDirectory() as folder:
            self.run_all("other_world", 3, folder=folder, saves=6)
            for result in self.ranks.run("other_world", 2, folder=folder, saves=0):
                self.assertIn("saved inside a round, after step 6, with ranks '3', and this has '2'", result["error"])
            for result in self.ranks.run("other_world", 3, folder=folder, saves=0, every=5):
                self.assertIn("with local-steps '4', and this has '5'", result["error"])


class Refusals(OnRanks):
    def test_all_ranks_raise(self):
        for what, words in (("every", "rank 1 has local-steps '8', but rank 0 has '4'"), ("outer", "rank 1 has outer 'lr=0.7,momentum=0.9'"),
                            ("fragments", "rank 1 has overlap 'True 2 0.5'"), ("mix", "mix is 1.0"), ("foreign", "a parameter of shape (7,) that is not in the model"),
                            ("missing", "no optimizer has it"), ("momentum", "adds up momentum")):
            for rank, result in enumerate(self.ranks.run("disagree_locally", 2, what=what, limit=60)):
                self.assertIn(words, result.get("error", ""), what)
                self.assertEqual(result["type"], "Error")

    def test_recipes_without_feedback_are_warned_of(self):
        for recipe, count in (("terngrad", 1), ("dense", 0), ("ef+topk@0.1", 0)):
            for caught in self.run_all("lossy", 2, recipe=recipe):
                self.assertEqual(len(caught), count)


@unittest.skipIf(TORCH < (2, 6), "fully_shard is not in this PyTorch")
class Sharded(OnRanks):
    def test_replicas_of_shards_are_as_whole_ones(self):
        whole = self.run_all("sharded", 4, recipe="dense", wrapped=False)
        shards = self.run_all("sharded", 4, recipe="dense")
        for result in shards:
            self.close(result["weights"], whole[0]["weights"])
        self.identical(shards)
        self.assertLess(shards[0]["sent"], 0.75 * whole[0]["sent"])

    def test_compressed(self):
        self.identical(self.run_all("sharded", 4, recipe="ef+topk@0.1"))


if __name__ == "__main__":
    unittest.main()
