#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The workloads of `./run bench published`: drawn alike each time, legal, and with the orders that they stand for."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from maestro_program import PROGRAM

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "published")]
import dip  # noqa: E402
import rrfp  # noqa: E402
from program import Program  # noqa: E402


class PublishedSystems(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = Program(pathlib.Path(PROGRAM).parent, self.folder)

    def written(self, name, seed):
        subprocess.run([sys.executable, "-B", BENCHMARKS / "published" / "generate.py", "--systems", self.folder / name],
                       check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        return {path.name: path.read_bytes() for path in (self.folder / name).iterdir()}

    def test_have_workloads_that_are_drawn_alike_and_can_be_planned(self):
        files = self.written("one", "1")
        self.assertEqual(files, self.written("two", "2"))
        for name in files:
            self.assertGreater(self.program.makespan(self.folder / "one" / name, "arrival"), 0, name)

    def test_have_a_fixed_order_that_waits_and_an_order_by_arrival_that_does_not(self):
        made = dict(rrfp.orders("language", 8, 64))
        one_forward_one_backward = 64 * 3 * rrfp.STAGE_MS + 7 * 3 * rrfp.STAGE_MS * rrfp.OTHERS["language"]
        for workload in made.values():
            self.assertAlmostEqual(rrfp.step(self.program, workload, 0), one_forward_one_backward)
        noisy = {order: rrfp.step(self.program, workload, 0.6) for order, workload in made.items()}
        self.assertGreater(noisy["fixed"], 1.2 * noisy["32 in flight"])

    def test_have_modules_with_the_parameters_of_their_names(self):
        for module in dip.MODULES:
            billions = dip.MODULES[module][0] * dip.layer_parameters(module) / 1e9
            named = float(module.split()[1][:-1])
            self.assertTrue(0.85 * named <= billions <= 1.05 * named, (module, billions))  # without embeddings


if __name__ == "__main__":
    unittest.main(verbosity=2)
