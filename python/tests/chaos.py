"""A job to which things happen: ranks that are killed, stopped, late, damage what they send or have a NaN, each at a moment that was drawn,
with several groups in flight. test_chaos.py runs it, and resumes it until it is done."""

import datetime
import os
import pathlib
import random
import signal
import subprocess
import time

import torch
import torch.distributed as dist

import models
from models import digest, loss_of, make_model, weights_of
from tersegrad.torch import Reducer, State, hook

TIMEOUT, STOPPED = 1.5, 3.0  # seconds that a message may take, and that a stopped rank stands still
LAYERS = (0, 2, 4)           # of the model, with parameters


def draw_events(seed, world, steps, kinds):
    """What happens: at which step, on which rank, when the gradient of which layer is computed, and how late in microseconds."""
    rng = random.Random(seed)
    return [{"kind": kind, "step": rng.randrange(1, steps), "rank": rng.randrange(world), "layer": rng.choice(LAYERS), "late": rng.randrange(3000),
             "operation": rng.randrange(8)} for kind in kinds]


class Events:
    """Those of this rank that have not happened yet. A file says that one has: a resumed job must not see it again."""

    def __init__(self, rank, folder, events):
        self.rank, self.folder, self.events, self.step = rank, pathlib.Path(folder), events, -1
        self.operation_n, self.damaging = 0, None

    def due(self, *kinds, layer=None):
        for number, event in enumerate(self.events):
            mark = self.folder / f"event.{number}"
            if (event["kind"] in kinds and event["rank"] == self.rank and event["step"] <= self.step and not mark.exists() and
                    layer in (None, event["layer"])):
                mark.touch()
                return event
        return None

    def at_layer(self, layer):
        """In backward()."""
        event = self.due("kill", "stop", "delay", layer=layer)
        if event is None:
            return
        time.sleep(event["late"] / 1e6)
        if event["kind"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif event["kind"] == "stop":
            with subprocess.Popen(["sh", "-c", f"sleep {STOPPED}; kill -CONT {os.getpid()}"]):
                os.kill(os.getpid(), signal.SIGSTOP)
        else:
            time.sleep(TIMEOUT / 5)

    def damage(self, post):
        """A bit of one message of a step."""
        def spy(sends, recvs, tag):
            self.operation_n += 1
            sends = list(sends)
            if self.damaging is not None and self.operation_n > self.damaging["operation"] and any(len(memory) for memory in sends):
                to = next(rank for rank, memory in enumerate(sends) if len(memory))
                spoiled = bytearray(sends[to])
                spoiled[len(spoiled) // 2] ^= 16
                sends[to], self.damaging = memoryview(spoiled), None
            return post(sends, recvs, tag)
        return spy

    def begin(self, step):
        """Whether this rank has a NaN in the step."""
        self.step, self.operation_n = step, 0
        self.damaging = self.damaging or self.due("damage")
        return self.due("nan") is not None


def chaos(rank, world, recipe, by_hook, steps, folder, events, resume):
    """Trains from the checkpoints of a step on; returns how it ended. A step that fails is repeated, unless the link has failed."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=TIMEOUT))
    model = make_model("mlp")
    options = {"group_len": 1, "process_group": group}
    if by_hook:
        state = State(recipe, model=model, **options)
        run = models.wrap(model, 0.001, process_group=group)
        run.register_comm_hook(state, hook)
    else:
        state, run = Reducer(model, recipe, **options), model
    if resume > 0:
        saved = torch.load(f"{folder}/{rank}.{resume}")
        model.load_state_dict(saved["model"])
        state.load_state_dict(saved["exchange"])
    happens = Events(rank, folder, events)
    state._link._post = happens.damage(state._link._post)
    for layer in LAYERS:
        model[layer].weight.register_hook(lambda _, layer=layer: happens.at_layer(layer))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    failed, unchanged = [], True
    while state.step < steps:
        step = state.step
        optimizer.zero_grad()
        before = residual_of(state)
        try:
            loss = loss_of(run, step, rank)
            (loss * float("nan") if happens.begin(step) else loss).backward()
            if not by_hook:
                state.reduce()
        except RuntimeError as error:
            unchanged = unchanged and state.step == step and before in (None, residual_of(state))
            said = str(state._error if by_hook else error)  # backward() adds its own words
            if state._link.failed is not None:
                return {"lost": said, "step": step, "failed": failed, "unchanged": unchanged, "digest": digest(weights_of(model))}
            failed.append([step, said])
            continue
        optimizer.step()
        torch.save({"model": model.state_dict(), "exchange": state.state_dict()}, f"{folder}/{rank}.new")
        os.replace(f"{folder}/{rank}.new", f"{folder}/{rank}.{state.step}")
    return {"lost": None, "step": state.step, "failed": failed, "unchanged": unchanged, "digest": digest(weights_of(model))}


def residual_of(state):
    """None before a rank's first step."""
    residual = state.residual()
    return digest(torch.cat([r.flatten() for r in residual.values()])) if residual else None
