#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: the first ends a run in order, with a checkpoint; the second exits at once."""

import json
import os
import re
import signal
import time
import unittest
from pathlib import Path

from maestro_program import ENDLESS, LOADED, PATIENCE_S, SLOWNESS, Run, SystemTest, decoder, distillation


class Interrupted(SystemTest):
    OPTIONS = ()
    STUDENT, PLAIN = decoder(), decoder()

    def job(self):
        job = distillation(steps=ENDLESS)
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
        self.assert_one_last_step(finished)
        self.assert_nothing_left(run)
        return finished

    def assert_one_last_step(self, finished):
        """Checks that message, progress, summary, report and record have the same last step."""
        last = finished.report["last_step"]
        self.assertEqual(re.findall(r"stopping after step (\d+), with a checkpoint", finished.out), [str(last)])
        self.assertEqual(re.findall(r"interrupted after step (\d+) of", finished.out), [str(last)])
        self.assertEqual(re.findall(r"step +(\d+)/", finished.err)[-1], str(last), finished.describe())
        record = self.folder / "out/record"
        self.assertEqual(json.loads((record / "steps.jsonl").read_text().splitlines()[-1])["step"], last)
        events = map(json.loads, (record / "events.jsonl").read_text().splitlines())
        self.assertEqual([(event["step"], event["interrupted"]) for event in events if event["event"] == "finished"],
                         [(last, True)])

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
        # The stopped peer is not to count as lost before the second Ctrl-C.
        run = self.start(self.job(), *options, settings={"transport.provider": provider, "train.peer_timeout_s": PATIENCE_S})
        self.assertTrue(run.wait_for_text("step "), run.text)
        members = run.members()
        self.assertEqual(len(members), processes)
        # A stopped peer delays the orderly end until the second Ctrl-C.
        if processes > 1:
            os.kill(members[processes - 1], signal.SIGSTOP)
        run.interrupt()
        self.assertTrue(run.wait_for_text("stopping after step "), run.text)
        begin = time.monotonic()

        def pressed_again():  # a Ctrl-C counts as the second if it follows the first by at least a second
            if run.process.poll() is None:
                run.interrupt()
            return not run.members()

        run.wait_for(pressed_again)
        finished = run.wait()
        self.assertLess(time.monotonic() - begin, 5.0 * LOADED)
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
        # A single process may end in order before the second Ctrl-C; then its status is 0.
        self.assertIn(self.leave_at_once(1, "auto").status, (130, 0))


class Signals(Interrupted):
    """Signals from schedulers, `timeout`, a closed terminal, an exceeded limit: save, and exit with a single line."""

    def stopped_by(self, processes, send):
        run = self.start(self.job(), "--processes", processes)
        self.assertTrue(run.wait_for_text("step "), run.text)
        members = run.members()
        send(run, members)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [])
        self.assertEqual(finished.out.count("stopping after step "), 1, finished.describe())
        self.assertTrue((self.folder / finished.report["checkpoint"]).is_dir())
        self.assert_nothing_left(run)

    def test_to_rank_0_end_a_run_in_order(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU):
            for processes in (1, 2):
                with self.subTest(number.name, processes=processes):
                    self.stopped_by(processes, lambda run, members: os.kill(members[0], number))

    def test_to_another_process_end_the_run_in_order(self):
        self.stopped_by(2, lambda run, members: os.kill(members[1], signal.SIGTERM))

    def test_to_the_whole_group_end_the_run_in_order(self):
        def twice(run, members):  # as `timeout` does: first the child, then the group
            os.kill(members[0], signal.SIGTERM)
            for pid in members.values():
                os.kill(pid, signal.SIGTERM)

        for processes in (1, 3):
            with self.subTest(processes=processes):
                self.stopped_by(processes, twice)

    def test_after_the_last_step_change_nothing(self):
        for processes in (1, 2):
            with self.subTest(processes=processes):
                run = self.start(distillation(), "--processes", processes)
                self.assertTrue(run.wait_for_text("validation after step 12"), run.text)
                while run.process.poll() is None:
                    os.killpg(run.process.pid, signal.SIGHUP)
                    time.sleep(0.001)  # a flood of signals would keep the processes from ending
                finished = run.wait()
                self.assertEqual(finished.status, 0, finished.describe())
                self.assertEqual(finished.error_lines(), [], finished.describe())
                self.assertTrue((self.folder / finished.report["checkpoint"]).is_dir())
                self.assert_nothing_left(run)

    def test_before_a_run_end_the_program_with_one_line(self):
        # None of its schedules reaches the lower bound, which would end the search.
        workload = {"sections": [{"name": "a", "replicas": 3, "mode": "forward_backward", "max_in_flight": 2},
                                 {"name": "b", "replicas": 5, "mode": "forward_backward", "max_in_flight": 1}],
                    "edges": [{"from": "a", "to": "b"}],
                    "samples": [{"id": at, "forward_ms": {"a": 1 + at * 7 % 13, "b": 1 + at * 11 % 17},
                                 "backward_ms": {"a": 2 + at * 5 % 19, "b": 1 + at * 3 % 11}} for at in range(200)]}
        (self.folder / "workload.json").write_text(json.dumps(workload))

        def catches(pid):
            caught = int(Path("/proc", str(pid), "status").read_text().split("SigCgt:")[1].split()[0], 16)
            return caught >> (signal.SIGXCPU - 1) & 1

        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name):
                run = Run(self.folder, ["simulate", "workload.json", "--budget-ms", "3000000"])
                self.addCleanup(run.end)
                self.assertTrue(run.wait_for(lambda: catches(run.process.pid)), run.text)
                os.kill(run.process.pid, number)
                finished = run.wait()
                self.assertEqual(finished.status, 130, finished.describe())
                self.assertEqual(finished.error_lines(), [f"error: ended by {number.name}"])

    def test_all_processes_suspended_for_longer_than_the_peer_timeout_go_on(self):
        silence_s = 3.0 * SLOWNESS
        run = self.start(self.job(), "--processes", 3, settings={"train.peer_timeout_s": silence_s})
        self.assertTrue(run.wait_for_text("step "), run.text)
        members = run.members()
        for pid in members.values():
            os.kill(pid, signal.SIGSTOP)
        suspended = time.monotonic()
        self.assertTrue(run.wait_for(lambda: time.monotonic() - suspended > 2 * silence_s))
        for pid in members.values():
            os.kill(pid, signal.SIGCONT)
        resumed = time.monotonic()
        self.assertTrue(run.wait_for(lambda: time.monotonic() - resumed > 1.5 * silence_s), run.text)
        run.interrupt()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [])


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
