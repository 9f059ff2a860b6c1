#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same job under many plans: bitwise equal fp32 curves with one student replica, nearly equal with two."""

import os
import unittest

from maestro_program import SystemTest, distillation, language_model

PLANS = {
    "three_processes_over_shm": (3, {"transport.provider": "shm"}),
    "three_processes_over_tcp": (3, {"transport.provider": "tcp"}),
    "forced_rma_over_shm_in_one_process": (1, {"transport.provider": "shm", "transport.force_rma": True}),
    "forced_rma_over_tcp_in_one_process": (1, {"transport.provider": "tcp", "transport.force_rma": True}),
    "two_processes_with_small_chunks": (2, {"transport.chunk_kib": 4}),
    "one_slot_and_no_running_ahead": (1, {"transport.slots": 1, "train.ahead": 1}),
}


class OneJobUnderManyPlans(SystemTest):
    def test_losses_and_gradient_norms_are_bitwise_equal_under_every_plan(self):
        expected = self.train(distillation()).curve()
        self.assertEqual(len(expected), 2 * 12)
        for name, (processes, settings) in PLANS.items():
            with self.subTest(name):
                finished = self.train(distillation(), "--processes", processes, settings=settings)
                self.assertEqual(finished.curve(), expected)
                self.assertEqual(finished.report["transfers"]["bytes"] > 0, name != "one_slot_and_no_running_ahead")

    def test_a_repeated_run_is_bitwise_the_same(self):
        job = distillation()
        self.assertEqual(self.train(job).curve(), self.train(job).curve())


@unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "two replicas of a section need two cores")
class TwoStudentReplicas(SystemTest):
    TOLERANCE = 1e-5  # sums over two replicas are rounded in another order; 50 steps amplify it

    def compare(self, processes, settings=None):
        job = distillation(steps=50)
        expected = self.train(job).curve("loss")
        job["student"]["replicas"] = 2
        finished = self.train(job, "--processes", processes, settings=settings)
        self.assertEqual(len(expected), 100)
        self.assert_close(expected, finished.curve("loss"), self.TOLERANCE)

    def test_agree_with_one_in_one_process(self):
        self.compare(1)

    def test_agree_with_one_across_processes_over_shm(self):
        self.compare(3, {"transport.provider": "shm"})

    def test_agree_with_one_across_processes_over_tcp(self):
        self.compare(3, {"transport.provider": "tcp"})

    def test_of_a_language_model_are_bitwise_the_same_in_one_process_and_in_two(self):
        job = language_model()
        job["teacher"]["replicas"] = 2
        one = self.train(job).curve()
        self.assertEqual(self.train(job, "--processes", 2).curve(), one)
        self.assertEqual(self.train(job, settings={"transport.force_rma": True}).curve(), one)


if __name__ == "__main__":
    unittest.main(verbosity=2)
