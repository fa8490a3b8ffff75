"""gloo's event loops while a step is under way beside the backward pass.

The thread of a loop is woken by every message, and by every packet of a long one, and the kernel gives it the core at once. If the thread that
has to leave the core is in a call to gloo, it holds the lock of the connection: the loop then spins until the next tick of the clock, up to 4 ms,
in which the backward pass does not compute either. A thread with the policy SCHED_BATCH takes the core from nobody when it is woken: it gets
one that is idle, or its share at the next tick. A process may choose that for its threads, and take it back, without any privilege.

Only on Linux, and with a PyTorch whose gloo gives its threads names; elsewhere nothing happens.
"""

from __future__ import annotations

import os
import threading
from typing import List

_NAME = "gloo_tcp_loop"
_TASKS = "/proc/self/task"


def _is_loop(thread: str) -> bool:
    """Whether this is the number of a loop's thread now. (Numbers are used again.)"""
    try:
        with open(f"{_TASKS}/{thread}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() == _NAME
    except OSError:
        return False


def _change(thread: str, old: int, new: int) -> bool:
    """From one policy to another; False: it has a third one, which stays, or the system does not allow it."""
    try:
        if os.sched_getscheduler(int(thread)) != old:
            return False
        os.sched_setscheduler(int(thread), new, os.sched_param(0))
        return True
    except OSError:
        return False


class Loops:
    """All of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: List[str] = []    # threads
        self._lowered: List[str] = []  # those whose policy was changed
        self._user_n = 0

    def find(self) -> None:
        """Whenever there may be new ones."""
        if hasattr(os, "SCHED_BATCH") and os.path.isdir(_TASKS):
            known = [thread for thread in os.listdir(_TASKS) if _is_loop(thread)]
            with self._lock:
                self._known = known

    def lower(self) -> None:
        """Until as many calls of restore, loops interrupt nobody."""
        with self._lock:
            self._user_n += 1
            if self._user_n == 1:
                self._lowered = [thread for thread in self._known if _is_loop(thread) and _change(thread, os.SCHED_OTHER, os.SCHED_BATCH)]

    def restore(self) -> None:
        with self._lock:
            self._user_n -= 1
            if self._user_n == 0:
                for thread in self._lowered:
                    if _is_loop(thread):
                        _change(thread, os.SCHED_BATCH, os.SCHED_OTHER)
                self._lowered = []


loops = Loops()
