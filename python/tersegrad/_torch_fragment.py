"""A fragment: parameters whose moves are exchanged together, with the weights that all ranks share (LocalSteps; _torch_local.py)."""

import atexit
import threading
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence

import torch

from ._library import Error, TensorSpec
from ._torch_group import beside, member_of
from ._torch_steps import Gradients, Steps
from .local import Outer

_fragments: "weakref.WeakSet[Fragment]" = weakref.WeakSet()


def local_of(parameter: torch.Tensor) -> torch.Tensor:
    """What this rank has of a parameter: its shard, if it is a DTensor. Writes go to the parameter."""
    to_local: Any = getattr(parameter, "to_local", None)
    with torch.no_grad():
        out: torch.Tensor = parameter.detach() if to_local is None else to_local().detach()
    return out


@atexit.register
def _stop() -> None:
    """Ends exchanges under way before the interpreter is torn down, in which a thread inside PyTorch would end the process."""
    for fragment in list(_fragments):
        fragment.abandon()


class Turns:
    """A process group whose exchanges take turns, and the one for their votes and lengths."""

    def __init__(self, process_group: Any) -> None:
        """All ranks of the process group call it."""
        self.group = member_of(process_group)
        self.control = beside(self.group)

    def carrier(self, tensor: torch.Tensor) -> Any:
        """The process group for a tensor: one of NCCL has none in host memory."""
        return self.group if tensor.device.type == "cuda" else self.control


class InTurn(Steps):
    """Steps that take turns with others over one process group."""

    def __init__(self, recipe: str, turns: Turns, **options: Any) -> None:
        self._control, self._owner = turns.control, turns
        super().__init__(recipe, process_group=turns.group, **options)


class Fragment(InTurn):
    """Made by LocalSteps. `Steps` exchanges; moves take the place of gradients."""

    def open(self, parameters: Sequence[torch.nn.Parameter], described: Any, outer: Outer, facts: Mapping[str, object]) -> None:
        """Shares the weights as they are now."""
        self._described, self._outer, self._told = described, outer, dict(facts)
        self.parameters = [p for p in parameters if local_of(p).numel() > 0]
        self.start = [local_of(p).float().clone(memory_format=torch.contiguous_format) for p in self.parameters]
        self.velocity = [torch.zeros_like(start) if outer.momentum else None for start in self.start]
        self._moves = [torch.empty_like(start) for start in self.start]
        self.averages: Optional[List[torch.Tensor]] = None  # of an exchange that is done and not yet taken
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None
        self._stream: Any = None  # of the thread, on a GPU
        _fragments.add(self)

    def _tensors(self, gradients: Gradients) -> List[TensorSpec]:
        """Of what this rank has of each parameter."""
        assert self._described is not None
        self._parameters = list(gradients)
        return [TensorSpec(self._described[p][0], tuple(gradients[p].shape), self._described[p][1], "float32") for p in gradients]

    def _strides(self, parameter: torch.Tensor) -> Any:
        return torch.empty_like(local_of(parameter), device="meta", memory_format=torch.contiguous_format).stride()

    def _more_facts(self) -> Dict[str, object]:
        return self._told

    # ---- an exchange ---------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        for parameter, start, move in zip(self.parameters, self.start, self._moves):
            self._outer.move(start, local_of(parameter), out=move)

    def _exchange_moves(self) -> None:
        self._reduce(dict(zip(self.parameters, self._moves)))
        self.averages = self._moves

    def exchange(self) -> None:
        """The average of how far the weights of all ranks have moved, for take()."""
        self._move()
        if self.parameters:
            self._exchange_moves()

    def begin(self) -> None:
        """The same in a thread, while the caller computes; wait() ends it."""
        self._move()
        of = self._moves[0].device if self._moves else torch.device("cpu")
        if of.type == "cuda":
            if self._stream is None:
                self._stream = torch.cuda.Stream(of)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(of))
        self._thread = threading.Thread(target=self._run, args=(of,), name="tersegrad-local", daemon=True)
        self._thread.start()

    def _run(self, of: torch.device) -> None:
        """The exchange waits for what is on its stream now, and not for what the caller goes on to compute."""
        try:
            if self.parameters and of.type == "cuda":
                with torch.cuda.device(of), torch.cuda.stream(self._stream):
                    self._exchange_moves()
            elif self.parameters:
                self._exchange_moves()
                if self._device is not None:
                    self._device.finish()  # take() is another thread's, and may be on another stream
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Waits for what begin() has begun, if anything, and raises what it has failed with."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def take(self, keep: float = 0.0) -> None:
        """The outer step with the averages, if there are any; then weights become keep * weights + (1 - keep) * shared ones."""
        if self.averages is None:
            return
        for parameter, start, velocity, average in zip(self.parameters, self.start, self.velocity, self.averages):
            self._outer.step(start, velocity, average)
            self._outer.mix(local_of(parameter), start, keep)
        self.averages = None

    def abandon(self) -> None:
        """At exit: an exchange that waits for a rank that may never answer is given up."""
        if self._thread is not None and self._thread.is_alive():
            self._thread.join(timeout=1)
            if self._thread.is_alive():
                self._link._abort(None, b"the program ends")
                self._thread.join(timeout=5)

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def saved(self) -> Dict[str, Any]:
        try:
            self.wait()
        except BaseException as error:
            self._error = error  # for the wait that is due
            raise
        return {"exchange": self.state_dict(), "start": [start.clone() for start in self.start],
                "velocity": [None if v is None else v.clone() for v in self.velocity],
                "averages": None if self.averages is None else [average.clone() for average in self.averages]}

    def restore(self, states: Sequence[Mapping[str, Any]], own: Mapping[str, Any]) -> None:
        """From what saved() returned on all ranks of the saved run, or on this one alone."""
        self.wait()
        shapes = [tuple(start.shape) for start in own["start"]]
        if shapes != [tuple(start.shape) for start in self.start]:
            raise Error("the state is of another model, or of other fragments", "MISMATCH")
        exchanges = [state["exchange"] for state in states]
        self.load_state_dict(exchanges if len(exchanges) > 1 else exchanges[0])
        for mine, theirs in zip(self.start, own["start"]):
            mine.copy_(theirs)
        for velocity, saved in zip(self.velocity, own["velocity"]):
            if velocity is not None:
                velocity.copy_(saved if saved is not None else torch.zeros_like(velocity))
        self.averages = None
        if own["averages"] is not None:
            for move, average in zip(self._moves, own["averages"]):
                move.copy_(average)
            self.averages = self._moves
