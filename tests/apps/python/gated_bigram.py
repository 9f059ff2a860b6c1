# SPDX-License-Identifier: Apache-2.0
# Trains a bigram model with a gate, a PyTorch module, on text.txt.
import maestro
import torch
from torch.nn import functional as F


class GatedBigram(torch.nn.Module):
    def __init__(self, width: int, vocabulary: int = 256):
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, width)
        self.gate = torch.nn.Linear(width, 2 * width, bias=False)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)

    def ports(self):
        return {"tokens": maestro.Input(dtype="i32"), "targets": maestro.Input(dtype="i32")}

    def forward(self, tokens, targets):
        gate, up = self.gate(F.softsign(self.embedding(tokens.flatten()))).chunk(2, dim=1)
        targets = targets.flatten().long()
        loss = F.cross_entropy(self.head(F.silu(gate) * up), targets, ignore_index=-1, reduction="sum")
        return {"loss": (loss, (targets >= 0).sum())}


job = {
    "name": "gated_bigram",
    "train": {"steps": 300, "global_batch": 16, "validation_samples": 16, "out": "runs/python"},
    "data": {"kind": "text", "path": "text.txt", "sequence": 32},
    "model": {"width": 32, "micro_batch": 8, "lr": 1e-2},
}
app = maestro.App(job, fresh=True)
data = app.source("corpus")
model = app.section("model", GatedBigram)
app.connect(data.port("tokens"), model.port("tokens"))
app.connect(data.port("targets"), model.port("targets"))

result = app.run()
print("validation", result.validation["model"]["loss"])
