"""A link for gradients in device memory.

    process group with NCCL    messages in device memory by its send and receive, on a stream of their own (tg_wire_link_new of cuda.h)
    process group over gloo    messages are copied to pinned host memory and travel as on CPUs (tg_cuda_link_new)

Votes, lengths and the order of operations travel over gloo in both cases (TorchLink). NCCL wants its operations in one order on all ranks,
which the library sees to. It cannot see others' operations: nobody else may use the process group in the backward pass.
"""

from __future__ import annotations

import ctypes
import gc
import secrets
import weakref
from typing import Any, Dict, List, Optional, Union

import torch
import torch.distributed as dist

from ._library import OK, Abort, E_LINK, Error, Link, Wire, WireAbort, WirePost, WireTest, call, lib
from ._torch_device import Device, emulated
from ._torch_group import Board, backend_of, timeout_of
from ._torch_link import TorchLink
from ._torch_mail import Mail

_in_use: "weakref.WeakKeyDictionary[Any, weakref.ref[Any]]" = weakref.WeakKeyDictionary()  # by process group: its State or Reducer


def _is_used(group: Any, owner: object) -> bool:
    """Whether another one sends over this process group."""
    return _in_use.get(group, lambda: None)() not in (None, owner)


class GroupWire:
    """A process group as a tg_wire, which is `struct`."""

    def __init__(self, group: Any, device: Device, owner: object) -> None:
        if _is_used(group, owner):
            gc.collect()  # models and hooks that nobody has any more may refer to each other
        if _is_used(group, owner):
            raise Error("another State or Reducer sends gradients over this process group, and NCCL needs one order of all operations; give "
                        "each one its own: process_group=torch.distributed.new_group()")
        _in_use[group] = weakref.ref(owner)
        self._group, self._device = group, device
        self._stream: Any = device.new_stream()
        self._memory: Dict[int, torch.Tensor] = {}  # by address: messages that were there, at the longest
        self._peers = [dist.get_global_rank(group, p) for p in range(dist.get_world_size(group))]
        # ctypes keeps no reference to callbacks in a struct.
        self._callbacks = (WirePost(self._post), WireTest(self._test), WireAbort(self._abort))
        self.struct = Wire(*self._callbacks, None if self._stream is None else self._stream.cuda_stream)

    def connect(self) -> None:
        """The communicator of a process group is made by its first collective operation, which all ranks take part in."""
        with self._device.on(self._stream):
            dist.all_reduce(torch.zeros(1, device=self._device.of), group=self._group)

    def _tensor(self, address: int, length: int) -> torch.Tensor:
        """A message. Messages of a group are at the same address in every step."""
        known = self._memory.get(address)
        if known is None or known.numel() < length:
            known = self._memory[address] = self._device.memory(address, length)
        return known[:length]

    def _post(self, _: Any, operation: Any, why: Any) -> int:
        try:
            op = operation.contents
            made: List[Any] = []
            with self._device.on(self._stream):
                for p in range(op.world):
                    for span, kind in ((op.sends[p], dist.isend), (op.recvs[p], dist.irecv)):
                        if span.len:
                            made.append(dist.P2POp(kind, self._tensor(span.data, span.len), self._peers[p], self._group))
                for work in dist.batch_isend_irecv(made):
                    work.wait()  # of NCCL: not this thread, but the stream waits
        except BaseException as error:
            why.contents.say(_reason(self._group, error))
            return E_LINK
        return OK

    def _test(self, _: Any, why: Any) -> int:
        """What was posted is on the stream. The watchdog of ProcessGroupNCCL looks for failures; for what it does not end, there is the timeout."""
        return OK

    def _abort(self, _: Any) -> None:
        """Ends what is on the stream. The process group is of no more use."""
        try:
            if backend_of(self._group, self._device.of.type) == "gloo":
                Mail(self._group).abort()
                return
            backend = self._group._get_backend(self._device.of)
            for name in ("abort", "_abort"):  # PyTorch 2.6 and later, earlier
                if hasattr(backend, name):
                    getattr(backend, name)()
                    return
        except Exception:  # nothing more can be done
            pass


def _reason(group: Any, error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"rank {dist.get_rank(group)}: the process group failed in the middle of a step: {lines[0]}"


def _free(link: Any, name: str, *kept: object) -> None:
    getattr(lib, name)(link)


def _abort_struct(link: Link, reason: Optional[bytes]) -> None:
    Abort(ctypes.cast(link.abort, ctypes.c_void_p).value or 0)(link, reason or b"the link was given up")


class DeviceLink:
    """The tg_link of exchanges with a device, over a TorchLink."""

    def __init__(self, device: Device, inner: TorchLink, wire: Optional[GroupWire], timeout_ms: int) -> None:
        self._inner, self._wire = inner, wire
        inner.holds = False  # operations are waited for by threads: what `test` would wait for may need others to go on first
        out = ctypes.POINTER(Link)()
        if wire is not None:
            call("tg_wire_link_new", ctypes.byref(out), device.handle, inner.struct, wire.struct, inner.rank, inner.world, timeout_ms)
        else:
            call("tg_cuda_link_new", ctypes.byref(out), device.handle, inner.struct, inner.world)
        self.struct = self.plain_struct = out.contents
        freed = "tg_wire_link_free" if wire is not None else "tg_cuda_link_free"
        weakref.finalize(self, _free, out, freed, inner, wire, device).atexit = False

    def begin_step(self, group_n: int) -> None:
        self._inner.begin_step(group_n)

    def end_step(self) -> None:
        self._inner.end_step()

    def _abort(self, _: Any, reason: Optional[bytes]) -> None:
        _abort_struct(self.struct, reason)


class LoneLink:
    """The tg_link of a job of one rank: nothing travels, and the library need not call the interpreter for that."""

    def __init__(self) -> None:
        threads = ctypes.c_void_p()
        call("tg_threads_new", ctypes.byref(threads), 1, 1000, None)
        self.struct = self.plain_struct = lib.tg_threads_link(threads, 0).contents
        weakref.finalize(self, lib.tg_threads_free, threads).atexit = False

    def begin_step(self, group_n: int) -> None:
        pass

    def end_step(self) -> None:
        pass

    def _abort(self, _: Any, reason: Optional[bytes]) -> None:
        _abort_struct(self.struct, reason)


def link_of(group: Any, device: Device, inner: TorchLink, owner: object) -> Union[DeviceLink, LoneLink]:
    """The link for gradients on a device, of a State or Reducer. All ranks call it."""
    if inner.world == 1:
        return LoneLink()
    over = dist.new_group(backend="gloo") if emulated() == "wire" else group if backend_of(group, device.of.type) == "nccl" else None
    if over is None:
        return DeviceLink(device, inner, None, 0)
    inner.board = Board(inner.gather(secrets.token_hex(8).encode())[0])
    timeout = timeout_of(over, device.of.type)
    wire = GroupWire(over, device, owner)
    wire.connect()
    return DeviceLink(device, inner, wire, int(1000 * timeout.total_seconds()))
