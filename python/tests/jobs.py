"""What ranks do in tests (ranks.py): each function is one job, run by every rank of a world."""

import datetime
import hashlib
import json
import os
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tersegrad
from tersegrad.torch import Reducer, State, hook

warnings.filterwarnings("ignore")
LGC = ("ef+topk@0.05,coords=shared+autoencoder@ring,dense=2,learn=2,enough=1e9,"
       "e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4")


# ---- models and data ---------------------------------------------------------------------------------------------------

class WithUnused(nn.Module):
    """A layer that only some ranks use, and one that nobody uses."""

    def __init__(self):
        super().__init__()
        self.first, self.some, self.never, self.last = nn.Linear(20, 24), nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        x = torch.relu(self.first(x))
        if dist.get_rank() == 0:
            x = x + self.some(x)
        return self.last(x)


def make_model(name):
    torch.manual_seed(1)
    if name == "unused":
        return WithUnused()
    if name == "conv":
        return nn.Sequential(nn.Unflatten(1, (1, 4, 5)), nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
                             nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(160, 5))
    if name == "channels last":
        return make_model("conv").to(memory_format=torch.channels_last)
    if name == "other":
        return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5))
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5))
    if name == "frozen":
        model[2].requires_grad_(False)
    return model


def batch(step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(8, 20, generator=generator), torch.randint(0, 5, (8,), generator=generator)


def loss_of(model, step, rank):
    x, y = batch(step, rank)
    return nn.functional.cross_entropy(model(x), y)


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def digest(tensor):
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


class Scaler:
    """As much of a GradScaler as is needed: one for the processor is not in every PyTorch."""

    def __init__(self, scale):
        self.scale = scale

    def get_scale(self):
        return self.scale


class Writer(list):
    def add_scalar(self, name, value, step):
        self.append((name, float(value), step))


def make_ddp(rank, model, bucket_cap_mb=25, find_unused=False, **options):
    return DistributedDataParallel(make_model(model), bucket_cap_mb=bucket_cap_mb, find_unused_parameters=find_unused, **options)


# ---- jobs --------------------------------------------------------------------------------------------------------------

def train(rank, world, recipe, steps=6, model="mlp", accumulate=1, give_model=False, options=None, compiled=False, **ddp_options):
    """Trains by a recipe, or by None as PyTorch does it; returns the weights."""
    ddp = make_ddp(rank, model, **ddp_options)
    state = None
    if recipe is not None:
        state = State(recipe, model=ddp if give_model else None, **(options or {}))
        ddp.register_comm_hook(state, hook)
    run = torch.compile(ddp, backend="eager") if compiled else ddp
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate - 1):
            with ddp.no_sync():
                loss_of(run, 100 + accumulate * step + part, rank).backward()
        loss_of(run, step, rank).backward()
        optimizer.step()
    stats = None if state is None else state.stats()
    return {"weights": weights_of(ddp).tolist(), "digest": digest(weights_of(ddp)), "stats": stats,
            "sent": None if state is None else state._link.struct.sent_len}


def average(rank, world, recipe, dtype="float32"):
    """What reduce() makes of gradients, beside their mean by other means."""
    model = make_model("mlp").to(getattr(torch, dtype))
    reducer = Reducer(model, recipe)
    generator = torch.Generator().manual_seed(rank)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
    model[4].bias.grad = None if rank == 0 else model[4].bias.grad
    own = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).float().flatten() for p in model.parameters()])
    all_of = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(all_of, own)
    reducer.reduce()
    got = torch.cat([p.grad.float().flatten() for p in model.parameters()])
    return {"expected": (sum(all_of) / world).tolist(), "got": got.tolist(), "kinds": [t[2] for t in reducer._exchange.tensors]}


def strided(rank, world):
    """Gradients that do not lie in rows, and parameters without a module."""
    p, q = nn.Parameter(torch.zeros(6, 4)), nn.Parameter(torch.zeros(3))
    p.grad, q.grad = (torch.arange(24.0) * (rank + 1)).view(4, 6).t(), torch.ones(3) * rank
    expected = torch.arange(24.0).view(4, 6).t() * (world + 1) / 2
    reducer = Reducer([p, q], "dense")
    reducer.reduce()
    return {"same": bool(torch.equal(p.grad, expected)), "q": q.grad.tolist(), "names": list(reducer.stats()["tensors"])}


def groups(rank, world, recipe):
    """Two groups of two that know nothing of each other."""
    both = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    group = both[rank // 2]
    ddp = DistributedDataParallel(make_model("mlp"), process_group=group)
    ddp.register_comm_hook(State(recipe, process_group=group), hook)
    for step in range(4):
        ddp.zero_grad()
        loss_of(ddp, step, rank).backward()
        with torch.no_grad():
            for p in ddp.parameters():
                p -= 0.1 * p.grad
    try:
        State(recipe, process_group=both[1 - rank // 2])
        refused = None
    except tersegrad.Error as error:
        refused = str(error)
    return {"digest": digest(weights_of(ddp)), "refused": refused}


def scaled(rank, world, recipe, scales, inf_at=None):
    """Trains with scaled losses; the scale is taken out as a GradScaler would, which skips steps with an Inf."""
    scaler = Scaler(1.0)
    ddp = make_ddp(rank, "mlp")
    state = State(recipe, scaler=scaler)
    ddp.register_comm_hook(state, hook)
    skipped = []
    for step, scale in enumerate(scales):
        scaler.scale = scale
        ddp.zero_grad()
        loss = loss_of(ddp, step, rank) * scale
        if step == inf_at and rank == 0:
            loss = loss * float("inf")
        loss.backward()
        gradients = torch.cat([p.grad.flatten() for p in ddp.parameters()])
        if not torch.isfinite(gradients).all():
            skipped.append(step)
            continue
        with torch.no_grad():
            for p in ddp.parameters():
                p -= 0.1 * p.grad / scale
    finite = all(bool(torch.isfinite(r).all()) for r in state.residual().values())
    return {"digest": digest(weights_of(ddp)), "skipped": skipped, "finite": finite}


def real_scaler(rank, world, recipe):
    """A GradScaler for the processor, as it is meant to be used."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    ddp = make_ddp(rank, "mlp")
    state = State(recipe, scaler=scaler)
    ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    scales = []
    for step in range(5):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(ddp, step, rank)
        scaler.scale(loss * float("inf") if (step, rank) == (2, 1) else loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    finite = bool(torch.isfinite(weights_of(ddp)).all())
    return {"digest": digest(weights_of(ddp)), "scales": scales, "finite": finite}


def resume(rank, world, recipe, stop, steps, folder=None):
    """Trains, and at `stop` throws everything away but what was saved."""
    def begin(saved):
        ddp = make_ddp(rank, "mlp", bucket_cap_mb=0.001)
        state = State(recipe)
        if saved is not None:
            ddp.module.load_state_dict(saved["model"])
            state.load_state_dict(saved["exchange"])
        ddp.register_comm_hook(state, hook)
        return ddp, state
    ddp, state = begin(None)
    for step in range(steps):
        if step == stop:
            path = f"{folder}/{rank}"
            torch.save({"model": ddp.module.state_dict(), "exchange": state.state_dict()}, path)
            ddp, state = begin(torch.load(path))
        ddp.zero_grad()
        loss_of(ddp, step, rank).backward()
        with torch.no_grad():
            for p in ddp.parameters():
                p -= 0.1 * p.grad
    return {"digest": digest(weights_of(ddp)), "step": state.step}


def _fill(model, step, rank, zero=False):
    generator = torch.Generator().manual_seed(77 * step + rank)
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if zero else torch.randn(p.shape, generator=generator).to(p.dtype)


def _gradients(model):
    return torch.cat([p.grad.double().flatten() for p in model.parameters()])


def save_world(rank, world, recipe, folder, steps=3, last=None):
    """Some steps, and a state; returns what is still owed: what went in, less what came out."""
    model = make_model("mlp")
    reducer = Reducer(model, recipe)
    owed = 0
    for step in range(steps):
        _fill(model, step, rank)
        own = _gradients(model)
        dist.all_reduce(own)
        reducer.reduce()
        owed = owed + own / world - _gradients(model)
    if last is not None:
        reducer.set_recipe(last)
    torch.save(reducer.state_dict(), f"{folder}/{rank}")
    return {"owed": owed.tolist()}


def load_world(rank, world, recipe, folder, old, at_once=None):
    """Goes on from the states of another world with gradients of 0, first by the recipe or the one `at_once`, then by dense:
    out comes what was owed."""
    model = make_model("mlp")
    reducer = Reducer(model, recipe)
    reducer.load_state_dict([torch.load(f"{folder}/{r}") for r in range(old)])
    if at_once is not None:
        reducer.set_recipe(at_once)
    out = 0
    for _ in range(2):
        _fill(model, 0, rank, zero=True)
        reducer.reduce()
        out = out + _gradients(model)
        reducer.set_recipe("dense")
    return {"out": out.tolist(), "step": reducer.step}


def refuse_states(rank, world):
    """The sentences about states that do not fit."""
    out = []
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1")
    _fill(model, 0, rank)
    reducer.reduce()
    saved = reducer.state_dict()
    other, another = Reducer(make_model("other"), "ef+topk@0.1"), Reducer(make_model("mlp"), "ef+topk@0.2")
    for broken in (lambda: another.load_state_dict(saved), lambda: reducer.load_state_dict(dict(saved, world=5)),
                   lambda: reducer.load_state_dict(dict(saved, rank=rank + 1)), lambda: reducer.load_state_dict({"step": 1}),
                   lambda: reducer.load_state_dict(dict(saved, state=saved["state"][:-1]))):
        try:
            broken()
            out.append(None)
        except tersegrad.Error as error:
            out.append(str(error))
    other.load_state_dict(saved)  # its model is not known yet: refused at the first step
    try:
        other.reduce()
        out.append(None)
    except tersegrad.Error as error:
        out.append(str(error))
    reducer.load_state_dict(saved)
    return out


def change(rank, world, recipes, by_schedule=False):
    """Changes the recipe before every step; in the end, by dense and with gradients of 0, everything that is owed comes out."""
    model = make_model("mlp")
    reducer = Reducer(model, recipes[0])
    if by_schedule:
        reducer.schedule(lambda step: recipes[step] if step < len(recipes) else "dense")
    owed, seen = 0, []
    for step in range(len(recipes) + 1):
        if not by_schedule:
            reducer.set_recipe(recipes[step] if step < len(recipes) else "dense")
        _fill(model, step, rank, zero=step == len(recipes))
        own = _gradients(model)
        dist.all_reduce(own)
        reducer.reduce()
        owed = owed + own / world - _gradients(model)
        seen.append(reducer.stats()["exchange"])
    return {"owed": float(owed.abs().max()), "seen": seen, "steps": reducer.stats()["total"]["steps"]}


def disagree(rank, world, what, recipes=None, ddp=True):
    """Ranks that were set up differently; each returns what it raised."""
    options = {"recipe": "ef+topk@0.1"}
    if what == "recipe":
        options["recipe"] = ["ef+topk@0.1", "ef+topk@0.2"][rank % 2]
    elif what == "bad":
        options["recipe"] = "ef+topk@0.1"
        options["exchange"] = None if rank == 0 else "lowrank"
    elif what == "seed":
        options["seed"] = rank
    module = make_ddp(rank, "mlp")
    state = State(options.pop("recipe"), **options)
    module.register_comm_hook(state, hook)
    loss_of(module, 0, rank).backward()


def later(rank, world, what):
    """One rank is at odds with the others at the third step."""
    module = make_ddp(rank, "mlp")
    state = State("ef+topk@0.1")
    module.register_comm_hook(state, hook)
    for step in range(3):
        module.zero_grad()
        loss = loss_of(module, step, rank)
        if step == 2 and rank == 1:
            if what == "nan":
                loss = loss * float("nan")
            elif what == "recipe":
                state.set_recipe("ef+topk@0.2")
            elif what == "schedule":
                state.schedule(lambda step: 1 / 0)
            elif what == "death":
                os._exit(0)
        loss.backward()


def stop_in_step(rank, world):
    """A link that is given up: the others, who wait, learn of it at once, though the process lives on."""
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1")
    _fill(model, 0, rank)
    reducer.reduce()
    if rank == 1:
        reducer._link._abort(None, b"enough")
    _fill(model, 1, rank)
    reducer.reduce()


def stall(rank, world):
    """One rank takes longer than the process group's timeout allows."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1", process_group=group)
    for step in range(2):
        _fill(model, step, rank)
        if step == 1 and rank == 1:
            time.sleep(4)
        reducer.reduce()


def unsuitable(rank, world, what):
    """Models whose gradients cannot be exchanged."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(20, 5)
            if what == "double":
                self.extra = nn.Parameter(torch.ones(5, dtype=torch.float64))
            else:
                self.extra = nn.Embedding(5, 5, sparse=True)

        def forward(self, x):
            if what == "sparse":
                return self.layer(x) + self.extra(torch.arange(5)).sum(0)
            return self.layer(x) + self.extra

    module = DistributedDataParallel(Net())
    state = State("ef+topk@0.1")
    module.register_comm_hook(state, hook)
    try:
        loss_of(module, 0, rank).backward()
    finally:
        state.check()


def complex_numbers(rank, world):
    """Not by DistributedDataParallel, some versions of which refuse such parameters themselves."""
    p = nn.Parameter(torch.ones(5, 5, dtype=torch.complex64))
    p.grad = torch.ones_like(p)
    Reducer([p], "topk@0.1").reduce()


def another_type(rank, world):
    """Gradients that are not what they were."""
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1")
    _fill(model, 0, rank)
    reducer.reduce()
    if rank == 1:
        model.half()
    _fill(model, 1, rank)
    reducer.reduce()


class Bucket:
    """As DistributedDataParallel would hand it to the hook, of a tensor that is elsewhere."""

    def __init__(self):
        self.parameter = nn.Parameter(torch.empty(4, 4, device="meta"))

    def index(self):
        return 0

    def is_last(self):
        return True

    def buffer(self):
        return torch.empty(16, device="meta")

    def parameters(self):
        return [self.parameter]

    def gradients(self):
        return [self.buffer().view(4, 4)]


def elsewhere(rank, world):
    """Gradients of another device."""
    bucket = Bucket()
    module = nn.Module()
    module.parameter = bucket.parameter
    hook(State("topk@0.1", model=module), bucket).wait()


def join(rank, world, recipe):
    """Ranks with unlike numbers of batches."""
    ddp = make_ddp(rank, "mlp", bucket_cap_mb=0.001)
    state = State(recipe)
    ddp.register_comm_hook(state, hook)
    with ddp.join():
        for step in range(3 + 2 * rank):
            ddp.zero_grad()
            loss_of(ddp, step, rank).backward()
            with torch.no_grad():
                for p in ddp.parameters():
                    p -= 0.1 * p.grad
    return {"digest": digest(weights_of(ddp)), "steps": state.step}


def no_effect(rank, world):
    module = make_ddp(rank, "mlp")
    module.register_comm_hook(State("ef+topk@0.1", dense_below=10**9), hook)
    loss_of(module, 0, rank).backward()


def facts(rank, world):
    writer = Writer()
    module = make_ddp(rank, "conv")
    state = State("adacomp", writer=writer, rules={"7.*": "fp16"})
    module.register_comm_hook(state, hook)
    for step in range(3):
        loss_of(module, step, rank).backward()
    state.check()
    return {"stats": state.stats(), "summary": state.summary(), "written": writer,
            "kinds": {t[0]: t[2] for t in state._exchange.tensors}}


def kinds(rank, world):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.memory, self.norm = nn.Embedding(9, 4), nn.LSTM(4, 6), nn.LayerNorm(6)
            self.attention, self.out, self.free = nn.MultiheadAttention(6, 2), nn.Linear(6, 9), nn.Parameter(torch.zeros(2, 2))
            self.out.weight = nn.Parameter(torch.zeros(9, 6))
            self.tied = self.out
    from tersegrad._torch_model import describe
    return dict(describe(Net()).values())


# ---- the loop ----------------------------------------------------------------------------------------------------------

def main():
    torch.set_num_threads(1)
    replies, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        order = json.loads(line)
        dist.init_process_group("gloo", init_method="file://" + order["file"], rank=order["rank"], world_size=order["world"])
        try:
            reply = globals()[order["job"]](order["rank"], order["world"], **order["arguments"])
        except Exception as error:
            reply = {"error": str(error), "type": type(error).__name__, "code": getattr(error, "code", None)}
        try:
            dist.destroy_process_group()
        except Exception:
            pass
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
