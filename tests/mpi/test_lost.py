"""Ranks of `tersegrad train` that are killed or stopped, and runs that go on afterwards.

    MPI=openmpi BUILD=build/openmpi python3 -m unittest discover -s tests/mpi     KILLS=20 or STOPS=100 for more of them
"""

import json
import os
import random
import re
import signal
import subprocess
import time

from job import ENVIRONMENT, MPI, PROGRAM, QUICK, SMALL, Case, launcher, mpirun, pids_of, said, start

KILLS = int(os.environ.get("KILLS", "3"))
STOPS = int(os.environ.get("STOPS", "12"))


class Lost(Case):
    def test_a_run_goes_on_in_other_groups(self):
        flags = (*SMALL, "--recipe", "adacomp", "--steps", 400)
        straight, checkpoint = self.threads(3, *flags)["weights_hash"], self.path / "run.ck"
        files = ("--checkpoint", checkpoint, "--checkpoint-every", 10, "--resume")
        started = start(3, *flags, *files, "--group-size", 1)
        while not checkpoint.exists() and started.poll() is None:
            time.sleep(0.005)
        for pid in pids_of(started.pid).values():
            os.kill(pid, signal.SIGKILL)
        started.communicate(timeout=60)
        self.assertEqual(self.processes(3, *flags, *files, "--group-size", 0)["weights_hash"], straight)

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
        started = start(3, *flags, "--steps", 2000, "--checkpoint-every", 10)
        while not (self.path / "run.ck").exists() and started.poll() is None:
            time.sleep(0.01)
        os.kill(pids_of(started.pid)[1], signal.SIGKILL)
        started.communicate(timeout=60)
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

    def test_a_process_that_never_calls_mpi(self):
        """MPI_Init waits for it without a timeout."""
        line = [*launcher(), "-n", "1", PROGRAM, *QUICK, *SMALL, "--recipe", "dense", "--steps", "5", "--timeout", "1"]
        done = subprocess.run([*line, ":", "-n", "1", "sleep", "100"], capture_output=True, text=True, timeout=90, env=ENVIRONMENT,
                              stdin=subprocess.DEVNULL)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(said(done)), 1, done.stderr)
        self.assertIn("MPI has not started on all processes within --timeout", said(done)[0])

    def test_killed_at_random_and_resumed(self):
        generator = random.Random(3)
        flags = ("--recipe", "ef+topk@0.02+fp16", "--steps", 60 * KILLS, "--checkpoint-every", 5)
        straight = self.threads(3, *SMALL, *flags)["weights_hash"]
        checkpoint = self.path / "run.ck"
        files = ("--checkpoint", checkpoint, "--resume", "--log", self.path / "run.jsonl")
        kills = 0
        for _ in range(KILLS):
            was_saved = checkpoint.exists()
            started = start(3, *SMALL, *flags, *files)
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
            started = start(3, *SMALL, "--recipe", "adacomp", "--steps", 1000000, *files, "--timeout", 2)
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
        started = start(3, *SMALL, "--recipe", "adacomp", "--steps", 1000000, "--checkpoint", checkpoint, "--checkpoint-every", 3, "--timeout", 2)
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
            started = start(n, *SMALL, "--recipe", recipe, "--steps", 1000000, "--timeout", 2, "--log", log)
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
