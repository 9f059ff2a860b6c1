#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A given model for images and sounds: asked, trained by `maestro vlm --model`, and written back as one folder."""

import json
import pathlib
import shutil
import struct
import unittest

from maestro_program import SystemTest
from model_folders import tensors
from trace_test import Trace

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE / "references/image_text/qwen2_5_omni"  # by record_omni_answers.py
REFERENCES = HERE.parent / "dataset/references"
ALL = "vision,projector,audio,audio_projector,llm"
SMALL = ("--set", "train.global_batch=6", "--set", "train.validation_samples=0", "--set", "train.schedule_steps=3")


def each_section(*settings):
    return [word for section in ALL.split(",") for setting in settings for word in ("--set", f"{section}.{setting}")]


class AGivenOmniModel(SystemTest):
    def call(self, *arguments, variables=None):
        return super().call(*arguments, variables={"MAESTRO_REPOSITORY": str(HERE.parents[1]), **(variables or {})})

    def setUp(self):
        super().setUp()
        self.model, self.media = self.folder / "thinker", self.folder / "media"
        shutil.copytree(RECORDED, self.model, ignore=shutil.ignore_patterns("answers.json", "list.jsonl"))
        for files in ("image_rows/images", "sound_rows/sounds"):
            shutil.copytree(REFERENCES / files, self.media, dirs_exist_ok=True)
        self.recorded = json.loads((RECORDED / "answers.json").read_text())

    def complete(self, **keys):
        """Returns the folder of the complete model, whose other parts have some tensors."""
        folder = self.folder / "complete"
        shutil.copytree(self.model, folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(
            {"architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni", "thinker_config": config, "enable_audio_output": True,
             "talker_config": {"vocab_size": 3}, "token2wav_config": {"dit_config": {}}, **keys}, indent=2) + "\n")
        (folder / "spk_dict.pt").write_bytes(b"voices")
        content = (folder / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        header, values = json.loads(content[8:8 + size]), content[8 + size:]
        made = {name if name == "__metadata__" else f"thinker.{name}": entry for name, entry in header.items()}
        for name in ("talker.codec_head.weight", "token2wav.code2wav_dit_model.proj_out.bias"):
            made[name] = {"dtype": "F16", "shape": [2], "data_offsets": [len(values), len(values) + 4]}
            values += bytes(range(1, 5))
        text = json.dumps(made).encode()
        text += b" " * (-len(text) % 8)
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + values)
        return folder

    def vlm(self, *arguments, model=None, data=RECORDED / "list.jsonl", out="runs", steps=3, images=True):
        given = ("--images", str(self.media), "--set", "data.validation_fraction=1e-9") if images else ()
        return self.call("vlm", "--model", str(model or self.model), "--data", str(data), *given, "--out", out, "--steps", str(steps),
                         *SMALL, *arguments)

    def trained(self, *arguments, out="runs", **more):
        finished = self.vlm(*arguments, out=out, **more)
        self.assertEqual(finished.status, 0, finished.describe())
        return json.loads((self.folder / out / "vlm/report.json").read_text())

    def losses(self, *arguments, **more):
        return [row["loss"] for row in self.trained(*arguments, **more)["steps"] if row["section"] == "llm"]

    def refused(self, finished, *parts):
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.err.strip().splitlines()), 1, finished.describe())
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

    def assert_answers(self, folder):
        for names, ids in self.recorded["answers"].items():
            files = [word for name in names.split()
                     for word in ("--audio" if name.endswith(("wav", "flac")) else "--image", str(self.media / name))]
            asked = self.call("generate", str(folder), *files, "--prompt", self.recorded["question"], "--max-tokens", "32", "--json")
            self.assertEqual(asked.status, 0, asked.describe())
            self.assertEqual(json.loads(asked.out)["ids"], ids, names)

    def job(self, app, **tables):
        weights = {"weights": str(self.model)}
        return self.write_job({"name": "test", "app": app, "train": {"steps": 1, "global_batch": 6, "out": "none"},
                               "data": {"path": str(RECORDED / "list.jsonl"), "images": str(self.media), "kind": "chat",
                                        "processor": str(self.model), "sequence": 512}, "vision": weights,
                               "projector": {**weights, "decoder": "llm"}, "llm": weights, **tables})

    def test_answers_questions_about_images_and_sounds_as_transformers_does(self):  # GN-1, HI-2
        self.assert_answers(self.model)

    def test_learns_with_the_losses_of_transformers(self):  # OS-4
        words = each_section("lr=1e-3", "warmup_steps=0", 'schedule="constant"', "weight_decay=0.0", "beta1=0.9", "beta2=0.95",
                             "clip_norm=0.0", "epsilon=1e-4")  # with a small addend, the signs of rounding errors are steps
        own_losses = self.losses("--train", ALL, *words, "--set", "train.schedule_steps=4", steps=4)
        for step, (own, other) in enumerate(zip(own_losses, self.recorded["losses"], strict=True)):
            self.assertAlmostEqual(own, other, delta=1e-5 * other, msg=f"step {step + 1}")

    def test_comes_out_bit_for_bit_if_nothing_is_learned(self):  # EX-5
        self.trained("--train", ALL, *each_section("lr=0.0"))
        (written,) = (self.folder / "runs/vlm/models").iterdir()
        self.assertEqual({file.name for file in written.iterdir()}, {file.name for file in self.model.iterdir()})
        for file in self.model.iterdir():
            self.assertEqual(file.read_bytes(), (written / file.name).read_bytes(), file.name)
        self.assert_answers(written)

    def test_is_trained_inside_of_the_complete_model(self):  # EX-5, HI-3
        folder = self.complete()
        self.assert_answers(folder)
        self.trained("--train", ALL, *each_section("lr=1e-2"), model=folder)
        (written,) = (self.folder / "runs/vlm/models").iterdir()
        self.assertEqual((written / "spk_dict.pt").read_bytes(), b"voices")
        self.assertEqual((written / "config.json").read_bytes(), (folder / "config.json").read_bytes())
        before, after = tensors(folder), tensors(written)
        self.assertEqual(list(before), list(after))
        for name, tensor in before.items():
            same = not name.startswith("thinker.") or "audio_bos_eos_token" in name
            (self.assertEqual if same else self.assertNotEqual)(tensor[2], after[name][2], name)

    def test_has_the_same_losses_under_every_layout(self):
        alone = self.losses("--train", ALL)
        self.assertEqual(len(alone), 3)
        layouts = {
            "replicas": ("llm.replicas=2", "vision.replicas=2", "audio.replicas=2"),
            "tensor": ("llm.tensor=2", "vision.tensor=2", "audio.tensor=2", "audio_projector.tensor=2"),
            "micro-batches": ("llm.micro_batch=3", "vision.micro_batch_tokens=60", "audio.micro_batch_tokens=40"),
            "recompute": ("llm.recompute=1", "audio.recompute=1"),
            "pipeline": ("llm.pipeline=2", "vision.pipeline=2", "audio.pipeline=2"),
        }
        for name, settings in layouts.items():
            words = [word for each in settings for word in ("--set", each)]
            for step, (one, other) in enumerate(zip(alone, self.losses("--train", ALL, *words, out=name), strict=True)):
                self.assertAlmostEqual(one, other, delta=1e-5 * abs(one), msg=f"{name}, step {step + 1}")

    def test_has_the_same_bits_in_several_processes(self):  # HI-4
        alone = self.losses("--train", ALL)
        for processes in ("2", "3"):
            self.assertEqual(self.losses("--train", ALL, "--processes", processes, out=f"of-{processes}"), alone)

    def test_goes_on_after_a_stop_with_the_same_losses(self):
        whole = self.losses("--train", ALL)
        self.assertEqual(self.losses("--train", ALL, steps=2, out="cut"), whole[:2])
        self.assertEqual(self.losses("--train", ALL, "--resume", "auto", out="cut")[-1:], whole[2:])

    def test_encoders_run_for_their_own_samples(self):  # HI-1
        self.trained(steps=1)
        trace = Trace(self.folder / "runs/vlm/trace.json")
        passes = {name: sum(event["name"].startswith("forward") for event in trace.slices[f"{name}/0"]) for name in ALL.split(",")}
        self.assertEqual(passes, {"vision": 4, "projector": 4, "audio": 4, "audio_projector": 4, "llm": 6})  # a sample each
        texts = self.write_rows("texts.jsonl", *[self.row() for _ in range(6)])
        self.assertEqual(len(self.losses(data=texts, steps=1, out="texts")), 1)

    def test_is_estimated_by_dry_passes_over_its_sounds(self):
        weights = {"weights": str(self.model)}
        checked = self.call("check", self.job("omni", audio=weights, audio_projector={**weights, "decoder": "llm"}))
        self.assertEqual(checked.status, 0, checked.describe())
        self.assertNotIn("without a dry pass", checked.out + checked.err)

    def test_prepares_rows_with_both_kinds(self):  # IE-4, RI-2
        rows = self.write_rows(
            "rows.jsonl", self.row({"type": "image", "image": "a.png"}, {"type": "audio", "audio": "a.wav"}),
            self.row({"type": "audio"}, {"type": "image"}, images=["b.jpg"], audio="b.flac"), self.row(images=["a.png"], audios=["c.wav"]),
            {"messages": [{"role": "user", "content": "Is <audio> what <image> shows?"}, {"role": "assistant", "content": "No."}],
             "audios": ["a.wav"], "images": ["c.webp"]})
        prepared = self.call("prepare", str(rows), "--model", str(self.model), "--images", str(self.media), "--out", "prepared",
                             "--validation", "0")
        self.assertEqual(prepared.status, 0, prepared.describe())
        counts = json.loads((self.folder / "prepared/data.json").read_text())["counts"]
        self.assertEqual((counts["rows"], counts["images"], counts["sounds"]), (4, 4, 4))
        shown = self.call("data", "prepared", "--show", "2")
        self.assertEqual(shown.status, 0, shown.describe())
        self.assertEqual(len(self.losses("--set", "data.kind=\"prepared\"", data=self.folder / "prepared", images=False, steps=1)), 1)

    def test_looks_at_files_of_both_kinds(self):
        looked = self.call("look", str(self.model), str(self.media / "b.flac"))
        self.assertEqual(looked.status, 0, looked.describe())
        for part in ("0.56 s", "57 of 12 mel bands", "29 of the encoder, 14 of the decoder", "<|AUDIO|> (14 times)"):
            self.assertIn(part, looked.out)
        looked = self.call("look", str(self.model), str(self.media / "a.png"))
        self.assertEqual(looked.status, 0, looked.describe())
        self.assertIn("<|IMAGE|>", looked.out)

    def test_that_does_not_fit_has_a_line_that_says_why(self):  # MD-1, VP-1
        def rows(name, *parts, **columns):
            return self.vlm(data=self.write_rows(f"{name}.jsonl", self.row(*parts, **columns)))

        self.refused(rows("video", {"type": "video", "video": "a.mp4"}), 'has the part {"type":"video","video":"a.mp4"}', '{"type": "audio"}')
        self.refused(rows("videos", videos=["a.mp4"]), 'the column "videos" is not read here')
        self.refused(rows("swapped", {"type": "image", "image": "a.wav"}), "a.wav is a sound, but an image is named there")
        self.refused(rows("places", {"type": "audio"}, images=["a.png"]), "1 place for sounds (<audio>, or a part without a sound), but 0 sounds")
        wave = (self.media / "a.wav").read_bytes()
        (self.media / "short.wav").write_bytes(wave[:40] + struct.pack("<I", 400) + wave[44:444])
        self.refused(rows("short", {"type": "audio", "audio": "short.wav"}), "short.wav is a sound of 200 samples is too short",
                     "at least 321")
        self.refused(self.vlm("--train", "ears"), 'not a section; give some of vision,projector,audio,audio_projector,llm')
        only = 'names a model for images and sounds, which only app = "omni" trains'
        self.refused(self.call("check", self.job("vision_language")), "data.processor", only)
        self.refused(self.call("check", self.write_job(
            {"name": "test", "app": "distillation", "train": {"steps": 1, "global_batch": 6, "out": "none"},
             "data": {"path": str(RECORDED / "list.jsonl"), "images": str(self.media), "kind": "chat", "processor": str(self.model),
                      "sequence": 512}, "student": {"weights": str(self.model)}, "teacher": {"weights": str(self.model)}})), only)
        settings = self.model / "preprocessor_config.json"
        stated = json.loads(settings.read_text())
        settings.write_text(json.dumps({**stated, "use_audio_in_video": True}))
        self.refused(self.vlm(), "preprocessor_config.json", "use_audio_in_video = true is unknown here")
        settings.write_text(json.dumps(stated))
        config = self.model / "config.json"
        known = json.loads(config.read_text())
        known["audio_config"]["n_window"] = 9
        config.write_text(json.dumps(known))
        self.refused(self.vlm(), "config.json", "audio_config.n_window = 9 is not supported; only an even number is")


if __name__ == "__main__":
    unittest.main()
