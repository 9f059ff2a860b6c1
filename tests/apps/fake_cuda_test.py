#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Complete jobs on CUDA devices train as on CPUs, and unsupported settings fail with a single line."""

import ctypes
import resource
import unittest

import bad_input_test
import interrupt_test
import vlm_test
from fake_cuda import (BF16_TOLERANCE, DEVICES, FAMILIES, FEW, FP32_TOLERANCE, HALF, LEARNS, ONE, OTHER, OnDevices, STEPS,
                         WithDevices, distillation, gpt2, job_of, language_model, setUpModule, several_devices, split)
from maestro_program import ENDLESS
from layouts_test import figures_of

def has_driver():
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


class ALanguageModel(OnDevices):
    def test_trains_as_on_a_processor(self):
        for family in FAMILIES:
            for precision, tolerance in (("fp32", FP32_TOLERANCE), ("bf16", BF16_TOLERANCE)):
                with self.subTest(family, precision=precision):
                    job = language_model(family, {"steps": STEPS}, precision=precision)
                    self.check(job, {"teacher": [ONE]}, tolerance=tolerance)

    def test_whose_passes_are_replayed_as_graphs_trains_to_the_same_bits(self):
        one, two = {"teacher.devices": [ONE]}, {"teacher.devices": [ONE, OTHER], "teacher.pipeline": 2}
        for settings in (one, two)[:len({ONE, OTHER})]:
            with self.subTest(**settings):
                self.check_graphs(language_model(tied=True, micro_batch=1), settings)

    def test_with_adapters_trains_as_on_a_processor(self):
        changes = {"weights": "random", "lora": {"rank": 3, "alpha": 6}}
        for family in FAMILIES:
            for precision, tolerance in (("fp32", FP32_TOLERANCE), ("bf16", BF16_TOLERANCE)):
                with self.subTest(family, precision=precision):
                    job = language_model(family, {"steps": FEW}, precision=precision, **changes)
                    self.check(job, {"teacher": [ONE]}, tolerance=tolerance)
        self.check_graphs(language_model(micro_batch=1, **changes), {"teacher.devices": [ONE]})

    @several_devices
    def test_of_two_stages_with_one_tied_embedding_trains_as_on_one_processor(self):
        for family in FAMILIES:
            with self.subTest(family):
                self.check(language_model(family, tied=True), {"teacher": [ONE, OTHER]},
                           settings={"teacher.pipeline": 2})

    @several_devices
    def test_reports_the_memory_of_each_device_beside_its_estimate(self):
        finished = self.train_on(language_model("gpt2", {"steps": 2}), {"teacher": [ONE, OTHER]},
                                 settings={"teacher.replicas": 2})
        devices = finished.report["memory"]["devices"]
        self.assertEqual([row["device"] for row in devices], [ONE, OTHER])
        for row in devices:
            self.assertGreater(row["used_mb"], 0)
            self.assertAlmostEqual(row["estimated_mb"] / row["used_mb"], 1, delta=0.5)

    def test_is_checked_without_the_memory_that_it_needs(self):
        """Its memory is measured by dry passes, which compute and write nothing."""
        large = language_model("llama", layers=16, width=2048, heads=16, ffn=8192, vocabulary=32000)  # 3 GB of values
        checked = self.call("check", self.write_job(large), *bad_input_test.options_of({"teacher.devices": [ONE]}))
        self.assertEqual(checked.status, 0, checked.describe())
        self.assertRegex(checked.out, r"teacher: parameters \d+\.\d GB")
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 1 << 20, "KB")

    def test_cut_into_two_sections_returns_its_gradient(self):
        part = gpt2(tied=False, **LEARNS)
        job = job_of("split_language_model", {"clip": "global"}, trunk=part, head=part)
        self.check(job, {"trunk": [ONE], "head": [ONE]})
        self.check(job, {"trunk": [ONE], "head": [OTHER]}, "--processes", 2)
        self.check(job, {"trunk": ["cpu:0"], "head": [ONE]})


class ADistillation(OnDevices):
    SHARES = split({"teacher": {"share": 0.25}, "student": {"share": 0.5}})

    def test_of_two_sections_that_share_a_device_trains_as_on_processors(self):
        for boundary in ({"boundary": "hidden"}, {"boundary": "logits"}, {"boundary": "top_k", "top_k": 7}):
            with self.subTest(**boundary):
                self.check(distillation(teacher=boundary, student=boundary), {"teacher": [ONE], "student": [ONE]},
                           settings=self.SHARES)

    def test_whose_passes_are_replayed_as_graphs_trains_to_the_same_bits(self):
        placed = {"teacher.devices": [ONE], "student.devices": [ONE]}
        self.check_graphs(distillation(), {**placed, **self.SHARES})

    def test_of_a_bf16_student_with_logits_of_either_precision_trains_as_on_processors(self):
        """With an odd vocabulary: bf16 rows have 122 bytes, fp32 rows 244."""
        bf16 = {"boundary": "logits", "precision": "bf16"}
        for teacher in ("fp32", "bf16"):
            with self.subTest(teacher=teacher):
                job = distillation(teacher={**bf16, "precision": teacher}, student=bf16)
                self.check(job, {"teacher": [ONE], "student": [ONE]}, tolerance=BF16_TOLERANCE)

    def test_between_a_device_and_a_processor_trains_as_on_processors(self):
        self.check(distillation(), {"teacher": ["cpu:0"], "student": [ONE]})
        self.check(distillation(), {"teacher": [ONE], "student": ["cpu:0"]})
        self.check(distillation(), {"teacher": [ONE], "student": ["cpu:0"]}, "--processes", 2)


class AGenerator(OnDevices):
    SHARES = split({"teacher": {"share": 0.25}, "student": {"share": 0.25}})

    def job(self, **generator):
        return {**distillation(), "generator": {"max_tokens": 6, "prompt_tokens": 5, **generator}}

    def test_makes_samples_from_which_processors_learn_the_same(self):
        share = {"generator.share": 0.25} if ONE == OTHER else {}
        self.train_on(self.job(record=True), {"teacher": [ONE], "student": [ONE], "generator": [OTHER]},
                      settings={**self.SHARES, **share, "train.out": "made"})
        on_processors = self.train(self.job(), "--rollouts", "made")
        on_devices = self.train_on(self.job(), {"teacher": [ONE], "student": [ONE]}, "--rollouts", "made",
                                   settings=self.SHARES)
        self.assert_same(on_processors, on_devices)

    def test_chooses_the_likeliest_tokens_as_on_a_processor(self):
        placed = {"teacher": ["cpu:0"], "student": ["cpu:1"], "generator": [ONE]}
        job = self.job(temperature=0)
        self.assert_same(self.train(job), self.train_on(job, placed))

    def test_makes_the_same_samples_with_any_slots_and_processes(self):  # GN-2
        placed = {"teacher": ["cpu:0"], "student": ["cpu:1"], "generator": [ONE]}
        for precision in ("fp32", "bf16"):
            with self.subTest(precision=precision):
                expected = figures_of(self.train_on(self.job(slots=1, precision=precision), placed))
                for slots, options in ((3, ()), (4, ("--processes", 2))):
                    job = self.job(slots=slots, precision=precision)
                    self.assertEqual(figures_of(self.train_on(job, placed, *options)), expected)


class ACheckpoint(OnDevices):
    PLACES = {"device": {"student": [ONE], "teacher": [ONE]}, "CPU": {"student": ["cpu:0"], "teacher": ["cpu:0"]}}

    def run_of(self, place, out, *options):
        job = distillation({"out": out, "checkpoint_every": HALF, "keep_checkpoints": 3})
        return self.train_on(job, self.PLACES[place], *options)

    def test_of_a_device_is_resumed_there_bitwise_and_elsewhere_nearly(self):
        wholes = {place: self.run_of(place, place).curve(after=HALF) for place in self.PLACES}
        self.assertEqual(len(wholes["device"]), FEW - HALF)
        for made in self.PLACES:
            for resumed in self.PLACES:
                with self.subTest(made=made, resumed=resumed):
                    half = f"{made}/checkpoints/step-{HALF:08}"
                    finished = self.run_of(resumed, f"{made} to {resumed}", "--resume", half)
                    self.assertEqual(finished.report["resumed_from"], HALF)
                    tolerance = 0.0 if made == resumed else FP32_TOLERANCE
                    self.assert_close(wholes[made], finished.curve(), tolerance)


@several_devices
class CtrlC(WithDevices, interrupt_test.Interrupted):
    def job(self):
        job = language_model(train={"steps": ENDLESS, "checkpoint_at_end": True}, schedule="constant")
        job["teacher"] |= {"replicas": 2, "devices": [ONE, OTHER]}
        return job

    def test_writes_a_checkpoint_from_which_one_process_goes_on_bitwise(self):
        self.check_resumable(1)

    def test_writes_a_checkpoint_from_which_two_processes_go_on_bitwise(self):
        self.check_resumable(2)

    def test_twice_leaves_two_processes_at_once(self):
        self.assertEqual(self.leave_at_once(2, "shm").status, 130)

    def test_twice_leaves_one_process_at_once(self):
        self.assertIn(self.leave_at_once(1, "auto").status, (130, 0))


class AVisionLanguageModel(WithDevices, vlm_test.VisionLanguageTest):
    def job(self):
        job = vlm_test.vision_language(steps=FEW, validation_samples=8)
        job["vision"]["heads"] = 1  # head size 16, the smallest supported
        for section in vlm_test.SECTIONS:
            job[section]["lr"] = 3e-3
        return job

    def write_questions(self):
        """Writes samples with and without images; three of four answers are equal and are learnt first."""
        answers = "rrrb"
        pictures = [vlm_test.sample(f"picture{i}", "Which?", answers[i % 4], ("red.png", "blue.png")[i % 4 == 3])
                    for i in range(16)]
        text = [vlm_test.sample(f"text{i}", "Which?", answers[i % 4]) for i in range(8)]
        self.write_data("mixed.json", pictures + text)

    def test_learns_and_answers_as_on_processors(self):
        self.write_questions()
        curves = []
        for devices, cut in ((["cpu:0"], {}), ([ONE], {}), ([ONE, OTHER], {"tensor": 2}), ([ONE, OTHER], {"context": 2})):
            if len(devices) > len(set(devices)):
                continue
            settings = {f"{section}.devices": devices[:1] for section in vlm_test.SECTIONS}
            settings |= {"llm.devices": devices, **{f"llm.{key}": degree for key, degree in cut.items()}}
            # Calls of these sections depend on the input: the replayed graph must match it.
            finished = self.train(self.job(), settings={**settings, "train.cuda_graphs": "always"})
            used = {device for lane in finished.report["plan"]["lanes"] for device in lane["devices"]}
            self.assertEqual(used, {"host", *devices})
            self.assertEqual(self.sections_with_steps(finished), set(vlm_test.SECTIONS))
            validation = finished.report["validation"]
            curves.append({**figures_of(finished), "answers": [validation["exact_match"]]})
        self.assertGreater(curves[0]["answers"][0], 0.0)
        for curve in curves[1:]:
            self.assert_close(curves[0], curve, FP32_TOLERANCE)


class WrongInput(WithDevices, bad_input_test.Refusals):
    def refuse_model(self, *wanted, **changes):
        with self.subTest(**changes):
            self.refuse_job(language_model(**changes), "teacher", *wanted)

    def test_a_device_that_is_not_there_is_refused(self):
        there = ONE if ONE == OTHER else f"{ONE} to {DEVICES[-1]}"
        self.refuse_model('"cuda:9"', there, devices=["cuda:9"])
        for name in ("cuda:", "cuda:x", "cuda:-1", f"cuda:{2 ** 64}"):
            self.refuse_model(f'"{name}"', "cuda:K", devices=[name])

    def test_a_device_of_two_replicas_is_refused_as_a_core_is(self):
        self.refuse_model("teacher.devices", f'"{ONE}"', "twice", devices=[ONE, ONE], replicas=2)

    def test_shares_that_cannot_be_had_are_refused(self):
        for share in (0, -1, 1.5):
            self.refuse_model("teacher.share", "greater than 0 and at most 1", devices=[ONE], share=share)
        self.refuse_model("teacher.share", "CUDA device", devices=["cpu:0"], share=0.5)
        self.refuse_model("teacher.share", "CUDA device", share=0.5)
        both = {"teacher": {"devices": [ONE], "share": 0.75}, "student": {"devices": [ONE], "share": 0.5}}
        self.refuse_job(distillation(), "teacher.share + student.share = 1.25", ONE, "at most 1", settings=split(both))

    @several_devices
    def test_shares_of_several_devices_are_added_up_for_each(self):
        apart = {"teacher": {"devices": [ONE], "share": 0.75}, "student": {"devices": [OTHER], "share": 0.5}}
        name = self.write_job(distillation())
        checked = self.call("check", name, *bad_input_test.options_of(split(apart)))
        self.assertEqual(checked.status, 0, checked.describe())

    def test_a_replica_cut_over_a_device_and_a_core_is_refused(self):
        for degree in ("tensor", "context"):
            self.refuse_model("teacher.devices: the ranks of replica 0", f"{ONE} and cpu:0", "GPUs for all",
                              devices=[ONE, "cpu:0"], **{degree: 2})

    def test_a_size_of_heads_that_no_kernel_has_is_refused(self):
        self.refuse_model("teacher: ", "head size 8", "the nearest is 16", devices=[ONE], heads=4)

    def test_a_library_that_is_not_there_is_named(self):
        self.use_library("/nowhere")
        self.refuse_model(f'"{ONE}"', "/nowhere: cannot open", devices=[ONE])

    def test_without_a_driver_the_reason_is_told(self):
        if has_driver():
            self.skipTest("this machine has a driver")
        self.use_library("")
        self.refuse_model(f'"{ONE}"', "no NVIDIA driver: libcuda.so.1 cannot be opened", devices=[ONE])

    def test_jobs_of_processors_need_no_library(self):
        self.use_library("/nowhere")
        self.train(language_model(train={"steps": 1}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
