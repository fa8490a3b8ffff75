"""Frames as the program reads them: damaged ones, ones made by hand, and its own beside a second decoder's."""
import json
import shutil
import struct
import subprocess
import sys
import unittest

import numpy as np

from case import RECIPES, ROOT, TIMEOUT, Case, gradient, run, same

REFERENCE = ROOT / "tests" / "ref" / "tersegrad_ref.py"

sys.path.insert(0, str(REFERENCE.parent))
from tersegrad_ref import hash_of  # noqa: E402 (crafted frames need their checksums)


class Damage(Case):
    """Every frame that is not exactly as it was written is refused."""

    def setUp(self):
        super().setUp()
        self.save("m/w.npy", gradient(40).reshape(5, 8))
        self.save("m/v.npy", gradient(6, np.float16))
        self.works("encode", "--recipe", "topk@0.2+fp16", self.dir / "m", self.dir / "good.tg")
        self.frame = (self.dir / "good.tg").read_bytes()
        self.bad = self.dir / "bad.tg"

    def refused(self, frame, every_command):
        self.bad.write_bytes(frame)
        done = run("inspect", self.bad)
        self.assertEqual((done.returncode, done.stdout, len(done.stderr.splitlines())), (1, "", 1))
        if every_command:
            self.fails(1, "decode", self.bad, self.dir / "back")
            done = self.fails(1, "inspect", "--json", self.bad, prints=None)
            found = json.loads(done.stdout.splitlines()[-1])
            self.assertIs(found["checksum_ok"], False)
            self.assertTrue(found["error"])
            for key in ("version", "recipe", "step", "tensors", "payload_bytes", "header_bytes"):
                self.assertIsNone(found[key])

    def test_truncation_at_every_byte(self):
        for length in range(len(self.frame)):
            self.refused(self.frame[:length], length % 16 == 0)

    def test_flipped_bits(self):
        bits = len(self.frame) * 8
        for i in range(200):
            bit = i * bits // 200 + i * 7919 % max(1, bits // 200)
            frame = bytearray(self.frame)
            frame[bit // 8] ^= 1 << bit % 8
            self.refused(bytes(frame), i % 10 == 0)

    def test_more_bytes(self):
        for tail in (b"\x00", b"\n", bytes(100), self.frame):
            self.refused(self.frame + tail, True)

    def test_another_version(self):
        for version in (1, 2, 3, 5):
            frame = bytearray(self.frame)
            frame[4] = version
            self.refused(bytes(frame), True)
            self.assertIn("version", run("inspect", self.bad).stderr)

    def test_nothing_and_noise(self):
        self.refused(b"", True)
        self.refused(b"TGFR", True)
        self.refused(np.random.default_rng(1).bytes(1000), True)


def crafted(recipe, ids, tensors, chunks, headers=b""):
    """A frame made by hand, correct in every checksum. tensors: (name, dtype, dims); chunks: bytes of each; headers: of all chunks."""
    text = recipe.encode()
    description = struct.pack("<BQHH", 0, 0, 1, len(text)) + text + bytes(ids) + struct.pack("<I", len(tensors))
    for name, dtype, dims in tensors:
        description += struct.pack("<H", len(name)) + name + struct.pack("<BBHB", 0, dtype, 0, len(dims))
        description += struct.pack(f"<{len(dims)}Q", *dims)
    body = headers + b"".join(chunks)
    size = 48 + len(description) + len(body) + 8
    head = struct.pack("<4sBBHIIIIQQQ", b"TGFR", 4, 7, 0, 0, 0, 1, len(description), size, 0, hash_of(description))
    hashes = struct.pack(f"<{2 + len(chunks)}Q", hash_of(head + description), hash_of(headers), *map(hash_of, chunks))
    return head + description + body + struct.pack("<Q", hash_of(hashes))


class Crafted(Case):
    """Frames that nobody encoded: sound by checksum, made to do harm or of a dtype that .npy lacks."""
    one = struct.pack("<f", 1)

    def test_names_that_lead_out(self):
        for name in (b"../x", b"..", b".", b"/tmp/x", b"a/b", b"x/"):
            frame = self.dir / "x.tg"
            frame.write_bytes(crafted("fp32", (1, 1, 1, 2, 1), [(b"good", 0, [1]), (name, 0, [1])], [self.one] * 2))
            self.works("inspect", frame)
            self.fails(1, "decode", frame, self.dir / "out", says=name.decode())
        frame.write_bytes(crafted("fp32", (1, 1, 1, 2, 1), [(b"x" * 255, 0, [1]), (b"y", 0, [1])], [self.one] * 2))
        self.fails(1, "decode", frame, self.dir / "out")

    def test_bf16_becomes_fp32(self):
        frame = self.dir / "x.tg"
        values = np.array([0.1, -1e38, 1e-40, 0], np.float32)
        frame.write_bytes(crafted("fp32", (1, 1, 1, 2, 1), [(b"w", 2, [2, 2])], [values.tobytes()]))
        self.assertIn("bf16 written as fp32", self.works("decode", frame, self.dir / "w.npy"))
        bits = values.view(np.uint32)
        rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).view(np.float32).reshape(2, 2)
        self.assertTrue(same(np.load(self.dir / "w.npy"), rounded))

    def test_no_tensors(self):
        frame = self.dir / "x.tg"
        description = struct.pack("<BQHI", 0, 0, 0, 0)
        head = struct.pack("<4sBBHIIIIQQQ", b"TGFR", 4, 7, 0, 0, 0, 1, len(description), 56 + len(description), 0,
                           hash_of(description)) + description
        frame.write_bytes(head + struct.pack("<Q", hash_of(struct.pack("<2Q", hash_of(head), hash_of(b"")))))
        found = self.json("inspect", frame)
        self.assertEqual((found["tensors"], found["recipe"]), (0, None))
        self.works("decode", frame, self.dir / "out")
        self.assertEqual(list((self.dir / "out").iterdir()), [])

    def test_claims(self):
        """A few bytes that claim very many elements are refused at once, without the memory for them."""
        frame = self.dir / "x.tg"
        for recipe, ids in (("fp32", (1, 1, 1, 2, 1)), ("topk+fp32", (1, 2, 1, 2, 1)),
                            ("randomblock@1e-15,coords=own+fp32", (1, 5, 1, 2, 1))):
            for dims in ([2 ** 60], [2 ** 33], [2 ** 32, 2 ** 32], [2 ** 64 - 1, 0], [2 ** 63, 2]):
                frame.write_bytes(crafted(recipe, ids, [(b"w", 0, dims)], [bytes(6)]))
                self.fails(1, "inspect", frame)
                self.fails(1, "decode", frame, self.dir / "out.npy")


class SecondDecoder(Case):
    """The decoder that was written from the format page alone gives the same bits."""

    def reference(self, frame, out):
        done = subprocess.run([sys.executable, str(REFERENCE), str(frame), str(out)], capture_output=True, text=True,
                              timeout=TIMEOUT)
        self.assertEqual(done.returncode, 0, done.stderr)

    def loaded(self, path):
        """Name -> array of a directory of .npy files, or of a single file."""
        if path.is_dir():
            return {p.stem if p.suffix == ".npy" else p.name: np.load(p) for p in sorted(path.iterdir())}
        return {"": np.load(path)}

    def compare(self, *encode):
        frame, ours, theirs = self.dir / "x.tg", self.dir / "ours", self.dir / "theirs"
        self.works("encode", *encode, frame)
        self.works("decode", frame, ours)
        self.reference(frame, theirs)
        a, b = self.loaded(ours), self.loaded(theirs)
        self.assertEqual(sorted(a), sorted(b))
        for name in a:
            self.assertEqual((a[name].dtype, a[name].shape), (b[name].dtype, b[name].shape))
            self.assertEqual(a[name].tobytes(), b[name].tobytes(), name)
        for path in (ours, theirs):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def test_models(self):
        for i, (name, n) in enumerate({"a": 5000, "b": 300, "c": 1, "d": 0, "e": 262144 * 2 + 5}.items()):
            self.save(f"m/{name}.npy", gradient(n, np.float16 if i % 2 else np.float32, seed=i))
        for recipe in RECIPES:
            with self.subTest(recipe=recipe):
                self.compare("--recipe", recipe, "--seed", 99, "--step", 2 ** 40 + 1, "--rank", 3, "--kind", "c=bias",
                             self.dir / "m")

    def test_single_tensors(self):
        cases = {
            "zeros": np.zeros(1000, np.float32), "scalar": np.float32(0.5), "none": gradient(0),
            "denormal": np.arange(1000, dtype=np.float32) * np.float32(1e-45), "large": gradient(1000) * np.float32(1e30),
            "half": gradient(1000, np.float16),
        }
        for name, array in cases.items():
            source = self.save(f"{name}.npy", array)
            for recipe in ("topk@0.3+fp16", "fp16", "randomk@0.2"):
                with self.subTest(name=name, recipe=recipe):
                    self.compare("--recipe", recipe, source)


if __name__ == "__main__":
    unittest.main()
