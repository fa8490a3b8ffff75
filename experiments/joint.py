"""One forward and backward pass for the batches of all workers, where they share weights: a few large kernels in place of many small ones.

Images of all workers go through convolutions and dense layers side by side. What belongs to one worker is computed from its part: gradients of
weights, which go to where the worker encodes from, and the statistics of batch norms. So the result is that of one pass for each worker, but
for the order of sums. `fits` says whether a model has only layers that can do that.
"""

import contextlib
import functools

import torch
from torch import nn
from torch.nn import functional as F

from tersegrad.torch import Passes

try:
    import norms
except ImportError:  # without Triton
    norms = None

LAYERS = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)


def _can_share(layer):
    if isinstance(layer, nn.Conv2d):
        return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.BatchNorm2d):
        return layer.affine and layer.track_running_stats and layer.momentum is not None
    return isinstance(layer, nn.Linear)


def fits(model):
    """Whether all parameters and buffers are of layers that are known here, and each is of one layer."""
    own = [p for layer in model.modules() if _can_share(layer) for p in layer.parameters(recurse=False)]
    return {id(p) for p in own} == {id(p) for p in model.parameters()} and len({id(p) for p in own}) == len(own) and all(
        isinstance(layer, nn.BatchNorm2d) or not dict(layer.named_buffers(recurse=False)) for layer in model.modules())


def _cast(x):
    """Under autocast, as it casts what goes into convolutions and dense layers."""
    return x.to(torch.bfloat16) if x.is_cuda and torch.is_autocast_enabled() else x


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, sinks, layer):
        format = torch.channels_last if x.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
        weight = weight.to(x.dtype).contiguous(memory_format=format)
        ctx.save_for_backward(x, weight)
        ctx.sinks, ctx.layer = sinks, layer
        return F.conv2d(x, weight, None if bias is None else bias.to(x.dtype), layer.stride, layer.padding, layer.dilation)

    @staticmethod
    def backward(ctx, gy):
        x, weight = ctx.saved_tensors
        layer, (weights, biases) = ctx.layer, ctx.sinks
        options = (list(layer.stride), list(layer.padding), list(layer.dilation), False, [0, 0], 1)
        gx = None
        if ctx.needs_input_grad[0]:
            gx = torch.ops.aten.convolution_backward(gy, x, weight, None, *options, [True, False, False])[0]
        each = zip(gy.chunk(len(weights)), x.chunk(len(weights)), weights)
        for part, given, to in each:
            to.copy_(torch.ops.aten.convolution_backward(part, given, weight, None, *options, [False, True, False])[1])
        for part, to in zip(gy.chunk(len(weights)), biases):
            to.copy_(part.float().sum((0, 2, 3)))
        return gx, None, None, None, None


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, sinks):
        weight = weight.to(x.dtype)
        ctx.save_for_backward(x, weight)
        ctx.sinks = sinks
        return F.linear(x, weight, None if bias is None else bias.to(x.dtype))

    @staticmethod
    def backward(ctx, gy):
        x, weight = ctx.saved_tensors
        weights, biases = ctx.sinks
        for part, given, to in zip(gy.chunk(len(weights)), x.chunk(len(weights)), weights):
            to.copy_(part.flatten(0, -2).t() @ given.flatten(0, -2))
        for part, to in zip(gy.chunk(len(weights)), biases):
            to.copy_(part.flatten(0, -2).sum(0))
        return gy @ weight if ctx.needs_input_grad[0] else None, None, None, None


class _Late:
    """Small results of all norms, which are written together at the end of a pass."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.to, self.given, self.running, self.momentum = [], [], {}, {}

    def copy(self, to, given):
        self.to += to
        self.given += given

    def average(self, running, given, momentum):
        for part, value in ((self.running, running), (self.momentum, given)):
            part.setdefault(momentum, []).extend(value)

    def write(self):
        if self.to:
            torch._foreach_copy_(self.to, self.given)
        for momentum, running in self.running.items():
            torch._foreach_lerp_(running, self.momentum[momentum], momentum)


class _JointNorm(torch.autograd.Function):
    """By norms.py, of images that lie channels last."""

    @staticmethod
    def forward(ctx, x, weight, bias, sinks, stats, layer, late):
        out, found = norms.forward(x, weight, bias, len(stats), layer.eps)
        ctx.save_for_backward(x, weight, found)
        ctx.sinks, ctx.late = sinks, late
        for i, of_batch in ((0, found[0]), (1, found[2])):
            late.average([each[i] for each in stats], list(of_batch), layer.momentum)
        return out

    @staticmethod
    def backward(ctx, gy):
        gx, sums = norms.backward(gy, *ctx.saved_tensors)
        weights, biases = ctx.sinks
        ctx.late.copy([*biases, *weights], [*sums[0], *sums[1]])
        return gx, None, None, None, None, None, None


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, sinks, stats, layer):
        parts = x.chunk(len(stats))
        done = [torch.native_batch_norm(part, weight, bias, mean, variance, True, layer.momentum, layer.eps)
                for part, (mean, variance) in zip(parts, stats)]
        ctx.save_for_backward(x, weight, *(saved for each in done for saved in each[1:]))
        ctx.sinks, ctx.stats, ctx.layer = sinks, stats, layer
        return torch.cat([each[0] for each in done])

    @staticmethod
    def backward(ctx, gy):
        x, weight, *saved = ctx.saved_tensors
        weights, biases = ctx.sinks
        n = len(weights)
        done = [torch.ops.aten.native_batch_norm_backward(part, given, weight, mean, variance, saved[2 * w], saved[2 * w + 1], True,
                                                          ctx.layer.eps, [True, True, True])
                for w, (part, given, (mean, variance)) in enumerate(zip(gy.chunk(n), x.chunk(n), ctx.stats))]
        torch._foreach_add_([*weights, *biases], [*(each[1] for each in done), *(each[2] for each in done)])
        return torch.cat([each[0] for each in done]), None, None, None, None, None


class JointPasses(Passes):
    """As Passes, of workers that share weights. `outputs_of(x)` computes what the model says of a batch, and `loss_of(outputs, y)` the loss of
    one worker. Batches of all workers are of one shape."""

    def __init__(self, workers, model, outputs_of, loss_of):
        super().__init__(workers, model, lambda x, y: loss_of(outputs_of(x), y))
        self._outputs_of, self._loss_of_outputs = outputs_of, loss_of
        number = {id(p): i for i, p in enumerate(workers._parameters)}
        place = {(id(buffers), name): i for i, (buffers, name) in enumerate(self._places)}
        self._layers = []
        for layer in model.modules():
            if not isinstance(layer, LAYERS):
                continue
            sinks = tuple([views[number[id(p)]] for views in workers._staged_views] if p is not None else []
                          for p in (layer.weight, layer.bias))
            stats = None
            if isinstance(layer, nn.BatchNorm2d):
                stats = [tuple(own[place[id(layer._buffers), name]] for name in ("running_mean", "running_var")) for own in self._buffers]
            self._layers.append((layer, sinks, stats))
        self._inputs, self._graph, self._late = None, None, _Late()

    # ---- layers that keep workers apart ----------------------------------------------------------------------------------

    def _forward(self, x, layer, sinks, stats):
        if isinstance(layer, nn.Conv2d):
            return _Conv.apply(_cast(x), layer.weight, layer.bias, sinks, layer)
        if isinstance(layer, nn.Linear):
            return _Dense.apply(_cast(x), layer.weight, layer.bias, sinks)
        if norms is not None and x.is_cuda and x.is_contiguous(memory_format=torch.channels_last):
            return _JointNorm.apply(x, layer.weight, layer.bias, sinks, stats, layer, self._late)
        return _Norm.apply(x, layer.weight, layer.bias, sinks, stats, layer)

    @contextlib.contextmanager
    def _keeping_workers_apart(self):
        for layer, sinks, stats in self._layers:
            layer.forward = functools.partial(self._forward, layer=layer, sinks=sinks, stats=stats)
        try:
            yield
        finally:
            for layer, _, _ in self._layers:
                del layer.forward

    def _compute_all(self):
        """The gradients of all workers, of the batches in self._inputs."""
        x, targets = self._inputs
        n = self._workers.n
        for buffer in self._workers._staged:
            buffer.zero_()
        self._late.clear()
        with self._keeping_workers_apart():
            outputs = self._outputs_of(x).chunk(n)
            losses = torch.stack([self._loss_of_outputs(part, y) for part, y in zip(outputs, targets)])
            losses.sum().backward()
        self._late.write()
        self.losses += losses.detach()

    # ---- passes ----------------------------------------------------------------------------------------------------------

    def _set_up(self, batches):
        x = torch.cat([x for x, _ in batches])
        if batches[0][0].dim() == 4 and batches[0][0].is_contiguous(memory_format=torch.channels_last):
            x = x.contiguous(memory_format=torch.channels_last)
        self._inputs = x, [y.clone() for _, y in batches]
        if not self._graphs:
            return
        kept = [value.clone() for own in self._buffers for value in own]
        losses = self.losses.clone()
        side = torch.cuda.Stream(self._workers.device)
        side.wait_stream(torch.cuda.current_stream(self._workers.device))
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries choose their kernels
                self._compute_all()
        torch.cuda.current_stream(self._workers.device).wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=side, capture_error_mode="thread_local"):
            self._compute_all()
        for value, before in zip((value for own in self._buffers for value in own), kept):
            value.copy_(before)
        self.losses.copy_(losses)

    def __call__(self, batches):
        workers = self._workers
        if self._inputs is None:
            self._set_up(batches)
        x, targets = self._inputs
        for part, to, (given, y) in zip(x.chunk(workers.n), targets, batches):
            part.copy_(given)
            to.copy_(y)
        if self._graph is None:
            self._compute_all()
        else:
            self._graph.replay()
        for worker in range(workers.n):
            with self.stream(worker):
                workers._begin(worker)
        self._bind(0)
        self.join()
