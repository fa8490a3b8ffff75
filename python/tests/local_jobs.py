"""What ranks do in tests of LocalSteps (worker.py)."""

import pathlib
import warnings

import torch
import torch.distributed as dist
from torch import nn

from tersegrad.torch import LocalSteps, Reducer

from models import digest, loss_of, make_model, weights_of


def _optimizer(kind, model):
    if kind == "two":
        parameters = list(model.parameters())
        return [torch.optim.SGD(parameters[:3], lr=0.1, momentum=0.9), torch.optim.AdamW(parameters[3:], lr=0.01)]
    return torch.optim.AdamW(model.parameters(), lr=0.01) if kind == "adamw" else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _train(local, model, rank, steps, first=0, accumulate=1, scheduler=None):
    for step in range(first, first + steps):
        local.zero_grad()
        for part in range(accumulate - 1):
            with local.accumulate():
                loss_of(model, 100 + accumulate * step + part, rank).backward()
                local.step()
        loss_of(model, step, rank).backward()
        local.step()
        if scheduler is not None:
            scheduler.step()


def local(rank, world, recipe, steps=8, model="mlp", optimizer="sgd", accumulate=1, scheduled=False, **options):
    """Trains; the digest of the weights of all ranks after synchronize(), and what was counted."""
    net = make_model(model)
    with torch.no_grad():  # weights differ until they are broadcast
        for p in net.parameters():
            p.add_(rank)
    opt = _optimizer(optimizer, net)
    steps_of = LocalSteps(net, opt, recipe, **options)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps) if scheduled else None
    _train(steps_of, net, rank, steps, accumulate=accumulate, scheduler=scheduler)
    before = digest(weights_of(net))
    steps_of.synchronize()
    stats = steps_of.stats()
    stats.pop("fragments")
    return {"before": before, "digest": digest(weights_of(net)), "stats": stats, "weights": weights_of(net).tolist(),
            "residual": sum(float(r.abs().sum()) for r in steps_of.residual().values()),
            "rate": opt[0].param_groups[0]["lr"] if isinstance(opt, list) else opt.param_groups[0]["lr"]}


def by_hand(rank, world, steps, every, rate, momentum):
    """The same with plain operations and the averages of a Reducer."""
    net = make_model("mlp")
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    shadow = [nn.Parameter(p.detach().clone()) for p in net.parameters()]
    reducer = Reducer(shadow, "dense", overlap=False)
    start = [p.detach().clone() for p in net.parameters()]
    velocity = [torch.zeros_like(p) for p in start]
    for step in range(steps):
        opt.zero_grad()
        loss_of(net, step, rank).backward()
        opt.step()
        if (step + 1) % every == 0:
            with torch.no_grad():
                for s, w, p in zip(shadow, start, net.parameters()):
                    s.grad = w - p
                reducer.reduce()
                for s, w, v, p in zip(shadow, start, velocity, net.parameters()):
                    v.copy_(v * momentum + s.grad)
                    w.copy_(w - (s.grad + v * momentum) * rate)
                    p.copy_(w)
    return {"digest": digest(weights_of(net)), "weights": weights_of(net).tolist()}


def overlapped_by_hand(rank, world, steps, every, fragments, mix):
    """Overlapped local steps over dense averages, by the picture in _torch_local.py."""
    net = make_model("mlp")
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    made = LocalSteps(net, opt, "dense", every=every, overlap=True, fragments=fragments, mix=mix)
    parts = [fragment.parameters for fragment in made.fragments]
    reducers, shadows = [], []
    for part in parts:
        shadows.append([nn.Parameter(p.detach().clone()) for p in part])
        reducers.append(Reducer(shadows[-1], "dense", overlap=False))
    start = [[p.detach().clone() for p in part] for part in parts]
    flying = None
    for step in range(steps):
        opt.zero_grad()
        loss_of(net, step, rank).backward()
        opt.step()
        done = step % every + 1
        for f in range(fragments):
            if -(-every * (f + 1) // fragments) == done:
                with torch.no_grad():
                    if flying is not None:
                        for w, average, p in zip(start[flying[0]], flying[1], parts[flying[0]]):
                            w.sub_(average)
                            p.copy_(p * mix + w * (1 - mix))
                    for s, w, p in zip(shadows[f], start[f], parts[f]):
                        s.grad = w - p
                    reducers[f].reduce()
                    flying = f, [s.grad.clone() for s in shadows[f]]
    return {"weights": weights_of(net).tolist()}


def overlapped(rank, world, steps, every, fragments, mix, recipe="dense"):
    net = make_model("mlp")
    steps_of = LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), recipe, every=every, overlap=True,
                          fragments=fragments, mix=mix)
    sent = []
    for step in range(steps):
        _train(steps_of, net, rank, 1, first=step)
        steps_of._land()
        sent.append(sum(f.stats()["total"]["sent"] for f in steps_of.fragments))
    weights = weights_of(net).tolist()
    steps_of.synchronize()
    return {"weights": weights, "digest": digest(weights_of(net)), "sent": sent, "parts": [len(f.parameters) for f in steps_of.fragments]}


def resumed(rank, world, folder, at, steps=11, recipe="ef+topk@0.1", optimizer="adamw", **options):
    """Straight through, and stopped after `at` steps and continued by new objects: the digests of both."""
    def make():
        net = make_model("mlp")
        opt = _optimizer(optimizer, net)
        return net, opt, LocalSteps(net, opt, recipe, **options)
    net, opt, steps_of = make()
    _train(steps_of, net, rank, steps)
    steps_of.synchronize()
    straight = digest(weights_of(net))
    net, opt, steps_of = make()
    _train(steps_of, net, rank, at)
    path = pathlib.Path(folder) / f"{rank}.pt"
    torch.save({"model": net.state_dict(), "optimizer": opt.state_dict(), "local": steps_of.state_dict()}, path)
    net, opt, steps_of = make()
    saved = torch.load(path, weights_only=False) if "weights_only" in torch.load.__code__.co_varnames else torch.load(path)
    net.load_state_dict(saved["model"])
    opt.load_state_dict(saved["optimizer"])
    steps_of.load_state_dict(saved["local"])
    _train(steps_of, net, rank, steps - at, first=at)
    steps_of.synchronize()
    return {"straight": straight, "resumed": digest(weights_of(net))}


def other_world(rank, world, folder, saves, every=4, **options):
    """Saves the states of all ranks, or continues with those of another number."""
    net = make_model("mlp")
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    steps_of = LocalSteps(net, opt, "ef+topk@0.1", every=every, **options)
    folder = pathlib.Path(folder)
    if saves:
        _train(steps_of, net, rank, saves)
        torch.save({"model": net.state_dict(), "local": steps_of.state_dict()}, folder / f"{rank}.pt")
        owed = torch.cat([r.flatten() for r in steps_of.residual().values()])
    else:
        options = {"weights_only": False} if "weights_only" in torch.load.__code__.co_varnames else {}
        saved = [torch.load(path, **options) for path in sorted(folder.glob("*.pt"))]
        net.load_state_dict(saved[0]["model"])
        steps_of.load_state_dict([each["local"] for each in saved])
        _train(steps_of, net, rank, 0)
        loss_of(net, 0, rank).backward()
        steps_of.step()
        owed = torch.zeros(1)
    mean = owed.clone()
    dist.all_reduce(mean)
    return {"steps": steps_of.steps, "owed": (mean / world).tolist()[:50]}


class Scaler:
    """As much of a GradScaler as is needed: skips a step whose gradients are not finite."""

    def scale(self, loss):
        return loss * 8

    def step(self, optimizer):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"]]
        for gradient in gradients:
            gradient.div_(8)
        if all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
            optimizer.step()

    def update(self):
        pass


def amp(rank, world, recipe="ef+topk@0.2"):
    """A scaler that skips a step on one rank: the step counts."""
    net = make_model("mlp")
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = Scaler()
    steps_of = LocalSteps(net, opt, recipe, every=3, scaler=scaler)
    for step in range(6):
        steps_of.zero_grad()
        scaler.scale(loss_of(net, step, rank)).backward()
        if step == 1 and rank == 0:
            next(net.parameters()).grad.fill_(float("inf"))
        steps_of.step()
        scaler.update()
    return {"digest": digest(weights_of(net)), "exchanges": steps_of.exchanges, "finite": bool(torch.isfinite(weights_of(net)).all())}


def buffers(rank, world, when, on_demand):
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    steps_of = LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), "dense", every=2, buffers=when)
    generator = torch.Generator().manual_seed(rank)
    for _ in range(4):
        steps_of.zero_grad()
        net(torch.randn(8, 4, generator=generator) + rank).square().mean().backward()
        steps_of.step()
    own = net[1].running_mean.clone()
    everyone = [torch.empty_like(own) for _ in range(world)]
    dist.all_gather(everyone, own)
    if on_demand:
        steps_of.average_buffers()
        steps_of.average_buffers()
    return {"mean": (sum(everyone) / world).tolist(), "got": net[1].running_mean.tolist(), "own": own.tolist(),
            "sent": steps_of.stats()["buffers"], "tracked": int(net[1].num_batches_tracked)}


def disagree_locally(rank, world, what):
    """Ranks that are set up differently, or wrongly on one rank; all must raise."""
    net = make_model("mlp")
    parameters = list(net.parameters())
    options = {"every": 4, "recipe": "ef+topk@0.1"}
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    mine = rank == 1
    changes = {"every": {"every": 8}, "outer": {"outer": "nesterov"}, "fragments": {"overlap": True, "fragments": 2}, "mix": {"overlap": True, "mix": 1.0},
               "zero": {"every": 0}, "backwards": {"every": "1,9:2,5:4"}, "momentum": {"recipe": "dgc@0.1"}}
    if mine and what in changes:
        options.update(changes[what])
    if mine and what == "foreign":
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(7))], lr=0.1)
    if mine and what == "missing":
        optimizer = torch.optim.SGD(parameters[:2], lr=0.1)
    LocalSteps(net, optimizer, options.pop("recipe"), **options)
    return {}


def lossy(rank, world, recipe):
    """The warnings of a recipe."""
    net = make_model("mlp")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        LocalSteps(net, torch.optim.SGD(net.parameters(), lr=0.1), recipe, every=2)
    return [str(each.message) for each in caught if "feedback" in str(each.message)]


def sharded(rank, world, recipe, steps=8, every=4, saves=None, wrapped=True):
    """Replicas of two ranks each that shard the model (FSDP), and LocalSteps between replicas."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replica", "shard"))
    net = make_model("mlp")
    replica = rank // 2
    if wrapped:
        fully_shard(net, mesh=mesh["shard"])
    opt = torch.optim.AdamW(net.parameters(), lr=0.01)
    steps_of = LocalSteps(net, opt, recipe, every=every, process_group=mesh["replica"].get_group())
    for step in range(steps):
        opt.zero_grad()
        loss_of(net, step, replica).backward()  # both ranks of a replica have its data
        steps_of.step()
    whole = torch.cat([(p.full_tensor() if wrapped else p).detach().flatten() for p in net.parameters()])
    return {"digest": digest(whole), "weights": whole.tolist(), "sent": steps_of.stats()["sent"]}
