#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records references/SHAPE.json (a small tokenizer.json with a model family's shape) and references/SHAPE.hashes.json
(hashes of the ids and texts that Hugging Face's tokenizers return for the strings in references/strings.json).

Needs `tokenizers` 0.23.3 from PyPI: python3 tests/tokenizer/record_references.py [SHAPE ...]
"""

import json
import random
import sys
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TREE = Path(__file__).resolve().parents[2]
REFERENCES = Path(__file__).resolve().parent / "references"
STRINGS, BLOCK, SPECIAL_STRINGS = 20_000, 100, 500  # as in reference_test.cpp
MASK = 2**64 - 1
MARK = "\u2581"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN3_5 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


class Generator:
    """SplitMix64, and strings drawn with it. Implemented again in reference_test.cpp."""

    def __init__(self, description):
        self.state, self.groups = description["seed"], description["groups"]

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def unit(self, group):
        if "pieces" in group:
            return group["pieces"][self.next() % len(group["pieces"])]
        index = self.next() % sum(last - first + 1 for first, last in group["ranges"])
        for first, last in group["ranges"]:
            if index <= last - first:
                return chr(first + index)
            index -= last - first + 1
        raise AssertionError

    def string(self):
        parts = []
        for _ in range(1 + self.next() % 6):
            group = self.groups[self.next() % len(self.groups)]
            parts += [self.unit(group) for _ in range(1 + self.next() % 8)]
        return "".join(parts)


def hash_of(pieces):
    """Returns the 64-bit FNV-1a hash of byte strings."""
    value = 0xCBF29CE484222325
    for piece in pieces:
        for byte in piece:
            value = ((value ^ byte) * 0x100000001B3) & MASK
    return f"{value:016x}"


def bytes_of_ids(ids):
    return b"".join(value.to_bytes(4, "little") for value in ids) + b"\xff\xff\xff\xff"


def byte_level(pre_tokenizer, normalizer=None, special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"), added=(),
               ignore_merges=False):
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        made.normalizer = normalizer
    made.pre_tokenizer, made.decoder = pre_tokenizer, decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=list(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    return made, trainer, added


def split(expression, behavior="isolated", invert=False):
    """Returns the pre-tokenizer of most byte-level models since Llama 3."""
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), behavior, invert),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def like_sentencepiece(normalizer, pre_tokenizer, strips, added=()):
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if normalizer:
        made.normalizer = normalizer
    if pre_tokenizer:
        made.pre_tokenizer = pre_tokenizer
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strips else []))
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=800, special_tokens=special, show_progress=False, limit_alphabet=150,
                                  max_token_length=16)
    return made, trainer, added


def plain(*contents):
    return [AddedToken(content, special=False, normalized=False) for content in contents]


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))


def smollm2():
    return byte_level(pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]))


def qwen2():
    return byte_level(split(QWEN2), normalizers.NFC(), added=plain("<think>", "<tool_call>"))


def qwen3_5():
    return byte_level(split(QWEN3_5), normalizers.NFC())


def llama3():
    return byte_level(split(LLAMA3), ignore_merges=True, special=("<|begin_of_text|>", "<|eot_id|>"))


def phi4():
    return byte_level(split(LLAMA3, "removed", True), special=("<|endoftext|>", "<|im_sep|>"))


def tekken():
    special = ("<unk>", "<s>", "</s>", "<SPECIAL_1>", "<SPECIAL_2>")
    return byte_level(split(TEKKEN), ignore_merges=True, special=special)


def llama2():
    steps = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    return like_sentencepiece(steps, None, True)


def mistral():
    added = [AddedToken("<|user|>", special=True, rstrip=True, normalized=False),
             AddedToken("<|end|>", special=True, lstrip=True, rstrip=True, normalized=False)]
    return like_sentencepiece(None, pre_tokenizers.Metaspace(MARK, "first", False), True, added)


def gemma():
    added = plain(*["\n" * count for count in range(2, 8)], *[MARK * count for count in range(2, 8)])
    added.append(AddedToken("<start_of_turn>", special=True, normalized=False))
    return like_sentencepiece(normalizers.Replace(" ", MARK), pre_tokenizers.Split(" ", "merged_with_previous"), False,
                              added)


SHAPES = (gpt2, smollm2, qwen2, qwen3_5, llama3, phi4, tekken, llama2, mistral, gemma)
BEGINNINGS = {"llama3": "<|begin_of_text|>", "tekken": "<s>", "llama2": "<s>", "mistral": "<s>", "gemma": "<s>"}


def texts(description):
    files = [TREE / "README.md", *sorted((TREE / "docs").glob("*.md"))]
    generator = Generator({**description, "seed": 1})
    return [file.read_text() for file in files] + [generator.string() for _ in range(300)]


def trained(shape, description):
    """Trains with a pre-tokenizer that cuts at spaces if the shape's pre-tokenizer does not cut."""
    made, trainer, added = shape()
    own = json.loads(made.to_str())
    if shape in (llama2, mistral, gemma):
        made.normalizer = normalizers.Replace(" ", MARK)
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex("\n+"), "isolated"),
                                                      pre_tokenizers.Split(MARK, "merged_with_next")])
    made.train_from_iterator(texts(description), trainer)
    described = json.loads(made.to_str())
    described.update({part: own[part] for part in ("normalizer", "pre_tokenizer")})
    made = Tokenizer.from_str(json.dumps(described))
    if added:
        made.add_tokens(list(added))
    if begin := BEGINNINGS.get(shape.__name__):
        made.post_processor = processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin} $B",
                                                            special_tokens=[(begin, made.token_to_id(begin))])
    return made


def hashes(tokenizer, strings):
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in strings]
    few = range(SPECIAL_STRINGS)
    pieces = {
        "encode": [bytes_of_ids(one) for one in ids],
        "special": [bytes_of_ids(tokenizer.encode(strings[i]).ids) for i in few],
        "decode": [tokenizer.decode(ids[i], skip_special_tokens=False).encode() + b"\xff" for i in few],
        "skip": [tokenizer.decode(ids[i], skip_special_tokens=True).encode() + b"\xff" for i in few],
    }
    return {name: [hash_of(list_[at:at + BLOCK]) for at in range(0, len(list_), BLOCK)]
            for name, list_ in pieces.items()}


def main():
    description = json.loads((REFERENCES / "strings.json").read_text())
    generator = Generator(description)
    strings = [generator.string() for _ in range(STRINGS)]
    for shape in SHAPES:
        if sys.argv[1:] and shape.__name__ not in sys.argv[1:]:
            continue
        tokenizer = trained(shape, description)
        file = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
        (REFERENCES / f"{shape.__name__}.json").write_text(file + "\n")
        recorded = json.dumps(hashes(tokenizer, strings), separators=(",\n", ":"))
        (REFERENCES / f"{shape.__name__}.hashes.json").write_text(recorded + "\n")


if __name__ == "__main__":
    main()
