"""What ranks do in tests (worker.py): each function is one job, run by every rank of a world."""

import contextlib
import io
import os
import random
import threading
import time
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import tersegrad
from tersegrad._torch_link import TorchLink
from tersegrad._torch_mail import Mail
from tersegrad.torch import Reducer, State, hook

from models import LGC, Scaler, Writer, digest, fill, gradients_of, loss_of, make_ddp, make_model, weights_of, wrap


def copying_hook(state, bucket):
    """A hook around the hook, which uses its futures as soon as it may."""
    return hook(state, bucket).then(lambda done: done.value().clone())


def train(rank, world, recipe, steps=6, model="mlp", accumulate=1, give_model=False, options=None, compiled=False, wrapped=False, **ddp_options):
    """Trains by a recipe, or by None as PyTorch does it; returns the weights."""
    ddp = make_ddp(rank, model, **ddp_options)
    state = None
    if recipe is not None:
        state = State(recipe, model=ddp if give_model else None, **(options or {}))
        ddp.register_comm_hook(state, copying_hook if wrapped else hook)
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
            "summary": None if state is None else state.summary(),
            "sent": None if state is None else state._link.struct.sent_len,
            "buckets": None if state is None else len(state._layouts),
            "groups": None if state is None or state._exchange is None else state._exchange.group_n}


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


def plain(rank, world, recipe, steps=5, model="mlp", accumulate=1, **options):
    """Trains without DistributedDataParallel; also returns how many groups were under way before reduce()."""
    model = make_model(model)
    reducer = Reducer(model, recipe, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    early = 0
    for step in range(steps):
        model.zero_grad(set_to_none=step % 2 == 0)
        for part in range(accumulate - 1):
            with reducer.no_sync():
                loss_of(model, 100 + accumulate * step + part, rank).backward()
        loss_of(model, step, rank).backward()
        early += reducer._now.arrivals.reported_n if reducer._now.is_begun else 0
        reducer.reduce()
        optimizer.step()
    return {"digest": digest(weights_of(model)), "early": early, "groups": reducer._exchange.group_n, "weights": weights_of(model).tolist(),
            "stats": reducer.stats()}


def hosts(rank, world, recipe, hosts, fold=1, nodes=None, folder=None, load=None, steps=4):
    """Gradients of world * fold ranks, of which this one has the mean of `fold`; returns averages and bytes. `nodes` is the node of each rank
    by torchrun. Goes on from the states of `load` old ranks, and saves its own."""
    model = make_model("mlp")
    named = {} if nodes is None else {"GROUP_RANK": str(nodes[rank]), "LOCAL_WORLD_SIZE": "1"}
    with mock.patch.dict(os.environ, named):
        reducer = Reducer(model, recipe, hosts=hosts, group_len=3000, verify_every=2)
        if load is not None:
            states = [torch.load(f"{folder}/{r}") for r in range(load)]
            reducer.load_state_dict(states)
        out = []
        for step in range(reducer.step, reducer.step + steps):
            parts = []
            for r in range(fold * rank, fold * rank + fold):
                fill(model, step, r, zero=load is not None)
                parts.append([p.grad for p in model.parameters()])
            for p, *own in zip(model.parameters(), *parts):
                p.grad = sum(own[1:], own[0].clone()) / fold
            reducer.reduce()
            out.append(gradients_of(model))
    if folder is not None and load is None:
        torch.save(reducer.state_dict(), f"{folder}/{rank}")
    residual = torch.cat([r.flatten() for r in reducer.residual().values()])
    return {"digest": digest(torch.cat(out)), "total": reducer.stats()["total"], "size": reducer._options["host_size"], "sum": sum(out).tolist(),
            "residual": residual.tolist(), "summary": reducer.summary()}


def host_options(rank, world):
    """The sentences about hosts that cannot be."""
    out = []
    for wrong in (lambda: Reducer(make_model("mlp"), "fp16", hosts=0), lambda: State("fp16", hosts="some"),
                  lambda: State("fp16", hosts=True), lambda: reduce_once(rank, "fp16", hosts=world - 1),
                  lambda: reduce_once(rank, "fp16", hosts=rank + 1), lambda: reduce_once(rank, LGC, hosts=world)):
        try:
            wrong()
            out.append(None)
        except tersegrad.Error as error:
            out.append(str(error))
    return out


def hosts_alone(rank, world):
    """The state of one rank, of other hosts."""
    model = make_model("mlp")
    saving, loading = (Reducer(model, "ef+topk@0.1", hosts=hosts) for hosts in (2, "flat"))
    fill(model, 0, rank)
    saving.reduce()
    try:
        loading.load_state_dict(saving.state_dict())
        return None
    except tersegrad.Error as error:
        return str(error)


def reduce_once(rank, recipe, **options):
    model = make_model("mlp")
    reducer = Reducer(model, recipe, **options)
    fill(model, 0, rank)
    reducer.reduce()


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
    skipped, kept = [], True
    for step, scale in enumerate(scales):
        scaler.scale = scale
        before = state.residual()
        ddp.zero_grad()
        loss = loss_of(ddp, step, rank) * scale
        if step == inf_at and rank == 0:
            loss = loss * float("inf")
        loss.backward()
        gradients = torch.cat([p.grad.flatten() for p in ddp.parameters()])
        if not torch.isfinite(gradients).all():
            skipped.append(step)
            kept = kept and all(torch.equal(before[name], residual) for name, residual in state.residual().items())
            continue
        with torch.no_grad():
            for p in ddp.parameters():
                p -= 0.1 * p.grad / scale
    finite = all(bool(torch.isfinite(r).all()) for r in state.residual().values())
    return {"digest": digest(weights_of(ddp)), "skipped": skipped, "finite": finite, "kept": kept, "counted": state.skipped}


def many_groups(rank, world, recipe, options, steps):
    """Twelve layers, each in groups of its own, that ranks finish at a pace of their own."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(40, 40) for _ in range(12)))
    pace = random.Random(rank)
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: time.sleep(pace.choice((0, 0, 0.0005, 0.003))))
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.001)
    state = State(recipe, group_len=1, **options)
    ddp.register_comm_hook(state, hook)
    for step in range(steps):
        ddp.zero_grad()
        ddp(torch.randn(4, 40, generator=torch.Generator().manual_seed(1000 * step + rank))).square().mean().backward()
    return {"digest": digest(gradients_of(ddp)), "groups": state._exchange.group_n}


class Chain(nn.Module):
    """Eight layers; the fourth is used twice, in passes within the pass, if it is said so."""

    def __init__(self, uses_twice):
        super().__init__()
        self.layers, self.uses_twice = nn.ModuleList(nn.Linear(40, 40) for _ in range(8)), uses_twice

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            for _ in range(2 if self.uses_twice and i == 3 else 1):
                x = checkpoint(layer, x, use_reentrant=True) if self.uses_twice and i == 3 else layer(x)
        return x


def early(rank, world, group_len, how, fails_at=None, steps=6):
    """One bucket with the last layer, and one with all others. Returns how many gradients of the latter were taken before it was complete, and
    what was raised. In step `fails_at` rank 1 adds to one of those once more."""
    torch.manual_seed(1)
    ddp = wrap(Chain(how == "twice"), first_mb=0.001, gradient_as_bucket_view=how != "copies", static_graph=how == "twice")
    state, counts, raised, averages = State("ef+topk@0.1", group_len=group_len), [], [], []
    state._early_share = 1.0 if how == "fast" else 0.0

    def spy(state, bucket):
        if bucket.is_last() and state._pass is not None:
            counts.append(state._pass.taken.count(1))
            if rank == 1 and state.step == fails_at and not raised:
                state._note_added(state._groups.numbers[id(ddp.module.layers[5].weight)])
        return hook(state, bucket)
    spy.__annotations__ = hook.__annotations__
    ddp.register_comm_hook(state, spy)
    while state.step < steps:
        ddp.zero_grad(set_to_none=how != "kept")
        xs = [torch.randn(4, 40, generator=torch.Generator().manual_seed(100 * state.step + 10 * part + rank)) for part in range(2)]
        if how == "accumulated":
            with ddp.no_sync():
                ddp(xs[1]).square().mean().backward()
        try:
            ddp(xs[0].requires_grad_()).square().mean().backward()
            averages.append(gradients_of(ddp))
        except RuntimeError:
            raised.append(str(state._error))
    return {"digest": digest(torch.cat(averages)), "early": counts, "raised": raised, "buckets": len(state._layouts),
            "watches": state._watch is not None}


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
        state = State(recipe, group_len=1000)
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


def save_world(rank, world, recipe, folder, steps=3, last=None):
    """Some steps, and a state; returns what is still owed: what went in, less what came out."""
    model = make_model("mlp")
    reducer = Reducer(model, recipe)
    owed = 0
    for step in range(steps):
        fill(model, step, rank)
        own = gradients_of(model)
        dist.all_reduce(own)
        reducer.reduce()
        owed = owed + own / world - gradients_of(model)
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
        fill(model, 0, rank, zero=True)
        reducer.reduce()
        out = out + gradients_of(model)
        reducer.set_recipe("dense")
    return {"out": out.tolist(), "step": reducer.step}


def refuse_states(rank, world):
    """The sentences about states that do not fit."""
    out = []
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1")
    fill(model, 0, rank)
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
        fill(model, step, rank, zero=step == len(recipes))
        own = gradients_of(model)
        dist.all_reduce(own)
        reducer.reduce()
        owed = owed + own / world - gradients_of(model)
        seen.append(reducer.stats()["exchange"])
    return {"owed": float(owed.abs().max()), "seen": seen, "steps": reducer.stats()["total"]["steps"]}


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


def hidden(rank, world):
    """A model that is found though no variable has it."""
    nested = [[make_ddp(rank, "mlp")]]
    state = State("fp16")
    nested[0][0].register_comm_hook(state, hook)
    loss_of(nested[0][0], 0, rank).backward()
    return list(state.stats()["tensors"])


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


def exchange_mail(rank, world, lengths, buffers_len, turn_len=None):
    """Messages of all lengths from everyone to everyone, by two users of a process group in turn; returns those that were wrong, the bytes of
    buffers, and how many receives were found posted. From the fifth message on, those above `turn_len` travel both ways at once."""
    def pattern(at, sender, receiver):
        return bytearray(f"{at} {sender} {receiver} ".encode() * lengths[at])[:lengths[at]]
    wrong, found = [], 0
    mails = [Mail(dist.group.WORLD), Mail(dist.group.WORLD)]
    with mock.patch("tersegrad._torch_mail._BUFFERS_LEN", buffers_len):
        for at in range(len(lengths)):
            if at == 4 and turn_len is not None:
                for mail in mails:
                    mail.turn_len = turn_len
            heard = [bytearray(lengths[at]) for _ in range(world)]
            others = [p for p in range(world) if p != rank]
            before = sum(map(len, mails[0]._buffers.posted.values()))
            works = [work for p in others for work in mails[at % 2].exchange(pattern(at, rank, p), heard[p], p, 64)]
            found += before - sum(map(len, mails[0]._buffers.posted.values()))
            for work in works:
                work.wait()
            wrong += [(at, p) for p in others if heard[p] != pattern(at, p, rank)]
    return {"wrong": wrong, "buffers": mails[0]._buffers.len, "found": found}


def measure_link(rank, world):
    """What a link knows of its rate, before and after it was measured, and when a message takes 5 ms."""
    link = TorchLink(dist.group.WORLD)
    known = [link._mail.turn_len]
    link.measure()
    known.append(link._mail.turn_len)
    link._mail.know_rate(0.005, 1 << 16)
    return {"known": [*known, link._mail.turn_len]}


def advise(rank, world):
    """What State(advise=True) prints in 40 steps."""
    ddp = make_ddp(rank, "mlp")
    ddp.register_comm_hook(State("dense", advise=True), hook)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        for step in range(40):
            loss_of(ddp, step, rank).backward()
        for thread in threading.enumerate():
            if thread.name == "tersegrad-advice":
                thread.join()
    return {"lines": [line for line in printed.getvalue().splitlines() if line.startswith("tersegrad: ")]}
