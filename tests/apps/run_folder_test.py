#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run writes to an unused folder, deletes nothing of another run, and continues with the data it was made with."""

import json
import os
import shutil
import signal
import stat
import subprocess
import unittest
from pathlib import Path

from maestro_program import ENDLESS, PATIENCE_S, PROGRAM, SystemTest, decoder, distillation, language_model, options_of, \
    own_environment, text_corpus


def named(name, **train):
    return {**language_model(**train), "name": name}


class RunFolderTest(SystemTest):
    def refused(self, job, *wanted, options=(), settings=None):
        """Expects the same line from `train` and from `check`."""
        name = self.write_job(job)
        for command in ("train", "check"):
            with self.subTest(command):
                finished = self.call(command, name, *options, *options_of(settings or {}))
                self.assertEqual(finished.status, 2, finished.describe())
                self.assertEqual(finished.out, "", "nothing may have started")
                lines = finished.err.splitlines()
                self.assertEqual(len(lines), 1, finished.describe())
                for text in wanted:
                    self.assertIn(text, lines[0])

    def refused_and_noted(self, job, *wanted, options=()):
        """Expects that `train` refuses the job, and that `check` passes with a note of the same reason."""
        name = self.write_job(job)
        finished = self.call("train", name, *options)
        self.assertEqual((finished.status, finished.out), (2, ""), finished.describe())
        lines = finished.err.splitlines()
        self.assertEqual(len(lines), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, lines[0])
        checked = self.call("check", name, *options)
        self.assertEqual((checked.status, checked.err), (0, ""), checked.describe())
        reason = lines[0].removeprefix("error: ")
        self.assertIn(f"note: `maestro train` refuses this job now: {reason}\n", checked.out)

    def checkpoints(self, out="out"):
        return sorted(path.name for path in (self.folder / out / "checkpoints").iterdir())

    def manifest(self, step, out="out"):
        return json.loads((self.folder / out / "checkpoints" / f"step-{step:08}" / "checkpoint.json").read_text())


class AFolder(RunFolderTest):
    def check_one_run(self, processes):
        first = self.start({**distillation(steps=ENDLESS), "name": "first"}, "--processes", processes)
        self.assertTrue(first.wait_for_text("step "), first.text)
        holder = ("train.out: out is in use by job 'first'", f"process {first.process.pid}", os.uname().nodename)
        self.refused_and_noted(named("second"), *holder)
        self.refused_and_noted(named("second"), *holder, options=("--fresh",))
        first.interrupt()
        finished = first.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.train(distillation(steps=finished.report["last_step"] + 1), "--resume", "out")

    def test_is_of_one_run_at_a_time_of_one_process(self):  # BG-2
        self.check_one_run(1)

    def test_is_of_one_run_at_a_time_of_two_processes(self):
        self.check_one_run(2)

    def test_that_was_removed_in_mid_run_can_be_gone_on_with(self):
        run = self.start_held(distillation(steps=2000))
        self.assertTrue(run.wait_for_text("step "), run.text)
        os.kill(run.process.pid, signal.SIGSTOP)
        shutil.rmtree(self.folder / "out")
        os.kill(run.process.pid, signal.SIGCONT)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.train(distillation(steps=2001), "--resume", "out")

    def test_of_a_killed_run_is_free(self):
        run = self.start(distillation(steps=ENDLESS, checkpoint_every=1))
        self.assertTrue(run.wait_for(lambda: list(self.folder.glob("out/checkpoints/step-*[0-9]"))), run.text)
        run.end()
        self.train(distillation(steps=1), "--fresh")

    def test_that_holds_another_run_is_refused_and_stays_as_it_is(self):  # BG-2
        self.train(named("real", steps=9))
        before = (self.folder / "out/checkpoints/step-00000009/checkpoint.json").read_bytes()
        self.refused_and_noted(named("next", steps=3, checkpoint_every=1), "train.out: out holds a run of job 'real' (step 9)",
                     "--resume out", "--fresh moves it to out.1", "choose another folder")
        self.assertEqual(self.checkpoints(), ["step-00000009"])
        self.assertEqual((self.folder / "out/checkpoints/step-00000009/checkpoint.json").read_bytes(), before)

    def test_that_holds_the_weights_of_a_fresh_run_is_not_moved_aside(self):
        self.train(named("real", steps=2))
        for weights in ("out/checkpoints/step-00000002/teacher", "out/models/teacher"):
            self.refused(named("next", steps=3), "teacher.weights", "--fresh moves aside", options=("--fresh",),
                         settings={"teacher.weights": weights})
        self.assertEqual(self.checkpoints(), ["step-00000002"])

    def test_is_emptied_for_a_fresh_run_by_moving_what_is_there(self):
        self.train(named("real", steps=9))
        record = json.loads((self.folder / "out/run.json").read_text())
        self.assertEqual(record["job"], "real")
        self.assertEqual(record["run_id"], self.manifest(9)["run_id"])
        second = self.train(named("next", steps=3), "--fresh")
        self.assertIn("the run that was in out is now in out.1", second.out)
        self.train(named("last", steps=2), "--fresh")
        for out, step in (("out", 2), ("out.1", 9), ("out.2", 3)):
            self.assertEqual(self.checkpoints(out), [f"step-{step:08}"])
        self.train(named("real", steps=10, out="out.1"), "--resume", "out.1")
        self.assertEqual(self.manifest(10, "out.1")["run_id"], record["run_id"], "a resumed run is the same run")

    def test_is_cleared_of_what_hosts_that_died_while_they_met_have_left(self):
        (self.folder / "out").mkdir()
        left = self.folder / "out/.maestro-0123456789abcdef"
        left.touch()
        self.call("check", self.write_job(named("real")))
        self.assertTrue(left.exists(), "a check changes nothing")
        self.train(named("real", steps=1))
        self.assertFalse(left.exists())

    def test_is_resumed_at_the_last_step_of_its_own_run(self):
        self.train(named("long", steps=9, out="long"))
        self.train(named("short", steps=5))
        shutil.copytree(self.folder / "long/checkpoints/step-00000009", self.folder / "out/checkpoints/step-00000009")
        self.assertEqual(self.train(named("short", steps=6, out="more"), "--resume", "out").report["resumed_from"], 5)
        self.refused(named("short", steps=6), "out holds a run of job 'long' (step 9)", options=("--resume", "out"))
        self.refused(named("short", steps=6, out="long"), "long holds a run of job 'long' (step 9)",
                     options=("--resume", "out"))

    def test_of_the_bundled_distillation_is_used_again_and_again(self):
        small = {"layers": 1, "width": 16, "heads": 2}
        short = {"train.steps": 2, "train.global_batch": 4, "train.validation_samples": 4, "data.sequence": 32}
        teacher = {**short, "teacher.replicas": 1, **{f"teacher.{key}": value for key, value in small.items()}}
        settings = {**teacher, **{f"{name}.{key}": value for name in ("student", "plain") for key, value in small.items()}}
        arguments = ["distill", "--data", "corpus.txt", "--out", "runs"]
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        for key, value in teacher.items():
            arguments += ["--teacher-set", f"{key}={value}"]
        repository = {"MAESTRO_REPOSITORY": str(Path(__file__).resolve().parents[2])}
        for again in (False, True):
            done = subprocess.run([PROGRAM, *arguments], cwd=self.folder, env={**own_environment(), **repository},
                                  capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for name in ("teacher", "distill"):
                self.assertEqual(f"the run that was in runs/{name} is now in runs/{name}.1" in done.stdout, again)
                self.assertEqual(self.checkpoints(f"runs/{name}"), ["step-00000002"])


class AResumedRun(RunFolderTest):
    STEPS = 4

    def setUp(self):
        super().setUp()
        self.train(language_model(steps=self.STEPS))

    def refused_for(self, *wanted, settings=None, step=STEPS):
        self.refused(language_model(steps=step + 4), f"step-{step:08} was made with other data", *wanted, "--new-data",
                     options=("--resume", "out"), settings=settings)

    def test_with_other_data_is_refused_by_what_changed(self):
        corpus = self.folder / "corpus.txt"
        same = corpus.read_text()
        corpus.write_text(same + text_corpus(5_000, seed=8))
        self.refused_for("training samples = ", "content differs")
        corpus.write_text(same.replace("river", "RIVER", 1))
        self.refused_for("(content differs)")
        corpus.write_text(same)
        self.refused_for("data.sequence = 16, was 32", settings={"data.sequence": 16})
        self.refused_for("data.validation_fraction = 0.3", settings={"data.validation_fraction": 0.3})
        os.rename(corpus, self.folder / "moved.txt")
        more = {"data.path": "moved.txt", "train.steps": 5}
        finished = self.train(language_model(), "--resume", "out", settings=more)
        self.assertEqual(finished.report["resumed_from"], self.STEPS)

    def test_of_generated_data_is_refused_with_others(self):
        generated = {**language_model(steps=2, out="generated"), "data": {"kind": "synthetic", "sequence": 32}}
        self.train(generated)
        self.refused(generated, "vocabulary = 128, was 256", options=("--resume", "generated"),
                     settings={"data.vocabulary": 128})

    def test_takes_new_data_when_told_to_and_says_so(self):
        corpus = self.folder / "corpus.txt"
        corpus.write_text(corpus.read_text() + text_corpus(5_000, seed=8))
        told = ("--resume", "out", "--new-data")
        finished = self.train(language_model(steps=5), *told)
        self.assertIn("note: other data than before: content differs", finished.out)
        self.assertEqual(finished.report["resumed_from"], self.STEPS)
        again = self.train(language_model(steps=6), "--resume", "out")
        self.assertNotIn("other data", again.out, "the new data are now the run's own")

    def test_lists_changed_settings_and_goes_on(self):
        changes = {"teacher.lr": 0.03, "teacher.schedule": "constant", "train.steps": 5}
        name = self.write_job(language_model(steps=self.STEPS))
        checked = self.call("check", name, "--resume", "out", *options_of(changes))
        self.assertEqual(checked.status, 0, checked.describe())
        finished = self.train(language_model(steps=self.STEPS), "--resume", "out", settings=changes)
        for out in (checked.out, finished.out):
            self.assertIn("note: teacher.lr = 0.03, was 0.001\n", out)
            self.assertIn("note: teacher.schedule = \"constant\", was not set\n", out)
            self.assertIn(f"note: train.steps = 5, was {self.STEPS}\n", out)
        self.assertNotIn("train.seed", finished.out)

    def test_with_other_frozen_weights_is_refused_by_the_section(self):
        job = distillation(steps=2, out="distilled")
        job["teacher"] = decoder(weights="weights")
        del job["teacher"]["lr"]
        self.train(language_model(steps=1, out="another"))
        shutil.copytree(self.folder / f"out/checkpoints/step-{self.STEPS:08}/teacher", self.folder / "weights")
        self.train(job)
        shutil.rmtree(self.folder / "weights")
        shutil.copytree(self.folder / "another/checkpoints/step-00000001/teacher", self.folder / "weights")
        self.refused(job, "was made with other data (weights of section 'teacher' differ)",
                     options=("--resume", "distilled"))

    def test_is_not_begun_anew_and_new_data_are_only_for_one(self):
        for options in (("--resume", "out", "--fresh"), ("--new-data",)):
            self.refused(language_model(), "--resume", options=options)


class AnOutput(RunFolderTest):
    def output(self, *options):
        return subprocess.run([PROGRAM, "train", self.write_job(language_model(steps=1)), "--fresh", *options],
                              cwd=self.folder, env=own_environment(), capture_output=True, text=True, timeout=PATIENCE_S)

    def test_goes_through_a_pipe(self):
        for option, key in (("--report", "steps"), ("--trace", "traceEvents")):
            with self.subTest(option):
                pipe = self.folder / f"pipe{option}"
                os.mkfifo(pipe)
                with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
                    self.addCleanup(reader.kill)
                    done = self.output(option, pipe)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(key, json.loads(reader.communicate(timeout=PATIENCE_S)[0]))
                self.assertTrue(stat.S_ISFIFO(pipe.lstat().st_mode))
                self.assertEqual(list(self.folder.glob("**/*.part*")), [])

    def test_goes_to_the_standard_output(self):
        done = self.output("--report", "/dev/stdout")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("resumed_from", json.loads(done.stdout[done.stdout.index("\n{") + 1:done.stdout.rindex("}") + 1]))

    def test_replaces_what_a_link_points_to(self):
        (self.folder / "there").mkdir()
        (self.folder / "report.json").symlink_to("there/report.json")
        done = self.output("--report", "report.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.folder / "report.json").is_symlink())
        self.assertIn("steps", json.loads((self.folder / "there/report.json").read_text()))

    def test_that_is_a_folder_is_refused_by_name(self):
        (self.folder / "folder").mkdir()
        for option in ("--report", "--trace"):
            done = self.output(option, "folder")
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, rf'\Aerror: {option}: cannot write "folder" \(it is a folder\).*\n\Z')


if __name__ == "__main__":
    unittest.main(verbosity=2)
