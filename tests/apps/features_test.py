#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Settings that each change a run: end to end, with plausible figures."""

import json
import math
import unittest

from maestro_program import SystemTest, decoder, distillation, language_model


class ARun(SystemTest):
    def means(self, finished, section, name="loss", first=5):
        """Returns the means over the first and over the last steps."""
        values = [row[name] for row in finished.report["steps"] if row["section"] == section]
        self.assertTrue(all(math.isfinite(value) for value in values))
        return sum(values[:first]) / first, sum(values[-first:]) / first

    def assert_learns(self, finished, section):
        begin, end = self.means(finished, section)
        self.assertLess(end, begin - 0.3, section)

    def test_starts_near_the_entropy_of_the_alphabet_and_learns(self):
        finished = self.train(language_model(steps=60))
        self.assertAlmostEqual(finished.report["steps"][0]["loss"], math.log(256), delta=0.3)
        self.assert_learns(finished, "teacher")
        self.assertLess(finished.report["validation"]["teacher_ce"], math.log(256) - 0.5)

    def test_clipped_by_the_global_norm_is_the_same_under_every_plan(self):
        job = distillation(clip="global")
        for section in ("student", "plain"):
            job[section]["clip_norm"] = 0.05  # far below the norms in this job: every step is clipped
        both = self.train(job)
        apart = self.train(job, settings={"train.clip": "section"})
        self.assertNotEqual(both.curve(), apart.curve())
        self.assertEqual(self.train(job, "--processes", 3).curve(), both.curve())

    def test_that_never_reaches_the_norm_is_the_same_under_both_kinds_of_clipping(self):
        job = distillation()
        for section in ("student", "plain"):
            job[section]["clip_norm"] = 1e6
        expected = self.train(job, settings={"train.clip": "section"}).curve()
        self.assertEqual(self.train(job, settings={"train.clip": "global"}).curve(), expected)

    def test_clipped_globally_with_one_section_is_clipped_by_its_own_norm(self):
        job = language_model()
        job["teacher"]["clip_norm"] = 0.05
        own = self.train(job).curve()
        self.assertEqual(self.train(job, settings={"train.clip": "global"}).curve(), own)

    def test_in_processes_that_sections_name_is_the_same(self):
        made = distillation()
        made["teacher"]["replicas"] = 2
        finished = self.train(made, "--processes", 3)
        made["teacher"]["processes"] = [2, 0]
        made["student"]["processes"] = [2]
        placed = self.train(made, "--processes", 3)
        self.assertEqual(placed.curve(), finished.curve())
        began = json.loads((self.folder / "out/record/events.jsonl").read_text().splitlines()[0])
        places = {lane.rsplit(" on ")[0]: int(lane.rsplit(" ", 1)[1]) for lane in began["lanes"]}
        self.assertEqual(places["section 'teacher' replica 0"], 2)
        self.assertEqual(places["section 'teacher' replica 1"], 0)
        self.assertEqual(places["section 'student' replica 0"], 2)
        made["student"]["processes"] = [3]
        self.write_job(made)
        self.assert_refused("student.processes: 3 is no process of the job; it has 3, 0 to 2 (--processes)", "train",
                            "job.toml", "--processes", 3, "--fresh")

    def test_that_computes_layers_again_is_the_same(self):
        job = distillation()
        expected = self.train(job).curve()
        for value in ("layers", 2):
            again = {"student.recompute": value, "plain.recompute": value}
            self.assertEqual(self.train(job, settings=again).curve(), expected)
        self.assertEqual(self.train(job, "--processes", 2, settings={"student.recompute": 1}).curve(), expected)
        for value, wanted in ((1, "teacher.recompute does not apply to a frozen section"), ("all", "teacher.recompute")):
            refused = self.start(job, settings={"teacher.recompute": value}).wait()
            self.assertEqual(refused.status, 2, refused.describe())
            self.assertIn(wanted, refused.err)

    def test_that_validates_now_and_then_trains_the_same(self):
        job = distillation()
        expected = self.train(job)
        finished = self.train(job, settings={"train.validate_every": 5})
        self.assertEqual(finished.curve(), expected.curve())
        self.assertEqual(finished.report["validation"], expected.report["validation"])
        for name in ("teacher_ce", "distilled_ce", "plain_ce"):
            self.assertTrue(0 < finished.report["validation"][name] < 7, name)

    def test_keeps_as_many_checkpoints_as_it_is_told(self):
        job = language_model(steps=20, checkpoint_every=4, keep_checkpoints=3)
        finished = self.train(job)
        found = sorted(path.name for path in (self.folder / "out" / "checkpoints").iterdir())
        self.assertEqual(found, ["step-00000012", "step-00000016", "step-00000020"])
        self.assertEqual(finished.report["checkpoint"], "out/checkpoints/step-00000020")

    def boundary(self, name, **more):
        job = distillation()
        for section in ("teacher", "student"):
            job[section] |= {"boundary": name, **more}
        rows = self.train(job, "--processes", 2).report["steps"]
        return [(row["kl"], row["ce"]) for row in rows if row["section"] == "student"]

    def test_sends_logits_instead_of_hidden_states_to_the_same_effect(self):
        hidden, logits = self.boundary("hidden"), self.boundary("logits")
        self.assertEqual(len(hidden), 12)
        for one, other in zip(hidden, logits, strict=True):
            for wanted, found in zip(one, other):
                self.assertAlmostEqual(found, wanted, delta=1e-3 * wanted)

    def test_sends_the_top_logits_and_still_learns_from_them(self):
        job = distillation(steps=60)
        for section in ("teacher", "student"):
            job[section] |= {"boundary": "top_k", "top_k": 16}
        self.assert_learns(self.train(job, "--processes", 2), "student")

    def test_in_bf16_stays_near_the_fp32_one(self):
        job = distillation(steps=60)
        fp32 = self.train(job)
        for section in ("teacher", "student", "plain"):
            job[section]["precision"] = "bf16"
        bf16 = self.train(job, "--processes", 2)
        for section in ("student", "plain"):
            for wanted, found in zip(self.means(fp32, section), self.means(bf16, section)):
                self.assertAlmostEqual(found, wanted, delta=0.03 * wanted)

    def test_on_the_synthetic_corpus_needs_no_file(self):
        job = language_model(steps=60)
        job["data"] = {"kind": "synthetic", "vocabulary": 64, "sequence": 32}
        job["teacher"] = decoder(vocabulary=64, replicas=1)
        finished = self.train(job)
        self.assertAlmostEqual(finished.report["steps"][0]["loss"], math.log(64), delta=0.3)
        begin, end = self.means(finished, "teacher")
        self.assertLess(end, begin)


if __name__ == "__main__":
    unittest.main(verbosity=2)
