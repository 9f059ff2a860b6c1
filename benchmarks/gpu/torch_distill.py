#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of `maestro train distill.toml`: the same teacher and student in PyTorch, as a JSON object.

The teacher has bf16 weights; the student, autocast and AdamW are as in torch_train.py. Teacher, student and loss are
compiled as one function. loss = 0.5 KL(teacher, student) + 0.5 cross-entropy, over the full vocabulary in fp32.
"""
import argparse
import json
import time

import torch
from torch.nn import functional as F

from torch_train import MODELS, Decoder, synchronize

# The models of distill.toml, in the format of torch_train.py
MODELS.update({"teacher": ("llama", 24, 1024, 16, 16, 2752, 32000, 1024, True),
               "student": ("llama", 12, 768, 12, 12, 2048, 32000, 1024, True),
               "tiny": ("llama", 2, 64, 4, 4, 192, 500, 128, False)})


class Logits(Decoder):
    def forward(self, tokens):
        x = self.embedding(tokens)
        rotation = self.rotation(tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = block(x, rotation)
        return self.head(self.norm(x))


def loss_of(student, teacher, targets):
    log_student = F.log_softmax(student.float().flatten(0, 1), -1)
    log_teacher = F.log_softmax(teacher.float().flatten(0, 1), -1)
    divergence = (log_teacher.exp() * (log_teacher - log_student)).sum(-1).mean()
    return 0.5 * divergence + 0.5 * F.nll_loss(log_student, targets.flatten(), ignore_index=-1)


def train(settings, device):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    teacher = Logits("tiny" if settings.tiny else "teacher", False).to(device, torch.bfloat16).requires_grad_(False)
    student = Logits("tiny" if settings.tiny else "student", False).to(device)
    decayed = [p for p in student.parameters() if p.dim() == 2]
    others = [p for p in student.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)

    @torch.compile
    def loss(tokens, targets):
        with torch.no_grad():
            expected = teacher(tokens)
        with torch.autocast(device.type, torch.bfloat16):
            logits = student(tokens)
        return loss_of(logits, expected, targets)

    shape = (settings.batch, settings.sequence)
    tokens = torch.randint(student.vocabulary, shape, device=device)
    targets = torch.cat([tokens.flatten()[1:], torch.tensor([-1], device=device)]).view(shape)
    times, losses = [], []
    for _ in range(settings.warmup + settings.steps):
        begin = time.perf_counter()
        value = loss(tokens, targets)
        value.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize(device)
        times.append(1000 * (time.perf_counter() - begin))
        losses.append(value.item())
    report = {"program": "pytorch", "version": torch.__version__, "batch": settings.batch, "sequence": settings.sequence,
              "step_ms_median": sorted(times[settings.warmup:])[settings.steps // 2], "losses": losses}
    if device.type == "cuda":
        free, everything = torch.cuda.mem_get_info()
        report["memory_mib"] = (everything - free) / 2**20
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    for name, default in (("batch", 16), ("sequence", 1024), ("steps", 20), ("warmup", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tiny", action="store_true", help="try the script itself: small models, any device")
    settings = parser.parse_args()
    print(json.dumps(train(settings, torch.device(settings.device))))


if __name__ == "__main__":
    main()
