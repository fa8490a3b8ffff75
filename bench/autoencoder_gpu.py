#!/usr/bin/env python3
"""A training step of LGC's autoencoder in PyTorch on a GPU, for averaged codes: the layers, loss and optimizer of src/autoencoder.

    bench/autoencoder_gpu.py [--values 11200] [--workers 4] [--rounds 50]

In fp32 (no tf32), eagerly, and as a CUDA graph of the whole step. Its sums have no fixed order, so that ranks would not agree on their bits.
Times are of CUDA events, the median of the rounds. bench/gpu_autoencoder.c times ours.
"""

import argparse
import statistics

import torch
from torch import nn


def chain():
    encoder, channels = [], (1, 64, 128, 256, 64)
    for a, b in zip(channels, channels[1:]):
        encoder += [nn.Conv1d(a, b, 3, stride=2, padding=1), nn.LeakyReLU(0.01)]
    encoder.append(nn.Conv1d(64, 4, 1))
    decoder, channels = [], (4, 32, 64, 128, 32)
    for a, b in zip(channels, channels[1:]):
        decoder += [nn.ConvTranspose1d(a, b, 3, stride=2, padding=1, output_padding=1), nn.LeakyReLU(0.01)]
    decoder.append(nn.Conv1d(32, 1, 1))
    return nn.Sequential(*encoder).cuda(), nn.Sequential(*decoder).cuda()


def measure(run, rounds):
    times = []
    for _ in range(rounds + 5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[5:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=11200)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    padded = (options.values + 15) // 16 * 16
    encoder, decoder = chain()
    values = torch.randn(options.workers, 1, padded, device="cuda")
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3, capturable=True)

    def train():
        optimizer.zero_grad(set_to_none=False)
        decoded = decoder(encoder(values).mean(0, keepdim=True))
        loss = ((decoded[..., :options.values] - values.mean(0, keepdim=True)[..., :options.values]) ** 2).mean()
        loss.backward()
        optimizer.step()

    eager = measure(train, options.rounds)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            train()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        train()
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {options.values} values, {options.workers} workers; ms a "
          f"training step: eager {eager:.3f}, as a graph {measure(graph.replay, options.rounds):.3f}")


if __name__ == "__main__":
    main()
