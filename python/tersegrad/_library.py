"""The C library as ctypes sees it: structs and prototypes of tersegrad.h, and failures as exceptions.

One table of prototypes is all there is to keep in step with the header. Functions that can fail take, last, a
`tg_detail *`; `call` passes one and turns what comes back into `Error`.

The library is in the package. TG_LIBRARY, in the environment, names another one, for tests.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

Rules = Union[Mapping[str, str], Iterable[Tuple[str, str]]]  # patterns of names, and the recipes of tensors that match

OK, MORE = 0, 1
STATUS = {
    -1: "ARGUMENT", -2: "RECIPE", -3: "MEMORY", -4: "SPACE", -5: "NONFINITE", -6: "FRAME", -7: "VERSION", -8: "MISMATCH",
    -9: "PEER", -10: "LINK", -11: "DIVERGED", -12: "STATE", -13: "NO_EFFECT"}
E_LINK = -10

DTYPES = ("float32", "float16", "bfloat16")  # by tg_dtype
KINDS = {"other": 0, "conv": 1, "dense": 2, "recurrent": 3, "embedding": 4, "norm": 5, "bias": 6}
NONFINITE = {"error": 0, "zero": 1, "pass": 2}


class TensorSpec(NamedTuple):
    """One tensor of an exchange or a codec. `kind` is one of KINDS and `dtype` one of DTYPES."""

    name: str
    shape: Tuple[int, ...]
    kind: str
    dtype: str


class Error(RuntimeError):
    """A failure of the library. `str(error)` is the reason; `error.code` is the status without TG_E_, such as "RECIPE"."""

    code: str

    def __init__(self, text: str, code: str = "ARGUMENT") -> None:
        super().__init__(text)
        self.code = code


class Detail(Structure):
    _fields_ = [("text", c_char * 256)]

    def say(self, sentence: str) -> None:
        # As much of the sentence as there is room for, cut between characters.
        self.text = sentence.encode()[:255].decode(errors="ignore").encode()


class ParameterInfo(Structure):
    _fields_ = [("name", c_char_p), ("summary", c_char_p), ("range", c_char * 80), ("standard", c_char * 32),
                ("is_main", c_int)]


class PartInfo(Structure):
    _fields_ = [("name", c_char_p), ("stage", c_char_p), ("summary", c_char_p), ("expansion", c_char_p), ("id", c_uint32),
                ("parameter_n", c_size_t)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dims", POINTER(c_uint64)), ("dim_n", c_uint32), ("kind", c_int), ("dtype", c_int)]


class Rule(Structure):
    _fields_ = [("pattern", c_char_p), ("recipe", c_char_p)]


class Options(Structure):
    _fields_ = [("size", c_size_t), ("allocator", c_void_p), ("rules", POINTER(Rule)), ("rule_n", c_size_t),
                ("seed", c_uint64), ("dense_below", c_uint64), ("has_seed", c_uint32), ("threads", c_uint32),
                ("nonfinite", c_int), ("rank", c_uint32), ("describe", c_uint32), ("exchange", c_char_p),
                ("verify_every", c_uint64), ("group_len", c_uint64), ("group_of", POINTER(c_uint32)), ("host_size", c_uint32),
                ("device", c_void_p)]


class Outcome(Structure):
    _fields_ = [("status", c_int), ("why", Detail)]


class Traffic(Structure):
    _fields_ = [("len", c_uint64), ("entries", c_uint64), ("bins", c_uint64), ("shape", c_double),
                ("scale", c_double)]


class Span(Structure):
    _fields_ = [("data", c_void_p), ("len", c_uint64)]


class Op(Structure):
    _fields_ = [("kind", c_int), ("root", c_uint32), ("rank", c_uint32), ("world", c_uint32), ("sends", POINTER(Span)),
                ("recvs", POINTER(Span))]


class Meter(Structure):
    _fields_ = [(name, c_uint64) for name in ("steps", "logical", "dense", "payload", "header", "received", "encode_ns", "decode_ns",
                                              "wire_ns", "wait_ns", "exposed_ns", "between")]


class Link(Structure):
    pass


Carry = ctypes.CFUNCTYPE(c_int, POINTER(Link), POINTER(Op), POINTER(Detail))
Abort = ctypes.CFUNCTYPE(None, POINTER(Link), c_char_p)
Start = ctypes.CFUNCTYPE(c_int, POINTER(Link), c_uint32, POINTER(Op), POINTER(Detail))
Test = ctypes.CFUNCTYPE(c_int, POINTER(Link), c_uint32, POINTER(Detail))
Listen = ctypes.CFUNCTYPE(None, POINTER(Link), c_void_p, c_void_p)
Notify = ctypes.PYFUNCTYPE(None, c_void_p)  # returns at once: it is not worth to give up the interpreter's lock
Link._fields_ = [("carry", Carry), ("abort", Abort), ("sent_len", c_uint64), ("start", Start), ("test", Test), ("listen", Listen),
                 ("channel_n", c_uint32), ("host_size", c_uint32)]



class Wire(Structure):
    pass


WirePost = ctypes.CFUNCTYPE(c_int, POINTER(Wire), POINTER(Op), POINTER(Detail))
WireTest = ctypes.CFUNCTYPE(c_int, POINTER(Wire), POINTER(Detail))
WireAbort = ctypes.CFUNCTYPE(None, POINTER(Wire))
Wire._fields_ = [("post", WirePost), ("test", WireTest), ("abort", WireAbort), ("stream", c_void_p)]

_codec = _exchange = _reducer = c_void_p
_grads: Any = POINTER(c_void_p)

# Those that can fail, without the detail at their end.
_CHECKED: Dict[str, Any] = {
    "tg_recipe_canonical": [c_char_p, c_char_p],
    "tg_part_list": [POINTER(PartInfo), c_size_t],
    "tg_part_parameter": [POINTER(ParameterInfo), c_size_t, c_size_t],
    "tg_codec_new": [POINTER(_codec), c_char_p, POINTER(Tensor), c_size_t, POINTER(Options)],
    "tg_encode": [POINTER(c_size_t), _codec, c_void_p, c_size_t, c_uint64, _grads],
    "tg_decode": [_codec, _grads, c_void_p, c_size_t],
    "tg_codec_residual": [_codec, POINTER(c_float), c_size_t],
    "tg_codec_from_frame": [POINTER(_codec), c_void_p, c_void_p, c_size_t, POINTER(Options)],
    "tg_codec_tensor": [POINTER(Tensor), _codec, c_size_t],
    "tg_exchange_new": [POINTER(_exchange), c_char_p, POINTER(Tensor), c_size_t, c_uint32, c_uint32, POINTER(Options)],
    "tg_scatter_new": [POINTER(_exchange), c_char_p, POINTER(Tensor), c_size_t, c_uint32, c_uint32, POINTER(Options)],
    "tg_scatter_begin": [POINTER(Op), _exchange, c_uint64, _grads],
    "tg_scatter_end": [_exchange, _grads, c_float],
    "tg_exchange_traffic": [POINTER(Traffic), _exchange, c_size_t],
    "tg_exchange_residual": [_exchange, POINTER(c_float), c_size_t],
    "tg_exchange_adopt": [_grads, _exchange, _exchange],
    "tg_state_save": [_exchange, c_void_p, c_size_t],
    "tg_state_load": [_exchange, POINTER(Span), c_size_t],
    "tg_handshake": [_exchange, POINTER(Link), c_char_p],
    "tg_reduce": [_exchange, POINTER(Link), c_uint64, _grads],
    "tg_reducer_new": [POINTER(_reducer), _exchange, POINTER(Link)],
    "tg_reducer_begin": [_reducer, c_uint64, _grads],
    "tg_reducer_ready_all": [_reducer, POINTER(c_size_t), c_size_t],
    "tg_reducer_wait": [_reducer],
    "tg_threads_new": [POINTER(c_void_p), c_uint32, c_uint32, c_void_p],
    "tg_lockstep_begin": [_exchange, c_uint64, _grads, c_uint32],
    "tg_lockstep_end": [POINTER(Outcome), POINTER(_exchange), c_uint32, c_void_p],
}

# The others: what they return, what they take.
_PLAIN: Dict[str, Any] = {
    "tg_version": (c_char_p, []),
    "tg_codec_free": (None, [_codec]),
    "tg_encode_bound": (c_size_t, [_codec]),
    "tg_codec_tensors": (c_size_t, [_codec]),
    "tg_exchange_free": (None, [_exchange]),
    "tg_exchange_cancel": (None, [_exchange]),
    "tg_exchange_name": (c_char_p, [_exchange]),
    "tg_exchange_recipe": (c_char_p, [_exchange, c_size_t]),
    "tg_exchange_meter": (None, [_exchange, POINTER(Meter), POINTER(Meter)]),
    "tg_exchange_groups": (c_size_t, [_exchange]),
    "tg_exchange_group": (c_size_t, [_exchange, c_size_t]),
    "tg_state_len": (c_size_t, [_exchange]),
    "tg_reducer_free": (None, [_reducer]),
    "tg_threads_link": (POINTER(Link), [c_void_p, c_uint32]),
    "tg_threads_free": (None, [c_void_p]),
}

# Those of cuda.h, which a library without the executor for GPUs does not have.
_CUDA_CHECKED: Dict[str, Any] = {
    "tg_cuda_open": [POINTER(c_void_p), c_int, c_void_p],
    "tg_cuda_follow": [c_void_p, c_void_p],
    "tg_cuda_lead": [c_void_p, c_void_p],
    "tg_cuda_move": [c_void_p, c_void_p],
    "tg_cuda_link_new": [POINTER(POINTER(Link)), c_void_p, POINTER(Link), c_uint32],
    "tg_wire_link_new": [POINTER(POINTER(Link)), c_void_p, POINTER(Link), POINTER(Wire), c_uint32, c_uint32, c_uint32],
}
_CUDA_PLAIN: Dict[str, Any] = {"tg_cuda_close": (None, [c_void_p]), "tg_cuda_link_free": (None, [POINTER(Link)]),
                               "tg_wire_link_free": (None, [POINTER(Link)])}

lib = ctypes.CDLL(os.environ.get("TG_LIBRARY") or str(pathlib.Path(__file__).with_name("libtersegrad.so")))
has_cuda = hasattr(lib, "tg_cuda_open")
if has_cuda:
    _CHECKED.update(_CUDA_CHECKED)
    _PLAIN.update(_CUDA_PLAIN)
for _name, _arguments in _CHECKED.items():
    getattr(lib, _name).restype = c_int
    getattr(lib, _name).argtypes = [*_arguments, POINTER(Detail)]
for _name, (_result, _arguments) in _PLAIN.items():
    getattr(lib, _name).restype = _result
    getattr(lib, _name).argtypes = _arguments


def call(name: str, *arguments: Any) -> None:
    """Calls a function that can fail, and raises Error with its reason if it does."""
    why = Detail()
    status = getattr(lib, name)(*arguments, ctypes.byref(why))
    if status != OK:
        raise Error(why.text.decode(errors="replace"), STATUS.get(status, str(status)))


def canonical(recipe: str) -> str:
    """The canonical text of a recipe: presets expanded, defaults written out, parts in order. Raises Error if it is not valid."""
    out = ctypes.create_string_buffer(256)
    call("tg_recipe_canonical", out, recipe.encode())
    return out.value.decode()


def make_tensors(tensors: Sequence[TensorSpec]) -> Any:
    """An array of tg_tensor. ctypes keeps alive what is assigned to its fields."""
    out = (Tensor * max(len(tensors), 1))()
    for at, (name, shape, kind, dtype) in zip(out, tensors):
        at.name, at.dim_n, at.dims = name.encode(), len(shape), (c_uint64 * max(len(shape), 1))(*shape)
        at.kind, at.dtype = KINDS[kind], DTYPES.index(dtype)
    return out


def make_options(*, rules: Optional[Rules] = None, seed: Optional[int] = None, dense_below: int = 0, threads: int = 1,
                 nonfinite: str = "error", exchange: Optional[str] = None, verify_every: int = 0, rank: int = 0,
                 describe: bool = False, group_len: int = 0, host_size: int = 0, device: Any = None) -> Options:
    """tg_options. `device` is a Device of _torch_device.py."""
    if nonfinite not in NONFINITE:
        raise Error(f"nonfinite is {nonfinite!r}; it is one of {', '.join(NONFINITE)}")
    pairs = list(rules.items() if isinstance(rules, Mapping) else rules or ())
    own = (Rule * max(len(pairs), 1))(*(Rule(pattern.encode(), recipe.encode()) for pattern, recipe in pairs))
    return Options(size=ctypes.sizeof(Options), rules=own, rule_n=len(pairs), seed=seed or 0, has_seed=seed is not None,
                   dense_below=dense_below, threads=threads, nonfinite=NONFINITE[nonfinite], rank=rank,
                   describe=int(describe), exchange=exchange.encode() if exchange else None, verify_every=verify_every,
                   group_len=group_len, host_size=host_size, device=None if device is None else device.handle)


_memory: Any = ctypes.pythonapi.PyMemoryView_FromMemory
_memory.restype = ctypes.py_object
_memory.argtypes = [c_void_p, ctypes.c_ssize_t, c_int]
_READ_WRITE = 0x200


def view(address: int, length: int) -> memoryview:
    """Host memory at an address."""
    out: memoryview = _memory(address, length, _READ_WRITE)
    return out


def pointers(addresses: Sequence[int]) -> Any:
    """Addresses as an array of pointers; 0 is NULL."""
    return (c_void_p * max(len(addresses), 1))(*addresses)
