#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that are started one by one with torchrun's variables (RANK, WORLD_SIZE, ...) form a job."""

import unittest

from maestro_program import SystemTest, distillation, free_port


class TorchrunVariables(SystemTest):
    def variables(self, rank, port, processes=3, per_host=None):
        per_host = per_host or processes
        return {"RANK": str(rank), "WORLD_SIZE": str(processes), "LOCAL_RANK": str(rank % per_host),
                "LOCAL_WORLD_SIZE": str(per_host), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}

    def start_all(self, jobs, *options, per_host=None, **more):
        port = free_port()
        return [self.start(job, *options, variables={**self.variables(rank, port, len(jobs), per_host), **more})
                for rank, job in enumerate(jobs)]

    def statuses(self, finished):
        return [one.status for one in finished]

    def test_three_processes_train_as_three_processes(self):
        job = distillation()
        expected = self.train(job, "--processes", 3).curve()
        runs = self.start_all([job] * 3)
        finished = [run.wait() for run in runs]
        self.assertEqual(self.statuses(finished), [0, 0, 0], [one.describe() for one in finished])
        self.assertEqual(finished[0].curve(), expected)
        for run in runs:
            self.assert_nothing_left(run)

    def test_beside_torchruns_agent_the_next_port_serves(self):
        finished = [run.wait() for run in self.start_all([distillation()] * 2, TORCHELASTIC_RUN_ID="none")]
        self.assertEqual(self.statuses(finished), [0, 0], [one.describe() for one in finished])

    def test_jobs_that_differ_are_told_on_every_host_before_training(self):
        self.assertEqual(self.call("keys", "keys").status, 0)
        other = distillation()
        other["student"]["lr"] = 3e-4
        told = (r"jobs differ between hosts: student\.lr = 0\.001 on \S+ \(rank 0\), 0\.0003 on \S+ "
                r"\(rank 3\)$")
        jobs = [distillation(), distillation(), distillation(), other]
        runs = self.start_all(jobs, "--keys", "keys", "--listen", "lo", per_host=2)
        finished = [run.wait() for run in runs]
        self.assertEqual(self.statuses(finished), [2, 2, 2, 2], [one.describe() for one in finished])
        for one in finished:
            self.assertEqual(len(one.error_lines()), 1, one.describe())
            self.assertRegex(one.error_lines()[0], told)
            self.assertNotIn("step ", one.err)

    def test_a_process_with_another_job_token_is_refused_and_the_job_goes_on(self):
        port = free_port()
        runs = [self.start(distillation(), variables={**self.variables(0, port, 2), "MAESTRO_TOKEN": "ours"})]
        stranger = self.start(distillation(), variables={**self.variables(1, port, 2), "MAESTRO_TOKEN": "theirs"}).wait()
        self.assertRegex(stranger.error_lines()[0], "refused this process: its job token differs")
        runs.append(self.start(distillation(), variables={**self.variables(1, port, 2), "MAESTRO_TOKEN": "ours"}))
        finished = [run.wait() for run in runs]
        self.assertEqual(self.statuses(finished), [0, 0], [one.describe() for one in finished])
        self.assertIn("refused rank 1", finished[0].out + finished[0].err)

    def test_half_set_variables_are_named(self):
        for missing in ("WORLD_SIZE", "MASTER_PORT", "MASTER_ADDR", "RANK"):
            variables = self.variables(1, free_port())
            del variables[missing]
            finished = self.start(distillation(), variables=variables).wait()
            self.assertEqual(finished.status, 2, finished.describe())
            self.assertEqual(len(finished.error_lines()), 1, finished.describe())
            self.assertIn(f"{missing} is not set", finished.error_lines()[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
