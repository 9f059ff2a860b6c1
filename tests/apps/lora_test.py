#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A section with low-rank adapters: trained in any layout, resumed bitwise, exported for PEFT, and merged."""

import json
import struct
import unittest

import resume_test
import vlm_test
from maestro_program import SystemTest, decoder, distillation, language_model
from model_folders import tensors, write_model

CONFIG = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": None, "dtype": "bfloat16",
          "eos_token_id": None, "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02,
          "intermediate_size": 40, "max_position_embeddings": 64, "mlp_bias": False, "model_type": "llama",
          "num_attention_heads": 8, "num_hidden_layers": 3, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
          "rope_scaling": None, "rope_theta": 10000.0, "tie_word_embeddings": True, "vocab_size": 300}
LORA = {"rank": 4, "alpha": 8, "on": ["qkv", "out", "ffn"]}
MODULES = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
           "mlp.up_proj", "mlp.down_proj"}
# fp32 sums over ranks, replicas and context parts round in another order, 6e-8 each; 12 steps amplify it.
TOLERANCE = 1e-5


def job_of(train=None, **changes):
    job = language_model(**(train or {}))
    job["teacher"] = {"weights": "model", "lora": LORA, "micro_batch": 2, "lr": 3e-3, "replicas": 1, **changes}
    return job


def floats(tensor):
    dtype, shape, content = tensor
    if dtype == "F32":
        return shape, struct.unpack(f"<{len(content) // 4}f", content)
    words = struct.unpack(f"<{len(content) // 2}H", content)
    return shape, struct.unpack(f"<{len(words)}f", b"".join(struct.pack("<I", word << 16) for word in words))


class Lora(SystemTest):
    def setUp(self):
        super().setUp()
        write_model(self.folder / "model", CONFIG)

    def check_refused(self, job, *wanted, options=("check",)):
        finished = self.call(*options[:1], self.write_job(job), *options[1:])
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, finished.err)


class AdaptersUnderLayouts(Lora):
    def test_have_the_losses_of_a_single_device(self):
        expected = self.train(job_of()).curve("loss", "grad_norm")
        self.assertLess(expected["teacher", 12][0], expected["teacher", 1][0])
        for layout in ({"tensor": 2}, {"context": 2}, {"pipeline": 3}, {"replicas": 2, "zero": True},
                       {"replicas": [{"context": 2}, {"context": 1}], "tensor": 2},
                       {"replicas": 2, "tensor": 2, "pipeline": 2, "zero": True}, {"recompute": "layers"}):
            with self.subTest(layout):
                found = self.train(job_of({"checkpoint_at_end": False}, **layout), "--cpu-devices", 16)
                self.assert_close(expected, found.curve("loss", "grad_norm"), TOLERANCE)


class AStudent(Lora):
    def test_learns_from_its_teacher_by_adapters(self):
        job = distillation()
        job["student"] = job_of(precision="bf16")["teacher"]
        losses = self.train(job).curve("kl")
        self.assertLess(losses["student", 12][0], losses["student", 1][0])
        self.assertTrue((self.folder / "out/models/student/adapter_model.safetensors").exists())
        self.assertTrue((self.folder / "out/models/plain/model.safetensors").exists())


class AVisionLanguageModel(vlm_test.VisionLanguageTest):
    def test_answers_with_adapters_and_random_weights_below(self):
        finished = self.vlm("--set", "train.steps=4",
                            settings={**vlm_test.SMALL, "llm.weights": "random", "llm.lora.rank": 4}).wait()
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertTrue((self.folder / "runs/vlm/card.html").exists())
        self.assert_refused("the adapted weights are random values", "export", "runs/vlm/llm", "--to", "x", "--merge")


class AKilledRun(resume_test.Killed):
    STEPS, EVERY, KILLS = 300, 10, 2
    OPTIONS = ("--cpu-devices", 8)

    def test_goes_on_bitwise(self):
        write_model(self.folder / "model", CONFIG)
        self.check(job_of(), 1)

    def test_goes_on_bitwise_in_stages_and_ranks_with_shared_moments(self):
        write_model(self.folder / "model", CONFIG)
        self.check(job_of(replicas=2, tensor=2, pipeline=2, zero=True), 2)


class AnExport(Lora):
    def test_is_a_folder_of_peft_or_the_whole_model(self):
        job = job_of({"steps": 40})
        checked = self.call("check", self.write_job(job))
        self.assertIn("LoRA rank 4 on qkv, out, ffn, 5280 trained of ", checked.out)
        self.assertIn('load it: PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("', self.train(job).out)
        folder = self.folder / "out/models/teacher"
        self.assertFalse((folder / "config.json").exists())
        settings = json.loads((folder / "adapter_config.json").read_text())
        self.assertEqual((settings["peft_type"], settings["task_type"], settings["r"], settings["lora_alpha"]),
                         ("LORA", "CAUSAL_LM", 4, 8))
        self.assertEqual(set(settings["target_modules"]), {module.split(".")[1] for module in MODULES})
        self.assertEqual(settings["base_model_name_or_path"], str((self.folder / "model").resolve()))
        adapters = tensors(folder, "adapter_model.safetensors")
        self.assertEqual(set(adapters), {f"base_model.model.model.layers.{layer}.{module}.lora_{part}.weight"
                                         for layer in range(3) for module in MODULES for part in "AB"})
        self.check_merged(adapters)
        finished = self.call("export", "out", "--to", "adapters", "--dtype", "bf16")
        self.assertIn("adapters, bf16, ", finished.out)
        self.assertEqual({tensor[0] for tensor in tensors(self.folder / "adapters",
                                                          "adapter_model.safetensors").values()}, {"BF16"})

    def check_merged(self, adapters):
        for dtype in ("f32", "bf16"):
            finished = self.call("export", "out", "--to", dtype, "--merge", "--dtype", dtype)
            self.assertEqual(finished.status, 0, finished.describe())
        base, merged = tensors(self.folder / "model"), tensors(self.folder / "f32")
        self.assertEqual(merged.keys(), base.keys())
        self.assertEqual({tensor[0] for tensor in tensors(self.folder / "bf16").values()}, {"BF16"})
        self.assertFalse((self.folder / "f32/adapter_config.json").exists())
        for name, stored in base.items():
            (shape, before), (_, after) = floats(stored), floats(merged[name])
            module = "base_model.model." + name.removesuffix(".weight")
            if module + ".lora_A.weight" not in adapters:
                self.assertEqual(after, before, name)
                continue
            (_, a), (_, b) = (floats(adapters[f"{module}.lora_{part}.weight"]) for part in "AB")
            rows, columns = shape
            changed = 0
            for row in range(rows):
                for column in range(columns):
                    sum_ = sum(b[4 * row + k] * a[k * columns + column] for k in range(4))
                    self.assertAlmostEqual(after[row * columns + column], before[row * columns + column] + 2 * sum_,
                                           delta=1e-5)
                    changed += sum_ != 0
            self.assertEqual(changed, rows * columns, name)
        texts = [self.call("generate", folder, "--prompt", "the small", "--max-tokens", 24, "--tokenizer", "bytes").out
                 for folder in ("f32", "out/models/teacher")]
        self.assertEqual(len(texts[0].encode()), 25)
        self.assertEqual(*texts)


class WhatCannotBe(Lora):
    def test_is_refused_by_name(self):
        self.check_refused(job_of(lora={"rnk": 4}), "teacher.lora.rank: is not given")
        self.check_refused(job_of(lora={"rank": 4, "alfa": 8}), "teacher.lora.alfa: unknown key; did you mean 'alpha'?")
        self.check_refused(job_of(lora={"rank": 0}), "teacher.lora.rank: must be from 1 to 4096, got 0")
        self.check_refused(job_of(lora={"rank": 4, "on": ["qvk"]}), "did you mean 'qkv'?")
        self.check_refused(job_of(lora={"rank": 4, "dropout": 0.1}), "teacher.lora.dropout: adapters are trained without")
        job = job_of()
        del job["teacher"]["weights"]
        job["teacher"] = decoder(lora=LORA)
        self.check_refused(job, "teacher.weights: is not given, and below adapters the section is frozen")
        part = {"layers": 2, "width": 32, "heads": 2, "positions": 32, "micro_batch": 4, "tied": False,
                "weights": "random"}
        job = {**language_model(), "app": "split_language_model", "trunk": part, "head": {**part, "lora": LORA}}
        del job["teacher"]
        self.check_refused(job, "head.lora: a section of this type does not support adapters; decoders do")
        job["head"], job["trunk"] = part, {**part, "trained": False, "lora": LORA}
        self.check_refused(job, "trunk.lora does not apply to a frozen section")

    def test_is_another_base_or_a_merge_of_none(self):
        self.train(job_of({"steps": 1}))
        self.check_refused(job_of(weights="out/models/teacher"), "teacher.weights: out/models/teacher holds adapters")
        self.check_refused(job_of({"out": "next"}, weights="out/checkpoints/step-00000001/teacher"), "holds adapters")
        write_model(self.folder / "other", CONFIG, seed=2)
        (self.folder / "other/model.safetensors").replace(self.folder / "model/model.safetensors")
        self.check_refused(job_of({"steps": 2}), "weights of section 'teacher' differ", options=("train", "--resume", "out"))
        self.assert_refused("differ from the weights that they were trained on",
                            "export", "out", "--to", "x", "--merge")
        self.assertFalse((self.folder / "x").exists())
        self.train(language_model(steps=1, out="whole"))
        self.assert_refused("cannot merge section teacher: it does not train adapters",
                            "export", "whole", "--to", "x", "--merge")


if __name__ == "__main__":
    unittest.main(verbosity=2)
