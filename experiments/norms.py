"""Batch norms of several workers at once, each with statistics of its own, by six small kernels in Triton, forward and backward together.

Images lie channels last, those of one worker after those of another: w times m times c values. Sums are taken in parts, so that the GPU is
full, and the parts in order. PyTorch's own batch norm would take five kernels a worker, and copies between them.
"""

import torch
import triton
import triton.language as tl

CHANNELS, ROWS, PROGRAMS = 64, 64, 512


@triton.jit
def _sum_two(x_at, y_at, mean_at, scale_at, out_at, m, c, rows, IS_BACKWARD: tl.constexpr, C: tl.constexpr, R: tl.constexpr):
    """Forward: parts of the sums of x - k and of its square, where k is the first row. Backward: of the gradient y and of y (x - mean) scale."""
    channels = tl.program_id(0) * C + tl.arange(0, C)
    worker, part = tl.program_id(1), tl.program_id(2)
    inside = channels < c
    base = worker.to(tl.int64) * m * c
    if IS_BACKWARD:
        shift = tl.load(mean_at + worker * c + channels, inside, 0.0)
        scale = tl.load(scale_at + worker * c + channels, inside, 0.0)
    else:
        shift = tl.load(x_at + base + channels, inside, 0.0).to(tl.float32)
    first = tl.zeros([R, C], tl.float32)
    second = tl.zeros([R, C], tl.float32)
    for row in range(0, rows, R):
        lines = part * rows + row + tl.arange(0, R)
        given = inside[None, :] & (lines < m)[:, None]
        at = base + lines.to(tl.int64)[:, None] * c + channels[None, :]
        x = tl.load(x_at + at, given, 0.0).to(tl.float32) - shift[None, :]
        x = tl.where(given, x, 0.0)
        if IS_BACKWARD:
            y = tl.load(y_at + at, given, 0.0).to(tl.float32)
            first += y
            second += y * x * scale[None, :]
        else:
            first += x
            second += x * x
    to = out_at + ((part * tl.num_programs(1) + worker) * 2) * c + channels
    tl.store(to, tl.sum(first, 0), inside)
    tl.store(to + c, tl.sum(second, 0), inside)


@triton.jit
def _finish(x_at, parts_at, out_at, m, c, parts, eps, IS_BACKWARD: tl.constexpr, C: tl.constexpr):
    """Forward: mean, 1 / deviation and the unbiased variance. Backward: both sums."""
    channels = tl.program_id(0) * C + tl.arange(0, C)
    worker, workers = tl.program_id(1), tl.num_programs(1)
    inside = channels < c
    first = tl.zeros([C], tl.float32)
    second = tl.zeros([C], tl.float32)
    for part in range(parts):
        at = parts_at + ((part * workers + worker) * 2) * c + channels
        first += tl.load(at, inside, 0.0)
        second += tl.load(at + c, inside, 0.0)
    to = out_at + worker * c + channels
    if IS_BACKWARD:
        tl.store(to, first, inside)
        tl.store(to + workers * c, second, inside)
    else:
        shift = tl.load(x_at + worker.to(tl.int64) * m * c + channels, inside, 0.0).to(tl.float32)
        mean = first / m
        variance = tl.maximum(second / m - mean * mean, 0.0)
        tl.store(to, shift + mean, inside)
        tl.store(to + workers * c, 1 / tl.sqrt(variance + eps), inside)
        tl.store(to + 2 * workers * c, variance * m / (m - 1), inside)


@triton.jit
def _apply(x_at, y_at, stats_at, sums_at, weight_at, bias_at, out_at, m, c, IS_BACKWARD: tl.constexpr, C: tl.constexpr, R: tl.constexpr):
    """Forward: the normal values. Backward: the gradient of x."""
    channels = tl.program_id(1) * C + tl.arange(0, C)
    lines = tl.program_id(0) * R + tl.arange(0, R)
    worker, workers = tl.program_id(2), tl.num_programs(2)
    inside = channels < c
    mean = tl.load(stats_at + worker * c + channels, inside, 0.0)
    scale = tl.load(stats_at + (workers + worker) * c + channels, inside, 0.0)
    weight = tl.load(weight_at + channels, inside, 0.0)
    given = inside[None, :] & (lines < m)[:, None]
    at = worker.to(tl.int64) * m * c + lines.to(tl.int64)[:, None] * c + channels[None, :]
    x = (tl.load(x_at + at, given, 0.0).to(tl.float32) - mean[None, :]) * scale[None, :]
    if IS_BACKWARD:
        first = tl.load(sums_at + worker * c + channels, inside, 0.0) / m
        second = tl.load(sums_at + (workers + worker) * c + channels, inside, 0.0) / m
        y = tl.load(y_at + at, given, 0.0).to(tl.float32)
        out = (y - first[None, :] - x * second[None, :]) * (weight * scale)[None, :]
    else:
        bias = tl.load(bias_at + channels, inside, 0.0)
        out = x * weight[None, :] + bias[None, :]
    tl.store(out_at + at, out.to(out_at.dtype.element_ty), given)


def _sums(x, y, stats, out, workers, eps, is_backward):
    n, c, *size = x.shape
    m = n // workers * size[0] * size[1]
    blocks = triton.cdiv(c, CHANNELS)
    parts = max(1, min(PROGRAMS // (blocks * workers), triton.cdiv(m, ROWS)))
    rows = triton.cdiv(triton.cdiv(m, parts), ROWS) * ROWS
    parts = triton.cdiv(m, rows)
    space = torch.empty(parts, workers, 2, c, device=x.device)
    _sum_two[blocks, workers, parts](x, y, stats, stats[1] if is_backward else stats, space, m, c, rows, is_backward, CHANNELS, ROWS)
    _finish[blocks, workers](x, space, out, m, c, parts, eps, is_backward, CHANNELS)
    return m


def _values(x, y, stats, sums, weight, bias, workers, m, is_backward):
    out, c = torch.empty_like(x), x.shape[1]
    _apply[triton.cdiv(m, ROWS), triton.cdiv(c, CHANNELS), workers](x, y, stats, sums, weight, bias, out, m, c, is_backward, CHANNELS, ROWS)
    return out


def forward(x, weight, bias, workers, eps):
    """(normal values, statistics: mean, 1 / deviation and unbiased variance of each worker and channel)."""
    stats = torch.empty(3, workers, x.shape[1], device=x.device)
    m = _sums(x, x, stats, stats, workers, eps, False)
    return _values(x, x, stats, stats, weight, bias, workers, m, False), stats


def backward(gradient, x, weight, stats):
    """(gradient of x, gradients of bias and of weight for each worker)."""
    workers = stats.shape[1]
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    sums = torch.empty(2, workers, x.shape[1], device=x.device)
    m = _sums(x, gradient, stats, sums, workers, 0.0, True)
    return _values(x, gradient, stats, sums, weight, weight, workers, m, True), sums
