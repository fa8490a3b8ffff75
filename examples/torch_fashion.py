#!/usr/bin/env python3
"""Trains a small network on Fashion-MNIST with DistributedDataParallel, as any script does, and with three lines more sends
less. Data is that of Debian's package dataset-fashion-mnist, or of --data DIR with the same four files.

    python3 examples/torch_fashion.py --workers 4 --recipe adacomp     starts its ranks by itself
    torchrun --nproc-per-node 4 examples/torch_fashion.py --recipe none
"""

import argparse
import gzip
import os
import pathlib
import tempfile
import time

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tersegrad.torch import State, hook  # 1 of 3


def read(folder, name):
    """One of the data set's files: its header says how many dimensions it has, and then what they are."""
    path = pathlib.Path(folder, name)
    data = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(name + ".gz").read_bytes())
    dims = numpy.frombuffer(data, ">u4", data[3], 4)
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=4 + 4 * data[3]).reshape(dims.tolist()).copy())


def make_model():
    return nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def train(flags):
    rank, world = dist.get_rank(), dist.get_world_size()
    images = read(flags.data, "train-images-idx3-ubyte").unsqueeze(1).float().div_(255)
    labels = read(flags.data, "train-labels-idx1-ubyte").long()
    torch.manual_seed(flags.seed)
    ddp = DistributedDataParallel(make_model())
    if flags.recipe != "none":
        state = State(flags.recipe, seed=flags.seed, summary=True)  # 2 of 3
        ddp.register_comm_hook(state, hook)                         # 3 of 3
    optimizer = torch.optim.SGD(ddp.parameters(), lr=flags.rate, momentum=0.9)
    order = torch.Generator().manual_seed(flags.seed)
    begin = time.monotonic()
    for step in range(flags.steps):
        mine = torch.randint(len(images), (world, flags.batch), generator=order)[rank]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(images[mine]), labels[mine])
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, {1000 * (time.monotonic() - begin) / (step + 1):.1f} ms a step", flush=True)
    if rank == 0:
        images = read(flags.data, "t10k-images-idx3-ubyte").unsqueeze(1).float().div_(255)
        labels = read(flags.data, "t10k-labels-idx1-ubyte").long()
        with torch.no_grad():
            right = sum((ddp.module(x).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
        print(f"recipe {flags.recipe}: {100 * right / len(labels):.2f}% of the test images are classified correctly", flush=True)


def main(rank, flags, world=None, file=None):
    torch.set_num_threads(flags.threads)
    if file is None:  # torchrun has set what is needed
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=world)
    train(flags)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fashion-MNIST by DistributedDataParallel, with Tersegrad or without")
    parser.add_argument("--recipe", default="adacomp", help="what is sent, such as adacomp or ef+topk@0.01+fp16; none: as PyTorch does it")
    parser.add_argument("--workers", type=int, default=2, help="ranks to start; torchrun decides by itself")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="images a rank and step")
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="that a rank computes with")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="folder of the data set")
    flags = parser.parse_args()
    if "RANK" in os.environ:
        main(None, flags)
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(main, (flags, flags.workers, f"{folder}/ranks"), nprocs=flags.workers)
