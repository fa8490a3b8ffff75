"""Ends training programs in one of several ways, many times, and prints how each process ended.

    python3 exits.py KIND TIMES FOLDER

Each process is a fork of this one, so that PyTorch is loaded once, and ends as a script does: by the whole of the
interpreter's own shutdown. Only the kind "normal" calls destroy_process_group first, as docs/pytorch.md advises.
"""

import gc
import importlib
import json
import os
import random
import signal
import sys
import time

import torch
import torch.distributed as dist

import models
from tersegrad.torch import State, hook

KINDS = ("normal", "exception", "exit", "interrupt", "killed peer")
WORLD = 2
AT_ONCE = 4     # pairs of processes
LIMIT = 30      # seconds until a pair has hung


def train(rank, kind, init):
    """A rank of a job that ends by this kind."""
    dist.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=WORLD)
    ddp = models.make_ddp(rank, "mlp", bucket_cap_mb=0.001)
    state = State("ef+topk@0.1", group_len=1000)
    ddp.register_comm_hook(state, hook)
    for step in range(10000 if kind == "interrupt" else 3):
        ddp.zero_grad()
        loss = models.loss_of(ddp, step, rank)
        if step == 2 and kind == "killed peer" and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        if step == 0:
            open(f"{init}.{rank}", "w").close()  # this rank has trained
    if kind == "normal":
        dist.destroy_process_group()
    elif kind == "exception":
        raise ValueError("of the script")
    elif kind == "exit":
        sys.exit(3)


def how(status):
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def wait(children, folder, kind):
    """How the processes {pid: (pair, rank)} ended, as a list of {rank: status or "hung"} by pair."""
    out = {pair: {} for pair, _ in children.values()}
    end, interrupted = time.monotonic() + LIMIT, set()
    while children and time.monotonic() < end:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            pair, rank = children.pop(pid)
            out[pair][rank] = how(status)
        elif kind == "interrupt":
            for pair in out:
                if pair not in interrupted and all(os.path.exists(f"{folder}/{pair}.{rank}") for rank in range(WORLD)):
                    time.sleep(random.uniform(0, 0.01))
                    interrupted.add(pair)
                    for pid in [pid for pid, (of, _) in children.items() if of == pair]:
                        os.kill(pid, signal.SIGINT)  # as a terminal does it: to all
        time.sleep(0.002)
    for pid, (pair, rank) in children.items():
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        out[pair][rank] = "hung"
    return list(out.values())


def main():
    kind, times, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    if hasattr(torch, "compile"):  # what DistributedDataParallel would import in every fork
        importlib.import_module("torch._dynamo")
    gc.freeze()
    results = []
    while len(results) < times:
        children = {}
        for pair in range(len(results), min(len(results) + AT_ONCE, times)):
            for rank in range(WORLD):
                pid = os.fork()
                if pid == 0:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    errors = os.open(f"{folder}/{pair}.{rank}.log", os.O_WRONLY | os.O_CREAT, 0o600)
                    os.dup2(errors, 1)
                    os.dup2(errors, 2)
                    train(rank, kind, f"{folder}/{pair}")
                    return
                children[pid] = pair, rank
        results += wait(children, folder, kind)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
