"""Gradients that get complete one by one: which group of tensors can be reported, and, under DistributedDataParallel, before their bucket is
complete.

A group is reported when its last gradient is there. The last group of a pass is left to the end of the pass, even if it is complete. So
no step can end before, and what is found out until then still fails it on all ranks.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from ._exchange import Exchange, numbers

_graph_id: Optional[Callable[[], int]] = getattr(torch._C, "_current_graph_task_id", None)  # of the backward pass; from PyTorch 2.0 on


class Groups:
    """The tensors of an exchange, by parameter and by group."""

    def __init__(self, exchange: Exchange, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.exchange = exchange
        self.n = exchange.group_n
        self.numbers: Dict[int, int] = {id(parameter): t for t, parameter in enumerate(parameters)}
        self.of = [exchange.group_of(t) for t in range(len(parameters))]
        self.tensors: List[List[int]] = [[] for _ in range(self.n)]
        for t, group in enumerate(self.of):
            self.tensors[group].append(t)
        self.reports = [numbers(tensors) for tensors in self.tensors]  # as Flight.ready takes them


class Arrivals:
    """The gradients of one pass."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._missing = [len(tensors) for tensors in groups.tensors]
        self._is_reported = [False] * groups.n
        self.reported_n = 0

    def note(self, tensor: int) -> Any:
        """A gradient is complete. Returns what has to be reported now, or None."""
        group = self._groups.of[tensor]
        self._missing[group] -= 1
        if self._missing[group] > 0 or self.reported_n == self._groups.n - 1:
            return None
        self._is_reported[group] = True
        self.reported_n += 1
        return self._groups.reports[group]

    def rest(self) -> List[int]:
        """The tensors of groups that were not reported."""
        return [t for group, tensors in enumerate(self._groups.tensors) if not self._is_reported[group] for t in tensors]


def graph_id() -> int:
    """A number for the backward pass that this is called in, which one inside another does not share."""
    return -1 if _graph_id is None else _graph_id()


def _remove(handles: List[Any]) -> None:
    for handle in handles:
        handle.remove()


class Watch:
    """Has `call(owner, t)` called whenever the gradient of parameter t was added to, after DistributedDataParallel has taken it to its
    bucket: hooks of a node are called in the order in which they were registered."""

    def __init__(self, owner: Any, parameters: Sequence[torch.nn.Parameter], call: Callable[[Any, int], None]) -> None:
        this = weakref.ref(owner)

        def added(t: int, *_: Any) -> None:
            owner = this()
            if owner is not None:
                call(owner, t)
        handles: List[Any] = []
        self._nodes: List[Any] = []  # which would go away with their hooks
        with torch.enable_grad():
            for t, parameter in enumerate(parameters):
                node: Any = parameter.expand_as(parameter).grad_fn
                if node is not None:
                    self._nodes.append(node.next_functions[0][0])
                    handles.append(self._nodes[-1].register_hook(functools.partial(added, t)))
        weakref.finalize(self, _remove, handles).atexit = False
