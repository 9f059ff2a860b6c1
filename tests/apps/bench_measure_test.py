#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Costs of a program that `./run bench models` and `./run bench generate` measure by its output."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "models"))
from measure import steps_in, unit_cost  # noqa: E402

# A costly start, then steps with 0.1 s of CPU time each.
PROGRAM = """
import time
def compute(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until: pass
held = bytearray(100 << 20)
compute(0.5)
for step in range(1, 1 + {steps}):
    compute(0.1)
    print(f"step {{step:>3}}/100  loss 1", flush=True)
"""


class Measure(unittest.TestCase):
    def cost(self, steps, first, last):
        return unit_cost([sys.executable, "-c", PROGRAM.format(steps=steps)], 1, steps_in, first, last)

    def test_are_the_means_of_the_timed_steps_without_the_start_and_the_warm_up(self):
        cost, text = self.cost(100, 2, 6)
        self.assertEqual(steps_in(text), 6)
        self.assertGreater(cost["cpu_ms"], 90)
        self.assertLess(cost["cpu_ms"], 200)
        self.assertGreater(cost["wall_ms"], 90)
        self.assertGreater(cost["max_rss_mb"], 100)

    def test_of_a_program_that_ends_early_are_refused_with_its_output(self):
        with self.assertRaisesRegex(SystemExit, r"(?s)ended early:.*step +2/100"):
            self.cost(2, 1, 6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
