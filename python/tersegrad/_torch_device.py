"""A GPU as the library sees it: a tg_device, on a stream of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from typing import Any, ContextManager, Optional

import torch

from ._library import OK, Detail, Error, call, has_cuda, lib, view


def emulated() -> str:
    """For tests, with emulated kernels: gradients on the CPU count as on a GPU. "wire": messages in device memory go over a process group of
    their own, as over NCCL; anything else: through host memory."""
    return os.environ.get("TG_EMULATED_TORCH", "")


def is_on_gpu(of: torch.device) -> bool:
    """Whether gradients there are encoded by a Device."""
    return of.type == "cuda" or bool(emulated())


class _Block:
    """Device memory that PyTorch did not allocate."""

    def __init__(self, address: int, length: int) -> None:
        self.__cuda_array_interface__ = {"shape": (length,), "typestr": "|u1", "data": (address, False), "version": 3}


class Device:
    """Where gradients on `of` are encoded. What the library does is in the order of `stream`; on a CPU, for tests with emulated kernels,
    there is none."""

    def __init__(self, of: torch.device) -> None:
        if not has_cuda:
            raise Error(f"gradients are on {of}, and this build of tersegrad is for CPUs alone; build it where nvcc is "
                        "(docs/gpu.md, \"Build\")")
        self.of = of
        self.stream: Optional[torch.cuda.Stream] = None
        if of.type == "cuda":
            self.stream = self.new_stream()
        handle = ctypes.c_void_p()
        call("tg_cuda_open", ctypes.byref(handle), of.index or 0, self.stream.cuda_stream if self.stream else None)
        self.handle = handle
        self._now = self.stream.cuda_stream if self.stream else 0
        self._why = Detail()  # of the calls that every bucket makes
        weakref.finalize(self, _close, handle, self.stream).atexit = False  # streams of PyTorch stay

    def follow(self) -> Any:
        """Marks what is under way on the current stream now; `catch_up` has the library's work wait for it."""
        if self.stream is None:
            return None
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.of))
        return event

    def catch_up(self, event: Any) -> None:
        if self.stream is not None:
            self.stream.wait_event(event)

    def meet(self) -> None:
        """The library's work from now on waits for what is under way on the current stream now."""
        if self.stream is not None and lib.tg_cuda_follow(self.handle, _raw_stream(self.of), self._why) != OK:
            raise Error(self._why.text.decode(errors="replace"), "LINK")

    def join(self) -> None:
        """The library's work from now on is put on the current stream. That takes no events where it was there before."""
        if self.stream is not None:
            now = _raw_stream(self.of)
            if now != self._now:
                call("tg_cuda_move", self.handle, now)
                self.stream, self._now = torch.cuda.current_stream(self.of), now

    def finish(self) -> None:
        """Waits for the library's work."""
        if self.stream is not None:
            self.stream.synchronize()

    def new_stream(self) -> Any:
        """Its kernels are many and short. They go before those of the backward pass, or each would wait for blocks of one of these to end."""
        return torch.cuda.Stream(self.of, priority=-1) if self.of.type == "cuda" else None  # type: ignore[no-untyped-call]

    def on(self, stream: Any) -> ContextManager[Any]:
        """What is in it is put on a stream of new_stream."""
        return contextlib.nullcontext() if stream is None else torch.cuda.stream(stream)

    def memory(self, address: int, length: int) -> torch.Tensor:
        """Bytes at an address, as a tensor."""
        if self.stream is None:
            return torch.frombuffer(view(address, length), dtype=torch.uint8)
        return torch.as_tensor(_Block(address, length), device=self.of)

    def lead(self) -> None:
        """Has what comes next on the current stream wait for the library's work so far."""
        if self.stream is not None:
            call("tg_cuda_lead", self.handle, _raw_stream(self.of))


def _raw_stream(of: torch.device) -> int:
    """The current stream of a GPU. (As an object it takes longer to make than to use.)"""
    return int(torch._C._cuda_getCurrentRawStream(of.index or 0))


def _close(handle: ctypes.c_void_p, stream: Any) -> None:
    lib.tg_cuda_close(handle)
