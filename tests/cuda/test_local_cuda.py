"""LocalSteps with parameters on a GPU, as far as that can be tested without one (test_hook_cuda.py): weights, residuals and states must be
those of the CPU.

    TG_LIBRARY=build/emulated/libtersegrad-cuda.so TG_EMULATED_REACH=1 PYTHONPATH=python python3 tests/cuda/test_local_cuda.py
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import test_hook_cuda
from test_hook_cuda import OnDevice, run

setUpModule = test_hook_cuda.setUpModule


class Local(OnDevice):
    def test_the_bits_of_the_cpu(self):
        for world, arguments in ((2, {"recipe": "terse", "every": 3}), (3, {"recipe": "ef+topk@0.1", "every": "1,2:3", "optimizer": "adamw"}),
                                 (2, {"recipe": "adacomp", "every": 2, "outer": "nesterov@lr=0.7,momentum=0.9"})):
            with self.subTest(**arguments):
                self.same("local", world, **arguments)

    def test_overlapped_in_fragments(self):
        """One process group serves all fragments, in turns."""
        self.same("overlapped", 2, steps=7, every=4, fragments=2, mix=0.5, recipe="ef+topk@0.1")

    def test_scaler_buffers_and_states(self):
        self.same("amp", 2)
        for how in ("stage", "wire"):
            for result in run(how, "buffers", 2, when="round", on_demand=True):
                self.assertEqual(result["mean"], result["got"])
            with tempfile.TemporaryDirectory() as folder:
                for result in run(how, "resumed", 2, folder=folder, at=6, every=4, outer="nesterov"):
                    self.assertEqual(result["straight"], result["resumed"])


if __name__ == "__main__":
    unittest.main()
