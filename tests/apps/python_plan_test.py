#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""App.plan(): layouts for apps with sections in Python."""

import json
import tomllib
import unittest

from maestro_program import LOADED
from python_module_test import CORPUS, PACKAGE
from python_section_test import HeadTest, TorchTest

SPIN = """
    import time, pure_head

    def spin(seconds):
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass

    class Spinning(pure_head.Replica):
        def forward(self, number, inputs, batch, keep):
            spin(0.003 * len(batch["samples"]))
            self.kept[number] = len(batch["samples"])
            return {}, [("loss", 0.0, 1.0)]

        def backward(self, number, output_gradients, input_gradients):
            spin(0.006 * self.kept.pop(number))
            for into in input_gradients.values():
                memoryview(into).cast("B")[:] = bytes(memoryview(into).nbytes)

    class Spin:
        def __init__(self, width: int): pass
        @staticmethod
        def maestro_open(settings):
            return lambda name, seed, trained: Spinning(settings["width"], 32)
"""


class PlannedApp(HeadTest):
    def test_ranks_layouts_and_runs_in_the_best(self):
        found = self.answer("""
            given = losses(head_app(Numbers(), Head, fresh=True).run())
            app = head_app(Numbers(), Head, fresh=True, cpu_devices=2)
            ranking = app.plan(vary="all", measure_ms=0, top=4)
            best = ranking.best
            best.apply(app)
            result = app.run()
            print(json.dumps([[each.step_ms for each in ranking], [each.samples_per_s for each in ranking], best.settings,
                              best.sections, best.memory, ranking.bound_ms, ranking.alternatives, repr(ranking),
                              losses(result), result.record, given]))
        """)
        steps, rates, settings, sections, memory, bound, alternatives, text, chosen, record, given = found
        self.assertEqual(len(steps), 4)
        for step, rate in zip(steps, rates):
            self.assertGreater(step, 0)
            self.assertAlmostEqual(rate, 8e3 / step)
        self.assertLessEqual(steps[0], 1.01 * min(steps))
        self.assertTrue(0 < bound <= steps[0])
        self.assertEqual(set(sections), {"trunk", "head"})
        self.assertTrue(set(memory) <= {"cpu:0", "cpu:1"} and all(bytes > 0 for bytes in memory.values()), memory)
        self.assertTrue(any(change.startswith("head.micro_batch = ") for change in alternatives), alternatives)
        self.assertRegex(text, r"^head on 2 CPU devices: \d+ layouts of sections")
        self.assertRegex(text, r"\n #  step ms  samples/s  MiB  head .* trunk\n 1  ")
        self.assertRegex(text, r"\nrefused   \d+ layouts, the first: ")
        for key in ("replicas", "micro_batch", "devices"):
            self.assertIn(f"head.{key}", settings)
        start = json.loads((self.folder / record / "events.jsonl").read_text().splitlines()[0])
        job = tomllib.loads(start["job_file"])
        for key, value in settings.items():
            section, name = key.split(".")
            self.assertEqual(job[section][name], value, key)
        self.assertAlmostEqual(job["plan"]["predicted_step_ms"] / steps[0], 1, delta=1e-4)
        for one, other in zip(chosen, given, strict=True):
            self.assertAlmostEqual(one, other, delta=2e-5)

    def test_of_a_plan_is_untouched(self):
        planned, plain = self.answer("""
            found = []
            for planned in (True, False):
                app = head_app(Numbers(), Head, fresh=True)
                if planned:
                    app.plan(vary="head.micro_batch", measure_ms=0)
                found.append(losses(app.run()))
            print(json.dumps(found))
        """)
        self.assertEqual(planned, plain)

    def test_predicts_the_time_of_a_section_and_tries_layouts(self):
        spun_ms = 8 * (3 + 6)  # by the samples of a step
        steps, tried, called, files = self.answer(SPIN, """
            called = []
            app = head_app(Numbers(), Spin, fresh=True, cpu_devices=1, on_step=called.append, settings={"micro_batch": 4})
            ranking = app.plan(measure_ms=0, trials=1, steps=6)
            import pathlib
            print(json.dumps([[each.step_ms for each in ranking], ranking.best.tried_step_ms, len(called),
                              pathlib.Path("out").exists()]))
        """)
        for ms in (*steps, tried):
            self.assertTrue(0.98 * spun_ms < ms < 5 * LOADED * spun_ms, (ms, spun_ms))
        self.assertEqual((called, files), (0, False), "a trial run leaves nothing and calls nobody")

    def test_counts_that_replicas_wait_for_the_interpreter(self):
        steps, text = self.answer(SPIN, """
            app = head_app(Numbers(), Spin, cpu_devices=2, settings={"micro_batch": 4, "replicas": 2})
            ranking = app.plan(measure_ms=0)
            print(json.dumps([[each.step_ms for each in ranking], [each.sections["head"] for each in ranking]]))
        """)
        self.assertIn("2 x m4 cpu:0,1", text)
        self.assertGreater(min(steps), 0.65 * 8 * (3 + 6), "half of it without the interpreter's lock")

    def test_ends_at_an_interrupt_wherever_it_comes(self):
        interrupted, restored = self.answer("""
            import os, signal
            class Interrupting(Numbers):
                lengths = 0
                def length(self, split, sample):
                    self.lengths += 1
                    if self.lengths == 5:
                        os.kill(os.getpid(), signal.SIGINT)
                    return super().length(split, sample)
            corpus = Interrupting()
            app = head_app(corpus, Head)
            try:
                app.plan(vary="all")
            except KeyboardInterrupt:
                print(json.dumps([True, signal.getsignal(signal.SIGINT) is signal.default_int_handler]))
        """)
        self.assertTrue(interrupted and restored)

    def test_keeps_measured_times_in_a_profile(self):
        first, again, measured = self.answer("""
            import contextlib, io, os
            def steps():
                app = head_app(Numbers(), Head, fresh=True, cpu_devices=1)
                return [each.step_ms for each in app.plan(vary="micro_batch", measure_ms=0, profile="profile.json")]
            first = steps()
            operators = {call["op"] for call in json.load(open("profile.json"))["calls"]}
            print(json.dumps([first, steps(), sorted(each.split()[1] for each in operators if each.startswith("forward "))]))
        """)
        self.assertEqual(first, again)
        self.assertEqual(measured, ["head"], "sections that run dry are priced by their operators")


class Refusals(HeadTest):
    def test_name_what_cannot_be_planned(self):
        cases = (
            ("head_app(Numbers(), Head, processes=2).plan()", "App.plan() measures in one process, and this app has 2"),
            ("head_app(Numbers(), Head).plan(top=0)", "App.plan(top=0): expected 1 to 1000"),
            ("head_app(Numbers(), Head).plan(vary='head.micro_bach')", "did you mean head.micro_batch?"),
            ("app = maestro.App({'data': {'kind': 'synthetic'}})\napp.section('far', 'served')\napp.plan()", 'far.type = "served"'),
            ("app = maestro.App({'name': 'empty'})\napp.section('head', Head)\napp.plan()", 'kind = "text" needs data.path'),
            ("class Wide(Head):\n    def __init__(self, width: int, context: int = 8): pass\n"
             "head_app(Numbers(), Wide).plan()", "head.context: App.plan() chooses this key, and Wide takes it as an argument"),
            ("head_app(Numbers(), Head).plan(trials=1, vary='all', devices=64)", "no GPU to plan for"),
        )
        for code, wanted in cases:
            with self.subTest(code):
                last = self.refusal(code).splitlines()[-1]
                self.assertIn("JobError: ", last)
                self.assertIn(wanted, last)
        self.assertIn("unexpected keyword argument 'device'", self.refusal("head_app(Numbers(), Head).plan(device=1)"))

    def test_of_failing_passes_name_the_section_and_have_the_exception(self):
        error, same = self.answer("""
            import pure_head
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
                head_app(Numbers(), Head).plan(vary="all")
            except maestro.JobError as failure:
                print(json.dumps([str(failure), failure.__cause__ in raised]))
        """)
        self.assertRegex(error, r"^head: a measured pass fails: KeyError: 'no such layer' \(script.py:\d+\)$")
        self.assertTrue(same)


class TorchModule(TorchTest):
    HEAD = "from torch_head import TorchHead\n"

    def test_with_dropout_draws_as_without_a_plan(self):
        planned, plain, made = self.answer("""
            import torch
            made = []
            class Head(TorchHead):
                def __init__(self, width: int):
                    super().__init__(width)
                    self.dropout = torch.nn.Dropout(0.5)
                    made.append(self)
                def forward(self, hidden, targets):
                    return super().forward(self.dropout(hidden), targets)
            found = []
            for planned in (True, False):
                app = head_app(Numbers(), Head, fresh=True)
                torch.manual_seed(3)
                before = len(made)
                if planned:
                    ranking = app.plan(vary="all", measure_ms=0)
                    count = len(made) - before
                found.append(losses(app.run()))
            print(json.dumps([*found, count]))
        """)
        self.assertEqual(planned, plain)
        self.assertLess(made, 40, "layouts share the module of which only the shape counts")


if __name__ == "__main__":
    unittest.main(verbosity=2)
