#!/usr/bin/env python3
"""Unit tests of tersegrad_ref.py, on frames of frame_writer.py.

Like the decoder, written from docs/format.md alone; kept apart from the C code on purpose.
"""

import contextlib
import io
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import meaning  # noqa: E402
import tersegrad_ref as ref  # noqa: E402
from frame_writer import (  # noqa: E402
    bucketed, chunk_header, coded, fitted, floats, geometric_of, group_size, ids_of, letters, lossless, pack_groups,
    pack_places, pack_range, pack_segment, prefixed, push, range_form, range_of, ranged, raw_chunk, signed, single, turned_left,
    write_bitmap, write_chunk, write_codes, write_description, write_frame, write_frequencies, write_geometric,
    write_groups, write_lengths, write_places, write_recipe, write_rice, write_runs, write_streams, zstd_frame)

CHUNK = 262144


def draw_plainly(select, seed, step, unit, n, ratio):
    """Section 5 word by word."""
    def p64(key, *counter):
        words = ref.philox(key, *counter)
        return words[0] + 2 ** 32 * words[1]

    stream = p64(seed, step % 2 ** 32, step // 2 ** 32, unit, 0)

    def below(i, m):
        j = i // 2
        o = ref.philox(stream, j % 2 ** 32, j // 2 ** 32, 0, 0)
        x = o[0] + 2 ** 32 * o[1] if i % 2 == 0 else o[2] + 2 ** 32 * o[3]
        return x * m // 2 ** 64

    b = min(n, max(1, int(ratio * n + 0.5))) if n else 0
    if select == "randomblock":
        return sorted((below(0, n) + j) % n for j in range(b))
    distinct, i, c = set(), 0, min(b, n - b)
    while len(distinct) < c:
        distinct.add(below(i, n))
        i += 1
    return sorted(distinct if b <= n - b else set(range(n)) - distinct)


def sample(size):
    """Bytes to hash, which a few lines of any language can make."""
    i = np.arange(size, dtype=np.uint64)
    return ((i * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)) >> np.uint64(24)).astype(np.uint8).tobytes()


# ---- Helpers ---------------------------------------------------------------------------------------------------------

HASHES = r"""
#define XXH_INLINE_ALL
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

int main(void)
{
    static unsigned char bytes[1 << 21];
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    size_t size;
    while (scanf("%zu", &size) == 1)
        printf("%016llx\n", (unsigned long long)XXH3_64bits(bytes, size));
    return 0;
}
"""


class Hash(unittest.TestCase):
    # Of sample(size), by libxxhash 0.8.1: two lengths or more of each class.
    KNOWN = {
        1: 0xC44BDFF4074EECDB, 2: 0xB0A5D4F167A89D5E, 3: 0xE14090F554A5EA90, 4: 0x2E8D078A566E9749,
        6: 0x54E61284A9BFCB0B, 8: 0xCD1C7F88482FCAEF, 9: 0xBFE43DEF699FA9E3, 13: 0x339F6DD3D6BB5A94,
        16: 0x81E9EB8634460BB9, 17: 0x9998430FD0A655BE, 32: 0x938C25DD24C9CF3B, 33: 0x0E399D30188E9C8E,
        64: 0x22A06B30C4C72936, 65: 0x7FAFF6EEE7812D5C, 96: 0x324046D7FF9771F1, 97: 0x00D61F9A16F8EFFD,
        128: 0x75ECA5C5D5594884, 129: 0xA05DA42E7A4E4667, 200: 0xE07BFBC15015BF69, 240: 0x5EB2467C8C9E3969,
        241: 0x2D431E984C441F15, 512: 0xDCFED6EE2883ACD0, 1024: 0xE99DEF1145F12936, 1025: 0x83CBA9B371E4E7F4,
        2000: 0x97E01B1BE147C4B7, 4095: 0xB7FC61B323AE5FC3, 4096: 0x9BF67F8DEFF876AE,
    }

    def test_known_answers(self):
        self.assertEqual(ref.xxh3(b""), 0x2D06800538D394C2)
        for size, answer in self.KNOWN.items():
            self.assertEqual(ref.xxh3(sample(size)), answer, size)

    def test_every_length_against_the_library_of_the_system(self):
        if not os.path.exists("/usr/include/xxhash.h") or shutil.which("cc") is None:
            self.skipTest("neither xxhash.h nor a compiler")
        sizes = [*range(1300), *range(2040, 2060), *range(4080, 4120), 65536, 2 ** 20, 2 ** 20 + 1, 2 ** 21]
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, "hashes.c"), os.path.join(folder, "hashes")
            with open(source, "w", encoding="ascii") as file:
                file.write(HASHES)
            subprocess.run(["cc", "-O1", "-o", program, source], check=True, timeout=120)
            done = subprocess.run([program], input=" ".join(map(str, sizes)), capture_output=True, text=True,
                                  check=True, timeout=120)
        raw = sample(2 ** 21)
        for size, answer in zip(sizes, done.stdout.split()):
            self.assertEqual(ref.xxh3(raw[:size]), int(answer, 16), size)

    def test_rows_are_hashed_like_each_alone(self):
        for size in (241, 1024, 1025, 4096):
            rows = np.frombuffer(sample(5 * size), np.uint8).reshape(5, size)
            self.assertEqual(ref.xxh3_long(rows), [ref.xxh3(row.tobytes()) for row in rows])

    def test_leaves(self):
        """H word by word."""
        for size in (0, 1, 4095, 4096, 4097, 8192, 8193, 3 * 4096 + 240, 40 * 4096 + 7, 600 * 4096 + 1):
            raw = sample(size)
            leaves = b"".join(ref.xxh3(raw[i:i + 4096]).to_bytes(8, "little") for i in range(0, size, 4096))
            self.assertEqual(ref.hash_of(raw), ref.xxh3(raw if size <= 4096 else leaves))
            self.assertEqual(ref.hash_of(memoryview(raw)), ref.hash_of(raw))


class Draws(unittest.TestCase):
    def test_philox_known_answers(self):
        self.assertEqual(ref.philox(0, 0, 0, 0, 0), (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48))
        ones = 2 ** 32 - 1
        self.assertEqual(ref.philox(2 ** 64 - 1, ones, ones, ones, ones),
                         (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662))

    def test_below_agrees_with_a_wide_product(self):
        key = 0x0123456789ABCDEF
        for m in (1, 2, 1000, 2 ** 32 - 1, 2 ** 32, 2 ** 33 + 5, 2 ** 60):
            for first, count in ((0, 1), (0, 50), (2, 7), (2 ** 33 - 4, 9)):
                found = []
                for i in range(first, first + count):
                    o = ref.philox(key, i // 2 % 2 ** 32, i // 2 ** 33, 0, 0)
                    found.append((o[i % 2 * 2] + 2 ** 32 * o[i % 2 * 2 + 1]) * m >> 64)
                self.assertEqual(ref.below(key, first, count, m), found)

    def test_draw_size(self):
        self.assertEqual([ref.draw_size(0.01, n) for n in (0, 1, 49, 149, 150, 1000)], [0, 1, 1, 1, 2, 10])
        self.assertEqual(ref.draw_size(1.0, 7), 7)

    def test_random_k(self):
        for n, b in ((0, 0), (1, 1), (2, 1), (10, 3), (10, 5), (10, 6), (11, 5), (11, 6), (10, 10), (5000, 700),
                     (5000, 2500), (5000, 2501), (5000, 4999)):
            for step in range(4):
                drawn = ref.draw_k(ref.stream_of(9, step, 2), n, b).tolist()
                self.assertEqual(drawn, draw_plainly("randomk", 9, step, 2, n, b / n if n else 0))
                self.assertEqual(len(set(drawn)), b)
                self.assertTrue(all(0 <= i < n for i in drawn))
                self.assertEqual(drawn, meaning.drawn("randomk", b / n if n else 0, n, 9, step, 2, 0))

    def test_every_set_is_as_likely(self):
        """All 20 sets of 3 of 6, and all 15 of 4 of 6: by chi-squared, which is above the bound in 1e-4 of cases."""
        for b, sets, bound in ((3, 20, 52), (4, 15, 44)):
            counts = {}
            for step in range(4000):
                drawn = tuple(ref.draw_k(ref.stream_of(3, step, 0), 6, b).tolist())
                counts[drawn] = counts.get(drawn, 0) + 1
            self.assertEqual(len(counts), sets)
            self.assertLess(sum((count - 4000 / sets) ** 2 for count in counts.values()) / (4000 / sets), bound)

    def test_random_k_of_more_than_one_batch(self):
        with mock.patch.object(ref, "CHUNK", 16):
            self.assertEqual(ref.draw_k(ref.stream_of(1, 2 ** 40 + 1, 0), 100, 50).tolist(),
                             draw_plainly("randomk", 1, 2 ** 40 + 1, 0, 100, 0.5))

    def test_random_block_is_cyclic(self):
        wrapped = 0
        for step in range(40):
            drawn = ref.draw_block(ref.stream_of(5, step, 0), 20, 6).tolist()
            self.assertEqual(drawn, draw_plainly("randomblock", 5, step, 0, 20, 0.3))
            ends = [i for i in drawn if (i + 1) % 20 not in drawn]
            self.assertEqual((len(set(drawn)), len(ends)), (6, 1))
            wrapped += drawn[0] == 0 and drawn[-1] == 19
        self.assertTrue(wrapped)
        self.assertEqual(ref.draw_block(ref.stream_of(5, 0, 0), 20, 20).tolist(), list(range(20)))
        self.assertEqual(ref.draw_block(0, 0, 0).tolist(), [])


class Indices(unittest.TestCase):
    def cases(self):
        rng = random.Random(1)
        for m in (1, 7, 8, 9, 1000, 5000):
            for share in (0.002, 0.1, 0.5, 0.95, 1):
                positions = [i for i in range(m) if rng.random() < share] or [m - 1]
                yield m, positions

    def check(self, mode, raw, positions, m):
        self.assertEqual(ref.read_positions(raw, mode, len(positions), m).tolist(), positions)

    def test_round_trips(self):
        for m, positions in self.cases():
            for k in range(19):
                self.check(k, write_rice(positions, k), positions, m)
            self.check(ref.BITMAP, write_bitmap(positions, m), positions, m)
            self.check(ref.RUNS, write_runs(positions), positions, m)
            self.check(ref.GEOMETRIC, write_geometric(positions, m), positions, m)
        self.check(ref.EVERY, b"", list(range(12)), 12)

    def test_widest_chunk(self):
        for positions in ([CHUNK - 1], [0, CHUNK - 1], list(range(CHUNK))):
            for k in (0, 4, 18) if len(positions) < 3 else (0,):
                self.check(k, write_rice(positions, k), positions, CHUNK)
            self.check(ref.RUNS, write_runs(positions), positions, CHUNK)
            self.check(ref.BITMAP, write_bitmap(positions, CHUNK), positions, CHUNK)

    def test_places(self):
        rng = random.Random(2)
        for m, positions in self.cases():
            signs = [rng.randrange(2) for _ in positions]
            for cell in (1, 2, 7, 50, 64, 500, 16384):
                for mode in (ref.PLACES8, ref.PLACES16) if cell <= 64 else (ref.PLACES16,):
                    raw = write_places(positions, signs, cell, mode)
                    found, codes = ref.read_places(raw, mode, len(positions), m, cell)
                    self.assertEqual((found.tolist(), codes.tolist()), (positions, signs))

    def test_places_by_hand(self):
        """One rule of the page a line: cell 0 first, larger, not larger, skipped, none before, not larger."""
        for entries, positions in (
                ([(1, 3)], [3]), ([(1, 3), (1, 4)], [3, 4]), ([(1, 3), (2, 3)], [3, 13]), ([(2, 3), (1, 2)], [3, 12]),
                ([(0, 0), (1, 3)], [13]), ([(0, 4), (1, 3)], [53]), ([(1, 3), (0, 0), (1, 2)], [3, 12]),
                ([(1, 3), (0, 0), (1, 4)], [3, 14]), ([(0, 0), (0, 1), (1, 0)], [30]),
                ([(1, 9), (0, 1), (2, 9), (1, 9)], [9, 29, 39])):
            for mode in (ref.PLACES8, ref.PLACES16):
                found, signs = ref.read_places(pack_places(entries, mode), mode, len(positions), 60, 10)
                self.assertEqual(found.tolist(), positions)
                self.assertEqual(signs.tolist(), [code - 1 for code, _ in entries if code])
        self.assertEqual(pack_places([(1, 3), (2, 63)], ref.PLACES8), b"\x43\xbf")
        self.assertEqual(pack_places([(1, 3), (2, 16383)], ref.PLACES16), b"\x03\x40\xff\xbf")

    def test_places_of_the_widest_chunk(self):
        for positions, cell in (([CHUNK - 1], 1), ([0, CHUNK - 1], 64), ([5, 70000, CHUNK - 2], 50)):
            for mode in (ref.PLACES8, ref.PLACES16):
                raw = write_places(positions, [1] * len(positions), cell, mode)
                self.assertEqual(ref.read_places(raw, mode, len(positions), CHUNK, cell)[0].tolist(), positions)

    def refuse(self, words, reader, *arguments):
        with self.assertRaisesRegex(ref.FormatError, words):
            reader(*arguments)

    def test_bad_rice(self):
        good = write_rice([3, 9], 1)
        self.assertEqual(good, bytes([0b01011101]))
        self.refuse("past its bytes", ref.read_rice, good, 1, 3, 10)
        self.refuse("past its bytes", ref.read_rice, b"\xff", 0, 1, 10)
        self.refuse("past its bytes", ref.read_rice, b"\x7f", 3, 1, 1000)
        self.refuse("more bytes", ref.read_rice, good + b"\0", 1, 2, 10)
        self.refuse("behind its last", ref.read_rice, bytes([good[0] | 128]), 1, 2, 10)
        self.refuse("outside", ref.read_rice, good, 1, 2, 9)

    def test_bad_bitmap(self):
        self.refuse("behind its last", ref.read_bitmap, b"\x21", 2, 5)
        self.refuse("count is 3", ref.read_bitmap, b"\x11", 3, 5)

    def test_bad_runs(self):
        for words, raw, count, m in (
                ("inside a number", b"\x00\x80", 1, 9), ("inside a pair", b"\x00", 1, 9),
                ("longer than", b"\x80\x00\x00", 1, 9), ("longer than", b"\x00\x81\x80\x00", 1, 9),
                ("two runs touch", b"\x00\x00\x00\x00", 2, 9), ("outside", b"\x02\x07", 8, 9),
                ("outside", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00", 1, 9), ("count is 2", b"\x02\x00", 2, 9)):
            self.refuse(words, ref.read_runs, raw, count, m)


    def test_bad_places(self):
        for mode in (ref.PLACES8, ref.PLACES16):
            for words, entries, count, m in (
                    ("code 3", [(3, 0)], 1, 40), ("code 3", [(1, 0), (3, 5), (1, 2)], 2, 40),
                    ("last place has code 0", [(1, 0), (0, 0)], 1, 40), ("last place has code 0", [(0, 0)], 1, 40),
                    ("outside its cell", [(1, 10)], 1, 40), ("outside its cell", [(1, 11), (1, 2)], 2, 40),
                    ("outside its chunk", [(1, 5)], 1, 5), ("outside its chunk", [(0, 3), (1, 0)], 1, 40),
                    ("outside its chunk", [(1, 9)] * 5, 5, 40), ("outside its chunk", [(0, 63)] * 60 + [(1, 0)], 1, 40),
                    ("count is 2", [(1, 1)], 2, 40), ("count is 1", [(1, 1), (1, 2)], 1, 40)):
                self.refuse(words, ref.read_places, pack_places(entries, mode), mode, count, m, 10)
        self.refuse("inside an entry", ref.read_places, b"\x01\x40\x00", ref.PLACES16, 1, 40, 10)


    def test_geometric(self):
        """Letters by hand, of half of all and of one in many; then gaps of several letters, and bits as they are."""
        k, frequencies = ref.letters_of(20, 40)
        self.assertEqual((k, frequencies[:6], frequencies[-1]), (0, [2048, 1024, 512, 256, 128, 64], 1))
        k, frequencies = ref.letters_of(1, CHUNK)
        self.assertEqual((k, sum(frequencies), min(frequencies) > 0), (15, 4096, True))
        self.assertEqual(ref.letters_of(40, 40)[1], [4096 - 63] + [1] * 63)
        for count, m in ((1, 1), (1, 2), (1, 16), (3, 50), (7, 1000), (1000, 1001), (5, CHUNK), (100000, CHUNK)):
            self.assertEqual(ref.letters_of(count, m), letters(count, m))
            self.assertEqual((sum(letters(count, m)[1]), len(letters(count, m)[1])), (4096, 64))
        for positions, m in (([CHUNK - 1], CHUNK), ([0], CHUNK), ([*range(64), CHUNK - 1], CHUNK), ([3], 4)):
            self.check(ref.GEOMETRIC, write_geometric(positions, m), positions, m)

    def test_bad_geometric(self):
        some = [0, 1, 2, 17, 30, 31, 39]
        good, (x, words) = write_geometric(some, 40), geometric_of(some, 7, 40)
        for words_of, raw, count, m in (
                ("2 bytes", good[:2], 7, 40), ("bytes", good + b"\0", 7, 40), ("left over", good + b"\0\0", 7, 40),
                ("lacks a word", pack_range(x, words[:-1]), 7, 40),
                ("outside its range", pack_range([2 ** 15 - 1], words), 7, 40),
                ("outside its range", pack_range([2 ** 31], words), 7, 40),
                ("does not end", pack_range(*geometric_of(some, 7, 40, 2 ** 15 + 1)), 7, 40),
                ("outside their chunk", pack_range(*geometric_of([40], 1, 40)), 1, 40),
                ("outside their chunk", pack_range(*geometric_of([70000], 1, 40)), 1, 40)):
            self.refuse(words_of, ref.read_geometric, raw, count, m)


class Codes(unittest.TestCase):
    def refuse(self, words, reader, *arguments):
        with self.assertRaisesRegex(ref.FormatError, words):
            reader(*arguments)

    def read_prefix(self, raw, lengths, count):
        return ref.read_stream(raw, ref.prefix_of(lengths), count).tolist()

    def test_prefix_by_hand(self):
        """Codes 10, 0, 110, 111."""
        self.assertEqual(self.read_prefix(bytes([0b11001011, 0b1]), [2, 1, 3, 3], 4), [2, 0, 1, 3])
        self.assertEqual(write_codes([2, 0, 1, 3], [2, 1, 3, 3]), bytes([0b11001011, 0b1]))
        self.assertEqual(write_lengths([2, 1, 12]), b"\x12\x0c")

    def test_prefix_round_trips(self):
        rng = random.Random(5)
        for lengths in ([1, 1], [0, 1, 0, 1], [2, 2, 2, 2], [3, 1, 3, 2], [12, 12, *range(11, 0, -1)], [8] * 256,
                        [5] * 16 + [0] * 100 + [5] * 16):
            usable = [symbol for symbol, length in enumerate(lengths) if length]
            for count in (1, 2, 7, 8, 9, 500):
                symbols = [rng.choice(usable) for _ in range(count)]
                self.assertEqual(self.read_prefix(write_codes(symbols, lengths), lengths, count), symbols)
            for count in (1, 1023, 1024, 1025, 2048, 5000):
                symbols = [rng.choice(usable) for _ in range(count)]
                raw = write_streams(symbols, lengths)
                self.assertEqual(ref.read_streams(raw, ref.prefix_of(lengths), count).tolist(), symbols)

    def test_bad_prefix(self):
        lengths, good = [2, 1, 2], write_codes([0, 1, 2, 1], [2, 1, 2])
        self.assertEqual(good, bytes([0b011001]))
        for words, raw, own, count in (
                ("not full", good, [2, 1, 3], 4), ("not full", good, [0, 0, 0], 4), ("not full", good, [0, 1, 0], 4),
                ("more codes", good, [1, 1, 1], 4), ("more codes", good, [1, 1, 12], 4),
                ("above 12", good, [13, 1, 2], 4),
                ("past its bytes", good, lengths, 9), ("past its bytes", b"", lengths, 1),
                ("past its bytes", b"\x80", lengths, 8), ("more bytes", good + b"\0", lengths, 4),
                ("behind its last", b"\x99", lengths, 4)):
            self.refuse(words, self.read_prefix, raw, own, count)

    def test_range_by_hand(self):
        """One symbol of frequency 64 of 256: 2^9 becomes 2^9/64·256 + the start, and no word is needed."""
        x, words = range_of([1], [128, 64, 64], 8)
        self.assertEqual((x, words), ([2 ** 9 * 4 + 128], []))
        self.assertEqual(write_frequencies([0, 1, 2, 5, 248, 0]), bytes([1, 4, 0x11, 0x2, 0b10_1_0]))
        self.assertEqual(write_frequencies([0] * 300 + [3]), bytes([44, 1, 44, 1]))
        self.assertEqual(ref.read_frequencies(write_frequencies([128, 64, 64]), 3, 8), ([128, 64, 64], 5))
        self.assertEqual(push(2 ** 30, words, 5, 1, 14), (2 ** 14 << 14) + 5)
        self.assertEqual(words, [0])

    def test_range_round_trips(self):
        rng = random.Random(6)
        for base, bits in ((2, 8), (3, 14), (11, 9), (17, 10), (239, 12), (256, 13), (512, 14)):
            for count in (1, 3, 4, 5, 31, 33, 400):
                symbols = [min(base - 1, int(rng.expovariate(4 / base))) for _ in range(count)]
                for states, segments in ((1, 1), (4, 1), (16, 1), (32, 1), *(((32, 2), (32, 5), (32, 13)) if count == 400 else ())):
                    body = ranged(symbols, base, bits, states, segments=segments)
                    self.assertEqual(ref.read_range(body[1:], base, body[0], count).tolist(), symbols)

    def test_bad_range(self):
        symbols, shares = [0, 1, 1, 2, 1, 1] * 50, [700, 2700, 696]
        (x, words), ahead = range_of(symbols, shares, 12), write_frequencies(shares)
        form = range_form(12, 1)[0]
        for words_of, raw in (
                ("leave nothing", write_frequencies([4000, 96, 1]) + pack_segment(x, words)),
                ("above the sum", b"\0\2\xff" + b"\xff" * 20), ("inside its sizes", ahead[:2]), ("first symbol", b""),
                ("inside its frequencies", ahead[:4]), ("of symbols 2 to 1", b"\2\1"), ("of symbols 0 to 3", b"\0\3\0\0"),
                ("no frequency", b"\0\2\x10\0" + pack_segment(x, words)), ("half byte", b"\1\2\x11\0"),
                ("behind their last", b"\0\2\x11\4"),
                ("inside its states", ahead + b"\0"), ("state of 0", ahead + pack_segment([0], words)),
                ("inside a word", ahead + pack_segment(x, words) + b"\0"),
                ("lacks a word", ahead + pack_segment(x, words[:-1])),
                ("left over", ahead + pack_segment(x, words + [7])),
                ("does not end", ahead + pack_segment(*range_of(symbols, shares, 12, ends=[8193])))):
            self.refuse(words_of, ref.read_range, raw, 3, form, len(symbols))
        for form in (1, 2, 0x7F, 0x80 - 16, 0xA1, 0xA3, 0xA6, 0xA7, 0xF0, 0xFF):
            self.refuse(f"unknown form {form}", ref.read_range, ahead + pack_segment(x, words), 3, form, len(symbols))
        self.refuse("behind its frequency", ref.read_range, b"\1\1\0", 3, range_form(12, 1)[0], 5)
        self.refuse("more than one state", ref.read_range, b"\1\1", 3, range_form(12, 4)[0], 5)

    def test_bad_segments(self):
        symbols, shares = [0, 1, 1, 2, 1, 1] * 50, [700, 2700, 696]
        ahead, form, body = write_frequencies(shares), range_form(12, 32)[0], ranged(symbols, 3, 12, 32, shares, 3)[1:]
        size = len(ahead)
        words = struct.unpack("<2H", body[size + 1:size + 5])
        self.assertEqual(ref.read_range(body, 3, form, 300).tolist(), symbols)
        for words_of, raw, count in (
                ("number of its segments", ahead, 300), ("lengths of its segments", body[:size + 4], 300),
                ("inside a segment", body[:size + 1] + b"\xff\xff" + body[size + 3:], 300),
                ("in 4 segments", ahead + b"\3" + body[size + 1:], 96),
                ("in 11 segments", ahead + b"\n" + body[size + 1:], 300),
                ("has 32800 symbols", ahead + b"\1" + body[size + 1:], 65570),
                ("inside its states", body[:size + 5 + 2 * sum(words) + 2 * 64 + 60], 300)):
            self.refuse(words_of, ref.read_range, raw, 3, form, count)
        self.refuse("has 1025 symbols", ref.read_range, ranged([0, 1] * 512 + [0], 2)[1:], 2, range_form(12, 1)[0], 1025)

    def test_lossless(self):
        """A word, turned left: the upper byte is the symbol."""
        self.assertEqual(turned_left([0xC0490FDB], 4), (b"\xb7\x1f\x92", [0x80]))
        self.assertEqual(turned_left([0xBF80, 0x0001], 2), (b"\x01\x02", [0x7F, 0]))
        rng = random.Random(7)
        for width in (2, 4):
            for count in (1, 2, 5, 300):
                words = [rng.randrange(256 ** width) for _ in range(count)]
                for states in (1, 4, 16, 32):
                    body = lossless(words, width, 14, states)
                    raw = ref.read_lossless(body[0], width, count, body[1:])
                    self.assertEqual(np.frombuffer(raw, f"<u{width}").tolist(), words)
            self.refuse("lower bytes", ref.read_lossless, body[0], width, 300, body[1:300 * (width - 1)])

    def test_zstd(self):
        frame = zstd_frame(b"abc", (7, 30), b"d")
        self.assertEqual(ref.read_zstd(1, 34, frame), b"abc" + b"\7" * 30 + b"d")
        for words, size, raw in (
                ("content of 34", 33, frame), ("no frame", 34, b""), ("no frame", 34, b"\0" + frame[1:]),
                ("damaged", 34, frame[:-1]), ("behind its frame", 34, frame + b"\0"),
                ("damaged", 40, zstd_frame((7, 30), size=40)), ("damaged", 20, zstd_frame((7, 30), size=20)),
                ("does not tell", 34, frame[:4] + b"\0\0" + frame[9:])):
            self.refuse(words, ref.read_zstd, 1, size, raw)
        self.refuse("unknown form 2", ref.read_zstd, 2, 34, frame)


class Groups(unittest.TestCase):
    def read(self, raw, base, count):
        return ref.read_groups(raw, base, *ref.group_of(base), count).tolist()

    def refuse(self, words, *arguments):
        with self.assertRaisesRegex(ref.FormatError, words):
            self.read(*arguments)

    def test_sizes(self):
        """Those that the page names, then all others by plainer means."""
        self.assertEqual([ref.group_of(base) for base in (3, 5, 9, 17)], [(5, 8), (3, 7), (5, 16), (8, 33)])
        for b in range(1, 10):
            self.assertEqual(ref.group_of(2 ** b), (1, b))
        for base in range(2, 513):
            self.assertEqual(ref.group_of(base), group_size(base))

    def test_by_hand(self):
        self.assertEqual(self.read(b"\x05\x02", 2, 10), [1, 0, 1, 0, 0, 0, 0, 0, 0, 1])
        self.assertEqual(self.read(bytes([0 + 3 * 1 + 9 * 2 + 27 * 2 + 81 * 1]), 3, 5), [0, 1, 2, 2, 1])
        self.assertEqual(self.read(bytes([2 + 3 * 1]), 3, 2), [2, 1])
        self.assertEqual(self.read(bytes([124 | 1 << 7, 0]), 5, 4), [4, 4, 4, 1])
        self.assertEqual(self.read(struct.pack("<I", 511 | 256 << 9)[:3], 512, 2), [511, 256])

    def test_round_trips(self):
        rng = random.Random(4)
        for base in [*range(2, 60), 255, 256, 257, 510, 511, 512]:
            for count in (0, 1, 2, 5, 8, 9, 63, 64, 65, 300):
                symbols = [rng.choice((0, base - 1, rng.randrange(base))) for _ in range(count)]
                raw = write_groups(symbols, base)
                layout = ref.Layout(None, None, base, *ref.group_of(base), 1, 0, "<f4")
                self.assertEqual((self.read(raw, base, count), len(raw)), (symbols, ref.symbols_len(layout, count)))
                self.assertGreaterEqual(ref.symbols_max(layout, len(raw)), count)
                self.assertTrue(not raw or ref.symbols_max(layout, len(raw) - 1) < count)

    def test_bad_groups(self):
        for base, (each, bits) in ((base, group_size(base)) for base in (3, 5, 6, 9, 11, 17, 31, 33, 101, 511)):
            largest = base ** each
            self.assertEqual(self.read(pack_groups([largest - 1], bits), base, each), [base - 1] * each)
            self.refuse("beyond its largest", pack_groups([largest], bits), base, each)
            self.refuse("beyond its largest", pack_groups([0, 2 ** bits - 1, 0], bits), base, 3 * each)
            for count in range(1, each):
                self.assertEqual(self.read(pack_groups([base ** count - 1], bits), base, count), [base - 1] * count)
                self.refuse("a symbol too many", pack_groups([base ** count], bits), base, count)
                self.refuse("a symbol too many", pack_groups([0, largest - 1], bits), base, each + count)
            if bits % 8:
                self.refuse("behind their last", pack_groups([0, 1], bits)[:(bits + 7) // 8], base, each)
                self.refuse("behind their last", pack_groups([0] * 3 + [1], bits)[:(3 * bits + 7) // 8], base, 3 * each)
        self.refuse("behind their last", b"\x08", 2, 3)
        self.refuse("behind their last", b"\xff\x80", 2, 9)


class Rounding(unittest.TestCase):
    def bf16(self, *bits):
        return ref.to_dtype(np.array(bits, np.uint32).view(np.float32), "bf16").tolist()

    def test_bf16(self):
        self.assertEqual(self.bf16(0x3F808000, 0x3F818000, 0x3F808001, 0x3F807FFF, 0x80000001, 0x00018000),
                         [0x3F80, 0x3F82, 0x3F81, 0x3F80, 0x8000, 0x0002])
        self.assertEqual(self.bf16(0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000), [0x7F7F, 0xFF7F, 0x7F80, 0xFF80])
        for bits in self.bf16(0x7F800001, 0xFFFFFFFF, 0x7FC00000):
            self.assertTrue(bits & 0x7F80 == 0x7F80 and bits & 0x7F)

    def test_fp16(self):
        values = np.array([65504, 65519, 65520, -1e9, 2049, 2051, 2 ** -25, 1.5 * 2 ** -24], np.float32)
        self.assertEqual(ref.to_dtype(values, "fp16").tolist(),
                         [65504, 65504, 65504, -65504, 2048, 2052, 0, 2 ** -23])


# ---- Whole frames ----------------------------------------------------------------------------------------------------

class Frames(unittest.TestCase):
    def check(self, frame, expected):
        info, arrays = ref.decode(frame)
        self.assertEqual(len(arrays), 1)
        self.assertEqual(arrays[0][0], "w")
        np.testing.assert_array_equal(arrays[0][1].reshape(-1), expected)
        return info, arrays[0][1]

    def test_every_mode(self):
        m = 40
        for mode in list(range(19)) + [ref.BITMAP, ref.RUNS, ref.EVERY]:
            positions = list(range(m)) if mode == ref.EVERY else [0, 1, 2, 17, 30, 31, 39]
            values = [i + 0.5 for i in range(len(positions))]
            expected = np.zeros(m, np.float32)
            expected[positions] = values
            chunk = write_chunk(mode, positions, m, floats(values))
            info, array = self.check(single("ef+topk@0.2+fp32", (5, 8), [chunk], step=2 ** 40), expected)
            self.assertEqual((array.shape, array.dtype), ((5, 8), np.float32))
            self.assertEqual((info["entries"], info["step"], info["rank"]), (len(positions), 2 ** 40, 3))
            self.assertEqual(info["recipes"], ["ef+topk@0.2+fp32"])

    def test_bitmap_pack(self):
        chunk = write_chunk(ref.BITMAP, [2, 9], 11, floats([1, -2]))
        self.check(single("threshold@1+fp32+bitmap", (11,), [chunk]), [0, 0, 1] + [0] * 6 + [-2, 0])
        self.check(single("threshold@1+fp32+bitmap", (11,), [chunk_header(0, 0, 0)]), [0] * 11)

    def test_quantizers_and_dtypes(self):
        self.check(single("fp16", (2,), [struct.pack("<2e", 1.5, -0.25)]), [1.5, -0.25])
        self.check(single("bf16", (2,), [struct.pack("<2H", 0x3FC0, 0xC000)]), [1.5, -2])
        _, array = self.check(single("fp32", (2,), [floats([70000, 1 / 3])], dtype=1), np.array([65504, 1 / 3], "f2"))
        self.assertEqual(array.dtype, np.float16)
        info, array = self.check(single("fp32", (2,), [floats([1.00390625, -2])], dtype=2), [0x3F80, 0xC000])
        self.assertEqual((array.dtype, info["tensors"][0]["dtype"]), (np.uint16, "bf16"))

    def test_signs(self):
        self.check(single("sign", (9,), [signed(1.5, [0, 1, 0, 0, 0, 0, 0, 0, 1])]), [1.5, -1.5] + [1.5] * 6 + [-1.5])
        chunk = write_chunk(2, [1, 3, 4], 6, signed(-0.5, [1, 0, 1]))
        self.check(single("ef+topk@0.5+sign", (6,), [chunk]), [0, 0.5, 0, -0.5, 0.5, 0])
        self.check(single("topk@0.5+sign", (6,), [chunk_header(0, 0, 0)]), [0] * 6)
        at = draw_plainly("randomk", 4, 0, 0, 20, 0.25)
        expected = np.zeros(20)
        expected[at] = [2, 2, -2, 2, -2]
        self.check(single("randomk@0.25,coords=shared+sign", (20,), [signed(2, [0, 0, 1, 0, 1])], 4), expected)
        _, array = self.check(single("sign", (2,), [signed(70000, [0, 1])], dtype=1), [65504, -65504])
        self.assertEqual(array.dtype, np.float16)

    def test_any_scale(self):
        for bits in (0, 0x80000000, 1, 0x7F800000, 0xFF7FFFFF):
            _, array = ref.decode(single("sign", (2,), [struct.pack("<I", bits) + b"\2"]))[1][0]
            self.assertEqual(array.view(np.uint32).tolist(), [bits, bits ^ 0x80000000])
        _, array = ref.decode(single("sign", (2,), [struct.pack("<I", 0x7F800001) + b"\2"]))[1][0]
        self.assertEqual(array.view(np.uint32).tolist(), [0x7FC00001, 0xFFC00001])

    def test_buckets(self):
        """Each quantizer with two buckets, the second one short."""
        inf = float("inf")
        for text, numbers, symbols, base, expected in (
                ("bingrad@b,bucket=3", [-1, 2, 5, 0.25], [1, 0, 1, 0, 1], 2, [2, -1, 2, 5, 0.25]),
                ("bingrad@zero,bucket=3", [-1, 2, 5, 0.25], [1, 0, 1, 0, 1], 2, [2, -1, 2, 5, 0.25]),
                ("bingrad@pb,bucket=3", [1.5, -4], [1, 0, 1, 0, 1], 2, [1.5, -1.5, 1.5, 4, -4]),
                ("orq@3,bucket=3", [-1, 0.5, 7, 4, 3, 2], [2, 0, 1, 2, 0], 3, [7, -1, 0.5, 2, 4]),
                ("orq@2,bucket=3,levels=exact", [-1, 0.5, 7, 4], [1, 0, 1, 0, 1], 2, [0.5, -1, 0.5, 7, 4]),
                ("linear@5,bucket=3", [-1, 1, 8, 0], [0, 4, 3, 1, 2], 5, [-1, 1, 0.5, 6, 4]),
                ("linear@2,bucket=3", [-1, 1, 8, 0], [0, 1, 0, 1, 0], 2, [-1, 1, -1, 0, 8]),
                ("linear@256,bucket=3", [0, 255, -255, 0], [0, 255, 7, 255, 1], 256, [0, 255, 7, 0, -254]),
                ("qsgd@2,bucket=3", [8, -1], [0, 1, 2, 3, 4], 5, [-8, -4, 0, -0.5, -1]),
                ("qsgd@1,bucket=3,norm=max", [3, 0], [0, 1, 2, 0, 2], 3, [-3, 0, 3, 0, 0]),
                ("qsgd@255,bucket=3", [255, 510], [0, 510, 256, 255, 254], 511, [-255, 255, 1, 0, -2]),
                ("ternary@bucket=3", [5, -2], [0, 1, 2, 0, 2], 3, [-5, 0, 5, 2, -2]),
                ("ternary@bucket=3", [inf, 1], [0, 2, 2, 1, 2], 3, [-inf, inf, inf, 0, 1]),
                ("natural", [], [127, 256 + 128, 0, 128, 511], 512, [1, -2, 0, 2, -inf])):
            chunk = bucketed(numbers, symbols, base)
            self.check(single(text, (5,), [chunk]), expected)
            told = raw_chunk(5, ref.BITMAP, chunk, b"\x5d")
            self.check(single("topk@0.5+" + text, (8,), [told]),
                       [expected[0], 0, *expected[1:4], 0, expected[4], 0])
            if len(numbers) > 1:
                self.check(single(text.replace("bucket=3", "bucket=5"), (3,), [bucketed(
                    numbers[:len(numbers) // 2], symbols[:3], base)]), expected[:3])

    def test_levels_of_half(self):
        levels = struct.pack("<6e", -1, 0.5, 7, 65504, 2 ** -24, -0.0)
        _, array = self.check(single("orq@3,bucket=2,half=yes", (4,), [levels + write_groups([2, 0, 0, 1], 3)]),
                              [7, -1, 65504, 2 ** -24])
        self.assertEqual(array.dtype, np.float32)

    def test_buckets_of_64_thousand_and_natural(self):
        """Buckets start anew in each chunk."""
        n, size = CHUNK + 3, 65536
        counts = [CHUNK // size, 1]
        chunks = [bucketed(range(1, counts[0] + 1), [2] * CHUNK, 3), bucketed([9], [2, 0, 1], 3)]
        self.check(single("ternary@bucket=65536", (n,), chunks), [i // size + 1 for i in range(CHUNK)] + [9, -9, 0])
        self.check(single("natural", (5000,), [write_groups([130] * 5000, 512)]), [8] * 5000)

    def test_values_are_rounded_once(self):
        third, large = np.float32(1 / 3), np.float32(3e38)
        for text, numbers, symbols, base, expected in (
                ("linear@4", [0.1, 0.7], [0, 1, 2, 3], 4,
                 [np.float32(0.1) + (np.float64(np.float32(0.7)) - np.float32(0.1)) * (x / 3) for x in range(4)]),
                ("linear@3", [-large, large], [0, 1, 2], 3, [-large, 0, large]),
                ("linear@3", [1e-45, 3e-45], [0, 1, 2], 3, [1e-45, 3e-45, 3e-45]),
                ("qsgd@3", [third], [0, 1, 2, 3, 4, 5, 6], 7, [np.float64(third) * ((x - 3) / 3) for x in range(7)])):
            self.check(single(text, (len(symbols),), [bucketed(numbers, symbols, base)]),
                       np.array(expected, np.float32))

    def test_signs_of_zero(self):
        for text, numbers, base, bits in (
                ("ternary", [-1], 3, [0x3F800000, 0x80000000, 0xBF800000]), ("ternary", [0], 3, [1 << 31, 0, 0]),
                ("qsgd@1", [0], 3, [1 << 31, 0, 0]), ("qsgd@1", [-1], 3, [0x3F800000, 1 << 31, 0xBF800000]),
                ("orq@3", [-0.0, 0, 1], 3, [1 << 31, 0, 0x3F800000]), ("linear@3", [-0.0, -0.0], 3, [0, 0, 0]),
                ("bingrad@pb", [0], 2, [1 << 31, 0]), ("natural", [], 512, [0, 1 << 23])):
            _, array = ref.decode(single(text, (len(bits),), [bucketed(numbers, range(len(bits)), base)]))[1][0]
            self.assertEqual(array.view(np.uint32).tolist(), bits)

    def test_any_number(self):
        """Values that are not computed keep their bits, except signalling NaNs."""
        for bits in (0, 0x80000000, 1, 0x7F800000, 0xFF7FFFFF, 0x7FC12345):
            raw = struct.pack("<I", bits)
            for text, numbers, other in (("bingrad@b", raw * 2, bits), ("bingrad@zero", raw * 2, bits),
                                         ("bingrad@pb", raw, bits ^ 0x80000000), ("orq@2,levels=exact", raw * 2, bits)):
                _, array = ref.decode(single(text, (2,), [numbers + b"\2"]))[1][0]
                self.assertEqual(array.view(np.uint32).tolist(), [other, bits])
        for text, numbers, base in (("linear@3", [np.nan, 1], 3), ("linear@3", [1, np.nan], 3), ("qsgd@1", [np.nan], 3),
                                    ("ternary", [np.nan], 3), ("linear@3", [np.inf, np.inf], 3)):
            _, array = ref.decode(single(text, (3,), [bucketed(numbers, [1, 1, 1], base)]))[1][0]
            self.assertTrue(np.isnan(array).all())

    def test_buckets_at_coordinates_that_are_drawn(self):
        at = draw_plainly("randomk", 4, 0, 0, 20, 0.25)
        expected = np.zeros(20)
        expected[at] = [1, 2, -1, 4, 3]
        chunk = bucketed([-1, 1, 2, 3, 4, 5], [1, 2, 0, 1, 0], 3)
        self.check(single("randomk@0.25,coords=shared+orq@3,bucket=3", (20,), [chunk], 4), expected)

    def test_tiny_floats(self):
        """Values of fp4 by hand; of fp8 how many there are, and both ends."""
        for text, base, step, symbols, expected in (
                ("fp4", 11, 1, range(11), [-3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3]),
                ("fp4", 11, -0.5, [0, 5, 10], [1.5, 0, -1.5]),
                ("fp4", 11, 3e38, [0, 10], [-3.4028235e38, 3.4028235e38]),
                ("fp8@e5m2", 247, 2, [0, 122, 123, 124, 246], [-114688, -2.0 ** -15, 0, 2.0 ** -15, 114688]),
                ("fp8@e4m3", 239, 1, [0, 118, 119, 120, 128, 238],
                 [-30, -2.0 ** -12, 0, 2.0 ** -12, 9 * 2.0 ** -12, 30])):
            expected = np.array(expected, np.float32)
            chunk = fitted(step, 255) + write_groups(list(symbols), base)
            self.check(single(text, (len(expected),), [chunk]), expected)
        _, array = ref.decode(single("fp4", (2,), [fitted(-1) + write_groups([5, 4], 11)]))[1][0]
        self.assertEqual(array.view(np.uint32).tolist(), [1 << 31, 0x3F000000])
        _, array = ref.decode(single("fp4", (3,), [fitted(np.nan) + write_groups([0, 5, 10], 11)]))[1][0]
        self.assertTrue(np.isnan(array).all())

    def test_coded(self):
        n = 400
        trits = [int(i % 7 != 3) + int(i % 11 == 5) for i in range(n)]
        values = [trit - 1 for trit in trits]
        halves = [0x3C00 + i % 3 for i in range(n)]
        floats_of = np.array(halves, "<u2").view("<f2").astype(np.float32)
        one = floats([1])
        for text, chunk, expected in (
                ("ternary+huffman@counts", coded(prefixed(trits, [2, 1, 2]), one), values),
                ("ternary+huffman@counts", coded(b"\0" + write_groups(trits, 3), one), values),
                ("ternary+rans", coded(ranged(trits, 3), one), values),
                ("ternary+rans", coded(ranged(trits, 3, 8, 4), one), values),
                ("fp16+lossless", coded(lossless(halves, 2)), floats_of),
                ("ternary+zstd@3", coded(b"\1" + zstd_frame((2, n)), one), [1] * n),
                ("natural+zstd@9", coded(b"\1" + zstd_frame((0, 2 * n))), [0] * n)):
            self.check(single(text, (n,), [chunk]), expected)
            self.check(single("topk@0.5+" + text, (n + 1,), [raw_chunk(n, ref.BITMAP, chunk, b"\xff" * 50 + b"\0")]),
                       [*expected, 0])
            self.check(single("topk@0.5+" + text, (n,), [chunk_header(0, 0, 0) + coded(b"")]), [0] * n)
            self.check(single("randomblock@1,coords=shared+" + text, (n,), [chunk], 5), expected)

    def test_codes_of_the_table(self):
        rows = ref.lengths_of_shapes("fp4")
        symbols = [5] * 300
        for row in (0, len(rows) - 1):
            chunk = coded(b"\2" + write_codes(symbols, rows[row]), fitted(1, row))
            self.check(single("fp4+huffman@model", (300,), [chunk]), [0] * 300)

    def test_geometric_indices(self):
        positions = [0, 1, 2, 17, 30, 31, 39]
        expected = np.zeros(40)
        expected[positions] = range(1, 8)
        chunk = write_chunk(ref.GEOMETRIC, positions, 40, floats(range(1, 8)))
        self.check(single("topk@0.2+fp32+rans", (40,), [chunk]), expected)
        self.check(single("topk@0.2+fp32+rans", (40,), [write_chunk(3, positions, 40, floats(range(1, 8)))]), expected)

    def test_places(self):
        expected = np.zeros(40)
        expected[[0, 1, 17, 30, 39]] = [3, -3, -3, 3, 3]
        for text, mode in (("ef+adabins@10+sign@scale=meanmax+adacomp8", ref.PLACES8),
                           ("adabins@10,weight=1.5+sign+adacomp16", ref.PLACES16)):
            places = write_places([0, 1, 17, 30, 39], [0, 1, 1, 0, 0], 10, mode)
            info, _ = self.check(single(text, (40,), [raw_chunk(5, mode, floats([3]), places)]), expected)
            self.assertEqual((info["entries"], info["recipes"]), (5, [text]))
            chunk = write_chunk(ref.BITMAP, [0, 1, 17, 30, 39], 40, signed(3, [0, 1, 1, 0, 0]))
            self.check(single(text, (40,), [chunk]), expected)
            self.check(single(text, (40,), [chunk_header(0, 0, 0)]), [0] * 40)

    def test_cells_start_anew_in_each_chunk(self):
        expected = np.zeros(CHUNK + 40)
        expected[[CHUNK - 1, CHUNK + 3, CHUNK + 33]] = [-2, 5, -5]
        chunks = [raw_chunk(1, ref.PLACES8, floats([2]), write_places([CHUNK - 1], [1], 30, ref.PLACES8)),
                  raw_chunk(2, ref.PLACES8, floats([5]), write_places([3, 33], [0, 1], 30, ref.PLACES8))]
        self.check(single("adabins@30+sign+adacomp8", (CHUNK + 40,), chunks), expected)

    def test_bins_of_any_quantizer_and_pack(self):
        chunk = write_chunk(2, [1, 3], 6, floats([8, 9]))
        for text in ("adabins@1+fp32", "ef+adabins@16384,scope=model,coords=shared,weight=1e2+fp32"):
            self.check(single(text, (6,), [chunk]), [0, 8, 0, 9, 0, 0])
        chunk = write_chunk(ref.BITMAP, [1, 3], 6, signed(1, [0, 1]))
        self.check(single("adabins@500+sign@scale=meanmax+bitmap", (6,), [chunk]), [0, 1, 0, -1, 0, 0])

    def test_shapes(self):
        _, array = self.check(single("fp32", (), [floats([4])]), [4])
        self.assertEqual(array.shape, ())
        _, array = self.check(single("topk@0.01+fp32", (3, 0), []), [])
        self.assertEqual(array.shape, (3, 0))
        self.assertEqual(ref.decode(write_frame(write_description([], []), []))[1], [])

    def test_many_chunks(self):
        n = 2 * CHUNK + 5
        expected = np.zeros(n, np.float32)
        expected[[7, CHUNK - 1, 2 * CHUNK + 4]] = [1, 2, 3]
        chunks = [write_chunk(10, [7, CHUNK - 1], CHUNK, floats([1, 2])), chunk_header(0, 0, 0),
                  write_chunk(0, [4], 5, floats([3]))]
        self.check(single("topk@0.01+fp32", (n,), chunks), expected)
        dense = np.arange(n, dtype=np.float32)
        self.check(single("fp32", (n,), [dense[i:i + CHUNK].tobytes() for i in range(0, n, CHUNK)]), dense)

    def test_drawn(self):
        n, seed, step = CHUNK + 1000, 0xFEDCBA9876543210, 77
        for select, ratio in (("randomk", 0.01), ("randomk", 0.00001), ("randomblock", 0.01), ("randomblock", 0.9)):
            coordinates = draw_plainly(select, seed, step, 0, n, ratio)
            expected = np.zeros(n, np.float32)
            expected[coordinates] = np.arange(len(coordinates)) + 1
            chunks = [expected[[i for i in coordinates if i // CHUNK == c]].tobytes() for c in (0, 1)]
            text = f"{select}@{ref.write_number(ratio)},coords=shared+fp32"
            info, _ = self.check(single(text, (n,), chunks, seed, step=step), expected)
            self.assertEqual((info["entries"], info["seed"]), (len(coordinates), seed))

    def test_random_with_coordinates_of_its_own(self):
        chunk = write_chunk(2, [1, 3], 6, floats([8, 9]))
        self.check(single("randomk@0.5,coords=own+fp32", (6,), [chunk], 0), [0, 8, 0, 9, 0, 0])

    def test_units(self):
        """Two recipes of scope model, woven into each other and a third; the units number 0 (a, d), 1 (b), 2 (c, e)."""
        recipes = ["topk@0.01,scope=model+fp32", "fp16", "randomk@0.5,scope=model,coords=shared+fp32"]
        tensors = [("a", (2, 2), 0), ("b", (2,), 1, 1), ("c", (3,), 2, 2), ("d", (2,), 0), ("e", (5,), 2)]
        drawn = draw_plainly("randomk", 6, 1, 2, 8, 0.5)
        unit = np.zeros(8, np.float32)
        unit[drawn] = [1, 2, 3, 4]
        chunks = [write_chunk(0, [3, 5], 6, floats([5, 6])), struct.pack("<2e", 7, 8), unit[drawn].tobytes()]
        info, arrays = ref.decode(write_frame(write_description(recipes, tensors, 6), chunks, step=1))
        self.assertEqual([name for name, _ in arrays], list("abcde"))
        arrays = dict(arrays)
        self.assertEqual(arrays["a"].tolist(), [[0, 0], [0, 5]])
        self.assertEqual(arrays["b"].tolist(), [7, 8])
        self.assertEqual(arrays["d"].tolist(), [0, 6])
        self.assertEqual((arrays["c"].astype(np.uint32) << 16).view(np.float32).tolist(), unit[:3].tolist())
        self.assertEqual(arrays["e"].tolist(), unit[3:].tolist())
        self.assertEqual(info["entries"], 8)


class Refusals(unittest.TestCase):
    def refuse(self, words, frame):
        with self.assertRaisesRegex(ref.FormatError, words) as caught:
            ref.decode(frame)
        self.assertNotIn("\n", str(caught.exception))

    def test_header(self):
        chunk = floats([1])
        for words, changes in (
                ("magic", dict(magic=b"TGFQ")), ("version 3", dict(version=3)), ("version 5", dict(version=5)),
                ("flag", dict(flags=15)),
                ("neither", dict(flags=1)), ("both", dict(flags=3)), ("both", dict(flags=5)),
                ("has a description", dict(flags=6)), ("zero field", dict(zero=1)),
                ("0 slices", dict(slices=0)), ("slice 2 of 2", dict(slice=2, slices=2)),
                ("slice 0 of 1", dict(slice=1, slices=2)), ("frame_len", dict(frame_len=99)),
                ("not fit", dict(description_len=2 ** 32 - 1)), ("fingerprint", dict(fingerprint=5))):
            self.refuse(words, single("fp32", (1,), [chunk], **changes))
        self.refuse("described", write_frame(b"", [], flags=6))
        self.refuse("at least 56", b"")
        self.refuse("frame_len", single("fp32", (1,), [chunk]) + b"\0")
        self.refuse("behind its last chunk", single("fp32", (1,), [chunk], tail=b"\0"))
        good = single("fp32", (1,), [chunk])
        self.refuse("checksum", good[:-1] + bytes([good[-1] ^ 1]))
        self.refuse("checksum", single("fp32", (1,), [chunk[:2], chunk[2:]]))

    def test_description(self):
        one, tensor = ["fp32"], ("w", (1,))
        for words, description in (
                ("ends inside", b""), ("ends inside", write_description(one, [tensor])[:-1]),
                ("has_seed", b"\2" + write_description(one, [tensor])[1:]),
                ("seed is not 0", b"\0\1" + write_description(one, [tensor])[2:]),
                ("behind its last tensor", write_description(one, [tensor]) + b"\0"),
                ("recipe number 0 of 0", write_description([], [tensor])),
                ("recipe number 1 of 1", write_description(one, [("w", (1,), 1)])),
                ("used by no tensor", write_description(["fp32", "fp16"], [tensor])),
                ("used by no tensor", write_description(one, [])),
                ("order of their first use", write_description(["fp32", "fp16"], [("w", (1,), 1), ("v", (1,), 0)])),
                ("same text", write_description(["fp32", "fp32"], [("w", (1,), 0), ("v", (1,), 1)])),
                ("same name", write_description(one, [tensor, tensor])),
                ("0 bytes long", write_description(one, [("", (1,))])),
                ("256 bytes long", write_description(one, [("x" * 256, (1,))])),
                ("byte 0", write_description(one, [("a\0b", (1,))])),
                ("dtype 3", write_description(one, [("w", (1,), 0, 3)])),
                ("kind 7", write_description(one, [("w", (1,), 0, 0, 7)])),
                ("65 dimensions", write_description(one, [("w", (1,) * 65)])),
                (r"2\^60", write_description(one, [("w", (2 ** 60 + 1,))])),
                (r"2\^60", write_description(one, [("w", (2 ** 59,)), ("v", (2 ** 59 + 1,))])),
                (r"2\^60", write_description(one, [("w", (2 ** 63, 2 ** 63, 4))]))):
            self.refuse(words, write_frame(description, [floats([1])]))

    def test_recipe_text(self):
        for words, text in (
                ("empty", ""), ("printable", "fp32\n"), ("printable", "fp\xe932"), ("unknown part", "fp64"),
                ("unknown part", "fp32+"), ("unknown part", "+fp32"), ("out of order", "fp32+topk"),
                ("two of one stage", "topk@0.01+threshold@1+fp32"), ("no quantizer", "topk@0.1"),
                ("default part 'none'", "none+fp32"), ("default part 'all'", "all+fp32"),
                ("default part 'gaps'", "fp32+gaps"), ("default part 'bits'", "fp32+bits"),
                ("malformed", "topk@+fp32"), ("malformed", "topk@0.1,+fp32"), ("malformed", "topk@a=b=c+fp32"),
                ("without key behind", "topk@0.01,scope=model,0.1+fp32"),
                ("twice", "topk@0.01,scope=model,scope=model+fp32"),
                ("default scope", "topk@0.01,scope=tensor+fp32"), ("scope=world", "topk@0.01,scope=world+fp32"),
                ("default coords", "threshold@1,coords=own+fp32"), ("coords=auto", "topk@0.01,coords=auto+fp32"),
                ("coords=auto", "randomk@0.01+fp32"), ("coords=auto", "randomk@0.01,coords=auto+fp32"),
                ("with a key", "randomk@ratio=0.1,coords=own+fp32"), ("no main", "ef@0.5+fp32"), ("no main", "fp32@1"),
                ("lacks its main", "threshold+fp32"), ("lacks its main", "topk+fp32"),
                ("lacks its main", "randomk@coords=own+fp32"), ("has feedback", "ef+randomk@0.1,coords=own,unbiased=yes+fp32"), ("unknown parameter", "topk@0.1,unbiased=yes+fp32"),
                ("order", "topk@0.1,coords=shared,scope=model+fp32"),
                ("default unbiased", "randomk@0.01,coords=own,unbiased=no+fp32"),
                ("default decay", "ef@decay=1+fp32"), ("decay outside", "ef@decay=1.5+fp32"),
                ("T outside", "threshold@1e39+fp32"), ("T outside", "threshold@-1+fp32"),
                ("canonical", "threshold@-0+fp32"),
                ("no indices", "fp32+bitmap"), ("more than 255", "topk@0." + "1" * 250 + "+fp32"),
                ("canonical", "topk@1e-05+fp32"), ("canonical", "topk@0.00001+fp32"), ("canonical", "topk@5e-1+fp32"),
                ("canonical", "threshold@100+fp32"), ("none, or", "topk@0.1.1+fp32"),
                ("ratio outside", "randomblock@0,coords=own+fp32"),
                ("ratio outside", "randomblock@1.5,coords=own+fp32"),
                ("canonical", "randomk@.5,coords=own+fp32"), ("canonical", "randomk@0.50,coords=own+fp32"),
                ("canonical", "randomk@00.5,coords=own+fp32"), ("canonical", "randomk@nan,coords=own+fp32"),
                ("canonical", "randomk@0.10000000000000001,coords=own+fp32"), ("canonical", "topk@0.10+fp32"),
                ("beyond", "topk@1e999+fp32"), ("no seed", "randomk@0.01,coords=shared+fp32")):
            self.refuse(words, single(text, (1,), [floats([1])]))

    def test_recipe_text_of_bins_and_signs(self):
        for words, text in (
                ("bin=auto", "adabins@auto+sign"), ("lacks its main", "adabins+sign"),
                ("lacks its main", "adabins@weight=3+sign"), ("with a key", "adabins@bin=50+sign"),
                ("plain digits", "adabins@5e2+sign"), ("plain digits", "adabins@1e1+sign"),
                ("plain digits", "adabins@050+sign"), ("plain digits", "adabins@50.0+sign"),
                ("plain digits", "adabins@1.5+sign"), ("plain digits", "adabins@-1+sign"),
                ("plain digits", "adabins@50.+sign"), ("plain digits", "adabins@nan+sign"),
                ("bin outside", "adabins@0+sign"), ("bin outside", "adabins@16385+sign"),
                ("bin outside", "adabins@" + "9" * 200 + "+sign"),
                ("has conv", "adabins@50,conv=64+sign"), ("has other", "adabins@50,other=64+sign"),
                ("default conv", "adabins@50,conv=50+sign"), ("default other", "adabins@50,other=500+sign"),
                ("plain digits", "adabins@50,conv=6e1+sign"), ("other outside", "adabins@50,other=0+sign"),
                ("conv=auto", "adabins@50,conv=auto+sign"), ("default weight", "adabins@50,weight=2+sign"),
                ("canonical", "adabins@50,weight=100+sign"), ("canonical", "adabins@50,weight=3.0+sign"),
                ("weight outside", "adabins@50,weight=0.5+sign"), ("weight outside", "adabins@50,weight=101+sign"),
                ("out of order", "adabins@50,weight=3,scope=model+sign"),
                ("coords=auto", "adabins@50,coords=auto+sign"),
                ("default scope", "adabins@50,scope=tensor+sign"), ("unknown parameter", "topk@0.5,bin=50+sign"),
                ("default scale", "adabins@50+sign@scale=mean"), ("scale=max", "adabins@50+sign@scale=max"),
                ("and feedback", "ef+adabins@50+sign@scale=one"), ("and feedback", "ef+sign@scale=one"),
                ("and feedback", "ef@decay=0.5+topk@0.5+sign@scale=one"), ("scale=two", "sign@scale=two"),
                ("no main", "adabins@50+sign@meanmax"), ("unknown parameter", "topk@0.5+fp32@scale=mean"),
                ("no bins", "topk@0.5+sign@scale=meanmax"), ("no bins", "sign@scale=meanmax"),
                ("too large", "adabins@65+sign+adacomp8"), ("too large", "adabins@16384+sign+adacomp8"),
                ("without adabins", "topk@0.5+sign+adacomp8"), ("without sign", "adabins@50+fp32+adacomp8"),
                ("without adabins", "topk@0.5+sign+adacomp16"), ("without sign", "adabins@50+bf16+adacomp16"),
                ("no indices", "sign+adacomp8"), ("two of one stage", "adabins@50+sign+adacomp8+adacomp16"),
                ("two of one stage", "topk@0.5+adabins@50+sign"), ("no quantizer", "ef+adabins@50"),
                ("unknown part", "adacomp")):
            self.refuse(words, single(text, (1,), [raw_chunk(1, ref.BITMAP, signed(1, [1]), b"\1")]))

    def test_recipe_text_of_momentum_and_warmup(self):
        for words, text in (
                ("lacks its main", "momentum+fp32"), ("with a key", "momentum@m=0.5+fp32"),
                ("m outside", "momentum@1.5+fp32"), ("m outside", "momentum@-0.5+fp32"),
                ("default clip", "momentum@0.9,clip=0+fp32"), ("clip outside", "momentum@0.9,clip=1e31+fp32"),
                ("unknown parameter", "momentum@0.9,decay=0.5+fp32"), ("two of one stage", "ef+momentum@0.9+fp32"),
                ("has feedback", "momentum@0.9+randomk@0.1,coords=own,unbiased=yes+fp32"),
                ("and feedback", "momentum@0.9+sign@scale=one"), ("default warmup", "topk@0.1,warmup=0+fp32"),
                ("plain digits", "topk@0.1,warmup=1e3+fp32"), ("warmup outside", "topk@0.1,warmup=1000000001+fp32"),
                ("out of order", "topk@0.1,warmup=5,scope=model+fp32"),
                ("unknown parameter", "threshold@1,warmup=5+fp32"),
                ("unknown part", "lowrank@4"), ("unknown part", "ef+lowrank@4")):
            self.refuse(words, single(text, (1,), [floats([1])]))
        ref.decode(single("momentum@0.9+fp32", (1,), [floats([1])]))
        ref.decode(single("momentum@0,clip=1e30+topk@0.1,scope=model,coords=shared,warmup=1000000000+fp32", (1,),
                          [chunk_header(0, 0, 0)]))

    def test_recipe_text_of_buckets(self):
        for words, text in (
                ("lacks its main", "bingrad"), ("lacks its main", "bingrad@bucket=7"), ("lacks its main", "orq"),
                ("lacks its main", "linear"), ("lacks its main", "qsgd@norm=max"), ("no main", "ternary@3"),
                ("no main", "natural@512"), ("unknown parameter", "natural@bucket=7"), ("no main", "sign@one"),
                ("with a key", "bingrad@form=b"), ("with a key", "orq@S=9"), ("with a key", "linear@S=4,bucket=7"),
                ("form=c", "bingrad@c"), ("form=2", "bingrad@2"), ("form=auto", "bingrad@auto"),
                ("levels=best", "orq@9,levels=best"), ("half=so", "orq@9,half=so"), ("norm=l1", "qsgd@4,norm=l1"),
                ("plain digits", "linear@1.6e1"), ("plain digits", "linear@2e1"), ("plain digits", "qsgd@16.0"),
                ("plain digits", "orq@09"), ("plain digits", "orq@-9"), ("plain digits", "linear@4,bucket=1e3"),
                ("plain digits", "ternary@bucket=7.5"), ("plain digits", "bingrad@b,iters=1e1"),
                ("S outside", "orq@1,levels=exact"), ("S outside", "orq@18,levels=exact"), ("S outside", "orq@33"),
                ("S outside", "linear@1"), ("S outside", "linear@257"), ("S outside", "qsgd@0"),
                ("S outside", "qsgd@256"), ("S outside", "linear@" + "9" * 200),
                ("bucket outside", "bingrad@b,bucket=0"), ("bucket outside", "bingrad@pb,bucket=65537"),
                ("bucket outside", "orq@9,bucket=0"), ("bucket outside", "ternary@bucket=65537"),
                ("bucket outside", "linear@4,bucket=0"), ("bucket outside", "qsgd@4,bucket=99999999999999999999"),
                ("iters outside", "bingrad@b,iters=101"), ("clip outside", "bingrad@b,clip=1001"),
                ("clip outside", "ternary@clip=-1"), ("clip outside", "orq@9,clip=1e4"),
                ("canonical", "linear@4,clip=10"), ("canonical", "qsgd@4,clip=1000"),
                ("canonical", "ternary@clip=2.50"), ("canonical", "ternary@clip=-0"),
                ("default bucket", "bingrad@b,bucket=2048"), ("default bucket", "ternary@bucket=2048"),
                ("default iters", "bingrad@b,iters=3"), ("default clip", "linear@4,clip=0"),
                ("default levels", "orq@9,levels=greedy"), ("default half", "orq@9,half=no"),
                ("default norm", "qsgd@4,norm=l2"), ("out of order", "bingrad@b,iters=4,bucket=7"),
                ("out of order", "bingrad@b,clip=1,iters=4"), ("out of order", "orq@9,half=yes,levels=exact"),
                ("out of order", "orq@9,levels=exact,bucket=7"), ("out of order", "orq@9,clip=1,half=yes"),
                ("out of order", "qsgd@4,clip=1,norm=max"), ("out of order", "ternary@clip=1,bucket=7"),
                ("twice", "ternary@bucket=7,bucket=7"), ("unknown parameter", "linear@4,norm=max"),
                ("unknown parameter", "orq@9,iters=4"), ("unknown parameter", "ternary@S=3"),
                ("unknown parameter", "fp16@bucket=7"), ("unknown parameter", "sign@bucket=7"),
                *(("greedy levels", f"orq@{s}") for s in set(range(2, 18)) - {3, 5, 9, 17}),
                ("greedy levels", "orq@4,bucket=7,half=yes"), ("two of one stage", "orq@9+fp16"),
                ("no indices", "orq@9+bitmap"), ("without adabins or without sign", "adabins@50+orq@9+adacomp8"),
                ("without adabins or without sign", "adabins@50+natural+adacomp16"),
                ("two of one stage", "ternary+sign")):
            self.refuse(words, single(text, (1,), [floats([1])]))

    def test_recipe_text_of_buckets_that_is_right(self):
        for text, base, numbers in (
                ("bingrad@b", 2, 2), ("bingrad@pb,bucket=1,iters=0,clip=1e3", 2, 1),
                ("bingrad@zero,bucket=65536,iters=100,clip=1e-300", 2, 2), ("orq@17", 17, 17),
                ("orq@3,half=yes", 3, 1.5),
                *((f"orq@{s},levels=exact", s, s) for s in range(2, 18)), ("orq@5,bucket=7,clip=2.5", 5, 5),
                ("linear@2", 2, 2), ("linear@256,bucket=10,clip=1e1", 256, 2), ("qsgd@1", 3, 1),
                ("qsgd@255,bucket=100,norm=max,clip=0.1", 511, 1), ("ternary", 3, 1), ("natural", 512, 0),
                ("ternary@bucket=1000,clip=2.5", 3, 1), ("ef+bingrad@zero", 2, 2), ("ef@decay=0.5+qsgd@4", 9, 1),
                ("sign@scale=one", 2, 1)):
            ref.decode(single(text, (1,), [bytes(int(4 * numbers)) + write_groups([0], base)]))

    def test_recipe_text_of_tiny_floats_and_codes(self):
        for words, text in (
                ("lacks its main", "fp8"), ("with a key", "fp8@format=e5m2"), ("format=e3m4", "fp8@e3m4"),
                ("no main", "fp4@e2m1"), ("unknown parameter", "fp4@bucket=7"), ("lacks its main", "fp4+huffman"),
                ("with a key", "fp4+huffman@table=model"), ("table=best", "fp4+huffman@best"),
                ("no main", "fp4+rans@1"),
                ("no main", "fp32+lossless@1"), ("lacks its main", "fp4+zstd"), ("level outside", "fp4+zstd@0"),
                ("level outside", "fp4+zstd@10"), ("plain digits", "fp4+zstd@3.0"), ("with a key", "fp4+zstd@level=3"),
                ("does not go with", "fp32+huffman@counts"), ("does not go with", "topk@0.5+fp16+huffman@counts"),
                ("does not go with", "fp32+rans"), ("does not go with", "topk@0.5+fp32+bitmap+rans"),
                ("does not go with", "sign+lossless"), ("does not go with", "fp8@e4m3+lossless"),
                ("'orq' does not have", "orq@9+huffman@model"), ("'natural' does not have", "natural+huffman@model"),
                ("leaves no symbols", "adabins@50+sign+adacomp8+rans"),
                ("leaves no symbols", "adabins@50+sign+adacomp16+huffman@counts"),
                ("leaves no symbols", "adabins@50+sign+adacomp8+zstd@3"), ("two of one stage", "fp4+rans+zstd@3"),
                ("out of order", "topk@0.5+fp4+rans+bitmap"), ("no indices", "fp4+bitmap+rans"),
                ("unknown part", "co3")):
            self.refuse(words, single(text, (1,), [floats([1])]))
        for text in ("topk@0.5+fp32+rans", "topk@0.5+bf16+rans", "randomk@0.5,coords=own+fp32+rans"):
            ref.decode(single(text, (1,), [chunk_header(0, 0, 0)]))
        for text in ("topk@0.5+sign+bitmap+rans", "topk@0.5+fp16+bitmap+lossless", "adabins@50+fp4+huffman@model",
                     "topk@0.5+natural+zstd@9", "ef@decay=0.9+topk@0.5+fp8@e4m3+huffman@counts",
                     "topk@0.5+fp32+zstd@1"):
            ref.decode(single(text, (1,), [chunk_header(0, 0, 0) + coded(b"")]))

    def test_recipe_ids(self):
        for stage in range(5):
            ids = bytearray(ids_of("ef+topk@0.1+fp16+bitmap"))
            for other in {0, 1, 2, 3, 6, 255} - {ids[stage]}:
                ids[stage] = other
                self.refuse(ref.STAGES[stage] + " id", single(write_recipe("ef+topk@0.1+fp16+bitmap", ids), (1,), []))

    def test_chunks(self):
        value = floats([1])
        for words, recipe, chunk in (
                ("count 9", "topk@0.01+fp32", chunk_header(9, 34, 0)), ("count 0", "topk@0.01+fp32", chunk_header(0, 34, 0)),
                ("count 0", "topk@0.01+fp32", chunk_header(0, 0, 1) + b"\0"),
                ("mode 19", "topk@0.01+fp32", chunk_header(1, 19, 1) + value + b"\0"),
                ("mode 31", "topk@0.01+fp32", chunk_header(1, 31, 1) + value + b"\0"),
                ("mode 35", "topk@0.01+fp32", chunk_header(1, 35, 1) + value + b"\0"),
                ("does not allow", "topk@0.01+fp32+bitmap", chunk_header(1, 0, 1) + value + b"\0"),
                ("does not allow", "topk@0.01+fp32+bitmap", chunk_header(8, 34, 0) + value * 8),
                ("bitmap of 8", "topk@0.01+fp32", chunk_header(1, 32, 2) + value + b"\1\0"),
                ("but count 1", "topk@0.01+fp32", chunk_header(1, 34, 0) + value),
                ("mode 34 has index", "topk@0.01+fp32", chunk_header(8, 34, 1) + value * 8 + b"\0"),
                ("no index bytes", "topk@0.01+fp32", chunk_header(1, 0, 0) + value),
                ("no index bytes", "topk@0.01+fp32", chunk_header(1, 33, 0) + value),
                ("inside the headers", "topk@0.01+fp32", b"\0\0"),
                ("inside a chunk's symbols", "topk@0.01+fp32", chunk_header(1, 0, 1) + b"\0"),
                ("inside a chunk's indices", "topk@0.01+fp32", chunk_header(1, 0, 2) + value + b"\0"),
                ("inside a chunk's symbols", "fp32", value * 7),
                ("inside a chunk's symbols", "randomk@0.5,coords=shared+fp32", value * 3),
                ("behind its last chunk", "randomk@0.5,coords=shared+fp32", value * 5),
                ("Rice code has more", "topk@0.01+fp32", chunk_header(1, 0, 2) + value + b"\0\0"),
                ("bits set", "topk@0.01+fp32", chunk_header(1, 32, 1) + value + b"\3"),
                ("two runs touch", "topk@0.01+fp32", chunk_header(2, 33, 4) + value * 2 + b"\0\0\0\0")):
            self.refuse(words, single(recipe, (8,), [chunk], 0))

    def test_chunks_of_signs(self):
        scale, eight, sixteen = floats([1]), "adabins@4+sign+adacomp8", "adabins@4+sign+adacomp16"
        for words, recipe, chunk in (
                ("chunk's buckets", "sign", b"\0\0\0"), ("chunk's symbols", "sign", scale),
                ("behind their last", "topk@0.5+sign", raw_chunk(3, 32, scale + b"\x0f", b"\7")),
                ("behind their last", eight, raw_chunk(3, 32, scale + b"\x08", b"\7")),
                ("behind their last", "randomk@0.5,coords=shared+sign", scale + b"\x1f"),
                ("chunk's buckets", "topk@0.5+sign", chunk_header(1, 0, 1) + b"\0\0\0"),
                ("chunk's buckets", eight, chunk_header(1, 35, 1) + b"\0\0\0"),
                ("chunk's indices", eight, chunk_header(1, 35, 2) + scale + b"\x40"),
                ("frame ends", eight, chunk_header(1, 35, 1) + b"\x40"),
                ("behind its last chunk", eight, raw_chunk(1, 35, scale, b"\x40") + b"\0"),
                ("behind its last chunk", eight, chunk_header(0, 0, 0) + scale),
                ("count 0", eight, chunk_header(0, 35, 0)), ("no index bytes", eight, raw_chunk(1, 35, scale, b"")),
                ("no index bytes", sixteen, raw_chunk(1, 36, scale, b"")),
                ("inside an entry", sixteen, raw_chunk(1, 36, scale, b"\x40")),
                ("does not allow", "adabins@4+sign", raw_chunk(1, 35, scale, b"\x40")),
                ("does not allow", "adabins@4+sign", raw_chunk(1, 36, scale, b"\0\x40")),
                ("does not allow", "adabins@4+sign+bitmap", raw_chunk(1, 35, scale, b"\x40")),
                ("does not allow", sixteen, raw_chunk(1, 35, scale, b"\x40")),
                ("does not allow", eight, raw_chunk(1, 36, scale, b"\0\x40")),
                ("does not allow", eight, raw_chunk(1, 0, scale + b"\0", b"\0")),
                ("does not allow", eight, raw_chunk(1, 33, scale + b"\0", b"\0\0")),
                ("does not allow", eight, raw_chunk(8, 34, scale + b"\0", b"")),
                ("does not allow", eight, raw_chunk(1, 37, scale, b"\x40")),
                ("unknown mode 38", eight, raw_chunk(1, 38, scale, b"\x40")),
                ("code 3", eight, raw_chunk(1, 35, scale, b"\xc0")),
                ("code 0", eight, raw_chunk(1, 35, scale, b"\x40\0")),
                ("outside its cell", eight, raw_chunk(1, 35, scale, b"\x44")),
                ("outside its chunk", eight, raw_chunk(1, 35, scale, b"\1\x40")),
                ("count is 2", eight, raw_chunk(2, 35, scale, b"\x40"))):
            self.refuse(words, single(recipe, (8,), [chunk], 0))

    def test_chunks_of_buckets(self):
        three, zeros = "ternary@bucket=3", bytes(2)
        for words, recipe, chunk in (
                ("chunk's buckets", three, floats([1, 2, 3])[:-1]), ("chunk's symbols", three, floats([1, 2, 3])),
                ("chunk's symbols", three, floats([1, 2, 3]) + b"\0"),
                ("behind its last chunk", three, floats([1, 2, 3, 4]) + zeros),
                ("beyond its largest", three, floats([1, 2, 3]) + b"\xf3\0"),
                ("beyond its largest", three, floats([1, 2, 3]) + b"\0\xff"),
                ("a symbol too many", three, floats([1, 2, 3]) + b"\0\x1b"),
                ("chunk's symbols", "linear@3,bucket=3", floats(range(6))),
                ("chunk's buckets", "orq@3,bucket=3", floats(range(8))),
                ("chunk's buckets", "orq@3,bucket=3,half=yes", floats([1, 2, 3, 4])),
                ("behind its last chunk", "orq@3,bucket=3,half=yes", floats(range(9)) + zeros),
                ("chunk's symbols", "natural", bytes(8)), ("behind its last chunk", "natural", bytes(10)),
                ("behind their last", "orq@5,bucket=8", floats(range(5)) + b"\0\0\x20"),
                ("a symbol too many", "orq@5,bucket=8", floats(range(5)) + pack_groups([0, 0, 25], 7)),
                ("chunk's buckets", "topk@0.5+" + three, chunk_header(4, ref.BITMAP, 1) + floats([1]) + b"\0\0\x0f"),
                ("a symbol too many", "topk@0.5+" + three, raw_chunk(4, 32, floats([1, 2]) + b"\x51", b"\x0f")),
                ("behind its last chunk", "topk@0.5+" + three, chunk_header(0, 0, 0) + floats([1])),
                ("chunk's buckets", "randomk@0.5,coords=shared+" + three, floats([1]) + b"\0"),
                ("a symbol too many", "randomk@0.5,coords=shared+" + three, floats([1, 2]) + b"\x51")):
            self.refuse(words, single(recipe, (8,), [chunk], 0))

    def test_chunks_of_codes(self):
        one, trits = floats([1]), [1] * 400
        plain = b"\0" + write_groups(trits, 3)
        for words, recipe, chunk in (
                ("coded_len of 0", "ternary+rans", coded(b"", one)),
                ("coded_len of 82", "ternary+rans", coded(plain + b"\0", one)),
                ("chunk's symbols", "ternary+rans", coded(plain[:-1], one, 81)),
                ("headers of its chunks", "ternary+rans", b"\1\0"), ("chunk's buckets", "ternary+rans", b"\1\0\0\0\0"),
                ("plain form", "ternary+rans", coded(plain[:-1], one)),
                ("beyond its largest", "ternary+rans", coded(b"\0\xff" + plain[2:], one)),
                ("unknown form 5", "ternary+huffman@counts", coded(b"\5" + bytes(20), one)),
                ("recipe does not", "ternary+huffman@counts", coded(b"\2" + bytes(50), one)),
                ("unknown form 3", "ternary+huffman@counts", coded(b"\3" + bytes(50), one)),
                ("half byte", "ternary+huffman@counts", coded(b"\1\x12\x12" + bytes(50), one)),
                ("inside the lengths", "ternary+huffman@counts", coded(b"\1\x12", one)),
                ("row 255", "fp4+huffman@model", coded(b"\2" + bytes(50), fitted(1, 255))),
                ("unknown form 2", "ternary+zstd@3", coded(b"\2" + bytes(50), one)),
                ("not below its base", "ternary+zstd@3", coded(b"\1" + zstd_frame((3, 400)), one)),
                ("not below its base", "natural+zstd@3", coded(b"\1" + zstd_frame((0, 798), b"\0\2"))),
                ("unknown form 1", "bf16+lossless", coded(b"\1" + bytes(50))),
                ("lower bytes", "bf16+lossless", coded(range_form(12, 1) + bytes(399))),
                ("headers of its chunks", "topk@0.5+ternary+rans", chunk_header(0, 0, 0)),
                ("without values", "topk@0.5+ternary+rans", chunk_header(0, 0, 0) + coded(b"\0")),
                ("does not allow", "topk@0.5+sign", raw_chunk(1, 37, signed(1, [1]), bytes(4))),
                ("does not allow", "topk@0.5+sign+bitmap+rans", raw_chunk(1, 37, signed(1, [1]), bytes(4)))):
            self.refuse(words, single(recipe, (400,), [chunk], 0))

    def test_hostile_sizes(self):
        for recipe in ("sign", "adabins@50+sign+adacomp8", "randomk@0.5,coords=shared+sign", "fp32", "topk@0.01+fp32",
                       "natural", "orq@17,bucket=1", "randomk@0.5,coords=shared+orq@17,bucket=1", "ternary",
                       "randomblock@1,coords=shared+ternary", "fp4+rans", "topk@0.01+fp32+rans", "fp32+lossless",
                       "randomk@0.5,coords=shared+fp4+huffman@model", "randomblock@1,coords=shared+fp16+zstd@3",
                       "randomk@0.01,coords=shared+fp32", "randomblock@1e-18,coords=shared+fp32"):
            self.refuse("too many", single(recipe, (2 ** 59,), [floats([1])], 0))
            self.refuse("frame ends", single(recipe, (2 ** 28,), [], 0))
        with contextlib.suppress(ref.Unsupported):  # NumPy before 2 has at most 32 dimensions
            ref.decode(single("fp32", (1,) * 64, [floats([1])]))
        self.refuse("NumPy", single("fp32", (0, 2 ** 63), []))
        with self.assertRaises(ref.Unsupported):
            ref.decode(single("fp32", (3,), [floats([1, 2, 3])]), limit=2)

    def small_frame(self):
        chunks = [write_chunk(1, [0, 5], 12, floats([1, 2])), write_chunk(ref.RUNS, [1, 2, 3], 9, b"\0\0" * 3),
                  write_chunk(ref.BITMAP, [4, 7], 9, b"\0\1" * 2), floats([1, 2]),
                  raw_chunk(3, ref.PLACES8, floats([1]), write_places([1, 4, 30], [0, 1, 1], 5, ref.PLACES8)),
                  raw_chunk(2, ref.PLACES16, floats([1]), write_places([1, 30], [0, 1], 5, ref.PLACES16)),
                  signed(1, [1, 0, 1]), bucketed([1, 2, 3, 4, 5, 6], [0, 1, 2, 2], 3),
                  write_chunk(1, [0, 5], 8, bucketed([1], [8, 0], 9)), write_groups([7, 511], 512),
                  coded(prefixed([5] * 60, [0] * 5 + [1, 1] + [0] * 4), fitted(1)),
                  coded(ranged([0, 1] + [0] * 70, 2), floats([1])),
                  coded(lossless([0x3F80] * 64, 2, 8, 1)),
                  write_chunk(ref.GEOMETRIC, [2, 9, 13], 20, bytes(6)), coded(b"\1" + zstd_frame((0, 60)))]
        recipes = ["topk@0.01,scope=model+fp32", "ef+threshold@1,coords=shared+fp16", "randomk@0.5,coords=shared+fp32",
                   "ef+adabins@5+sign@scale=meanmax+adacomp8", "adabins@5+sign+adacomp16", "sign", "orq@3,bucket=3",
                   "topk@0.5+qsgd@4", "natural", "fp4+huffman@model", "sign+rans", "bf16+lossless",
                   "topk@0.2+fp16+rans", "fp16+zstd@3"]
        tensors = [("a", (3, 2), 0), ("b", (9,), 1), ("c", (9,), 1, 2), ("d", (6,), 0), ("e", (4,), 2),
                   ("f", (33,), 3), ("g", (33,), 4, 1), ("h", (3,), 5), ("i", (4,), 6), ("j", (8,), 7), ("k", (2,), 8),
                   ("l", (60,), 9), ("m", (72,), 10), ("n", (64,), 11), ("o", (20,), 12), ("p", (30,), 13)]
        return write_frame(write_description(recipes, tensors, 8), chunks, step=4)

    def test_every_truncation_and_bit_flip(self):
        frame = self.small_frame()
        self.assertEqual(ref.decode(frame)[0]["entries"], 254)
        for size in range(len(frame)):
            self.refuse("", frame[:size])
        for bit in range(8 * len(frame)):
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            self.refuse("", bytes(flipped))

    def test_only_format_errors_escape_when_hashes_hold(self):
        """With every hash 0, so that damage is not caught by hashes."""
        rng = random.Random(7)
        with mock.patch.object(ref, "hash_of", return_value=0):
            frame = self.small_frame()
            ref.decode(frame)
            decoded = refused = 0
            for _ in range(6000):
                bad = bytearray(frame)
                for _ in range(rng.choice((1, 1, 2, 4))):
                    at = rng.randrange(48, len(bad) - 8)
                    what = rng.randrange(4)
                    if what == 0:
                        bad[at] ^= 1 << rng.randrange(8)
                    elif what == 1:
                        bad[at] = rng.choice((0, 1, 127, 128, 255))
                    elif what == 2:
                        bad.insert(at, rng.randrange(256))
                    else:
                        del bad[at]
                bad[24:32] = struct.pack("<Q", len(bad))
                try:
                    ref.decode(bytes(bad), limit=1 << 20)
                    decoded += 1
                except ref.FormatError:
                    refused += 1
        self.assertTrue(decoded and refused)


class Script(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, data=None):
        path = os.path.join(self.folder, name)
        if data is not None:
            with open(path, "wb") as file:
                file.write(data)
        return path

    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = ref.main(list(arguments))
        return status, out.getvalue(), err.getvalue()

    def test_one_tensor(self):
        frame = self.path("one.tg", single("fp32", (2,), [floats([1, 2])]))
        self.assertEqual(self.call(frame, self.path("one")), (0, "", ""))
        self.assertEqual(np.load(self.path("one")).tolist(), [1, 2])

    def test_two_tensors(self):
        description = write_description(["fp32"], [("layer/w", (2,)), ("b", (1,))])
        frame = self.path("two.tg", write_frame(description, [floats([1, 2]), floats([3])]))
        self.assertEqual(self.call(frame, self.path("two"))[0], 0)
        self.assertEqual(sorted(os.listdir(self.path("two"))), ["b.npy", "layer_w.npy"])
        self.assertEqual(np.load(self.path("two/layer_w.npy")).tolist(), [1, 2])

    def test_info(self):
        status, out, _ = self.call("--info", self.path("one.tg", single("fp32", (2,), [floats([1, 2])], step=5)))
        info = json.loads(out)
        self.assertEqual((status, info["version"], info["step"], info["entries"]), (0, 4, 5, 2))
        self.assertEqual((info["recipes"], info["tensors"][0]["shape"]), (["fp32"], [2]))

    def test_bad_input(self):
        for path in (self.path("bad.tg", b"TGFR"), self.path("missing.tg")):
            status, out, err = self.call(path, self.path("out"))
            self.assertEqual((status, out, err.count("\n")), (1, "", 1))
            self.assertTrue(err.startswith("tersegrad_ref: "))
        self.assertFalse(os.path.exists(self.path("out")))


if __name__ == "__main__":
    unittest.main()
