#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sections that Python computes in the process of a run."""

import json
import os
import shutil
import subprocess
import sys
import unittest

from python_module_test import CORPUS, PACKAGE, REPOSITORY, PythonPackageTest

# A Python that has torch; else the tests of PyTorch modules are skipped.
TORCH = os.environ.get("MAESTRO_TORCH_PYTHON", sys.executable)


def has_torch():
    return subprocess.run([TORCH, "-c", "import torch"], capture_output=True, check=False).returncode == 0


HEADS = f"""
    import sys
    sys.path.insert(0, {str(REPOSITORY / "tests/apps/python")!r})

    def head_app(corpus, head, replicas=1, trunk=True, steps=8, settings=None, train=None, **options):
        job = {{"name": "head", "train": {{"steps": steps, "schedule_steps": 8, "global_batch": 8, "validate_every": 4, "validation_samples": 4,
                                           "checkpoint_every": 4, "out": "out", **(train or {{}})}},
               "trunk": {{"layers": 1, "width": 8, "heads": 2, "positions": 16, "vocabulary": 32, "micro_batch": 4}},
               "head": {{"width": 8, "micro_batch": 2, "replicas": replicas, "lr": 1e-2, **(settings or {{}})}}}}
        app = maestro.App(job, **options)
        data = app.source("corpus", corpus)
        body = app.section("trunk", "decoder_trunk")
        if trunk:
            body.lr = 1e-2
        else:
            body.forward_only().weights = "random"
        tail = app.section("head", head)
        app.connect(data.port("tokens"), body.port("tokens"))
        app.connect(body.port("hidden"), tail.port("hidden"))
        app.connect(data.port("targets"), tail.port("targets"))
        return app

    def losses(result):
        return [row["sections"]["head"]["loss"] for row in maestro.read_steps(result.record)]
"""
PURE = "from pure_head import PureHead as Head\n"


@unittest.skipUnless(PACKAGE, "the Python package is not built: nanobind or Python.h is missing")
class HeadTest(PythonPackageTest):
    HEAD = PURE

    def answer(self, *parts):
        return super().answer(CORPUS, HEADS, self.HEAD, *parts)

    def refusal(self, *parts, status=1):
        _, err = self.run_script(CORPUS, HEADS, self.HEAD, *parts, status=status)
        return err


class SectionInPython(HeadTest):
    def test_trains_alike_with_replicas_and_in_two_processes(self):  # YS-1
        found = [self.answer(f"""
            result = head_app(Numbers(), Head, {replicas}, processes={processes}, fresh=True).run()
            print(json.dumps([losses(result), result.validation["head"]["loss"]]))
        """) for replicas, processes in ((1, 1), (2, 1), (2, 2))]
        losses, validation = found[0]
        self.assertEqual(len(losses), 8)
        self.assertLess(losses[-1], losses[0] - 0.1)
        for others, other_validation in found[1:]:
            for one, other in zip(losses, others):
                self.assertAlmostEqual(one, other, delta=2e-5)
            self.assertAlmostEqual(validation, other_validation, delta=2e-5)

    def test_goes_on_from_a_checkpoint_with_equal_losses(self):  # YS-1
        whole, resumed = self.answer("""
            whole = losses(head_app(Numbers(), Head, fresh=True, settings={"micro_batch": 4}).run())
            app = head_app(Numbers(), Head, fresh=True, settings={"micro_batch": 4}, steps=4)
            app.run()
            app = head_app(Numbers(), Head, resume="out", settings={"micro_batch": 4})
            print(json.dumps([whole, losses(app.run())]))
        """)
        self.assertEqual(whole, resumed)

    def test_passes_gradients_to_the_section_before_it(self):
        moved = self.answer("""
            found = []
            for trunk in (True, False):
                result = head_app(Numbers(), Head, trunk=trunk, fresh=True).run()
                found.append(losses(result))
            print(json.dumps(found))
        """)
        self.assertEqual(moved[0][0], moved[1][0], "one step changes neither trunk")
        self.assertNotEqual(moved[0][-1], moved[1][-1])

    def test_exports_its_parameters(self):
        names = self.answer("""
            result = head_app(Numbers(), Head, fresh=True).run()
            import pathlib
            folder = pathlib.Path(result.models["head"])
            header = next(folder.glob("*.safetensors")).read_bytes()
            length = int.from_bytes(header[:8], "little")
            entries = json.loads(header[8:8 + length])
            print(json.dumps({name: each["shape"] for name, each in entries.items() if name != "__metadata__"}))
        """)
        self.assertEqual(names, {"weight": [32, 8]})

    def test_keys_that_its_constructor_does_not_take_are_refused(self):
        err = self.refusal("head_app(Numbers(), Head, settings={'widht': 8}).run()")
        self.assertRegex(err.splitlines()[-1], r"JobError: .*head.widht")


class Failures(HeadTest):
    def failing(self, body, processes=1):
        return self.refusal(f"""
            import pure_head
            class Wrong(pure_head.Replica):
                {body}
            class Head:
                def __init__(self, width: int): pass
                @staticmethod
                def maestro_open(settings):
                    return lambda name, seed, trained: Wrong(settings["width"], 32)
            head_app(Numbers(), Head, fresh=True, processes={processes}).run()
        """)

    def test_arrive_with_traceback_section_and_step(self):  # YS-3
        err = self.failing("def forward(self, *given): raise KeyError('no such layer')")
        for wanted in ("Traceback (most recent call last)", "KeyError: 'no such layer'", "section 'head' replica 0",
                       "step 1", "micro-batch 0", "script.py"):
            self.assertIn(wanted, err)

    def test_are_the_cause_of_a_line_with_their_traceback(self):  # YS-3
        error, same, frames = self.answer("""
            import pure_head, traceback
            raised = []
            class Wrong(pure_head.Replica):
                def forward(self, *given):
                    raised.append(KeyError("no such layer"))
                    raise raised[-1]
            class Head:
                def __init__(self, width: int): pass
                @staticmethod
                def maestro_open(settings):
                    return lambda name, seed, trained: Wrong(settings["width"], 32)
            try:
                head_app(Numbers(), Head, fresh=True).run()
            except maestro.RunFailed as failure:
                frames = traceback.extract_tb(failure.__cause__.__traceback__)
                print(json.dumps([str(failure), failure.__cause__ is raised[0], [frame.name for frame in frames]]))
        """)
        self.assertRegex(error, r"^section 'head' replica 0, step 1: KeyError: 'no such layer' \(script.py:\d+\) \(micro-batch 0, ")
        self.assertEqual((len(error.splitlines()), same, frames), (1, True, ["forward"]))

    def test_in_several_processes_arrive_with_the_traceback(self):  # YS-3
        err = self.failing("def forward(self, *given): raise KeyError('no such layer')", processes=2)
        (line,) = [line for line in err.splitlines() if "no such layer" in line]
        self.assertRegex(line, r"error: section 'head' replica 0, step 1: Traceback .*script.py.*KeyError: 'no such layer'")

    def test_of_ports_are_raised_where_they_are_connected(self):
        err = self.failing("""
                def __init__(self, *given):
                    super().__init__(*given)
                    self.inputs = [("hiden", "fp32", 8, True, "tokens"), ("targets", "i32", 1, False, "tokens")]
        """)
        self.assertIn("JobError: section 'head' has no input port 'hidden'; did you mean 'hiden'?", err.splitlines()[-1])
        self.assertIn('    app.connect(body.port("hidden"), tail.port("hidden"))', err)

    def test_of_a_backward_pass_arrive_as_well(self):  # YS-3
        err = self.failing("def backward(self, *given): raise ZeroDivisionError('scale')")
        for wanted in ("ZeroDivisionError: scale", "section 'head' replica 0", "backward"):
            self.assertIn(wanted, err)

    def test_of_outputs_name_the_port(self):  # YS-2
        err = self.failing("""
                def __init__(self, *given):
                    super().__init__(*given)
                    self.outputs = [("logits", "fp32", 5, True, "tokens")]
                def forward(self, *given):
                    return {}, [("loss", 1.0, 1.0)]
        """)
        self.assertIn("forward() returns nothing for the output 'logits'", err)

    def test_of_the_constructor_are_a_line_before_the_run(self):
        err = self.failing("def __init__(self, *given): raise ValueError('no weights')")
        self.assertRegex(err.splitlines()[-1], r"JobError: section 'head' in Python: ValueError: no weights \(script.py:\d+\)")

    def test_without_a_loss_are_named(self):
        err = self.failing("def forward(self, *given): return {}, [('accuracy', 1.0, 1.0)]")
        self.assertIn("the section is trained, but its pass reports no loss", err)


@unittest.skipUnless(PACKAGE and has_torch(), "no torch: name a Python with it in MAESTRO_TORCH_PYTHON")
class TorchTest(HeadTest):
    def begin(self, script, *arguments):
        variables = {**os.environ, "PYTHONPATH": PACKAGE, "XDG_RUNTIME_DIR": str(self.folder)}
        return subprocess.Popen([TORCH, script, *arguments], cwd=self.folder, env=variables, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class TorchModule(TorchTest, SectionInPython):
    HEAD = "from torch_head import TorchHead as Head\n"

    def test_has_the_losses_of_the_same_arithmetic_without_torch(self):
        pure, torch = self.answer("""
            from pure_head import PureHead
            print(json.dumps([losses(head_app(Numbers(), each, fresh=True).run()) for each in (PureHead, Head)]))
        """)
        for one, other in zip(pure, torch):
            self.assertAlmostEqual(one, other, delta=2e-5)

    def test_of_the_documents_trains_in_one_process_and_in_two(self):
        code = (REPOSITORY / "tests/apps/python/torch_section.py").read_text()
        losses = []
        for processes in ("1", "2"):
            out, _ = self.finish(self.begin(self.script(code), processes))
            losses.append(float(out.splitlines()[-1].removeprefix("loss ")))
        self.assertLess(losses[0], 1, "3.47 is that of a guess")
        self.assertAlmostEqual(*losses, delta=1e-3)

    def test_of_the_first_section_trains_on_text(self):
        shutil.copy(REPOSITORY / "apps/distill/texts/persuasion.txt", self.folder / "text.txt")
        out, _ = self.finish(self.begin(self.script((REPOSITORY / "tests/apps/python/gated_bigram.py").read_text())))
        self.assertLess(float(out.splitlines()[-1].removeprefix("validation ")), 2.6, "5.55 is the loss of a guess")

    def test_of_another_kind_is_refused_by_name(self):
        for body, wanted in (
                ("def ports(self): return {'hidden': 8}", "port 'hidden' is 8; expected a maestro.Input or maestro.Output"),
                ("def forward(self, hidden): return {}", "has no parameter for the input 'targets'"),
                ("def __init__(self, width: int): raise OSError('no weights')", "OSError: no weights"),
                ("def forward(self, hidden, targets): return {'loss': (1.0, 1)}", "the figure 'loss' has no gradient"),
                ("def forward(self, hidden, targets): return {'los': hidden}", "returns 'los', which is not an output")):
            with self.subTest(body):
                err = self.refusal(f"class Wrong(Head):\n    {body}\nhead_app(Numbers(), Wrong, fresh=True).run()")
                self.assertIn(wanted, err.splitlines()[-1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
