# SPDX-License-Identifier: Apache-2.0
"""Output of a run: lines with times, figures in the step line, validations, a summary, and all of it as JSON."""

import datetime
import json
import os
import signal
import unittest
from pathlib import Path

from maestro_program import ENDLESS, LINE_TIME, Run, SystemTest, distillation

REPOSITORY = Path(__file__).resolve().parents[2]  # has the bundled jobs
LEVELS = {"info", "warning", "error", "progress"}
JSON = ("--log-format", "json")


def job_of(**train):
    return distillation(**{"steps": 6, "validate_every": 3, **train})


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


class LogTest(SystemTest):
    def objects(self, run):
        """Returns the lines of both streams; each must be a JSON object with time, level and message."""
        found = []
        for line in (run.printed["out"] + run.printed["err"]).splitlines():
            with self.subTest(line=line):
                entry = json.loads(line)
                self.assertRegex(entry["time"] + " ", LINE_TIME)
                self.assertIn(entry["level"], LEVELS)
                self.assertTrue(entry["message"])
                found.append(entry)
        self.assertTrue(all(text.endswith("\n") for text in run.printed.values() if text), run.printed)
        return found

    def validations(self):
        """Returns {(section, step): figures} from the record."""
        events = map(json.loads, (self.folder / "out/record/events.jsonl").read_text().splitlines())
        return {(event["section"], event["step"]): event["metrics"] for event in events if event["event"] == "validation"}

    def at_level(self, run, level):
        return [entry for entry in self.objects(run) if entry["level"] == level]


class Text(LogTest):
    def run_job(self, *options, **train):
        begun = datetime.datetime.now(datetime.timezone.utc)
        run = self.start(job_of(**train), *options)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        return run, finished, begun

    def test_every_line_of_a_run_has_the_time(self):  # TE-5
        run, _, begun = self.run_job("--processes", 2)
        ended = datetime.datetime.now(datetime.timezone.utc)
        for stream in run.printed.values():
            times = []
            for line in stream.splitlines():
                self.assertRegex(line, LINE_TIME)
                times.append(moment(line.split()[0]))
            self.assertEqual(times, sorted(times))
            self.assertTrue(begun - datetime.timedelta(milliseconds=1) <= times[0] and times[-1] <= ended, times)

    def test_a_step_has_the_parts_of_its_loss_and_a_validation_a_line(self):
        _, finished, _ = self.run_job()
        rows = {(row["section"], row["step"]): row for row in finished.report["steps"]}
        last = rows["student", 6]
        self.assertRegex(finished.err, rf"step 6/6  loss {last['loss']:.4f}  ce {last['ce']:.4f}  kl {last['kl']:.4f}  ")
        lines = [line for line in finished.out.splitlines() if line.startswith("validation after step ")]
        wanted = self.validations()
        self.assertEqual([line.split(":")[0] for line in lines],
                         ["validation after step 3", "validation after step 6"])
        for line in lines:
            step = int(line.split(":")[0].split()[-1])
            for section in ("student", "plain"):
                self.assertIn(f"{section} loss {wanted[section, step]['loss']:.4f}, ce {wanted[section, step]['ce']:.4f}",
                              line)

    def test_other_commands_and_wrong_input_have_none(self):  # TE-5
        checked = Run(self.folder, ["check", self.write_job(job_of())])
        self.addCleanup(checked.end)
        self.assertEqual(checked.wait().status, 0, checked.printed)
        refused = Run(self.folder, ["train", self.write_job(job_of(stepz=3))])
        self.addCleanup(refused.end)
        self.assertEqual(refused.wait().status, 2, refused.printed)
        self.assertTrue(refused.printed["err"].startswith("error: "), refused.printed)
        for run in (checked, refused):
            self.assertNotRegex("".join(run.printed.values()), LINE_TIME)


class Summary(LogTest):
    def lines(self, finished, begin):
        """Returns {name: text} of the lines below the line that starts with `begin`."""
        lines = finished.out.splitlines()
        first = next(at for at, line in enumerate(lines) if line.startswith(begin))
        entries = {}
        for line in lines[first + 1:]:
            self.assertRegex(line, r"^  ", "nothing follows the summary")
            entries.setdefault(line[2:22].strip(), line[22:])
        return lines[first], entries

    def test_has_the_figures_and_the_files_of_the_run(self):
        run = self.start(job_of(), "--trace", "trace.json")
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        head, entries = self.lines(finished, "finished step ")
        self.assertRegex(head, r"^finished step 6 of 6 in [\d.]+ s, [\d.]+ s of them training: [\d.]+ samples/s, \d+ tokens/s$")
        losses = {row["section"]: row["loss"] for row in finished.report["steps"] if row["step"] == 6}
        self.assertEqual(entries["loss"], ", ".join(f"{name} {losses[name]:.4f}" for name in ("plain", "student")))
        for section in ("plain", "student"):
            self.assertIn(f"{section} loss {self.validations()[section, 6]['loss']:.4f}", entries["validation"])
        memory = finished.report["memory"]
        self.assertEqual(entries["peak memory"], f"{memory['used_mb']:.0f} MB, estimated {memory['estimated_mb']:.0f} MB")
        for name in ("record", "report", "trace", "checkpoint", "model plain", "model student"):
            self.assertTrue((self.folder / entries[name]).exists(), entries)
        self.assertNotIn("to go on", entries)

    def test_of_an_interrupted_run_has_what_continues_it(self):
        job = job_of(steps=ENDLESS)
        run = self.start(job)
        self.assertTrue(run.wait_for_text("step ", "err"), run.text)
        run.interrupt()
        finished = run.wait()
        last = finished.report["last_step"]
        head, entries = self.lines(finished, "interrupted after step ")
        self.assertTrue(head.startswith(f"interrupted after step {last} of {ENDLESS} in "), head)
        self.assertEqual(entries["to go on"], "the same command with --resume out")
        rest = self.start({**job, "train": {**job["train"], "steps": last + 2}}, "--resume", "out").wait()
        self.assertIn(f"finished step {last + 2} of {last + 2} in ", rest.out, rest.describe())

    def test_in_json_is_one_object(self):
        run = self.start(job_of(), "--processes", 2, *JSON)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        last = json.loads(run.printed["out"].splitlines()[-1])
        self.assertEqual([entry for entry in self.objects(run) if entry.get("event") == "summary"], [last])
        self.assertEqual((last["step"], last["steps"], last["interrupted"]), (6, 6, False))
        self.assertEqual(last["loss"], {row["section"]: row["loss"] for row in finished.report["steps"] if row["step"] == 6})
        self.assertEqual(last["validation"], {section: figures for (section, step), figures in self.validations().items()
                                              if step == 6})
        for name in ("samples_per_s", "tokens_per_s"):
            self.assertEqual(last[name], finished.report["throughput"][name])
        self.assertGreaterEqual(last["seconds"], last["train_seconds"])
        self.assertEqual(last["writes"], finished.report["transfers"]["writes"])
        for path in (last["record"], last["report"], last["checkpoint"], *last["models"].values()):
            self.assertTrue((self.folder / path).exists(), last)


class Json(LogTest):
    def test_a_run_of_several_processes_prints_objects(self):  # TE-6
        run = self.start(job_of(), "--processes", 2, *JSON)
        finished = run.wait()
        self.assertEqual(finished.status, 0, finished.describe())
        rows = {(row["section"], row["step"]): row for row in finished.report["steps"]}
        last = self.at_level(run, "progress")[-1]
        self.assertEqual((last["step"], last["steps"]), (6, 6))
        for name in ("loss", "ce", "kl"):
            self.assertEqual(last[name], rows["student", 6][name])
        self.assertGreater(last["samples_per_s"], 0)
        self.assertEqual(last["seconds_left"], 0)
        validated = [entry for entry in self.objects(run) if entry["message"].startswith("validation after")]
        self.assertEqual([entry["step"] for entry in validated], [3, 6])
        self.assertEqual(validated[-1]["validation"].keys(), {"plain", "student"})
        printed = {(section, entry["step"]): figures for entry in validated for section, figures in entry["validation"].items()}
        self.assertEqual(printed, self.validations())

    def test_so_does_a_run_that_fails(self):
        run = self.start(job_of(steps=ENDLESS), "--processes", 2, *JSON)
        self.assertTrue(run.wait_for_text('"level":"progress"'), run.text)
        os.kill(run.members()[1], signal.SIGKILL)
        self.assertEqual(run.wait().status, 1, run.text)
        errors = self.at_level(run, "error")
        self.assertEqual(len(errors), 1, run.text)
        self.assertIn("process 1", errors[0]["message"])

    def test_so_does_an_interrupted_run(self):
        run = self.start(job_of(steps=ENDLESS), "--processes", 2, *JSON)
        self.assertTrue(run.wait_for_text('"level":"progress"'), run.text)
        run.interrupt()
        self.assertEqual(run.wait().status, 0, run.text)
        self.assertEqual(self.at_level(run, "error"), [])
        self.assertTrue(any("stopping after step " in entry["message"] for entry in self.objects(run)), run.text)

    def test_so_does_a_process_that_a_signal_ends_before_the_first_step(self):
        run = Run(self.folder, ["vlm", *JSON], variables={"MAESTRO_REPOSITORY": str(REPOSITORY)})
        self.addCleanup(run.end)
        self.assertTrue(run.wait_for_text("drawing"), run.text)  # thousands of images, before it trains
        os.kill(run.process.pid, signal.SIGTERM)
        self.assertEqual(run.wait().status, 130, run.text)
        self.assertEqual([entry["message"] for entry in self.at_level(run, "error")], ["ended by SIGTERM"])

    def test_wrong_input_is_one_object(self):
        job = self.write_job(job_of(stepz=3))
        for arguments, wanted in (
                (("train", job, *JSON), "did you mean 'steps'?"),
                (("train", job, "--log-format=json", "--processes", 2), "did you mean 'steps'?"),
                (("train", *JSON, job, "--repot", "x"), "--report"),
                (("train", job, *JSON, "--processes", "many"), "--processes"),
                (("emulate", "nowhere.json", *JSON), "nowhere.json"),
                (("join", *JSON), "--section")):
            with self.subTest(arguments=arguments):
                run = Run(self.folder, [str(word) for word in arguments])
                self.addCleanup(run.end)
                self.assertEqual(run.wait().status, 2, run.text)
                entries = self.objects(run)
                self.assertEqual([entry["level"] for entry in entries], ["error"], run.text)
                self.assertIn(wanted, entries[0]["message"])

    def test_an_unknown_format_is_refused(self):
        self.assert_refused("--log-format", "train", self.write_job(job_of()), "--log-format", "yaml")

    def test_a_remote_shell_has_its_host(self):
        shell = self.folder / "login"
        shell.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
        shell.chmod(0o755)
        run = self.start(job_of(), "--hosts", "127.0.0.1,127.0.0.2", "--ssh", shell, *JSON)
        self.assertNotEqual(run.wait().status, 0, run.text)
        relayed = [entry for entry in self.objects(run) if "host" in entry]
        self.assertEqual([(entry["host"], entry["message"]) for entry in relayed],
                         [("127.0.0.2", "Permission denied (publickey).")], run.text)
        self.assertTrue(any("Permission denied" in entry["message"] for entry in self.at_level(run, "error")), run.text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
