#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three sections that begin from one vision-language folder: trained, and written back as that folder."""

import pathlib
import shutil
import unittest

from maestro_program import SystemTest
from model_folders import tensors

RECORDED = pathlib.Path(__file__).parent.parent / "sections" / "references" / "image_text" / "llava_siglip"
SECTIONS = ("vision", "projector", "llm")
FILES = ("model.safetensors", "config.json", "preprocessor_config.json")


class AVisionLanguageFolder(SystemTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        self.model.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copy(RECORDED / name, self.model)
        (self.model / "preprocessor_config.json").write_text('{"size":  {"height": 8}}')

    def job(self, lr, **sections):
        given = {"weights": str(self.model), "devices": ["cpu:0"], "lr": lr}
        return {
            "name": "test", "app": "vision_language",
            "train": {"steps": 2, "global_batch": 4, "validation_samples": 4, "out": "out"},
            "data": {"kind": "synthetic_images", "sequence": 12, "patch": 2, "image_size": 8, "vocabulary": 40},
            "vision": {**given, "micro_batch_tokens": 32, **sections.get("vision", {})},
            "projector": {**given, "decoder": "llm", "micro_batch_tokens": 32, **sections.get("projector", {})},
            "llm": {**given, "micro_batch": 2, **sections.get("llm", {})},
        }

    def changed(self, run):
        """Returns the tensors that differ from the model's."""
        before, after = tensors(self.model), tensors(self.folder / run)
        self.assertEqual(list(before), list(after))
        return {name for name, tensor in before.items() if tensor[2] != after[name][2]}

    def test_comes_out_bit_for_bit_if_nothing_is_learned(self):  # EX-5
        self.train(self.job(1e-30))
        self.assertEqual([path.name for path in (self.folder / "out/models").iterdir()], ["llm+projector+vision"])
        for name in FILES:
            self.assertEqual((self.folder / "out/models/llm+projector+vision" / name).read_bytes(),
                             (self.model / name).read_bytes(), name)

    def test_keeps_what_is_not_trained_and_has_passengers(self):
        self.train(self.job(1e-2, vision={"trained": False}))
        self.assertEqual({name.split(".")[0] for name in self.changed("out/models/llm+projector")},
                         {"language_model", "multi_modal_projector"})
        self.train(self.job(1e-2), settings={"train.out": "all"})
        kept = set(tensors(self.model)) - self.changed("all/models/llm+projector+vision")
        self.assertEqual(kept, {f"vision_tower.post_layernorm.{part}" for part in ("weight", "bias")})
        exported = self.call("export", "all", "--to", "one")
        self.assertEqual(exported.status, 0, exported.describe())
        self.assertEqual((self.folder / "one/model.safetensors").read_bytes(),
                         (self.folder / "all/models/llm+projector+vision/model.safetensors").read_bytes())
        text = self.call("export", "all/llm", "--to", "text", "--text")
        self.assertEqual(text.status, 0, text.describe())
        self.assertIn("model.norm.weight", tensors(self.folder / "text"))
        self.assertNotIn("multi_modal_projector.linear_1.weight", tensors(self.folder / "text"))

    def test_takes_no_tiles_of_another_size(self):
        finished = self.call("check", self.write_job(self.job(1e-2)), "--set", "data.image_size=6")
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertIn("vision: the data's images have up to 3 x 3 patches, but the model takes tiles of 4 x 4; its "
                      "image settings must make tiles of 8 x 8 pixels", finished.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
