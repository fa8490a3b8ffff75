"""Tersegrad for PyTorch: a communication hook for DistributedDataParallel, and a reducer for loops without it.

    from tersegrad.torch import State, hook

    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(State("adacomp"), hook)

There is one exchange for the whole model, not one per bucket. Tensors are in the order of the module's named_parameters, in groups of
that order. How DistributedDataParallel fills its buckets does not matter: a bucket only says when its gradients are complete.

    backward pass     bucket 0      bucket 1      bucket 2
    hook              begin, ready  ready         ready
    library           encode, send and check groups whose tensors are ready
    hook                                          wait for the end of the step, complete all futures

Buckets have 25 MB by default, which takes long to fill. So on a CPU with a slow link the hook does not wait for whole buckets: from the
third step on it takes each gradient when autograd has added to it (_torch_arrivals.py). This needs gradient_as_bucket_view=True, by which
gradients are in their buckets from the start. It begins after bucket 0, which shows that the pass is not one of no_sync().

With several States in a process, ranks may end their passes in different orders, so a thread of the State does the last line. On a GPU the
futures are complete when they are returned: DistributedDataParallel reads them only after the last bucket. With gradient_as_bucket_view=True
autograd's last callback waits for the end of the step, after all that DistributedDataParallel does at the end of the pass.

The first step creates the exchange, when all buckets are there. Steps whose gradients must be changed first (by a scaler, or by the residual
that set_recipe left over) also begin with the last bucket. docs/pytorch.md is the tutorial.
"""

import atexit
import functools
import operator
import queue
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

import torch
import torch.distributed

from .._exchange import close_flights, numbers
from .._library import Error, pointers
from .._torch_advice import shapes, write_shapes
from .._torch_arrivals import Arrivals, Groups, Watch, graph_id
from .._torch_link import TorchLink, waiters
from .._torch_local import LocalSteps
from .._torch_passes import Passes
from .._torch_reducer import Reducer
from .._torch_steps import Gradients, Steps, sentence
from ..workers import Workers

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket
else:  # not in a PyTorch that was built without torch.distributed, of which State tells
    GradBucket = getattr(torch.distributed, "GradBucket", object)

__all__ = ["LocalSteps", "Passes", "Reducer", "State", "Workers", "hook", "shapes", "write_shapes"]

_Future = torch.futures.Future
_engine: Any = torch.autograd.Variable._execution_engine
_PlainFuture: Any = torch._C.Future  # what that is made of, which DistributedDataParallel takes as well
_Jobs = queue.SimpleQueue[Optional[Callable[[], None]]]

_EARLY, _IN_BUCKET = 1, 2  # how a gradient was taken

_states: "weakref.WeakSet[State]" = weakref.WeakSet()  # all there are
_threads: Dict[threading.Thread, Tuple[_Jobs, TorchLink]] = {}  # a thread that ends removes itself


def _devices(of: torch.device) -> List[Any]:
    """Of a future."""
    return [of] if of.type == "cuda" else []


def _run(jobs: _Jobs) -> None:
    """The thread of a State. It references only the queue between jobs, so that an unused State can be collected."""
    while True:
        job = jobs.get()
        if job is None:
            _threads.pop(threading.current_thread(), None)
            return
        job()
        del job


@atexit.register
def _stop_threads() -> None:
    """Ends all threads before the interpreter is torn down. A thread that is inside PyTorch's C++ code at that time would end
    the process by std::terminate, whatever its exit status was to be."""
    for thread, (jobs, link) in list(_threads.items()):
        jobs.put(None)
        thread.join(timeout=1)
        if thread.is_alive():  # waiting for a peer that may never answer
            link._abort(None, b"the program ends")
            thread.join(timeout=5)
    if not _threads:
        close_flights()
        waiters.stop()


def _is_direct(caller: Any) -> bool:
    """Whether autograd calls, and not a hook around this one, which may use futures at once. On a GPU autograd has a thread of its own, where no
    Python function calls the hook."""
    return caller is None or str(caller.f_globals.get("__name__")).startswith("torch.autograd")


class _Pass:
    """One backward pass: its buckets so far, and whether its step is in progress."""

    def __init__(self) -> None:
        self.buckets: List[Tuple["_Future[Any]", torch.Tensor]] = []
        self.gradients: Gradients = {}
        self.trouble: Optional[Exception] = None  # why this rank cannot take part
        self.follow_schedule = True               # has to be done yet
        self.is_begun = False                     # its step
        self.graph = graph_id()
        self.arrivals: Optional[Arrivals] = None  # of its step
        self.is_early = False                     # gradients are taken before their buckets are complete
        self.added = bytearray()                  # whether each gradient was added to
        self.taken = bytearray()                  # how each gradient was taken
        self.ready_n = 0                          # tensors of buckets so far
        self.is_complete = False                  # the last bucket was there
        self.late_since: Optional[float] = None   # when it was, if autograd ends the pass after DistributedDataParallel has
        self.ended = threading.Event()
        self.error: Optional[BaseException] = None

    def end(self, error: Optional[BaseException]) -> None:
        """Completes all futures."""
        self.error = error
        buckets, self.buckets, self.gradients = self.buckets, [], {}
        self.ended.set()
        for done, buffer in buckets:
            done.set_result(buffer if buffer.layout is torch.strided else None)

    def give(self, done: "_Future[Any]") -> Any:
        """For the last bucket, which DistributedDataParallel comes to after all others, and for those that cannot be exchanged. Not
        set_exception: it would take the exception for the gradient. One that is raised by what follows a future leaves backward() with
        its sentence."""
        if self.error is not None:
            raise Error(str(sentence(self.error)))
        return done.value()


class _Layout:
    """What a bucket holds, which changes only when DistributedDataParallel fills its buckets anew."""

    def __init__(self, parameters: List[Any], tensors: List[int], buffer: torch.Tensor, gradients: List[torch.Tensor]) -> None:
        self.parameters, self.tensors = parameters, tensors
        self.offsets = [gradient.storage_offset() - buffer.storage_offset() for gradient in gradients]
        self.element_n, self.dtype, self.device = buffer.numel(), buffer.dtype, buffer.device
        self.devices = _devices(buffer.device)
        self.address = 0  # that was written for the elements
        self.is_viewed = all(p.grad is not None and p.grad.data_ptr() == g.data_ptr() for p, g in zip(parameters, gradients))  # .grad is in it
        self.done: Any = None  # a future that is complete, whose value is ...
        self.buffer: Optional[torch.Tensor] = None  # ... the bucket's, which no other bucket can have while this refers to it

    def completed(self, buffer: torch.Tensor) -> Any:
        """For a bucket whose averages are in place before anyone looks at its future: the same one in every step, because to make and complete
        one takes longer than all else that is done for a bucket."""
        if self.buffer is not buffer:
            self.done, self.buffer = _PlainFuture(self.devices), buffer
            self.done.set_result(buffer)
        return self.done

    def is_of(self, parameters: List[Any], buffer: torch.Tensor) -> bool:
        return (buffer.numel() == self.element_n and buffer.dtype is self.dtype and buffer.layout is torch.strided and
                buffer.device == self.device and len(parameters) == len(self.parameters) and
                all(map(operator.is_, parameters, self.parameters)))

    def write_addresses(self, addresses: Any, buffer: torch.Tensor) -> None:
        address = buffer.data_ptr()
        if address != self.address:
            for tensor, offset in zip(self.tensors, self.offsets):
                addresses[tensor] = address + offset * buffer.element_size()
            self.address = address


class State(Steps):
    """The state of `hook`; one for each DistributedDataParallel.

    recipe         the recipe, such as "adacomp" (tersegrad.recipes() lists parts). Recipe and options must be the same on all ranks
    model          the module, for the names of its parameters; default: found at the first step
    process_group  a group over gloo, or over NCCL for gradients on a GPU; default: the default process group
    seed           seed of all random numbers
    rules          {pattern of names: recipe}: recipes for tensors by name
    dense_below    tensors with fewer elements are sent uncompressed
    nonfinite      what to do with NaN and Inf: "error", "zero", "pass", or with a scaler "skip": the scaler skips the step, and residuals stay
                   as they were. Default: "skip" with a scaler, else "error"
    exchange       "allreduce", "gather", "shard" or "server"; default: chosen by the recipe and the number of ranks
    threads        threads that one rank encodes and decodes with
    scaler         the GradScaler, if there is one: residuals then stay in true units when the scale changes
    verify_every   compare the averages of all ranks every so many steps; 0: never
    summary        print summary() at exit, on rank 0
    writer         an object with add_scalar, such as a SummaryWriter
    group_len      bytes of gradients that are encoded and sent together, while the backward pass continues; 0: all, at its end. Default:
                   16 MiB, 128 MiB on a GPU, and 0 for models of up to 4 MiB
    hosts          the number of ranks per host, or "auto" to find it: ranks of a host average among themselves first, and one of them
                   exchanges by the recipe with other hosts. "flat": all ranks exchange by the recipe
    advise         after 20 steps, print on rank 0 what was measured, and whether another recipe, or none, would be faster

    Gradients must be dense, float32, float16 or bfloat16, on the CPU or an NVIDIA GPU. A State may be created before the process group.
    """

    def _begin(self) -> None:
        self._pass: Optional[_Pass] = None
        self._refused: List[Tuple["_Future[Any]", torch.Tensor]] = []  # buckets of another model
        self._layouts: Dict[int, _Layout] = {}
        self._addresses: Any = None  # of all gradients
        self._groups: Optional[Groups] = None
        self._watch: Optional[Watch] = None  # for gradients that are complete before their bucket is
        self._adds_twice = False             # to a gradient in a pass, so that none is taken before its bucket
        self._begun = 0.0                    # when the last pass has
        # Gradients are taken early if the link takes more than this share of a step. Otherwise messages are few and short, and one by one they
        # only interrupt the backward pass.
        self._early_share = 0.1
        self._jobs: _Jobs = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None
        _states.add(self)

    def _collect(self, bucket: GradBucket, is_direct: bool = False) -> "_Future[torch.Tensor]":
        """`is_direct`: nobody but DistributedDataParallel gets the future, which looks at it after the last bucket."""
        buffer, index = bucket.buffer(), bucket.index()
        layout, now = self._layouts.get(index), self._pass
        if layout is None or (layout.buffer is not buffer and not layout.is_of(bucket.parameters(), buffer)):
            layout = None
            try:
                self._check_model(bucket.parameters())
            except Exception as error:
                return self._refuse(bucket, error)
        if index == 0 or now is None or now.is_complete:
            self._settle()
            now = self._pass = _Pass()
            self._begin_pass(now)
        is_last = bucket.is_last()
        if is_direct and layout is not None and self._device is not None:  # the pass ends with the last bucket
            self._take(now, bucket, buffer, layout, is_last)
            if is_last:
                now.is_complete = True
                if not self._finish_late(now):
                    self._finish(now, time.monotonic())
            if now.error is None:
                return layout.completed(buffer)  # type: ignore[no-any-return]
            done: "_Future[Any]" = _Future(devices=layout.devices)
            done.set_result(buffer)
            return done.then(now.give)
        if layout is not None and not is_last:  # the way of most buckets, in a process whose other threads wait for the interpreter
            done = _PlainFuture(layout.devices)
            now.buckets.append((done, buffer))
            self._take(now, bucket, buffer, layout, False)
            return done
        done = _Future(devices=_devices(buffer.device))
        now.buckets.append((done, buffer))
        self._take(now, bucket, buffer, layout, is_last)
        if is_last:
            now.is_complete = True
            self._do(functools.partial(self._finish, now, time.monotonic()))
        return done.then(now.give) if is_last or buffer.layout is not torch.strided else done

    def _refuse(self, bucket: GradBucket, trouble: Exception) -> "_Future[torch.Tensor]":
        """Buckets of another model. They are kept apart from those of the State's own, whose step may be in progress; so that step
        is not failed, and the others learn of it when this rank ends."""
        other = _Pass()
        done: "_Future[Any]" = _Future(devices=_devices(bucket.buffer().device))
        self._refused.append((done, bucket.buffer()))
        if bucket.is_last():
            other.buckets, self._refused = self._refused, []
            self._do(lambda: self._end(other, trouble))
        other.error = trouble
        return done.then(other.give)

    def _begin_pass(self, now: _Pass) -> None:
        """Begins the step of a pass, if its gradients can be reduced as they are."""
        if self._exchange is None or self._failure is not None or self._scaler is not None:
            return
        try:
            now.follow_schedule = False
            self._follow_schedule()
            if self._unsent is None:
                self._begin_step(now)
        except Exception as error:
            now.trouble = error

    def _begin_step(self, now: _Pass) -> None:
        if self._addresses is None:
            self._addresses = pointers([0] * len(self._parameters))
        if self._groups is None or self._groups.exchange is not self._exchange:
            self._groups = Groups(self._made(), self._parameters)
        now.arrivals = Arrivals(self._groups)
        now.taken = bytearray(len(self._parameters))
        if self._groups.n > 1 and self._device is None:
            self._expect_gradients(now)
        self._flying().begin(self.step, self._addresses)
        now.is_begun = True

    def _expect_gradients(self, now: _Pass) -> None:
        """A pass whose gradients may be taken one by one. The first only watches them. That takes time for each of them, so where the link takes
        less than half of the share, nobody does."""
        wire = self._made().last().received * self._link.byte_seconds  # seconds of the last step
        before, self._begun = self._begun, time.monotonic()
        least = self._early_share * (self._begun - before) if before > 0 else 0.0
        if now.graph < 0 or wire <= 0.5 * least:
            self._watch = None  # which removes its hooks
        elif wire > least or self._watch is not None:
            now.added = bytearray(len(self._parameters))
            now.is_early = self._watch is not None and wire > least
            self._watch = self._watch or Watch(self, self._parameters, State._note_added)

    def _note_added(self, t: int) -> None:
        """A gradient was added to, in whatever pass. It is complete, unless the pass adds to it twice, as one within another does (re-entrant
        checkpointing). The first pass only looks whether that happens."""
        now = self._pass
        if now is None or now.arrivals is None or not now.added or not now.is_begun or now.is_complete:
            return
        if now.added[t]:
            self._adds_twice = True
            if now.taken[t] == _EARLY:
                now.trouble = now.trouble or Error(f"gradient {self._made().tensors[t].name!r} was added to when it was already being sent, which did "
                                                   "not happen in the first steps; State(group_len=0) sends none before the end of a pass")
            return
        now.added[t] = True
        if not now.is_early or self._adds_twice or now.taken[t] or now.trouble is not None or now.graph != graph_id():
            return
        gradient = self._parameters[t].grad
        if gradient is not None and gradient.data_ptr() == self._addresses[t]:  # it is in its bucket
            now.taken[t] = _EARLY
            self._tell(now.arrivals.note(t))

    def _tell(self, tensors: Any) -> None:
        if tensors is not None:
            self._meet()
            self._flying_now().ready(tensors)

    def _note_bucket(self, now: _Pass, layout: _Layout, is_last: bool) -> None:
        """All gradients of a bucket are complete."""
        arrivals = now.arrivals
        assert arrivals is not None
        for t in layout.tensors:
            if now.taken[t] == _IN_BUCKET:
                raise Error(f"gradient {self._made().tensors[t].name!r} was reported ready twice")
            if not now.taken[t]:
                self._tell(arrivals.note(t))
            now.taken[t] = _IN_BUCKET
        if is_last:
            self._tell(numbers(arrivals.rest()))

    def _take(self, now: _Pass, bucket: GradBucket, buffer: torch.Tensor, layout: Optional[_Layout], is_last: bool) -> None:
        """The gradients of a bucket: reports them to the step of the pass, or keeps them until it begins."""
        try:
            if layout is None and buffer.layout != torch.strided:
                raise Error("a gradient is sparse; only dense ones can be exchanged (Embedding(sparse=False))")
            if not now.is_begun:
                parameters: List[Any] = bucket.parameters()
                now.gradients.update(zip(parameters, bucket.gradients()))
                return
            if layout is None:
                layout = self._layouts[bucket.index()] = self._new_layout(bucket.parameters(), buffer, bucket.gradients())
            layout.write_addresses(self._addresses, buffer)
            now.ready_n += len(layout.tensors)
            if is_last and now.ready_n != len(self._parameters):
                raise self._other_parameters()
            if now.trouble is None:
                self._note_bucket(now, layout, is_last)
            if is_last and len(self._layouts) > bucket.index() + 1:  # DistributedDataParallel has fewer buckets than before
                self._layouts = {index: other for index, other in self._layouts.items() if index <= bucket.index()}
        except Exception as error:
            now.trouble = now.trouble or error

    def _new_layout(self, parameters: List[Any], buffer: torch.Tensor, gradients: List[torch.Tensor]) -> _Layout:
        for other in self._layouts.values():
            other.address = 0  # its tensors may be in another bucket now
        by_parameter = dict(zip(parameters, gradients))
        self._check(by_parameter)
        assert self._groups is not None
        tensors = [self._groups.numbers.get(id(parameter)) for parameter in parameters]
        known = [t for t in tensors if t is not None]
        if len(known) != len(tensors):
            raise self._other_parameters()
        for t, gradient in zip(known, gradients):
            self._check_tensor(t, gradient)
        return _Layout(parameters, known, buffer, gradients)

    def _settle(self) -> None:
        """A pass that was broken off (by an exception in backward) has a step of which tensors are missing: it fails on all ranks.
        Those that have broken it off, too, do the same when they come here."""
        now = self._pass
        if now is None:
            return
        if now.is_complete:
            since, now.late_since = now.late_since, None
            if since is not None:  # an exception has broken off the end of the backward pass
                self._finish(now, since)
            now.ended.wait()
        elif now.is_begun:
            error = Error("a backward pass was broken off before its last gradients were there")
            try:
                self._conclude(self._flying_now().wait, error, time.monotonic())
            except Exception:
                pass  # of no interest to the next pass, unless the link has failed, which it will find
            now.end(error)
        self._pass = None

    def _do(self, job: Callable[[], None]) -> None:
        """Ends a pass: here, which takes no hand-over between threads; or by the thread, if ranks may end passes of several States in
        different orders, and would wait for each other. Not over NCCL: DistributedDataParallel goes on to use the process group."""
        if len(_states) == 1 or self._device is not None:
            job()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name="tersegrad", daemon=True)
            _threads[self._thread] = self._jobs, self._link
            self._thread.start()
            weakref.finalize(self, self._jobs.put, None).atexit = False
        self._jobs.put(job)

    def _finish_late(self, now: _Pass) -> bool:
        """Has autograd end the pass, after DistributedDataParallel has done what it does with futures, which takes as long as short waits. Not if
        that copies averages: then they must be there. False: it has to be done now."""
        if not all(layout.is_viewed for layout in self._layouts.values()):
            return False
        try:
            _engine.queue_callback(lambda: _engine.queue_callback(functools.partial(self._end_late, now)))
        except RuntimeError:  # outside of a backward pass
            return False
        now.late_since = time.monotonic()
        return True

    def _end_late(self, now: _Pass) -> None:
        """What this raises leaves backward()."""
        since, now.late_since = now.late_since, None
        if since is not None:
            self._finish(now, since)
        if now.error is not None:
            raise Error(str(sentence(now.error)))

    def _finish(self, now: _Pass, begin: float) -> None:
        """The end of a pass."""
        failure: Optional[BaseException] = None
        try:
            if now.is_begun:
                self._conclude(self._flying_now().wait, now.trouble, begin)
            else:
                self._reduce(now.gradients, now.trouble, now.follow_schedule)
        except BaseException as error:  # of whatever kind, or backward() would wait for ever
            failure = error
        self._end(now, failure)

    def _end(self, now: _Pass, error: Optional[BaseException]) -> None:
        self._error = error
        now.end(error)

    def _strides(self, parameter: torch.Tensor) -> Tuple[int, ...]:
        """In a bucket a gradient lies as its parameter does, which may be channels_last. (The views that GradBucket.gradients()
        returns are in the order of indices all the same.)"""
        return torch.empty_like(parameter, device="meta").stride()

    def check(self) -> None:
        """Raises the Error that the last step failed with, if it did. backward() has raised it too, but as a RuntimeError
        with its text in it."""
        if self._error is not None:
            raise self._error


# DistributedDataParallel compares these annotations with the types themselves: they cannot be strings.
def hook(state: State, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For DistributedDataParallel.register_comm_hook(State(...), hook): averages the gradients of all buckets in place."""
    return state._collect(bucket, _is_direct(sys._getframe().f_back))
