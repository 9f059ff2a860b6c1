#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs under a real SLURM: an srun step's tasks form a job; a batch script without srun is one process."""

import json
import shlex
import unittest

import slurm_cluster
from maestro_program import PROGRAM, SystemTest, distillation, job_text


@unittest.skipIf(slurm_cluster.why_not(), slurm_cluster.why_not())
class Slurm(SystemTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = slurm_cluster.SlurmCluster(nodes=2)
        cls.addClassCleanup(cls.cluster.stop)

    def srun(self, job, *options, **keywords):
        return self.start(job, launcher=("srun", *options), variables=self.cluster.variables, **keywords)

    def test_three_tasks_train_as_three_processes(self):
        job = distillation()
        expected = self.train(job, "--processes", 3).curve()
        run = self.srun(job, "--nodes=1", "--ntasks=3")
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe() + self.cluster.logs())
        self.assertEqual(finished.curve(), expected)
        self.assertEqual(finished.report["plan"]["processes"], 3)
        self.assert_nothing_left(run)

    def test_a_batch_script_is_one_process_and_its_step_is_a_job(self):
        (self.folder / "job.toml").write_text(job_text(distillation()))
        train = f"{shlex.quote(PROGRAM)} train job.toml --report"
        (self.folder / "batch.sh").write_text(f"#!/bin/bash\n{train} one.json && srun {train} three.json --fresh\n")
        done = self.cluster.call("sbatch", "--wait", "--nodes=1", "--ntasks=3", f"--chdir={self.folder}",
                                 "--output=batch.out", str(self.folder / "batch.sh"))
        output = (self.folder / "batch.out").read_text()
        self.assertEqual(done.returncode, 0, done.stderr + output + self.cluster.logs())
        self.assertEqual(self.processes_of("one.json"), 1)
        self.assertEqual(self.processes_of("three.json"), 3)

    def test_tasks_that_are_dealt_out_over_the_nodes_are_refused_in_one_line(self):
        finished = self.srun(distillation(), "--nodes=2", "--ntasks=4", "--distribution=cyclic").wait()
        self.assertNotEqual(finished.status, 0)
        lines = finished.error_lines()
        self.assertEqual(len(lines), 4, finished.describe())
        for line in lines:
            self.assertRegex(line, "ranks of a host must be consecutive; start with srun --distribution=block")

    def processes_of(self, report):
        return json.loads((self.folder / report).read_text())["plan"]["processes"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
