# SPDX-License-Identifier: Apache-2.0
# Trains a small language model on samples that are made in Python.
#
# usage: counting.py [PROCESSES]
import sys

import maestro


class Counting(maestro.Corpus):
    """Sample n counts upward from n."""

    vocabulary = 32

    def samples(self, split):
        return 512 if split == "train" else 16

    def length(self, split, sample):
        return 12

    def read(self, split, sample):
        return [(sample + at) % self.vocabulary for at in range(12)]


job = {
    "name": "counting",
    "train": {"steps": 40, "global_batch": 16, "out": "runs/counting"},
    "model": {"layers": 1, "width": 32, "heads": 2, "positions": 16, "lr": 1e-2},
}
app = maestro.App(job, processes=int(sys.argv[1]) if len(sys.argv) > 1 else 1, fresh=True)
data = app.source("corpus", Counting())
model = app.section("model", "decoder_lm").replicas(2).micro_batch(4)
app.connect(data.port("tokens"), model.port("tokens"))
app.connect(data.port("targets"), model.port("targets"))

result = app.run()
for row in maestro.read_steps(result.record)[::10]:
    print(row["step"], row["sections"]["model"]["loss"])
print("validation", result.validation["model"]["loss"], "model", result.models["model"])
