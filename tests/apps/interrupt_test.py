#!/usr/bin/env python3
"""Ctrl-C: the first one ends a run in order, with a checkpoint; the second one leaves at once."""

import os
import signal
import time
import unittest

from maestro_program import SystemTest, decoder, distillation

LONG = 1_000_000


class Interrupted(SystemTest):
    OPTIONS = ()
    STUDENT, PLAIN = decoder(), decoder()

    def job(self):
        job = distillation(steps=LONG)
        job["student"], job["plain"] = dict(self.STUDENT), dict(self.PLAIN)
        for section in ("student", "plain"):
            job[section]["schedule"] = "constant"  # so that runs of other lengths have the same learning rates
        return job

    def interrupted(self, processes):
        run = self.start(self.job(), "--processes", processes, *self.OPTIONS)
        self.assertTrue(run.wait_for_text("step "), run.text)
        run.members()
        run.interrupt()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [])
        self.assertTrue(finished.report["interrupted"])
        self.assert_nothing_left(run)
        return finished

    def check_resumable(self, processes):
        finished = self.interrupted(processes)
        last = finished.report["last_step"]
        self.assertEqual(finished.report["checkpoint"], f"out/checkpoints/step-{last:08}")
        more = {"train.steps": last + 10, "train.out": "more"}
        options = ("--processes", processes, "--resume", "out", *self.OPTIONS)
        resumed = self.train(self.job(), *options, settings=more)
        longer = {"train.steps": last + 10, "train.out": "whole"}
        whole = self.train(self.job(), *self.OPTIONS, settings=longer).curve()
        self.assertEqual({**finished.curve(), **resumed.curve()}, whole)
        self.assertEqual(resumed.report["resumed_from"], last)

    def leave_at_once(self, processes, provider):
        options = ("--processes", processes, *self.OPTIONS)
        run = self.start(self.job(), *options, settings={"transport.provider": provider})
        self.assertTrue(run.wait_for_text("step "), run.text)
        members = run.members()
        self.assertEqual(len(members), processes)
        # A stopped peer keeps the orderly end from being over before the second one comes.
        if processes > 1:
            os.kill(members[processes - 1], signal.SIGSTOP)
        run.interrupt()
        self.assertTrue(run.wait_for_text("stopping after this step"), run.text)
        run.interrupt()
        begin = time.monotonic()
        finished = run.wait()
        self.assertLess(time.monotonic() - begin, 5.0)
        self.assertTrue(run.wait_for(lambda: not run.members()))
        self.assert_nothing_left(run)
        return finished


class CtrlC(Interrupted):
    def test_writes_a_checkpoint_from_which_one_process_goes_on_bitwise(self):
        self.check_resumable(1)

    def test_writes_a_checkpoint_from_which_three_processes_go_on_bitwise(self):
        self.check_resumable(3)

    def test_twice_leaves_three_processes_over_shm_at_once(self):
        self.assertEqual(self.leave_at_once(3, "shm").status, 130)

    def test_twice_leaves_three_processes_over_tcp_at_once(self):
        self.assertEqual(self.leave_at_once(3, "tcp").status, 130)

    def test_twice_leaves_one_process_at_once(self):
        # The orderly end of one process may be faster than the second Ctrl-C; then it was a clean end.
        self.assertIn(self.leave_at_once(1, "auto").status, (130, 0))


class CtrlCOfALaidOutJob(Interrupted):
    OPTIONS = ("--cpu-devices", 16)
    STUDENT = decoder(heads=8, tensor=2, pipeline=2)
    PLAIN = decoder(heads=8, tensor=2, context=2, pipeline=2, replicas=2)

    def test_writes_a_checkpoint_from_which_one_process_goes_on_bitwise(self):
        self.check_resumable(1)

    def test_writes_a_checkpoint_from_which_two_processes_go_on_bitwise(self):
        self.check_resumable(2)

    def test_twice_leaves_two_processes_at_once(self):
        self.assertEqual(self.leave_at_once(2, "auto").status, 130)

    def test_twice_leaves_one_process_at_once(self):
        self.assertIn(self.leave_at_once(1, "auto").status, (130, 0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
