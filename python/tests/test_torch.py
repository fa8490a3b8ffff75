"""The hook and the reducer, on one to four ranks over gloo, against PyTorch's own averages and against themselves.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import tempfile
import unittest
from unittest import mock

import numpy
import torch

import tersegrad
import models
from ranks import RANKS
from tersegrad.torch import Reducer, State

TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split("a")[0].split(".")[:2])


class OnRanks(unittest.TestCase):
    ranks = RANKS

    def run_all(self, job, world, **arguments):
        """All ranks must succeed."""
        out = self.ranks.run(job, world, **arguments)
        for rank, result in enumerate(out):
            if isinstance(result, dict) and "error" in result:
                self.fail(f"{job}: rank {rank}: {result['type']}: {result['error']}")
        return out

    def identical(self, results):
        self.assertEqual(len({result["digest"] for result in results}), 1)
        return results[0]

    def close(self, a, b):
        numpy.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


class Averages(OnRanks):
    def test_dense_equals_pytorch(self):
        for world, model, options in ((1, "mlp", {}), (2, "mlp", {"bucket_cap_mb": 0.001}), (3, "conv", {"give_model": True}),
                                      (2, "mlp", {"accumulate": 3}), (2, "unused", {"find_unused": True}),
                                      (2, "unused", {"find_unused": True, "bucket_cap_mb": 0.001, "options": {"group_len": 1}}),
                                      (2, "mlp", {"static_graph": True, "bucket_cap_mb": 0.001, "options": {"group_len": 1}}),
                                      (2, "frozen", {}), (2, "conv", {"gradient_as_bucket_view": True}), (2, "channels last", {})):
            with self.subTest(world=world, model=model, **options):
                plain = self.run_all("train", world, recipe=None, model=model,
                                     **{k: v for k, v in options.items() if k not in ("give_model", "options")})
                ours = self.run_all("train", world, recipe="dense", model=model, **options)
                self.close(self.identical(ours)["weights"], self.identical(plain)["weights"])

    def test_reduce_equals_the_mean(self):
        for dtype, tolerance in (("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 2e-2)):
            for result in self.run_all("average", 3, recipe="dense", dtype=dtype):
                numpy.testing.assert_allclose(result["got"], result["expected"], rtol=tolerance, atol=tolerance)
                self.assertEqual(result["kinds"], ["dense", "bias"] * 3)

    def test_reduce_of_bare_parameters_in_any_order(self):
        for result in self.run_all("strided", 3):
            self.assertTrue(result["same"])
            self.assertEqual(result["q"], [1.0, 1.0, 1.0])
            self.assertEqual(result["names"], ["parameter.0", "parameter.1"])

    def test_replicas_are_identical_and_buckets_of_no_consequence(self):
        for world, recipe in ((2, "adacomp"), (3, "ef+topk@0.1"), (2, "powersgd@2"), (3, models.LGC), (4, "ef+topk@0.1+fp16"),
                              (2, "dgc@0.1")):
            with self.subTest(world=world, recipe=recipe):
                one = self.identical(self.run_all("train", world, recipe=recipe, steps=6))
                many = self.identical(self.run_all("train", world, recipe=recipe, steps=6, bucket_cap_mb=0.001))
                self.assertEqual(one["digest"], many["digest"])
                self.assertGreater(one["stats"]["total"]["ratio"], 1.2)
                dense = self.run_all("train", world, recipe="dense", steps=6)[0]
                self.assertNotEqual(one["digest"], dense["digest"])

    def test_groups_of_no_consequence(self):
        """With buckets that fit groups or do not, started while the pass goes on, and with one group at its end."""
        for world, recipe in ((2, "fp16"), (3, "terngrad"), (2, "adacomp"), (3, "ef+topk@0.01"), (2, "powersgd@2"), (2, models.LGC)):
            with self.subTest(world=world, recipe=recipe):
                one = self.identical(self.run_all("train", world, recipe=recipe, options={"group_len": 0}))
                self.assertEqual(one["groups"], 1)
                for group_len, bucket_cap_mb, view in ((1, 0.001, False), (2000, 0.001, True), (3000, 25, False), (0, 0.001, False)):
                    many = self.identical(self.run_all("train", world, recipe=recipe, options={"group_len": group_len},
                                                       bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=view))
                    self.assertEqual(one["digest"], many["digest"])
                    self.assertEqual(many["buckets"] > 1, bucket_cap_mb < 25)
                    if group_len > 0 and recipe != models.LGC:
                        self.assertGreater(many["groups"], 2)

    def test_many_groups_that_ranks_finish_at_their_own_pace(self):
        """Nobody waits for an operation that another rank starts only after one that it waits for itself."""
        for world, recipe, options in ((2, "adacomp", {}), (3, "adacomp", {"exchange": "shard"}), (2, "fp16", {}), (2, "powersgd@2", {})):
            with self.subTest(world=world, recipe=recipe, **options):
                got = self.identical(self.run_all("many_groups", world, recipe=recipe, options=options, steps=8))
                self.assertGreaterEqual(got["groups"], 12)

    def test_gradients_that_are_there_before_their_bucket(self):
        """They are taken at once if they are views of it and the link is slow, and the bits are the same."""
        for how in ("views", "kept", "copies", "accumulated", "twice", "fast"):
            with self.subTest(how=how):
                one = self.identical(self.run_all("early", 2, group_len=0, how=how))
                self.assertEqual((one["buckets"], sum(one["early"])), (2, 0))
                for group_len in (1, 20000):
                    many = self.identical(self.run_all("early", 2, group_len=group_len, how=how))
                    self.assertEqual(one["digest"], many["digest"])
                    self.assertEqual(many["watches"], TORCH >= (2, 0) and how != "fast")
                    if TORCH >= (2, 0) and how in ("views", "kept", "accumulated"):
                        self.assertEqual(many["early"][0], 0)  # a pass that only looks
                        self.assertEqual(set(many["early"][2:]), {13})  # all but the one that makes the bucket complete
                    else:
                        self.assertEqual(sum(many["early"]), 0)

    @unittest.skipIf(TORCH < (2, 0), "gradients wait for their bucket")
    def test_a_gradient_that_is_added_to_when_it_is_sent(self):
        straight = self.identical(self.run_all("early", 3, group_len=1, how="kept"))["digest"]
        results = self.run_all("early", 3, group_len=1, how="kept", fails_at=4)
        self.assertEqual(self.identical(results)["digest"], straight)
        for rank, result in enumerate(results):
            self.assertEqual(len(result["raised"]), 1)
            self.assertIn("gradient 'layers.5.weight' was added to when it was already being sent", result["raised"][0])
            self.assertEqual("rank 1: " in result["raised"][0], rank != 1)
            self.assertEqual(result["early"][-1] == 0, rank == 1)

    def test_messages_of_all_lengths_and_their_buffers(self):
        """Rooms are found by the next message of about the same length, whoever sends it, and there are no more than allowed."""
        lengths = [1, 100, 128, 129, 200, 1, 128, 5000, 8000, 3_000_000, 8192, 2_500_000, 1]
        for world in (2, 3):
            for buffers_len in (1 << 24, 300):
                with self.subTest(world=world, buffers_len=buffers_len):
                    got = self.run_all("exchange_mail", world, lengths=lengths, buffers_len=buffers_len)
                    self.assertEqual([each["wrong"] for each in got], [[]] * world)
                    self.assertEqual(got[0]["found"], 0)  # the lowest rank needs none
                    for rank in range(1, world):
                        self.assertLessEqual(got[rank]["buffers"], buffers_len)
                        if buffers_len > 300:
                            self.assertEqual(got[rank]["found"], rank * 8)  # all but the first of each size, and the long ones
            got = self.run_all("exchange_mail", world, lengths=lengths, buffers_len=1 << 24, turn_len=100)
            self.assertEqual([each["wrong"] for each in got], [[]] * world)

    def test_the_rate_of_a_link(self):
        """Messages take turns if that takes no longer than 2 ms, by what the slowest of all ranks has measured."""
        for world in (1, 2, 3, 4):
            got = self.run_all("measure_link", world)
            before, measured, slow = got[0]["known"]
            self.assertEqual([each["known"] for each in got], [got[0]["known"]] * world)
            self.assertEqual((before, slow), (1 << 18, int(65536 * 2 / 5)))
            self.assertTrue(0 < measured <= before)
            self.assertTrue(measured == before or world > 1)  # one rank alone has nothing to measure

    def test_unused_and_frozen_parameters_and_exchanges(self):
        self.identical(self.run_all("train", 3, recipe="ef+topk@0.2", model="unused", find_unused=True))
        self.identical(self.run_all("train", 2, recipe="ef+topk@0.2", model="frozen"))
        for exchange in ("gather", "shard", "server"):
            got = self.identical(self.run_all("train", 3, recipe="ef+topk@0.2", options={"exchange": exchange, "verify_every": 1}))
            self.assertEqual(got["stats"]["exchange"], exchange)

    def test_two_process_groups(self):
        results = self.run_all("groups", 4, recipe="ef+topk@0.1")
        self.assertEqual(results[0]["digest"], results[1]["digest"])
        self.assertEqual(results[2]["digest"], results[3]["digest"])
        self.assertNotEqual(results[0]["digest"], results[2]["digest"])
        for result in results:
            self.assertIn("not in the process group", result["refused"])

    @unittest.skipUnless(TORCH >= (2, 0), "torch.compile is there from PyTorch 2.0 on")
    def test_compiled(self):
        plain = self.identical(self.run_all("train", 2, recipe="ef+topk@0.1"))
        compiled = self.identical(self.run_all("train", 2, recipe="ef+topk@0.1", compiled=True, limit=120))
        self.close(compiled["weights"], plain["weights"])

    def test_uneven_inputs(self):
        self.assertEqual([result["steps"] for result in self.run_all("join", 2, recipe="ef+topk@0.1")], [5, 5])

    def test_facts(self):
        first, second = self.run_all("facts", 2)
        stats = first["stats"]
        self.assertEqual(stats["last"]["sent"], stats["last"]["payload"] + stats["last"]["header"])
        self.assertEqual(stats["total"]["steps"], 3)
        self.assertEqual(stats["last"]["received"], second["stats"]["last"]["sent"])
        self.assertGreater(stats["total"]["ratio"], 2)
        self.assertEqual(stats["tensors"]["7.weight"]["recipe"], "fp16")
        self.assertGreater(stats["tensors"]["7.weight"]["bytes"], 1599)
        self.assertEqual({name: first["kinds"][name] for name in ("1.weight", "1.bias", "2.weight", "2.bias", "7.weight")},
                         {"1.weight": "conv", "1.bias": "bias", "2.weight": "norm", "2.bias": "norm", "7.weight": "dense"})
        self.assertIn("adabins", first["summary"])
        self.assertIn("3 steps", first["summary"])
        self.assertEqual([step for name, _, step in first["written"] if name == "tersegrad/ratio"], [0, 1, 2])

    def test_bytes_are_those_of_the_link(self):
        for result in self.run_all("train", 2, recipe="ef+topk@0.1", steps=5):
            more = self.run_all("train", 2, recipe="ef+topk@0.1", steps=0)[0]
            self.assertEqual((more["sent"], more["stats"]["total"]["steps"]), (0, 0))
            self.assertIn("no step was reduced", more["summary"])
            counted = result["stats"]["total"]["sent"]
            self.assertLess(counted, result["sent"])            # before the first step ranks compare their setups
            self.assertLess(result["sent"] - counted, 3 * 256 + 16 + 4096 + 4 * 65537)  # and measure the link

    def test_a_model_that_is_not_in_sight(self):
        for names in self.run_all("hidden", 2):
            self.assertEqual(names, ["0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"])

    def test_kinds(self):
        kinds = self.run_all("kinds", 1)[0]
        for name, kind in (("words.weight", "embedding"), ("memory.weight_ih_l0", "recurrent"), ("memory.bias_hh_l0", "bias"),
                           ("norm.weight", "norm"), ("norm.bias", "norm"), ("attention.in_proj_weight", "dense"),
                           ("attention.out_proj.bias", "bias"), ("out.weight", "dense"), ("free", "other")):
            self.assertEqual(kinds[name], kind, name)
        self.assertNotIn("tied.weight", kinds)


class Scales(OnRanks):
    def test_scales_are_of_no_consequence(self):
        plain = self.identical(self.run_all("scaled", 2, recipe="ef+topk@0.1", scales=[1, 1, 1, 1, 1]))
        scaled = self.identical(self.run_all("scaled", 2, recipe="ef+topk@0.1", scales=[1024, 1024, 512, 2048, 65536]))
        self.assertEqual(plain["digest"], scaled["digest"])

    def test_a_step_with_inf_is_seen_by_all_and_not_remembered(self):
        for recipe in ("dense", "ef+topk@0.1", "adacomp", "ef+orq@9", "powersgd@2", "ef-signsgd"):
            with self.subTest(recipe=recipe):
                results = self.run_all("scaled", 2, recipe=recipe, scales=[1024] * 5, inf_at=2)
                self.identical(results)
                for result in results:
                    self.assertEqual((result["skipped"], result["counted"]), ([2], 1))
                    self.assertTrue(result["kept"])  # what the step took from residuals was given back
                    self.assertTrue(result["finite"])


    @unittest.skipUnless(TORCH >= (2, 3), "GradScaler is for processors, too, from PyTorch 2.3 on")
    def test_a_real_scaler(self):
        results = self.run_all("real_scaler", 2, recipe="ef+topk@0.1")
        self.identical(results)
        for result in results:
            self.assertEqual(result["scales"], [1024, 1024, 512, 512, 512])
            self.assertTrue(result["finite"])


class Checkpoints(OnRanks):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_a_resumed_run_ends_in_the_same_bits(self):
        for recipe in ("ef+topk@0.1", "adacomp", "powersgd@2", models.LGC):
            straight = self.identical(self.run_all("resume", 2, recipe=recipe, stop=-1, steps=7))
            resumed = self.identical(self.run_all("resume", 2, recipe=recipe, stop=4, steps=7, folder=self.folder))
            self.assertEqual(straight, resumed)

    def test_residuals_survive_another_number_of_ranks(self):
        for old, new in ((2, 3), (3, 1)):
            owed = self.run_all("save_world", old, recipe="ef+topk@0.1", folder=self.folder)[0]["owed"]
            for result in self.run_all("load_world", new, recipe="ef+topk@0.1", folder=self.folder, old=old):
                numpy.testing.assert_allclose(result["out"], owed, rtol=1e-5, atol=1e-5)
                self.assertEqual(result["step"], 5)
            for at_once in ("ef+randomblock@0.1", "dense"):
                for result in self.run_all("load_world", new, recipe="ef+topk@0.1", folder=self.folder, old=old, at_once=at_once):
                    numpy.testing.assert_allclose(result["out"], owed, rtol=1e-5, atol=1e-5)

    def test_what_waits_for_the_next_gradients_is_saved_too(self):
        owed = self.run_all("save_world", 2, recipe="ef+topk@0.1", folder=self.folder, last="fp32")[0]["owed"]
        for world in (2, 3):
            for result in self.run_all("load_world", world, recipe="fp32", folder=self.folder, old=2):
                numpy.testing.assert_allclose(result["out"], owed, rtol=1e-5, atol=1e-5)

    def test_states_that_do_not_fit(self):
        for sentences in self.run_all("refuse_states", 2):
            for sentence, words in zip(sentences, ("saved with recipe 'ef+topk@0.1+fp32', and this is 'ef+topk@0.2",
                                                   "give the list of all 5 states", "is of rank", "not what state_dict returned",
                                                   "damaged", "another model")):
                self.assertIsNotNone(sentence, words)
                self.assertIn(words, sentence)


class Recipes(OnRanks):
    def test_another_recipe_loses_no_residual(self):
        recipes = ["ef+topk@0.1", "ef+topk@0.01+fp16", "ef+randomblock@0.2", "dense", "ef+threshold@1.5", "powersgd@1",
                   "ef+topk@0.05,scope=model"]
        for world in (1, 2, 3):
            for by_schedule in (False, True):
                for result in self.run_all("change", world, recipes=recipes, by_schedule=by_schedule):
                    self.assertLess(result["owed"], 1e-4)
                    self.assertEqual(result["steps"], len(recipes) + 1)
                    self.assertGreater(len(set(result["seen"])), 2)


class Failures(OnRanks):
    def raised(self, results, *words):
        for rank, result in enumerate(results):
            self.assertIsInstance(result, dict, f"rank {rank} has not raised")
            for word in words:
                self.assertIn(word, result.get("error", ""), f"rank {rank}")

    def test_ranks_that_disagree(self):
        self.raised(self.ranks.run("disagree", 2, what="recipe", limit=20),
                    "rank 1 has recipe 'ef+topk@0.2+fp32', but rank 0 has 'ef+topk@0.1+fp32'")
        self.raised(self.ranks.run("disagree", 3, what="seed", limit=20), "rank 1 has seed '1', but rank 0 has '0'")
        self.raised(self.ranks.run("disagree", 3, what="bad", limit=20), "the exchange lowrank carries")

    def test_one_rank_that_fails_later(self):
        results = self.ranks.run("later", 3, what="nan", limit=20)
        self.raised(results, "NaN", "0.weight")
        self.raised([results[0], results[2]], "rank 1: ")
        self.raised(self.ranks.run("later", 3, what="recipe", limit=20), "rank 1", "another recipe")
        results = self.ranks.run("later", 3, what="schedule", limit=20)
        self.raised(results, "division by zero")
        self.raised([results[0], results[2]], "rank 1: ")

    def test_one_rank_that_fails_with_buckets_in_flight(self):
        for group_len in (1, 3000):
            results = self.ranks.run("later", 3, what="nan", limit=20, bucket_cap_mb=0.001, group_len=group_len)
            self.raised(results, "NaN")
            self.raised([results[0], results[2]], "rank 1: ")
            results = self.ranks.run("later", 3, what="recipe", limit=20, bucket_cap_mb=0.001, group_len=group_len)
            self.raised(results, "rank 1 goes on with another recipe than rank 0: 'ef+topk@0.2+fp32' instead of 'ef+topk@0.1+fp32'")

    def test_a_rank_that_dies_with_buckets_in_flight(self):
        for group_len in (1, 3000):
            results = self.ranks.run("later", 3, what="death in the pass", dies=(1,), limit=30, bucket_cap_mb=0.001, group_len=group_len)
            self.assertIsNone(results[1])
            self.raised([results[0], results[2]], "has lost rank")

    def test_a_rank_that_stops_with_buckets_in_flight(self):
        self.raised(self.ranks.run("later", 3, what="stop in the pass", limit=30, bucket_cap_mb=0.001, group_len=1, timeout=2),
                    "has lost rank")

    def test_a_pass_that_is_broken_off(self):
        for recipe in ("ef+topk@0.1", "powersgd@2"):
            straight = self.identical(self.run_all("break_off", 3, recipe=recipe, broken=[], by="pass"))
            for broken, by in (([0, 1, 2], "pass"), ([0, 1, 2], "state_dict"), ([1], "state_dict")):
                with self.subTest(recipe=recipe, broken=broken, by=by):
                    results = self.run_all("break_off", 3, limit=20, recipe=recipe, broken=broken, by=by)
                    self.assertEqual(self.identical(results)["digest"], straight["digest"])
                    for rank, result in enumerate(results):
                        self.assertEqual(len(result["raised"]), 1)
                        self.assertIn("broken" if rank in broken else "rank 1: a backward pass was broken off", result["raised"][0])

    def test_a_step_that_fails_changes_nothing(self):
        for by_hook, model, scale in ((False, "mlp", 1.0), (True, "mlp", 1.0), (True, "channels last", 1.0), (True, "mlp", 1000.0)):
            with self.subTest(by_hook=by_hook, model=model, scale=scale):
                for result in self.run_all("retry", 2, by_hook=by_hook, model=model, scale=scale):
                    self.assertEqual(result["failed"], 2)
                    self.assertTrue(result["same"])
                    self.assertGreater(result["before"], 1e-3)
                    self.assertLess(result["unexplained"], 1e-6)
                    self.assertLess(result["after"], 1e-6)
        for result in self.run_all("no_gradient", 2):
            self.assertEqual(result, {"failed": True, "none": True})

    def test_a_state_for_two_models(self):
        for together in (False, True):
            for other in ("mlp", "other"):
                for bucket_cap_mb in (25, 0.001):
                    with self.subTest(together=together, other=other, bucket_cap_mb=bucket_cap_mb):
                        results = self.ranks.run("two_models", 2, limit=20, together=together, other=other, bucket_cap_mb=bucket_cap_mb)
                        self.raised(results, "this State was given to a second model")

    def test_a_rank_that_dies(self):
        results = self.ranks.run("later", 3, what="death", dies=(1,), limit=30)
        self.assertIsNone(results[1])
        self.raised([results[0], results[2]], "has lost rank")

    def test_a_rank_that_stops(self):
        self.raised(self.ranks.run("stall", 3, limit=20), "has lost rank")

    def test_a_link_that_is_given_up(self):
        results = self.ranks.run("stop_in_step", 3, limit=20)
        self.assertIn("enough", results[1]["error"])
        self.raised([results[0], results[2]], "has lost rank")

    def test_gradients_that_cannot_be_exchanged(self):
        for what, words in (("double", "float64"), ("sparse", "sparse")):
            results = self.ranks.run("unsuitable", 2, what=what, limit=20)
            self.raised(results, words)
            self.assertTrue(all(result["type"] == "Error" for result in results))  # from check()
        self.raised(self.ranks.run("complex_numbers", 2, limit=20), "complex64")
        self.raised(self.ranks.run("elsewhere", 2, limit=20), "is on meta")
        self.raised(self.ranks.run("another_type", 2, limit=20), "float16, and was of", "in the first step")

    def test_buckets_as_they_never_are(self):
        """In another order on another rank, the same bits; a parameter twice or never, an exception on all ranks, once."""
        straight = self.identical(self.run_all("odd_buckets", 3, what=None, group_len=0))["digest"]
        for group_len in (1, 3000, 0):
            for what in ("order", "twice", "twice in place of another", "never"):
                with self.subTest(what=what, group_len=group_len):
                    results = self.run_all("odd_buckets", 3, what=what, group_len=group_len, limit=20)
                    self.assertEqual(self.identical(results)["digest"], straight)
                    for rank, result in enumerate(results):
                        self.assertEqual(len(result["raised"]), 0 if what == "order" else 1, result["raised"])
                        for sentence in result["raised"]:
                            self.assertRegex(sentence, "gradients of other parameters|reported ready twice|was not reported ready")
                            self.assertEqual("rank 1: " in sentence, rank != 1)

    def test_a_recipe_without_effect(self):
        for result in self.ranks.run("no_effect", 2, limit=20):
            self.assertIn("ef+topk@0.1", result["error"])

    def test_a_backend_that_cannot(self):
        for backend, part in (("mpi", "new_group(backend='gloo')"), ("nccl", "backend='cpu:gloo,cuda:nccl'")):
            with mock.patch.multiple("tersegrad._torch_group.dist", is_initialized=lambda: True, get_rank=lambda group: 0,
                                     get_backend=lambda group: backend):
                with self.assertRaises(tersegrad.Error) as caught:
                    State("dense", process_group=object())
            self.assertIn(part, str(caught.exception))

    def test_no_process_group(self):
        for made in (State("dense"), Reducer([], "dense")):  # which may come later
            with self.assertRaises(tersegrad.Error) as caught:
                made.state_dict()
            self.assertIn("init_process_group", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
