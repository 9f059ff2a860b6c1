#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients in bf16 or e4m3 between replicas (gradient_wire), and tensors in bf16 between sections (wire)."""

import unittest
from pathlib import Path

from maestro_program import SystemTest, decoder

STEPS = 8
DEVICES = ("--cpu-devices", 16)
# (least, most) relative error of encoded gradients: e4m3 includes sums in bf16.
ERRORS = {"bf16": (5e-4, 3e-3), "e4m3": (0.01, 0.04)}
MIXED = {"student.replicas": [{"context": 2}, {"count": 2, "context": 1}]}
LAYOUTS = {
    "one process": (1, {}),
    "three processes": (3, {}),
    "small chunks": (2, {"transport.chunk_kib": 4}),
    "over TCP": (2, {"transport.provider": "tcp"}),
    "forced RMA": (1, {"transport.force_rma": True}),
}


def job(**train):
    sizes = {"heads": 4, "vocabulary": 64, "replicas": 1}
    return {
        "name": "wire",
        "app": "distillation",
        "train": {"steps": STEPS, "global_batch": 6, "validation_samples": 4, "out": "out", **train},
        "data": {"kind": "synthetic", "sequence": 24, "vocabulary": 64},
        "teacher": {"layers": 1, "width": 32, "positions": 32, "micro_batch": 6, "weights": "random", **sizes},
        "student": decoder(**{**sizes, "micro_batch": 2, "replicas": 3}),
    }


class GradientWire(SystemTest):
    def run_with(self, wire, out, processes=1, settings=None, *options):
        return self.train(job(), *DEVICES, "--processes", processes, *options,
                          settings={"student.gradient_wire": wire, "train.out": out, **(settings or {})})

    def wire_errors(self, finished):
        return [row["wire_error"] for row in finished.report["steps"] if row["section"] == "student"]

    def files_of(self, out):
        last = sorted((self.folder / out / "checkpoints").glob("step-*"))[-1]
        return {path.name: path.read_bytes() for path in Path(last, "student").iterdir()}

    def test_losses_stay_near_those_of_f32_and_the_record_has_the_error(self):
        exact = self.run_with("f32", "f32")
        self.assertFalse(any("wire_error" in row for row in exact.report["steps"]))
        for wire, (least, most) in ERRORS.items():
            with self.subTest(wire):
                rounded = self.run_with(wire, wire)
                self.assertNotEqual(rounded.curve("loss"), exact.curve("loss"))
                self.assert_close(exact.curve("loss"), rounded.curve("loss"), 2e-3)
                errors = self.wire_errors(rounded)
                self.assertEqual(len(errors), STEPS)
                for error in errors:
                    self.assertTrue(least < error < most, errors)
                way = {"bf16": "in bf16", "e4m3": "in e4m3, their sums in bf16"}[wire]
                self.assertIn(f"student: gradients of 3 replicas in host memory, {way}\n", rounded.out + rounded.err)

    def test_results_do_not_depend_on_processes_or_transport(self):  # WI-1
        for wire in ERRORS:
            for at, layout in enumerate(({}, {"student.zero": True}, {"student.pipeline": 2, "student.tensor": 2}, MIXED)):
                expected = None
                for name, (processes, settings) in LAYOUTS.items():
                    with self.subTest(wire=wire, layout=layout, name=name):
                        out = f"{wire}-{at}-{name}"
                        run = self.run_with(wire, out, processes, {**layout, **settings})
                        found = run.curve("loss", "grad_norm"), self.wire_errors(run), self.files_of(out)
                        expected = expected or found
                        self.assertEqual(found, expected)

    def test_fewer_bytes_cross_between_processes(self):
        sent = {wire: self.run_with(wire, f"bytes-{wire}", 2, {"student.replicas": 2}).report["transfers"]["bytes"]
                for wire in ("f32", *ERRORS)}
        saved = {wire: sent["f32"] - sent[wire] for wire in ERRORS}
        # Of 4 + 4 bytes an element, for a part and its sum, 2 + 2 are left, or 1 + 1/32 (scales) + 2.
        self.assertAlmostEqual(saved["e4m3"] / saved["bf16"], (8 - 1 - 1 / 32 - 2) / 4, delta=1e-3)
        self.assertGreater(saved["bf16"], 0.4 * sent["f32"])

    def test_a_run_resumes_bitwise(self):
        half = STEPS // 2
        settings = {"train.checkpoint_every": half, "train.keep_checkpoints": 3}
        for wire in ERRORS:
            with self.subTest(wire):
                whole = self.run_with(wire, f"whole-{wire}", 2, settings)
                rest = self.run_with(wire, f"rest-{wire}", 3, None, "--resume",
                                     f"whole-{wire}/checkpoints/step-{half:08}")
                self.assertEqual(rest.curve("loss"), whole.curve("loss", after=half))
                self.assertEqual(self.files_of(f"rest-{wire}"), self.files_of(f"whole-{wire}"))

    def test_tensors_between_sections_and_stages_travel_in_bf16(self):
        rounded = {"student.wire": "bf16", "teacher.wire": "bf16", "student.pipeline": 2}
        exact = self.run_with("f32", "own", 1, {"student.pipeline": 2})
        expected = None
        for name, (processes, settings) in LAYOUTS.items():
            with self.subTest(name):
                run = self.run_with("f32", f"edges-{name}", processes, {**rounded, **settings})
                found = run.curve("loss", "grad_norm"), self.files_of(f"edges-{name}")
                expected = expected or found
                self.assertEqual(found, expected)
        self.assertNotEqual(expected[0], exact.curve("loss", "grad_norm"))
        self.assert_close(exact.curve("loss"), {step: row[:1] for step, row in expected[0].items()}, 5e-3)

    def test_one_replica_sends_nothing_and_the_run_says_so(self):
        exact = self.run_with("f32", "exact", 1, {"student.replicas": 1})
        alone = self.run_with("bf16", "alone", 1, {"student.replicas": 1})
        self.assertEqual(alone.curve("loss"), exact.curve("loss"))
        self.assertIn("note: student: gradient_wire has no effect: it has one replica", alone.out + alone.err)

    def test_another_format_is_refused_by_name(self):
        self.assert_refused("student.gradient_wire", "check", self.write_job(job()), "--set",
                            "student.gradient_wire=fp8")


if __name__ == "__main__":
    unittest.main(verbosity=2)
