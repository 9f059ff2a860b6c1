#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small, deterministic part of `./run bench mutations`: no changed input breaks any of its rules."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from maestro_program import PROGRAM

BENCH = Path(__file__).resolve().parents[2] / "benchmarks" / "mutations"
sys.path.insert(0, str(BENCH))
from judge import Limits, complaints  # noqa: E402


class Mutations(unittest.TestCase):
    def test_no_reader_breaks_a_rule(self):
        with tempfile.TemporaryDirectory(prefix="maestro-test-") as folder:
            ended = subprocess.run([sys.executable, "-B", BENCH / "run", "--count", "280", "--seed", "20261122"], cwd=folder,
                                   env={**os.environ, "MAESTRO_PROGRAM": PROGRAM}, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertIn("none broke a rule", ended.stdout)


class Judge(unittest.TestCase):
    """The rules themselves."""

    def test_one_line_with_status_2_or_silence_with_status_0_is_fine(self):
        self.assertEqual(complaints(2, b"error: job.toml: no\n", Limits()), [])
        self.assertEqual(complaints(0, b"step 1/2\nwarning: w\n", Limits()), [])
        self.assertEqual(complaints(2, b"error: 2 bad:\n  a\n  b\n", Limits(list_lines=True)), [])

    def test_everything_else_is_not(self):
        for status, text, wanted in ((-11, b"", "signal SIGSEGV"), (1, b"error: x\n", "status 1"), (2, b"", "0 error lines"),
                                     (2, b"error: a\nerror: b\n", "2 error lines"), (2, b"error: a\nb\n", "other lines"),
                                     (2, b"error: a\x1b[2J\n", "control bytes"), (2, b"error: \xff\n", "no UTF-8"),
                                     (2, b"error: " + b"x" * 5000 + b"\n", "a line too long"),
                                     (2, b"error: a", "the last line does not end"), (0, b"error: a\n", "1 error lines"),
                                     (2, b"error: internal error: x\n", "internal error"),
                                     (2, b"error: 2 bad:\n  a\n", "other lines")):
            with self.subTest(text[:20]):
                self.assertIn(wanted, complaints(status, text, Limits()))


if __name__ == "__main__":
    unittest.main()
