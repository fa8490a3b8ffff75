"""Data of the studies, on the device that trains: folders under TG_DATA as docs/results.md names them.

A set has `outputs`, `steps(batch, workers)` in an epoch, `epoch(...)`, which returns inputs and targets of a whole epoch in
the order of training, `loss(out, y)`, and `test(batch)`, which yields batches. All that is random depends on seed and epoch alone, so a
training that was stopped continues with the same batches.
"""

import os
import pathlib

import numpy
import torch
from torch.nn import functional as F


def folder(name):
    root = os.environ.get("TG_DATA")
    if root is None:
        raise SystemExit("TG_DATA is not set; it names the folder that holds " + name)
    return pathlib.Path(root) / name


def generator(device, seed, epoch):
    return torch.Generator(device).manual_seed(1_000_003 * seed + epoch)


class Score:
    """Loss and accuracy, or mean intersection over union, over batches. Targets of -100 do not count."""

    def __init__(self, classes, device):
        self.classes, self.loss = classes, torch.zeros((), device=device)
        self.pairs = torch.zeros(classes * classes, dtype=torch.long, device=device)  # target and answer

    def add(self, out, y):
        self.loss += F.cross_entropy(out, y, reduction="sum")
        pairs = (y * self.classes + out.argmax(1))[y >= 0]
        self.pairs += torch.bincount(pairs, minlength=len(self.pairs))

    def result(self, measure):
        """Mean loss, and the measure."""
        pairs = self.pairs.view(self.classes, self.classes).double()
        right, count = pairs.diagonal(), float(pairs.sum())
        if measure == "accuracy":
            return float(self.loss) / count, float(right.sum()) / count
        union = pairs.sum(0) + pairs.sum(1) - right
        return float(self.loss) / count, float((right / union.clamp(min=1))[union > 0].mean())


class Set:
    """What most sets have in common."""

    measure = "accuracy"

    @staticmethod
    def loss(out, y):
        return F.cross_entropy(out, y)


class Cifar10(Set):
    """Images in the binary format; random crops with a border of 4 and flips."""

    MEAN, DEVIATION = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
    outputs = 10

    def __init__(self, device, dtype, settings):
        self.device, self.dtype, limit = device, dtype, settings["limit"]
        here = folder("cifar10")
        train = [self._read(here / f"data_batch_{i}.bin") for i in range(1, 6) if (here / f"data_batch_{i}.bin").exists()]
        images, self.labels = (torch.cat(parts)[:limit] for parts in zip(*train))
        self.test_images, self.test_labels = self._read(here / "test_batch.bin")
        self.test_images = self._normal(self.test_images)
        # A border of 4 in the mean colour, which is 0 once normalised.
        self.padded = torch.nn.functional.pad(self._normal(images), (4, 4, 4, 4)).permute(0, 2, 3, 1).contiguous()

    def _read(self, path):
        rows = torch.from_numpy(numpy.fromfile(path, numpy.uint8).reshape(-1, 3073)).to(self.device)
        return rows[:, 1:].view(-1, 3, 32, 32), rows[:, 0].long()

    def _normal(self, images):
        mean, deviation = (torch.tensor(v, device=self.device).view(1, 3, 1, 1) for v in (self.MEAN, self.DEVIATION))
        return torch.cat([((part.float() - mean) / deviation).to(self.dtype) for part in images.split(10000)])

    def steps(self, batch, workers):
        return len(self.labels) // (batch * workers)

    def epoch(self, seed, epoch, batch, workers, steps):
        random = generator(self.device, seed, epoch)
        n = steps * batch * workers
        order = torch.randperm(len(self.labels), generator=random, device=self.device)[:n]
        top, left = torch.randint(0, 9, (2, n), generator=random, device=self.device)
        flip = torch.rand(n, generator=random, device=self.device) < 0.5
        line = torch.arange(32, device=self.device)
        out = torch.empty(n, 32, 32, 3, dtype=self.dtype, device=self.device)
        for at in range(0, n, 4096):
            part = slice(at, at + 4096)
            rows = top[part, None] + line
            columns = left[part, None] + torch.where(flip[part, None], 31 - line, line)
            out[part] = self.padded[order[part, None, None], rows[:, :, None], columns[:, None, :]]
        shape = (n // (batch * workers), workers, batch)
        # Channels last: a permuted view of rows, columns and channels.
        return out.view(*shape, 32, 32, 3).permute(0, 1, 2, 5, 3, 4), self.labels[order].view(shape)

    def test(self, batch=2000):
        for at in range(0, len(self.test_labels), batch):
            images = self.test_images[at:at + batch].contiguous(memory_format=torch.channels_last)
            yield images, self.test_labels[at:at + batch]


class Text(Set):
    """Characters of tinyshakespeare.txt; the last tenth is for testing."""

    def __init__(self, device, dtype, settings):
        self.device, self.length, limit = device, settings["length"], settings["limit"]
        data = numpy.frombuffer((folder("text") / "tinyshakespeare.txt").read_bytes(), numpy.uint8)[:limit]
        symbols, codes = numpy.unique(data, return_inverse=True)
        codes = torch.from_numpy(codes.astype(numpy.int64)).to(device)
        self.outputs, split = len(symbols), len(codes) * 9 // 10
        self.train, self.rest = codes[:split], codes[split:]

    def steps(self, batch, workers):
        return len(self.train) // (batch * workers * self.length)

    def epoch(self, seed, epoch, batch, workers, steps):
        n = steps * batch * workers
        starts = torch.randint(0, len(self.train) - self.length - 1, (n,), generator=generator(self.device, seed, epoch),
                               device=self.device)
        at = starts[:, None] + torch.arange(self.length, device=self.device)
        shape = (n // (batch * workers), workers, batch, self.length)
        return self.train[at].view(shape), self.train[at + 1].view(shape)

    def test(self, batch=128):
        n = (len(self.rest) - 1) // self.length
        inputs, targets = (self.rest[i:i + n * self.length].view(n, self.length) for i in (0, 1))
        yield from zip(inputs.split(batch), targets.split(batch))


SETS = {"cifar10": Cifar10, "text": Text}
