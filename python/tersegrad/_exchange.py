"""An exchange of the C library, as an object; it knows addresses, not arrays."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ._library import Meter, Span, TensorSpec, Traffic, call, canonical, lib, make_options, make_tensors, pointers

_FLOATS = ctypes.POINTER(ctypes.c_float)


class Exchange:
    """The exchange of these tensors on one rank; options as in make_options."""

    def __init__(self, recipe: str, tensors: Iterable[TensorSpec], rank: int, world: int, options: Mapping[str, Any]) -> None:
        self.recipe = canonical(recipe)
        self.tensors = list(tensors)
        self.rank, self.world = rank, world
        self._options = dict(options)
        handle = ctypes.c_void_p()
        call("tg_exchange_new", ctypes.byref(handle), recipe.encode(), make_tensors(self.tensors), len(self.tensors), rank,
             world, make_options(**options))
        self.handle = handle
        # Not at exit, when others may still use it: the system takes the memory back by itself.
        weakref.finalize(self, lib.tg_exchange_free, handle).atexit = False

    @property
    def name(self) -> str:
        return str(lib.tg_exchange_name(self.handle).decode())

    def recipe_of(self, tensor: int) -> str:
        return str(lib.tg_exchange_recipe(self.handle, tensor).decode())

    def handshake(self, link: ctypes.Structure, facts: Mapping[str, object]) -> None:
        """Raises Error on every rank if they were set up differently. `facts` are compared before all else."""
        lines = "".join(f"{name} {value}\n" for name, value in facts.items())
        call("tg_handshake", self.handle, link, lines.encode())

    def reduce(self, link: ctypes.Structure, step: int, addresses: Sequence[int]) -> None:
        """One step; the gradients at the addresses become the averages. An address of 0 fails it on every rank."""
        call("tg_reduce", self.handle, link, step, pointers(addresses))

    def meter(self) -> Tuple[Dict[str, int], Dict[str, int]]:
        """What the last step took and what all took."""
        last, total = Meter(), Meter()
        lib.tg_exchange_meter(self.handle, ctypes.byref(last), ctypes.byref(total))
        first, second = ({field[0]: getattr(meter, field[0]) for field in Meter._fields_} for meter in (last, total))
        return first, second

    def traffic(self, tensor: int) -> Dict[str, Any]:
        out = Traffic()
        call("tg_exchange_traffic", ctypes.byref(out), self.handle, tensor)
        return {"bytes": out.len, "entries": out.entries}

    def residual_to(self, address: int, tensor: int) -> None:
        """Writes the residual of a tensor, as fp32, to an address."""
        call("tg_exchange_residual", self.handle, ctypes.cast(address, _FLOATS), tensor)

    def save(self) -> bytes:
        state = ctypes.create_string_buffer(lib.tg_state_len(self.handle))
        call("tg_state_save", self.handle, state, len(state))
        return state.raw

    def load(self, states: Iterable[bytes]) -> None:
        """`states` are what save returned: of this rank, or of all ranks of another world."""
        kept: List[ctypes.Array[ctypes.c_char]] = [ctypes.create_string_buffer(state, len(state)) for state in states]
        spans = (Span * len(kept))(*(Span(ctypes.addressof(state), len(state)) for state in kept))
        call("tg_state_load", self.handle, spans, len(kept))

    def follow(self, recipe: str, left: Sequence[int], exchange: Optional[str] = None) -> Exchange:
        """An exchange by another recipe that takes over the residual of this one. What it cannot keep is written to the
        addresses `left`, fp32, one a tensor."""
        out = Exchange(recipe, self.tensors, self.rank, self.world, dict(self._options, exchange=exchange))
        call("tg_exchange_adopt", pointers(left), out.handle, self.handle)
        return out
