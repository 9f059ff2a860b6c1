#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Some cases of `./run bench faults`, one for every theme: a broken run ends as its user expects, and resumes bitwise.

Moments are drawn with a fixed seed. Time limits are six times the bench's, for loaded machines.
"""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "faults"))
from judge import Limits  # noqa: E402
from layouts import Baselines  # noqa: E402
from runner import Runner  # noqa: E402
from scene import Case  # noqa: E402

SEED = 1
LIMITS = Limits(running=30.0, start=60.0, cap_s=90.0)


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory(prefix="maestro-test-")
        cls.addClassCleanup(temporary.cleanup)
        folder = Path(temporary.name)
        cls.runner = Runner(folder, Baselines(folder), LIMITS, resume_share=1)

    def play(self, kind, layout, processes, provider="none", number=0):
        """Plays case `number` of a kind; tries other moments if the run ends before its fault."""
        for attempt in range(number, number + 8000, 1000):
            result = self.runner(Case(kind, attempt, SEED, layout, processes, provider))
            log = Path(result.folder, "log.txt").read_text() if result.bad else ""
            self.assertEqual(result.bad, [], log)
            if result.effect:
                return
        self.fail(f"the fault hit nothing: {result}")

    def test_a_killed_worker_is_named_and_the_run_goes_on_from_its_checkpoint(self):
        self.play("kill-worker", "all", 2, "shm")

    def test_a_killed_rank_0_is_named_and_the_run_goes_on_from_its_checkpoint(self):
        self.play("kill-root", "flat", 3, "tcp")

    def test_processes_that_are_paused_together_go_on_together(self):
        self.play("pause-all-long", "flat", 3, "shm")

    def test_sigterm_to_the_group_finishes_and_keeps_the_steps(self):
        self.play("term-group", "flat", 3, "tcp", number=1)

    def test_sigterm_to_the_program_and_at_once_to_its_group_keeps_the_steps(self):
        self.play("term-timeout", "flat", 1, number=1)

    def test_a_closed_terminal_keeps_the_steps(self):
        self.play("hup", "all", 2, "shm")

    def test_rank_0_killed_during_the_start_takes_its_children_along(self):
        self.play("start-kill-root", "flat", 3, "shm")

    def test_a_second_run_of_a_folder_is_refused_and_the_first_goes_on(self):
        self.play("two-runs", "flat", 1)

    def test_a_file_size_limit_is_one_error(self):
        self.play("file-size", "flat", 1)

    def test_strangers_at_all_ports_change_nothing(self):
        self.play("strangers", "all", 2, "tcp")


if __name__ == "__main__":
    unittest.main(verbosity=2)
