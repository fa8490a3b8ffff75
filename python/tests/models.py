"""What jobs of tests have in common: models, data, gradients."""

import hashlib
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LGC = ("ef+topk@0.05,coords=shared+autoencoder@ring,dense=2,learn=2,enough=1e9,"
       "e1=4,e2=8,e3=8,e4=4,z=2,d1=4,d2=8,d3=8,d4=4")


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


def wrap(module, bucket_cap_mb=25, first_mb=None, **options):
    """In buckets of this size. (PyTorch's first bucket has a size of its own, in which all of our models would fit.) With `first_mb`, the
    first one is of that size, and others of 25 MB."""
    with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", int((bucket_cap_mb if first_mb is None else first_mb) * (1 << 20))):
        if first_mb is None:
            options["bucket_cap_mb"] = bucket_cap_mb
        return DistributedDataParallel(module, **options)


def make_ddp(rank, model, bucket_cap_mb=25, find_unused=False, **options):
    return wrap(make_model(model), bucket_cap_mb, find_unused_parameters=find_unused, **options)


def fill(model, step, rank, zero=False):
    generator = torch.Generator().manual_seed(77 * step + rank)
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if zero else torch.randn(p.shape, generator=generator).to(p.dtype)


def gradients_of(model):
    return torch.cat([p.grad.double().flatten() for p in model.parameters()])


def outcome(reducer, model):
    """What reduce() raises, and whether gradients are as before."""
    before = gradients_of(model)
    try:
        reducer.reduce()
        raised, code = None, None
    except Exception as error:
        raised, code = str(error), getattr(error, "code", None)
    after = gradients_of(model)
    return {"raised": raised, "code": code, "unchanged": bool(torch.equal(before.nan_to_num(7), after.nan_to_num(7)))}
