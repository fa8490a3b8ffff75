#!/usr/bin/env python3
"""Trains a small GPT on characters of a text, sharded by FSDP2, or by HSDP with --replicas, on GPUs (NCCL) or CPUs (gloo). Needs PyTorch 2.9.

    torchrun --nproc-per-node 2 examples/torch_gpt_fsdp.py --recipe mxfp8                            reduce-scatters in 8 bits
    torchrun --nproc-per-node 4 examples/torch_gpt_fsdp.py --replicas 2 --recipe adacomp             two replicas of two shards
    torchrun --nproc-per-node 4 examples/torch_gpt_fsdp.py --replicas 2 --recipe adacomp+inside=mxfp8 --text book.txt
    torchrun --nproc-per-node 2 examples/torch_gpt_fsdp.py --recipe none                             as PyTorch does it
"""

import argparse
import json
import os
import pathlib
import random
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tersegrad.torch import fsdp  # 1 of 2


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).view(b, t, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, width))
        return x + self.mlp(self.before_mlp(x))


class GPT(nn.Module):
    def __init__(self, symbols, width, layers, heads, context):
        super().__init__()
        self.tokens, self.places = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                scale = 0.02 / (2 * layers) ** 0.5 if name.endswith(("out.weight", "mlp.2.weight")) else 0.02
                nn.init.normal_(parameter, std=scale)

    def forward(self, x):
        x = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def generated(length=200_000):
    """A text to learn from where there is none: sums, which have something to be learned about them."""
    draw = random.Random(1)
    lines = []
    while sum(map(len, lines)) < length:
        a, b = draw.randrange(100), draw.randrange(100)
        lines.append(f"{a} and {b} are {a + b}.\n")
    return "".join(lines)


def make_model(flags, symbols, device):
    """The model, sharded block by block; its compressor; and the number of this replica."""
    world = dist.get_world_size()
    torch.manual_seed(flags.seed)  # replicas must begin alike
    model = GPT(symbols, flags.width, flags.layers, flags.heads, flags.context)
    mesh = init_device_mesh(device.type, (flags.replicas, world // flags.replicas), mesh_dim_names=("replicate", "shard"))
    # Without compression PyTorch averages over replicas by itself, if it is given both dimensions.
    sharding = mesh if flags.recipe == "none" and flags.replicas > 1 else mesh["shard"]
    for block in model.blocks:
        fully_shard(block, mesh=sharding)
    fully_shard(model, mesh=sharding)
    compressor = None
    if flags.recipe != "none":
        between = mesh["replicate"] if flags.replicas > 1 else None
        compressor = fsdp.compress(model, flags.recipe, replicas=between, inside=flags.inside, seed=flags.seed)  # 2 of 2
    return model, compressor


def loss_on(model, data, starts, context):
    rows = torch.stack([data[start:start + context + 1] for start in starts.tolist()]).long()
    logits = model(rows[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


@torch.no_grad()
def evaluate(model, data, flags):
    """The loss on the end of the text; ranks compute the same."""
    draw = torch.Generator().manual_seed(0)
    losses = [loss_on(model, data, torch.randint(len(data) - flags.context - 1, (flags.batch,), generator=draw), flags.context)
              for _ in range(flags.evaluations)]
    return torch.stack(losses).mean().item()


def state_of(model, optimizer, compressor):
    """For torch.distributed.checkpoint."""
    from torch.distributed.checkpoint.state_dict import get_state_dict
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    return state if compressor is None else dict(state, compressor=compressor.state_dict())


def resume(model, optimizer, compressor, folder):
    from torch.distributed.checkpoint.state_dict import set_state_dict
    state = state_of(model, optimizer, None)
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    if compressor is not None:
        fsdp.load(compressor, folder, prefix="compressor")
    return int(pathlib.Path(folder, "step").read_text())


def train(flags, device):
    rank, world = dist.get_rank(), dist.get_world_size()
    text = pathlib.Path(flags.text).read_text() if flags.text else generated()
    symbols = sorted(set(text))
    number = {symbol: n for n, symbol in enumerate(symbols)}
    data = torch.tensor([number[symbol] for symbol in text], dtype=torch.uint8 if len(symbols) < 256 else torch.int32, device=device)
    held_out = data[-len(data) // 10:]
    data = data[:-len(data) // 10]

    model, compressor = make_model(flags, len(symbols), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=flags.rate, weight_decay=0.1, betas=(0.9, 0.95))
    first = resume(model, optimizer, compressor, flags.resume) if flags.resume else 0
    draw = torch.Generator().manual_seed(flags.seed)
    begin = time.monotonic()
    for step in range(first + flags.steps):
        starts = torch.randint(len(data) - flags.context - 1, (world, flags.batch), generator=draw)[rank]
        if step < first:
            continue  # batches that were seen before the checkpoint
        for each in optimizer.param_groups:
            each["lr"] = flags.rate * min(1, (step + 1) / flags.warm_up)
        loss = loss_on(model, data, starts, flags.context)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and ((step + 1) % 50 == 0 or step + 1 == first + flags.steps):
            print(f"step {step + 1}: loss {loss.item():.4f}, {1000 * (time.monotonic() - begin) / (step + 1 - first):.1f} ms a step", flush=True)
    if flags.save:
        checkpoint.save(state_of(model, optimizer, compressor), checkpoint_id=flags.save)
        if rank == 0:
            pathlib.Path(flags.save, "step").write_text(str(first + flags.steps))
    final = evaluate(model, held_out, flags)
    if rank == 0:
        parameters = sum(p.numel() for p in model.parameters())
        print(f"recipe {flags.recipe}: loss {final:.4f} on the end of the text; {parameters:,} parameters, {world} ranks on {device.type}")
        if compressor is not None:
            print(compressor.summary())
        if flags.json:
            print(json.dumps({"recipe": flags.recipe, "inside": flags.inside, "replicas": flags.replicas, "world": world, "seed": flags.seed,
                              "parameters": parameters, "steps": first + flags.steps, "loss": final,
                              "stats": None if compressor is None else compressor.stats()}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="mxfp8", help="of the reduce-scatter, or with --replicas between these; none: as PyTorch does it")
    parser.add_argument("--replicas", type=int, default=1, help="HSDP: so many replicas, each of world / replicas shards")
    parser.add_argument("--inside", help="with --replicas: the recipe of the reduce-scatter; not given: as PyTorch does it")
    parser.add_argument("--text", help="a file; not given: a text is generated")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=64, help="characters that it sees")
    parser.add_argument("--batch", type=int, default=8, help="rows a rank and step")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warm-up", type=int, default=20, help="steps until the rate is reached")
    parser.add_argument("--evaluations", type=int, default=16, help="batches of the final evaluation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="that a rank on a CPU computes with")
    parser.add_argument("--save", metavar="DIR", help="write a checkpoint at the end")
    parser.add_argument("--resume", metavar="DIR", help="go on from a checkpoint, also with another number of replicas")
    parser.add_argument("--json", action="store_true", help="print a last line of JSON")
    flags = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it by torchrun, as in the examples above")
    torch.set_num_threads(flags.threads)
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if dist.get_world_size() % flags.replicas != 0:
        parser.error(f"{dist.get_world_size()} ranks cannot be divided into {flags.replicas} replicas")
    train(flags, device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
