# SPDX-License-Identifier: Apache-2.0
"""The loss of a training or distillation step, for PyTorch's side of the benchmarks."""
import torch
import torch.nn.functional as F


def loss_of(student, teacher, tokens, alpha):
    logits = student(tokens, use_cache=False).logits[:, :-1].flatten(0, 1)
    loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
    if teacher is None:
        return loss
    with torch.no_grad():
        wanted = F.log_softmax(teacher(tokens, use_cache=False).logits[:, :-1].flatten(0, 1), 1)
    divergence = F.kl_div(F.log_softmax(logits, 1), wanted, reduction="batchmean", log_target=True)
    return alpha * divergence + (1 - alpha) * loss
