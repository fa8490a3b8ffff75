"""An exchange of the C library, as an object; it knows addresses, not arrays."""

import ctypes
import weakref

from ._library import Meter, Span, Traffic, call, canonical, lib, make_options, make_tensors, pointers

_FLOATS = ctypes.POINTER(ctypes.c_float)


class Exchange:
    """`tensors` are (name, shape, kind, dtype) each; options as in make_options."""

    def __init__(self, recipe, tensors, rank, world, options):
        self.recipe = canonical(recipe)
        self.tensors = list(tensors)
        self.rank, self.world = rank, world
        self._options = dict(options)
        handle = ctypes.c_void_p()
        call("tg_exchange_new", ctypes.byref(handle), recipe.encode(), make_tensors(self.tensors), len(self.tensors), rank,
             world, make_options(**options))
        self.handle = handle
        # Not at the end of the program, when others may still ask: the system takes the memory back by itself.
        weakref.finalize(self, lib.tg_exchange_free, handle).atexit = False

    @property
    def name(self):
        return lib.tg_exchange_name(self.handle).decode()

    def recipe_of(self, tensor):
        return lib.tg_exchange_recipe(self.handle, tensor).decode()

    def handshake(self, link, facts):
        """Raises Error on every rank if they were set up differently. `facts` are compared before all else."""
        lines = "".join(f"{name} {value}\n" for name, value in facts.items())
        call("tg_handshake", self.handle, link, lines.encode())

    def reduce(self, link, step, addresses):
        """One step; the gradients at the addresses become the averages. An address of 0 fails it on every rank."""
        call("tg_reduce", self.handle, link, step, pointers(addresses))

    def meter(self):
        """What the last step took and what all took, as dicts."""
        last, total = Meter(), Meter()
        lib.tg_exchange_meter(self.handle, ctypes.byref(last), ctypes.byref(total))
        return tuple({name: getattr(meter, name) for name, _ in Meter._fields_} for meter in (last, total))

    def traffic(self, tensor):
        out = Traffic()
        call("tg_exchange_traffic", ctypes.byref(out), self.handle, tensor)
        return {"bytes": out.len, "entries": out.entries}

    def residual_to(self, address, tensor):
        """The residual of a tensor, as fp32, to an address."""
        call("tg_exchange_residual", self.handle, ctypes.cast(address, _FLOATS), tensor)

    def save(self):
        state = ctypes.create_string_buffer(lib.tg_state_len(self.handle))
        call("tg_state_save", self.handle, state, len(state))
        return state.raw

    def load(self, states):
        """`states` are what save returned: of this rank, or of all ranks of another world."""
        kept = [ctypes.create_string_buffer(state, len(state)) for state in states]
        spans = (Span * len(kept))(*(Span(ctypes.addressof(state), len(state)) for state in kept))
        call("tg_state_load", self.handle, spans, len(kept))

    def follow(self, recipe, left, exchange=None):
        """An exchange by another recipe that takes over what this one owes. What it cannot remember goes to the
        addresses `left`, fp32, one a tensor."""
        out = Exchange(recipe, self.tensors, self.rank, self.world, dict(self._options, exchange=exchange))
        call("tg_exchange_adopt", pointers(left), out.handle, self.handle)
        return out
