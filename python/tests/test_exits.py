"""A program with the hook ends with the exit status that it should have, however it ends: the State's thread never aborts it.

    TG_EXITS=50 python3 -m unittest test_exits      more exits of each kind than the few that are the default
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import exits

HERE = pathlib.Path(__file__).resolve().parent
TIMES = int(os.environ.get("TG_EXITS", "8"))

# {kind: what each rank may end with}. An interrupt inside a callback of PyTorch's is a RuntimeError of the script, and so is
# the loss of a rank that was interrupted earlier.
EXPECTED = {"normal": ({0}, {0}), "exception": ({1}, {1}), "exit": ({3}, {3}), "killed peer": ({1}, {-signal.SIGKILL}),
            "interrupt": ({-signal.SIGINT, 1}, {-signal.SIGINT, 1})}


class Exits(unittest.TestCase):
    def test_all_kinds(self):
        self.assertEqual(set(EXPECTED), set(exits.KINDS))
        for kind in exits.KINDS:
            with self.subTest(kind=kind), tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, str(HERE / "exits.py"), kind, str(TIMES), folder], cwd=HERE, timeout=60 + 30 * TIMES,
                                      capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"))
                self.assertEqual(done.returncode, 0, done.stderr)
                results = json.loads(done.stdout)
                self.assertEqual(len(results), TIMES)
                for pair, result in enumerate(results):
                    for rank, expected in enumerate(EXPECTED[kind]):
                        log = pathlib.Path(folder, f"{pair}.{rank}.log").read_text(errors="replace")
                        self.assertIn(result[str(rank)], expected, f"{kind}, pair {pair}, rank {rank}: {log[-2000:]}")
                        self.assertNotIn("terminate called", log)
                        if kind == "killed peer" and rank == 0:
                            self.assertIn("has lost rank 1", log)


if __name__ == "__main__":
    unittest.main()
