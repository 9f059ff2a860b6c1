#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records PyTorch's results for attention and for the output-layer losses, in double precision.

    python tests/ops/record_loss_references.py

writes references/attention.safetensors, references/losses.safetensors, references/bucket_losses.safetensors and
references/policy_losses.safetensors next to this file. Inputs are multiples of 1/64
below 2 in magnitude, so they are exact in bfloat16 and serve both precisions; results are stored as float32. The losses
are spelled out with torch.nn.functional and differentiated by autograd, so no formula is shared with the C++ sources.
"""
import json
import pathlib
import struct

import torch
import torch.nn.functional as F

HERE = pathlib.Path(__file__).resolve().parent / "references"


def exact(generator, *shape):
    """Returns normal numbers rounded to 1/64, which the 8 significant bits of bfloat16 hold."""
    values = torch.randn(*shape, generator=generator, dtype=torch.float64).clamp(-1.9, 1.9)
    return (values * 64).round().div(64)


def save(path, tensors, notes):
    header, data, at = {"__metadata__": {"cases": json.dumps(notes)}}, [], 0
    for name, tensor in tensors.items():
        kind = "I32" if tensor.dtype == torch.int32 else "F32"
        raw = (tensor if kind == "I32" else tensor.float()).contiguous().numpy().tobytes()
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def attention_case(generator, lengths, heads, kv_heads, size, causal):
    rows = sum(lengths)
    qkv = exact(generator, rows, (heads + 2 * kv_heads) * size).requires_grad_()
    dout = exact(generator, rows, heads * size)
    outs, lses, first = [], [], 0
    for length in lengths:
        part = qkv[first:first + length]
        q, k, v = part.split([heads * size, kv_heads * size, kv_heads * size], dim=1)
        q = q.view(length, heads, size).transpose(0, 1)
        k, v = (x.reshape(length, kv_heads, size).transpose(0, 1).repeat_interleave(heads // kv_heads, 0) for x in (k, v))
        outs.append(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(0, 1).reshape(length, -1))
        scores = q @ k.transpose(1, 2) / size**0.5
        if causal:
            scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), float("-inf"))
        lses.append(torch.logsumexp(scores, -1).transpose(0, 1))
        first += length
    out = torch.cat(outs)
    out.backward(dout)
    return {"qkv": qkv.detach(), "dout": dout, "out": out.detach(), "lse": torch.cat(lses).detach(), "dqkv": qkv.grad}


def record_attention():
    generator = torch.Generator().manual_seed(7)
    tensors, notes = {}, []
    for lengths, heads, kv_heads, size, causal in [
        ([5, 1, 17], 2, 2, 16, True),
        ([5, 1, 17], 2, 1, 16, False),
        ([70, 3], 2, 1, 16, True),
        ([66], 1, 1, 20, False),
        ([9, 4], 6, 2, 7, True),
        ([33], 1, 1, 64, True),
    ]:
        name = f"case{len(notes)}"
        case = attention_case(generator, lengths, heads, kv_heads, size, causal)
        tensors.update({f"{name}.{key}": value for key, value in case.items()})
        notes.append(dict(name=name, lengths=lengths, heads=heads, kv_heads=kv_heads, head_size=size, causal=causal))
    save(HERE / "attention.safetensors", tensors, notes)


M, C, CT, V, VT, SHARED, K = 11, 12, 10, 75, 70, 67, 6


def divergence(note, student, teacher):
    """Returns the divergence per row; `student` and `teacher` are log-probabilities, the teacher's may be -inf."""
    def kl(log_a, log_b):  # sum a (log a - log b), with 0 log 0 = 0
        a = log_a.exp()
        return torch.where(a > 0, a * (log_a - log_b), torch.zeros_like(a)).sum(-1)
    if note["divergence"] == "forward_kl":
        finite = torch.where(teacher.isinf(), torch.full_like(teacher, -1e4), teacher)
        return F.kl_div(student, finite, reduction="none", log_target=True).sum(-1)
    if note["divergence"] == "reverse_kl":
        return F.kl_div(teacher, student, reduction="none", log_target=True).sum(-1)
    beta = note["beta"]
    mixed = (beta * teacher.exp() + (1 - beta) * student.exp()).log()
    safe = torch.where(teacher.isinf(), torch.full_like(teacher, -1e4), teacher)
    return beta * kl(safe, mixed) + (1 - beta) * kl(student, mixed)


def loss_case(inputs, note):
    hidden, head = (inputs[key].clone().requires_grad_() for key in ("hidden", "head"))
    active = inputs["targets"] >= 0
    targets = inputs["targets"][active].long()
    z = (hidden @ head.T)[active]
    ce = F.cross_entropy(z, targets, reduction="sum")  # all student columns; the divergence: shared columns
    kl = teacher_ce = torch.zeros((), dtype=torch.float64)
    total, temperature = ce, note.get("temperature", 1)
    if note["boundary"] != "none":
        u = (inputs["teacher_hidden"] @ inputs["teacher_head"].T)[active, :SHARED]
        if note["boundary"] == "top_k":
            values, indices = u.topk(K)
            u = torch.full_like(u, float("-inf")).scatter(1, indices, values)
        else:
            teacher_ce = F.cross_entropy(u, targets, reduction="sum")
        q = F.log_softmax(z[:, :SHARED] / temperature, -1)
        kl = divergence(note, q, F.log_softmax(u / temperature, -1)).sum()
        total = note["alpha"] * temperature**2 * kl + (1 - note["alpha"]) * ce
    (total * note["scale"]).backward()
    sums = torch.stack([ce, kl, total, teacher_ce]).detach()
    return {"sums": sums, "dhidden": hidden.grad, "dhead": head.grad}


def record_losses():
    generator = torch.Generator().manual_seed(11)
    inputs = {
        "hidden": exact(generator, M, C),
        "head": exact(generator, V, C),
        "teacher_hidden": exact(generator, M, CT),
        "teacher_head": exact(generator, VT, CT),
        "targets": torch.randint(0, SHARED, (M,), generator=generator).int(),
    }
    inputs["targets"][torch.tensor([2, 3, 7])] = -1
    logits = inputs["teacher_hidden"] @ inputs["teacher_head"].T
    values, indices = logits[:, :SHARED].topk(K)
    tensors = dict(inputs, teacher_logits=logits, teacher_values=values, teacher_indices=indices.int())
    notes = [dict(boundary="none", divergence="forward_kl", scale=0.125)]
    for name in ("forward_kl", "reverse_kl", "js"):
        for temperature, alpha, beta in [(1.0, 0.5, 0.5), (2.0, 0.9, 0.1), (0.7, 1.0, 0.8)]:
            common = dict(divergence=name, temperature=temperature, alpha=alpha, beta=beta, scale=0.125)
            notes.append(dict(common, boundary="hidden"))
            if name != "reverse_kl":
                notes.append(dict(common, boundary="top_k"))
    for index, note in enumerate(notes):
        note["name"] = f"case{index}"
        tensors.update({f"{note['name']}.{key}": value for key, value in loss_case(inputs, note).items()})
    save(HERE / "losses.safetensors", tensors, notes)


def outcomes(logits, indices):
    """Returns log-probabilities of the tokens at `indices`, and in a last column of all other tokens together."""
    log_p = F.log_softmax(logits, -1)
    others = torch.ones_like(logits, dtype=torch.bool).scatter(1, indices, False)
    rest = log_p.masked_fill(~others, float("-inf")).logsumexp(-1, keepdim=True)
    return torch.cat([log_p.gather(1, indices), rest], 1)


def bucket_case(inputs, note):
    """A teacher with K named tokens and the probability of all others: both distributions have K + 1 outcomes."""
    hidden, head = (inputs[key].clone().requires_grad_() for key in ("hidden", "head"))
    active = inputs["targets"] >= 0
    z = (hidden @ head.T)[active]
    ce = F.cross_entropy(z, inputs["targets"][active].long(), reduction="sum")
    recorded = torch.cat([inputs["teacher_values"], inputs["teacher_rest"]], 1)[active]
    student = outcomes(z[:, :SHARED], inputs["teacher_indices"][active].long())
    temperature = note["temperature"]
    kl = divergence(note, F.log_softmax(student / temperature, -1), F.log_softmax(recorded / temperature, -1)).sum()
    total = note["alpha"] * temperature**2 * kl + (1 - note["alpha"]) * ce
    (total * note["scale"]).backward()
    sums = torch.stack([ce, kl, total, torch.zeros_like(ce)]).detach()
    return {"sums": sums, "dhidden": hidden.grad, "dhead": head.grad}


def record_bucket_losses():
    generator = torch.Generator().manual_seed(13)
    inputs = {
        "hidden": exact(generator, M, C),
        "head": exact(generator, V, C),
        "targets": torch.randint(0, SHARED, (M,), generator=generator).int(),
    }
    inputs["targets"][torch.tensor([2, 3, 7])] = -1
    logits = exact(generator, M, CT) @ exact(generator, VT, CT).T
    indices = logits[:, :SHARED].topk(K).indices
    recorded = outcomes(logits[:, :SHARED], indices).float().double()  # as the program receives them
    inputs.update(teacher_values=recorded[:, :K], teacher_rest=recorded[:, K:], teacher_indices=indices.int())
    tensors, notes = dict(inputs), []
    for name in ("forward_kl", "reverse_kl", "js"):
        for temperature, alpha, beta in [(1.0, 0.5, 0.5), (2.0, 0.9, 0.1), (0.7, 1.0, 0.8)]:
            notes.append(dict(name=f"case{len(notes)}", divergence=name, temperature=temperature, alpha=alpha, beta=beta,
                              scale=0.125))
            case = bucket_case(inputs, notes[-1])
            tensors.update({f"{notes[-1]['name']}.{key}": value for key, value in case.items()})
    save(HERE / "bucket_losses.safetensors", tensors, notes)


def policy_case(inputs, note):
    """Rows that the student sampled by the policy gradient; with note["mixed"] the other rows by the divergence."""
    hidden, head = (inputs[key].clone().requires_grad_() for key in ("hidden", "head"))
    made = inputs["targets"] >= 0
    read = made & (inputs["made"] == 0) if note["mixed"] else torch.zeros_like(made)
    made = made & ~read
    temperature, targets = note["temperature"], inputs["targets"].clamp(min=0).long()[:, None]
    z = hidden @ head.T
    log_q = F.log_softmax(z[:, :SHARED] / temperature, -1)
    log_pi = log_q.gather(1, targets)[:, 0]
    teachers = [F.log_softmax((inputs[f"teacher_hidden{n}"] @ inputs["teacher_head"].T)[:, :SHARED] / temperature, -1)
                for n in range(len(note["shares"]))]
    weight, capped, ratio = torch.ones_like(log_pi), torch.zeros_like(log_pi), torch.ones_like(log_pi)
    if note["ratio_cap"] > 0:
        ratio = (log_pi - inputs["sampled"][:, 0]).exp().detach()
        weight, capped = ratio.clamp(max=note["ratio_cap"]), (ratio > note["ratio_cap"]).double()
    advantage = sum(share * (log_nu.gather(1, targets)[:, 0] - log_pi).detach()
                    for share, log_nu in zip(note["shares"], teachers))
    ce = F.cross_entropy(z, targets[:, 0], reduction="none")
    policy = -weight * advantage * log_pi
    total = note["alpha"] * policy[made].sum() + (1 - note["alpha"]) * ce[made].sum()
    sums = [ce[made].sum(), -advantage[made].sum(), total, policy[made].sum(), weight[made].sum(), capped[made].sum(),
            policy[made].abs().sum()]
    if note["mixed"]:
        kl = divergence(note, log_q, teachers[0])
        total = total + (note["read_alpha"] * temperature**2 * kl + (1 - note["read_alpha"]) * ce)[read].sum()
    (total * note["scale"]).backward()
    return {"sums": torch.stack(sums).detach(), "dhidden": hidden.grad, "dhead": head.grad}


def record_policy_losses():
    generator = torch.Generator().manual_seed(17)
    inputs = {
        "hidden": exact(generator, M, C),
        "head": exact(generator, V, C),
        "teacher_hidden0": exact(generator, M, CT),
        "teacher_hidden1": exact(generator, M, CT),
        "teacher_head": exact(generator, VT, CT),
        "targets": torch.randint(0, SHARED, (M,), generator=generator).int(),
        "made": torch.randint(0, 2, (M,), generator=generator).int(),
    }
    inputs["targets"][torch.tensor([2, 3, 7])] = -1
    log_pi = F.log_softmax((inputs["hidden"] @ inputs["head"].T)[:, :SHARED], -1)
    log_pi = log_pi.gather(1, inputs["targets"].clamp(min=0).long()[:, None])
    inputs["sampled"] = (log_pi + exact(generator, M, 1)).float().double()
    tensors, notes = dict(inputs), []
    for temperature in (1.0, 2.0):
        for alpha, ratio_cap, shares, mixed in [(1.0, 0.0, [1.0], False), (1.0, 1.25, [1.0], False),
                                                (0.75, 1e6, [1.0], False), (1.0, 1.25, [0.75, 0.25], False),
                                                (1.0, 1.25, [1.0], True)]:
            notes.append(dict(name=f"case{len(notes)}", divergence="reverse_kl", temperature=temperature, alpha=alpha,
                              beta=0.5, ratio_cap=ratio_cap, shares=shares, mixed=mixed, read_alpha=0.5, scale=0.125))
            case = policy_case(inputs, notes[-1])
            tensors.update({f"{notes[-1]['name']}.{key}": value for key, value in case.items()})
    save(HERE / "policy_losses.safetensors", tensors, notes)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    record_attention()
    record_losses()
    record_bucket_losses()
    record_policy_losses()
