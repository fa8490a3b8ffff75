"""What bench/recipes.py makes of figures: noise, what has moved, what is kept. Nothing is timed."""

import contextlib
import io
import pathlib
import random
import tempfile
import unittest
import unittest.mock

import recipes


def row(encode, decode, noise=0.02):
    return {"encode_vs_memcpy": encode, "decode_vs_memcpy": decode, "memcpy_gbps": 5, "bits_per_value": 16, "encode_noise": noise,
            "decode_noise": noise, "sum_vs_memcpy": 1, "sum_noise": noise}


def rounds(values):
    return [{"encode_vs_memcpy": value, "decode_vs_memcpy": 2 * value, "sum_vs_memcpy": 3 * value, "memcpy_gbps": 5,
             "bits_per_value": 16} for value in values]


class Noise(unittest.TestCase):
    def test_by_hand(self):
        self.assertEqual(recipes.noise_of([0.5]), 0)
        self.assertAlmostEqual(recipes.noise_of([1.0, 1.1, 0.9]), 0.14826)
        self.assertAlmostEqual(recipes.noise_of([10, 11, 9]), recipes.noise_of([1.0, 1.1, 0.9]))  # a share, whatever the unit

    def test_one_odd_round_does_not_count(self):
        calm = recipes.noise_of([1.00, 1.01, 0.99, 1.02, 0.98])
        self.assertLess(recipes.noise_of([1.00, 1.01, 0.99, 1.02, 0.2]), 1.01 * calm)

    def test_is_the_deviation_where_values_are_gaussian(self):
        draw = random.Random(1)
        self.assertAlmostEqual(recipes.noise_of([draw.gauss(1, 0.03) for _ in range(20000)]), 0.03, delta=0.001)

    def test_rounds_that_agree_by_accident(self):
        rows = recipes.summarise({"a": rounds([1, 1, 1]), "b": rounds([1, 1.1, 0.9]), "c": rounds([1, 1.2, 0.8])})
        self.assertAlmostEqual(rows["a"]["encode_noise"], rows["b"]["encode_noise"])
        self.assertGreater(rows["c"]["decode_noise"], rows["b"]["decode_noise"])
        self.assertEqual((rows["b"]["encode_vs_memcpy"], rows["b"]["decode_vs_memcpy"]), (1, 2))


class Comparing(unittest.TestCase):
    def test_noise_of_both_counts(self):
        self.assertIsNone(recipes.moved(1, 1.05, 0.02, 0.02))  # within 2 hypot(0.02, 0.02) = 0.057
        self.assertAlmostEqual(recipes.moved(1, 1.10, 0.02, 0.02), 1.10)
        self.assertIsNone(recipes.moved(1, 1.10, 0.02, 0.08))
        self.assertIsNone(recipes.moved(1, 1.10, 0.08, 0.02))

    def test_better_and_worse_alike(self):
        for factor in (1.04, 1.07, 1.5, 3):
            self.assertEqual(recipes.moved(1, factor, 0.02, 0.02) is None, recipes.moved(1, 1 / factor, 0.02, 0.02) is None)

    def test_the_worst_comes_first_and_strangers_are_left_out(self):
        old = {"a": row(0.5, 0.5), "b": row(0.5, 0.5), "gone": row(1, 1)}
        new = {"a": row(0.51, 0.75), "b": row(0.25, 0.4), "new": row(1, 1)}
        found = [(key, what) for key, what, _, _ in recipes.compare(old, new)]
        self.assertEqual(found, [("b", "encode"), ("b", "decode"), ("a", "decode")])

    def test_noise_alone_rarely_moves_anything(self):
        draw, told = random.Random(2), 0
        for _ in range(100):
            old, new = (recipes.summarise({key: rounds([draw.gauss(1, 0.05) for _ in range(5)]) for key in range(28)}) for _ in range(2))
            told += len(recipes.compare(old, new))
        self.assertLess(told / (100 * 84), 0.01)

    def test_rows_without_private_sums(self):
        old, new = {"a": row(0.5, 0.5)}, {"a": row(0.5, 0.5)}
        old["a"]["sum_vs_memcpy"] = old["a"]["sum_noise"] = ""  # as a file that was kept before has them
        new["a"]["sum_vs_memcpy"] = 9
        self.assertEqual(recipes.compare(old, new), [])
        del old["a"]["sum_vs_memcpy"]
        self.assertEqual(recipes.compare(old, new), [])


class Kept(unittest.TestCase):
    def test_machine_kinds(self):
        for model, cores, simd, kind in (("Intel(R) Xeon(R) Processor @ 2.80GHz", 2, "avx512", "xeon-2.80ghz-2-avx512"),
                                         ("AMD EPYC 7B13 64-Core Processor", 8, "avx2", "epyc-7b13-8-avx2"),
                                         ("AMD Ryzen 7 5800U with Radeon Graphics", 16, "avx2", "ryzen-7-5800u-16-avx2"),
                                         ("aarch64", 4, "scalar", "aarch64-4-scalar")):
            self.assertEqual(recipes.machine_kind(model, cores, simd), kind)

    def test_the_last_commit_counts(self):
        def kept(commit, encode):
            return {"date": "2024-01-01T00:00Z", "commit": commit, "command": "c", "recipe": "fp16", "dtype": "fp32", "threads": 1, "n": 9,
                    **row(encode, 1)}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "results/kind.csv"
            self.assertEqual(recipes.last_rows(path), (None, {}))
            recipes.save(path, [kept("aaa", 0.1)])
            recipes.save(path, [kept("bbb", 0.2)])
            recipes.save(path, [kept("bbb", 0.3)])
            last, rows = recipes.last_rows(path)
            self.assertEqual((last, list(rows)), ("bbb", [("fp16", "fp32", 1, 9)]))
            self.assertEqual(float(rows["fp16", "fp32", 1, 9]["encode_vs_memcpy"]), 0.3)
            self.assertEqual(path.read_text(encoding="utf-8").splitlines()[0], ",".join(recipes.COLUMNS))
            self.assertEqual(recipes.compare(rows, {("fp16", "fp32", 1, 9): row(0.3, 1)}), [])

    def test_columns_that_came_later(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "kind.csv"
            path.write_text("date,commit,recipe\n2024,aaa,fp16\n", encoding="utf-8")
            recipes.save(path, [{"commit": "bbb", "recipe": "bf16", "sum_vs_memcpy": 0.5}])
            first, second = path.read_text(encoding="utf-8").splitlines()[1:]
            self.assertTrue(first.startswith("2024,aaa,,fp16,"))
            self.assertTrue(second.endswith(",0.5,"))

    def test_targets_by_instruction_set(self):
        job = recipes.Job("fp16", 0.9, 0.6, recipes.PLAIN, recipes.DENSE)
        kept = {("fp16", "fp32", 1, 9): row(0.8, 0.7), ("fp16", "fp32", 2, 9): row(2, 2), ("bf16", "fp32", 1, 9): row(3, 3)}
        self.assertEqual(recipes.targets_of(job, "avx512", kept), {"encode": 0.9, "decode": 0.6})
        self.assertEqual(recipes.targets_of(job, "avx2", kept), {"encode": 0.4, "decode": 0.35})
        self.assertEqual(recipes.targets_of(job, "avx2", {}), {"encode": 0.45, "decode": 0.3})
        for simd in ("neon", "scalar"):
            self.assertEqual(recipes.targets_of(job, simd, kept), {"encode": None, "decode": None})

    def test_tables_and_targets_of_every_set(self):
        rows = {(job.recipe, job.dtype, threads, 9): row(1, 1) for job in recipes.JOBS for threads in recipes.THREADS}
        for simd in recipes.SIMD:
            targets = {job.name: recipes.targets_of(job, simd, {}) for job in recipes.JOBS}
            lines = recipes.table(recipes.JOBS, rows, targets)
            self.assertEqual({line.count("|") for line in lines}, {14})
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                recipes.tell_targets(recipes.JOBS, rows, targets)
            self.assertIn("reached", out.getvalue())

    def test_environment(self):
        with unittest.mock.patch.dict("os.environ", {"TG_SIMD": "scalar", "HOME": "/home"}):
            self.assertNotIn("TG_SIMD", recipes.environment(None))
            self.assertEqual(recipes.environment("avx2")["TG_SIMD"], "avx2")
            self.assertEqual(recipes.environment("avx2")["HOME"], "/home")

    def test_targets_are_of_distinct_recipes(self):
        self.assertEqual(len({job.name for job in recipes.JOBS}), len(recipes.JOBS))


if __name__ == "__main__":
    unittest.main()
