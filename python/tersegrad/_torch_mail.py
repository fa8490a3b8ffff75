"""Messages between the ranks of a process group over gloo, the only backend that has them in host memory.

gloo asks before it sends: a receiver that is ready tells the sender, and only then the bytes travel. All this passes through its event
loop, which spins while another thread is in a call for the same connection. Where both sides post a receive and a send at the same time,
an exchange takes a millisecond or more; where receives were posted long before, a tenth of that. So short messages are received
in **rooms**: memory of our own whose receive is posted at the beginning of a step, as many as the last step needed. A message may be
shorter than its room. Rooms belong to the process group, because gloo cannot take a receive back: the next user finds them posted.
"""

from __future__ import annotations

import collections
import datetime
import weakref
from typing import Any, Counter, Deque, Dict, List, Mapping, Optional, Tuple, Union

import torch

Memory = Union[memoryview, bytes, bytearray]
Key = Tuple[int, int, int]  # of rooms that are alike: rank, tag, and the logarithm of their length

_ABORT_TAG = 0x5447
ROOM_MIN, _ROOM_MAX = 7, 18  # logarithms; longer messages are received where they belong, without a copy
_SIZES = 32                  # tags are a multiple of it apart


class _Room:
    """Memory for a message, and its receive."""

    __slots__ = ("tensor", "memory", "work")

    def __init__(self, size: int) -> None:
        memory = bytearray(1 << size)
        self.tensor, self.memory = torch.frombuffer(memory, dtype=torch.uint8), memoryview(memory)
        self.work: Any = None


class _Letter:
    """A message that comes to a room, on its way to where it belongs."""

    __slots__ = ("_mail", "_key", "_room", "_memory")

    def __init__(self, mail: Mail, key: Key, room: _Room, memory: Memory) -> None:
        self._mail, self._key, self._room, self._memory = mail, key, room, memory

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> None:
        if timeout is None:
            self._room.work.wait()
        else:
            self._room.work.wait(timeout)
        memoryview(self._memory)[:] = self._room.memory[:len(self._memory)]
        self._mail.give_back(self._key, self._room)


def size_of(length: int) -> int:
    """The logarithm of the room for a message."""
    return max(ROOM_MIN, (length - 1).bit_length())


class _Rooms:
    """All rooms of a process group. (They do not hold the process group, so that it can be destroyed.)"""

    def __init__(self) -> None:
        self.posted: Dict[Key, Deque[_Room]] = collections.defaultdict(collections.deque)
        self.free: Dict[int, List[_Room]] = collections.defaultdict(list)  # by the logarithm of their length


_rooms: weakref.WeakKeyDictionary[Any, _Rooms] = weakref.WeakKeyDictionary()  # by process group


class Mail:
    """The messages of a process group. Tags are multiples of 32."""

    def __init__(self, group: Any) -> None:
        # Without the dispatcher, which takes longer than the call itself.
        backend = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
        self._send, self._recv = backend.send, backend.recv
        self._rank, self._world = group.rank(), group.size()
        rooms = _rooms.setdefault(group, _Rooms())
        self._posted, self._free = rooms.posted, rooms.free

    def send(self, memory: Memory, rank: int, tag: int) -> Any:
        """What to wait for."""
        size = size_of(len(memory))
        return self._send([torch.frombuffer(memory, dtype=torch.uint8)], rank, tag + (size if size <= _ROOM_MAX else _SIZES - 1))

    def recv(self, memory: Memory, rank: int, tag: int, used: Counter[Key], size: Optional[int] = None) -> Any:
        """The same. Rooms are counted as used. The room's size follows from the length, if it is not given."""
        size = size_of(len(memory)) if size is None else size
        if size > _ROOM_MAX:
            return self._recv([torch.frombuffer(memory, dtype=torch.uint8)], rank, tag + _SIZES - 1)
        key = rank, tag, size
        used[key] += 1
        try:
            room = self._posted[key].popleft()
        except IndexError:
            room = self._post(key)
        return _Letter(self, key, room, memory)

    def _post(self, key: Key) -> _Room:
        rank, tag, size = key
        try:
            room = self._free[size].pop()
        except IndexError:
            room = _Room(size)
        room.work = self._recv([room.tensor], rank, tag + size)
        return room

    def give_back(self, key: Key, room: _Room) -> None:
        """After a message was taken out of a room."""
        room.work = None
        self._free[key[2]].append(room)

    def prepare(self, used: Mapping[Key, int]) -> None:
        """Posts as many receives as were used. While no message is under way, this disturbs nobody."""
        for key, count in used.items():
            posted = self._posted[key]
            while len(posted) < count:
                posted.append(self._post(key))

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
