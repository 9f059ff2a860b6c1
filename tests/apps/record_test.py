#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The record of a run: each step once with the report's figures, and the events of the run."""

import json
import os
import signal
import struct
import unittest

import resume_test
from maestro_program import ENDLESS, Run, SystemTest, distillation, language_model


def lines(folder, name):
    text = (folder / "record" / name).read_text()
    assert text.endswith("\n"), text[-200:]
    return [json.loads(line) for line in text.splitlines()]


def curve(folder):
    """Returns {(section, step): metrics}; each step must be present once."""
    rows = lines(folder, "steps.jsonl")
    steps = [row["step"] for row in rows]
    assert steps == list(range(1, len(steps) + 1)), steps
    return {(name, row["step"]): metrics for row in rows for name, metrics in row["sections"].items()}


def recorded_steps(folder):
    """Returns the number of steps that a running job has recorded."""
    file = folder / "record/steps.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def names(folder):
    return [event["event"] for event in lines(folder, "events.jsonl")]


class ARun(SystemTest):
    def out(self):
        return self.folder / "out"

    def test_has_the_figures_of_its_report_to_the_bit(self):
        finished = self.train(distillation(checkpoint_every=4, validate_every=6))
        report = {(row["section"], row["step"]): row for row in finished.report["steps"]}
        recorded = curve(self.out())
        self.assertEqual(set(recorded), set(report))
        for key, metrics in recorded.items():
            self.assertEqual(metrics, {name: report[key][name] for name in metrics}, key)
            self.assertIn("loss", metrics)
        rows = lines(self.out(), "steps.jsonl")
        self.assertEqual(sum(row["samples"] for row in rows), finished.report["samples"]["read"])
        self.assertEqual([row["makespan_ms"] for row in rows],
                         [row["makespan_ms"] for row in finished.report["scheduling"]])
        events = lines(self.out(), "events.jsonl")
        self.assertEqual([event["event"] for event in events if event["event"] != "validation"],
                         ["began", "checkpoint", "checkpoint", "checkpoint", "rehearsed", "finished"])
        validated = {(event["section"], event["step"]) for event in events if event["event"] == "validation"}
        self.assertEqual(validated, {(name, step) for name in ("student", "plain") for step in (6, 12)})
        began = events[0]
        self.assertEqual((began["first_step"], began["resumed_from"]), (1, ""))
        self.assertIn("[student]", began["job_file"])
        self.assertEqual(events[-1]["step"], 12)

    def test_has_the_losses_of_experts_of_all_stages_together(self):
        curves = []
        for pipeline in (1, 2):
            job = language_model(steps=4, validation_samples=0)
            job["teacher"] |= {"family": "qwen3_moe", "layers": 3, "experts": 4, "expert_ffn": 16, "dense_layers": 1,
                               "balance_weight": 0.1, "z_weight": 0.01, "pipeline": pipeline}
            self.train(job, "--fresh")
            curves.append(curve(self.out()))
        for key, metrics in curves[0].items():
            self.assertGreater(metrics["balance"], 0.99, key)
            for name in ("loss", "balance", "router_z"):
                self.assertAlmostEqual(curves[1][key][name], metrics[name], places=5, msg=f"{key} {name}")

    def test_that_fails_has_its_error(self):
        run = self.start(language_model(steps=ENDLESS, checkpoint_every=1000), "--processes", 2)
        self.assertTrue(run.wait_for(lambda: recorded_steps(self.out()) > 3), run.text)
        os.kill(run.members()[1], signal.SIGKILL)
        failed = run.wait()
        self.assertEqual(failed.status, 1, failed.describe())
        event = lines(self.out(), "events.jsonl")[-1]
        self.assertEqual(event["event"], "failed")
        self.assertIn(event["error"], failed.err)
        curve(self.out())

    def test_goes_on_without_its_record_where_that_cannot_be_written(self):
        job = language_model(steps=200, checkpoint_at_end=False, export="none")
        most = 20_000  # limit for a file: enough for the tokenizer, not for 200 lines
        launcher = ("prlimit", f"--fsize={most}")
        finished = Run(self.folder, ["train", self.write_job(job)], launcher=launcher).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        warnings = [line for line in finished.err.splitlines() if line.startswith("warning: ")]
        self.assertEqual(len(warnings), 1, finished.describe())
        self.assertIn("record/steps.jsonl: File too large", warnings[0])
        self.assertGreater(len(curve(self.out())), 3)

    def test_of_another_kind_of_file_is_refused_by_name(self):
        (self.out() / "record/steps.jsonl").mkdir(parents=True)
        refused = self.start(language_model()).wait()
        self.assertNotEqual(refused.status, 0)
        self.assertIn("record/steps.jsonl", refused.err)

    def test_that_begins_anew_keeps_the_record_of_the_earlier(self):
        self.train(language_model(steps=3))
        self.train(language_model(steps=5), "--fresh")
        self.assertEqual(len(curve(self.folder / "out.1")), 3)
        self.assertEqual(len(curve(self.out())), 5)
        self.assertEqual(names(self.out()).count("began"), 1)


class AKilledRun(resume_test.Killed):
    STEPS, EVERY, KILLS = 1000, 10, 4

    def check_record(self, job, processes):  # JN-1: a resumed checkpoint had the lines of its steps
        self.check(job, processes)
        out = self.folder / "out"
        recorded, expected = curve(out), curve(self.folder / "reference")
        self.assertEqual(set(recorded), set(expected))
        for key, metrics in recorded.items():
            for name in ("loss", "grad_norm", "lr"):
                self.assertEqual(metrics[name], expected[key][name], key)
        digests = [[row["samples_digest"] for row in lines(folder, "steps.jsonl")]
                   for folder in (out, self.folder / "reference")]
        self.assertEqual(*digests)
        self.assertEqual(names(out).count("began"), 1 + self.KILLS)

    def test_has_every_step_once_after_it_goes_on(self):
        self.check_record(language_model(), 1)

    def test_has_every_step_once_with_several_sections_and_processes(self):
        self.check_record(distillation(), 3)


class ARecoveredRun(SystemTest):
    def test_has_every_step_once_and_the_loss_of_the_process(self):
        job = distillation(steps=400, checkpoint_every=20, recover="restart")
        expected = self.train(job, "--processes", 3, settings={"train.out": "reference"}).curve()
        out = self.folder / "out"
        run = self.start_held(job, "--processes", 3)
        self.assertTrue(run.wait_for(lambda: recorded_steps(out) > 50), run.text)
        os.kill(run.members()[2], signal.SIGKILL)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(finished.curve(), expected)
        recorded = curve(out)
        self.assertEqual({key: metrics["loss"] for key, metrics in recorded.items()},
                         {key: metrics["loss"] for key, metrics in curve(self.folder / "reference").items()})
        self.assertEqual(names(out).count("recovered"), 1)


def fields(message):
    """Returns [(number, value)] of a protocol buffer message; values are numbers or bytes."""
    found, at = [], 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            value, at = message[at:at + size], at + size
        found.append((key >> 3, value))
    return found


def curves(folder):
    """Returns ([{(tag, step): value}] by event file, [steps of starts])."""
    drawn, starts = [], []
    for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns):
        content, at, values = file.read_bytes(), 0, {}
        while at < len(content):
            length, = struct.unpack_from("<Q", content, at)
            event = dict(fields(content[at + 12:at + 12 + length]))
            at += 16 + length
            if 7 in event:  # session_log
                starts.append(event[2])
            if 5 in event:  # summary
                value = dict(fields(dict(fields(event[5]))[1]))
                values[value[1].decode(), event[2]], = struct.unpack("<f", value[2])
        drawn.append(values)
    return drawn, starts


class Curves(SystemTest):
    def test_for_tensorboard_have_the_figures_of_the_record(self):
        job = distillation(checkpoint_every=8, keep_checkpoints=9)
        self.train(job, "--tensorboard")
        half = "out/checkpoints/step-00000008"
        self.train(job, "--resume", half, "--tensorboard")
        (first, second), starts = curves(self.folder / "out/tensorboard")
        self.assertEqual(starts, [9])
        self.assertEqual({step for _, step in second}, set(range(9, 13)))
        for (section, step), metrics in curve(self.folder / "out").items():
            for name, value in metrics.items():
                if name == "step_ms":
                    continue
                self.assertAlmostEqual(first[f"{section}/{name}", step] / value, 1, delta=1e-6)
                if step > 8:
                    self.assertEqual(second[f"{section}/{name}", step], first[f"{section}/{name}", step])
        self.assertIn(("validation/student/ce", 12), first)
        self.train(job, "--fresh", "--tensorboard", self.folder / "curves")
        self.assertEqual(len(curves(self.folder / "curves")[0]), 1)
        self.assertFalse((self.folder / "out/tensorboard").exists())
        self.assertTrue((self.folder / "out.1/tensorboard").exists())


class Samples(SystemTest):
    def test_of_a_step_are_shown_with_their_text(self):
        corpus = "".join(chr(ord("a") + at % 26) for at in range(20_000))
        (self.folder / "corpus.txt").write_text(corpus)
        self.train(language_model())
        shown = self.call("samples", "out", "--step", 3, "--text").out
        self.assertTrue(shown.startswith("step 3: 8 samples of corpus.txt"), shown)
        parts = shown.split("--- sample ")[1:]
        self.assertEqual(len(parts), 8)
        for part in parts:
            heading, text = part.rstrip("\n").split("\n")
            first = int(heading.split(",")[0]) * 32
            self.assertEqual(heading.split(", ", 1)[1], f"32 tokens, 32 learned; corpus.txt, token {first}")
            self.assertEqual(text, corpus[first:first + 32])

    def test_are_refused_where_they_are_not_those_of_the_run(self):
        self.train(language_model())
        self.assert_refused("it has steps 1 to 12", "samples", "out", "--step", 13)
        self.assert_refused("nowhere/record/steps.jsonl", "samples", "nowhere", "--step", 1)
        text = (self.folder / "corpus.txt").read_text()
        (self.folder / "corpus.txt").write_text(text[:700] + "X" + text[701:])
        self.assert_refused("other data than there is now: content differs", "samples", "out", "--step", 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
