"""The hook in Lightning and in Accelerate, on two ranks over gloo. Each test is skipped where the library is not installed.

    python3 -m unittest discover -s python/tests      with the package, PyTorch 2 and `pip install lightning accelerate`
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def has(name):
    return importlib.util.find_spec(name) is not None


class Neighbours(unittest.TestCase):
    def run_job(self, what):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(29600 + os.getpid() % 300),
                   str(HERE / "neighbours.py"), what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"))
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        # The two ranks may print on one line.
        told = [json.loads(part) for line in done.stdout.splitlines() for part in line.replace("}{", "}\n{").splitlines() if part.startswith('{"rank"')]
        self.assertEqual(sorted(each["rank"] for each in told), [0, 1])
        self.assertEqual(told[0]["digest"], told[1]["digest"])
        return told

    @unittest.skipUnless(has("lightning"), "lightning is not installed")
    def test_lightning(self):
        for each in self.run_job("lightning"):
            self.assertEqual(each["steps"], 3)
            self.assertIn("net.0.weight", each["names"])

    @unittest.skipUnless(has("lightning"), "lightning is not installed")
    def test_lightning_ignores_hooks_of_its_strategy_on_cpus(self):
        for each in self.run_job("lightning-ignored"):
            self.assertEqual(each["steps"], 0)  # docs/pytorch.md says so; if that has changed, the callback is needed no more

    @unittest.skipUnless(has("accelerate"), "accelerate is not installed")
    def test_accelerate(self):
        for each in self.run_job("accelerate"):
            self.assertEqual(each["steps"], 3)


if __name__ == "__main__":
    unittest.main()
