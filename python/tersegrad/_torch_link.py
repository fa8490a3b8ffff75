"""A link over torch.distributed: every span of an operation is one message from rank to rank, with no copy of its bytes.

Only gloo can carry it: messages lie in the memory of the processor. A link that has failed is failed for good, because a
rank may be anywhere in the step.

An operation has the tag of its channel, so that several can be under way. Whether one is done, gloo does not tell: one can
only wait for it. So each operation under way has a thread that waits for its messages, out of a pool that all links share.
(With one thread for all, an operation that is done could not be told before an older one, for which another rank may wait.)
"""

from __future__ import annotations

import ctypes
import datetime
import queue
import threading
import time
import zlib
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from ._library import MORE, OK, Abort, Carry, E_LINK, Error, Link, Listen, Notify, Start, Test

_Memory = Union[memoryview, bytes]
_Works = List[Tuple[int, Any, _Memory]]  # rank, work, and the memory that must stay

_TAG = 0x5447  # of all messages that are not on a channel, so that they do not meet those of the caller
_CHANNEL_TAG, _CHANNELS = 0x544800, 64
_FACTS_TAG, _FACTS_LEN = 0x544900, 256
_READ_WRITE = 0x200
_ABORT_SECONDS = 5  # until operations under way must have ended after an abort

_IDLE, _UNDER_WAY, _DONE, _LOST = range(4)  # states of a channel

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


class _Waiters:
    """A pool of threads: one for each task under way, as many as there ever were at once."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads: List[threading.Thread] = []

    def run(self, task: Callable[[], None]) -> None:
        """Runs a task at once."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            else:
                thread = threading.Thread(target=self._run, name="tersegrad-wait", daemon=True)
                self._threads.append(thread)
                thread.start()
        self._tasks.put(task)

    def _run(self) -> None:
        while True:
            task = self._tasks.get()
            if task is None:
                return
            task()
            del task
            with self._lock:
                self._idle += 1

    def stop(self) -> None:
        """At exit, when no task is under way."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join(timeout=1)


waiters = _Waiters()


def _spans(spans: Any, world: int) -> List[_Memory]:
    return [_memory(span.data, span.len, _READ_WRITE) if span.len else b"" for span in spans[:world]]


class TorchLink:
    """The tg_link of a process group is `struct`."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.failed: Optional[str] = None
        self._channels = [_IDLE] * _CHANNELS
        self._facts: Optional[bytes] = None  # to be compared with the next operation
        self._calling = threading.Lock()     # while the listener is called
        self._notify: Any = None
        self._context: Any = None
        # ctypes keeps no reference to callbacks in a struct.
        self._callbacks = (Carry(self._carry), Abort(self._abort), Start(self._start), Test(self._test), Listen(self._listen))
        carry, abort, start, test, listen = self._callbacks
        self.struct = Link(carry, abort, 0, start, test, listen, _CHANNELS)

    # ---- messages ------------------------------------------------------------------------------------------------------

    def _post(self, sends: Sequence[_Memory], recvs: Sequence[_Memory], tag: int) -> _Works:
        """Starts to send the memoryview sends[p] to rank p and to receive recvs[p] from it; empty ones do not travel."""
        if self.failed is not None:
            raise Error(self.failed, "LINK")
        works: _Works = []
        peer = self.rank
        try:
            for peer, memory in enumerate(recvs):
                if len(memory) > 0:
                    works.append((peer, self.group.recv([torch.frombuffer(memory, dtype=torch.uint8)], peer, tag), memory))
            for peer, memory in enumerate(sends):
                if len(memory) > 0:
                    works.append((peer, self.group.send([torch.frombuffer(memory, dtype=torch.uint8)], peer, tag), memory))
                    self.struct.sent_len += len(memory)
        except Exception as error:
            raise self._lost(peer, error) from error
        return works

    def _wait(self, works: _Works) -> None:
        for peer, work, _ in works:
            try:
                work.wait()
            except Exception as error:
                raise self._lost(peer, error) from error

    def _lost(self, peer: int, error: Exception) -> Error:
        """Whatever it is, the others must not wait for this rank: the link has failed. The first reason stays."""
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        self.failed = self.failed or f"rank {self.rank} has lost rank {peer}: {reason}"
        return Error(self.failed, "LINK")

    def exchange(self, sends: Sequence[_Memory], recvs: Sequence[_Memory]) -> None:
        """Sends sends[p] to rank p and receives recvs[p] from it."""
        self._wait(self._post(sends, recvs, _TAG))

    def _to_others(self, memory: _Memory) -> List[_Memory]:
        return [b"" if p == self.rank else memory for p in range(self.world)]

    def agree(self, trouble: Optional[str]) -> None:
        """Tells all ranks the trouble of each, None if it has none. Raises that of the first rank that has one, unless this
        rank has one of its own."""
        room = 256
        own = bytearray((trouble or "").encode()[:room].ljust(room, b"\0"))
        heard = [bytearray(0 if p == self.rank else room) for p in range(self.world)]
        self.exchange(self._to_others(memoryview(own)), [memoryview(text) for text in heard])
        for rank, told in enumerate(heard):
            text = told.rstrip(b"\0").decode(errors="replace")
            if text and not trouble:
                raise Error(f"rank {rank}: {text}", "PEER")

    # ---- what ranks go on with -------------------------------------------------------------------------------------------

    def compare(self, facts: str) -> None:
        """Has the next operation compare facts, which are lines "name value", with those of all ranks. If ranks differ, one may
        be in an operation that the others do not know, and all would wait: so the link fails, on all ranks alike."""
        text = facts.encode()
        self._facts = (b"%08x" % zlib.crc32(text) + text)[:_FACTS_LEN].ljust(_FACTS_LEN, b"\0") if self.world > 1 else None

    def _post_facts(self) -> Tuple[_Works, List[bytearray]]:
        facts, self._facts = self._facts, None
        if facts is None:
            return [], []
        heard = [bytearray(facts if p == self.rank else _FACTS_LEN) for p in range(self.world)]
        return self._post(self._to_others(memoryview(bytearray(facts))),
                          [memoryview(b"" if p == self.rank else text) for p, text in enumerate(heard)], _FACTS_TAG), heard

    def _compare_heard(self, heard: List[bytearray]) -> None:
        """Raises if ranks differ, after all ranks have seen that."""
        for rank, other in enumerate(heard):
            if other != heard[0]:
                sentence = f"rank {rank} goes on with another setup than rank 0"
                lines = [text[8:].rstrip(b"\0").decode(errors="replace").splitlines() for text in (heard[0], other)]
                for first, second in zip(*lines):
                    if first != second:
                        name = second.partition(" ")
                        sentence = (f"rank {rank} goes on with another {name[0]} than rank 0: '{name[2]}' instead of "
                                    f"'{first.partition(' ')[2]}'")
                        break
                self.exchange(self._to_others(memoryview(bytearray(1))),
                              [memoryview(bytearray(0 if p == self.rank else 1)) for p in range(self.world)])
                self.failed = self.failed or sentence
                raise Error(sentence, "LINK")

    # ---- the functions of tg_link --------------------------------------------------------------------------------------
    # No exception may leave them: they are called by C.

    def _carry(self, _: Any, operation: Any, why: Any) -> int:
        try:
            op = operation.contents
            self.exchange(_spans(op.sends, op.world), _spans(op.recvs, op.world))
        except BaseException as error:
            why.contents.say(str(error) or type(error).__name__)
            return E_LINK
        return OK

    def _start(self, _: Any, channel: int, operation: Any, why: Any) -> int:
        try:
            op = operation.contents
            facts, heard = self._post_facts()
            works = self._post(_spans(op.sends, op.world), _spans(op.recvs, op.world), _CHANNEL_TAG + channel)
            if facts or works:
                self._channels[channel] = _UNDER_WAY
                waiters.run(lambda: self._complete(channel, facts, heard, works))
            else:
                self._channels[channel] = _DONE
        except BaseException as error:
            why.contents.say(str(error) or type(error).__name__)
            return E_LINK
        return OK

    def _complete(self, channel: int, facts: _Works, heard: List[bytearray], works: _Works) -> None:
        """Waits for an operation, in a thread of the pool."""
        state = _LOST
        try:
            self._wait(facts)
            self._compare_heard(heard)
            self._wait(works)
            state = _DONE
        except BaseException as error:
            self.failed = self.failed or str(error) or type(error).__name__
        self._channels[channel] = state
        with self._calling:
            if self._notify is not None:
                self._notify(self._context)

    def _test(self, _: Any, channel: int, why: Any) -> int:
        try:
            state = self._channels[channel]
            if state == _UNDER_WAY and self.failed is None:
                return MORE
            if state in (_IDLE, _DONE):
                self._channels[channel] = _IDLE
                return OK
            why.contents.say(self.failed or "the link has failed")
        except BaseException as error:
            why.contents.say(str(error) or type(error).__name__)
        return E_LINK

    def _listen(self, _: Any, notify: Any, context: Any) -> None:
        with self._calling:
            self._notify, self._context = Notify(notify) if notify else None, context

    def _abort(self, _: Any, reason: Optional[bytes]) -> None:
        """gloo cannot be told to stop, but it closes all connections when a wait for one runs out of time: so the others,
        who wait for this rank, learn of it at once. Operations under way then end; until they have, their memory must stay."""
        self.failed = self.failed or (reason or b"the link was given up").decode(errors="replace")
        for peer in range(self.world):
            if peer != self.rank:
                try:
                    byte = torch.empty(1, dtype=torch.uint8)
                    self.group.recv([byte], peer, _TAG + 1).wait(datetime.timedelta(milliseconds=1))
                except Exception:  # as it must be
                    pass
        until = time.monotonic() + _ABORT_SECONDS
        while _UNDER_WAY in self._channels and time.monotonic() < until:
            time.sleep(0.001)
