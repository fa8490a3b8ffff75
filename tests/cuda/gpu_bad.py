"""The part of gpu_torch.py in which things go wrong, on two ranks: every rank gets an exception with the reason, soon, and none hangs."""

import datetime
import gc
import os
import re
import time
from unittest import mock

SOON = 15     # seconds in which every rank must have its exception
TIMEOUT = 12  # of the process group, which only a rank that says nothing takes


def parameters_of(r, device=None, dtype=None):
    torch = r.torch
    return [torch.nn.Parameter(torch.zeros(shape, device=device or r.device, dtype=dtype)) for shape in ((300, 257), (300,), (1000, 300))]


def fill(r, parameters, step):
    draw = r.torch.Generator().manual_seed(100 * step + r.rank)
    for p in parameters:
        p.grad = r.torch.randn(p.shape, generator=draw).to(p.device, p.dtype)


def reducer_of(r, group, parameters, recipe="ef+topk@0.05", **options):
    from tersegrad.torch import Reducer
    return Reducer(parameters, recipe, process_group=group, group_len=200_000, overlap=False, **options)


def steps(r, reducer, parameters, n, before=lambda step: None):
    for step in range(n):
        fill(r, parameters, step)
        before(step)
        reducer.reduce()


def sparse(r, group):
    from torch.nn.parallel import DistributedDataParallel
    from tersegrad.torch import State, hook
    torch = r.torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.extra = torch.nn.Linear(20, 5), torch.nn.Embedding(5, 5, sparse=True)

        def forward(self, x):
            return self.layer(x) + self.extra(torch.arange(5, device=x.device)).sum(0)
    ddp = DistributedDataParallel(Net().to(r.device), process_group=group)
    ddp.register_comm_hook(State("ef+topk@0.1", process_group=group), hook)
    ddp(torch.ones(4, 20, device=r.device)).sum().backward()


def complex_numbers(r, group):
    parameters = parameters_of(r, dtype=r.torch.complex64)
    steps(r, reducer_of(r, group, parameters), parameters, 1)


def other_recipe(r, group):
    parameters = parameters_of(r)
    steps(r, reducer_of(r, group, parameters, "ef+topk@0.05" if r.rank == 0 else "adacomp"), parameters, 1)


def other_recipe_later(r, group):
    parameters = parameters_of(r)
    reducer = reducer_of(r, group, parameters)
    steps(r, reducer, parameters, 3, lambda step: reducer.set_recipe("adacomp") if (step, r.rank) == (2, 1) else None)


def not_finite(r, group):
    """In the second step, which leaves all gradients as they were; the same step then succeeds."""
    torch, parameters = r.torch, parameters_of(r)
    reducer = reducer_of(r, group, parameters)
    steps(r, reducer, parameters, 1)
    fill(r, parameters, 1)
    if r.rank == 1:
        parameters[2].grad[7, 7] = float("nan")
    before = [p.grad.clone() for p in parameters]
    try:
        reducer.reduce()
    except Exception as error:
        assert all(torch.equal(p.grad.nan_to_num(), b.nan_to_num()) for p, b in zip(parameters, before)), "gradients were changed"
        fill(r, parameters, 1)
        reducer.reduce()
        raise error


def device_changes(r, group):
    parameters = parameters_of(r)
    reducer = reducer_of(r, group, parameters)

    def move(step):
        if (step, r.rank) == (1, 1):
            for p in parameters:
                p.grad = None
                p.data = p.data.cpu()
                p.grad = r.torch.ones(p.shape)
    steps(r, reducer, parameters, 2, move)


def cpu_build(r, group):
    """On one rank the library has no kernels."""
    parameters = parameters_of(r)
    with mock.patch("tersegrad._torch_device.has_cuda", r.rank != 1):
        steps(r, reducer_of(r, group, parameters), parameters, 1)


def mixed(r, group):
    """One rank computes on its CPU."""
    parameters = parameters_of(r, "cpu" if r.rank == 1 else None)
    steps(r, reducer_of(r, group, parameters), parameters, 1)


def broken_send(r, group):
    """A call of NCCL fails in the middle of the second step."""
    from tersegrad import _torch_wire
    parameters = parameters_of(r)
    reducer = reducer_of(r, group, parameters)
    steps(r, reducer, parameters, 1)
    real, calls = _torch_wire.dist.batch_isend_irecv, []

    def send(operations):
        calls.append(1)
        if r.rank == 1 and len(calls) == 2:
            raise RuntimeError("broken on purpose")
        return real(operations)
    with mock.patch.object(_torch_wire.dist, "batch_isend_irecv", send):
        steps(r, reducer, parameters, 1)


def stalled(r, group):
    """A rank that comes late, by more than the timeout."""
    parameters = parameters_of(r)
    reducer = reducer_of(r, group, parameters)
    steps(r, reducer, parameters, 2, lambda step: time.sleep(TIMEOUT + 4) if (step, r.rank) == (1, 1) else None)


# (case, what every rank must say, seconds until it does, whether it needs a GPU)
CASES = ((not_finite, "NaN or Inf", SOON, False), (broken_send, "broken on purpose", SOON, True), (other_recipe_later, "recipe", SOON, False),
         (device_changes, "is on cpu", SOON, True), (mixed, "rank 1 has its gradients on 'cpu' and rank 0 on 'cuda'", SOON, True),
         (cpu_build, "CPUs alone", SOON, True), (sparse, "sparse", SOON, False), (complex_numbers, "complex64", SOON, False),
         (other_recipe, "recipe", SOON, False))
STALLED = ((stalled, "rank [01]", TIMEOUT + SOON, False),)


def bad(r):
    try_cases(r, CASES)


def stall(r):
    try_cases(r, STALLED)


def try_cases(r, cases):
    for case, pattern, limit, needs_gpu in cases:
        if needs_gpu and r.flags.cpu:
            continue
        if not r.goes_on(limit if case is stalled else SOON / 2):
            r.say(kind="bad", case=case.__name__, result="no time left")
            continue
        group = r.dist.new_group(backend="gloo" if r.flags.cpu else "cpu:gloo,cuda:nccl", timeout=datetime.timedelta(seconds=TIMEOUT))
        raised, begin = None, time.monotonic()
        try:
            case(r, group)
        except Exception as error:
            raised = f"{type(error).__name__}: {error}"
        told = [None] * r.world
        r.dist.all_gather_object(told, (raised, time.monotonic() - begin), group=r.gloo)
        late = max(seconds for _, seconds in told)
        is_well = late < limit and all(text and re.search(pattern, text) and "gradients were changed" not in text for text, _ in told)
        r.say(kind="bad", case=case.__name__, result="raised" if is_well else f"{told}", seconds=late, why=[text for text, _ in told])
        gc.collect()
    r.dist.barrier(group=r.gloo)
    os._exit(0)  # process groups that were given up are not waited for


def death(r):
    """The process of rank 1 ends in the middle of a backward pass; the other one learns of it."""
    from torch.nn.parallel import DistributedDataParallel
    from tersegrad.torch import State, hook
    torch = r.torch
    group = r.dist.new_group(backend="gloo" if r.flags.cpu else "cpu:gloo,cuda:nccl", timeout=datetime.timedelta(seconds=TIMEOUT))
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).to(r.device)
    ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.1)
    ddp.register_comm_hook(State("ef+topk@0.05", process_group=group, group_len=100_000), hook)
    raised, begin = None, time.monotonic()
    try:
        for step in range(3):
            if (step, r.rank) == (2, 1):
                model[0].weight.register_hook(lambda _: os._exit(0))
            ddp(torch.ones(4, 512, device=r.device)).sum().backward()
    except Exception as error:
        raised = f"{type(error).__name__}: {error}"
    seconds = time.monotonic() - begin
    is_well = raised is not None and re.search("rank", raised) is not None and seconds < TIMEOUT + SOON
    r.say(kind="bad", case="death", result="raised" if is_well else f"{raised}", seconds=seconds, why=[raised])
    os._exit(0)  # there is nobody to say goodbye to
