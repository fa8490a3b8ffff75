"""Process groups: which one carries votes and lengths in host memory, and which one messages in device memory."""

from __future__ import annotations

import datetime
import time
from typing import Any, Optional

import torch
import torch.distributed as dist

from ._library import Error

_TIMEOUT = datetime.timedelta(minutes=10)


def is_ready() -> bool:
    """Whether there is a process group."""
    return bool(dist.is_available() and dist.is_initialized())


def member_of(group: Any) -> Any:
    """The process group to use, of whatever backend; raises Error if there is none, or this process is not in it."""
    if not is_ready():
        raise Error("torch.distributed has no process group yet; call torch.distributed.init_process_group first")
    group = dist.group.WORLD if group is None else group
    try:
        member = dist.get_rank(group) >= 0
    except (RuntimeError, ValueError):
        member = False
    if not member:
        raise Error("this process is not in the process group that was given")
    return group


def backend_of(group: Any, kind: str) -> str:
    """The backend for tensors of a kind of device, such as "gloo"; "" if there is none."""
    if hasattr(group, "_get_backend"):  # one for each kind of device, from PyTorch 2.0 on
        try:
            return str(group._get_backend(torch.device(kind)).name()).lower()
        except RuntimeError:
            return ""
    name = str(dist.get_backend(group)).lower()
    return "" if name == "nccl" and kind == "cpu" else name


def check_group(group: Any) -> Any:
    """The process group to use, which must carry bytes in host memory; raises Error if it does not."""
    group = member_of(group)
    if backend_of(group, "cpu") != "gloo":
        raise Error(f"the process group is of backend '{dist.get_backend(group)}', and this needs gloo; give one that is: "
                    "process_group=torch.distributed.new_group(backend='gloo')")
    return group


def control_group(group: Any) -> Any:
    """The process group for votes and lengths: this one if it has gloo for the CPU. For one of NCCL alone a group over gloo is made, by all
    ranks."""
    if backend_of(group, "cpu") == "gloo":
        return group
    if dist.get_backend(group) != "nccl":
        raise Error(f"the process group is of backend '{dist.get_backend(group)}', and gradients are exchanged over gloo and NCCL; give "
                    "one that is: State(..., process_group=torch.distributed.new_group(backend='gloo'))")
    if group is not dist.group.WORLD:
        raise Error("the process group is of NCCL alone and has not all ranks, so that no group over gloo for votes can be made beside it; "
                    "give one that has both: torch.distributed.new_group(ranks, backend='cpu:gloo,cuda:nccl')")
    return dist.new_group(backend="gloo")


def beside(group: Any) -> Any:
    """The process group for votes and lengths, as control_group, but of this group's ranks alone, who call it."""
    if backend_of(group, "cpu") == "gloo" or dist.get_backend(group) != "nccl":
        return check_group(group)
    return dist.new_group(dist.get_process_group_ranks(group), backend="gloo", use_local_synchronization=True)


def timeout_of(group: Any, kind: str) -> datetime.timedelta:
    """The timeout of a group's operations."""
    try:
        timeout: Optional[datetime.timedelta] = group._get_backend(torch.device(kind)).options._timeout
    except (AttributeError, RuntimeError):
        timeout = None
    return timeout or _TIMEOUT


class Board:
    """Where a rank that gives up says why, in the store of torch.distributed: for others that have nothing under way over gloo to learn it by.
    `name` is the same on all ranks."""

    _EVERY = 0.25  # seconds between looks

    def __init__(self, name: str) -> None:
        self._store: Any = dist.distributed_c10d._get_default_store()
        self._key = f"tersegrad/{name}"
        self._looked = 0.0

    def write(self, why: str) -> None:
        try:
            self._store.set(self._key, why)
        except Exception:  # the store is gone, too
            pass

    def read(self, at_once: bool = False) -> Optional[str]:
        """What another rank has written; unless `at_once`, at most four times a second."""
        now = time.monotonic()
        if (now < self._looked + self._EVERY and not at_once) or not hasattr(self._store, "check"):  # which PyTorch 1.13 has not
            return None
        self._looked = now
        return str(self._store.get(self._key).decode(errors="replace")) if self._store.check([self._key]) else None
