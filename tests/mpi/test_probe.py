"""`tersegrad probe` over MPI.

    MPI=openmpi BUILD=build/openmpi python3 -m unittest discover -s tests/mpi
"""

import json
import pathlib
import subprocess
import tempfile
import unittest

from job import PROGRAM, mpirun, said


class Probe(unittest.TestCase):
    def test_plan_reads_it(self):
        """Ranks of one machine: all-reduces are measured, and the plan takes ranks, hosts and link from the file."""
        with tempfile.TemporaryDirectory() as folder:
            machine, path, bad = (pathlib.Path(folder) / name for name in ("machine.json", "network.json", "bad.json"))
            subprocess.run([PROGRAM, "probe", "--recipes", "fp16", "--n", "65536", "--seconds", "0.01", machine], check=True, capture_output=True)
            done = mpirun(3, PROGRAM, "probe", "--probe", machine, "--seconds", "0.01", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("3 ranks on ", done.stdout)
            network = json.loads(path.read_text())["network"]
            self.assertEqual(network["ranks"], 3)
            talks = ("group", "local", "fp32", "bf16")  # one host has no other leaders to talk to
            for column in ("exchange", *talks, *(f"{talk}_busy" for talk in talks)):
                self.assertTrue(all(value > 0 for value in network[column]), network)
            self.assertEqual(set(network["leaders"]), {0})
            told = json.loads(subprocess.run([PROGRAM, "plan", "--probe", path, "--params", "1e5", "--compute", "1ms", "--recipes", "fp16",
                                              "--json"], check=True, capture_output=True, text=True).stdout)
            self.assertEqual((told["workers"], told["link_measured"]), (3, True))
            bad.write_text("{}")
            done = mpirun(2, PROGRAM, "probe", "--probe", bad, path)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual([line for line in said(done) if "no file of" in line], said(done)[:1])
