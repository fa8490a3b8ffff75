"""`tersegrad plan` and `tersegrad probe` from outside: keys, what must follow from what, files, and what they refuse.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import json
import unittest

from case import Case, gradient, run

KEYS = {"recipe", "step_ms", "step_overlapped_ms", "bytes", "speedup_vs_fp32", "speedup_vs_bf16", "break_even_gbps", "residual_bytes"}
SETTING = ["--params", "25e6", "--workers", "8", "--hosts", "8", "--rate", "1gbit", "--latency", "50us", "--compute", "120ms"]
RECIPES = "fp16;ef+topk@0.01;terngrad;powersgd"
LEARNED = "ef+topk@0.01,coords=shared+autoencoder@{},dense=0,learn=1,enough=1e9" + "".join(
    f",{name}={n}" for name, n in zip("e1 e2 e3 e4 z d1 d2 d3 d4".split(), (4, 4, 4, 4, 1, 4, 4, 4, 4)))


def changed(flags, **values):
    out = list(flags)
    for name, value in values.items():
        flag = "--" + name.replace("_", "-")
        if flag in out:
            out[out.index(flag) + 1] = value
        else:
            out += [flag, value]
    return out


class Plan(Case):
    """All predictions are from one probe, so that they differ by the setting alone."""

    @classmethod
    def setUpClass(cls):
        cls.probe = None

    def setUp(self):
        super().setUp()
        if type(self).probe is None:
            path = self.dir / "probe.json"
            self.works("probe", "--recipes", RECIPES, "--n", 65536, "--seconds", 0.02, path)
            type(self).probe = path.read_text()
        self.file = self.dir / "machine.json"
        self.file.write_text(self.probe)

    def plan(self, *flags):
        return self.json("plan", *flags, "--probe", self.file, "--recipes", RECIPES)

    def rows(self, *flags):
        return {row["recipe"]: row for row in self.plan(*flags)["recipes"]}

    def test_keys(self):
        told = self.plan(*SETTING)
        self.assertEqual([row["recipe"] for row in told["recipes"]], RECIPES.split(";"))
        for row in told["recipes"]:
            self.assertLessEqual(KEYS, set(row))
            self.assertGreaterEqual(row["step_ms"], 120)
            self.assertLessEqual(row["step_overlapped_ms"], 1.1 * row["step_ms"])
        self.assertTrue(told["recommendation"].endswith("."))
        self.assertEqual(told["params"], 25e6)

    def test_text_has_what_the_setting_has(self):
        def text(*flags):
            return self.works("plan", *flags, "--probe", self.file, "--recipes", RECIPES)
        one_each = text(*SETTING)
        self.assertNotIn("by hosts", one_each)
        several = changed(SETTING, hosts="2", cores="2")
        self.assertIn("by hosts", text(*several))
        self.assertIn("more than its cores", text(*several))
        for enough in (changed(several, cores="4"), changed(several, compute_on="device")):
            self.assertNotIn("more than its cores", text(*enough))

    def test_bytes_are_those_of_the_exchange(self):
        """Of lenet by 2 ranks: what a training sends."""
        sent = self.json("train", "--recipe", "terngrad", "--model", "lenet", "--data", "glyphs", "--steps", 2, "--workers", 2, "--group-size", 0)
        rows = self.rows("--model", "lenet", "--workers", "2", "--rate", "1gbit", "--compute", "10ms")
        # The opening vote of the first step is in the training's bytes.
        self.assertAlmostEqual(rows["terngrad"]["bytes"], sent["wire_bytes_per_step"], delta=100)
        self.assertEqual(rows["terngrad"]["residual_bytes"], 0)

    def test_a_slow_link_pays_and_a_fast_one_does_not(self):
        slow, fast = self.plan(*changed(SETTING, rate="10mbit")), self.plan(*changed(SETTING, rate="1000gbit", compute="10s"))
        self.assertTrue(slow["recommendation"].startswith("Use "), slow["recommendation"])
        self.assertTrue(fast["recommendation"].startswith("Do not compress: "), fast["recommendation"])
        self.assertIsNone(fast["recommended"])

    def test_time_of_bytes(self):
        """At 1 Mbit/s nothing else counts: the step is the bytes over the rate."""
        told = self.plan(*changed(SETTING, rate="1mbit", workers="2", hosts="2", compute="0ms", params="1e6"))
        for row in told["recipes"] + [told["fp32"], told["bf16"]]:
            self.assertAlmostEqual(row["step_ms"] / (8 * row["bytes"] / 1e6 * 1e3), 1, delta=0.05)
        self.assertEqual(told["fp32"]["bytes"], 4e6)

    def test_scaling(self):
        """Bytes by shard hardly grow with the ranks; hosts that sum first send less between hosts; cores matter."""
        few, many = self.rows(*SETTING), self.rows(*changed(SETTING, workers="4096", hosts="512"))
        self.assertLess(many["terngrad"]["bytes"], 1.4 * few["terngrad"]["bytes"])
        self.assertLess(many["fp16"]["step_hosts_ms"], many["fp16"]["step_ms"])
        one, two = (self.rows(*changed(SETTING, cores=cores))["terngrad"]["step_overlapped_ms"] for cores in ("0.5", "2"))
        self.assertGreater(one, 1.8 * two - 100)

    def test_computing_on_a_device(self):
        """Leaves the cores to codecs: on one core, messages beside computing end earlier."""
        link = changed(SETTING, cores="1", rate="100gbit", backward="120ms")
        told, rows = self.plan(*link, "--compute-on", "device"), self.rows(*link, "--compute-on", "host")
        self.assertEqual(told["compute_on"], "device")
        for row in told["recipes"]:
            self.assertLess(row["step_overlapped_ms"], rows[row["recipe"]]["step_overlapped_ms"])
            self.assertAlmostEqual(row["step_ms"], rows[row["recipe"]]["step_ms"], delta=1e-6)

    def test_local_steps(self):
        once, rarely = self.rows(*SETTING), self.rows(*SETTING, "--local-steps", "8")
        for recipe, row in rarely.items():
            self.assertAlmostEqual(row["bytes"], once[recipe]["bytes"] / 8, delta=1)
            self.assertAlmostEqual(row["step_ms"] - 120, (once[recipe]["step_ms"] - 120) / 8, delta=0.01)

    def test_models(self):
        shapes = self.dir / "shapes.json"
        shapes.write_text(json.dumps([{"name": "a", "shape": [1000, 10], "kind": "dense"}, {"name": "b\u00e9", "shape": [10], "kind": "bias"}]))
        link = ["--rate", "1gbit", "--compute", "5ms"]
        self.assertEqual(self.plan("--shapes", shapes, *link)["params"], 10010)
        lines = self.dir / "shapes.txt"
        lines.write_text("conv1 64x3x7x7\n")
        self.assertEqual(self.plan("--shapes", lines, *link)["params"], 64 * 3 * 7 * 7)
        measured = self.plan("--model", "lenet", "--rate", "1gbit")
        self.assertGreater(measured["compute_ms"], 0)
        self.assertGreater(measured["backward_ms"], 0)

    def test_what_is_not_predicted(self):
        told = self.json("plan", *SETTING, "--probe", self.file, "--recipes", "powersgd;fp16", "--exchange", "gather")
        self.assertEqual([row["recipe"] for row in told["not_predicted"]], ["powersgd"])
        self.assertIn("lowrank", told["not_predicted"][0]["reason"])

    def test_recipes_that_learn(self):
        """Bytes and rounds are those of a training that has come to its last phase; hosts do not sum first."""
        for form in ("ring", "server"):
            recipe, probe, log = LEARNED.format(form), self.dir / f"{form}.json", self.dir / f"{form}.log"
            setting = ["--model", "lenet", "--rate", "1gbit", "--compute", "10ms", "--recipes", recipe, "--probe", probe]
            self.works("probe", "--recipes", recipe, "--n", 65536, "--seconds", 0.01, probe)
            costs = json.loads(probe.read_text())["recipes"][1]
            for name in ("encode", "lead", "follow", "decode", "copy"):
                self.assertGreater(sum(costs[name]), 0, name)
            self.works("train", "--recipe", recipe, "--model", "lenet", "--data", "glyphs", "--steps", 4, "--workers", 3, "--batch", 8, "--log", log)
            step = [json.loads(line) for line in log.read_text().splitlines()][-2]
            told = self.json("plan", *setting, "--workers", 3)
            row = told["recipes"][0]
            self.assertEqual((row["exchange"], row["phase"], row["groups"]), (f"lgc-{form}", "coded", 1))
            self.assertAlmostEqual(3 * row["bytes"] / (step["payload_bytes"] + step["header_bytes"]), 1, delta=0.05)
            self.assertEqual(row["step_ms"], row["step_overlapped_ms"])
            many = self.json("plan", *setting, "--workers", 8, "--hosts", 4)["recipes"][0]
            self.assertIsNone(many["step_hosts_ms"])
            text = self.works("plan", *setting, "--workers", 3)
            self.assertIn(f"lgc-{form}, coded", text)
            self.assertIn("\ncoded       a step in which codes are sent", text)
        self.fails(2, "plan", "--params", "25e6", "--rate", "1gbit", "--compute", "1s", "--recipes", "lgc-ring", "--probe", probe, says="has not measured")

    def test_a_device_that_is_not_there(self):
        """In one sentence, the same in all commands."""
        done = run("bench", "--recipe", "fp16", "--n", 1000, "--device", "cuda")
        if done.returncode == 0:
            self.skipTest("there is a GPU")
        for command in (("plan", *SETTING), ("plan", *SETTING, "--probe", self.file), ("probe", self.dir / "gpu.json")):
            again = run(*command, "--device", "cuda")
            self.assertEqual((again.returncode, again.stderr, again.stdout), (2, done.stderr, ""))
        self.assertFalse((self.dir / "gpu.json").exists())
        self.fails(2, "plan", *SETTING, "--device", "tpu", says="--device")

    def test_text_and_csv(self):
        text = self.works("plan", *SETTING, "--probe", self.file, "--recipes", RECIPES)
        table = [line for line in text.splitlines() if line.startswith(("recipe", "fp32", "bf16", *RECIPES.split(";")))]
        self.assertEqual(len(table), 3 + len(RECIPES.split(";")))
        for line in table[3:]:  # columns line up: numbers end where the head's do
            self.assertEqual(line[table[0].index("step ms") + len("step ms") - 1:][:1].isdigit(), True, text)
        self.assertIn("pays below", text)
        csv = self.works("plan", *SETTING, "--probe", self.file, "--recipes", RECIPES, "--csv").splitlines()
        self.assertEqual(len(csv), 1 + len(RECIPES.split(";")))

    def test_misuse(self):
        files = {"none.json": "no JSON", "object.json": "{}", "tensor.json": '[{"name": "a", "shape": [0]}]',
                 "kind.json": '[{"name": "a", "shape": [1], "kind": "nice"}]', "cut.json": '[{"name": "a", "shape": [1', "lines.txt": "\x01 x\n"}
        for name, text in files.items():
            (self.dir / name).write_text(text)
        for flags, says in ((changed(SETTING, rate="0gbit"), "--rate takes a rate"), (changed(SETTING, rate="0"), "--rate takes a rate"),
                            (changed(SETTING, hosts="9"), "9 hosts for 8 workers"), (changed(SETTING, hosts="3"), "divided evenly"),
                            (changed(SETTING, compute="12"), "--compute takes a time"), (changed(SETTING, params="2.5"), "--params takes"),
                            (changed(SETTING, workers="1"), "--workers"), (changed(SETTING, backward="1s"), "longer than --compute"),
                            (SETTING[2:], "one of --model"), (SETTING[:6] + SETTING[8:], "plan needs --rate"), (SETTING[:-2], "plan needs --compute"),
                            (changed(SETTING, compute_on="moon"), "--compute-on"),
                            (["--model", "lenet", "--rate", "1gbit", "--compute-on", "device"], "plan needs --compute with"),
                            (changed(SETTING, recipes="nothing"), "nothing"), (changed(SETTING, recipes="adacomp"), "has not measured"),
                            *((["--shapes", self.dir / name, *SETTING[2:]], name) for name in files)):
            with self.subTest(flags=flags):
                self.fails(2, "plan", *flags, *(["--probe", self.file] if "--probe" not in flags else []), says=says)
        self.fails(1, "plan", "--shapes", self.dir / "missing.json", *SETTING[2:])

    def test_probes_of_others(self):
        whole = json.loads(self.probe)
        bad = self.dir / "bad.json"
        cases = [("", "no file of 'tersegrad probe'"), ("{}", "no file of 'tersegrad probe'"), (self.probe[:-40], "no file of 'tersegrad probe'"),
                 (self.probe.replace('"cores": ', '"cores": 1'), "damaged"), (json.dumps(dict(whole, tersegrad_probe=2)), "has version 2"),
                 (json.dumps(whole), "damaged"), (json.dumps({**whole, "more": 1}), "damaged")]
        for text, says in cases:
            with self.subTest(says=says, text=text[:40]):
                bad.write_text(text)
                self.fails(2, "plan", *SETTING, "--probe", bad, says=says)

    def test_another_machine(self):
        """A probe that was written for another CPU, with a check sum that fits."""
        kind = json.loads(self.probe)["machine"]["kind"]
        body = self.probe.replace(json.dumps(kind), '"Another CPU, scalar"').rpartition(',"check"')[0]
        value = 14695981039346656037
        for byte in body.encode():
            value = (value ^ byte) * 1099511628211 % 2**64
        bad = self.dir / "bad.json"
        bad.write_text(f'{body},"check":"{value:016x}"}}\n')
        self.fails(2, "plan", *SETTING, "--probe", bad, says="a machine of another kind")

    def test_probe(self):
        path = self.dir / "out.json"
        told = self.json("probe", "--recipes", "fp16;powersgd", "--n", 65536, "--threads", 2, "--seconds", 0.01, path)
        self.assertEqual(told, json.loads(path.read_text()))
        self.assertEqual([(row["recipe"], row["threads"]) for row in told["recipes"]],
                         [(recipe, threads) for threads in (1, 2) for recipe in ("fp32", "fp16", "ef+lowrank@4,factors=bf16")])
        self.assertGreater(told["recipes"][2]["multiply"][0], 0)
        self.assertGreater(told["recipes"][1]["encode"][0], 0)
        path.unlink()
        self.fails(2, "probe", "--recipes", "nothing", path, says="nothing")
        self.fails(2, "probe", "--probe", self.file, path, says="mpirun")
        self.fails(2, "probe", says="usage")
        self.fails(2, "probe", "--input", self.save("short.npy", gradient(1000)), path, says="1000 elements")

    def test_without_a_probe(self):
        told = self.json("plan", *SETTING, "--recipes", "fp16")
        self.assertIn("measured on this machine, in", told["costs"])


class Advise(Case):
    def test_train(self):
        done = run("train", "--recipe", "dense", "--model", "mlp", "--data", "glyphs", "--steps", 8, "--workers", 2, "--link", "10mbit,1ms", "--advise")
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(notes), 2, done.stderr)
        self.assertIn("steps, one took", notes[0])
        self.assertIn("2 workers and 0.01 Gbit/s: Use ", notes[1])


if __name__ == "__main__":
    unittest.main()
