#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of training or distillation with experts by transformers and PyTorch, fp32, on random tokens."""
import argparse
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "models"))
from expert_shapes import WORK, transformers_config  # noqa: E402
from torch_step_loss import loss_of  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402


def model(keys, experts):
    more = {"experts_implementation": experts} if "experts" in keys else {}
    return AutoModelForCausalLM.from_config(transformers_config(keys), attn_implementation="sdpa", dtype=torch.float32,
                                            **more)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=list(WORK), required=True)
    parser.add_argument("--experts", required=True)
    for name in ("steps", "threads", "samples"):
        parser.add_argument(f"--{name}", type=int, required=True)
    settings = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(settings.threads)
    work = WORK[settings.work]
    student = model(work["student"], settings.experts).train()
    teacher = model(work["teacher"], settings.experts).eval().requires_grad_(False) if "teacher" in work else None
    trained = list(student.parameters())
    matrices, vectors = ([p for p in trained if (p.dim() >= 2) == two] for two in (True, False))
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    for step in range(settings.steps):
        tokens = torch.randint(student.config.vocab_size, (settings.samples, work["sequence"]))
        loss_of(student, teacher, tokens, 0.7).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step + 1}/{settings.steps}", flush=True)


if __name__ == "__main__":
    main()
