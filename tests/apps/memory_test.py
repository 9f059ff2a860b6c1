# SPDX-License-Identifier: Apache-2.0
"""The estimate of memory: printed by `check`, and compared with a run's memory."""

import unittest

from maestro_program import SANITIZED, SystemTest, language_model


@unittest.skipIf(SANITIZED, "a sanitizer keeps memory of its own")
class Memory(SystemTest):
    def medium(self, **changes):
        """Returns a job with 15 million parameters, whose state outweighs the program."""
        job = language_model(steps=2, checkpoint_at_end=False, export="none")
        job["data"] = {"kind": "synthetic", "vocabulary": 4096, "sequence": 64}
        job["teacher"] = {"layers": 4, "width": 512, "heads": 8, "positions": 64, "vocabulary": 4096, "micro_batch": 4,
                          "replicas": 1, **changes}
        return job

    def test_check_prints_the_estimate_by_section_and_process(self):
        lines = self.call("check", self.write_job(self.medium())).out.splitlines()
        at = lines.index("memory (estimate)")
        self.assertRegex(lines[at + 1], r"^  teacher: parameters \d+ MB, gradients \d+ MB, optimizer \d+ MB, "
                                        r"activations \d+ MB; \d+ MB$")
        self.assertRegex(lines[at + 2], r"^  process 0: \d+ MB, including program and corpus \d+ MB$")

    def test_the_report_compares_the_estimate_with_the_memory_that_was_used(self):
        for changes in ({}, {"precision": "bf16"}, {"recompute": "layers"}, {"moments": "bf16"}):
            with self.subTest(changes):
                finished = self.train(self.medium(**changes))
                memory = finished.report["memory"]
                self.assertAlmostEqual(memory["estimated_mb"] / memory["used_mb"], 1, delta=0.2)
                self.assertEqual(memory["used_mb"], finished.report["max_rss_mb"])
                self.assertEqual([row["process"] for row in memory["processes"]], [0])
                self.assertEqual([row["section"] for row in memory["ranks"]], ["corpus", "teacher"])
                teacher = memory["ranks"][1]
                self.assertGreater(teacher["arenas_mb"], 0.7 * teacher["activations_mb"])
                self.assertLess(teacher["arenas_mb"], 1.1 * teacher["activations_mb"])
                self.assertIn(f"  peak memory         {memory['used_mb']:.0f} MB, estimated", finished.out)


if __name__ == "__main__":
    unittest.main(verbosity=2)
