"""The contract of the program: what its commands write, print and return, for good input and for bad."""
import os
import shutil
import struct
import subprocess
import unittest

import numpy as np

from case import PROGRAM, RECIPES, TIMEOUT, Case, gradient, same


class RoundTrip(Case):
    def test_sizes_dtypes_and_recipes(self):
        for n in (0, 1, 2, 1000):
            for dtype in (np.float32, np.float16):
                array = gradient(n, dtype)
                for recipe in RECIPES:
                    with self.subTest(n=n, dtype=dtype.__name__, recipe=recipe):
                        back = self.round_trip(array, recipe, "--seed", 5, "--step", 3)
                        self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
                        self.check_values(array, back, recipe)

    def check_values(self, array, back, recipe):
        """What was sent is the input, as the quantizer rounds it; what was not is zero."""
        sent = back != 0
        if "sign" in recipe or recipe.startswith("adacomp"):
            self.assertLessEqual(len(set(np.abs(back[sent]))), 1)
            self.assertTrue(np.array_equal(np.signbit(back[sent]), np.signbit(array[sent])))
            return
        if any(name in recipe for name in ("orq", "bingrad", "onebit", "terngrad", "qsgd", "natural")):
            return  # tests/ref knows what these make of values
        want = array[sent].astype(np.float64)
        error = np.abs(back[sent].astype(np.float64) - want)
        relative = 2.0 ** -7 if "bf16" in recipe else 2.0 ** -10 if "fp16" in recipe else 0
        self.assertTrue(np.all(error <= relative * np.abs(want) + (1e-7 if relative else 0)))
        if recipe in ("dense", "fp16", "bf16", "ef+fp16"):
            self.assertTrue(np.all(sent | (np.abs(array) < 1e-7)))

    def test_dense_is_exact(self):
        for array in (gradient(1000), gradient(1000, np.float16)):
            self.assertTrue(same(self.round_trip(array, "dense"), array))

    def test_halves_round_to_nearest(self):
        array = gradient(5000)
        self.assertTrue(same(self.round_trip(array, "fp16"), array.astype(np.float16).astype(np.float32)))
        bits = array.view(np.uint32)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).view(np.float32)
        self.assertTrue(same(self.round_trip(array, "bf16"), rounded))

    def test_topk_takes_the_largest(self):
        array = gradient(1000)
        back = self.round_trip(array, "topk@0.05")
        sent = back != 0
        self.assertEqual(np.count_nonzero(sent), 50)
        self.assertTrue(np.array_equal(back[sent], array[sent]))
        self.assertGreaterEqual(np.abs(array[sent]).min(), np.abs(array[~sent]).max())

    def test_shapes(self):
        for shape in ((), (1,), (7,), (3, 4), (2, 3, 4), (1, 1, 1, 5), (0,), (3, 0, 2), (0, 0), (1,) * 32,
                      (64, 3, 7, 7)):
            for dtype in (np.float32, np.float16):
                with self.subTest(shape=shape):
                    array = gradient(int(np.prod(shape)), dtype).reshape(shape)
                    self.assertTrue(same(self.round_trip(array, "dense"), array))
                    self.assertEqual(self.round_trip(array, "topk@0.5").shape, shape)

    def test_a_million(self):
        array = gradient(10 ** 6)
        back = self.round_trip(array, "topk@0.01+fp16", "--threads", 2)
        sent = back != 0
        self.assertEqual(np.count_nonzero(sent), 10 ** 4)
        self.assertTrue(np.array_equal(back[sent], array[sent].astype(np.float16).astype(np.float32)))

    def test_special_values(self):
        tiny = np.float32(1e-45)
        arrays = {
            "zeros": np.zeros(300, np.float32),
            "negative zeros": -np.zeros(300, np.float32),
            "equal": np.full(300, 0.25, np.float32),
            "denormal": np.arange(300, dtype=np.float32) * tiny,
            "denormal half": np.arange(1, 301, dtype=np.uint16).view(np.float16),
            "largest": np.full(300, np.finfo(np.float32).max, np.float32),
        }
        for name, array in arrays.items():
            with self.subTest(name=name):
                self.assertTrue(same(self.round_trip(array, "dense"), array))
                for recipe in ("topk@0.1", "threshold@0.1", "randomblock@0.1", "ef+topk@0.1"):
                    back = self.round_trip(array, recipe)
                    sent = back != 0
                    self.assertTrue(np.array_equal(back[sent], array[sent]), recipe)
                    if recipe == "topk@0.1" and name == "equal":
                        self.assertEqual(np.count_nonzero(sent), 30)

    def test_nonfinite_policy(self):
        for bad in (np.nan, np.inf, -np.inf):
            for dtype in (np.float32, np.float16):
                array = gradient(100, dtype)
                array[17] = bad
                source = self.save("bad layer.npy", array)
                for recipe in ("dense", "ef+topk@0.1", "randomk@0.1+fp16", "threshold@0.2"):
                    with self.subTest(bad=bad, recipe=recipe):
                        self.fails(1, "encode", "--recipe", recipe, source, self.dir / "x.tg", says="bad layer")
                        back = self.round_trip(array, recipe, "--nonfinite", "zero")
                        self.assertTrue(np.all(np.isfinite(back)) and back[17] == 0)
                back = self.round_trip(array, "dense", "--nonfinite", "pass")
                self.assertTrue(same(back, array))

    def test_files_as_numpy_writes_them(self):
        for shape in ((), (5,), (2, 3), (0, 4)):
            array = gradient(int(np.prod(shape))).reshape(shape)
            self.round_trip(array, "dense")
            self.assertEqual((self.dir / "back.npy").read_bytes(), (self.dir / "in.npy").read_bytes())

    def test_same_bytes_for_any_thread_count(self):
        source = self.save("in.npy", gradient(700000))
        for recipe in ("ef+topk@0.01+fp16", "randomk@0.01", "threshold@1"):
            frames = []
            for threads in (1, 2, 7):
                self.works("encode", "--recipe", recipe, "--threads", threads, source, self.dir / "out.tg")
                frames.append((self.dir / "out.tg").read_bytes())
            self.assertTrue(frames[0] == frames[1] == frames[2], recipe)

    def test_seed_step_and_rank_choose_the_coordinates(self):
        source = self.save("in.npy", gradient(1000))

        def frame(*flags):
            self.works("encode", "--recipe", "randomk@0.05", *flags, source, self.dir / "out.tg")
            self.works("decode", self.dir / "out.tg", self.dir / "back.npy")
            return np.flatnonzero(np.load(self.dir / "back.npy")).tolist()

        shared = frame("--seed", 2 ** 64 - 1)
        self.assertEqual(shared, frame("--seed", 2 ** 64 - 1, "--rank", 3))
        self.assertNotEqual(shared, frame("--seed", 1))
        self.assertNotEqual(shared, frame("--seed", 2 ** 64 - 1, "--step", 2 ** 64 - 1))
        self.assertNotEqual(frame("--rank", 0), frame("--rank", 1))


class BadInput(Case):
    def setUp(self):
        super().setUp()
        self.source = self.save("in.npy", gradient(100))
        self.out = self.dir / "out.tg"

    def test_recipes(self):
        bad = ["nosuchpart", "topk@0", "topk@1.5", "topk@-1", "topk@nan", "topk@", "topk@0.1@0.2", "topk@ratio=", "fp16+bf16",
               "topk+randomk", "ef+ef", "+", "", "topk+", "+topk", "topk@0.1,0.2", "topk@0.1,ratio=0.1",
               "topk@0.1,nosuch=1", "ef@decay=2", "topk@0.1,scope=galaxy", "ef@again=fp8+topk", "none@again=fp16+topk", "ef@again=fp16+lowrank", "topk@0.1 ", "TOPK", "topk@1e400", "x" * 5000,
               "randomk@0.1,coords=shared"]
        for recipe in bad:
            with self.subTest(recipe=recipe[:40]):
                self.fails(2, "encode", "--recipe", recipe, self.source, self.out)
                self.fails(2, "encode", "--recipe", "dense", "--rule", f"i*={recipe}", self.source, self.out)
                if "shared" not in recipe:
                    self.fails(2, "recipes", recipe)
                    self.fails(2, "bench", "--recipe", recipe)
                    self.fails(2, "demo", "--recipe", "dense", "--recipe", recipe)

    def test_shared_coordinates_need_a_seed(self):
        for part in ("randomk", "randomblock"):
            recipe = f"{part}@0.1,coords=shared"
            self.fails(2, "encode", "--recipe", recipe, self.source, self.out, says="seed")
            self.works("encode", "--recipe", recipe, "--seed", 0, self.source, self.out)

    def test_flags(self):
        encode = ("encode", "--recipe", "dense")
        files = (self.source, self.out)
        for flags in (["--nosuch"], ["--nosuch=1"], ["-x"], ["--seed"], ["--seed", "-1"], ["--seed", "1.5"],
                      ["--seed", ""], ["--seed", str(2 ** 64)], ["--seed", " 1"], ["--step", "x"], ["--rank", str(2 ** 32)],
                      ["--threads", "0"], ["--threads", "100000"], ["--nonfinite", "maybe"], ["--kind", "x"],
                      ["--kind", "x=nosuch"], ["--kind", "=bias"], ["--rule", "x"], ["--rule", "x="], ["--rule", "=fp16"],
                      ["--seed", "1", "--seed", "2"], ["--json=1"], ["--recipe", "fp16"], ["--n", "5"],
                      ["--dense-below", "-3"]):
            with self.subTest(flags=flags):
                # A flag that lacks its value stands last; all others stand where a user would put them.
                self.fails(2, *encode, *((*files, *flags) if flags == ["--seed"] else (*flags, *files)))
        self.fails(2, "encode", *files)
        self.fails(2, *encode, self.source)
        self.fails(2, *encode)
        self.fails(2, *encode, self.source, self.source, says="OUT.tg")
        self.fails(2, "decode", self.source)
        self.fails(2, "decode", self.source, self.out, self.out)
        self.fails(2, "inspect")
        self.fails(2, "recipes", "dense", "fp16")
        self.fails(2)
        self.fails(2, "nosuch")
        self.fails(2, "--nosuch")

    def test_bench_and_demo(self):
        for flags in (["--n", "0"], ["--n", "-1"], ["--n", "many"], ["--n", "1e6"], ["--n", str(2 ** 64)],
                      ["--seconds", "0"], ["--seconds", "nan"], ["--seconds", "-1"], ["--dtype", "fp64"], ["file.npy"],
                      ["--input", str(self.source), "--n", "5"], ["--input", str(self.source), "--shift", "5"], ["--threads", "0"],
                      ["--input", str(self.source), "--n", "5", "--shift", str(2 ** 40)], ["--shift", "5"],
                      ["--input", str(self.source), "--n", str(2 ** 40), "--shift", "5"]):
            self.fails(2, "bench", "--recipe", "dense", *flags)
        self.fails(2, "bench")
        self.fails(1, "bench", "--recipe", "dense", "--input", self.dir / "nosuch.npy")
        self.fails(1, "bench", "--recipe", "dense", "--input", self.save("none.npy", gradient(0)))
        self.fails(1, "bench", "--recipe", "dense", "--input", self.save("nan.npy", np.full(3, np.nan, np.float32)))
        for flags in (["--workers", "0"], ["--workers", "1000"], ["--steps", "0"], ["--recipes", "dense;;fp16"],
                      ["--recipes", ""], ["x"]):
            self.fails(2, "demo", *flags)

    def test_files(self):
        encode = ("encode", "--recipe", "dense")
        self.fails(1, *encode, self.dir / "nosuch.npy", self.out, says="nosuch.npy")
        self.fails(1, *encode, self.dir / "no\nsuch.npy", self.out)
        self.fails(1, *encode, self.source, self.dir / "missing" / "out.tg")
        self.fails(1, *encode, self.source, self.source / "below.tg")
        self.fails(1, *encode, self.source, self.dir, says="directory")
        self.fails(1, *encode, self.source, "/dev/full")
        self.works(*encode, self.source, self.out)
        self.fails(1, "decode", self.dir / "nosuch.tg", self.dir / "back.npy")
        self.fails(1, "decode", self.dir, self.dir / "back.npy")
        self.fails(1, "decode", self.out, self.dir)
        self.fails(1, "decode", self.out, "/dev/full")
        self.fails(1, "decode", self.out, self.source / "below.npy")
        self.fails(2, "decode", self.out, self.out, says="OUT.npy")
        self.fails(1, "decode", self.source, self.dir / "back.npy")
        self.fails(1, "inspect", self.dir / "nosuch.tg")
        self.fails(1, "inspect", self.source)
        self.fails(1, "inspect", "/dev/null")

    def test_standard_output_that_is_full(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([PROGRAM, "recipes"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (1, 1))

    def test_an_output_that_was_there(self):
        """It is replaced whole on success, keeps its permissions, and is untouched by a failure."""
        self.out.write_text("precious")
        self.out.chmod(0o640)
        self.fails(2, "encode", "--recipe", "nosuch", self.source, self.out)
        self.fails(1, "encode", "--recipe", "dense", self.dir / "nosuch.npy", self.out)
        link = self.dir / "link.tg"
        link.symlink_to("out.tg")
        self.works("encode", "--recipe", "dense", self.source, link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(self.out.stat().st_mode & 0o777, 0o640)
        self.works("inspect", self.out)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["in.npy", "link.tg", "out.tg"])

    def test_output_into_a_pipe(self):
        done = subprocess.run([PROGRAM, "encode", "--recipe", "dense", "--json", self.source, "/dev/stderr"],
                              capture_output=True, timeout=TIMEOUT)
        self.assertEqual((done.returncode, done.stderr[:4]), (0, b"TGFR"))


class Output(Case):
    """What is printed: JSON keys that scripts rely on, and help."""

    def test_encode_decode_inspect(self):
        source = self.save("in.npy", gradient(1000).reshape(10, 100))
        encoded = self.json("encode", "--recipe", "ef+topk@0.1+fp16", "--step", 12, "--rank", 2, source, self.dir / "x.tg")
        decoded = self.json("decode", self.dir / "x.tg", self.dir / "back.npy")
        found = self.json("inspect", self.dir / "x.tg")
        size = (self.dir / "x.tg").stat().st_size
        for result in (encoded, decoded, found):
            self.assertEqual((result["recipe"], result["step"], result["rank"], result["tensors"], result["elements"]),
                             ("ef+topk@0.1+fp16", 12, 2, 1, 1000))
            self.assertEqual((result["entries"], result["gradient_bytes"], result["frame_bytes"]), (100, 4000, size))
            self.assertEqual(result["payload_bytes"] + result["header_bytes"], size)
            self.assertEqual(result["payload_bytes"] - result["index_bytes"], 200)
            self.assertAlmostEqual(result["ratio"], 4000 / size)
            self.assertAlmostEqual(result["bits_per_value"], size * 8 / 1000)
            self.assertIsNone(result["paper_ratio"])
        self.assertEqual((found["version"], found["checksum_ok"]), (4, True))
        self.assertEqual(found["checksum"], "%016x" % struct.unpack("<Q", (self.dir / "x.tg").read_bytes()[-8:]))
        self.assertEqual(found["tensor_list"], [
            {"name": "in", "shape": [10, 100], "dtype": "fp32", "kind": "other", "recipe": "ef+topk@0.1+fp16"}])

    def test_paper_ratio(self):
        source = self.save("in.npy", gradient(1000).reshape(10, 100))
        for kind, bits in (("conv", 8), ("dense", 16)):
            flags = ("--recipe", "adacomp", "--kind", f"*={kind}")
            encoded = self.json("encode", *flags, source, self.dir / "x.tg")
            found = self.json("inspect", self.dir / "x.tg")
            for result in (encoded, found):
                self.assertAlmostEqual(result["paper_ratio"], 32000 / (result["entries"] * bits + 32))
            self.assertIn("as the scheme's paper counts", self.works("inspect", self.dir / "x.tg"))
        found = self.json("bench", "--recipe", "adacomp@50", "--input", source, "--seconds", "0.02")
        self.assertAlmostEqual(found["paper_ratio"], 32000 / (found["entries"] * 8 + 32))

    def test_nothing_has_no_ratio(self):
        found = self.json("encode", "--recipe", "dense", self.save("in.npy", gradient(0)), self.dir / "x.tg")
        self.assertEqual((found["elements"], found["ratio"], found["bits_per_value"]), (0, None, None))

    def test_names_that_need_escapes(self):
        for stem in ("quote\"back\\slash", "tab\tline\nfeed", "\u00fcml\u00e4ut \U0001f600", "a\x7f\x1b[31m"):
            source = self.save(f"{stem}.npy", gradient(3))
            self.works("encode", "--recipe", "dense", source, self.dir / "x.tg")
            self.assertEqual(self.json("inspect", self.dir / "x.tg")["tensor_list"][0]["name"], stem)
            self.assertNotIn("\x1b", self.works("inspect", self.dir / "x.tg"))
        path = os.path.join(os.fsencode(self.dir), b"latin\xe9.npy")
        shutil.copyfile(self.save("x.npy", gradient(3)), path)
        self.works("encode", "--recipe", "dense", os.fsdecode(path), self.dir / "x.tg")
        self.assertEqual(self.json("inspect", self.dir / "x.tg")["tensor_list"][0]["name"], "latin\ufffd")

    def test_recipes(self):
        found = self.json("recipes")
        stages = ("feedback", "select", "quantize", "pack (indices)", "pack (symbols)")
        names = {part["name"] for part in found["parts"]}
        self.assertTrue({"none", "ef", "all", "topk", "threshold", "randomk", "randomblock", "fp32", "fp16", "bf16",
                         "bitmap", "gaps", "bits"} <= names)
        self.assertIn("dense", {preset["name"] for preset in found["presets"]})
        for row in found["parts"] + found["presets"]:
            self.assertTrue(row["summary"])
            self.assertIn(row["stage"], stages if "id" in row else ("preset",))
            for parameter in row["parameters"]:
                self.assertEqual(set(parameter), {"name", "summary", "range", "default", "main"})
        for preset in found["presets"]:
            self.assertTrue(preset["expansion"])
        text = self.works("recipes")
        for name in names:
            self.assertIn(name, text)

    def test_canonical_text(self):
        self.assertEqual(self.works("recipes", "fp16+topk@ratio=0.010+ef"), "ef+topk@0.01+fp16\n"
                         if self.works("recipes", "topk") != "topk+fp32\n" else "ef+topk+fp16\n")
        found = self.json("recipes", "ef")
        self.assertEqual(found, {"recipe": "ef", "canonical": "ef+fp32"})
        for again in ("fp32", "fp16", "bf16"):
            self.assertEqual(self.works("recipes", f"ef@again={again}+topk@0.1"), f"ef@again={again}+topk@0.1+fp32\n")
            self.assertEqual(self.works("recipes", f"momentum@again={again}+topk@0.1"), f"momentum@0.9,again={again}+topk@0.1+fp32\n")
        for recipe in RECIPES:
            canonical = self.works("recipes", recipe).strip()
            self.assertEqual(self.works("recipes", canonical).strip(), canonical)

    def test_bench(self):
        keys = {"recipe", "n", "threads", "encode_gbps", "decode_gbps", "sum_gbps", "memcpy_gbps", "memcpy_threads_gbps",
                "encode_vs_memcpy",
                "decode_vs_memcpy", "sum_vs_memcpy", "bits_per_value", "ratio", "paper_ratio", "nmse", "simd", "frame_bytes", "input", "seconds", "dtype"}
        short = ("--seconds", "0.02")
        for recipe in RECIPES + ["randomk@0.1,unbiased=yes+fp16", "randomblock@0.1,unbiased=yes"]:
            for dtype in ("fp32", "fp16", "bf16"):
                with self.subTest(recipe=recipe, dtype=dtype):
                    found = self.json("bench", "--recipe", recipe, "--n", 3000, "--dtype", dtype, "--threads", 2, *short)
                    self.assertTrue(keys <= set(found))
                    self.assertEqual((found["n"], found["threads"], found["dtype"]), (3000, 2, dtype))
                    self.assertGreater(min(found[k] for k in keys if k.endswith(("gbps", "memcpy"))), 0)
                    self.assertGreaterEqual(found["nmse"], 0)
        for n in (1, 2):
            self.assertEqual(self.json("bench", "--recipe", "dense", "--n", n, *short)["nmse"], 0)
        source = self.save("in.npy", gradient(500, np.float16).reshape(5, 100))
        found = self.json("bench", "--recipe", "ef+topk@0.1", "--input", source, *short)
        self.assertEqual((found["n"], found["dtype"], found["input"]), (500, "fp16", str(source)))
        for dtype in ("fp32", "fp16", "bf16"):
            found = self.json("bench", "--recipe", "bf16+lossless", "--input", source, "--dtype", dtype, *short)
            self.assertEqual((found["n"], found["dtype"], found["nmse"] == 0), (500, dtype, dtype == "bf16"))
        for n, shift in ((1, 1), (1, 499), (499, 1), (100, 100), (120, 7)):
            found = self.json("bench", "--recipe", "ef+fp16", "--input", source, "--n", n, "--shift", shift, *short)
            self.assertEqual((found["n"], found["last_entries"]), (n, n))
        found = self.json("bench", "--recipe", "topk@0.1", "--input", self.save("z.npy", np.zeros(9, np.float32)), *short)
        self.assertIsNone(found["nmse"])
        special = np.array([np.nan, np.inf, 1, 1e30, 1e-45, -70000, 0, -2], np.float32)
        for policy in ("zero", "pass"):
            for recipe in ("dense", "fp16", "bf16", "ef+topk@0.5+fp16", "ef+fp16", "topk@0.5"):
                self.json("bench", "--recipe", recipe, "--nonfinite", policy, "--input", self.save("s.npy", special), *short)
        self.assertIn("memcpy", self.works("bench", "--recipe", "fp16", "--n", 1000, *short))

    def test_bench_of_many_tensors(self):
        short = ("--seconds", "0.02")
        keys = {"encode_vs_one_tensor", "decode_vs_one_tensor", "sum_vs_one_tensor"}
        for recipe in ("fp16", "adacomp", "ef+topk@0.01", "ef+fp4+rans"):
            found = self.json("bench", "--recipe", recipe, "--shapes", "30x100", "--threads", 2, *short)
            self.assertEqual((found["tensors"], found["n"], found["shapes"]), (30, 3000, "30x100"))
            self.assertGreater(min(found[key] for key in keys), 0)
        self.assertFalse(keys & set(self.json("bench", "--recipe", "fp16", "--n", 100, *short)))
        shapes = self.dir / "shapes.txt"
        shapes.write_text("# two tensors\nconv1  4x3x2x2 # of images\r\n\nfc 10\n")
        found = self.json("bench", "--recipe", "fp16", "--shapes", shapes, "--dtype", "bf16", *short)
        self.assertEqual((found["tensors"], found["n"], found["dtype"]), (2, 58, "bf16"))
        self.assertIn("one tensor = 1", self.works("bench", "--recipe", "fp16", "--shapes", shapes, *short))
        for text in ("conv1", "conv1 0", "conv1 4x", "conv1 x4", "conv1 -3", "conv1 4 x 3", "c 1x1x1x1x1x1x1x1x1", "", "# none",
                     f"c {2 ** 41}", f"c {2 ** 40}\nd 1", "c 99999999999999999999999"):
            shapes.write_text(text)
            self.fails(1, "bench", "--recipe", "fp16", "--shapes", shapes, *short)
        for misuse in (["--shapes", "9x9", "--n", "5"], ["--shapes", "9x9", "--input", shapes], ["--shapes", "1000001x1"]):
            self.fails(2, "bench", "--recipe", "fp16", *misuse, *short)
        self.fails(1, "bench", "--recipe", "fp16", "--shapes", "missing.txt", *short)

    def test_demo(self):
        found = self.json("demo", "--steps", 3, "--workers", 3, "--recipes", "dense;ef+topk@0.05", "--recipe", "randomblock@0.1")
        self.assertEqual([r["recipe"] for r in found["results"]], ["dense", "ef+topk@0.05", "randomblock@0.1"])
        self.assertIs(found["replicas_identical"], True)
        for result in found["results"]:
            self.assertGreater(result["wire_bytes_per_step"], 0)
            self.assertIs(result["replicas_identical"], True)
        self.assertLess(found["results"][0]["step_nmse"], 1e-12)
        self.assertGreater(found["results"][1]["ratio"], 2)
        self.assertIn("replicas", self.works("demo", "--steps", 1, "--workers", 1, "--recipe", "dense"))

    def test_help_and_version(self):
        self.assertRegex(self.works("--version"), r"^tersegrad \d+\.\d+\.\d+\n$")
        commands = ("recipes", "encode", "decode", "inspect", "bench", "demo")
        text = self.works("--help")
        for command in commands:
            self.assertIn(f"\n  {command} ", text)
            for flag in ("--help", "-h"):
                about = self.works(command, flag)
                self.assertTrue(about.startswith(f"Usage: tersegrad {command} "))
                self.assertIn("--json", about)
                self.assertIn(f"\n  tersegrad {command}", about)
            self.assertLessEqual(max(map(len, about.splitlines())), 120)


if __name__ == "__main__":
    unittest.main()
