"""The steps of an exchange in PyTorch: checks of the gradients, changes of recipe, statistics and checkpoints.

Steps is the base of State (gradients come in buckets; torch/__init__.py) and Reducer (gradients are the .grad of parameters; _torch_reducer.py).
"""

import atexit
import math
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from . import _torch_states as saved_states
from ._exchange import Exchange, Flight
from ._library import Error, Rules, TensorSpec, canonical
from ._torch_advice import Advice
from ._torch_counts import Counts
from ._torch_group import is_ready
from ._torch_hosts import Hosts, common_size, given_size, learns, own_name
from ._torch_model import Described, describe, dtype_name, find, syncs_norms
from ._torch_place import Place

GROUP_LEN = 16 << 20   # bytes of gradients that are encoded and sent together
GPU_GROUP_LEN = 128 << 20  # the same on a GPU, where the kernels of a group have a latency of their own
SMALL_LEN = 4 << 20    # a model of so many or fewer is one group: what overlap gains there is less than a group's messages cost

Gradients = Dict[torch.nn.Parameter, torch.Tensor]


def flat(gradient: torch.Tensor) -> torch.Tensor:
    """A view of a dense gradient in the order in which it lies in memory, which is what the library sees."""
    return gradient.as_strided((gradient.numel(),), (1,))


def sentence(error: Optional[BaseException]) -> Optional[str]:
    return None if error is None else str(error) or type(error).__name__


class Steps(Place):
    """What State and Reducer share: an exchange that is made at the first step, and what goes on around its steps."""

    recipe: str  # canonical
    step: int    # the number of the next one

    def __init__(self, recipe: str, *, model: Optional[torch.nn.Module] = None, process_group: Any = None, seed: int = 0,
                 rules: Optional[Rules] = None, dense_below: int = 0, nonfinite: Optional[str] = None,
                 exchange: Optional[str] = None, threads: int = 1, scaler: Any = None, verify_every: int = 100,
                 summary: bool = False, writer: Any = None, group_len: Optional[int] = None, hosts: Hosts = "flat",
                 advise: bool = False) -> None:
        super().__init__(process_group)
        self._advice = Advice() if advise else None
        self.recipe = canonical(recipe)
        self.step = 0
        if nonfinite is None:
            nonfinite = "error" if scaler is None else "skip"
        self._skips = nonfinite == "skip"
        if self._skips and scaler is None:
            raise Error("nonfinite is 'skip', which needs a scaler to skip the step")
        nonfinite = "error" if self._skips else nonfinite
        self.skipped = 0  # steps that were left out because of Inf or NaN, with a scaler
        self._options: Dict[str, Any] = {"rules": rules, "seed": seed, "dense_below": dense_below, "nonfinite": nonfinite,
                                         "exchange": exchange, "threads": threads, "verify_every": verify_every,
                                         "group_len": group_len, "host_size": given_size(hosts)}
        self._hosts = hosts
        self._scaler = scaler
        self._writer = writer
        self._schedule: Optional[Callable[[int], Optional[str]]] = None
        self._described: Optional[Described] = None
        if model is not None:
            self._see(model)
        self._exchange: Optional[Exchange] = None
        self._flight: Optional[Flight] = None  # of this exchange, or of one before it
        self._facts = ""  # that ranks must have in common, about the flight
        self._parameters: List[torch.nn.Parameter] = []  # in the order of the exchange's tensors
        # States that wait for the exchange, with the recipe and exchange that they are of.
        self._loaded: Optional[Tuple[str, Optional[str], List[Dict[str, Any]]]] = None
        self._unsent: Optional[List[torch.Tensor]] = None  # what a change of recipe has left for the next gradients
        self._factor = 1.0     # by which gradients are scaled in this step
        self._scaled: List[torch.Tensor] = []  # those gradients
        self._failure: Optional[Error] = None  # one that is for good
        self._counts = Counts()
        self._begin()
        if is_ready() or process_group is not None:
            self._join()
        if summary:
            atexit.register(self._print_summary)

    def _begin(self) -> None:
        """What a subclass needs besides. (State has no __init__ of its own, so that its options have names and types.)"""

    def _print_summary(self) -> None:
        if self._joined is not None and self.rank == 0:
            print(self.summary(), flush=True)

    def _made(self) -> Exchange:
        """The exchange, after the first step."""
        assert self._exchange is not None
        return self._exchange

    def _settle(self) -> None:
        """Ends the step in progress, if there is one: before anything else than a step uses the exchange."""

    # ---- a step --------------------------------------------------------------------------------------------------------

    def _tensors(self, gradients: Gradients) -> List[TensorSpec]:
        """The tensors of a model whose gradients these are, {parameter: gradient}, in its own order."""
        described = self._check_model(gradients)
        self._parameters = [parameter for parameter in described if parameter in gradients]
        return [TensorSpec(described[p][0], tuple(p.shape), described[p][1], dtype_name(gradients[p].dtype) or "")
                for p in self._parameters]

    def _check_model(self, parameters: Iterable[Any]) -> Described:
        """Finds the model at the first call, and raises Error if a parameter belongs to another one. Returns its parameters."""
        described = self._described if self._described is not None else self._see(find(parameters))
        for parameter in parameters:
            if parameter not in described:
                raise Error(f"this State was given to a second model: a parameter of shape {tuple(parameter.shape)} is not in the "
                            "first one; make one State for each DistributedDataParallel", "MISMATCH")
        return described

    def _see(self, model: torch.nn.Module) -> Described:
        self._described = describe(model)
        self._norms = syncs_norms(model)
        return self._described

    def _check(self, gradients: Gradients) -> None:
        of = self._of or next((gradient.device for gradient in gradients.values()), None)
        for parameter, gradient in gradients.items():
            name = self._described[parameter][0] if self._described and parameter in self._described else "of a parameter"
            if gradient.layout != torch.strided:
                raise Error(f"gradient {name!r} is sparse; only dense ones can be exchanged (Embedding(sparse=False))")
            if gradient.device.type not in ("cpu", "cuda"):
                raise Error(f"gradient {name!r} is on {gradient.device}; those on the CPU and on GPUs of NVIDIA can be exchanged")
            if gradient.device != of:
                raise Error(f"gradient {name!r} is on {gradient.device}, and {'the first step was' if self._of else 'others are'} on {of}; "
                            "all must stay on one device")
            if dtype_name(gradient.dtype) is None:
                raise Error(f"gradient {name!r} is of {gradient.dtype}; float32, float16 and bfloat16 can be exchanged")
            if self._scaler is not None and gradient.dtype == torch.float16:
                raise Error(f"gradient {name!r} is of float16, in which it could not be told from 0 without its scale; with a "
                            "scaler parameters are of float32")

    def _check_same(self, gradients: Gradients) -> None:
        """Their addresses go to the library, which takes them for what they were in the first step."""
        if set(gradients) != set(self._parameters):
            raise self._other_parameters()
        for t, parameter in enumerate(self._parameters):
            self._check_tensor(t, gradients[parameter])

    def _other_parameters(self) -> Error:
        return Error("this pass has gradients of other parameters than the first one had", "MISMATCH")

    def _check_tensor(self, t: int, gradient: torch.Tensor) -> None:
        name, shape, _, dtype = self._made().tensors[t]
        if tuple(gradient.shape) != shape or dtype_name(gradient.dtype) != dtype:
            raise Error(f"gradient {name!r} is of shape {tuple(gradient.shape)} and {gradient.dtype}, and was of {shape} and "
                        f"{dtype} in the first step", "MISMATCH")

    def _start(self, gradients: Gradients, trouble: Optional[Exception]) -> None:
        """Makes the exchange; all ranks end up with one, or all raise."""
        of = next((gradient.device for gradient in gradients.values()), torch.device("cpu"))
        told = [text.splitlines() for text in self._link.gather(f"{self._hosts}\n{own_name()}\n{of.type}".encode())]
        try:
            if trouble is not None:
                raise trouble
            self._check_kinds([kind for _, _, kind in told])
            self._find_hosts([hosts for hosts, _, _ in told], [name for _, name, _ in told])
            self._find_device(of)
            self._options["device"] = self._device
            tensors = self._tensors(gradients)
            recipe, exchange = self.recipe, self._options["exchange"]
            if self._loaded is not None:
                recipe, exchange, _ = self._loaded
            if self._options["group_len"] is None:
                len_of = sum(gradient.numel() * gradient.element_size() for gradient in gradients.values())
                self._options["group_len"] = 0 if len_of <= SMALL_LEN else GROUP_LEN if self._device is None else GPU_GROUP_LEN
            made = Exchange(recipe, tensors, self.rank, self.world, dict(self._options, exchange=exchange))
            if self._loaded is not None:
                self._apply(made, self._fitting(self._loaded[2]))
            if (recipe, exchange) != (self.recipe, self._options["exchange"]):
                made = self._followed(made, self.recipe, self._options["exchange"])
        except Exception as error:
            self._link.agree(sentence(error))
            raise
        self._link.agree(None)
        self._link.measure()
        self._connect()
        made.handshake(self._carrying().struct, {**self._more_facts(), "recipe": self.recipe, "step": self.step, "scaler": self._scaler is not None,
                                           "nonfinite": "skip" if self._skips else self._options["nonfinite"]})
        self._exchange, self._loaded, self._of = made, None, of

    def _more_facts(self) -> Dict[str, object]:
        """What a subclass has ranks compare besides, when the exchange is made."""
        return {}

    def _find_hosts(self, options: List[str], names: List[str]) -> None:
        """By what all ranks have said."""
        for rank, option in enumerate(options):
            if option != options[0]:
                raise Error(f"rank {rank} has hosts '{option}', but rank 0 has '{options[0]}'", "MISMATCH")
        if self._options["host_size"] is None:
            self._options["host_size"] = 0 if learns(self.recipe, self._options["rules"]) else common_size(names)

    def _flying(self) -> Flight:
        """The flight of the exchange, for its next step."""
        exchange = self._made()
        if self._flight is None or self._flight.exchange is not exchange:
            if self._flight is not None:
                self._flight.close()  # before another one listens to the link
            try:
                self._flight = Flight(exchange, self._carrying())
            except Error as error:  # the others would wait for this rank
                self._carrying()._abort(None, str(error).encode())
                raise
            self._facts = f"recipe {self.recipe}\nexchange {exchange.name} since step {self.step}\n"
        self._link.compare(self._facts)
        return self._flight

    def _flying_now(self) -> Flight:
        """The flight of the step in progress."""
        assert self._flight is not None
        return self._flight

    def _follow_schedule(self) -> None:
        recipe = None if self._schedule is None else self._schedule(self.step)
        if recipe is not None:
            self._change_recipe(recipe)

    def _reduce(self, gradients: Gradients, trouble: Optional[Exception] = None, follow_schedule: bool = True) -> None:
        """One step over {parameter: gradient}, in place. `trouble` is why this rank cannot take part: it tells the others,
        who would wait for it."""
        if self._failure is not None:
            raise self._failure
        begin = time.monotonic()
        try:
            if trouble is None:
                trouble = self._prepare(gradients, follow_schedule)
            if self._exchange is None:
                self._start(gradients, trouble)
        except Error as error:
            self._note_failure(error)
            raise
        self._conclude(lambda: self._exchange_scaled(gradients, trouble), trouble, begin)

    def _conclude(self, end: Callable[[], None], trouble: Optional[Exception], begin: float) -> None:
        """`end` ends a step that has begun at a time, and raises if it has failed; with a trouble of this rank it has."""
        try:
            try:
                end()
                if self._device is not None:
                    self._device.lead()
            except Error as error:
                if error.code == "LINK":
                    raise error from trouble
                if self._is_skipped(error, trouble):
                    return
                self._link.agree(sentence(trouble))  # it has failed on all ranks, and all come here
                raise trouble or error
        except Error as error:
            self._note_failure(error)
            raise
        self._unsent = None
        self.step += 1
        self._count(time.monotonic() - begin)

    def _is_skipped(self, error: Error, trouble: Optional[Exception]) -> bool:
        """Whether a step that has failed on all ranks is one that the scaler skips: some rank had Inf or NaN, and no rank had another
        trouble. Residuals are as before it. All ranks come here, and gradients of all become Inf, for the scaler to see."""
        if not self._skips:
            return False
        whys = self._link.gather(b"other" if trouble is not None else error.code.encode())
        if not set(whys) <= {"NONFINITE", "PEER"} or "NONFINITE" not in whys:
            return False
        for gradient in self._scaled:
            gradient.fill_(math.inf)
        self.skipped += 1
        return True

    def _note_failure(self, error: Error) -> None:
        if self._link.failed is not None:
            self._failure = error

    def _prepare(self, gradients: Gradients, follow_schedule: bool) -> Optional[Exception]:
        """What stands in the way of this step on this rank; None: nothing."""
        try:
            self._check(gradients)
            if self._exchange is not None:
                self._check_same(gradients)
            if follow_schedule:
                self._follow_schedule()
            self._factor = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        except Exception as error:
            return error
        return None

    @torch.no_grad()
    def _exchange_scaled(self, gradients: Gradients, trouble: Optional[Exception]) -> None:
        """Reduces in true units, so that the residual of one step fits the next, whose scale may be another. Gradients that
        need to be changed first are copied, because a step that fails must leave them as they were."""
        if trouble is not None:  # without addresses the step fails on all ranks
            self._flying().reduce(self.step, [0] * len(self._parameters))
            raise trouble
        own = [flat(gradients[parameter]) for parameter in self._parameters]
        self._scaled = own
        changed = own
        if self._factor != 1:
            changed = [gradient / self._factor for gradient in own]
        if self._unsent is not None:
            changed = [gradient + unsent.to(gradient) for gradient, unsent in zip(changed, self._unsent)]
        self._meet()
        self._flying().reduce(self.step, [gradient.data_ptr() for gradient in changed])
        if changed is not own:
            if self._device is not None:
                self._device.lead()
            for gradient, result in zip(own, changed):
                gradient.copy_(result if self._factor == 1 else result.mul_(self._factor))

    # ---- facts ---------------------------------------------------------------------------------------------------------

    def _count(self, seconds: float) -> None:
        meter = self._made().last()
        if not self._flying_now().overlaps:
            meter.exposed_ns = int(1e9 * seconds)  # all of it, also what was done before the library was waiting
        self._counts.add(meter, seconds)
        if self._advice is not None and self.rank == 0 and self._advice.take(self.step - 1, time.monotonic(), self._counts.last()):
            self._advise(self._advice)
        if self._writer is not None:
            self._counts.write(self._writer, self.step - 1)

    def _advise(self, advice: Advice) -> None:
        """Prints it, on stderr. The prediction takes a second or two, so a thread waits for it."""
        advice.is_given = True
        exchange, recipe = self._made(), self.recipe
        size, group_len = int(self._options["host_size"] or 0), int(self._options["group_len"] or 0)
        device = "cpu" if self._device is None else "cuda"

        def tell() -> None:
            for line in (advice.measured(), advice.predicted(recipe, exchange.tensors, self.world, size, group_len, device)):
                print(f"tersegrad: {line}", file=sys.stderr, flush=True)

        threading.Thread(target=tell, name="tersegrad-advice").start()

    def stats(self) -> Dict[str, Any]:
        """What steps took, on this rank.

        "last" and "total" are dicts about the last step and all steps: "steps"; in bytes "logical" (gradients), "dense" (what
        an uncompressed all-reduce would send), "payload" and "header", their sum "sent", "received", and "between" (sent to other
        hosts); "ratio" (dense / sent); "seconds". Times that overlap with the backward pass and with each other are
        "encode_seconds", "decode_seconds", "wire_seconds" (operations under way) and "wait_seconds" (gradients that were ready
        and not yet encoded); "exposed_seconds" is what was left after the last gradient was ready. "tensors" is {name: {"bytes",
        "entries", "recipe"}} of the last step; "recipe" and "exchange" are names. A hook that has never been called has 0 steps in "total".
        """
        out: Dict[str, Any] = {"recipe": self.recipe, "exchange": None, "tensors": {}}
        out["last"], out["total"] = self._counts.last(), self._counts.total()
        if self._exchange is not None:
            out["exchange"] = self._exchange.name
            for t, tensor in enumerate(self._exchange.tensors):
                out["tensors"][tensor.name] = dict(self._exchange.traffic(t), recipe=self._exchange.recipe_of(t))
        return out

    def summary(self) -> str:
        """One line about all steps."""
        if self._exchange is None or self._counts.total()["steps"] == 0:
            return f"tersegrad: {self.recipe}: no step was reduced; was the hook registered, and backward() called?"
        size = self._options["host_size"]
        return (f"tersegrad: {self.recipe} by {self._exchange.name}, {self.world} ranks{f' in hosts of {size}' if size else ''}, "
                f"{self._counts.text()}")

    def residual(self) -> Dict[str, torch.Tensor]:
        """The residual of this rank: {name: float32 tensor of the parameter's shape}; empty before the first step."""
        self._settle()
        out = {}
        for t, (name, shape, _, _) in enumerate(() if self._exchange is None else self._exchange.tensors):
            values = torch.zeros(math.prod(shape), dtype=torch.float32)
            self._made().residual_to(values.data_ptr(), t)
            if self._unsent is not None:
                values += self._unsent[t]
            out[name] = values.as_strided(shape, self._strides(self._parameters[t]))
        return out

    def _strides(self, parameter: torch.Tensor) -> Tuple[int, ...]:
        """How gradients of a parameter lie in memory: in the order of its indices."""
        return torch.empty_like(parameter, device="meta", memory_format=torch.contiguous_format).stride()

    # ---- another recipe ------------------------------------------------------------------------------------------------

    def set_recipe(self, recipe: str, exchange: Optional[str] = None) -> None:
        """Uses another recipe from the next step on. All ranks call it between the same two steps. The residual is kept: a
        recipe without feedback sends it with the next gradients."""
        self._settle()
        self._change_recipe(recipe, exchange)

    def _change_recipe(self, recipe: str, exchange: Optional[str] = None) -> None:
        recipe = canonical(recipe)
        if recipe == self.recipe and exchange == self._options["exchange"]:
            return
        if self._exchange is not None:
            self._exchange = self._followed(self._exchange, recipe, exchange)
        self.recipe = recipe
        self._options["exchange"] = exchange

    def _followed(self, old: Exchange, recipe: str, exchange: Optional[str]) -> Exchange:
        """The exchange that follows an old one. Residuals that the new recipe does not keep are added to the next gradients."""
        left = [torch.zeros(p.numel(), dtype=torch.float32) for p in self._parameters]
        new = old.follow(recipe, [rest.data_ptr() for rest in left], exchange)
        for rest, before in zip(left, self._unsent or ()):
            rest += before
        self._unsent = left if any(rest.any() for rest in left) else None
        return new

    def schedule(self, choose: Callable[[int], Optional[str]]) -> None:
        """Calls `choose(step)` before every step, on every rank: it returns the recipe to use, or None for no change."""
        self._schedule = choose

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> Any:
        """This rank's state, for torch.save. Nothing is sent: each rank saves its own. A dict, or, before the first step after
        states of another number of ranks were loaded, the list of those. After a backward pass that was broken off, it waits until
        the other ranks have given up its step, too."""
        self._settle()
        if self._exchange is None and self._loaded is not None:
            states = self._loaded[2]
            return states[0] if len(states) == 1 else states
        state: Dict[str, Any] = {"format": saved_states.FORMAT, "recipe": self.recipe, "exchange": self._options["exchange"],
                                 "seed": self._options["seed"], "world": self.world, "host_size": self._options["host_size"], "rank": self.rank,
                                 "step": self.step, "tensors": None, "state": None, "owed": None}
        if self._exchange is not None:
            state["tensors"] = [(name, tuple(shape)) for name, shape, _, _ in self._exchange.tensors]
            state["state"] = torch.frombuffer(bytearray(self._exchange.save()), dtype=torch.uint8)
            state["owed"] = None if self._unsent is None else [unsent.clone() for unsent in self._unsent]
        return state

    def load_state_dict(self, state: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]) -> None:
        """Continues from what state_dict returned: this rank's state, which leads to the same bits, or, with another number
        of ranks or hosts, a list of the states of all old ranks. Raises Error if it is of another model or recipe."""
        self._settle()
        states = saved_states.listed(state)
        first = states[0]
        if self._schedule is not None:
            self.set_recipe(first["recipe"], first["exchange"])
        saved_states.check_recipe(states, self.recipe)
        if self._options["host_size"] is not None:  # else it is found at the first step
            states = self._fitting(states)
        if self._exchange is None:
            self._loaded = self.recipe, self._options["exchange"], states
        else:
            fresh = Exchange(self.recipe, self._exchange.tensors, self.rank, self.world, self._options)
            self._apply(fresh, states)
            self._exchange = fresh
        self.step = first["step"]

    def _fitting(self, states: List[Any]) -> List[Any]:
        return saved_states.fitting(states, self.rank, self.world, self._options["host_size"])

    def _apply(self, exchange: Exchange, states: Sequence[Mapping[str, Any]]) -> None:
        """Puts states into an exchange that is new, or raises and leaves everything as it was."""
        saved_states.check_tensors(states, exchange.tensors)
        if all(state["state"] is not None for state in states):
            exchange.load([bytes(state["state"].numpy()) for state in states])
        unsent = [state["owed"] for state in states if state["owed"] is not None]
        self._unsent = [torch.stack(parts).sum(0) / len(states) for parts in zip(*unsent)] if unsent else None
