"""Names and kinds of a model's parameters: what recipes and rules go by."""

from __future__ import annotations

import gc
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Type

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


def syncs_norms(model: nn.Module) -> List[Any]:
    """The process groups that SyncBatchNorm uses in the backward pass; None: that of all ranks."""
    return [module.process_group for module in model.modules() if isinstance(module, nn.SyncBatchNorm)]


def describe_list(parameters: Sequence[nn.Parameter]) -> Described:
    """The same of bare parameters, of which only the shape is known: those of one dimension are norms and biases."""
    return {parameter: (f"parameter.{i}", "bias" if parameter.dim() <= 1 else "other")
            for i, parameter in enumerate(parameters)}


def _all_classes(of: Type[Any]) -> List[Type[Any]]:
    out = [of]
    for further in of.__subclasses__():
        out += _all_classes(further)
    return out


def find(parameters: Iterable[torch.Tensor]) -> nn.Module:
    """The module that DistributedDataParallel trains and these are parameters of. An object refers to its class, so all objects of
    a class are found in one pass over what the garbage collector knows. (gc.get_objects would do, too, but wakes tensors that
    PyTorch is about to free.)"""
    wanted = {id(parameter) for parameter in parameters}
    for holder in gc.get_referrers(*_all_classes(nn.parallel.DistributedDataParallel)):
        if issubclass(type(holder), nn.parallel.DistributedDataParallel) and hasattr(holder, "module"):
            if wanted <= {id(parameter) for parameter in holder.parameters()}:
                found: nn.Module = holder.module
                return found
    raise Error("no DistributedDataParallel holds the parameters of this bucket; give the module: State(..., model=module)")


def dtype_name(dtype: torch.dtype) -> Optional[str]:
    """As the library calls it; None if it has none such."""
    return _DTYPES.get(dtype)
