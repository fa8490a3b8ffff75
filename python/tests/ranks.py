"""Ranks for tests: processes that wait for jobs, so that PyTorch is loaded once and not once a test.

A job is a function of jobs.py, bad_jobs.py, device_jobs.py, local_jobs.py, fsdp_jobs.py or chaos.py; each gets a process group of its own. A job that does not end in time ends its processes,
and its test fails: nothing may hang.
"""

import atexit
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Failed(AssertionError):
    pass


class Ranks:
    def __init__(self):
        self.processes = []
        self.folder = tempfile.TemporaryDirectory()
        self.count = 0
        self.loading = []  # processes that load PyTorch, which takes long on a busy machine

    def start(self, world):
        """The time of a job begins when all its ranks are ready."""
        while len(self.processes) < world:
            self.processes.append(self.spawn())
        for process in self.loading:
            process.stdout.readline()
        self.loading = []

    def spawn(self):
        environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        process = subprocess.Popen([sys.executable, str(HERE / "worker.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
                                   cwd=HERE)
        self.loading.append(process)
        return process

    def end(self, process):
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()

    def stop(self):
        for process in self.processes:
            self.end(process)
        self.processes, self.loading = [], []

    def run(self, job, world, limit=60, dies=(), **arguments):
        """What the job returned on each rank; of one that raised, {"error": its sentence, "type": ..., "code": ...}. Ranks in
        `dies` end their process and return None."""
        self.start(world)
        self.count += 1
        for rank, process in enumerate(self.processes[:world]):
            order = {"job": job, "rank": rank, "world": world, "file": f"{self.folder.name}/group-{self.count}", "arguments": arguments}
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        end, out = time.monotonic() + limit, [None] * world
        try:
            for rank, process in enumerate(self.processes[:world]):
                if not select.select([process.stdout], [], [], max(end - time.monotonic(), 0))[0]:
                    raise Failed(f"{job}: rank {rank} of {world} has not ended within {limit} s")
                line = process.stdout.readline()
                if not line and rank not in dies:
                    raise Failed(f"{job}: rank {rank} of {world} has ended")
                out[rank] = json.loads(line) if line else None
        except BaseException:
            self.stop()
            raise
        for rank in {rank for rank in dies if out[rank] is None}:
            self.end(self.processes[rank])
            self.processes[rank] = self.spawn()
        return out


RANKS = Ranks()  # of all tests: they would load PyTorch again for every file
atexit.register(RANKS.stop)
