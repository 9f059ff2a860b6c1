#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro replay`: repeated steps have the bits of the record, or the first difference is named."""

import json
import os
import random
import signal
import unittest

import vlm_test
from maestro_program import SystemTest, distillation

STEPS, EVERY = 40, 8
PIPELINE = {"pipeline": 2, "replicas": 1}
TENSOR = {"tensor": 2, "replicas": 1}


class Replays:
    def replay(self, steps, *options):
        return self.call("replay", "out", "--steps", steps, "--check", *options)

    def assert_same(self, steps):
        again = self.replay(steps)
        self.assertEqual(again.status, 0, f"steps {steps}: {again.describe()}")
        self.assertIn("are the same to the bit", again.out)
        self.assertEqual([entry.name for entry in (self.folder / "out").glob("replay*")], [])
        return again

    def check_ranges(self, count, seed):
        chosen = random.Random(seed)
        for _ in range(count):
            first = chosen.randint(1, STEPS - 3)
            self.assert_same(f"{first}..{min(STEPS, first + chosen.randint(2, 9))}")


class OfDistillation(Replays, SystemTest):
    def job(self, **changes):
        job = distillation(steps=STEPS, checkpoint_every=EVERY, keep_checkpoints=3, validate_every=12)
        job["student"].update(changes)
        return job

    def test_any_steps_have_the_same_bits_in_any_layout(self):
        for at, (changes, processes) in enumerate((({}, 1), ({}, 2), (PIPELINE, 2), (TENSOR, 2))):
            with self.subTest(changes=changes, processes=processes):
                self.train(self.job(**changes), "--processes", processes, "--cpu-devices", 4, "--fresh")
                self.check_ranges(3, seed=at)

    def test_the_state_after_a_checkpoint_is_compared_too(self):
        self.train(self.job())
        again = self.assert_same(f"{STEPS - EVERY - 1}..{STEPS}")
        self.assertIn(f"the state of all trained sections after step {STEPS}", again.out)
        events = self.folder / "out/record/events.jsonl"
        lines = [json.loads(line) for line in events.read_text().splitlines()]
        for line in lines:
            if line["event"] == "checkpoint" and line["step"] == STEPS:
                line["digests"]["plain"] = "0" * 16
        events.write_text("".join(json.dumps(line) + "\n" for line in lines))
        other = self.replay(f"{STEPS - 1}..{STEPS}")
        self.assertEqual(other.status, 1)
        self.assertIn(f"step {STEPS}: the values or the optimizer state of section 'plain' differ", other.err)

    def test_steps_after_a_kill_have_the_same_bits(self):
        job = self.job()
        job["train"].update(steps=400, checkpoint_every=50)
        run = self.start_held(job)
        record = self.folder / "out/record/steps.jsonl"
        self.assertTrue(run.wait_for(lambda: record.exists() and record.read_bytes().count(b"\n") > 120), run.text)
        os.kill(run.members()[0], signal.SIGKILL)
        run.wait()
        self.train(job, "--resume", "out")
        self.assert_same("98..130")
        self.assert_same("351..353")

    def test_the_first_figure_that_differs_is_named_with_both_values(self):
        self.train(self.job())
        file = self.folder / "out/record/steps.jsonl"
        lines = file.read_text().splitlines()
        step = json.loads(lines[9])
        was = step["sections"]["student"]["loss"]
        step["sections"]["student"]["loss"] = was + 1e-9
        lines[9] = json.dumps(step, separators=(",", ":"))
        file.write_text("\n".join(lines) + "\n")
        self.assert_same("4..9")
        other = self.call("replay", "out", "--steps", "9..12")
        self.assertEqual(other.status, 1)
        self.assertIn(f"step 10, section 'student': loss was {was + 1e-9!r}, is {was!r}", other.err)
        self.assertRegex(other.out, r"step 9: .*, the same bits\nstep 10: .*; recorded: ")

    def test_another_byte_of_text_or_bit_of_weights_is_named(self):
        self.train(self.job())
        weights = self.folder / f"out/checkpoints/step-{STEPS - EVERY:08}/student/model.safetensors"
        held = bytearray(weights.read_bytes())
        held[-100] ^= 1
        weights.write_bytes(held)
        altered = self.replay(f"{STEPS - 2}..{STEPS}")
        self.assertNotEqual(altered.status, 0)
        self.assertIn("student/model.safetensors was altered", altered.err)
        corpus = self.folder / "corpus.txt"
        corpus.write_text(corpus.read_text().replace("river", "rivet", 1))
        changed = self.replay("3..5")
        self.assertEqual(changed.status, 2)
        self.assertIn("steps 3 to 5 were trained on other data than there is now: content differs", changed.err)

    def test_another_build_and_other_places_are_named_beforehand(self):
        self.train(self.job())
        events = self.folder / "out/record/events.jsonl"
        text = events.read_text()
        build = json.loads(text.splitlines()[0])["build"]
        self.assertRegex(build, "^[0-9a-f]{80}$")  # hashes of the program and of libmaestro.so
        events.write_text(text.replace(build, "0" * 40))
        again = self.replay("3..5")
        self.assertEqual(again.status, 0)
        self.assertIn(f"warning: the build of maestro or a plug-in was {'0' * 40}, is {build}", again.err)
        self.assertEqual(again.err.count("warning"), 1)
        events.write_text(text.replace("section 'plain' replica 0 on cpu:0", "section 'plain' replica 0 on cpu:9"))
        self.assertIn("a lane was section 'plain' replica 0 on cpu:9", self.replay("3..5").err)

    def test_steps_that_the_record_cannot_give_are_refused(self):
        self.train(self.job())
        for steps, reason in (("38..41", f"has steps 1 to {STEPS}, not all of 38 to 41"),
                              ("5..4", "write the first and the last step, such as 10..20"),
                              ("a", "write the first and the last step")):
            refused = self.replay(steps)
            self.assertEqual(refused.status, 2, refused.describe())
            self.assertIn(reason, refused.err)
        self.assertEqual(self.call("replay", "nowhere", "--steps", "1").status, 2)

    def test_steps_of_another_job_are_replayed_apart(self):
        self.train(self.job())
        longer = self.job()
        longer["train"].update(steps=STEPS + 10, keep_checkpoints=1)
        longer["student"]["lr"] = 3e-3
        self.train(longer, "--resume", "out")
        refused = self.replay(f"{STEPS - 2}..{STEPS + 2}")
        self.assertEqual(refused.status, 2)
        self.assertIn(f"step {STEPS + 1} was trained by another job", refused.err)


class OfVisionLanguage(Replays, vlm_test.VisionLanguageTest):
    def test_any_steps_have_the_same_bits(self):
        self.train(vlm_test.vision_language(steps=STEPS, checkpoint_every=EVERY), "--cpu-devices", 2)
        self.check_ranges(3, seed=9)


if __name__ == "__main__":
    unittest.main(verbosity=2)
