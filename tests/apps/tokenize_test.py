#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`maestro tokenize` prints a text's tokens and the text of tokens, and refuses wrong input in one line."""

import json
import unittest
from pathlib import Path

from maestro_program import SystemTest

REFERENCES = Path(__file__).resolve().parent.parent / "tokenizer" / "references"
LLAMA3 = REFERENCES / "llama3.json"
TEXT = "Hello, 12345 worlds\n<|eot_id|>d\u00e9j\u00e0 vu \u65e5\u672c \U0001f600 'LL"


class Tokenize(SystemTest):
    def tokenize(self, *arguments):
        finished = self.call("tokenize", *arguments)
        self.assertEqual(finished.status, 0, finished.describe())
        return finished.out

    def refuse(self, wanted, *arguments):
        self.assert_refused(wanted, "tokenize", *arguments)

    def ids(self, *arguments):
        return [int(line.split("\t")[0]) for line in self.tokenize(*arguments).splitlines()]

    def write_lines(self, values):
        (self.folder / "lines").write_text("".join(json.dumps(value) + "\n" for value in values))
        return "lines"

    def test_decoding_returns_the_text_that_was_encoded(self):
        for shape in ("gpt2", "qwen2", "llama3", "tekken", "llama2", "mistral", "gemma"):
            with self.subTest(shape):
                file = REFERENCES / f"{shape}.json"
                ids = self.ids(file, TEXT)
                self.assertEqual(self.tokenize(file, "--decode", " ".join(map(str, ids))), TEXT + "\n")

    def test_a_text_has_a_line_for_each_token(self):
        lines = [line.split("\t") for line in self.tokenize(LLAMA3, "ab<|eot_id|>").splitlines()]
        self.assertEqual(lines[-1], ["1", "<|eot_id|>"])
        self.assertEqual("".join(piece for _, piece in lines), "ab<|eot_id|>")
        self.assertEqual(self.tokenize("bytes", "aZ"), "97\ta\n90\tZ\n")
        self.assertEqual(self.tokenize(LLAMA3, ""), "")

    def test_special_tokens_are_added_on_request(self):
        plain = self.ids(LLAMA3, TEXT)
        self.assertEqual(self.ids(LLAMA3, TEXT, "--special"), [0, *plain])
        self.write_lines([TEXT])
        self.assertEqual(json.loads(self.tokenize(LLAMA3, "--jsonl", "lines", "--special")), [0, *plain])

    def test_a_file_has_a_text_or_a_list_of_ids_in_each_line(self):
        texts = [TEXT, "", "a\nb", "\u0000\u2028"]
        ids = [json.loads(line) for line in self.tokenize(LLAMA3, "--jsonl", self.write_lines(texts)).splitlines()]
        self.assertEqual(ids[0], self.ids(LLAMA3, TEXT))
        self.assertEqual(ids[1], [])
        back = self.tokenize(LLAMA3, "--decode", "--jsonl", self.write_lines(ids)).split("\n")
        self.assertEqual([json.loads(line) for line in back if line], texts)

    def test_a_folder_has_its_tokenizer(self):
        (self.folder / "model").mkdir()
        (self.folder / "model" / "tokenizer.json").write_bytes(LLAMA3.read_bytes())
        self.assertEqual(self.ids("model", TEXT), self.ids(LLAMA3, TEXT))

    def test_wrong_ids_are_refused(self):
        self.refuse("\"x\" is not a token id", LLAMA3, "--decode", "1 x")
        self.refuse("no token has the id 70000", LLAMA3, "--decode", "1,70000")
        self.refuse("no token has the id -1", LLAMA3, "--decode", "--", "-1")
        self.refuse("is not a token id", LLAMA3, "--decode", "99999999999")

    def test_wrong_lines_are_refused_by_their_number(self):
        (self.folder / "wrong").write_text("7\n")
        self.refuse("wrong:1: expected a string, got 7", LLAMA3, "--jsonl", "wrong")
        self.refuse("wrong:1: expected a list, got 7", LLAMA3, "--decode", "--jsonl", "wrong")
        (self.folder / "wrong").write_text("[70000]\n")
        self.refuse("wrong:1: no token has the id 70000", LLAMA3, "--decode", "--jsonl", "wrong")
        for line, refusal in (("[99999999999]", "no token has the id 99999999999"), ("[4294967297]", "no token has the id"),
                              ("[1.7]", "[0]: expected a whole number"), ("[18446744073709551615]", "[0]: expected a whole number")):
            (self.folder / "wrong").write_text(line + "\n")
            self.refuse(refusal, LLAMA3, "--decode", "--jsonl", "wrong")
        (self.folder / "wrong").write_text("{\n")
        self.refuse("wrong:1", LLAMA3, "--jsonl", "wrong")

    def test_a_tokenizer_or_text_that_is_missing_is_named(self):
        (self.folder / "empty").mkdir()
        self.refuse("none does not exist", "none", "a")
        self.refuse("empty has no tokenizer", "empty", "a")
        self.refuse("none", LLAMA3, "--jsonl", "none")
        self.refuse("give a text", LLAMA3)
        self.refuse("--jsonl", LLAMA3, "a", "--jsonl", "lines")
        (self.folder / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}')
        self.refuse("model.type = \"WordPiece\"", "tokenizer.json", "a")


if __name__ == "__main__":
    unittest.main(verbosity=2)
