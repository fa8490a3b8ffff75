"""How the program is told what to do: names it does not know, exit statuses, configuration files, help and completion."""
import csv
import json
import os
import pty
import re
import shutil
import subprocess
import unittest

from case import PROGRAM, Case, gradient, run

TRAIN = ["train", "--model", "mlp", "--data", "glyphs", "--workers", "2", "--batch", "8", "--steps", "3", "--recipe", "dense"]
COMPARE = ["compare", "--model", "mlp", "--data", "glyphs", "--workers", "2", "--batch", "8", "--steps", "3"]


class Misuse(Case):
    """A name that does not exist is misuse, and the nearest one is told."""

    def test_nearest_names(self):
        for words, hint in ((["trian"], "did you mean 'train'?"),
                            (["train", "--recipe", "densse"], "did you mean 'dense'?"),
                            (["recipes", "ef+topkk@0.1"], "did you mean 'topk'?"),
                            (["compare", "--recipes", "dense;powersdg@4"], "did you mean 'powersgd'?"),
                            (["train", "--recipe", "dense", "--worker", "3"], "did you mean --workers?"),
                            (["train", "--recipe", "dense", "-workers", "3"], "did you mean --workers?"),
                            (["train", "--recipe", "dense", "--model", "lenett"], "did you mean 'lenet'?"),
                            (["train", "--recipe", "dense", "--data", "fahsion"], "did you mean 'fashion'?"),
                            (["train", "--recipe", "dense", "--exchange", "alreduce"], "did you mean 'allreduce'?"),
                            (["train", "--recipe", "dense", "--optimizer", "adma"], "did you mean 'adam'?"),
                            (["help", "tarin"], "did you mean 'train'?"),
                            (["help", "exit-code"], "did you mean 'exit-codes'?")):
            self.fails(2, *words, says=hint)

    def test_nothing_near(self):
        for words in (["xyzzy"], ["train", "--recipe", "xyzzy"], ["train", "--recipe", "dense", "--model", "vgg"],
                      ["train", "--recipe", "dense", "--data", "imagenet"], ["help", "xyzzy"]):
            self.assertNotIn("did you mean", self.fails(2, *words).stderr)

    def test_settings_that_can_never_work(self):
        self.fails(2, *TRAIN, "--model", "lenet", says="given twice")
        self.fails(2, "train", "--recipe", "dense", "--model", "charlstm", "--data", "glyphs", says="learns from text")
        self.fails(2, *TRAIN[:-1], "ef-topk@0.1", "--exchange", "allreduce", says="allreduce")
        self.fails(2, *COMPARE, "--recipes", "ef-topk@0.1", "--exchange", "allreduce", says="allreduce", prints=None)
        self.fails(2, "train", "--recipe", "dense", "--data", "glyphs", "--batch", 60000, says="training samples")
        for data in ("mnist", "mnist:", "fashion:", "glyphs:x", "", ":", "text"):
            self.fails(2, "train", "--recipe", "dense", "--data", data)

    def test_what_is_missing_is_a_failed_run(self):
        self.fails(1, "train", "--recipe", "dense", "--data", f"mnist:{self.dir}")
        self.fails(1, "train", "--recipe", "dense", "--config", self.dir / "nosuch", says="nosuch")

    def test_links(self):
        for link in ("", "100", "100mb", "mbit", "-1mbit", "100mbit,", "100mbit,1", "100mbit,1ms,2ms", "infmbit", "0.1kbit",
                     "100mbit,11s", " 100mbit", "100mbit 1ms", "nanmbit", "mpii"):
            self.fails(2, *TRAIN, "--link", link, says="--link takes")


class Config(Case):
    def config(self, text):
        path = self.dir / "run.conf"
        path.write_text(text, encoding="utf-8")
        return path

    def test_every_way_to_write_a_line(self):
        path = self.config("# a comment\n\n  --model mlp   # another\r\ndata=glyphs\nworkers = 3\n\tbatch 8\nsteps '4'\n"
                           "nesterov\nrule \"dense1*=fp16\"\nrule dense2*=bf16\nrecipe dense\nseed 7")
        found = self.json("train", "--config", path)
        self.assertEqual((found["model"], found["data"], found["workers"], found["batch"], found["steps"], found["seed"]),
                         ("mlp", "glyphs", 3, 8, 4, 7))
        flags = ["--model", "mlp", "--data", "glyphs", "--workers", 3, "--batch", 8, "--steps", 4, "--nesterov", "--rule",
                 "dense1*=fp16", "--rule", "dense2*=bf16", "--recipe", "dense", "--seed", 7]
        self.assertEqual(self.json("train", *flags)["weights_hash"], found["weights_hash"])

    def test_the_command_line_wins(self):
        path = self.config("model mlp\ndata glyphs\nworkers 3\nbatch 8\nepochs 1\nrecipes fp16;bf16\n")
        def compare(*flags):
            return json.loads(run("compare", *flags, "--json").stdout)

        found = compare("--config", path, "--workers", 2, "--steps", 2, "--recipe", "dense")
        self.assertEqual((found["workers"], found["steps"], [r["recipe"] for r in found["results"]]), (2, 2, ["dense"]))
        self.assertEqual(compare("--workers=2", "--steps=2", "--config", path)["results"][1]["recipe"], "bf16")

    def test_errors_name_file_and_line(self):
        for text, line, says in (("model mlp\nworkers many\n", 2, "--workers takes a whole number"),
                                 ("\n\nworker 3\n", 3, "did you mean --workers?"),
                                 ("steps 3\nsteps 4\n", 2, "given twice"), ("nesterov yes\n", 1, "takes no value"),
                                 ("steps\n", 1, "needs a value"), ("config other\n", 1, "cannot name another"),
                                 ("model vgg\n", 1, "--model takes")):
            path = self.config(text)
            self.fails(2, "train", "--recipe", "dense", "--config", path, says=f"run.conf:{line}: ")
            self.fails(2, "train", "--recipe", "dense", "--config", path, says=says)
        self.fails(2, "train", "--config", self.config("recipe dense\0x"), says="zero byte")
        self.fails(2, "train", "--recipe", "dense", "--config", self.config("steps 3\n"), "--epochs", 0)


class Csv(Case):
    """--csv prints the rows of --json."""

    def rows(self, *arguments):
        done = run(*arguments, "--csv")
        self.assertEqual(done.returncode, 0, done.stderr)
        return list(csv.DictReader(done.stdout.splitlines()))

    def same(self, row, expected, *but):
        """Every scalar of the JSON object is in the row, except for times."""
        for key, value in expected.items():
            if isinstance(value, (list, dict)) or "seconds" in key or "gbps" in key or key in but:
                continue
            text = {None: "", True: "true", False: "false"}.get(value, value) if not isinstance(value, (int, float)) or \
                isinstance(value, bool) else value
            self.assertEqual(row[key] if isinstance(text, str) else float(row[key]), text, key)

    def test_recipes(self):
        rows, listed = self.rows("recipes"), self.json("recipes")
        self.assertEqual({row["name"] for row in rows}, {part["name"] for part in listed["parts"] + listed["presets"]})
        self.assertEqual(sum(row["parameter"] != "" for row in rows),
                         sum(len(part["parameters"]) for part in listed["parts"] + listed["presets"]))
        self.assertEqual(self.rows("recipes", "ef-topk@0.1,scope=model"),
                         [{"recipe": "ef-topk@0.1,scope=model",
                           "canonical": self.json("recipes", "ef-topk@0.1,scope=model")["canonical"]}])

    def test_training(self):
        self.same(self.rows(*TRAIN)[0], self.json(*TRAIN))
        found = json.loads(run(*COMPARE, "--recipes", "ef+topk@0.1,scope=model;dense", "--json").stdout)["results"]
        for row, expected in zip(self.rows(*COMPARE, "--recipes", "ef+topk@0.1,scope=model;dense"), found, strict=True):
            self.same(row, expected)
        flags = ["similarity", *COMPARE[1:]]
        rows, found = self.rows(*flags), self.json(*flags)
        for row, expected in zip(rows, found["tensors"] + [found["whole"]], strict=True):
            self.same(row, expected)

    def test_a_recipe_that_failed_has_a_row(self):
        done = run(*COMPARE, "--recipes", "dense;ef-topk@0.1", "--exchange", "allreduce", "--csv")
        rows = list(csv.DictReader(done.stdout.splitlines()))
        self.assertEqual([row["recipe"] for row in rows], ["dense", "ef-topk@0.1"])
        self.assertEqual((rows[0]["failed"], rows[1]["test_accuracy"]), ("", ""))
        self.assertIn("allreduce", rows[1]["failed"])

    def test_the_rest(self):
        flags = ["quality", "--n", 2000, "--recipes", "fp16;sign"]
        for row, expected in zip(self.rows(*flags), self.json(*flags)["rows"], strict=True):
            self.same(row, expected)
        flags = ["bench", "--recipe", "fp16", "--n", 1000, "--seconds", "0.01"]
        self.same(self.rows(*flags)[0], self.json(*flags), "encode_vs_memcpy", "decode_vs_memcpy",
                  "sum_vs_memcpy", "rounds", "last_step")
        flags = ["demo", "--steps", 2, "--recipes", "dense;fp16"]
        for row, expected in zip(self.rows(*flags), self.json(*flags)["results"], strict=True):
            self.same(row, expected)
        source, frame = self.save("a,\"b.npy", gradient(12).reshape(3, 4)), self.dir / "x.tg"
        self.works("encode", "--recipe", "fp16", source, frame)
        self.assertEqual(self.rows("inspect", frame), [{"name": "a,\"b", "shape": "3x4", "dtype": "fp32", "kind": "other",
                                                        "recipe": "fp16"}])

    def test_one_of_the_two(self):
        self.fails(2, "recipes", "--json", "--csv", says="give one")
        self.fails(2, "encode", "--csv", says="no flag")


class Terminal(Case):
    """Colours and bars are for terminals."""

    def on_terminal(self, *arguments, **environment):
        """What the program prints where standard output and error are a terminal."""
        theirs, ours = pty.openpty()
        base = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], stdout=ours, stderr=ours,
                                   env={**base, "TERM": "xterm", **environment})
        os.close(ours)
        shown = b""
        while True:
            try:
                piece = os.read(theirs, 4096)
            except OSError: # the other end is closed
                break
            if not piece:
                break
            shown += piece
        os.close(theirs)
        process.wait()
        return shown.decode()

    def test_colours(self):
        flags = ["quality", "--n", 1000, "--recipe", "fp16"]
        self.assertIn("\033[1mdistribution\033[0m", self.on_terminal(*flags))
        self.assertIn("\033[1;31mtersegrad:\033[0m there is no command", self.on_terminal("xyzzy"))
        for quiet in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            self.assertNotIn("\033[1", self.on_terminal(*flags, **quiet))
        self.assertIn("\033[1", self.on_terminal("xyzzy", NO_COLOR=""))
        self.assertNotIn("\033", run("quality", "--n", 1000, "--recipe", "fp16").stdout + run("xyzzy").stderr)

    def test_time_left(self):
        shown = self.on_terminal(*TRAIN[:-4], "--steps", 400, "--recipe", "dense")
        self.assertRegex(shown, r"\r\033\[K#*\.+ \d+ (s|min) left, step \d+/400  loss ")
        self.assertRegex(self.on_terminal("quality", "--n", 200000), r"(s|min) left")


class Help(Case):
    def commands(self):
        listed = self.works("--help").split("Commands:\n")[1].split("\n\n")[0]
        return re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE)

    def topics(self):
        return re.findall(r"^  ([a-z-]+) ", self.works("--help").split("TOPIC'):\n")[1].split("\n\n")[0], re.MULTILINE)

    def test_commands_and_topics(self):
        self.assertEqual(self.works("help"), self.works("--help"))
        self.assertEqual(self.works("help", "exit", "codes"), self.works("help", "exit-codes"))
        self.assertIn("train", self.commands())
        for name in self.commands():
            self.assertIn(self.works(name, "--help"), self.works("help", name))
        for name in self.topics():
            text = self.works("help", name)
            self.assertGreater(len(text), 200)
            self.assertLessEqual(max(map(len, text.splitlines())), 130)

    def test_manual_page(self):
        page = self.works("help", "man-page")
        for name in self.commands():
            self.assertTrue(f'.SS "tersegrad {name}"' in page, name)
        for flag in ("recipe", "config", "link", "csv", "json"):
            self.assertTrue(f"\\fB\\-\\-{flag}\\fR" in page, flag)
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-"], input=page, capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "")

    def complete(self, *words):
        """What bash would offer for the last of the words."""
        script = (f"source <({PROGRAM} completion bash); COMP_WORDS=({' '.join(repr(w) for w in ('tersegrad',) + words)}); "
                  f"COMP_CWORD={len(words)}; _tersegrad; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()

    def test_bash_completion(self):
        self.assertEqual(self.complete("tra"), ["train"])
        self.assertEqual(set(self.commands()) - set(self.complete("")), set())
        self.assertEqual(self.complete("train", "--mo"), ["--model", "--momentum"])
        self.assertEqual(self.complete("train", "--model", "res"), ["resnet8", "resnet20"])
        self.assertEqual(self.complete("train", "--data", "m"), ["mnist:"])
        self.assertIn("powersgd", self.complete("compare", "--recipe", "p"))
        self.assertEqual(self.complete("help", "exit"), ["exit-codes"])
        self.assertEqual(self.complete("completion", "z"), ["zsh"])
        for name in self.commands():
            flags = set(re.findall(r"^  (--[a-z-]+)", self.works(name, "--help"), re.MULTILINE))
            self.assertEqual(set(self.complete(name, "-")), flags, name)

    def test_zsh_completion(self):
        script = self.works("completion", "zsh")
        self.assertTrue(script.startswith("#compdef tersegrad\n"))
        for name in self.commands():
            self.assertIn(f"\n        {name})\n", script)
        if shutil.which("zsh"):
            subprocess.run(["zsh", "-n", "-"], input=script, text=True, check=True)
        self.fails(2, "completion", "fish", says="bash and zsh")


if __name__ == "__main__":
    unittest.main()
