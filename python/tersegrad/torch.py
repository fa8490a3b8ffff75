"""Tersegrad for PyTorch: a communication hook for DistributedDataParallel, and a reducer for loops without it.

    from tersegrad.torch import State, hook

    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(State("adacomp"), hook)

There is one exchange for the whole model, not one a bucket: the hook collects the buckets of a backward pass, and when the
last one is there a thread of the State runs one step over all of them, in place. Tensors are in the order of the module's
named_parameters, so it is of no consequence how DistributedDataParallel fills its buckets. docs/pytorch.md is the tutorial.
"""

import atexit
import collections
import math
import queue
import threading
import time
import weakref

import torch
import torch.distributed as dist

from ._exchange import Exchange
from ._library import Error, canonical
from ._torch_link import TorchLink, check_group
from ._torch_model import describe, describe_list, dtype_name, find

__all__ = ["Reducer", "State", "hook"]

_FORMAT = 1  # of state_dict


def _flat(gradient):
    """A view of a dense gradient in the order in which it lies in memory, which is what the library sees."""
    return gradient.as_strided((gradient.numel(),), (1,))


def _sentence(error):
    return None if error is None else str(error) or type(error).__name__


_threads = {}  # {thread: (its queue, its link)}; the thread of a State removes itself when it ends


def _run(jobs):
    """The thread of a State. It references only the queue between jobs, so that an unused State can be collected."""
    while True:
        job = jobs.get()
        if job is None:
            _threads.pop(threading.current_thread(), None)
            return
        job()
        del job


@atexit.register
def _stop_threads():
    """Ends all threads before the interpreter is torn down. A thread that is inside PyTorch's C++ code at that time would end
    the process by std::terminate, whatever its exit status was to be."""
    for thread, (jobs, link) in list(_threads.items()):
        jobs.put(None)
        thread.join(timeout=1)
        if thread.is_alive():  # waiting for a peer that may never answer
            link._abort(None, b"the program ends")
            thread.join(timeout=5)


class _Steps:
    """What State and Reducer share: an exchange that is made at the first step, and what goes on around its steps."""

    def __init__(self, recipe, *, model=None, process_group=None, seed=0, rules=None, dense_below=0, nonfinite=None,
                 exchange=None, threads=1, scaler=None, verify_every=100, summary=False, writer=None):
        self._group = check_group(process_group)
        self._link = TorchLink(self._group)
        self.rank, self.world = self._link.rank, self._link.world
        self.recipe = canonical(recipe)
        self.step = 0  # of the next one
        if nonfinite is None:
            nonfinite = "error" if scaler is None else "pass"
        self._options = {"rules": rules, "seed": seed, "dense_below": dense_below, "nonfinite": nonfinite,
                         "exchange": exchange, "threads": threads, "verify_every": verify_every}
        self._scaler = scaler
        self._writer = writer
        self._schedule = None
        self._described = None if model is None else describe(model)  # {parameter: (name, kind)}
        self._exchange = None
        self._parameters = []  # in the order of the exchange's tensors
        self._loaded = None    # states that wait for the exchange, with the recipe and exchange that they are of
        self._owed = None      # what a change of recipe has left for the next gradients
        self._factor = 1.0     # by which gradients are scaled in this step
        self._failure = None   # one that is for good
        self._last = {}
        self._total = collections.Counter()
        if summary and self.rank == 0:
            atexit.register(lambda: print(self.summary(), flush=True))

    # ---- a step --------------------------------------------------------------------------------------------------------

    def _tensors(self, gradients):
        """The tensors of a model whose gradients these are, {parameter: gradient}, in its own order."""
        self._check_model(gradients)
        self._parameters = [parameter for parameter in self._described if parameter in gradients]
        return [(self._described[p][0], tuple(p.shape), self._described[p][1], dtype_name(gradients[p].dtype))
                for p in self._parameters]

    def _check_model(self, parameters):
        """Finds the model at the first call, and raises Error if a parameter belongs to another one."""
        if self._described is None:
            self._described = describe(find(parameters))
        for parameter in parameters:
            if parameter not in self._described:
                raise Error(f"this State was given to a second model: a parameter of shape {tuple(parameter.shape)} is not in the "
                            "first one; make one State for each DistributedDataParallel", "MISMATCH")

    def _check(self, gradients):
        for parameter, gradient in gradients.items():
            name = self._described[parameter][0] if self._described and parameter in self._described else "of a parameter"
            if gradient.layout != torch.strided:
                raise Error(f"gradient {name!r} is sparse; only dense ones can be exchanged (Embedding(sparse=False))")
            if gradient.device.type != "cpu":
                raise Error(f"gradient {name!r} is on {gradient.device}; only those in the processor's memory can be exchanged")
            if dtype_name(gradient.dtype) is None:
                raise Error(f"gradient {name!r} is of {gradient.dtype}; float32, float16 and bfloat16 can be exchanged")
            if self._scaler is not None and gradient.dtype == torch.float16:
                raise Error(f"gradient {name!r} is of float16, in which it could not be told from 0 without its scale; with a "
                            "scaler parameters are of float32")

    def _check_same(self, gradients):
        """Their addresses go to the library, which takes them for what they were in the first step."""
        if set(gradients) != set(self._parameters):
            raise Error("this pass has gradients of other parameters than the first one had", "MISMATCH")
        for parameter, (name, shape, _, dtype) in zip(self._parameters, self._exchange.tensors):
            gradient = gradients[parameter]
            if tuple(gradient.shape) != shape or dtype_name(gradient.dtype) != dtype:
                raise Error(f"gradient {name!r} is of shape {tuple(gradient.shape)} and {gradient.dtype}, and was of {shape} and "
                            f"{dtype} in the first step", "MISMATCH")

    def _start(self, gradients, trouble):
        """Makes the exchange; all ranks end up with one, or all raise."""
        made = None
        try:
            if trouble is not None:
                raise trouble
            tensors = self._tensors(gradients)
            recipe, exchange, states = self._loaded or (self.recipe, self._options["exchange"], None)
            made = Exchange(recipe, tensors, self.rank, self.world, dict(self._options, exchange=exchange))
            if states is not None:
                self._apply(made, states)
            if (recipe, exchange) != (self.recipe, self._options["exchange"]):
                made = self._followed(made, self.recipe, self._options["exchange"])
        except Exception as error:
            self._link.agree(_sentence(error))
            raise
        self._link.agree(None)
        made.handshake(self._link.struct, {"recipe": self.recipe, "step": self.step, "scaler": self._scaler is not None,
                                           "nonfinite": self._options["nonfinite"]})
        self._exchange, self._loaded = made, None

    def _follow_schedule(self):
        recipe = None if self._schedule is None else self._schedule(self.step)
        if recipe is not None:
            self.set_recipe(recipe)

    def _reduce(self, gradients, trouble=None):
        """One step over {parameter: gradient}, in place. `trouble` is why this rank cannot take part: it tells the others,
        who would wait for it."""
        if self._failure is not None:
            raise self._failure
        begin = time.monotonic()
        try:
            if trouble is None:
                trouble = self._prepare(gradients)
            if self._exchange is None:
                self._start(gradients, trouble)
            try:
                self._exchange_scaled(gradients, trouble)
            except Error as error:
                if error.code != "LINK":  # it has failed on all ranks, and all come here
                    self._link.agree(_sentence(trouble))
                raise trouble or error
        except Error as error:
            if self._link.failed is not None:
                self._failure = error
            raise
        self._owed = None
        self.step += 1
        self._count(time.monotonic() - begin)

    def _prepare(self, gradients):
        """What stands in the way of this step on this rank; None: nothing."""
        try:
            self._check(gradients)
            if self._exchange is not None:
                self._check_same(gradients)
            self._follow_schedule()
            self._factor = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        except Exception as error:
            return error
        return None

    @torch.no_grad()
    def _exchange_scaled(self, gradients, trouble):
        """Reduces in true units, so that the residual of one step fits the next, whose scale may be another. Gradients that
        need to be changed first are copied, because a step that fails must leave them as they were."""
        if trouble is not None:  # without addresses the step fails on all ranks
            self._exchange.reduce(self._link.struct, self.step, [0] * len(self._parameters))
            raise trouble
        own = [_flat(gradients[parameter]) for parameter in self._parameters]
        changed = own
        if self._factor != 1:
            changed = [gradient / self._factor for gradient in own]
        if self._owed is not None:
            changed = [gradient + owed.to(gradient.dtype) for gradient, owed in zip(changed, self._owed)]
        self._exchange.reduce(self._link.struct, self.step, [gradient.data_ptr() for gradient in changed])
        if changed is not own:
            for gradient, result in zip(own, changed):
                gradient.copy_(result if self._factor == 1 else result.mul_(self._factor))

    # ---- facts ---------------------------------------------------------------------------------------------------------

    def _count(self, seconds):
        last, _ = self._exchange.meter()
        last["seconds"] = seconds
        self._total.update(last)
        self._last = last
        if self._writer is not None:
            sent = last["payload"] + last["header"]
            for name, value in (("bytes_sent", sent), ("bytes_received", last["received"]), ("seconds", seconds),
                                ("ratio", last["dense"] / sent if sent else 1.0)):
                self._writer.add_scalar(f"tersegrad/{name}", value, self.step - 1)

    def stats(self):
        """Of the last step and of all together: bytes of gradient (logical), what an uncompressed all-reduce would send
        (dense), what was sent (payload, header) and received, seconds, and the ratio of dense to what was sent; and of
        the last step what each tensor took."""
        out = {"recipe": self.recipe, "exchange": None, "tensors": {}}
        for name, counts in (("last", self._last), ("total", self._total)):
            counts = {key: counts.get(key, 0) for key in ("steps", "logical", "dense", "payload", "header", "received", "seconds")}
            sent = counts["payload"] + counts["header"]
            out[name] = dict(counts, sent=sent, ratio=counts["dense"] / sent if sent else 1.0)
        if self._exchange is not None:
            out["exchange"] = self._exchange.name
            for t, (name, shape, _, dtype) in enumerate(self._exchange.tensors):
                out["tensors"][name] = dict(self._exchange.traffic(t), recipe=self._exchange.recipe_of(t))
        return out

    def summary(self):
        """One line about all steps."""
        total = self.stats()["total"]
        steps = max(total["steps"], 1)
        name = "no exchange" if self._exchange is None else self._exchange.name
        return (f"tersegrad: {self.recipe} by {name}, {self.world} ranks, {total['steps']} steps: "
                f"{total['sent'] / steps:,.0f} bytes a step and rank instead of {total['dense'] / steps:,.0f} "
                f"(1/{total['ratio']:.1f}), {1000 * total['seconds'] / steps:.1f} ms a step")

    def residual(self):
        """What this rank remembers of each parameter: {name: fp32 tensor}; empty before the first step."""
        out = {}
        for t, (name, shape, _, _) in enumerate(self._exchange.tensors if self._exchange is not None else ()):
            flat = torch.zeros(math.prod(shape), dtype=torch.float32)
            self._exchange.residual_to(flat.data_ptr(), t)
            if self._owed is not None:
                flat += self._owed[t]
            out[name] = flat.as_strided(shape, self._strides(self._parameters[t]))
        return out

    def _strides(self, parameter):
        """How gradients of a parameter lie in memory: in the order of its indices."""
        return torch.empty_like(parameter, device="meta", memory_format=torch.contiguous_format).stride()

    # ---- another recipe ------------------------------------------------------------------------------------------------

    def set_recipe(self, recipe, exchange=None):
        """Goes on by another recipe from the next step on. All ranks call it between the same two steps; what was owed by
        the old one is not lost, also where the new one has no feedback: the next gradients then have it in them."""
        recipe = canonical(recipe)
        if recipe == self.recipe and exchange == self._options["exchange"]:
            return
        if self._exchange is not None:
            self._exchange = self._followed(self._exchange, recipe, exchange)
        self.recipe = recipe
        self._options["exchange"] = exchange

    def _followed(self, old, recipe, exchange):
        """The exchange that follows an old one; what it does not remember is owed to the next gradients."""
        left = [torch.zeros(p.numel(), dtype=torch.float32) for p in self._parameters]
        new = old.follow(recipe, [rest.data_ptr() for rest in left], exchange)
        for rest, before in zip(left, self._owed or ()):
            rest += before
        self._owed = left if any(rest.any() for rest in left) else None
        return new

    def schedule(self, choose):
        """`choose(step)` is asked before every step, on every rank, for the recipe to go on by; None: as it is."""
        self._schedule = choose

    # ---- checkpoints ---------------------------------------------------------------------------------------------------

    def state_dict(self):
        """This rank's state, for torch.save. Nothing travels: each rank saves its own."""
        if self._exchange is None and self._loaded is not None:
            states = self._loaded[2]
            return states[0] if len(states) == 1 else states
        state = {"format": _FORMAT, "recipe": self.recipe, "exchange": self._options["exchange"], "seed": self._options["seed"],
                 "world": self.world, "rank": self.rank, "step": self.step, "tensors": None, "state": None, "owed": None}
        if self._exchange is not None:
            state["tensors"] = [(name, tuple(shape)) for name, shape, _, _ in self._exchange.tensors]
            state["state"] = torch.frombuffer(bytearray(self._exchange.save()), dtype=torch.uint8)
            state["owed"] = None if self._owed is None else [owed.clone() for owed in self._owed]
        return state

    def load_state_dict(self, states):
        """Goes on from what state_dict returned: this rank's, which leads to the same bits, or, with another number of
        ranks, a list of those of all old ranks. Before the first step it is kept until the model is known."""
        states = list(states) if isinstance(states, (list, tuple)) else [states]
        if not states or not all(isinstance(state, dict) and state.get("format") == _FORMAT for state in states):
            raise Error("this is not what state_dict returned", "STATE")
        first = states[0]
        if self._schedule is not None:
            self.set_recipe(first["recipe"], first["exchange"])
        for state in states:
            if state["recipe"] != self.recipe:
                raise Error(f"the state was saved with recipe '{state['recipe']}', and this is '{self.recipe}'", "MISMATCH")
            if state["step"] != first["step"]:
                raise Error(f"the states of ranks {first['rank']} and {state['rank']} were saved before steps "
                            f"{first['step']} and {state['step']}", "MISMATCH")
        if first["world"] == self.world:
            own = [state for state in states if state["rank"] == self.rank]
            if not own:
                raise Error(f"the state is of rank {first['rank']}, and this is rank {self.rank}", "MISMATCH")
            states = own
        elif sorted(state["rank"] for state in states) != list(range(first["world"])):
            raise Error(f"the state is of a world of {first['world']} ranks, and this one has {self.world}; to go on with "
                        f"another number, give the list of all {first['world']} states", "MISMATCH")
        if self._exchange is None:
            self._loaded = self.recipe, self._options["exchange"], states
        else:
            fresh = Exchange(self.recipe, self._exchange.tensors, self.rank, self.world, self._options)
            self._apply(fresh, states)
            self._exchange = fresh
        self.step = first["step"]

    def _apply(self, exchange, states):
        """Puts states into an exchange that is new, or raises and leaves everything as it was."""
        for state in states:
            if state["tensors"] is None:
                continue
            saved = [(name, tuple(shape)) for name, shape in state["tensors"]]
            now = [(name, tuple(shape)) for name, shape, _, _ in exchange.tensors]
            for there, here in zip(saved, now):
                if there != here:
                    raise Error(f"the state is of another model: it has '{there[0]}' of shape {there[1]} where this one "
                                f"has '{here[0]}' of shape {here[1]}", "MISMATCH")
            if len(saved) != len(now):
                raise Error(f"the state is of another model: it has {len(saved)} tensors, and this one {len(now)}", "MISMATCH")
        if all(state["state"] is not None for state in states):
            exchange.load([bytes(state["state"].numpy()) for state in states])
        owed = [state["owed"] for state in states if state["owed"] is not None]
        self._owed = [sum(parts) / len(states) for parts in zip(*owed)] if owed else None


class State(_Steps):
    """What `hook` needs; one for each DistributedDataParallel.

    recipe         what is sent (README.md); the same on all ranks, as all else here
    model          the module, for the names of its parameters; if it is not given, it is found at the first step
    process_group  one over gloo; that of the whole job if it is not given
    seed           of everything random
    rules          {pattern of names: recipe}, for tensors that go by a recipe of their own
    dense_below    tensors of fewer elements travel uncompressed
    nonfinite      what to do about NaN and Inf: "error", "zero" or "pass"; with a scaler "pass", otherwise "error"
    exchange       who sends what to whom, if not by the recipe
    threads        that one rank encodes and decodes with
    scaler         the GradScaler, if there is one: residuals then stay in true units when the scale changes
    verify_every   steps between comparisons of the averages on all ranks; 0: never
    summary        print a line at the end of the program, on rank 0
    writer         an object with add_scalar, such as a SummaryWriter
    """

    def __init__(self, recipe, **options):
        super().__init__(recipe, **options)
        self._gathered = []
        self._jobs = queue.SimpleQueue()
        self._thread = None
        self._error = None

    def _collect(self, bucket):
        buffer, parts, done = bucket.buffer(), None, torch.futures.Future()
        try:
            self._check_model(bucket.parameters())
        except Exception as error:  # kept apart from the buckets of the State's own model, which may be under way
            refused, trouble = [(done, buffer, [])], error
            self._queue(lambda: self._finish(refused, trouble))
            return done.then(self._give)
        if bucket.index() == 0:  # of a new pass; one that was broken off has left nothing
            self._gathered = []
        if buffer.layout == torch.strided:
            parts = list(zip(bucket.parameters(), bucket.gradients()))
        self._gathered.append((done, buffer, parts))
        if bucket.is_last():
            gathered, self._gathered = self._gathered, []
            self._queue(lambda: self._finish(gathered))
        # Not set_exception: DistributedDataParallel would take the exception for the gradient. One that is raised by what
        # follows a future leaves backward() with its sentence.
        return done.then(self._give)

    def _queue(self, job):
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._jobs,), name="tersegrad", daemon=True)
            _threads[self._thread] = self._jobs, self._link
            self._thread.start()
            weakref.finalize(self, self._jobs.put, None).atexit = False
        self._jobs.put(job)

    def _give(self, done):
        if self._error is not None:
            raise Error(_sentence(self._error))
        return done.value()

    def _finish(self, gathered, trouble=None):
        """One step over the buckets of a pass, by the thread. `trouble` is why there can be none."""
        self._error = None
        try:
            gradients = {}
            for _, _, parts in gathered:
                if parts is None:
                    trouble = Error("a gradient is sparse; only dense ones can be exchanged (Embedding(sparse=False))")
                else:
                    gradients.update(parts)
            self._reduce(gradients, trouble)
        except BaseException as error:  # of whatever kind, or backward() would wait for ever
            self._error = error
        for done, buffer, _ in gathered:
            done.set_result(buffer if self._error is None else None)

    def _strides(self, parameter):
        """In a bucket a gradient lies as its parameter does, which may be channels_last. (The views that GradBucket.gradients()
        returns are in the order of indices all the same.)"""
        return torch.empty_like(parameter, device="meta").stride()

    def check(self):
        """Raises what the last step failed with, if it did: backward() has raised it too, but as a RuntimeError of
        PyTorch's, with the sentence in its text."""
        if self._error is not None:
            raise self._error


def hook(state, bucket):
    """For DistributedDataParallel.register_comm_hook(State(...), hook)."""
    return state._collect(bucket)


class Reducer(_Steps):
    """For loops without DistributedDataParallel: reduce() behind backward() makes every .grad the average over all ranks.

    `parameters` is a module, or parameters in an order that is the same on all ranks. Parameters without a gradient count
    as zeros and have one afterwards. Options as of State. Parameters must start out the same on all ranks.
    """

    def __init__(self, parameters, recipe, **options):
        super().__init__(recipe, **options)
        is_module = isinstance(parameters, torch.nn.Module)
        self._described = describe(parameters) if is_module else describe_list(list(parameters))

    @torch.no_grad()
    def reduce(self):
        gradients, copies, missing = {}, [], []
        for parameter in self._described:
            if not parameter.requires_grad:
                continue
            if parameter.grad is None:
                gradients[parameter] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
                missing.append(parameter)
                continue
            gradients[parameter] = parameter.grad
            if parameter.grad.layout == torch.strided and not parameter.grad.is_contiguous():
                gradients[parameter] = parameter.grad.contiguous()
                copies.append(parameter)
        self._reduce(gradients)
        for parameter in copies:
            parameter.grad.copy_(gradients[parameter])
        for parameter in missing:
            parameter.grad = gradients[parameter]
