#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro runs` lists live and past runs, and commands on a run find it by its folder."""

import json
import os
import signal
import unittest

from maestro_program import ENDLESS, SystemTest, language_model


def named(name, **train):
    return {**language_model(out=f"runs/{name}", **train), "name": name}


class RunsTest(SystemTest):
    def setUp(self):
        super().setUp()
        for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):  # keeps other runs of this user out
            self.addCleanup(os.environ.__setitem__, variable, os.environ.get(variable, ""))
            os.environ[variable] = str(self.folder)

    def held(self, name, after):
        """Returns a run that has paused after a step."""
        run = self.start(named(name, steps=9), "--pause-after", after)
        folder = f"runs/{name}"
        self.assertTrue(run.wait_for(lambda: "paused, step" in self.call("status", folder).out), run.text)
        return run

    def with_steps(self, name, *options):
        """Returns a run under way whose record has a step."""
        run = self.start(named(name, steps=ENDLESS), *options)
        steps = self.folder / "runs" / name / "record/steps.jsonl"
        self.assertTrue(run.wait_for(lambda: steps.exists() and b"\n" in steps.read_bytes()), run.text)
        return run

    def listed(self):
        """Returns {folder: row} of `maestro runs --json`."""
        finished = self.call("runs", "--json")
        self.assertEqual((finished.status, finished.err), (0, ""), finished.describe())
        rows = [json.loads(line) for line in finished.out.splitlines()]
        return {row["folder"] and os.path.relpath(row["folder"], self.folder): row for row in rows}

    def refusal(self, status, *arguments):
        """Returns the lines of a refused call."""
        finished = self.call(*arguments)
        self.assertEqual((finished.status, finished.out), (status, ""), finished.describe())
        return finished.err.splitlines()


class Runs(RunsTest):
    def test_are_listed_with_the_state_that_they_have_now(self):
        self.assertEqual(self.call("runs").out, "no runs of this user are known\n")
        self.train(named("done", steps=3))
        self.with_steps("killed").end()
        stopped = self.with_steps("stopped")
        stopped.interrupt()
        self.assertEqual(stopped.wait().status, 0)
        first, second = self.held("first", 2), self.held("second", 4)
        rows = self.listed()
        self.assertEqual({folder: row["state"] for folder, row in rows.items()},
                         {"runs/first": "paused", "runs/second": "paused", "runs/done": "ended", "runs/killed": "lost",
                          "runs/stopped": "interrupted"})
        self.assertEqual(list(rows)[:2], ["runs/second", "runs/first"], "live runs are first")
        row = rows["runs/first"]
        self.assertEqual((row["job"], row["live"], row["step"], row["steps"]), ("first", True, 2, 9))
        self.assertEqual(row["control"], f"unix:{self.folder}/maestro/{first.process.pid}.sock")
        record = (self.folder / "runs/done/record/steps.jsonl").read_text().splitlines()
        self.assertEqual(rows["runs/done"]["losses"]["teacher"], json.loads(record[-1])["sections"]["teacher"]["loss"])
        self.assertEqual((rows["runs/done"]["step"], rows["runs/done"]["control"]), (3, None))
        text = self.call("runs").out.splitlines()
        self.assertEqual(text[0].split(), ["folder", "job", "started", "loss", "state"])
        self.assertTrue(text[1].startswith("runs/second  ") and text[1].endswith("  paused, step 4 of 9"), text)
        self.assertRegex("\n".join(text), r"runs/killed +killed +20\d\d-\d\d-\d\d \d\d:\d\d UTC  teacher \d.*  lost after step \d")
        self.assertRegex("\n".join(text), r"runs/done +done .*  ended after step 3$")
        second.process.send_signal(signal.SIGSTOP)
        self.assertEqual(self.listed()["runs/second"]["state"], "no answer")
        second.process.send_signal(signal.SIGCONT)
        for run, name in ((first, "first"), (second, "second")):
            self.assertEqual(self.call("continue", f"runs/{name}").status, 0)
            self.assertEqual(run.wait().status, 0)
            self.assertEqual(self.listed()[f"runs/{name}"]["state"], "ended")

    def test_of_a_folder_that_was_moved_aside_are_listed_there(self):
        self.train(named("a", steps=2))
        self.train(named("a", steps=3), "--fresh")
        self.assertEqual({folder: row["step"] for folder, row in self.listed().items()}, {"runs/a": 3, "runs/a.1": 2})

    def test_go_on_where_the_list_cannot_be_written(self):
        (self.folder / "state").write_text("a file")
        finished = self.start(named("a", steps=2), variables={"XDG_STATE_HOME": str(self.folder / "state")}).wait()
        self.assertEqual((finished.status, finished.err), (0, finished.err))
        self.assertEqual(finished.out.count("`maestro runs` does not list this run: "), 1, finished.out)

    def test_that_failed_are_listed_with_the_reason(self):
        run = self.with_steps("a", "--processes", 2)
        os.kill(run.members()[1], signal.SIGKILL)
        finished = run.wait()
        self.assertEqual(finished.status, 1, finished.describe())
        row = self.listed()["runs/a"]
        self.assertEqual((row["state"], row["live"]), ("failed", False))
        self.assertIn(row["error"], finished.err)


class ACommand(RunsTest):
    def test_takes_the_only_live_run_or_the_one_that_its_folder_names(self):
        first = self.held("first", 2)
        self.assertIn("job first: paused, step 2 of 9", self.call("status").out)
        second = self.held("second", 4)
        lines = self.refusal(2, "status")
        self.assertEqual(lines, ["error: 2 runs of this user are live; name one by its folder:",
                                 "  runs/second  job 'second', paused, step 4 of 9",
                                 "  runs/first  job 'first', paused, step 2 of 9"])
        for command in ("watch", "metrics", "pause", "continue", "stop", "checkpoint", "show-plan"):
            self.assertEqual(self.refusal(2, command), lines, command)
        self.assertIn("job first: paused, step 2 of 9", self.call("status", "runs/first").out)
        self.assertIn("job second: ", self.call("status", str(self.folder / "runs/second/")).out)
        self.assertIn("job second: ", self.call("status", f"unix:{self.folder}/maestro/{second.process.pid}.sock").out)
        self.assertIn("step 2, teacher: ", self.call("metrics", "runs/first").out)
        self.assertEqual(self.call("continue", "runs/second").status, 0)
        self.assertEqual(second.wait().status, 0)
        self.assertEqual(first.process.poll(), None)
        self.assertEqual(self.call("stop", "runs/first").status, 0)
        self.assertEqual(first.wait().status, 0)
        self.assertEqual(self.refusal(1, "stop", "runs/first"),
                         ["error: the run in runs/first is not live: interrupted after step 2 of 9"])
        self.assertEqual(self.refusal(1, "status", "runs/second"),
                         ["error: the run in runs/second is not live: ended after step 9"])

    def test_on_a_folder_without_a_live_run_says_so(self):
        self.train(named("first", steps=2))
        self.assertEqual(self.refusal(2, "status", "runs/frist"),
                         ["error: no folder 'runs/frist'; did you mean 'runs/first'?"])
        (self.folder / "empty").mkdir()
        self.assertEqual(self.refusal(1, "status", "empty"), ["error: empty does not hold the record of a run"])
        self.assertIn("no run of this user on this host has a control service; name a run by its folder",
                      self.refusal(1, "watch")[0])
        self.assertIn("--at", self.refusal(2, "status", "runs/first", "--at", "unix:/x")[0])

    def test_names_a_run_that_has_no_control_service(self):
        run = self.with_steps("quiet", "--control", "none")
        self.assertEqual(self.refusal(1, "status", "runs/quiet"), ["error: the run in runs/quiet has no control service"])
        row = self.listed()["runs/quiet"]
        self.assertEqual((row["state"], row["live"], row["control"]), ("running", True, None))
        run.interrupt()
        self.assertEqual(run.wait().status, 0)


if __name__ == "__main__":
    unittest.main()
