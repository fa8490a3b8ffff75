"""`tersegrad quality` from outside: numbers that are known without it, what it prints, what it refuses.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import json
import math
import unittest

import numpy as np

from case import Case, gradient

DISTRIBUTIONS = ["gaussian", "laplace", "cubed"]
UNBIASED = ["natural", "ternary", "orq@3", "orq@9", "linear@3", "linear@9", "qsgd@1", "qsgd@16", "randomk@0.1,unbiased=yes"]
DETERMINED = ["fp16", "bf16", "sign", "bingrad@b", "bingrad@zero", "topk@0.1"]


def by_name(result):
    return {(row["distribution"], row["recipe"]): row for row in result["rows"]}


class Quality(Case):
    def rows(self, recipes, *flags):
        return by_name(self.json("quality", "--recipes", ";".join(recipes), *flags))

    def close(self, value, want, share):
        self.assertLess(abs(value - want), share * want, (value, want))

    def test_keys_and_order(self):
        found = self.json("quality", "--n", 3000, "--seed", 7)
        self.assertEqual((list(found), found["n"], found["seed"]), (["n", "seed", "rows"], 3000, 7))
        recipes = [row["recipe"] for row in found["rows"] if row["distribution"] == "gaussian"]
        self.assertTrue({"fp16", "natural", "bingrad@pb", "ternary@clip=2.5", "orq@9,levels=exact", "qsgd@16"} <= set(recipes))
        self.assertEqual([row["distribution"] for row in found["rows"]], [d for d in DISTRIBUTIONS for _ in recipes])
        for d in DISTRIBUTIONS:
            own = [row for row in found["rows"] if row["distribution"] == d]
            self.assertEqual({row["recipe"] for row in own}, set(recipes))
            self.assertEqual(own, sorted(own, key=lambda row: (row["bits_per_value"], row["nmse"])))
        for row in found["rows"]:
            self.assertEqual(list(row), ["distribution", "recipe", "nmse", "bias", "bits_per_value"])
            self.assertGreater(row["nmse"], 0)

    def test_the_table_lines_up(self):
        lines = self.works("quality", "--n", 2000, "--recipes", "fp16;orq@9,levels=exact;sign;qsgd@1").splitlines()
        head = next(line for line in lines if line.startswith("distribution"))
        rows = [line for line in lines if line.split(" ")[0] in DISTRIBUTIONS]
        self.assertEqual(len(rows), 12)
        for row in rows:
            self.assertEqual(len(row), len(head))
            self.assertEqual(row.index(row.split()[1]), head.index("recipe"))
            for name in ("nmse", "bias"):
                end = head.index(name) + len(name)
                self.assertRegex(row[end - 1:end + 1], r"\d ")

    def test_three_levels_in_buckets_of_300(self):
        found = self.rows(["linear@3,bucket=300", "orq@3,bucket=300"], "--n", 300000)
        self.close(found["gaussian", "linear@3,bucket=300"]["nmse"], 1.316, 0.05)
        self.close(found["gaussian", "orq@3,bucket=300"]["nmse"], 1.283, 0.05)
        self.close(found["laplace", "orq@3,bucket=300"]["nmse"], 1.776, 0.05)

    def test_signs(self):
        """Signs times the mean magnitude lose all of the energy but the square of that mean."""
        found = self.rows(["sign", "fp16"], "--n", 300000)
        for d, kept in (("gaussian", 2 / math.pi), ("laplace", 1 / 2), ("cubed", 8 / math.pi / 15)):
            self.close(found[d, "sign"]["nmse"], 1 - kept, 0.02)
            self.close(found[d, "sign"]["bits_per_value"], 1, 0.01)
            self.close(found[d, "fp16"]["bits_per_value"], 16, 0.01)

    def test_bias(self):
        found = self.rows(UNBIASED + DETERMINED + ["bingrad@pb"], "--n", 100000)
        for d in DISTRIBUTIONS:
            for recipe in UNBIASED:
                row = found[d, recipe]
                self.assertLess(abs(row["bias"]), 0.02 * row["nmse"], row)
            for recipe in DETERMINED:
                row = found[d, recipe]
                self.close(row["bias"], row["nmse"], 1e-9)
            row = found[d, "bingrad@pb"]
            self.assertTrue(0.5 * row["nmse"] < row["bias"] < 0.98 * row["nmse"], row)

    def test_the_same_as_by_hand(self):
        """Frames written one by one, at steps 0 to 7, give the same error and bias."""
        array = gradient(3000)
        source, frame, back = self.save("in.npy", array), self.dir / "x.tg", self.dir / "back.npy"
        values, energy = array.astype(np.float64), np.sum(array.astype(np.float64) ** 2)
        recipes = ["ternary@clip=2.5", "bingrad@b", "topk@0.1+orq@5"]
        found = self.rows(recipes, "--input", source, "--seed", 3)
        for recipe in recipes:
            steps = []
            for step in range(8):
                self.works("encode", "--recipe", recipe, "--seed", 3, "--step", step, source, frame)
                self.works("decode", frame, back)
                steps.append(np.load(back).astype(np.float64))
            nmse = np.mean([np.sum((step - values) ** 2) for step in steps]) / energy
            of_mean = np.sum((np.mean(steps, axis=0) - values) ** 2) / energy
            row = found["input", recipe]
            self.close(row["nmse"], nmse, 1e-9)
            self.close(row["bias"], (8 * of_mean - nmse) / 7, 1e-9)
            self.assertLess(row["bits_per_value"], 8 * frame.stat().st_size / len(array))

    def test_input(self):
        array = gradient(5000)
        for source in (self.save("a.npy", array.reshape(50, 100)), self.save("b.npy", array.astype(np.float16))):
            found = self.json("quality", "--input", source, "--recipes", "sign;orq@9")
            self.assertEqual(found["n"], 5000)
            self.assertEqual([(row["distribution"], row["recipe"]) for row in found["rows"]],
                             [("input", "sign"), ("input", "orq@9")])
            values = np.load(source).astype(np.float64).ravel()
            self.close(found["rows"][0]["nmse"], 1 - np.mean(np.abs(values)) ** 2 / np.mean(values ** 2), 1e-4)
        self.assertIn("from the file", self.works("quality", "--input", source, "--recipe", "sign"))
        zeros = self.json("quality", "--input", self.save("z.npy", np.zeros(100, np.float32)), "--recipe", "sign")
        self.assertEqual((zeros["rows"][0]["nmse"], zeros["rows"][0]["bias"]), (None, None))
        self.assertEqual(self.json("quality", "--input", source, "--recipe", "dense")["rows"][0]["nmse"], 0)

    def test_seed_and_threads(self):
        flags = ("quality", "--recipes", "orq@5;topk@0.1+fp16", "--n", 600000, "--json")
        first = self.works(*flags)
        self.assertEqual(first, self.works(*flags, "--threads", 2))
        self.assertNotEqual(first, self.works(*flags, "--seed", 2))
        self.assertEqual(by_name(self.json("quality", "--recipe", "sign", "--n", 1))["laplace", "sign"]["nmse"], 0)

    def test_page(self):
        page = self.dir / "page.html"
        found = self.json("quality", "--n", 1000, "--recipes", "sign;orq@3", "--page", page)
        text = page.read_text(encoding="utf-8")
        shown = json.loads(text.split('id="data">')[1].split("</script>")[0])
        self.assertEqual((shown["rows"], shown["n"], shown["input"]), (found["rows"], 1000, None))
        self.assertNotRegex(text, "@(STYLE|CHART|DATA)@|https?://(?!www.w3.org/2000/svg)")
        self.assertIn(str(page), self.works("quality", "--n", 1000, "--recipe", "sign", "--page", page))

    def test_refusals(self):
        source = self.save("in.npy", gradient(100))
        for recipe in ("ef+sign", "ef@decay=0.9+topk@0.1", "onebit", "adacomp"):
            self.fails(2, "quality", "--recipe", recipe, says=f"{recipe} has feedback")
        for recipe in ("nope", "fp16+bf16", "orq@4"):
            self.fails(2, "quality", "--recipe", "sign", "--recipe", recipe)
        for flags in (["--n", "0"], ["--n", "x"], ["--input", source, "--n", "5"], ["--recipes", "sign;;fp16"], ["x"],
                      ["--threads", "0"], ["--step", "1"], ["--input", source, "--input", source]):
            self.fails(2, "quality", *flags)
        small = ("quality", "--recipe", "sign", "--n", 100)
        self.fails(1, "quality", "--input", self.dir / "nosuch.npy", says="nosuch.npy")
        self.fails(1, "quality", "--input", self.save("none.npy", gradient(0)), says="no elements")
        self.fails(1, "quality", "--input", self.save("nan.npy", np.full(3, np.nan, np.float32)), says="'nan'")
        self.fails(1, *small, "--page", self.dir / "no" / "page.html", says="cannot write")
        self.fails(1, *small, "--page", self.dir, says="directory")
        self.fails(1, *small, "--page", "/dev/full")

    def test_help(self):
        self.assertIn("\n  quality ", self.works("--help"))
        about = self.works("quality", "--help")
        for text in ("Usage: tersegrad quality ", "--input FILE.npy", "only on the gradient", "--json", "\n  tersegrad quality"):
            self.assertIn(text, about)
        self.assertLessEqual(max(map(len, about.splitlines())), 120)


if __name__ == "__main__":
    unittest.main()
