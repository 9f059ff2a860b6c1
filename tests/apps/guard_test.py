#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Spikes of the loss: how the guard finds them in a run, and its actions."""

import json
import random
import re
import unittest

from maestro_program import SystemTest, distillation, language_model, text_corpus
from record_test import curve, lines

SEQUENCE, BATCH, STEPS, POISONED = 32, 12, 160, 100


def trained(made, section, **guard):
    """Returns a job, at three times the usual learning rate, whose loss settles long before step POISONED."""
    made["train"] |= {"steps": STEPS, "global_batch": BATCH, "validation_samples": 0}
    made[section] |= {"lr": 9e-3, "layers": 1, "micro_batch": BATCH}
    made["guard"] = {"window": 64, **guard}
    return made


def job(**guard):
    return trained(language_model(), "teacher", **guard)


def going_back(made):
    """Two poisoned steps become a lasting spike; a checkpoint is 18 to 20 steps before the left-out samples."""
    made["train"] |= {"checkpoint_every": 20, "recover": "restart"}
    made["guard"] |= {"action": "rollback", "patience": 1}
    return made


def spikes(folder):
    return [event for event in lines(folder, "events.jsonl") if event["event"] == "spike"]


class Poisoned(SystemTest):
    """Runs `job` in `reference`; poison() then writes random bytes into the samples of steps."""

    def setUp(self):
        super().setUp()
        (self.folder / "corpus.txt").write_text(text_corpus(100_000))  # no sample is repeated
        self.out = self.folder / "out"
        self.reference = self.train(job(), settings={"train.out": "reference"})

    def samples(self, folder, step):
        """Returns the sample ids of a step, as `maestro samples` prints them."""
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


FIRST, SKIPPED = POISONED - 2, 4  # first step with other samples; number of steps left out


class ARollback(Poisoned):  # PR-4, CR-7
    def setUp(self):
        super().setUp()
        self.poison(POISONED, POISONED + 1)
        self.train(job(), settings={"train.out": "noted"})

    def check(self, finished, noted):
        """Checks that the run has the same steps as the run that only noted the spike, but without the samples left
        out: later samples follow directly. Returns the step that it went back to."""
        ours, clean = lines(self.out, "steps.jsonl"), lines(noted, "steps.jsonl")
        self.assertEqual([row["step"] for row in ours], list(range(1, STEPS + 1)))
        digests = [row["samples_digest"] for row in clean]
        self.assertEqual([row["samples_digest"] for row in ours],  # DC-1
                         (digests[:FIRST - 1] + digests[FIRST - 1 + SKIPPED:])[:STEPS] + self.later(len(digests)))
        for row in ours[:FIRST - 1]:
            same = clean[row["step"] - 1]["sections"]
            self.assertEqual({name: metrics["loss"] for name, metrics in row["sections"].items()},
                             {name: metrics["loss"] for name, metrics in same.items()})
        event, = [event for event in lines(self.out, "events.jsonl") if event["event"] == "rolled_back"]
        last = event["last_step"]
        self.assertGreater(last, POISONED)
        base = event["after_step"]
        self.assertIn(base, (20, 40, 60, 80))  # 80 unless the disk is slow
        self.assertEqual((event["began"], event["left_out_from_step"]), (POISONED, FIRST))
        self.assertEqual(event["positions_rolled_back"], [base * BATCH, last * BATCH])
        self.assertEqual(event["positions_left_out"], [(FIRST - 1) * BATCH, (FIRST - 1 + SKIPPED) * BATCH])
        spike = self.out / "archive" / f"spike-{POISONED:08}"
        self.assertEqual({entry.name for entry in spike.iterdir()},
                         {f"step-{base:08}", f"step-{last:08}", "steps.jsonl"})
        given_up = [json.loads(line) for line in (spike / "steps.jsonl").read_text().splitlines()]
        self.assertEqual([row["step"] for row in given_up], list(range(base + 1, last + 1)))
        self.assertEqual([row["step"] for row in finished.report["scheduling"]], list(range(1, STEPS + 1)))
        return base

    def later(self, known):
        """Returns the digests of the steps whose samples the other run did not reach."""
        rows = lines(self.out, "steps.jsonl")
        return [row["samples_digest"] for row in rows[known - SKIPPED:]]

    def test_leaves_the_samples_of_a_spike_out(self):
        finished = self.train(going_back(job()))
        base = self.check(finished, self.folder / "noted")
        self.assertIn(f"going back to out/checkpoints/step-{base:08}, without the samples of {SKIPPED} steps from step "
                      f"{FIRST} on (rollback 1 of 3)", finished.err)
        self.assertIn(f"rolled back: went on after step {base} within ", finished.out)
        self.assertEqual(finished.error_lines(), [])
        self.assertEqual(self.samples("out", FIRST), self.samples("noted", FIRST + SKIPPED))
        self.assertEqual(self.samples("out", FIRST - 1), self.samples("noted", FIRST - 1))

        resumed = self.train(going_back(job()), "--resume", "out/checkpoints/step-00000140")  # DC-2
        self.assertEqual(resumed.curve(), finished.curve(after=140))
        self.assertEqual(self.samples("out", STEPS), self.samples_of_position(STEPS + SKIPPED))

    def samples_of_position(self, step):
        """Returns the samples of a step in the clean run, which is extended if needed."""
        longer = job()
        longer["train"]["steps"] = step
        self.train(longer, settings={"train.out": "longer"})
        return self.samples("longer", step)

    def test_that_is_killed_goes_on_from_where_it_went_back_to(self):
        finished = self.train(going_back(job()), settings={"train.out": "whole"})
        self.assertIn("rolled back: ", finished.out)
        run = self.start_held(going_back(job()), after=STEPS - 1)
        self.assertTrue(run.wait_for_text("going back to "), run.text)
        run.end()
        resumed = self.train(going_back(job()), "--resume", "auto")
        after = resumed.report["steps"][0]["step"] - 1
        self.assertLess(after, STEPS)
        self.assertEqual(resumed.curve(), finished.curve(after=after))

    def test_is_of_all_sections_and_processes(self):
        made = trained(trained(distillation(), "student"), "plain")
        (self.folder / "corpus.txt").write_text(text_corpus(100_000))
        self.train(made, settings={"train.out": "reference"})
        self.poison(POISONED, POISONED + 1)
        self.train(made, settings={"train.out": "noted"})
        self.check(self.train(going_back(made), "--processes", 3), self.folder / "noted")

    def test_is_the_same_with_sharded_state_in_several_processes(self):
        made = job()
        made["teacher"] |= {"replicas": 2, "zero": True, "micro_batch": BATCH // 4}
        self.train(made, settings={"train.out": "sharded"})
        self.check(self.train(going_back(made), "--processes", 2), self.folder / "sharded")

    def test_is_none_where_the_spike_ends_in_time(self):
        watched = going_back(job())
        watched["guard"]["patience"] = 50
        self.train(watched)
        self.assertEqual({key: metrics["loss"] for key, metrics in curve(self.out).items()},
                         {key: metrics["loss"] for key, metrics in curve(self.folder / "noted").items()})
        self.assertIn(("ended", POISONED + 2), self.found())
        self.assertNotIn("rolled_back", [event["event"] for event in lines(self.out, "events.jsonl")])
        self.assertEqual(list(self.out.glob("archive/*")), [])

    def test_is_none_after_the_last_that_is_allowed(self):
        watched = going_back(job())
        watched["guard"]["max_rollbacks"] = 0
        finished = self.train(watched)
        event, = [event for event in lines(self.out, "events.jsonl") if event["event"] == "not_rolled_back"]
        self.assertEqual((event["began"], event["reason"]), (POISONED, "guard.max_rollbacks = 0 is reached"))
        self.assertIn(f"warning: the run is not rolled back before the spike of step {POISONED}: ", finished.err)

    def test_is_none_without_an_older_checkpoint(self):
        watched = going_back(job())
        watched["train"]["checkpoint_every"] = STEPS
        self.train(watched)
        event, = [event for event in lines(self.out, "events.jsonl") if event["event"] == "not_rolled_back"]
        self.assertIn(f"no checkpoint is older than step {FIRST}", event["reason"])


def skipping(made, **guard):
    """Norms of clean steps stay below `norm` times the usual norm; the poisoned step's norm does not."""
    made["guard"] |= {"action": "skip", "norm": 3, **guard}
    return made


class ASkippedStep(Poisoned):  # NG-1
    def setUp(self):
        super().setUp()
        self.poison(POISONED)

    def skipped(self, folder):
        events = [event for event in lines(folder, "events.jsonl") if event["event"] == "skipped"]
        rows = [row for row in lines(folder, "steps.jsonl")
                if any("skipped" in metrics for metrics in row["sections"].values())]
        self.assertEqual(sorted({event["step"] for event in events}), [row["step"] for row in rows])
        for row in rows:
            self.assertEqual({metrics["skipped"] for metrics in row["sections"].values()}, {1})
        return [row["step"] for row in rows]

    def check(self, made, *options):
        """Checks that the poisoned step is skipped, as if it did not exist; a resumed run and a replay repeat that."""
        finished = self.train(made, *options)
        self.assertEqual(self.skipped(self.out), [POISONED])
        self.assertIn(f"warning: step {POISONED} is skipped: the gradient norm of section '", finished.err)
        digests = {event["step"]: event["digests"] for event in lines(self.out, "events.jsonl")
                   if event["event"] == "checkpoint"}
        self.assertEqual(digests[POISONED], digests[POISONED - 1], "values, moments or updates have changed")
        self.assertNotEqual(digests[POISONED - 1], digests[POISONED - 20])
        replayed = self.call("replay", "out", "--steps", f"{POISONED - 5}..{POISONED + 20}", "--check")
        self.assertEqual(replayed.status, 0, replayed.describe())
        resumed = self.train(made, *options, "--resume", f"out/checkpoints/step-{POISONED - 20:08}")
        self.assertEqual(resumed.curve(), finished.curve(after=POISONED - 20))
        self.assertEqual(self.skipped(self.out), [POISONED])

    def checkpointed(self, made):
        made["train"] |= {"checkpoint_every": 20, "keep_checkpoints": 100, "archive_every": POISONED - 1}
        return made

    def test_changes_no_section(self):
        self.check(self.checkpointed(skipping(job())))

    def test_is_the_same_with_sharded_state_in_several_processes(self):
        made = self.checkpointed(skipping(job()))
        made["teacher"] |= {"replicas": 2, "zero": True, "micro_batch": BATCH // 4}
        self.check(made, "--processes", 2)

    def test_is_skipped_by_all_sections(self):
        made = self.checkpointed(skipping(trained(trained(distillation(), "student"), "plain"), norm=6))
        (self.folder / "corpus.txt").write_text(text_corpus(100_000))
        self.train(made, settings={"train.out": "reference"})
        self.assertEqual(self.skipped(self.folder / "reference"), [], "a false alarm")
        self.poison(POISONED)
        self.check(made, "--processes", 3)

    def test_in_a_row_end_the_run_with_a_reason(self):
        made = skipping(job(), patience=4)
        made["teacher"] |= {"lr": 1e30}
        self.write_job(made)
        ended = self.call("train", "job.toml")
        self.assertEqual(ended.status, 1, ended.describe())
        self.assertIn("; guard.patience = 4 steps in a row were skipped: lower lr", ended.err)


class AnArchive(SystemTest):
    STEPS = ["step-00000004", "step-00000008", "step-00000012"]

    def archived(self):
        return sorted(entry.name for entry in (self.folder / "out/archive").iterdir())

    def test_has_checkpoints_from_which_a_run_goes_on(self):
        made = language_model(archive_every=4, keep_checkpoints=1)
        finished = self.train(made)
        self.assertEqual(self.archived(), self.STEPS)
        self.assertEqual([path.name for path in (self.folder / "out/checkpoints").iterdir()], self.STEPS[-1:])
        events = [(event["step"], event["path"]) for event in lines(self.folder / "out", "events.jsonl")
                  if event["event"] == "archived"]
        self.assertEqual(events, [(step, f"out/archive/step-{step:08}") for step in (4, 8, 12)])
        newest = self.folder / "out/archive/step-00000012/teacher/optimizer.safetensors"
        self.assertEqual(newest.stat().st_nlink, 2, "a copy")
        resumed = self.train(made, "--resume", "out/archive/step-00000004")
        self.assertEqual(resumed.curve(), finished.curve(after=4))
        self.assertEqual(self.archived(), self.STEPS)
        self.train(made, "--fresh")
        self.assertTrue((self.folder / "out.1/archive/step-00000004").exists())

    def test_has_weights_alone_as_bf16(self):
        self.train(distillation(archive_every=4, archive="bf16", checkpoint_every=6))
        self.assertEqual(self.archived(), self.STEPS)
        for section in ("student", "plain"):
            folder = self.folder / "out/archive/step-00000008" / section
            size = int.from_bytes((folder / "model.safetensors").read_bytes()[:8], "little")
            header = json.loads((folder / "model.safetensors").read_bytes()[8:8 + size])
            self.assertEqual({tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"}, {"BF16"})
            self.assertTrue((folder / "config.json").exists())
            self.assertFalse((folder / "optimizer.safetensors").exists())
        refused = self.call("train", "job1.toml", "--resume", "out/archive/step-00000008")
        self.assertNotEqual(refused.status, 0)
        self.assertIn("out/archive/step-00000008", refused.err)


class Settings(SystemTest):
    def test_are_checked(self):
        made = language_model()
        made["guard"] = {"action": "rollback"}
        self.assert_refused("no checkpoint to go back to", "check", self.write_job(made))
        self.assert_refused("train.archive: applies only with archive_every", "check",
                            self.write_job(language_model(archive="bf16")))
        for key, value, wanted in (("action", "stop", "guard.action"), ("windows", 8, "guard.windows")):
            made = language_model()
            made["guard"] = {key: value}
            self.assert_refused(wanted, "check", self.write_job(made))


if __name__ == "__main__":
    unittest.main(verbosity=2)
