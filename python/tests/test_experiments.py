"""The experiments: a training that is stopped and continued, the grid, and tables from kept results.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import xml.dom.minidom

import numpy
import torch

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / "experiments"
sys.path.insert(0, str(EXPERIMENTS))
if EXPERIMENTS.exists():
    import grid
    import nets
    import report
    import training
    from settings import DEFAULTS, complete

TINY = {"width": 4, "batch": 8, "workers": 2, "epochs": 3, "precision": "fp32", "model": "resnet18"}


def write_cifar(folder):
    random = numpy.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, n in (("data_batch_1", 80), ("test_batch", 20)):
        rows = random.integers(0, 256, (n, 3073), dtype=numpy.uint8)
        rows[:, 0] %= 10
        rows.tofile(folder / f"{name}.bin")


def kept(recipe, accuracy=0.9, **settings):
    """A line of results as training.py writes it."""
    return {"settings": dict(DEFAULTS, recipe=recipe, **settings), "status": "finished", "accuracy": accuracy, "ratio": 4.0,
            "frame_ratio": 8.0, "meter": {"sent": 10 ** 9}, "steps": 1000, "exchange": "gather", "date": "2026-01-01", "parameters": 7,
            "versions": {"device": "cpu", "torch": "1", "tersegrad": "0"}}


@unittest.skipUnless(EXPERIMENTS.exists(), "the experiments are not part of the package")
class Trainings(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        write_cifar(self.folder / "cifar10")
        before = os.environ.get("TG_DATA")
        os.environ["TG_DATA"] = folder.name
        self.addCleanup(lambda: os.environ.pop("TG_DATA") if before is None else os.environ.update(TG_DATA=before))

    def run_training(self, settings, work, until=None):
        with contextlib.redirect_stdout(io.StringIO()):
            return training.run(settings, self.folder / work, until)

    def result(self, work):
        return json.loads((self.folder / work / "result.json").read_text())

    def test_stopped_and_continued_it_ends_in_the_same_curve_and_bytes(self):
        for recipe, local in (("adacomp", 1), ("dgc@0.1", 1), ("ef+adabins@500+sign@scale=meanmax", 2)):
            with self.subTest(recipe=recipe):
                settings = dict(TINY, recipe=recipe, local_steps=local)
                self.assertEqual(self.run_training(settings, f"whole {recipe}"), 0)
                stops = 0
                while self.run_training(settings, f"pieces {recipe}", until=0) == training.STOPPED:
                    stops += 1
                self.assertEqual(stops, 2)
                whole, pieces = (self.result(f"{kind} {recipe}") for kind in ("whole", "pieces"))
                for row in whole["curve"] + pieces["curve"]:
                    del row["seconds"], row["sent"]
                self.assertEqual(whole["curve"], pieces["curve"])
                # Every start sends an opening vote of 96 bytes to each peer.
                opening = stops * 96 * (TINY["workers"] - 1)
                for key, value in whole["meter"].items():
                    self.assertEqual(pieces["meter"][key] - value, opening if key in ("header", "received", "sent") else 0, key)
                self.assertAlmostEqual(whole["ratio"], pieces["ratio"], delta=0.05 * whole["ratio"])
                self.assertEqual(len(whole["curve"]), 3)
                self.assertFalse((self.folder / f"pieces {recipe}" / "checkpoint").exists())

    def test_dense_is_sgd(self):
        """One worker by the recipe dense takes the steps of torch.optim.SGD."""
        settings = dict(TINY, workers=1, recipe="dense", warmup_epochs=0.5)
        t = training.Training(settings)
        torch.manual_seed(0)
        model = nets.ResNet18(10, width=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
        inputs, targets = t.data.epoch(0, 0, 8, 1, t.steps)
        for step in range(4):
            t._step(inputs, targets, step)
            optimizer.param_groups[0]["lr"] = t.rate(step)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs[step, 0]), targets[step, 0]).backward()
            optimizer.step()
        expected = torch.cat([p.detach().flatten() for p in model.parameters()])
        numpy.testing.assert_allclose(t.flat.weights, expected, rtol=1e-3, atol=1e-5)

    def test_local_steps_without_compression_are_averaged_weights(self):
        t = training.Training(dict(TINY, recipe="dense", local_steps=2))
        inputs, targets = t.data.epoch(0, 0, 8, 2, t.steps)
        start = t.flat.weights.clone()
        ends = []
        for worker in range(2):
            alone = training.Training(dict(TINY, workers=1, recipe="dense"))
            alone.steps = t.steps
            for step in range(2):
                alone._step(inputs[:, worker:worker + 1], targets[:, worker:worker + 1], step)
            ends.append(alone.flat.weights)
        self.assertEqual(t._step(inputs, targets, 0), 2)
        self.assertGreater((t.flat.weights - start).abs().max(), 1e-4)
        numpy.testing.assert_allclose(t.flat.weights, (ends[0] + ends[1]) / 2, rtol=1e-4, atol=1e-6)

    def test_bytes_of_local_steps_count_all_steps(self):
        ratios = []
        for local in (1, 5):
            self.run_training(dict(TINY, recipe="fp16", local_steps=local, epochs=1), f"local {local}")
            result = self.result(f"local {local}")
            self.assertEqual(result["steps"], 5)
            ratios.append(result["frame_ratio"])
        self.assertAlmostEqual(ratios[1] / ratios[0], 5, delta=0.03)

    def test_models_have_the_size_that_is_told(self):
        self.assertEqual(sum(p.numel() for p in nets.ResNet18().parameters()), 11_173_962)
        for name, input_ in (("small-cnn", torch.zeros(2, 3, 32, 32)), ("char-lstm", torch.zeros(2, 9, dtype=torch.long)),
                             ("transformer", torch.zeros(2, 9, dtype=torch.long))):
            out = nets.MODELS[name](10)(input_)
            self.assertEqual(tuple(out.shape), (2, 10) if name == "small-cnn" else (2, 10, 9))

    def test_a_transformer_does_not_see_what_follows(self):
        model, x = nets.Transformer(10, width=12, layers=2), torch.randint(0, 10, (1, 9))
        other = x.clone()
        other[0, 6:] = (other[0, 6:] + 1) % 10
        self.assertTrue(torch.allclose(model(x)[:, :, :6], model(other)[:, :, :6], atol=1e-6))


@unittest.skipUnless(EXPERIMENTS.exists(), "the experiments are not part of the package")
class Grids(unittest.TestCase):
    def test_the_grids_are_understood_and_seeds_come_one_after_the_other(self):
        for path in (EXPERIMENTS / "grids").glob("*.toml"):
            trainings = grid.read_grid(path)
            self.assertEqual(len({grid.key(settings) for settings in trainings}), len(trainings))
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('seeds = [0, 1]\n[[runs]]\nrecipe = "dense"\n[[runs]]\nrecipe = "adacomp"\nseeds = [1, 2]\n')
            file.flush()
            found = [(s["seed"], s["recipe"]) for s in grid.read_grid(pathlib.Path(file.name))]
        self.assertEqual(found, [(0, "dense"), (1, "dense"), (1, "adacomp"), (2, "adacomp")])

    def test_a_training_is_the_same_if_its_settings_are(self):
        self.assertEqual(grid.key({"recipe": "dense"}), grid.key({"recipe": "dense", "rate": DEFAULTS["rate"], "seed": 0}))
        self.assertNotEqual(grid.key({"recipe": "dense"}), grid.key({"recipe": "dense", "rate": 0.02}))
        self.assertRaises(SystemExit, complete, {"rat": 0.1})

    def test_failures_are_not_kept_and_say_why(self):
        with tempfile.TemporaryDirectory() as name:
            folder, out = pathlib.Path(name), io.StringIO()
            with contextlib.redirect_stdout(out):
                status = grid.run([dict(TINY, recipe="no such recipe")], 1, None, folder / "kept.jsonl", folder / "work")
            self.assertEqual(status, 1)
            self.assertIn("failed with status", out.getvalue())
            self.assertFalse((folder / "kept.jsonl").exists())


@unittest.skipUnless(EXPERIMENTS.exists(), "the experiments are not part of the package")
class Reports(unittest.TestCase):
    def test_table_and_plot(self):
        lines = [kept("dense", 0.934), kept("adacomp", 0.93), kept("adacomp", 0.94, seed=1), kept("orq@3", 0.2, epochs=12),
                 dict(kept("onebit"), status="diverged", accuracy=None)]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "resnet18.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            rows = report.read(folder / "resnet18.jsonl")
            (folder / "page.md").write_text("# Results\n\nText.\n\n## First\n\nMore.\n")
            for _ in range(2):  # the second time it is there already
                report.put_section(folder / "page.md", "resnet18", list(report.section(rows)))
            text = (folder / "page.md").read_text()
        self.assertEqual(text.count(report.HEADING), 1)
        self.assertLess(text.index("onebit"), text.index("## First"))
        self.assertIn("| `adacomp` |  | gather | 0, 1 | 93.50 ±0.50 | +0.10 | 1.0 GB | 4.0 | 8.0 |", text)
        self.assertIn("| `onebit` |  | gather | 0 | diverged |  |  |  |  |", text)
        self.assertLess(text.index("### 30 epochs"), text.index("### 12 epochs"))
        drawn = xml.dom.minidom.parseString("\n".join(report.plot(rows)))
        self.assertEqual(len(drawn.getElementsByTagName("circle")), 3)

    def test_the_frontier_is_what_no_other_beats(self):
        rows = []
        for sent, accuracy in ((1, 50), (2, 40), (3, 60), (4, 60), (5, 70)):
            row = report.Row([dict(kept("dense", accuracy / 100), meter={"sent": sent})])
            rows.append(row)
        self.assertEqual([row.sent for row in report.frontier(rows)], [1, 3, 5])

    def test_what_is_kept_is_complete(self):
        for path in (EXPERIMENTS / "kept").glob("*.jsonl"):
            for line in path.read_text().splitlines():
                run = json.loads(line)
                self.assertEqual(complete(run["settings"]), dict(DEFAULTS, **run["settings"]))
                self.assertIn(run["status"], ("finished", "diverged"))
                if run["status"] == "finished":
                    self.assertEqual(len(run["curve"]), run["settings"]["epochs"])
                    self.assertEqual(run["meter"]["sent"], run["meter"]["payload"] + run["meter"]["header"])


if __name__ == "__main__":
    unittest.main()
