"""Shared by tests that run the program: its path, a temporary folder, encoding and decoding of one tensor."""

import heapq
import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "release" / "tersegrad"))
CHUNK = 262144

sys.path[:0] = [str(ROOT / "tests" / "ref"), str(ROOT / "tests" / "golden")]
import golden  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tersegrad-test-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def encode(self, recipe, values, *flags):
        return golden.encode(PROGRAM, self.dir, {"recipe": recipe, "flags": flags}, [("w", values)], 1)


def prefix_cost(weights):
    """Weight times length, summed, of the best prefix code for at least two weights."""
    heap, total = sorted(weights), 0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, both)
        total += both
    return total
