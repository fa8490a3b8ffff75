"""The plot of accuracy against bytes, as an SVG."""

import math
from xml.sax.saxutils import escape

from rows import size

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 520, 60, 30, 40, 60


def frontier(rows):
    """Rows that no other beats in both accuracy and bytes."""
    best, out = -1.0, []
    for row in sorted(rows, key=lambda row: (row.sent, -row.accuracy)):
        if row.accuracy > best:
            best = row.accuracy
            out.append(row)
    return out


def plot(rows):
    """Accuracy against bytes as an SVG; bytes on a logarithmic axis."""
    rows = [row for row in rows if row.accuracy is not None]
    best = max(row.accuracy for row in rows)
    low = math.floor(min(row.accuracy for row in rows if row.accuracy > best - 2) - 0.4)
    high = math.ceil(2 * best + 0.4) / 2
    powers = [math.log10(row.sent_per_step) for row in rows]
    first = math.floor(2 * min(powers)) / 2
    last = max(math.ceil(2 * max(powers)) / 2, first + 0.5)

    def x(sent):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log10(sent) - first) / (last - first)

    def y(accuracy):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - max(accuracy, low)) / (high - low)

    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">')
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    yield f'<text x="{LEFT}" y="22" font-size="15">ResNet-18 on CIFAR-10, 4 workers: test accuracy (%) against bytes that a worker sends per step</text>'
    for accuracy in (low + i / 2 for i in range(int(2 * (high - low)) + 1)):
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(accuracy):.1f}" y2="{y(accuracy):.1f}" stroke="#e4e4e4"/>'
        yield f'<text x="{LEFT - 8}" y="{y(accuracy) + 4:.1f}" text-anchor="end">{accuracy:g}</text>'
    for power in range(math.ceil(first), math.floor(last) + 1):
        yield f'<line x1="{x(10 ** power):.1f}" x2="{x(10 ** power):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>'
        yield f'<text x="{x(10 ** power):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{size(10 ** power)}</text>'
    longest = max(row.settings["epochs"] for row in rows)
    shorter = sorted({row.settings["epochs"] for row in rows if row.settings["epochs"] != longest})
    legend = f"filled: {longest} epochs; hollow: {', '.join(map(str, shorter))} epochs" if shorter else f"{longest} epochs"
    below = f"; points on the lower edge are below {low}" if any(row.accuracy < low for row in rows) else ""
    yield f'<text x="{LEFT}" y="{HEIGHT - 14}">{legend}{below}; the line joins what no other run of {longest} epochs beats</text>'
    line = frontier([row for row in rows if row.settings["epochs"] == longest])
    points = " ".join(f"{x(row.sent_per_step):.1f},{y(row.accuracy):.1f}" for row in line)
    yield f'<polyline points="{points}" fill="none" stroke="#9db8d8" stroke-width="2"/>'
    taken = [(x(row.sent_per_step) - 5, y(row.accuracy) + 4, 10) for row in rows]
    for begin, end in zip(line, line[1:]):  # labels keep clear of the line too
        for i in range(21):
            share = i / 20
            taken.append((x(begin.sent_per_step) * (1 - share) + x(end.sent_per_step) * share,
                          y(begin.accuracy) * (1 - share) + y(end.accuracy) * share + 2, 1))
    for row in sorted(rows, key=lambda row: -row.accuracy):
        yield from mark(row, x(row.sent_per_step), y(row.accuracy), row.settings["epochs"] == longest, low, taken)
    yield "</svg>"


def mark(row, x, y, is_filled, low, taken):
    """A point and its label, at the nearest height that is clear of points and of labels before it."""
    recipe, more = row.name()
    label = recipe.replace("ef+adabins@500+sign@scale=meanmax", "bins of 500") + (f", {more}" if more else "")
    label += f" ({row.accuracy:.1f})" if row.accuracy < low else ""
    length, is_left = 6.3 * len(label), x > WIDTH * 0.72
    begin = x - 9 - length if is_left else x + 9

    def is_clear(at):
        return TOP < at < HEIGHT - BOTTOM and not any(abs(at - other) < 13 and begin < there + long and there < begin + length
                                                      for there, other, long in taken)
    at = next((at for step in range(100) for at in (y + 4 + 3 * step, y + 4 - 3 * step) if is_clear(at)), y + 4)
    if abs(at - y - 4) > 12:
        side = x - 8 if is_left else x + 8
        yield f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{side:.1f}" y2="{at - 4:.1f}" stroke="#b8b8b8"/>'
    taken.append((begin, at, length))
    yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{"#1f5fa8" if is_filled else "#ffffff"}" stroke="#1f5fa8" stroke-width="1.5"/>'
    yield f'<text x="{x - 9 if is_left else x + 9:.1f}" y="{at:.1f}"{" text-anchor=" + chr(34) + "end" + chr(34) if is_left else ""}>{escape(label)}</text>'
