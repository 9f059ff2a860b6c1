#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the tokens that transformers makes from conversations, for chat_encoder_test.cpp.

Needs `transformers`, `tokenizers` and `jinja2` from PyPI; run from anywhere: tests/dataset/record_references.py
Writes references/conversations.jsonl (random conversations), references/tokenizer.json (a small byte-level BPE with the
special tokens of all templates) and references/expected.json: for each template of tests/chat/references, and each
conversation, a hash of the documents' ids and targets, or "refused". The ids are from
`apply_chat_template(tokenize=True)`; the targets follow the prefix rule, implemented here a second time.
"""

import json
import random
import re
from pathlib import Path

from jinja2.exceptions import TemplateError
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

TESTS = Path(__file__).resolve().parents[1]
REFERENCES = Path(__file__).resolve().parent / "references"
CONVERSATIONS = 500
DATE = "26 Jul 2024"  # llama3_1's date if strftime_now is not defined, as in maestro
WORDS = ("the a of to and in is it you that he was for on are with as I his they be at one have this from or had by hot "
         "word but what some we can out other were all there when up use your how said an each she which do their time "
         "if will way about many then them write would like so these her long make thing see him two has look more day "
         "could go come did number sound no most people my over know water than call first who may down side been now "
         "find D\u00e9j\u00e0 \u65e5\u672c\u8a9e \U0001f600 na\u00efve 12345 3.14 {x} <b> [INST] </s> 'quoted' \"double\" \\ \\n").split()


def text(source, longest):
    parts = [source.choice(WORDS) for _ in range(source.randint(1, longest))]
    joined = "".join(part + source.choice([" ", " ", " ", " ", "\n", ", ", ".\n\n", "  "]) for part in parts)
    return source.choice([joined, joined.strip(), " " + joined, joined.strip() + "."])


def answer(source):
    shape = source.randint(0, 9)
    if shape == 0:
        return "<think>\n" + text(source, 6).strip() + "\n</think>\n\n" + text(source, 8)
    return text(source, 12)


def conversation(source):
    messages = []
    if source.random() < 0.3:
        messages.append({"role": "system", "content": text(source, 8)})
    for _ in range(source.choice([1, 1, 1, 2, 2, 3, 4])):
        messages.append({"role": "user", "content": text(source, 12)})
        messages.append({"role": "assistant", "content": answer(source)})
    shape = source.randint(0, 19)
    if shape == 0:
        messages.append({"role": "user", "content": text(source, 4)})  # after the last answer
    if shape == 1:
        messages.insert(1, {"role": "user", "content": text(source, 4)})  # two questions in succession
    if shape == 2:
        messages = [message for message in messages if message["role"] != "assistant"]
    if shape == 3:
        messages[-1]["content"] = ""
    return messages


def hash_of(documents):
    value = 0xCBF29CE484222325
    for ids, learned in documents:
        for token, target in zip(ids, learned):
            for number in (token & 255, token >> 8, target):
                value = ((value ^ number) * 0x100000001B3) % 2**64
        value = ((value ^ 256) * 0x100000001B3) % 2**64
    return f"{value:016x}"


class Encoder:
    """Implements the prefix rule of runtime/dataset/chat_encoder.hpp."""

    def __init__(self, tokenizer, template):
        self.tokenizer, self.template = tokenizer, template

    def text(self, messages, prompt):
        return self.tokenizer.apply_chat_template(messages, chat_template=self.template, tokenize=False,
                                                  add_generation_prompt=prompt, date_string=DATE)

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def documents(self, messages):
        answers = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        if not answers or any(not messages[at]["content"] for at in answers):
            return None
        messages = messages[:answers[-1] + 1]
        prompts = {at: self.text(messages[:at], True) for at in answers}
        untils = {at: self.text(messages[:at + 1], False) for at in answers}
        if any(not untils[at].startswith(prompts[at]) for at in answers):
            return None
        whole = untils[answers[-1]]
        ids = self.tokenizer.apply_chat_template(messages, chat_template=self.template, tokenize=True,
                                                 return_dict=False, date_string=DATE)
        assert ids == self.ids(whole)
        if all(whole.startswith(untils[at]) for at in answers):
            learned = [0] * len(ids)
            for at in answers:
                self.learn(ids, learned, prompts[at], untils[at])
            return [(ids, learned)]
        made = []
        for at in answers:
            ids = self.ids(untils[at])
            learned = [0] * len(ids)
            self.learn(ids, learned, prompts[at], untils[at])
            made.append((ids, learned))
        return made

    def learn(self, ids, learned, prompt, until):
        for at in range(common(ids, self.ids(prompt)), common(ids, self.ids(until))):
            learned[at] = 1


def common(left, right):
    length = 0
    while length < min(len(left), len(right)) and left[length] == right[length]:
        length += 1
    return length


def tokenizer_of(templates):
    made = Tokenizer.from_file(str(TESTS / "tokenizer" / "references" / "qwen2.json"))
    special = {"<s>", "</s>"}
    for template in templates.values():
        special |= set(re.findall(r"<\|[a-z_]+\|>|<(?:start|end)_of_turn>|\[/?INST\]", template))
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in sorted(special)])
    made.save(str(REFERENCES / "tokenizer.json"), pretty=False)
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", eos_token="</s>")


def main():
    source = random.Random(16)
    conversations = [conversation(source) for _ in range(CONVERSATIONS)]
    (REFERENCES / "conversations.jsonl").write_text(
        "".join(json.dumps({"messages": each}, ensure_ascii=False) + "\n" for each in conversations))
    templates = {file.stem: file.read_text() for file in sorted((TESTS / "chat" / "references").glob("*.jinja"))
                 if file.stem not in ("constructs", "macros")}
    tokenizer = tokenizer_of(templates)
    expected = {}
    for name, template in templates.items():
        encoder = Encoder(tokenizer, template)
        expected[name] = []
        counts = {"refused": 0, "turn by turn": 0}
        for messages in conversations:
            try:
                documents = encoder.documents(messages)
            except TemplateError:
                documents = None
            counts["refused"] += documents is None
            counts["turn by turn"] += documents is not None and len(documents) > 1
            expected[name].append("refused" if documents is None else hash_of(documents))
        print(name, counts)
    (REFERENCES / "expected.json").write_text(
        "{\n" + ",\n".join(f'"{name}":\n{json.dumps(each)}' for name, each in expected.items()) + "\n}\n")


if __name__ == "__main__":
    main()
