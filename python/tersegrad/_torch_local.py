"""LocalSteps: optimizer steps of each rank's own, and exchanges of how far its weights have moved (docs/local-steps.md).

    step()        optimizer.step(), on this rank's own weights
    end of round  moves of all ranks are averaged by the recipe; weights of all ranks are equal to the bit

Overlapped, a round is divided into as many slots as there are fragments. Each slot ends with the exchange of one fragment, which goes
on while the next slot computes:

    slots         |  0   |  1   |  2   |  0   |  1   | ...      of a model in 3 fragments
    computing     ###########################################
    exchange              [ 0   ][ 1   ][ 2   ][ 0   ]
    taken                        ^ 0    ^ 1    ^ 2              weights = mix * weights + (1 - mix) * shared weights
"""

import contextlib
import warnings
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import torch
import torch.distributed

from ._library import Error, Rules, canonical
from ._torch_fragment import Fragment, InTurn, Turns, local_of
from ._torch_hosts import Hosts
from ._torch_link import TorchLink
from ._torch_model import Described, describe
from .local import Outer, Schedule

_FORMAT = "tersegrad.LocalSteps 1"
AGAINST = "an all-reduce of the gradients in every step"


def _warn_of_loss(recipe: str) -> None:
    if not recipe.startswith(("ef", "fp32", "momentum")):
        warnings.warn(f"{recipe!r} has no error feedback: what it drops of the ranks' moves is lost; 'ef+{recipe}' keeps it", stacklevel=4)
    if recipe.startswith("momentum"):
        raise Error(f"{recipe!r} adds up momentum, and the moves of local steps have that of the optimizer in them; use a recipe with ef")


def _check_optimizers(optimizers: Sequence[torch.optim.Optimizer], described: Described) -> List[torch.nn.Parameter]:
    """The parameters of the model that are trained. Raises Error if the optimizers are not of this model."""
    held = {id(p): p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    for parameter in held.values():
        if parameter not in described:
            raise Error(f"the optimizer has a parameter of shape {tuple(parameter.shape)} that is not in the model, so it cannot be told "
                        "what it moves; give the model that holds all its parameters")
    for parameter, (name, _) in described.items():
        if parameter.requires_grad and id(parameter) not in held:
            raise Error(f"parameter {name!r} requires a gradient, but no optimizer has it; freeze it, or give all optimizers as a list")
    return [parameter for parameter in described if id(parameter) in held]


def _divide(parameters: Sequence[torch.nn.Parameter], n: int) -> List[List[torch.nn.Parameter]]:
    """Parameters in n parts of about as many elements each, in their order. Norms and biases stay with the weights before them: a part of
    these alone would have nothing to compress."""
    sizes = [local_of(p).numel() for p in parameters]
    total, seen = sum(sizes), 0
    places: List[Optional[int]] = []
    for p, size in zip(parameters, sizes):
        places.append(min(int((seen + size / 2) * n / max(total, 1)), n - 1) if p.dim() > 1 else places[-1] if places else None)
        seen += size
    first = next((place for place in places if place is not None), 0)
    out: List[List[torch.nn.Parameter]] = [[] for _ in range(n)]
    for p, place in zip(parameters, places):
        out[first if place is None else place].append(p)
    return out


class LocalSteps:
    """Use step() instead of optimizer.step(): ranks train on their own, and exchange how far their weights have moved.

    model          the module; all ranks of the process group must have the same parameters in it and in the optimizer
    optimizer      any optimizer, or a list of several that together have the model's parameters; its state stays on the rank
    recipe         the recipe, such as "terse". Recipe and options must be the same on all ranks
    every          H, the number of steps between exchanges; or a schedule, such as "1,200:4,2000:8"
    outer          how the averaged moves are applied: "average", "nesterov" or "nesterov@lr=0.7,momentum=0.9"
    process_group  the replicas. Where a replica is several ranks (FSDP), the ranks that hold the same shard of each
    buffers        "demand": average_buffers() averages batch-norm statistics; "round": every exchange does, too
    overlap        exchange while the next steps compute; the result is applied at the end of the next slot
    fragments      with overlap: divide the model into parts whose exchanges take turns, so that traffic is even over time
    mix            with overlap: the weight of the rank's own weights when the result of an exchange is applied
    scaler         the GradScaler, if there is one: step() then calls scaler.step(optimizer). A step that it skips counts as a step
    broadcast      start with the weights and buffers of the first rank, as DistributedDataParallel does

    Other options are those of State. All ranks must call the constructor, step(), synchronize() and average_buffers().
    """

    def __init__(self, model: torch.nn.Module, optimizer: Union[torch.optim.Optimizer, Iterable[torch.optim.Optimizer]], recipe: str, *,
                 every: Union[int, str] = 1, outer: str = "average", process_group: Any = None, seed: int = 0,
                 rules: Optional[Rules] = None, dense_below: int = 0, nonfinite: str = "error", exchange: Optional[str] = None,
                 threads: int = 1, verify_every: int = 100, group_len: Optional[int] = None, hosts: Hosts = "flat",
                 buffers: str = "demand", overlap: bool = False, fragments: int = 1, mix: float = 0.5, scaler: Any = None,
                 broadcast: bool = True) -> None:
        turns = Turns(process_group)
        self.optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else list(optimizer)
        self.recipe, self.schedule, self.outer = canonical(recipe), Schedule(every), Outer(outer)
        self.steps = 0      # that this rank has taken
        self.exchanges = 0  # of all fragments
        self._model, self._scaler, self._buffers_when = model, scaler, buffers
        self._mix, self._overlaps, self._accumulates = float(mix), bool(overlap), False
        self._flying: Optional[int] = None  # the fragment whose exchange is under way
        self._link = TorchLink(turns.control)
        self.rank, self.world = self._link.rank, self._link.world
        trouble: Optional[Exception] = None
        parameters: List[torch.nn.Parameter] = []
        described = describe(model)
        try:
            self._check_options(fragments)
            _warn_of_loss(self.recipe)
            parameters = _check_optimizers(self.optimizers, described)
        except Error as error:
            trouble = error
        self._facts = {"local-steps": self.schedule.text, "outer": f"lr={self.outer.rate:.7g},momentum={self.outer.momentum:.7g}",
                       "overlap": f"{overlap} {fragments} {self._mix if overlap else 0:.7g}", "buffers": buffers}
        self._agree(trouble)
        if broadcast and self.world > 1:
            self._broadcast(turns, parameters)
        options: Dict[str, Any] = {"turns": turns, "seed": seed, "rules": rules, "dense_below": dense_below, "nonfinite": nonfinite,
                                   "exchange": exchange, "threads": threads, "verify_every": verify_every, "group_len": group_len,
                                   "hosts": hosts}
        self.fragments: List[Fragment] = []
        for part in _divide(parameters, fragments):
            fragment = Fragment(self.recipe, **options)
            fragment.open(part, described, self.outer, self._facts)
            self.fragments.append(fragment)
        self._of_buffers = InTurn("dense", turns)
        self._held: Optional[torch.nn.Parameter] = None  # stands for all buffers

    def _check_options(self, fragments: int) -> None:
        if self._buffers_when not in ("demand", "round"):
            raise Error(f"buffers is {self._buffers_when!r}; it is 'demand' or 'round'")
        if not 0 <= self._mix < 1:
            raise Error(f"mix is {self._mix}; it is from 0 to below 1, the share of its own weights that a rank keeps")
        if fragments < 1 or (fragments > 1 and not self._overlaps):
            raise Error(f"fragments is {fragments}; it is at least 1, and above 1 only with overlap=True")
        if self._overlaps and fragments > self.schedule.least:
            raise Error(f"{fragments} fragments cannot take turns in a round of {self.schedule.least} steps")

    def _agree(self, trouble: Optional[Exception]) -> None:
        """Raises Error on all ranks if a rank has trouble, or other local steps than rank 0."""
        self._link.agree(None if trouble is None else str(trouble))
        if trouble is not None:
            raise trouble
        texts = self._link.gather("".join(f"{name} {value}\n" for name, value in self._facts.items()).encode())
        for rank, text in enumerate(texts):
            for first, other in zip(texts[0].splitlines(), text.splitlines()):
                if first != other:
                    name, _, value = other.partition(" ")
                    raise Error(f"rank {rank} has {name} '{value}', but rank 0 has '{first.partition(' ')[2]}'", "MISMATCH")

    @torch.no_grad()
    def _broadcast(self, turns: Turns, parameters: Sequence[torch.nn.Parameter]) -> None:
        first = torch.distributed.get_global_rank(turns.group, 0) if hasattr(torch.distributed, "get_global_rank") else 0
        for tensor in [*parameters, *self._model.buffers()]:
            mine = local_of(tensor)
            if mine.numel() > 0:
                whole = mine.contiguous()
                torch.distributed.broadcast(whole, first, group=turns.carrier(whole))
                if whole is not mine:
                    mine.copy_(whole)

    # ---- steps ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """For all backward passes of a step but the last one: gradients add up, and step() does nothing. Enters the model's no_sync(),
        if it has one (FSDP), so that replicas do not reduce gradients either."""
        before, self._accumulates = self._accumulates, True
        no_sync: Any = getattr(self._model, "no_sync", contextlib.nullcontext)
        try:
            with no_sync():
                yield
        finally:
            self._accumulates = before

    def step(self, closure: Any = None) -> Any:
        """One optimizer step of this rank; at the end of a round, the exchange. Returns what the optimizer returns."""
        if self._accumulates:
            return None
        out = None
        for optimizer in self.optimizers:
            if self._scaler is not None:
                out = self._scaler.step(optimizer)
            else:
                out = optimizer.step() if closure is None else optimizer.step(closure)
        self.steps += 1
        if self._overlaps:
            self._end_slot()
        elif self.schedule.round(self.steps - 1).end == self.steps:
            self._meet(self.fragments)
        return out

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    def _meet(self, fragments: Sequence[Fragment]) -> None:
        """All ranks come to the same weights."""
        for fragment in fragments:
            fragment.exchange()
            self.exchanges += 1
            fragment.take()
        if self._buffers_when == "round":
            self.average_buffers()

    def _end_slot(self) -> None:
        """Overlapped: at the end of a slot, takes what was exchanged during it, and begins the exchange of its fragment."""
        now = self.schedule.round(self.steps - 1)
        done, n = self.steps - now.first, len(self.fragments)
        ended = next((f for f in range(n) if -(-now.steps * (f + 1) // n) == done), None)
        if ended is None:
            return
        self._take()
        self.fragments[ended].begin()
        self._flying = ended
        self.exchanges += 1
        if self._buffers_when == "round" and done == now.steps:
            self._land()
            self.average_buffers()

    def _land(self) -> None:
        """Waits for the exchange under way. Its averages count at the end of the slot all the same."""
        if self._flying is not None:
            self.fragments[self._flying].wait()

    def _take(self) -> None:
        if self._flying is not None:
            flying, self._flying = self.fragments[self._flying], None
            flying.wait()
            flying.take(self._mix)

    def synchronize(self) -> None:
        """Exchanges what every rank has moved since the last exchange, and leaves the same weights on all ranks, to the bit: before
        evaluation and saving, at any step, and at the end of a run that does not end with a round. All ranks call it after the same
        step. Rounds end where they would have."""
        self._take()
        self._meet(self.fragments)

    # ---- buffers -------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def average_buffers(self) -> None:
        """Replaces floating-point buffers, such as batch-norm statistics, by their mean over the ranks, uncompressed. Others stay."""
        self._land()  # one exchange at a time
        floating = [b for b in self._model.buffers() if b.is_floating_point() and local_of(b).numel() > 0]
        if not floating or self.world == 1:
            return
        flat = torch.cat([local_of(b).float().reshape(-1) for b in floating])
        if self._held is None:
            self._held = torch.nn.Parameter(flat, requires_grad=False)
            self._of_buffers._described = {self._held: ("buffers", "other")}
        self._of_buffers._reduce({self._held: flat})
        for buffer, mean in zip(floating, torch.split(flat, [local_of(b).numel() for b in floating])):
            local_of(buffer).copy_(mean.view(local_of(buffer).shape))

    # ---- facts ---------------------------------------------------------------------------------------------------------

    def stats(self) -> Dict[str, Any]:
        """What local steps took on this rank, in bytes: "sent", "received", and "dense", what an uncompressed all-reduce of the
        gradients, in the parameters' own type, would have sent in each of the "steps"; "ratio" is dense / sent, and "ratio_against" says
        so. "exchanges" counts those of all fragments. "frame_ratio" is the same for the last frames, each counted once. "buffers" is
        what average_buffers() has sent. "fragments" are the dicts of Steps.stats, of each."""
        parts = [fragment.stats() for fragment in self.fragments]
        sent = sum(part["total"]["sent"] for part in parts)
        own = sum(local_of(p).numel() * local_of(p).element_size() for f in self.fragments for p in f.parameters)
        dense = 2.0 * own * (self.world - 1) / self.world * self.steps
        done = [part for part in parts if part["tensors"]]
        frames = sum(tensor["bytes"] for part in done for tensor in part["tensors"].values())
        every = self.schedule.round(max(self.steps - 1, 0)).steps
        return {"recipe": self.recipe, "local_steps": self.schedule.text, "outer": self.outer.text, "steps": self.steps,
                "exchanges": self.exchanges, "sent": sent, "received": sum(part["total"]["received"] for part in parts), "dense": dense,
                "ratio": dense / sent if sent else 1.0, "ratio_against": AGAINST,
                "frame_ratio": own * every / frames if frames and len(done) == len(parts) else None,
                "buffers": self._of_buffers.stats()["total"]["sent"], "seconds": sum(part["total"]["seconds"] for part in parts),
                "fragments": parts}

    def residual(self) -> Dict[str, torch.Tensor]:
        """The residual of this rank, in units of weights: {name: float32 tensor of this rank's shape}."""
        self._land()
        return {name: value for fragment in self.fragments for name, value in fragment.residual().items()}

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """This rank's state, for torch.save, at any step: each rank saves its own, beside its model's and its optimizer's, which differ
        from rank to rank inside a round. Waits for the exchange under way."""
        return {"format": _FORMAT, "local-steps": self.schedule.text, "outer": [self.outer.rate, self.outer.momentum], "world": self.world,
                "rank": self.rank, "steps": self.steps, "exchanges": self.exchanges, "flying": self._flying,
                "fragments": [fragment.saved() for fragment in self.fragments]}

    def load_state_dict(self, state: Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]) -> None:
        """Continues from what state_dict returned, after the model and the optimizer were loaded: with this rank's state to the same
        bits; or, at the end of a round, with the list of the states of all ranks of another number. Raises Error otherwise."""
        states: List[Any] = list(state) if isinstance(state, (list, tuple)) else [state]
        if not states or not all(isinstance(each, dict) and each.get("format") == _FORMAT for each in states):
            raise Error("this is not what LocalSteps.state_dict returned", "STATE")
        first = states[0]
        is_between = Schedule(first["local-steps"]).round(first["steps"]).first == first["steps"] and first["flying"] is None
        if not is_between:
            for name, saved, now in (("local-steps", first["local-steps"], self.schedule.text),
                                     ("outer", first["outer"], [self.outer.rate, self.outer.momentum]), ("ranks", first["world"], self.world)):
                if saved != now:
                    raise Error(f"the state was saved inside a round, after step {first['steps']}, with {name} '{saved}', and this has '{now}'; "
                                "that can change at a round's end only", "MISMATCH")
        if len(first["fragments"]) != len(self.fragments):
            raise Error(f"the state has {len(first['fragments'])} fragments, and this has {len(self.fragments)}", "MISMATCH")
        own = next((each for each in states if each["rank"] == self.rank), first)
        self._flying = None
        for i, fragment in enumerate(self.fragments):
            fragment.restore([each["fragments"][i] for each in states], own["fragments"][i])
        self.steps, self.exchanges, self._flying = first["steps"], first["exchanges"], first["flying"]
