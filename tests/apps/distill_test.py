#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro distill` with given models: from text and folders to a trained student; refusals take one line."""

import hashlib
import json
import re
import shutil
import tomllib
import unittest

from maestro_program import SystemTest, decoder, language_model
from model_folders import REPOSITORY, tokenizer_text

COMMON = ("--steps", 3, "--set", "train.validation_samples=4")


class Distill(SystemTest):
    def maestro(self, *arguments):
        variables = {"MAESTRO_REPOSITORY": str(REPOSITORY), "HF_HUB_CACHE": str(self.folder / "hub"), "HF_HOME": "",
                     "XDG_CACHE_HOME": "", "HOME": str(self.folder)}
        return self.call(*arguments, variables=variables)

    def learn(self, *arguments):
        data = () if "--data" in arguments else ("--data", "corpus.txt")
        finished = self.maestro("distill", *data, "--out", "runs", *COMMON, *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertIn("validation loss (nats per token, lower is better)", finished.out)
        self.assertIn("runs/distill/card.html", finished.out)
        self.assertIn("finished after step 3", (self.folder / "runs/distill/card.md").read_text())
        self.assertIn("What the models write", (self.folder / "runs/distill/card.md").read_text())
        return json.loads((self.folder / "runs/distill/report.json").read_text()), finished

    def refuse(self, *wanted, arguments):
        finished = self.maestro("distill", "--out", "refused", *COMMON, *arguments)
        self.assertEqual(finished.status, 2, finished.describe())
        self.assertEqual(len(finished.err.splitlines()), 1, finished.describe())
        for text in wanted:
            self.assertIn(text, finished.err)

    def model(self, name, tokenizer="qwen2", **shape):
        """Writes the Hugging Face folder of a Llama with random values and a tokenizer."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        (folder / "tokenizer.json").write_text(tokenizer_text(tokenizer))
        job = language_model(steps=1, out=f"made-{folder.name}")
        job["data"] |= {"tokenizer": str(folder), "sequence": 16}
        job["teacher"] = decoder(family="llama", replicas=1, lr=0.0, **shape)
        self.train(job)
        for file in (self.folder / f"made-{folder.name}/checkpoints/step-00000001/teacher").iterdir():
            if file.suffix == ".safetensors" or file.name == "config.json":
                shutil.copy(file, folder)
        (folder / "optimizer.safetensors").unlink(missing_ok=True)
        return folder

    def test_without_data_the_bundled_texts_are_learned(self):
        few = ("train.steps=2", "train.validation_samples=4")
        finished = self.maestro("distill", "--set", few[0], "--set", few[1], "--teacher-set", few[0], "--teacher-set", few[1])
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(len(re.findall(r"apps/distill/texts: 2 text files .*: 1147971 tokens \(bytes\)", finished.out)), 2)
        self.assertIn("distillation gains", finished.out)
        job = tomllib.loads((REPOSITORY / "apps/distill/distill.toml").read_text())
        self.assertTrue((self.folder / job["teacher"]["weights"] / "config.json").is_file(), "the job finds its teacher")

    def test_the_bundled_texts_are_those_of_their_note(self):
        folder = REPOSITORY / "apps/distill"
        rows = re.findall(r"^\| (texts/\S+) \|.*\| (\d+) \| `(\w+)` \|$", (folder / "README.md").read_text(), re.M)
        self.assertEqual({folder / file for file, *_ in rows}, set((folder / "texts").iterdir()))
        for file, size, checksum in rows:
            content = (folder / file).read_bytes()
            self.assertEqual((len(content), hashlib.sha256(content).hexdigest()), (int(size), checksum), file)
            self.assertNotRegex(content.decode("ascii"), r"\r|  |_|\n\n\n")

    def test_conversations_and_prepared_data_are_recognised(self):
        teacher, student = self.model("teacher"), self.model("student")
        rows = [{"messages": [{"role": "user", "content": f"Count to {at}."},
                              {"role": "assistant", "content": " ".join(map(str, range(1, at)))}]}
                for at in range(2, 42)]
        (self.folder / "chat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        answers = ("--set", 'data.template="chatml"', "--set", 'data.end_of_turn="\\n"')
        report, finished = self.learn("--data", "chat.jsonl", "--teacher", teacher, "--student", student, *answers)
        self.assertIn("40 conversations", finished.out)
        done = self.maestro("prepare", "chat.jsonl", "--tokenizer", student, "--template", "chatml", "--end-of-turn", "\n",
                            "--validation", 0.1, "--out", "prepared")
        self.assertEqual(done.status, 0, done.describe())
        prepared, _ = self.learn("--data", "prepared", "--teacher", teacher, "--student", student)
        self.assertEqual([row["loss"] for row in prepared["steps"]], [row["loss"] for row in report["steps"]])

    def test_report_and_trace_lie_where_the_run_does(self):
        teacher = self.model("teacher")
        for out in ("one", "two"):
            finished = self.maestro("distill", "--data", "corpus.txt", "--out", "runs", *COMMON, "--teacher", teacher,
                                    "--student", teacher, "--set", f"train.out={out}")
            self.assertEqual(finished.status, 0, finished.describe())
            for file in ("report.json", "trace.json"):
                self.assertTrue((self.folder / out / file).is_file(), file)
        self.assertFalse((self.folder / "runs").exists())

    def test_a_given_student_learns_from_a_given_teacher(self):
        for tokenizer in ("qwen2", "trained"):
            with self.subTest(tokenizer):
                teacher, student = (f"{role}-{tokenizer}" for role in ("teacher", "student"))
                self.model(teacher, tokenizer, layers=3)
                before = (self.model(student, tokenizer, width=16) / "model.safetensors").read_bytes()
                report, finished = self.learn("--teacher", teacher, "--student", student)
                trained = self.folder / report["checkpoint"] / "student"
                shape, given = (json.loads((at / "config.json").read_text()) for at in (trained, self.folder / student))
                for key in ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"):
                    self.assertEqual(shape[key], given[key])
                self.assertNotEqual((trained / "model.safetensors").read_bytes(), before)
                self.assertEqual({row["section"] for row in report["steps"]}, {"student"}, "no plain student")
                self.assertIn(f"({self.folder / teacher}/tokenizer.json)", finished.out)
                self.assertIn("samples of up to 32 tokens", finished.out, "the positions of both models")

    def test_teacher_and_student_continue_the_same_prompts(self):
        self.model("teacher")
        self.model("student", width=16)
        _, finished = self.learn("--teacher", "teacher", "--student", "student", "--prompt", "the river")
        lines = finished.out[finished.out.index("continuations ("):].splitlines()
        self.assertEqual(json.loads(lines[1]), "the river")
        trained, = self.folder.glob("runs/distill/checkpoints/*/student")
        for line, name, folder in ((lines[2], "teacher", "teacher"), (lines[3], "student", trained)):
            role, text = line.split(maxsplit=1)
            generated = self.maestro("generate", folder, "--prompt", "the river", "--max-tokens", "24", "--json")
            self.assertEqual((role, json.loads(text)), (name, json.loads(generated.out)["text"]))

    def test_a_student_that_is_not_given_is_small_and_has_the_teachers_tokens(self):
        self.model("teacher")
        report, finished = self.learn("--teacher", "teacher", "--sequence", 24)
        shape = json.loads((self.folder / report["checkpoint"] / "student" / "config.json").read_text())
        self.assertEqual((shape["vocab_size"], shape["hidden_size"], shape["max_position_embeddings"]), (702, 128, 24))
        self.assertIn("samples of up to 24 tokens", finished.out)

    def test_a_run_continues_where_it_stopped(self):
        self.model("teacher")
        given = ("--teacher", "teacher", "--student", "teacher")
        whole, _ = self.learn(*given)
        self.learn(*given, "--set", "train.checkpoint_every=2")
        report, finished = self.learn(*given, "--resume", "runs/distill/checkpoints/step-00000002")
        self.assertEqual([row["step"] for row in report["steps"]], [3], finished.describe())
        self.assertEqual(report["steps"][-1]["loss"], whole["steps"][-1]["loss"])

    def test_a_model_is_found_by_its_name_in_the_cache_of_the_hub(self):
        made = self.model("made")
        snapshot = self.folder / "hub/models--some--model/snapshots/0123abc"
        snapshot.parent.mkdir(parents=True)
        made.rename(snapshot)
        _, finished = self.learn("--teacher", "some/model")
        self.assertIn(f"({snapshot}/tokenizer.json)", finished.out)
        tokens = self.maestro("tokenize", "some/model", "ab").out
        self.assertEqual("".join(line.split("\t")[1] for line in tokens.splitlines()), "ab")

    def test_a_model_that_is_missing_is_refused_with_what_to_give(self):
        data = ("--data", "corpus.txt")
        self.refuse("--teacher: none: no such folder; give the folder of a model", arguments=("--teacher", "none", *data))
        self.refuse("--teacher: some/model: no such folder, and no model of this name in the hub's cache (",
                    str(self.folder / "hub"), "`hf download some/model --local-dir DIR`",
                    arguments=("--teacher", "some/model", *data))
        self.refuse("--student requires --teacher", arguments=("--student", "none", *data))
        (self.folder / "empty").mkdir()
        self.refuse("teacher.weights", "empty/config.json", arguments=("--teacher", "empty", *data))

    def test_models_of_different_tokenizers_are_refused_by_the_first_token_that_differs(self):
        self.model("teacher")
        self.model("student", "llama3")
        self.refuse("teacher/tokenizer.json", "student/tokenizer.json", 'token 0 is "<|',
                    arguments=("--teacher", "teacher", "--student", "student", "--data", "corpus.txt"))

    def test_data_that_are_missing_or_empty_are_refused(self):
        self.model("teacher")
        (self.folder / "empty.txt").write_text("")
        self.refuse("[data] path", "none.txt does not exist", arguments=("--teacher", "teacher", "--data", "none.txt"))
        self.refuse("[data] path", "empty.txt is empty", arguments=("--teacher", "teacher", "--data", "empty.txt"))
        (self.folder / "short.txt").write_text("A few words.")
        self.refuse("[data] path", "too short", arguments=("--teacher", "teacher", "--data", "short.txt"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
