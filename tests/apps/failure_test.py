#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Deaths and stops of a run's processes: the others exit within seconds, with a single clear error, and clean up."""

import ctypes
import os
import re
import signal
import time
import unittest

from maestro_program import ENDLESS, LOADED, SystemTest, decoder, distillation

LIMIT_S = 5.0 * LOADED
PR_SET_CHILD_SUBREAPER = 36


def exchange(a, b):
    """Swaps two paths atomically: neither path is ever missing (renameat2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    at_working_folder, rename_exchange = -100, 2
    if libc.renameat2(at_working_folder, os.fsencode(a), at_working_folder, os.fsencode(b), rename_exchange) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def laid_out():
    """Returns a job whose processes have stages of all trained sections, with ranks that meet in collectives."""
    job = distillation(steps=ENDLESS)
    job["student"] = decoder(heads=8, tensor=2, pipeline=2)
    job["plain"] = decoder(heads=8, tensor=2, context=2, pipeline=2, replicas=2)
    return job


class LosesProcesses(SystemTest):
    @classmethod
    def setUpClass(cls):
        # Orphans become children of this process instead of init's, so that their exit statuses can be read.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def lose(self, run, processes, rank, how):
        self.assertTrue(run.wait_for_text("step "), run.text)
        members = run.members()
        self.assertEqual(sorted(members), list(range(processes)))
        os.kill(members[rank], how)
        begin = time.monotonic()
        finished = run.wait()
        self.assertTrue(run.wait_for(lambda: not run.members()))
        seconds = time.monotonic() - begin
        self.assertLess(seconds, LIMIT_S, finished.describe())
        self.assertNotEqual(finished.status, 0)
        if rank == 0:  # its children are now ours
            statuses = [os.waitstatus_to_exitcode(os.waitpid(members[other], 0)[1]) for other in members if other != 0]
            self.assertTrue(all(status != 0 for status in statuses), statuses)
        self.check_error(finished, rank, how, members[rank])
        self.assert_nothing_left(run)

    def check_error(self, finished, rank, how, pid):
        lines = finished.err.splitlines()
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        self.assertEqual(len([line for line in lines if not line.startswith("step ")]), 1, finished.describe())
        line = finished.error_lines()[0]
        self.assertIn(f"process {rank} (pid {pid}", line)
        self.assertRegex(line, r"section '(teacher|student|plain)(\.stage[01])?' replica [01]")
        step = re.search(r"in step (\d+)", line)
        self.assertIsNotNone(step, line)
        self.assertGreater(int(step[1]), 0, line)
        if rank != 0 and how == signal.SIGKILL:
            self.assertIn("it ended with signal 9", line)  # SV-4


class ALostProcess(LosesProcesses):
    def lose_one_of_three(self, rank, how, provider):
        run = self.start(distillation(steps=ENDLESS), "--processes", 3, settings={"transport.provider": provider})
        self.lose(run, 3, rank, how)


class ALostProcessOfALaidOutJob(LosesProcesses):
    def lose_one_of_two(self, rank, how):
        run = self.start(laid_out(), "--processes", 2, "--cpu-devices", 16)
        self.lose(run, 2, rank, how)

    def test_rank_0_killed_ends_the_other_with_one_error(self):
        self.lose_one_of_two(0, signal.SIGKILL)

    def test_rank_1_killed_ends_the_other_with_one_error(self):  # PR-2, DE-1, DE-2
        self.lose_one_of_two(1, signal.SIGKILL)

    def test_rank_1_stopped_ends_the_other_with_one_error(self):
        self.lose_one_of_two(1, signal.SIGSTOP)


class ARankFails(SystemTest):
    def fail(self, run, *wanted):
        finished = run.wait()
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, finished.error_lines()[0])
        self.assert_nothing_left(run)


class ARankThatFails(ARankFails):
    """The replica's other ranks may wait for it in a collective, and the ranks of other stages for its tensors."""

    def test_by_divergence_ends_the_run_with_one_error(self):
        for section in ("student", "plain"):
            for processes in (1, 2):
                with self.subTest(section, processes=processes):
                    job = laid_out()
                    job[section] |= {"lr": 1e30, "clip_norm": 0}
                    run = self.start(job, "--processes", processes, "--cpu-devices", 16)
                    self.fail(run, f"section '{section}", "training diverged", "lower lr")

    def test_in_writing_a_checkpoint_ends_the_run_with_one_error(self):
        job = laid_out()
        job["train"]["checkpoint_every"] = 5
        run = self.start(job, "--cpu-devices", 16)
        out = self.folder / "out"
        (self.folder / "blocked").touch()
        self.assertTrue(run.wait_for((out / "checkpoints" / "step-00000005").exists), run.text)
        exchange(out, self.folder / "blocked")
        self.fail(run, "checkpoint", "out")


def add_cases():
    for provider in ("shm", "tcp"):
        for rank in (0, 1, 2):
            for verb, how in (("killed", signal.SIGKILL), ("stopped", signal.SIGSTOP)):
                def case(self, rank=rank, how=how, provider=provider):
                    self.lose_one_of_three(rank, how, provider)
                setattr(ALostProcess, f"test_rank_{rank}_{verb}_over_{provider}_ends_the_others_with_one_error", case)


add_cases()

if __name__ == "__main__":
    unittest.main(verbosity=2)
