"""A GPU as the library sees it: a tg_device, on a stream of its own."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Optional

import torch

from ._library import Error, call, has_cuda, lib


class Device:
    """Where gradients on `of` are encoded. What the library does is in the order of `stream`; on a CPU, for tests with emulated kernels,
    there is none."""

    def __init__(self, of: torch.device) -> None:
        if not has_cuda:
            raise Error(f"gradients are on {of}, and this build of tersegrad is for CPUs alone; build it where nvcc is "
                        "(docs/gpu.md, \"In PyTorch\")")
        self.of = of
        self.stream: Optional[torch.cuda.Stream] = None
        if of.type == "cuda":
            self.stream = torch.cuda.Stream(of)  # type: ignore[no-untyped-call]
        handle = ctypes.c_void_p()
        call("tg_cuda_open", ctypes.byref(handle), of.index or 0, self.stream.cuda_stream if self.stream else None)
        self.handle = handle
        weakref.finalize(self, _close, handle, self.stream).atexit = False

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

    def lead(self) -> None:
        """Has what comes next on the current stream wait for the library's work so far."""
        if self.stream is not None:
            torch.cuda.current_stream(self.of).wait_stream(self.stream)


def _close(handle: ctypes.c_void_p, stream: Any) -> None:
    lib.tg_cuda_close(handle)
