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

Every worker has an exchange of its own with its own residuals, so that bytes and averages are those of N processes
(_workers_engines.py drives them). Encoding one worker overlaps with the backward pass of the next. Since all workers
share one set of weights, buffers such as batch-norm statistics are shared too unless the caller swaps them.
"""

import os
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ._exchange import Exchange
from ._library import Error, Rules, TensorSpec, canonical, has_cuda, pointers
from ._torch_device import Device
from ._torch_model import describe, describe_list, dtype_name
from ._workers_engines import Frames, Lockstep, Threads

_FORMAT = "tersegrad.Workers 1"
_COUNTS = ("steps", "logical", "dense", "payload", "header", "received")
_CODECS = (None, "host", "device")
_STREAMS = 4  # on which workers are encoded at once on a GPU, each with a thread that waits for it


def _strides(parameter: torch.Tensor) -> Tuple[int, ...]:
    """How its gradients lie in memory: as the parameter does, which may be channels_last, and without gaps."""
    return torch.empty_like(parameter, device="meta").stride()


class Workers:
    """`n` virtual workers that train one model by one recipe.

    model          a module, or a list of parameters
    recipe         the recipe (docs/recipes.md)
    seed           seed of all random numbers, shared by all workers
    rules          {pattern of names: recipe}: recipes for tensors by name
    dense_below    tensors with fewer elements are sent uncompressed
    nonfinite      what to do with NaN and Inf: "error", "zero" or "pass"
    exchange       "allreduce", "gather", "shard" or "server"; default: chosen by the recipe and n
    threads        threads that each worker encodes and decodes with, on the host
    verify_every   compare the averages of all workers every so many steps; 0: never
    timeout        seconds after which a worker that does not take part fails the step, on the host
    codec          where gradients are encoded: "host" or "device". Default: on the device if the model is on a GPU and the recipe has
                   kernels, else on the host. `workers.codec` says which; the bits are the same
    """

    def __init__(self, model: Union[torch.nn.Module, Sequence[torch.nn.Parameter]], n: int, recipe: str, *,
                 seed: Optional[int] = None, rules: Optional[Rules] = None, dense_below: int = 0, nonfinite: str = "error",
                 exchange: Optional[str] = None, threads: int = 1, verify_every: int = 0, timeout: float = 600,
                 codec: Optional[str] = None) -> None:
        if n < 1:
            raise Error(f"there are {n} workers; at least one is needed")
        if codec not in _CODECS:
            raise Error(f"codec is {codec!r}; it is 'host', 'device' or not given")
        described = describe(model) if isinstance(model, torch.nn.Module) else describe_list(list(model))
        self._parameters = [parameter for parameter in described if parameter.requires_grad]
        if not self._parameters:
            raise Error("the model has no parameter that requires a gradient")
        self.device = self._parameters[0].device
        if any(p.device != self.device for p in self._parameters):
            raise Error("the parameters are on several devices; Workers needs them on one")
        self.n, self.recipe, self.step = n, canonical(recipe), 0
        self._options: Dict[str, Any] = {"seed": seed, "rules": rules, "dense_below": dense_below, "nonfinite": nonfinite, "exchange": exchange,
                         "threads": threads, "verify_every": verify_every}
        self._devices: List[Device] = []  # that workers are encoded on, in turn: streams of one GPU; none: on the host
        self._tensors = [TensorSpec(described[p][0], tuple(p.shape), described[p][1], self._dtype(described[p][0], p))
                         for p in self._parameters]
        self._exchanges = self._make(codec)
        self.codec = "device" if self._devices else "host"
        self._lay_out()
        self._engine: Union[Lockstep, Threads] = Lockstep(n, self._devices) if self._devices else Threads(n, timeout)
        self._collected = [False] * n
        self._unsent: Optional[List[torch.Tensor]] = None
        self._frames = Frames()
        self._seconds, self._exposed = 0.0, 0.0

    @staticmethod
    def _dtype(name: str, parameter: torch.Tensor) -> str:
        dtype = dtype_name(parameter.dtype)
        if dtype is None:
            raise Error(f"parameter {name!r} is of {parameter.dtype}; float32, float16 and bfloat16 can be exchanged")
        return dtype

    def _make(self, codec: Optional[str]) -> List[Exchange]:
        """The exchanges of all workers, with the device or without it."""
        if codec == "device" or (codec is None and self.device.type == "cuda" and has_cuda):
            self._devices = [Device(self.device) for _ in range(min(self.n, _STREAMS, max((os.cpu_count() or 2) // 2, 1)))]
            try:
                return self._make_all()
            except Error as error:
                if codec == "device" or error.code != "RECIPE":
                    raise
                self._devices = []
        return self._make_all()

    def _make_all(self) -> List[Exchange]:
        return [Exchange(self.recipe, self._tensors, worker, self.n,
                         dict(self._options, device=self._devices[worker % len(self._devices)] if self._devices else None))
                for worker in range(self.n)]

    def _lay_out(self) -> None:
        """One buffer per worker that holds all gradients, tensor after tensor, where the model is; and where they are encoded."""
        offsets: List[int] = []
        end = 0
        for p in self._parameters:
            end = -(-end // 4) * 4
            offsets.append(end)
            end += p.numel() * p.element_size()
        self._offsets = offsets
        self._is_flat = all(p.dtype == torch.float32 for p in self._parameters)
        through_host = self.device.type == "cuda" and self.codec == "host"
        self._staged = [torch.empty(end, dtype=torch.uint8, device=self.device) for _ in range(self.n)]
        self._encoded = [torch.empty(end, dtype=torch.uint8, pin_memory=True) for _ in range(self.n)] if through_host else self._staged
        self._average = torch.empty(end, dtype=torch.uint8, device=self.device) if through_host else self._staged[0]
        self._stream = torch.cuda.Stream(self.device) if through_host else None  # type: ignore[no-untyped-call]

        def views(buffer: torch.Tensor) -> List[torch.Tensor]:
            return [buffer[o:o + p.numel() * p.element_size()].view(p.dtype).as_strided(p.shape, _strides(p))
                    for o, p in zip(offsets, self._parameters)]
        self._staged_views = [views(buffer) for buffer in self._staged]
        self._average_views = views(self._average)
        self._addresses = [pointers([buffer.data_ptr() + o for o in offsets]) for buffer in self._encoded]

    # ---- a step --------------------------------------------------------------------------------------------------------

    def gradient(self, worker: int) -> torch.Tensor:
        """The memory that a worker's gradients are encoded from, or copied from to be encoded: all of them, laid end to end in the order of
        the parameters, each as its parameter lies in memory, in float32. What is written there, and then given to collect(worker, workers.gradient(worker)), is not
        copied before. Its contents are lost with reduce()."""
        self._check_worker(worker)
        if not self._is_flat:
            raise Error("flat gradients need a model whose parameters are all of float32")
        return self._staged[worker].view(torch.float32)

    def _check_worker(self, worker: int) -> None:
        if not 0 <= worker < self.n:
            raise Error(f"there is no worker {worker}; there are {self.n}, from 0 on")

    @torch.no_grad()
    def collect(self, worker: int, flat: Optional[torch.Tensor] = None) -> None:
        """Takes the gradients of one worker and starts to encode them. They are copied: .grad may be cleared or
        overwritten at once. A parameter without a gradient counts as zeros. `flat`, a float32 tensor of all gradients as gradient()
        lays them out, is used instead of .grad if it is given."""
        self._check_worker(worker)
        if self._collected[worker]:
            raise Error(f"the gradients of worker {worker} were collected already; reduce() ends the step")
        if flat is not None:
            self._check_flat(flat)
            if flat.data_ptr() != self._staged[worker].data_ptr():
                self._staged[worker].view(torch.float32).copy_(flat.reshape(-1))
        else:
            self._copy_gradients(worker)
        self._begin(worker)

    def _begin(self, worker: int) -> None:
        """Starts to encode a worker's gradients, which are where they belong."""
        self._collected[worker] = True
        if self._unsent is not None:
            self._staged[worker].view(torch.float32).add_(self._unsent[worker])
        before = self._frames.settle if worker == 0 else None
        arrived = None if self._stream is None else self._to_host(worker)
        self._engine.begin(worker, self._exchanges[worker], self.step, self._addresses[worker], arrived, before)

    def _copy_gradients(self, worker: int) -> None:
        for view, parameter, tensor in zip(self._staged_views[worker], self._parameters, self._tensors):
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad.layout != torch.strided:
                raise Error(f"gradient {tensor[0]!r} is sparse; only dense ones can be exchanged (Embedding(sparse=False))")
            elif parameter.grad.device != self.device:
                raise Error(f"gradient {tensor[0]!r} is on {parameter.grad.device}, and the model was on {self.device} when Workers was made")
            elif parameter.grad.data_ptr() != view.data_ptr():
                view.copy_(parameter.grad)

    def _check_flat(self, flat: torch.Tensor) -> None:
        if not self._is_flat:
            raise Error("flat gradients need a model whose parameters are all of float32")
        if flat.dtype != torch.float32 or flat.numel() * 4 != self._staged[0].numel():
            raise Error(f"the flat gradient has {flat.numel()} elements of {flat.dtype}; it must have "
                        f"{self._staged[0].numel() // 4} of torch.float32")
        if flat.device != self.device:
            raise Error(f"the flat gradient is on {flat.device}, and the model is on {self.device}")

    def _to_host(self, worker: int) -> torch.cuda.Event:
        """Copies a worker's gradients to pinned memory in a stream of its own; the event that tells when they are there."""
        assert self._stream is not None
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            self._encoded[worker].copy_(self._staged[worker], non_blocking=True)
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
        failed, exposed = self._engine.end(self._exchanges)
        self._exposed += exposed
        self._collected = [False] * self.n
        if failed:
            # A worker whose own gradients are at fault says so; the others say that it failed.
            raise next((error for error in failed if getattr(error, "code", None) not in ("PEER", "LINK")), failed[0])
        if self._stream is not None:
            self._average.copy_(self._encoded[0], non_blocking=True)
        if out is not None:
            if out.data_ptr() != self._average.data_ptr():
                out.view(-1).copy_(self._average.view(torch.float32))
        else:
            for view, parameter in zip(self._average_views, self._parameters):
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                if parameter.grad.data_ptr() != view.data_ptr():
                    parameter.grad.copy_(view)
        self.step += 1
        self._unsent = None
        self._seconds += time.monotonic() - begin
        self._frames.note(self._exchanges[0])

    # ---- another recipe ------------------------------------------------------------------------------------------------

    def set_recipe(self, recipe: str, exchange: Optional[str] = None) -> None:
        """Uses another recipe from the next step on. The residuals are kept: a recipe without feedback sends them with the next
        gradients. stats() restarts from 0. Call it between steps; all parameters of the model must be float32."""
        if any(self._collected):
            raise Error("a step is under way; reduce() ends it", "STATE")
        if not self._is_flat:
            raise Error("another recipe needs a model whose parameters are all of float32")
        followed, unsent = [], []
        for worker, old in enumerate(self._exchanges):
            left = torch.zeros(self._staged[worker].numel() // 4)
            followed.append(old.follow(recipe, [left.data_ptr() + o for o in self._offsets], exchange))
            unsent.append(left.to(self.device))
        if self._unsent is not None:
            unsent = [left + before for left, before in zip(unsent, self._unsent)]
        self._frames.settle()
        self._exchanges, self.recipe = followed, canonical(recipe)
        self._options["exchange"] = exchange
        self._unsent = unsent if any(bool(left.any()) for left in unsent) else None
        self._frames, self._seconds, self._exposed = Frames(), 0.0, 0.0

    # ---- facts ---------------------------------------------------------------------------------------------------------

    def meter(self, worker: int = 0) -> Any:
        """What a worker's exchange has counted, as dicts: the last step, and all steps."""
        return self._exchanges[worker].meter()

    def stats(self) -> Dict[str, Any]:
        """All steps together: the exchange's own counts as a mean over the workers, `sent` bytes, the `ratio` of an
        uncompressed all-reduce to what was sent, `frame_bytes` that worker 0 encoded its gradients in (each once, however
        many workers they went to), `seconds` in which reduce() waited, for a GPU's backward passes too, and `exposed`, the
        part of the exchange that no backward pass hides: seconds from when the last worker's gradients were in host memory
        until all workers had the average. With the codec on a GPU that is measured there, from the last gradient to the average."""
        self._frames.settle()
        self._exposed += self._engine.open_exposed()
        totals = [self.meter(worker)[1] for worker in range(self.n)]
        out: Dict[str, Any] = {name: sum(total[name] for total in totals) / self.n for name in _COUNTS}
        out["sent"] = out["payload"] + out["header"]
        out["ratio"] = out["dense"] / out["sent"] if out["sent"] else 1.0
        return dict(out, exchange=self._exchanges[0].name, codec=self.codec, frame_bytes=self._frames.total, seconds=self._seconds,
                    exposed=self._exposed)

    def residual(self, worker: int) -> Dict[str, torch.Tensor]:
        """The error-feedback residual of a worker: {name: fp32 tensor in host memory}."""
        out = {}
        for t, ((name, shape, _, _), parameter) in enumerate(zip(self._tensors, self._parameters)):
            out[name] = torch.empty_strided(shape, _strides(parameter), dtype=torch.float32)
            self._exchanges[worker].residual_to(out[name].data_ptr(), t)
        return out

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """The state of all workers, for torch.save. Between steps."""
        if any(self._collected):
            raise Error("a step is under way; reduce() ends it", "STATE")
        if self._unsent is not None:
            raise Error("the next step sends what the recipe before left; save after it", "STATE")
        return {"format": _FORMAT, "recipe": self.recipe, "exchange": self._options["exchange"], "seed": self._options["seed"],
                "n": self.n, "step": self.step, "tensors": [(name, tuple(shape)) for name, shape, _, _ in self._tensors],
                "states": [torch.frombuffer(bytearray(x.save()), dtype=torch.uint8) for x in self._exchanges]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what state_dict returned, with the same bits. With another number of workers the residuals are
        distributed so that their mean stays the same. Counts of bytes restart from 0."""
        if any(self._collected):
            raise Error("a step is under way; reduce() ends it", "STATE")
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise Error("this is not what Workers.state_dict returned", "STATE")
        if state["recipe"] != self.recipe:
            raise Error(f"the state was saved with recipe '{state['recipe']}', and this is '{self.recipe}'", "MISMATCH")
        if [(name, tuple(shape)) for name, shape in state["tensors"]] != [t[:2] for t in self._tensors]:
            raise Error("the state is of another model", "MISMATCH")
        states = [bytes(part.numpy()) for part in state["states"]]
        fresh = self._make_all()
        for worker, exchange in enumerate(fresh):
            exchange.load([states[worker]] if state["n"] == self.n else states)
        self._exchanges, self.step, self._unsent = fresh, state["step"], None
