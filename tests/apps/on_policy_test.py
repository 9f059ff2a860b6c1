#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs whose student makes its samples: resumed, as a graph, and refused."""

import json
import signal
import unittest

from maestro_program import SLOWNESS, SystemTest, distillation, options_of
from recovery_test import EVERY, FEW_DEVICES, Recovers, job_of

GENERATOR = {"max_tokens": 12, "prompt_tokens": 8}


class OnPolicy(SystemTest):
    def job(self, generator=None, **train):
        job = {**distillation(**{"steps": 6, **train}), "generator": {**GENERATOR, **(generator or {})}}
        del job["plain"]
        return job

    def test_a_resumed_run_has_the_losses_of_the_undisturbed_run(self):
        whole = self.train(self.job(out="whole")).curve()
        self.assertEqual([step for section, step in whole if section == "student"], [1, 2, 3, 4, 5, 6])
        self.train(self.job(steps=3, schedule_steps=6, out="part"))
        rest = self.train(self.job({"slots": 1}, out="part"), "--resume", "part").curve()
        self.assertEqual(rest, {at: loss for at, loss in whole.items() if at[1] > 3})

    def test_losses_do_not_depend_on_processes_and_transports(self):
        cases = [(0, 2, "shm"), (1, 4, "tcp"), (2, 4, "shm"), (3, 2, "tcp")]
        for staleness, processes, provider in cases:
            with self.subTest(staleness=staleness, processes=processes, provider=provider):
                name = f"{staleness}_{processes}"
                job = self.job({"staleness": staleness}, out=name)
                alone = self.train(job).curve()
                job = self.job({"staleness": staleness, "replicas": 2, "slots": 2}, out=name + "_spread")
                job["transport"] = {"provider": provider}
                self.assertEqual(self.train(job, "--processes", str(processes)).curve(), alone)

    def test_edges_of_a_graph_name_the_weights(self):
        job = self.job(out="graph")
        app = self.train(self.job(out="app")).curve()
        job.update(app="graph", edges=["corpus.tokens -> teacher.tokens", "corpus.tokens -> student.tokens",
                                       "corpus.targets -> student.targets", "teacher.hidden -> student.teacher_hidden",
                                       "student.weights -> generator.weights"])
        for section, kind in (("teacher", "decoder_trunk"), ("student", "distilled_decoder"),
                              ("generator", "generator")):
            job[section]["type"] = kind
        job["teacher"]["trained"] = False
        self.assertEqual(self.train(job).curve(), app)
        job["edges"][-1] = "teacher.weights -> generator.weights"
        self.refuse("a generator takes the weights of a trained section, and 'teacher' is not trained", job)
        job["edges"][-1] = "student.weights -> generator.tokens"
        self.refuse("write student.weights -> generator.weights", job)
        job["edges"][-1] = "student.weight -> generator.weights"
        self.refuse("write student.weights -> generator.weights", job)

    def refuse(self, wanted, job, *options):
        self.assert_refused(wanted, "check", self.write_job(job), *options)

    def test_what_a_generator_does_not_support_is_refused_by_name(self):
        cases = [
            ("generator.prompt_tokens: is not given, and every token of a sample is learned",
             {"generator.prompt_tokens": 0}),
            ("generator.prompt_tokens: is 40, but samples have at most 32 positions", {"generator.prompt_tokens": 40}),
            ("generator.weights: is given by the edge student.weights -> generator.weights",
             {"generator.weights": "random"}),
            ("generator.max_token: unknown key; did you mean 'max_tokens'?", {"generator.max_token": 3}),
            ("generator.on_policy", {"generator.on_policy": 1.5}),
            ("generator.stop: \"ab\" is 2 tokens", {"generator.stop": ["ab"]}),
        ]
        for wanted, settings in cases:
            with self.subTest(wanted):
                self.refuse(wanted, self.job(), *options_of(settings))

    def test_the_command_adds_a_generator(self):
        small = ["--teacher-set", "train.steps=3", "--set", "train.steps=3", "--out", "runs", "--on-policy",
                 "--max-tokens", "6"]
        finished = self.call("distill", "--data", "corpus.txt", *small)
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("generator replica 0", finished.out)
        record = (self.folder / "runs" / "distill" / "record" / "events.jsonl").read_text().splitlines()
        job = next(event["job_file"] for event in map(json.loads, record) if event["event"] == "began")
        for line in ("on_policy = 0.5", "max_tokens = 6", "prompt_tokens = 32", 'divergence = "reverse_kl"'):
            self.assertIn(line, job)
        self.assertTrue((self.folder / "runs" / "distill" / "card.html").exists())


class ALostProcess(Recovers):
    """Process 0 has the teacher, and other processes generators or the student."""

    def lose(self, job, processes, moments, provider, back="has rejoined"):
        """Loses processes; `moments`: rank, signal and step of every fault, as in Recovers.kill_one()."""
        alone = {name: {key: value for key, value in table.items() if key not in ("processes", "devices")}
                 if isinstance(table, dict) else table for name, table in job.items()}
        expected = self.twin(alone, *FEW_DEVICES)
        run = self.start_held(job, "--processes", processes, *FEW_DEVICES,
                              settings={"transport.provider": provider, "train.peer_timeout_s": 2 * SLOWNESS})
        for number, (rank, how, step) in enumerate(moments, 1):
            self.kill_one(run, rank, how, step)
            self.assertTrue(run.wait_for(lambda: run.text["out"].count(back) == number), run.text)  # noqa: B023
        finished = run.wait()
        self.assertEqual((finished.status, finished.error_lines()), (0, []), finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assertEqual(finished.report["validation"], expected.report["validation"])
        self.assertEqual(len(finished.report["recoveries"]), len(moments))
        self.assert_nothing_left(run)
        return finished

    def job(self, student=0, **generator):
        job = job_of({"generator": {**GENERATOR, "devices": ["cpu:2"], "slots": 2, **generator}}, steps=100)
        del job["plain"]
        job["teacher"]["processes"] = [0]
        job["student"]["processes"] = [student]
        return job

    def test_with_a_generator_costs_its_unfinished_samples_and_no_bit(self):
        pair = {"replicas": 2, "devices": ["cpu:2", "cpu:3"], "processes": [1, 2]}
        finished = self.lose(self.job(staleness=1, **pair), 3, [(1, signal.SIGKILL, EVERY), (2, signal.SIGSTOP, 2 * EVERY)],
                             "tcp")
        self.assertEqual(finished.out.count("recovered: went on in place"), 2, finished.out)

    def test_with_the_only_generator_is_awaited(self):
        finished = self.lose(self.job(staleness=0, processes=[1]), 2, [(1, signal.SIGKILL, EVERY)], "shm")
        self.assertEqual(finished.out.count("recovered: went on in place"), 1, finished.out)

    def test_with_the_student_takes_versions_from_the_checkpoint(self):
        self.lose(self.job(student=1, staleness=2, processes=[2]), 3, [(1, signal.SIGKILL, 2 * EVERY)], "tcp",
                  "recovered: went on")


if __name__ == "__main__":
    unittest.main()
