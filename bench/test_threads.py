"""What bench/threads.py makes of figures: speed-ups, the machine's limit, its files. Nothing is timed."""

import argparse
import csv
import pathlib
import subprocess
import sys
import tempfile
import unittest

import recipes
import threads

JOBS = recipes.JOBS[:2]


def result(count, encode):
    return {"n": 9, "simd": "avx2", "memcpy_gbps": 10, "memcpy_threads_gbps": 10 * min(count, 3), "encode_vs_memcpy": encode,
            "decode_vs_memcpy": 2 * encode, "sum_vs_memcpy": 3 * encode}


def rounds():
    return {(job, count): [result(count, 0.5 * count ** 0.5 * noise) for noise in (1, 1.1, 0.1)] for job in JOBS
            for count in (1, 4, 16)}


class Threads(unittest.TestCase):
    def test_speedups(self):
        rows = threads.summarise(rounds(), "abc")
        self.assertEqual(len(rows), 6)
        for what in recipes.OPERATIONS:
            for row, speedup in zip(rows, (1, 2, 4, 1, 2, 4)):
                self.assertAlmostEqual(row[f"{what}_speedup"], speedup)
        self.assertEqual(threads.limits(rows), {1: 1, 4: 3, 16: 3})

    def test_tables(self):
        rows = threads.summarise(rounds(), "abc")
        lines = threads.table(rows, "encode")
        self.assertEqual({line.count("|") for line in lines}, {5})
        self.assertEqual(lines[0], "| recipe | 1 thread, of memcpy | 4 threads | 16 threads |")
        self.assertEqual(lines[2], f"| `{JOBS[0].recipe}` | 0.500 | 2.00× | 4.00× |")
        self.assertEqual(lines[-1], "| memcpy | 1 | 3.00× | 3.00× |")
        text = "\n".join(threads.page(rows, "kind"))
        for name in threads.NAMES.values():
            self.assertIn(f"## {name}\n", text)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results/threads.csv"
            threads.save(path, threads.summarise(rounds(), "abc"))
            with open(path, newline="", encoding="utf-8") as lines:
                rows = list(csv.DictReader(lines))
        self.assertEqual([row["threads"] for row in rows], ["1", "4", "16"] * 2)
        self.assertEqual((rows[1]["encode_speedup"], rows[1]["commit"]), ("2", "abc"))

    def test_thread_counts(self):
        self.assertEqual(threads.thread_counts("1,2,16"), [1, 2, 16])
        for text in ("0", "2,1", "1,1", "1,2,-4"):
            with self.assertRaises(argparse.ArgumentTypeError):
                threads.thread_counts(text)

    def test_needs_no_numpy(self):
        code = "import sys; sys.modules['numpy'] = None; import threads; print(threads.COLUMNS[0])"
        done = subprocess.run([sys.executable, "-c", code], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "commit\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
