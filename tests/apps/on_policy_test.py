#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs whose student makes its samples: resumed, recorded and read back, as a graph, and refused."""

import contextlib
import json
import os
import signal
import time
import unittest
from pathlib import Path
from random import Random

from maestro_program import PATIENCE_S, SLOWNESS, Run, SystemTest, distillation, options_of
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
    def test_losses_do_not_depend_on_random_delays_of_processes(self):  # MK-2, WX-1
        generator = {"replicas": 3, "slots": 2, "devices": ["cpu:2", "cpu:3", "cpu:4"], "processes": [1, 2, 3]}
        for staleness in range(4):
            with self.subTest(staleness=staleness):
                name, random = f"delayed_{staleness}", Random(staleness)
                job = self.job({"staleness": staleness, **generator}, out=name, steps=125)
                job["train"]["peer_timeout_s"] = 30 * SLOWNESS
                job["transport"] = {"provider": ("shm", "tcp")[staleness % 2]}
                alone = self.train({**job, "generator": {**GENERATOR, "staleness": staleness}}, "--cpu-devices", 5)
                run = self.start(job, "--processes", 4, "--cpu-devices", 5)
                deadline = time.monotonic() + 2 * PATIENCE_S
                while run.process.poll() is None:
                    if time.monotonic() > deadline:
                        self.fail(run.standing())
                    members = sorted(run.members().values())
                    for pid in random.sample(members, k=len(members) // 2):
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGSTOP)
                            time.sleep(random.uniform(0.001, 0.03))  # the delay that is tested
                            os.kill(pid, signal.SIGCONT)
                finished = run.wait()
                self.assertEqual(finished.status, 0, finished.describe())
                self.assertEqual(finished.curve(), alone.curve())
                self.assertEqual(finished.report.get("recoveries", []), [])

    def test_a_process_joins_a_run_with_generators(self):
        job = self.job({"replicas": {"least": 1, "most": 3}, "slots": 2}, out="joined", steps=40)
        alone = self.train({**job, "generator": GENERATOR}, "--cpu-devices", 6).curve()
        run = self.start_held(job, "--processes", 2, "--cpu-devices", 6)
        self.assertTrue(run.wait_for_text("paused after step 20"), run.text)
        joined = Run(self.folder, ["join", "--section", "generator", "--at", run.held_at])
        self.addCleanup(joined.end)
        self.assertTrue(joined.wait_for_text("joined the run: process 2 takes section 'generator'"), joined.text)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), alone)
        self.assertEqual(joined.wait().status, 0, joined.text)

    def samples_of(self, run):
        """Returns the bytes of a run's recorded samples by file."""
        return {path.name: path.read_bytes() for path in (self.folder / run / "record" / "rollouts").iterdir()}

    def record_of(self, run, file):
        return [json.loads(line) for line in (self.folder / run / "record" / file).read_text().splitlines()]

    def test_recorded_samples_take_the_place_of_generation(self):
        made = self.train(self.job({"record": True, "on_policy": 0.75, "from_step": 2}, out="made"))
        files = self.samples_of("made")
        self.assertEqual(sorted(files), [f"{step:08}.safetensors" for step in range(2, 7)])
        copy = {"record": True, "on_policy": 0.75, "from_step": 2}
        for options in ((), ("--processes", 2)):
            with self.subTest(options):
                back = self.train(self.job(copy, out="back"), "--rollouts", "made", *options)
                self.assertEqual(back.curve(), made.curve())
                self.assertEqual(self.samples_of("back"), files)
        digests = [[line["samples_digest"] for line in self.record_of(run, "steps.jsonl")] for run in ("made", "back")]
        self.assertEqual(digests[0], digests[1])

    def test_a_resumed_run_goes_on_to_record(self):
        self.train(self.job({"record": True}, out="whole"))
        self.train(self.job({"record": True}, out="part", steps=4, schedule_steps=6, checkpoint_every=2))
        newest = self.folder / "part" / "checkpoints"
        second = next(path for path in newest.iterdir() if path.name.endswith("2"))
        before = self.samples_of("part")
        rest = self.train(self.job({"record": True}, out="part"), "--resume", second)
        self.assertEqual(min(step for _, step in rest.curve()), 3)
        self.assertEqual(self.samples_of("part"), self.samples_of("whole"))
        self.assertLess(before.items(), self.samples_of("part").items())

    def test_recorded_samples_of_another_job_are_refused_by_name(self):
        self.train(self.job({"record": True}, out="made", steps=3))
        cases = [
            (2, "generator.rollouts: nowhere lacks recorded samples", ["--rollouts", "nowhere"], {}),
            (2, "generator.rollouts: made/record/rollouts lacks the samples of step 4, the last (train.steps)",
             ["--rollouts", "made"], {"train.steps": 4}),
            (1, "00000001.safetensors: step 1, sample 0 has another prompt than this job gives it",
             ["--rollouts", "made"], {"train.seed": 99}),
            (1, "this job allows 3", ["--rollouts", "made"], {"generator.max_tokens": 3}),
            (1, "is one that this job reads from the data", ["--rollouts", "made"], {"generator.from_step": 2,
                                                                                       "generator.on_policy": 0.25}),
        ]
        for status, wanted, options, settings in cases:
            with self.subTest(wanted):
                job = self.write_job(self.job(out="other", steps=3))
                finished = self.call("train", job, "--fresh", *options, *options_of(settings))
                self.assertEqual(finished.status, status, finished.describe())
                self.assertIn(wanted, finished.err)
        (self.folder / "made" / "record" / "rollouts" / "00000002.safetensors").unlink()
        finished = self.call("train", self.write_job(self.job(out="other", steps=3)), "--fresh", "--rollouts", "made")
        self.assertEqual(finished.status, 1, finished.describe())
        self.assertIn("lacks the samples of step 2: 00000002.safetensors is missing", finished.err)

    def test_a_replay_names_a_sample_that_has_changed(self):
        self.train(self.job({"record": True}, out="made", steps=4))
        self.train(self.job(out="back", steps=4), "--rollouts", "made")
        for run in ("made", "back"):
            replayed = self.call("replay", run, "--steps", "2..4")
            self.assertEqual(replayed.status, 0, replayed.describe())
        file = self.folder / "made" / "record" / "rollouts" / "00000003.safetensors"
        content = bytearray(file.read_bytes())
        header = 8 + int.from_bytes(content[:8], "little")
        content[header + json.loads(content[8:header])["completions"]["data_offsets"][0]] ^= 1
        file.write_bytes(content)
        replayed = self.call("replay", "back", "--steps", "2..4")
        self.assertEqual(replayed.status, 1, replayed.describe())
        self.assertIn("step 3: samples_digest was", replayed.err)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "two replicas of a section need two cores")
    def test_recorded_samples_give_every_layout_of_the_student_the_same_losses(self):
        # As between replicas in equivalence_test.py: sums are rounded in another order.
        tolerance = 1e-5
        made = self.train(self.job({"record": True}, out="made", steps=12)).curve("loss")
        self.assertEqual(len([at for at in made if at[0] == "student"]), 12)
        layouts = {
            "replicas": {"student.replicas": 2},
            "zero": {"student.replicas": 2, "student.zero": True},
            "tensor": {"student.tensor": 2},
            "unlike replicas": {"student.replicas": [{"context": 2}, {"context": 1}]},
            "pipeline": {"student.pipeline": 2},
            "micro_batch of one": {"student.micro_batch": 1},
            "micro_batch of all": {"student.micro_batch": 64},
        }
        for name, settings in layouts.items():
            with self.subTest(name):
                back = self.train(self.job(out="back", steps=12), "--rollouts", "made", "--cpu-devices", 4,
                                  settings=settings)
                self.assert_close(made, back.curve("loss"), tolerance)

    def test_a_shown_sample_is_repeated_by_generate(self):
        self.train(self.job(out="made", steps=4, validate_every=4, checkpoint_every=1, keep_checkpoints=9))
        shown = self.record_of("made", "rollouts.jsonl")
        self.assertEqual([(line["step"], line["version"], len(line["samples"])) for line in shown], [(4, 3, 4)])
        self.assertEqual(len({sample["seed"] for sample in shown[0]["samples"]}), 4)
        student = next(path for path in (self.folder / "made" / "checkpoints").iterdir() if path.name.endswith("2"))
        for sample in shown[0]["samples"]:
            (self.folder / "prompt.jsonl").write_text(json.dumps(sample["prompt_ids"]))
            again = self.call("generate", student / "student", "--tokenizer", "bytes", "--jsonl", "prompt.jsonl",
                              "--seed", sample["seed"], "--temperature", 1, "--top-k", 0, "--top-p", 1,
                              "--max-tokens", 12, "--json", "--log-probabilities")
            line = json.loads(again.out)
            self.assertEqual(line["ids"], sample["ids"], again.describe())
            self.assertEqual(sum(line["log_probabilities"]) / 12, sample["log_probability"])
        self.call("card", "made")
        card = (self.folder / "made" / "card.md").read_text()
        self.assertIn("## Lengths of made samples", card)
        self.assertIn(shown[0]["samples"][0]["seed"], card)

    def test_a_prompt_is_continued_several_times(self):
        job = self.job({"samples_per_prompt": 4, "show": 8, "record": True}, steps=3, validate_every=1)
        finished = self.train(job)
        prompts = [[tuple(sample["prompt_ids"]) for sample in line["samples"]]
                   for line in self.record_of("out", "rollouts.jsonl")]
        for of_step in prompts:
            self.assertEqual(of_step[:4], 4 * of_step[:1])
            self.assertEqual(of_step[4:], 4 * of_step[4:5])
        self.assertEqual(len({prompt for of_step in prompts for prompt in of_step}), 6)
        self.assertEqual(finished.report["samples"]["distinct"], 6)
        ids = [tuple(sample["ids"]) for sample in self.record_of("out", "rollouts.jsonl")[0]["samples"]]
        self.assertEqual(len(set(ids)), 8)
        # 1,125 samples, four epochs, 8 samples a step: the refusal names the last step.
        for generator, steps in (({}, 563), ({"samples_per_prompt": 4}, 2250)):
            job = self.job(generator, out="other", epochs=4)
            del job["train"]["steps"]
            self.refuse(f"lacks the samples of step {steps}, the last", job, "--rollouts", "out")

    def prompts_only(self, generator=None, **data):
        rows = [{"messages": [{"role": "user", "content": f"What is {a} plus {a}?"}]} for a in range(40)]
        rows.append({"messages": [{"role": "user", "content": "Too long. " * 9}]})
        rows.append({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
                                  {"role": "user", "content": "Bye"}]})
        (self.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (self.folder / "short.jinja").write_text("{% for m in messages %}{{ m.content }}|{% endfor %}"
                                                 "{% if add_generation_prompt %}A{% endif %}")
        job = self.job({"prompt_tokens": 0, **(generator or {})}, steps=6, validate_every=2)
        job["data"] = {"path": "rows.jsonl", "kind": "chat", "tokenizer": "bytes", "template": "short.jinja",
                       "sequence": 32, "learn": "none", **data}
        return job

    def test_conversations_without_an_answer_are_prompts(self):
        self.train(self.prompts_only({"show": 8}))
        shown = [sample["prompt"] for line in self.record_of("out", "rollouts.jsonl") for sample in line["samples"]]
        self.assertTrue(all(text.startswith("What is") and text.endswith("?|A") for text in shown if "Hi" not in text))
        self.assertLessEqual({text for text in shown if "Hi" in text}, {"Hi|Hello|Bye|A"})

    def test_prompts_without_answers_need_a_generator_for_all_samples(self):
        cases = [
            ("generator.on_policy: needs samples that are read, but data with learn = \"none\"",
             self.prompts_only({"on_policy": 0.5})),
            ("generator.from_step: needs samples that are read", self.prompts_only({"from_step": 2})),
            ("data.validation_fraction: does not apply to learn = \"none\"",
             self.prompts_only(validation_fraction=0.1)),
        ]
        alone = self.prompts_only()
        del alone["generator"]
        cases.append(("which a generator continues: add a table [generator]", alone))
        for wanted, job in cases:
            with self.subTest(wanted):
                self.refuse(wanted, job)

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
        self.assertEqual(sampled.curve("ce", "teacher_ce", "kl_read"), {})
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
        repository = {"MAESTRO_REPOSITORY": str(Path(__file__).resolve().parents[2])}
        finished = self.call("distill", "--data", "corpus.txt", *small, variables=repository)
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
            self.assertTrue(run.wait_for(lambda: run.text["out"].count(back) >= number), run.text)  # noqa: B023
        finished = run.wait()
        self.assertEqual((finished.status, finished.error_lines()), (0, []), finished.describe())
        self.assertEqual(finished.curve(), expected.curve())
        self.assertEqual(finished.report["validation"], expected.report["validation"])
        if provider != "shm":  # there a write that the lost process never read ends in a second recovery
            self.assertEqual(len(finished.report["recoveries"]), len(moments))
        self.assert_nothing_left(run)
        return finished

    def job(self, student=0, **generator):
        job = job_of({"generator": {**GENERATOR, "devices": ["cpu:2"], "slots": 2, **generator}}, steps=100)
        del job["plain"]
        job["teacher"]["processes"] = [0]
        job["student"]["processes"] = [student]
        return job

    def test_with_a_generator_costs_its_unfinished_samples_and_no_bit(self):  # MK-3
        pair = {"replicas": 2, "devices": ["cpu:2", "cpu:3"], "processes": [1, 2]}
        finished = self.lose(self.job(staleness=1, **pair), 3, [(1, signal.SIGKILL, EVERY), (2, signal.SIGSTOP, 2 * EVERY)],
                             "tcp")
        self.assertEqual(finished.out.count("recovered: went on in place"), 2, finished.out)

    def test_with_the_only_generator_is_awaited(self):
        for provider in ("tcp", "shm"):
            with self.subTest(provider):
                finished = self.lose(self.job(staleness=0, processes=[1]), 2, [(1, signal.SIGKILL, EVERY)], provider,
                                     "recovered: went on")
                # Over shm a write that the lost process has not read takes the run back.
                back = "|keeps back the ends of all later writes" if provider == "shm" else ""
                self.assertRegex(finished.out, f"recovered: went on in place{back}")

    def test_with_the_student_takes_versions_from_the_checkpoint(self):
        self.lose(self.job(student=1, staleness=2, processes=[2]), 3, [(1, signal.SIGKILL, 2 * EVERY)], "tcp",
                  "recovered: went on")


if __name__ == "__main__":
    unittest.main()
