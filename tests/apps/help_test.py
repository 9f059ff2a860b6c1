#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro help` describes every key that a run reads, and docs/job-file.md is its output.

`MAESTRO_PROGRAM=build/release/bin/maestro tests/apps/help_test.py --write` updates docs/job-file.md.
"""

import re
import subprocess
import sys
import unittest
from pathlib import Path

from maestro_program import PROGRAM, SystemTest, decoder, distillation, job_text, language_model

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "job-file.md"
KEYS = re.compile(r"(<!-- keys -->\n)(.*)(<!-- end of keys -->)", re.S)
IMPOSSIBLE = "zzzzzzzzzzzzzzzz"  # similar to no key: the error lists all keys of the table


def reference():
    return subprocess.run([PROGRAM, "help", "--markdown"], text=True, capture_output=True, check=True).stdout


def with_reference(text):
    return KEYS.sub(lambda match: match[1] + reference() + "\n" + match[3], text)


def split_model():
    job = language_model()
    job["app"] = "split_language_model"
    del job["teacher"]
    job["trunk"] = decoder()
    job["head"] = decoder()
    return job


def vision_language():
    job = language_model()
    job["app"] = "vision_language"
    del job["teacher"]
    job["data"] = {"kind": "synthetic_images", "sequence": 64, "image_size": 16}
    job["vision"] = {"layers": 1, "width": 32, "heads": 2}
    job["projector"] = {"decoder": "llm"}
    job["llm"] = decoder(positions=128, vocabulary=257)
    return job


class Help(SystemTest):
    def lines(self, *arguments):
        finished = self.call("help", *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out.splitlines()

    def keys_of(self, table):
        return {line.split()[0] for line in self.lines(table) if line.startswith("  ")}

    def keys_read(self, job, table):
        """Returns the keys that `maestro check` reads in a table, from its error for an unknown key."""
        (self.folder / "job.toml").write_text(job_text(job))
        prefix = f"{table}." if table else ""
        finished = self.call("check", "job.toml", "--set", f"{prefix}{IMPOSSIBLE}=1")
        self.assertEqual(finished.status, 2, finished.describe())
        known = re.search(r"known here: (.*)", finished.err)
        self.assertIsNotNone(known, finished.describe())
        return set(known[1].split(", "))

    def test_the_document_is_the_output_of_the_program(self):
        text = DOCUMENT.read_text()
        self.assertIsNotNone(KEYS.search(text))
        self.assertEqual(text, with_reference(text), "update: tests/apps/help_test.py --write")

    # JK-1
    def test_every_key_that_a_run_reads_is_described(self):
        (self.folder / "corpus.txt").write_text("a text with letters of all kinds\n" * 200)
        for job in (language_model(), split_model(), distillation(), vision_language()):
            tables = [name for name, value in job.items() if isinstance(value, dict)]
            for table in [*tables, "schedule", "guard", "transport", "emulation", "plan"]:
                with self.subTest(app=job["app"], table=table):
                    tables_of_names = {"mix"} if table == "data" and self.keys_of("data.mix.NAME") else set()
                    self.assertLessEqual(self.keys_read(job, table) - tables_of_names, self.keys_of(table))
            others = {"schedule", "guard", "transport", "emulation", "plan", "plain", "generator", "memory", "stages", *tables}
            for key in self.keys_read(job, "") - others:
                if key.endswith(("vision", "projector")):  # sections that the app looks for
                    continue
                self.assertTrue(self.lines(key)[0].startswith(f"{key}: "))

    def test_every_key_has_a_line_of_help(self):
        rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
        self.assertGreater(len(rows), 90)
        for row in rows:
            self.assertEqual(len(row), 6, row)
            self.assertTrue(row[5].rstrip(" |"), row)

    def test_a_key_has_type_default_values_unit_and_help(self):
        self.assertEqual(self.lines("train.ahead"),
                         ["train.ahead: steps announced beyond the oldest unfinished step", "  type     integer",
                          "  default  2", "  range    from 1 to 1024", "  unit     steps"])
        self.assertEqual(self.lines("student.divergence")[1:],
                         ["  type     choice", '  default  "forward_kl"', "  choices  forward_kl, reverse_kl, js"])
        self.assertEqual(self.lines("name")[1:], ["  type     text", '  default  "job"'])
        self.assertIn("  default  6", self.lines("vision.layers"))

    def test_a_table_lists_its_keys_and_no_key_lists_the_tables(self):
        self.assertEqual(self.keys_of("schedule"), {"policy", "budget_ms", "evaluations"})
        self.assertLessEqual({"lr", "layers", "replicas", "alpha"}, self.keys_of("student"))
        self.assertEqual(self.keys_of("student"), self.keys_of("distilled_decoder"))
        tables = {line.split()[0] for line in self.lines() if line.startswith("  ")}
        self.assertLessEqual({"train", "data", "schedule", "guard", "transport", "emulation", "plan", "teacher", "student", "plain",
                              "vision", "projector", "llm", "trunk", "head"}, tables)

    def test_an_unknown_key_is_answered_with_the_nearest_in_one_line(self):
        for wrong, nearest in (("train.stepz", "train.steps"), ("student.lrr", "student.lr"), ("tarin", "train"),
                               ("global_batch", "train.global_batch"), ("alpha", "student.alpha"), ("lr", "teacher.lr")):
            finished = self.call("help", wrong)
            self.assertEqual(finished.status, 2, finished.describe())
            self.assertEqual(finished.err.splitlines(), [f"error: unknown key '{wrong}'; did you mean '{nearest}'?"])
        finished = self.call("help", IMPOSSIBLE)
        self.assertEqual((finished.status, finished.err),
                         (2, f"error: unknown key '{IMPOSSIBLE}'; maestro help lists the tables\n"))


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        DOCUMENT.write_text(with_reference(DOCUMENT.read_text()))
    else:
        unittest.main(verbosity=2)
