#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the sessions of docs/first-section.md with an installation: first_section_test.py PREFIX FOLDER.

A block below `<!-- as: FILE -->` is that file in the session's folder. Every line that the page shows as output is a line
of the program's output, apart from numbers and "...". The change lowers the validation loss.
"""

import os
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/first-section.md"
FENCE = re.compile(r"^(?:<!-- as: (\S+) -->\n)?```(\w*)\n(.*?)^```$", re.S | re.M)


def script_of(page, prefix):
    """Returns a shell script with the page's files and commands."""
    lines = ["set -eu"]
    for file, language, body in FENCE.findall(page):
        if file:
            lines.append(f"printf %s {shlex.quote(body)} > {file}")
        if language == "console":
            lines += re.findall(r"^\$ (.*)", body, re.M)
    return "\n".join(lines).replace("/usr/share", f"{shlex.quote(str(prefix))}/share")


def without_numbers(line):
    return re.sub(r"\.{2,}", "", re.sub(r"\d+", "0", " ".join(line.split())))


class FirstSection(unittest.TestCase):
    def test_the_page_builds_changes_and_trains_a_section(self):
        page = PAGE.read_text()
        paths = {"PATH": f"{PREFIX}/bin:{os.environ['PATH']}", "CMAKE_PREFIX_PATH": str(PREFIX)}
        done = subprocess.run(["bash", "-c", script_of(page, PREFIX)], cwd=FOLDER, env={**os.environ, **paths}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)
        printed = {without_numbers(line) for line in done.stdout.splitlines()}
        for _, language, body in FENCE.findall(page):
            for line in body.splitlines() if language == "console" else ():
                if not line.startswith("$ ") and line != "...":
                    self.assertIn(without_numbers(line), printed, f"the page shows it, the session does not\n{done.stdout}")
        self.assertEqual(len(re.findall(r"100% tests passed, 0 tests failed out of 2", done.stdout)), 2, done.stdout)
        first, changed = (float(loss) for loss in re.findall(r"validation +model loss ([\d.]+)", done.stdout))
        self.assertLess(first, 3)
        self.assertLess(changed, first - 0.02)
        shown = [float(loss) for loss in re.findall(r"validation +model loss ([\d.]+)", page)]
        for loss, figure in zip((first, changed), shown, strict=True):
            self.assertAlmostEqual(loss, figure, delta=0.005)


if __name__ == "__main__":
    PREFIX, FOLDER = (Path(argument).resolve() for argument in sys.argv[1:3])
    FOLDER.mkdir(parents=True, exist_ok=True)
    unittest.main(argv=sys.argv[:1])
