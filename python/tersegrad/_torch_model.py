"""Names and kinds of a model's parameters: what recipes and rules go by."""

from __future__ import annotations

import gc
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from ._library import Error

Described = Dict[nn.Parameter, Tuple[str, str]]  # {parameter: (name, kind)}

_KINDS: Tuple[Tuple[str, Tuple[Any, ...]], ...] = (
    ("conv", (nn.modules.conv._ConvNd,)),
    ("dense", (nn.Linear, nn.Bilinear, nn.MultiheadAttention)),
    ("recurrent", (nn.RNNBase, nn.RNNCellBase)),
    ("embedding", (nn.Embedding, nn.EmbeddingBag)),
    ("norm", (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)),
)
_DTYPES = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}


def _kind(module: nn.Module, name: str) -> str:
    kind = next((kind for kind, types in _KINDS if isinstance(module, types)), "other")
    if kind == "other" and type(module).__name__.endswith("Norm"):  # of other libraries
        kind = "norm"
    return "bias" if kind != "norm" and "bias" in name else kind


def describe(model: nn.Module) -> Described:
    """{parameter: (name, kind)} in the order of named_parameters, each once."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        model = model.module
    out: Described = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{path}.{name}" if path else name
            out.setdefault(parameter, (full, _kind(module, name)))
    return out


def describe_list(parameters: Sequence[nn.Parameter]) -> Described:
    """The same of bare parameters, of which only the shape is known: those of one dimension are norms and biases."""
    return {parameter: (f"parameter.{i}", "bias" if parameter.dim() <= 1 else "other")
            for i, parameter in enumerate(parameters)}


def find(parameters: Iterable[torch.Tensor]) -> nn.Module:
    """The module that DistributedDataParallel trains and these are parameters of: up from one of them, by who holds whom.
    (gc.get_objects would be simpler, but wakes tensors that PyTorch is about to free.)"""
    wanted = {id(parameter) for parameter in parameters}
    level: List[Any] = [next(iter(parameters))]
    seen: Set[int] = set()
    while level:
        holders, level = gc.get_referrers(*level), []
        for holder in holders:
            is_module = issubclass(type(holder), nn.Module)
            if id(holder) in seen or not (is_module or issubclass(type(holder), dict)):
                continue
            seen.add(id(holder))
            if issubclass(type(holder), nn.parallel.DistributedDataParallel):
                if wanted <= {id(parameter) for parameter in holder.parameters()}:
                    found: nn.Module = holder.module
                    return found
            level.append(holder)
    raise Error("no DistributedDataParallel holds the parameters of this bucket; give the module: State(..., model=module)")


def dtype_name(dtype: torch.dtype) -> Optional[str]:
    """As the library calls it; None if it has none such."""
    return _DTYPES.get(dtype)
