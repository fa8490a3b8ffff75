"""Reducer: the exchange for loops without DistributedDataParallel.

    backward()    a gradient is complete        report its group, if that is complete and not the last one
    library       encode, send and check groups that were reported
    reduce()      report the rest, wait for the end of the step

The last group waits for reduce() even if its gradients are complete. So no step can end before reduce(), which may still find that
gradients were changed, and fails the step on all ranks then.
"""

import contextlib
import time
import weakref
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import torch

from ._exchange import numbers
from ._library import Error, Rules, pointers
from ._torch_arrivals import Arrivals, Groups
from ._torch_hosts import Hosts
from ._torch_model import describe_list
from ._torch_steps import Gradients, Steps, flat


class _Pass:
    """The gradients since the last reduce()."""

    def __init__(self) -> None:
        self.seen: Dict[int, bool] = {}           # ids of parameters that have got one
        self.trouble: Optional[Exception] = None  # why this rank cannot take part
        self.follow_schedule = True               # has to be done yet
        self.is_begun = False                     # the step
        self.flown: Dict[int, Tuple[torch.Tensor, int]] = {}  # {tensor: gradient in flight, its version}
        self.arrivals: Optional[Arrivals] = None  # of the step


def _on_gradient(parameter: torch.nn.Parameter, call: Any) -> Tuple[Any, Any]:
    """Has `call(parameter)` called whenever the parameter's .grad is complete. Returns what must be kept, and how to end it."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):  # from PyTorch 2.1 on
        register: Any = parameter.register_post_accumulate_grad_hook
        return None, register(call)
    node: Any = parameter.expand_as(parameter).grad_fn
    node = node.next_functions[0][0]  # which adds to .grad, and then calls its hooks
    return node, node.register_hook(lambda *_: call(parameter))


def _remove(handles: List[Any]) -> None:
    for handle in handles:
        handle.remove()


class Reducer(Steps):
    """For loops without DistributedDataParallel: reduce() after backward() makes every .grad the average over all ranks.

    `parameters` is a module, or a list of parameters in the same order on all ranks. Parameters must start with the same values on
    all ranks. Options are those of State (without model and advise), and

    overlap        send gradients while backward() computes others. Then .grad must not change between backward() and reduce(), and
                   there must be one backward() for each reduce(), except in no_sync(). Models of one group (group_len) do not overlap;
                   the rules are the same
    """

    def __init__(self, parameters: Union[torch.nn.Module, Iterable[torch.nn.Parameter]], recipe: str, *, process_group: Any = None,
                 seed: int = 0, rules: Optional[Rules] = None, dense_below: int = 0, nonfinite: Optional[str] = None,
                 exchange: Optional[str] = None, threads: int = 1, scaler: Any = None, verify_every: int = 100,
                 summary: bool = False, writer: Any = None, group_len: Optional[int] = None, hosts: Hosts = "flat",
                 overlap: bool = True) -> None:
        super().__init__(recipe, process_group=process_group, seed=seed, rules=rules, dense_below=dense_below,
                         nonfinite=nonfinite, exchange=exchange, threads=threads, scaler=scaler, verify_every=verify_every,
                         summary=summary, writer=writer, group_len=group_len, hosts=hosts)
        if isinstance(parameters, torch.nn.Module):
            self._see(parameters)
        else:
            self._described = describe_list(list(parameters))
        self._now = _Pass()
        self._syncs = True
        self._kept: List[Any] = []
        self._groups: Optional[Groups] = None
        self._addresses: Any = None
        if overlap:
            self._watch(list(self._described or ()))

    def _watch(self, parameters: List[torch.nn.Parameter]) -> None:
        this = weakref.ref(self)

        def arrived(parameter: torch.nn.Parameter) -> None:
            reducer = this()
            if reducer is not None:
                reducer._take(parameter)
        watched = [_on_gradient(parameter, arrived) for parameter in parameters if parameter.requires_grad]
        self._kept = [kept for kept, _ in watched]
        weakref.finalize(self, _remove, [handle for _, handle in watched]).atexit = False

    # ---- in backward() -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside it, backward() adds to .grad and sends nothing. Use it for all passes but the last one before reduce()."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def _take(self, parameter: torch.nn.Parameter) -> None:
        """A gradient is complete."""
        now = self._now
        if not self._syncs or now.trouble is not None:
            return
        if id(parameter) in now.seen:
            name = self._described[parameter][0] if self._described else ""
            now.trouble = Error(f"parameter {name!r} has got a second gradient before reduce(); call reduce() after every backward(), or "
                                "all but the last in `with reducer.no_sync():`")
            return
        if not now.seen:
            self._begin_pass(now)
        now.seen[id(parameter)] = True
        if now.is_begun:
            self._report(now, parameter)

    def _begin_pass(self, now: _Pass) -> None:
        """Begins the step, if its gradients can be reduced as they are and in several groups."""
        if self._exchange is None or self._failure is not None or self._scaler is not None:
            return
        try:
            now.follow_schedule = False
            self._follow_schedule()
            if self._unsent is not None or self._made().group_n == 1:
                return
            if self._groups is None or self._groups.exchange is not self._exchange:
                self._groups = Groups(self._made(), self._parameters)
                self._addresses = pointers([0] * len(self._parameters))
            now.arrivals = Arrivals(self._groups)
            self._flying().begin(self.step, self._addresses)
            now.is_begun = True
        except Exception as error:
            now.trouble = error

    def _report(self, now: _Pass, parameter: torch.nn.Parameter) -> None:
        """Notes the gradient, and reports its group if that is complete. What cannot be taken as it is, is left to reduce()."""
        assert self._groups is not None and now.arrivals is not None
        t, gradient = self._groups.numbers.get(id(parameter)), parameter.grad
        if t is None or gradient is None or not self._is_plain(t, gradient):
            return
        self._addresses[t] = gradient.data_ptr()
        now.flown[t] = gradient, gradient._version
        report = now.arrivals.note(t)
        if report is not None:
            self._meet()
            self._flying_now().ready(report)

    def _is_plain(self, t: int, gradient: torch.Tensor) -> bool:
        try:
            self._check_tensor(t, gradient)
        except Error:
            return False
        return gradient.layout == torch.strided and gradient.device == self._of and gradient.is_contiguous()

    # ---- reduce() ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def reduce(self) -> None:
        """One step: every .grad becomes the average, in place; one that is None counts as zeros and is a tensor afterwards.
        Raises Error, on all ranks and with no gradient changed, if any rank cannot take part."""
        now, self._now = self._now, _Pass()
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
        if now.is_begun:
            self._end_step(now, gradients)
        else:
            self._reduce(gradients, now.trouble, now.follow_schedule)
        for parameter in copies:
            if parameter.grad is not None:
                parameter.grad.copy_(gradients[parameter])
        for parameter in missing:
            parameter.grad = gradients[parameter]

    def _end_step(self, now: _Pass, gradients: Gradients) -> None:
        """Reports what was not, and waits for the end of a step that is in progress."""
        begin = time.monotonic()
        flight, trouble = self._flying_now(), now.trouble
        try:
            if trouble is None:
                self._check(gradients)
                self._check_same(gradients)
                self._check_flown(now, gradients)
                assert now.arrivals is not None
                rest = now.arrivals.rest()
                for t in rest:
                    self._addresses[t] = flat(gradients[self._parameters[t]]).data_ptr()
                self._meet()
                flight.ready(numbers(rest))
        except Exception as error:  # tensors that are not reported fail the step on all ranks
            trouble = error
        self._conclude(flight.wait, trouble, begin)

    def _check_flown(self, now: _Pass, gradients: Gradients) -> None:
        for t, (gradient, version) in now.flown.items():
            if gradients[self._parameters[t]] is not gradient or gradient._version != version:
                raise Error(f"gradient {self._made().tensors[t].name!r} was changed after backward() and before reduce(), when it was "
                            "already being sent; change it after reduce(), or make the Reducer with overlap=False")

    def discard(self) -> None:
        """Gives up the gradients since the last reduce(), after a backward() that was broken off by an exception. Other ranks, which
        call reduce(), fail with that reason."""
        self._settle()
        self._now = _Pass()

    def _settle(self) -> None:
        now = self._now
        if not now.is_begun:
            return
        self._now = _Pass()
        try:
            self._conclude(self._flying_now().wait, Error("the gradients of a backward pass were given up before reduce()"), time.monotonic())
        except Exception:
            pass  # of no interest to the next pass, unless the link has failed, which it will find
