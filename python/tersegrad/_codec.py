"""Gradients in NumPy arrays to frames and back."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

import numpy
import numpy.typing

from ._library import (DTYPES, Error, ParameterInfo, PartInfo, Rules, Tensor, TensorSpec, call, canonical, lib, make_options,
                       make_tensors, pointers)

Array = numpy.typing.NDArray[Any]
Arrays = Union[Array, List[Array], Dict[str, Array]]
Given = Union[numpy.typing.ArrayLike, Sequence[numpy.typing.ArrayLike], Mapping[str, numpy.typing.ArrayLike]]

# How a frame says that it holds one array, or a list: by the names of its tensors. Names of a dict are the caller's.
_ONE = "array"
_LISTED = "array.%d"


def _named(gradients: Given) -> Dict[str, Array]:
    """What was given, as a dict of arrays in row order."""
    arrays: Dict[str, Any]
    if isinstance(gradients, Mapping):
        arrays = dict(gradients)
    elif isinstance(gradients, (list, tuple)):
        arrays = {_LISTED % i: array for i, array in enumerate(gradients)}
    else:
        arrays = {_ONE: gradients}
    out = {}
    for name, given in arrays.items():
        array = numpy.asarray(given)
        native = array.dtype.newbyteorder("=")
        if native not in (numpy.float32, numpy.float16):
            raise Error(f"array {name!r} is of {array.dtype}; float32 and float16 can be encoded")
        out[name] = numpy.require(array, native, "C")
    return out


def _as_given(arrays: Dict[str, Array]) -> Arrays:
    """A dict of arrays as the caller of encode gave it."""
    names = list(arrays)
    if names == [_ONE]:
        return arrays[_ONE]
    if names and names == [_LISTED % i for i in range(len(names))]:
        return list(arrays.values())
    return arrays


def decode(frame: Union[bytes, bytearray, memoryview]) -> Arrays:
    """Decodes a frame, which describes itself.

    Returns what Codec.encode was given, as far as its recipe keeps it: an array, a list of arrays or a dict of arrays by
    name, each of the shape and dtype (float32 or float16) that it had. Raises Error if the frame is damaged.
    """
    frame = bytes(frame)
    handle = ctypes.c_void_p()
    call("tg_codec_from_frame", ctypes.byref(handle), None, frame, len(frame), make_options())
    try:
        arrays: Dict[str, Array] = {}
        for t in range(lib.tg_codec_tensors(handle)):
            tensor = Tensor()
            call("tg_codec_tensor", ctypes.byref(tensor), handle, t)
            name, dtype = tensor.name.decode(errors="replace"), DTYPES[tensor.dtype]
            if dtype == "bfloat16":
                raise Error(f"tensor {name!r} is of bfloat16, which NumPy does not have", "VERSION")
            arrays[name] = numpy.empty([tensor.dims[d] for d in range(tensor.dim_n)], dtype)
        call("tg_decode", handle, pointers([array.ctypes.data for array in arrays.values()]), frame, len(frame))
    finally:
        lib.tg_codec_free(handle)
    return _as_given(arrays)


class Codec:
    """Encodes gradients by a recipe. With feedback, what a frame leaves out (the residual) is added to the next gradient.

        codec = Codec("ef+topk@0.01+fp16")
        frame = codec.encode(gradient)
        back = codec.decode(frame)              # or tersegrad.decode(frame): a frame describes itself

    recipe         the recipe, such as "adacomp"; tersegrad.recipes() lists the parts
    seed           seed of all random numbers; None: a fixed one
    rules          {pattern of names: recipe}: recipes for tensors by name
    dense_below    tensors with fewer elements are sent uncompressed
    nonfinite      what to do with NaN and Inf: "error", "zero" or "pass"
    threads        threads that encode
    kinds          {name: kind} of the arrays of a dict: "conv", "dense", "recurrent", "embedding", "norm", "bias" or "other".
                   Norms and biases are sent uncompressed by default

    The first call of encode fixes names, shapes and dtypes; later calls must have the same.
    """

    recipe: str  # canonical
    step: int    # of the next frame

    def __init__(self, recipe: str, *, seed: Optional[int] = None, rules: Optional[Rules] = None, dense_below: int = 0,
                 nonfinite: str = "error", threads: int = 1, kinds: Optional[Mapping[str, str]] = None) -> None:
        self.recipe = canonical(recipe)
        self.step = 0
        self._kinds = dict(kinds or {})
        self._options = make_options(rules=rules, seed=seed, dense_below=dense_below, nonfinite=nonfinite, threads=threads,
                                     describe=True)
        self._tensors: Optional[List[TensorSpec]] = None
        self._handle: Optional[ctypes.c_void_p] = None

    def _make(self, tensors: List[TensorSpec]) -> None:
        handle = ctypes.c_void_p()
        call("tg_codec_new", ctypes.byref(handle), self.recipe.encode(), make_tensors(tensors), len(tensors), self._options)
        self._tensors, self._handle = tensors, handle
        self._frame = ctypes.create_string_buffer(lib.tg_encode_bound(handle))
        weakref.finalize(self, lib.tg_codec_free, handle).atexit = False

    def encode(self, gradients: Given) -> bytes:
        """One step: encodes an array, or a list or dict of arrays, of any shape, float32 or float16. Returns the frame."""
        arrays = _named(gradients)
        tensors = [TensorSpec(name, array.shape, self._kinds.get(name, "other"), array.dtype.name) for name, array in arrays.items()]
        if self._tensors is None:
            self._make(tensors)
        elif tensors != self._tensors:
            raise Error("these arrays have other names, shapes or types than those of the first call", "MISMATCH")
        length = ctypes.c_size_t()
        call("tg_encode", ctypes.byref(length), self._handle, self._frame, len(self._frame), self.step,
             pointers([array.ctypes.data for array in arrays.values()]))
        self.step += 1
        return self._frame.raw[:length.value]

    def decode(self, frame: Union[bytes, bytearray, memoryview]) -> Arrays:
        """As tersegrad.decode."""
        return decode(frame)

    def residual(self) -> Optional[Arrays]:
        """The residual, float32, in the form and shapes of what was encoded; None before the first frame."""
        if self._tensors is None:
            return None
        out: Dict[str, Array] = {}
        for t, tensor in enumerate(self._tensors):
            out[tensor.name] = numpy.zeros(tensor.shape, numpy.float32)
            call("tg_codec_residual", self._handle, out[tensor.name].ctypes.data_as(ctypes.POINTER(ctypes.c_float)), t)
        return _as_given(out)


def recipes() -> List[Dict[str, Any]]:
    """The parts and presets that recipes are made of: a list of dicts with name, stage, summary, expansion and parameters."""
    out: List[Dict[str, Any]] = []
    while True:
        part = PartInfo()
        try:
            call("tg_part_list", ctypes.byref(part), len(out))
        except Error:
            return out
        parameters = []
        for p in range(part.parameter_n):
            info = ParameterInfo()
            call("tg_part_parameter", ctypes.byref(info), len(out), p)
            parameters.append({"name": info.name.decode(), "summary": info.summary.decode(), "range": info.range.decode(),
                               "standard": info.standard.decode() or None, "is_main": bool(info.is_main)})
        out.append({"name": part.name.decode(), "stage": part.stage.decode(), "summary": part.summary.decode(),
                    "expansion": part.expansion.decode() if part.expansion else None, "parameters": parameters})
