"""Jobs about gradients on GPUs, without one: transports that fail, ranks on different devices, and other jobs on a device that is emulated."""

import os
from unittest import mock

import torch
import torch.distributed as dist

from tersegrad.torch import Reducer

from models import fill, make_model, outcome


def break_wire(rank, world):
    """The transport of device memory fails on one rank in the middle of the second step."""
    from tersegrad import _torch_wire
    model = make_model("mlp")
    reducer = Reducer(model, "ef+topk@0.1", group_len=1)
    fill(model, 0, rank)
    reducer.reduce()
    real, calls = _torch_wire.dist.batch_isend_irecv, []

    def send(operations):
        calls.append(1)
        if rank == 1 and len(calls) == 2:
            raise RuntimeError("broken on purpose\nand more")
        return real(operations)
    fill(model, 1, rank)
    with mock.patch.object(_torch_wire.dist, "batch_isend_irecv", send):
        return outcome(reducer, model)


def mixed_devices(rank, world):
    """One rank whose gradients are on a GPU; there is none here, so it only says so."""
    class Gpu(Reducer):
        def _start(self, gradients, trouble):
            class Gradient:
                device = torch.device("cuda:0")
            super()._start({0: Gradient()} if rank == 1 else gradients, trouble)
    model = make_model("mlp")
    fill(model, 0, rank)
    return outcome(Gpu(model, "adacomp"), model)


def device_changes(rank, world):
    """Gradients that move to another device after the first step, on one rank."""
    model = make_model("mlp")
    reducer = Reducer(model, "adacomp", overlap=False)
    fill(model, 0, rank)
    reducer.reduce()
    if rank == 1:
        reducer._of = torch.device("cuda:1")  # where the first step was said to be
    return outcome(reducer, model)


def cpu_build(rank, world):
    """On one rank the package was built for CPUs alone."""
    model = make_model("mlp")
    fill(model, 0, rank)
    with mock.patch("tersegrad._torch_device.has_cuda", rank != 1):
        return outcome(Reducer(model, "adacomp"), model)


def second_wire(rank, world):
    """Two that would send over one communicator, which needs one order of all operations."""
    from tersegrad._torch_device import Device
    from tersegrad._torch_wire import GroupWire
    class Owner:
        pass
    group, device, owners = dist.new_group(backend="gloo"), Device(torch.device("cpu")), [Owner(), Owner()]
    GroupWire(group, device, owners[0])
    try:
        GroupWire(group, device, owners[1])
        refused = None
    except Exception as error:
        refused = str(error)
    owners.pop(0)
    GroupWire(group, device, owners[0])  # the first one is gone
    return refused


def emulate(rank, world, how, what, arguments):
    """Another job, with gradients on the CPU that count as on a GPU."""
    import bad_jobs
    import jobs
    import local_jobs
    with mock.patch.dict(os.environ, {"TG_EMULATED_TORCH": how}):
        return {**vars(local_jobs), **vars(jobs), **vars(bad_jobs), **globals()}[what](rank, world, **arguments)
