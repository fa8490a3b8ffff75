"""Writes frames, for tests that need ones that no encoder would write: odd but valid, or broken in one place.

Written from docs/format.md alone. It implements every rule in the simplest way, one element and one bit at a time, so
that it shares no code with the decoder except the hash. Arguments are written unchanged, right or wrong; lengths, the
fingerprint and the checksum are computed unless they are passed too.
"""

import struct

import numpy as np

import tersegrad_ref as ref

BITMAP, RUNS, EVERY, PLACES8, PLACES16, GEOMETRIC = 32, 33, 34, 35, 36, 37
IDS = (
    {"none": 1, "ef": 2, "momentum": 3},
    {"all": 1, "topk": 2, "threshold": 3, "randomk": 4, "randomblock": 5, "adabins": 6},
    {"fp32": 1, "fp16": 2, "bf16": 3, "sign": 4, "bingrad": 5, "orq": 6, "linear": 7, "qsgd": 8, "ternary": 9,
     "natural": 10, "lowrank": 11, "fp8": 12, "fp4": 13, "autoencoder": 14, "mxfp4": 16,
     "nvfp4": 17, "mxfp8": 18},
    {"bitmap": 1, "gaps": 2, "adacomp8": 3, "adacomp16": 4},
    {"bits": 1, "huffman": 2, "rans": 3, "lossless": 4, "zstd": 5},
)
DEFAULT_IDS = (1, 1, 0, 2, 1)


# ---- Range codes -----------------------------------------------------------------------------------------------------

STATE = 2 ** 15  # final state of the decoder of indices; a range code is written backwards, so the writer begins with it


def push(x, words, start, f, bits, least=STATE):
    """The state before a symbol is decoded that leaves state x; the word that the decoder then reads is added to `words`."""
    if x >= (f * least << 16) >> bits:
        words.append(x % 2 ** 16)
        x //= 2 ** 16
    return (x // f << bits) + x % f + start


def pack_range(states, words):
    """A range code of indices."""
    return b"".join(struct.pack("<I", x) for x in states) + pack_segment(words)


def pack_segment(*numbers):
    """A segment: states, words."""
    return b"".join(struct.pack("<H", number) for row in numbers for number in row)


def range_of(symbols, frequencies, bits, states=1, ends=None):
    """(states, words) of a segment; `ends` are the states that are left in the end, if they are not all right"""
    least, words = 2 << bits, []
    x = list(ends or [least] * states)
    for i in range(len(symbols) - 1, -1, -1):
        symbol = symbols[i]
        x[i % states] = push(x[i % states], words, sum(frequencies[:symbol]), frequencies[symbol], bits, least)
    for i in range(states - 1, -1, -1):
        if x[i] >= 2 ** 16:
            words.append(x[i] % 2 ** 16)
            x[i] //= 2 ** 16
    return x, words[::-1]


def write_frequencies(frequencies, first=None, last=None):
    """Those of all symbols of the base. The first and the last that occur may be other ones."""
    some = [symbol for symbol, f in enumerate(frequencies) if f]
    first, last = some[0] if first is None else first, some[-1] if last is None else last
    numbers = [f + 1 for f in frequencies[first:last]]
    ends = struct.pack("<BB" if len(frequencies) <= 256 else "<HH", first, last)
    sizes = [number.bit_length() - 1 for number in numbers]
    return ends + pack_groups(sizes, 4) + pack_bits([number >> i & 1 for number, b in zip(numbers, sizes) for i in range(b)])


def shares(symbols, base, bits):
    """Frequencies by the counts of symbols: at least 1 each, the rest to the one that occurs most."""
    counts = [0] * base
    for symbol in symbols:
        counts[symbol] += 1
    found = [max(1, (count << bits) // max(len(symbols), 1)) if count else 0 for count in counts]
    most = counts.index(max(counts))
    found[most] += (1 << bits) - sum(found)
    assert found[most] > 0
    return found


def range_form(bits, states):
    return bytes([16 * bits + {1: 0, 4: 2, 16: 4, 32: 5}[states]])


def segments_of(symbols, frequencies, bits, states, number):
    """(states, words) of each segment."""
    each = -(-len(symbols) // number)
    each = -(-each // 32) * 32 if states == 32 else each
    return [range_of(symbols[i * each:(i + 1) * each], frequencies, bits, states) for i in range(number)]


def pack_segments(segments, states):
    """What follows the frequencies."""
    number = bytes([len(segments) - 1]) if states == 32 else b""
    return (number + b"".join(struct.pack("<H", len(words)) for _, words in segments[:-1]) +
            b"".join(pack_segment(*segment) for segment in segments))


def ranged(symbols, base, bits=12, states=1, frequencies=None, segments=1):
    """Symbols in a form of `rans`."""
    frequencies = frequencies or shares(symbols, base, bits)
    ahead = write_frequencies(frequencies)
    if max(frequencies) == 1 << bits:
        return range_form(bits, 1) + ahead
    return range_form(bits, states) + ahead + pack_segments(segments_of(symbols, frequencies, bits, states, segments), states)


def turned_left(words, width):
    """(lower bytes, upper bytes) of words of so many bytes"""
    lower, upper = b"", []
    for word in words:
        word = (word << 1 | word >> 8 * width - 1) % 2 ** (8 * width)
        lower += word.to_bytes(width, "little")[:-1]
        upper.append(word >> 8 * width - 8)
    return lower, upper


def lossless(words, width, bits=12, states=1, segments=1):
    """Words in a form of `lossless`."""
    lower, upper = turned_left(words, width)
    code = ranged(upper, 256, bits, states, segments=segments)
    return code[:1] + lower + code[1:]


# ---- Prefix codes and zstd -------------------------------------------------------------------------------------------

def codes_of(lengths):
    """(code, length) of each symbol that has one"""
    codes, code = {}, 0
    for length in range(1, max(lengths) + 1):
        code *= 2
        for symbol, own in enumerate(lengths):
            if own == length:
                codes[symbol] = code, length
                code += 1
    return codes


def write_codes(symbols, lengths):
    codes = codes_of(lengths)
    return pack_bits([codes[x][0] >> i & 1 for x in symbols for i in range(codes[x][1] - 1, -1, -1)])


def write_lengths(lengths):
    return pack_groups(lengths, 4)


def streams_of(symbols, lengths):
    """Streams of 1,024 symbols each."""
    return [write_codes(symbols[i:i + 1024], lengths) for i in range(0, len(symbols), 1024)]


def write_streams(symbols, lengths):
    """The lengths of all streams but the last, then the streams."""
    streams = streams_of(symbols, lengths)
    return b"".join(struct.pack("<H", len(stream)) for stream in streams[:-1]) + b"".join(streams)


def prefixed(symbols, lengths):
    """Symbols in the form of `huffman` that has its lengths."""
    return b"\1" + write_lengths(lengths) + write_streams(symbols, lengths)


def zstd_frame(*blocks, size=None, more=b""):
    """A frame of zstd of blocks that are bytes as they are, or (byte, times); `more` follows the last block."""
    if size is None:
        size = sum(len(block) if isinstance(block, bytes) else block[1] for block in blocks)
    frame = b"\x28\xb5\x2f\xfd\xa0" + struct.pack("<I", size)  # one segment, a size of four bytes
    for number, block in enumerate(blocks):
        kind, length = (0, len(block)) if isinstance(block, bytes) else (1, block[1])
        frame += (length << 3 | kind << 1 | (number == len(blocks) - 1)).to_bytes(3, "little")
        frame += block if kind == 0 else bytes([block[0]])
    return frame + more


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


def letters(count, m):
    """(bits of a gap that are taken as they are, frequencies of letters)"""
    s, k = (m - count) * 2 ** 32 // m, 0
    while count * 2 ** (k + 4) <= m:
        s, k = s * s // 2 ** 32, k + 1
    a = [2 ** 12]
    for j in range(63):
        following = max(a[j] * s // 2 ** 32, 63 - j)
        a.append(a[j] - 1 if following >= a[j] else following)
    return k, [a[j] - a[j + 1] for j in range(63)] + [a[63]]


def geometric_of(positions, count, m, end=STATE):
    """(states, words); `count` is what letters are taken for, `end` the state that is left in the end"""
    k, frequencies = letters(count, m)
    taken, before = [], -1  # (start, frequency, bits) in the order in which they are taken
    for position in positions:
        gap, before = position - before - 1, position
        q, rest = gap >> k, gap % 2 ** k
        for letter in [63] * (q // 63) + [q % 63]:
            taken.append((sum(frequencies[:letter]), frequencies[letter], 12))
        taken.append((rest, 1, k))
    x, words = end, []
    for start, f, bits in taken[::-1]:
        x = push(x, words, start, f, bits)
    return [x], words[::-1]


def write_geometric(positions, m):
    return pack_range(*geometric_of(positions, len(positions), m))


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

class Chunk:
    """A chunk and its header, which stand apart in a frame. A sum with bytes, or with another chunk, adds to both."""

    def __init__(self, header, content=b""):
        self.header, self.content = bytes(header), bytes(content)

    def __len__(self):
        return len(self.header) + len(self.content)

    def __add__(self, more):
        more = chunk_of(more)
        return Chunk(self.header + more.header, self.content + more.content)

    def __radd__(self, first):
        return chunk_of(first) + self

    def __getitem__(self, part):
        """Some of the bytes, header first."""
        start, stop, _ = part.indices(len(self))
        behind = len(self.header)
        return Chunk(self.header[start:stop], self.content[max(start - behind, 0):max(stop - behind, 0)])


def chunk_of(raw):
    """Bytes are a chunk without a header."""
    return raw if isinstance(raw, Chunk) else Chunk(b"", raw)


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
    """Numbers of so many bits each, concatenated."""
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


def fitted(step, row=0):
    """What the values of `fp4` and `fp8` have in common."""
    return floats([step]) + bytes([row])


def coded(body, numbers=b"", coded_len=None):
    """What a chunk has where symbols are coded: coded_len; numbers of buckets, form and what follows it."""
    return Chunk(struct.pack("<I", len(body) if coded_len is None else coded_len), numbers + body)


def chunk_header(count, mode, index_len):
    return Chunk(struct.pack("<IH", count | mode << 24, index_len))


def raw_chunk(count, mode, symbols, indices):
    """A chunk whose header says what it is told to."""
    return chunk_header(count, mode, len(indices)) + symbols + indices


def write_chunk(mode, positions, m, symbols):
    if not positions:
        return chunk_header(0, 0, 0) + symbols
    if mode == BITMAP:
        indices = write_bitmap(positions, m)
    elif mode == RUNS:
        indices = write_runs(positions)
    elif mode == GEOMETRIC:
        indices = write_geometric(positions, m)
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
    """`tail` follows the chunks and is in no hash; `hashed` are the pieces after the description for the checksum, headers
    first, if they are not those of `chunks`; `changes` are fields of the header."""
    chunks = [chunk_of(chunk) for chunk in chunks]
    pieces = [b"".join(chunk.header for chunk in chunks)] + [chunk.content for chunk in chunks]
    body = b"".join(pieces) + tail
    head = dict(magic=b"TGFR", version=4, flags=7, zero=0, rank=3, slice=0, slices=1,
                description_len=len(description), frame_len=48 + len(description) + len(body) + 8,
                step=step, fingerprint=ref.hash_of(description))
    head.update(changes)
    opening = struct.pack("<4sBBHIIIIQQQ", *head.values()) + description
    hashes = [ref.hash_of(opening)] + [ref.hash_of(piece) for piece in (pieces if hashed is None else hashed)]
    checksum = ref.hash_of(b"".join(struct.pack("<Q", h) for h in hashes))
    return opening + body + struct.pack("<Q", checksum)


def single(recipe, shape, chunks, seed=None, dtype=0, **more):
    """A frame of one tensor `w`."""
    return write_frame(write_description([recipe], [("w", shape, 0, dtype)], seed), chunks, **more)
