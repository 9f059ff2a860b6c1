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


def rms_norm(g, rows, columns):
    v = {"x": exact(g, rows, columns), "weight": exact(g, columns)}
    return v, lambda v: v["x"] * torch.rsqrt(v["x"].square().mean(-1, keepdim=True) + EPSILON) * v["weight"]


def gelu(g, rows, columns):
    return {"x": 2 * exact(g, rows, columns)}, lambda v: F.gelu(v["x"], approximate="tanh")


def swiglu(g, rows, columns):
    def forward(v):
        gate, up = v["x"].chunk(2, dim=-1)
        return F.silu(gate) * up
    return {"x": exact(g, rows, 2 * columns)}, forward


def add(g, rows, columns):
    return {"a": exact(g, rows, columns), "b": exact(g, rows, columns)}, lambda v: v["a"] + v["b"]


def embedding(g, rows, columns):
    v = {"table": exact(g, 5, columns), "positions_table": exact(g, 4, columns)}
    ids, positions = torch.arange(rows) * 3 % 5, torch.arange(rows) % 4
    return v, lambda v: F.embedding(ids, v["table"]) + F.embedding(positions, v["positions_table"])


def embedding_with_gaps(g, rows, columns):
    """ids of -1 take no row of the table."""
    v = {"table": exact(g, 5, columns), "positions_table": exact(g, 4, columns)}
    ids, positions = torch.arange(rows) * 3 % 6 - 1, torch.arange(rows) % 4
    present = (ids >= 0).unsqueeze(1)
    return v, lambda v: F.embedding(ids.clamp(min=0), v["table"]) * present + F.embedding(positions, v["positions_table"])


def select_rows(g, rows, columns):
    """Some rows twice, some not at all."""
    index = torch.arange(rows) * 2 // 3
    return {"x": exact(g, rows, columns)}, lambda v: v["x"][index]


def add_rows(g, rows, columns):
    index = torch.arange(rows) * 2 // 3
    return ({"x": exact(g, rows, columns), "rows": exact(g, rows, columns)},
            lambda v: v["x"].index_add(0, index, v["rows"]))


def rotary(g, rows, columns):
    """Two query heads and a key/value head of even size, the half-split rotation of Hugging Face's Llama."""
    size = columns + columns % 2
    positions = torch.arange(rows) * 7 % 300

    def forward(v):
        inverse = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = torch.outer(positions.double(), inverse).repeat(1, 2).unsqueeze(1)
        heads = v["qkv"].view(rows, 4, size)
        turned = torch.cat([-heads[..., size // 2:], heads[..., :size // 2]], dim=-1)
        out = heads * angle.cos() + turned * angle.sin()
        return torch.cat([out[:, :3], heads[:, 3:]], dim=1).reshape(rows, 4 * size)
    return {"qkv": exact(g, rows, 4 * size)}, forward


def record_operators():
    g = torch.Generator().manual_seed(20)
    tensors, notes = {}, []
    record_each(g, (linear, layer_norm, rms_norm, gelu, swiglu, add, embedding, rotary), tensors, notes)
    record_adamw(g, tensors)
    record_each(g, (embedding_with_gaps, select_rows, add_rows), tensors, notes)
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
    """embedding, a GPT-style and a Llama-style block without attention, and an output layer with cross-entropy."""
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
    h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * p["norm2.weight"]
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
