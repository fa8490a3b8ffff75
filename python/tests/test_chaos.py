"""Ranks that are killed, stopped, late, send damaged messages or have a NaN, in one job that is resumed until it is done.

    TG_CHAOS=20 python3 -m unittest test_chaos      more jobs than the two that are the default
"""

import os
import pathlib
import tempfile
import unittest

import chaos
from ranks import RANKS

TIMES = int(os.environ.get("TG_CHAOS", "1"))
WORLD, STEPS = 3, 12
LIMIT = 20  # seconds until a job has hung: some timeouts, and what the machine may be busy with


class Chaos(unittest.TestCase):
    def attempt(self, folder, events, resume, **options):
        """Runs the job on from a step; what survivors say must fit together."""
        mortal = [event["rank"] for event in events if event["kind"] == "kill"]
        results = RANKS.run("chaos", WORLD, limit=LIMIT, dies=mortal, steps=STEPS, folder=folder, events=events, resume=resume, **options)
        survivors = [result for result in results if result is not None]
        self.assertGreaterEqual(len(survivors), WORLD - 1)
        for result in survivors:
            self.assertNotIn("error", result)
            self.assertTrue(result["unchanged"])
            if result["lost"] is not None:
                self.assertRegex(result["lost"], r"\brank \d")
            for _, sentence in result["failed"]:
                self.assertRegex(sentence, r"^(rank \d: )?(the gradient of tensor '.*' holds NaN|from rank \d: the frame )")
        # A step that failed has failed on all. The link may fail for some ranks in the closing vote of a step that others have committed.
        by_step = {}
        for result in survivors:
            by_step.setdefault(result["step"], set()).add(result["digest"])
        self.assertTrue(all(len(digests) == 1 for digests in by_step.values()), by_step)
        self.assertLessEqual(max(by_step) - min(by_step), 1)
        last = min(by_step)
        self.assertEqual(len({tuple(step for step, _ in result["failed"] if step < last) for result in survivors}), 1)
        return survivors

    def saved_by_all(self, folder):
        steps = [{int(path.suffix[1:]) for path in pathlib.Path(folder).glob(f"{rank}.[0-9]*")} for rank in range(WORLD)]
        return max(set.intersection(*steps), default=0)

    def through(self, folder, events, **options):
        """To the end, whatever happens; returns the digest of the weights, and how often the link was lost."""
        for lost in range(len(events) + 2):
            left = [dict(event, kind="done") if pathlib.Path(folder, f"event.{number}").exists() else event
                    for number, event in enumerate(events)]
            results = self.attempt(folder, left, self.saved_by_all(folder), **options)
            if all(result["lost"] is None for result in results) and len(results) == WORLD:
                self.assertEqual(len({result["digest"] for result in results}), 1)
                return results[0]["digest"], lost
        return self.fail("the job was lost more often than anything happened to it")

    def test_a_job_ends_in_the_same_bits(self):
        for seed in range(TIMES):
            for recipe, by_hook in (("ef+topk@0.1", True), ("fp16", False)):
                with self.subTest(seed=seed, recipe=recipe, by_hook=by_hook):
                    with tempfile.TemporaryDirectory() as folder:
                        straight, lost = self.through(folder, [], recipe=recipe, by_hook=by_hook)
                        self.assertEqual(lost, 0)
                    events = chaos.draw_events(f"{seed} {recipe}", WORLD, STEPS, ["kill", "stop"] + ["delay", "nan", "damage"] * 3)
                    with tempfile.TemporaryDirectory() as folder:
                        digest, lost = self.through(folder, events, recipe=recipe, by_hook=by_hook)
                        self.assertEqual(digest, straight)
                        self.assertGreaterEqual(lost, 2)  # by the rank that is killed, and by the one that is stopped
                        for number, event in enumerate(events):
                            self.assertTrue(pathlib.Path(folder, f"event.{number}").exists(), event)


if __name__ == "__main__":
    unittest.main()
