"""Optimizers of the studies over flat tensors, and the weights of a model as one flat tensor per worker."""

import torch


class Flat:
    """A model whose parameters are views of one flat tensor, so that a step of the optimizer is a few operations. With `n` workers that
    train by themselves, each has such a tensor of its own, a row of `own`; bind() says which one the model computes with."""

    def __init__(self, model, device, n=0):
        self.model = model.to(device)
        self._parameters = list(model.parameters())
        size = sum(p.numel() for p in self._parameters)
        self.weights = torch.cat([p.detach().reshape(-1) for p in self._parameters])
        self.own = self.weights.repeat(n, 1) if n else torch.empty(0, size, device=device)
        self._views = [self._views_of(row) for row in (self.weights, *self.own)]
        self.bind()

    def _views_of(self, row):
        parts = row.split([p.numel() for p in self._parameters])
        return [part.view(p.shape) for part, p in zip(parts, self._parameters)]

    def bind(self, worker=-1):
        """The model's weights become those of a worker, or those that all share."""
        for parameter, view in zip(self._parameters, self._views[worker + 1 if len(self.own) else 0]):
            parameter.data = view


class Sgd:
    """v = m v + (g + d w);  w = w - rate (g + d w + m v), or w - rate v without Nesterov. Where the exchange has the momentum of the
    gradients (`is_outside`), momentum of the weight decay alone:  v = m v + d w;  w = w - rate (g + v)."""

    def __init__(self, settings, rows, size, device, is_outside):
        self.momentum, self.decay = settings["momentum"], settings["decay"]
        self.is_nesterov, self.is_outside = settings["nesterov"], is_outside
        self.state = [torch.zeros(rows, size, device=device)]

    def step(self, row, weights, gradient, rate, step):
        velocity = self.state[0][row]
        if self.is_outside:
            velocity.mul_(self.momentum).add_(weights, alpha=self.decay)
            gradient.add_(velocity)
        else:
            gradient.add_(weights, alpha=self.decay)
            velocity.mul_(self.momentum).add_(gradient)
            if self.is_nesterov:
                gradient.add_(velocity, alpha=self.momentum)
            else:
                gradient = velocity
        weights.add_(gradient, alpha=-rate)


class AdamW:
    """Adam with decoupled weight decay, as torch.optim.AdamW.

    With `rare`, an element that comes after T steps in which it was 0 counts as T equal ones: T is its age in steps,

        v = b2^T v + (1 - b2^T) (g / T)^2

    and v stays as it is where g is 0. Without it, T gradients that come at once have T times the mean square of T gradients one by one, so
    that a sparse average moves √T times less than a dense one. Where nothing is 0, both are the same.
    """

    EPSILON = 1e-8

    def __init__(self, settings, rows, size, device, is_outside):
        if is_outside:
            raise SystemExit("a recipe with momentum feedback goes with the optimizer sgd")
        self.beta1, self.beta2, self.decay = settings["momentum"], settings["beta2"], settings["decay"]
        self.is_rare = settings["rare"]
        self.state = [torch.zeros(rows, size, device=device) for _ in range(3 if self.is_rare else 2)]  # moments, and steps since the last one

    def step(self, row, weights, gradient, rate, step):
        first, second = (state[row] for state in self.state[:2])
        weights.mul_(1 - rate * self.decay)
        first.lerp_(gradient, 1 - self.beta1)
        if self.is_rare:
            self._add_rare(second, self.state[2][row], gradient)
        else:
            second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        root = second.sqrt().div_((1 - self.beta2 ** (step + 1)) ** 0.5).add_(self.EPSILON)
        weights.addcdiv_(first, root, value=-rate / (1 - self.beta1 ** (step + 1)))

    def _add_rare(self, second, age, gradient):
        age.add_(1)
        is_there = gradient != 0
        keep = torch.pow(self.beta2, age)
        second.copy_(torch.where(is_there, keep * second + (1 - keep) * (gradient / age).square(), second))
        age.masked_fill_(is_there, 0)


OPTIMIZERS = {"sgd": Sgd, "adamw": AdamW}


def clip(gradient, norm):
    """Scales a gradient to a norm that it exceeds, without waiting for the device."""
    gradient.mul_((norm / (torch.linalg.vector_norm(gradient) + 1e-6)).clamp(max=1))
