#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sections with replicas of several contexts: the losses and gradient norms of a single device, the same bits in every
run, and checkpoints that any other layout takes. Unlike replicas exchange gradients by their first context parts
(RX-2)."""

import unittest
from pathlib import Path

import layouts_test
import vlm_test
import zero_test
from layouts_test import LEARNS, distillation, gpt2, job_of, llama

HALF = layouts_test.STEPS // 2


def mix(*contexts):
    return [{"context": context} for context in contexts]


def devices_of(table):
    replicas = table.get("replicas", 1)
    if isinstance(replicas, int):
        replicas = [{"count": replicas, "context": table.get("context", 1)}]
    return sum(part.get("count", 1) * part["context"] for part in replicas) * table.get("tensor", 1) * table.get("pipeline", 1)


class Mixed(layouts_test.Layouts):
    def run_mixed(self, job, changes, *options, **keywords):
        """Trains with the given keys by section name, on as many devices as the job needs."""
        tables = {name: {**job[name], **keys} for name, keys in changes.items()}
        devices = sum(devices_of(table) for table in tables.values()) + 3
        return self.train({**job, **tables}, "--cpu-devices", devices, *options, **keywords)

    def check_mixed(self, job, cases, *options, **keywords):
        expected = self.one_device(job)
        for changes in cases:
            with self.subTest(**changes):
                self.assert_same(expected, self.run_mixed(job, changes, *options, **keywords))


class ASectionOfUnlikeReplicas(Mixed):
    def test_trains_as_one_device(self):
        for family in layouts_test.FAMILIES:
            self.check_mixed(distillation(family), [
                {"student": {"replicas": [{"context": 4}, {"count": 2, "context": 1}]}},
                {"student": {"replicas": mix(1, 2)}, "teacher": {"replicas": mix(2, 4, 1)}},
                {"student": {"replicas": mix(1, 4), "tensor": 2}, "teacher": {"replicas": 2, "tensor": 2}},
                {"student": {"replicas": mix(2, 1), "pipeline": 2}, "teacher": {"replicas": mix(1, 2), "pipeline": 3}},
                {"student": {"replicas": mix(2, 1), "pipeline": 1, "zero": True}},
            ])

    def test_whose_stages_take_turns_on_their_devices_trains_as_one_device(self):
        model = {"layers": 4}
        job = distillation("gpt2", student=model, teacher={"layers": 4})
        self.check_mixed(job, [{"student": {"replicas": mix(2, 1), "pipeline": 2, "chunks": 2}}])

    def test_with_every_boundary_and_head_trains_as_one_device(self):
        for boundary in ({"boundary": "logits"}, {"boundary": "top_k", "top_k": 7}):
            with self.subTest(**boundary):
                self.check_mixed(distillation("llama", teacher=boundary, student=boundary), [
                    {"student": {"replicas": mix(2, 1)}, "teacher": {"replicas": mix(1, 4)}}])
        for tied in (True, False):
            with self.subTest(tied=tied):
                job = job_of("language_model", teacher=gpt2(**LEARNS, tied=tied))
                self.check_mixed(job, [{"teacher": {"replicas": mix(4, 1, 2)}},
                                       {"teacher": {"replicas": mix(1, 2), "tensor": 2, "pipeline": 2}}])

    def test_in_one_model_with_another_section_trains_as_one_device(self):
        model = gpt2(**LEARNS, tied=False)
        job = job_of("split_language_model", {"clip": "global"}, trunk=model, head=model)
        self.check_mixed(job, [{"trunk": {"replicas": mix(4, 1)}, "head": {"replicas": mix(1, 2, 1)}},
                               {"trunk": {"replicas": 2, "tensor": 2}, "head": {"replicas": mix(2, 1), "tensor": 2}}])

    def test_under_every_policy_and_over_every_transport_trains_as_one_device(self):
        job = distillation("llama")
        changes = {"student": {"replicas": mix(1, 4, 2)}, "teacher": {"replicas": mix(2, 1), "tensor": 2}}
        expected = self.one_device(job)
        plans = {
            "two processes": (2, {}),
            "two processes over tcp": (2, {"transport.provider": "tcp"}),
            "three processes over shm": (3, {"transport.provider": "shm"}),
            "forced rma": (1, {"transport.force_rma": True}),
            "shared optimizer state in two processes": (2, {"student.zero": True}),
            "small chunks and one slot": (2, {"transport.chunk_kib": 4, "transport.slots": 1, "train.ahead": 1}),
            "arrival": (1, {"schedule.policy": "arrival"}),
            "bulk synchronous": (2, {"schedule.policy": "bulk_synchronous"}),
            "clipped globally": (2, {"train.clip": "global"}),
        }
        for name, (processes, settings) in plans.items():
            with self.subTest(name):
                finished = self.run_mixed(job, changes, "--processes", processes, settings=settings)
                self.assert_same(expected, finished)

    def test_has_the_same_bits_in_every_run_in_one_process_and_in_several(self):
        job = distillation("llama", train={"steps": 40})
        for student in ({"replicas": mix(1, 4, 1), "tensor": 2}, {"replicas": mix(4, 1)}):
            changes = {"student": student, "teacher": {"replicas": mix(2, 1)}}
            first = self.run_mixed(job, changes)
            for options in ((), ("--processes", 2), ("--processes", 3)):
                with self.subTest(options, **student):
                    self.assertEqual(first.curve(*layouts_test.FIGURES),
                                     self.run_mixed(job, changes, *options).curve(*layouts_test.FIGURES))

    def test_on_named_devices_and_on_the_devices_of_another_section_trains_as_one_device(self):
        job = distillation("gpt2")
        named = [f"cpu:{at}" for at in (4, 2, 0, 3, 1)]
        self.check_mixed(job, [{"student": {"replicas": mix(1, 4), "devices": named, "processes": [1, 0]},
                                "teacher": {"replicas": 5, "devices": ["student"]}},
                               {"student": {"replicas": mix(1, 2), "pipeline": 2},
                                "teacher": {"replicas": mix(2, 4), "devices": ["student"]}}], "--processes", 2)


class ACheckpointOfUnlikeReplicas(Mixed):
    def checkpoint(self, out, step):
        return f"{out}/checkpoints/step-{step:08}"

    def files_of(self, out):
        folder = self.folder / self.checkpoint(out, layouts_test.STEPS) / "student"
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}

    def test_goes_on_under_another_mix_and_is_the_same_with_shared_optimizer_state(self):
        job = distillation("gpt2", train={"checkpoint_every": HALF, "checkpoint_at_end": True, "keep_checkpoints": 3})
        one = self.train(job, settings={"train.out": "one"})
        changes = {"student": {"replicas": mix(4, 1, 1)}}
        whole = self.run_mixed(job, changes, settings={"train.out": "mixed"})
        self.assert_close(one.curve("loss"), whole.curve("loss"), layouts_test.TOLERANCE)
        sizes = {out: {name: len(content) for name, content in self.files_of(out).items() if "safetensors" in name}
                 for out in ("one", "mixed")}
        self.assertEqual(sizes["one"], sizes["mixed"])
        sharded = self.run_mixed(job, changes, settings={"train.out": "sharded", "student.zero": True})
        self.assertEqual(sharded.curve("loss"), whole.curve("loss"))
        self.assert_close(whole.curve("grad_norm"), sharded.curve("grad_norm"), zero_test.NORM_TOLERANCE)
        self.assertEqual(self.files_of("sharded"), self.files_of("mixed"))
        for at, replicas in enumerate((mix(4, 1, 1), mix(1, 2), 2)):
            with self.subTest(replicas=replicas):
                finished = self.run_mixed(job, {"student": {"replicas": replicas}}, "--resume",
                                          self.checkpoint("mixed", HALF), settings={"train.out": f"rest-{at}"})
                self.assertEqual(finished.report["resumed_from"], HALF)
                tolerance = 0 if at == 0 else layouts_test.TOLERANCE
                self.assert_close(whole.curve("loss", after=HALF), finished.curve("loss"), tolerance)


class AVisionLanguageModel(Mixed, vlm_test.VisionLanguageTest):
    def test_of_unlike_replicas_trains_as_one_device(self):
        job = vlm_test.vision_language()
        for name in vlm_test.SECTIONS:
            del job[name]["devices"]
        job["vision"] |= {"layers": 2, "heads": 4}
        job["llm"] |= {"layers": 2, "heads": 4}
        self.check_mixed(job, [{"vision": {"replicas": mix(1, 2)}, "projector": {"replicas": mix(2, 1)},
                                "llm": {"replicas": mix(4, 1, 1)}}], "--processes", 2)


class AListOfReplicas(Mixed):
    def check_job(self, changes, *options):
        job = distillation("llama", student=changes)
        return self.call("check", self.write_job(job), *options)

    def test_is_shown_by_check(self):
        finished = self.check_job({"replicas": [{"context": 4}, {"count": 2, "context": 1}]}, "--cpu-devices", 7)
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("student: replicas = [{context = 4}, {count = 2, context = 1}] on 6 devices", finished.out)

    def test_is_refused_with_the_nearest_that_is_valid(self):
        cases = [
            ({"replicas": mix(3, 1), "tensor": 3}, "student.tensor = 3: 8 heads cannot be cut in 3"),
            ({"replicas": mix(2, 1), "context": 2}, "leave context out, or set replicas = 2"),
            ({"replicas": [{"contxt": 2}]}, "did you mean"),
            ({"replicas": mix(4, 1), "tensor": 2},
             "needs 10 devices, and there are 4 devices; nearest that fits: replicas = [{count = 2, context = 1}]"),
            ({"replicas": mix(4, 1), "pipeline": 2},
             "needs 10 devices, and there are 4; nearest that fits: replicas = [{count = 2, context = 1}]"),
            ({"replicas": mix(2, 1), "devices": ["teacher"]}, "nearest that fits: replicas = [{context = 1}]"),
        ]
        for changes, wanted in cases:
            with self.subTest(**changes):
                job = distillation("llama", student=changes)
                self.assert_refused(wanted, "check", self.write_job(job), "--cpu-devices", 4)
        generates = {**distillation("llama"), "generator": {"replicas": mix(2, 1)}}
        self.assert_refused("generator.replicas = [{context = 2}, {context = 1}]: a section of this type works on one "
                            "device; use replicas = 2", "check", self.write_job(generates), "--cpu-devices", 8)
        planned = self.write_job(distillation("llama", student={"replicas": mix(2, 1)}))
        for command in ("plan", "profile"):
            self.assert_refused("student.replicas lists replicas that differ in context, and plan keeps replicas that "
                                "are alike; add --vary student.replicas, or set a number", command, planned,
                                "--cpu-devices", 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
