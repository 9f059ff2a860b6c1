#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same job under every layout of its sections: the losses and gradient norms of a single device, and no hang.

A layout is (replicas, tensor, pipeline, context). Sizes are chosen so that rows and vocabulary are cut unevenly.
"""

import itertools
import math
import unittest

import vlm_test
from maestro_program import SystemTest

DEGREES = ("replicas", "tensor", "pipeline", "context")
LAYOUTS = list(itertools.product((1, 2, 3), (1, 2), (1, 2), (1, 2)))
STEPS = 10
VOCABULARY = 61  # two tensor ranks have 30 and 31 rows
FIGURES = ("loss", "ce", "kl", "teacher_ce", "grad_norm")
# fp32 sums over ranks, replicas and context parts round in another order, 6e-8 each; the steps amplify it to 1e-6.
TOLERANCE = 1e-5


def laid_out(section, layout):
    return {**section, **dict(zip(DEGREES, layout))}


def devices_of(layout):
    return math.prod(layout)


def gpt2(**changes):
    return {"family": "gpt2", "layers": 3, "width": 32, "heads": 8, "positions": 32, "vocabulary": VOCABULARY,
            "micro_batch": 3, "replicas": 1, **changes}


def llama(**changes):
    """Returns a llama with grouped-query attention."""
    return {"family": "llama", "layers": 3, "width": 32, "heads": 8, "kv_heads": 4, "ffn": 72, "positions": 32,
            "vocabulary": VOCABULARY, "tied": False, "micro_batch": 3, "replicas": 1, **changes}


def figures_of(finished):
    """Returns {(section, step or "validation"): figures} with the figures that the section has."""
    rows = finished.curve(*FIGURES)
    for section, values in finished.report["validation"]["sections"].items():
        rows[section, "validation"] = [values.get(name) for name in FIGURES]
    return {key: [value for value in values if value is not None] for key, values in rows.items()}


FAMILIES = {"gpt2": gpt2, "llama": llama}
LEARNS = {"lr": 1e-3}


def job_of(app, train=None, **sections):
    """Returns a job with 8 samples of 19 tokens a step: micro-batches have 3, 3 and 2 samples, so 57 or 38 rows."""
    return {
        "name": "layouts",
        "app": app,
        "train": {"steps": STEPS, "global_batch": 8, "validation_samples": 4, "checkpoint_at_end": False, "out": "out",
                  **(train or {})},
        "data": {"kind": "synthetic", "sequence": 19, "vocabulary": VOCABULARY},
        **sections,
    }


def distillation(family, train=None, teacher=None, student=None):
    other = "llama" if family == "gpt2" else "gpt2"
    return job_of("distillation", train, teacher=FAMILIES[other](**{"weights": "random", **(teacher or {})}),
                  student=FAMILIES[family](**LEARNS, **(student or {})))


class Layouts(SystemTest):
    def one_device(self, job):
        finished = self.train(job)
        steps = job["train"]["steps"]
        self.assertEqual({row["step"] for row in finished.report["steps"]}, set(range(1, steps + 1)))
        return finished

    def run_laid_out(self, job, layouts, *options, devices=None, **keywords):
        """Trains with the given `layouts` by section name, on as many devices as they need."""
        changed = {**job, **{name: laid_out(job[name], layout) for name, layout in layouts.items()}}
        devices = devices or sum(devices_of(layout) for layout in layouts.values()) + 3
        return self.train(changed, "--cpu-devices", devices, *options, **keywords)

    def assert_same(self, expected, finished, tolerance=TOLERANCE):
        self.assert_close(figures_of(expected), figures_of(finished), tolerance)

    def check(self, job, cases, *options, tolerance=TOLERANCE, **keywords):
        expected = self.one_device(job)
        for layouts in cases:
            with self.subTest(**layouts):
                self.assert_same(expected, self.run_laid_out(job, layouts, *options, **keywords), tolerance)


class EveryLayout(Layouts):
    def check_matrix(self, family, teacher_of, devices_for):
        job = distillation(family)
        expected = self.one_device(job)
        for at, layout in enumerate(LAYOUTS):
            teacher = LAYOUTS[teacher_of(at) % len(LAYOUTS)]
            self.assertNotEqual(teacher, layout)
            with self.subTest(dict(zip(DEGREES, layout)), teacher=teacher):
                finished = self.run_laid_out(job, {"teacher": teacher, "student": layout},
                                             devices=devices_for(teacher, layout))
                self.assert_same(expected, finished)

    def test_of_a_gpt2_student_beside_a_llama_teacher_trains_as_one_device(self):
        self.check_matrix("gpt2", lambda at: 23 - at, lambda *both: sum(map(devices_of, both)))

    def test_of_a_llama_student_on_the_devices_of_its_gpt2_teacher_trains_as_one_device(self):
        self.check_matrix("llama", lambda at: 7 * at + 5, lambda *both: max(map(devices_of, both)))


class AnApp(Layouts):
    """Layouts beyond two parts, and layouts with other features: heads of models, boundaries, batches, plans."""

    def test_cut_in_three_and_four_parts_trains_as_one_device(self):
        wide = {"width": 48, "heads": 12, "layers": 4}
        job = distillation("llama", teacher=wide, student={**wide, "kv_heads": 12})
        self.check(job, [{"student": (1, 4, 1, 1), "teacher": (1, 1, 4, 1)},
                         {"student": (1, 1, 1, 4), "teacher": (2, 3, 1, 1)},
                         {"student": (1, 3, 4, 1), "teacher": (1, 1, 1, 6)},
                         {"student": (2, 2, 3, 3), "teacher": (4, 1, 1, 1)},
                         {"student": (1, 3, 1, 2), "teacher": (1, 2, 2, 3)}])

    def test_whose_context_ranks_divide_the_queries_of_nine_heads_trains_as_one_device(self):
        nine = {"width": 36, "heads": 9, "positions": 150}
        job = distillation("llama", {"steps": 4}, teacher=nine, student={**nine, "kv_heads": 3})
        job["data"]["sequence"] = 150  # three tiles of a sample's rows
        self.check(job, [{"student": (1, 1, 1, 2), "teacher": (1, 1, 1, 4)},
                         {"student": (1, 3, 1, 2), "teacher": (2, 1, 1, 5)},
                         {"student": (2, 1, 2, 6), "teacher": (1, 1, 1, 1)}])
        layouts = {"student": (1, 1, 1, 2), "teacher": (1, 1, 1, 4)}
        first, second = (self.run_laid_out(job, layouts, "--processes", count) for count in (1, 2))
        self.assertEqual(first.curve(*FIGURES), second.curve(*FIGURES))

    def test_with_more_parts_than_a_micro_batch_has_rows_trains_as_one_device(self):
        job = distillation("gpt2", train={"global_batch": 4}, student={"micro_batch": 1}, teacher={"kv_heads": 8})
        job["data"]["sequence"] = 3  # eight ranks: five are without rows
        self.check(job, [{"student": (1, 2, 1, 4), "teacher": (1, 4, 1, 2)},
                         {"student": (2, 8, 1, 1), "teacher": (1, 1, 1, 8)},
                         {"student": (1, 1, 2, 8), "teacher": (3, 1, 3, 1)}])

    def test_of_a_language_model_with_tied_and_untied_heads_trains_as_one_device(self):
        for family, tied in itertools.product(FAMILIES, (True, False)):
            with self.subTest(family, tied=tied):
                job = job_of("language_model", teacher=FAMILIES[family](**LEARNS, tied=tied))
                self.check(job, [{"teacher": layout} for layout in ((1, 2, 1, 2), (1, 2, 2, 1), (2, 2, 2, 2))])

    def split(self, **of_head):
        model = gpt2(**LEARNS, tied=False)
        return job_of("split_language_model", {"clip": "global"}, trunk=model, head={**model, **of_head})

    def test_split_in_two_sections_of_different_layouts_trains_as_one_device(self):
        cases = [{"trunk": (1, 2, 2, 1), "head": (2, 1, 1, 2)}, {"trunk": (3, 1, 1, 2), "head": (1, 2, 1, 1)},
                 {"trunk": (2, 2, 1, 2), "head": (3, 2, 1, 2)}, {"trunk": (1, 1, 2, 2), "head": (1, 2, 1, 2)}]
        self.check(self.split(), cases)
        with self.subTest("the head is frozen and passes the gradient on"):
            self.check(self.split(trained=False, weights="random"), cases[:2])

    def test_of_every_boundary_trains_as_one_device(self):
        mixed = [{"student": (2, 1, 1, 2), "teacher": (3, 1, 2, 1)},
                 {"student": (1, 2, 2, 1), "teacher": (1, 2, 1, 2)},
                 {"student": (1, 2, 1, 2), "teacher": (2, 2, 2, 1)}]
        by_rows = [{"student": (1, 2, 2, 2), "teacher": (2, 1, 2, 1)},
                   {"student": (1, 1, 1, 2), "teacher": (1, 2, 1, 2)}]
        for boundary, cases in (({"boundary": "logits"}, mixed), ({"boundary": "top_k", "top_k": 7}, mixed + by_rows)):
            with self.subTest(**boundary):
                self.check(distillation("llama", teacher=boundary, student=boundary), cases)

    def test_of_micro_batches_of_other_sizes_trains_as_one_device(self):
        cases = [{"student": (1, 2, 1, 2), "teacher": (2, 1, 2, 1)}, {"student": (2, 1, 2, 2), "teacher": (1, 2, 1, 2)}]
        for sizes in ((8, 3), (2, 4), (5, 3)):
            with self.subTest(teacher=sizes[0], student=sizes[1]):
                self.check(distillation("gpt2", teacher={"micro_batch": sizes[0]}, student={"micro_batch": sizes[1]}),
                           cases)

    def test_with_a_plain_student_beside_it_trains_as_one_device(self):
        job = {**distillation("llama", {"clip": "global"}), "plain": gpt2(**LEARNS, clip_norm=0.05)}
        job["student"]["clip_norm"] = 0.05  # far below the norms in this job: every step is clipped
        self.check(job, [{"student": (1, 2, 2, 1), "teacher": (1, 1, 1, 2), "plain": (2, 1, 2, 2)},
                         {"student": (2, 1, 1, 2), "teacher": (2, 2, 2, 1), "plain": (1, 2, 1, 1)}])

    def test_under_every_policy_and_over_every_transport_trains_as_one_device(self):
        job = distillation("llama")
        layouts = [{"student": (2, 2, 2, 1), "teacher": (3, 1, 2, 1)},
                   {"student": (1, 2, 1, 2), "teacher": (1, 1, 3, 2)}]
        expected = self.one_device(job)
        plans = {
            "two processes": (2, {}),
            "two processes over tcp": (2, {"transport.provider": "tcp"}),
            "three processes over shm": (3, {"transport.provider": "shm"}),
            "more processes than replicas": (4, {}),
            "forced rma": (1, {"transport.force_rma": True}),
            "small chunks and one slot": (2, {"transport.chunk_kib": 4, "transport.slots": 1, "train.ahead": 1}),
            "arrival": (1, {"schedule.policy": "arrival"}),
            "bulk synchronous": (1, {"schedule.policy": "bulk_synchronous"}),
            "bulk synchronous in two processes": (2, {"schedule.policy": "bulk_synchronous"}),
            "clipped globally": (2, {"train.clip": "global"}),
        }
        for (name, (processes, settings)), case in zip(plans.items(), itertools.cycle(layouts)):
            with self.subTest(name, **case):
                finished = self.run_laid_out(job, case, "--processes", processes, settings=settings)
                self.assert_same(expected, finished)

    def test_in_bf16_trains_nearly_as_one_device(self):
        bf16 = {"precision": "bf16"}
        # Activations are rounded to 8 bits, 4e-3 each, and partial sums once more, at other places than on a single
        # device. Over a micro-batch's tokens such errors mostly cancel in the loss, less so in the gradient norm.
        self.check(distillation("gpt2", teacher=bf16, student=bf16),
                   [{"student": (1, 2, 2, 2), "teacher": (2, 1, 2, 1)},
                    {"student": (2, 2, 1, 1), "teacher": (1, 2, 1, 2)}], tolerance=1e-2)

    def test_repeated_is_bitwise_the_same(self):
        job = distillation("llama")
        cases = [({"student": (2, 2, 2, 2), "teacher": (2, 1, 1, 2)}, ()),
                 ({"student": (2, 2, 2, 2), "teacher": (2, 1, 1, 2)}, ("--processes", 2)),
                 ({"student": (1, 1, 1, 4), "teacher": (1, 4, 1, 1)}, ()),
                 ({"student": (1, 4, 1, 2), "teacher": (1, 1, 1, 4)}, ())]
        for layouts, options in cases:
            with self.subTest(options, **layouts):
                first, second = (self.run_laid_out(job, layouts, *options) for _ in range(2))
                self.assertEqual(first.curve(*FIGURES), second.curve(*FIGURES))


class AVisionLanguageModel(Layouts, vlm_test.VisionLanguageTest):
    """Samples with and without images: some micro-batches of the vision sections are small, and some are empty."""

    def test_cut_in_every_section_trains_as_one_device(self):
        for processes, family in enumerate(FAMILIES, 1):
            job = vlm_test.vision_language()
            for name in vlm_test.SECTIONS:
                del job[name]["devices"]
            job["vision"] |= {"layers": 2, "heads": 4}
            job["llm"] |= {"family": family, "layers": 2, "heads": 4, "tied": family == "gpt2"}
            with self.subTest(family):
                self.check(job, [{"vision": (1, 2, 1, 2), "projector": (1, 1, 1, 2), "llm": (1, 2, 2, 2)},
                                 {"vision": (2, 1, 1, 2), "projector": (2, 2, 1, 1), "llm": (2, 2, 1, 1)},
                                 {"vision": (1, 2, 1, 1), "projector": (1, 2, 1, 2), "llm": (1, 1, 2, 2)}],
                           "--processes", processes)


class SectionsOnTheSameDevices(Layouts):
    REPEATS = 2

    def test_meet_in_collectives_without_a_hang(self):
        job = distillation("gpt2")
        expected = self.one_device(job)
        forward, reverse = ["cpu:0", "cpu:1"], ["cpu:1", "cpu:0"]
        for degree, teacher, student, repeat in itertools.product(
            ("tensor", "context"), (forward, reverse), (forward, reverse), range(self.REPEATS)):
            with self.subTest(degree, teacher=teacher, student=student, repeat=repeat):
                laid = {name: {**job[name], degree: 2, "devices": devices}
                        for name, devices in (("teacher", teacher), ("student", student))}
                self.assert_same(expected, self.train({**job, **laid}, "--cpu-devices", 2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
