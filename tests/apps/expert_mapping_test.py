#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of a replica that share a layer's experts (expert = N): the training of one device, equal files, refusals."""

import unittest

from maestro_program import SystemTest, decoder, language_model

SHAPE = {"family": "qwen2_moe", "layers": 3, "heads": 4, "experts": 8, "experts_per_token": 2, "expert_ffn": 16,
         "shared_ffn": 8, "dense_layers": 1, "balance_weight": 0.1}
MAPPINGS = {
    "context": {"context": 2, "expert": 2},
    "tensor": {"tensor": 2, "expert": 2},
    "both": {"tensor": 2, "context": 2, "expert": 4},
    "copies": {"tensor": 2, "context": 2, "expert": 2},
    "stages": {"context": 2, "expert": 2, "pipeline": 2},
    "replicas": {"context": 2, "expert": 2, "replicas": 2},
    "shared state": {"tensor": 2, "context": 2, "expert": 4, "replicas": 2, "zero": True},
    "recomputed": {"context": 4, "expert": 4, "recompute": 2},
}
DEVICES = ("--cpu-devices", 8)
FIGURES = ("loss", "grad_norm", "balance")


class ExpertMapping(SystemTest):
    def job(self, section=None, **train):
        job = language_model(**{"steps": 4, "validation_samples": 4, **train})
        job["teacher"] = decoder(**{"replicas": 1, **SHAPE, **(section or {})})
        return job

    def model(self):
        """Returns the files of the newest run's exported model, by name."""
        return {path.name: path.read_bytes() for path in (self.folder / "out/models/teacher").iterdir()}

    def test_trains_as_one_device(self):
        one = self.train(self.job())
        loads = one.curve("load_max", "load_idle")
        for name, mapping in MAPPINGS.items():
            with self.subTest(name):
                found = self.train(self.job(mapping), *DEVICES)
                self.assertEqual(found.curve("load_max", "load_idle"), loads)
                self.assert_close(one.curve(*FIGURES), found.curve(*FIGURES), 1e-4)
                validation = [run.report["validation"]["sections"]["teacher"]["loss"] for run in (one, found)]
                self.assertAlmostEqual(*validation, 4)

    def test_has_the_same_bits_in_one_process_and_in_three(self):
        job = self.job({"tensor": 2, "context": 2, "expert": 4, "replicas": 3, "micro_batch": 2})
        one = self.train(job, "--cpu-devices", 12)
        files = self.model()
        three = self.train(job, "--cpu-devices", 12, "--processes", 3)
        self.assertEqual(three.curve(*FIGURES), one.curve(*FIGURES))
        self.assertEqual(self.model(), files)
        self.assertIn("model.safetensors", files)

    def test_resumes_to_the_bit_and_under_every_other_mapping(self):
        job = self.job(MAPPINGS["both"], checkpoint_every=2, keep_checkpoints=9)
        whole = self.train(job, *DEVICES)
        files = self.model()
        resumed = self.train(job, "--resume", "out/checkpoints/step-00000002", *DEVICES)
        self.assertEqual(resumed.curve(*FIGURES), whole.curve(*FIGURES, after=2))
        self.assertEqual(self.model(), files)
        for name, mapping in {"one device": {}, **MAPPINGS}.items():
            with self.subTest(name):
                other = self.job(mapping, checkpoint_every=2, keep_checkpoints=9)
                moved = self.train(other, "--resume", "out/checkpoints/step-00000002", *DEVICES)
                self.assert_close(whole.curve(*FIGURES, after=2), moved.curve(*FIGURES), 1e-4)

    def test_is_not_seen_in_the_weights_that_a_run_reads_and_writes(self):
        self.train(self.job(MAPPINGS["both"]), *DEVICES)
        files = self.model()
        (self.folder / "out/models/teacher").rename(self.folder / "weights")
        for name, mapping in {"one device": {}, **MAPPINGS}.items():
            with self.subTest(name):
                job = self.job({**mapping, "weights": "weights", "trained": True, "lr": 1e-30, "weight_decay": 0.0}, steps=1)
                self.train(job, *DEVICES)
                found = self.model()
                if "stages" not in name:  # stages write a file each
                    self.assertEqual(found["model.safetensors"], files["model.safetensors"])
                self.assertEqual(found["config.json"], files["config.json"])

    def test_is_refused_by_name(self):
        def refuse(wanted, section):
            self.assert_refused(wanted, "check", self.write_job(self.job(section)), *DEVICES)

        refuse("teacher.expert = 3: tensor * context = 4 ranks cannot be cut in 3; nearest that fits: expert = 4",
               {"tensor": 2, "context": 2, "expert": 3})
        refuse("teacher.expert = 4: 6 experts cannot be cut in 4; nearest that fits: expert = 2",
               {"tensor": 2, "context": 2, "expert": 4, "experts": 6})
        refuse("teacher.expert = 2: tensor * context = 1 ranks cannot be cut in 2; nearest that fits: expert = 1",
               {"expert": 2})
        dense = {"family": "qwen2", "context": 2, "expert": 2}
        job = self.job(dense)
        for key in ("experts", "experts_per_token", "expert_ffn", "shared_ffn", "dense_layers", "balance_weight"):
            del job["teacher"][key]
        self.assert_refused("teacher.expert = 2: the section has no experts; leave expert out", "check",
                            self.write_job(job), *DEVICES)
        refuse("expert_tensor: is not built for values other than 1 with expert = 2; leave it out",
               {"tensor": 2, "expert": 2, "expert_tensor": 2})
        refuse("expert = 2: replicas of several contexts cannot share experts",
               {"expert": 2, "replicas": [{"context": 2}, {"context": 1}]})
        refuse("teacher.expert = 2 on cuda devices is not built; leave expert out, or use cpu devices",
               {"tensor": 2, "expert": 2, "width": 256, "devices": ["cuda:0", "cuda:1"]})


if __name__ == "__main__":
    unittest.main()
