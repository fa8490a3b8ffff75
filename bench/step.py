#!/usr/bin/env python3
"""One training step of the built-in models beside PyTorch's on the CPU, one thread each, batch 32, in turns in one run.

    bench/step.py [PROGRAM] [--rounds N]

Needs PyTorch (Debian: python3-torch). Both do forward, backward and an SGD step with momentum on images of 1x28x28; ours
includes putting the batch together. Prints milliseconds, the best of the rounds, and their ratio.
"""

import argparse
import json
import subprocess
import time

import torch
from torch import nn

BATCH, STEPS = 32, {"lenet": 60, "resnet20": 8}


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


class Block(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        stride = 1 if before == after else 2
        self.main = nn.Sequential(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
                                  nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after))
        self.side = nn.Identity() if before == after else nn.Sequential(
            nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.main(x) + self.side(x))


def resnet20():
    widths = [16] * 4 + [32] * 3 + [64] * 3
    blocks = [Block(a, b) for a, b in zip(widths, widths[1:])]
    return nn.Sequential(nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


MODELS = {"lenet": lenet, "resnet20": resnet20}


class Theirs:
    def __init__(self, name):
        torch.manual_seed(1)
        self.model = MODELS[name]()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.pixels, self.labels = torch.randn(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))

    def step(self):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.pixels), self.labels).backward()
        self.optimizer.step()

    def seconds(self, steps):
        self.step()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - start) / steps


def ours(program, name, steps):
    command = [program, "train", "--model", name, "--data", "glyphs", "--workers", "1", "--batch", str(BATCH), "--steps",
               str(steps), "--test-every", "0", "--recipe", "dense", "--json"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return result["compute_seconds_per_step"] + result["update_seconds_per_step"]


def main():
    parser = argparse.ArgumentParser(description="A training step beside PyTorch's.")
    parser.add_argument("program", nargs="?", default="build/release/tersegrad")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"batch {BATCH}, 1x28x28, one thread, PyTorch {torch.__version__}\n")
    print("| model | ours, ms | PyTorch, ms | ratio |\n|---|---|---|---|")
    for name, steps in STEPS.items():
        theirs, pairs = Theirs(name), []
        for _ in range(options.rounds):
            pairs.append((ours(options.program, name, steps), theirs.seconds(steps)))
        mine, torchs = (1e3 * min(times) for times in zip(*pairs))
        print(f"| `{name}` | {mine:.1f} | {torchs:.1f} | {mine / torchs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
