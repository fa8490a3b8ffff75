"""Models of the studies, in PyTorch: each function takes the number of outputs and returns a module."""

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


class ResNet18(nn.Module):
    """For 32x32 images: no pooling at the entrance, 11.2 million parameters at width 64."""

    def __init__(self, classes=10, width=64):
        super().__init__()
        self.conv = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        blocks, inputs = [], width
        for stage in range(4):
            outputs = width << stage
            blocks += [Block(inputs, outputs, 1 if stage == 0 else 2), Block(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.blocks(F.relu(self.norm(self.conv(x))))
        return self.last(x.mean((2, 3)))


def small_cnn(classes=10, width=32):
    def stage(inputs, outputs):
        return (nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*stage(3, width), *stage(width, 2 * width), *stage(2 * width, 4 * width), nn.Flatten(),
                         nn.Linear(4 * width * 16, 128), nn.ReLU(), nn.Linear(128, classes))


class CharLSTM(nn.Module):
    def __init__(self, symbols, width=256):
        super().__init__()
        self.embedding = nn.Embedding(symbols, 64)
        self.lstm = nn.LSTM(64, width, num_layers=2, batch_first=True)
        self.last = nn.Linear(width, symbols)

    def forward(self, x):
        return self.last(self.lstm(self.embedding(x))[0]).transpose(1, 2)


class Layer(nn.Module):
    """Attention and a feed-forward part, norms first."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = self.inward(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)) * (width // self.heads) ** -0.5 + mask
        x = x + self.outward((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """A small causal language model over characters."""

    def __init__(self, symbols, width=192, layers=4, heads=6, length=128):
        super().__init__()
        self.embedding, self.position = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, symbols)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1), persistent=False)

    def forward(self, x):
        length = x.shape[1]
        mask = self.mask[:length, :length]
        x = self.embedding(x) + self.position.weight[:length]
        for layer in self.layers:
            x = layer(x, mask)
        return self.last(self.norm(x)).transpose(1, 2)


MODELS = {"resnet18": ResNet18, "small-cnn": small_cnn, "char-lstm": CharLSTM, "transformer": Transformer}
