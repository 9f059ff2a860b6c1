#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimizer state in bf16: the same bits under every plan and after every resume, and training as with fp32."""

import unittest

import resume_test
from maestro_program import SystemTest, decoder, distillation, language_model
from model_folders import tensors

BF16 = {"moments": "bf16", "beta2": 0.999}


def job_of(**train):
    """Returns a job in which a step changes a second moment by at most a quarter of bf16's last place."""
    job = distillation(**train)
    for section in ("student", "plain"):
        job[section] = decoder(**BF16)
    return job


class Moments(SystemTest):
    def stored_dtypes(self, step):
        folder = self.folder / f"out/checkpoints/step-{step:08}/student"
        return {dtype for dtype, _, _ in tensors(folder, "optimizer.safetensors").values()}

    def test_in_bf16_are_rounded_alike_under_every_plan(self):
        expected = self.train(job_of()).curve()
        for options, settings in ((("--processes", 3), {}), ((), {"student.recompute": "layers"})):
            self.assertEqual(self.train(job_of(), *options, settings=settings).curve(), expected)

    def test_in_bf16_train_as_those_in_fp32(self):
        job = language_model(steps=150, checkpoint_at_end=False, export="none")
        job["teacher"] |= {"beta2": 0.999}
        wide = self.train(job).curve("loss")
        narrow = self.train(job, settings={"teacher.moments": "bf16"}).curve("loss")
        self.assertNotEqual(wide, narrow)
        self.assertLess(wide["teacher", 150][0], 0.8 * wide["teacher", 1][0])
        for key, (loss,) in wide.items():
            self.assertAlmostEqual(narrow[key][0] / loss, 1, delta=0.01, msg=key)

    def test_are_stored_in_their_dtype_and_go_on_in_either(self):
        job = job_of()
        self.train(job)
        self.assertEqual(self.stored_dtypes(12), {"BF16"})
        for section in ("student", "plain"):
            job[section]["moments"] = "fp32"
        job["train"] |= {"steps": 16}
        finished = self.train(job, "--resume", "out")
        self.assertEqual(finished.report["resumed_from"], 12)
        self.assertEqual(self.stored_dtypes(16), {"F32"})

    def test_of_another_dtype_are_refused(self):
        job = self.write_job(job_of())
        self.assert_refused("did you mean 'bf16'?", "check", job, "--set", 'student.moments="bf15"')
        self.assert_refused("teacher.moments", "check", job, "--set", 'teacher.moments="bf16"')


class AKilledRun(resume_test.Killed):
    STEPS, EVERY, KILLS = 600, 10, 2
    OPTIONS = ("--cpu-devices", 8)

    def test_goes_on_bitwise(self):
        self.check(job_of(), 1)

    def test_goes_on_bitwise_with_shared_moments(self):
        self.STEPS = 300  # slower steps
        job = job_of()
        job["student"] |= {"replicas": 2, "tensor": 2, "pipeline": 2, "zero": True}
        self.check(job, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
