"""An exchange of the C library, as an object; it knows addresses, not arrays."""

from __future__ import annotations

import ctypes
import queue
import threading
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Protocol, Sequence, Tuple

from ._library import Error, Link, Meter, Op, Span, TensorSpec, Traffic, call, canonical, lib, make_options, make_tensors, pointers

_FLOATS = ctypes.POINTER(ctypes.c_float)

Memory = Tuple[int, int]  # address and length


def _free(handle: ctypes.c_void_p, device: object) -> None:
    lib.tg_exchange_free(handle)


class Exchange:
    """The exchange of these tensors on one rank; options as in make_options."""

    _new = "tg_exchange_new"

    def __init__(self, recipe: str, tensors: Iterable[TensorSpec], rank: int, world: int, options: Mapping[str, Any]) -> None:
        self.recipe = canonical(recipe)
        self.tensors = list(tensors)
        self.rank, self.world = rank, world
        self._options = dict(options)
        self._last = Meter()
        handle = ctypes.c_void_p()
        call(self._new, ctypes.byref(handle), recipe.encode(), make_tensors(self.tensors), len(self.tensors), rank,
             world, make_options(**options))
        self.handle = handle
        # Not at exit, when others may still use it: the system takes the memory back by itself.
        # A device outlives its exchanges.
        weakref.finalize(self, _free, handle, options.get("device")).atexit = False

    def again(self) -> Exchange:
        """One like this, without its state."""
        return type(self)(self.recipe, self.tensors, self.rank, self.world, self._options)

    @property
    def group_n(self) -> int:
        return int(lib.tg_exchange_groups(self.handle))

    def group_of(self, tensor: int) -> int:
        return int(lib.tg_exchange_group(self.handle, tensor))

    @property
    def name(self) -> str:
        return str(lib.tg_exchange_name(self.handle).decode())

    def recipe_of(self, tensor: int) -> str:
        return str(lib.tg_exchange_recipe(self.handle, tensor).decode())

    def handshake(self, link: ctypes.Structure, facts: Mapping[str, object]) -> None:
        """Raises Error on every rank if they were set up differently. `facts` are compared before all else."""
        lines = "".join(f"{name} {value}\n" for name, value in facts.items())
        call("tg_handshake", self.handle, link, lines.encode())

    def reduce(self, link: ctypes.Structure, step: int, addresses: Sequence[int]) -> None:
        """One step; the gradients at the addresses become the averages. An address of 0 fails it on every rank."""
        call("tg_reduce", self.handle, link, step, pointers(addresses))

    def meter(self) -> Tuple[Dict[str, int], Dict[str, int]]:
        """What the last step took and what all took: steps and bytes."""
        last, total = Meter(), Meter()
        lib.tg_exchange_meter(self.handle, ctypes.byref(last), ctypes.byref(total))
        names = [field[0] for field in Meter._fields_ if not field[0].endswith("_ns")]
        first, second = ({name: getattr(meter, name) for name in names} for meter in (last, total))
        return first, second

    def last(self) -> Meter:
        """The meter of the last step, which the next call overwrites."""
        lib.tg_exchange_meter(self.handle, self._last, None)
        return self._last

    def traffic(self, tensor: int) -> Dict[str, Any]:
        out = Traffic()
        call("tg_exchange_traffic", ctypes.byref(out), self.handle, tensor)
        return {"bytes": out.len, "entries": out.entries}

    def frame_bytes(self) -> int:
        """The bytes of all tensors together in the last step."""
        out, traffic = Traffic(), lib.tg_exchange_traffic
        total = 0
        for t in range(len(self.tensors)):
            traffic(out, self.handle, t, None)
            total += out.len
        return total

    def residual_to(self, address: int, tensor: int) -> None:
        """Writes the residual of a tensor, as fp32, to an address."""
        call("tg_exchange_residual", self.handle, ctypes.cast(address, _FLOATS), tensor)

    def save(self) -> bytes:
        state = ctypes.create_string_buffer(lib.tg_state_len(self.handle))
        call("tg_state_save", self.handle, state, len(state))
        return state.raw

    def load(self, states: Iterable[bytes]) -> None:
        """`states` are what save returned: of this rank, or of all ranks of another world."""
        kept: List[ctypes.Array[ctypes.c_char]] = [ctypes.create_string_buffer(state, len(state)) for state in states]
        spans = (Span * len(kept))(*(Span(ctypes.addressof(state), len(state)) for state in kept))
        call("tg_state_load", self.handle, spans, len(kept))

    def follow(self, recipe: str, left: Sequence[int], exchange: Optional[str] = None) -> Exchange:
        """An exchange by another recipe that takes over the residual of this one. What it cannot keep is written to the
        addresses `left`, fp32, one a tensor."""
        out = Exchange(recipe, self.tensors, self.rank, self.world, dict(self._options, exchange=exchange))
        call("tg_exchange_adopt", pointers(left), out.handle, self.handle)
        return out


class Scatter(Exchange):
    """A reduce-scatter: of every tensor, rank r gets the sum of slice r of `world`. The caller performs the only operation of a step."""

    _new = "tg_scatter_new"

    sends: List[Memory] = []  # of the step that was begun last: what to send to each rank, ...
    recvs: List[Memory] = []  # ... and where to receive from it
    _spans: Tuple[bytes, bytes] = (b"", b"")

    def begin(self, step: int, addresses: Sequence[int]) -> bool:
        """Encodes the tensors at the addresses. Returns whether `sends` or `recvs` are others than in the step before."""
        op = Op()
        call("tg_scatter_begin", ctypes.byref(op), self.handle, step, pointers(addresses))
        length = op.world * ctypes.sizeof(Span)
        spans = ctypes.string_at(op.sends, length), ctypes.string_at(op.recvs, length)
        if spans == self._spans:
            return False
        self._spans = spans
        self.sends, self.recvs = ([(span.data or 0, span.len) for span in each[:op.world]] for each in (op.sends, op.recvs))
        return True

    def end(self, addresses: Sequence[int], divisor: float) -> None:
        """After the operation: writes sums over `divisor` to the addresses."""
        call("tg_scatter_end", self.handle, pointers(addresses), divisor)

    def cancel(self) -> None:
        lib.tg_exchange_cancel(self.handle)


# ---- steps in flight -----------------------------------------------------------------------------------------------------------


class AnyLink(Protocol):
    struct: Link
    plain_struct: Link  # without `listen`

    def begin_step(self, group_n: int) -> None: ...

    def end_step(self) -> None: ...

    def _abort(self, _: Any, reason: Optional[bytes]) -> None: ...


# tg_reducer_free waits for the reducer's thread, which may need a lock that the thread that collects garbage holds. So what is
# collected is freed by a thread of its own. (To put into a SimpleQueue is safe in a finalizer.)
_garbage: queue.SimpleQueue[Any] = queue.SimpleQueue()
_flights: weakref.WeakSet[Flight] = weakref.WeakSet()
_collector: List[threading.Thread] = []


def _free_garbage() -> None:
    while True:
        handle, *kept = _garbage.get()
        if handle is None:
            return
        lib.tg_reducer_free(handle)
        del kept


class Flight:
    """A tg_reducer: steps of an exchange over a link, group after group while the caller computes. With one group nothing can be done
    before all tensors are ready. The reducer then has no thread, and everything is done in wait(), by its caller."""

    def __init__(self, exchange: Exchange, link: AnyLink) -> None:
        self.exchange, self._link = exchange, link
        self._all = numbers(range(len(exchange.tensors)))
        self._addresses: Any = None  # of the step in progress
        self._group_n = exchange.group_n
        self.overlaps = self._group_n > 1  # with what the caller computes
        self._ready: List[Any] = []  # to be reported in wait(), if there is one group
        self._handle = ctypes.c_void_p()
        call("tg_reducer_new", ctypes.byref(self._handle), exchange.handle, link.struct if self.overlaps else link.plain_struct)
        if not _collector:
            _collector.append(threading.Thread(target=_free_garbage, name="tersegrad-free", daemon=True))
            _collector[0].start()
        self._freed = weakref.finalize(self, _garbage.put, (self._handle, exchange, link))  # both must outlive it
        self._freed.atexit = False
        _flights.add(self)

    def begin(self, step: int, addresses: Any) -> None:
        """Begins a step. `addresses` is what pointers() returns; an address is read when its tensor is reported ready."""
        self._link.begin_step(self._group_n)
        self._ready = []
        try:
            call("tg_reducer_begin", self._handle, step, addresses)
        except Error as error:  # the others, who have begun it, must not wait for this rank
            self._link._abort(None, str(error).encode())
            self._link.end_step()
            raise
        self._addresses = addresses

    def ready(self, tensors: Any) -> None:
        """Reports tensors, which are what numbers() returns. What is wrong with them fails the step, in wait()."""
        if self.overlaps:
            lib.tg_reducer_ready_all(self._handle, tensors, len(tensors), None)
        else:
            self._ready.append(tensors)

    def wait(self) -> None:
        """Waits for the end of the step. Tensors that were not reported fail it on all ranks."""
        try:
            for tensors in self._ready:
                lib.tg_reducer_ready_all(self._handle, tensors, len(tensors), None)
            call("tg_reducer_wait", self._handle)
        finally:
            self._addresses = None
            self._link.end_step()

    def reduce(self, step: int, addresses: Sequence[int]) -> None:
        """One whole step; the gradients at the addresses become the averages. An address of 0 fails it on every rank."""
        self.begin(step, pointers(addresses))
        self.ready(self._all)
        self.wait()

    def close(self) -> None:
        """Frees it. A step in progress is cancelled, and its link aborted. Not while another thread waits for it."""
        if self._freed.detach() is not None:
            lib.tg_reducer_free(self._handle)


def numbers(tensors: Iterable[int]) -> Any:
    """Numbers of tensors, as Flight.ready takes them."""
    listed = list(tensors)
    return (ctypes.c_size_t * len(listed))(*listed)


def close_flights() -> None:
    """At exit: from now on no thread of the library calls into the interpreter."""
    for flight in list(_flights):
        flight.close()
    if _collector:
        _garbage.put((None,))
        _collector.pop().join(timeout=5)
