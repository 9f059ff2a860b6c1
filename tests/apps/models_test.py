#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The complete path of a published model: checked, distilled, written as a folder, exported, continuing text."""

import json
import unittest

from maestro_program import SystemTest, language_model
from model_folders import REPOSITORY, tensors, tokenizer_text, write_model

EXTRAS = {"tokenizer_config.json": '{"eos_token": "<|endoftext|>", "own": 1e-07}', "special_tokens_map.json": "{}",
          "chat_template.jinja": "{{ messages[-1].content }}\n",
          "generation_config.json": '{"do_sample": true, "temperature": 0.6}'}
TEACHER = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6}


class Models(SystemTest):
    def setUp(self):
        super().setUp()
        try:
            self.tokenizer = tokenizer_text("trained", 4096)
        except unittest.SkipTest:
            self.tokenizer = tokenizer_text("qwen2")
        parts = json.loads(self.tokenizer)
        ids = [*parts["model"]["vocab"].values(), *(token["id"] for token in parts["added_tokens"])]
        self.vocabulary = max(ids) + 11  # published models have rows without tokens
        self.teacher, self.student = self.model("teacher", **TEACHER), self.model("student")

    def model(self, name, **changes):
        """Writes a Qwen3 whose heads are wider than its hidden state divided by their number."""
        config = {
            "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
            "bos_token_id": None, "dtype": "bfloat16", "eos_token_id": None, "head_dim": 16, "hidden_act": "silu",
            "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 64, "max_position_embeddings": 64,
            "max_window_layers": 2, "model_type": "qwen3", "num_attention_heads": 4, "num_hidden_layers": 2,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 1000000,
            "sliding_window": None, "tie_word_embeddings": True, "transformers_version": "5.23.0", "use_cache": True,
            "use_sliding_window": False, "vocab_size": self.vocabulary, **changes}
        write_model(self.folder / name, config, seed=len(name))
        for file, text in {"tokenizer.json": self.tokenizer, **EXTRAS}.items():
            (self.folder / name / file).write_text(text)
        return config

    def call(self, *arguments, variables=None):
        return super().call(*arguments, variables={"MAESTRO_REPOSITORY": str(REPOSITORY), **(variables or {})})

    def succeed(self, *arguments):
        finished = self.call(*arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished

    def continuation(self, folder):
        found = json.loads(self.succeed("generate", folder, "--tokenizer", "student", "--prompt", "the small river",
                                        "--json", "--max-tokens", 8).out)
        self.assertEqual((list(found), found["finish"]), (["ids", "text", "finish"], "length"))
        self.assertEqual(len(found["ids"]), 8)
        return found

    def check(self):
        job = language_model(steps=1)
        job |= {"app": "distillation", "teacher": {"weights": "teacher"}, "student": {"weights": "student"}}
        return self.call("check", self.write_job(job))

    def test_are_printed_by_check_with_their_family(self):
        finished = self.check()
        self.assertEqual(finished.status, 0, finished.describe())
        for name, config, shape in (("teacher", self.teacher, "3 layers x 48, 6 heads"),
                                    ("student", self.student, "2 layers x 32, 4 heads")):
            self.assertIn(f"{name}: qwen3, {shape} of 16 (2 kv), q/k norms, rope 1e+06, tied, "
                          f"vocabulary {config['vocab_size']}\n", finished.out)

    def test_come_out_of_a_distillation_complete_and_continue_text_alike_from_every_folder(self):
        self.succeed("distill", "--teacher", "teacher", "--student", "student", "--data", "corpus.txt", "--steps", 2,
                     "--sequence", 32, "--out", "runs", "--set", "train.validation_samples=4",
                     "--set", "student.lr=1e-2", "--set", "student.warmup_steps=0")  # above the rounding of bf16
        out = self.folder / "runs/distill"
        model, given = out / "models/student", self.folder / "student"
        for file in ("config.json", "tokenizer.json", *EXTRAS):
            self.assertEqual((model / file).read_bytes(), (given / file).read_bytes(), file)
        trained, before = tensors(model), tensors(given)
        self.assertEqual({name: value[:2] for name, value in trained.items()},
                         {name: value[:2] for name, value in before.items()})
        self.assertTrue(trained != before, "the student learns")
        checkpoint, = out.glob("checkpoints/*/student")
        for dtype, equal in (("bf16", model), ("f32", checkpoint)):
            self.succeed("export", checkpoint, "--to", dtype, "--dtype", dtype)
            self.assertTrue(tensors(self.folder / dtype) == tensors(equal), dtype)
            self.assertEqual(self.continuation(dtype), self.continuation(equal))
        changed = json.loads((self.folder / "f32/config.json").read_text())
        self.assertEqual(list(changed.items()), list({**self.student, "dtype": "float32"}.items()))

    def test_with_keys_that_would_change_the_model_are_refused_by_the_key(self):
        for key, value in (("residual_multiplier", 0.5), ("num_experts", 8)):
            (self.folder / "student/config.json").write_text(json.dumps({**self.student, key: value}))
            given = ("--teacher", "teacher", "--student", "student", "--data", "corpus.txt")
            for finished in (self.check(), self.call("distill", *given),
                             self.call("generate", "student", "--prompt", "a")):
                self.assertEqual(finished.status, 2, finished.describe())
                self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
                self.assertIn(f"student/config.json: {key}", finished.err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
