"""Compression under sharding: FSDP2 (torch.distributed.fsdp.fully_shard), and HSDP with replicas over a slow link.

    from tersegrad.torch.fsdp import compress

    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    compress(model, "mxfp8")                        # the reduce-scatter of gradients

    mesh = init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh["shard"])          # the mesh of one replica
    compress(model, "adacomp", replicas=mesh["replicate"])

The rest of the program stays as it is. docs/sharded.md is the tutorial.
"""

import json
import struct
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist

from .._exchange import Exchange
from .._library import Error, Rules, canonical, lib
from .._torch_device import Device, is_on_gpu
from .._torch_fsdp_groups import Group, Seat, agree, check_free, find_groups, layout_of, weights_of
from .._torch_fsdp_replicas import Between, ReplicaLink, replica_group, residuals_of
from .._torch_fsdp_scatter import ScatterComm

__all__ = ["Compressor", "compress", "load"]

_FORMAT = 1
_COUNTS = ("steps", "logical", "payload", "header", "received")


class Compressor:
    """What compress() has put into a model: its exchanges, and their state."""

    recipe: str            # canonical; between replicas, if there are any, else of the reduce-scatter
    inside: Optional[str]  # of the reduce-scatter; None: as PyTorch does it
    shards: int
    replicas: int

    def __init__(self, model: torch.nn.Module, recipe: str, inside: Optional[str], replicas: Any, options: Mapping[str, Any]) -> None:
        self._groups = find_groups(model)
        self._link: Optional[ReplicaLink] = None
        self._device: Optional[Device] = None
        self._replica_group: Any = None
        self.recipe = canonical(recipe)
        self.inside = self.recipe if replicas is None else None if inside is None else canonical(inside)
        self._scatters: List[ScatterComm] = []
        self._betweens: List[Between] = []
        first = self._groups[0].of
        self.shards, self.replicas, self._replica = self._groups[0].shards, 1, 0
        for group in self._groups:
            check_free(group, self.inside is not None, replicas is not None)
            self._check_mesh(group, replicas)
        self._device = _device_of(first.device)
        if replicas is not None:
            self._replica_group = replica_group(replicas, self._device is None)
            self.replicas, self._replica = dist.get_world_size(self._replica_group), dist.get_rank(self._replica_group)
            self._betweens = [Between(group, recipe, self._replica, self.replicas, options, self._device) for group in self._groups]
        elif hasattr(first.mesh_info, "replicate_process_group"):  # PyTorch's own replicas
            self.replicas, self._replica = first.mesh_info.replicate_mesh_size, first.mesh_info.replicate_mesh_rank
        if self.inside is not None:
            own = dict(options, exchange=None, verify_every=0)
            try:
                self._scatters = [ScatterComm(group, self.inside, own, self._device) for group in self._groups]
            except Error as error:
                raise _with_advice(error, replicas is not None) from None

    @staticmethod
    def _check_mesh(group: Group, replicas: Any) -> None:
        if replicas is not None and hasattr(group.of.mesh_info, "replicate_process_group"):
            raise Error(f"'{group.name}' is on a mesh of two dimensions, so PyTorch averages over its replicas, and replicas= would do it a second "
                        "time; shard it by mesh['shard'] alone, and give replicas=mesh['replicate']")

    def _install(self) -> None:
        """When all ranks agree."""
        if self._betweens:
            self._link = ReplicaLink(self._replica_group, self._device)
        for group, scatter in zip(self._groups, self._scatters):
            group.set_reduce_scatter(scatter)
        for group, between in zip(self._groups, self._betweens):
            assert self._link is not None
            between.link = self._link
            group.set_hook(between)

    def _parts(self) -> List[Union[ScatterComm, Between]]:
        return [*self._scatters, *self._betweens]

    def _exchanges(self) -> List[Exchange]:
        return [each.exchange for each in self._parts()]

    # ---- facts ---------------------------------------------------------------------------------------------------------

    def stats(self) -> Dict[str, Any]:
        """What all steps took on this rank, as dicts: `inside` is the reduce-scatter and `between` the exchange between replicas, or None.
        `sent` is counted by the exchanges, `link` where bytes are given to the process group, and `dense` is what would be sent
        uncompressed in the reduce dtype: by a ring, in a reduce-scatter or an all-reduce."""
        inside = self._counted([scatter.exchange for scatter in self._scatters], self.shards, 1)
        between = self._counted([each.exchange for each in self._betweens], self.replicas, 2)
        if inside is not None:
            inside["link"] = sum(scatter.sent for scatter in self._scatters)
        if between is not None and self._link is not None:
            between["link"] = self._link.sent
        return {"recipe": self.recipe, "shards": self.shards, "replicas": self.replicas, "groups": len(self._groups), "inside": inside,
                "between": between}

    def summary(self) -> str:
        """One line about all steps of this rank."""
        said = []
        for name, recipe in (("inside", self.inside), ("between", self.recipe)):
            counts = self.stats()[name]
            if counts is not None and counts["steps"] > 0:
                of = f"{self.shards} shards" if name == "inside" else f"{self.replicas} replicas"
                said.append(f"{recipe} between {of}, {counts['steps']} steps, {counts['sent'] / counts['steps']:,.0f} bytes sent a step, "
                            f"{counts['ratio']:.1f} times fewer than uncompressed")
        return "tersegrad: " + ("; ".join(said) or "no gradient was reduced yet")

    @staticmethod
    def _counted(exchanges: Sequence[Exchange], world: int, passes: int) -> Optional[Dict[str, Any]]:
        if not exchanges:
            return None
        totals = [exchange.meter()[1] for exchange in exchanges]
        out: Dict[str, Any] = {name: sum(total[name] for total in totals) for name in _COUNTS}
        out["steps"] = totals[0]["steps"]
        out["sent"] = out["payload"] + out["header"]
        out["dense"] = out["logical"] * passes * (world - 1) // world
        out["ratio"] = out["dense"] / out["sent"] if out["sent"] else 1.0
        return out

    def residual(self) -> Dict[str, torch.Tensor]:
        """The error-feedback state of this rank, fp32: with replicas {name of a parameter: its segment of the shard}, padded at its end;
        else {name of a group: (shards, row)}."""
        out: Dict[str, torch.Tensor] = {}
        for each in self._betweens:
            out.update(zip((tensor.name for tensor in each.exchange.tensors), residuals_of(each.exchange)))
        for scatter, group in zip(self._scatters if not self._betweens else [], self._groups):
            out[group.name] = residuals_of(scatter.exchange)[0].view(group.shards, -1)
        return out

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def _place(self, replica: int) -> str:
        """The name of a rank's state. A model on several meshes has a shard of each."""
        meshes = {group.shard_ranks: group.shard for group in self._groups}
        return f"shard{'-'.join(map(str, meshes.values()))}.replica{replica}"

    def state_dict(self) -> Dict[str, Any]:
        """The state of this rank, for torch.distributed.checkpoint.save: a tensor of bytes under a name that only this rank has, and
        `about`, which is the same on all. Between steps."""
        about = {"format": _FORMAT, "recipe": self.recipe, "inside": self.inside, "shards": self.shards, "replicas": self.replicas,
                 "layout": layout_of(self._groups), "steps": [each.step for each in self._parts()]}
        states = [exchange.save() for exchange in self._exchanges()]
        head = struct.pack(f"<I{len(states)}Q", len(states), *map(len, states))
        return {"about": json.dumps(about), self._place(self._replica): torch.frombuffer(bytearray(head + b"".join(states)), dtype=torch.uint8)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what state_dict returned on this rank, with the same bits; or, with another number of replicas, from the states of
        all old replicas of this shard, which load() reads. Nothing changes if it raises Error."""
        about = self._about(state)
        if about["replicas"] == self.replicas:
            names = [self._place(self._replica)]
        else:
            self._check_other_replicas(about)
            names = [self._place(replica) for replica in range(about["replicas"])]
        for name in names:
            if name not in state:
                raise Error(f"the state of '{name}' is not there; with {self.replicas} replicas in place of {about['replicas']}, load() reads all "
                            "that are needed", "STATE")
        parts = [_unpack(bytes(state[name].numpy())) for name in names]
        fresh = [exchange.again() for exchange in self._exchanges()]
        for at, exchange in enumerate(fresh):
            is_inside = at < len(self._scatters)
            exchange.load([part[at] for part in (parts[:1] if is_inside else parts)])
        for each, exchange, step in zip(self._parts(), fresh, about["steps"]):
            each.exchange, each.step = exchange, step

    def _about(self, state: Mapping[str, Any]) -> Dict[str, Any]:
        try:
            about: Dict[str, Any] = json.loads(state["about"])
            if about["format"] != _FORMAT:
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise Error("this is not what Compressor.state_dict returned", "STATE") from None
        for name, now in (("recipe", self.recipe), ("inside", self.inside), ("shards", self.shards), ("layout", layout_of(self._groups))):
            if about[name] != now:
                raise Error(f"the state was saved with {name} '{about[name]}', and this is '{now}'" +
                            ("; residuals cannot be sharded anew" if name == "shards" else ""), "MISMATCH")
        return about

    def _check_other_replicas(self, about: Mapping[str, Any]) -> None:
        if self._scatters and self.inside is not None and self.inside.startswith(("ef", "momentum")):
            raise Error(f"the state is of {about['replicas']} replicas, and there are {self.replicas}; residuals of the reduce-scatter ('{self.inside}') "
                        "belong to a replica, and cannot be shared out anew", "MISMATCH")


def _device_of(of: torch.device) -> Optional[Device]:
    """Where gradients are encoded; None: on the CPU."""
    return Device(of) if is_on_gpu(of) else None


def _unpack(blob: bytes) -> List[bytes]:
    try:
        n = struct.unpack_from("<I", blob)[0]
        lengths = struct.unpack_from(f"<{n}Q", blob, 4)
    except struct.error:
        raise Error("the state is cut off", "STATE") from None
    out, at = [], 4 + 8 * n
    for length in lengths:
        out.append(blob[at:at + length])
        at += length
    if at != len(blob):
        raise Error("the state is cut off", "STATE")
    return out


def load(compressor: Compressor, checkpoint_id: Any = None, *, prefix: str, storage_reader: Any = None, process_group: Any = None) -> None:
    """Reads the state of a Compressor from a checkpoint of torch.distributed.checkpoint, also one of another number of replicas. `prefix`
    is the key that its state_dict() was saved under. All ranks call it."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict_loader import load as load_into
    reader = storage_reader or FileSystemReader(checkpoint_id)
    if storage_reader is not None and checkpoint_id is not None:
        reader.reset(checkpoint_id)
    there: Dict[str, Any] = reader.read_metadata().state_dict_metadata
    own = compressor._place(0).rpartition(".replica")[0]
    template: Dict[str, Any] = {f"{prefix}.about": ""}
    for name, metadata in there.items():
        if name.startswith(f"{prefix}.{own}.replica"):
            template[name] = torch.empty(metadata.size, dtype=torch.uint8)
    if f"{prefix}.about" not in there:
        raise Error(f"the checkpoint has nothing of a Compressor under '{prefix}'", "STATE")
    load_into(template, storage_reader=reader, process_group=process_group)
    compressor.load_state_dict({name[len(prefix) + 1:]: value for name, value in template.items()})


def compress(model: torch.nn.Module, recipe: str, *, replicas: Any = None, inside: Optional[str] = None, seed: int = 0,
             rules: Optional[Rules] = None, dense_below: int = 0, nonfinite: str = "pass", exchange: Optional[str] = None, threads: int = 1,
             verify_every: int = 0, group: Any = None) -> Compressor:
    """Compresses the gradients of a model that fully_shard has sharded, its nested modules included. All ranks must call it, once, before
    the first backward(). If it fails on one rank, or ranks differ, it raises Error on all of them and changes nothing.

    recipe         without replicas: the recipe of the reduce-scatter, of fixed length, such as "mxfp8", "ef+mxfp4" or "bf16". With
                   replicas: the recipe between them, any one, such as "adacomp"; or both levels, such as "ef+mxfp4+inside=mxfp8"
    replicas       a mesh of one dimension, or a process group: the ranks that hold the same shard. The modules must then be sharded by a mesh
                   of one dimension, and compress() averages over replicas
    inside         with replicas: the recipe of the reduce-scatter; default: PyTorch's own reduce-scatter
    seed           seed of all random numbers
    rules          {pattern of names: recipe}: names are those of parameters between replicas, of groups in a reduce-scatter
    dense_below    tensors with fewer elements are sent uncompressed
    nonfinite      what to do with NaN and Inf: "pass", "zero" or "error"; "error" makes the host wait for the GPU
    exchange       between replicas: "allreduce", "gather", "shard" or "server"; default: chosen by the recipe
    threads        threads that one rank encodes and decodes with, on the CPU
    verify_every   between replicas: compare the averages every so many steps; 0: never
    group          the process group of all ranks that call this; default: all ranks of the job
    """
    made: Optional[Compressor] = None
    trouble: Optional[Exception] = None
    weights = 0
    try:
        if not dist.is_available() or not dist.is_initialized():
            raise Error("torch.distributed has no process group yet; call torch.distributed.init_process_group first")
        recipe, inside = _levels(recipe, inside)
        if inside is not None and replicas is None:
            raise Error("inside= is the recipe within a replica, and there are no replicas=; give the recipe alone")
        for name, given in (("exchange", exchange), ("verify_every", verify_every)):
            if given and replicas is None:
                raise Error(f"{name}= is for the exchange between replicas, and there are no replicas=")
        options = {"seed": seed, "rules": rules, "dense_below": dense_below, "nonfinite": nonfinite, "exchange": exchange,
                   "threads": threads, "verify_every": verify_every}
        made = Compressor(model, recipe, inside, replicas, options)
        weights = weights_of(made._groups) if replicas is not None else 0
    except Exception as error:
        if not dist.is_available() or not dist.is_initialized():
            raise
        trouble = error
    facts = [("version", lib.tg_version().decode()), ("recipe", _said(recipe)), ("inside", _said(inside)), ("seed", seed), ("rules", dict(rules or {})),
             ("dense_below", dense_below), ("nonfinite", nonfinite), ("exchange", exchange), ("verify_every", verify_every)]
    if made is not None:
        facts += [("parameters", layout_of(made._groups)), ("shards", made.shards), ("replicas", made.replicas)]
    own = Seat(dist.get_rank(), None if trouble is None else str(trouble) or type(trouble).__name__, [(name, str(value)) for name, value in facts],
               [] if made is None else [each.shard_ranks for each in made._groups],
               () if made is None or replicas is None else tuple(dist.get_process_group_ranks(made._replica_group)), weights)
    agree(own, group)
    if trouble is not None or made is None:
        raise trouble or Error("compress() has failed")
    made._install()
    return made


def _levels(recipe: str, inside: Optional[str]) -> Tuple[str, Optional[str]]:
    """The recipes between replicas and inside them; one text may hold both: "ef+mxfp4+inside=mxfp8"."""
    between, mark, within = canonical(recipe).partition("+inside=")
    if mark and inside is not None:
        raise Error(f"the recipe '{recipe}' has an inside= of its own, and inside='{inside}' is given, too")
    return between, within if mark else inside


def _with_advice(error: Error, has_replicas: bool) -> Error:
    """What to do about a recipe that a reduce-scatter cannot take."""
    if error.code != "RECIPE":
        return error
    return Error(f"{error}; take a recipe of fixed length, such as bf16, mxfp8 or ef+mxfp4{' as inside=' if has_replicas else ''}" +
                 ("" if has_replicas else ", or shard by replicas and give replicas=, between which any recipe works"), error.code)


def _said(recipe: Optional[str]) -> Optional[str]:
    """A recipe by its canonical text, if it has one."""
    try:
        return None if recipe is None else canonical(recipe)
    except Error:
        return recipe
