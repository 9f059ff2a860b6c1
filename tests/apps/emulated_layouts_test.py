#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs on emulated devices with layouts of several ranks, on devices that sections share: a step takes the time that
the FLOP models and [emulation] predict."""

import math
import re
import unittest

from http_runs import HttpTest
from maestro_program import ENDLESS, undisturbed

TOKENS = 32
GFLOPS = 0.4  # a step takes tens of ms
STEP_MS = 12
TEACHER = {"layers": 4, "width": 64, "heads": 4, "weights": "random", "tensor": 2}
STUDENT = {"layers": 4, "width": 48, "heads": 4, "tensor": 2, "pipeline": 2}


def numbered(*numbers):
    return [f"emulated:{number}" for number in numbers]


def job(teacher_on, student_on, batch=1, student=None, **emulation):
    return {"name": "layouts", "app": "distillation",
            "train": {"steps": 40, "global_batch": batch, "checkpoint_at_end": False, "out": "out",
                      "validation_samples": 1},
            "data": {"kind": "synthetic", "sequence": TOKENS, "vocabulary": 64},
            "emulation": {"gflops": GFLOPS, **emulation},
            "teacher": {"micro_batch": batch, "replicas": 1, "devices": teacher_on, **TEACHER},
            "student": {"micro_batch": 1, "replicas": 1, "devices": student_on, **(student or STUDENT)}}


def pass_ms(report, batch=1):
    """Returns {section or stage: pass ms of a step's samples on each of its devices}, by the FLOP models."""
    return {lane["section"]: lane["flops_per_token"] * TOKENS * batch / (GFLOPS * 1e6)
            for lane in report["plan"]["lanes"] if lane["mode"] != "source"}


def period_ms(report, left_out=5):
    """Returns the mean time from step to step, without the first steps."""
    ends = [row["begin_ms"] + row["makespan_ms"] for row in report["scheduling"]]
    return (ends[-1] - ends[left_out]) / (len(ends) - 1 - left_out)


class EmulatedLayouts(HttpTest):
    def trained(self, teacher_on, student_on):
        """Returns a finished run, its pass times and a step end's time, all multiplied by `self.stretch`."""
        step_ms = STEP_MS * self.stretch
        finished = self.train(job(teacher_on, student_on, gflops=GFLOPS / self.stretch, step_ms=step_ms))
        return finished, {name: ms * self.stretch for name, ms in pass_ms(finished.report).items()}, step_ms

    def assert_period(self, finished, expected):
        measured = period_ms(finished.report)
        self.assertGreater(expected, 30, "noise of the machine would count")
        self.assertLess(abs(measured - expected), 0.1 * expected, f"{measured:.1f} ms a step, expected {expected:.1f}")

    @undisturbed
    def test_sections_on_the_same_devices_take_turns(self):
        finished, times, step_ms = self.trained(numbered(0, 1), numbered(0, 1, 1, 0))
        lanes = {lane["section"]: lane for lane in finished.report["plan"]["lanes"]}
        self.assertEqual(lanes["student.stage1"]["devices"], numbered(1, 0))
        self.assertEqual(times.keys(), {"teacher", "student.stage0", "student.stage1"})
        self.assert_period(finished, sum(times.values()) + 2 * step_ms)  # both stages' ends share the devices

    @undisturbed
    def test_stages_on_devices_of_their_own_end_a_step_side_by_side(self):
        finished, times, step_ms = self.trained(numbered(4, 5), numbered(0, 1, 2, 3))
        self.assertLess(times["teacher"], times["student.stage0"] + times["student.stage1"], "it works ahead")
        self.assert_period(finished, times["student.stage0"] + times["student.stage1"] + step_ms)

    @undisturbed
    def test_a_pass_waits_for_the_last_of_its_devices(self):
        """The teacher shares a device with each stage, so it never runs at the same time as a stage."""
        finished, times, step_ms = self.trained(numbered(0, 2), numbered(0, 1, 2, 3))
        self.assert_period(finished, sum(times.values()) + step_ms)

    @undisturbed
    def test_the_end_of_a_step_counts_in_the_times_of_its_lane(self):
        """Two replicas with two ranks: at the end of each step they sum their gradients in a ring, and step."""
        student = {**STUDENT, "pipeline": 1, "replicas": 2}
        layout = job(numbered(4, 5), numbered(0, 1, 2, 3), batch=2, student=student, gflops=GFLOPS / self.stretch)
        step_ms, gb_s = STEP_MS * self.stretch, 0.01 / self.stretch
        cores = self.train(layout, "--cpu-devices", 4, settings={
            "train.steps": 1, "teacher.devices": [], "student.devices": []}).report
        values = {rank["parameters_mb"] for rank in cores["memory"]["ranks"] if rank["section"] == "student"}
        self.assertEqual(len(values), 1)
        sum_ms = 2 * (2 - 1) / 2 * values.pop() / gb_s  # MB, at 0.01 GB/s = 0.01 MB/ms; gradients are as large as values

        run, at = self.started(layout, settings={"train.steps": ENDLESS, "emulation.step_ms": step_ms,
                                                 "emulation.reduce_gb_s": gb_s})

        def totals():
            """Returns (step, ms at ends of steps by replica)."""
            text = self.get(at, "/metrics")[2]
            ends = re.findall(r'^maestro_step_end_seconds_total\{.*"student".*\} (\S+)$', text, re.M)
            return float(re.search(r"^maestro_step (\S+)$", text, re.M)[1]), [1e3 * float(value) for value in ends]

        self.until(at, "/metrics", lambda status, text: status == 200 and totals()[0] >= 3)
        first_step, first = totals()
        self.until(at, "/metrics", lambda status, text: totals()[0] >= first_step + 40)
        last_step, last = totals()
        self.stop(run)
        self.assertEqual(len(first), 2)
        self.assertGreater(sum_ms, 10)
        expected = (step_ms + sum_ms) * (last_step - first_step)
        for begin, end in zip(first, last, strict=True):
            self.assertLess(abs(end - begin - expected), 0.1 * expected, f"{end - begin} ms, expected {expected}")

    def test_samples_of_drawn_lengths_are_planned_and_run(self):
        layout = job(numbered(0, 1), numbered(0, 1, 2, 3), batch=64)
        layout["train"]["steps"] = 5
        layout["data"] = {"kind": "synthetic", "vocabulary": 64, "lengths": [[16, 1.0], [64, 0.25]]}
        layout["emulation"]["gflops"] = 1000
        totals = self.train(layout).report["throughput"]
        mean = totals["tokens_per_s"] * totals["train_seconds"] / (5 * 64)
        expected = 16 * math.log(4) + 0.25 * 64  # the integral: shares fall as 16 / length, then an atom
        self.assertLess(abs(mean - expected), 0.1 * expected)

    @undisturbed
    def test_a_wide_replica_among_narrow_ones_shortens_steps_with_long_samples(self):
        """On six devices: a step with a long sample takes as long as its replica needs for it."""
        periods = {}
        for name, replicas in (("alike", 6), ("unlike", [{"context": 4}, {"count": 2, "context": 1}])):
            made = {"name": "lengths", "app": "language_model",
                    "train": {"steps": 30, "global_batch": 12, "checkpoint_at_end": False, "validation_samples": 1,
                              "out": "out"},
                    "data": {"kind": "synthetic", "vocabulary": 64,
                             "lengths": [[8, 1.0], [9, 0.16], [250, 0.15], [256, 0.1]]},
                    "emulation": {"gflops": 6 * GFLOPS / self.stretch},
                    "teacher": {"layers": 4, "width": 64, "heads": 4, "positions": 256, "micro_batch": 1,
                                "replicas": replicas, "devices": ["emulated"]}}
            finished = self.train(made)
            lanes = [lane["context"] for lane in finished.report["plan"]["lanes"] if lane["mode"] != "source"]
            self.assertEqual(lanes, [4, 1, 1] if name == "unlike" else [1] * 6)
            periods[name] = period_ms(finished.report)
        self.assertGreater(periods["unlike"], 20, "noise of the machine would count")
        self.assertLess(periods["unlike"], 0.8 * periods["alike"], periods)

    def test_more_devices_than_cores_pass_the_check_and_stand_in_the_header(self):
        layout = job(numbered(0, 1), numbered(0, 1, 2, 3), batch=2)
        checked = self.call("check", self.write_job(layout), "--cpu-devices", 1)
        self.assertEqual(checked.status, 0, checked.describe())
        finished = self.train(layout, "--cpu-devices", 1, settings={"train.steps": 2})
        self.assertIn("  teacher replica 0 on emulated:0, emulated:1 of process 0, ", finished.out)
        self.assertIn("  student.stage1 replica 0 on emulated:2, emulated:3 of process 0, ", finished.out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
