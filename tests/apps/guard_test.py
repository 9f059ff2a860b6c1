#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Spikes of the loss: what the guard finds in a run, and what it does about it."""

import random
import re
import unittest

from maestro_program import SystemTest, language_model, text_corpus
from record_test import curve, lines

SEQUENCE, BATCH, STEPS, POISONED = 32, 12, 160, 100


def job(**guard):
    """A run whose loss is usual long before the step POISONED, at three times the usual learning rate."""
    made = language_model(steps=STEPS, global_batch=BATCH, validation_samples=0)
    made["teacher"] |= {"lr": 9e-3, "schedule": "constant", "layers": 1, "micro_batch": 12}
    made["guard"] = {"window": 64, **guard}
    return made


def spikes(folder):
    return [event for event in lines(folder, "events.jsonl") if event["event"] == "spike"]


class Poisoned(SystemTest):
    """A run of `job` in `reference`; poison() then puts random bytes into the samples of steps."""

    def setUp(self):
        super().setUp()
        (self.folder / "corpus.txt").write_text(text_corpus(100_000))  # no sample comes twice
        self.out = self.folder / "out"
        self.reference = self.train(job(), settings={"train.out": "reference"})

    def samples(self, folder, step):
        shown = self.call("samples", folder, "--step", step)
        self.assertEqual(shown.status, 0, shown.describe())
        return [int(sample) for sample in re.findall(r"^sample (\d+),", shown.out, re.M)]

    def poison(self, *steps):
        corpus = bytearray((self.folder / "corpus.txt").read_bytes())
        chosen = random.Random(5)
        for step in steps:
            for sample in self.samples("reference", step):
                corpus[sample * SEQUENCE:(sample + 1) * SEQUENCE] = bytes(chosen.choices(range(1, 128), k=SEQUENCE))
        (self.folder / "corpus.txt").write_bytes(corpus)

    def found(self):
        return [(event["what"], event["step"]) for event in spikes(self.out)]


class ANotedSpike(Poisoned):
    def test_is_an_event_and_a_line_and_changes_nothing(self):
        self.assertEqual(spikes(self.folder / "reference"), [], "a false alarm")
        self.poison(POISONED, POISONED + 1)
        finished = self.train(job(rise=0.2))
        unwatched = self.train(job(rise=1000, z=1000, norm=1e9), settings={"train.out": "unwatched"})
        self.assertEqual(finished.curve(), unwatched.curve())
        self.assertEqual(spikes(self.folder / "unwatched"), [])
        began, *_, ended = [event for event in spikes(self.out) if event["what"] != "huge_norm"]
        self.assertEqual((began["what"], began["step"], began["section"]), ("began", POISONED, "teacher"))
        self.assertEqual((ended["what"], ended["began"]), ("ended", POISONED))
        recorded = curve(self.out)
        self.assertEqual(began["value"], recorded["teacher", POISONED]["loss"])
        self.assertEqual(ended["value"], recorded["teacher", ended["step"]]["loss"])
        self.assertIn(f"warning: step {POISONED}, section 'teacher': a spike of the loss begins: ", finished.err)
        self.assertIn(f"step {ended['step']}, section 'teacher': the spike of the loss that began at step {POISONED} "
                      "has ended: ", finished.out)

    def test_lasts_where_it_has_not_ended_in_time(self):
        self.poison(*range(POISONED, POISONED + 12))
        finished = self.train(job(patience=10))
        self.assertEqual([found for found in self.found() if found[0] != "huge_norm"][:2],
                         [("began", POISONED), ("lasts", POISONED + 10)])
        self.assertIn(f"warning: step {POISONED + 10}, section 'teacher': the spike of the loss that began at step "
                      f"{POISONED} lasts: ", finished.err)


class Settings(SystemTest):
    def test_are_checked(self):
        for key, value, wanted in (("action", "skip", "guard.action"), ("windows", 8, "guard.windows")):
            made = language_model()
            made["guard"] = {key: value}
            self.assert_refused(wanted, "check", self.write_job(made))


if __name__ == "__main__":
    unittest.main(verbosity=2)
