#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A student with several teachers, live and recorded, and a mixture whose sources choose among them."""

import json
import signal
import unittest

from maestro_program import SystemTest, decoder, distillation, text_corpus
from recovery_test import FEW_DEVICES, Recovers
from trace_test import Trace

FIGURES = ("loss", "ce", "kl", "kl_math", "kl_code", "grad_norm")
SOURCES = ("wiki", "books", "chat")


def teacher(width, **changes):
    return {"layers": 1, "width": width, "heads": 2, "positions": 32, "micro_batch": 4, "replicas": 1,
            "weights": "random", **changes}


def classroom(*names, **student):
    """Returns a job with a student that learns from the sections with these names."""
    job = distillation()
    tables = {"math": teacher(48), "code": teacher(32, boundary="logits"), "facts": teacher(24, micro_batch=2)}
    for table in ("teacher", "plain"):
        del job[table]
    job |= {name: tables[name] for name in names}
    job["student"] = decoder(teacher=list(names), **student)
    job["train"]["steps"] = 6
    return job


class Teachers(SystemTest):
    def teach(self, job, *options):
        finished = self.call("teach", self.write_job(job, "teach.toml"), "--out", "records", "--top-k", "16", *options)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished

    def refuse(self, job, *wanted):
        name = self.write_job(job, "refused.toml")
        for part in wanted:
            for command in ("check", "train"):
                self.assert_refused(part, command, name)


class AStudentOfSeveral(Teachers):
    def test_learns_from_live_and_recorded_teachers_alike_in_one_process_and_in_three(self):
        job = classroom("math", "code", "facts", teacher_weights=[2, 1, 0.5])
        self.assert_refused("[student] has the teachers math, code, facts; choose one by --teacher", "teach",
                            self.write_job(job, "teach.toml"), "--out", "records")
        self.assert_refused("--teacher fact is not a teacher of [student]; did you mean 'facts'?", "teach",
                            self.write_job(job, "teach.toml"), "--out", "records", "--teacher", "fact")
        shown = self.teach(job, "--teacher", "facts").out
        self.assertIn("to learn from it: [facts] type = \"recorded_teacher\"", shown)
        job["facts"] |= {"boundary": "top_k_rest", "top_k": 16}
        figures = (*FIGURES, "kl_facts")
        live = self.train(job).curve(*figures)
        job["facts"] = {"type": "recorded_teacher", "path": "records", "micro_batch": 8}
        one = self.train(job)
        self.assertIn(("student", 6), one.curve(*figures))
        self.assert_close(live, one.curve(*figures), 2e-3)  # records are F16
        for loss, ce, kl, math, code, _, facts in one.curve(*figures).values():
            self.assertAlmostEqual(kl, (2 * math + code + 0.5 * facts) / 3.5, delta=1e-5 * kl)
            self.assertAlmostEqual(loss, (kl + ce) / 2, delta=1e-5 * loss)
        self.assertIn("teacher_ce_math", one.report["validation"]["sections"]["student"])
        self.assertNotIn("teacher_ce", one.report["validation"]["sections"]["student"])
        three = self.train(job, "--processes", "3")
        self.assertEqual(one.curve(*figures), three.curve(*figures))

    def test_of_one_name_is_that_of_a_single_teacher(self):
        job = distillation()
        job["train"]["steps"] = 4
        expected = self.train(job).curve("loss", "ce", "kl", "teacher_ce", "grad_norm")
        job["student"] |= {"teacher": ["teacher"], "teacher_weights": [3]}
        self.assertEqual(self.train(job).curve("loss", "ce", "kl", "teacher_ce", "grad_norm"), expected)

    def test_resumes_bit_by_bit_over_ranks_and_stages(self):
        job = classroom("math", "code", teacher_weights=[1, 3])
        job["code"]["boundary"] = "hidden"
        whole = self.train(job)
        cut = self.train(job, settings={"student.tensor": 2, "math.tensor": 2})
        self.assert_close(whole.curve(*FIGURES), cut.curve(*FIGURES), 1e-4)
        cut = self.train(job, settings={"student.context": 2})
        self.assert_close(whole.curve(*FIGURES), cut.curve(*FIGURES), 1e-4)
        unlike = {"student.replicas": [{"context": 2}, {"context": 1}]}
        cut = self.train(job, "--cpu-devices", 6, settings=unlike)
        self.assert_close(whole.curve(*FIGURES), cut.curve(*FIGURES), 1e-4)
        cut = self.train(job, settings={"student.pipeline": 2})
        self.assert_close(whole.curve(*FIGURES), cut.curve(*FIGURES), 1e-4)
        self.train(job, settings={"train.steps": 6, "train.checkpoint_every": 3})
        rest = self.train(job, "--resume", "out/checkpoints/step-00000003", settings={"train.checkpoint_every": 3})
        self.assertEqual(whole.curve(*FIGURES, after=3), rest.curve(*FIGURES))

    def test_is_refused_by_name(self):
        job = classroom("math", "code")
        job["code"]["boundary"] = "hidden"
        job["student"] |= {"replicas": [{"context": 2}, {"context": 1}], "tensor": 2, "heads": 4}
        self.refuse(job, "student.replicas: with context = 1 a replica's ranks hold other rows")
        self.refuse(classroom("math", "code", teacher_weights=[1]), "student.teacher_weights: has 1 weight for 2")
        job = classroom("math")
        job["student"]["teacher"] = ["math", "coda"]
        self.refuse(job, "student.teacher: there is no section [coda] to learn from")
        job = classroom("math", "code")
        job["facts"] = {"type": "recorded_teacher", "path": "nowhere"}
        job["student"]["teacher"] = ["math", "facts"]
        del job["code"]
        self.refuse(job, "facts.path: cannot open nowhere/teacher.json")


class Mixtures(Teachers):
    def setUp(self):
        super().setUp()
        for seed, name in enumerate(SOURCES):
            text = text_corpus(8_000, seed)
            rows = [json.dumps({"text": text[at:at + 100]}) for at in range(0, len(text), 100)]
            (self.folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
            finished = self.call("prepare", f"{name}.jsonl", "--tokenizer", "bytes", "--out", name, "--validation", "0.2")
            self.assertEqual(finished.status, 0, finished.describe())

    def mixture(self, **teachers):
        mix = {}
        for number, name in enumerate(SOURCES):
            mix[name] = {"path": name, "weight": number + 1}
            if name in teachers:
                mix[name]["teachers"] = teachers[name]
        job = classroom("math", "code", teacher_weights=[2, 1])
        job["train"] |= {"steps": 32, "global_batch": 32}
        job["data"] = {"kind": "prepared", "sequence": 16, "mix": mix}
        job["math"]["micro_batch"] = job["code"]["micro_batch"] = 1
        return job


class AMixture(Mixtures):
    """A source gives exactly its share of 1,024 samples, so after 1,024 samples each teacher's number is known."""

    def passes(self, job):
        """Returns {teacher: forward passes of training}, and the finished run."""
        finished = self.train(job, "--trace", "trace.json")
        slices = Trace(self.folder / "trace.json").slices
        return {name: sum(event["name"] == "forward" for event in slices[f"{name}/0"])
                for name in ("math", "code")}, finished

    def test_lets_each_teacher_run_for_the_samples_of_its_sources_alone(self):
        job = self.mixture(wiki=["math"], books=["code"])
        found, one = self.passes(job)
        shares = {"wiki": 171, "books": 341, "chat": 512}  # 1:2:3 of 1,024
        self.assertEqual(found, {"math": shares["wiki"] + shares["chat"], "code": shares["books"] + shares["chat"]})
        three = self.train(job, "--processes", "3")
        self.assertEqual(one.curve(*FIGURES), three.curve(*FIGURES))

    def test_is_refused_with_a_teacher_that_no_source_names(self):
        self.refuse(self.mixture(**{name: ["math"] for name in SOURCES}),
                    'student.teacher: "code" teaches no sample: no source of [data.mix] has it in its `teachers`')

    def test_is_refused_with_a_source_that_no_step_has(self):
        job = self.mixture()
        job["data"]["mix"]["wiki"]["weight"] = 0.0001
        self.refuse(job, "data.mix.wiki.weight: 1e-04 gives this source none of 1,024 samples with the other "
                         "weights; use at least 0.0054")
        job["data"]["mix"]["wiki"]["weight"] = 0.0054
        self.assertEqual(self.call("check", self.write_job(job)).status, 0)

    def test_is_refused_for_names_of_no_teacher(self):
        self.refuse(self.mixture(wiki=["mth"]),
                    "data.mix.wiki.teachers: \"mth\" teaches no section of this job; did you mean 'math'?")
        self.refuse(self.mixture(wiki=[]), "data.mix.wiki.teachers: is an empty list; leave it out for all teachers")
        self.refuse(self.mixture(wiki=["math", "math"]), "data.mix.wiki.teachers: names \"math\" twice")


class ALostProcess(Mixtures, Recovers):
    def test_of_a_mixture_changes_no_loss(self):
        job = self.mixture(wiki=["math"], books=["code"])
        job["train"] |= {"steps": 400, "global_batch": 8, "checkpoint_every": 20, "recover": "restart"}
        expected = self.train(job, *FEW_DEVICES, settings={"train.out": "reference"})
        run = self.start_held(job, "--processes", 4, *FEW_DEVICES, settings={"transport.provider": "tcp"})
        for number, rank in enumerate((1, 3, 2)):  # each has a different section
            self.kill_one(run, rank, signal.SIGKILL, 20)
            gone_on = lambda: run.text["err"].count(f"(recovery {number + 1} of 10)") == 1  # noqa: B023, E731
            self.assertTrue(run.wait_for(gone_on), run.text)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(*FIGURES), expected.curve(*FIGURES))
        self.assertEqual(finished.report["validation"], expected.report["validation"])


if __name__ == "__main__":
    unittest.main()
