"""Messages between the ranks of a process group over gloo, the only backend that has them in host memory.

gloo's event loop spins while another thread is in a call for the same connection. If that thread has lost its core to the loop, it
continues milliseconds later. So two ranks never send short messages at the same time:

    lower rank     post receive, send ............................. receive
    higher rank                        receive, post next, send

In gloo a receiver that is ready tells the sender, and only then the bytes travel. The lower rank's receive is ready when the higher one
sends. For the other direction, the higher rank posts a receive for the next message when it has received one, and before it sends: short
messages are received into buffers of this module. A message may be shorter than its buffer. Buffers belong to the process group, because
gloo cannot cancel a receive: the next user finds them posted.

Long messages travel in both directions at once: in turns, each would take twice as long. A message is long if the link takes longer for it
than the loop may spin.
"""

from __future__ import annotations

import collections
import datetime
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union

import torch

Memory = Union[memoryview, bytes, bytearray]
Key = Tuple[int, int, int]  # of buffers: rank, tag, and the logarithm of their length

_ABORT_TAG = 0x5447
BUFFER_MIN, _BUFFER_MAX = 7, 18  # logarithms; longer messages are received at their destination, without a copy
_TURN_SECONDS = 0.002        # that a message in turns may take at most: about what the loop spins
_BUFFERS_LEN = 16 << 20        # of all buffers of a process group at most


class _Buffer:
    """Memory for a message, and its receive."""

    __slots__ = ("tensor", "memory", "work")

    def __init__(self, size: int) -> None:
        memory = bytearray(1 << size)
        self.tensor, self.memory = torch.frombuffer(memory, dtype=torch.uint8), memoryview(memory)
        self.work: Any = None


class _Received:
    """A message that is received into a buffer, and copied to its destination."""

    __slots__ = ("_buffer", "_memory", "_free")

    def __init__(self, buffer: _Buffer, memory: Memory, free: List[_Buffer]) -> None:
        self._buffer, self._memory, self._free = buffer, memory, free

    def wait(self, *timeout: datetime.timedelta) -> None:
        self._buffer.work.wait(*timeout)
        memoryview(self._memory)[:] = self._buffer.memory[:len(self._memory)]
        self._buffer.work = None
        self._free.append(self._buffer)


class _Reply:
    """A message that is sent after another one has been received from the same rank."""

    __slots__ = ("_received", "_send")

    def __init__(self, received: Any, send: Callable[[], Any]) -> None:
        self._received, self._send = received, send

    def wait(self, *timeout: datetime.timedelta) -> None:
        self._received.wait(*timeout)
        self._send().wait(*timeout)


def _size_of(length: int) -> int:
    """The logarithm of the length of the buffer for a message, which both sides know; one number for all messages that have none."""
    return min(max(BUFFER_MIN, (length - 1).bit_length()), _BUFFER_MAX + 1)


class _Buffers:
    """All buffers of a process group. (They do not hold the process group, so that it can be destroyed.)"""

    def __init__(self) -> None:
        self.posted: Dict[Key, Deque[_Buffer]] = collections.defaultdict(collections.deque)
        self.free: Dict[int, List[_Buffer]] = collections.defaultdict(list)  # by the logarithm of their length
        self.len = 0  # in all
        self._lock = threading.Lock()  # several threads post receives

    def take(self, size: int) -> Optional[_Buffer]:
        """A free buffer, or a new one; None: there are too many."""
        with self._lock:
            if self.free[size]:
                return self.free[size].pop()
            if self.len + (1 << size) > _BUFFERS_LEN:
                return None
            self.len += 1 << size
            return _Buffer(size)


_buffers: weakref.WeakKeyDictionary[Any, _Buffers] = weakref.WeakKeyDictionary()  # by process group


class Mail:
    """The messages of a process group. Tags are multiples of 32."""

    def __init__(self, group: Any) -> None:
        # Without the dispatcher, which takes longer than the call itself.
        backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
        self._send, self._recv = backend.send, backend.recv
        self._rank, self._world = group.rank(), group.size()
        self._buffers = _buffers.setdefault(group, _Buffers())
        self.turn_len = 1 << _BUFFER_MAX  # longer messages do not take turns

    def know_rate(self, seconds: float, length: int) -> None:
        """A message of this length takes so long. Ranks may know different rates: the sender of an answer decides whether it waits."""
        self.turn_len = min(int(length * _TURN_SECONDS / seconds), 1 << _BUFFER_MAX)

    def exchange(self, sent: Memory, received: Memory, rank: int, tag: int) -> List[Any]:
        """Exchanges messages with a rank; empty ones are not sent. Returns what to wait for, in this order: receives first, because sends
        are mostly complete by then, and every wait that sleeps is a switch between threads."""
        if rank > self._rank:
            works = [self.recv(received, rank, tag)] if len(received) > 0 else []
            return [*works, self.send(sent, rank, tag)] if len(sent) > 0 else works
        if len(received) == 0:
            return [self.send(sent, rank, tag)] if len(sent) > 0 else []

        if len(sent) > self.turn_len:
            return [self.recv(received, rank, tag), self.send(sent, rank, tag)]

        def reply() -> Any:
            self._expect(len(received), rank, tag)
            return self.send(sent, rank, tag)
        work = self.recv(received, rank, tag)
        return [_Reply(work, reply)] if len(sent) > 0 else [work]

    def send(self, memory: Memory, rank: int, tag: int) -> Any:
        """What to wait for."""
        return self._send([torch.frombuffer(memory, dtype=torch.uint8)], rank, tag + _size_of(len(memory)))

    def recv(self, memory: Memory, rank: int, tag: int) -> Any:
        """The same."""
        size = _size_of(len(memory))
        posted = self._buffers.posted.get((rank, tag, size))
        if posted:
            return _Received(posted.popleft(), memory, self._buffers.free[size])
        return self._recv([torch.frombuffer(memory, dtype=torch.uint8)], rank, tag + size)

    def _expect(self, length: int, rank: int, tag: int) -> None:
        """Posts a receive for the next message of this length, unless there is one."""
        size, buffers = _size_of(length), self._buffers
        posted = buffers.posted[rank, tag, size]
        if posted or size > _BUFFER_MAX:
            return
        buffer = buffers.take(size)
        if buffer is None:
            return
        buffer.work = self._recv([buffer.tensor], rank, tag + size)
        posted.append(buffer)

    def abort(self) -> None:
        """gloo has no abort, but it closes all connections when a wait for one times out. So ranks that wait for this one fail at
        once."""
        for peer in range(self._world):
            if peer != self._rank:
                try:
                    byte = torch.empty(1, dtype=torch.uint8)
                    self._recv([byte], peer, _ABORT_TAG).wait(datetime.timedelta(milliseconds=1))
                except Exception:  # as it must be
                    pass
