"""The exchange of a parameter group's shard between replicas (HSDP): after each reduce-scatter, by any recipe.

Ranks that hold the same shard of each replica have an exchange of their own. Tensors are the segments of the parameters in the shard, with
their names and kinds; residuals are of the shard's size.
"""

from __future__ import annotations

from typing import Any, List, Optional

import torch
import torch.distributed as dist

from ._exchange import Exchange
from ._library import Error
from ._torch_device import Device
from ._torch_fsdp_groups import Group
from ._torch_group import beside, check_group
from ._torch_link import TorchLink
from ._torch_wire import link_of


def replica_group(replicas: Any, needs_gloo: bool) -> Any:
    """The process group of `replicas`, a process group or a mesh of one dimension."""
    if hasattr(replicas, "get_group") and hasattr(replicas, "ndim"):
        if replicas.ndim != 1:
            raise Error(f"replicas is a mesh of {replicas.ndim} dimensions; give the one of the replicas alone, such as mesh['replicate']")
        replicas = replicas.get_group()
    if not isinstance(replicas, dist.ProcessGroup):
        raise Error(f"replicas is {replicas!r}; it must be a mesh of one dimension, such as mesh['replicate'], or a process group, and this rank in it")
    return check_group(replicas) if needs_gloo else replicas


class ReplicaLink:
    """The link between replicas. On a GPU votes and lengths go over gloo, and messages over NCCL, if the process group has it."""

    def __init__(self, group: Any, device: Optional[Device]) -> None:
        """All ranks of the process group call it. If that is not over gloo, another of the same ranks is made, which is."""
        self.torch = TorchLink(beside(group))
        self.struct: Any = self.torch.struct
        if device is not None:
            self._on_device = link_of(group, device, self.torch, self)
            self.struct = self._on_device.struct

    @property
    def sent(self) -> int:
        """Bytes that the link itself has counted."""
        return int(self.struct.sent_len)


class Between:
    """The all-reduce hook of one group."""

    tersegrad = True

    link: ReplicaLink  # is set when all ranks agree

    def __init__(self, group: Group, recipe: str, rank: int, world: int, options: Any, device: Optional[Device]) -> None:
        self._group, self._device = group, device
        self._element_len = torch.empty(0, dtype=getattr(torch, group.dtype)).element_size()
        self.exchange = Exchange(recipe, group.segments, rank, world, dict(options, device=device))
        self.step = 0

    def _addresses(self, shard: torch.Tensor) -> List[int]:
        out, at = [], shard.data_ptr()
        for segment in self._group.segments:
            out.append(at)
            at += segment.shape[0] * self._element_len
        return out

    @torch.no_grad()
    def __call__(self, shard: torch.Tensor) -> None:
        """Replaces a shard's gradients by their averages over the replicas."""
        if self.link.torch.failed is not None:
            raise Error(self.link.torch.failed, "LINK")
        trouble = None if shard.numel() == self._group.row_n else self._group.missing(shard.numel())
        addresses = self._addresses(shard) if trouble is None else [0] * len(self._group.segments)  # which fails the step on all replicas
        if self._device is not None:
            self._device.meet()
        try:
            self.exchange.reduce(self.link.struct, self.step, addresses)
        except Error as error:
            if error.code != "LINK":  # it has failed on all replicas, and all come here
                self.link.torch.agree(None if trouble is None else str(trouble))
            raise trouble or error
        if self._device is not None:
            self._device.lead()
        self.step += 1


def residuals_of(exchange: Exchange) -> List[torch.Tensor]:
    """The residual of each tensor, in host memory."""
    out = []
    for t, tensor in enumerate(exchange.tensors):
        out.append(torch.zeros(tensor.shape, dtype=torch.float32))
        exchange.residual_to(out[-1].data_ptr(), t)
    return out


