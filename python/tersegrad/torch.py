"""Tersegrad for PyTorch: a communication hook for DistributedDataParallel, and a reducer for loops without it.

    from tersegrad.torch import State, hook

    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(State("adacomp"), hook)

There is one exchange for the whole model, not one a bucket: the hook collects the buckets of a backward pass, and when the
last one is there a thread of the State runs one step over all of them, in place. Tensors are in the order of the module's
named_parameters, so it is of no consequence how DistributedDataParallel fills its buckets. docs/pytorch.md is the tutorial.
"""

import atexit
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import torch
import torch.distributed

from ._library import Error, Rules
from ._torch_link import TorchLink
from ._torch_model import describe, describe_list
from ._torch_steps import Gradients, Steps, sentence
from .workers import Workers

if TYPE_CHECKING:
    from torch._C._distributed_c10d import GradBucket
else:  # not in a PyTorch that was built without torch.distributed, of which State tells
    GradBucket = getattr(torch.distributed, "GradBucket", object)

__all__ = ["Reducer", "State", "Workers", "hook"]

_Bucket = Tuple["torch.futures.Future[Any]", torch.Tensor, Optional[List[Tuple[Any, torch.Tensor]]]]  # parts: None if sparse
_Jobs = queue.SimpleQueue[Optional[Callable[[], None]]]

_threads: Dict[threading.Thread, Tuple[_Jobs, TorchLink]] = {}  # a thread that ends removes itself


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


class State(Steps):
    """The state of `hook`; one for each DistributedDataParallel.

    recipe         what is sent, such as "adacomp" (tersegrad.recipes()); the same on all ranks, as all options are
    model          the module, for the names of its parameters; found at the first step if it is not given
    process_group  one over gloo; the default process group if it is not given
    seed           of everything random
    rules          {pattern of names: recipe}, for tensors with a recipe of their own
    dense_below    tensors of fewer elements are sent uncompressed
    nonfinite      what to do about NaN and Inf: "error", "zero" or "pass"; the default is "pass" with a scaler, else "error"
    exchange       the algorithm of the exchange; chosen by the recipe if it is not given
    threads        that one rank encodes and decodes with
    scaler         the GradScaler, if there is one: residuals then stay in true units when the scale changes
    verify_every   steps between comparisons of the averages on all ranks; 0: never
    summary        print summary() at exit, on rank 0
    writer         an object with add_scalar, such as a SummaryWriter

    Gradients are dense CPU tensors of any shape, float32, float16 or bfloat16.
    """

    def _begin(self) -> None:
        self._gathered: List[_Bucket] = []
        self._refused: List[_Bucket] = []
        self._jobs: _Jobs = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None

    def _collect(self, bucket: GradBucket) -> "torch.futures.Future[torch.Tensor]":
        done: "torch.futures.Future[Any]" = torch.futures.Future()
        buffer, parts = bucket.buffer(), None
        if buffer.layout == torch.strided:
            parts = list(zip(bucket.parameters(), bucket.gradients()))
        trouble: Optional[Exception] = None
        try:
            self._check_model(bucket.parameters())
        except Exception as error:
            trouble = error
        # Buckets of another model are kept apart from those of the State's own, whose pass may be under way.
        if trouble is not None:
            gathered = self._refused
        else:
            gathered = self._gathered
            if bucket.index() == 0:  # of a new pass; one that was broken off has left nothing
                gathered.clear()
        gathered.append((done, buffer, parts))
        if bucket.is_last():
            of_pass = list(gathered)
            gathered.clear()
            self._queue(lambda: self._finish(of_pass, trouble))
        # Not set_exception: DistributedDataParallel would take the exception for the gradient. One that is raised by what
        # follows a future leaves backward() with its sentence.
        return done.then(self._give)

    def _queue(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name="tersegrad", daemon=True)
            _threads[self._thread] = self._jobs, self._link
            self._thread.start()
            weakref.finalize(self, self._jobs.put, None).atexit = False
        self._jobs.put(job)

    def _give(self, done: "torch.futures.Future[Any]") -> Any:
        if self._error is not None:
            raise Error(str(sentence(self._error)))
        return done.value()

    def _finish(self, gathered: List[_Bucket], trouble: Optional[Exception] = None) -> None:
        """One step over the buckets of a pass, by the thread. `trouble` is why there can be none."""
        self._error = None
        try:
            gradients: Gradients = {}
            for _, _, parts in gathered:
                if parts is None:
                    trouble = Error("a gradient is sparse; only dense ones can be exchanged (Embedding(sparse=False))")
                else:
                    gradients.update(parts)
            self._reduce(gradients, trouble)
        except BaseException as error:  # of whatever kind, or backward() would wait for ever
            self._error = error
        for done, buffer, _ in gathered:
            done.set_result(buffer if self._error is None else None)

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
    return state._collect(bucket)


class Reducer(Steps):
    """For loops without DistributedDataParallel: reduce() after backward() makes every .grad the average over all ranks.

    `parameters` is a module, or parameters in an order that is the same on all ranks. Parameters must have the same values on
    all ranks at first. Options are those of State.
    """

    def __init__(self, parameters: Union[torch.nn.Module, Iterable[torch.nn.Parameter]], recipe: str, *, process_group: Any = None,
                 seed: int = 0, rules: Optional[Rules] = None, dense_below: int = 0, nonfinite: Optional[str] = None,
                 exchange: Optional[str] = None, threads: int = 1, scaler: Any = None, verify_every: int = 100,
                 summary: bool = False, writer: Any = None) -> None:
        super().__init__(recipe, process_group=process_group, seed=seed, rules=rules, dense_below=dense_below,
                         nonfinite=nonfinite, exchange=exchange, threads=threads, scaler=scaler, verify_every=verify_every,
                         summary=summary, writer=writer)
        self._described = describe(parameters) if isinstance(parameters, torch.nn.Module) else describe_list(list(parameters))

    @torch.no_grad()
    def reduce(self) -> None:
        """One step: every .grad becomes the average, in place; one that is None counts as zeros and is a tensor afterwards.
        Raises Error, on all ranks and with no gradient changed, if any rank cannot take part."""
        gradients: Gradients = {}
        copies: List[torch.nn.Parameter] = []
        missing: List[torch.nn.Parameter] = []
        for parameter in self._described or ():
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                gradients[parameter] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
                missing.append(parameter)
                continue
            gradients[parameter] = parameter.grad
            if parameter.grad.layout == torch.strided and not parameter.grad.is_contiguous():
                gradients[parameter] = parameter.grad.contiguous()
                copies.append(parameter)
        self._reduce(gradients)
        for parameter in copies:
            if parameter.grad is not None:
                parameter.grad.copy_(gradients[parameter])
        for parameter in missing:
            parameter.grad = gradients[parameter]
