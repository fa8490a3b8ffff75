"""Models of the studies, in PyTorch: each takes the number of outputs, and a width if it is not to have its own."""

import inspect

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with four times the width at the end, and a shortcut."""

    def __init__(self, inputs, width, stride, dilation=1):
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, dilation, dilation, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm3(self.conv3(F.relu(self.norm2(self.conv2(out)))))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """For 32x32 images: no pooling at the entrance."""

    def __init__(self, block, counts, growth, classes, width):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage, count in enumerate(counts):
            for i in range(count):
                blocks.append(block(inputs, width << stage, 2 if stage > 0 and i == 0 else 1))
                inputs = growth * width << stage
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.last(x.mean((2, 3)))


def resnet18(classes=10, width=64):
    """11.2 million parameters."""
    return ResNet(Block, (2, 2, 2, 2), 1, classes, width)


def resnet50(classes=10, width=64):
    """23.5 million parameters."""
    return ResNet(Bottleneck, (3, 4, 6, 3), 4, classes, width)


def resnet101(classes=10, width=64):
    """42.5 million parameters."""
    return ResNet(Bottleneck, (3, 4, 23, 3), 4, classes, width)


def small_cnn(classes=10, width=32, channels=3):
    """For 32x32 images."""
    def stage(inputs, outputs):
        return (nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*stage(channels, width), *stage(width, 2 * width), *stage(2 * width, 4 * width), nn.Flatten(),
                         nn.Linear(4 * width * 16, 128), nn.ReLU(), nn.Linear(128, classes))


def speech_cnn(classes=10, width=64, channels=40):
    """Convolutions along time, over bands of frequency as channels."""
    def stage(inputs, outputs):
        return (nn.Conv1d(inputs, outputs, 5, padding=2, bias=False), nn.BatchNorm1d(outputs), nn.ReLU(), nn.MaxPool1d(2))
    return nn.Sequential(*stage(channels, width), *stage(width, 2 * width), *stage(2 * width, 4 * width), nn.AdaptiveAvgPool1d(1),
                         nn.Flatten(), nn.Linear(4 * width, classes))


def dense_layers(inputs, classes, width):
    """Four dense layers."""
    layers = [nn.Flatten()]
    for _ in range(3):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(width, classes))


def speech_dnn(classes=10, width=512, channels=40):
    """Over 64 frames."""
    return dense_layers(64 * channels, classes, width)


def image_dnn(classes=10, width=512, channels=3):
    """Over 32x32 images."""
    return dense_layers(32 * 32 * channels, classes, width)


class PspNet(nn.Module):
    """Segmentation as in PSPNet (Zhao et al. 2017), smaller: a residual trunk at an eighth of the resolution, its last stages dilated,
    and averages over 1, 2, 3 and 6 parts of the image beside its features."""

    PARTS = (1, 2, 3, 6)

    def __init__(self, classes=11, width=32):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage, (count, stride, dilation) in enumerate(((2, 2, 1), (2, 2, 1), (3, 1, 2), (2, 1, 4))):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width << min(stage, 2), stride if i == 0 else 1, dilation))
                inputs = 4 * width << min(stage, 2)
        self.blocks = nn.Sequential(*blocks)
        part = inputs // len(self.PARTS)
        self.parts = nn.ModuleList(nn.Sequential(nn.Conv2d(inputs, part, 1, bias=False), nn.BatchNorm2d(part), nn.ReLU()) for _ in self.PARTS)
        self.mix = nn.Sequential(nn.Conv2d(2 * inputs, 4 * width, 3, padding=1, bias=False), nn.BatchNorm2d(4 * width), nn.ReLU())
        self.last = nn.Conv2d(4 * width, classes, 1)

    def forward(self, x):
        out = self.blocks(F.relu(self.norm(self.conv(x))))
        size = out.shape[2:]
        means = [F.interpolate(part(F.adaptive_avg_pool2d(out, n)), size, mode="bilinear") for n, part in zip(self.PARTS, self.parts)]
        return F.interpolate(self.last(self.mix(torch.cat([out, *means], 1))), x.shape[2:], mode="bilinear")


class CharLSTM(nn.Module):
    def __init__(self, symbols, width=256):
        super().__init__()
        self.embedding = nn.Embedding(symbols, 64)
        self.lstm = nn.LSTM(64, width, num_layers=2, batch_first=True)
        self.last = nn.Linear(width, symbols)

    def forward(self, x):
        return self.last(self.lstm(self.embedding(x))[0]).transpose(1, 2)


def causal_attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):  # PyTorch 2
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    length = q.shape[-2]
    mask = torch.full((length, length), float("-inf"), device=q.device).triu(1)
    return (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask).softmax(-1) @ v


class Layer(nn.Module):
    """Attention and a feed-forward part, norms first."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.drop = heads, nn.Dropout(dropout)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.inward(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = causal_attention(q, k, v)
        x = x + self.drop(self.outward(seen.transpose(1, 2).reshape(batch, length, width)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    """A small causal language model over characters. Dropout is on residual branches and the embedding, not in attention."""

    def __init__(self, symbols, width=192, layers=4, heads=6, length=128, dropout=0.0):
        super().__init__()
        self.embedding, self.position = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.drop = nn.Dropout(dropout)
        self.layers = nn.Sequential(*(Layer(width, heads, dropout) for _ in range(layers)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, symbols)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                # Branches that end in the residual stream start smaller, as in GPT-2.
                nn.init.normal_(parameter, std=0.02 / ((2 * layers) ** 0.5 if "outward" in name or "down" in name else 1))

    def forward(self, x):
        x = self.drop(self.embedding(x) + self.position.weight[:x.shape[1]])
        return self.last(self.norm(self.layers(x))).transpose(1, 2)


def gpt(symbols, width=384, length=256, dropout=0.0):
    """10.8 million parameters."""
    return Transformer(symbols, width, layers=6, heads=6, length=length, dropout=dropout)


MODELS = {"resnet18": resnet18, "resnet50": resnet50, "resnet101": resnet101, "small-cnn": small_cnn, "char-lstm": CharLSTM,
          "transformer": Transformer, "gpt": gpt, "speech-cnn": speech_cnn, "speech-dnn": speech_dnn, "image-dnn": image_dnn, "pspnet": PspNet}


def make(settings, data):
    """The model that settings name, for a set of data."""
    maker = MODELS[settings["model"]]
    has = inspect.signature(maker).parameters
    options = {"width": settings["width"], "dropout": settings["dropout"] or None, "length": settings["length"], "channels": data.channels}
    unknown = [name for name in ("width", "dropout") if options[name] is not None and name not in has]
    if unknown:
        raise SystemExit(f"{settings['model']} has no {unknown[0]}")
    return maker(data.outputs, **{name: value for name, value in options.items() if value is not None and name in has})
