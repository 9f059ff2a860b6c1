#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Distillation from vision-language models that see other images than their student, against PyTorch."""

import json
import math
import unittest

from image_teachers import (HERE, IMAGES, ROWS, TEACHERS, edit, floats_of, pattern, rewriting_folder, student_folder, teacher_folder, write_rows,
                            swap_tokens, write_weights)
from maestro_program import SystemTest
from model_folders import tensors

RECORDED = json.loads((HERE / "references/image_teachers.json").read_text())
BETA1 = 0.9


class AnImageTeacher(SystemTest):
    def setUp(self):
        super().setUp()
        write_rows(self.folder / "rows.jsonl")
        student_folder(self.folder / "student")

    def call(self, *arguments, variables=None):
        return super().call(*arguments, variables={"MAESTRO_REPOSITORY": str(HERE.parents[1]), **(variables or {})})

    def job(self, folder, steps=1, boundary="hidden", **student):
        own, other = ({"weights": str(self.folder / name), "micro_batch": 2} for name in ("student", folder))
        if "teacher" not in student:
            student |= {"boundary": boundary}
        return {"name": "test", "app": "distillation",
                "train": {"steps": steps, "global_batch": len(ROWS), "out": "out", "validation_samples": 0},
                "data": {"kind": "chat", "path": "rows.jsonl", "images": str(IMAGES), "processor": own["weights"],
                         "sequence": 512, "validation_fraction": 0.001},
                "vision": {**own, "clip_norm": 0.0, "beta1": BETA1},
                "projector": {**own, "decoder": "student", "clip_norm": 0.0, "beta1": BETA1},
                "student": {**own, "clip_norm": 0.0, "beta1": BETA1, "temperature": 2.0, "alpha": 0.7, **student},
                "teacher_vision": other, "teacher_projector": {**other, "vision": "teacher_vision", "decoder": "teacher"},
                "teacher": {**other, "boundary": boundary}}

    def gradients(self, out="out"):
        """Returns {stored name: floats} of the first step, from its moments."""
        found = {}
        for section in ("vision", "projector", "student"):
            folder = self.folder / out / "checkpoints/step-00000001" / section
            for name, entry in tensors(folder, "optimizer.safetensors").items():
                if not name.startswith("exp_avg."):
                    continue
                name = name.removeprefix("exp_avg.")
                if section == "student":
                    name = name.replace("model.", "model.text_model.", 1)
                found[name if section == "student" else "model." + name] = [value / (1 - BETA1) for value in floats_of(entry)]
        return found

    def assert_recorded(self, level, run):
        expected = RECORDED[level]
        for name in ("loss", "kl", "ce", "teacher_ce"):
            (value,) = run.curve(name)["student", 1]
            self.assertAlmostEqual(value, expected[name], delta=1e-5 * abs(expected[name]), msg=f"{level}: {name}")

    def assert_gradients(self, level):
        gradients = self.gradients()
        self.assertEqual(gradients.keys(), RECORDED[level]["gradients"].keys())
        for stored, (norm, summed) in RECORDED[level]["gradients"].items():
            values = gradients[stored]
            scale = max(norm, 1e-6)  # of keys' biases, which softmax ignores, only noise remains
            self.assertAlmostEqual(math.hypot(*values), norm, delta=1e-4 * scale, msg=f"{level}: {stored}")
            dot = math.fsum(one * other for one, other in zip(values, pattern(len(values)), strict=True))
            self.assertAlmostEqual(dot, summed, delta=1e-4 * scale, msg=f"{level}: {stored}")

    def test_gives_the_losses_and_gradients_of_a_loop_in_pytorch(self):
        for level, make_teacher in TEACHERS.items():
            make_teacher(self.folder / level)
            for boundary in ("hidden", "logits"):
                self.assert_recorded(level, self.train(self.job(level, boundary=boundary)))
            self.assert_gradients(level)

    def test_gives_the_same_losses_under_every_layout(self):
        layouts = {"replicas": ({"student.replicas": 2, "teacher.replicas": 2, "teacher_vision.replicas": 2}, ()),
                   "tensor": ({"student.tensor": 2, "teacher.tensor": 2, "teacher_vision.tensor": 2}, ()),
                   "stages": ({"teacher.pipeline": 2, "teacher.micro_batch": 3}, ()),
                   "processes": ({"teacher_vision.micro_batch_tokens": 100}, ("--processes", 2))}
        for level, make_teacher in TEACHERS.items():
            make_teacher(self.folder / level)
            for boundary in ("hidden", "top_k"):
                alone = self.train(self.job(level, steps=3, boundary=boundary)).curve("loss", "kl")
                for name, (settings, options) in layouts.items():
                    other = self.train(self.job(level, steps=3, boundary=boundary), *options, settings=settings)
                    for place, values in other.curve("loss", "kl").items():
                        for one, expected in zip(values, alone[place], strict=True):
                            if expected is not None:
                                self.assertAlmostEqual(one, expected, delta=1e-5 * abs(expected), msg=f"{level}: {name}")

    def test_with_other_means_and_weights_for_them_is_the_student(self):
        folder = student_folder(self.folder / "shifted")
        means = [0.4, 0.5, 0.7]
        edit(folder / "processor_config.json", lambda content: content["image_processor"].update(image_mean=means))
        values = {name: (entry[1], list(floats_of(entry))) for name, entry in tensors(folder).items()}
        (shape, patch), = [value for name, value in values.items() if name.endswith("patch_embedding.weight")]
        (_, bias), = [value for name, value in values.items() if name.endswith("patch_embedding.bias")]
        size = shape[2] * shape[3]
        for row in range(shape[0]):  # x of the student = x here + (mean here - 0.5) / 0.5
            for channel, mean in enumerate(means):
                first = (3 * row + channel) * size
                bias[row] += (mean - 0.5) / 0.5 * math.fsum(patch[first:first + size])
        write_weights(folder / "model.safetensors", values)
        run = self.train(self.job("shifted"))
        self.assertLess(abs(run.curve("kl")["student", 1][0]), 1e-6)
        same = self.train(self.job("student"))
        self.assertAlmostEqual(run.curve("loss")["student", 1][0], same.curve("loss")["student", 1][0], delta=1e-5)

    def test_is_checked_and_estimated_with_its_own_images(self):
        teacher = teacher_folder(self.folder / "teacher")
        checked = self.call("check", self.write_job(self.job("teacher")))
        self.assertEqual(checked.status, 0, checked.describe())
        text = checked.out + checked.err
        self.assertIn(f"teacher: reads the data's tokens, and images by the image processor of {teacher}", text)
        self.assertNotIn("without a dry pass", text)
        teacher = rewriting_folder(self.folder / "rewriting")
        checked = self.call("check", self.write_job(self.job("rewriting")))
        self.assertEqual(checked.status, 0, checked.describe())
        self.assertIn(f"teacher: reads its own tokens for images, and images by the image processor of {teacher}", checked.out + checked.err)
        self.assertNotIn("without a dry pass", checked.out + checked.err)
        same = self.call("check", self.write_job(self.job("student")))
        self.assertIn("teacher: reads the data's tokens, and images by the data's image processor", same.out + same.err)

    def test_reads_prepared_data_and_mixtures(self):
        prepared = self.call("prepare", "rows.jsonl", "--model", str(self.folder / "student"), "--images", str(IMAGES),
                             "--validation", "0", "--out", "prepared")
        self.assertEqual(prepared.status, 0, prepared.describe())
        for level, make_teacher in TEACHERS.items():
            make_teacher(self.folder / level)
            alone = self.train(self.job(level)).curve("kl")
            job = self.job(level)
            job["data"] = {"kind": "prepared", "path": "prepared", "sequence": 512}
            self.assertEqual(self.train(job).curve("kl"), alone)
            job["data"] = {"kind": "prepared", "sequence": 512, "mix": {"all": {"path": "prepared", "weight": 1}}}
            self.assertEqual(self.train(job).curve("kl"), alone)

    def test_teaches_images_next_to_a_teacher_of_texts(self):
        rewriting_folder(self.folder / "teacher")
        rows = {"seen": [row for row in ROWS if any(image for image, _, _ in row)],
                "read": [row for row in ROWS if not any(image for image, _, _ in row)]}
        for name, part in rows.items():
            write_rows(self.folder / f"{name}.jsonl", part)
            prepared = self.call("prepare", f"{name}.jsonl", "--model", str(self.folder / "student"), "--images", str(IMAGES),
                                 "--validation", "0", "--out", name)
            self.assertEqual(prepared.status, 0, prepared.describe())
        job = self.job("teacher", steps=3, teacher=["teacher", "reader"])
        job["reader"] = {"weights": str(self.folder / "student"), "micro_batch": 2}
        for section in ("vision", "projector", "student"):
            job[section]["lr"] = 0.0
        job["data"] = {"kind": "prepared", "sequence": 512, "mix": {
            "seen": {"path": "seen", "weight": 3, "teachers": ["teacher"]},
            "read": {"path": "read", "weight": 1, "teachers": ["reader"]}}}
        run = self.train(job)
        seen, read = ([values[at] for values in run.curve("kl_teacher", "kl_reader").values() if values[at] is not None]
                      for at in range(2))
        self.assertGreater(min(seen), 1e-3)
        self.assertLess(max(map(abs, read)), 1e-6)  # the reader is the student
        tensor = self.train(job, settings={"student.tensor": 2, "teacher.tensor": 2})
        for place, (one,) in run.curve("kl_teacher").items():
            (other,) = tensor.curve("kl_teacher")[place]
            if one is not None:
                self.assertAlmostEqual(one, other, delta=1e-5 * abs(one))

    def test_goes_on_only_with_the_same_processor(self):
        teacher = teacher_folder(self.folder / "teacher")
        whole = self.train(self.job("teacher", steps=3), settings={"train.out": "whole"})
        self.train(self.job("teacher", steps=2), settings={"train.schedule_steps": 3})
        again = self.train(self.job("teacher", steps=3), "--resume", "out", settings={"train.schedule_steps": 3})
        self.assertEqual(again.curve(), whole.curve(after=2))
        edit(teacher / "processor_config.json", lambda content: content["image_processor"].update(image_mean=[0.1, 0.2, 0.3]))
        refused = self.start(self.job("teacher", steps=4), "--resume", "out").wait()
        self.assertEqual(refused.status, 2, refused.describe())
        self.assertIn("other processor", refused.err)

    def test_that_does_not_fit_is_refused_by_name(self):
        teacher_folder(self.folder / "first")
        second = teacher_folder(self.folder / "second")
        edit(second / "processor_config.json", lambda content: content["image_processor"].update(image_mean=[0.1, 0.2, 0.3]))
        job = self.job("first", teacher=["teacher", "tutor"])
        other = {**job["teacher"], "weights": str(second)}
        job |= {"tutor_vision": other, "tutor_projector": {**other, "vision": "tutor_vision", "decoder": "tutor"}, "tutor": other}
        self.assert_refused(
            f"[teacher] and [tutor] both have another image processor than the data, {self.folder / 'first'} and {second}; "
            f"only one may differ from that of the data, {self.folder / 'student'}", "check", self.write_job(job))
        longer = rewriting_folder(self.folder / "longer")
        for section in ("teacher", "student"):
            self.assert_refused(f"{section}.context = 2: ", "check", self.write_job(self.job("longer")), "--set",
                                f"{section}.context=2")
        edit(longer / "config.json", lambda content: content["text_config"].update(max_position_embeddings=100))
        self.assert_refused(f" for {longer}, which has 100 positions; lower data.sequence", "check",
                            self.write_job(self.job("longer")))
        ended = teacher_folder(self.folder / "ended")
        swap_tokens(ended, "<end_of_utterance>", "<row_6_col_6>")
        self.assert_refused(
            f"answer token 703 (<end_of_utterance>) is 739 (<end_of_utterance>) in {ended}; teacher and student need the same "
            "ids in answers", "check", self.write_job(self.job("ended")))
        foreign = teacher_folder(self.folder / "foreign")

        def swap_words(content):
            words = content["model"]["vocab"]
            one, other = (word for word, at in words.items() if at in (300, 301))
            words[one], words[other] = words[other], words[one]

        edit(foreign / "tokenizer.json", swap_words)
        self.assert_refused(f"{foreign} has another tokenizer than the data: token 300 is ", "check",
                            self.write_job(self.job("foreign")))


if __name__ == "__main__":
    unittest.main()
