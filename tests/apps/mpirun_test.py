#!/usr/bin/env python3
"""Jobs under a real Open MPI: the processes that mpirun starts join by themselves."""

import shutil
import unittest

from maestro_program import SystemTest, distillation

MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none")


@unittest.skipIf(shutil.which("mpirun") is None,
                 "mpirun is not installed (apt-get install --no-install-recommends openmpi-bin)")
class OpenMpi(SystemTest):
    def test_three_processes_of_mpirun_train_as_three_processes(self):
        job = distillation()
        expected = self.train(job, "--processes", 3).curve()
        run = self.start(job, launcher=(*MPIRUN, "-n", "3"))
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected)
        self.assert_nothing_left(run)

    def test_one_process_of_mpirun_starts_the_others_itself(self):
        job = distillation()
        expected = self.train(job, "--processes", 2).curve()
        self.assertEqual(self.train(job, "--processes", 2, launcher=(*MPIRUN, "-n", "1")).curve(), expected)

    def test_a_job_that_cannot_begin_ends_mpirun(self):
        job = distillation()
        job["student"]["layers"] = 0
        finished = self.start(job, launcher=(*MPIRUN, "-n", "3")).wait()
        self.assertNotEqual(finished.status, 0)
        self.assertIn("layers", finished.error_lines()[0], finished.describe())


if __name__ == "__main__":
    unittest.main(verbosity=2)
