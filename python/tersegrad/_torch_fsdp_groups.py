"""Parameter groups of FSDP2: what fully_shard communicates together, and what ranks must have in common about them.

A group's gradients travel as one buffer of (shards, row) values. Row s is what shard s gets: a segment for each parameter of the group that
requires a gradient, padded so that all rows are as long.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ._library import Error, TensorSpec
from ._torch_model import _kind, dtype_name

_FSDPModule: Any = None
try:
    from torch.distributed.fsdp import FSDPModule as _FSDPModule
except Exception:  # before PyTorch 2.6; Debian's 1.13 raises whatever comes of a Python that is newer than it
    pass

OLDEST = "2.9"  # of PyTorch that has both set_custom_reduce_scatter and set_all_reduce_hook


def has_fsdp2() -> bool:
    return hasattr(_FSDPModule, "set_custom_reduce_scatter") and hasattr(_FSDPModule, "set_all_reduce_hook")


def check_torch() -> None:
    if not has_fsdp2():
        raise Error(f"this is PyTorch {torch.__version__}, whose fully_shard takes no reduce-scatter of another's; {OLDEST} and later do")


class Group:
    """A parameter group, `of` being PyTorch's own."""

    def __init__(self, of: Any, module: torch.nn.Module, is_alone: bool, name: str, segments: List[TensorSpec]) -> None:
        self.of, self.module, self.is_alone = of, module, is_alone  # is_alone: the only one of its module
        self.name = name
        self.segments = segments  # of a row: a tensor for each parameter
        self.row_n = sum(segment.shape[0] for segment in segments)
        self.dtype = segments[0].dtype
        self.shards = int(of.mesh_info.shard_mesh_size)
        self.shard = int(of.mesh_info.shard_mesh_rank)

    @property
    def shard_ranks(self) -> Tuple[int, ...]:
        return tuple(dist.get_process_group_ranks(self.of.mesh_info.shard_process_group))

    def set_reduce_scatter(self, comm: Any) -> None:
        if self.is_alone:
            self.module.set_custom_reduce_scatter(comm)  # type: ignore[operator]
        else:  # which the method refuses, because one object would serve all groups; this one serves its own
            self.of._reduce_scatter_comm = comm

    def set_hook(self, hook: Any) -> None:
        if self.is_alone:
            self.module.set_all_reduce_hook(hook)  # type: ignore[operator]
        else:
            self.of._all_reduce_hook = hook

    def missing(self, n: int) -> Error:
        remedy = "call model.set_reduce_scatter_unused_params(True)"
        if not hasattr(self.module, "set_reduce_scatter_unused_params"):
            remedy = f"use all of them in every pass, or PyTorch 2.13 (this is {torch.__version__}), which can count them as zeros"
        return Error(f"the gradients of '{self.name}' have {n} values a shard, but its parameters {self.row_n}: some got no gradient in "
                     f"this pass; {remedy}", "MISMATCH")


def _groups_of(state: Any) -> List[Any]:
    """The parameter groups of a module. Before PyTorch 2.12 it had one at most."""
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return list(several)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def _states(model: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module, List[Any]]]:
    """Modules that fully_shard was called for, with their paths and groups."""
    seen = set()
    for path, module in model.named_modules():
        if isinstance(module, _FSDPModule):
            state: Any = module._get_fsdp_state()
            if id(state) not in seen:
                seen.add(id(state))
                yield path, module, _groups_of(state)


def _dtype(of: Any, params: Sequence[Any]) -> torch.dtype:
    """That gradients are reduced in, as PyTorch finds it in the first pass."""
    found: torch.dtype = of.mp_policy.reduce_dtype or of.mp_policy.param_dtype or params[0].sharded_param.dtype
    return found


def _segments(of: Any, paths: Mapping[torch.nn.Module, str]) -> List[TensorSpec]:
    params = [param for param in of.fsdp_params if param.sharded_param.requires_grad]
    out = []
    for param in params:
        info = param._module_info
        path = paths.get(info.module, "")
        name = f"{path}.{info.param_name}" if path else info.param_name
        dtype = dtype_name(_dtype(of, params))
        if dtype is None:
            raise Error(f"gradient {name!r} is reduced in {_dtype(of, params)}; float32, float16 and bfloat16 can be exchanged")
        out.append(TensorSpec(name, (param.padded_sharded_param_size.numel(),), _kind(info.module, info.param_name), dtype))
    return out


def find_groups(model: torch.nn.Module) -> List[Group]:
    """The groups of a model that have something to reduce, its nested modules included."""
    check_torch()
    paths: Dict[torch.nn.Module, str] = {}
    for path, module in model.named_modules():
        paths.setdefault(module, path)
    out: List[Group] = []
    for path, module, groups in _states(model):
        for number, of in enumerate(groups):
            segments = _segments(of, paths)
            if not segments:
                continue
            if not hasattr(of.mesh_info, "shard_process_group"):
                raise Error(f"'{path or 'the model'}' is replicated and not sharded; give DistributedDataParallel a State instead")
            name = (path or type(model).__name__) + (f" [{number}]" if len(groups) > 1 else "")
            out.append(Group(of, module, len(groups) == 1, name, segments))
    if not out:
        if any(type(module).__name__ in ("FullyShardedDataParallel", "DistributedDataParallel") for module in model.modules()):
            raise Error("the model is wrapped by FullyShardedDataParallel (FSDP1) or DistributedDataParallel; compress() is for fully_shard (FSDP2), "
                        "and DistributedDataParallel takes a State (docs/pytorch.md)")
        raise Error("no module of the model was sharded by fully_shard, or none has a parameter that requires a gradient; call compress() "
                    "after fully_shard")
    return out


def check_free(group: Group, takes_scatter: bool, takes_hook: bool) -> None:
    """Raises Error if what compress() is to set was set before."""
    comm, hook = group.of._reduce_scatter_comm, group.of._all_reduce_hook
    if hasattr(comm, "tersegrad") or hasattr(hook, "tersegrad"):
        raise Error(f"'{group.name}' is compressed already; call compress() once, with the whole model", "STATE")
    if takes_scatter and type(comm).__name__ != "DefaultReduceScatter":
        raise Error(f"'{group.name}' has a reduce-scatter of its own already ({type(comm).__name__})", "STATE")
    if takes_hook and hook is not None:
        raise Error(f"'{group.name}' has an all-reduce hook already", "STATE")


# ---- what ranks have in common -----------------------------------------------------------------------------------------------------


class Seat(NamedTuple):
    """Where a rank sits, and what it goes on with."""

    rank: int                            # in the job
    trouble: Optional[str]               # why it cannot
    facts: List[Tuple[str, str]]
    shard_ranks: List[Tuple[int, ...]]   # of each mesh
    replica_ranks: Tuple[int, ...]       # that hold the same shards
    weights: int                         # a sum over the bits of its shards


def layout_of(groups: Sequence[Group]) -> str:
    text = repr([(group.name, group.shards, group.segments) for group in groups])
    return f"{len(groups)} groups of {sum(g.row_n for g in groups)} values a shard, {hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


@torch.no_grad()
def weights_of(groups: Sequence[Group]) -> int:
    """A sum over the bits of this rank's shards, by which replicas see whether they begin alike; 0 if there are no weights yet."""
    sums = []
    for group in groups:
        for param in group.of.fsdp_params:
            local = param.sharded_param.to_local()
            if local.is_meta:
                return 0
            words = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[local.element_size()]
            sums.append(local.contiguous().view(words).sum(dtype=torch.int64))
    return int(torch.stack(sums).sum().item())


def check_seats(seats: Sequence[Seat], own: Seat) -> None:
    """Raises Error if ranks do not go together; on all of them, but those with a trouble of their own."""
    if own.trouble is not None:
        return  # which the caller raises
    for seat in seats:
        if seat.trouble is not None:
            raise Error(f"rank {seat.rank}: {seat.trouble}", "PEER")
    for seat in seats:
        for (name, first), (_, value) in zip(seats[0].facts, seat.facts):
            if first != value:
                raise Error(f"rank {seat.rank} has {name} '{value}', but rank {seats[0].rank} has '{first}'", "MISMATCH")
    by_rank = {seat.rank: seat for seat in seats}
    for seat in seats:
        if seat.replica_ranks:
            _check_replicas(seat, by_rank)


def _check_replicas(seat: Seat, by_rank: Mapping[int, Seat]) -> None:
    for shard_ranks in seat.shard_ranks:
        both = sorted(set(shard_ranks) & set(seat.replica_ranks))
        if both != [seat.rank]:
            raise Error(f"rank {seat.rank} shards among ranks {list(shard_ranks)}, and its replicas are on ranks {list(seat.replica_ranks)}, which "
                        f"have {both} in common in place of {seat.rank} alone; of a mesh ('replicate', 'shard') give mesh['shard'] to "
                        "fully_shard and replicas=mesh['replicate']", "MISMATCH")
    for rank in seat.replica_ranks:
        other = by_rank.get(rank)
        if other is None or other.replica_ranks != seat.replica_ranks:
            raise Error(f"rank {seat.rank} has replicas on ranks {list(seat.replica_ranks)}, but rank {rank} has "
                        f"{'not called compress()' if other is None else 'them on ranks ' + str(list(other.replica_ranks))}", "MISMATCH")
        places = [[ranks.index(of.rank) for ranks in of.shard_ranks] for of in (seat, other)]
        if places[0] != places[1]:
            raise Error(f"ranks {seat.rank} and {rank} are given as replicas, but hold shards {places[0][0]} and {places[1][0]}", "MISMATCH")
        if other.weights != seat.weights:
            raise Error(f"the replicas on ranks {seat.rank} and {rank} begin with different weights; set the same seed, or load the same "
                        "checkpoint, before compress()", "MISMATCH")


def agree(own: Seat, group: Any) -> None:
    """Raises Error on all ranks of a process group if one has a trouble, or they do not go together."""
    seats: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(seats, own, group=group)
    check_seats(seats, own)
