"""The experiments: a training that is stopped and continued, the grid, and tables from kept results.

    python3 -m unittest discover -s python/tests      with the package and PyTorch installed
"""

import contextlib
import copy
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import wave
import xml.dom.minidom

import numpy
import torch

from tersegrad._torch_fsdp_groups import has_fsdp2
from tersegrad.torch import Passes, Workers

EXPERIMENTS = pathlib.Path(__file__).resolve().parents[2] / "experiments"
sys.path.insert(0, str(EXPERIMENTS))
if EXPERIMENTS.exists():
    import claims
    import grid
    import joint
    import nets
    import optimizers
    import plots
    import report
    import results
    import rows
    import training
    from settings import DEFAULTS, complete

TINY = {"width": 4, "batch": 8, "workers": 2, "epochs": 3, "precision": "fp32", "model": "resnet18"}

# Values, gradients and statistics of norms.py beside PyTorch's, worker by worker.
NORMS = """
import sys, torch
sys.path.insert(0, sys.argv[1])
import norms
torch.manual_seed(0)
for workers, images, channels, size in ((4, 2, 16, 8), (3, 2, 70, 5), (2, 1, 3, 3), (1, 4, 130, 7)):
    x = (torch.randn(workers * images, channels, size, size) * 2 + 3).contiguous(memory_format=torch.channels_last)
    weight, bias, gradient = torch.randn(channels), torch.randn(channels), torch.randn_like(x)
    out, stats = norms.forward(x, weight, bias, workers, 1e-5)
    moved, sums = norms.backward(gradient, x, weight, stats)
    for w in range(workers):
        part, own, shift = (v.clone().requires_grad_() for v in (x.chunk(workers)[w], weight, bias))
        mean, variance = torch.zeros(channels), torch.ones(channels)
        expected = torch.nn.functional.batch_norm(part, mean, variance, own, shift, True, 1.0, 1e-5)
        expected.backward(gradient.chunk(workers)[w])
        for a, b in ((out.chunk(workers)[w], expected), (moved.chunk(workers)[w], part.grad), (sums[0][w], shift.grad), (sums[1][w], own.grad),
                     (stats[0][w], mean), (stats[2][w], variance)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
"""


def write_cifar(folder):
    random = numpy.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, n in (*((f"data_batch_{i}", 16) for i in range(1, 6)), ("test_batch", 20)):
        rows = random.integers(0, 256, (n, 3073), dtype=numpy.uint8)
        rows[:, 0] %= 10
        rows.tofile(folder / f"{name}.bin")


def write_sets(folder):
    """A little of every other set."""
    random = numpy.random.default_rng(1)
    for name in ("mnist", "fashion", "text", "speech/recordings"):
        (folder / name).mkdir(parents=True)
    for name, part, n in (("mnist", "train", 64), ("mnist", "t10k", 10), ("fashion", "train", 64), ("fashion", "t10k", 10)):
        for kind, shape, header in (("images-idx3", (n, 28, 28), 16), ("labels-idx1", (n,), 8)):
            values = random.integers(0, 10, shape, dtype=numpy.uint8)
            (folder / f"{name}/{part}-{kind}-ubyte").write_bytes(bytes(header) + values.tobytes())
    (folder / "text/tinyshakespeare.txt").write_bytes(bytes(random.integers(97, 117, 6000, dtype=numpy.uint8)))
    for digit in range(4):
        for index in range(21):
            with wave.open(str(folder / f"speech/recordings/{digit}_someone_{index}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes(random.integers(-999, 999, 3000 + 900 * digit, dtype="<i2").tobytes())


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
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.addCleanup(torch.set_num_threads, threads)
        before = os.environ.get("TG_DATA")
        os.environ["TG_DATA"] = folder.name
        self.addCleanup(lambda: os.environ.pop("TG_DATA") if before is None else os.environ.update(TG_DATA=before))

    def run_training(self, settings, work, until=None):
        with contextlib.redirect_stdout(io.StringIO()):
            return training.run(settings, self.folder / work, until)

    def result(self, work):
        return json.loads((self.folder / work / "result.json").read_text())

    def test_a_part_of_the_images_is_refused(self):
        (self.folder / "cifar10" / "data_batch_3.bin").unlink()
        with self.assertRaisesRegex(SystemExit, "there is no .*data_batch_3.bin"):
            self.run_training(dict(TINY), "part")

    def test_stopped_and_continued_it_ends_in_the_same_curve_and_bytes(self):
        more = {"local_steps": "1,3:2", "outer": "nesterov@lr=0.7,momentum=0.5", "momentum_every": 2}
        for recipe, own in (("adacomp", {}), ("dgc@0.1", {}), ("terse", more), ("terse@50", dict(more, optimizer="adamw", rate=0.01))):
            with self.subTest(recipe=recipe):
                settings = dict(TINY, recipe=recipe, **own)
                self.assertEqual(self.run_training(settings, f"whole {recipe}"), 0)
                stops = 0
                while self.run_training(settings, f"pieces {recipe}", until=0) == training.STOPPED:
                    stops += 1
                self.assertEqual(stops, 2)
                whole, pieces = (self.result(f"{kind} {recipe}") for kind in ("whole", "pieces"))
                for row in whole["curve"] + pieces["curve"]:
                    del row["seconds"], row["sent"]
                self.assertEqual(whole["curve"], pieces["curve"])
                # Every start sends an opening vote of 96 bytes to each peer, in each exchange.
                opening = stops * 96 * (TINY["workers"] - 1) * (2 if own else 1)
                for key, value in whole["meter"].items():
                    self.assertEqual(pieces["meter"][key] - value, opening if key in ("header", "received", "sent") else 0, key)
                self.assertAlmostEqual(whole["ratio"], pieces["ratio"], delta=0.05 * whole["ratio"])
                self.assertEqual(len(whole["curve"]), 3)
                self.assertFalse((self.folder / f"pieces {recipe}" / "checkpoint").exists())

    @unittest.skipUnless(has_fsdp2(), f"PyTorch {torch.__version__} has no FSDP2 with reduce-scatters of others")
    def test_sharded(self):
        """Two ranks by FSDP2: trainings are kept once, and make a table."""
        write_sets(self.folder)
        command = [sys.executable, str(EXPERIMENTS / "sharded.py"), "--try", "--recipes", "dense;ef+mxfp4", "--seeds", "0", "--out", str(self.folder)]
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        made = rows.read(self.folder / "sharded.jsonl")
        self.assertEqual([len(row.runs) for row in made], [1, 1])
        self.assertGreater(made[1].ratio, 7.3)
        self.assertLess(abs(made[1].loss - made[0].loss), 0.05)
        self.assertIn("| `ef+mxfp4` | 0 |", "\n".join(report.sharded(made)))

    def test_dense_takes_the_steps_of_pytorchs_optimizers(self):
        """One worker by the recipe dense."""
        for own, make in (({}, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)),
                          ({"nesterov": False}, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=5e-4)),
                          ({"optimizer": "adamw", "decay": 0.1, "rate": 0.01, "clip": 0.5},
                           lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.99), weight_decay=0.1))):
            with self.subTest(own=own):
                t = training.Training(dict(TINY, workers=1, recipe="dense", warmup_epochs=0.5, **own))
                torch.manual_seed(0)
                model = nets.resnet18(10, width=4)
                optimizer = make(model.parameters())
                inputs, targets = t.data.epoch(0, 0, 8, 1, t.steps)
                for step in range(4):
                    t._step(inputs, targets, step)
                    optimizer.param_groups[0]["lr"] = t.rate(step)
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(inputs[step, 0]), targets[step, 0]).backward()
                    if "clip" in own:
                        torch.nn.utils.clip_grad_norm_(model.parameters(), own["clip"])
                    optimizer.step()
                expected = torch.cat([p.detach().flatten() for p in model.parameters()])
                # Adam divides by roots of tiny squares, which enlarges differences in the last bits.
                numpy.testing.assert_allclose(t.flat.weights, expected, rtol=1e-3, atol=1e-3 if "clip" in own else 1e-5)

    def test_rare_elements_move_as_far_as_frequent_ones(self):
        """Gradients of 1 in every step, and of 5 in every fifth: Adam with the correction moves both alike."""
        moved = {}
        for is_rare in (False, True):
            adam = optimizers.AdamW(complete({"rare": is_rare, "decay": 0.0}), 1, 2, "cpu", False)
            weights = torch.zeros(2)
            for step in range(1000):
                adam.step(0, weights, torch.tensor([1.0, 5.0 if step % 5 == 4 else 0.0]), 0.01, step)
            moved[is_rare] = weights.tolist()
        self.assertAlmostEqual(moved[True][0], moved[False][0], places=5)      # what comes in every step is not touched
        self.assertAlmostEqual(moved[False][1] / moved[False][0], 5 ** -0.5, delta=0.05)
        self.assertAlmostEqual(moved[True][1] / moved[True][0], 1, delta=0.05)

    def test_outer_steps_and_averages_of_momentum(self):
        settings = dict(TINY, recipe="dense", local_steps=2, momentum_every=1, momentum_recipe="dense")
        plain, outer = (training.Training(dict(settings, outer=text)) for text in ("average", "nesterov@lr=0.5,momentum=0.5"))
        start = plain.flat.weights.clone()
        for each in (plain, outer):
            each._step(*each.data.epoch(0, 0, 8, 2, each.steps), 0)
        # In the first step v = D, so that Nesterov's step is 0.5 (1 + 0.5) D.
        numpy.testing.assert_allclose(outer.flat.weights - start, 0.75 * (plain.flat.weights - start), rtol=1e-3, atol=1e-6)
        momentum = plain.optimizer.state[0]
        self.assertTrue(torch.equal(momentum[0], momentum[1]))
        self.assertGreater(float(momentum.abs().max()), 0)

    def test_every_set_trains_with_its_models(self):
        write_sets(self.folder)
        for settings in ({"data": "mnist", "model": "small-cnn", "width": 2}, {"data": "speech", "model": "speech-cnn", "width": 4},
                         {"data": "speech", "model": "speech-dnn", "width": 8}, {"data": "fashion", "model": "image-dnn", "width": 8},
                         {"data": "text", "model": "gpt", "width": 12, "length": 16, "steps": 4, "dropout": 0.1},
                         {"data": "text", "model": "char-lstm", "width": 4, "length": 16, "steps": 4}):
            with self.subTest(**settings):
                whole = dict(TINY, width=None, recipe="terse@50", local_steps=2, epochs=2, batch=4, optimizer="adamw", rate=1e-3)
                self.assertEqual(self.run_training(dict(whole, **settings), str(settings)), 0)
                result = self.result(str(settings))
                self.assertEqual(result["status"], "finished")
                self.assertLess(result["curve"][-1]["train_loss"], 4)

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

    def test_a_closing_exchange_sends_what_residuals_hold(self):
        """Top-k leaves most of the moves, and closing with dense frames brings all of it."""
        ends = {}
        for closing in (None, "dense"):
            one = training.Training(dict(TINY, recipe="ef+topk@0.01", local_steps=2, closing=closing))
            one.epoch(0)
            before = one.flat.weights.clone()
            mean = sum(torch.cat([r.flatten() for r in one.workers.residual(w).values()]) for w in range(one.set["workers"])) / one.set["workers"]
            if closing:
                one.close()
                self.assertTrue(torch.allclose(one.flat.weights, before - mean, atol=1e-6))
                self.assertNotEqual(float(mean.abs().max()), 0)
            ends[closing] = one.result("finished")
        self.assertEqual(ends[None]["steps"], ends["dense"]["steps"])
        self.assertEqual(ends["dense"]["before_closing"]["sent"], ends[None]["meter"]["sent"])
        self.assertGreater(ends["dense"]["meter"]["sent"], ends[None]["meter"]["sent"])
        self.assertEqual(ends["dense"]["canonical"], ends[None]["canonical"])

    def test_models_have_the_size_that_is_told(self):
        for make, millions in ((nets.resnet18, 11.2), (nets.resnet50, 23.5), (nets.resnet101, 42.5), (lambda: nets.gpt(65), 10.8)):
            self.assertAlmostEqual(sum(p.numel() for p in make().parameters()) / 1e6, millions, delta=0.05)
        with self.assertRaises(SystemExit):
            nets.make(complete({"model": "resnet18", "dropout": 0.1}), training.data.Cifar10)

    def test_one_pass_for_all_workers_is_that_of_each(self):
        """Their averages, losses and statistics; in contiguous memory, for the reason that data.py gives."""
        entropy = torch.nn.functional.cross_entropy
        for model, size in ((nets.resnet18(10, 4), 32), (nets.resnet50(10, 2), 32), (nets.small_cnn(10, 4), 32), (nets.PspNet(10, 2), 48)):
            self.assertTrue(joint.fits(model))
            twin, target = copy.deepcopy(model), (size, size) if isinstance(model, nets.PspNet) else ()
            workers, others = Workers(model, 3, "dense"), Workers(twin, 3, "dense")
            passes = Passes(workers, model, lambda x, y: entropy(model(x), y))  # noqa: B023: used in this turn alone
            together = joint.JointPasses(others, twin, twin, entropy)
            for _ in range(2):
                batches = [(torch.randn(4, 3, size, size), torch.randint(0, 10, (4, *target))) for _ in range(3)]
                for own, by in ((workers, passes), (others, together)):
                    by(batches)
                    own.reduce()
                for a, b in zip(model.parameters(), twin.parameters()):
                    torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5)
            torch.testing.assert_close(passes.losses, together.losses)
            torch.testing.assert_close([[v for v in own if v.is_floating_point()] for own in passes.state_dict()],
                                       [[v for v in own if v.is_floating_point()] for own in together.state_dict()])
        self.assertFalse(joint.fits(nets.gpt(65)))
        self.assertFalse(joint.fits(torch.nn.Conv2d(4, 4, 3, groups=2)))

    @unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is not installed")
    def test_norms_by_triton_are_those_of_each_worker(self):
        """By Triton's interpreter, which needs no GPU."""
        done = subprocess.run([sys.executable, "-c", NORMS, str(EXPERIMENTS)], env=dict(os.environ, TRITON_INTERPRET="1"), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_segmentation_has_a_class_for_every_pixel(self):
        self.assertEqual(tuple(nets.PspNet(11, width=2)(torch.zeros(2, 3, 45, 60)).shape), (2, 11, 45, 60))
        score = training.data.Score(3, "cpu")
        answers = torch.tensor([[0, 0, 1, 2]])
        score.add(torch.nn.functional.one_hot(answers, 3).movedim(2, 1) * 9.0, torch.tensor([[0, 1, 1, -100]]))
        self.assertAlmostEqual(score.result("iou")[1], (1 / 2 + 1 / 2) / 2)
        self.assertAlmostEqual(score.result("accuracy")[1], 2 / 3)

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
            self.assertEqual(len({each.key for each in trainings}), len(trainings))
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('seeds = [0, 1]\n[[runs]]\nrecipe = "dense"\n[[runs]]\nrecipe = "adacomp"\nseeds = [1, 2]\n')
            file.flush()
            found = [(each.settings["seed"], each.settings["recipe"]) for each in grid.read_grid(pathlib.Path(file.name))]
        self.assertEqual(found, [(0, "dense"), (1, "dense"), (1, "adacomp"), (2, "adacomp")])

    def test_lists_are_runs_with_each_value_and_equal_ones_run_once(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('[[runs]]\nrecipe = ["dense", "co3"]\nrate = [0.1, 0.4]\npriority = 2\n[[runs]]\nrecipe = "co3"\nrate = 0.4\npriority = 1\n')
            file.flush()
            found = [(each.priority, each.settings["recipe"], each.settings["rate"]) for each in grid.read_grid(pathlib.Path(file.name))]
        self.assertEqual(found, [(1, "co3", 0.4), (2, "dense", 0.1), (2, "dense", 0.4), (2, "co3", 0.1)])

    def test_what_is_first_and_what_is_worth_a_start(self):
        some = [grid.Training("g", dict(TINY, recipe="dense", seed=seed), priority, cost) for seed, priority, cost in
                ((0, 9, 5), (1, 1, 500), (0, 1, 50), (2, 3, 20))]
        runner = grid.Runner(some, 4, 100, None, None, is_whole=True)
        self.assertEqual([each.cost for each in runner.waiting], [50, 500, 20, 5])
        self.assertEqual(runner._next().cost, 50)
        runner.paces = [5.0]    # trainings take five times what they take alone: 100 s, and 100 are left
        self.assertEqual(runner._next().cost, 5)
        runner.limit = 5
        self.assertIsNone(runner._next())
        self.assertEqual(runner.waiting, [])
        with tempfile.TemporaryDirectory() as name:    # what does not fit is not waited for
            late = grid.Runner(some, 1, 100, pathlib.Path(name), None, is_whole=True)
            late.waiting = late.waiting[1:2]
            self.assertEqual(late.run(), 0)
            self.assertGreater(late.left(), 90)

    def test_small_forms_run_two_rounds(self):
        small = grid.shortened(grid.Training("g", {"recipe": "terse", "local_steps": "2,9:30", "data": "text", "model": "gpt"}))
        self.assertEqual((small.settings["steps"], small.settings["epochs"]), (60, 1))

    def test_results_of_another_machine_are_taken_once(self):
        with tempfile.TemporaryDirectory() as name:
            folder, here = pathlib.Path(name), grid.HERE
            grid.HERE = folder / "here"
            self.addCleanup(setattr, grid, "HERE", here)
            for result in (kept("dense"), kept("adacomp"), kept("dense")):
                grid.keep(result, folder / "there", "some")
            for _ in range(2):
                with contextlib.redirect_stdout(io.StringIO()):
                    grid.take(folder / "there")
            self.assertEqual(len(grid.read_kept(folder / "here/kept", "some")), 2)

    def test_a_training_is_the_same_if_its_settings_are(self):
        self.assertEqual(grid.key({"recipe": "dense"}), grid.key({"recipe": "dense", "rate": DEFAULTS["rate"], "seed": 0}))
        self.assertNotEqual(grid.key({"recipe": "dense"}), grid.key({"recipe": "dense", "rate": 0.02}))
        self.assertRaises(SystemExit, complete, {"rat": 0.1})

    def test_failures_are_not_kept_and_say_why(self):
        with tempfile.TemporaryDirectory() as name:
            folder, out = pathlib.Path(name), io.StringIO()
            with contextlib.redirect_stdout(out):
                trainings = [grid.Training("g", dict(TINY, recipe="no such recipe", seed=0))]
                status = grid.Runner(trainings, 1, None, folder / "out", folder / "work").run()
            self.assertEqual(status, 1)
            self.assertIn("failed with status", out.getvalue())
            self.assertIn("no such", (folder / "out/failures.log").read_text())
            self.assertFalse((folder / "out/g.jsonl").exists())


@unittest.skipUnless(EXPERIMENTS.exists(), "the experiments are not part of the package")
class Reports(unittest.TestCase):
    def test_table_and_plot(self):
        lines = [kept("dense", 0.934), kept("adacomp", 0.93), kept("adacomp", 0.94, seed=1), kept("orq@3", 0.2, epochs=12),
                 dict(kept("onebit"), status="diverged", accuracy=None)]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "resnet18.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            found = report.read(folder / "resnet18.jsonl")
            (folder / "page.md").write_text("# Results\n\nText.\n\n## First\n\nMore.\n")
            for _ in range(2):  # the second time it is there already
                report.put_section(folder / "page.md", "resnet18", list(report.section(found)))
            text = (folder / "page.md").read_text()
        self.assertEqual(text.count(report.HEADING), 1)
        self.assertLess(text.index("onebit"), text.index("## First"))
        self.assertIn("| `adacomp` |  | gather | 0, 1 | 93.50 ±0.50 | +0.10 | 1.0 GB | 4.0 | 8.0 |", text)
        self.assertIn("| `onebit` |  | gather | 0 | diverged |  |  |  |  |", text)
        self.assertLess(text.index("### 30 epochs"), text.index("### 12 epochs"))
        drawn = xml.dom.minidom.parseString("\n".join(plots.plot(found)))
        self.assertEqual(len(drawn.getElementsByTagName("circle")), 3)

    def test_all_tables_of_the_page(self):
        sets = {"resnet18": [kept("dense", 0.934, seed=seed) for seed in range(3)] + [kept("co3")],
                "local": [kept("terse", 0.93, local_steps="2,90:4", outer="nesterov@lr=0.7,momentum=0.5"),
                          kept("dense", 0.92, workers=8), kept("terse", 0.91, workers=8, local_steps=4)],
                "text": [dict(kept(recipe, model="gpt", local_steps=h), test_loss=loss) for recipe, h, loss in
                         (("dense", 1, 1.50), ("dense", 8, 1.60), ("terse", 8, 1.608))],
                "adacomp": [kept("dense", 0.99, data="mnist", model="small-cnn"), kept("adacomp", 0.985, data="mnist", model="small-cnn")]}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for grid_name, lines in sets.items():
                (folder / f"{grid_name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            (folder / "page.md").write_text("# Results\n\n## First\n")
            (folder / "readme.md").write_text("<!-- accuracy -->\n<!-- end -->\n")
            report.put_all(folder, folder / "page.md", folder / "readme.md", folder / "images")
            page, readme = ((folder / name).read_text() for name in ("page.md", "readme.md"))
        self.assertIn("| `terse` | local steps 2,90:4, outer Nesterov lr=0.7, momentum=0.5 | gather | 0 | 93.00 | -0.40 |", page)
        self.assertIn("| `terse` | 4 local steps | gather | 0 | 91.00 | -1.00 |", page)
        self.assertIn("| `terse` | 8 | 0.1 | gather | 0 | 1.6080 | +0.50 | +7.20 |", page)
        self.assertIn("| `adacomp` | gather | 0 | 98.50 | -0.50 |", page)
        self.assertIn("| `dense` |  | 93.40 ±0.00 |  | 4 |", readme)
        self.assertNotIn("co3", readme)

    def test_tables_of_claims(self):
        def run(recipe, accuracy, loss, **settings):
            return dict(kept(recipe, accuracy, model="image-dnn", **settings), curve=[{"train_loss": loss}])

        made = [rows.Row(runs) for runs in (
            [run("dense", 0.86, 0.2), run("dense", 0.88, 0.2, seed=1)], [run("dense", 0.85, 0.3, rate=0.4)],
            [run("fp4+huffman", 0.85, 0.25)], [run("fp4+rans", 0.85, 0.25)], [run("ef@decay=0.9+fp4@refit=390+huffman", 0.84, 0.3)],
            [run("bingrad@b", 0.83, 0.4)], [run("ef+bingrad@b", 0.86, 0.2)], [run("ef+bingrad@b,bucket=128", 0.87, 0.1)],
            [run("ternary@bucket=8192", 0.5, 1.5)], [run("ternary", 0.6, 1.4)],
            [run("random-block@0.1", 0.7, 0.9, rate=0.4)], [run("random-block@0.1", 0.8, 0.6), run("random-block@0.1", 0.82, 0.5, seed=1)],
            [dict(run("random-block@0.01", None, 9), status="diverged", curve=[])], [run("dense", 0.9, 0.1, epochs=60)],
            [run("ef+topk@0.1", 0.89, 0.2, epochs=60)], [run("dense", 0.9, 0.01, rate=0.025)])]
        text = "\n".join(line for table in claims.TABLES.values() for line in table(made))
        for line in ("| `image-dnn` | 0.1, momentum 0.9 | `fp4` | in every step | 85.00 (-2.00) |  |  | 0.250 |  |  | 4.00 | 4.00 |",
                     "| `image-dnn` | 0.1, momentum 0.9 | `fp4` | every 390 steps |  | 84.00 (-3.00) |  |  | 0.300 |  | 4.00 |  |",
                     "| `image-dnn` | 0.1 | 2 | `bingrad@b` | 83.00 (-4.00) | 0.400 | 86.00 (-1.00) | 0.200 | 8.0 |",
                     "| `image-dnn` | 0.1 | 3 | `ternary` | 60.00 (-27.00) | 1.400 |  |  | 8.0 |",
                     "| `bingrad@b` | yes | 87.00 (8.0×) |  | 86.00 (8.0×) |  |", "| `ternary` | no |  |  | 60.00 (8.0×) | 50.00 (8.0×) |",
                     "| cifar10, `image-dnn` | 0.9 | 30 | `dense` | 0.300 | **0.200** | 0, 1 | 87.00 ±1.00 | 0.200 | 4.0 | 8.0 |",
                     "| cifar10, `image-dnn` | 0.9 | 30 | `random-block@0.1` | 0.900 | **0.600** | 0, 1 | 81.00 ±1.00 (-6.00) | 0.550 | 4.0 | 8.0 |",
                     "| cifar10, `image-dnn` | 0.9 | 30 | `random-block@0.01` |  | diverged |  |  |  |  |  |",
                     "| cifar10, `image-dnn` | 0.9 | 60 | `dense` |  | **0.100** | 0 | 90.00 | 0.100 | 4.0 | 8.0 |"):
            self.assertIn(line, text)

    def test_the_frontier_is_what_no_other_beats(self):
        found = []
        for sent, accuracy in ((1, 50), (2, 40), (3, 60), (4, 60), (5, 70)):
            row = rows.Row([dict(kept("dense", accuracy / 100), meter={"sent": sent})])
            found.append(row)
        self.assertEqual([row.sent for row in plots.frontier(found)], [1, 3, 5])

    def test_studies_are_made_from_kept_runs_alone(self):
        with tempfile.TemporaryDirectory() as name:
            kept_at = pathlib.Path(name) / "program.jsonl"
            kept_at.write_text(json.dumps({"run": "text --steps 9 --recipe dense", "result": {"test_loss": 2.5}}) + "\n")
            study = results.Study("some", None, kept_at)
            self.assertEqual(study.train("text", "--steps 9", "dense"), {"test_loss": 2.5})
            self.assertRaises(results.Missing, study.train, "text", "--steps 9", "adacomp")

    def test_what_is_kept_is_complete(self):
        for path in set((EXPERIMENTS / "kept").glob("*.jsonl")) - {results.KEPT}:
            for line in path.read_text().splitlines():
                run = json.loads(line)
                self.assertEqual(complete(run["settings"]), dict(DEFAULTS, **run["settings"]))
                self.assertIn(run["status"], ("finished", "diverged"))
                if run["status"] == "finished":
                    self.assertEqual(len(run["curve"]), run["settings"]["epochs"])
                    if run["exchange"] == "reduce-scatter" and run["settings"]["recipe"] == "dense":  # PyTorch's own
                        self.assertEqual(run["meter"]["sent"], run["meter"]["dense"])
                        continue
                    # means over the workers, rounded one by one, and once more before a closing exchange
                    self.assertLessEqual(abs(run["meter"]["sent"] - run["meter"]["payload"] - run["meter"]["header"]), 2)


if __name__ == "__main__":
    unittest.main()
