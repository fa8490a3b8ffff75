"""Local steps: schedules of rounds, and the arithmetic of a round over tensors (docs/local-steps.md).

    from tersegrad.local import Outer, Schedule

    schedule, outer = Schedule("1,200:4"), Outer("nesterov@lr=0.7,momentum=0.9")
    schedule.round(205)                          # Round(number=201, first=204, steps=4)
    move = outer.move(start, weights)            # start - weights, in fp32: what is exchanged
    outer.step(start, velocity, average)         # the outer step, in place
    outer.mix(weights, start)                    # weights = start

tersegrad.torch.LocalSteps does all of it for a model. Contiguous tensors in host memory go through the C library; others take
PyTorch's operations, one rounding each, which give the same bits on any device.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import NamedTuple, Optional, Union

import torch

from ._library import DTYPES, Detail, Error, call, lib
from ._torch_model import dtype_name

__all__ = ["Outer", "Round", "Schedule"]

_MAX = 32


class _Schedule(Structure):
    _fields_ = [("n", c_uint32), ("from_", c_uint64 * _MAX), ("every", c_uint64 * _MAX)]


class _Round(Structure):
    _fields_ = [("number", c_uint64), ("first", c_uint64), ("steps", c_uint64)]


class _Outer(Structure):
    _fields_ = [("rate", c_float), ("momentum", c_float)]


for _name, _of in (("tg_schedule_read", _Schedule), ("tg_outer_read", _Outer)):
    getattr(lib, _name).restype = c_int
    getattr(lib, _name).argtypes = [POINTER(_of), c_char_p, POINTER(Detail)]
lib.tg_schedule_round.restype = None
lib.tg_schedule_round.argtypes = [POINTER(_Round), POINTER(_Schedule), c_uint64]
lib.tg_schedule_is_one.restype = c_int
lib.tg_schedule_is_one.argtypes = [POINTER(_Schedule)]
lib.tg_local_move.restype = lib.tg_local_outer.restype = lib.tg_local_mix.restype = None
lib.tg_local_move.argtypes = [c_void_p, c_void_p, c_void_p, c_int, c_size_t]
lib.tg_local_outer.argtypes = [c_void_p, c_void_p, c_void_p, POINTER(_Outer), c_size_t]
lib.tg_local_mix.argtypes = [c_void_p, c_int, c_void_p, c_float, c_size_t]


class Round(NamedTuple):
    """Steps first to first + steps - 1."""

    number: int
    first: int
    steps: int

    @property
    def end(self) -> int:
        """The first step after it."""
        return self.first + self.steps


class Schedule:
    """How many steps rounds have: a number, or text such as "1,200:4,2000:8"."""

    def __init__(self, every: Union[int, str]) -> None:
        self._struct = _Schedule()
        call("tg_schedule_read", ctypes.byref(self._struct), str(every).encode())
        pairs = list(zip(self._struct.from_[:self._struct.n], self._struct.every[:self._struct.n]))
        self.text = ",".join([str(pairs[0][1]), *(f"{step}:{every}" for step, every in pairs[1:])])
        self.least = min(every for _, every in pairs)
        self.is_one = bool(lib.tg_schedule_is_one(ctypes.byref(self._struct)))

    def round(self, step: int) -> Round:
        """The round that a step is in."""
        out = _Round()
        lib.tg_schedule_round(ctypes.byref(out), ctypes.byref(self._struct), step)
        return Round(out.number, out.first, out.steps)


def _is_plain(*tensors: Optional[torch.Tensor]) -> bool:
    """Whether the library can be given their addresses."""
    return all(t is None or (t.device.type == "cpu" and t.is_contiguous() and t.layout == torch.strided) for t in tensors)


def _dtype(tensor: torch.Tensor) -> int:
    name = dtype_name(tensor.dtype)
    if name is None:
        raise Error(f"weights are of {tensor.dtype}; float32, float16 and bfloat16 can take local steps")
    return DTYPES.index(name)


def _narrow(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded to a dtype; finite values stay finite."""
    if dtype == torch.float32:
        return values
    most = torch.finfo(dtype).max
    return torch.where(values.isfinite(), values.clamp(-most, most), values).to(dtype)


class Outer:
    """The outer step: "average", "nesterov" or "nesterov@lr=0.7,momentum=0.9". Shared weights, velocities, moves and averages are
    float32; weights are of any dtype that can be exchanged. All of a call have the same shape."""

    def __init__(self, text: str = "average") -> None:
        self._struct = _Outer()
        call("tg_outer_read", ctypes.byref(self._struct), text.encode())
        self.rate, self.momentum = float(self._struct.rate), float(self._struct.momentum)
        self.text = text

    @torch.no_grad()
    def move(self, start: torch.Tensor, weights: torch.Tensor, out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """start - weights; where weights have half precision, start is rounded to it first."""
        move = torch.empty_like(start) if out is None else out
        dtype = _dtype(weights)
        if _is_plain(start, weights, move):
            lib.tg_local_move(move.data_ptr(), start.data_ptr(), weights.data_ptr(), dtype, start.numel())
        else:
            torch.sub(_narrow(start, weights.dtype).float(), weights.float(), out=move)
        return move

    @torch.no_grad()
    def step(self, start: torch.Tensor, velocity: Optional[torch.Tensor], average: torch.Tensor) -> None:
        """velocity = momentum * velocity + average; start -= rate * (average + momentum * velocity). Without momentum, velocity may
        be None."""
        if velocity is None and self.momentum != 0:
            raise Error("an outer step with momentum needs a velocity")
        if _is_plain(start, velocity, average):
            lib.tg_local_outer(start.data_ptr(), None if velocity is None else velocity.data_ptr(), average.data_ptr(),
                               ctypes.byref(self._struct), start.numel())
        elif velocity is None:
            start.sub_(average * self.rate)
        else:
            velocity.mul_(self.momentum).add_(average)
            start.sub_((velocity * self.momentum).add_(average).mul_(self.rate))

    @torch.no_grad()
    def mix(self, weights: torch.Tensor, start: torch.Tensor, keep: float = 0.0) -> None:
        """weights = keep * weights + (1 - keep) * start."""
        dtype, keep = _dtype(weights), c_float(keep).value
        if _is_plain(weights, start):
            lib.tg_local_mix(weights.data_ptr(), dtype, start.data_ptr(), keep, start.numel())
        elif keep == 0:
            weights.copy_(_narrow(start, weights.dtype))
        else:
            rest = c_float(1 - keep).value
            weights.copy_(_narrow((weights.float() * keep).add_(start * rest), weights.dtype))
