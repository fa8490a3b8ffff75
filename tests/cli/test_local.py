"""`tersegrad train --local-steps` from outside: checkpoints inside rounds, other numbers of workers, what is counted, what is refused.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import json
import subprocess
import unittest

from training import PROGRAM, QUICK, Training, run


class Local(Training):
    def test_learns_and_counts_all_steps(self):
        every, local = (self.result("--recipe", "dense", "--steps", 120, "--local-steps", h) for h in (1, 4))
        self.assertEqual([every["exchanges"], local["exchanges"]], [120, 30])
        self.assertEqual(local["dense_bytes_per_step"], every["dense_bytes_per_step"])
        self.assertAlmostEqual(local["ratio"], 4, delta=0.01)
        self.assertAlmostEqual(local["frame_ratio"], 4)
        self.assertAlmostEqual(local["test_accuracy"], every["test_accuracy"], delta=0.03)
        self.assertEqual(local["ratio_against"], "an fp32 all-reduce in every step")
        self.assertEqual(local["local_steps"], "4")
        self.assertIn("30 exchanges of moves in 120 steps", run("train", *QUICK, "--recipe", "dense", "--steps", 120, "--local-steps", 4).stdout)

    def test_one_local_step_is_an_ordinary_one(self):
        flags = ["--recipe", "ef+topk@0.05", "--steps", 10]
        plain = self.result(*flags)
        for h in (1, "1,5:1"):
            self.assertEqual(self.result(*flags, "--local-steps", h)["weights_hash"], plain["weights_hash"])
        # In a schedule, rounds of one step exchange moves: the same up to rounding, if nothing is dropped.
        dense, moved = (self.result("--recipe", "dense", "--steps", 10, "--local-steps", h) for h in (1, "1,10:2"))
        self.assertNotEqual(moved["weights_hash"], dense["weights_hash"])
        self.assertAlmostEqual(moved["test_loss"], dense["test_loss"], delta=1e-4)

    def test_log_and_tests_are_by_round(self):
        log = self.path / "run.jsonl"
        self.result("--recipe", "adacomp", "--workers", 2, "--steps", 18, "--local-steps", "2,6:5", "--test-every", 4, "--log", log)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(lines[0]["local_steps"], "2,6:5")
        rounds = [line for line in lines if "loss" in line]
        self.assertEqual([(line["step"], line.get("steps", 1)) for line in rounds], [(1, 2), (3, 2), (5, 2), (10, 5), (15, 5), (17, 2)])
        self.assertEqual([line["step"] for line in lines if "test_accuracy" in line], [4, 11, 16, 18])
        self.assertEqual(rounds[0]["logical_bytes"] * 5, rounds[4]["logical_bytes"] * 2)

    def test_any_exchange_link_and_groups(self):
        flags = ["--recipe", "ef+topk@0.05", "--workers", 3, "--steps", 9, "--local-steps", 4]
        gathered = self.result(*flags)
        for more in (["--group-size", 0], ["--group-size", 1], ["--link", "1gbit,0.1ms"]):
            self.assertEqual(self.result(*flags, *more)["weights_hash"], gathered["weights_hash"], more)
        for recipe, exchange in (("adacomp", "shard"), ("ef+topk@0.05", "server"), ("ef+randomblock@0.1", "allreduce"), ("powersgd@2", "lowrank")):
            self.assertEqual(self.result(*flags[2:], "--recipe", recipe, "--exchange", exchange)["exchange"], exchange)
        self.assertEqual(self.result(*flags[:2], "--workers", 4, *flags[4:], "--hosts", 2)["host_size"], 2)

    def test_optimizers_and_outer_steps(self):
        flags = ["--recipe", "ef+topk@0.1", "--workers", 2, "--steps", 40, "--local-steps", 4]
        hashes = [self.result(*flags, *more)["weights_hash"] for more in (
            [], ["--optimizer", "adam", "--weight-decay", 0.01], ["--outer", "nesterov"], ["--outer", "nesterov@lr=1,momentum=0.5"])]
        self.assertEqual(len(set(hashes)), 4)
        self.assertEqual(self.result(*flags, "--outer", "nesterov@lr=1,momentum=0")["weights_hash"], hashes[0])

    def test_running_statistics_are_averaged_for_tests(self):
        flags = ["train", "--model", "resnet8", "--data", "glyphs", "--batch", "4", "--workers", "2", "--steps", "6", "--recipe", "dense", "--json"]
        local = json.loads(run(*flags, "--local-steps", "3").stdout.splitlines()[-1])
        self.assertTrue(local["test_loss"] < 10)

    def test_killed_inside_rounds_and_resumed_ends_in_the_same_bits(self):
        flags = ["--recipe", "adacomp", "--workers", 3, "--steps", 200, "--local-steps", "1,30:4,60:9", "--outer", "nesterov@lr=1,momentum=0.3"]
        files = ["--checkpoint", self.path / "run.ck", "--checkpoint-every", 7, "--log", self.path / "run.jsonl", "--resume"]
        straight = self.result(*flags, "--checkpoint", self.path / "straight.ck", "--checkpoint-every", 7)
        resumed, _ = self.result_after_kills(8, 8, *flags, *files)
        for key in ("weights_hash", "test_loss", "test_accuracy", "exchanges", "kinds", "frame_ratio", "dense_bytes_per_step", "train_loss"):
            self.assertEqual(resumed[key], straight[key], key)
        self.assertEqual(self.result(*flags)["weights_hash"], straight["weights_hash"])
        done = [json.loads(line) for line in (self.path / "run.jsonl").read_text().splitlines() if '"loss"' in line]
        self.assertEqual(sum(line.get("steps", 1) for line in done), 200)

    def test_another_number_of_workers_goes_on_from_a_rounds_end(self):
        flags = ["--recipe", "adacomp", "--steps", 24, "--local-steps", 4, "--checkpoint", self.path / "run.ck", "--resume"]

        def save_after(steps):
            """The checkpoint of a run that was ended after so many steps by a log that cannot be written."""
            (self.path / "run.ck").unlink(missing_ok=True)
            process = subprocess.Popen([PROGRAM, "train", *QUICK, *map(str, flags), "--workers", "4", "--checkpoint-every", str(steps)],
                                       stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            while process.poll() is None and not (self.path / "run.ck").exists():
                pass
            process.kill()
            process.wait()

        for _ in range(5):  # a run that was not killed in time has saved its end
            save_after(22)
            done = run("train", *QUICK, *flags, "--workers", "2")
            if done.returncode != 0:
                break
        self.assertEqual(done.returncode, 1)
        self.assertIn("saved by 4 workers inside a round of local steps, after step 22", done.stderr)
        self.assertIn("give --workers 4", done.stderr)
        self.assertEqual(self.result(*flags, "--workers", 4)["exchanges"], 6)
        save_after(20)
        self.assertEqual(self.result(*flags, "--workers", 2)["exchanges"], 6)

    def test_a_quorum_goes_on_without_a_late_worker(self):
        flags = ["--recipe", "terse", "--workers", 3, "--steps", 24, "--local-steps", 3, "--quorum", 2, "--grace", 0.01, "--late", "2:40ms"]
        log, saved = self.path / "run.jsonl", self.path / "run.ck"
        got = self.result(*flags, "--test-every", 3, "--log", log, "--checkpoint", saved, "--checkpoint-every", 3)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        rounds = [line for line in lines if "loss" in line]
        self.assertEqual(sum(line.get("absent", 0) for line in rounds), got["absences"])
        self.assertIn(got["absences"], range(1, 8))
        whole = [line["step"] + 1 for line in rounds if "absent" not in line]  # tests and checkpoints wait for these
        self.assertEqual([line["step"] for line in lines if "test_accuracy" in line], whole)
        self.assertEqual(self.result(*flags[:-6], "--resume", "--checkpoint", saved)["weights_hash"], got["weights_hash"])
        self.assertIn("times a worker was late", run("train", *QUICK, *flags).stdout)

    def test_refusals(self):
        flags = ["--recipe", "adacomp", "--steps", 4]
        self.refuse(2, "give --local-steps", *flags, "--quorum", 2)
        self.refuse(2, "--quorum 5 of 4 workers can never be there", *flags, "--workers", 4, "--local-steps", 2, "--quorum", 5)
        self.refuse(2, "--late names worker 4", *flags, "--workers", 4, "--late", "4:1ms")
        self.refuse(2, "takes RANK:TIME", *flags, "--late", "1:soon")
        self.refuse(2, "a round of 0 local steps", *flags, "--local-steps", 0)
        self.refuse(2, "goes backwards", *flags, "--local-steps", "1,9:2,5:4")
        self.refuse(2, "is not understood", *flags, "--local-steps", "four")
        self.refuse(2, "outer step 'mean' is not understood", *flags, "--outer", "mean")
        self.refuse(2, "adds up momentum", "--recipe", "dgc@0.01", "--steps", 4, "--local-steps", 2)
        self.refuse(2, "train takes one recipe", "--recipe", "adacomp:4", "--steps", 4)
        self.result(*flags, "--local-steps", 2, "--checkpoint", self.path / "run.ck")
        self.refuse(1, "saved by a run with local-steps 2, and this one has 4", *flags, "--local-steps", 4, "--checkpoint", self.path / "run.ck", "--resume")
        self.refuse(1, "saved by a run with outer", *flags, "--local-steps", 2, "--outer", "nesterov", "--checkpoint", self.path / "run.ck", "--resume")

    def test_a_recipe_without_feedback_is_noted_in_one_line(self):
        for recipe, noted in (("terngrad", 1), ("fp16", 1), ("dense", 0), ("ef+topk@0.1", 0)):
            done = run("train", *QUICK, "--recipe", recipe, "--steps", 4, "--local-steps", 2, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("has no error feedback"), noted, done.stderr)

    def test_rows_of_a_comparison_have_local_steps_of_their_own(self):
        done = run("compare", *QUICK, "--workers", 2, "--steps", 12, "--recipes", "dense;dense:4;adacomp:1,4:2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout.splitlines()[-1])["results"]
        self.assertEqual([row["recipe"] for row in rows], ["dense", "dense, 4 local steps", "adacomp, 1,4:2 local steps"])
        self.assertEqual([row["local_steps"] for row in rows], ["1", "4", "1,4:2"])
        self.assertAlmostEqual(rows[1]["ratio"] / rows[0]["ratio"], 4, delta=0.05)
        self.assertEqual([row["bare_recipe"] for row in rows], ["dense", "dense", "adacomp"])
        for row in rows:
            beaten = any(other["test_accuracy"] >= row["test_accuracy"] and other["wire_bytes_per_step"] < row["wire_bytes_per_step"] for other in rows)
            self.assertEqual(row["on_frontier"], not beaten)
        done = run("compare", *QUICK, "--recipes", "dense:0", "--steps", 4)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))


if __name__ == "__main__":
    unittest.main()
