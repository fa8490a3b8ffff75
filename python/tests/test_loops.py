"""The policy of gloo's event loops, with threads that bear their name."""

import os
import sys
import threading
import unittest

from tersegrad._torch_loops import Loops


class Thread:
    """A thread that waits, under the name of a loop or another one."""

    def __init__(self, name):
        self._ends, started = threading.Event(), threading.Event()

        def run():
            with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w", encoding="ascii") as file:
                file.write(name)
            started.set()
            self._ends.wait()
        self._thread = threading.Thread(target=run)
        self._thread.start()
        started.wait()

    def policy(self):
        return os.sched_getscheduler(self._thread.native_id)

    def set_policy(self, policy):
        os.sched_setscheduler(self._thread.native_id, policy, os.sched_param(0))

    def end(self):
        self._ends.set()
        self._thread.join()


@unittest.skipUnless(sys.platform == "linux", "policies of Linux")
class LoopsTest(unittest.TestCase):
    def setUp(self):
        self.loop, self.other = Thread("gloo_tcp_loop"), Thread("computing")
        for thread in (self.loop, self.other):
            self.addCleanup(thread.end)
        self.loops = Loops()
        self.loops.find()

    def policies(self):
        return self.loop.policy(), self.other.policy()

    def test_only_loops_and_only_meanwhile(self):
        self.loops.lower()
        self.assertEqual(self.policies(), (os.SCHED_BATCH, os.SCHED_OTHER))
        self.loops.restore()
        self.assertEqual(self.policies(), (os.SCHED_OTHER, os.SCHED_OTHER))

    def test_steps_at_once(self):
        for call, policy in ((self.loops.lower, os.SCHED_BATCH), (self.loops.lower, os.SCHED_BATCH), (self.loops.restore, os.SCHED_BATCH),
                             (self.loops.restore, os.SCHED_OTHER), (self.loops.lower, os.SCHED_BATCH), (self.loops.restore, os.SCHED_OTHER)):
            call()
            self.assertEqual(self.loop.policy(), policy)

    def test_a_policy_that_was_chosen_stays(self):
        self.loop.set_policy(os.SCHED_BATCH)
        self.loops.lower()
        self.loops.restore()
        self.assertEqual(self.loop.policy(), os.SCHED_BATCH)

    def test_a_loop_that_has_ended(self):
        self.loop.end()
        self.loops.lower()
        self.loops.restore()
        new = Thread("gloo_tcp_loop")
        self.addCleanup(new.end)
        self.loops.find()
        self.loops.lower()
        self.assertEqual(new.policy(), os.SCHED_BATCH)
        self.loops.restore()
        self.assertEqual(new.policy(), os.SCHED_OTHER)


if __name__ == "__main__":
    unittest.main()
