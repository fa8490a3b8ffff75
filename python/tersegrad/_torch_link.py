"""A link between the ranks of a process group: every span of an operation is one message from rank to rank (_torch_mail.py).

A link that has failed is failed for good, because a rank may be anywhere in the step.

An operation has the tag of its channel, so that several can be under way. Whether one is done, gloo does not tell: one can
only wait for it. Each operation under way has a thread that posts its messages and waits for them, out of a pool that all links share.
The thread that starts operations does not post them itself: it encodes, so its time slice may end inside a call to gloo, where it
holds the lock of the connection, and gloo's event loop would spin until that thread runs again. A thread of the pool was asleep, and its
slice has just begun.

Where there is nothing else to do, `test` itself waits, without any hand-over between threads: for a vote, which is under way alone, and in
steps of one group, whose operations follow each other in the same order on all ranks. (With several groups, two ranks could wait for
operations that the other one has not started yet.) Messages of these are posted when the operation is started.
"""

from __future__ import annotations

import datetime
import hashlib
import queue
import threading
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch.distributed as dist

from ._library import MORE, OK, Abort, Carry, E_LINK, Error, Link, Listen, Notify, Start, Test, view
from ._torch_group import Board
from ._torch_loops import loops
from ._torch_mail import BUFFER_MIN, Mail, Memory

_Works = List[Tuple[int, Any]]  # rank, and what to wait for

# Tags, so that messages do not meet those of the caller.
_TAG, _FACTS_TAG, _CHANNEL_TAG, _TAG_STEP = 0x54470000, 0x54480000, 0x54490000, 32
_CHANNELS, _VOTES = 64, 0  # how many there are, and that of votes
_HASH_LEN = 8
_RIDE_LEN = (1 << BUFFER_MIN) - _HASH_LEN  # messages of so many bytes or fewer travel behind the hash
_TEXT_LEN = 256
_PROBE_LEN, _TRIES = 1 << 16, 4  # messages by which a link is measured
_FACTS_SECONDS = 1  # until facts must have been compared, if a message fails
_ABORT_SECONDS = 5  # until operations under way must have ended after an abort


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


def _spans(spans: Any, world: int) -> List[Memory]:
    return [view(span.data, span.len) if span.len else b"" for span in spans[:world]]


class _Facts:
    """What ranks go on with, as lines "name value". Ranks compare hashes of it in the first operation of a step."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.hash = hashlib.blake2b(text.encode(), digest_size=_HASH_LEN).digest()


class _Comparison:
    """Facts in the first operation of a step. Everyone sends its hash to everyone, and behind it the message of the operation, if that is
    short: so it costs no message of its own."""

    def __init__(self, facts: _Facts, rank: int, sends: Sequence[Memory], recvs: Sequence[Memory]) -> None:
        self.facts, self._rank = facts, rank
        self._riders = [memory if len(memory) <= _RIDE_LEN else b"" for memory in recvs]
        # As long as can be: where ranks differ, a message may be another than expected, and gloo ends a process that gets one too long.
        self.heard = [bytearray(0 if p == rank else 1 << BUFFER_MIN) for p in range(len(recvs))]
        self.said = [b"" if p == rank else bytearray(facts.hash + bytes(memory if len(memory) <= _RIDE_LEN else b""))
                     for p, memory in enumerate(sends)]

    def differs(self) -> Optional[int]:
        """The first rank whose hash is not that of rank 0."""
        hashes = [self.facts.hash if p == self._rank else heard[:_HASH_LEN] for p, heard in enumerate(self.heard)]
        return next((rank for rank, other in enumerate(hashes) if other != hashes[0]), None)

    def deliver(self) -> None:
        """Puts the messages of the operation where they belong."""
        for rider, heard in zip(self._riders, self.heard):
            if len(rider) > 0:
                memoryview(rider)[:] = heard[_HASH_LEN:_HASH_LEN + len(rider)]


def _long(spans: Sequence[Memory]) -> List[Memory]:
    """Those that do not travel behind a hash."""
    return [memory if len(memory) > _RIDE_LEN else b"" for memory in spans]


class _Operation:
    """An operation that was started and not yet found done by `test`."""

    __slots__ = ("sends", "recvs", "tag", "comparison", "compared", "works", "is_held", "is_waited", "is_done", "is_lost")

    def __init__(self, sends: Sequence[Memory], recvs: Sequence[Memory], tag: int, comparison: Optional[_Comparison], is_held: bool) -> None:
        self.sends, self.recvs, self.tag = sends, recvs, tag
        self.comparison = comparison  # of facts, in the first operation of a step
        self.compared: _Works = []    # what has to be waited for yet: the comparison, ...
        self.works: _Works = []       # ... and messages
        self.is_held = is_held        # `test` waits for it, not a thread of the pool
        self.is_waited = False        # a thread is doing so
        self.is_done = comparison is None and not any(map(len, sends)) and not any(map(len, recvs))  # or lost
        self.is_lost = False


class TorchLink:
    """The tg_link of a process group is `struct`."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.failed: Optional[str] = None
        self._mail = Mail(group)
        loops.find()
        self.holds = True  # `test` may wait
        self.byte_seconds = 0.0  # that a byte takes, about, once it was measured
        self._operations: Dict[int, _Operation] = {}  # by channel
        self._lowers = False  # gloo's loops, in a step beside a backward pass
        self._rides = False  # the first operation is the same on all ranks, and goes with the comparison of facts
        self._facts: Optional[_Facts] = None
        self._compares = False  # with the next operation
        self._compared = threading.Event()       # whether that has been done
        self._compared.set()
        self._comparer: Optional[int] = None     # the thread that does it
        self._counting = threading.Lock()    # of bytes: several threads post
        self.board: Optional[Board] = None   # where ranks tell why they have given up, if operations cannot
        self._calling = threading.Lock()     # while the listener is called
        self._notify: Any = None
        self._context: Any = None
        # ctypes keeps no reference to callbacks in a struct.
        self._callbacks = (Carry(self._carry), Abort(self._abort), Start(self._start), Test(self._test), Listen(self._listen))
        carry, abort, start, test, listen = self._callbacks
        self.struct = Link(carry, abort, 0, start, test, listen, _CHANNELS)
        # For exchanges of one group: their reducer has no thread, and the caller of Flight.wait does everything.
        self.plain_struct = Link(carry, abort, 0, start, test, Listen(), _CHANNELS)

    def begin_step(self, group_n: int) -> None:
        self._rides = group_n == 1
        if group_n > 1 and not self._lowers:
            self._lowers = True
            loops.lower()

    def end_step(self) -> None:
        if self._lowers:
            self._lowers = False
            loops.restore()

    # ---- messages ------------------------------------------------------------------------------------------------------

    def _post(self, sends: Sequence[Memory], recvs: Sequence[Memory], tag: int) -> _Works:
        """Starts to send the memoryview sends[p] to rank p and to receive recvs[p] from it; empty ones do not travel."""
        if self.failed is not None:
            raise Error(self.failed, "LINK")
        works: _Works = []
        peer = self.rank
        try:
            for peer, (sent, received) in enumerate(zip(sends, recvs)):
                works += [(peer, work) for work in self._mail.exchange(sent, received, peer, tag)]
                with self._counting:
                    self.struct.sent_len += len(sent)
        except Exception as error:
            raise self._lost(peer, error) from error
        return works

    def _wait(self, works: _Works) -> None:
        """Waits for works, and removes those that are done: one must not be waited for twice."""
        while works:
            peer, work = works.pop(0)
            try:
                work.wait()
            except Exception as error:
                raise self._lost(peer, error) from error

    def _lost(self, peer: int, error: Exception) -> Error:
        """Whatever it is, the others must not wait for this rank: the link has failed. The first reason stays; but one that facts
        differ comes before all, because a rank that knows it has closed its connections. A rank that gives up says why before it does that."""
        if self._comparer != threading.get_ident():
            self._compared.wait(_FACTS_SECONDS)
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        self.failed = self.failed or self._told() or f"rank {self.rank} has lost rank {peer}: {reason}"
        return Error(self.failed, "LINK")

    def _told(self) -> Optional[str]:
        """Why another rank has given up, if it could say so beside its operations."""
        try:
            return None if self.board is None else self.board.read(at_once=True)
        except Exception:  # the store is gone, too
            return None

    def exchange(self, sends: Sequence[Memory], recvs: Sequence[Memory]) -> None:
        """Sends sends[p] to rank p and receives recvs[p] from it."""
        self._wait(self._post(sends, recvs, _TAG))

    def _to_others(self, memory: Memory) -> List[Memory]:
        return [b"" if p == self.rank else memory for p in range(self.world)]

    def agree(self, trouble: Optional[str]) -> None:
        """Tells all ranks the trouble of each, None if it has none. Raises that of the first rank that has one, unless this
        rank has one of its own."""
        for rank, text in enumerate(self.gather((trouble or "").encode())):
            if text and not trouble:
                raise Error(f"rank {rank}: {text}", "PEER")

    def measure(self) -> None:
        """Finds how long messages take, from each rank to the one before it; the slowest counts, for all. All ranks call it."""
        seconds = 0.0
        for odd in (1, 0):  # pairs of ranks that measure at the same time: those whose higher rank is odd, and those where it is even
            is_higher = self.rank % 2 == odd
            peer = self.rank - 1 if is_higher else self.rank + 1
            if 0 <= peer < self.world:
                tries = [self._measure_with(peer, is_higher) for _ in range(_TRIES)]
                seconds = max(seconds, min(tries[1:]))  # the first may wait for the other rank, or have all buffers to itself
        told = [float(text) for text in self.gather(repr(seconds).encode())]
        if max(told) > 0:
            self._mail.know_rate(max(told), _PROBE_LEN)
            self.byte_seconds = max(told) / _PROBE_LEN

    def _measure_with(self, peer: int, is_higher: bool) -> float:
        """The higher rank sends, and the other one answers by a byte."""
        begin = time.monotonic()
        for length, sends in ((_PROBE_LEN, is_higher), (1, not is_higher)):
            message = [memoryview(bytearray(length)) if p == peer else memoryview(b"") for p in range(self.world)]
            nothing: List[Memory] = [b""] * self.world
            self.exchange(*((message, nothing) if sends else (nothing, message)))
        return time.monotonic() - begin if is_higher else 0.0

    # ---- what ranks go on with -------------------------------------------------------------------------------------------

    def compare(self, facts: str) -> None:
        """Has the next operation compare facts, which are lines "name value", with those of all ranks, by a hash. If ranks differ,
        one may be in an operation that the others do not know, and all would wait: so the link fails, on all ranks alike."""
        self._compares = self.world > 1
        if self._facts is None or self._facts.text != facts:
            self._facts = _Facts(facts)

    def _due_comparison(self, sends: Sequence[Memory], recvs: Sequence[Memory]) -> Optional[_Comparison]:
        """The comparison that is due with this operation, if any."""
        if not self._compares or self._facts is None:
            return None
        self._compares = False
        self._comparer = None
        self._compared.clear()
        nothing: List[Memory] = [b""] * self.world
        return _Comparison(self._facts, self.rank, *((sends, recvs) if self._rides else (nothing, nothing)))

    def gather(self, text: bytes) -> List[str]:
        """The first bytes of the texts of all ranks."""
        own = bytearray(text[:_TEXT_LEN].ljust(_TEXT_LEN, b"\0"))
        heard = [bytearray(0 if p == self.rank else _TEXT_LEN) for p in range(self.world)]
        self.exchange(self._to_others(memoryview(own)), [memoryview(text) for text in heard])
        heard[self.rank] = own
        return [text.rstrip(b"\0").decode(errors="replace") for text in heard]

    def _compare(self, comparison: _Comparison, works: _Works) -> None:
        self._comparer = threading.get_ident()
        try:
            self._wait(works)
            self._check_facts(comparison)
            comparison.deliver()
        finally:
            self._comparer = None
            self._compared.set()

    def _check_facts(self, comparison: _Comparison) -> None:
        """Raises if ranks differ. All ranks see that, and then exchange their facts to say how."""
        rank = comparison.differs()
        if rank is None:
            return
        texts = self.gather(comparison.facts.text.encode())
        sentence = f"rank {rank} goes on with another setup than rank 0"
        for first, second in zip(texts[0].splitlines(), texts[rank].splitlines()):
            if first != second:
                name, _, value = second.partition(" ")
                sentence = f"rank {rank} goes on with another {name} than rank 0: '{value}' instead of '{first.partition(' ')[2]}'"
                break
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
            sends, recvs = _spans(op.sends, op.world), _spans(op.recvs, op.world)
            is_held = self._notify is None or (self.holds and channel == _VOTES)
            comparison = self._due_comparison(sends, recvs)
            started = _Operation(sends, recvs, _CHANNEL_TAG + _TAG_STEP * channel, comparison, is_held)
            if not started.is_done and is_held:
                self._post_operation(started)
            self._operations[channel] = started
            if not started.is_done and not is_held:
                waiters.run(lambda: self._complete_and_tell(started))
        except BaseException as error:
            why.contents.say(str(error) or type(error).__name__)
            return E_LINK
        return OK

    def _post_operation(self, operation: _Operation) -> None:
        """Posts the comparison, and the messages that do not have to wait for it."""
        comparison = operation.comparison
        if comparison is not None:
            operation.compared = self._post(comparison.said, comparison.heard, _FACTS_TAG)
        if comparison is None or not self._rides:
            operation.works = self._post(operation.sends, operation.recvs, operation.tag)

    def _complete(self, operation: _Operation) -> None:
        """Waits for an operation. If that fails, the link has failed."""
        operation.is_waited = True
        try:
            if not operation.is_held:
                self._post_operation(operation)
            if operation.comparison is not None:
                self._compare(operation.comparison, operation.compared)
                if self._rides:
                    operation.works = self._post(_long(operation.sends), _long(operation.recvs), operation.tag)
            self._wait(operation.works)
        except BaseException as error:
            self.failed = self.failed or str(error) or type(error).__name__
            operation.is_lost = True
        operation.is_done = True

    def _complete_and_tell(self, operation: _Operation) -> None:
        """The same, in a thread of the pool."""
        self._complete(operation)
        with self._calling:
            if self._notify is not None:
                self._notify(self._context)

    def _test(self, _: Any, channel: int, why: Any) -> int:
        try:
            operation = self._operations.get(channel)
            if operation is not None and operation.is_held and not operation.is_done and self.failed is None:
                self._complete(operation)
            if operation is not None and operation.is_done and not operation.is_lost:
                self._operations.pop(channel, None)
                return OK
            if operation is None and self.failed is None and self.board is not None:
                self.failed = self.board.read()
            if operation is None and self.failed is None:
                return OK
            if self.failed is None:
                return MORE
            why.contents.say(self.failed)
        except BaseException as error:
            why.contents.say(str(error) or type(error).__name__)
        return E_LINK

    def _listen(self, _: Any, notify: Any, context: Any) -> None:
        with self._calling:
            self._notify, self._context = Notify(notify) if notify else None, context

    def _abort(self, _: Any, reason: Optional[bytes]) -> None:
        """The others, who wait for this rank, learn of it at once. Operations under way then end; until they have, their memory must
        stay."""
        self.failed = self.failed or (reason or b"the link was given up").decode(errors="replace")
        if self.board is not None:
            self.board.write(self.failed)
        self._mail.abort()
        until = time.monotonic() + _ABORT_SECONDS
        for operation in list(self._operations.values()):
            while not operation.is_done and time.monotonic() < until:
                if operation.is_waited or not operation.is_held:
                    time.sleep(0.001)  # for the thread that waits for it
                else:
                    self._drain(operation)

    def _drain(self, operation: _Operation) -> None:
        """Ends an operation for which nobody waits, after its connections were closed."""
        operation.is_waited = operation.is_lost = True
        if operation.comparison is not None:
            self._compared.set()
        for _, work in operation.compared + operation.works:
            try:
                work.wait(datetime.timedelta(milliseconds=100))
            except Exception:  # as it must be
                pass
        operation.is_done = True
