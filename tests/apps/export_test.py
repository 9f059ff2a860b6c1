#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trained section as a complete Hugging Face folder: in checkpoints, at the end, and by `maestro export`."""

import json
import shutil
import struct
import unittest

from maestro_program import SystemTest, decoder, language_model
from model_folders import tensors

EXTRAS = {
    "special_tokens_map.json": '{"eos_token": "x"}',
    "chat_template.jinja": "{{ messages }}\n",
    "generation_config.json": '{"do_sample": true, "temperature": 0.6}',
    "added_tokens.json": "{}",
}


def rounded_to_bf16(content):
    words = struct.unpack(f"<{len(content) // 4}I", content)
    return b"".join(struct.pack("<H", (word + 0x7fff + (word >> 16 & 1)) >> 16) for word in words)


class Exports(SystemTest):
    def export(self, *arguments):
        finished = self.call("export", *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished

    def refuse(self, arguments, *wanted):
        finished = self.call("export", *arguments)
        self.assertEqual(finished.status, 2, finished.describe())
        lines = finished.err.splitlines()
        self.assertEqual(len(lines), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, lines[0])

    def config(self, folder):
        return json.loads((self.folder / folder / "config.json").read_text())

    def checkpoint(self, step, out="out"):
        return self.folder / out / "checkpoints" / f"step-{step:08}"


class AFolderOfWeights(Exports):
    def setUp(self):
        super().setUp()
        self.train(language_model(steps=1, out="origin"))
        self.export("origin", "--to", "model", "--dtype", "bf16")
        (self.folder / "model/tokenizer_config.json").write_text('{"tokenizer_class": "Own"}')
        for name, text in EXTRAS.items():
            (self.folder / "model" / name).write_text(text)
        config = self.config("model")
        del config["torch_dtype"]
        self.original = {"_own_key": [1, {"b": 1e-07}], **config, "resid_pdrop": 0.1, "dtype": "bfloat16",
                         "bos_token_id": 3}
        (self.folder / "model/config.json").write_text(json.dumps(self.original))
        self.job = language_model(steps=2)
        self.job["teacher"] = {"weights": "model", "micro_batch": 4, "lr": 1e-3}

    def check_files(self, folder, dtype):
        self.assertEqual((folder / "tokenizer_config.json").read_text(), '{"tokenizer_class": "Own"}')
        for name, text in EXTRAS.items():
            self.assertEqual((folder / name).read_text(), text)
        found = json.loads((folder / "config.json").read_text())
        self.assertEqual(list(found.items()), list({**self.original, "dtype": dtype}.items()), "nothing is reordered")

    def check_run(self, step):
        stored, model = self.checkpoint(step) / "teacher", self.folder / "out/models/teacher"
        self.check_files(stored, "float32")
        self.check_files(model, "bfloat16")
        self.assertFalse((model / "optimizer.safetensors").exists())
        exact, exported = tensors(stored), tensors(model)
        self.assertEqual(exact.keys(), exported.keys())
        for name, (dtype, shape, content) in exact.items():
            self.assertEqual(dtype, "F32", "a checkpoint is exact")
            self.assertEqual(exported[name], ("BF16", shape, rounded_to_bf16(content)))

    def test_is_complete_in_checkpoints_and_at_the_end_also_when_it_is_gone_before_the_run_goes_on(self):  # MF-1
        finished = self.train(self.job)
        self.check_run(2)
        self.assertIn('load it: AutoModelForCausalLM.from_pretrained("out/models/teacher")', finished.out)
        self.assertRegex(finished.out, r"\n  validation +teacher loss \d\.\d{4}, ce \d\.\d{4}\n")
        shutil.rmtree(self.folder / "model")
        self.job["train"]["steps"] = 4
        finished = self.train(self.job, "--resume", "out")
        self.assertIn("note: teacher.weights: model does not exist; the section continues from", finished.out)
        self.assertEqual(finished.report["resumed_from"], 2)
        self.check_run(4)
        manifest = json.loads((self.checkpoint(4) / "checkpoint.json").read_text())
        self.assertIn("teacher/chat_template.jinja", [file["path"] for file in manifest["files"]])

    def test_trained_on_other_tokens_comes_out_with_the_tokenizer_of_the_corpus(self):
        (self.folder / "model/tokenizer.json").write_text('{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}')
        self.job["teacher"]["foreign_tokens"] = True
        self.train(self.job, settings={"data.tokenizer": "bytes"})
        model = self.folder / "out/models/teacher"
        for name in ("tokenizer.json", "tokenizer_config.json"):
            self.assertEqual((model / name).read_text(), (self.folder / "origin/models/teacher" / name).read_text())
        self.assertFalse((model / "chat_template.jinja").exists(), "it is of the other tokenizer")
        self.assertEqual(json.loads((model / "generation_config.json").read_text()), {})
        self.assertIsNone(self.config(model)["bos_token_id"])

    def test_gives_its_dtype_to_an_export_unless_another_is_named(self):
        self.export("origin", "--to", "half", "--dtype", "f16")
        self.job["teacher"]["weights"] = "half"
        self.job["train"]["export"] = "none"
        self.train(self.job)
        self.assertFalse((self.folder / "out/models").exists())
        self.assertIn("f16", self.export("out", "--to", "first").out)
        self.assertEqual({tensor[0] for tensor in tensors(self.folder / "first").values()}, {"F16"})
        self.assertEqual(self.config("first")["torch_dtype"], "float16")
        self.export("out", "--to", "second", "--dtype", "f32")
        self.assertEqual(tensors(self.folder / "second"), tensors(self.checkpoint(2) / "teacher"))


class ASectionWithoutWeights(Exports):
    def test_has_the_tokenizer_of_bytes_and_goes_on_as_weights_of_a_job_on_bytes(self):
        job = language_model(steps=1)
        job["teacher"] = decoder(vocabulary=300)
        self.train(job)
        model = self.folder / "out/models/teacher"
        self.assertEqual(self.config(model)["eos_token_id"], 256)
        self.assertIsNone(self.config(model)["bos_token_id"])
        self.assertEqual(json.loads((model / "generation_config.json").read_text())["eos_token_id"], 256)
        tokens = self.call("tokenize", model, "aÄ").out.split()
        self.assertEqual(tokens[::2], ["97", "195", "132"])
        job["teacher"] = {"weights": str(model), "micro_batch": 4}
        for settings in ({}, {"data.tokenizer": "bytes"}):
            finished = self.train({**job, "train": {**job["train"], "out": "next"}}, settings=settings)
            self.assertIn("tokens (bytes)", finished.out)

    def test_in_stages_comes_out_whole_and_in_shards(self):
        job = language_model(steps=2)
        job["teacher"] = decoder(pipeline=2)
        self.train(job, "--cpu-devices", 2)
        stored = self.checkpoint(2) / "teacher"
        self.assertTrue((stored / "model-00002-of-00002.safetensors").exists())
        self.assertTrue((stored / "tokenizer.json").exists())
        self.assertTrue((self.folder / "out/models/teacher/model.safetensors").exists())
        self.export(stored, "--to", "shards", "--shard-gb", 4e-5)
        index = json.loads((self.folder / "shards/model.safetensors.index.json").read_text())
        self.assertGreater(len(set(index["weight_map"].values())), 2)
        self.assertEqual(tensors(self.folder / "shards"), tensors(stored))
        job["teacher"] = {"weights": "shards", "micro_batch": 4}
        self.train(job)

    def test_that_is_misspelt_or_has_no_place_to_go_is_refused(self):
        self.train(language_model(steps=1))
        self.refuse(["out/techer", "--to", "x"], "has no section techer; it has teacher; the nearest is teacher")
        self.refuse(["uot", "--to", "x"], "cannot export uot: it does not exist; the nearest is ./out")
        self.refuse(["out", "--to", "x", "--dtype", "bf15"], 'export --dtype: "bf15"', "did you mean bf16?")
        self.refuse(["out", "--to", "out"], "cannot export to out: it is not empty")
        self.refuse(["out"], "missing --to (the folder to make)")
        self.assertFalse((self.folder / "x").exists())
        job = self.write_job(language_model(steps=1, out="other", export="f16", checkpoint_at_end=False))
        finished = self.call("check", job)
        self.assertEqual(finished.status, 2)
        self.assertIn("train.export: needs the checkpoint at the end", finished.err)


class AModelInTwoSections(Exports):
    def setUp(self):
        super().setUp()
        job = language_model(steps=2)
        shape = {key: job["teacher"][key] for key in job["teacher"] if key != "replicas"} | {"tied": False}
        del job["teacher"]
        self.train(job | {"app": "split_language_model", "trunk": shape, "head": shape})

    def test_is_one_folder_at_the_end_and_by_export(self):
        halves = tensors(self.checkpoint(2) / "trunk") | tensors(self.checkpoint(2) / "head")
        self.assertEqual(tensors(self.folder / "out/models/head+trunk"), halves)
        self.assertIn("lm_head.weight", halves)
        finished = self.export("out/head", "--to", "model")
        self.assertIn("head+trunk of", finished.describe())
        self.assertEqual(tensors(self.folder / "model"), halves)
        answer = self.call("generate", "model", "--prompt", "once", "--max-tokens", "4", "--temperature", "0")
        self.assertEqual(answer.status, 0, answer.describe())

    def test_is_named_by_who_asks_for_a_half(self):
        trunk = self.checkpoint(2) / "trunk"
        finished = self.call("generate", trunk, "--prompt", "once")
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertIn("tensor 'lm_head.weight' is missing", finished.err)
        self.assertIn(f"maestro export {trunk} --to DIR writes it as one folder", finished.err)
        self.assertEqual(len(finished.err.splitlines()), 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
