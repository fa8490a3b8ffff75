#!/usr/bin/env python3
"""Trains a ResNet on CIFAR-10, on GPUs or CPUs: with DistributedDataParallel over any number of ranks, or as N workers of one process on one
device. Data is the binary form of CIFAR-10 in the folder cifar10 of TG_DATA; without it, images are made up.

    torchrun --nproc-per-node 4 examples/torch_cifar.py --recipe adacomp     4 ranks; each has a GPU, or all have CPUs
    python3 examples/torch_cifar.py --workers 4 --recipe adacomp             4 workers on one device, with the bytes of 4 ranks
"""

import argparse
import os
import pathlib
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tersegrad.torch import State, Workers, hook


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut (He et al. 2016)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
                                  nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def make_model(width):
    return nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), Block(width, width, 1),
                         Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2), Block(4 * width, 8 * width, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10))


def read(files):
    """Images and labels of files in the binary form: a label and 3 x 32 x 32 bytes each."""
    rows = numpy.concatenate([numpy.fromfile(file, numpy.uint8).reshape(-1, 3073) for file in files])
    return torch.from_numpy(rows[:, 1:].reshape(-1, 3, 32, 32)), torch.from_numpy(rows[:, 0].astype(numpy.int64))


def make_up(n, seed):
    """Noise, and a coloured square whose place is the label."""
    generator = torch.Generator().manual_seed(seed)
    images, labels = torch.randint(0, 128, (n, 3, 32, 32), generator=generator, dtype=torch.uint8), torch.arange(n) % 10
    for image, label in zip(images, labels.tolist()):
        image[label % 3, 3 * label:3 * label + 4, 8:24] = 255
    return images, labels


def load():
    """Images and labels to train with, and to test with."""
    folder = pathlib.Path(os.environ.get("TG_DATA", ""), "cifar10")
    if (folder / "test_batch.bin").exists():
        return read(sorted(folder.glob("data_batch_*.bin"))), read([folder / "test_batch.bin"])
    print("CIFAR-10 is not in TG_DATA: the images are made up")
    return make_up(2000, 1), make_up(500, 2)


class Batches:
    """Batches on the device, the same for n ranks as for n workers."""

    def __init__(self, images, labels, device, flags):
        self.images, self.labels, self.device, self.flags = images, labels, device, flags

    def of(self, step, worker, workers):
        draw = torch.Generator().manual_seed(1_000_003 * self.flags.seed + step)
        mine = torch.randint(len(self.labels), (workers, self.flags.batch), generator=draw)[worker]
        images = self.images[mine].to(self.device).float().div_(64).sub_(2)
        return images, self.labels[mine].to(self.device)


def loss_of(model, batch, flags, device):
    with torch.autocast(device.type, torch.bfloat16, enabled=flags.bf16):
        return F.cross_entropy(model(batch[0]), batch[1])


def train_ddp(model, batches, flags, device):
    """One rank of a job; torchrun has started it."""
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    state = None
    if flags.recipe != "none":
        state = State(flags.recipe, seed=flags.seed)
        ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.SGD(ddp.parameters(), flags.rate, momentum=0.9)
    for step in range(flags.steps):
        optimizer.zero_grad()
        loss = loss_of(ddp, batches.of(step, dist.get_rank(), dist.get_world_size()), flags, device)
        loss.backward()
        optimizer.step()
        yield step, loss
    if state is not None and dist.get_rank() == 0:
        print(state.summary())


def train_workers(model, batches, flags, device):
    """All workers in this process."""
    workers = Workers(model, flags.workers, flags.recipe, seed=flags.seed)
    optimizer = torch.optim.SGD(model.parameters(), flags.rate, momentum=0.9)
    for step in range(flags.steps):
        for worker in range(flags.workers):
            optimizer.zero_grad()
            loss = loss_of(model, batches.of(step, worker, flags.workers), flags, device)
            loss.backward()
            workers.collect(worker)
        workers.reduce()
        optimizer.step()
        yield step, loss
    stats = workers.stats()
    print(f"{flags.recipe} by {stats['exchange']}, {flags.workers} workers: 1/{stats['ratio']:.1f} of the bytes, encoded on the {workers.codec}")


def test(model, images, labels, device):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in zip(images.split(500), labels.split(500)):
            right += (model(x.to(device).float().div_(64).sub_(2)).argmax(1).cpu() == y).sum().item()
    return 100 * right / len(labels)


def main():
    parser = argparse.ArgumentParser(description="CIFAR-10 with Tersegrad, over ranks of torchrun or as workers of one process")
    parser.add_argument("--recipe", default="adacomp", help="such as adacomp or ef+topk@0.01+fp16; none, with torchrun: as PyTorch does it")
    parser.add_argument("--workers", type=int, default=4, help="without torchrun: workers on this device")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=32, help="of the first layer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    flags = parser.parse_args()
    is_job = "RANK" in os.environ
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if is_job:
        dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    is_first = not is_job or dist.get_rank() == 0
    torch.manual_seed(flags.seed)
    (images, labels), held_out = load()
    model = make_model(flags.width).to(device)
    begin = time.monotonic()
    for step, loss in (train_ddp if is_job else train_workers)(model, Batches(images, labels, device, flags), flags, device):
        if is_first and (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, {1000 * (time.monotonic() - begin) / (step + 1):.1f} ms a step", flush=True)
    if is_first:
        print(f"recipe {flags.recipe}: {test(model, *held_out, device):.2f}% of the test images are classified correctly", flush=True)
    if is_job:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
