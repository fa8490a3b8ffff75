"""Sharded training (FSDP2, HSDP) on two and four ranks over gloo, against sums that the exchange has no part in.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import tempfile
import unittest

import numpy

from tersegrad._torch_fsdp_groups import has_fsdp2
from test_torch import RANKS, TORCH, OnRanks

needs_fsdp2 = unittest.skipUnless(has_fsdp2(), f"PyTorch {TORCH[0]}.{TORCH[1]} has no FSDP2 with reduce-scatters of others")


@needs_fsdp2
class Sharded(OnRanks):
    def check_sums(self, world, op, **arguments):
        for result in self.run_all("sharded_sums", world, **arguments):
            self.assertEqual(result["differing"], 0)
            self.assertGreater(result["values"], 100)
            self.assertEqual((result["calls"], len(result["ops"])), (3, 1))
            self.assertIn(op, result["ops"][0])
            self.assertEqual(result["inside"]["link"], result["inside"]["sent"])

    def test_sums_of_decoded_rows_in_rank_order(self):
        for world, op, arguments in ((2, "AVG", {"recipe": "bf16"}), (4, "AVG", {"recipe": "fp16"}),
                                     (4, "AVG", {"recipe": "mxfp8"}), (2, "AVG", {"recipe": "mxfp4@hadamard=64"}), (4, "AVG", {"recipe": "nvfp4"}),
                                     (4, "AVG", {"recipe": "ef+mxfp4", "dtype": "bfloat16"}), (4, "AVG", {"recipe": "dense"}), (4, "AVG", {"recipe": "bf16", "dtype": "bfloat16"}),
                                     (4, "PREMUL_SUM", {"recipe": "bf16", "factor": 3.0}), (2, "SUM", {"recipe": "fp8", "force_sum": True}),
                                     (4, "SUM", {"recipe": "bf16", "dtype": "bfloat16", "force_sum": True})):
            with self.subTest(world=world, **arguments):
                self.check_sums(world, op, **arguments)

    def test_bucket_sizes_change_no_bits(self):
        for recipe in ("dense", "bf16"):
            results = self.run_all("bucket_sizes", 4, recipe=recipe)
            self.assertEqual({each for result in results for each in result}, {results[0][0]})

    def test_as_pytorch(self):
        """Nested modules, several groups a module, PyTorch's own replicas and ours."""
        cases = [({}, 3), ({"replicas_n": 2, "native": True}, 3), ({"replicas_n": 2}, 3)]
        if TORCH >= (2, 12):  # before it, a module had one group
            cases.append(({"placed": True}, 6))
        for options, groups in cases:
            with self.subTest(**options):
                plain = self.run_all("as_pytorch", 4, **dict(options, native=options.get("replicas_n") is not None))
                ours = self.run_all("as_pytorch", 4, recipe="dense", **options)
                self.close(ours[0]["weights"], plain[0]["weights"])
                self.assertEqual(ours[0]["groups"], groups)

    def test_bytes_on_the_wire(self):
        for world, recipe, most in ((4, "bf16", 1.001), (2, "mxfp8", 0.51), (4, "mxfp8", 0.51), (4, "mxfp4", 0.27)):
            for result in self.run_all("bytes_on_the_wire", world, recipe=recipe):
                self.assertEqual(result["counted"], result["link"])
                self.assertEqual(result["counted"], result["sent"])
                self.assertLessEqual(result["counted"], most * result["ring"])
                self.assertGreater(result["counted"], 0.9 * most * result["ring"])


@needs_fsdp2
class Replicas(OnRanks):
    def test_means_and_residuals(self):
        for recipe, options in (("dense", {}), ("ef+topk@0.1+fp16", {"exchange": "gather"}), ("adacomp+inside=mxfp8", {"exchange": "gather"}),
                                ("powersgd@2", {})):
            with self.subTest(recipe=recipe):
                results = self.run_all("replicas", 4, recipe=recipe, **options)
                self.identical(results)
                for result in results:
                    self.assertEqual(result["stats"]["between"]["link"], result["stats"]["between"]["sent"])
                    self.assertEqual(result["owed_n"], result["row_n"])
                    if recipe == "dense":
                        self.assertEqual(result["means"], 0)
                    if options:
                        self.assertGreater(numpy.abs(result["owed"]).max(), 1e-3)
                        numpy.testing.assert_allclose(numpy.add(result["taken"], result["owed"]), result["given"], rtol=1e-4, atol=1e-5)

    def test_residual_memory(self):
        """4 bytes for each parameter of the shard, and the same again for the next residual."""
        for result in self.run_all("residual_memory", 4, recipe="fp16"):
            more = result["with"] - result["without"]
            own = 2 * 4 * result["parameters"] // result["shards"]
            self.assertTrue(own <= more <= own + 4096, f"{more} bytes more, and 2 x 4 x parameters / shards are {own}")

    def test_checkpoints(self):
        with tempfile.TemporaryDirectory() as folder:
            through = self.run_all("checkpoints", 4, folder=folder, recipe="ef+topk@0.1", replicas_n=2, inside="ef+bf16")
            for resume in ("plain", "load"):
                again = self.run_all("checkpoints", 4, folder=folder, recipe="ef+topk@0.1", replicas_n=2, inside="ef+bf16", resume=resume)
                self.assertEqual(self.identical(again)["digest"], self.identical(through)["digest"])
                self.assertEqual([each["owed"] for each in again], [each["owed"] for each in through])
                self.assertEqual(again[0]["steps"], 6)
            for recipe, inside, words in (("ef+topk@0.2", "ef+bf16", "saved with recipe 'ef+topk@0.1+fp32'"), ("ef+topk@0.1", None, "saved with inside"),):
                for result in RANKS.run("checkpoints", 4, folder=folder, recipe=recipe, replicas_n=2, inside=inside, resume="load"):
                    self.assertIn(words, result["error"])
            for replicas_n, words in ((4, "saved with shards '2', and this is '1'; residuals cannot be sharded anew"),):
                for result in RANKS.run("checkpoints", 4, folder=folder, recipe="ef+topk@0.1", replicas_n=replicas_n, inside="ef+bf16", resume="load"):
                    self.assertIn(words, result["error"])

    def test_another_number_of_replicas(self):
        """The mean of the residuals of replicas stays."""
        with tempfile.TemporaryDirectory() as folder:
            before = self.run_all("checkpoints", 2, folder=folder, recipe="ef+topk@0.1", replicas_n=2)
            after = self.run_all("checkpoints", 4, folder=folder, recipe="ef+topk@0.1", replicas_n=4, resume="load")
            self.identical(after)
            means = [numpy.mean([each["owed"] for each in results], axis=0) for results in (before, after)]
            self.assertGreater(numpy.abs(means[0]).max(), 1e-3)
            numpy.testing.assert_allclose(means[1], means[0], rtol=1e-5, atol=1e-7)


@needs_fsdp2
class BadUse(OnRanks):
    def test_a_reason_on_every_rank(self):
        words = {"not sharded": "call compress() after fully_shard", "variable": "lengths that all ranks know beforehand, but 'topk' has indices; take a recipe of fixed length",
                 "wrapped": "compress() is for fully_shard", "a number": "replicas is 2; it must be a mesh of one dimension",
                 "exchange alone": "exchange= is for the exchange between replicas, and there are no replicas=",
                 "coded": "lengths that all ranks know beforehand", "variable inside": "'topk' has indices", "no recipe": "nonsense",
                 "recipes": "rank 1 has recipe 'bf16', but rank 0 has 'fp16'", "one fails": "nonsense",
                 "one between": "rank 1 has replicas '1', but rank 0 has '2'", "inside alone": "there are no replicas=",
                 "inside alone in the recipe": "there are no replicas=", "inside twice": "has an inside= of its own",
                 "world": "which have [0, 1] in common in place of 0 alone", "swapped": "in common in place of",
                 "two dimensions given": "a mesh of 2 dimensions", "two dimensions": "would do it a second time",
                 "weights": "ranks 0 and 2 begin with different weights", "second": "is compressed already", "nested": "is compressed already"}
        results = self.run_all("bad_use", 4)
        for rank, result in enumerate(results):
            self.assertEqual(set(result), set(words))
            for case, said in result.items():
                with self.subTest(case=case, rank=rank):
                    self.assertIn(words[case], said or "")
                    self.assertTrue(said.startswith("Error: "), said)
        self.assertIn("rank 1: ", results[0]["one fails"])

    def test_parameters_without_a_gradient(self):
        for recipe, between in (("bf16", False), ("ef+topk@0.1", True)):
            for rank, (before, after) in enumerate(self.run_all("unused", 2, recipe=recipe, between=between)):
                self.assertIn(("set_reduce_scatter_unused_params(True)" if TORCH >= (2, 13) else "use all of them in every pass") if rank == 1
                              else "rank 1", before)
                self.assertIsNone(after)


if __name__ == "__main__":
    unittest.main()
