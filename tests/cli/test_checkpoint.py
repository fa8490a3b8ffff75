"""Checkpoints of `tersegrad train`: what --resume refuses, what --checkpoint may name, and what a killed run leaves behind.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/cli
"""

import fcntl
import os
import pathlib
import random
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = str(pathlib.Path(os.environ.get("TERSEGRAD", "build/release/tersegrad")).resolve())
LETTERS = bytes(range(97, 117)) * 200


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.checkpoint, self.log = self.path / "run.ck", self.path / "run.jsonl"
        self.files = ["--checkpoint", self.checkpoint]
        data = tempfile.NamedTemporaryFile()  # a text, because it is read faster than images are drawn
        self.addCleanup(data.close)
        data.write(LETTERS)
        data.flush()
        self.text = pathlib.Path(data.name)
        self.endless = ["train", "--model", "charlstm", "--data", f"text:{data.name}", "--batch", "2", "--recipe", "ef+topk@0.05", "--workers",
                        "2"]
        self.small = [*self.endless, "--steps", "2"]

    def works(self, *arguments):
        done = run(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refuse(self, words, *arguments):
        """Exit status 1, one sentence with these words, and every file as it was."""
        def content():
            return {p.name: p.read_bytes() for p in self.path.iterdir() if p.is_file() and not p.is_symlink()}
        before = content()
        done = run(*arguments)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, words)
        self.assertEqual(content(), before)


class Data(Case):
    def test_other_data_is_refused(self):
        line = [*self.small, *self.files, "--resume"]
        self.works(*line)
        for changed, which in ((b"?" + LETTERS[1:], "training"), (LETTERS[:-1] + b"?", "test")):
            self.text.write_bytes(changed)
            self.refuse(rf"cannot go on from {self.checkpoint}: it was saved by a run with {which}-data hash [0-9a-f]{{16}}, and this one "
                        r"has hash [0-9a-f]{16}; give the same data to go on with it$", *line)
        self.text.write_bytes(LETTERS)
        self.works(*line)


class Content(Case):
    def setUp(self):
        super().setUp()
        self.line = [*self.small, *self.files, "--log", self.log]
        self.works(*self.line)
        self.good, self.logged = self.checkpoint.read_bytes(), self.log.read_bytes()

    def test_every_byte_is_under_the_checksum(self):
        generator = random.Random(5)
        header, end = range(24), range(len(self.good) - 24, len(self.good))
        for at in (*header, *end, *generator.sample(range(24, len(self.good) - 24), 20)):
            with self.subTest(at=at):
                bad = bytearray(self.good)
                bad[at] ^= 1 << generator.randrange(8)
                self.checkpoint.write_bytes(bad)
                self.refuse("cannot go on from .*: it is (not a checkpoint|a checkpoint of version|damaged)", *self.line, "--resume")

    def test_the_length_of_the_log_is_under_the_checksum(self):
        for length in (0, 10**9, 2**64 - 1):
            self.checkpoint.write_bytes(self.good[:8] + length.to_bytes(8, "little") + self.good[16:])
            self.refuse("it is damaged", *self.line, "--resume")

    def test_cut_and_longer_files_are_refused(self):
        for bad in (b"", self.good[:4], self.good[:16], self.good[:23], self.good[:-1], self.good + b"x"):
            self.checkpoint.write_bytes(bad)
            self.refuse("cannot go on from .*: it is (not a checkpoint|damaged)", *self.line, "--resume")

    def test_another_version_is_refused(self):
        self.checkpoint.write_bytes(self.good[:4] + b"\1\0\0\0" + self.good[8:])
        self.refuse("it is a checkpoint of version 1, and this program has version 2", *self.line, "--resume")

    def test_a_log_that_is_too_short_is_refused(self):
        self.log.write_bytes(self.logged[:-1])
        n = len(self.logged)
        self.refuse(f"cannot go on with {self.log}: it has {n - 1} bytes, and had {n} when {self.checkpoint} was saved", *self.line, "--resume")
        self.log.unlink()
        self.refuse(f"cannot go on with {self.log}: No such file", *self.line, "--resume")
        self.log.write_bytes(self.logged + b"more")
        self.works(*self.line, "--resume")
        self.assertEqual(self.log.read_bytes(), self.logged)

    def test_a_checkpoint_without_a_log_cuts_none(self):
        self.checkpoint.unlink()
        self.works(*self.small, *self.files)
        self.refuse(f"cannot write {self.log}: it exists already, and {self.checkpoint} was saved by a run without a log", *self.line,
                    "--resume")
        self.log.unlink()
        self.works(*self.line, "--resume")
        self.assertIn('"recipe"', self.log.read_text())


class Place(Case):
    def test_only_a_regular_file_or_nothing(self):
        def pipe(path):
            os.mkfifo(path)
        def folder(path):
            path.mkdir()
        def loop(path):
            path.symlink_to(path.name + ".link")
            (self.path / (path.name + ".link")).symlink_to(path.name)
        def listening(path):
            with socket.socket(socket.AF_UNIX) as s:
                s.bind(str(path))
        def device(path):
            path.symlink_to("/dev/null")
        for i, (make, words) in enumerate(((pipe, "it is a FIFO"), (folder, "it is a directory"), (loop, "symbolic links"),
                                           (listening, "it is a socket"), (device, "it is a device"))):
            path = self.path / f"{i}.ck"
            make(path)
            kind = path.lstat()
            for flags in ([], ["--resume"]):
                with self.subTest(place=make.__name__, flags=flags):
                    self.refuse(f"cannot write {path}: .*{words}", *self.small, "--checkpoint", path, *flags)
                    self.assertEqual((path.lstat().st_ino, path.lstat().st_mode), (kind.st_ino, kind.st_mode))
        self.refuse("cannot write .*: No such file", *self.endless, "--steps", 10**6, "--checkpoint", self.path / "no" / "run.ck")

    def test_links_are_followed_and_stay(self):
        """Also one whose target is not there yet: the target is created."""
        (self.path / "elsewhere").mkdir()
        target = self.path / "elsewhere" / "real.ck"
        self.checkpoint.symlink_to("elsewhere/real.ck")
        for _ in range(2):
            self.works(*self.small, *self.files, "--resume")
            self.assertTrue(self.checkpoint.is_symlink() and target.is_file())
        self.assertEqual(sorted(p.name for p in self.path.rglob("*")), ["elsewhere", "real.ck", "run.ck"])

    def test_other_commands_refuse_a_loop_of_links(self):
        page = self.path / "page.html"
        page.symlink_to("page.html")
        done = run("compare", "--model", "mlp", "--data", "glyphs", "--batch", 8, "--workers", 2, "--steps", 2, "--recipes", "dense", "--page",
                   page)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"cannot write {page}: Too many levels of symbolic links", done.stderr)
        self.assertTrue(page.is_symlink())


class Leftovers(Case):
    def temporary(self, name="run.ck"):
        return self.path / f".{name}.tersegrad-aB3dE6"

    def test_what_a_killed_run_leaves_is_removed_at_the_next_start(self):
        line = [PROGRAM, *self.endless, "--steps", "5000", *map(str, self.files), "--checkpoint-every", "1", "--resume"]
        def hidden():
            return [p for p in self.path.iterdir() if p.name.startswith(".")]
        for _ in range(40):
            process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            limit = time.monotonic() + 20
            while not hidden() and process.poll() is None and time.monotonic() < limit:
                pass
            process.send_signal(signal.SIGKILL)
            process.wait()
            if hidden():
                break
        self.assertTrue(hidden(), "no kill hit a save")
        self.checkpoint.unlink(missing_ok=True)
        self.works(*self.small, *self.files)
        self.assertEqual([p.name for p in self.path.iterdir()], ["run.ck"])

    def test_only_stale_temporary_files_are_removed(self):
        stale, locked = self.temporary(), self.path / ".run.ck.tersegrad-aB3dE7"
        others = [self.temporary("other.ck"), self.temporary("run.ck2"), self.path / ".run.ck.backup", self.path / ".run.ck.tersegrad-aB3dE",
                  self.path / ".run.ck.tersegrad-aB3dE6x", self.path / "run.ck.tersegrad-aB3dE6", self.path / ".run.ck.tersegrad-aB3d-6"]
        for path in (stale, locked, *others):
            path.write_bytes(b"some bytes")
        (self.path / ".run.ck.tersegrad-folder").mkdir()
        os.mkfifo(self.path / ".run.ck.tersegrad-aFIFO1")
        (self.path / ".run.ck.tersegrad-alinkX").symlink_to(".run.ck.backup")
        before = {p.name for p in self.path.iterdir()}
        with open(locked, "rb") as file:  # as a running process has it
            fcntl.flock(file, fcntl.LOCK_EX)
            self.works(*self.small, *self.files)
        self.assertEqual({p.name for p in self.path.iterdir()}, before - {stale.name} | {"run.ck"})
        self.works(*self.small, *self.files)
        self.assertFalse(locked.exists())

    def test_runs_that_share_a_folder_do_not_disturb_each_other(self):
        """Starts with the same checkpoint, over and over, while another run saves there at every step."""
        line = [PROGRAM, *self.endless, "--steps", "100", *map(str, self.files), "--checkpoint-every", "1"]
        writer = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        starts = 0
        while writer.poll() is None:
            run(*self.small, *self.files, "--log", "/nowhere/at/all")  # cleans up, and ends
            starts += 1
        self.assertEqual(writer.returncode, 0)
        self.assertGreater(starts, 1)


if __name__ == "__main__":
    unittest.main()
