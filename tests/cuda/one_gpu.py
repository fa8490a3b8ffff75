"""Several ranks of torch.distributed on one GPU (or one each), for tests that need them: starts them, ends those that are late, and prints a
line a check. Emulated, ranks are on CPUs over gloo, and kernels of the GPU, too."""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "experiments"))
import mps


def known(recipes):
    """Those that this build has."""
    import tersegrad
    names = {part["name"] for part in tersegrad.recipes()}
    return [each for each in recipes if all(part.partition("@")[0] in names for part in each.split("+"))]


class Rank:
    """One rank. A test derives from it and has run()."""

    def __init__(self, flags):
        import torch
        import torch.distributed as dist
        self.flags, self.torch, self.dist = flags, torch, dist
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cpu")
        if not flags.emulated:
            self.device = torch.device("cuda", self.rank % torch.cuda.device_count())
            torch.cuda.set_device(self.device)
            torch.backends.cudnn.deterministic = True
        dist.init_process_group("gloo" if flags.emulated else "nccl")
        self.gloo = dist.new_group(backend="gloo")
        self.failures = 0

    def say(self, name, is_good, text):
        """All ranks must be good."""
        told = self.torch.tensor([int(is_good)])
        self.dist.all_reduce(told, op=self.dist.ReduceOp.MIN, group=self.gloo)
        self.failures += int(told.item() == 0)
        if self.rank == 0:
            print(f"{'ok  ' if told.item() else 'FAIL'} {self.world} ranks, {name}: {text}", flush=True)

    def are_same(self, what):
        """Whether it is the same on all ranks."""
        all_of = [None] * self.world
        self.dist.all_gather_object(all_of, what, group=self.gloo)
        return all(each == all_of[0] for each in all_of)

    def synchronize(self):
        if not self.flags.emulated:
            self.torch.cuda.synchronize()

    def end(self):
        self.dist.barrier(group=self.gloo)
        self.dist.destroy_process_group()


def differing(a, b):
    """Values of two tensors whose bits are not the same."""
    import torch
    words = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return int((a.cpu().contiguous().view(words) != b.cpu().contiguous().view(words)).sum())


def environment_of(flags):
    """Of all ranks. TG_EMULATED_REACH and TG_EMULATED_TORCH: tensors on the CPU count as on a GPU. cuBLAS gives the same bits in every run. A
    rank that a signal ends says where it was."""
    out = dict(os.environ, NCCL_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", KINETO_LOG_LEVEL="5", PYTHONWARNINGS="ignore",
               CUBLAS_WORKSPACE_CONFIG=":4096:8", PYTHONFAULTHANDLER="1")
    return dict(out, TG_EMULATED_REACH="1", TG_EMULATED_TORCH="1") if flags.emulated else out


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(script, world, folder, flags):
    """NCCL takes two ranks on one GPU if they seem to be on different hosts."""
    out, port = [], free_port()
    for rank in range(world):
        environment = dict(environment_of(flags), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), NCCL_HOSTID=f"rank{rank}")
        with open(pathlib.Path(folder, f"{world}-{rank}"), "w") as log:
            out.append(subprocess.Popen([sys.executable, script, *sys.argv[1:], "--rank", "--folder", folder], env=environment,
                                        stdout=None if rank == 0 else log, stderr=log, start_new_session=True))
    return out


def watch(processes, until):
    """How each rank ended that did not end well in time; none: all did. Ends those that are left once one has failed."""
    while time.monotonic() < until and any(process.poll() is None for process in processes):
        if any(process.poll() not in (None, 0) for process in processes):
            until = min(until, time.monotonic() + 3)
        time.sleep(0.1)
    late = [process for process in processes if process.poll() is None]
    for process in late:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return {rank: "was still running" if process in late else how_ended(process.returncode)
            for rank, process in enumerate(processes) if process in late or process.returncode != 0}


def how_ended(code):
    return f"exit status {code}" if code >= 0 else f"ended by {signal.Signals(-code).name}"


def be_rank(of, flags):
    try:
        rank = of(flags)
        rank.run()
        rank.end()
        sys.exit(1 if rank.failures else 0)
    except Exception as error:
        print(f"FAIL rank {os.environ['RANK']}: {type(error).__name__}: {str(error)[:600]}", flush=True)
        import traceback
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def main(of, doc, add_options=lambda parser: None, after=lambda flags, until: True):
    """`of` is the class of a rank. after(flags, until) returns whether what is done without ranks went well."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", default="2,4", help="numbers of ranks, one after the other")
    parser.add_argument("--seconds", type=float, default=180, help="until everything is ended")
    parser.add_argument("--mps", action="store_true", help="ranks share the GPU by NVIDIA's MPS daemon; without it they take turns, which times show")
    parser.add_argument("--emulated", action="store_true", help="kernels on the CPU, over gloo: without times and traces of a GPU that count")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    add_options(parser)
    flags = parser.parse_args()
    if flags.rank:
        be_rank(of, flags)
    with tempfile.TemporaryDirectory() as folder, mps.daemon(pathlib.Path(folder), flags.mps) as environment:
        os.environ.update(environment or {})
        good = run_all(flags, folder, after)
    print(json.dumps({"ok": good}))
    sys.exit(0 if good else 1)


def run_all(flags, folder, after):
    until, good = time.monotonic() + flags.seconds, True
    for world in (int(each) for each in flags.worlds.split(",")):
        begin = time.monotonic()
        ended = watch(start(sys.argv[0], world, folder, flags), until)
        how = "".join(f"; rank {rank}: {each}" for rank, each in ended.items())
        print(f"{'FAIL' if ended else 'ok  '} {world} ranks in {time.monotonic() - begin:.0f} s{how}", flush=True)
        for log in sorted(pathlib.Path(folder).glob(f"{world}-*")) if ended else ():
            print(f"--- {log.name}: {log.read_text()[-2000:]}", flush=True)
        good = good and not ended
    return after(flags, until) and good
