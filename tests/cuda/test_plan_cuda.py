#!/usr/bin/env python3
"""`tersegrad probe` and `plan` with --device cuda: files with costs of a GPU, predictions from them, and what they refuse.

The program is build/emulated/tersegrad, whose kernels run on the CPU, unless the environment variable TERSEGRAD names another.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(os.environ.get("TERSEGRAD", ROOT / "build" / "emulated" / "tersegrad"))
LEARNED = "ef+topk@0.01,coords=shared+autoencoder@ring" + "".join(
    f",{name}={n}" for name, n in zip("e1 e2 e3 e4 z d1 d2 d3 d4".split(), (4, 4, 4, 4, 1, 4, 4, 4, 4)))
RECIPES = f"fp16;terngrad;powersgd@2;{LEARNED}"
SETTING = ("--params", "1e6", "--workers", "4", "--hosts", "4", "--rate", "10gbit", "--latency", "50us", "--compute", "20ms", "--recipes", RECIPES)


def run(*arguments, protects=False):
    env = dict(os.environ, TG_EMULATED_PROTECT="1") if protects else None
    return subprocess.run((PROGRAM, *map(str, arguments)), capture_output=True, text=True, timeout=600, check=False, env=env)


def sealed(body):
    """The text of a file with another body, and the check sum of that."""
    value = 14695981039346656037
    for byte in body.encode():
        value = (value ^ byte) * 1099511628211 % 2**64
    return f'{body},"check":"{value:016x}"}}\n'


class PlanTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tersegrad-test-")
        cls.file = pathlib.Path(cls.folder.name) / "gpu.json"
        cls.probed = run("probe", "--device", "cuda", "--recipes", RECIPES, "--n", 65536, "--seconds", 0.001, cls.file, protects=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def works(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def fails(self, says, *arguments):
        done = run(*arguments)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(says, done.stderr)

    def plan(self, *flags, file=None):
        return json.loads(self.works("plan", *SETTING, "--probe", file or self.file, "--json", *flags))

    def changed(self, change):
        """A file in which values of the GPU are changed."""
        whole = json.loads(self.file.read_text())
        del whole["check"]
        change(whole["gpu"])
        path = pathlib.Path(self.folder.name) / "changed.json"
        path.write_text(sealed(json.dumps(whole)[:-1]))
        return path

    def test_probe(self):
        self.assertEqual(self.probed.returncode, 0, self.probed.stderr)
        whole = json.loads(self.file.read_text())
        gpu = whole["gpu"]
        self.assertTrue(gpu["kind"])
        self.assertIn(f"\n{gpu['kind']}: copies ", self.probed.stdout)
        for rows in (whole["recipes"], gpu["recipes"]):
            self.assertEqual(len(rows), 5)
            self.assertEqual(rows[0]["recipe"], "fp32")
        for row in gpu["recipes"]:
            name = "multiply" if "lowrank" in row["recipe"] else "decode" if "autoencoder" in row["recipe"] else "encode"
            self.assertGreater(row[name][2], 0, row)  # to start a pass
        for host, device in zip(whole["recipes"], gpu["recipes"]):
            self.assertAlmostEqual(host["bits"], device["bits"], delta=0.05)  # the same frames, of other steps
            self.assertEqual(host["encode"][2], 0)
        for name in ("copy", "begin_down", "begin_up"):
            self.assertGreater(gpu[name], 0)

    def test_plan(self):
        """Costs are those of the device that is asked for; the codec and computing leave the cores."""
        cpu, gpu = self.plan(), self.plan("--device", "cuda")
        self.assertEqual((cpu["device"], cpu["gpu"], cpu["compute_on"]), ("cpu", None, "host"))
        self.assertEqual((gpu["device"], gpu["compute_on"]), ("cuda", "device"))
        self.assertEqual(self.plan("--device", "cuda", "--compute-on", "host")["compute_on"], "host")
        self.assertEqual(gpu["gpu"], json.loads(self.file.read_text())["gpu"]["kind"])
        for a, b in zip(cpu["recipes"], gpu["recipes"]):
            self.assertAlmostEqual(a["bytes"] / b["bytes"], 1, delta=0.01)
            self.assertNotEqual(a["work_ms"], b["work_ms"])
        few, many = (self.plan("--device", "cuda", "--cores", cores)["recipes"] for cores in ("0.01", "100"))
        self.assertEqual([row["work_ms"] for row in few], [row["work_ms"] for row in many])
        text = self.works("plan", *SETTING, "--probe", self.file, "--device", "cuda")
        self.assertIn(f"codecs work on GPUs ({gpu['gpu']})", text)

    def test_costs_that_are_not_of_kernels(self):
        """Messages of frames are copied once each way, and a pass is started as often as it is made."""
        def cost(**values):
            def change(gpu):
                for row in gpu["recipes"]:
                    for name in row:
                        row[name] = [0, 0, values.get("call", 0)] if isinstance(row[name], list) else row[name]
                gpu.update(copy=0, down=values.get("down", 0), up=values.get("up", 0), begin_down=0, begin_up=0)
            rows = self.plan("--device", "cuda", file=self.changed(change))["recipes"]
            return {row["recipe"]: (row["work_ms"], row["bytes"]) for row in rows}

        self.assertEqual(cost()["terngrad"][0], 0)
        # terngrad by gather, to 3 others: a frame goes to host memory once, three come from it.
        work, sent = cost(down=1e-6)["terngrad"]
        self.assertAlmostEqual(work, sent / 3 * 1e-3, delta=1)
        work, sent = cost(up=1e-6)["terngrad"]
        self.assertAlmostEqual(work, sent * 1e-3, delta=1)
        self.assertGreaterEqual(cost(call=1)["terngrad"][0], 3000)  # ms: encoded, checked, summed

    def test_without_a_probe(self):
        told = json.loads(self.works("plan", *SETTING[:-1], "fp16", "--device", "cuda", "--json"))
        self.assertEqual(told["device"], "cuda")
        self.assertEqual([row["recipe"] for row in told["recipes"]], ["fp16"])

    def test_probe_that_is_continued(self):
        """Costs that a file has are not measured again."""
        machine, both = (pathlib.Path(self.folder.name) / name for name in ("machine.json", "both.json"))
        flags = ("--recipes", "fp16", "--n", 65536, "--seconds", 0.001)
        self.works("probe", *flags, machine)
        self.works("probe", *flags, "--device", "cuda", "--probe", machine, both)
        a, b = (json.loads(path.read_text()) for path in (machine, both))
        self.assertIsNone(a["gpu"])
        self.assertEqual((a["machine"], a["recipes"]), (b["machine"], b["recipes"]))
        self.assertEqual([row["recipe"] for row in b["gpu"]["recipes"]], ["fp32", "fp16"])
        self.fails("start this with mpirun", "probe", "--device", "cuda", "--probe", both, machine)

    def test_refusals(self):
        host = pathlib.Path(self.folder.name) / "host.json"
        self.works("probe", "--recipes", "fp16", "--n", 65536, "--seconds", 0.001, host)
        self.fails("has no costs of a GPU", "plan", *SETTING, "--probe", host, "--device", "cuda")
        other = self.changed(lambda gpu: gpu.update(kind="Another GPU"))
        self.fails("a GPU of another kind (Another GPU;", "plan", *SETTING, "--probe", other, "--device", "cuda")
        self.fails("a GPU of another kind (Another GPU;", "probe", "--device", "cuda", "--probe", other, host)
        self.assertEqual(self.plan(file=other)["device"], "cpu")  # costs of the CPU count, whatever the GPU
        for change in (lambda gpu: gpu.pop("down"), lambda gpu: gpu.update(up=-1), lambda gpu: gpu.update(kind="")):
            self.fails("is damaged", "plan", *SETTING, "--probe", self.changed(change))
        self.fails("has not measured 'bf16'", "plan", *SETTING[:-1], "bf16", "--probe", self.file, "--device", "cuda")
        self.fails("has no kernel for the GPU", "probe", "--device", "cuda", "--recipes", "fp32+zstd", "--n", 65536, "--seconds", 0.001, host)
        self.fails("plan needs --compute with --compute-on device", "plan", "--model", "lenet", "--rate", "1gbit", "--device", "cuda",
                   "--probe", self.file, "--recipes", "fp16")


class AdviceTest(unittest.TestCase):
    def test_train(self):
        """What the GPU costs: no recipe is as cheap as on the CPU there."""
        done = run("train", "--recipe", "dense", "--model", "mlp", "--data", "glyphs", "--steps", 6, "--batch", 4, "--workers", 2, "--link",
                   "10mbit,1ms", "--advise", "--device", "cuda")
        notes = [line for line in done.stderr.splitlines() if line.startswith("note: ")]
        self.assertEqual((done.returncode, len(notes)), (0, 2), done.stderr)
        self.assertIn("2 workers and 0.01 Gbit/s: Use ", notes[1])


if __name__ == "__main__":
    unittest.main()
