#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package `maestro`: apps that scripts compose train like the program's apps."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

from graph_test import distillation_graph
from maestro_program import PATIENCE_S, SystemTest, free_port, job_text

PACKAGE = os.environ.get("MAESTRO_PYTHON_PACKAGE", "")
REPOSITORY = Path(__file__).resolve().parents[2]

CORPUS = """
    import json, maestro, sys

    class Numbers(maestro.Corpus):
        vocabulary = 32

        def samples(self, split):
            return 512 if split == "train" else 16

        def length(self, split, sample):
            return 12

        def read(self, split, sample):
            return [(sample + at) % 32 for at in range(12)]

    def app_of(corpus, **options):
        job = {"name": "numbers", "train": {"steps": 20, "global_batch": 16, "out": "out"},
               "model": {"layers": 1, "width": 32, "heads": 2, "positions": 16, "micro_batch": 4, "lr": 1e-2}}
        app = maestro.App(job, **options)
        data = app.source("corpus", corpus)
        model = app.section("model", "decoder_lm").replicas(2)
        app.connect(data.port("tokens"), model.port("tokens"))
        app.connect(data.port("targets"), model.port("targets"))
        return app
"""


@unittest.skipUnless(PACKAGE, "the Python package is not built: nanobind or Python.h is missing")
class PythonPackageTest(SystemTest):
    def script(self, *parts):
        file = self.folder / "script.py"
        file.write_text("\n".join(textwrap.dedent(part) for part in parts))
        return file

    def begin(self, script, *arguments):
        variables = {**os.environ, "PYTHONPATH": PACKAGE, "XDG_RUNTIME_DIR": str(self.folder)}
        return subprocess.Popen([sys.executable, script, *arguments], cwd=self.folder, env=variables, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self, process, status=0):
        with process:
            out, err = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, status, out + err)
        return out, err

    def run_script(self, *parts, status=0):
        return self.finish(self.begin(self.script(*parts)), status)

    def answer(self, *parts):
        """Returns a script's last output, as JSON."""
        out, _ = self.run_script(*parts)
        return json.loads(out.splitlines()[-1])


class Composition(PythonPackageTest):
    def test_with_a_corpus_in_python_learns_the_same_in_one_process_and_in_two(self):  # YL-1
        results = [self.answer(CORPUS, f"""
            result = app_of(Numbers(), processes={processes}, fresh=True).run()
            steps = maestro.read_steps(result.record)
            print(json.dumps([result.status, result.losses, result.validation, len(steps), list(result.models)]))
        """) for processes in (1, 2)]
        self.assertEqual(results[0], results[1])
        status, losses, validation, steps, models = results[0]
        self.assertEqual((status, steps, models), (0, 20, ["model"]))
        self.assertLess(losses["model"], 3.0, "3.47 is that of a guess")
        self.assertEqual(set(validation["model"]), {"loss", "ce"})

    def test_of_a_graph_file_has_the_losses_of_the_program(self):
        expected = self.train(distillation_graph(steps=3))
        (self.folder / "graph.toml").write_text(job_text(distillation_graph(steps=3)))
        losses = self.answer("""
            import json, maestro
            print(json.dumps(maestro.train("graph.toml", settings={"train.out": "python"}).losses))
        """)
        last = {row["section"]: row["loss"] for row in expected.report["steps"] if row["step"] == 3}
        self.assertEqual(losses, last)

    def test_of_targets_that_do_not_count_has_the_mean_over_the_others(self):
        losses = self.answer(CORPUS, """
            class Given(Numbers):
                counted = 11

                def read(self, split, sample):
                    tokens = super().read(split, sample)
                    return tokens, [(token + 1) % 32 for token in tokens[:self.counted]] + [-1] * (12 - self.counted)

            class First(Given):
                counted = 1

            print(json.dumps([maestro.read_steps(app_of(corpus(), fresh=True).run().record)[0]["sections"]["model"]["loss"]
                              for corpus in (Numbers, Given, First)]))
        """)
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])
        self.assertAlmostEqual(losses[2], losses[0], delta=0.5)  # the mean has a twelfth of the targets

    def test_is_checked_without_a_run(self):
        out, _ = self.run_script(CORPUS, "assert app_of(Numbers(), check_only=True).run().status == 0")
        self.assertIn("memory (estimate)", out)
        self.assertFalse((self.folder / "out").exists())


    def test_calls_back_after_steps_and_validations(self):
        steps, validations, row = self.answer(CORPUS, """
            steps, validations = [], []
            app = app_of(Numbers(), fresh=True, settings={"train.validate_every": 10}, on_step=steps.append,
                         on_validation=validations.append)
            app.run()
            print(json.dumps([[row["step"] for row in steps], [row["step"] for row in validations],
                              steps[0]["sections"]["model"]["loss"] > 3]))
        """)
        self.assertEqual(steps, list(range(1, 21)))
        self.assertEqual(validations[:2], [10, 20])
        self.assertTrue(row)

    def test_sets_keys_of_sections(self):
        found = self.answer(CORPUS, """
            job = {"name": "numbers", "train": {"steps": 3, "global_batch": 16, "out": "out"},
                   "model": {"layers": 1, "width": 32, "heads": 2, "positions": 16}}
            losses = []
            for set_in_code in (True, False):
                app = maestro.App(job, fresh=True, settings={} if set_in_code else {"model.lr": 0.5})
                data, model = app.source("corpus", Numbers()), app.section("model", "decoder_lm")
                if set_in_code:
                    model.lr = 0.5
                app.connect(data.port("tokens"), model.port("tokens"))
                app.connect(data.port("targets"), model.port("targets"))
                losses.append(app.run().losses["model"])
            print(json.dumps([losses, repr(model), repr(model.port("tokens"))]))
        """)
        self.assertEqual(found[0][0], found[0][1])
        self.assertEqual(found[1:], ["<maestro.Section 'model'>", "model.tokens"])


class Example(PythonPackageTest):
    def test_of_the_documents_trains_in_one_process_and_in_two(self):
        code = (REPOSITORY / "tests/apps/python/counting.py").read_text()
        self.assertIn(code, (REPOSITORY / "docs/python.md").read_text())
        outputs = []
        for processes in ("1", "2"):
            script = self.script(code)
            out, _ = self.finish(self.begin(script, processes))
            outputs.append([line for line in out.splitlines() if re.fullmatch(r"\d+ [\d.]+", line)])
            self.assertIn("model runs/counting/models/model", out)
        self.assertEqual(len(outputs[0]), 4)
        self.assertEqual(outputs[0], outputs[1])


    def test_of_the_documents_trains_as_a_job_of_another_launcher(self):
        port = free_port()
        script = self.script((REPOSITORY / "tests/apps/python/counting.py").read_text())
        ranks = []
        for rank in (0, 1):
            os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            ranks.append(self.begin(script))
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            del os.environ[name]
        outputs = [self.finish(rank)[0] for rank in ranks]
        self.assertIn("model runs/counting/models/model", outputs[0])
        self.assertEqual(outputs[1], "", "nothing behind run() is done in rank 1")

    def test_of_the_documents_trains(self):
        code = (REPOSITORY / "docs/python.md").read_text().partition("```python\n")[2].partition("```")[0]
        (self.folder / "job.toml").write_text(job_text({
            "name": "page", "train": {"steps": 2, "global_batch": 4, "out": "out"},
            "data": {"kind": "synthetic", "sequence": 16},
            "model": {"layers": 1, "width": 32, "heads": 2, "positions": 16}}))
        out, _ = self.run_script(code)
        self.assertRegex(out.splitlines()[-1], r"^[\d.]+ out/models/model$")


class Types(unittest.TestCase):
    @unittest.skipUnless(shutil.which("mypy"), "mypy is not installed")
    def test_are_known_to_checkers(self):
        with tempfile.TemporaryDirectory() as folder:
            right, wrong = Path(folder) / "right.py", Path(folder) / "wrong.py"
            right.write_text((REPOSITORY / "tests/apps/python/counting.py").read_text() + "model.lr = 3e-4\n")
            wrong.write_text('import maestro\nmaestro.App({}, processes="two")\nmaestro.App({}, proceses=2)\n'
                             'x: int = maestro.App({}).run().losses\n')
            package = REPOSITORY / "apps/python"
            for file, status, found in ((right, 0, 0), (wrong, 1, 3)):
                checked = subprocess.run(["mypy", "--cache-dir", folder + "/cache", file], capture_output=True, text=True,
                                         env={**os.environ, "MYPYPATH": str(package)}, check=False)
                self.assertEqual(checked.returncode, status, checked.stdout)
                self.assertEqual(checked.stdout.count("error:"), found, checked.stdout)


class Errors(PythonPackageTest):
    def refusal(self, *parts):
        """Returns the line of the JobError that ends a script."""
        _, err = self.run_script(*parts, status=1)
        last = err.splitlines()[-1]
        self.assertTrue(last.startswith("maestro.JobError: ") or last.startswith("maestro._core.JobError: "), err)
        return last.partition("JobError: ")[2]

    def test_of_input_are_exceptions_with_a_line(self):
        cases = (
            ('app = maestro.App({"model": {}, "data": {"kind": "synthetic", "sequence": 16}})\napp.section("model", "decoder_ml")\napp.run()', "decoder_lm"),
            ('maestro.train({"app": "graph", "edges": ["corpus.tokens"]})', '"corpus.tokens" is not an edge'),
            ('maestro.train({"app": "distillation"})', 'maestro.train() takes app = "graph"'),
            ('maestro.train("absent.toml")', "absent.toml"),
        )
        for code, wanted in cases:
            with self.subTest(code):
                self.assertIn(wanted, self.refusal("import maestro\n" + code))

    def test_of_options_name_those_that_there_are(self):
        _, err = self.run_script('import maestro\nmaestro.App({}, proceses=2)', status=1)
        self.assertRegex(err, "TypeError: .*unexpected keyword argument 'proceses'")

    def test_of_a_corpus_name_the_call(self):
        cases = (
            ("def samples(self, split): raise OSError('the server is away')", 'samples("train"): OSError: the server is away'),
            ("vocabulary = 'many'", "vocabulary returns a value of another type"),
            ("vocabulary = 0", "vocabulary = 0 is not a valid number of tokens"),
        )
        for body, wanted in cases:
            with self.subTest(body):
                self.assertIn(wanted, self.refusal(CORPUS, f"class Wrong(Numbers):\n    {body}\napp_of(Wrong())"))

    def test_of_a_sample_end_the_run_with_its_call(self):  # YC-2
        cases = (
            ("def read(self, split, sample): return [1] * 11", '("train", ',
             "returns 11 tokens and 11 targets, but length() returns 12"),
            ("def read(self, split, sample): return [32] * 12",
             "returns the token 32, but the vocabulary has 32 tokens", ""),
            ("def read(self, split, sample): raise KeyError(sample)", "KeyError: ", ""),
        )
        for body, *wanted in cases:
            with self.subTest(body):
                _, err = self.run_script(CORPUS, f"class Wrong(Numbers):\n    {body}\n",
                                         "sys.exit(app_of(Wrong(), fresh=True).run(check=False).status)", status=1)
                lines = [line for line in err.splitlines() if "error: " in line]
                self.assertEqual(len(lines), 1, err)
                for text in ("the corpus in Python: read(", *wanted):
                    self.assertIn(text, lines[0])

    def test_of_a_run_are_printed_once(self):
        wrong = """
            class Wrong(Numbers):
                def read(self, split, sample):
                    raise KeyError("no such page")

        """
        _, err = self.run_script(CORPUS, wrong, "sys.exit(app_of(Wrong(), fresh=True).run(check=False).status)", status=1)
        (line,) = [line for line in err.splitlines() if "no such page" in line]
        self.assertRegex(line, r'error: 16 samples cannot be read and data.max_bad_samples = 0: the corpus in Python: '
                               r"""read\("train", \d+\): KeyError: 'no such page' \(script.py:\d+\); and 15 more$""")
        _, err = self.run_script(CORPUS, wrong, "app_of(Wrong(), fresh=True).run()", status=1)
        lines = [line for line in err.splitlines() if "no such page" in line]
        self.assertEqual([line.split(":")[0] for line in lines[1:]],
                         ['    raise KeyError("no such page")', "KeyError", "maestro.RunFailed"], err)
        self.assertIn("error: 16 samples", lines[0])

    def test_of_a_corpus_are_the_cause_with_their_traceback(self):
        same, frames, later = self.answer(CORPUS, """
            import traceback
            raised = []

            class Wrong(Numbers):
                def page(self, sample):
                    raised.append(KeyError(sample))
                    raise raised[-1]

                def read(self, split, sample):
                    return self.page(sample)

            def failure_of(corpus, **options):
                try:
                    app_of(corpus, fresh=True, **options).run()
                except maestro.RunFailed as failure:
                    return failure

            cause = failure_of(Wrong()).__cause__
            frames = [frame.name for frame in traceback.extract_tb(cause.__traceback__)]

            class Late(Numbers):
                def read(self, split, sample):
                    return [32] * 12

            print(json.dumps([cause is raised[0], frames, repr(failure_of(Late()).__cause__)]))
        """)
        self.assertTrue(same)
        self.assertEqual(frames, ["read", "page"])
        self.assertEqual(later, "None", "an error without an exception has no cause, even after a run with an exception")

    EDGES = """
        import maestro, sys
        job = {"train": {"steps": 2, "global_batch": 16, "out": "out"}, "data": {"kind": "synthetic", "sequence": 16},
               "trunk": {"width": 32, "heads": 2, "positions": 16, "layers": 1, "vocabulary": 300},
               "head": {"width": 16, "vocabulary": 300}, "lm": {"width": 16, "heads": 2, "layers": 1}}
        app = maestro.App(job)
        data, trunk = app.source("corpus"), app.section("trunk", "decoder_trunk")
        head, lm = app.section("head", "language_model_head"), app.section("lm", "decoder_lm")
    """

    def test_of_edges_are_raised_where_they_are_connected(self):
        cases = (
            ('data.port("token"), trunk.port("tokens")', "section 'corpus' has no output port 'token'; did you mean 'tokens'?"),
            ('data.port("targets"), head.port("target")', "section 'head' has no input port 'target'; did you mean 'targets'?"),
            ('trunk.port("tokens"), data.port("tokens")', "section 'trunk' has no output port 'tokens', but an input with this "
                                                          "name; an edge goes from an output to an input"),
            ('data.port("targets"), head.port("hidden")', "ports do not fit: corpus.targets (i32, 1 column) -> head.hidden "
                                                          "(fp32, 16 columns)"),
            ('trunk.port("hidden"), head.port("hidden")', "ports do not fit: trunk.hidden (fp32, 32 columns) -> head.hidden "
                                                          "(fp32, 16 columns)"),
            ('maestro.App(job).section("truck", "decoder_trunk").port("hidden"), head.port("hidden")',
             "this app has no section 'truck'; did you mean 'trunk'?"),
        )
        for ports, wanted in cases:
            with self.subTest(ports):
                _, err = self.run_script(self.EDGES, f"app.connect({ports})", status=1)
                self.assertIn("JobError: " + wanted, err.splitlines()[-1])
                self.assertIn("    app.connect(", err)

    def test_of_a_second_edge_to_an_input_name_both(self):
        _, err = self.run_script(self.EDGES, """
            app.connect(data.port("tokens"), lm.port("tokens"))
            app.connect(data.port("targets"), lm.port("tokens"))
        """, status=1)
        self.assertTrue(err.splitlines()[-1].endswith(
            "input lm.tokens is connected twice, to corpus.tokens and corpus.targets"), err)

    def test_of_keys_that_follow_are_not_raised_by_an_edge(self):
        last = self.answer("""
            import json, maestro
            job = {"train": {"steps": 2, "global_batch": 16, "out": "out"}, "data": {"kind": "synthetic", "sequence": 16},
                   "head": {"vocabulary": 300}, "trunk": {"heads": 2, "positions": 16, "layers": 1, "vocabulary": 300}}
            app = maestro.App(job)
            data, trunk = app.source("corpus"), app.section("trunk", "decoder_trunk")
            head = app.section("head", "language_model_head")
            app.connect(data.port("tokens"), trunk.port("tokens"))
            app.connect(data.port("targets"), head.port("targets"))
            trunk.width = head.width = 24
            app.connect(trunk.port("hidden"), head.port("hidden"))
            print(json.dumps(app.run().last_step))
        """)
        self.assertEqual(last, 2)

    def test_of_a_run_raise_with_the_result(self):
        found = self.answer(CORPUS, """
            class Wrong(Numbers):
                def read(self, split, sample):
                    raise KeyError(sample)

            try:
                app_of(Wrong(), fresh=True).run()
                print("returned")
            except maestro.RunFailed as failure:
                print(json.dumps([str(failure), failure.result.status, failure.result.error]))
        """)
        self.assertIn("the corpus in Python: read(", found[0])
        self.assertEqual(found[1:], [1, found[0]])


class Signals(PythonPackageTest):
    def test_end_the_run_in_order_and_are_the_interpreters_again_afterwards(self):
        script = self.script(CORPUS, """
            import os, signal
            long = maestro.App({"name": "long", "train": {"steps": 10**6, "global_batch": 16, "out": "long"},
                                "model": {"layers": 1, "width": 32, "heads": 2, "positions": 16, "micro_batch": 4}})
            data = long.source("corpus", Numbers())
            model = long.section("model", "decoder_lm")
            long.connect(data.port("tokens"), model.port("tokens"))
            long.connect(data.port("targets"), model.port("targets"))
            result = long.run()
            try:
                os.kill(os.getpid(), signal.SIGINT)
                caught = False
            except KeyboardInterrupt:
                caught = True
            print(json.dumps([result.interrupted, bool(result.resume), caught]))
        """)
        process = self.begin(script)
        seen = ""
        while "step " not in seen:
            line = process.stderr.readline()
            self.assertTrue(line, seen)
            seen += line
        process.send_signal(signal.SIGINT)
        out, _ = self.finish(process)
        self.assertEqual(json.loads(out.splitlines()[-1]), [True, True, True])


if __name__ == "__main__":
    unittest.main(verbosity=2)
