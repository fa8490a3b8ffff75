"""What drives the exchanges of Workers.

Threads     on the host: one thread per worker, over the library's threads link
Lockstep    on a GPU, over the lockstep link. A worker begins when its gradients are there: its frame is encoded on the stream of its
            device while others compute or are encoded, by a thread for each device. The rest follows when all have begun.
            Only worker 0 decodes the averages, which are the same for all.
"""

import ctypes
import queue
import threading
import time
import weakref
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from ._exchange import Exchange
from ._library import OK, STATUS, Detail, Error, Outcome, call, lib
from ._torch_device import Device

_Errors = List[BaseException]
_Job = Optional[Callable[[], None]]


class _Done:
    """What has come of a job."""

    def __init__(self, worker: int, error: Optional[BaseException], arrived: float) -> None:
        self.worker, self.error, self.arrived = worker, error, arrived


def _serve(jobs: "queue.SimpleQueue[_Job]") -> None:
    """A thread: runs jobs, which raise nothing, until it is given None."""
    while True:
        job = jobs.get()
        if job is None:
            return
        job()
        del job


def _start(jobs: "queue.SimpleQueue[_Job]", name: str) -> threading.Thread:
    thread = threading.Thread(target=_serve, args=(jobs,), name=name, daemon=True)
    thread.start()
    return thread


class Frames:
    """Counts the bytes of a worker's frames: in the background, when the next step begins, because that takes a call for each tensor."""

    def __init__(self) -> None:
        self.total = 0
        self._open: Optional[Exchange] = None

    def note(self, exchange: Exchange) -> None:
        """A step of this exchange has ended."""
        self._open = exchange

    def settle(self) -> None:
        exchange, self._open = self._open, None
        self.total += 0 if exchange is None else exchange.frame_bytes()


class Threads:
    def __init__(self, n: int, timeout: float) -> None:
        self._n = n
        self._hub = ctypes.c_void_p()
        call("tg_threads_new", ctypes.byref(self._hub), n, int(timeout * 1000), None)
        self.links = [lib.tg_threads_link(self._hub, worker) for worker in range(n)]
        self._jobs: List["queue.SimpleQueue[_Job]"] = [queue.SimpleQueue() for _ in range(n)]
        self._done: "queue.SimpleQueue[_Done]" = queue.SimpleQueue()
        own = [_start(jobs, f"tersegrad worker {worker}") for worker, jobs in enumerate(self._jobs)]
        weakref.finalize(self, _close_threads, self._jobs, own, self._hub).atexit = False

    def begin(self, worker: int, exchange: Exchange, step: int, addresses: Any, arrived: Any, before: Optional[Callable[[], None]]) -> None:
        """Starts the step of a worker, after the event `arrived`, if there is one."""
        link, done = self.links[worker], self._done

        def job() -> None:
            error, at = None, 0.0
            try:
                if before is not None:
                    before()
                if arrived is not None:
                    arrived.synchronize()
                at = time.monotonic()
                call("tg_reduce", exchange.handle, link, step, addresses)
            except BaseException as raised:  # end() returns it, and would wait for ever if it were lost here
                error = raised
            done.put(_Done(worker, error, at))
        self._jobs[worker].put(job)

    def end(self, exchanges: Sequence[Exchange]) -> Tuple[_Errors, float]:
        """Waits for all workers. What has failed, and the seconds since the last gradients were there."""
        ended = sorted((self._done.get() for _ in range(self._n)), key=lambda each: each.worker)
        exposed = time.monotonic() - max(each.arrived for each in ended)
        return [each.error for each in ended if each.error is not None], exposed

    def open_exposed(self) -> float:
        return 0.0


def _close_threads(jobs: "List[queue.SimpleQueue[_Job]]", threads: List[threading.Thread], hub: ctypes.c_void_p) -> None:
    """Ends the threads before the link that they use. A worker left waiting for others in a step is told to stop."""
    link = lib.tg_threads_link(hub, 0)
    link.contents.abort(link, b"Workers was deleted in the middle of a step")
    for each in jobs:
        each.put(None)
    for thread in threads:
        thread.join()
    lib.tg_threads_free(hub)


class Lockstep:
    def __init__(self, n: int, devices: Sequence[Device]) -> None:
        """Worker w is on devices[w % len(devices)]."""
        self._n, self._devices = n, devices
        self._jobs: List["queue.SimpleQueue[_Job]"] = [queue.SimpleQueue() for _ in devices]
        self._begun: "queue.SimpleQueue[None]" = queue.SimpleQueue()  # one for each thread that has begun all of its workers
        self._failed: _Errors = []  # of workers that could not begin
        self._is_timed = devices[0].stream is not None
        self._last: Any = None      # events: the last gradients are there
        self._timed: Any = None     # ... and the average is there; not yet counted
        threads = [_start(jobs, f"tersegrad workers {number}") for number, jobs in enumerate(self._jobs)]
        weakref.finalize(self, _close_lockstep, self._jobs, threads).atexit = False

    def _mark(self, stream: Any) -> Any:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event

    def begin(self, worker: int, exchange: Exchange, step: int, addresses: Any, arrived: Any, before: Optional[Callable[[], None]]) -> None:
        number = worker % len(self._devices)
        device, failed = self._devices[number], self._failed
        ready = device.follow()
        if self._is_timed:
            self._last = self._mark(torch.cuda.current_stream(device.of))

        def job() -> None:
            try:
                if before is not None:
                    before()
                device.catch_up(ready)
                call("tg_lockstep_begin", exchange.handle, step, addresses, int(worker == 0))
            except BaseException as raised:
                failed.append(raised)
        self._jobs[number].put(job)

    def end(self, exchanges: Sequence[Exchange]) -> Tuple[_Errors, float]:
        """Does the rest of the step. What has failed, and seconds that were exposed in the step before."""
        handles = (ctypes.c_void_p * self._n)(*(exchange.handle for exchange in exchanges))
        begun = self._begun
        for jobs in self._jobs:
            jobs.put(lambda: begun.put(None))
        for _ in self._jobs:
            begun.get()
        errors = [*self._failed, *_end_lockstep(handles, self._n)]
        self._failed.clear()
        for device in self._devices:  # gradients of all workers may be written anew
            device.lead()
        exposed = self.open_exposed()
        if self._is_timed:
            self._timed = self._last, self._mark(self._devices[0].stream)
        return errors, exposed

    def open_exposed(self) -> float:
        """Of steps that are not counted yet."""
        if self._timed is None:
            return 0.0
        (begin, end), self._timed = self._timed, None
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000


def _end_lockstep(handles: Any, n: int) -> _Errors:
    outcomes = (Outcome * n)()
    why = Detail()
    if lib.tg_lockstep_end(outcomes, handles, n, None, why) == OK:
        return []
    errors: _Errors = [Error(each.why.text.decode(errors="replace"), STATUS.get(each.status, str(each.status))) for each in outcomes
                       if each.status < 0]
    return errors or [Error(why.text.decode(errors="replace"))]


def _close_lockstep(jobs: "List[queue.SimpleQueue[_Job]]", threads: List[threading.Thread]) -> None:
    for each in jobs:
        each.put(None)
    for thread in threads:
        thread.join()
