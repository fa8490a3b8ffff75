#!/usr/bin/env python3
"""Gradients of a real model for `tersegrad bench --input`: recorded while the program trains one of its own models.

    bench/gradients.py build/gradients.npy [--n 25000000] [--model resnet20] [--program build/release/tersegrad]

The gradients of one worker, a row of fp32 for every step from the first: all tensors, in the order of their names. Rows are
one behind the other, so that a gradient of n elements is that of many steps end to end; what begins a row further on holds for
every element what the next step had there. There are enough rows for n elements and for 32 such steps behind them. Nothing is
scaled, drawn or repeated, so that layers differ in size as they do in training, and gradients shrink as it learns. A row's last
few elements are left out where it would not end on a line of the cache: an array of its own begins on one. The data (glyphs)
are made by the program itself, and the same call makes the same bytes. Needs NumPy; 25 million elements take half a minute.
"""

import argparse
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS = 32  # behind those that make up the first n elements
LINE = 16   # elements in a line of the cache


def train(options, steps, folder):
    command = [str(options.program), "train", "--recipe", "dense", "--model", options.model, "--data", "glyphs", "--workers", "1",
               "--batch", "32", "--steps", str(steps), "--test-every", "0", "--gradients", str(folder)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def step_of(folder):
    return numpy.concatenate([numpy.load(path).ravel() for path in sorted(folder.iterdir())])


def record(options):
    with tempfile.TemporaryDirectory() as kept:
        kept = pathlib.Path(kept)
        train(options, 1, kept / "one")  # says how many parameters the model has
        size = step_of(next((kept / "one").iterdir())).size // LINE * LINE
        train(options, -(-options.n // size) + STEPS, kept / "all")
        return numpy.stack([step_of(step)[:size] for step in sorted((kept / "all").iterdir())])


def main():
    parser = argparse.ArgumentParser(description="Records gradients of a model that is trained.")
    parser.add_argument("output", type=pathlib.Path, help="the .npy file to be written")
    parser.add_argument("--n", type=int, default=25_000_000, help="elements of a gradient")
    parser.add_argument("--model", default="resnet20", help="one of the program's models for images")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/tersegrad")
    options = parser.parse_args()
    gradients = record(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    # Under its own name only when it is whole: scripts take a file that is there for a good one.
    part = options.output.with_name(options.output.name + ".part")
    with open(part, "wb") as out:
        numpy.save(out, gradients)
    part.rename(options.output)
    print(f"{options.output}: {gradients.shape[0]} steps of {options.model}'s gradients, {gradients.shape[1]:,} elements each, "
          f"{numpy.mean(gradients == 0):.1%} of them 0, root mean square {numpy.sqrt(numpy.mean(gradients.astype(float) ** 2)):.2e}")


if __name__ == "__main__":
    main()
