#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Balanced loads of experts: the same counts, loads and biases on every layout, and after a resume."""

import unittest

from maestro_program import SystemTest, language_model
from model_folders import tensors

SHAPE = {"layers": 3, "experts": 4, "experts_per_token": 2, "expert_ffn": 16, "dense_layers": 1}
FAMILIES = {
    "batch": SHAPE | {"family": "qwen3_moe", "balance_weight": 0.1},
    "bias": SHAPE | {"family": "lfm2_moe", "balance": "bias", "bias_rate": 0.02, "attention_layers": [0, 1, 2]},
}
LAYOUTS = {
    "micro_batch": {"micro_batch": 1},
    "replicas": {"replicas": 2},
    "shared state": {"replicas": 2, "zero": True},
    "tensor": {"tensor": 2},
    "context": {"context": 2},
    "unlike replicas": {"replicas": [{"context": 2}, {"context": 1}], "micro_batch": 2},
    "stages": {"pipeline": 2},
    "shared experts": {"context": 2, "expert": 2},
    "shared experts over tensor ranks": {"tensor": 2, "expert": 2},
}


class Experts(SystemTest):
    def job(self, balance, section=None, **train):
        job = language_model(**{"steps": 4, "validation_samples": 0, "out": "out", **train})
        job["teacher"] |= {"micro_batch": 4, **FAMILIES[balance], **(section or {})}
        return job

    def counted(self, finished):
        """Returns loads and biases of the run's last checkpoint, by name."""
        found = {}
        for file in (self.folder / finished.report["checkpoint"]).glob("*/*.safetensors"):
            found |= {name: value for name, value in tensors(file.parent, file.name).items()
                      if name.startswith("loads.") or name.endswith("expert_bias") and not name.startswith("exp_avg")}
        return found

    def metrics(self, finished):
        return {row["step"]: row for row in finished.report["steps"]}

    def test_have_equal_loads_on_every_layout(self):  # ML-2
        for balance in FAMILIES:
            one = self.train(self.job(balance), "--fresh")
            expected, counted = self.metrics(one), self.counted(one)
            self.assertEqual(len(counted), 4 if balance == "bias" else 2, list(counted))
            self.assertEqual(set(expected), {1, 2, 3, 4})
            for row in expected.values():
                self.assertGreater(row["load_max"], 1)
                self.assertLessEqual(row["load_max"], 2)  # all tokens choose an expert
                self.assertIn(row["load_idle"], [layers / 8 for layers in range(5)])
            for name, layout in LAYOUTS.items():
                with self.subTest(balance=balance, layout=name):
                    found = self.train(self.job(balance, layout), "--fresh", "--cpu-devices", 3)
                    self.assertEqual(self.counted(found), counted)
                    for step, row in self.metrics(found).items():
                        for figure in ("load_max", "load_idle"):
                            self.assertEqual(row[figure], expected[step][figure], step)
                        for figure in ("loss", "grad_norm", "balance"):
                            if figure in expected[step]:
                                self.assertAlmostEqual(row[figure], expected[step][figure], 4, (step, figure))

    def test_go_on_after_a_resume_to_the_bit(self):
        for balance in FAMILIES:
            with self.subTest(balance):
                job = self.job(balance, steps=6, checkpoint_every=3, keep_checkpoints=9)
                whole = self.train(job, "--fresh")
                counted = self.counted(whole)
                resumed = self.train(job, "--resume", "out/checkpoints/step-00000003")
                self.assertEqual(resumed.curve(), whole.curve(after=3))
                self.assertEqual(self.counted(resumed), counted)
                # A run of another balance has other state.
                other = self.job(balance, {"balance": "none", "balance_weight": 0} if balance == "batch"
                                 else {"balance": "sequence", "balance_weight": 0.1}, steps=6)
                other["teacher"].pop("bias_rate", None)
                changed = self.train(other, "--resume", "out/checkpoints/step-00000003")
                self.assertEqual(set(self.metrics(changed)), {4, 5, 6})

    def test_are_balanced_in_a_run_that_starts_from_weights(self):
        self.train(self.job("batch", steps=1))
        (self.folder / "out/models/teacher").rename(self.folder / "weights")
        found = self.train(self.job("batch", {"weights": "weights", "trained": True}))
        self.assertIn("balance", self.metrics(found)[1])

    def test_are_pulled_towards_equal_loads(self):
        largest = {}
        for name, section in (("none", {"balance": "none"}), ("bias", {"bias_rate": 0.002})):
            job = self.job("bias", section, steps=40)
            if name == "none":
                job["teacher"].pop("bias_rate")
                job["teacher"] |= {"balance": "sequence", "balance_weight": 0}
            rows = self.metrics(self.train(job, "--fresh"))
            largest[name] = sum(rows[step]["load_max"] for step in range(31, 41)) / 10
        self.assertLess(largest["bias"], largest["none"])


if __name__ == "__main__":
    unittest.main()
