#!/usr/bin/env python3
"""Reads the golden frames of this folder; README.md describes the manifest and the archive.

    golden.py list                the names of all frames
    golden.py extract NAME DIR    writes one frame, its inputs and its expected outputs to a folder
"""

import argparse
import functools
import hashlib
import io
import json
import os
import pathlib
import shlex
import struct
import subprocess
import sys
import tempfile

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent
DTYPES = {"fp32": np.dtype("<f4"), "fp16": np.dtype("<f2")}
TIMEOUT = 120
ELEMENT_MAX = 1 << 22  # in a unit: more than any test has, and little enough to draw

MANIFEST, ARCHIVE = FOLDER / "manifest.json", FOLDER / "golden.zip"

sys.path.insert(0, str(FOLDER.parent / "ref"))
import archive  # noqa: E402
import tersegrad_ref as ref  # noqa: E402


def rows():
    return json.loads(MANIFEST.read_text(encoding="utf-8"))["frames"]


@functools.lru_cache(maxsize=None)
def files():
    """{name: bytes} of the archive, which is read once."""
    return archive.load(ARCHIVE)


# ---- Inputs ----------------------------------------------------------------------------------------------------------

def formula(seed, shape, dtype):
    """Elements that any language can compute: integers, then one exact product with a power of two.

    x(i) = (i * 2654435761 + seed * 2246822519) mod 2^32, then x ^= x >> 15, x = x * 2246822519 mod 2^32, x ^= x >> 13
    fp32: ((x mod 2^24) - 2^23) * 2^(-23 - (x >> 29))
    fp16: ((x mod 2^11) - 2^10) * 2^(-10 - (x >> 29))
    """
    low = np.uint64(0xFFFFFFFF)
    i = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64)
    x = (i * np.uint64(2654435761) + np.uint64(seed * 2246822519 % 2 ** 32)) & low
    x ^= x >> np.uint64(15)
    x = x * np.uint64(2246822519) & low
    x ^= x >> np.uint64(13)
    bits = 24 if dtype == "fp32" else 11
    whole = (x & np.uint64(2 ** bits - 1)).astype(np.int64) - 2 ** (bits - 1)
    exponent = -(bits - 1) - (x >> np.uint64(29)).astype(np.int64)
    return np.ldexp(whole.astype(np.float64), exponent).astype(DTYPES[dtype]).reshape(shape)


def stored(file):
    """A tensor of the archive."""
    return np.load(io.BytesIO(files()[file]))


def input_of(entry, load=stored):
    """The array of one of a row's inputs; `load` gives those that are stored."""
    if "file" in entry:
        return load(entry["file"])
    if "repeat" in entry:
        return np.resize(load(entry["repeat"]["file"]), entry["repeat"]["shape"])
    return formula(**entry["formula"])


def save(path, array):
    with open(path, "wb") as file:
        np.save(file, array)
    return path


# ---- The program -----------------------------------------------------------------------------------------------------

def run(program, *arguments):
    """(exit status, stderr)"""
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, timeout=TIMEOUT)
    return done.returncode, done.stderr.decode("utf-8", "backslashreplace")


def works(program, *arguments):
    code, err = run(program, *arguments)
    if (code, err) != (0, ""):
        raise AssertionError(f"tersegrad {' '.join(map(str, arguments))}: status {code}, {err.strip()}")


def encode(program, folder, row, tensors, threads):
    """The frame that `program` makes of the row; `folder` takes the files that it needs for that."""
    (folder / "in").mkdir(exist_ok=True)
    paths = [save(folder / "in" / f"{name}.npy", array) for name, array in tensors]
    works(program, "encode", "--recipe", row["recipe"], *row["flags"], "--threads", threads, *paths, folder / "x.tg")
    for path in paths:
        os.unlink(path)
    return (folder / "x.tg").read_bytes()


def decode(program, folder, frame, threads=1):
    """[(name, array)] as `program` decodes a frame, in the order of the frame; bf16 comes as fp32."""
    (folder / "x.tg").write_bytes(frame)
    names = names_of(frame)
    with tempfile.TemporaryDirectory(dir=folder) as inner:
        out = pathlib.Path(inner) / "out"
        works(program, "decode", "--threads", threads, folder / "x.tg", out)
        if len(names) == 1:
            return [(names[0], np.load(out))]
        files = sorted(path.name for path in out.iterdir())
        if files != sorted(f"{name}.npy" for name in names):
            raise AssertionError(f"decode wrote {files} for the tensors {names}")
        return [(name, np.load(out / f"{name}.npy")) for name in names]


# ---- Frames ----------------------------------------------------------------------------------------------------------

def frame_of(row):
    return files()[row["frame"]]


def opened(frame):
    """(header, seed, recipes, tensors) of a sound frame, by the reference decoder's own means."""
    view = memoryview(frame)
    head = ref.parse_header(view)
    return (head, *ref.parse_description(view[ref.HEADER.size:ref.HEADER.size + head.description_len]))


def names_of(frame):
    return [tensor.name for tensor in opened(frame)[3]]


def chunks_of(frame, hashes):
    """(unit, recipe, whether its coordinates are drawn, chunk) for each chunk. Hashes of headers and chunks are added to `hashes`."""
    head, seed, recipes, tensors = opened(frame)
    cursor = ref.Cursor(memoryview(frame)[ref.HEADER.size + head.description_len:-8], "the frame")
    units = ref.form_units(recipes, tensors)
    headers = ref.take_headers(cursor, units)
    hashes.append(ref.hash_of(headers.view))
    for number, (recipe, n, _) in enumerate(units):
        if n > ELEMENT_MAX:
            raise ref.Unsupported("a unit has more elements than a test needs")
        drawn = ref.draw(recipe, seed, head.step, number, n, n)
        for chunk in ref.walk_unit(headers, cursor, recipe, n, drawn, hashes):
            yield number, recipe, drawn is not None, chunk


def modes_of(frame):
    """The modes of the chunks that have entries and say how their coordinates are written."""
    return sorted({chunk.mode for _, recipe, is_drawn, chunk in chunks_of(frame, [])
                   if chunk.count and not is_drawn and recipe.select != "all"})


def digest(data):
    """SHA-256 of bytes, or of the elements of an array."""
    return hashlib.sha256(data if isinstance(data, bytes) else data.tobytes()).hexdigest()


def sealed(frame):
    """The frame with the frame_len, fingerprint and checksum that belong to its bytes, as far as those can be read."""
    frame = bytearray(frame)
    frame[24:32] = struct.pack("<Q", len(frame))
    body = ref.HEADER.size + int.from_bytes(frame[20:24], "little")
    if body + 8 > len(frame):
        return bytes(frame)
    frame[40:48] = struct.pack("<Q", ref.hash_of(frame[ref.HEADER.size:body]))
    hashes = [ref.hash_of(frame[:body])]
    try:
        for _ in chunks_of(bytes(frame), hashes):
            pass
    except ref.FormatError:
        pass  # whoever reads it must see the same
    frame[-8:] = struct.pack("<Q", ref.hash_of(struct.pack(f"<{len(hashes)}Q", *hashes)))
    return bytes(frame)


# ---- The command -----------------------------------------------------------------------------------------------------

def extract(row, folder):
    """Writes NAME.tg, the inputs to in/ and those expected outputs that are stored to out/; prints how to use them."""
    for inner in ("in", "out"):
        (folder / inner).mkdir(parents=True, exist_ok=True)
    frame = folder / f"{row['name']}.tg"
    frame.write_bytes(frame_of(row))
    inputs = [save(folder / "in" / f"{entry['name']}.npy", input_of(entry)) for entry in row["inputs"]]
    for entry in row["outputs"]:
        if "file" in entry:
            save(folder / "out" / f"{entry['name']}.npy", stored(entry["file"]))
    print(f"# {row['name']}: {row['covers']}")
    for command in (["encode", "--recipe", row["recipe"], *row["flags"], *inputs, folder / "new.tg"],
                    ["decode", frame, folder / "decoded"]):
        print(shlex.join(["tersegrad", *map(str, command)]))


def main():
    parser = argparse.ArgumentParser(description="List golden frames, or write one to a folder.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="print the names of all frames")
    command = commands.add_parser("extract", help="write a frame, its inputs and its expected outputs to a folder")
    command.add_argument("name", metavar="NAME")
    command.add_argument("folder", metavar="DIR", type=pathlib.Path)
    options = parser.parse_args()
    by_name = {row["name"]: row for row in rows()}
    if options.command == "list":
        print("\n".join(by_name))
    elif options.name in by_name:
        extract(by_name[options.name], options.folder)
    else:
        parser.error(f"there is no frame '{options.name}'")


if __name__ == "__main__":
    main()
