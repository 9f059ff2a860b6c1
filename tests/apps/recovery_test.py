#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that lose a process recover by restarting: bitwise, with every sample once, and a line per loss."""

import os
import random
import re
import signal
import time
import unittest
from pathlib import Path

from hosts import Hosts, why_not
from maestro_program import ENDLESS, SLOWNESS, SystemTest, decoder, distillation, state_of
from resume_test import steps_of_checkpoints

NO_HOSTS = why_not()
STEPS, EVERY = 320, 20  # half of the steps, after which a held run pauses, are more than the last fault needs
FEW_DEVICES = ("--cpu-devices", 16)
LAID_OUT = {"student": decoder(heads=8, tensor=2, pipeline=2, replicas=2, zero=True),
            "plain": decoder(heads=8, tensor=2, context=2, pipeline=2)}


def job_of(sections=None, **train):
    job = distillation(**{"steps": STEPS, "checkpoint_every": EVERY, "recover": "restart", **train})
    return {**job, **(sections or {})}


class Recovers(SystemTest):
    def setUp(self):
        super().setUp()
        self.killed = set()
        self.losses = {}

    def kill_one(self, run, rank, how, after_step):
        """Kills a process when a checkpoint of `after_step` is written, or for 0 when training has begun; after an
        earlier loss, not before the run has recovered."""
        victims = []
        earlier = self.losses.get(run, 0)
        run.wait_for(lambda: run.text["out"].count("recovered: went on") >= earlier)

        def find():  # a process that was started again may not exist yet
            pid = run.members().get(rank)
            if pid not in (None, *self.killed):
                victims.append(pid)
            return victims

        self.assertTrue(run.wait_for(find), run.text)  # this takes as long as many steps
        if after_step:
            reached = lambda: max(steps_of_checkpoints(self.folder / "out"), default=0) >= after_step  # noqa: E731
            self.assertTrue(run.wait_for(reached), run.text)
        else:
            self.assertTrue(run.wait_for_text("step ", "err"), run.text)
        if state_of(victims[0]) == "Z":
            victims.clear()
            self.assertTrue(run.wait_for(find), run.text)
        os.kill(victims[0], how)
        self.killed.add(victims[0])
        self.losses[run] = earlier + 1
        return victims[0]

    def check(self, run, expected, victims):
        """Checks the finished run; `victims`: rank and pid of every lost process."""
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [], finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assertEqual(finished.report["samples"], expected.report["samples"])
        self.assertEqual(finished.report["validation"], expected.report["validation"])
        self.assertEqual(len(finished.report["scheduling"]), len({row["step"] for row in expected.report["steps"]}))
        warnings = [line for line in finished.err.splitlines() if line.startswith("warning:")]
        self.assertEqual(len(warnings), len(victims), finished.describe())
        went_on = finished.out.count("recovered: went on after step ")
        self.assertIn(went_on, range(1, len(victims) + 1), finished.describe())  # fewer if another loss came first
        for number, ((rank, pid), line) in enumerate(zip(victims, warnings), 1):
            self.assertRegex(line, rf"process {rank} .*; starting again \w+ .* \(recovery {number} of 10\)")
            if went_on == len(victims):
                self.assertRegex(line, rf"lost process {rank} \(pid {pid}.*, section '\w+.*' replica \d.*\) in step \d+: ")
        self.assertEqual(len(finished.report["recoveries"]), len(victims))
        self.assert_nothing_left(run)

    def lose(self, job, options, moments, settings=None):
        """Loses processes; `moments`: rank, signal and step of every fault."""
        expected = self.twin(job, *options)
        processes = 3 if options == () else 2
        run = self.start_held(job, "--processes", processes, *options, settings=settings)
        victims = [(rank, self.kill_one(run, rank, how, step)) for rank, how, step in moments]
        self.check(run, expected, victims)


class ALostProcess(Recovers):
    def test_killed_over_tcp_is_started_again(self):
        self.lose(job_of(), (), [(1, signal.SIGKILL, EVERY)], {"transport.provider": "tcp"})

    def test_is_started_again_over_shm_as_often_as_it_is_lost(self):
        how = {1: signal.SIGKILL, 3: signal.SIGSTOP, 5: signal.SIGKILL}
        moments = [(random.choice((1, 2)), how[at], at * EVERY) for at in how]
        self.lose(job_of(), (), moments, {"transport.provider": "shm"})

    def test_of_a_paused_run_leaves_it_paused(self):  # CR-8
        expected = self.twin(job_of())
        run = self.start_held(job_of(), "--processes", 3, after=EVERY + 1)
        paused = f"paused after step {EVERY + 1}; `maestro continue` continues the run"
        self.assertTrue(run.wait_for_text(paused), run.text)
        victims = [(1, self.kill_one(run, 1, signal.SIGKILL, 0))]
        self.assertTrue(run.wait_for(lambda: run.text["out"].count(paused) == 2), run.text)
        self.check(run, expected, victims)

    def test_before_the_first_checkpoint_starts_the_run_anew(self):
        self.lose(job_of(checkpoint_every=0), (), [(2, signal.SIGKILL, 0)])

    def test_of_a_laid_out_job_is_started_again(self):
        self.lose(job_of(LAID_OUT, steps=100), FEW_DEVICES, [(1, signal.SIGKILL, EVERY)])

    def test_is_followed_by_another_that_stops_after_it_has_answered_that_it_stays(self):  # JS-5, SV-14
        job = job_of(peer_timeout_s=2 * SLOWNESS)
        expected = self.twin(job)
        run = self.start_held(job, "--processes", 3)
        self.kill_one(run, 2, signal.SIGKILL, EVERY)
        survivor = run.members()[1]
        self.assertTrue(run.wait_for_text("starting again from", "err"), run.text)
        os.kill(survivor, signal.SIGSTOP)
        self.assertTrue(run.wait_for_text("(recovery 2 of 10)", "err"), run.text)
        finished = run.wait()
        self.assertEqual((finished.status, finished.error_lines()), (0, []), finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assert_nothing_left(run)

    def test_of_a_resumed_run_takes_it_to_its_own_checkpoints(self):
        expected = self.train(job_of(keep_checkpoints=99), settings={"train.out": "reference"})
        run = self.start_held(job_of(), "--processes", 3, "--resume", f"reference/checkpoints/step-{2 * EVERY:08}")
        self.kill_one(run, 2, signal.SIGKILL, 4 * EVERY)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.report["resumed_from"], 2 * EVERY)
        self.assertEqual(finished.curve(), expected.curve(after=2 * EVERY))


class WithShadows(Recovers):
    """Checkpoints in memory; none on disk before the end."""

    SETTINGS = {"train.shadow_every": EVERY}

    def shadows(self, run):
        """Returns the steps of this run's checkpoints in memory."""
        own = f"-{run.process.pid}-"
        folders = [folder for folder in Path("/dev/shm").iterdir() if own in folder.name and folder.is_dir()]
        return [step for folder in folders for step in steps_of_checkpoints(folder, "")]


class Shadows(WithShadows):
    def test_take_a_run_back_less_far(self):
        for job, options in ((job_of(checkpoint_every=0), ()), (job_of(LAID_OUT, checkpoint_every=0, steps=200), FEW_DEVICES)):
            expected = self.twin(job, *options)
            run = self.start_held(job, "--processes", 2 if options else 3, *options, settings=self.SETTINGS)
            victims = []
            for number in (1, 2):
                self.assertTrue(run.wait_for(lambda: max(self.shadows(run), default=0) >= 2 * number * EVERY), run.text)
                victims.append((1, self.kill_one(run, 1, signal.SIGKILL, 0)))
                self.assertTrue(run.wait_for(lambda: run.text["out"].count("recovered: ") == number), run.text)
            self.check(run, expected, victims)
            self.assertEqual(run.text["err"].count("starting again from /dev/shm/maestro-"), 2, run.text)
            self.assertEqual(self.shadows(run), [])

    def test_are_gone_after_the_death_of_rank_0(self):
        run = self.start_held(job_of(checkpoint_every=0), "--processes", 2, settings=self.SETTINGS)
        self.assertTrue(run.wait_for(lambda: self.shadows(run)), run.text)
        run.end()
        self.train(job_of(checkpoint_every=0, steps=1), "--processes", 2)
        self.assertEqual(self.shadows(run), [])

    def test_are_refused_where_they_serve_nothing(self):
        name = self.write_job(job_of())
        wanted = "train.shadow_every = 5: "
        self.assert_refused(wanted + "a run continues from a checkpoint in memory only with", "train", name, "--set",
                            "train.shadow_every=5", "--set", 'train.recover="off"')
        alone = self.train(job_of(steps=2), settings={"train.shadow_every": 5})
        self.assertIn(wanted + "no effect, as rank 0 starts no other processes here", alone.out)


class OfAPairOfStudents(Recovers):
    """Processes 1 and 2 have a replica of the student each, process 3 the plain student, which runs ahead of them; no
    checkpoint is written before the end."""

    REPLICAS = 2

    def test_goes_on_from_the_state_of_the_other(self):
        job = job_of({"student": decoder(replicas=self.REPLICAS)}, checkpoint_every=0, validate_every=150, steps=2 * STEPS)
        expected = self.twin(job, *FEW_DEVICES)
        run = self.start_held(job, "--processes", 4, *FEW_DEVICES)
        victims = []
        self.assertTrue(run.wait_for(lambda: len(run.members()) == 4), run.text)
        first = run.members()
        for number, how in enumerate((signal.SIGKILL, signal.SIGSTOP), 1):
            victims.append((2, self.kill_one(run, 2, how, 0)))
            recovered = lambda: run.text["out"].count("recovered: ") == number  # noqa: E731, B023
            self.assertTrue(run.wait_for(recovered), run.text)
            now = run.members()
            self.assertEqual([rank for rank in first if now.get(rank) != first[rank]], [2], "the others stay")
        self.check(run, expected, victims)
        # A process lost before a step's losses are reported takes the run further back; it happens at most once.
        near = re.findall(r"recovered: went on after step \d+ within [\d.]+ s; [0-3] steps? w", run.text["out"])
        self.assertIn(len(near), (1, 2), run.text)
        self.assertIn(run.text["err"].count("starting again from /dev/shm/maestro-"), (1, 2), run.text)


class OfAPairOfUnlikeStudents(OfAPairOfStudents):
    REPLICAS = [{"context": 2}, {"context": 1}]


class InPlace(Recovers):
    """Processes 1 and 2 have only a teacher replica each; process 0 has the third replica, process 3 the student."""

    REPLICAS, PROCESSES = 3, 4

    def job(self):
        job = job_of()
        job["teacher"] |= {"replicas": self.REPLICAS, "micro_batch": 2}
        return job

    def start_and_lose(self, moments, options=(), **settings):
        """Returns the run, its undisturbed twin, and rank and pid of the victims. No other process starts again."""
        job = self.job()
        settings = {"transport.provider": "tcp", **settings}
        expected = self.twin(job, *FEW_DEVICES)
        run = self.start_held(job, "--processes", self.PROCESSES, *FEW_DEVICES, *options, settings=settings)
        victims = []
        for rank, how, step in moments:
            victims.append((rank, self.kill_one(run, rank, how, step)))
            others = {other: pid for other, pid in run.members().items() if other not in dict(victims)}
            self.assertTrue(run.wait_for(lambda: self.recoveries(run) == len(victims)), run.text)
            self.assertEqual({other: pid for other, pid in run.members().items() if other in others}, others)
        return run, expected, victims

    @staticmethod
    def recoveries(run):
        """Returns the number of replacements that have their placements."""
        return run.text["out"].count("has rejoined")

    def check_in_place(self, run, expected, victims):
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [], finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        for part in ("samples", "validation"):
            self.assertEqual(finished.report[part], expected.report[part])
        self.assertEqual(len(finished.report["recoveries"]), len(victims))
        warnings = [line for line in finished.err.splitlines() if line.startswith("warning:")]
        self.assertEqual(len(warnings), len(victims), finished.describe())
        for number, ((rank, pid), line) in enumerate(zip(victims, warnings), 1):
            self.assertRegex(line, rf"lost process {rank} \(pid {pid}(, host \S+)?(, section 'teacher' replica \d)+\) in step \d+: "
                                   rf".*; {self.FOLLOWS} \(recovery {number} of 10\)")
        self.assert_nothing_left(run)
        return finished

    FOLLOWS = r"process 0 takes section 'teacher' replica \d"


class ALostTeacher(InPlace):
    def test_comes_again_as_often_as_it_is_lost_and_is_in_the_trace(self):
        moments = [(2, signal.SIGKILL, EVERY), (1, signal.SIGSTOP, 3 * EVERY), (2, signal.SIGKILL, 5 * EVERY)]
        run = self.start_and_lose(moments, ("--trace", "trace.json"), **{"train.peer_timeout_s": 2 * SLOWNESS})
        finished = self.check_in_place(*run)
        self.assertEqual(len(re.findall(r"recovered: went on in place within [\d.]+ s", finished.out)), 3, finished.out)
        self.assertIn("process 2", (self.folder / "trace.json").read_text())

    def test_over_shm_does_not_end_the_run_whatever_lock_it_holds(self):
        expected = self.twin(self.job(), *FEW_DEVICES)
        run = self.start_held(self.job(), "--processes", 4, *FEW_DEVICES, settings={"transport.provider": "shm"})
        self.kill_one(run, 2, signal.SIGKILL, EVERY)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assert_nothing_left(run)

    def test_and_a_lost_student_take_the_run_back(self):
        run, expected, _ = self.start_and_lose([(1, signal.SIGKILL, EVERY)])
        self.kill_one(run, 3, signal.SIGKILL, 4 * EVERY)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assertIn("(recovery 2 of 10)", finished.err)
        self.assert_nothing_left(run)


class TheOnlyOtherProcess(InPlace):
    """Process 1 has two replicas of the teacher and nothing else, process 0 everything else."""

    REPLICAS, PROCESSES = 4, 2
    FOLLOWS = r"process 0 takes section 'teacher' replica 1 and 3"

    def job(self):
        job = super().job()
        del job["plain"]
        return job

    def test_comes_again_and_hears_rank_0_from_then_on(self):
        silence_s = 3 * SLOWNESS
        run, expected, victims = self.start_and_lose([(1, signal.SIGKILL, EVERY)], **{"train.peer_timeout_s": silence_s})
        rejoined = time.monotonic()
        # Held for longer than the time after which a process that does not hear rank 0 ends.
        self.assertTrue(run.wait_for(lambda: time.monotonic() - rejoined > 2 * silence_s), run.text)
        self.check_in_place(run, expected, victims)


class TheOnlyTeacher(InPlace):
    """Process 1 has the teacher, process 2 the student."""

    REPLICAS = 1
    FOLLOWS = "starting it again"

    @staticmethod
    def recoveries(run):
        return run.text["out"].count("recovered: went on in place")

    def test_comes_again_as_often_as_it_is_lost(self):
        self.check_in_place(*self.start_and_lose([(1, signal.SIGKILL, EVERY), (1, signal.SIGKILL, 4 * EVERY)]))

    def test_and_a_lost_student_take_the_run_back(self):
        run, expected, _ = self.start_and_lose([(1, signal.SIGKILL, EVERY)])
        self.kill_one(run, 2, signal.SIGKILL, 4 * EVERY)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assert_nothing_left(run)


class ALostTeacherAmongUnlikeOnes(InPlace):
    """Processes 1 and 2 have a narrow replica of the teacher each; process 0 has a wide one."""

    FOLLOWS = "process 1 takes section 'teacher' replica 2"

    def job(self):
        job = super().job()
        job["teacher"]["replicas"] = [{"context": 2}, {"count": 2, "context": 1}]
        return job

    def test_goes_to_the_process_of_one_like_it(self):
        self.check_in_place(*self.start_and_lose([(2, signal.SIGKILL, EVERY)]))


class ALostTeacherWithoutOneLikeIt(InPlace):
    """Process 1 has the wide replica of the teacher, processes 0 and 2 have narrow ones."""

    FOLLOWS = TheOnlyTeacher.FOLLOWS
    recoveries = staticmethod(TheOnlyTeacher.recoveries)

    def job(self):
        job = super().job()
        job["teacher"]["replicas"] = [{"context": 1}, {"context": 2}, {"context": 1}]
        return job

    def test_comes_again_as_often_as_it_is_lost(self):
        self.check_in_place(*self.start_and_lose([(1, signal.SIGKILL, EVERY), (1, signal.SIGKILL, 4 * EVERY)]))


class NoRecovery(Recovers):
    def ends(self, job, rank, *wanted):
        run = self.start(job, "--processes", 2)
        self.kill_one(run, rank, signal.SIGKILL, 0)
        finished = run.wait()
        self.assertTrue(run.wait_for(lambda: not run.members()))
        self.assertNotEqual(finished.status, 0)
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, finished.error_lines()[0])
        self.assert_nothing_left(run)

    def test_is_tried_once_max_recoveries_are_used_up(self):
        self.ends(job_of(steps=ENDLESS, max_recoveries=0), 1, "lost process 1")

    def test_ends_well_from_a_damaged_checkpoint(self):
        run = self.start_held(job_of(), "--processes", 2, after=EVERY + 1)
        self.assertTrue(run.wait_for_text(f"paused after step {EVERY + 1};"), run.text)  # no further checkpoint is written
        self.assertTrue(run.wait_for(lambda: steps_of_checkpoints(self.folder / "out")), run.text)
        for weights in (self.folder / "out" / "checkpoints").glob("step-*/*/*.safetensors"):
            os.truncate(weights, 100)
        os.kill(run.members()[1], signal.SIGKILL)
        self.assertTrue(run.wait_for(lambda: run.process.poll() is not None), run.text)
        run.held_at = None  # it has ended
        finished = run.wait()
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        self.assertRegex(finished.error_lines()[0], r"step-\d{8}.*\.safetensors")
        self.assert_nothing_left(run)

    def test_is_tried_when_rank_0_is_lost(self):
        self.ends(job_of(steps=ENDLESS), 0, "lost process 0")

    def test_is_tried_after_a_failure_of_the_training_itself(self):
        job = job_of()
        job["student"] |= {"lr": 1e30, "clip_norm": 0}
        finished = self.start(job, "--processes", 2).wait()
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertIn("training diverged", finished.error_lines()[0])


class ALostTeacherAfterALostStudent(InPlace, WithShadows):
    def test_comes_again_though_the_checkpoint_of_the_start_is_gone(self):
        expected = self.twin(self.job(), *FEW_DEVICES)
        run = self.start_held(self.job(), "--processes", 4, *FEW_DEVICES, settings={"train.checkpoint_every": 0, **self.SETTINGS})
        self.assertTrue(run.wait_for(lambda: self.shadows(run)), run.text)
        self.kill_one(run, 3, signal.SIGKILL, 0)
        self.assertTrue(run.wait_for_text("recovered: went on after step "), run.text)
        began = int(run.text["out"].split("went on after step ")[1].split()[0])
        held = f"paused after step {self.job()['train']['steps'] // 2};"
        self.assertTrue(run.wait_for(lambda: min(self.shadows(run), default=0) > began or held in run.text["out"]), run.text)
        self.kill_one(run, 1, signal.SIGKILL, 0)
        self.assertTrue(run.wait_for(lambda: self.recoveries(run) == 1), run.text)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assertEqual(finished.err.count("did not start again"), 0, finished.describe())


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class ALostTeacherOfAnotherHost(InPlace):
    def test_comes_again_there(self):
        hosts = Hosts(self.folder, 4)
        self.addCleanup(hosts.remove)
        expected = self.twin(self.job(), *FEW_DEVICES)
        options = ("--hosts", ",".join(hosts.addresses), "--ssh", hosts.remote_shell(), *FEW_DEVICES)
        run = self.start_held(self.job(), *options, launcher=hosts.on(0))
        pid = self.kill_one(run, 2, signal.SIGKILL, EVERY)
        self.assertTrue(run.wait_for(lambda: self.recoveries(run) == 1), run.text)
        self.check_in_place(run, expected, [(2, pid)])


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class ALostProcessOfAnotherHost(Recovers):
    def test_is_started_again_there(self):
        hosts = Hosts(self.folder, 2)
        self.addCleanup(hosts.remove)
        options = ("--hosts", ",".join(hosts.addresses), "--ssh", hosts.remote_shell())
        expected = self.twin(job_of())
        run = self.start_held(job_of(), *options, launcher=hosts.on(0))
        self.check(run, expected, [(1, self.kill_one(run, 1, signal.SIGKILL, EVERY))])


class ResumeAuto(SystemTest):
    def test_starts_where_there_is_no_checkpoint_and_goes_on_where_there_is_one(self):
        first = self.train(job_of(), "--resume", "auto", settings={"train.steps": EVERY})
        self.assertIn("--resume auto: out has no checkpoint", first.out)
        self.assertEqual(first.report["resumed_from"], 0)
        self.assertEqual(self.train(job_of(), "--resume", "auto").report["resumed_from"], EVERY)


if __name__ == "__main__":
    unittest.main(verbosity=2)
