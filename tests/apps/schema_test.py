#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro schema` agrees with the readers of job files, and `maestro completion` with the command line."""

import json
import shutil
import subprocess
import sys
import tomllib
import unittest
from pathlib import Path

import graph_test
import help_test
from maestro_program import SystemTest, distillation, language_model

REPOSITORY = Path(__file__).resolve().parents[2]


def validator_class():
    try:
        from jsonschema import Draft7Validator
    except ImportError:  # Debian's package is for Debian's interpreter
        sys.path.append("/usr/lib/python3/dist-packages")
        try:
            from jsonschema import Draft7Validator
        except ImportError:
            return None
    return Draft7Validator


class Schema(SystemTest):
    def setUp(self):
        super().setUp()
        finished = self.call("schema")
        self.assertEqual(finished.status, 0, finished.describe())
        self.schema = json.loads(finished.out)

    def app(self, name):
        choice, = [each["then"] for each in self.schema["allOf"] if each["if"]["properties"]["app"]["const"] == name]
        return choice

    @staticmethod
    def definition(schema):
        """Returns the name of a table's definition; for a section, the definition of its type in the app."""
        schema = schema.get("items", schema)  # of a list of tables
        if "allOf" in schema:
            schema, = schema["allOf"]
        while "$ref" not in schema:
            schema = schema["else"]
        return schema["$ref"].removeprefix("#/definitions/")

    def described(self, table):
        out = self.call("help", table).out
        return {line.split()[0] for line in out.splitlines() if line.startswith("  ")}

    def test_has_every_key_in_its_table_and_no_other(self):  # JX-1
        for name in ("language_model", "distillation", "split_language_model", "vision_language"):
            app = self.app(name)["properties"]
            tables = {table: schema for table, schema in app.items() if table not in ("name", "app", "plugins", "observers")}
            self.assertEqual(app["observers"]["additionalProperties"], {"type": "object"})
            self.assertLessEqual({"train", "data", "schedule", "guard", "transport", "emulation", "plan"}, set(tables))
            for table, schema in tables.items():
                with self.subTest(app=name, table=table):
                    name_of = self.definition(schema)
                    keys = set(self.schema["definitions"][name_of]["properties"])
                    self.assertEqual(keys - ({"mix"} if table == "data" else set()),
                                     self.described(name_of.removeprefix("type ")))
        inner = self.schema["definitions"]
        self.assertEqual(set(inner["lora"]["properties"]), self.described("lora"))
        self.assertEqual(set(inner["replicas"]["properties"]), self.described("replicas"))
        self.assertEqual(set(inner["mix"]["properties"]), self.described("mix"))
        self.assertEqual(set(inner["data.mix.NAME"]["properties"]), self.described("data.mix.NAME"))

    def validator(self):
        made = validator_class()
        if made is None:
            self.skipTest("the Python package jsonschema is missing")
        made.check_schema(self.schema)
        return made(self.schema)

    def test_accepts_the_jobs_that_are_there(self):
        validator = self.validator()
        jobs = [path for folder in ("apps", "benchmarks") for path in (REPOSITORY / folder).rglob("*.toml")]
        self.assertGreater(len(jobs), 5)
        for path in jobs:
            job = tomllib.loads(path.read_text())
            if "app" not in job:
                continue
            with self.subTest(path.name):
                self.assertEqual([error.message for error in validator.iter_errors(job)], [])
        for job in (language_model(), distillation(), help_test.split_model(), help_test.vision_language()):
            self.assertEqual([error.message for error in validator.iter_errors(job)], [])

    def test_of_graphs_has_a_table_for_every_typed_section(self):  # JX-1
        validator = self.validator()
        job = graph_test.distillation_graph()
        self.assertEqual([error.message for error in validator.iter_errors(job)], [])
        student = dict(job["student"])
        del student["type"]
        for changes in ({"student": student}, {"student": student | {"type": "no_type"}}, {"edges": "a.b -> c.d"},
                        {"student": job["student"] | {"heds": 2}}, {"plain": job["plain"] | {"alpha": 0.5}}):
            with self.subTest(changes):
                self.assertNotEqual(list(validator.iter_errors(job | changes)), [])
                self.assertEqual(self.call("check", self.write_job(job | changes)).status, 2)
        tables = set(self.app("graph")["properties"]) - {"name", "app", "edges", "plugins", "stages"}
        self.assertLessEqual({"train", "data", "emulation"}, tables)
        for table in tables:
            named = job | {table: job.get(table, {}) | {"type": "decoder_lm"},
                           "edges": [*job["edges"], f"corpus.tokens -> {table}.tokens", f"corpus.targets -> {table}.targets"]}
            self.assertNotEqual(list(validator.iter_errors(named)), [])
            self.assert_refused(f"{table}.type: this table describes the run and cannot be a section", "check",
                                self.write_job(named))
        without = {key: value for key, value in job.items() if key != "edges"}
        self.assertNotEqual(list(validator.iter_errors(without)), [])
        self.assertEqual(self.call("check", self.write_job(without)).status, 2)
        self.assertNotEqual(list(validator.iter_errors(distillation() | {"edges": []})), [], "edges of a bundled app")

    def test_accepts_what_has_several_forms(self):
        validator = self.validator()
        several = distillation()
        several["student"]["teacher"] = ["teacher", "second"]
        several["second"] = dict(several["teacher"])
        layers = language_model()
        layers["teacher"]["recompute"] = "layers"
        layers["teacher"]["lora"] = {"rank": 4}
        layers["teacher"]["processes"] = [0]
        moving = distillation()
        moving["teacher"]["replicas"] = {"least": 1, "most": 2}
        mixed = distillation()
        mixed["student"]["replicas"] = [{"context": 2}, {"count": 2, "context": 1}]
        for job in (several, layers, moving, mixed):
            self.assertEqual([error.message for error in validator.iter_errors(job)], [])

    def test_refuses_what_the_readers_refuse(self):
        validator = self.validator()
        for table, key, value in (("train", "stepz", 4), ("train", "steps", "four"), ("train", "steps", 0),
                                  ("train", "steps", 1.5), ("train", "clip", "globally"), ("train", "deterministic", 1),
                                  ("guard", "norm", 1), ("plan", "objective", "fast"), ("plan", "predicted_passes_ms", {"student": -1}),
                                  ("plan", "predicted_step", 3), ("guard", "action", "stop"), ("student", "lr", -1),
                                  ("student", "devices", "cpu:0"), ("student", "devices", [0]),
                                  ("student", "processes", ["0"]), ("student", "replicas", {"lest": 1}),
                                  ("student", "replicas", [{"least": 1}]), ("student", "replicas", [2]),
                                  ("student", "recompute", "all"), ("student", "lora", {"rnk": 1}),
                                  ("student", "type", "no_type"), ("data", "mix", {"a": {"pth": "x"}}),
                                  ("student", "divergence", "kl"), ("transport", "slots", 65)):
            with self.subTest(f"{table}.{key} = {value}"):
                job = distillation()
                job.setdefault(table, {})[key] = value
                self.assertNotEqual(list(validator.iter_errors(job)), [])
                refused = self.call("check", self.write_job(job))
                self.assertEqual(refused.status, 2, refused.describe())


class Completion(SystemTest):
    def script(self, shell):
        finished = self.call("completion", shell)
        self.assertEqual(finished.status, 0, finished.describe())
        (self.folder / shell).write_text(finished.out)
        return self.folder / shell

    def completed(self, *words):
        """Returns the words that bash proposes to complete the last word."""
        line = " ".join(f"'{word}'" for word in words)
        text = f"compopt() {{ :; }}; source {self.script('bash')}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; " \
               "_maestro; printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
        return done.stdout.split()

    def test_of_bash_proposes_commands_options_and_keys(self):
        self.assertEqual(self.completed("maestro", "rep"), ["replay"])
        self.assertIn("--http", self.completed("maestro", "train", "job.toml", "--h"))
        self.assertEqual(self.completed("maestro", "replay", "out", "--st"), ["--steps"])
        self.assertEqual(self.completed("maestro", "train", "job.toml", "--set", "guard.a"), ["guard.action="])
        self.assertEqual(self.completed("maestro", "help", "train.global_b"), ["train.global_batch"])
        self.assertEqual(self.completed("maestro", "train", "jo"), [], "files are the shell's own")

    def test_of_every_shell_is_a_script_with_every_command(self):
        commands = [line.split()[0] for line in self.call("--help").out.split("Subcommands:")[1].splitlines() if line]
        self.assertGreater(len(commands), 20)
        for shell in ("bash", "zsh", "fish"):
            script = self.script(shell)
            for command in commands:
                self.assertIn(command, script.read_text().split() + script.read_text().replace(":", " ").replace("'", " ").split())
            if shutil.which(shell):
                subprocess.run([shell, "-n", script], check=True)

    def test_of_another_shell_is_refused(self):
        finished = self.call("completion", "tcsh")
        self.assertEqual(finished.status, 2)
        self.assertIn("bash", finished.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
