"""Ranks of a host that average among themselves first, over gloo's process groups."""

import tempfile
import unittest

import numpy

import models
from test_torch import RANKS, OnRanks


class Hosts(OnRanks):
    def test_as_a_flat_exchange_of_the_hosts_means(self):
        for recipe in ("ef+topk@0.1", "fp16", "powersgd@2", "dense"):
            with self.subTest(recipe=recipe):
                flat = self.run_all("hosts", 2, recipe=recipe, hosts="flat", fold=2)
                deep = self.run_all("hosts", 4, recipe=recipe, hosts=2)
                self.assertEqual(self.identical(deep)["digest"], self.identical(flat)["digest"])
                for leader, alone in ((0, 0), (2, 1)):
                    self.assertEqual(deep[leader]["residual"], flat[alone]["residual"])
                    self.assertEqual(flat[alone]["total"]["between"], flat[alone]["total"]["sent"])
                    more = deep[leader]["total"]["between"] - flat[alone]["total"]["between"]
                    self.assertTrue(0 < more <= 4 * 2 * 2 * 96, more)  # votes and audits to two ranks in place of one
                    self.assertGreater(deep[leader]["total"]["sent"], deep[leader]["total"]["between"])
                for other in (1, 3):
                    self.assertLessEqual(deep[other]["total"]["between"], 4 * 2 * 2 * 96)
                    self.assertEqual(set(deep[other]["residual"]), {0.0})
                self.assertIn("4 ranks in hosts of 2", deep[0]["summary"])

    def test_found(self):
        for nodes, size in (([0, 0, 1, 1], 2), ([0, 1, 0, 1], 0), ([0, 0, 0, 1], 0), ([0, 0, 0, 0], 0), ([0, 1, 2, 3], 0), (None, 0)):
            results = self.run_all("hosts", 4, recipe="ef+topk@0.1", hosts="auto", nodes=nodes, steps=2)
            self.identical(results)
            self.assertEqual({result["size"] for result in results}, {size})
        self.assertEqual(self.run_all("hosts", 4, recipe=models.LGC, hosts="auto", nodes=[0, 0, 1, 1], steps=2)[0]["size"], 0)

    def test_by_the_hook(self):
        for group_len in (1, 0):
            results = self.run_all("train", 4, recipe="ef+topk@0.1", bucket_cap_mb=0.001, options={"hosts": 2, "group_len": group_len})
            self.identical(results)
            self.assertLess(results[1]["stats"]["total"]["between"], results[0]["stats"]["total"]["between"])

    def test_checkpoints_of_other_hosts(self):
        """What is owed comes out, whatever the hosts were; with gradients of 0, by an exchange that sends all."""
        for before, after in ((2, "flat"), ("flat", 2), (2, 4), (2, "auto")):
            with self.subTest(before=before, after=after), tempfile.TemporaryDirectory() as folder:
                saved = self.run_all("hosts", 4, recipe="ef+topk@0.1", hosts=before, folder=folder)
                leaders = 4 if before == "flat" else 4 // before
                owed = numpy.sum([result["residual"] for result in saved], axis=0) / leaders
                went = self.run_all("hosts", 4, recipe="ef+topk@0.1", hosts=after, folder=folder, load=4, steps=12)
                self.identical(went)
                numpy.testing.assert_allclose(went[0]["sum"], owed, rtol=1e-4, atol=1e-5)

    def test_states_of_other_hosts_are_needed_all(self):
        for result in self.run_all("hosts_alone", 4):
            self.assertIn("4 ranks in hosts of 2, and this one has 4 ranks; to go on with another number, give the list of all 4", result)

    def test_hosts_that_cannot_be(self):
        for sentences in self.run_all("host_options", 4):
            for sentence, words in zip(sentences, ("hosts is 0", "hosts is 'some'", "hosts is True", "4 ranks cannot be divided into hosts of 3",
                                                   "rank 1 has hosts '2', but rank 0 has '1'", "not of hosts")):
                self.assertIsNotNone(sentence, words)
                self.assertIn(words, sentence)


if __name__ == "__main__":
    unittest.main()
