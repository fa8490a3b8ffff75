"""A link over torch.distributed: every span of an operation is one message from rank to rank, with no copy of its bytes.

Only gloo can carry it: messages lie in the memory of the processor. A link that has failed is failed for good, because a
rank may be anywhere in the step.
"""

from __future__ import annotations

import ctypes
import datetime
from typing import Any, Optional, Sequence, Union

import torch
import torch.distributed as dist

from ._library import OK, Abort, Carry, E_LINK, Error, Link

_Memory = Union[memoryview, bytes]

_TAG = 0x5447  # of all messages, so that they do not meet those of the caller
_READ_WRITE = 0x200

_memory: Any = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.restype = ctypes.py_object
_memory.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]


def check_group(group: Any) -> Any:
    """The process group to use; raises Error if there is none that can carry bytes of the processor's memory."""
    if not dist.is_available() or not dist.is_initialized():
        raise Error("torch.distributed has no process group yet; call torch.distributed.init_process_group first")
    group = dist.group.WORLD if group is None else group
    try:
        member = dist.get_rank(group) >= 0
    except (RuntimeError, ValueError):
        member = False
    if not member:
        raise Error("this process is not in the process group that was given")
    if hasattr(group, "_get_backend"):  # one for each kind of device, from PyTorch 2.0 on
        try:
            backend = group._get_backend(torch.device("cpu")).name()
        except RuntimeError:
            backend = dist.get_backend(group)
    else:
        backend = dist.get_backend(group)
    if backend.lower() != "gloo":
        raise Error(f"the process group is of backend '{backend}', and gradients are exchanged over gloo alone; give one "
                    "that is: State(..., process_group=torch.distributed.new_group(backend='gloo'))")
    return group


class TorchLink:
    """The tg_link of a process group is `struct`."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.failed: Optional[str] = None
        # ctypes keeps no reference to callbacks in a struct.
        self._callbacks = Carry(self._carry), Abort(self._abort)
        self.struct = Link(*self._callbacks, 0)

    def exchange(self, sends: Sequence[_Memory], recvs: Sequence[_Memory]) -> None:
        """Sends the memoryview sends[p] to rank p and receives recvs[p] from it; empty ones do not travel."""
        if self.failed is not None:
            raise Error(self.failed, "LINK")
        peer = None
        try:
            waiting = []
            for peer, memory in enumerate(recvs):
                if len(memory) > 0:
                    waiting.append((peer, self.group.recv([torch.frombuffer(memory, dtype=torch.uint8)], peer, _TAG), memory))
            for peer, memory in enumerate(sends):
                if len(memory) > 0:
                    waiting.append((peer, self.group.send([torch.frombuffer(memory, dtype=torch.uint8)], peer, _TAG), memory))
                    self.struct.sent_len += len(memory)
            for peer, work, _ in waiting:
                work.wait()
        except Exception as error:  # whatever it is, the others must not wait for this rank
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            self.failed = f"rank {self.rank} has lost rank {peer}: {reason}"
            raise Error(self.failed, "LINK") from error

    def agree(self, trouble: Optional[str]) -> None:
        """Tells all ranks the trouble of each, None if it has none. Raises that of the first rank that has one, unless this
        rank has one of its own."""
        room = 256
        own = bytearray((trouble or "").encode()[:room].ljust(room, b"\0"))
        heard = [bytearray(0 if p == self.rank else room) for p in range(self.world)]
        self.exchange([memoryview(b"" if p == self.rank else own) for p in range(self.world)], [memoryview(text) for text in heard])
        for rank, told in enumerate(heard):
            text = told.rstrip(b"\0").decode(errors="replace")
            if text and not trouble:
                raise Error(f"rank {rank}: {text}", "PEER")

    def _carry(self, _: Any, operation: Any, why: Any) -> int:
        try:
            op = operation.contents
            self.exchange([_memory(op.sends[p].data, op.sends[p].len, _READ_WRITE) if op.sends[p].len else b""
                           for p in range(op.world)],
                          [_memory(op.recvs[p].data, op.recvs[p].len, _READ_WRITE) if op.recvs[p].len else b""
                           for p in range(op.world)])
        except BaseException as error:  # an exception must not leave through C
            why.contents.say(str(error) or type(error).__name__)
            return E_LINK
        return OK

    def _abort(self, _: Any, reason: Optional[bytes]) -> None:
        """gloo cannot be told to stop, but it closes all connections when a wait for one runs out of time: so the others,
        who wait for this rank, learn of it at once."""
        self.failed = self.failed or (reason or b"the link was given up").decode(errors="replace")
        for peer in range(self.world):
            if peer != self.rank:
                try:
                    byte = torch.empty(1, dtype=torch.uint8)
                    self.group.recv([byte], peer, _TAG + 1).wait(datetime.timedelta(milliseconds=1))
                except Exception:  # as it must be
                    pass
