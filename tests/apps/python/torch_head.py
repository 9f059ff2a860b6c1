# SPDX-License-Identifier: Apache-2.0
"""pure_head.py as a PyTorch module."""

import math

import maestro
import torch


class TorchHead(torch.nn.Module):
    def __init__(self, width: int, vocabulary: int = 32):
        super().__init__()
        values = [math.sin(at * 7.0) / 4 for at in range(width * vocabulary)]
        self.weight = torch.nn.Parameter(torch.tensor(values, dtype=torch.float32).reshape(vocabulary, width))

    def ports(self):
        return {"hidden": maestro.Input(self.weight.shape[1]), "targets": maestro.Input(dtype="i32")}

    def forward(self, hidden, targets):
        targets = targets.flatten().long()
        loss = torch.nn.functional.cross_entropy(hidden @ self.weight.T, targets, ignore_index=-1, reduction="sum")
        return {"loss": (loss, (targets >= 0).sum())}
