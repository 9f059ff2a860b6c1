#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes join a running job, leave it and die in it; its losses stay bitwise equal to a run without them."""

import json
import os
import signal
import unittest

from hosts import Hosts, why_not
from maestro_program import ENDLESS, Run, SystemTest, distillation
from resume_test import steps_of_checkpoints

NO_HOSTS = why_not()
DEVICES = ("--cpu-devices", 16)
TEACHERS = {"teacher.replicas.least": 1, "teacher.replicas.most": 4}


class Joining(SystemTest):
    """Three processes: 0 has the teacher's four replicas, 1 and 2 a student each."""

    PROCESSES = 3

    def setUp(self):
        super().setUp()
        self.address = f"unix:{self.folder}/control.sock"
        self.keys = ()
        self.launcher = ()  # for clients on rank 0's host
        self.job_of_run = None

    def job(self, **train):
        """Returns an endless job whose learning rate does not depend on its steps; finish() stops it."""
        job = distillation(**{"steps": ENDLESS, "checkpoint_every": 0, "recover": "restart", **train})
        del job["teacher"]["replicas"]
        job["teacher"] |= {"micro_batch": 2}
        for section in ("student", "plain"):
            job[section]["schedule"] = "constant"
        return job

    def begin(self, job=None, options=()):
        """Returns the run, which pauses after its first steps."""
        self.job_of_run = job or self.job()
        run = self.start(self.job_of_run, "--processes", self.PROCESSES, "--control", self.address, *DEVICES, *options,
                         settings=TEACHERS)
        self.assertTrue(run.wait_for_text("step ", "err"), run.text)
        self.control("pause")
        return run

    def control(self, *words):
        client = Run(self.folder, [*words, "--at", self.address, *self.keys], launcher=self.launcher)
        self.addCleanup(client.end)
        finished = client.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out

    def refused(self, wanted, *words):
        finished = self.call(*words, "--at", self.address)
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertEqual(finished.out, "")
        self.assertIn(wanted, finished.err)

    def status(self):
        return json.loads(self.control("status", "--json"))

    def teachers(self):
        """Returns {process: number of its teacher replicas}."""
        places = [one["process"] for one in self.status()["replicas"] if one["section"] == "teacher"]
        return {process: places.count(process) for process in places}

    def advance(self, run, steps=10):
        """Lets the run continue for some steps and pause again."""
        before = self.status()["step"]
        self.control("continue")
        self.assertTrue(run.wait_for(lambda: self.status()["step"] >= before + steps), run.text)
        self.control("pause")

    def join(self, *options, launcher=()):
        joined = Run(self.folder, ["join", "--section", "teacher", "--at", self.address, *self.keys, *options],
                     launcher=launcher)
        self.addCleanup(joined.end)
        self.assertTrue(joined.wait_for_text("joined the run"), joined.text)
        return joined

    def await_teachers(self, run, wanted):
        self.assertTrue(run.wait_for(lambda: self.teachers() == wanted), f"{self.teachers()} and {run.text}")

    def finish(self, run):
        """Lets the run continue and stops it. Its losses equal a run of the same length that no process joins."""
        before = self.status()["step"]
        self.control("continue")
        self.assertTrue(run.wait_for(lambda: self.status()["step"] >= before + 10), run.text)
        self.control("stop")
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [], finished.describe())
        steps = max(row["step"] for row in finished.report["steps"])
        expected = self.train(self.job_of_run, *DEVICES,
                              settings={**TEACHERS, "train.out": "reference", "train.steps": steps})
        self.assertEqual(finished.curve(), expected.curve())
        self.assertEqual(finished.report["samples"], expected.report["samples"])
        self.assert_nothing_left(run)
        return finished

    def ended(self, joined, text, status=0):
        finished = joined.wait()
        self.assertEqual(finished.status, status, finished.describe())
        self.assertIn(text, finished.out + finished.err)
        self.assert_nothing_left(joined)


class AProcess(Joining):
    def test_joins_and_leaves_as_often_as_it_likes(self):
        run = self.begin(options=("--trace", "trace.json"))
        self.assertEqual(self.teachers(), {0: 4})
        first = self.join()
        self.await_teachers(run, {0: 2, 3: 2})
        self.advance(run)
        second = self.join("--devices", "cpu:9")
        self.await_teachers(run, {0: 1, 3: 2, 4: 1})
        devices = {one["process"]: one["devices"] for one in self.status()["replicas"] if one["section"] == "teacher"}
        self.assertEqual(devices, {0: ["cpu:0"], 3: ["cpu:3"], 4: ["cpu:9"]})
        self.advance(run)
        self.assertIn("process 3 leaves; process ", self.control("leave", "--process", "3"))
        self.ended(first, "left the run, which continues")
        self.await_teachers(run, {0: 2, 4: 2})
        self.advance(run)
        third = self.join()
        self.await_teachers(run, {0: 1, 4: 2, 3: 1})
        self.assertEqual(self.status()["recoveries"], [])
        finished = self.finish(run)
        self.assertEqual(finished.out.count(" takes section 'teacher' replica "), 5, finished.out)
        named = {event["args"]["name"] for event in json.loads((self.folder / "trace.json").read_text())["traceEvents"]
                 if event["name"] == "process_name"}
        self.assertLessEqual({f"process {at}" for at in range(5)}, named)
        self.assertEqual(list(self.folder.glob("trace.json.part*")), [])
        self.ended(second, "the run has ended")
        self.ended(third, "the run has ended")

    def test_that_has_joined_leaves_at_ctrl_c(self):
        run = self.begin()
        joined = self.join()
        self.await_teachers(run, {0: 2, 3: 2})
        self.control("continue")
        joined.interrupt()
        self.ended(joined, "left the run, which continues")
        self.control("pause")
        self.await_teachers(run, {0: 4})
        self.finish(run)

    def test_that_has_joined_may_be_lost(self):
        # Over shm a write that the lost process has not read takes the run back: a second recovery.
        run = self.begin({**self.job(), "transport": {"provider": "tcp"}})
        joined = self.join()
        self.await_teachers(run, {0: 2, 3: 2})
        self.control("continue")
        os.kill(joined.process.pid, signal.SIGKILL)
        self.assertTrue(run.wait_for_text("lost process 3"), run.text)
        self.control("pause")
        self.await_teachers(run, {0: 4})
        self.assertTrue(run.wait_for(lambda: len(self.status()["recoveries"]) == 1), run.text)
        self.join()
        self.await_teachers(run, {0: 2, 3: 2})
        finished = self.finish(run)
        self.assertEqual(len(finished.report["recoveries"]), 1)

    def test_ends_where_the_run_goes_back_without_it(self):
        run = self.begin(self.job(checkpoint_every=20))
        joined = self.join()
        self.await_teachers(run, {0: 2, 3: 2})
        self.advance(run, 30)
        os.kill(run.members()[1], signal.SIGKILL)  # process 1 has a trained section, which has state
        self.ended(joined, "join it again with `maestro join`", 1)
        self.assertTrue(run.wait_for_text("recovered: went on"), run.text)
        self.finish(run)  # the pause outlasts the loss

    def test_joins_without_recovery_too(self):
        run = self.begin(self.job(recover="off"))
        self.join()
        self.await_teachers(run, {0: 2, 3: 2})
        self.finish(run)

    def test_is_refused_by_name(self):
        run = self.begin()
        self.refused("the replicas of section 'student' cannot move; processes can join 'teacher'",
                     "join", "--section", "student")
        self.refused("no section is named 'teecher'; processes can join 'teacher'", "join", "--section", "teecher")
        self.refused("process 0 coordinates the run", "leave", "--process", "0")
        self.refused("process 7 is not part of the run", "leave", "--process", "7")
        self.refused("process 1 cannot leave: section ", "leave", "--process", "1")
        self.refused('--devices: "cpu:99" is not a device here; use cpu:0 to cpu:15', "join", "--section", "teacher",
                     "--devices", "cpu:99")
        self.assertTrue(run.wait_for_text("process 3 has not joined"), run.text)
        for count in range(3):
            self.join()
            self.await_teachers(run, [{0: 2, 3: 2}, {0: 1, 3: 2, 4: 1}, {0: 1, 3: 1, 4: 1, 5: 1}][count])
        self.refused("each of the 4 replicas of section 'teacher' already has a separate process", "join", "--section",
                     "teacher")
        self.finish(run)


class TheFirstTeacher(Joining):
    """Four processes: 1 has the teacher's replicas."""

    PROCESSES = 4

    def test_leaves_once_another_process_has_its_section(self):
        run = self.begin()
        self.assertEqual(self.teachers(), {1: 4})
        self.refused("process 1 cannot leave: no other process has section 'teacher'", "leave", "--process", "1")
        joined = self.join()
        self.await_teachers(run, {1: 2, 4: 2})
        self.control("leave", "--process", "1")
        self.await_teachers(run, {4: 4})
        self.advance(run)
        self.join()
        self.await_teachers(run, {4: 2, 1: 2})
        self.finish(run)
        self.ended(joined, "the run has ended")


class OnSharedCores(Joining):
    """Process 0 has the teacher and the student, which take turns on a core; process 1 has the other student."""

    PROCESSES = 2

    def test_a_section_begins_anew_next_to_one_that_stays(self):
        job = self.job()
        for section in ("teacher", "student", "plain"):
            job[section] |= {"devices": ["cpu:1" if section == "plain" else "cpu:0"]}
        for section in ("student", "plain"):
            job[section] |= {"replicas": 1}
        places = [part for section in ("teacher", "student", "plain")
                  for part in ("--set", f"{section}.processes=[{int(section == 'plain')}]")]
        run = self.begin(job, places)
        self.assertEqual(self.teachers(), {0: 4})
        for _ in range(2):
            joined = self.join()
            self.await_teachers(run, {0: 2, 2: 2})
            self.advance(run)
            self.control("leave", "--process", "2")
            self.await_teachers(run, {0: 4})
            self.advance(run)
            self.ended(joined, "left the run, which continues")
        lost = self.join()
        self.await_teachers(run, {0: 2, 2: 2})
        self.control("continue")
        os.kill(lost.process.pid, signal.SIGKILL)
        self.assertTrue(run.wait_for_text("lost process 2"), run.text)
        self.control("pause")
        self.await_teachers(run, {0: 4})
        self.finish(run)


@unittest.skipIf(NO_HOSTS, NO_HOSTS)
class AnotherHost(Joining):
    """Rank 0 with the teacher and `plain` is on one host, the student on another; a third host joins."""

    def test_joins_over_tls(self):
        hosts = Hosts(self.folder, 3)
        self.addCleanup(hosts.remove)
        self.job_of_run = self.job()
        made = self.call("keys", "keys", "--hosts", ",".join(hosts.addresses))
        self.assertEqual(made.status, 0, made.describe())
        run = self.start(self.job_of_run, "--hosts", ",".join(hosts.addresses[:2]), "--ssh", hosts.remote_shell(), "--keys", "keys",
                         "--control", f"{hosts.addresses[0]}:0", *DEVICES, settings=TEACHERS, launcher=hosts.on(0))
        self.assertTrue(run.wait_for_text("control at ") and run.wait_for_text("step ", "err"), run.text)
        self.address = run.text["out"].split("control at ")[1].split()[0]
        self.keys, self.launcher = ("--keys", "keys"), hosts.on(0)
        self.control("pause")
        joined = self.join(launcher=hosts.on(2))
        self.await_teachers(run, {0: 2, 2: 2})
        self.advance(run)
        self.assertIn("process 2 leaves", self.control("leave", "--process", "2"))
        self.ended(joined, "left the run, which continues")
        joined = self.join(launcher=hosts.on(2))
        self.await_teachers(run, {0: 2, 2: 2})
        self.finish(run)
        self.ended(joined, "the run has ended")


class AnElasticSection(Joining):
    """Sections whose passes are timed waits; the teacher needs many times as long as the others."""

    def test_gets_a_process_where_others_wait_for_it(self):
        job = distillation(steps=ENDLESS, global_batch=16, ahead=2)
        for name, width in (("teacher", 256), ("student", 8), ("plain", 8)):
            job[name] |= {"width": width, "devices": ["emulated"]}
        del job["teacher"]["replicas"]
        job["teacher"] |= {"micro_batch": 1}
        job["emulation"] = {"gflops": 4.0}
        run = self.start(job, "--processes", self.PROCESSES, "--control", self.address,
                         settings={**TEACHERS, "teacher.replicas.elastic": "auto"})
        self.assertTrue(run.wait_for_text("starting process 3 for it", "out"), run.text)
        # It has two replicas then, and one once another process is started for the section.
        self.assertTrue(run.wait_for_text("process 3 takes section 'teacher' replica "), run.text)
        self.assertEqual(run.text["out"].count("joined the run"), 0, "nobody has joined by hand")
        run.interrupt()
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.error_lines(), [], finished.describe())
        self.assert_nothing_left(run)


    def test_does_not_keep_a_stop_from_its_checkpoint(self):
        """Stops the run at several moments while a process that rank 0 has started is starting."""
        def segment_of(run):  # the process opens libfabric
            pid = run.members().get(3)
            return pid and any(f"-{pid}-" in name for name in os.listdir("/dev/shm"))

        moments = {"begun": lambda run: True, "running": lambda run: 3 in run.members(), "opening": segment_of,
                   "placed": lambda run: "process 3 takes" in run.text["out"]}
        for (name, reached), how in zip(moments.items(), (signal.SIGTERM, signal.SIGINT) * 2, strict=True):
            with self.subTest(moment=name, how=how.name):
                job = self.job(out=name)
                job["teacher"] |= {"width": 320, "layers": 4, "micro_batch": 1}
                run = self.start(job, "--processes", self.PROCESSES, "--control", "none", *DEVICES,
                                 settings={**TEACHERS, "teacher.replicas.elastic": "auto", "transport.provider": "shm"})
                self.assertTrue(run.wait_for_text("starting process 3 for it", "out"), run.text)
                self.assertTrue(run.wait_for(lambda: reached(run)), run.text)
                os.kill(run.process.pid, how)
                finished = run.wait()
                self.assertEqual(finished.status, 0, finished.describe())
                self.assertEqual(finished.error_lines(), [], finished.describe())
                self.assertEqual(len(steps_of_checkpoints(self.folder / name)), 1)
                self.assert_nothing_left(run)


class ASingleProcess(SystemTest):
    def test_is_joined_by_nobody(self):
        job = distillation(steps=ENDLESS)
        address = f"unix:{self.folder}/control.sock"
        run = self.start(job, "--control", address)
        self.assertTrue(run.wait_for_text("step ", "err"), run.text)
        refused = self.call("join", "--section", "teacher", "--at", address)
        self.assertEqual(refused.status, 1, refused.describe())
        self.assertIn("start it with --processes 2 or more", refused.err)

    def test_has_no_elastic_section(self):
        job = distillation(steps=2)
        del job["teacher"]["replicas"]
        name = self.write_job(job)
        self.assert_refused('teacher.replicas.elastic = "auto": rank 0 starts and ends processes only in a run '
                            "of several; give --processes 2 or more", "train", name,
                            "--set", "teacher.replicas.most=2", "--set", 'teacher.replicas.elastic="auto"')


if __name__ == "__main__":
    unittest.main(verbosity=2)
