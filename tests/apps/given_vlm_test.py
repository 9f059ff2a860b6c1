#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Given vision-language models: asked about images, trained by `maestro vlm --model`, and written back as one folder."""

import json
import pathlib
import shutil
import unittest

from maestro_program import SystemTest
from model_folders import tensors

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "references/image_text"  # by record_image_answers.py
FOLDERS = HERE.parent / "dataset/references/images"
ROWS = HERE.parent / "dataset/references/image_rows"
FAMILIES = ("smolvlm", "llava", "llava_onevision", "internvl", "gemma3", "paligemma", "qwen2_5_vl", "qwen3_vl")
VISION = ("vision_tower.", "model.vision_model.", "model.vision_tower.", "visual.blocks.", "visual.patch_embed.",
          "model.visual.blocks.", "model.visual.patch_embed.", "model.visual.pos_embed.")
SMALL = ("--set", "train.global_batch=4", "--set", "train.validation_samples=0", "--set", "train.schedule_steps=3")


class AGivenModel(SystemTest):
    def call(self, *arguments, variables=None):
        return super().call(*arguments, variables={"MAESTRO_REPOSITORY": str(HERE.parents[1]), **(variables or {})})

    def folder_of(self, family):
        folder = self.folder / family
        if not folder.exists():
            shutil.copytree(FOLDERS / family, folder, ignore=shutil.ignore_patterns("marked.jinja"))  # of another test
            shutil.copy(RECORDED / family / "model.safetensors", folder)
        return folder

    def vlm(self, family, *arguments, data=ROWS / "list.json", out="runs", steps=3):
        return self.call("vlm", "--model", str(self.folder_of(family)), "--data", str(data), "--out", out, "--steps", str(steps),
                         *SMALL, *arguments)

    def trained(self, family, *arguments, out="runs", **more):
        finished = self.vlm(family, *arguments, out=out, **more)
        self.assertEqual(finished.status, 0, finished.describe())
        return json.loads((self.folder / out / "vlm/report.json").read_text())

    def losses(self, *arguments, family="smolvlm", **more):
        return [row["loss"] for row in self.trained(family, *arguments, **more)["steps"] if row["section"] == "llm"]

    def assert_answers(self, family, folder):
        recorded = json.loads((RECORDED / family / "answers.json").read_text())
        for images, ids in recorded["answers"].items():
            files = [word for name in images.split() for word in ("--image", str(ROWS / "images" / name))]
            asked = self.call("generate", str(folder), *files, "--prompt", recorded["question"], "--max-tokens", "32", "--json")
            self.assertEqual(asked.status, 0, asked.describe())
            self.assertEqual(json.loads(asked.out)["ids"], ids, f"{family}: {images}")

    def test_answers_questions_about_images_as_transformers_does(self):  # GN-1
        for family in FAMILIES:
            self.assert_answers(family, self.folder_of(family))

    def test_comes_out_bit_for_bit_if_nothing_is_learned(self):  # EX-5
        for family in FAMILIES:
            folder = self.folder_of(family)
            self.trained(family, "--train", "vision,projector,llm", *(
                word for name in ("vision", "projector", "llm") for word in ("--set", f"{name}.lr=0.0")), out=f"of-{family}")
            (written,) = (self.folder / f"of-{family}/vlm/models").iterdir()
            self.assertEqual({file.name for file in written.iterdir()}, {file.name for file in folder.iterdir()})
            for file in folder.iterdir():
                self.assertEqual(file.read_bytes(), (written / file.name).read_bytes(), f"{family}: {file.name}")
            self.assert_answers(family, written)

    def test_learns_and_comes_out_as_one_folder_with_its_other_tensors(self):  # EX-5
        for family in FAMILIES:
            report = self.trained(family, "--set", "projector.lr=1e-2", "--set", "llm.lr=1e-2", out=f"of-{family}")
            self.assertEqual(report["last_step"], 3)
            before, after = tensors(self.folder_of(family)), tensors(self.folder / f"of-{family}/vlm/models/llm+projector")
            self.assertEqual(list(before), list(after))
            for name, tensor in before.items():
                same = name.startswith(VISION) or name == "lm_head.weight" and tensor[2] == after[name][2]
                (self.assertEqual if same else self.assertNotEqual)(tensor[2], after[name][2], f"{family}: {name}")
            card = (self.folder / f"of-{family}/vlm/card.html").read_text()
            self.assertIn("data:image/png;base64,", card)
            self.assertIn("Noise, number", card, "the reference answers")

    def test_is_estimated_by_dry_passes_over_its_images(self):
        for family in FAMILIES:
            weights = {"weights": str(self.folder_of(family))}
            job = {"name": "test", "app": "vision_language", "train": {"steps": 1, "global_batch": 4, "out": "none"},
                   "data": {"path": str(ROWS / "list.json"), "processor": str(self.folder_of(family)), "sequence": 512},
                   "vision": weights, "projector": {**weights, "decoder": "llm"}, "llm": weights}
            checked = self.call("check", self.write_job(job))
            self.assertEqual(checked.status, 0, checked.describe())
            self.assertNotIn("without a dry pass", checked.out + checked.err)

    def test_has_the_same_losses_from_every_file_and_under_every_layout(self):
        alone = self.losses("--train", "vision,projector,llm")
        self.assertEqual(len(alone), 3)
        layouts = {
            "replicas": ("llm.replicas=2", "vision.replicas=2"),
            "tensor": ("llm.tensor=2", "vision.tensor=2", "projector.tensor=2"),
            "micro-batches": ("llm.micro_batch=3", "vision.micro_batch_tokens=100"),
            "recompute": ("llm.recompute=1",),
        }
        for name, settings in layouts.items():
            words = [word for each in settings for word in ("--set", each)]
            losses = self.losses("--train", "vision,projector,llm", *words, out=name)
            for step, (one, other) in enumerate(zip(alone, losses, strict=True)):
                self.assertAlmostEqual(one, other, delta=1e-5 * abs(one), msg=f"{name}, step {step + 1}")

    def test_has_the_same_losses_in_pipeline_stages_which_take_marks_and_taps(self):
        words = [word for key in ("vision.pipeline=2", "llm.pipeline=2") for word in ("--set", key)]
        for family in ("gemma3", "qwen3_vl"):
            alone = self.losses("--train", "vision,projector,llm", family=family, out=f"{family}-alone")
            staged = self.losses("--train", "vision,projector,llm", *words, family=family, out=f"{family}-staged")
            for one, other in zip(alone, staged, strict=True):
                self.assertAlmostEqual(one, other, delta=1e-5 * abs(one), msg=family)

    def test_goes_on_after_a_stop_with_the_same_losses(self):
        whole = self.losses()
        self.assertEqual(self.losses(steps=2, out="cut"), whole[:2])
        self.assertEqual(self.losses("--resume", "auto", out="cut")[-1:], whole[2:])

    def distillation(self, lr=0.0, **tables):
        weights = {"weights": str(self.folder_of("smolvlm")), "micro_batch": 2}
        job = {"name": "test", "app": "distillation", "train": {"steps": 3, "global_batch": 4, "out": "out"},
               "data": {"kind": "chat", "path": str(ROWS / "list.json"), "processor": weights["weights"], "sequence": 512},
               "vision": {**weights, "trained": False},
               "projector": {**weights, "decoder": "student", "lr": lr},
               "student": {**weights, "lr": lr, "temperature": 1.0, "alpha": 1.0},
               "teacher_vision": weights, "teacher_projector": {**weights, "vision": "teacher_vision", "decoder": "teacher"},
               "teacher": weights}
        return {name: table for name, table in (job | tables).items() if table is not None}

    def test_teaches_another_about_images(self):
        alike = self.train(self.distillation())
        for step in range(1, 4):
            self.assertLess(abs(alike.curve("kl")["student", step][0]), 1e-6)
        shared = self.train(self.distillation(lr=1e-2, teacher_vision=None, teacher_projector={
            **self.distillation()["teacher_projector"], "vision": "vision"}), settings={"train.out": "shared"})
        apart = self.train(self.distillation(lr=1e-2), settings={"train.out": "apart"})
        self.assertEqual(shared.curve(), apart.curve())
        self.assertGreater(apart.curve("kl")["student", 3][0], 1e-4)
        self.assertTrue((self.folder / "apart/models/projector+student").is_dir())
        trained = self.distillation(teacher_vision=None, vision={"weights": str(self.folder_of("smolvlm"))})
        self.assert_refused("[teacher_projector] reads [vision], which is trained for the student", "check",
                            self.write_job(trained))
        other = self.folder / "other"
        shutil.copytree(self.folder_of("smolvlm"), other)
        settings = json.loads((other / "processor_config.json").read_text())
        settings["image_processor"]["image_mean"] = [0.4, 0.5, 0.5]
        (other / "processor_config.json").write_text(json.dumps(settings))
        self.assert_refused("other has another image processor than the data", "check",
                            self.write_job(self.distillation(vision={"weights": str(other), "trained": False})))
        blind = self.distillation(teacher_vision=None, teacher_projector=None)
        self.assert_refused("section 'teacher' reads samples with images, but no section sends it their rows", "check",
                            self.write_job(blind))

    def test_that_does_not_fit_has_a_line_that_says_why(self):
        folder = self.folder_of("smolvlm")
        image = str(ROWS / "images/a.png")
        self.assertIn('--train: "decoder" is not a section; give some of vision,projector,llm', self.vlm("smolvlm", "--train", "decoder").err)
        both = self.call("vlm", "--model", str(folder), "--data", str(ROWS / "list.json"), "--set", "data.patch=8")
        self.assertIn("data.patch: has no effect: images are cut by the processor in data.processor", both.err)
        without = self.call("vlm", "--model", str(folder))
        self.assertIn("--model requires --data", without.err)
        unread = self.call("generate", str(folder), "--image", str(ROWS / "list.json"), "--prompt", "a")
        self.assertIn(f"{ROWS / 'list.json'}: ", unread.err)
        spelled = self.call("generate", str(folder), "--image", image, "--prompt", "a <image> b")
        self.assertIn("a text that spells it is not a place", spelled.err)
        self.assertEqual({each.status for each in (both, without, unread, spelled)}, {2})
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "model_type": "mllama"}))
        foreign = self.call("generate", str(folder), "--image", image, "--prompt", "a")
        self.assertEqual(foreign.status, 2)
        self.assertRegex(foreign.err, r'model_type.*"mllama"')


if __name__ == "__main__":
    unittest.main()
