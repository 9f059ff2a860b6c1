#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The language model of a vision-language folder: trained, and written back as the complete folder."""

import json
import pathlib
import shutil
import unittest

from maestro_program import SystemTest, language_model
from model_folders import tensors

RECORDED = pathlib.Path(__file__).parent.parent / "sections" / "references" / "text_parts"
FAMILIES = ("gemma3", "llava_onevision", "qwen2_vl", "smolvlm")


class ACompleteFolder(SystemTest):
    def setUp(self):
        super().setUp()
        self.train(language_model(steps=1, out="bytes"))  # for its tokenizer

    def folder_of(self, family):
        folder = self.folder / family
        shutil.copytree(RECORDED / family, folder)
        for extra in ("names.json", "expected.safetensors"):
            (folder / extra).unlink()
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(self.folder / "bytes/models/teacher" / file, folder)
        (folder / "preprocessor_config.json").write_text('{"size":  {"height": 8}}')
        return folder

    def job(self, folder, lr):
        job = language_model(steps=2)
        job["teacher"] = {"weights": str(folder), "micro_batch": 4, "lr": lr}
        return job

    def test_comes_out_bit_for_bit_if_nothing_is_learned(self):  # EX-5
        for family in FAMILIES:
            with self.subTest(family):
                folder = self.folder_of(family)
                job = self.job(folder, 1e-30)
                job["train"]["out"] = f"of-{family}"
                checked = self.call("check", self.write_job(job))
                self.assertIn(f"reads the language model in {folder}, a {family} model", checked.describe())
                self.train(job)
                for name in ("model.safetensors", "config.json", "preprocessor_config.json"):
                    self.assertEqual((self.folder / f"of-{family}/models/teacher" / name).read_bytes(),
                                     (folder / name).read_bytes(), name)

    def test_keeps_its_other_parts_and_names_while_the_language_model_learns(self):
        folder = self.folder_of("gemma3")
        self.train(self.job(folder, 1e-2))
        before, after = tensors(folder), tensors(self.folder / "out/models/teacher")
        self.assertEqual(list(before), list(after))
        for name, tensor in before.items():
            assertion = self.assertNotEqual if name.startswith("language_model.") else self.assertEqual
            assertion(tensor[2], after[name][2], name)
        text = self.call("export", "out", "--to", "text", "--text")
        self.assertEqual(text.status, 0, text.describe())
        self.assertEqual(json.loads((self.folder / "text/config.json").read_text())["model_type"], "gemma3_text")
        self.assertIn("model.norm.weight", tensors(self.folder / "text"))
        for model in ("text", "out/models/teacher"):
            answer = self.call("generate", model, "--prompt", "a", "--max-tokens", "2")
            self.assertEqual(answer.status, 0, answer.describe())

    def test_is_refused_once_its_folder_has_changed_or_gone(self):
        folder = self.folder_of("gemma3")
        self.train(self.job(folder, 1e-2))
        shutil.copy(RECORDED / "llava" / "model.safetensors", folder / "model.safetensors")
        changed = self.call("export", "out", "--to", "x")
        self.assertIn(f"the weights in {folder} have changed since the run began", changed.err)
        shutil.rmtree(folder)
        gone = self.call("export", "out", "--to", "x")
        self.assertIn("maestro export --text writes only its language model", gone.err)
        self.assertEqual((changed.status, gone.status), (2, 2))
        self.assertFalse((self.folder / "x").exists())

    def test_has_no_adapters(self):
        job = self.job(self.folder_of("gemma3"), 1e-2)
        job["teacher"]["lora"] = {"rank": 2}
        finished = self.call("check", self.write_job(job))
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertIn("teacher.lora: the weights are the language model of a gemma3 folder", finished.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
