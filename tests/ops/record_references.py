#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records PyTorch's results for the dense operators and for a small network, in double precision.

    python tests/ops/record_references.py

writes references/operators.safetensors and references/network.safetensors next to this file. Inputs are multiples of 1/64
below 2 in magnitude, so they are exact in bfloat16 and serve both precisions; results are stored as float32. Gradients
come from autograd, so no formula is shared with the C++ sources.
"""
import torch
import torch.nn.functional as F

from record_loss_references import HERE, exact, save

SIZES = [(1, 1), (3, 7), (17, 65)]
EPSILON = 1e-5


def linear(g, rows, columns):
    x, w, b = exact(g, rows, columns), exact(g, 2 * columns + 1, columns), exact(g, 2 * columns + 1)
    return {"x": x, "weight": w, "bias": b}, lambda v: F.linear(v["x"], v["weight"], v["bias"])


def layer_norm(g, rows, columns):
    v = {"x": exact(g, rows, columns), "weight": exact(g, columns), "bias": exact(g, columns)}
    return v, lambda v: F.layer_norm(v["x"], (columns,), v["weight"], v["bias"], EPSILON)


def root_mean_square(x, weight):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight


def rms_norm(g, rows, columns):
    v = {"x": exact(g, rows, columns), "weight": exact(g, columns)}
    return v, lambda v: root_mean_square(v["x"], v["weight"])


def rms_norm_with_offset(g, rows, columns):
    v, _ = rms_norm(g, rows, columns)
    return v, lambda v: root_mean_square(v["x"], 1 + v["weight"])


def head_norm(g, rows, columns):
    """Norms of two query heads and a key head, with weights offset by 1; the value head is copied."""
    v = {"qkv": exact(g, rows, 4 * columns), "query_weight": exact(g, columns), "key_weight": exact(g, columns)}

    def forward(v):
        heads = v["qkv"].view(rows, 4, columns)
        queries = root_mean_square(heads[:, :2], 1 + v["query_weight"])
        keys = root_mean_square(heads[:, 2:3], 1 + v["key_weight"])
        return torch.cat([queries, keys, heads[:, 3:]], dim=1).reshape(rows, 4 * columns)
    return v, forward


def whole_head_norm(g, rows, columns):
    """Norms over all columns of two query heads, and of a key head."""
    v = {"qkv": exact(g, rows, 4 * columns), "query_weight": exact(g, 2 * columns), "key_weight": exact(g, columns)}

    def forward(v):
        q, k, rest = v["qkv"].split([2 * columns, columns, columns], dim=1)
        return torch.cat([root_mean_square(q, v["query_weight"]), root_mean_square(k, v["key_weight"]), rest], dim=1)
    return v, forward


def gelu(g, rows, columns):
    return {"x": 2 * exact(g, rows, columns)}, lambda v: F.gelu(v["x"], approximate="tanh")


def erf_gelu(g, rows, columns):
    return {"x": 2 * exact(g, rows, columns)}, lambda v: F.gelu(v["x"])


def quick_gelu(g, rows, columns):
    return {"x": 2 * exact(g, rows, columns)}, lambda v: v["x"] * torch.sigmoid(1.702 * v["x"])


def swiglu(g, rows, columns, activation=F.silu):
    def forward(v):
        gate, up = v["x"].chunk(2, dim=-1)
        return activation(gate) * up
    return {"x": exact(g, rows, 2 * columns)}, forward


def geglu(g, rows, columns):
    return swiglu(g, rows, columns, lambda gate: F.gelu(gate, approximate="tanh"))


def add(g, rows, columns):
    return {"a": exact(g, rows, columns), "b": exact(g, rows, columns)}, lambda v: v["a"] + v["b"]


def embedding(g, rows, columns, scale=1):
    v = {"table": exact(g, 5, columns), "positions_table": exact(g, 4, columns)}
    ids, positions = torch.arange(rows) * 3 % 5, torch.arange(rows) % 4
    return v, lambda v: scale * F.embedding(ids, v["table"]) + F.embedding(positions, v["positions_table"])


def scaled_embedding(g, rows, columns):
    return embedding(g, rows, columns, 2.5)


def embedding_with_gaps(g, rows, columns):
    """Uses ids of -1, which select no row of the table."""
    v = {"table": exact(g, 5, columns), "positions_table": exact(g, 4, columns)}
    ids, positions = torch.arange(rows) * 3 % 6 - 1, torch.arange(rows) % 4
    present = (ids >= 0).unsqueeze(1)
    return v, lambda v: F.embedding(ids.clamp(min=0), v["table"]) * present + F.embedding(positions, v["positions_table"])


def select_rows(g, rows, columns):
    """Selects some rows twice, some not at all."""
    index = torch.arange(rows) * 2 // 3
    return {"x": exact(g, rows, columns)}, lambda v: v["x"][index]


def add_rows(g, rows, columns):
    index = torch.arange(rows) * 2 // 3
    return ({"x": exact(g, rows, columns), "rows": exact(g, rows, columns)},
            lambda v: v["x"].index_add(0, index, v["rows"]))


def rotary(g, rows, columns, rest=0, magnitude=1, axes=1):
    """Rotates two query heads and a key/value head as in Hugging Face's Llama (half-split), except `rest` columns. Pairs
    take the positions of a row in turns."""
    size = columns + columns % 2
    positions = (torch.arange(rows * axes) * 7 % 300).view(rows, axes)[:, torch.arange(size // 2) % axes]

    def forward(v):
        inverse = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = (positions.double() * inverse).repeat(1, 2).unsqueeze(1)
        heads = v["qkv"].view(rows, 4, size + rest)
        turned = torch.cat([-heads[..., size // 2:size], heads[..., :size // 2]], dim=-1)
        out = magnitude * (heads[..., :size] * angle.cos() + turned * angle.sin())
        out = torch.cat([out, heads[..., size:]], dim=-1)
        return torch.cat([out[:, :3], heads[:, 3:]], dim=1).reshape(rows, 4 * (size + rest))
    return {"qkv": exact(g, rows, 4 * (size + rest))}, forward


def partial_rotary(g, rows, columns):
    return rotary(g, rows, columns, 5, 0.75)


def axial_rotary(g, rows, columns):
    return rotary(g, rows, columns, 3, 1.25, 3)


def scale(g, rows, columns):
    return {"x": exact(g, rows, columns)}, lambda v: -0.75 * v["x"]


def row_pair(g, rows, columns):
    return {"a": exact(g, rows, columns + 3), "b": exact(g, rows, columns + 3)}


def multiply(g, rows, columns):
    return row_pair(g, rows, columns), lambda v: v["a"] * v["b"]


def multiply_rows(g, rows, columns):
    return {"a": exact(g, rows, columns), "b": exact(g, rows, 1)}, lambda v: v["a"] * v["b"]


def multiply_columns(g, rows, columns):
    return {"a": exact(g, rows, columns), "b": exact(g, 1, columns)}, lambda v: v["a"] * v["b"]


def sigmoid(g, rows, columns):
    return {"x": exact(g, rows, columns)}, lambda v: torch.sigmoid(v["x"])


def tanh(g, rows, columns):
    return {"x": exact(g, rows, columns)}, lambda v: torch.tanh(v["x"])


def softmax(g, rows, columns):
    return {"x": exact(g, rows, columns)}, lambda v: F.softmax(v["x"], dim=-1)


def log_softmax(g, rows, columns):
    return {"x": exact(g, rows, columns)}, lambda v: F.log_softmax(v["x"], dim=-1)


def row_dot(g, rows, columns):
    return row_pair(g, rows, columns), lambda v: (v["a"] * v["b"]).sum(-1, keepdim=True)


def cosine(g, rows, columns):
    return row_pair(g, rows, columns), lambda v: F.cosine_similarity(v["a"], v["b"], dim=-1).unsqueeze(-1)


def columns(g, rows, columns):
    v = {"a": exact(g, rows, columns), "b": exact(g, rows, columns + 2)}
    return v, lambda v: torch.cat([v["a"], v["b"][:, 1:]], dim=1)


def convolved(x, weight, bias, dilation, first):
    """Returns the causal convolution of each channel of two samples; the second begins at row `first`."""
    def of(sample):
        padded = F.pad(sample.T, ((weight.shape[1] - 1) * dilation, 0)).unsqueeze(0)
        return F.conv1d(padded, weight.unsqueeze(1), bias, dilation=dilation, groups=weight.shape[0])[0].T
    return torch.cat([of(sample) for sample in (x[:first], x[first:]) if len(sample) > 0])


def causal_conv(g, rows, columns):
    v = {"x": exact(g, rows, columns), "weight": exact(g, columns, 4), "bias": exact(g, columns)}
    return v, lambda v: F.silu(convolved(v["x"], v["weight"], v["bias"], 2, rows // 3))


def gated_conv(g, rows, columns):
    def forward(v):
        in_gate, out_gate, x = v["x"].chunk(3, dim=-1)
        return out_gate * convolved(in_gate * x, v["weight"], None, 1, rows // 3)
    return {"x": exact(g, rows, 3 * columns), "weight": exact(g, columns, 3)}, forward


def grouped_linear(g, rows, columns):
    """Rows in four groups of expert_cases.cpp's sizes, each with a weight of its own; the second group is empty."""
    outputs, third = 2 * columns + 1, (rows + 2) // 3
    sizes = [third, 0, (rows - third) // 2, rows - third - (rows - third) // 2]
    v = {"x": exact(g, rows, columns), "weight": exact(g, 4 * outputs, columns)}

    def forward(v):
        parts = zip(v["x"].split(sizes), v["weight"].chunk(4))
        return torch.cat([F.linear(x, weight) for x, weight in parts])
    return v, forward


def combine_rows(g, rows, columns):
    v = {"rows": exact(g, 3 * rows, columns)}
    return v, lambda v: v["rows"].flip(0).view(rows, 3, columns).sum(1)


def latent_heads(g, rows, columns, order=(0, 1, 2, 3)):
    """Three heads of columns + 4, with the 4 that turn first, in `order`; values are filled up with zeros."""
    size, value = columns + 4, (columns + 5) // 2
    v = {"queries": exact(g, rows, 3 * size), "keys": exact(g, rows, 3 * (columns + value)), "rope": exact(g, rows, 4)}

    def forward(v):
        nope, turned = v["queries"].view(rows, 3, size).split([columns, 4], dim=-1)
        key, values = v["keys"].view(rows, 3, columns + value).split([columns, value], dim=-1)
        rope = v["rope"][:, None, order].expand(rows, 3, 4)
        heads = [torch.cat([turned[..., order], nope], dim=-1), torch.cat([rope, key], dim=-1),
                 F.pad(values, (0, size - value))]
        return torch.stack(heads, dim=1).reshape(rows, 9 * size)
    return v, forward


def latent_heads_interleaved(g, rows, columns):
    return latent_heads(g, rows, columns, (0, 2, 1, 3))


def clamped_glu(g, rows, columns):
    def forward(v):
        gate, up = v["x"][:, ::2].clamp(max=0.7), v["x"][:, 1::2].clamp(-0.7, 0.7)
        return (up + 1) * gate * torch.sigmoid(1.702 * gate)
    return {"x": exact(g, rows, 2 * columns)}, forward


def grouped_bias(g, rows, columns, weighted=False):
    """Rows in four groups of expert_cases.cpp's sizes, each with a bias of its own."""
    third = (rows + 2) // 3
    sizes = torch.tensor([third, 0, (rows - third) // 2, rows - third - (rows - third) // 2])
    v = {"x": exact(g, rows, columns), "bias": exact(g, 4, columns)}
    if weighted:
        v["weights"] = exact(g, rows, 1)
    group = torch.repeat_interleave(torch.arange(4), sizes)
    return v, lambda v: v["x"] + (v["weights"] if weighted else 1) * v["bias"][group]


def weighted_bias(g, rows, columns):
    return grouped_bias(g, rows, columns, True)


def record_operators():
    g = torch.Generator().manual_seed(20)
    tensors, notes = {}, []
    record_each(g, (linear, layer_norm, rms_norm, gelu, swiglu, add, embedding, rotary), tensors, notes)
    record_adamw(g, tensors)
    record_each(g, (embedding_with_gaps, select_rows, add_rows), tensors, notes)
    record_each(g, (partial_rotary, rms_norm_with_offset, head_norm, whole_head_norm, geglu, scaled_embedding), tensors,
                notes)
    record_each(g, (scale, multiply, multiply_rows, sigmoid, tanh, softmax, log_softmax, row_dot, cosine, columns), tensors,
                notes)
    record_each(g, (erf_gelu, quick_gelu), tensors, notes)
    record_each(g, (multiply_columns, axial_rotary), tensors, notes)
    record_each(g, (causal_conv, gated_conv), tensors, notes)
    record_each(g, (grouped_linear, combine_rows), tensors, notes)
    record_each(g, (latent_heads, latent_heads_interleaved), tensors, notes)
    record_each(g, (clamped_glu, grouped_bias, weighted_bias), tensors, notes)
    save(HERE / "operators.safetensors", tensors, notes)


def record_each(g, makers, tensors, notes):
    for make in makers:
        for rows, columns in SIZES:
            values, forward = make(g, rows, columns)
            for value in values.values():
                value.requires_grad_()
            result = forward(values)
            dresult = exact(g, *result.shape)
            result.backward(dresult)
            case = f"{make.__name__}.{rows}x{columns}"
            notes.append({"case": case, "operator": make.__name__, "rows": rows, "columns": columns})
            tensors[f"{case}.result"], tensors[f"{case}.dresult"] = result.detach(), dresult
            for name, value in values.items():
                tensors[f"{case}.{name}"], tensors[f"{case}.d{name}"] = value.detach(), value.grad


def record_adamw(g, tensors):
    value = exact(g, 77).requires_grad_()
    optimizer = torch.optim.AdamW([value], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    tensors["adamw.value"] = value.detach().clone()
    for step in (1, 2, 3):
        value.grad = exact(g, 77)
        tensors[f"adamw.gradient{step}"] = value.grad.clone()
        optimizer.step()
        tensors[f"adamw.value{step}"] = value.detach().clone()


def record_network():
    """An embedding, a GPT-style and a Llama-style block without attention, and an output layer with cross-entropy."""
    g = torch.Generator().manual_seed(21)
    rows, width, inner, vocabulary = 13, 24, 40, 31
    p = {"tokens": exact(g, vocabulary, width), "positions": exact(g, rows, width),
         "norm1.weight": 1 + exact(g, width) / 4, "norm1.bias": exact(g, width) / 4,
         "up.weight": exact(g, inner, width) / 4, "up.bias": exact(g, inner) / 4,
         "down.weight": exact(g, width, inner) / 4, "down.bias": exact(g, width) / 4,
         "norm2.weight": 1 + exact(g, width) / 4, "gates.weight": exact(g, 2 * inner, width) / 4,
         "out.weight": exact(g, width, inner) / 4, "norm3.weight": 1 + exact(g, width) / 4,
         "norm3.bias": exact(g, width) / 4, "head.weight": exact(g, vocabulary, width) / 4}
    for value in p.values():
        value.requires_grad_()
    ids = torch.randint(0, vocabulary, (rows,), generator=g)
    targets = torch.randint(0, vocabulary, (rows,), generator=g)
    targets[3] = -1
    x = p["tokens"][ids] + p["positions"]
    h = F.layer_norm(x, (width,), p["norm1.weight"], p["norm1.bias"], EPSILON)
    h = F.gelu(F.linear(h, p["up.weight"], p["up.bias"]), approximate="tanh")
    x = x + F.linear(h, p["down.weight"], p["down.bias"])
    h = root_mean_square(x, p["norm2.weight"])
    gate, up = F.linear(h, p["gates.weight"]).chunk(2, dim=-1)
    x = x + F.linear(F.silu(gate) * up, p["out.weight"])
    h = F.layer_norm(x, (width,), p["norm3.weight"], p["norm3.bias"], EPSILON)
    loss = F.cross_entropy(F.linear(h, p["head.weight"]), targets, ignore_index=-1, reduction="sum")
    (loss / 12).backward()
    tensors = {"ids": ids.int(), "targets": targets.int(), "loss": loss.detach().reshape(1)}
    for name, value in p.items():
        tensors |= {name: value.detach(), f"d.{name}": value.grad}
    save(HERE / "network.safetensors", tensors, {"rows": rows, "width": width, "inner": inner})


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    record_operators()
    record_network()
