#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planned time of a run's steps equals a rehearsal's, and the times that the table [plan] predicts."""

import json
import re
import unittest

from maestro_program import SystemTest, distillation, undisturbed

STEPS = 16
STEP_MS = 20
GFLOPS = 0.3
SECTIONS = ("teacher", "student", "plain")


def emulated(stretch, steps=STEPS, **tables):
    """Returns a job whose passes are waits of some ten milliseconds, times `stretch`."""
    job = distillation(steps=steps, global_batch=8, validation_samples=4, checkpoint_at_end=False)
    job["emulation"] = {"gflops": GFLOPS / stretch, "step_ms": STEP_MS * stretch}
    for section in SECTIONS:
        job[section] |= {"devices": ["emulated"], "micro_batch": 2}
    return job | tables


class Rehearsed(SystemTest):
    def events(self, event):
        text = (self.folder / "out/record/events.jsonl").read_text()
        return [line for line in map(json.loads, text.splitlines()) if line["event"] == event]

    @undisturbed
    def test_a_run_on_two_devices_has_its_rehearsed_time_beside_the_measured_one(self):
        job = distillation(steps=16, validation_samples=4)
        for section in SECTIONS:  # so large that messages between actors do not matter, even on a loaded machine
            job[section] |= {"layers": 4, "width": 192, "micro_batch": 8}
        job["teacher"]["devices"] = job["student"]["devices"] = ["cpu:0"]
        job["plain"]["devices"] = ["cpu:1"]
        finished = self.train(job, "--cpu-devices", 2)
        found = finished.report["rehearsal"]
        self.assertNotIn("reason", found)
        self.assertGreater(found["step_ms"], found["measured_step_ms"] / 2)
        self.assertLess(found["step_ms"], found["measured_step_ms"] * 2)
        for name in ("passes", "measured_passes"):
            self.assertEqual(set(found[name]), set(SECTIONS))
            for share in found[name].values():
                self.assertTrue(0 < share <= 1, found)
        self.assertIn(f"  step time           {found['measured_step_ms']:.1f} ms, planned {found['step_ms']:.1f} ms",
                      finished.out)
        event, = self.events("rehearsed")
        self.assertEqual({name: event[name] for name in found}, found)
        self.assertEqual(self.events("compared"), [], "the job predicts nothing")
        self.call("card", "out", "--checkpoints", 0)
        self.assertIn(f"- Step: **{found['measured_step_ms']:.1f} ms** (median of the last steps; planned "
                      f"{found['step_ms']:.1f} ms, by a rehearsal)", (self.folder / "out/card.md").read_text())

    @undisturbed
    def test_of_waits_the_rehearsal_has_their_known_times(self):  # UR-1
        report = self.train(emulated(self.stretch), "--trace", "trace.json").report
        found = report["rehearsal"]
        step_ms = STEP_MS * self.stretch
        passes = {lane["section"]: 8 * 32 * lane["flops_per_token"] / (GFLOPS / self.stretch * 1e6)
                  for lane in report["plan"]["lanes"] if lane["section"] in SECTIONS}
        work = max(passes["teacher"], passes["student"] + step_ms, passes["plain"] + step_ms)
        self.assertGreaterEqual(found["step_ms"], 0.999 * work)
        self.assertLess(found["step_ms"], 1.05 * work + 2)
        for section in SECTIONS:
            self.assertAlmostEqual(found["passes"][section] * found["step_ms"] / passes[section], 1, delta=0.03)
        self.assertGreater(found["step_ends"]["student"] * found["step_ms"], 0.97 * step_ms)
        self.assertGreater(found["measured_step_ms"], 0.95 * found["step_ms"])
        replayed = self.call("what-if", "trace.json", "--json")
        self.assertEqual(replayed.status, 0, replayed.describe())
        self.assertAlmostEqual(found["step_ms"] / json.loads(replayed.out)["replay"]["step_ms"], 1, delta=0.15)

    def test_a_run_that_cannot_be_rehearsed_has_the_reason(self):
        finished = self.train(distillation(steps=4, validation_samples=4))
        self.assertEqual(finished.report["rehearsal"], {"reason": "a rehearsal needs 7 steps or more, not 4"})
        self.assertNotIn("step time", finished.out)
        self.assertEqual(self.events("rehearsed"), [])

    @undisturbed
    def test_steps_unlike_the_prediction_are_noted_once_with_their_section(self):  # DV-1
        found = self.train(emulated(self.stretch, steps=22)).report
        self.assertNotIn("prediction", found)
        rehearsal = found["rehearsal"]
        passes = {section: share * rehearsal["step_ms"] for section, share in rehearsal["passes"].items()}
        right = {"predicted_step_ms": rehearsal["measured_step_ms"], "objective": "time", "predicted_passes_ms": passes}
        finished = self.train(emulated(self.stretch, steps=22, plan=right))
        self.assertNotIn("of [plan]", finished.out)
        self.assertNotIn("text", finished.report["prediction"])
        self.assertAlmostEqual(finished.report["prediction"]["step_ms"], right["predicted_step_ms"], places=6)
        wrong = right | {"predicted_step_ms": rehearsal["measured_step_ms"] / 2,
                         "predicted_passes_ms": passes | {"student": passes["student"] / 2}}
        finished = self.train(emulated(self.stretch, steps=22, plan=wrong))
        lines = re.findall(r"note: steps take ([\d.]+) ms, (\d+)% above the ([\d.]+) ms of \[plan\]; passes of student "
                           r"take ([\d.]+) ms instead of ([\d.]+) ms: .*maestro plan", finished.out)
        self.assertEqual(len(lines), 1, finished.describe())
        took, _, predicted, student, half = map(float, lines[0])
        self.assertAlmostEqual(predicted, wrong["predicted_step_ms"], delta=0.06)
        self.assertAlmostEqual(took / predicted, 2, delta=0.3)
        self.assertAlmostEqual(student / half, 2, delta=0.1)
        self.assertIn("passes of student", finished.report["prediction"]["text"])

    def test_a_wrong_table_is_refused_by_every_command_that_reads_a_job(self):
        for table, parts in (({"predicted_step": 3}, "plan.predicted_step: unknown key; did you mean 'predicted_step_ms'?"),
                             ({"predicted_step_ms": 0}, "plan.predicted_step_ms: must be greater than 0"),
                             ({"objective": "extra", "keep": ["studnet"]}, "did you mean 'student'?"),
                             ({"predicted_step_ms": 9, "predicted_passes_ms": {"techer": 1}}, "did you mean 'teacher'?")):
            job = self.write_job(distillation() | {"plan": table})
            for command in ("check", "train", "plan"):
                self.assert_refused(parts, command, job)


if __name__ == "__main__":
    unittest.main()
