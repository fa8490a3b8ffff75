"""Data of the studies, on the device that trains: folders under TG_DATA as docs/results.md names them.

A set has `outputs`, `steps(batch, workers)` in an epoch, `epoch(...)`, which returns inputs and targets of a whole epoch in
the order of training, `loss(out, y)`, and `test(batch)`, which yields batches. All that is random depends on seed and epoch alone, so a
training that was stopped continues with the same batches.
"""

import os
import pathlib
import wave

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

    measure, channels = "accuracy", 3

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
        train = [self._read(here / f"data_batch_{i}.bin") for i in range(1, 6)]
        images, self.labels = (torch.cat(parts)[:limit] for parts in zip(*train))
        self.test_images, self.test_labels = self._read(here / "test_batch.bin")
        self.test_images = self._normal(self.test_images)
        # A border of 4 in the mean colour, which is 0 once normalised.
        self.padded = torch.nn.functional.pad(self._normal(images), (4, 4, 4, 4)).permute(0, 2, 3, 1).contiguous()

    def _read(self, path):
        if not path.exists():  # a training on a part of the images would look like one on all
            raise SystemExit(f"there is no {path}")
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


class Mnist(Set):
    """Digits of the idx files, with a border to 32x32; no augmentation."""

    name, outputs, channels = "mnist", 10, 1

    def __init__(self, device, dtype, settings):
        self.device, self.dtype, here = device, dtype, folder(self.name)
        self.images, self.labels = (part[:settings["limit"]] for part in self._read(here, "train"))
        self.test_images, self.test_labels = self._read(here, "t10k")

    def _read(self, here, name):
        pixels = numpy.fromfile(here / f"{name}-images-idx3-ubyte", numpy.uint8)[16:].reshape(-1, 1, 28, 28)
        labels = numpy.fromfile(here / f"{name}-labels-idx1-ubyte", numpy.uint8)[8:]
        images = torch.from_numpy(pixels.copy()).to(self.device).float().sub_(33.3).div_(78.6)
        return F.pad(images, (2, 2, 2, 2), value=-33.3 / 78.6).to(self.dtype), torch.from_numpy(labels.copy()).to(self.device).long()

    def steps(self, batch, workers):
        return len(self.labels) // (batch * workers)

    def epoch(self, seed, epoch, batch, workers, steps):
        order = torch.randperm(len(self.labels), generator=generator(self.device, seed, epoch), device=self.device)
        order = order[:steps * batch * workers].view(steps, workers, batch)
        return self.images[order], self.labels[order]

    def test(self, batch=2000):
        yield from zip(self.test_images.split(batch), self.test_labels.split(batch))


class Fashion(Mnist):
    """Clothes, in files like those of the digits."""

    name = "fashion"


class Speech(Mnist):
    """Spoken digits (recordings/DIGIT_SPEAKER_INDEX.wav, 8 kHz) as 40 logarithmic bands in 64 frames of 16 ms. Index 0 to 4 is the test part."""

    channels, FRAMES, BANDS = 40, 64, 40

    def __init__(self, device, dtype, settings):
        self.device, self.dtype = device, dtype
        parts = {False: ([], []), True: ([], [])}
        for path in sorted((folder("speech") / "recordings").glob("*.wav")):
            digit, _, index = path.stem.split("_")
            features, labels = parts[int(index) < 5]
            features.append(self._samples(path))
            labels.append(int(digit))
        bands = self._bands()
        (self.images, self.labels), (self.test_images, self.test_labels) = (
            (self._features(torch.from_numpy(numpy.stack(features)), bands), torch.tensor(labels, device=device))
            for features, labels in (parts[False], parts[True]))
        mean, deviation = self.images.mean((0, 2), keepdim=True), self.images.std((0, 2), keepdim=True)
        self.images, self.test_images = (((part - mean) / deviation).to(dtype) for part in (self.images, self.test_images))
        self.images, self.labels = self.images[:settings["limit"]], self.labels[:settings["limit"]]

    def _samples(self, path):
        """The first second, or less and silence."""
        with wave.open(str(path)) as file:
            samples = numpy.frombuffer(file.readframes(8000), "<i2").astype(numpy.float32) / 32768
        return numpy.pad(samples, (0, 8000 - len(samples)))

    def _bands(self):
        """Triangles of equal width on the mel scale, over the 129 frequencies of a frame."""
        mel = numpy.linspace(0, 2595 * numpy.log10(1 + 4000 / 700), self.BANDS + 2)
        edges = (700 * (10 ** (mel / 2595) - 1)) / 4000 * 128
        at = numpy.arange(129)[:, None]
        up, down = (at - edges[:-2]) / (edges[1:-1] - edges[:-2]), (edges[2:] - at) / (edges[2:] - edges[1:-1])
        return torch.from_numpy(numpy.maximum(numpy.minimum(up, down), 0).astype(numpy.float32)).to(self.device)

    def _features(self, samples, bands):
        window = torch.hann_window(256, device=self.device)
        power = torch.stft(samples.to(self.device), 256, 125, window=window, return_complex=True).abs() ** 2
        return torch.log(power.transpose(1, 2) @ bands + 1e-5).transpose(1, 2)[:, :, :self.FRAMES].contiguous()


class CamVid(Mnist):
    """Street scenes (train, test and their annot folders; labels are PNG images) with 11 classes; class 11, void, does not count. Random flips.
    Reading them needs Pillow."""

    outputs, channels, measure = 11, 3, "iou"

    def __init__(self, device, dtype, settings):
        self.device, self.dtype = device, dtype
        self.images, self.labels = self._part("train", settings["limit"])
        self.test_images, self.test_labels = self._part("test", settings["limit"])

    def _part(self, name, limit):
        from PIL import Image
        here, images, labels = folder("camvid"), [], []
        for path in sorted(each for each in (here / name).iterdir() if each.suffix in (".png", ".jpg", ".webp"))[:limit]:
            images.append(numpy.array(Image.open(path).convert("RGB")))
            labels.append(numpy.array(Image.open(here / f"{name}annot" / f"{path.stem}.png")))
        pixels = torch.from_numpy(numpy.stack(images)).to(self.device).permute(0, 3, 1, 2).float()
        classes = torch.from_numpy(numpy.stack(labels)).to(self.device).long()
        # Contiguous: in channels_last, backward passes of PyTorch 1.13 and 2.13 through this pyramid corrupt memory on a CPU.
        return ((pixels.contiguous() - 110) / 75).to(self.dtype), classes.where(classes < 11, torch.tensor(-100, device=self.device))

    def epoch(self, seed, epoch, batch, workers, steps):
        images, labels = super().epoch(seed, epoch, batch, workers, steps)
        flip = torch.rand(labels.shape[:3], generator=generator(self.device, seed, epoch + 10 ** 6), device=self.device) < 0.5
        return (torch.where(flip[..., None, None, None], images.flip(-1), images), torch.where(flip[..., None, None], labels.flip(-1), labels))

    def test(self, batch=16):
        yield from super().test(batch)


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


SETS = {"cifar10": Cifar10, "mnist": Mnist, "fashion": Fashion, "text": Text, "speech": Speech, "camvid": CamVid}
