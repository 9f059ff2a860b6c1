#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that were killed or interrupted continue as if undisturbed, and read every sample once per epoch."""

import json
import os
import random
import re
import tempfile
import unittest
from pathlib import Path

from maestro_program import SystemTest, decoder, distillation, language_model, text_corpus

SEED = int(os.environ.get("MAESTRO_TEST_SEED", random.SystemRandom().randrange(1_000_000)))


def steps_of_checkpoints(folder, checkpoints="checkpoints"):
    found = (re.fullmatch(r"step-(\d+)", path.name) for path in (folder / checkpoints).glob("step-*"))
    return [int(match[1]) for match in found if match]


def last_step_recorded(folder):
    file = folder / "record/steps.jsonl"
    lines = file.read_bytes().split(b"\n")[:-1] if file.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


class Killed(SystemTest):
    STEPS = 600
    EVERY = 10
    KILLS = 3
    OPTIONS = ()

    def kill_at_random(self, job, options, chosen):
        """Starts a run and kills all its processes at once, some checkpoints later and between two checkpoints."""
        out = self.folder / "out"
        last = max(steps_of_checkpoints(out), default=0) + self.EVERY * chosen.randint(1, 4)
        run = self.start_held(job, *options, after=last + 2 * self.EVERY)
        self.assertTrue(run.wait_for(lambda: max(steps_of_checkpoints(out), default=0) >= last), run.text)
        moment = last + chosen.randrange(self.EVERY)
        self.assertTrue(run.wait_for(lambda: last_step_recorded(out) >= moment), run.text)
        run.end()

    def check(self, job, processes):
        print(f"MAESTRO_TEST_SEED={SEED}", flush=True)
        chosen = random.Random(SEED)
        job["train"] |= {"steps": self.STEPS, "checkpoint_every": self.EVERY}
        expected = self.twin(job, *self.OPTIONS).curve()
        options = ["--processes", processes, *self.OPTIONS]
        for _ in range(self.KILLS):
            self.kill_at_random(job, options, chosen)
            options = ["--processes", processes, *self.OPTIONS, "--resume", "out"]
        finished = self.train(job, *options)
        first = finished.report["resumed_from"]
        self.assertGreaterEqual(first, self.EVERY * self.KILLS)
        self.assertLess(first, self.STEPS)
        self.assertEqual(finished.curve(), {key: value for key, value in expected.items() if key[1] > first})


class AKilledRun(Killed):
    def test_goes_on_bitwise_in_one_process(self):
        self.check(distillation(), 1)

    def test_goes_on_bitwise_in_three_processes(self):
        self.check(distillation(), 3)


    def test_leaves_no_segments_once_it_has_gone_on_in_one_process(self):
        job = distillation(steps=self.STEPS, checkpoint_every=self.EVERY)
        run = self.start_held(job, "--processes", 2)
        # Before the kill: any other run of this user removes its remains.
        self.assertTrue(run.wait_for(lambda: "segment maestro-" in " ".join(run.leftovers())), run.text)
        self.assertTrue(run.wait_for(lambda: steps_of_checkpoints(self.folder / "out")), run.text)
        run.end()
        self.train(job, "--resume", "out", settings={"train.steps": max(steps_of_checkpoints(self.folder / "out")) + 1})
        self.assert_nothing_left(run)


class AKilledRunOfALaidOutJob(Killed):
    STEPS = 300
    OPTIONS = ("--cpu-devices", 16)

    def test_goes_on_bitwise_in_two_processes(self):
        job = distillation()
        job["student"] = decoder(heads=8, tensor=2, pipeline=2)
        job["plain"] = decoder(heads=8, tensor=2, context=2, pipeline=2, replicas=2)
        self.check(job, 2)


class AFinishedCheckpoint(SystemTest):
    STEPS, HALF = 24, 12

    def test_goes_on_under_another_plan(self):
        job = distillation(steps=self.STEPS, checkpoint_every=self.HALF, keep_checkpoints=5)
        expected = self.train(job).curve("loss", after=self.HALF)
        half = f"out/checkpoints/step-{self.HALF:08}"
        for processes, replicas, tolerance in ((3, 1, 0.0), (1, 2, 1e-5), (3, 2, 1e-5)):
            if replicas > len(os.sched_getaffinity(0)):
                continue
            with self.subTest(processes=processes, replicas=replicas):
                job["student"]["replicas"] = replicas
                options = ("--processes", processes, "--resume", half)
                finished = self.train(job, *options, settings={"train.out": f"out-{processes}-{replicas}"})
                self.assertEqual(finished.report["resumed_from"], self.HALF)
                self.assert_close(expected, finished.curve("loss"), tolerance)

    def test_of_the_last_step_has_nothing_left_to_train(self):
        job = language_model()
        first = self.train(job)
        again = self.train(job, "--resume", "out")
        self.assertEqual(again.report["steps"], [])
        self.assertEqual(again.report["validation"], first.report["validation"])


class ARunThatGoesOnForLonger(SystemTest):
    HALF, ALL = 12, 24

    def rates(self, finished):
        return [row["lr"] for row in finished.report["steps"]]

    def notes(self, finished):
        return [line.split("note: ", 1)[1] for line in finished.out.splitlines() if "note: " in line]

    def go_on(self, **settings):
        options = ("--resume", "out/checkpoints/step-00000012")
        return self.train(language_model(steps=self.HALF), *options, settings={"train.out": "rest", **settings})

    def setUp(self):
        super().setUp()
        self.before = self.rates(self.train(language_model(steps=self.HALF)))

    def test_tells_where_the_rate_jumps_and_keeps_the_schedule_by_a_key(self):
        with self.subTest("a new schedule"):
            longer = self.go_on(**{"train.steps": self.ALL})
            told = [note for note in self.notes(longer) if "learning rate" in note]
            after = self.rates(longer)[0]
            self.assertEqual(told, [f"teacher: the learning rate jumps from {self.before[-1]:.3g} at step 12 to "
                                    f"{after:.3g} at step 13; train.schedule_steps = 12 keeps the earlier schedule, "
                                    "which stays at min_lr = 0"])
            checked = self.call("check", "job2.toml", "--resume", "out/checkpoints/step-00000012", "--set",
                                "train.steps=24", "--set", "train.out=other")
            self.assertIn(told[0], checked.out, checked.describe())
        with self.subTest("the earlier schedule"):
            longer = self.go_on(**{"train.steps": self.ALL, "train.schedule_steps": self.HALF})
            self.assertEqual(set(self.rates(longer)), {0.0})
            self.assertNotIn("jumps", longer.out)
            self.assertIn("nothing is learned afterwards", longer.out)

    def test_has_no_jump_where_the_schedule_was_laid_over_all_of_it(self):
        half = self.train(language_model(steps=self.HALF, schedule_steps=self.ALL))
        rest = self.train(language_model(steps=self.ALL, schedule_steps=self.ALL), "--resume", "out")
        whole = self.train(language_model(steps=self.ALL))
        self.assertEqual(self.rates(half) + self.rates(rest), self.rates(whole))
        self.assertEqual(rest.curve(), whole.curve(after=self.HALF))
        self.assertNotIn("jumps", rest.out)

    def test_lists_other_weights_that_it_does_not_read(self):
        longer = self.go_on(**{"train.steps": 13, "teacher.weights": "out/models/teacher"})
        self.assertIn('teacher.weights = "out/models/teacher", was not set; its values are not read, as the section '
                      "continues from the checkpoint", self.notes(longer))

    def test_of_no_more_steps_is_validated_after_its_last_step(self):
        again = self.train(language_model(steps=self.HALF), "--resume", "out")
        self.assertIn("resuming after step 12, the last of the run: all steps are trained", again.out)
        self.assertRegex(again.out, r"finished step 12 of 12 in ")
        self.assertEqual(again.report["last_step"], self.HALF)
        events = [json.loads(line) for line in (self.folder / "out/record/events.jsonl").read_text().splitlines()]
        validated = [event["step"] for event in events if event["event"] == "validation"]
        self.assertEqual(validated, [self.HALF, self.HALF])

    def test_of_fewer_steps_is_refused_and_records_nothing(self):
        record = self.folder / "out/record/events.jsonl"
        before = record.read_text()
        for settings in ({"train.steps": 11}, {"train.epochs": 0.01}):
            job = language_model(steps=self.HALF)
            if "train.epochs" in settings:
                del job["train"]["steps"]
            name = self.write_job(job)
            for command in ("train", "check"):
                self.assert_refused("step-00000012 is of step 12, and train.", command, name, "--resume", "out",
                                    *(f"--set={key}={value}" for key, value in settings.items()))
        self.assertEqual(record.read_text(), before)


class ACheckpointOfOneLayout(SystemTest):
    """Tied and untied embeddings, both families; each device and each stage has only a part of every section."""

    STEPS, HALF = 24, 12
    TOLERANCE = 1e-5  # as in layouts_test.py
    LAYOUTS = {
        "one device": {},
        "every degree": {"replicas": 2, "tensor": 2, "pipeline": 2, "context": 2},
        "tensor": {"tensor": 4},
        "pipeline and context": {"pipeline": 2, "context": 2},
    }

    def job(self, layout, **train):
        job = distillation(steps=self.STEPS, checkpoint_every=self.HALF, keep_checkpoints=5, **train)
        job["student"] = decoder(heads=8, **self.LAYOUTS[layout])
        job["plain"] = decoder(heads=8, kv_heads=4, family="llama", tied=False, **self.LAYOUTS[layout])
        return job

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        temporary = tempfile.TemporaryDirectory(prefix="maestro-test-")
        cls.addClassCleanup(temporary.cleanup)
        cls.kept, cls.made = Path(temporary.name), {}

    def lay_out(self, layout, *options):
        """Returns the finished run under a layout, with its folder; the tests share it."""
        if layout not in self.made:
            job = self.job(layout, out=str(self.kept / layout))
            self.made[layout] = self.train(job, "--cpu-devices", 32, *options)
        return self.made[layout]

    def half_of(self, layout):
        return self.kept / layout / "checkpoints" / f"step-{self.HALF:08}"

    def test_is_resumed_under_any_other(self):
        expected = self.lay_out("one device").curve(after=self.HALF)
        self.assertEqual(len(expected), 2 * (self.STEPS - self.HALF))
        self.lay_out("every degree")
        self.lay_out("pipeline and context", "--processes", 2)
        for made, resumed in (("every degree", "one device"), ("every degree", "tensor"),
                              ("one device", "every degree"), ("pipeline and context", "tensor"),
                              ("pipeline and context", "one device")):
            with self.subTest(made=made, resumed=resumed):
                job = self.job(resumed, out=f"{made} to {resumed}")
                finished = self.train(job, "--cpu-devices", 32, "--resume", self.half_of(made))
                self.assertEqual(finished.report["resumed_from"], self.HALF)
                self.assert_close(expected, finished.curve(), self.TOLERANCE)

    def test_is_resumed_bitwise_under_its_own(self):
        whole = self.lay_out("every degree")
        job = self.job("every degree", out="rest")
        rest = self.train(job, "--cpu-devices", 32, "--resume", self.half_of("every degree"))
        self.assertEqual(rest.curve(), whole.curve(after=self.HALF))

    def test_holds_whole_weights_to_start_one_device_from(self):
        tensors, curves = {}, {}
        for layout in ("one device", "every degree", "tensor"):
            self.lay_out(layout)
            job = self.job("one device")
            for section in ("student", "plain"):
                folder = self.half_of(layout) / section
                tensors[layout, section] = self.tensors_in(folder)
                job[section]["weights"] = str(folder)
            curves[layout] = self.train(job).curve()
        self.assertGreater(len(tensors["one device", "plain"]), 10)
        for layout in ("every degree", "tensor"):
            with self.subTest(layout):
                for section in ("student", "plain"):
                    self.assertEqual(tensors[layout, section], tensors["one device", section])
                self.assert_close(curves["one device"], curves[layout], self.TOLERANCE)

    @staticmethod
    def tensors_in(folder):
        """Returns {name: (type, shape)} for a Hugging Face folder's files; a name may occur in one file only."""
        found = []
        for path in folder.glob("model*.safetensors"):
            content = path.read_bytes()
            header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
            found += [(name, (entry["dtype"], entry["shape"])) for name, entry in header.items()
                      if name != "__metadata__"]
        return sorted(found)


class AnEpoch(SystemTest):
    """480 samples of 32 tokens after the validation split, in steps of 8."""

    SAMPLES, BATCH = 480, 8

    def setUp(self):
        super().setUp()
        (self.folder / "corpus.txt").write_text(text_corpus(17_060))

    def job(self, epochs, **train):
        return language_model(steps=epochs * self.SAMPLES // self.BATCH, **train)

    def check(self, finished, read, distinct):
        self.assertIn(f"{self.SAMPLES} training", finished.report["plan"]["corpus"])
        self.assertEqual(finished.report["samples"], {"read": read, "trained": read, "distinct": distinct})

    def test_reads_and_trains_every_sample_exactly_once(self):
        self.check(self.train(self.job(1)), self.SAMPLES, self.SAMPLES)

    def test_two_of_them_read_every_sample_twice(self):
        self.check(self.train(self.job(2)), 2 * self.SAMPLES, self.SAMPLES)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "two replicas of a section need two cores")
    def test_is_shared_by_replicas_without_loss_or_repetition(self):
        job = self.job(1)
        job["teacher"]["replicas"] = 2
        self.check(self.train(job, "--processes", 2), self.SAMPLES, self.SAMPLES)

    def test_that_is_resumed_half_way_reads_only_the_other_half(self):
        whole = self.train(self.job(1, checkpoint_every=20, keep_checkpoints=5))
        self.check(whole, self.SAMPLES, self.SAMPLES)
        rest = self.train(self.job(1), "--resume", "out/checkpoints/step-00000020", settings={"train.out": "rest"})
        left = self.SAMPLES - 20 * self.BATCH
        self.check(rest, left, left)
        # The losses agree bit by bit: the samples are the same, and the full run read each of them once.
        self.assertEqual(rest.curve(), whole.curve(after=20))


if __name__ == "__main__":
    unittest.main(verbosity=2)
