#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of training or distillation by transformers and PyTorch, on random tokens, in fp32 or with bf16 autocast.

--images TOKENS TARGETS  numbers of a sample with an image; the encoder is frozen (work images)
--recompute  gradient checkpointing of every layer    --lora RANK  PEFT's LoRA on all linear layers but the output
"""
import argparse

import torch
from shapes import SHAPES
from torch_step_loss import loss_of
from transformers import AutoConfig, AutoModelForCausalLM


def model(shape):
    config = {key: value for key, value in SHAPES[shape].items() if key not in ("dtype", "model_type")}
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(SHAPES[shape]["model_type"], **config),
                                            attn_implementation="sdpa", dtype=torch.float32)


def adapted(student, settings):
    if settings.lora:
        from peft import LoraConfig, get_peft_model
        student = get_peft_model(student, LoraConfig(r=settings.lora, lora_alpha=2 * settings.lora, lora_dropout=0.0,
                                                     target_modules="all-linear", task_type="CAUSAL_LM"))
    if settings.recompute:
        student.enable_input_require_grads()  # checkpointing needs gradients at the frozen embeddings' output
        student.gradient_checkpointing_enable({"use_reentrant": False})
    return student


class ImageModel(torch.nn.Module):
    """Returns the loss of a micro-batch; images and tokens are ready beforehand, which favours this program."""

    def __init__(self, counts):
        super().__init__()
        from image_model import CONFIG
        from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration
        self.model = SmolVLMForConditionalGeneration._from_config(SmolVLMConfig(**CONFIG), attn_implementation="sdpa",
                                                                  dtype=torch.float32)
        self.model.model.vision_model.requires_grad_(False)
        self.counts = counts

    def forward(self, samples):
        from image_model import IMAGE_ROWS, IMAGE_TOKEN, SIDE
        length, targets = self.counts
        tokens = torch.randint(700, (samples, length))
        tokens[:, 4:4 + IMAGE_ROWS] = IMAGE_TOKEN
        labels = tokens.clone()
        labels[:, :length - targets] = -100
        pixels = torch.rand(samples, 1, 3, SIDE, SIDE) * 2 - 1
        return self.model(input_ids=tokens, pixel_values=pixels, labels=labels, use_cache=False).loss


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", required=True)
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--images", type=int, nargs=2)
    for name in ("steps", "threads", "sequence", "micro-batch", "micro-batches"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--lora", type=int, default=0)
    settings = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(settings.threads)
    student = ImageModel(settings.images).train() if settings.images else adapted(model(settings.shape).train(), settings)
    teacher = model("360m").eval().requires_grad_(False) if settings.work == "distillation" else None
    trained = [p for p in student.parameters() if p.requires_grad]
    matrices, vectors = ([p for p in trained if (p.dim() == 2) == two] for two in (True, False))
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = student if settings.images else loss_of
    if settings.compile:
        run = torch.compile(run)

    def loss():
        if settings.images:
            return run(settings.micro_batch)
        tokens = torch.randint(student.config.vocab_size, (settings.micro_batch, settings.sequence))
        return run(student, teacher, tokens, 0.7)

    for step in range(settings.steps):
        for _ in range(settings.micro_batches):
            with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bf16"):
                value = loss()
            (value / settings.micro_batches).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {step + 1}/{settings.steps}", flush=True)


if __name__ == "__main__":
    main()
