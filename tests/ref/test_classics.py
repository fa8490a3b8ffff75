#!/usr/bin/env python3
"""Deep Gradient Compression and PowerSGD against their definitions in NumPy, through the public header.

    TERSEGRAD=build/release/tersegrad python3 -m unittest discover -s tests/ref -p test_classics.py

libtersegrad.so is that beside the program. Needs NumPy.
"""

import ctypes
import struct
import unittest

import numpy as np

import meaning
import test_adacomp as library


# ---- Deep Gradient Compression ---------------------------------------------------------------------------------------

class Dgc:
    """Velocity u and accumulated velocity v; where something is sent both are cleared."""

    def __init__(self, n, momentum, clip):
        self.u, self.v = np.zeros(n, np.float32), np.zeros(n, np.float32)
        self.momentum, self.clip = np.float32(momentum), clip

    def step(self, gradient, entries):
        norm = np.sqrt(meaning.sum_of(gradient.astype(np.float64) ** 2))
        if self.clip and norm > self.clip:
            gradient = np.float32(self.clip / norm) * gradient
        self.u = self.momentum * self.u + gradient
        self.v = self.v + self.u
        sent = np.argsort(-np.abs(self.v), kind="stable")[:entries]
        arrived = np.zeros_like(self.v)
        arrived[sent] = self.v[sent]
        self.u[sent] = self.v[sent] = 0
        return arrived


class DeepGradientCompression(unittest.TestCase):
    def compare(self, recipe, momentum, clip, ratio, warmup):
        n = 5003
        random = np.random.default_rng(3)
        plain = Dgc(n, momentum, clip)
        with library.Codec(recipe, [n]) as codec:
            for step in range(50):
                gradient = random.standard_normal(n).astype(np.float32)
                now = 0.25 * (ratio / 0.25) ** (step / warmup) if step < warmup else ratio
                arrived, = codec.decode(codec.encode(step, [gradient]))
                np.testing.assert_array_equal(arrived, plain.step(gradient, max(1, int(np.floor(now * n + 0.5)))))
                np.testing.assert_array_equal(codec.residual(), plain.v)

    def test_against_the_definition(self):
        self.compare("dgc@0.01", 0.9, 0, 0.01, 0)
        self.compare("momentum@0.7,clip=20+topk@0.002", 0.7, 20, 0.002, 0)
        self.compare("dgc@0.001,warmup=30", 0.9, 0, 0.001, 30)


# ---- PowerSGD --------------------------------------------------------------------------------------------------------

def orthonormal(p):
    """Columns made orthonormal one after the other."""
    p = p.copy()
    for k in range(p.shape[1]):
        for _ in range(2):
            p[:, k] -= p[:, :k] @ (p[:, :k].T @ p[:, k])
        p[:, k] /= np.linalg.norm(p[:, k])
    return p


class Ranks:
    """Exchanges of all ranks of a world in one thread."""

    def __init__(self, recipe, shapes, world):
        self.library = ctypes.CDLL(str(library.LIBRARY))
        self.library.tg_state_len.restype = ctypes.c_size_t
        self.library.tg_exchange_free.restype = None
        tensors = (library.Tensor * len(shapes))(*(
            library.Tensor(f"t{i}".encode(), (ctypes.c_uint64 * len(shape))(*shape), len(shape), 0, 0)
            for i, shape in enumerate(shapes)))
        options = library.Options(size=ctypes.sizeof(library.Options), has_seed=1, seed=7)
        self.ranks = (ctypes.c_void_p * world)()
        self.shapes = shapes
        for rank in range(world):
            made = ctypes.c_void_p()
            self.must("tg_exchange_new", ctypes.byref(made), recipe.encode(), tensors, ctypes.c_size_t(len(shapes)),
                      ctypes.c_uint32(rank), ctypes.c_uint32(world), ctypes.byref(options))
            self.ranks[rank] = made

    must = library.Codec.must

    def close(self):
        for rank in self.ranks:
            self.library.tg_exchange_free(ctypes.c_void_p(rank))

    def reduce(self, step, gradients):
        """gradients[rank][tensor] become the averages."""
        spans = [library.pointers(own) for own in gradients]
        every = (ctypes.c_void_p * len(spans))(*(ctypes.addressof(span) for span in spans))
        self.must("tg_lockstep_reduce", None, self.ranks, ctypes.c_uint32(len(spans)), ctypes.c_uint64(step), every, None)

    def memory(self, rank):
        """The residual of a rank, from its saved state (docs/format.md section 9)."""
        exchange = ctypes.c_void_p(self.ranks[rank])
        state = np.empty(self.library.tg_state_len(exchange), np.uint8)
        self.must("tg_state_save", exchange, ctypes.c_void_p(state.ctypes.data), ctypes.c_size_t(len(state)))
        n, = struct.unpack_from("<Q", state, 48)
        return state[72:72 + 4 * n].view("<f4").astype(np.float64)


class PowerSgd(unittest.TestCase):
    SHAPES, WORLD, RANK = [(24, 3, 5), (40,), (31, 17)], 3, 2
    MATRICES = {0: (24, 15), 2: (31, 17)}

    def close_to(self, ours, theirs, what, part=2e-5):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=part * max(1, np.abs(theirs).max()), err_msg=what)

    def split(self, memory):
        """Residuals, then factors Q."""
        parts, at = {}, 0
        for kind in ("residual", "q"):
            for t, (rows, columns) in self.MATRICES.items():
                shape = (rows, columns) if kind == "residual" else (self.RANK, columns)
                size = shape[0] * shape[1]
                part = memory[at:at + size].reshape(shape)
                parts[kind, t] = part if kind == "residual" else part.T
                at += size
        self.assertEqual(at, len(memory))
        return parts

    def states(self, ranks):
        return [self.split(ranks.memory(r)) for r in range(self.WORLD)]

    def draw(self, random):
        """Directions that last, so that the warm start has something to find, and noise."""
        return [[(np.outer(np.sin(np.arange(s[0])), np.cos(np.arange(np.prod(s[1:], dtype=int)))).reshape(s)
                  + random.standard_normal(s)).astype(np.float32) for s in self.SHAPES] for _ in range(self.WORLD)]

    def step(self, m, q):
        """The average of matrices, and Q of the next step."""
        p = orthonormal(sum(one @ q for one in m) / self.WORLD)
        q = sum(one.T @ p for one in m) / self.WORLD
        return p @ q.T, q

    def test_against_the_definition(self):
        ranks = Ranks(f"ef+lowrank@{self.RANK}", self.SHAPES, self.WORLD)
        self.addCleanup(ranks.close)
        random = np.random.default_rng(5)
        kept = self.states(ranks)
        q = {t: kept[0]["q", t] for t in self.MATRICES}
        residual = {t: [np.zeros(self.MATRICES[t])] * self.WORLD for t in self.MATRICES}
        for step in range(10):
            gradients = self.draw(random)
            given = [[own.astype(np.float64) for own in one] for one in gradients]
            ranks.reduce(step, gradients)
            kept = self.states(ranks)
            for t, shape in self.MATRICES.items():
                m = [given[r][t].reshape(shape) + residual[t][r] for r in range(self.WORLD)]
                average, q[t] = self.step(m, q[t])
                residual[t] = [one - average for one in m]
                for r in range(self.WORLD):
                    self.close_to(gradients[r][t].reshape(shape), average, f"step {step}: average of tensor {t}")
                    self.close_to(kept[r]["residual", t], residual[t][r], f"step {step}: residual of tensor {t}")
                    self.close_to(kept[r]["q", t], q[t], f"step {step}: warm start of tensor {t}")
            # A tensor of one dimension is sent dense.
            self.close_to(gradients[0][1], sum(one[1] for one in given) / self.WORLD, "tensor of one dimension")

    def test_factors_in_bf16(self):
        """From the same state each step is that of the definition, within the rounding of two factors; and the residual has what is left."""
        ranks = Ranks(f"powersgd@{self.RANK}", self.SHAPES, self.WORLD)
        self.addCleanup(ranks.close)
        random = np.random.default_rng(6)
        kept = self.states(ranks)
        for step in range(10):
            gradients = self.draw(random)
            given, before = [[own.astype(np.float64) for own in one] for one in gradients], kept
            ranks.reduce(step, gradients)
            kept = self.states(ranks)
            for t, shape in self.MATRICES.items():
                m = [given[r][t].reshape(shape) + before[r]["residual", t] for r in range(self.WORLD)]
                average, _ = self.step(m, before[0]["q", t])
                ours = gradients[0][t].reshape(shape).astype(np.float64)
                self.close_to(ours, average, f"step {step}: average of tensor {t}", 2.0 ** -6)
                for r in range(self.WORLD):
                    np.testing.assert_array_equal(gradients[r][t], gradients[0][t])
                    self.close_to(kept[r]["residual", t], m[r] - ours, f"step {step}: residual of tensor {t}")


if __name__ == "__main__":
    unittest.main()
