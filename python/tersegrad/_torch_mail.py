"""Messages between the ranks of a process group over gloo, the only backend that has them in host memory.

gloo's event loop spins while another thread is in a call for the same connection. Where that thread has lost its core to the loop, it
goes on milliseconds later. So two ranks never talk at once, where both have something short to say:

    lower rank     post receive, send ............................. receive
    higher rank                        receive, post next, send

gloo asks before it sends: a receiver that is ready tells the sender, and only then the bytes travel. The lower rank's receive is ready
when the higher one sends. For the other direction, the higher rank posts a receive for the next message when it has got one, and before
it sends: short messages come to **rooms**, memory of our own. A message may be shorter than its room. Rooms belong to the process
group, because gloo cannot take a receive back: the next user finds them posted.

Long messages travel in both directions at once, since a link can do that: in turns, each takes twice as long. A message is long if it takes
the link longer than what the loop may spin.
"""

from __future__ import annotations

import collections
import datetime
import threading
import weakref
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple, Union

import torch

Memory = Union[memoryview, bytes, bytearray]
Key = Tuple[int, int, int]  # of rooms that are alike: rank, tag, and the logarithm of their length

_ABORT_TAG = 0x5447
ROOM_MIN, _ROOM_MAX = 7, 18  # logarithms; longer messages are received where they belong, without a copy
_TURN_SECONDS = 0.002        # that a message in turns may take at most: about what the loop spins
_ROOMS_LEN = 16 << 20        # of all rooms of a process group at most


class _Room:
    """Memory for a message, and its receive."""

    __slots__ = ("tensor", "memory", "work")

    def __init__(self, size: int) -> None:
        memory = bytearray(1 << size)
        self.tensor, self.memory = torch.frombuffer(memory, dtype=torch.uint8), memoryview(memory)
        self.work: Any = None


class _Letter:
    """A message that comes to a room, on its way to where it belongs."""

    __slots__ = ("_room", "_memory", "_free")

    def __init__(self, room: _Room, memory: Memory, free: List[_Room]) -> None:
        self._room, self._memory, self._free = room, memory, free

    def wait(self, *timeout: datetime.timedelta) -> None:
        self._room.work.wait(*timeout)
        memoryview(self._memory)[:] = self._room.memory[:len(self._memory)]
        self._room.work = None
        self._free.append(self._room)


class _Reply:
    """A message that is sent when another one has come from the same rank."""

    __slots__ = ("_received", "_send")

    def __init__(self, received: Any, send: Callable[[], Any]) -> None:
        self._received, self._send = received, send

    def wait(self, *timeout: datetime.timedelta) -> None:
        self._received.wait(*timeout)
        self._send().wait(*timeout)


def _size_of(length: int) -> int:
    """The logarithm of the room for a message, which both sides know. Where there are no rooms, one number for all."""
    return min(max(ROOM_MIN, (length - 1).bit_length()), _ROOM_MAX + 1)


class _Rooms:
    """All rooms of a process group. (They do not hold the process group, so that it can be destroyed.)"""

    def __init__(self) -> None:
        self.posted: Dict[Key, Deque[_Room]] = collections.defaultdict(collections.deque)
        self.free: Dict[int, List[_Room]] = collections.defaultdict(list)  # by the logarithm of their length
        self.len = 0  # in all
        self._lock = threading.Lock()  # several threads post receives

    def take(self, size: int) -> Optional[_Room]:
        """A free room, or a new one; None: there are too many."""
        with self._lock:
            if self.free[size]:
                return self.free[size].pop()
            if self.len + (1 << size) > _ROOMS_LEN:
                return None
            self.len += 1 << size
            return _Room(size)


_rooms: weakref.WeakKeyDictionary[Any, _Rooms] = weakref.WeakKeyDictionary()  # by process group


class Mail:
    """The messages of a process group. Tags are multiples of 32."""

    def __init__(self, group: Any) -> None:
        # Without the dispatcher, which takes longer than the call itself.
        backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
        self._send, self._recv = backend.send, backend.recv
        self._rank, self._world = group.rank(), group.size()
        self._rooms = _rooms.setdefault(group, _Rooms())
        self.turn_len = 1 << _ROOM_MAX  # longer messages do not take turns

    def know_rate(self, seconds: float, length: int) -> None:
        """A message of this length takes so long. Each rank may know another rate: whether an answer waits for its turn, its sender decides."""
        self.turn_len = min(int(length * _TURN_SECONDS / seconds), 1 << _ROOM_MAX)

    def exchange(self, sent: Memory, received: Memory, rank: int, tag: int) -> List[Any]:
        """Exchanges messages with a rank; an empty one does not travel. Returns what to wait for, in this order: what is received first,
        because what is sent is done by then, mostly, and every wait that has to sleep is a hand-over between threads."""
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
        posted = self._rooms.posted.get((rank, tag, size))
        if posted:
            return _Letter(posted.popleft(), memory, self._rooms.free[size])
        return self._recv([torch.frombuffer(memory, dtype=torch.uint8)], rank, tag + size)

    def _expect(self, length: int, rank: int, tag: int) -> None:
        """Posts a receive for a message like one that has come, unless there is one."""
        size, rooms = _size_of(length), self._rooms
        posted = rooms.posted[rank, tag, size]
        if posted or size > _ROOM_MAX:
            return
        room = rooms.take(size)
        if room is None:
            return
        room.work = self._recv([room.tensor], rank, tag + size)
        posted.append(room)

    def abort(self) -> None:
        """gloo cannot be told to stop, but it closes all connections when a wait for one runs out of time: so the others,
        who wait for this rank, learn of it at once."""
        for peer in range(self._world):
            if peer != self._rank:
                try:
                    byte = torch.empty(1, dtype=torch.uint8)
                    self._recv([byte], peer, _ABORT_TAG).wait(datetime.timedelta(milliseconds=1))
                except Exception:  # as it must be
                    pass
