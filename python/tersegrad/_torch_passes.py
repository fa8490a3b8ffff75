"""Forward and backward passes of the workers of Workers.

Each worker has gradients of its own, which are encoded where they are, and buffers of its own, such as batch-norm statistics. On a GPU
the passes of a worker are captured once in a CUDA graph, and replayed: a graph has the addresses of its worker's memory. Workers are
spread over streams, because the batch of one seldom fills a GPU.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import torch

from ._library import Error
from .workers import Workers

# Another worker's gradients may be encoded during a capture, by another thread.
_MODE: Dict[str, Any] = {"capture_error_mode": "thread_local"} if "capture_error_mode" in str(inspect.signature(torch.cuda.graph)) else {}
_WARM_UPS = 3  # passes before a capture, in which libraries choose their kernels


def _copy(value: Any) -> Any:
    return None if value is None else value.clone()


class _Captured:
    """The graph of a worker's pass, and the memory of its batch."""

    def __init__(self, batch: Sequence[torch.Tensor]) -> None:
        self.batch = [torch.empty_like(each).copy_(each) for each in batch]
        self.graph = torch.cuda.CUDAGraph()

    def fits(self, batch: Sequence[torch.Tensor]) -> bool:
        return all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(self.batch, batch))


class Passes:
    """The passes of all workers over one model.

        passes = Passes(workers, model, lambda x, y: cross_entropy(model(x), y))
        for batches in loader:                       # one batch per worker: a tuple of tensors
            passes(batches)                          # gradients of all workers are computed, and being encoded
            workers.reduce()
            optimizer.step()

    loss_of     takes the tensors of a batch, and returns the loss
    streams     how many workers compute at once, on a GPU
    graphs      capture passes in CUDA graphs, on a GPU. Then loss_of must do the same for every batch of a shape, and must not wait for
                the GPU; batches of other shapes than the first are computed without a graph
    bind        called with a worker's number before its pass is computed or captured, and not before a replay: for workers that have
                weights of their own

    `losses` has the sum of each worker's losses so far, on the device.
    """

    def __init__(self, workers: Workers, model: torch.nn.Module, loss_of: Callable[..., torch.Tensor], *, streams: int = 4,
                 graphs: bool = True, bind: Optional[Callable[[int], None]] = None) -> None:
        self._workers, self._model, self._loss_of, self._bind_more = workers, model, loss_of, bind
        self._is_gpu = workers.device.type == "cuda"
        self._graphs = graphs and self._is_gpu
        self._captured: List[Optional[_Captured]] = [None] * workers.n
        self._places = [(module._buffers, name) for module in model.modules() for name, value in module.named_buffers(recurse=False)]
        # The first worker's are those that the model has.
        self._buffers: List[List[Any]] = [[place[name] if worker == 0 else _copy(place[name]) for place, name in self._places]
                                          for worker in range(workers.n)]
        self.losses = torch.zeros(workers.n, device=workers.device)
        self._streams: List[Any] = []
        if self._is_gpu and streams > 1:
            self._streams = [torch.cuda.Stream(workers.device) for _ in range(min(streams, workers.n))]  # type: ignore[no-untyped-call]

    # ---- a worker ------------------------------------------------------------------------------------------------------

    def _bind(self, worker: int) -> None:
        """Gives the model a worker's gradients and buffers."""
        for parameter, view in zip(self._workers._parameters, self._workers._staged_views[worker]):
            parameter.grad = view
        self._bind_buffers(self._buffers[worker])
        if self._bind_more is not None:
            self._bind_more(worker)

    def _bind_buffers(self, buffers: Sequence[torch.Tensor]) -> None:
        for (place, name), value in zip(self._places, buffers):
            place[name] = value

    def _compute(self, worker: int, batch: Sequence[torch.Tensor]) -> None:
        self._workers._staged[worker].zero_()
        loss = self._loss_of(*batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.losses[worker] += loss.detach()

    def _capture(self, worker: int, batch: Sequence[torch.Tensor]) -> _Captured:
        """Warms up, which must leave no trace, and captures."""
        captured = _Captured(batch)
        kept = [value.clone() for value in self._buffers[worker]]
        loss = self.losses.clone()
        side = torch.cuda.Stream(self._workers.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self._workers.device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS if worker == 0 else 1):
                self._compute(worker, captured.batch)
        torch.cuda.current_stream(self._workers.device).wait_stream(side)
        # On a stream of its own: PyTorch keeps a workspace for matrix products per stream, and graphs of two workers run at once.
        with torch.cuda.graph(captured.graph, stream=side, **_MODE):
            self._compute(worker, captured.batch)
        for value, before in zip(self._buffers[worker], kept):
            value.copy_(before)
        self.losses.copy_(loss)
        return captured

    def run(self, worker: int, batch: Sequence[torch.Tensor]) -> None:
        """Computes the gradients of one worker's batch to where it encodes from, on the current stream, and nothing else."""
        captured = self._captured[worker]
        if captured is None or not captured.fits(batch):
            self._bind(worker)
            if captured is not None or not self._graphs:
                self._compute(worker, batch)
                return
            captured = self._captured[worker] = self._capture(worker, batch)
        for to, value in zip(captured.batch, batch):
            to.copy_(value, non_blocking=True)
        captured.graph.replay()

    # ---- all of them ---------------------------------------------------------------------------------------------------

    def capture(self, batches: Sequence[Sequence[torch.Tensor]]) -> None:
        """Captures the passes of all workers, if that is still to be done, while nothing else is under way. Computes nothing."""
        if not self._graphs or self._captured[-1] is not None:
            return
        for worker, batch in enumerate(batches):
            self._bind(worker)
            self._captured[worker] = self._capture(worker, batch)

    def stream(self, worker: int) -> Any:
        """A context in which a worker computes on its stream, after what is on the current one; join() waits for all of them."""
        if not self._streams:
            return contextlib.nullcontext()
        stream = self._streams[worker % len(self._streams)]
        stream.wait_stream(torch.cuda.current_stream(self._workers.device))
        return torch.cuda.stream(stream)

    def join(self) -> None:
        """The current stream goes on after those of all workers."""
        for stream in self._streams:
            torch.cuda.current_stream(self._workers.device).wait_stream(stream)

    def __call__(self, batches: Sequence[Sequence[torch.Tensor]]) -> None:
        """Computes the gradients of all workers, and starts to encode each worker's when they are there. reduce() follows."""
        workers = self._workers
        if len(batches) != workers.n:
            raise Error(f"{len(batches)} batches were given for {workers.n} workers")
        self.capture(batches)
        for worker, batch in enumerate(batches):
            with self.stream(worker):
                self.run(worker, batch)
                workers._begin(worker)
        self._bind(0)  # so that reduce() finds averages where they are to be
        self.join()

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """In this context the model is in eval(), and has the mean of all workers' buffers."""
        was_training = self._model.training
        with torch.no_grad():
            means = [torch.stack(values).mean(0) if values[0].is_floating_point() else values[0].clone() for values in zip(*self._buffers)]
        self._bind_buffers(means)
        self._model.eval()
        try:
            yield
        finally:
            self._model.train(was_training)
            self._bind_buffers(self._buffers[0])

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> List[List[torch.Tensor]]:
        """The buffers of all workers. (Workers.state_dict has their residuals.)"""
        return [[value.clone() for value in own] for own in self._buffers]

    @torch.no_grad()
    def load_state_dict(self, state: Sequence[Sequence[torch.Tensor]]) -> None:
        if [[tuple(v.shape) for v in own] for own in state] != [[tuple(v.shape) for v in own] for own in self._buffers]:
            raise Error("the state is of another model, or of another number of workers", "MISMATCH")
        for own, saved in zip(self._buffers, state):
            for value, other in zip(own, saved):
                value.copy_(other)
