#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs whose student makes its samples: resumed, as a graph, and refused."""

import json
import unittest

from maestro_program import SystemTest, distillation, options_of

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

    def policy(self, generator=None, boundary="sampled", **student):
        job = self.job(generator)
        job["student"].update({"loss": "policy_gradient", "boundary": boundary}, **student)
        job["teacher"]["boundary"] = boundary
        return job

    def test_a_policy_gradient_needs_the_sampled_log_probabilities_alone(self):
        names = ("loss", "kl", "sampled_nll", "ratio_mean", "ratio_capped")
        run = self.train(self.policy(boundary="hidden"))
        hidden = run.curve(*names)
        sampled = self.train(self.policy())
        for at, figures in sampled.curve(*names).items():
            for name, figure, wanted in zip(names, figures, hidden[at]):
                self.assertAlmostEqual(figure, wanted, delta=1e-5 * max(1, abs(wanted)), msg=f"{name} of {at}")
        self.assertEqual(self.train(self.policy()).curve(), sampled.curve())
        for step in range(1, 7):
            self.assertEqual(sampled.curve("ce", "teacher_ce", "kl_read")["student", step], (None, None, None))
        validation, whole = (each.report["validation"]["sections"]["student"] for each in (sampled, run))
        self.assertNotIn("kl", validation)
        for name in ("ce", "teacher_ce"):
            self.assertAlmostEqual(validation[name], whole[name], delta=1e-4)
        self.assertEqual(sampled.report["validation"]["distilled_ce"], validation["ce"])

        job = self.policy()
        job.update(app="graph", edges=["corpus.tokens -> teacher.tokens", "corpus.targets -> teacher.targets",
                                       "corpus.tokens -> student.tokens", "corpus.targets -> student.targets",
                                       "teacher.sampled -> student.teacher_sampled",
                                       "corpus.sampled -> student.sampled", "student.weights -> generator.weights"])
        for section, kind in (("teacher", "decoder_trunk"), ("student", "distilled_decoder"),
                              ("generator", "generator")):
            job[section]["type"] = kind
        job["teacher"]["trained"] = False
        self.assertEqual(self.train(job).curve(), sampled.curve())
        job["edges"].remove("corpus.sampled -> student.sampled")
        self.refuse("student.sampled", job)
        del job["edges"][-1], job["generator"]
        job["teacher"]["boundary"] = job["student"]["boundary"] = "hidden"
        job["edges"] = [edge for edge in job["edges"] if "sampled" not in edge and "teacher.targets" not in edge]
        self.refuse("student.loss: is \"policy_gradient\", which learns from samples that the student makes", job)

    def test_read_samples_next_to_a_policy_gradient_have_the_divergence(self):
        for loss in ("divergence", "policy_gradient"):
            run = self.train(self.policy({"on_policy": 0.5}, boundary="hidden", loss=loss))
            rows = run.curve("kl", "kl_read", "ce", "teacher_ce", "sampled_nll", "ratio_mean")
            self.assertEqual(len(rows), 6)
            both = [row for row in rows.values() if row[0] is not None and row[1] is not None]
            self.assertTrue(both)
            for *figures, ratio in both:
                self.assertNotIn(None, figures)
                self.assertEqual(ratio is None, loss == "divergence")
        read = self.train(self.policy({"on_policy": 1.0, "from_step": 4}, boundary="hidden")).curve("kl", "kl_read")
        for step in range(1, 7):
            self.assertEqual([figure is None for figure in read["student", step]], [step < 4, step >= 4])

    def test_what_a_policy_gradient_does_not_work_with_is_refused_by_name(self):
        drawn = "and loss = \"policy_gradient\" learns from tokens that are drawn by the student's probabilities"
        cases = [
            ("generator.temperature: is 0, " + drawn, {"generator.temperature": 0.0}),
            ("generator.top_k: is set, " + drawn, {"generator.top_k": 5}),
            ("generator.top_p: is set, " + drawn, {"generator.top_p": 0.9}),
            ("generator.on_policy: is 0, and loss = \"policy_gradient\" learns from made samples",
             {"generator.on_policy": 0.0}),
            ("student.temperature: is not generator.temperature", {"student.temperature": 2.0}),
            ("student.ratio_cap: is for loss = \"policy_gradient\"", {"student.loss": "divergence",
                                                                    "student.ratio_cap": 3.0}),
            ("student.ratio_cap", {"student.ratio_cap": -1.0}),
            ("student.loss", {"student.loss": "policy"}),
            ("which boundary = \"top_k\" has for only k tokens",
             {"student.boundary": "top_k", "teacher.boundary": "top_k", "student.divergence": "forward_kl"}),
            ("which boundary = \"top_k_rest\" has for only k tokens",
             {"student.boundary": "top_k_rest", "teacher.boundary": "top_k_rest"}),
            ("student.boundary: is \"sampled\", which only teaches made samples, and the job reads samples too; set "
             "generator.on_policy = 1", {"generator.on_policy": 0.5}),
            ("set generator.from_step = 1", {"generator.from_step": 3}),
            ("boundary = \"sampled\" only has the teacher's probability of the sampled token",
             {"student.loss": "divergence"}),
        ]
        for wanted, settings in cases:
            with self.subTest(wanted):
                self.refuse(wanted, self.policy(), *options_of(settings))

    def refuse(self, wanted, job, *options):
        self.assert_refused(wanted, "check", self.write_job(job), *options)

    def test_what_a_generator_does_not_support_is_refused_by_name(self):
        cases = [
            ("generator.prompt_tokens: is not given, and every token of a sample is learned",
             {"generator.prompt_tokens": 0}),
            ("generator.prompt_tokens: is 40, but samples have at most 32 positions", {"generator.prompt_tokens": 40}),
            ("generator.weights: is given by the edge student.weights -> generator.weights",
             {"generator.weights": "random"}),
            ("student.pipeline: does not work with [generator]", {"student.pipeline": 2}),
            ("student.tensor: does not work with [generator]", {"student.tensor": 2}),
            ("makes samples in a run of a single process", {}),
            ("generator.max_token: unknown key; did you mean 'max_tokens'?", {"generator.max_token": 3}),
            ("generator.on_policy", {"generator.on_policy": 1.5}),
            ("generator.stop: \"ab\" is 2 tokens", {"generator.stop": ["ab"]}),
        ]
        for wanted, settings in cases:
            with self.subTest(wanted):
                options = ["--processes", "2"] if "single process" in wanted else []
                self.refuse(wanted, self.job(), *options, *options_of(settings))

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


if __name__ == "__main__":
    unittest.main()
