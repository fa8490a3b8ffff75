"""Local steps of `tersegrad train` as processes: the same bits as threads, ranks that disagree.

    MPI=openmpi BUILD=build/openmpi python3 -m unittest discover -s tests/mpi
"""

import subprocess
import time

from job import ENVIRONMENT, PROGRAM, QUICK, SMALL, Case, mpirun_unlike, said


class Local(Case):
    def test_processes_end_in_the_bits_of_threads(self):
        for n, flags in ((2, ["--model", "resnet8", "--batch", 4, "--recipe", "dense", "--steps", 7, "--local-steps", 3]),
                         (3, [*SMALL, "--recipe", "adacomp", "--steps", 30, "--local-steps", "1,4:4", "--outer", "nesterov", "--test-every", 5])):
            self.compare(n, *flags)

    def test_processes_go_on_from_threads_inside_a_round(self):
        checkpoint = self.path / "run.ck"
        flags = ["--model", "resnet8", "--batch", 8, "--recipe", "adacomp", "--steps", 20, "--local-steps", 7, "--checkpoint", checkpoint,
                 "--checkpoint-every", 11]
        straight = self.threads(2, *flags)
        checkpoint.unlink()
        begun = subprocess.Popen([PROGRAM, *QUICK, "--link", "threads", "--workers", "2", *map(str, flags)], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        while not checkpoint.exists() and begun.poll() is None:
            time.sleep(0.002)
        begun.kill()
        self.assertNotEqual(begun.wait(), 0)  # it was killed before its end
        self.assertEqual(self.processes(2, *flags, "--resume")["weights_hash"], straight["weights_hash"])

    def test_a_process_that_is_late_is_not_waited_for(self):
        flags = [*SMALL, "--recipe", "terse", "--steps", 24, "--local-steps", 4, "--verify-every", 1]
        calm = self.processes(3, *flags)
        patient, late = (self.processes(3, *flags, "--quorum", 2, *more) for more in (["--grace", 100], ["--grace", 0.01, "--late", "1:50ms"]))
        self.assertEqual((patient["weights_hash"], patient["absences"]), (calm["weights_hash"], 0))
        self.assertEqual(late["exchanges"], 6)
        self.assertIn(late["absences"], range(1, 6))

    def test_ranks_that_disagree_are_detected_at_the_start(self):
        base = [PROGRAM, *QUICK, *SMALL, "--steps", 5, "--recipe", "adacomp"]
        for ours, theirs, sentence in (
                (["--local-steps", 4], ["--local-steps", 8], "rank 1 has local-steps '8', but rank 0 has '4'"),
                (["--local-steps", 4], [], "rank 1 has local-steps '1', but rank 0 has '4'"),
                (["--local-steps", 4, "--quorum", 1], ["--local-steps", 4], "rank 1 has quorum '0, grace 1', but rank 0 has '1, grace 1'"),
                (["--local-steps", 4], ["--local-steps", 4, "--outer", "nesterov"], "rank 1 has outer 'lr=0.7,momentum=0.9', but rank 0 has 'lr=1,momentum=0'")):
            done = mpirun_unlike(base + ours, base + theirs)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(len(said(done)), 1, done.stderr)
            self.assertIn(sentence, said(done)[0])
