#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Replicas that share the optimizer state (zero = true): equal training and equal files, with less memory."""

import unittest
from pathlib import Path

from maestro_program import SystemTest, decoder

STEPS = 6
DEVICES = ("--cpu-devices", 16)
# Norms are f64 sums in another order, within some 1e-16; the factor that clips is fp32, so all else is bitwise.
NORM_TOLERANCE = 1e-12

LAYOUTS = {
    "three_replicas": (1, {"student.replicas": 3}),
    "tensor": (1, {"student.replicas": 2, "student.tensor": 2}),
    "pipeline_with_a_tied_embedding": (1, {"student.replicas": 2, "student.pipeline": 2, "student.tensor": 2}),
    "context": (1, {"student.replicas": 2, "student.context": 2}),
    "three_processes": (3, {"student.replicas": 3, "student.pipeline": 2, "transport.chunk_kib": 4}),
    "forced_rma": (1, {"student.replicas": 3, "transport.force_rma": True}),
    "one_norm_over_all_sections": (1, {"student.replicas": 3, "train.clip": "global"}),
    "moments_in_bf16": (2, {"student.replicas": 3, "student.moments": "bf16"}),
    "one_replica": (1, {"student.replicas": 1}),
}


def job(**train):
    sizes = {"heads": 4, "vocabulary": 64, "replicas": 1}
    return {
        "name": "zero",
        "app": "distillation",
        "train": {"steps": STEPS, "global_batch": 6, "validation_samples": 4, "out": "out", **train},
        "data": {"kind": "synthetic", "sequence": 24, "vocabulary": 64},
        "teacher": {"layers": 1, "width": 32, "positions": 32, "micro_batch": 6, "weights": "random", **sizes},
        "student": decoder(**{**sizes, "micro_batch": 2, "clip_norm": 0.5}),
    }


class Zero(SystemTest):
    def files_of(self, out):
        """Returns {name: bytes} of the section folder in the last checkpoint."""
        last = sorted((self.folder / out / "checkpoints").glob("step-*"))[-1]
        return {path.name: path.read_bytes() for path in Path(last, "student").iterdir()}

    def run_with(self, zero, out, processes, settings, *options):
        return self.train(job(), *DEVICES, "--processes", processes, *options,
                          settings={**settings, "student.zero": zero, "train.out": out})

    def assert_same(self, expected, finished):
        self.assertEqual(finished.curve("loss", "ce", "kl"), expected.curve("loss", "ce", "kl"))
        self.assertEqual(finished.report["validation"]["sections"], expected.report["validation"]["sections"])
        self.assert_close(expected.curve("grad_norm"), finished.curve("grad_norm"), NORM_TOLERANCE)

    def test_trains_and_stores_bitwise_the_same_under_every_layout(self):
        for name, (processes, settings) in LAYOUTS.items():
            with self.subTest(name):
                expected = self.run_with(False, f"{name}-without", processes, settings)
                self.assertGreater(max(norm for norm, in expected.curve("grad_norm").values()), 0.5, "nothing clips")
                self.assert_same(expected, self.run_with(True, f"{name}-with", processes, settings))
                self.assertEqual(self.files_of(f"{name}-with"), self.files_of(f"{name}-without"))

    def test_resumes_with_other_replicas_and_with_or_without_it(self):
        half = STEPS // 2
        settings = {"train.checkpoint_every": half, "train.keep_checkpoints": 3, "student.replicas": 3}
        whole = self.run_with(True, "whole", 1, settings)
        resume = ("--resume", f"whole/checkpoints/step-{half:08}")
        for replicas, zero, processes in ((3, True, 3), (3, False, 1), (2, True, 1), (1, True, 1)):
            with self.subTest(replicas=replicas, zero=zero, processes=processes):
                out = f"rest-{replicas}-{zero}"
                finished = self.run_with(zero, out, processes, {"student.replicas": replicas}, *resume)
                self.assertEqual(finished.report["resumed_from"], half)
                if replicas == 3:
                    self.assertEqual(finished.curve("loss"), whole.curve("loss", after=half))
                    self.assertEqual(self.files_of(out), self.files_of("whole"))
                else:  # gradients are added in another order
                    self.assert_close(whole.curve("loss", after=half), finished.curve("loss"), 1e-5)

    def test_needs_less_memory(self):
        parameters, replicas = 3_200_000, 4
        large = {"student.width": 256, "student.layers": 4, "student.micro_batch": 1, "student.replicas": replicas,
                 "train.steps": 2, "train.checkpoint_at_end": False}
        whole, shared = (self.run_with(zero, "large", 1, large).report["max_rss_mb"] for zero in (False, True))
        saved = 2 * 4 * parameters * (replicas - 1) / 1e6  # two fp32 moments, except one replica's share
        self.assertGreater(whole - shared, 0.7 * saved)


if __name__ == "__main__":
    unittest.main(verbosity=2)
