"""The hook with gradients on a GPU, as far as that can be tested without one: kernels are emulated, gradients are on the CPU and count as on a
GPU, and a process group over gloo is in the place of NCCL. Averages, residuals and failures must be those of the CPU.

    TG_LIBRARY=build/emulated/libtersegrad-cuda.so TG_EMULATED_REACH=1 PYTHONPATH=python python3 tests/cuda/test_hook_cuda.py
"""

import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python" / "tests"))
from ranks import RANKS


def setUpModule():
    if "TG_EMULATED_REACH" not in os.environ:
        raise unittest.SkipTest("kernels are not emulated (scripts/check-cuda)")


def run(how, job, world, **arguments):
    """`how` messages travel: "stage" through host memory, "wire" over a process group of their own; "" is the codec of the CPU."""
    return RANKS.run("emulate", world, limit=90, how=how, what=job, arguments=arguments)


class OnDevice(unittest.TestCase):
    def run_all(self, how, job, world, **arguments):
        out = run(how, job, world, **arguments)
        for rank, result in enumerate(out):
            if isinstance(result, dict) and "error" in result:
                self.fail(f"{job} by {how}: rank {rank}: {result['type']}: {result['error']}")
        return out

    def same(self, job, world, hows=("stage", "wire"), **arguments):
        """The same bits on all ranks and with every link."""
        expected = self.run_all("", job, world, **arguments)
        for how in hows:
            for result in self.run_all(how, job, world, **arguments):
                self.assertEqual(result["digest"], expected[0]["digest"], (how, job, arguments))
        return expected


class Hook(OnDevice):
    def test_the_bits_of_the_cpu(self):
        for world, recipe, options, ddp in ((2, "adacomp", {"group_len": 1}, {"bucket_cap_mb": 0.001}),
                                            (3, "ef+topk@0.1", {"group_len": 2000}, {"bucket_cap_mb": 0.001}),
                                            (2, "ef+fp8", {"group_len": 0}, {"gradient_as_bucket_view": True}),
                                            (3, "fp16", {"group_len": 1, "exchange": "shard"}, {"static_graph": True, "bucket_cap_mb": 0.001}),
                                            (2, "powersgd@2", {"group_len": 1}, {"model": "conv"}),
                                            (2, "dense", {"group_len": 1}, {"model": "unused", "find_unused": True, "bucket_cap_mb": 0.001}),
                                            (2, "ef+topk@0.1", {}, {"accumulate": 2}),
                                            (2, "adacomp", {"group_len": 1}, {"static_graph": True, "bucket_cap_mb": 0.001, "gradient_as_bucket_view": True}),
                                            (3, "ef+topk@0.1", {"group_len": 1}, {"model": "unused", "find_unused": True, "bucket_cap_mb": 0.001,
                                                                                   "gradient_as_bucket_view": True}),
                                            (2, "ef+fp8", {"group_len": 1}, {"accumulate": 2, "bucket_cap_mb": 0.001, "gradient_as_bucket_view": True})):
            with self.subTest(world=world, recipe=recipe):
                self.same("train", world, recipe=recipe, steps=3, options=options, **ddp)

    def test_a_hook_around_the_hook(self):
        arguments = {"recipe": "ef+topk@0.1", "steps": 4, "options": {"group_len": 1}, "bucket_cap_mb": 0.001}
        expected = self.run_all("", "train", 2, **arguments)[0]["digest"]
        for how in ("stage", "wire"):
            self.assertEqual({result["digest"] for result in self.run_all(how, "train", 2, wrapped=True, **arguments)}, {expected}, how)

    def test_without_ddp_and_with_a_scaler(self):
        self.same("plain", 2, recipe="ef+topk@0.1", steps=3, group_len=1)
        self.same("scaled", 2, recipe="adacomp", scales=[1024, 512, 512, 65536], inf_at=2)
        self.same("resume", 2, hows=("wire",), recipe="ef+topk@0.1", stop=2, steps=4, folder=RANKS.folder.name)

    def test_states_and_recipes_that_change(self):
        recipes = ["ef+topk@0.1", "adacomp", "fp16", "powersgd@2", "dense"]
        expected = self.run_all("", "change", 2, recipes=recipes)
        for how in ("stage", "wire"):
            self.assertEqual(self.run_all(how, "change", 2, recipes=recipes), expected)

    def test_failures_have_a_reason_on_every_rank(self):
        for how in ("stage", "wire"):
            for result in run(how, "nan_later", 2):
                self.assertIn("weight", result["raised"])
                self.assertTrue(result["unchanged"])
        for result in run("wire", "break_wire", 2):
            self.assertEqual(result["code"], "LINK")
            self.assertRegex(result["raised"], "rank [01]: the process group failed in the middle of a step: (broken on purpose|.*closed|.*Connection reset)|has lost rank 1")
        for result in run("", "mixed_devices", 2):
            self.assertIn("rank 1 has its gradients on 'cuda' and rank 0 on 'cpu'", result["raised"])
        for result in run("stage", "cpu_build", 2):
            self.assertIn("this build of tersegrad is for CPUs alone", result["raised"])
            self.assertTrue(result["unchanged"])
        for result in run("wire", "second_wire", 2):
            self.assertIn("give each one its own", result)
        for result in run("stage", "device_changes", 2):
            self.assertIn("is on cpu, and the first step was on cuda:1", result["raised"])

    def test_a_pass_that_autograd_ends(self):
        """With gradients that are views of buckets the step is waited for at the end of the backward pass."""
        digests = set()
        for how in ("", "stage", "wire"):
            for view in (False, True):
                for result in self.run_all(how, "nan_in_views", 2, view=view):
                    self.assertRegex(result["raised"], "0.weight.*NaN")
                    self.assertEqual(result["step"], 4)
                    digests.add(result["digest"])
            for result in self.run_all(how, "broken_end", 2):
                self.assertRegex(result["raised"], "broken on purpose")
                self.assertEqual(result["step"], 3)
        self.assertEqual(len(digests), 1)

    def test_what_cannot_be_exchanged(self):
        """Every rank says the same, whether messages go through host memory or by themselves."""
        for how in ("stage", "wire"):
            for job, arguments, pattern in (("unsuitable", {"what": "sparse"}, "sparse"), ("complex_numbers", {}, "complex64"),
                                            ("disagree", {"what": "recipe"}, "recipe"), ("later", {"what": "recipe"}, "another recipe"),
                                            ("later", {"what": "nan", "bucket_cap_mb": 0.001, "group_len": 1}, "NaN")):
                with self.subTest(how=how, job=job, **arguments):
                    for result in run(how, job, 2, **arguments):
                        self.assertRegex(result["error"], pattern)


if __name__ == "__main__":
    unittest.main()
