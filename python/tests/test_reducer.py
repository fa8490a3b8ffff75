"""A Reducer: gradients that travel while others are computed, and what must not be done to them."""

import unittest

import models
from test_torch import RANKS, OnRanks


class Plain(OnRanks):
    """A Reducer, whose gradients travel while others are computed."""

    def test_overlap_changes_no_bits(self):
        for world, recipe in ((2, "fp16"), (3, "ef+topk@0.1"), (2, "adacomp"), (2, "powersgd@2"), (3, models.LGC)):
            with self.subTest(world=world, recipe=recipe):
                straight = self.identical(self.run_all("plain", world, recipe=recipe, overlap=False, group_len=0))
                self.assertEqual(straight["early"], 0)
                for group_len in (1, 3000, 0):
                    got = self.identical(self.run_all("plain", world, recipe=recipe, group_len=group_len))
                    self.assertEqual(got["digest"], straight["digest"])
                    # The first step makes the exchange, and the last group waits for reduce().
                    self.assertEqual(got["early"], 4 * (got["groups"] - 1))
                    self.assertEqual(got["groups"] > 1, group_len > 0 and recipe != models.LGC)

    def test_equals_the_hook(self):
        hook, plain = (self.identical(self.run_all(job, 2, recipe="ef+topk@0.1", steps=5)) for job in ("train", "plain"))
        self.assertEqual(hook["digest"], plain["digest"])

    def test_accumulation_and_parameters_without_gradient(self):
        for model, accumulate in (("mlp", 3), ("unused", 1), ("unused", 2), ("frozen", 2), ("channels last", 2)):
            with self.subTest(model=model, accumulate=accumulate):
                straight = self.identical(self.run_all("plain", 2, recipe="ef+topk@0.1", model=model, accumulate=accumulate, overlap=False))
                got = self.identical(self.run_all("plain", 2, recipe="ef+topk@0.1", model=model, accumulate=accumulate, group_len=1))
                self.assertEqual(got["digest"], straight["digest"])
                self.assertGreater(got["early"], 0)

    def test_misuse_fails_on_all_ranks_and_changes_nothing(self):
        straight = self.identical(self.run_all("plain", 3, recipe="ef+topk@0.1", steps=5))["digest"]
        for what, words, groups in (("twice", "second gradient before reduce()", (1, 3000, 0)), ("changed", "was changed after backward()", (1, 3000)),
                                    ("replaced", "was changed after backward()", (1, 3000)), ("none", "was changed after backward()", (1,)),
                                    ("nan", "NaN", (1, 3000, 0))):
            for group_len in groups:
                with self.subTest(what=what, group_len=group_len):
                    results = self.run_all("misuse", 3, what=what, group_len=group_len, limit=20)
                    for rank, result in enumerate(results):
                        self.assertEqual(len(result["raised"]), 1)
                        self.assertIn(words, result["raised"][0])
                        self.assertEqual("rank 1: " in result["raised"][0], rank != 1)
                        self.assertTrue(result["same"])
                    self.assertEqual(self.identical(results)["digest"], straight)

    def test_a_pass_that_is_broken_off(self):
        straight = self.identical(self.run_all("plain", 3, recipe="ef+topk@0.1", steps=5))["digest"]
        for group_len in (1, 3000):
            results = self.run_all("misuse", 3, what="broken off", group_len=group_len, limit=20)
            self.assertEqual(self.identical(results)["digest"], straight)
            self.assertEqual(results[1]["raised"], ["broken"])
            for rank in (0, 2):
                self.assertIn("rank 1: the gradients of a backward pass were given up", results[rank]["raised"][0])

    def test_ranks_that_are_lost(self):
        for group_len in (1, 0):
            results = self.ranks.run("misuse", 3, what="death", group_len=group_len, dies=(1,), limit=20)
            self.assertIsNone(results[1])
            for rank in (0, 2):
                self.assertIn("has lost rank", results[rank]["error"])
        for result in self.ranks.run("misuse", 3, what="stop", group_len=1, timeout=1.5, limit=20):
            self.assertIn("has lost rank", result.get("error", ""))


if __name__ == "__main__":
    unittest.main()
