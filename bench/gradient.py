#!/usr/bin/env python3
"""A gradient of a real model for `tersegrad bench --input`: recorded while the program trains one of its own models.

    bench/gradient.py build/gradient.npy [--n 25000000] [--model resnet20] [--program build/release/tersegrad]

The gradients of one worker, step after step from the first, end to end as one array of fp32: of a step all tensors, in the
order of their names, and of the last step as much as is still wanted. Nothing is scaled, drawn or repeated, so that layers
differ in size as they do in training, and gradients shrink as it learns. The data (glyphs) are made by the program itself,
and the same call makes the same bytes. Needs NumPy; 25 million elements take half a minute.
"""

import argparse
import pathlib
import subprocess
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent


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
        size = step_of(next((kept / "one").iterdir())).size
        train(options, -(-options.n // size), kept / "all")
        return numpy.concatenate([step_of(step) for step in sorted((kept / "all").iterdir())])[:options.n]


def main():
    parser = argparse.ArgumentParser(description="Records gradients of a model that is trained.")
    parser.add_argument("output", type=pathlib.Path, help="the .npy file to be written")
    parser.add_argument("--n", type=int, default=25_000_000, help="elements")
    parser.add_argument("--model", default="resnet20", help="one of the program's models for images")
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/tersegrad")
    options = parser.parse_args()
    gradient = record(options)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    # Under its own name only when it is whole: scripts take a file that is there for a good one.
    part = options.output.with_name(options.output.name + ".part")
    with open(part, "wb") as out:
        numpy.save(out, gradient)
    part.rename(options.output)
    print(f"{options.output}: {gradient.size:,} elements of {options.model}'s gradients, {numpy.mean(gradient == 0):.1%} of them 0, "
          f"root mean square {numpy.sqrt(numpy.mean(gradient.astype(float) ** 2)):.2e}")


if __name__ == "__main__":
    main()
