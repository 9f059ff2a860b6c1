# SPDX-License-Identifier: Apache-2.0
"""Model folders as their authors publish them: config.json, random weights, a tokenizer."""

import json
import math
import random
import struct
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TOKENIZERS = REPOSITORY / "tests" / "tokenizer" / "references"
# Maps a random byte to the upper byte of a bf16 value: +-2^-7 to +-2^-5, whatever the lower byte.
UPPER = bytes(0xBC if byte & 1 else 0x3C for byte in range(256))


def tokenizer_text(name, vocabulary=600):
    """Returns a recorded tokenizer.json; for "trained", one from the package `tokenizers`, if it is installed."""
    if name != "trained":
        return (TOKENIZERS / f"{name}.json").read_text()
    try:
        from tokenizers import ByteLevelBPETokenizer
    except ImportError:
        raise unittest.SkipTest("the package tokenizers is not installed") from None
    made = ByteLevelBPETokenizer()
    texts = [file.read_text() for file in (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))]
    made.train_from_iterator(texts, vocab_size=vocabulary, special_tokens=["<|endoftext|>"])
    return made._tokenizer.to_str()


def shapes(config):
    """Returns {tensor: shape} for a llama or qwen3 model with a tied output layer."""
    width, ffn = config["hidden_size"], config["intermediate_size"]
    size = config.get("head_dim") or width // config["num_attention_heads"]
    query, key = (config[f"num_{kind}_heads"] * size for kind in ("attention", "key_value"))
    found = {"model.embed_tokens.weight": (config["vocab_size"], width), "model.norm.weight": (width,)}
    for layer in range(config["num_hidden_layers"]):
        parts = {"input_layernorm": (width,), "post_attention_layernorm": (width,), "self_attn.q_proj": (query, width),
                 "self_attn.k_proj": (key, width), "self_attn.v_proj": (key, width), "self_attn.o_proj": (width, query),
                 "mlp.gate_proj": (ffn, width), "mlp.up_proj": (ffn, width), "mlp.down_proj": (width, ffn)}
        if config["model_type"] == "qwen3":
            parts |= {"self_attn.q_norm": (size,), "self_attn.k_norm": (size,)}
        found |= {f"model.layers.{layer}.{part}.weight": shape for part, shape in parts.items()}
    return found


def random_bf16(shape, chosen):
    """Returns bytes of bf16 values: norms are 1, matrices random."""
    if len(shape) == 1:
        return shape[0] * b"\x80\x3f"
    content = bytearray(2 * math.prod(shape))
    content[0::2], content[1::2] = (chosen.randbytes(math.prod(shape)) for _ in range(2))
    content[1::2] = content[1::2].translate(UPPER)
    return bytes(content)


def write_tensors(file, found, seed=1):
    """Writes a safetensors file with random_bf16() of {tensor: shape}."""
    chosen = random.Random(seed)
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for tensor, shape in found.items():
        end = begin + 2 * math.prod(shape)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": (begin, end)}
        begin = end
    text = json.dumps(header).encode()
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for shape in found.values():
            out.write(random_bf16(shape, chosen))


def write_model(folder, config, seed=1):
    """Writes config.json and model.safetensors, in bf16."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    write_tensors(folder / "model.safetensors", shapes(config), seed)


def tensors(folder, file="model.safetensors"):
    """Returns {name: (dtype, shape, bytes)} of a folder's model, in one file or in shards, or of another file."""
    index = folder / "model.safetensors.index.json"
    names = {file}
    if index.exists() and file == "model.safetensors":
        names = set(json.loads(index.read_text())["weight_map"].values())
    found = {}
    for name in names:
        content = (folder / name).read_bytes()
        length = struct.unpack("<Q", content[:8])[0]
        header = json.loads(content[8:8 + length])
        header.pop("__metadata__")
        for tensor, entry in header.items():
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            found[tensor] = (entry["dtype"], entry["shape"], content[begin:end])
    return found
