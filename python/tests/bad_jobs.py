"""Jobs that go wrong: ranks at odds with each other, ranks that are lost, gradients that cannot be exchanged."""

import datetime
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tersegrad.torch import Reducer, State, hook

import models
from models import Scaler, digest, fill, loss_of, make_ddp, make_model, outcome, weights_of


def disagree(rank, world, what):
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


def later(rank, world, what, bucket_cap_mb=25, group_len=1 << 20, timeout=None):
    """One rank is at odds with the others at the third step."""
    group = None if timeout is None else dist.new_group(timeout=datetime.timedelta(seconds=timeout))
    module = make_ddp(rank, "mlp", bucket_cap_mb=bucket_cap_mb)
    state = State("ef+topk@0.1", group_len=group_len, process_group=group)
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
            elif what == "death in the pass":  # the first gradient is the last one to be complete
                module.module[0].weight.register_hook(lambda _: os._exit(0))
            elif what == "stop in the pass":
                module.module[0].weight.register_hook(lambda _: time.sleep(2 * timeout))
        loss.backward()


class Broken(Exception):
    pass


def break_off(rank, world, recipe, broken, by, steps=5):
    """Backward raises on ranks `broken`, with buckets in flight. They settle that by the next pass or by state_dict, and repeat the
    step, as do those that fail because of them."""
    model = make_model("mlp")
    state = State(recipe, group_len=1000)

    def begin():
        ddp = models.wrap(model, 0.001)
        ddp.register_comm_hook(state, hook)
        return ddp

    def fail(_):
        if breaks:
            raise Broken

    ddp, step, breaks, raised = begin(), 0, False, []
    model[0].weight.register_hook(fail)
    while step < steps:
        ddp.zero_grad()
        breaks = step == 3 and rank in broken and not raised
        try:
            loss_of(ddp, step, rank).backward()
        except Exception as error:
            raised.append("broken" if isinstance(error, Broken) else str(error))
            if by == "state_dict":
                state.state_dict()
            ddp = None
            ddp = begin()
            continue
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
        step += 1
    return {"raised": raised, "digest": digest(weights_of(model)), "step": state.step}


def stop_in_step(rank, world):
    """A link that is given up: the others, who wait, learn of it at once, though the process lives on."""
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1")
    fill(model, 0, rank)
    reducer.reduce()
    if rank == 1:
        reducer._link._abort(None, b"enough")
    fill(model, 1, rank)
    reducer.reduce()


def stall(rank, world):
    """One rank takes longer than the process group's timeout allows."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1", process_group=group)
    for step in range(2):
        fill(model, step, rank)
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
    fill(model, 0, rank)
    reducer.reduce()
    if rank == 1:
        model.half()
    fill(model, 1, rank)
    reducer.reduce()


class Bucket:
    """As DistributedDataParallel would hand it to the hook."""

    def __init__(self, parameters, index=0, is_last=True):
        self._parameters, self._index, self._is_last = parameters, index, is_last
        self._buffer = torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters])

    def index(self):
        return self._index

    def is_last(self):
        return self._is_last

    def buffer(self):
        return self._buffer

    def parameters(self):
        return list(self._parameters)

    def gradients(self):
        parts = self._buffer.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters)]


def elsewhere(rank, world):
    """Gradients of another device."""
    module = nn.Module()
    module.parameter = nn.Parameter(torch.empty(4, 4, device="meta"))
    hook(State("topk@0.1", model=module), Bucket([module.parameter])).wait()


def odd_buckets(rank, world, what, group_len, steps=5):
    """Buckets as DistributedDataParallel never has them, on rank 1 in the fourth step; in order "other", in all of its steps."""
    model = make_model("mlp")
    state = State("ef+topk@0.1", model=model, group_len=group_len)
    raised, averages = [], []
    while state.step < steps:
        fill(model, state.step, rank)
        parts = [list(reversed(list(layer.parameters()))) for layer in (model[4], model[2], model[0])]
        bad = rank == 1 and state.step == 3 and not raised
        if bad and what == "twice":
            parts[2].append(parts[0][0])
        elif bad and what == "twice in place of another":
            parts[2][0] = parts[0][0]
        elif bad and what == "never":
            parts[2].pop()
        elif rank == 1 and what == "order":
            parts = [parts[1], parts[2], parts[0]] if state.step < 3 else [parts[2], parts[0] + parts[1]]
        buckets = [Bucket(part, i, i == len(parts) - 1) for i, part in enumerate(parts)]
        before = [bucket.buffer().clone() for bucket in buckets]
        try:
            for future in [hook(state, bucket) for bucket in buckets]:
                future.wait()
        except RuntimeError:
            raised.append(str(state._error))
            if not all(torch.equal(bucket.buffer(), own) for bucket, own in zip(buckets, before)):
                raised.append("gradients were changed")
            continue
        got = {id(p): g for bucket in buckets for p, g in zip(bucket.parameters(), bucket.gradients())}
        averages.append(torch.cat([got[id(p)].flatten() for p in model.parameters()]))
    return {"raised": raised, "digest": digest(torch.cat(averages))}


def no_effect(rank, world):
    module = make_ddp(rank, "mlp")
    module.register_comm_hook(State("ef+topk@0.1", dense_below=10**9), hook)
    loss_of(module, 0, rank).backward()


def retry(rank, world, by_hook, model="mlp", scale=1.0):
    """After a change to a recipe without feedback, a step fails because of rank 1 and is repeated. Returns whether the failure
    left the gradients of this rank alone, and what the averages then lack of everything that went in."""
    options = {"scaler": Scaler(scale), "nonfinite": "error"}
    own, buffers = {}, []
    if by_hook:
        ddp = make_ddp(rank, model, bucket_cap_mb=0.001)
        state, plain = State("ef+topk@0.1", **options), ddp.module

        def spy(state, bucket):
            own.update({p: g.clone().as_strided(p.shape, p.stride()) for p, g in zip(bucket.parameters(), bucket.gradients())})
            buffers.append((bucket.buffer(), bucket.buffer().clone()))
            return hook(state, bucket)
        ddp.register_comm_hook(state, spy)
    else:
        plain = make_model(model)
        state = Reducer(plain, "ef+topk@0.1", **options)

    def step(at, bad=False):
        plain.zero_grad()
        buffers.clear()
        if by_hook:
            (loss_of(ddp, at, rank) * scale * (float("nan") if bad else 1)).backward()
            return
        fill(plain, at, rank)
        for p in plain.parameters():
            p.grad *= scale * (float("nan") if bad else 1)
            own[p] = p.grad.clone()
        buffers.extend((p.grad, p.grad.clone()) for p in plain.parameters())
        state.reduce()

    def lacking():
        out = []
        for p in plain.parameters():
            mean = own[p].contiguous()
            dist.all_reduce(mean)
            out.append((mean / world - p.grad).flatten() / scale)
        return torch.cat(out)

    lacks = 0
    for at in range(3):
        step(at)
        lacks = lacks + lacking()
    before = float(lacks.abs().max())
    owed = torch.cat([state.residual()[name].flatten() for name, _ in plain.named_parameters()])
    dist.all_reduce(owed)
    unexplained = float((lacks - owed / world).abs().max())
    residuals = {name: residual.clone() for name, residual in state.residual().items()}
    state.set_recipe("fp32")
    failed = 0
    for _ in range(2):
        try:
            step(3, bad=rank == 1)
        except RuntimeError:
            failed += 1
        same = all(torch.equal(now.nan_to_num(7.0), then.nan_to_num(7.0)) for now, then in buffers)
        same = same and all(torch.equal(residuals[name], now) for name, now in state.residual().items())
    step(3)
    lacks = lacks + lacking()
    return {"failed": failed, "same": same, "before": before, "unexplained": unexplained, "after": float(lacks.abs().max())}


def no_gradient(rank, world):
    """A step that fails leaves .grad None where it was."""
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1")
    fill(model, 0, rank)
    model[0].bias.grad = None
    if rank == 1:
        model[0].weight.grad[0, 0] = float("nan")
    try:
        reducer.reduce()
    except RuntimeError:
        return {"failed": True, "none": model[0].bias.grad is None}
    return {"failed": False}


def two_models(rank, world, together, other, bucket_cap_mb):
    """One State for two models: each in a pass of its own, or both in one."""
    first, second = (make_ddp(rank, name, bucket_cap_mb=bucket_cap_mb) for name in ("mlp", other))
    state = State("ef+topk@0.1")
    first.register_comm_hook(state, hook)
    second.register_comm_hook(state, hook)
    try:
        if together:
            (loss_of(first, 0, rank) + loss_of(second, 0, rank)).backward()
        else:
            loss_of(first, 0, rank).backward()
            loss_of(second, 0, rank).backward()
    finally:
        state.check()


def misuse(rank, world, what, group_len, timeout=None):
    """Gradients that a Reducer sends while others are computed, and what one rank must not do meanwhile. The step that fails is
    repeated; returns what was raised, whether it changed anything, and the weights."""
    group = None if timeout is None else dist.new_group(timeout=datetime.timedelta(seconds=timeout))
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1", group_len=group_len, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step, raised, same, breaks = 0, [], True, False

    def fail(gradient):
        if breaks:
            if what == "death":
                os._exit(0)
            if what == "stop":
                time.sleep(2 * timeout)
            raise Broken
    model[0].weight.register_hook(fail)
    while step < 5:
        model.zero_grad()
        bad = step == 3 and rank == 1 and not raised
        breaks = bad and what in ("death", "stop", "broken off")
        loss = loss_of(model, step, rank)
        try:
            if bad and what == "nan":
                loss = loss * float("nan")
            loss.backward()
            if bad and what == "twice":
                loss_of(model, step, rank).backward()
            elif bad and what == "changed":
                model[4].weight.grad.mul_(2)
            elif bad and what == "replaced":
                model[4].weight.grad = torch.ones_like(model[4].weight)
            elif bad and what == "none":
                model[4].weight.grad = None
        except Broken:
            raised.append("broken")
            reducer.discard()
            continue
        own = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        try:
            reducer.reduce()
        except Exception as error:
            if reducer._link.failed is not None:
                raise
            raised.append(str(error))
            after = [p.grad for p in model.parameters() if p.grad is not None]
            same = same and all(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)) for a, b in zip(own, after))
            continue
        optimizer.step()
        step += 1
    return {"raised": raised, "same": same, "digest": digest(weights_of(model)), "step": reducer.step}


# ---- gradients on a GPU, or where one is emulated (tests/cuda/test_hook_cuda.py) ------------------------------------------------


def nan_later(rank, world):
    """A NaN on one rank, in the second step."""
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1", group_len=1)
    fill(model, 0, rank)
    reducer.reduce()
    fill(model, 1, rank)
    if rank == 1:
        model[2].weight.grad[3, 4] = float("nan")
    out = outcome(reducer, model)
    fill(model, 1, rank)
    reducer.reduce()
    return out


def nan_in_views(rank, world, view):
    """A NaN on one rank in a backward pass, with gradients that are views of buckets or not; the pass is then repeated."""
    ddp = make_ddp(rank, "mlp", bucket_cap_mb=0.001, gradient_as_bucket_view=view)
    state = State("ef+topk@0.1", group_len=1)
    ddp.register_comm_hook(state, hook)
    raised = ""
    for step in (0, 1, 2, 2, 3):
        ddp.zero_grad()
        is_bad = step == 2 and not raised
        broken = ddp.module[0].weight.register_hook(lambda gradient: gradient * float("nan")) if is_bad and rank == 1 else None
        try:
            loss_of(ddp, step, rank).backward()
        except RuntimeError as error:
            raised = str(error)
            continue
        finally:
            if broken is not None:
                broken.remove()
        with torch.no_grad():
            for p in ddp.parameters():
                p -= 0.1 * p.grad
    return {"raised": raised, "digest": digest(weights_of(ddp)), "step": state.step}


def broken_end(rank, world):
    """An exception after the last bucket was there, before the backward pass has ended."""
    ddp = make_ddp(rank, "mlp", bucket_cap_mb=0.001, gradient_as_bucket_view=True)
    state = State("ef+topk@0.1", group_len=1)
    ddp.register_comm_hook(state, hook)
    for step in range(2):
        loss_of(ddp, step, rank).backward()

    def fail():
        raise RuntimeError("broken on purpose")
    ddp.module[-1].weight.register_hook(lambda gradient: torch.autograd.Variable._execution_engine.queue_callback(fail))
    try:
        loss_of(ddp, 2, rank).backward()
    except RuntimeError as error:
        return {"raised": str(error), "step": state.state_dict()["step"]}
    return {"raised": "", "step": state.step}
