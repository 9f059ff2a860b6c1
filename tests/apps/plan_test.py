#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro plan JOB` and `maestro profile`: layouts chosen for a job, and the job that is written with them."""

import json
import re
import statistics
import tomllib
import unittest

from cluster_plan_test import CLUSTERS
from maestro_program import SystemTest, distillation, job_text, language_model, undisturbed

STEPS = 10


class Plan(SystemTest):
    def without_layouts(self, **train):
        job = distillation(validation_samples=4, checkpoint_at_end=False, **{"steps": STEPS, **train})
        for section in ("teacher", "student", "plain"):
            for key in ("replicas", "micro_batch", "devices", "tensor", "context", "pipeline"):
                job[section].pop(key, None)
        return job

    def plan(self, *arguments):
        finished = self.call("plan", *arguments, "--cpu-devices", 2, "--profile", "profile.json",
                             "--measure-ms", 0)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out

    def refuse(self, *parts, arguments):
        finished = self.call("plan", *arguments)
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.error_lines()), 1, finished.describe())
        for part in parts:
            self.assertIn(part, finished.err)

    def test_the_written_job_runs_as_it_is_and_learns_the_same(self):  # JP-3
        job = self.without_layouts()
        before = (self.folder / self.write_job(job)).read_text()
        text = self.plan("job.toml", "--out", "plan.toml", "--top", 3, "--page", "plan.html")
        page = (self.folder / "plan.html").read_text()
        for part in ("Time of the sections", "What ran when", "Best layouts", "Why not"):
            self.assertIn(f"<h2>{part}</h2>", page)
        self.assertRegex(text, r"bound +no layout of these can do a step in less than [\d.]+ ms")
        self.assertRegex(text, r"stable +best choice while pass times stay within: teacher [\d.]+ to [\d.]+")
        self.assertRegex(text, r"critical +(student|plain|teacher) is in passes [\d.]+%")
        self.assertEqual(len(re.findall(r"^ +\d  [\d.]+ ", text, re.M)), 3, text)
        written = (self.folder / "plan.toml").read_text()
        self.assertTrue(written.startswith("# Layouts chosen by `maestro plan`"), written)
        self.assertEqual([line for line in before.splitlines() if line not in written.splitlines()], [])
        checked = self.call("check", "plan.toml", "--cpu-devices", 2)
        self.assertEqual(checked.status, 0, checked.describe())
        planned = tomllib.loads(written)
        self.assertIn("micro_batch", planned["student"])
        chosen, given = (self.train(each, "--cpu-devices", 2).curve("loss") for each in (planned, job))
        self.assertEqual(len(chosen), 2 * STEPS)
        self.assertEqual(chosen.keys(), given.keys())
        for row, (loss,) in chosen.items():
            self.assertAlmostEqual(loss / given[row][0], 1, delta=1e-5, msg=row)

    def test_prices_of_a_profile_decide_and_are_kept(self):  # JP-2
        layouts_chosen = self.without_layouts()
        layouts_chosen["student"]["family"] = "llama"  # rotary embeddings add a call in each direction
        job = self.write_job(layouts_chosen)
        measured = self.call("profile", job, "--cpu-devices", 2, "--out", "profile.json", "--measure-ms", 0)
        self.assertEqual(measured.status, 0, measured.describe())
        self.assertIn("measuring teacher", measured.out)
        kept = (self.folder / "profile.json").read_text()
        first = self.plan(job, "--json")
        self.assertEqual(first, self.plan(job, "--json"))
        self.assertEqual(kept, (self.folder / "profile.json").read_text())
        answer = json.loads(first)
        self.assertEqual(answer["devices"], 2)
        layouts = answer["layouts"]
        self.assertEqual(len(layouts), 5)
        least = min(layout["step_ms"] for layout in layouts)
        self.assertLessEqual(layouts[0]["step_ms"], least * 1.01)
        for layout in layouts:
            self.assertGreater(layout["measured_share"], 0.5)
            self.assertIn("student.replicas=", " ".join(layout["settings"]))

    def test_the_written_job_has_one_table_of_its_prediction(self):
        job = self.without_layouts()
        job["plan"] = {"objective": "extra", "keep": ["teacher"], "predicted_step_ms": 1, "stall": 0.5,
                       "predicted_passes_ms": {"plain": 3}}
        answer = json.loads(self.plan(self.write_job(job), "--out", "plan.toml", "--json"))
        text = (self.folder / "plan.toml").read_text()
        self.assertEqual(text.count("[plan]"), 1, text)
        self.assertIn("path = \"corpus.txt\"", text)
        table = tomllib.loads(text)["plan"]
        self.assertEqual(set(table), {"predicted_step_ms", "objective", "predicted_passes_ms"})
        self.assertAlmostEqual(table["predicted_step_ms"] / answer["layouts"][0]["step_ms"], 1, delta=1e-4)
        self.assertEqual(table["objective"], "time")
        self.assertEqual(set(table["predicted_passes_ms"]), {"teacher", "student", "plain"})
        for ms in table["predicted_passes_ms"].values():
            self.assertTrue(0 < ms <= 1.001 * table["predicted_step_ms"], table)
        again = self.plan("plan.toml", "--out", "again.toml", "--vary", "all", "--json")
        self.assertEqual((self.folder / "again.toml").read_text().count("predicted_step_ms"), 1)
        self.assertEqual(json.loads(again)["layouts"][0]["settings"], answer["layouts"][0]["settings"])
        (self.folder / "dotted.toml").write_text("plan.predicted_step_ms = 7\n" + text.split("[plan]")[0])
        self.plan("dotted.toml", "--out", "again.toml", "--vary", "all")
        self.assertEqual((self.folder / "again.toml").read_text().count("predicted_step_ms"), 1)

    def test_the_best_are_run_in_turn(self):
        job = self.write_job(self.without_layouts())
        answer = json.loads(self.plan(job, "--try", 2, "--steps", 8, "--json", "--out", "plan.toml"))
        tried = [layout["tried_step_ms"] for layout in answer["layouts"] if "tried_step_ms" in layout]
        self.assertEqual(len(tried), 2)
        self.assertGreater(min(tried), 0)
        self.assertFalse((self.folder / "runs").exists(), "a tried layout leaves nothing")
        best = answer["layouts"][tried.index(min(tried))]
        planned = (self.folder / "plan.toml").read_text()
        self.assertIn(next(s for s in best["settings"] if s.startswith("student.replicas=")).split(".")[1].replace("=", " = "),
                      planned)

    def test_layouts_run_for_more_steps_than_the_job_has(self):
        for length in ({"steps": 2}, {"epochs": 0.001}):
            job = self.without_layouts(**length)
            if "epochs" in length:
                del job["train"]["steps"]
            with self.subTest(**length):
                answer = json.loads(self.plan(self.write_job(job), "--try", 1, "--steps", 6, "--json"))
                self.assertGreater(answer["layouts"][0]["tried_step_ms"], 0)

    def test_given_keys_stand_unless_they_are_varied(self):  # JP-1
        job = self.without_layouts()
        job["student"]["micro_batch"] = 3
        path = self.write_job(job)
        settings = json.loads(self.plan(path, "--json"))["layouts"][0]["settings"]
        self.assertNotIn("student.micro_batch", " ".join(settings))
        varied = json.loads(self.plan(path, "--json", "--vary", "student.micro_batch"))["layouts"][0]["settings"]
        self.assertIn("student.micro_batch", " ".join(varied))
        given = json.loads(self.plan(path, "--json", "--set", "teacher.replicas=2"))["layouts"]
        for layout in given:
            self.assertNotIn("teacher.replicas", " ".join(layout["settings"]))

    def test_a_step_too_small_for_the_apps_default_of_replicas_is_planned(self):  # JP-1
        job = language_model(steps=STEPS, global_batch=3)
        for key in ("replicas", "micro_batch", "devices"):
            job["teacher"].pop(key, None)
        layouts = json.loads(self.plan(self.write_job(job), "--json", "--top", 1000))["layouts"]
        self.assertIn("teacher.replicas=2", sum((layout["settings"] for layout in layouts), []))

    def generating(self, **generator):
        """Returns a job with fixed devices: the sections on one, the generator on another."""
        job = self.without_layouts(steps=16, global_batch=8)
        del job["plain"]
        for section in ("teacher", "student"):
            job[section] |= {"layers": 4, "width": 192, "heads": 4, "micro_batch": 8, "devices": ["cpu:0"]}
        job["generator"] = {"prompt_tokens": 8, "max_tokens": 24, "slots": 4, "devices": ["cpu:1"], **generator}
        return job

    @undisturbed
    def test_steps_with_made_samples_take_their_planned_time(self):
        for staleness in (0, 1):
            job = self.generating(staleness=staleness)
            (self.folder / "profile.json").unlink(missing_ok=True)
            answer = json.loads(self.plan(self.write_job(job), "--json"))
            found, generator = answer["layouts"][0], answer["generator"]
            self.assertEqual(generator, {"section": "generator", "samples": 8, "length_mean": 24,
                                         "lengths": "max_tokens"})
            steps = self.steps_of(self.train(job, "--cpu-devices", 2))[4:]
            measured = statistics.median(step["step_ms"] for step in steps)
            ratio = f"staleness {staleness}: {found['step_ms'] / measured:.2f} times the measured time"
            self.assertLess(found["step_ms"], 2 * measured, ratio)
            # Other processes lengthen the steps, but not the planned time.
            self.assertLess(measured, 2 * found["step_ms"] / answer["load"]["core_share"], f"{ratio}, {answer['load']}")
            self.assertAlmostEqual(found["generator_ms"] / found["rollout_ms"], 1, delta=0.2)
            if staleness == 0:  # each waits for the other
                self.assertGreater(found["step_ms"], found["rollout_ms"] + 0.9 * found["bound_ms"])

    def steps_of(self, finished):
        self.assertEqual(finished.status, 0, finished.describe())
        return [json.loads(line) for line in (self.folder / "out/record/steps.jsonl").read_text().splitlines()]

    def test_lengths_of_a_run_are_planned_with(self):
        job = self.generating(stop=list("abcdefghijklmnopqrstuvwxyz"))
        path = self.write_job(job)
        row = self.steps_of(self.train(job, "--cpu-devices", 2))[-1]["sections"]["generator"]
        self.assertLess(row["length_mean"], 24)
        text = self.plan(path)
        self.assertIn("samples   8 of 24.0 tokens, the most they may have; --lengths RUN takes a run's", text)
        self.assertRegex(text, r"rollout   [\d.]+ ms; generator is at work [\d.]+% of the time")
        whole, lengths = (json.loads(self.plan(path, "--json", *more)) for more in ((), ("--lengths", "out")))
        self.assertEqual(lengths["generator"]["lengths"], "out")
        self.assertLess(lengths["generator"]["length_mean"], 24)
        self.assertLess(lengths["layouts"][0]["generator_ms"], whole["layouts"][0]["generator_ms"])
        self.assertIn("tokens, as in out", self.plan(path, "--lengths", "out"))
        self.refuse("nowhere/record/steps.jsonl", arguments=(path, "--lengths", "nowhere"))
        plain = self.without_layouts(out="plain")
        self.train(plain, "--cpu-devices", 2)
        self.refuse("--lengths: the job lacks a generator", arguments=(self.write_job(plain), "--lengths", "out"))
        self.refuse("its last steps have no made samples", arguments=(self.write_job(job), "--lengths", "plain"))

    def test_what_is_not_known_of_made_samples_is_refused_by_name(self):
        path = self.write_job(self.generating())
        (self.folder / "cluster.toml").write_text(job_text(CLUSTERS["two"]))
        self.refuse("plan --cluster does not price the samples that [generator] makes",
                    arguments=(path, "--cluster", "cluster.toml"))
        self.train(self.generating(record=True), "--cpu-devices", 2)
        self.refuse("generator.rollouts: plan prices samples that are made",
                    arguments=(path, "--set", "generator.rollouts=\"out\""))

    def test_wrong_input_is_told_in_one_line(self):
        path = self.write_job(self.without_layouts())
        self.refuse("--vary teacher.micro_bach", "did you mean teacher.micro_batch?",
                    arguments=(path, "--vary", "teacher.micro_bach"))
        self.refuse("unknown option --at", arguments=(path, "--at", "unix:/x"))
        self.refuse("missing.toml", arguments=("missing.toml",))
        (self.folder / "profile.json").write_text('{"maestro": 3}')
        self.refuse("profile.json", "maestro: expected a string", arguments=(path, "--profile", "profile.json"))
        (self.folder / "profile.json").write_text(
            '{"maestro": "x", "devices": 7, "glue_alone_us": 0, "glue_busy_us": 0, "calls": []}')
        self.refuse("measured with 7 devices", arguments=(path, "--profile", "profile.json", "--cpu-devices", 2))
        served = {"name": "x", "app": "graph", "edges": ["corpus.tokens -> head.tokens"],
                  "data": {"kind": "synthetic"}, "head": {"type": "served", "address": "unix:/nobody"}}
        self.refuse('head.type = "served"', "cannot price", arguments=(self.write_job(served),))
        job = self.without_layouts()
        job["teacher"]["devices"] = ["emulated"]
        self.refuse("teacher.devices", "this plan is for ", "leave devices out", arguments=(self.write_job(job),))


if __name__ == "__main__":
    unittest.main()
