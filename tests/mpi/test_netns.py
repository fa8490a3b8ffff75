"""bench/netns: hosts that are network namespaces, what their interfaces count, and that nothing is left behind."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from job import MPI, PROGRAM

ROOT = pathlib.Path(__file__).resolve().parents[2]


def can_make_hosts():
    """Only root may, and not in every container."""
    if MPI != "openmpi" or os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("tc") is None:
        return False
    name = f"tgtry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made


def netns(*arguments, **options):
    return subprocess.Popen([str(ROOT / "bench/netns"), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, **options)


def left_behind(process):
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    return [line for line in names.splitlines() if line.startswith(f"tg{process.pid}-")]


@unittest.skipUnless(can_make_hosts(), "needs root, network namespaces, ip, tc and Open MPI")
class Netns(unittest.TestCase):
    def test_interfaces_count_what_the_meter_counts(self):
        """A little more: headers of frames and packets, what acknowledges them, the launcher, and reports between steps."""
        flags = ("train", "--model", "mlp", "--data", "glyphs", "--recipe", "dense", "--steps", 10, "--json")
        process = netns("--hosts", 3, "--rate", "200mbit", "--", PROGRAM, *flags)
        out, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        lines = out.splitlines()
        result = json.loads(next(line for line in lines if line.startswith("{")))
        sent = [int(line.split()[1].replace(",", "")) for line in lines if line.split()[:1] in (["0"], ["1"], ["2"])]
        self.assertEqual(len(sent), 3, out)
        for bytes_sent in sent:
            self.assertTrue(1.0 < bytes_sent / (10 * result["wire_bytes_per_step"]) < 1.10, (bytes_sent, result))
        self.assertEqual(left_behind(process), [])

    def test_nothing_is_left_behind(self):
        failing = netns("--hosts", 2, "--", "false")
        failing.communicate(timeout=60)
        self.assertNotEqual(failing.returncode, 0)
        self.assertEqual(left_behind(failing), [])
        with tempfile.TemporaryDirectory() as folder:
            mark = pathlib.Path(folder) / "run.ck"
            ended = netns("--hosts", 2, "--rate", "1gbit", "--", PROGRAM, "train", "--model", "mlp", "--data", "glyphs", "--recipe", "adacomp",
                          "--steps", 100000, "--checkpoint", mark, "--checkpoint-every", 3)
            limit = time.monotonic() + 60
            while not mark.exists() and ended.poll() is None and time.monotonic() < limit:
                time.sleep(0.02)
            self.assertTrue(mark.exists())
            ended.send_signal(signal.SIGTERM)
            ended.communicate(timeout=60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertEqual(left_behind(ended), [])

    def test_pinned_hosts(self):
        """Every host on its share of the cores, by both launchers."""
        cores = sorted(os.sched_getaffinity(0))
        for by in ("mpirun", "env"):
            process = netns("--hosts", 2, "--pin", "--by", by, "--quiet", "--", "sh", "-c", "echo $(hostname) $(taskset -cp $$ | sed 's/.*: //')")
            out, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, errors)
            found = {}
            for line in out.splitlines():
                host, _, listed = line.partition(" ")
                found[host] = [core for part in listed.split(",") for first, _, last in [part.partition("-")]
                               for core in range(int(first), int(last or first) + 1)]
            half = len(cores) // 2
            self.assertEqual(found, {"node0": cores[:max(half, 1)], "node1": cores[half:]}, out)

    def test_ranks_by_their_environment(self):
        process = netns("--hosts", 3, "--by", "env", "--quiet", "--", "sh", "-c", "echo $RANK of $WORLD_SIZE at $MASTER_ADDR")
        out, errors = process.communicate(timeout=60)
        self.assertEqual(sorted(out.splitlines()), [f"{rank} of 3 at 10.77.0.1" for rank in range(3)], errors)
        failing = netns("--hosts", 2, "--by", "env", "--", "sh", "-c", "test $RANK = 1 && exit 3; sleep 100")
        failing.communicate(timeout=60)
        self.assertEqual(failing.returncode, 3)
        self.assertEqual(left_behind(failing), [])

    def test_bad_use(self):
        for flags, sentence in ((("--hosts", 1, "--", "true"), "--hosts is from 2 to 8"), (("--rate", "fast", "--", "true"), "is no rate")):
            process = netns(*flags)
            _, errors = process.communicate(timeout=60)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn(sentence, errors)
            self.assertEqual(left_behind(process), [])


if __name__ == "__main__":
    unittest.main()
