#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Given audio-language models: asked about sounds, trained by `maestro vlm --model`, and written back as one folder."""

import base64
import json
import pathlib
import shutil
import struct
import unittest

from maestro_program import SystemTest
from model_folders import tensors

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "references/image_text"  # by record_sound_answers.py
FOLDERS = HERE.parent / "dataset/references/images"
FAMILIES = ("qwen2_audio", "voxtral")
ROWS = HERE.parent / "dataset/references/sound_rows"
SOUNDS = ROWS / "sounds"
ALL = "vision,projector,llm"
SMALL = ("--set", "train.global_batch=4", "--set", "train.validation_samples=0", "--set", "train.schedule_steps=3")


class AGivenAudioModel(SystemTest):
    def call(self, *arguments, variables=None):
        return super().call(*arguments, variables={"MAESTRO_REPOSITORY": str(HERE.parents[1]), **(variables or {})})

    def model(self, family="qwen2_audio"):
        folder = self.folder / family
        if not folder.exists():
            shutil.copytree(RECORDED / family, folder, ignore=shutil.ignore_patterns("answers.json"))
            if (FOLDERS / family).exists():
                shutil.copytree(FOLDERS / family, folder, dirs_exist_ok=True)
        return folder

    @staticmethod
    def recorded(family="qwen2_audio"):
        return json.loads((RECORDED / family / "answers.json").read_text())

    def vlm(self, *arguments, family="qwen2_audio", data=ROWS / "list.jsonl", out="runs", steps=3, images=SOUNDS):
        given = ("--images", str(images), "--set", "data.validation_fraction=1e-9") if images else ()
        return self.call("vlm", "--model", str(self.model(family)), "--data", str(data), *given, "--out", out, "--steps",
                         str(steps), *SMALL, *arguments)

    def trained(self, *arguments, out="runs", **more):
        finished = self.vlm(*arguments, out=out, **more)
        self.assertEqual(finished.status, 0, finished.describe())
        return json.loads((self.folder / out / "vlm/report.json").read_text())

    def losses(self, *arguments, **more):
        return [row["loss"] for row in self.trained(*arguments, **more)["steps"] if row["section"] == "llm"]

    def refused(self, finished, *parts):
        self.assertEqual(finished.status, 2, finished.describe())
        for part in parts:
            self.assertIn(part, finished.err)

    def write_rows(self, name, *rows):
        file = self.folder / name
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file

    @staticmethod
    def row(*parts, answer="Yes.", **columns):
        return {"messages": [{"role": "user", "content": [*parts, {"type": "text", "text": "Is it?"}]},
                             {"role": "assistant", "content": answer}], **columns}

    def assert_answers(self, family, folder):
        recorded = self.recorded(family)
        for names, ids in recorded["answers"].items():
            files = [word for name in names.split() for word in ("--audio", str(SOUNDS / name))]
            asked = self.call("generate", str(folder), *files, "--prompt", recorded["question"], "--max-tokens", "32", "--json")
            self.assertEqual(asked.status, 0, asked.describe())
            self.assertEqual(json.loads(asked.out)["ids"], ids, names)

    def test_answers_questions_about_sounds_as_transformers_does(self):  # GN-1
        for family in FAMILIES:
            self.assert_answers(family, self.model(family))

    def test_learns_with_the_losses_of_transformers(self):
        optimizer = ("lr=1e-3", "warmup_steps=0", 'schedule="constant"', "weight_decay=0.0", "beta1=0.9", "beta2=0.95", "clip_norm=0.0",
                     "epsilon=1e-4")  # with a small addend, the signs of rounding errors are steps
        words = [word for section in ALL.split(",") for key in optimizer for word in ("--set", f"{section}.{key}")]
        for family in FAMILIES:
            own_losses = self.losses("--train", ALL, *words, "--set", "train.schedule_steps=4", steps=4, family=family, out=family)
            for step, (own, other) in enumerate(zip(own_losses, self.recorded(family)["losses"], strict=True)):
                self.assertAlmostEqual(own, other, delta=1e-5 * other, msg=f"{family}, step {step + 1}")

    def test_comes_out_bit_for_bit_if_nothing_is_learned(self):  # EX-5
        for family in FAMILIES:
            folder, out = self.model(family), f"of-{family}"
            words = [word for name in ALL.split(",") for word in ("--set", f"{name}.lr=0.0")]
            self.trained("--train", ALL, *words, family=family, out=out)
            (written,) = (self.folder / out / "vlm/models").iterdir()
            self.assertEqual({file.name for file in written.iterdir()}, {file.name for file in folder.iterdir()})
            for file in folder.iterdir():
                self.assertEqual(file.read_bytes(), (written / file.name).read_bytes(), f"{family}: {file.name}")
            self.assert_answers(family, written)

    def test_learns_and_keeps_its_positions(self):  # EX-5, VE-6
        words = [word for name in ALL.split(",") for word in ("--set", f"{name}.lr=1e-2")]
        for family in FAMILIES:
            self.trained("--train", ALL, *words, family=family, out=f"of-{family}")
            (written,) = (self.folder / f"of-{family}/vlm/models").iterdir()
            before, after = tensors(self.model(family)), tensors(written)
            self.assertEqual(list(before), list(after))
            for name, tensor in before.items():
                same = name.endswith("embed_positions.weight")
                (self.assertEqual if same else self.assertNotEqual)(tensor[2], after[name][2], f"{family}: {name}")

    def test_has_the_same_losses_under_every_layout(self):
        alone = self.losses("--train", ALL)
        self.assertEqual(len(alone), 3)
        layouts = {
            "replicas": ("llm.replicas=2", "vision.replicas=2"),
            "tensor": ("llm.tensor=2", "vision.tensor=2", "projector.tensor=2"),
            "micro-batches": ("llm.micro_batch=3", "vision.micro_batch_tokens=60"),
            "recompute": ("llm.recompute=1", "vision.recompute=1"),
            "pipeline": ("llm.pipeline=2", "vision.pipeline=2"),
        }
        for name, settings in layouts.items():
            words = [word for each in settings for word in ("--set", each)]
            for step, (one, other) in enumerate(zip(alone, self.losses("--train", ALL, *words, out=name), strict=True)):
                self.assertAlmostEqual(one, other, delta=1e-5 * abs(one), msg=f"{name}, step {step + 1}")

    def test_goes_on_after_a_stop_with_the_same_losses(self):
        whole = self.losses("--train", ALL)
        self.assertEqual(self.losses("--train", ALL, steps=2, out="cut"), whole[:2])
        self.assertEqual(self.losses("--train", ALL, "--resume", "auto", out="cut")[-1:], whole[2:])

    def test_is_estimated_by_dry_passes_over_its_sounds(self):
        weights = {"weights": str(self.model())}
        job = {"name": "test", "app": "vision_language", "train": {"steps": 1, "global_batch": 4, "out": "none"},
               "data": {"path": str(ROWS / "list.jsonl"), "images": str(SOUNDS), "kind": "chat", "processor": str(self.model()),
                        "sequence": 512}, "vision": weights, "projector": {**weights, "decoder": "llm"}, "llm": weights}
        checked = self.call("check", self.write_job(job))
        self.assertEqual(checked.status, 0, checked.describe())
        self.assertNotIn("without a dry pass", checked.out + checked.err)

    def test_teaches_another_about_sounds(self):
        weights = {"weights": str(self.model()), "micro_batch": 2}
        job = {"name": "test", "app": "distillation", "train": {"steps": 2, "global_batch": 4, "out": "out"},
               "data": {"kind": "chat", "path": str(ROWS / "list.jsonl"), "images": str(SOUNDS), "processor": weights["weights"],
                        "sequence": 512, "validation_fraction": 1e-9},
               "vision": {**weights, "trained": False}, "projector": {**weights, "decoder": "student", "lr": 0.0},
               "student": {**weights, "lr": 0.0, "temperature": 1.0, "alpha": 1.0}, "teacher_vision": weights,
               "teacher_projector": {**weights, "vision": "teacher_vision", "decoder": "teacher"}, "teacher": weights}
        alike = self.train(job)
        for step in (1, 2):
            self.assertLess(abs(alike.curve("kl")["student", step][0]), 1e-6)

    def test_prepares_sounds_of_every_kind_of_row(self):
        encoded = base64.b64encode((SOUNDS / "a.wav").read_bytes()).decode()
        rows = self.write_rows(
            "rows.jsonl", self.row({"type": "audio", "audio": "a.wav"}), self.row({"type": "audio_url", "audio_url": {"url": "b.flac"}}),
            self.row({"type": "audio"}, audio="c.wav"), self.row(audios=["a.wav", {"bytes": encoded, "path": None}]),
            {"messages": [{"role": "user", "content": "What is <audio> here?"}, {"role": "assistant", "content": "A tone."}],
             "audios": ["a.wav"]})
        prepared = self.call("prepare", str(rows), "--model", str(self.model()), "--images", str(SOUNDS), "--out", "prepared")
        self.assertEqual(prepared.status, 0, prepared.describe())
        counts = json.loads((self.folder / "prepared/data.json").read_text())["counts"]
        self.assertEqual((counts["rows"], counts["sounds"]), (5, 6))
        shown = self.call("data", "prepared", "--show", "2")
        self.assertEqual(shown.status, 0, shown.describe())
        again = self.losses("--set", "data.kind=\"prepared\"", data=self.folder / "prepared", images=None, steps=1)
        self.assertEqual(len(again), 1)

    def test_looks_at_a_sound_as_the_model_hears_it(self):
        looked = self.call("look", str(self.model()), str(SOUNDS / "b.flac"))
        self.assertEqual(looked.status, 0, looked.describe())
        for part in ("0.56 s, 9000 samples at 16000 Hz, 2 channels", "57 of 12 mel bands; the model takes up to 1 s",
                     "29 of the encoder, 14 of the decoder", "(14 times)"):
            self.assertIn(part, looked.out)

    def test_that_does_not_fit_has_a_line_that_says_why(self):  # MD-1
        image = HERE.parent / "dataset/references/image_rows/images/a.png"
        ask = ("generate", str(self.model()))
        self.refused(self.call(*ask, "--image", str(image), "--prompt", "a"), "the model reads sounds, not images; give them by --audio")
        self.refused(self.call(*ask, "--audio", str(image), "--prompt", "a"), "is an image, but the model reads sounds")
        self.refused(self.call("look", str(self.model()), str(image)), "is an image, but the model reads sounds")
        wave = bytearray((SOUNDS / "a.wav").read_bytes())
        wave[24:28] = struct.pack("<I", 44100)
        (self.folder / "fast.wav").write_bytes(wave)
        self.refused(self.call(*ask, "--audio", str(self.folder / "fast.wav"), "--prompt", "a"),
                     "fast.wav", "44100 samples per second; the model takes 16000, convert it: ffmpeg -i FILE -ar 16000 NEW.wav")
        seen = self.write_rows("seen.jsonl", self.row({"type": "image", "image": "a.png"}))
        self.refused(self.vlm(data=seen), "has an image, but the model reads sounds")
        column = self.write_rows("column.jsonl", self.row(images=["a.png"]))
        self.refused(self.vlm(data=column), 'the column "images" has images, but the model reads sounds')
        missing = self.write_rows("missing.jsonl", self.row({"type": "audio", "audio": "d.wav"}))
        self.refused(self.vlm(data=missing), "d.wav")
        fast = self.write_rows("fast.jsonl", self.row({"type": "audio", "audio": "fast.wav"}))
        self.refused(self.vlm(data=fast, images=self.folder), "fast.wav is a sound with 44100 samples per second")


if __name__ == "__main__":
    unittest.main()
