# SPDX-License-Identifier: Apache-2.0
"""A teacher called like a Hugging Face transformers model, with the logits of served_modules.Logits:
served_torch_modules.py ADDRESS. Served by the example serve_teacher.py; PYTHONPATH has maestro_client."""

import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients/python/examples"))

import torch  # noqa: E402
from maestro_client.serve import serve  # noqa: E402
from serve_teacher import teacher  # noqa: E402


class TableOfLogits(torch.nn.Module):
    def __init__(self, vocabulary=256):
        super().__init__()
        self.config = SimpleNamespace(vocab_size=vocabulary)
        at = torch.arange(vocabulary, dtype=torch.float64)
        table = torch.tanh(torch.sin(at[:, None] * 31 + at[None, :] * 17)).float()
        self.table = torch.nn.Embedding.from_pretrained(table)

    def forward(self, input_ids, attention_mask):
        assert input_ids.shape == attention_mask.shape
        return SimpleNamespace(logits=self.table(input_ids))


if __name__ == "__main__":
    serve(teacher(TableOfLogits()), sys.argv[1])
