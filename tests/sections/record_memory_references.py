#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records results of transformers and PyTorch for memories, for memory_test.cpp.

Needs torch and transformers 5.24; run from anywhere. Writes references/memory/expected.safetensors, all computed in f64
and stored in f32 or i32:
  ids.K.tokens (T), ids.K.rows (T, heads)      Qwen4ExpTextNGramEmbedding's row numbers; sizes in SHAPES[K]
  layer.rows (T, E), layer.hidden (T, C)       inputs of Qwen4ExpTextPLELayer with one stream, layer.<weight> its weights
  layer.out (T, C), layer.dout (T, C)          its result, and the gradient given to it
  layer.gradient.<input or weight>             gradients of sum(out dout)
  adagrad.table (R, D), adagrad.ids (S, N), adagrad.gradients (S, N, D)   S steps with repeated ids
  adagrad.values (R, D), adagrad.sums (R)      after all steps: lr 0.1, epsilon 1e-8
"""
import pathlib
import types

import torch
from safetensors.torch import save_file
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextPLELayer

# orders, heads, rows, dim, vocabulary, end_of_text, seed
SHAPES = ((3, 2, 50, 4, 61, 2, 1234), (4, 2, 1000, 8, 257, 0, 7), (2, 3, 40009, 2, 151936, 151643, -5))
WIDTH = 16


def layer(shape, width):
    orders, heads, rows, dim, vocabulary, end, seed = shape
    config = types.SimpleNamespace(
        hidden_size=width, hc_count=1, ple_embed_dim=(orders - 1) * heads * dim, ple_conv_kernel_size=4,
        ngram_size=orders, heads_per_ngram=heads, ngram_vocab_size_base=rows, make_ngram_vocab_size_divisible_by=128,
        seed=seed, vocab_size=vocabulary, eos_token_id=end, rms_norm_eps=1e-6)
    return Qwen4ExpTextPLELayer(config, 0, 0).double()


def rows_of(module, tokens):
    """Returns the row numbers, by a table whose rows hold their numbers."""
    embedding = module.ple_embedding
    count = embedding.ngram_embedding.weight.shape[0]
    numbers = torch.arange(count, dtype=torch.float64)[:, None]
    embedding.ngram_embedding.weight.data = numbers.expand(-1, embedding.ngram_embedding.weight.shape[1])
    found = embedding(tokens[None], None)[0]
    return found.unflatten(-1, (embedding.ngram_heads, -1))[..., 0].int()


def record_ids(out):
    for number, shape in enumerate(SHAPES):
        tokens = torch.randint(0, shape[4], (40,))
        tokens[torch.tensor([0, 7, 8, 20, 39])] = shape[5]
        out[f"ids.{number}.tokens"] = tokens.int()
        out[f"ids.{number}.rows"] = rows_of(layer(shape, WIDTH), tokens)


def record_layer(out):
    module = layer(SHAPES[0], WIDTH)
    module.ple_embedding.ngram_embedding.weight.data.normal_()
    names = ("key_proj", "value_proj", "norm_key", "norm_query", "norm_conv", "conv1d")
    weights = {name: getattr(module, name).weight for name in names}
    for weight in weights.values():
        weight.data = torch.randn_like(weight) * 0.3
    tokens = torch.tensor([5, 7, 2, 9, 9, 11, 2, 2, 4, 5, 6, 7])
    rows = module.ple_embedding(tokens[None], None).detach().requires_grad_()
    module.ple_embedding.forward = lambda *_: rows
    hidden = torch.randn(1, len(tokens), WIDTH, requires_grad=True)
    result = module(hidden, tokens[None], None)
    dout = torch.randn_like(result)
    (result * dout).sum().backward()
    out.update({"layer.rows": rows[0], "layer.hidden": hidden[0], "layer.out": result[0], "layer.dout": dout[0],
                "layer.gradient.rows": rows.grad[0], "layer.gradient.hidden": hidden.grad[0]})
    for name, weight in weights.items():
        out[f"layer.{name}"] = weight
        out[f"layer.gradient.{name}"] = weight.grad


def record_adagrad(out):
    table = torch.randn(7, 5)
    ids = torch.tensor([[1, 3, 1, 6], [0, 3, 3, 3], [6, 1, 2, 2]])
    gradients = torch.randn(3, 4, 5)
    values, sums = table.clone(), torch.zeros(7)
    for step in range(3):
        dense = torch.zeros(7, 5).index_add_(0, ids[step], gradients[step])
        for row in ids[step].unique():
            sums[row] += dense[row].square().mean()
            values[row] -= 0.1 * dense[row] / (sums[row].sqrt() + 1e-8)
    out.update({"adagrad.table": table, "adagrad.ids": ids.int(), "adagrad.gradients": gradients,
                "adagrad.values": values, "adagrad.sums": sums})


def main():
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(5)
    out = {}
    record_ids(out)
    record_layer(out)
    record_adagrad(out)
    folder = pathlib.Path(__file__).parent / "references" / "memory"
    folder.mkdir(exist_ok=True)
    save_file({name: value.detach().clone().contiguous().float() if value.dtype == torch.float64 else value.contiguous()
               for name, value in out.items()}, folder / "expected.safetensors")


if __name__ == "__main__":
    main()
