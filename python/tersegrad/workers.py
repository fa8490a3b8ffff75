"""N workers of one process on one device: real frames and real residuals, without a cluster.

    from tersegrad.torch import Workers

    workers = Workers(model, 4, "adacomp", seed=1)
    for batches in loader:                          # one batch per worker
        for worker, (x, y) in enumerate(batches):
            model.zero_grad(set_to_none=True)
            loss(model(x), y).backward()
            workers.collect(worker)                 # copies the gradients; encoding starts in the background
        workers.reduce()                            # every .grad becomes the average over the workers
        optimizer.step()

Every worker has an exchange of its own with its own residuals. The exchanges talk over the library's threads link, one
thread per worker, so that bytes and averages are those of N processes. Gradients on a GPU travel through pinned host
memory; the codec runs on the CPU, and encoding one worker overlaps with the backward pass of the next. Since all workers
share one set of weights, buffers such as batch-norm statistics are shared too unless the caller swaps them.
"""

import ctypes
import queue
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ._exchange import Exchange
from ._library import Detail, Error, Link, Rules, TensorSpec, canonical, call, lib
from ._torch_model import describe, describe_list, dtype_name

_FORMAT = "tersegrad.Workers 1"
_COUNTS = ("steps", "logical", "dense", "payload", "header", "received")

lib.tg_threads_new.restype = ctypes.c_int
lib.tg_threads_new.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p,
                               ctypes.POINTER(Detail)]
lib.tg_threads_link.restype = ctypes.POINTER(Link)
lib.tg_threads_link.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
lib.tg_threads_free.restype = None
lib.tg_threads_free.argtypes = [ctypes.c_void_p]


class Workers:
    """`n` virtual workers that train one model by one recipe.

    model          a module, or a list of parameters
    recipe         what is sent (README.md)
    seed           of everything random; shared by all workers
    rules          {pattern of names: recipe} for tensors that use a recipe of their own
    dense_below    tensors of fewer elements travel uncompressed
    nonfinite      what to do about NaN and Inf: "error", "zero" or "pass"
    exchange       who sends what to whom; chosen by recipe and n if it is not given
    threads        threads that each worker encodes and decodes with
    verify_every   steps between comparisons of the averages of all workers; 0: never
    timeout        seconds after which a worker that does not take part fails the step
    """

    def __init__(self, model: Union[torch.nn.Module, Sequence[torch.nn.Parameter]], n: int, recipe: str, *,
                 seed: Optional[int] = None, rules: Optional[Rules] = None, dense_below: int = 0, nonfinite: str = "error",
                 exchange: Optional[str] = None, threads: int = 1, verify_every: int = 0, timeout: float = 600) -> None:
        if n < 1:
            raise Error(f"there are {n} workers; at least one is needed")
        described = describe(model) if isinstance(model, torch.nn.Module) else describe_list(list(model))
        self._parameters = [parameter for parameter in described if parameter.requires_grad]
        if not self._parameters:
            raise Error("the model has no parameter that requires a gradient")
        self.n, self.recipe, self.step = n, canonical(recipe), 0
        self._options: Dict[str, Any] = {"seed": seed, "rules": rules, "dense_below": dense_below, "nonfinite": nonfinite, "exchange": exchange,
                         "threads": threads, "verify_every": verify_every}
        self._tensors = [TensorSpec(described[p][0], tuple(p.shape), described[p][1], self._dtype(described[p][0], p))
                         for p in self._parameters]
        self._exchanges = self._make()
        self._lay_out()
        self._hub = ctypes.c_void_p()
        call("tg_threads_new", ctypes.byref(self._hub), n, int(timeout * 1000), None)
        self._links = [lib.tg_threads_link(self._hub, worker) for worker in range(n)]
        self._collected = [False] * n
        self._errors: List[Optional[BaseException]] = [None] * n
        self._arrivals = [0.0] * n  # when a worker's gradients were in host memory
        self._frame_bytes, self._seconds, self._exposed = 0, 0.0, 0.0
        self._jobs: List["queue.SimpleQueue[Any]"] = [queue.SimpleQueue() for _ in range(n)]
        self._done: "queue.SimpleQueue[Tuple[int, Optional[BaseException]]]" = queue.SimpleQueue()
        own = [threading.Thread(target=_serve, args=(jobs, self._done), name=f"tersegrad worker {worker}", daemon=True)
                   for worker, jobs in enumerate(self._jobs)]
        for thread in own:
            thread.start()
        weakref.finalize(self, _close, self._jobs, own, self._hub).atexit = False

    @staticmethod
    def _dtype(name: str, parameter: torch.Tensor) -> str:
        dtype = dtype_name(parameter.dtype)
        if dtype is None:
            raise Error(f"parameter {name!r} is of {parameter.dtype}; float32, float16 and bfloat16 can be exchanged")
        return dtype

    def _make(self) -> List[Exchange]:
        return [Exchange(self.recipe, self._tensors, worker, self.n, self._options) for worker in range(self.n)]

    def _lay_out(self) -> None:
        """One buffer per worker that holds all gradients, tensor after tensor, in host memory and on the device."""
        self.device = self._parameters[0].device
        if any(p.device != self.device for p in self._parameters):
            raise Error("the parameters are on several devices; Workers needs them on one")
        offsets: List[int] = []
        end = 0
        for p in self._parameters:
            end = -(-end // 4) * 4
            offsets.append(end)
            end += p.numel() * p.element_size()
        self._is_flat = all(p.dtype == torch.float32 for p in self._parameters)
        on_gpu = self.device.type == "cuda"
        self._host = [torch.empty(end, dtype=torch.uint8, pin_memory=on_gpu) for _ in range(self.n)]
        self._staged = [torch.empty(end, dtype=torch.uint8, device=self.device) for _ in range(self.n)] if on_gpu else self._host
        self._average = torch.empty(end, dtype=torch.uint8, device=self.device) if on_gpu else self._host[0]
        self._stream = torch.cuda.Stream(self.device) if on_gpu else None  # type: ignore[no-untyped-call]

        def views(buffer: torch.Tensor) -> List[torch.Tensor]:
            return [buffer[o:o + p.numel() * p.element_size()].view(p.dtype).view(p.shape)
                    for o, p in zip(offsets, self._parameters)]
        self._staged_views = [views(buffer) for buffer in self._staged]
        self._average_views = views(self._average)
        self._addresses = [[buffer.data_ptr() + o for o in offsets] for buffer in self._host]

    # ---- a step --------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def collect(self, worker: int, flat: Optional[torch.Tensor] = None) -> None:
        """Takes the gradients of one worker and starts to encode them. They are copied: .grad may be cleared or written
        anew at once. A parameter without a gradient counts as zeros. `flat`, a float32 tensor of all gradients laid end to
        end in the order of the parameters, is taken in place of .grad where it is given."""
        if not 0 <= worker < self.n:
            raise Error(f"there is no worker {worker}; there are {self.n}, from 0 on")
        if self._collected[worker]:
            raise Error(f"the gradients of worker {worker} were collected already; reduce() ends the step")
        if flat is not None:
            self._check_flat(flat)
            self._staged[worker].view(torch.float32).copy_(flat.reshape(-1))
        else:
            for view, parameter, tensor in zip(self._staged_views[worker], self._parameters, self._tensors):
                if parameter.grad is None:
                    view.zero_()
                elif parameter.grad.layout != torch.strided:
                    raise Error(f"gradient {tensor[0]!r} is sparse; only dense ones can be exchanged (Embedding(sparse=False))")
                else:
                    view.copy_(parameter.grad)
        arrived = self._to_host(worker) if self._stream is not None else None
        self._collected[worker] = True
        exchange, link, step, addresses = self._exchanges[worker], self._links[worker], self.step, self._addresses[worker]
        arrivals = self._arrivals

        def job() -> None:
            if arrived is not None:
                arrived.synchronize()
            arrivals[worker] = time.monotonic()
            exchange.reduce(link, step, addresses)
        self._jobs[worker].put((worker, job))

    def _check_flat(self, flat: torch.Tensor) -> None:
        if not self._is_flat:
            raise Error("flat gradients need a model whose parameters are all of float32")
        if flat.dtype != torch.float32 or flat.numel() * 4 != self._host[0].numel():
            raise Error(f"the flat gradient has {flat.numel()} elements of {flat.dtype}; it must have "
                        f"{self._host[0].numel() // 4} of torch.float32")

    def _to_host(self, worker: int) -> torch.cuda.Event:
        """Copies a worker's gradients to pinned memory in a stream of its own; the event that tells when they are there."""
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            self._host[worker].copy_(self._staged[worker], non_blocking=True)
            # Blocking: the wait sleeps instead of spinning, which would take cores from encoders.
            arrived = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            arrived.record(self._stream)
        return arrived

    @torch.no_grad()
    def reduce(self, out: Optional[torch.Tensor] = None) -> None:
        """Ends the step: every .grad becomes the average over the workers; or `out`, flat as in collect, and .grad is left
        alone. Raises Error if the step has failed; gradients and residuals are then as they were before it."""
        missing = [worker for worker, is_there in enumerate(self._collected) if not is_there]
        if missing:
            raise Error(f"worker {missing[0]} has no gradients in step {self.step}; call collect({missing[0]}) first")
        if out is not None:
            self._check_flat(out)
        begin = time.monotonic()
        for _ in range(self.n):
            worker, error = self._done.get()
            self._errors[worker] = error
        self._exposed += time.monotonic() - max(self._arrivals)
        self._collected = [False] * self.n
        failed = [error for error in self._errors if error is not None]
        if failed:
            # A worker whose own gradients are at fault says so; the others say that it failed.
            raise next((error for error in failed if getattr(error, "code", None) not in ("PEER", "LINK")), failed[0])
        if self._stream is not None:
            self._average.copy_(self._host[0], non_blocking=True)
        if out is not None:
            out.view(-1).copy_(self._average.view(torch.float32))
        else:
            for view, parameter in zip(self._average_views, self._parameters):
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(view)
        self.step += 1
        self._seconds += time.monotonic() - begin
        self._frame_bytes += sum(self._exchanges[0].traffic(t)["bytes"] for t in range(len(self._tensors)))

    # ---- facts ---------------------------------------------------------------------------------------------------------

    def meter(self, worker: int = 0) -> Any:
        """What a worker's exchange has counted, as dicts: the last step, and all steps."""
        return self._exchanges[worker].meter()

    def stats(self) -> Dict[str, Any]:
        """All steps together: the exchange's own counts as a mean over the workers, `sent` bytes, the `ratio` of an
        uncompressed all-reduce to what was sent, `frame_bytes` that worker 0 encoded its gradients in (each once, however
        many workers they went to), `seconds` in which reduce() waited, for a GPU's backward passes too, and `exposed`, the
        part of the exchange that no backward pass hides: seconds from when the last worker's gradients were in host memory
        until all workers had the average."""
        totals = [self.meter(worker)[1] for worker in range(self.n)]
        out: Dict[str, Any] = {name: sum(total[name] for total in totals) / self.n for name in _COUNTS}
        out["sent"] = out["payload"] + out["header"]
        out["ratio"] = out["dense"] / out["sent"] if out["sent"] else 1.0
        return dict(out, exchange=self._exchanges[0].name, frame_bytes=self._frame_bytes, seconds=self._seconds,
                    exposed=self._exposed)

    def residual(self, worker: int) -> Dict[str, torch.Tensor]:
        """The error-feedback residual of a worker: {name: fp32 tensor in host memory}."""
        out = {}
        for t, (name, shape, _, _) in enumerate(self._tensors):
            out[name] = torch.zeros(shape, dtype=torch.float32)
            self._exchanges[worker].residual_to(out[name].data_ptr(), t)
        return out

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """The state of all workers, for torch.save. Between steps."""
        if any(self._collected):
            raise Error("a step is under way; reduce() ends it", "STATE")
        return {"format": _FORMAT, "recipe": self.recipe, "exchange": self._options["exchange"], "seed": self._options["seed"],
                "n": self.n, "step": self.step, "tensors": [(name, tuple(shape)) for name, shape, _, _ in self._tensors],
                "states": [torch.frombuffer(bytearray(x.save()), dtype=torch.uint8) for x in self._exchanges]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what state_dict returned, with the same bits. With another number of workers the residuals are
        shared out so that their mean stays the same. Counts of bytes start anew."""
        if any(self._collected):
            raise Error("a step is under way; reduce() ends it", "STATE")
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise Error("this is not what Workers.state_dict returned", "STATE")
        if state["recipe"] != self.recipe:
            raise Error(f"the state was saved with recipe '{state['recipe']}', and this is '{self.recipe}'", "MISMATCH")
        if [(name, tuple(shape)) for name, shape in state["tensors"]] != [t[:2] for t in self._tensors]:
            raise Error("the state is of another model", "MISMATCH")
        states = [bytes(part.numpy()) for part in state["states"]]
        fresh = self._make()
        for worker, exchange in enumerate(fresh):
            exchange.load([states[worker]] if state["n"] == self.n else states)
        self._exchanges, self.step = fresh, state["step"]


def _serve(jobs: "queue.SimpleQueue[Optional[Tuple[int, Callable[[], None]]]]",
           done: "queue.SimpleQueue[Tuple[int, Optional[BaseException]]]") -> None:
    """A worker's thread: runs its steps until it is given None."""
    while True:
        order = jobs.get()
        if order is None:
            return
        worker, job = order
        try:
            job()
            error: Optional[BaseException] = None
        except BaseException as raised:  # reduce() raises it; it would wait for ever if it were lost here
            error = raised
        del job, order
        done.put((worker, error))


def _close(jobs: "List[queue.SimpleQueue[Any]]", threads: List[threading.Thread], hub: ctypes.c_void_p) -> None:
    """Ends the threads before the link that they use. A worker left waiting for others in a step is told to stop."""
    link = lib.tg_threads_link(hub, 0)
    link.contents.abort(link, b"Workers was deleted in the middle of a step")
    for each in jobs:
        each.put(None)
    for thread in threads:
        thread.join()
    lib.tg_threads_free(hub)
