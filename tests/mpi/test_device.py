"""`tersegrad train` over MPI with ranks on CPUs and on a GPU in one job: the same bits as on CPUs alone.

    MPI=openmpi BUILD=build/emulated python3 -m unittest tests/mpi/test_device.py     a build with kernels, preset cuda or emulated, and MPI

All ranks that use a GPU share one.
"""

import json
import pathlib
import subprocess
import tempfile
import unittest

from job import ENVIRONMENT, PROGRAM, SMALL, mpirun, mpirun_unlike, said

FLAGS = ["train", "--data", "glyphs", *SMALL, "--json", "--timeout", "60"]


def has_kernels():
    done = subprocess.run([PROGRAM, "bench", "--recipe", "fp16", "--n", "100", "--seconds", "0.001", "--device", "cuda"], capture_output=True,
                          env=ENVIRONMENT, timeout=120, check=False)
    return done.returncode == 0


@unittest.skipUnless(has_kernels(), "the program has no kernels, or there is no GPU")
class Device(unittest.TestCase):
    def job(self, devices, *arguments):
        """What rank 0 prints, without times and the name of its device, and the checkpoint that it leaves."""
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            path = pathlib.Path(folder) / "saved"
            done = mpirun_unlike(*([PROGRAM, *FLAGS, "--device", device, "--checkpoint", path, *arguments] for device in devices), timeout=300)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            told = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
            return {key: value for key, value in told.items() if "seconds" not in key and key != "device"}, path.read_bytes()

    def test_ranks_with_and_without_a_gpu_end_in_the_same_bits(self):
        flags = ("adacomp --exchange shard", "ef+topk@0.05 --exchange gather", "fp16", "co3 --exchange gather", "powersgd@2")
        for i, recipe in enumerate(flags):
            with self.subTest(recipe=recipe):
                arguments = ("--steps", "4", "--recipe", *recipe.split())
                plain = self.job(("cpu",) * 3, *arguments)
                self.assertIn("weights_hash", plain[0])
                self.assertEqual(self.job(("cpu", "cuda", "cuda") if i % 2 else ("cuda", "cpu", "cuda"), *arguments), plain)

    def test_ranks_that_disagree_are_told_so(self):
        done = mpirun_unlike(*([PROGRAM, *FLAGS, "--steps", "2", "--device", device, "--recipe", recipe]
                               for device, recipe in (("cuda", "adacomp"), ("cpu", "fp16"))))
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(said(done), done.stderr)

    def test_probe(self):
        """The GPU and the network in one file, in one run or one after the other."""
        with tempfile.TemporaryDirectory(prefix="tersegrad-test-") as folder:
            path, again = (pathlib.Path(folder) / name for name in ("cluster.json", "again.json"))
            flags = ("--recipes", "fp16", "--n", "65536", "--seconds", "0.001")
            done = mpirun(2, PROGRAM, "probe", "--device", "cuda", *flags, path)
            self.assertEqual(done.returncode, 0, done.stderr)
            done = mpirun(2, PROGRAM, "probe", "--device", "cuda", "--probe", path, *flags, again)
            self.assertEqual(done.returncode, 0, done.stderr)
            one, other = (json.loads(each.read_text()) for each in (path, again))
            self.assertEqual(one["gpu"], other["gpu"])
            self.assertEqual(one["network"]["ranks"], 2)
            done = subprocess.run([PROGRAM, "plan", "--probe", path, "--device", "cuda", "--params", "1e5", "--compute", "1ms", "--recipes", "fp16", "--json"],
                                  capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            told = json.loads(done.stdout)
            self.assertEqual((told["workers"], told["link_measured"], told["device"]), (2, True, "cuda"))


if __name__ == "__main__":
    unittest.main()
