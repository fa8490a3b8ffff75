"""The link over MPI, and `tersegrad train` as processes: the same bits as threads, ranks that are lost or disagree.

    MPI=openmpi BUILD=build/openmpi python3 -m unittest discover -s tests/mpi     KILLS=20 or STOPS=100 for more of them

MPI names the launcher: mpirun.openmpi, mpirun.mpich, or any, which is what mpirun stands for and must be Open MPI; everything runs on this machine.
"""

import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

MPI = os.environ.get("MPI", "openmpi")
BUILD = pathlib.Path(os.environ.get("BUILD", f"build/{MPI}")).resolve()
PROGRAM, LINK, CHANNELS = str(BUILD / "tersegrad"), str(BUILD / "tests/mpi_link"), str(BUILD / "tests/mpi_channels")
CHAOS = str(BUILD / "tests/mpi_chaos")
KILLS = int(os.environ.get("KILLS", "3"))
STOPS = int(os.environ.get("STOPS", "12"))
QUICK = ["train", "--data", "glyphs"]
SMALL = ["--model", "mlp", "--batch", "8"]
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OPENBLAS_NUM_THREADS="1")


def launcher():
    # All ranks run on this machine and share its CPUs.
    if MPI == "mpich":
        return ["mpirun.mpich"]
    return ["mpirun" if MPI == "any" else "mpirun.openmpi", "--oversubscribe", "--bind-to", "none"]


def mpirun(n, *command, timeout=120):
    return subprocess.run([*launcher(), "-n", str(n), *map(str, command)], capture_output=True, text=True, timeout=timeout,
                          env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def mpirun_unlike(*commands, timeout=120):
    """Each command as one rank."""
    line = launcher()
    for i, command in enumerate(commands):
        line += ([":"] if i > 0 else []) + ["-n", "1", *map(str, command)]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT, stdin=subprocess.DEVNULL)


def said(done):
    """The lines that the program itself printed on stderr; launchers print more."""
    return [line for line in done.stderr.splitlines() if line.startswith("tersegrad: ")]


def pids_of(parent):
    """Processes of the program below a launcher, by rank."""
    found, ahead = {}, [parent]
    while ahead:
        pid = ahead.pop()
        try:
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                ahead += map(int, (task / "children").read_text().split())
            with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                values = dict(entry.partition("=")[::2] for entry in file.read().split("\0"))
            rank = values.get("OMPI_COMM_WORLD_RANK", values.get("PMI_RANK"))
            if rank is not None and os.readlink(f"/proc/{pid}/exe") == PROGRAM:
                found[int(rank)] = pid
        except OSError:
            pass
    return found


class Link(unittest.TestCase):
    def play(self, scene, *worlds):
        for n in worlds:
            with self.subTest(scene=scene, ranks=n):
                done = mpirun(n, LINK, scene)
                self.assertEqual(done.stdout.count(": well"), n, done.stdout + done.stderr)

    def test_any_length_arrives(self):
        self.play("lengths", 1, 2, 3)

    def test_exchanges_give_the_same_bits_as_in_lockstep(self):
        self.play("bits", 1, 2, 5, 8)

    def test_slices_are_summed_in_rank_order(self):
        self.play("slices", 1, 2, 5)

    def test_hosts_give_the_same_bits_as_in_lockstep(self):
        self.play("bits-of-hosts", 2, 4, 6, 12)

    def test_hosts_are_found(self):
        self.play("hosts", 6)

    def test_ranks_that_differ_are_told_apart(self):
        self.play("handshake", 1, 2, 3)

    def test_too_little_memory_is_an_error(self):
        self.play("memory", 1, 3)

    def test_wrong_lengths_and_garbage_are_refused(self):
        for scene in ("short", "long", "garbage"):
            self.play(scene, 3)

    def test_null_is_refused_by_every_function(self):
        done = mpirun(1, BUILD / "tests/test_null_mpi")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("tg_mpi_awaited__m", done.stdout + done.stderr)

    def test_a_rank_that_is_late_is_lost_and_reasons_reach_all(self):
        for scene in ("late", "silent", "silent-both", "abort"):
            self.play(scene, 3)


class Channels(unittest.TestCase):
    """Several operations at once, polled and with callbacks."""

    def play(self, scene, n, well, modes=("funneled", "polled", "listen")):
        for mode in modes:
            with self.subTest(scene=scene, ranks=n, mode=mode):
                done = mpirun(n, CHANNELS, scene, mode)
                self.assertEqual(done.stdout.count(": well"), well, done.stdout + done.stderr)
                self.assertNotIn("not so", done.stdout)

    def test_any_order_of_starts_is_right(self):
        for n in (1, 2, 3, 4):
            self.play("orders", n, n)

    def test_callbacks_begin_and_end_while_operations_are_under_way(self):
        self.play("switch", 3, 3, ("polled", "listen"))

    def test_a_reason_reaches_all_operations(self):
        self.play("abort", 3, 3)

    def test_a_rank_that_is_stopped_is_named(self):
        self.play("stopped", 4, 3, ("funneled", "listen"))

    def test_a_rank_that_responds_is_not_lost(self):
        self.play("responds", 3, 3, ("funneled", "listen"))

    @unittest.skipIf(MPI == "mpich", "its launcher kills the other ranks before they can say anything")
    def test_a_rank_that_is_killed_was_waited_for(self):
        for mode in ("funneled", "listen"):
            with self.subTest(mode=mode), tempfile.TemporaryDirectory() as folder:
                done = mpirun(3, CHANNELS, "killed", mode, folder)
                for rank in (0, 1):
                    self.assertEqual((pathlib.Path(folder) / f"rank{rank}").read_text(), f"rank {rank}: waited for rank 2: well\n",
                                     done.stdout + done.stderr)


class Chaos(unittest.TestCase):
    """Faults of all kinds, mixed at random moments from fixed seeds, with groups in flight; each run goes on from saved states."""

    def run_from(self, seed, folder, step, faults):
        done = mpirun(3, CHAOS, seed, folder, step, faults, timeout=60)
        self.assertNotIn("not so", done.stdout, done.stdout + done.stderr)
        return done.stdout

    def test_ends_in_the_bits_of_a_calm_run(self):
        reasons, starts = [], 0
        for seed in range(3):
            with self.subTest(seed=seed), tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as calm_folder:
                calm = sorted(line for line in self.run_from(seed, calm_folder, 0, 0).splitlines() if "hash" in line)
                self.assertEqual(len(calm), 3)
                step = -1
                while True:
                    printed = self.run_from(seed, folder, max(step, 0), 1)
                    starts += 1
                    found = sorted(line for line in printed.splitlines() if "hash" in line)
                    if len(found) == 3:
                        break
                    reasons += re.findall(r"link: (.*)", printed)
                    saved = [[int(file.suffix[1:]) for file in pathlib.Path(folder).glob(f"{rank}.*[0-9]")] for rank in range(3)]
                    self.assertGreater(min(map(max, saved)), step, printed)
                    step = min(map(max, saved))
                self.assertEqual(found, calm)
        self.assertGreater(starts, 5)
        self.assertTrue(any("is lost" in reason or "no data" in reason for reason in reasons), reasons)


class Train(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def result(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        self.assertEqual(len(lines), 1, done.stdout)
        return json.loads(lines[0])

    def threads(self, n, *arguments):
        return self.result(subprocess.run([PROGRAM, *QUICK, "--link", "threads", "--workers", str(n), "--json", *map(str, arguments)],
                                          capture_output=True, text=True, timeout=120, env=ENVIRONMENT))

    def processes(self, n, *arguments):
        return self.result(mpirun(n, PROGRAM, *QUICK, "--json", "--timeout", 20, *arguments))

    def test_processes_end_in_the_bits_of_threads(self):
        # With several groups the bytes of announcements depend on which are ready at the same time.
        one_group = ("--group-size", 0)
        for n, recipe, groups in ((1, "adacomp", ()), (2, "dense", ()), (3, "ef+topk@0.01+fp16", ()), (4, "powersgd", ()),
                                  (6, "random-block@0.1", ()), (8, "ef+topk@0.05,coords=shared", one_group)):
            with self.subTest(ranks=n, recipe=recipe):
                flags = (*SMALL, "--recipe", recipe, "--steps", 12, "--test-every", 5, *groups)
                theirs, ours = self.threads(n, *flags), self.processes(n, *flags)
                for key in theirs:
                    if "seconds" not in key:
                        self.assertEqual(ours[key], theirs[key], key)

    def test_hosts_end_in_the_bits_of_threads(self):
        for n, size, recipe in ((4, 2, "dense"), (4, 2, "ef+topk@0.01+fp16"), (6, 3, "powersgd")):
            with self.subTest(ranks=n, size=size, recipe=recipe):
                flags = (*SMALL, "--recipe", recipe, "--steps", 8, "--hosts", size)
                theirs, ours = self.threads(n, *flags), self.processes(n, *flags)
                self.assertEqual(ours["host_size"], size)
                self.assertLess(ours["between_bytes_per_step"], ours["wire_bytes_per_step"])
                for key in theirs:
                    if "seconds" not in key:
                        self.assertEqual(ours[key], theirs[key], key)

    def test_workers_of_one_machine_are_flat(self):
        self.assertEqual(self.processes(2, *SMALL, "--recipe", "dense", "--steps", 2)["host_size"], 1)

    def test_groups_change_no_bits(self):
        for recipe, more in (("adacomp", ("--exchange", "shard")), ("ef+topk@0.05", ("--exchange", "gather")), ("dense", ())):
            with self.subTest(recipe=recipe):
                flags = (*SMALL, "--recipe", recipe, "--steps", 10, *more)
                alone = self.threads(3, *flags, "--group-size", 0)
                for size, groups in ((0, 1), (1, 6), (100000, None)):
                    log = self.path / "run.jsonl"
                    found = self.processes(3, *flags, "--group-size", size, "--log", log)
                    for key in ("weights_hash", "train_loss", "test_loss", "test_accuracy", "kinds"):
                        self.assertEqual(found[key], alone[key], (key, size))
                    self.assertTrue(found["groups"] == groups if groups else 1 < found["groups"] < 6, found["groups"])
                    log.unlink()

    def test_other_groups_are_detected_at_the_start(self):
        command = [PROGRAM, *QUICK, *SMALL, "--recipe", "adacomp", "--steps", 5, "--timeout", 20]
        done = mpirun_unlike([*command, "--group-size", 0], [*command, "--group-size", 1000])
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(said(done)), 1, done.stderr)
        self.assertRegex(said(done)[0], "rank 1 has (group-size '1000', but rank 0 has '0'|options)")

    def test_a_run_goes_on_in_other_groups(self):
        flags = (*SMALL, "--recipe", "adacomp", "--steps", 400)
        straight, checkpoint = self.threads(3, *flags)["weights_hash"], self.path / "run.ck"
        files = ("--checkpoint", checkpoint, "--checkpoint-every", 10, "--resume")
        started = subprocess.Popen([*launcher(), "-n", "3", PROGRAM, *QUICK, *map(str, flags + files), "--group-size", "1"], env=ENVIRONMENT,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        while not checkpoint.exists() and started.poll() is None:
            time.sleep(0.005)
        for pid in pids_of(started.pid).values():
            os.kill(pid, signal.SIGKILL)
        started.wait(timeout=60)
        self.assertEqual(self.processes(3, *flags, *files, "--group-size", 0)["weights_hash"], straight)

    def test_lgc_in_all_its_phases(self):
        small = "dense=3,learn=5,enough=1e9,e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4"
        for form in ("ring", "server"):
            flags = (*SMALL, "--recipe", f"ef+topk@0.01,coords=shared+autoencoder@{form},{small}", "--steps", 12)
            self.assertEqual(self.processes(3, *flags)["weights_hash"], self.threads(3, *flags)["weights_hash"])

    def test_threads_and_processes_go_on_from_each_other(self):
        """A run that is resumed by the other kind of workers, with the same number of them, gives the same bits."""
        flags = ("--recipe", "adacomp", "--model", "resnet8", "--steps", 8, "--batch", 2)
        straight = self.threads(3, *flags)["weights_hash"]
        files = ("--checkpoint", self.path / "run.ck", "--checkpoint-every", 3, "--log", self.path / "run.jsonl", "--resume")
        def interrupted(command):
            """Runs until the first checkpoint exists, then is killed."""
            started = subprocess.Popen(list(map(str, command)), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       stdin=subprocess.DEVNULL, start_new_session=True)
            limit = time.monotonic() + 60
            while not (self.path / "run.ck").exists() and started.poll() is None and time.monotonic() < limit:
                time.sleep(0.005)
            os.killpg(started.pid, signal.SIGKILL)
            for pid in pids_of(started.pid).values():
                os.kill(pid, signal.SIGKILL)
            started.wait(timeout=30)
            self.assertTrue((self.path / "run.ck").exists())
        for first_by_processes in (True, False):
            for file in self.path.iterdir():
                file.unlink()
            by_processes = [*launcher(), "-n", 3, PROGRAM, *QUICK, *flags, *files]
            by_threads = [PROGRAM, *QUICK, "--link", "threads", "--workers", 3, *flags, *files]
            interrupted(by_processes if first_by_processes else by_threads)
            end = self.threads(3, *flags, *files) if first_by_processes else self.processes(3, *flags, *files)
            self.assertEqual(end["weights_hash"], straight)
            steps = [json.loads(line)["step"] for line in (self.path / "run.jsonl").read_text().splitlines() if '"loss"' in line]
            self.assertEqual(steps, list(range(8)))

    def test_goes_on_with_another_number_of_ranks(self):
        flags = (*SMALL, "--recipe", "ef+topk@0.01", "--checkpoint", self.path / "run.ck", "--resume")
        self.processes(3, *flags, "--steps", 20)
        done = mpirun(2, PROGRAM, *QUICK, *flags, "--steps", 40)
        self.assertEqual(said(done), [f"tersegrad: rank 0: cannot go on from {self.path}/run.ck: it was saved by a run with steps 20, and "
                                      "this one has 40; give the same flags to go on with it"])
        (self.path / "run.ck").unlink()
        begun = [*launcher(), "-n", "3", PROGRAM, *QUICK, *map(str, flags), "--steps", "2000", "--checkpoint-every", "10"]
        started = subprocess.Popen(begun, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        while not (self.path / "run.ck").exists() and started.poll() is None:
            time.sleep(0.01)
        os.kill(pids_of(started.pid)[1], signal.SIGKILL)
        started.wait(timeout=60)
        for n in (2, 5):
            limited = ["timeout", "--signal=KILL", "60", *launcher(), "-n", str(n), PROGRAM, *QUICK, *map(str, flags), "--steps", "2000",
                       "--checkpoint-every", "10"]
            before = (self.path / "run.ck").stat().st_mtime_ns
            again = subprocess.Popen(limited, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                     text=True)
            while (self.path / "run.ck").stat().st_mtime_ns == before and again.poll() is None:
                time.sleep(0.01)
            self.assertIsNone(again.poll(), again.stdout.read() if again.poll() is not None else "")
            os.kill(pids_of(again.pid)[n - 1], signal.SIGKILL)
            again.communicate(timeout=60)

    def test_ranks_that_disagree_are_detected_at_the_start(self):
        base = [PROGRAM, *QUICK, "--batch", 8, "--steps", 5]
        mlp = ["--model", "mlp"]
        for ours, theirs, sentence in (
                (["--recipe", "adacomp", *mlp], ["--recipe", "dense", *mlp], "rank 1 has recipe 'dense', but rank 0 has 'adacomp'"),
                (["--recipe", "dense", *mlp], ["--recipe", "dense", *mlp, "--seed", 4], "rank 1 has seed '4', but rank 0 has '1'"),
                (["--recipe", "dense", *mlp], ["--recipe", "dense", *mlp, "--rate", 0.5], "rank 1 has rate '0.5', but rank 0 has '0.01"),
                (["--recipe", "dense", *mlp], ["--recipe", "dense", "--model", "resnet8"], "rank 1 has model 'resnet8', but rank 0 has 'mlp'")):
            done = mpirun_unlike(base + ours, base + theirs)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(len(said(done)), 1, done.stderr)
            self.assertIn(sentence, said(done)[0])

    def data_sets(self, name, last):
        """Small data sets in a folder of their own; `last` is the last byte of their test data."""
        folder = self.path / name
        folder.mkdir()
        def put(file, *parts):
            (folder / file).write_bytes(b"".join(parts))
        letters, n = bytes(range(97, 117)) * 200, 40
        for split in ("train", "t10k"):
            end = last if split == "t10k" else 0
            put(f"{split}-images-idx3-ubyte", bytes([0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, 28, 0, 0, 0, 28]), bytes(n * 784 - 1), bytes([end]))
            put(f"{split}-labels-idx1-ubyte", bytes([0, 0, 8, 1, 0, 0, 0, n]), bytes(n))
        put("data_batch_1.bin", bytes(n * 3073))
        put("test_batch.bin", bytes(n * 3073 - 1), bytes([last]))
        put("some.txt", letters, bytes([97 + last]))
        return {"mnist": f"mnist:{folder}", "fashion": f"fashion:{folder}", "cifar10": f"cifar10:{folder}", "text": f"text:{folder}/some.txt"}

    def test_ranks_with_other_data_are_detected_at_the_start(self):
        ours, theirs, copy = self.data_sets("ours", 1), self.data_sets("theirs", 2), self.data_sets("copy", 1)
        for kind, data in ours.items():
            with self.subTest(data=kind):
                line = [PROGRAM, "train", "--recipe", "dense", "--model", "charlstm" if kind == "text" else "mlp", "--batch", 4, "--steps", 2,
                        "--data"]
                done = mpirun_unlike(line + [data], line + [theirs[kind]])
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertEqual(len(said(done)), 1, done.stderr)
                self.assertRegex(said(done)[0], r"^tersegrad: rank 0: rank 1 has test-data hash '[0-9a-f]{16}', but rank 0 has '[0-9a-f]{16}'$")
        done = mpirun_unlike(line + [ours["text"]], line + [copy["text"]])  # another path, the same data
        self.assertEqual((done.returncode, said(done)), (0, []), done.stderr)
        text = self.path / "theirs/some.txt"
        text.write_bytes(b"?" + text.read_bytes()[1:])
        done = mpirun_unlike(line + [ours["text"]], line + [theirs["text"]])
        self.assertIn("rank 1 has training-data hash", said(done)[0])

    def test_what_goes_wrong_on_one_rank_ends_all(self):
        good = [PROGRAM, *QUICK, *SMALL, "--steps", 50, "--recipe", "adacomp"]
        bad = [PROGRAM, "train", "--data", "mnist:/nowhere", "--steps", 50, "--recipe", "adacomp"]
        done = mpirun_unlike(good, bad)
        self.assertNotEqual(done.returncode, 0)
        self.assertTrue(any("rank 1: there is no train-images" in line for line in said(done)), done.stderr)
        done = mpirun(2, *good, "--log", "/dev/full", "--checkpoint", self.path / "run.ck", "--resume")  # a disk that is full
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tersegrad: rank 0: cannot write /dev/full: No space left on device", said(done))
        done = mpirun(3, *good, "--rate", 1000)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(said(done)), 1, done.stderr)
        self.assertRegex(said(done)[0], r"^tersegrad: rank 0: .*NaN or Inf.* at step \d+: training has diverged; try a lower --rate, or --warmup$")
        done = mpirun(2, *good, "--workers", 3)
        self.assertEqual(said(done), ["tersegrad: rank 0: --workers is 3, but 2 processes were started; leave it out"])

    def test_a_process_that_never_calls_mpi(self):
        """MPI_Init waits for it without a timeout."""
        line = [*launcher(), "-n", "1", PROGRAM, *QUICK, *SMALL, "--recipe", "dense", "--steps", "5", "--timeout", "1"]
        done = subprocess.run([*line, ":", "-n", "1", "sleep", "100"], capture_output=True, text=True, timeout=90, env=ENVIRONMENT,
                              stdin=subprocess.DEVNULL)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(said(done)), 1, done.stderr)
        self.assertIn("MPI has not started on all processes within --timeout", said(done)[0])

    def start_long(self, *arguments):
        line = [*launcher(), "-n", "3", PROGRAM, *QUICK, *SMALL, *map(str, arguments)]
        return subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)

    def test_killed_at_random_and_resumed(self):
        generator = random.Random(3)
        flags = ("--recipe", "ef+topk@0.02+fp16", "--steps", 60 * KILLS, "--checkpoint-every", 5)
        straight = self.threads(3, *SMALL, *flags)["weights_hash"]
        checkpoint = self.path / "run.ck"
        files = ("--checkpoint", checkpoint, "--resume", "--log", self.path / "run.jsonl")
        kills = 0
        for _ in range(KILLS):
            was_saved = checkpoint.exists()
            started = self.start_long(*flags, *files)
            limit = time.monotonic() + generator.uniform(0.3, 1.5)
            while time.monotonic() < limit and started.poll() is None:
                time.sleep(0.01)
            ranks = pids_of(started.pid)
            if len(ranks) == 3 and started.poll() is None:
                victim = generator.randrange(3)
                os.kill(ranks[victim], signal.SIGKILL)
                _, errors = started.communicate(timeout=60)
                kills += 1
                if MPI == "openmpi":  # MPICH's launcher kills the others before they can say anything
                    for line in errors.splitlines():
                        if "while it waited for rank" in line:
                            if was_saved or not checkpoint.exists():
                                (self.assertRegex if was_saved else self.assertNotRegex)(
                                    line, f"; --resume goes on from {re.escape(str(checkpoint))}$")
            else:
                started.communicate(timeout=60)
        end = self.processes(3, *SMALL, *flags, *files)
        self.assertEqual(end["weights_hash"], straight)
        self.assertGreater(kills, KILLS // 2)

    def test_resume_is_offered_only_where_something_was_saved(self):
        checkpoint, log = self.path / "run.ck", self.path / "run.jsonl"
        files = ("--checkpoint", checkpoint, "--log", log, "--resume", "--checkpoint-every", 10**8)
        def end_by(number):
            """Starts three ranks, and sends rank 2 a signal once steps are logged."""
            log.unlink(missing_ok=True)
            started = self.start_long("--recipe", "adacomp", "--steps", 1000000, *files, "--timeout", 2)
            while started.poll() is None and not (log.exists() and log.read_text().count('"loss"') > 2):
                time.sleep(0.01)
            os.kill(pids_of(started.pid)[2], number)
            _, errors = started.communicate(timeout=60)
            return errors
        errors = end_by(signal.SIGSTOP)
        self.assertRegex(errors, r"rank \d is lost")
        self.assertNotIn("--resume", errors)
        errors = end_by(signal.SIGKILL)  # MPICH's launcher kills the others before they can say anything
        self.assertTrue(MPI != "openmpi" or "while it waited for rank" in errors, errors)
        self.assertNotIn("--resume", errors)
        self.assertFalse(checkpoint.exists())

    def test_a_rank_that_is_stopped_is_lost(self):
        checkpoint = self.path / "run.ck"
        started = self.start_long("--recipe", "adacomp", "--steps", 1000000, "--checkpoint", checkpoint, "--checkpoint-every", 3, "--timeout", 2)
        while not checkpoint.exists() and started.poll() is None:
            time.sleep(0.01)
        os.kill(pids_of(started.pid)[2], signal.SIGSTOP)
        begin = time.monotonic()
        _, errors = started.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 30)
        self.assertNotEqual(started.returncode, 0)
        # No step is named if it was stopped while a checkpoint was gathered.
        self.assertRegex(errors, rf"tersegrad: rank [01]: rank 2 is lost: rank [01] has waited for it for 2000 ms( at step \d+)?; "
                                 rf"--resume goes on from {re.escape(str(checkpoint))}")

    def test_the_rank_that_is_stopped_is_the_one_that_is_named(self):
        """At any moment of a step; the error never names a rank that waits for the stopped one."""
        generator = random.Random(5)
        attempt = stops = 0
        while stops < STOPS:
            attempt += 1
            n, recipe = generator.choice((3, 4)), generator.choice(("adacomp", "ef+topk@0.05,coords=shared", "dense", "orq@9"))
            victim, log = generator.randrange(n), self.path / f"{attempt}.jsonl"
            started = subprocess.Popen([*launcher(), "-n", str(n), PROGRAM, *QUICK, *SMALL, "--recipe", recipe, "--steps", "1000000",
                                        "--timeout", "2", "--log", str(log)], env=ENVIRONMENT, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            while not (log.exists() and log.read_text().count('"loss"') > 3) and started.poll() is None:
                time.sleep(0.01)
            time.sleep(generator.uniform(0, 0.1))
            ranks = pids_of(started.pid)
            if len(ranks) < n:  # on a machine that is very busy a rank may need longer than the timeout to start
                _, errors = started.communicate(timeout=60)
                self.assertLess(attempt - stops, max(STOPS // 2, 2), errors)
                continue
            stops += 1
            os.kill(ranks[victim], signal.SIGSTOP)
            begin = time.monotonic()
            _, errors = started.communicate(timeout=60)
            self.assertLess(time.monotonic() - begin, 30)
            # A launcher may continue the stopped rank before it kills it; which rank that one names does not matter.
            named = {int(lost) for by, lost in re.findall(r"tersegrad: rank (\d+): rank (\d+) is lost", errors) if int(by) != victim}
            self.assertEqual(named, {victim}, f"{n} ranks, {recipe}, rank {victim} stopped: {errors}")


class Probe(unittest.TestCase):
    def test_plan_reads_it(self):
        """Ranks of one machine: all-reduces are measured, and the plan takes ranks, hosts and link from the file."""
        with tempfile.TemporaryDirectory() as folder:
            machine, path, bad = (pathlib.Path(folder) / name for name in ("machine.json", "network.json", "bad.json"))
            subprocess.run([PROGRAM, "probe", "--recipes", "fp16", "--n", "65536", "--seconds", "0.01", machine], check=True, capture_output=True)
            done = mpirun(3, PROGRAM, "probe", "--probe", machine, "--seconds", "0.01", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("3 ranks on ", done.stdout)
            network = json.loads(path.read_text())["network"]
            self.assertEqual(network["ranks"], 3)
            for column in ("exchange", "fp32", "bf16", "busy_exchange", "busy_fp32", "busy_bf16"):
                self.assertTrue(all(value > 0 for value in network[column]), network)
            told = json.loads(subprocess.run([PROGRAM, "plan", "--probe", path, "--params", "1e5", "--compute", "1ms", "--recipes", "fp16",
                                              "--json"], check=True, capture_output=True, text=True).stdout)
            self.assertEqual((told["workers"], told["link_measured"]), (3, True))
            bad.write_text("{}")
            done = mpirun(2, PROGRAM, "probe", "--probe", bad, path)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual([line for line in said(done) if "no file of" in line], said(done)[:1])


if __name__ == "__main__":
    unittest.main()
