#!/usr/bin/env python3
"""What ten lines of PyTorch reach on a GPU, eager and compiled, beside a copy of the same fp32 input: for the table of bench/gpu.py.

    bench/gpu_peers.py [--n 25000000,1000000] [--eager]

Several inputs in turns, so that none stays in the cache; medians of CUDA events. A line that fails says so, and the others go on.
"""

import argparse

import torch

BLOCK = 2048


def cast_fp16(g, e, s):
    return g.half()


def cast_fp8(g, e, s):
    return g.to(torch.float8_e4m3fn)


def fp8_with_feedback(g, e, s):
    u = g + e
    scale = u.abs().max() / 448
    q = (u / scale).to(torch.float8_e4m3fn)
    e.copy_(u - q.float() * scale)
    return q


def sign_with_feedback(g, e, s):
    u = g + e
    scale = u.abs().mean()
    positive = u >= 0
    e.copy_(u - torch.where(positive, scale, -scale))
    weights = 2 ** torch.arange(8, device=g.device, dtype=torch.uint8)
    return (positive.view(-1, 8).to(torch.uint8) * weights).sum(1, dtype=torch.uint8)


def ternary(g, e, s):
    blocks = g.view(-1, BLOCK)
    largest = blocks.abs().amax(1, keepdim=True)
    kept = torch.rand_like(blocks) * largest < blocks.abs()
    t = (torch.sign(blocks) * kept + 1).to(torch.uint8).view(-1)
    return t[0::4] | t[1::4] << 2 | t[2::4] << 4 | t[3::4] << 6


def topk_with_feedback(g, e, s):
    e.add_(g)
    places = torch.topk(e.abs(), e.numel() // 100, sorted=False).indices
    values = e[places]
    e[places] = 0
    return places, values


def decode_fp16(g, e, s):
    s.add_(HALF[: s.numel()])
    return s


ENCODERS = (cast_fp16, cast_fp8, fp8_with_feedback, sign_with_feedback, ternary, topk_with_feedback, decode_fp16)
COMPILED = (cast_fp8, fp8_with_feedback, sign_with_feedback, ternary, decode_fp16)
HALF = None


def seconds_of(function, inputs, e, s, rounds=15):
    for i in range(3):
        function(inputs[i % len(inputs)], e, s)
    times = []
    for i in range(rounds):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        function(inputs[i % len(inputs)], e, s)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return sorted(times)[rounds // 2]


def measure(n, functions, compiled):
    global HALF
    n = n // BLOCK * BLOCK
    inputs = [torch.randn(n, device="cuda") * 1e-3 for _ in range(3)]
    e, s, HALF = torch.zeros(n, device="cuda"), torch.zeros(n, device="cuda"), inputs[0].half()
    copy = seconds_of(lambda g, e, s: s.copy_(g), inputs, e, s)
    for function in functions:
        name = function.__name__ + (", compiled" if compiled else "")
        try:
            run = torch.compile(function, dynamic=True) if compiled else function
            taken = seconds_of(run, inputs, e, s)
            print(f"PyTorch {name:30} {n / 1e6:5.1f} M {4 * n / taken / 1e9:7.0f} GB/s {copy / taken:6.3f} of copy", flush=True)
        except Exception as error:  # whatever it is, the others are measured
            print(f"PyTorch {name:30} {n / 1e6:5.1f} M failed: {str(error).splitlines()[0][:80]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", default="25000000,1000000")
    parser.add_argument("--eager", action="store_true", help="nothing is compiled")
    options = parser.parse_args()
    sizes = [int(n) for n in options.n.split(",")]
    for n in sizes:
        measure(n, ENCODERS, False)
    if not options.eager:
        for n in sizes[:1]:
            measure(n, COMPILED, True)


if __name__ == "__main__":
    main()
