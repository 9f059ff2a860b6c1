#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro what-if`: rehearsals of traced runs, unchanged and changed."""

import json
import os
import unittest

from maestro_program import SystemTest, distillation, undisturbed

STEPS = 10


class WhatIf(SystemTest):
    def trace(self, job, processes=1, **settings):
        changes = {key.replace("__", "."): value for key, value in settings.items()}
        self.train(job, "--processes", processes, "--trace", "trace.json", settings=changes)

    def ask(self, *arguments):
        finished = self.call("what-if", "trace.json", "--json", *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return json.loads(finished.out)

    def refuse_change(self, *parts, arguments):
        finished = self.call("what-if", "trace.json", *arguments)
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        for part in parts:
            self.assertIn(part, finished.err)

    @undisturbed
    def test_a_run_of_waits_is_replayed_and_its_changes_follow_from_them(self):
        job = distillation(steps=STEPS, global_batch=8, validation_samples=4, checkpoint_at_end=False)
        job["emulation"] = {"gflops": 0.3 / self.stretch}  # passes take some ten milliseconds
        for section in ("teacher", "student", "plain"):
            job[section] |= {"devices": ["emulated"], "micro_batch": 2}
        self.trace(job)
        replay = self.ask()
        self.assertEqual(replay["steps"], STEPS - 2)
        ratio = replay["replay"]["step_ms"] / replay["traced"]["step_ms"]
        self.assertGreater(ratio, 0.9)
        self.assertLess(ratio, 1.1)
        self.assertNotIn("changed", replay)
        for section in ("teacher", "student", "plain"):
            shares = replay["replay"]["sections"][section]
            whole = shares["passes"] + shares["step_ends"] + sum(shares["waits"].values())
            self.assertAlmostEqual(whole, 1, places=6)
        faster = self.ask("--faster", "teacher=2", "--faster", "student=2", "--faster", "plain=2")
        speedup = faster["replay"]["step_ms"] / faster["changed"]["step_ms"]
        self.assertGreater(speedup, 1.7)
        self.assertLessEqual(speedup, 2.01)
        free = self.ask("--free", "teacher", "--free", "student", "--free", "plain")
        self.assertLess(free["changed"]["step_ms"], 0.2 * free["replay"]["step_ms"])

    @undisturbed
    def test_other_replicas_and_micro_batches_are_planned_anew(self):
        job = distillation(steps=STEPS, global_batch=8, validation_samples=4, checkpoint_at_end=False)
        job["emulation"] = {"gflops": 0.3 / self.stretch}
        for section in ("teacher", "student", "plain"):
            job[section] |= {"devices": ["emulated"], "micro_batch": 2}
        self.trace(job, processes=2, teacher__replicas=1)
        base = self.ask()
        one = base["replay"]["sections"]["teacher"]["passes"]
        two = self.ask("--set", "teacher.replicas=2")["changed"]["sections"]["teacher"]["passes"]
        self.assertAlmostEqual(two / one, 0.5, delta=0.15)
        larger = self.ask("--set", "teacher.micro_batch=4")["changed"]
        self.assertAlmostEqual(larger["step_ms"] / base["replay"]["step_ms"], 1, delta=0.2)
        later = self.ask("--latency-ms", str(500 * self.stretch))["changed"]
        self.assertGreater(later["step_ms"], 1.5 * base["replay"]["step_ms"])

    def test_ranks_that_the_trace_lacks_get_collectives_by_an_assumption_that_is_printed(self):
        self.trace(distillation(steps=STEPS))
        changed = self.ask("--set", "student.tensor=2")["changed"]
        self.assertEqual(changed["assumed_collectives"], ["student"])
        text = self.call("what-if", "trace.json", "--set", "student.tensor=2")
        self.assertRegex(text.out, r"(?m)^assumed +collectives of student: \d+ GB/s and \d+ us a call, ")
        self.assertNotIn("assumed ", self.call("what-if", "trace.json", "--set", "student.replicas=2").out)

    @undisturbed
    def test_devices_of_a_core_share_it_where_they_did_not_in_the_trace(self):
        job = distillation(steps=4 * STEPS)  # overlaps of the first and the last passes matter little
        for section in ("teacher", "student", "plain"):
            job[section] |= {"devices": ["cpu:0"]}
        self.train(job, "--cpu-devices", 2, "--trace", "trace.json")
        file = self.folder / "trace.json"
        trace = json.loads(file.read_text())
        self.assertEqual(trace["otherData"]["cores"], str(len(os.sched_getaffinity(0))))
        for event in trace["traceEvents"]:  # with passes of a second, delays by other processes hardly count
            if event["ph"] == "X" and event["name"].startswith("forward"):
                event["dur"] = 1_000_000 * self.stretch
        steps = {}
        for cores in ("2", "1"):
            trace["otherData"]["cores"] = cores
            file.write_text(json.dumps(trace))
            answer = self.ask("--set", 'plain.devices=["cpu:1"]')
            steps[cores] = answer["changed"]["step_ms"] / answer["replay"]["step_ms"]
        self.assertLess(steps["2"], 0.7, "two cores share the work")  # a step takes three passes instead of five
        self.assertGreater(steps["1"], 0.9, "one core does all of it")

    def test_plans_that_follow_measured_times_are_made_for_other_stages(self):
        job = distillation(steps=STEPS, deterministic=False)
        self.trace(job)
        staged = self.ask("--set", "student.pipeline=2")
        self.assertIn("student", staged["replay"]["sections"])
        self.assertNotIn("student", staged["changed"]["sections"])
        self.assertEqual(len([name for name in staged["changed"]["sections"] if name.startswith("student")]), 2)

    def test_a_trained_job_is_replayed_with_its_step_ends(self):
        self.trace(distillation(steps=STEPS), processes=2)
        answer = self.ask()
        self.assertGreater(answer["replay"]["sections"]["student"]["step_ends"], 0)
        text = self.call("what-if", "trace.json", "--faster", "teacher=2", "--timeline", "rehearsed.json")
        self.assertEqual(text.status, 0, text.describe())
        self.assertRegex(text.out, r"(?m)^replay +[\d.]+ ms a step; in the trace [\d.]+ ms: [\d.]+% (above|below)")
        lanes = json.loads((self.folder / "rehearsed.json").read_text())["traceEvents"]
        steps = {event["args"]["step"] for event in lanes if event["ph"] == "X" and event["name"] == "forward + backward"}
        self.assertEqual(steps, set(range(1, STEPS + 1)))
        self.assertEqual(list(self.folder.glob("rehearsed.json.*")), [])
        self.assertRegex(text.out, r"(?m)^changed +[\d.]+ ms a step, [\d.]+ times as fast as the replay")

    def generating(self, **generator):
        """Returns a job whose rollouts take longer than its passes."""
        job = distillation(steps=STEPS, global_batch=8, validation_samples=4, checkpoint_at_end=False)
        del job["plain"]
        for section in ("teacher", "student"):
            job[section] |= {"layers": 2, "width": 96, "heads": 2, "micro_batch": 8, "devices": ["cpu:0"]}
        job["generator"] = {"prompt_tokens": 8, "max_tokens": 24, "slots": 8, "devices": ["cpu:1"], **generator}
        return job

    @undisturbed
    def test_rollouts_are_replayed_and_changed(self):
        for staleness in (0, 1):
            self.train(self.generating(staleness=staleness), "--cpu-devices", 2, "--trace", "trace.json")
            replay = self.ask()
            ratio = replay["replay"]["step_ms"] / replay["traced"]["step_ms"]
            self.assertTrue(0.5 < ratio < 2, (staleness, ratio))
            self.assertGreater(replay["replay"]["sections"]["generator"]["passes"], 0.1)
            other = self.ask("--set", f"generator.staleness={1 - staleness}")
            difference = other["changed"]["step_ms"] - other["replay"]["step_ms"]
            self.assertGreater(difference * (1 if staleness else -1), 0, other)
            slower = self.ask("--set", "generator.slots=1")
            self.assertGreater(slower["changed"]["step_ms"], slower["replay"]["step_ms"])
            free = self.ask("--free", "generator")
            self.assertLess(free["changed"]["step_ms"], free["replay"]["step_ms"])
            two = self.ask("--set", "generator.slots=4", "--set", "generator.replicas=2",
                           "--set", 'generator.devices=["cpu:0", "cpu:1"]')
            if staleness == 0:  # the sections' core is idle while samples are made
                self.assertLess(two["changed"]["step_ms"], two["replay"]["step_ms"])

    def test_changes_of_made_samples_are_refused_by_name(self):
        self.train(self.generating(), "--cpu-devices", 2, "--trace", "trace.json")
        takes = "of [generator] what-if takes staleness, slots, replicas, devices, processes"
        for setting in ("generator.max_tokens=9", "generator.on_policy=0.5", "generator.precision=\"bf16\""):
            self.refuse_change(setting, takes, arguments=("--set", setting))
        self.refuse_change("did you mean generator?", arguments=("--faster", "generater=2"))
        trace = (self.folder / "trace.json").read_text()
        (self.folder / "trace.json").write_text(trace.replace('"sequences"', '"sequence"'))
        self.refuse_change("lacks the work of [generator]", arguments=())
        other = trace.replace("max_tokens = 24", "max_tokens = 9")
        self.assertNotEqual(other, trace)
        (self.folder / "trace.json").write_text(other)
        self.refuse_change("the samples of step 1 do not continue the prompts", arguments=())

    def test_what_cannot_be_answered_is_refused_by_name(self):
        self.trace(distillation(steps=STEPS))
        self.refuse_change("--faster studnet", "did you mean student?", arguments=["--faster", "studnet=2"])
        self.refuse_change("--faster student=0", "how many times as fast", arguments=["--faster", "student=0"])
        self.refuse_change("--free corpus", "not a section of the job", arguments=["--free", "corpus"])
        for setting in ("train.global_batch=4", "data.longest=16", "train.validate_every=1", "emulation.gflops=2"):
            self.refuse_change(f"--set {setting}: ", "come from the trace", "train.ahead", arguments=["--set", setting])
        self.refuse_change("--set student.precision=", "trace a run with it",
                           arguments=["--set", 'student.precision="bf16"'])
        self.refuse_change("student.devices: ", "of another kind than cpu:",
                           arguments=["--set", 'student.devices=["emulated"]'])
        self.refuse_change("--latency-ms", "the job has one", arguments=["--latency-ms", "5"])
        self.refuse_change("student.micro_btch", "micro_batch", arguments=["--set", "student.micro_btch=4"])

    def test_a_trace_that_is_cut_or_short_is_refused_by_name(self):
        self.trace(distillation(steps=3))
        self.refuse_change("3 whole training steps", "4 or more", arguments=[])
        trace = self.folder / "trace.json"
        trace.write_bytes(trace.read_bytes()[: trace.stat().st_size // 2])
        self.refuse_change("trace.json", "not a trace of maestro", arguments=[])
        trace.unlink()
        self.refuse_change("cannot read the trace trace.json", arguments=[])


if __name__ == "__main__":
    unittest.main()
