# SPDX-License-Identifier: Apache-2.0
# Trains an output layer of PyTorch on the hidden states of a decoder, which learns through it.
#
# usage: torch_section.py [PROCESSES]
import sys

import maestro
import torch


class Head(torch.nn.Module):
    def __init__(self, width: int, vocabulary: int = 32):
        super().__init__()
        self.linear = torch.nn.Linear(width, vocabulary, bias=False)

    def ports(self):
        return {"hidden": maestro.Input(self.linear.in_features), "targets": maestro.Input(dtype="i32")}

    def forward(self, hidden, targets):
        targets = targets.flatten().long()
        loss = torch.nn.functional.cross_entropy(self.linear(hidden), targets, ignore_index=-1, reduction="sum")
        return {"loss": (loss, (targets >= 0).sum())}


class Counting(maestro.Corpus):
    vocabulary = 32

    def samples(self, split):
        return 512 if split == "train" else 16

    def length(self, split, sample):
        return 12

    def read(self, split, sample):
        return [(sample + at) % self.vocabulary for at in range(12)]


job = {
    "name": "torch",
    "train": {"steps": 40, "global_batch": 16, "out": "runs/torch"},
    "trunk": {"layers": 1, "width": 32, "heads": 2, "positions": 16, "vocabulary": 32, "lr": 1e-2},
    "head": {"width": 32, "replicas": 2, "micro_batch": 4, "lr": 1e-2},
}
app = maestro.App(job, processes=int(sys.argv[1]) if len(sys.argv) > 1 else 1, fresh=True)
data = app.source("corpus", Counting())
trunk = app.section("trunk", "decoder_trunk")
head = app.section("head", Head)
app.connect(data.port("tokens"), trunk.port("tokens"))
app.connect(trunk.port("hidden"), head.port("hidden"))
app.connect(data.port("targets"), head.port("targets"))

result = app.run()
print("loss", result.losses["head"])
