"""`tersegrad train` and `compare` from outside: what they print and write, kills at random moments, what they refuse.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from training import PROGRAM, QUICK, Training, run

KEYS = ("recipe model data workers steps train_loss test_loss test_accuracy dense_bytes_per_step wire_bytes_per_step ratio "
        "replicas_identical seconds").split()


class Train(Training):
    def test_keys_and_learning(self):
        result = self.result("--recipe", "ef+topk@0.05", "--steps", 150)
        for key in KEYS:
            self.assertIn(key, result)
        self.assertGreater(result["test_accuracy"], 0.5)
        self.assertGreater(result["ratio"], 5)
        self.assertIs(result["replicas_identical"], True)

    def test_any_number_of_workers_and_every_exchange(self):
        for workers, recipe, exchange in ((1, "dense", "gather"), (2, "ef+topk@0.05+fp16", "gather"),
                                          (3, "ef+topk@0.05", "shard"), (7, "ef+randomblock@0.1", "allreduce"),
                                          (3, "ef+threshold@0.01", "server"), (5, "adacomp", "shard"), (5, "ef@again=fp16+adabins+sign@scale=meanmax", "shard"), (2, "adacomp", "gather"), (3, "ef+topk@0.1,coords=shared", "allreduce")):
            with self.subTest(workers=workers, recipe=recipe):
                result = self.result("--recipe", recipe, "--workers", workers, "--steps", 6, "--exchange", exchange)
                self.assertEqual(result["exchange"], exchange)

    def test_same_seed_same_bits(self):
        first, again, other = (self.result("--recipe", "ef+randomk@0.1", "--workers", 3, "--steps", 10, "--seed", seed)
                               for seed in (5, 5, 6))
        self.assertEqual(first["weights_hash"], again["weights_hash"])
        self.assertNotEqual(first["weights_hash"], other["weights_hash"])

    def test_groups_change_no_bits(self):
        for recipe, more in (("adacomp", ()), ("dense", ("--exchange", "shard")), ("ef+topk@0.05", ("--exchange", "server")), ("ef+randomblock@0.1", ()), ("ef@again=fp16+topk@0.05", ("--exchange", "shard")),
                             ("powersgd@2", ()), ("ef+topk@0.05,scope=model", ()), ("co3", ("--link", "1gbit,0.1ms"))):
            with self.subTest(recipe=recipe):
                seen, numbers = [], []
                for size in (0, 1, 100000, 10**15, None):
                    log = self.path / f"{size}.jsonl"
                    result = self.result("--recipe", recipe, "--workers", 3, "--steps", 7, "--log", log, *more,
                                         *(("--group-size", size) if size is not None else ()))
                    lines = [json.loads(line) for line in log.read_text().splitlines() if '"loss"' in line]
                    seen.append([result[key] for key in ("weights_hash", "train_loss", "test_loss", "test_accuracy", "exchange")] +
                                [[line[key] for key in ("loss", "payload_bytes", "logical_bytes", "residual", "entries")] for line in lines])
                    numbers.append(result["groups"])
                    self.assertGreater(result["exposed_seconds_per_step"], 0)
                    if size == 0:
                        parts = sum(result[f"{part}_seconds_per_step"] for part in ("encode", "exchange", "decode"))
                        self.assertAlmostEqual(parts / result["exposed_seconds_per_step"], 1, delta=0.1)
                    log.unlink()
                self.assertTrue(all(one == seen[0] for one in seen), seen)
                if "scope=model" in recipe:
                    self.assertEqual(numbers, [1] * 5)
                else:  # three layers, each with a bias
                    self.assertEqual(numbers[:2], [1, 6])
                    self.assertEqual(numbers[3], 1)
                    self.assertTrue(2 <= numbers[4] <= 6, numbers)

    def test_a_run_goes_on_in_other_groups(self):
        flags = ["--recipe", "ef+topk@0.05", "--workers", 3, "--steps", 300]
        straight, checkpoint = self.result(*flags), self.path / "run.ck"
        files = ["--checkpoint", checkpoint, "--checkpoint-every", 5, "--resume"]
        for size in (0, 1, 50000):  # each is killed as soon as it has saved
            before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
            with subprocess.Popen([PROGRAM, "train", *QUICK, *map(str, flags + files), "--group-size", str(size)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                while process.poll() is None and not (checkpoint.exists() and checkpoint.stat().st_mtime_ns > before):
                    time.sleep(0.002)
                process.kill()
        resumed = self.result(*flags, *files, "--group-size", 0)
        for key in ("weights_hash", "train_loss", "test_loss", "test_accuracy"):
            self.assertEqual(resumed[key], straight[key], key)

    def test_log(self):
        log = self.path / "run.jsonl"
        self.result("--recipe", "ef+topk@0.05", "--workers", 2, "--steps", 12, "--test-every", 5, "--log", log)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(lines[0]["recipe"], "ef+topk@0.05")
        steps = [line for line in lines if "loss" in line]
        self.assertEqual([line["step"] for line in steps], list(range(12)))
        self.assertEqual([line["step"] for line in lines if "test_accuracy" in line], [5, 10, 12])
        for line in steps:
            for key in ("logical_bytes", "payload_bytes", "header_bytes", "seconds", "accuracy"):
                self.assertIn(key, line)
            self.assertGreater(sum(line["residual"].values()), 0)
        self.refuse(1, "exists already", "--recipe", "dense", "--steps", 2, "--log", log)

    def test_adacomp_finds_its_rate_and_says_so(self):
        log, gradients = self.path / "run.jsonl", self.path / "gradients"
        result = self.result("--recipe", "adacomp", "--workers", 2, "--steps", 8, "--log", log, "--gradients", gradients)
        kinds = {kind["kind"]: kind for kind in result["kinds"]}
        self.assertGreater(kinds["dense"]["ratio"], kinds["dense"]["paper_ratio"])
        self.assertAlmostEqual(result["paper_ratio"], kinds["dense"]["paper_ratio"])
        self.assertIsNone(kinds["bias"]["paper_ratio"])
        self.assertGreater(kinds["dense"]["entries_per_bin"], 0.5)
        steps = [json.loads(line) for line in log.read_text().splitlines() if '"loss"' in line]
        for line in steps:
            rates = line["entries_per_bin"]
            self.assertEqual(set(rates), {name for name in line["residual"] if name.endswith("weight")})
            self.assertGreater(min(rates.values()), 0)
            self.assertEqual(set(line["entries"]), set(line["residual"]))
        folders = sorted(p.name for p in gradients.iterdir())
        self.assertEqual(folders, [f"step-{step:06}" for step in range(8)])
        self.assertEqual({p.stem for p in (gradients / folders[0]).iterdir()}, set(steps[0]["residual"]))
        frame = self.path / "step.tg"
        self.assertEqual(run("encode", "--recipe", "adacomp", gradients / folders[3], frame).returncode, 0)
        self.refuse(1, "is not empty", "--recipe", "dense", "--steps", 2, "--gradients", gradients)
        self.assertIsNone(self.result("--recipe", "dense", "--steps", 2)["paper_ratio"])

    def test_co3_tells_what_it_has_fitted(self):
        log = self.path / "run.jsonl"
        result = self.result("--recipe", "co3", "--workers", 2, "--steps", 6, "--log", log)
        self.assertGreater(result["ratio"], 5)
        for line in (json.loads(line) for line in log.read_text().splitlines() if '"loss"' in line):
            self.assertEqual(set(line["shape"]), {name for name in line["residual"] if name.endswith("weight")})
            self.assertEqual(set(line["scale"]), set(line["shape"]))
            self.assertTrue(all(0.1 <= shape < 4 for shape in line["shape"].values()))
            self.assertTrue(all(scale > 0 for scale in line["scale"].values()))

    def test_lgc_learns_and_says_so(self):
        log = self.path / "run.jsonl"
        small = "e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4"
        for form in ("ring", "server"):
            recipe = f"ef+topk@0.01,coords=shared+autoencoder@{form},dense=3,learn=5,enough=1e9,{small}"
            done = run("train", *QUICK, "--recipe", recipe, "--workers", 3, "--steps", 12, "--log", log, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("step 3: begins to learn", done.stderr)
            self.assertIn("step 8: has learned, to a relative error of", done.stderr)
            result = json.loads(done.stdout.splitlines()[-1])
            self.assertEqual(result["exchange"], f"lgc-{form}")
            self.assertGreater(result["code_ratio"], result["ratio"])  # the first layer, most of this model, stays dense
            up, down = result["code_up_bytes_per_step"], result["code_down_bytes_per_step"]
            self.assertTrue(0 < up < result["wire_bytes_per_step"] and 0 < down < result["wire_bytes_per_step"])
            phases = [json.loads(line)["learning"]["phase"] for line in log.read_text().splitlines() if '"loss"' in line]
            self.assertEqual(phases, [1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3])
            log.unlink()
        recipe = f"ef+topk@0.01,coords=shared+autoencoder@ring,dense=1,learn=3,enough=0.0001,{small}"
        done = run("train", *QUICK, "--recipe", recipe, "--workers", 2, "--steps", 6, "--json")
        self.assertIn("goes on learning", done.stderr)
        self.assertGreater(json.loads(done.stdout.splitlines()[-1])["learning_extended"], 0)

    def test_hosts(self):
        flags = ["--recipe", "ef+topk@0.05", "--workers", 4, "--steps", 6]
        flat, of_one, hosts = self.result(*flags), self.result(*flags, "--hosts", "flat"), self.result(*flags, "--hosts", 2)
        self.assertEqual([flat["host_size"], of_one["host_size"], hosts["host_size"]], [1, 1, 2])
        self.assertEqual(flat["weights_hash"], of_one["weights_hash"])
        self.assertEqual(flat["between_bytes_per_step"], flat["wire_bytes_per_step"])
        self.assertLess(hosts["between_bytes_per_step"], 0.5 * flat["between_bytes_per_step"])
        self.assertIn("of 2 workers each", run("train", *QUICK, *flags, "--hosts", 2).stdout)
        self.refuse(2, "4 ranks cannot be divided into hosts of 3", *flags, "--hosts", 3)
        self.refuse(2, "--hosts takes auto, flat, or the workers of a host", *flags, "--hosts", "2x")

    def test_goes_on_with_other_hosts(self):
        files = ["--checkpoint", self.path / "run.ck", "--checkpoint-every", 3, "--resume"]
        flags = ["--recipe", "ef+topk@0.05", "--steps", 6]
        straight = self.result(*flags, "--workers", 4, "--hosts", 2)
        for workers, hosts in ((4, 2), (4, 4), (4, "flat"), (6, 3)):
            self.assertEqual(self.result(*flags, *files, "--workers", workers, "--hosts", hosts)["weights_hash"], straight["weights_hash"])

    def test_killed_and_resumed_ends_in_the_same_bits(self):
        flags = ["--recipe", "adacomp", "--workers", 3, "--steps", 120, "--exchange", "shard"]
        straight = self.result(*flags)
        log, checkpoint = self.path / "run.jsonl", self.path / "run.ck"
        files = ["--checkpoint", checkpoint, "--checkpoint-every", 7, "--log", log, "--resume"]
        resumed, kills = self.result_after_kills(20, 7, *flags, *files)
        for key in ("weights_hash", "train_loss", "test_loss", "test_accuracy", "paper_ratio", "kinds"):
            self.assertEqual(resumed[key], straight[key], key)
        # Each start begins with a vote on the setup: 96 bytes to each of two others.
        more = (resumed["wire_bytes_per_step"] - straight["wire_bytes_per_step"]) * 120 / 192
        self.assertTrue(-1e-6 <= more <= kills + 1e-6, more)
        steps = [json.loads(line)["step"] for line in log.read_text().splitlines() if '"loss"' in line]
        self.assertEqual(steps, list(range(120)))
        leftovers = [p.name for p in self.path.iterdir() if p not in (log, checkpoint)]
        self.assertEqual(leftovers, [])

    def test_checkpoints_that_do_not_fit(self):
        checkpoint = self.path / "run.ck"
        flags = ["--recipe", "ef+topk@0.05", "--workers", 2, "--steps", 9, "--checkpoint", checkpoint, "--checkpoint-every", 3]
        self.result(*flags)
        self.refuse(1, "saved by a run with rate 0.01, and this one has 0.5", *flags, "--resume", "--rate", 0.5)
        data = bytearray(checkpoint.read_bytes())
        data[len(data) // 2] ^= 1
        checkpoint.write_bytes(data)
        self.refuse(1, "damaged", *flags, "--resume")
        checkpoint.write_bytes(b"nonsense")
        self.refuse(1, "not a checkpoint", *flags, "--resume")

    def test_refusals(self):
        self.refuse(2, "needs --recipe")
        self.refuse(2, "there is no part or preset 'nope'", "--recipe", "nope")
        self.refuse(2, "give one", "--recipe", "dense", "--steps", 3, "--epochs", 1)
        self.refuse(2, "--group-size takes a whole number from 0", "--recipe", "dense", "--group-size", "1MB")
        self.refuse(2, "--resume needs --checkpoint", "--recipe", "dense", "--resume")
        self.refuse(1, "apt-get install dataset-fashion-mnist", "--recipe", "dense", "--data", "fashion:" + str(self.path),
                    quick=[])
        self.refuse(2, "alexnet", "--recipe", "dense", "--model", "alexnet", "--data", "glyphs", quick=[])
        self.refuse(2, "text", "--recipe", "dense", "--model", "charlstm", "--data", "glyphs", quick=[])
        self.refuse(1, "cannot write", "--recipe", "dense", "--steps", 2, "--log", self.path / "no" / "run.jsonl")
        self.refuse(1, "cannot write", "--recipe", "dense", "--steps", 2, "--checkpoint", self.path / "no" / "run.ck",
                    "--checkpoint-every", 1)

    def test_divergence_is_named(self):
        for recipe in ("dense", "ef+topk@0.05", "adacomp", "powersgd"):
            self.refuse(1, ": training has diverged; try a lower --rate, or --warmup", "--recipe", recipe, "--workers", 3, "--steps", 50, "--rate",
                        1000)

    def test_a_training_set_that_fills_no_step(self):
        text = self.path / "short.txt"
        text.write_bytes(bytes(range(32, 96)) * 30)
        self.refuse(2, "training samples, fewer than", "--recipe", "dense", "--model", "charlstm", "--data",
                    f"text:{text}", "--workers", 8, "--batch", 64, quick=[])

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no full device here")
    def test_full_disk(self):
        self.refuse(1, "cannot write /dev/full", "--recipe", "dense", "--steps", 2, "--log", "/dev/full", "--checkpoint",
                    self.path / "x", "--resume")


class Compare(unittest.TestCase):
    def test_hosts(self):
        flags = ["compare", *QUICK, "--workers", "4", "--steps", "4", "--recipes", "dense;fp16", "--json", "--hosts"]
        flat, hosts = (json.loads(run(*flags, size).stdout.splitlines()[-1]) for size in ("flat", "2"))
        self.assertEqual([flat["host_size"], hosts["host_size"]], [1, 2])
        for a, b in zip(flat["results"], hosts["results"]):
            self.assertEqual(a["between_bytes_per_step"], a["wire_bytes_per_step"])
            self.assertLess(b["between_bytes_per_step"], a["between_bytes_per_step"])

    def test_table_json_and_page(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            flags = ["compare", *QUICK, "--workers", "2", "--steps", "12", "--seeds", "2", "--recipes", "dense;ef+topk@0.05"]
            done = run(*flags, "--page", page, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = json.loads(done.stdout.splitlines()[-1])["results"]
            self.assertEqual([row["recipe"] for row in rows], ["dense", "ef+topk@0.05"])
            self.assertGreater(rows[1]["ratio"], rows[0]["ratio"])
            self.assertGreater(rows[0]["step_seconds_100mbit"], rows[1]["step_seconds_100mbit"])
            text = page.read_text(encoding="utf-8")
            data = json.loads(text.split('id="data">')[1].split("</script>")[0])
            self.assertEqual(len(data["results"][0]["curve"]), 12)
            done = run(*flags)
            self.assertIn("100 Mbit/s", done.stdout)
            self.assertEqual(done.returncode, 0)

    def compare(self, *flags, code=0):
        done = run("compare", *QUICK, "--workers", "2", *flags)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout

    def test_runs_that_diverge_are_marked(self):
        flags = ["--steps", "60", "--rate", "0.05", "--recipes", "ef+randomblock@0.05;fp16"]
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "page.html"
            rows = json.loads(self.compare(*flags, "--json", "--page", page))["results"]
            shown = json.loads(page.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])["results"]
        self.assertEqual([row["diverged"] for row in rows], [row["diverged"] for row in shown])
        self.assertTrue(10 <= rows[0]["diverged"] <= 60 and rows[1]["diverged"] is None, rows)
        self.assertEqual((rows[0]["diverged_seeds"], rows[1]["diverged_seeds"]), (1, 0))
        self.assertIn("--momentum 0", rows[0]["hint"])
        text = self.compare(*flags)
        self.assertRegex(text, rf"(?m)^ef\+randomblock.*  diverged at step {rows[0]['diverged']}$")
        self.assertNotRegex(text, r"(?m)^fp16.*diverged")
        self.assertIn("try a lower --rate", text)
        train = run("train", *QUICK, "--workers", "2", *flags[:4], "--recipe", "ef+randomblock@0.05").stdout
        self.assertRegex(train, r"(?m)^diverged  +at step \d+")

    def test_runs_that_are_no_longer_finite_are_marked(self):
        flags = ["--steps", "30", "--rate", "900", "--recipes", "dense"]
        self.assertRegex(self.compare(*flags, code=1), r"(?m)^dense .* diverged at step \d+$")
        row = json.loads(self.compare(*flags, "--json", code=1))["results"][0]
        self.assertTrue(row["diverged"] >= 1 and "NaN" in row["failed"], row)
        done = run("train", *QUICK, "--workers", "2", *flags[:4], "--recipe", "dense", "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["diverged"], row["diverged"])

    def test_emulated_link_and_target(self):
        flags = ["--steps", "8", "--test-every", "2", "--recipes", "dense;topk@0.01", "--target", "1"]
        fast, slow = (json.loads(self.compare(*flags, *link, "--json")) for link in ([], ["--link", "50mbit,2ms"]))
        for a, b in zip(fast["results"], slow["results"], strict=True):
            self.assertEqual([a[key] for key in ("test_accuracy", "test_loss", "wire_bytes_per_step")],
                             [b[key] for key in ("test_accuracy", "test_loss", "wire_bytes_per_step")])
            # At least what the bytes take at that rate; the protocol has at least two operations a step, one after the other.
            self.assertGreaterEqual(b["exchange_seconds"], 8 * b["wire_bytes_per_step"] / 50e6 + 0.004)
            self.assertGreater(b["groups"], 1)
            self.assertAlmostEqual(b["step_seconds"], b["compute_seconds"] + b["exposed_seconds"] + b["update_seconds"], delta=1e-9)
            self.assertEqual(b["steps_to_target"], 2)
            self.assertAlmostEqual(b["bytes_to_target"] / (2 * b["wire_bytes_per_step"]), 1, delta=0.1)
            self.assertGreater(b["seconds_to_target"], 2 * 0.004)
        self.assertEqual((slow["link_bits"], slow["link_latency"], fast["link_bits"]), (50e6, 0.002, None))
        text = self.compare(*flags, "--link", "50mbit,2ms")
        self.assertIn("s to 1.0%", text)
        self.assertIn("emulated link of 50 Mbit/s and 2 ms", text)
        self.assertNotIn("10 Gbit/s", text)
        self.assertRegex(self.compare(*flags[:-1], "100"), r"(?m)^dense .* -  +-$")
        self.assertEqual(run("compare", *QUICK, "--link", "mpi").returncode, 2)

    def test_the_exchange_overlaps_with_the_backward_pass(self):
        # lenet's convolutions take most of the backward pass, and its dense layers, which are done first, have most of the bytes.
        flags = ["--model", "lenet", "--data", "glyphs", "--workers", "2", "--steps", "6", "--link", "100mbit,1ms", "--recipes", "dense", "--json"]
        done = run("compare", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        row = json.loads(done.stdout)["results"][0]
        self.assertLess(row["exposed_seconds"], row["exchange_seconds"], row)
        self.assertGreaterEqual(row["exposed_seconds"] + row["compute_seconds"], row["exchange_seconds"], row)
        row = json.loads(run("compare", *flags, "--group-size", "0").stdout)["results"][0]
        self.assertGreater(row["exposed_seconds"], row["exchange_seconds"], row)

    def test_default_target(self):
        found = json.loads(self.compare("--steps", "30", "--link", "1gbit", "--recipes", "fp16;dense", "--json"))
        dense = found["results"][1]["test_accuracy"]
        self.assertTrue(0.98 * dense - 0.001 <= found["target_accuracy"] <= 0.98 * dense, found["target_accuracy"])


if __name__ == "__main__":
    unittest.main()
