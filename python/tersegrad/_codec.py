"""Gradients in NumPy arrays to frames and back."""

import ctypes
import weakref

import numpy

from ._library import (DTYPES, Error, ParameterInfo, PartInfo, Tensor, call, canonical, lib, make_options, make_tensors,
                       pointers)

# How a frame says that it holds one array, or a list: by the names of its tensors. Names of a dict are the caller's.
_ONE = "array"
_LISTED = "array.%d"


def _named(gradients):
    """What was given, as a dict of arrays in row order."""
    if isinstance(gradients, dict):
        arrays = gradients
    elif isinstance(gradients, (list, tuple)):
        arrays = {_LISTED % i: array for i, array in enumerate(gradients)}
    else:
        arrays = {_ONE: gradients}
    out = {}
    for name, array in arrays.items():
        array = numpy.asarray(array)
        native = array.dtype.newbyteorder("=")
        if native not in (numpy.float32, numpy.float16):
            raise Error(f"array {name!r} is of {array.dtype}; float32 and float16 can be encoded")
        out[name] = numpy.require(array, native, "C")
    return out


def _as_given(arrays):
    """A dict of arrays as the caller of encode gave it."""
    names = list(arrays)
    if names == [_ONE]:
        return arrays[_ONE]
    if names and names == [_LISTED % i for i in range(len(names))]:
        return list(arrays.values())
    return arrays


def decode(frame):
    """What Codec.encode was given, as far as its recipe keeps it: an array, a list or a dict of arrays."""
    frame = bytes(frame)
    handle = ctypes.c_void_p()
    call("tg_codec_from_frame", ctypes.byref(handle), None, frame, len(frame), make_options())
    try:
        arrays = {}
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
    """Encodes gradients by a recipe; with feedback, what a frame leaves out is remembered for the next one.

    codec = Codec("ef+topk@0.01+fp16")
    frame = codec.encode(gradient)          # bytes: of an array, or of a dict or list of arrays, float32 or float16
    back = codec.decode(frame)              # or tersegrad.decode(frame): a frame describes itself

    The first call fixes names, shapes and types; later ones must have the same. `kinds` says what kind the arrays of a
    dict are (conv, dense, recurrent, embedding, norm, bias, other): norms and biases travel uncompressed.
    """

    def __init__(self, recipe, *, seed=None, rules=None, dense_below=0, nonfinite="error", threads=1, kinds=None):
        self.recipe = canonical(recipe)
        self.step = 0
        self._kinds = dict(kinds or {})
        self._options = make_options(rules=rules, seed=seed, dense_below=dense_below, nonfinite=nonfinite, threads=threads,
                                     describe=True)
        self._tensors = self._handle = None

    def _make(self, tensors):
        handle = ctypes.c_void_p()
        call("tg_codec_new", ctypes.byref(handle), self.recipe.encode(), make_tensors(tensors), len(tensors), self._options)
        self._tensors, self._handle = tensors, handle
        self._room = ctypes.create_string_buffer(lib.tg_encode_bound(handle))
        weakref.finalize(self, lib.tg_codec_free, handle).atexit = False

    def encode(self, gradients):
        arrays = _named(gradients)
        tensors = [(name, array.shape, self._kinds.get(name, "other"), array.dtype.name) for name, array in arrays.items()]
        if self._tensors is None:
            self._make(tensors)
        elif tensors != self._tensors:
            raise Error("these arrays have other names, shapes or types than those of the first call", "MISMATCH")
        length = ctypes.c_size_t()
        call("tg_encode", ctypes.byref(length), self._handle, self._room, len(self._room), self.step,
             pointers([array.ctypes.data for array in arrays.values()]))
        self.step += 1
        return self._room.raw[:length.value]

    def decode(self, frame):
        return decode(frame)

    def residual(self):
        """What is remembered for the next frame, shaped as what was encoded; None before there was anything."""
        if self._tensors is None:
            return None
        out = {}
        for t, (name, shape, _, _) in enumerate(self._tensors):
            out[name] = numpy.zeros(shape, numpy.float32)
            call("tg_codec_residual", self._handle, out[name].ctypes.data_as(ctypes.POINTER(ctypes.c_float)), t)
        return _as_given(out)


def recipes():
    """Parts and presets that recipes are made of: a list of dicts with name, stage, summary, expansion and parameters."""
    out = []
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
