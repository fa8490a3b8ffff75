"""What tests over MPI share: how jobs are started, what their processes are, and `tersegrad train` as threads and as processes.

MPI names the launcher: mpirun.openmpi, mpirun.mpich, or any, which is what mpirun stands for and must be Open MPI; everything runs on this machine.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

MPI = os.environ.get("MPI", "openmpi")
BUILD = pathlib.Path(os.environ.get("BUILD", f"build/{MPI}")).resolve()
PROGRAM = str(BUILD / "tersegrad")
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


def start(n, *arguments):
    """Ranks of a training, which are waited for with communicate()."""
    line = [*launcher(), "-n", str(n), PROGRAM, *QUICK, *map(str, arguments)]
    return subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)


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


class Case(unittest.TestCase):
    """Has a folder for each test."""

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

    def compare(self, n, *arguments):
        """Both end with the same results, but for times. Those of processes."""
        theirs, ours = self.threads(n, *arguments), self.processes(n, *arguments)
        for key in theirs:
            if "seconds" not in key:
                self.assertEqual(ours[key], theirs[key], key)
        return ours
