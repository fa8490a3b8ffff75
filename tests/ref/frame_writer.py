"""Writes frames, for tests that need ones that no encoder would write: odd but valid, or broken in one place.

Written from docs/format.md alone. It takes the plainest way through every rule, one element and one bit at a time, so
that it shares no trick with the decoder; of that it uses the hash alone. Whatever a caller passes is written as it is,
right or wrong, with the lengths, the fingerprint and the checksum that belong to it unless they are passed as well.
"""

import struct

import numpy as np

import tersegrad_ref as ref

BITMAP, RUNS, EVERY, PLACES8, PLACES16 = 32, 33, 34, 35, 36
IDS = (
    {"none": 1, "ef": 2, "momentum": 3},
    {"all": 1, "topk": 2, "threshold": 3, "randomk": 4, "randomblock": 5, "adabins": 6},
    {"fp32": 1, "fp16": 2, "bf16": 3, "sign": 4, "bingrad": 5, "orq": 6, "linear": 7, "qsgd": 8, "ternary": 9,
     "natural": 10, "lowrank": 11},
    {"bitmap": 1, "gaps": 2, "adacomp8": 3, "adacomp16": 4},
    {"bits": 1},
)
DEFAULT_IDS = (1, 1, 0, 2, 1)


# ---- Indices ---------------------------------------------------------------------------------------------------------

def pack_bits(bits):
    raw = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        raw[i // 8] |= bit << i % 8
    return bytes(raw)


def write_rice(positions, k):
    bits, before = [], -1
    for position in positions:
        gap, before = position - before - 1, position
        bits += [1] * (gap >> k) + [0] + [gap >> i & 1 for i in range(k)]
    return pack_bits(bits)


def write_bitmap(positions, m):
    sent = set(positions)
    return pack_bits([int(i in sent) for i in range(m)])


def write_varint(number):
    raw = bytearray()
    while number > 127:
        raw.append(number & 127 | 128)
        number >>= 7
    return bytes(raw) + bytes([number])


def write_runs(positions):
    runs = []
    for position in positions:
        if runs and runs[-1][1] == position:
            runs[-1][1] += 1
        else:
            runs.append([position, position + 1])
    raw, end = b"", 0
    for start, stop in runs:
        raw += write_varint(start - end) + write_varint(stop - start - 1)
        end = stop
    return raw


def pack_places(entries, mode):
    """Entries are pairs of code and place."""
    bits, size = (6, 1) if mode == PLACES8 else (14, 2)
    return b"".join((code << bits | place).to_bytes(size, "little") for code, place in entries)


def write_places(positions, signs, cell, mode):
    """Cells are skipped only where they must be."""
    most = 64 if mode == PLACES8 else 16384  # cells that one entry can skip
    entries, at, before = [], 0, -1
    for position, sign in zip(positions, signs):
        place, far = position % cell, position // cell - at
        if far != (place <= before):
            while far > 0:
                entries.append((0, min(far, most) - 1))
                far -= most
        entries.append((1 + sign, place))
        at, before = position // cell, place
    return pack_places(entries, mode)


# ---- Chunks ----------------------------------------------------------------------------------------------------------

def floats(values):
    return np.array(values, "<f4").tobytes()


def group_size(base):
    """(symbols in a group, its bits): the first of the shortest"""
    best = None
    for k in range(1, 9):
        bits = 0
        while 2 ** bits < base ** k:
            bits += 1
        if base ** k <= 2 ** 48 and (best is None or bits * best[0] < best[1] * k):
            best = k, bits
    return best


def pack_groups(groups, bits):
    """Numbers of so many bits each, one behind the other."""
    return pack_bits([group >> i & 1 for group in groups for i in range(bits)])


def write_groups(symbols, base):
    each, bits = group_size(base)
    groups = [0] * -(-len(symbols) // each)
    for i, symbol in enumerate(symbols):
        groups[i // each] += symbol * base ** (i % each)
    return pack_groups(groups, bits)


def bucketed(numbers, symbols, base):
    """Numbers of buckets and symbols of any quantizer that has buckets."""
    return floats(numbers) + write_groups(symbols, base)


def signed(scale, bits):
    """Scale and symbols of quantizer `sign`."""
    return bucketed([scale], bits, 2)


def chunk_header(count, mode, index_len):
    return struct.pack("<IH", count | mode << 24, index_len)


def raw_chunk(count, mode, symbols, indices):
    """A chunk whose header says what it is told to."""
    return chunk_header(count, mode, len(indices)) + symbols + indices


def write_chunk(mode, positions, m, symbols):
    if not positions:
        return chunk_header(0, 0, 0)
    if mode == BITMAP:
        indices = write_bitmap(positions, m)
    elif mode == RUNS:
        indices = write_runs(positions)
    elif mode == EVERY:
        indices = b""
    else:
        indices = write_rice(positions, mode)
    return raw_chunk(len(positions), mode, symbols, indices)


# ---- Description -----------------------------------------------------------------------------------------------------

def ids_of(text):
    ids = list(DEFAULT_IDS)
    for part in text.split("+"):
        name = part.split("@")[0]
        for stage, names in enumerate(IDS):
            ids[stage] = names.get(name, ids[stage])
    return bytes(ids)


def write_recipe(text, ids=None):
    return struct.pack("<H", len(text)) + text.encode("latin-1") + (ids_of(text) if ids is None else bytes(ids))


def write_tensor(name, shape, recipe=0, dtype=0, kind=0):
    name = name if isinstance(name, bytes) else name.encode()
    return (struct.pack("<H", len(name)) + name + struct.pack("<BBHB", kind, dtype, recipe, len(shape)) +
            struct.pack(f"<{len(shape)}Q", *shape))


def write_description(recipes, tensors, seed=None):
    """Recipes are texts, or bytes to be taken as they are; tensors are arguments of write_tensor, or bytes."""
    recipes = [write_recipe(r) if isinstance(r, str) else r for r in recipes]
    tensors = [write_tensor(*t) if isinstance(t, tuple) else t for t in tensors]
    return (struct.pack("<BQ", seed is not None, seed or 0) + struct.pack("<H", len(recipes)) + b"".join(recipes) +
            struct.pack("<I", len(tensors)) + b"".join(tensors))


# ---- Frames ----------------------------------------------------------------------------------------------------------

def write_frame(description, chunks, step=0, tail=b"", hashed=None, **changes):
    """`tail` follows the chunks and is in no hash; `hashed` are the chunks for the checksum, if they are not `chunks`;
    `changes` are fields of the header."""
    head = dict(magic=b"TGFR", version=1, flags=7, zero=0, rank=3, slice=0, slices=1,
                description_len=len(description), frame_len=48 + len(description) + len(b"".join(chunks) + tail) + 8,
                step=step, fingerprint=ref.xxh64(description))
    head.update(changes)
    opening = struct.pack("<4sBBHIIIIQQQ", *head.values()) + description
    hashes = [ref.xxh64(opening)] + [ref.xxh64(chunk) for chunk in (chunks if hashed is None else hashed)]
    checksum = ref.xxh64(b"".join(struct.pack("<Q", h) for h in hashes))
    return opening + b"".join(chunks) + tail + struct.pack("<Q", checksum)


def single(recipe, shape, chunks, seed=None, dtype=0, **more):
    """A frame of one tensor `w`."""
    return write_frame(write_description([recipe], [("w", shape, 0, dtype)], seed), chunks, **more)
