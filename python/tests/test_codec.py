"""Codec, decode and recipes on NumPy arrays.

    python3 -m unittest discover -s python/tests      with the package installed
"""

import unittest

import numpy

import tersegrad


def gradient(n=5000, seed=1, dtype=numpy.float32):
    return numpy.random.default_rng(seed).standard_normal(n).astype(dtype)


class Codec(unittest.TestCase):
    def test_fp32_loses_nothing(self):
        for shape in ((), (0,), (1,), (7, 3), (3, 1, 5, 2)):
            array = gradient(int(numpy.prod(shape))).reshape(shape)
            back = tersegrad.decode(tersegrad.Codec("fp32").encode(array))
            self.assertEqual((back.dtype, back.shape), (array.dtype, array.shape))
            numpy.testing.assert_array_equal(back, array)

    def test_fp16_arrays_and_other_orders(self):
        half = gradient(100, dtype=numpy.float16)
        numpy.testing.assert_array_equal(tersegrad.decode(tersegrad.Codec("fp16").encode(half)), half)
        rows = gradient(60).reshape(6, 10)
        for array in (rows.T, rows[::2, ::-1], rows.astype(">f4"), numpy.asfortranarray(rows)):
            numpy.testing.assert_array_equal(tersegrad.decode(tersegrad.Codec("lossless").encode(array)), array)

    def test_what_was_given_comes_back_in_the_same_form(self):
        one, two = gradient(50).reshape(5, 10), gradient(7, dtype=numpy.float16)
        listed = tersegrad.decode(tersegrad.Codec("fp32").encode([one, two]))
        self.assertIsInstance(listed, list)
        numpy.testing.assert_array_equal(listed[0], one)
        numpy.testing.assert_array_equal(listed[1], two)
        named = tersegrad.Codec("fp32").decode(tersegrad.Codec("fp32").encode({"layer.weight": one, "layer.bias": two}))
        self.assertEqual(list(named), ["layer.weight", "layer.bias"])
        numpy.testing.assert_array_equal(named["layer.bias"], two)

    def test_errors_are_within_the_bounds_of_the_quantizers(self):
        array = gradient()
        widest = numpy.abs(array).max()
        half = tersegrad.decode(tersegrad.Codec("fp16").encode(array))
        numpy.testing.assert_array_equal(half, array.astype(numpy.float16).astype(numpy.float32))
        linear = tersegrad.decode(tersegrad.Codec("linear@9", seed=1).encode(array))
        self.assertLessEqual(numpy.abs(linear - array).max(), widest / 4 * 1.001)  # 8 steps from -widest to widest
        frame = tersegrad.Codec("orq@9", seed=1).encode(array)
        self.assertLess(len(frame), array.nbytes / 8)
        orq = tersegrad.decode(frame)
        self.assertLessEqual(numpy.abs(orq).max(), widest * 1.001)
        self.assertLess(((orq - array) ** 2).mean() / (array ** 2).mean(), 0.1)

    def test_topk_keeps_the_largest_and_the_residual_the_rest(self):
        codec, array = tersegrad.Codec("ef+topk@0.1"), gradient(1000)
        self.assertIsNone(codec.residual())
        first = tersegrad.decode(codec.encode(array))
        kept = numpy.sort(numpy.argsort(numpy.abs(array))[-100:])
        numpy.testing.assert_array_equal(numpy.flatnonzero(first), kept)
        numpy.testing.assert_array_equal(first[kept], array[kept])
        numpy.testing.assert_allclose(codec.residual() + first, array)
        total = first
        for step in range(5):
            total = total + tersegrad.decode(codec.encode(array))
        numpy.testing.assert_allclose(total + codec.residual(), 6 * array, rtol=1e-5, atol=1e-5)

    def test_kinds_and_rules(self):
        arrays = {"w": gradient(1000), "b": gradient(1000, 2), "v": gradient(1000, 3)}
        back = tersegrad.decode(tersegrad.Codec("topk@0.01", kinds={"b": "bias"}, rules={"v": "fp16"}).encode(arrays))
        self.assertEqual(numpy.count_nonzero(back["w"]), 10)
        numpy.testing.assert_array_equal(back["b"], arrays["b"])
        self.assertGreater(numpy.count_nonzero(back["v"]), 900)

    def refuse(self, code, words, call):
        with self.assertRaises(tersegrad.Error) as caught:
            call()
        self.assertEqual(caught.exception.code, code)
        self.assertIn(words, str(caught.exception))

    def test_what_is_refused(self):
        array = gradient(100)
        codec = tersegrad.Codec("topk@0.1")
        codec.encode(array)
        self.refuse("RECIPE", "topl", lambda: tersegrad.Codec("topl@0.1"))
        self.refuse("ARGUMENT", "float64", lambda: codec.encode(array.astype(numpy.float64)))
        self.refuse("ARGUMENT", "complex64", lambda: codec.encode(array.astype(numpy.complex64)))
        self.refuse("MISMATCH", "other names, shapes", lambda: codec.encode(array[:50]))
        self.refuse("NONFINITE", "array", lambda: codec.encode(array * numpy.nan))
        self.refuse("ARGUMENT", "one of error", lambda: tersegrad.Codec("fp16", nonfinite="maybe"))
        self.refuse("NO_EFFECT", "", lambda: tersegrad.Codec("topk@0.1", dense_below=1000).encode(array))
        self.assertTrue(numpy.isnan(tersegrad.decode(tersegrad.Codec("fp16", nonfinite="pass").encode(array * numpy.nan))).all())

    def test_damaged_frames_raise(self):
        frame = tersegrad.Codec("ef+topk@0.1+fp16").encode({"a": gradient(300), "b": gradient(40)})
        for at in range(len(frame)):
            damaged = bytearray(frame)
            damaged[at] ^= 0x10
            with self.assertRaises(tersegrad.Error):
                tersegrad.decode(damaged)
        for cut in range(0, len(frame), 7):
            with self.assertRaises(tersegrad.Error):
                tersegrad.decode(frame[:cut])
        with self.assertRaises(tersegrad.Error):
            tersegrad.decode(frame + b"\0")

    def test_recipes_and_version(self):
        parts = {part["name"]: part for part in tersegrad.recipes()}
        self.assertEqual(parts["topk"]["stage"], "select")
        self.assertTrue(any(p["is_main"] and p["name"] == "ratio" for p in parts["topk"]["parameters"]))
        self.assertEqual(parts["adacomp"]["stage"], "preset")
        self.assertIn("adabins", parts["adacomp"]["expansion"])
        self.assertEqual(tersegrad.canonical("topk@0.010+ef"), "ef+topk@0.01+fp32")
        self.assertRegex(tersegrad.__version__, r"^\d+\.\d+\.\d+$")


if __name__ == "__main__":
    unittest.main()
