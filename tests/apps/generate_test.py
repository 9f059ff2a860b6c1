#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro generate` continues prompts with a model folder, streams its text, and refuses wrong input in one line."""

import datetime
import json
import os
import shutil
import subprocess
import unittest
from pathlib import Path

from maestro_program import PATIENCE_S, PROGRAM, SystemTest, decoder, language_model, own_environment

TESTS = Path(__file__).resolve().parent.parent
LLAMA = TESTS / "sections" / "references" / "llama_untied"
TEMPLATE = (TESTS / "chat" / "references" / "chatml.jinja").read_text()
TOKENS = ["<s>", "<|im_start|>", "<|im_end|>", *"abcdefghijklmnopqrstuvwxyz",
          *"ABCDEFGHIJKLMNOPQRSTU", *".,:;!?-", "\u0120", "\u010a", "\u00e2", "\u0124"]


class Generate(SystemTest):
    def setUp(self):
        super().setUp()
        self.model = self.folder / "model"
        shutil.copytree(LLAMA, self.model)
        self.assertEqual(len(TOKENS), 61)  # the model's vocabulary
        added = [{"id": i, "content": TOKENS[i], "special": True} for i in range(3)]
        self.write("tokenizer.json", {
            "added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
            "decoder": {"type": "ByteLevel"},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                                        {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
            "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(TOKENS)}, "merges": []}})
        self.write("tokenizer_config.json", {"chat_template": TEMPLATE, "bos_token": "<s>"})
        self.write("config.json", {**json.loads((self.model / "config.json").read_text()), "eos_token_id": None})

    def write(self, name, value):
        (self.model / name).write_text(json.dumps(value))

    def generate(self, *arguments):
        finished = self.call("generate", "model", *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out

    def lines(self, *arguments):
        return [json.loads(line) for line in self.generate("--json", *arguments).splitlines()]

    def refuse(self, wanted, *arguments):
        self.assert_refused(wanted, "generate", *arguments)

    def test_a_text_and_a_line_of_json_are_the_same_continuation(self):
        line, = self.lines("--prompt", "ab", "--max-tokens", "9")
        self.assertEqual(list(line), ["ids", "text", "finish"])
        self.assertEqual(len(line["ids"]), 9)
        self.assertEqual(line["finish"], "length")
        self.assertEqual(self.generate("--prompt", "ab", "--max-tokens", "9"), line["text"] + "\n")

    def test_greedy_ids_are_those_of_transformers(self):
        self.write("tokenizer.json", {**json.loads((self.model / "tokenizer.json").read_text()), "post_processor": None})
        for case in json.loads((LLAMA / "greedy.json").read_text()):
            if not set(case["prompt"]) & {0, 57, 58, 59, 60}:
                stop = case["stop"]
                self.write("generation_config.json", {"eos_token_id": stop or None})
                wanted = case["tokens"][:-1] if stop and case["tokens"][-1] in stop else case["tokens"]
                line, = self.lines("--prompt", "".join(TOKENS[i] for i in case["prompt"]), "--max-tokens",
                                   str(len(case["tokens"])))
                self.assertEqual(line["ids"], wanted)
                self.assertEqual(line["finish"], "stop" if len(wanted) < len(case["tokens"]) else "length")

    def test_stop_tokens_come_from_three_files_in_turn(self):
        ids = self.lines("--prompt", "abc", "--max-tokens", "8")[0]["ids"]
        stop = next(i for i in ids[1:] if i != ids[0] and 3 <= i < 57)
        wanted = ids[:ids.index(stop)]
        config = json.loads((self.model / "config.json").read_text())
        settings = json.loads((self.model / "tokenizer_config.json").read_text())
        for name, value in (("generation_config.json", {"eos_token_id": [stop, 1]}),
                            ("config.json", {**config, "eos_token_id": stop}),
                            ("tokenizer_config.json", {**settings, "eos_token": {"content": TOKENS[stop]}})):
            with self.subTest(name):
                before = (self.model / name).read_text() if (self.model / name).exists() else "{}"
                self.write(name, value)
                line, = self.lines("--prompt", "abc", "--max-tokens", "8")
                self.assertEqual(line, {"ids": wanted, "text": line["text"], "finish": "stop"})
                (self.model / name).write_text(before)

    def test_a_file_has_a_prompt_in_each_line(self):
        (self.folder / "prompts").write_text('"ab"\n"a b\\n"\n')
        lines = self.lines("--jsonl", "prompts", "--max-tokens", "5")
        self.assertEqual(lines, self.lines("--prompt", "ab", "--prompt", "a b\n", "--max-tokens", "5"))
        self.assertEqual(len(lines), 2)

    def test_a_prompt_has_the_special_tokens_and_a_conversation_those_of_its_template(self):
        (self.model / "chat_template.jinja").write_text("<s>{{ messages[-1].content }}")
        plain = self.lines("--prompt", "ab", "--max-tokens", "5")
        self.assertEqual(self.lines("--chat", "--prompt", "ab", "--max-tokens", "5"), plain)
        (self.folder / "chats").write_text('[{"role": "system", "content": "x"}, {"role": "user", "content": "ab"}]\n"ab"\n')
        self.assertEqual(self.lines("--chat", "--jsonl", "chats", "--max-tokens", "5"), plain * 2)
        (self.model / "chat_template.jinja").write_text("{{ messages[-1].content }}")
        self.assertNotEqual(self.lines("--chat", "--prompt", "ab", "--max-tokens", "5"), plain)

    def test_a_template_prints_the_day(self):
        (self.model / "chat_template.jinja").write_text("<s>{{ strftime_now('%a') }} {{ messages[-1].content }}")
        days = [datetime.date.today()]
        dated = self.lines("--chat", "--prompt", "ab", "--max-tokens", "5")
        days.append(datetime.date.today())  # at midnight the day changes
        self.assertIn(dated, [self.lines("--prompt", f"{day:%a} ab", "--max-tokens", "5") for day in days])

    def test_draws_repeat_with_their_seed(self):
        drawn = ["--prompt", "a", "--max-tokens", "12", "--temperature", "1.5", "--top-k", "40", "--top-p", "0.95"]
        first = self.lines(*drawn, "--seed", "1")
        self.assertEqual(self.lines(*drawn, "--seed", "1"), first)
        self.assertNotEqual(self.lines(*drawn, "--seed", "2"), first)
        self.assertEqual(self.lines("--prompt", "a", "--temperature", "2", "--top-k", "1"), self.lines("--prompt", "a"))

    def test_generation_config_has_the_defaults_of_the_choice(self):
        ask = ["--prompt", "a", "--max-tokens", "12"]
        likeliest = self.lines(*ask)
        drawn = self.lines(*ask, "--temperature", "1.5", "--top-k", "40", "--top-p", "0.95")
        self.write("generation_config.json", {"do_sample": True, "temperature": 1.5, "top_k": 40, "top_p": 0.95})
        self.assertEqual(self.lines(*ask), drawn)
        self.assertEqual(self.lines(*ask, "--temperature", "0"), likeliest)
        self.write("generation_config.json", {"repetition_penalty": 1000.0, "no_repeat_ngram_size": 3})
        finished = self.call("generate", "model", "--json", *ask)
        ids = json.loads(finished.out)["ids"]
        self.assertEqual(len(set(ids)), len(ids))
        self.assertIn("generation_config.json: no_repeat_ngram_size = 3 has no effect here", finished.err)

    def test_slots_and_neighbours_change_nothing(self):
        prompts = ["a", "ab cd", "zz", "a", "hello there", "Q"]
        (self.folder / "prompts").write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))
        drawn = ["--temperature", "1.5", "--top-p", "0.95", "--max-tokens", "20", "--log-probabilities"]
        for precision in ("fp32", "bf16"):
            alone = [self.lines("--prompt", prompt, "--seed", str(5 + at), "--precision", precision, *drawn)[0]
                     for at, prompt in enumerate(prompts)]
            self.assertEqual(len(alone[0]["log_probabilities"]), len(alone[0]["ids"]))
            self.assertNotEqual(alone[0], alone[3], "each prompt has a seed of its own")
            for slots in ("1", "2", "4", "8"):
                self.assertEqual(self.lines("--jsonl", "prompts", "--seed", "5", "--slots", slots, "--precision",
                                            precision, *drawn), alone, slots)
        text = self.generate("--jsonl", "prompts", "--seed", "5", "--precision", "bf16", *drawn[:-1])
        self.assertEqual(text, "".join(line["text"] + "\n" for line in alone))
        self.refuse("--log-probabilities: they are part of the lines that --json prints; give --json too",
                    "model", "--prompt", "a", "--log-probabilities")

    def test_bf16_is_another_precision(self):
        self.assertEqual(len(self.lines("--prompt", "a", "--precision", "bf16", "--max-tokens", "3")[0]["ids"]), 3)

    def test_text_comes_token_by_token(self):
        """A pipe in packet mode keeps separate writes separate."""
        line, = self.lines("--prompt", "a", "--max-tokens", "12")
        read, write = os.pipe2(os.O_DIRECT)
        with open(read, "rb", buffering=0) as packets:
            running = subprocess.Popen([PROGRAM, "generate", "model", "--prompt", "a", "--max-tokens", "12"],
                                       stdout=write, cwd=self.folder, env=own_environment())
            os.close(write)
            self.assertEqual(running.wait(PATIENCE_S), 0)
            written = []
            while packet := packets.read(4096):
                written.append(packet.decode())
        self.assertEqual("".join(written), line["text"] + "\n")
        self.assertGreater(len(written), 6)

    def test_a_reader_that_leaves_ends_the_text(self):
        read, write = os.pipe()
        os.close(read)
        running = subprocess.Popen([PROGRAM, "generate", "model", "--prompt", "a"], stdout=write, stderr=subprocess.PIPE,
                                   cwd=self.folder, env=own_environment(), text=True)
        os.close(write)
        self.assertEqual(running.communicate(timeout=PATIENCE_S)[1], "error: generate: cannot write to standard output\n")

    def test_a_section_of_a_checkpoint_is_continued_with_its_tokenizer_named(self):
        job = language_model(steps=2, checkpoint_at_end=True)
        job["teacher"] = decoder(replicas=1, vocabulary=256)
        self.assertEqual(self.train(job).status, 0)
        section, = (self.folder / "out").glob("checkpoints/*/teacher")
        finished = self.call("generate", section, "--tokenizer", "bytes", "--prompt", "the ", "--max-tokens", "4", "--json")
        self.assertEqual(finished.status, 0, finished.describe())
        self.assertEqual(len(json.loads(finished.out)["ids"]), 4)
        for file in section.glob("tokenizer*"):
            file.unlink()
        self.refuse("name another by --tokenizer", section, "--prompt", "a")

    def test_wrong_input_is_refused_before_any_text(self):
        self.refuse("give --prompt TEXT, or --jsonl FILE", "model")
        self.refuse("none", "none", "--prompt", "a")
        self.refuse("none", "model", "--jsonl", "none")
        self.refuse("--jsonl", "model", "--prompt", "a", "--jsonl", "prompts")
        self.refuse("temperature = -1", "model", "--prompt", "a", "--temperature", "-1")
        self.refuse("top_p = 0", "model", "--prompt", "a", "--top-p", "0")
        self.refuse("--precision", "model", "--prompt", "a", "--precision", "fp16")
        self.refuse("18 tokens do not fit the model's 16 positions", "model", "--prompt", "a" * 17)
        for line, refusal in (("7", "prompts:2: expected a string"), ("{", "prompts:2"),
                              ('[{"role": "user", "content": "a"}]', "with --chat also a list of messages"),
                              ('"' + 17 * "a" + '"', "prompts:2: the prompt's 18 tokens")):
            (self.folder / "prompts").write_text('"a"\n' + line + "\n")
            self.refuse(refusal, "model", "--jsonl", "prompts")

    def test_wrong_conversations_are_refused_by_their_line(self):
        for line, refusal in (("7", "prompts:1: expected a list, got 7"),
                              ('[{"role": "user"}]', "prompts:1: [0].content is missing"),
                              ('[{"role": "user", "content": "a", "name": "b"}]', "prompts:1: [0].name: unknown key")):
            (self.folder / "prompts").write_text(line + "\n")
            self.refuse(refusal, "model", "--chat", "--jsonl", "prompts")
        (self.model / "chat_template.jinja").write_text("{% include \"a\" %}")
        self.refuse("chat_template.jinja: line 1 of the chat template: {% include %} is not supported", "model", "--chat",
                    "--prompt", "a")
        (self.model / "chat_template.jinja").unlink()
        self.write("tokenizer_config.json", {})
        self.refuse("model has no chat template", "model", "--chat", "--prompt", "a")

    def test_files_that_are_wrong_are_named(self):
        self.write("generation_config.json", {"eos_token_id": "x"})
        self.refuse("generation_config.json: eos_token_id: expected a whole number", "model", "--prompt", "a")
        self.write("generation_config.json", {})
        self.write("tokenizer_config.json", {"eos_token": "ab"})
        self.refuse("eos_token = \"ab\" is no token of", "model", "--prompt", "a")
        self.write("config.json", {"model_type": "mamba"})
        self.refuse("config.json", "model", "--prompt", "a")


if __name__ == "__main__":
    unittest.main(verbosity=2)
