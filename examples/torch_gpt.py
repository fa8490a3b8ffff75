#!/usr/bin/env python3
"""Trains a small transformer to continue text, byte by byte, with DistributedDataParallel on any number of GPUs or CPUs. The text is that of
--text FILE, or a made-up one.

    torchrun --nproc-per-node 4 examples/torch_gpt.py --text book.txt --recipe ef+topk@0.01+fp16
    python3 examples/torch_gpt.py --recipe none                    one rank, without torchrun
"""

import argparse
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tersegrad.torch import State, hook


class Layer(nn.Module):
    """Attention to what came before, and a feed-forward part."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.inward(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):  # from PyTorch 2.0 on
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
            out = (q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5 + mask).softmax(-1) @ v
        x = x + self.outward(out.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, symbols=256, width=128, layers=4, heads=4, length=128):
        super().__init__()
        self.words, self.places = nn.Embedding(symbols, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)

    def forward(self, x):
        return self.last(self.norm(self.layers(self.words(x) + self.places[:x.shape[1]])))


def make_up(seed):
    """Sentences of a small grammar, in which what follows depends on what came before."""
    draw = torch.Generator().manual_seed(seed)
    subjects, verbs, objects = "a worker|the leader|every rank".split("|"), "sends|keeps|adds".split("|"), "a frame|its share|the mean".split("|")
    picks = torch.randint(3, (20000, 3), generator=draw).tolist()
    return "".join(f"{subjects[s]} {verbs[(s + v) % 3]} {objects[o]}. " for s, v, o in picks).encode()


def main():
    parser = argparse.ArgumentParser(description="A small transformer by DistributedDataParallel, with Tersegrad or without")
    parser.add_argument("--recipe", default="adacomp", help="such as adacomp or ef+topk@0.01+fp16; none: as PyTorch does it")
    parser.add_argument("--text", type=pathlib.Path, help="a file; if it is not given, text is made up")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16, help="pieces of text a rank and step")
    parser.add_argument("--length", type=int, default=128, help="bytes of a piece")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    flags = parser.parse_args()
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29563")):
        os.environ.setdefault(name, value)  # without torchrun: one rank
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    text = flags.text.read_bytes() if flags.text else make_up(flags.seed)
    if len(text) <= 10 * flags.length:
        raise SystemExit(f"the text has {len(text)} bytes, and needs more than {10 * flags.length}")
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    train, held_out = data[:len(data) * 9 // 10], data[len(data) * 9 // 10:]
    torch.manual_seed(flags.seed)
    model = GPT(width=flags.width, layers=flags.layers, length=flags.length).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    if flags.recipe != "none":
        state = State(flags.recipe, seed=flags.seed, summary=True)
        ddp.register_comm_hook(state, hook)
    optimizer = torch.optim.AdamW(ddp.parameters(), flags.rate)

    def loss_on(part, step, row, rows):
        draw = torch.Generator().manual_seed(1_000_003 * flags.seed + step)
        starts = torch.randint(len(part) - flags.length, (rows, flags.batch), generator=draw)[row]
        pieces = torch.stack([part[s:s + flags.length + 1] for s in starts.tolist()]).long().to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=flags.bf16):
            return F.cross_entropy(ddp(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())

    begin = time.monotonic()
    for step in range(flags.steps):
        optimizer.zero_grad()
        loss = loss_on(train, step, rank, world)
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, {1000 * (time.monotonic() - begin) / (step + 1):.1f} ms a step", flush=True)
    with torch.no_grad():
        held = sum(loss_on(held_out, step, rank, world).item() for step in range(4)) / 4
    if rank == 0:
        print(f"recipe {flags.recipe}: {held / 0.6931:.3f} bits a byte on text that was held out", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
