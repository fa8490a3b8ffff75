"""`tersegrad similarity` from outside: its numbers against NumPy on the gradients that it keeps, what it prints, what it
refuses.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import itertools
import json
import unittest

import numpy as np

from case import Case

QUICK = ("--model", "mlp", "--data", "glyphs", "--batch", "8", "--workers", "3", "--steps", "12")
KEYS = ["version", "model", "data", "workers", "batch", "steps", "every", "seed", "ratio", "diverged", "tensors", "whole", "over_time"]
NUMBERS = ["cosine", "overlap", "information"]


def count_of(n, ratio):
    return max(1, int(ratio * n + 0.5))


def top(values, k):
    order = np.argsort(-np.abs(values), kind="stable")[:k]
    return set(order[values[order] != 0].tolist())


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def entropy(counts, n):
    shares = counts[counts > 0] / n
    return -np.sum(shares * np.log2(shares)) + (len(shares) - 1) / (2 * n * np.log(2))


def information(a, b, places):
    """Between the quartiles of both at these places, by Miller and Madow."""
    places = sorted(places)
    n = len(places)
    if n < 64:
        return None
    x, y = (np.searchsorted(np.sort(v[places])[[n // 4, n // 2, 3 * n // 4]], v[places], side="right") for v in (a, b))
    table = np.zeros((4, 4))
    np.add.at(table, (x, y), 1)
    return entropy(table.sum(1), n) + entropy(table.sum(0), n) - entropy(table.ravel(), n)


def compare(workers, ratio):
    """What the program should say of these gradients, one a worker."""
    k = count_of(len(workers[0]), ratio)
    tops = [top(values, k) for values in workers]
    pairs = list(itertools.combinations(range(len(workers)), 2))
    told = [information(workers[a], workers[b], tops[a]) for a, b in pairs]
    return {"cosine": np.mean([cosine(workers[a], workers[b]) for a, b in pairs]),
            "overlap": np.mean([len(tops[a] & tops[b]) / k for a, b in pairs]),
            "information": None if None in told else max(0, np.mean(told))}


class Similarity(Case):
    def close(self, found, want, about):
        for key in NUMBERS:
            if want[key] is None:
                self.assertIsNone(found[key], (about, key))
            else:
                self.assertAlmostEqual(found[key], want[key], 9, (about, key))

    def test_keys_and_ranges(self):
        found = self.json("similarity", *QUICK, "--every", 4)
        self.assertEqual(list(found), KEYS)
        self.assertEqual([found[key] for key in ("model", "data", "workers", "batch", "steps", "every", "seed", "ratio")],
                         ["mlp", "glyphs", 3, 8, 12, 4, 1, 0.01])
        names = [row["name"] for row in found["tensors"]]
        self.assertTrue(names and all(name.endswith("weight") for name in names), names)
        self.assertEqual(found["whole"]["n"], sum(row["n"] for row in found["tensors"]))
        for row in found["tensors"] + [found["whole"]]:
            self.assertEqual(list(row)[-5:], ["n", "cosine", "overlap", "chance", "information"])
            k = count_of(row["n"], 0.01)
            self.assertAlmostEqual(row["chance"], k / row["n"])
            self.assertTrue(-1 <= row["cosine"] <= 1 and 0 <= row["overlap"] <= 1, row)
            self.assertEqual(row["information"] is None, k < 64, row)
            self.assertTrue(row["information"] is None or 0 <= row["information"] <= 2, row)
        self.assertEqual([moment["step"] for moment in found["over_time"]], [0, 4, 8])
        for moment in found["over_time"]:
            self.assertEqual(list(moment), ["step", *NUMBERS, "whole"])
            self.assertEqual(list(moment["whole"]), NUMBERS)
            for key in NUMBERS:
                self.assertEqual(list(moment[key]), names)

    def test_the_same_as_by_hand(self):
        """NumPy finds the same in the gradients of all workers, for each tensor and for all of them end to end."""
        for ratio in (0.01, 0.1):
            kept = self.dir / f"kept-{ratio}"
            found = self.json("similarity", *QUICK, "--every", 5, "--ratio", ratio, "--gradients", kept)
            self.assertEqual(sorted(p.name for p in kept.iterdir()), ["worker-0", "worker-1", "worker-2"])
            names = [row["name"] for row in found["tensors"]]
            sums = {name: {key: [] for key in NUMBERS} for name in [*names, "whole"]}
            self.assertEqual([moment["step"] for moment in found["over_time"]], [0, 5, 10])
            for moment in found["over_time"]:
                folders = [kept / f"worker-{w}" / f"step-{moment['step']:06}" for w in range(3)]
                grads = [{name: np.load(folder / f"{name}.npy").ravel() for name in names} for folder in folders]
                wholes = [np.concatenate([worker[name] for name in names]) for worker in grads]
                for name in sums:
                    want = compare(wholes if name == "whole" else [worker[name] for worker in grads], ratio)
                    said = moment["whole"] if name == "whole" else {key: moment[key][name] for key in NUMBERS}
                    self.close(said, want, (name, moment["step"]))
                    for key in NUMBERS:
                        sums[name][key].append(want[key])
            for row in found["tensors"] + [{**found["whole"], "name": "whole"}]:
                of = sums[row["name"]]
                self.close(row, {key: None if None in of[key] else np.mean(of[key]) for key in NUMBERS}, row["name"])

    def test_all_values_are_the_largest(self):
        """Where all are the largest, those that are not 0 are shared, and by chance all are."""
        found = self.json("similarity", *QUICK, "--ratio", 1, "--every", 12)
        for row in found["tensors"]:
            self.assertEqual(row["chance"], 1)
            self.assertTrue(0 < row["overlap"] <= 1, row)

    def test_how_often(self):
        for flags, want in ((("--steps", 40), list(range(0, 40, 2))), (("--steps", 5), list(range(5))),
                            (("--steps", 5, "--every", 9), [0])):
            found = self.json("similarity", *QUICK[:-2], *flags)
            self.assertEqual([moment["step"] for moment in found["over_time"]], want)

    def test_two_runs_agree(self):
        first, again, other = (self.works("similarity", *QUICK, "--seed", seed, "--json") for seed in (4, 4, 5))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_looking_changes_nothing(self):
        """The gradients of worker 0 are those of a run in which nobody compares."""
        self.works("similarity", *QUICK, "--every", 11, "--gradients", self.dir / "all")
        self.works("train", "--recipe", "dense", *QUICK, "--gradients", self.dir / "one")
        for path in sorted((self.dir / "all" / "worker-0" / "step-000011").iterdir()):
            self.assertEqual(path.read_bytes(), (self.dir / "one" / "step-000011" / path.name).read_bytes())

    def test_text(self):
        lines = self.works("similarity", *QUICK, "--every", 6).splitlines()
        self.assertIn("mlp on glyphs: 3 workers", lines[0])
        self.assertIn("2 steps", lines[0])
        self.assertEqual(lines[2].split("  ")[0], "tensor")
        rows = lines[3:lines.index("", 3)]
        self.assertTrue(rows[-1].startswith("all of them"))
        self.assertTrue(all(len(row) == len(lines[2]) for row in rows), rows)
        self.assertTrue(any(row.endswith(" -") for row in rows), rows)

    def test_page(self):
        page = self.dir / "page.html"
        found = self.json("similarity", *QUICK, "--page", page)
        text = page.read_text(encoding="utf-8")
        self.assertEqual(json.loads(text.split('id="data">')[1].split("</script>")[0]), found)
        self.assertNotRegex(text, "@(STYLE|CHART|DATA)@|https?://(?!www.w3.org/2000/svg)")
        self.assertIn(str(page), self.works("similarity", *QUICK, "--page", page))

    def test_refusals(self):
        small = QUICK[:4]
        self.fails(2, "similarity", *small, "--workers", 1, says="needs at least 2 --workers")
        for flags in (["--ratio", "0"], ["--ratio", "1.5"], ["--every", "0"], ["--steps", "0"], ["--recipe", "dense"], ["x"],
                      ["--steps", "5", "--epochs", "1"], ["--workers", "65"], ["--every", "2", "--every", "3"]):
            self.fails(2, "similarity", *small, *flags)
        self.fails(2, "similarity", "--data", "nosuch", says="nosuch")
        self.fails(2, "similarity", "--model", "nosuch", "--data", "glyphs", says="nosuch")
        self.fails(1, "similarity", *QUICK, "--page", self.dir / "no" / "page.html", says="cannot write")
        self.fails(1, "similarity", *QUICK, "--gradients", self.dir / "no" / "kept", says="cannot make the folder")
        self.fails(1, "similarity", *QUICK, "--rate", 1000, says="--rate")
        kept = self.dir / "kept"
        self.works("similarity", *QUICK, "--gradients", kept)
        self.fails(1, "similarity", *QUICK, "--gradients", kept, says="is not empty")

    def test_help(self):
        self.assertIn("\n  similarity ", self.works("--help"))
        about = self.works("similarity", "--help")
        for text in ("Usage: tersegrad similarity ", "--every N", "--ratio R", "--json", "\n  tersegrad similarity"):
            self.assertIn(text, about)
        self.assertLessEqual(max(map(len, about.splitlines())), 120)


if __name__ == "__main__":
    unittest.main()
