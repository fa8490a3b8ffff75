"""The reduce-scatter of a parameter group of FSDP2, compressed.

    input     (shards, row) in the reduce dtype; row s is for shard s
    encode    each row is a frame, of a length that all ranks know
    carry     messages between all ranks, on the process group that FSDP gives
    sum       decoded values in fp32, in rank order, over the divisor; then rounded once to the reduce dtype

On a GPU all of it is on the current stream, which FSDP has for reduce-scatters, and messages are carried in its order.
"""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, List, Optional, Sequence, Tuple, cast

import torch
import torch.distributed as dist
from torch.profiler import record_function

from ._exchange import Memory, Scatter
from ._library import Error, TensorSpec, view
from ._torch_device import Device
from ._torch_fsdp_groups import Group
from ._torch_group import backend_of

_Base: Any = object
try:
    from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter as _Base
except Exception:  # as in _torch_fsdp_groups.py
    pass

RANGE = "tersegrad::reduce_scatter"  # in traces of torch.profiler
_FAILED = b"TGER"  # begins a message in place of a frame


def _bytes_at(address: int, length: int, device: Optional[Device]) -> torch.Tensor:
    """A tensor over memory of the library's, without a copy."""
    return torch.frombuffer(view(address, length), dtype=torch.uint8) if device is None else device.memory(address, length)


class _Messages:
    """The messages of one direction, where the library has them. A rank sends itself nothing."""

    def __init__(self, spans: List[Memory], of: torch.device, device: Optional[Device]) -> None:
        self.len = sum(length for _, length in spans)
        nothing = torch.empty(0, dtype=torch.uint8, device=of)
        self.tensors = [_bytes_at(address, length, device) if length > 0 else nothing for address, length in spans]

    def fail(self) -> None:
        """Says in place of frames that this rank has failed."""
        for tensor in (each for each in self.tensors if each.numel() > 0):
            said = _FAILED.ljust(tensor.numel(), b"\0")
            tensor.copy_(torch.frombuffer(bytearray(said), dtype=torch.uint8))


def _carry(recvs: List[torch.Tensor], sends: List[torch.Tensor], group: Any) -> None:
    """Message p of `sends` to rank p, message p of `recvs` from it. Over gloo, which has no all_to_all of lists in PyTorch 2.11, they are
    sent one by one."""
    if backend_of(group, sends[0].device.type) != "gloo":
        dist.all_to_all(recvs, sends, group=group)
        return
    others = [p for p in range(len(sends)) if p != group.rank()]
    works = [dist.irecv(recvs[p], group=group, group_src=p) for p in others]
    works += [dist.isend(sends[p], group=group, group_dst=p) for p in others]
    for work in works:
        if work is not None:
            work.wait()


def _noted() -> ContextManager[Any]:
    """A range in traces. One that nobody records takes as long as some kernels."""
    return record_function(RANGE) if torch.autograd.profiler._is_profiler_enabled else contextlib.nullcontext()


def divisor_of(op: Any, world: int) -> float:
    """What a sum is divided by, for an operation of torch.distributed."""
    kind, kinds = getattr(op, "op", op), cast(Any, dist.ReduceOp.RedOpType)
    if kind == kinds.AVG:
        return float(world)
    if kind == kinds.SUM:
        return 1.0
    if kind == kinds.PREMUL_SUM:
        factor = op.__getstate__()[1]
        if isinstance(factor, float) and factor != 0:
            return 1.0 / factor
    raise Error(f"a reduce-scatter by {op} cannot be compressed; SUM, AVG and PREMUL_SUM by a number can")


class ScatterComm(_Base):  # type: ignore[misc]
    """The ReduceScatter of one group."""

    tersegrad = True

    def __init__(self, group: Group, recipe: str, options: Any, device: Optional[Device]) -> None:
        self._group, self._device = group, device
        tensor = TensorSpec(group.name, (group.shards * group.row_n,), "other", group.dtype)
        self.exchange = Scatter(recipe, [tensor], group.shard, group.shards, dict(options, device=device))
        self._dtype = getattr(torch, group.dtype)
        self.step = 0
        self.sent = 0  # bytes that were given to the process group for other ranks
        self._sends: Optional[_Messages] = None
        self._recvs: Optional[_Messages] = None

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        if async_op:
            raise Error("a compressed reduce-scatter is in the order of its stream, and not by async_op")
        trouble = self._trouble(input_tensor, output_tensor)
        if trouble is not None:
            self._fail(input_tensor.device, group)
            raise trouble
        divisor = divisor_of(op, group.size())
        with _noted():
            self._exchange_messages(*self._begin(input_tensor), group)
            self.exchange.end([output_tensor.data_ptr()], divisor)
        self.step += 1
        return None

    def _trouble(self, given: torch.Tensor, out: torch.Tensor) -> Optional[Error]:
        row_n = given.numel() // self._group.shards
        if row_n != self._group.row_n:
            return self._group.missing(row_n)
        if given.dtype != self._dtype or out.dtype != given.dtype:
            return Error(f"the gradients of '{self._group.name}' are reduced in {given.dtype}, and were to be in {self._group.dtype} when compress() was "
                         "called", "MISMATCH")
        return None

    def _begin(self, given: torch.Tensor) -> Tuple[_Messages, _Messages]:
        """Encodes rows. What to send, and where to receive."""
        if self._device is not None:
            self._device.join()
        moved = self.exchange.begin(self.step, [given.data_ptr()])
        if self._sends is None or self._recvs is None or moved:
            spans = self.exchange.sends, self.exchange.recvs
            self._sends, self._recvs = (_Messages(each, given.device, self._device) for each in spans)
        return self._sends, self._recvs

    def _exchange_messages(self, sends: _Messages, recvs: _Messages, group: Any) -> None:
        _carry(recvs.tensors, sends.tensors, group)
        self.sent += sends.len

    @torch.no_grad()
    def _fail(self, device: torch.device, group: Any) -> None:
        """The others, who wait for this rank, learn that it has failed."""
        zeros = torch.zeros(self._group.shards * self._group.row_n, dtype=self._dtype, device=device)
        sends, recvs = self._begin(zeros)
        sends.fail()
        self._exchange_messages(sends, recvs, group)
        self.exchange.cancel()
