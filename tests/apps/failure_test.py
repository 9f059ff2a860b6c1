#!/usr/bin/env python3
"""Deaths and stops of the processes of a run: the others leave within seconds, with one clear error, and clean up."""

import ctypes
import os
import re
import signal
import time
import unittest

from maestro_program import SystemTest, distillation

LIMIT_S = 5.0
PR_SET_CHILD_SUBREAPER = 36


class ALostProcess(SystemTest):
    @classmethod
    def setUpClass(cls):
        # Orphans come to this process instead of init, so that their exit statuses can be read.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def lose(self, rank, how, provider):
        run = self.start(distillation(steps=1_000_000), "--processes", 3, settings={"transport.provider": provider})
        self.assertTrue(run.wait_for_text("step "), run.text)
        members = run.members()
        self.assertEqual(sorted(members), [0, 1, 2])
        os.kill(members[rank], how)
        begin = time.monotonic()
        finished = run.wait()
        self.assertTrue(run.wait_for(lambda: not run.members()))
        seconds = time.monotonic() - begin
        self.assertLess(seconds, LIMIT_S, finished.describe())
        self.assertNotEqual(finished.status, 0)
        if rank == 0:  # its children are ours now
            statuses = [os.waitstatus_to_exitcode(os.waitpid(members[other], 0)[1]) for other in (1, 2)]
            self.assertTrue(all(status != 0 for status in statuses), statuses)
        self.check_error(finished, rank, how, members[rank])
        self.assert_nothing_left(run)

    def check_error(self, finished, rank, how, pid):
        lines = finished.err.splitlines()
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        self.assertEqual(len([line for line in lines if not line.startswith("step ")]), 1, finished.describe())
        line = finished.error_lines()[0]
        self.assertIn(f"process {rank} (pid {pid}", line)
        self.assertRegex(line, r"section '(teacher|student|plain)' replica 0")
        step = re.search(r"in step (\d+)", line)
        self.assertIsNotNone(step, line)
        self.assertGreater(int(step[1]), 0, line)
        if rank != 0 and how == signal.SIGKILL:
            self.assertIn("it ended with signal 9", line)


def add_cases():
    for provider in ("shm", "tcp"):
        for rank in (0, 1, 2):
            for verb, how in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
                def case(self, rank=rank, how=how, provider=provider):
                    self.lose(rank, how, provider)
                setattr(ALostProcess, f"test_rank_{rank}_{verb}_over_{provider}_ends_the_others_with_one_error", case)


add_cases()

if __name__ == "__main__":
    unittest.main(verbosity=2)
