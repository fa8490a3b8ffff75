"""Rows that benches keep, and the tables that are made from them. No test measures."""

import pathlib
import tempfile
import unittest

import links
import overlap
import tables


class KeptRows(unittest.TestCase):
    def test_rows_replace_those_of_the_same_key(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows.csv"
            tables.keep_rows(path, ("mbit", "hook", "ms"), ("mbit", "hook"), [{"mbit": 100, "hook": "a", "ms": 1}, {"mbit": 100, "hook": "b", "ms": 2}], "old")
            tables.keep_rows(path, ("mbit", "hook", "ms"), ("mbit", "hook"), [{"mbit": 100, "hook": "a", "ms": 3.5}], "new")
            rows = tables.read_rows(path)
        self.assertEqual([(row["commit"], row["mbit"], row["hook"], row["ms"]) for row in rows], [("old", 100, "b", 2), ("new", 100, "a", 3.5)])

    def test_what_is_kept_is_what_pages_show(self):
        for name, path, make in (("overlap-torch", overlap.KEPT, overlap.torch_tables), ("overlap-mpi", overlap.KEPT, overlap.mpi_tables),
                                 ("links-steps", links.STEPS_KEPT, links.step_tables), ("links-accuracy", links.ACCURACY_KEPT, links.accuracy_tables)):
            page = overlap.PAGE.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")[2].partition("<!-- end -->")[0]
            self.assertEqual(page, "\n".join(make(tables.read_rows(path))) + "\n", name)


class Tables(unittest.TestCase):
    def test_first_and_later_steps_are_apart(self):
        rows = [{"date": "d", "commit": "c", "torch": "2", "by": "torch", "mbit": 100, "hook": hook, "phase": phase, "ms": ms, "cpu_ms": "", "own_ms": "",
                 "sent": sent} for hook, phase, ms, sent in (("computing", "later", 10, ""), ("none", "later", 100, ""), ("torch:fp16", "later", 60, ""),
                                                            ("bf16", "later", 50, ""), ("adacomp", "first", 40, 900), ("adacomp", "later", 20, 300))]
        lines = list(overlap.torch_tables(rows))
        self.assertIn("| `adacomp` | 20 | 5.00 |", lines)
        self.assertIn("| `adacomp` | 900 / 300 | 40 / 20 |", lines)
        self.assertIn("- `bf16` beside PyTorch's fp16 hook, times as fast: 1.20 at 100 Mbit/s.", lines)

    def test_break_even(self):
        def rows(*ms, sent):
            return [{"ms": value, "mbit": mbit, "interface_bytes": sent} for value, mbit in zip(ms, (100, 1000, 10000))]
        plain = rows(800, 80, 8, sent=10_000_000)
        self.assertEqual(links.break_even(rows(1, 1, 1, sent=1000), plain), "every rate")
        self.assertEqual(links.break_even(rows(900, 90, 9, sent=1000), plain), "no rate")
        self.assertEqual(links.break_even(rows(100, 50, 40, sent=0), plain), "2.0 Gbit/s")


if __name__ == "__main__":
    unittest.main()
