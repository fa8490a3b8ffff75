"""The link over MPI: the same bits as in lockstep, ranks that are lost or differ, faults.

    MPI=openmpi BUILD=build/openmpi python3 -m unittest discover -s tests/mpi
"""

import pathlib
import re
import tempfile
import unittest

from job import BUILD, MPI, mpirun

LINK, CHANNELS, CHAOS = (str(BUILD / "tests" / name) for name in ("mpi_link", "mpi_channels", "mpi_chaos"))


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
