#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro watch` and `maestro metrics` follow real runs in the terminal."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios
import unittest

from http_runs import HttpTest
from maestro_program import ENDLESS, PATIENCE_S, PROGRAM, Run, distillation, language_model


class Terminal(HttpTest):
    def test_prints_every_row_of_the_record(self):
        run, _ = self.started(distillation(steps=ENDLESS, validate_every=5, recover="off"))
        recorded = self.folder / "out/record/steps.jsonl"
        self.assertTrue(run.wait_for(lambda: recorded.read_text().count("\n") > 12), run.text)
        told = self.call("metrics", "--json")
        self.assertEqual((told.status, told.err), (0, ""))
        rows = [json.loads(line) for line in told.out.splitlines()]
        self.assertEqual({tuple(row) for row in rows}, {("section", "step", "kind", "metrics")})
        shown = {(row["section"], row["step"]): row["metrics"] for row in rows if row["kind"] == "train"}
        for line in recorded.read_text().splitlines()[:12]:
            step = json.loads(line)
            for section, metrics in step["sections"].items():
                self.assertEqual(shown[section, step["step"]], metrics)
        self.assertIn(("plain", 5), {(row["section"], row["step"]) for row in rows if row["kind"] == "validation"})
        self.assertRegex(self.call("metrics").out, r"(?m)^step 3, student: ce [\d.]+, ")
        self.stop(run)

    def test_names_the_rows_that_have_left_the_memory_of_a_run(self):
        run, _ = self.started(language_model(steps=ENDLESS, recover="off", global_batch=1))
        recorded = self.folder / "out/record/steps.jsonl"
        self.assertTrue(run.wait_for(lambda: recorded.read_bytes().count(b"\n") > 4200), run.text)
        told = self.call("metrics", "--json")
        first = json.loads(told.out.splitlines()[0])["step"]
        self.assertGreater(first, 1)
        self.assertEqual(told.err, f"warning: rows before step {first} have left the run's memory; they are only in "
                                   "its record, steps.jsonl\n")
        self.stop(run)

    def test_follows_a_run_to_its_end(self):
        run, _ = self.started()
        follower = Run(self.folder, ["metrics", "--follow", "--json"])
        watcher = Run(self.folder, ["watch"])
        for client in (follower, watcher):
            self.addCleanup(client.end)
        self.assertTrue(follower.wait_for_text('"step":30,'), follower.text)
        self.assertTrue(watcher.wait_for_text("running, step "), watcher.text)
        self.stop(run)
        for client in (follower, watcher):
            self.assertEqual(client.wait().status, 0)
        steps = [json.loads(line)["step"] for line in follower.text["out"].splitlines()
                 if '"section":"plain"' in line and '"train"' in line]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        lines = watcher.text["out"].splitlines()
        self.assertRegex(lines[-1], "^the run at unix:.* has ended$")
        self.assertEqual(len(set(lines)), len(lines))
        self.assertNotIn("\x1b", watcher.text["out"])

    def test_draws_over_itself_on_a_terminal(self):
        run, _ = self.started()
        own, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))
        watcher = subprocess.Popen([PROGRAM, "watch"], cwd=self.folder, stdout=its, stderr=its, stdin=subprocess.DEVNULL,
                                   env={**os.environ, "TERM": "xterm"})
        self.addCleanup(watcher.kill)
        os.close(its)
        text = b""
        while text.count(b"\x1b[H") < 4:
            text += os.read(own, 65536)
        run.interrupt()
        try:
            while chunk := os.read(own, 65536):
                text += chunk
        except OSError:  # Linux ends a terminal without writers like this
            pass
        self.assertEqual(watcher.wait(PATIENCE_S), 0)
        os.close(own)
        drawn = text.decode().split("\x1b[H")[2]
        self.assertRegex(drawn, "loss of student  [\u2581-\u2588]+")
        for line in drawn.splitlines():
            self.assertLess(len(line.replace("\x1b[K", "").replace("\x1b[J", "")), 70, line)
        self.assertLessEqual(drawn.count("\n"), 20)
        self.assertIn("has ended", text.decode()[-200:])
        self.assertEqual(run.wait().status, 0)

    def test_of_no_run_is_an_error_in_a_line(self):
        for command in (["watch"], ["metrics"], ["metrics", "--at", f"unix:{self.folder}/none"]):
            failed = self.call(*command)
            self.assertEqual((failed.status, failed.out, failed.err.count("\n")), (1, "", 1), failed.describe())
        self.assert_refused("HOST:PORT", "watch", "--at", "nonsense")


if __name__ == "__main__":
    unittest.main(verbosity=2)
