#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model cut into two sections trains as the uncut model: the gradient of the hidden states returns over the edge."""

import unittest

from maestro_program import SystemTest, language_model

SHAPE = {"layers": 2, "width": 32, "heads": 2, "positions": 32, "tied": False}
OPTIMIZER = {"micro_batch": 4, "lr": 1e-3}
PLACES = {
    "forced_rma": (1, {"transport.force_rma": True}),
    "two_processes_over_shm": (2, {"transport.provider": "shm"}),
    "two_processes_over_tcp": (2, {"transport.provider": "tcp"}),
    "one_micro_batch_in_flight": (1, {"trunk.max_in_flight": 1, "train.ahead": 1}),
}


class ASplitModel(SystemTest):
    TOLERANCE = 1e-6  # only sums for the global norm may be rounded in another order

    def split(self, **changes):
        job = language_model()
        del job["teacher"]
        job |= {"app": "split_language_model", "trunk": {**SHAPE, **OPTIMIZER, **changes},
                "head": {**SHAPE, **OPTIMIZER, **changes}}
        job["train"]["clip"] = "global"  # as the uncut model computes its norm
        return job

    def whole(self, **changes):
        job = language_model()
        job["teacher"] = {**SHAPE, **OPTIMIZER, "replicas": 1, **changes}
        return job

    def test_has_the_same_curve_wherever_its_halves_are(self):
        expected = self.train(self.split()).curve()
        self.assertEqual(len(expected), 2 * 12)
        for name, (processes, settings) in PLACES.items():
            with self.subTest(name):
                finished = self.train(self.split(), "--processes", processes, settings=settings)
                self.assertEqual(finished.curve(), expected)

    def test_learns_exactly_as_the_whole_one_from_the_same_weights(self):
        self.train(self.whole(), settings={"train.steps": 1, "train.out": "start"})
        weights = "start/checkpoints/step-00000001/teacher"
        whole = self.train(self.whole(weights=weights)).curve("loss")
        split = self.train(self.split(weights=weights)).curve("loss")
        of_head = {("teacher", step): values for (section, step), values in split.items() if section == "head"}
        self.assertEqual(len(of_head), 12)
        self.assert_close(whole, of_head, self.TOLERANCE)
        self.assertLess(of_head["teacher", 12], of_head["teacher", 1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
