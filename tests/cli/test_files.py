"""The files that the program takes and writes: .npy as NumPy and others write it, and models of many."""
import struct
import unittest

import numpy as np

from case import Case, gradient, run, same


class Npy(Case):
    """The reader of .npy files, header by header."""

    def write(self, header, data=b"", version=(1, 0), name="in.npy"):
        raw = header.encode("latin1")
        size = struct.pack("<H" if version[0] == 1 else "<I", len(raw))
        path = self.dir / name
        path.write_bytes(b"\x93NUMPY" + bytes(version) + size + raw + data)
        return path

    def decoded(self, path):
        self.works("encode", "--recipe", "dense", path, self.dir / "out.tg")
        self.works("decode", self.dir / "out.tg", self.dir / "back.npy")
        return np.load(self.dir / "back.npy")

    def refused(self, path, says=None):
        self.fails(1, "encode", "--recipe", "dense", path, self.dir / "out.tg", says=says)

    def test_versions_and_spellings(self):
        want = np.arange(6, dtype=np.float32).reshape(2, 3)
        data = want.tobytes()
        headers = [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n",
            "{'shape': (2, 3), 'fortran_order': False, 'descr': '<f4'}",
            "{\"descr\": \"<f4\", \"shape\":(2,3,),\"fortran_order\":False}      \n",
        ]
        for header in headers:
            for version in ((1, 0), (2, 0), (3, 0)):
                with self.subTest(header=header, version=version):
                    self.assertTrue(same(self.decoded(self.write(header, data, version)), want))

    def test_elements_at_any_offset(self):
        want = np.arange(1000, dtype=np.float32)
        for pad in range(8):
            header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000,)}" + " " * pad
            self.assertTrue(same(self.decoded(self.write(header, want.tobytes())), want))

    def test_fortran_order(self):
        self.assertTrue(same(self.decoded(self.save("in.npy", np.asfortranarray(gradient(5).reshape(1, 5, 1)))),
                             gradient(5).reshape(1, 5, 1)))
        header = "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3, 1)}"
        self.assertEqual(self.decoded(self.write(header, bytes(12))).shape, (1, 3, 1))
        self.refused(self.save("in.npy", np.asfortranarray(gradient(6).reshape(2, 3))), "Fortran")

    def test_other_dtypes(self):
        arrays = [np.zeros(3), np.zeros(3, ">f4"), np.zeros(3, np.int32), np.zeros(3, bool),
                  np.zeros(3, np.complex64), np.zeros(3, "U4"), np.zeros(3, ">f2")]
        for array in arrays:
            with self.subTest(dtype=array.dtype.str):
                self.refused(self.save("in.npy", array), repr(array.dtype.str))
                done = run("encode", "--recipe", "dense", self.dir / "in.npy", self.dir / "out.tg")
                self.assertIn("astype('<f4')", done.stderr)
        self.refused(self.save("in.npy", np.zeros(3, [("a", "<f4")])), "structured")
        for descr in ("=f4", "|f4", "f4", "<f40", "", "<f4\\x00"):
            self.refused(self.write("{'descr': '%s', 'fortran_order': False, 'shape': (1,)}" % descr, bytes(4)))

    def test_damaged_headers(self):
        good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n"
        bad = [
            "", "{", "{}", good[:-3], good + "x", good.replace("'shape'", "'form'"), good.replace("(2, 3)", "6"),
            good.replace("(2, 3)", "(6)"), good.replace("(2, 3)", "(2 3)"), good.replace("(2, 3)", "(2, -3)"),
            good.replace("(2, 3)", "(,)"), good.replace("(2, 3)", "[2, 3]"), good.replace("(2, 3)", "(2, 03)"),
            good.replace("(2, 3)", "(2, 3"), good.replace("(2, 3)", "(2,, 3)"),
            good.replace("(2, 3)", "(2, 99999999999999999999)"),
            good.replace("(2, 3)", "(4294967296, 4294967296)"), good.replace("(2, 3)", "(4611686018427387904, 2)"),
            good.replace("(2, 3)", "(" + "1, " * 65 + ")"),
            good.replace("False", "false"), good.replace("False", "0"), good.replace("'<f4'", "<f4"),
            good.replace("'descr': '<f4', ", "'descr': '<f4', 'descr': '<f4', "),
            good.replace("'descr': '<f4', ", ""), good.replace(", }", ", 'more': 1}"), "\x00" * 64,
        ]
        for header in bad:
            with self.subTest(header=header):
                self.refused(self.write(header, bytes(24)))
        for version in ((0, 0), (1, 1), (4, 0), (255, 255)):
            self.refused(self.write(good, bytes(24), version), "version")

    def test_wrong_length(self):
        whole = self.save("in.npy", gradient(10)).read_bytes()
        for length in range(len(whole)):
            (self.dir / "in.npy").write_bytes(whole[:length])
            self.refused(self.dir / "in.npy")
        (self.dir / "in.npy").write_bytes(whole + b"\x00")
        self.refused(self.dir / "in.npy", "41 bytes")


class Models(Case):
    def arrays(self):
        return {"conv1.weight": gradient(72).reshape(8, 1, 3, 3), "conv1.bias": gradient(8, np.float16),
                "a b": gradient(40).reshape(5, 8), "\u00e9t\u00e9": gradient(3), "none": gradient(0),
                "dense.weight": gradient(5000).reshape(50, 100)}

    def test_directory(self):
        arrays = self.arrays()
        for name, array in arrays.items():
            self.save(f"model/{name}.npy", array)
        (self.dir / "model" / "notes.txt").write_text("not a tensor")
        (self.dir / "model" / ".hidden.npy").write_text("not a tensor either")
        self.works("encode", "--recipe", "dense", self.dir / "model", self.dir / "m.tg")
        found = self.json("inspect", self.dir / "m.tg")
        names = [t["name"] for t in found["tensor_list"]]
        self.assertEqual(names, sorted(arrays, key=lambda name: f"{name}.npy".encode()))
        for out in ("new", "empty/"):
            (self.dir / "empty").mkdir(exist_ok=True)
            self.works("decode", self.dir / "m.tg", f"{self.dir}/{out}")
            files = sorted(p.name for p in (self.dir / out).iterdir())
            self.assertEqual(files, sorted(f"{name}.npy" for name in arrays))
            for name, array in arrays.items():
                self.assertTrue(same(np.load(self.dir / out / f"{name}.npy"), array), name)

    def test_files_keep_their_order(self):
        paths = [self.save(f"{name}.npy", gradient(10, seed=i)) for i, name in enumerate("cab")]
        self.works("encode", "--recipe", "dense", *paths, self.dir / "m.tg")
        self.assertEqual([t["name"] for t in self.json("inspect", self.dir / "m.tg")["tensor_list"]], ["c", "a", "b"])

    def test_kinds_and_rules(self):
        for name in ("conv.weight", "conv.bias", "norm.weight", "embed", "head"):
            self.save(f"model/{name}.npy", gradient(1000))
        self.works("encode", "--recipe", "topk@0.01", "--kind", "*.bias=bias", "--kind=norm*=norm", "--kind", "conv*=conv",
                   "--rule", "em?ed=bf16", "--rule", "*d=fp16", "--rule", "no*weigh?=topk@0.5",
                   self.dir / "model", self.dir / "m.tg")
        tensors = {t["name"]: (t["kind"], t["recipe"]) for t in self.json("inspect", self.dir / "m.tg")["tensor_list"]}
        self.assertEqual(tensors, {
            "conv.weight": ("conv", "topk@0.01+fp32"), "conv.bias": ("bias", "fp32"),
            "norm.weight": ("norm", "topk@0.5+fp32"), "embed": ("other", "bf16"), "head": ("other", "fp16")})

    def test_dense_below(self):
        self.save("model/large.npy", gradient(1000))
        self.save("model/small.npy", gradient(99))
        self.works("encode", "--recipe", "fp16", "--dense-below", 100, self.dir / "model", self.dir / "m.tg")
        self.assertEqual([t["recipe"] for t in self.json("inspect", self.dir / "m.tg")["tensor_list"]],
                         ["fp16", "fp32"])
        self.fails(2, "encode", "--recipe", "fp16", "--dense-below", 10 ** 6, self.dir / "model", self.dir / "x.tg")

    def test_refusals(self):
        self.save("one/w.npy", gradient(4))
        self.save("two/w.npy", gradient(4))
        self.save("two/v.npy", gradient(4))
        (self.dir / "nothing").mkdir()
        (self.dir / "odd").mkdir()
        (self.dir / "odd" / "folder.npy").mkdir()
        encode = ("encode", "--recipe", "dense")
        self.fails(2, *encode, self.dir / "one" / "w.npy", self.dir / "two" / "w.npy", self.dir / "x.tg", says="'w'")
        self.fails(2, *encode, self.dir / "one", self.dir / "two", self.dir / "x.tg", says="'w'")
        self.fails(1, *encode, self.dir / "nothing", self.dir / "x.tg", says="no .npy file")
        self.fails(1, *encode, self.dir / "odd", self.dir / "x.tg")
        self.works(*encode, self.dir / "two", self.dir / "m.tg")
        (self.dir / "full").mkdir()
        (self.dir / "full" / "file").write_text("mine")
        self.fails(1, "decode", self.dir / "m.tg", self.dir / "full", says="not empty")
        self.fails(1, "decode", self.dir / "m.tg", self.dir / "full" / "file")
        self.fails(1, "decode", self.dir / "m.tg", self.dir / "full" / "file" / "below")
        self.fails(1, "decode", self.dir / "m.tg", self.dir / "missing" / "folder")


if __name__ == "__main__":
    unittest.main()
