#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of train_bench: the same model, trained by PyTorch with its fastest settings. Prints a JSON object.

bf16 by autocast over fp32 weights, scaled_dot_product_attention (flash), fused AdamW, clipping by norm, torch.compile.
With --peaks it measures the device instead: an 8192^3 bf16 product of random values, and a large copy.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F

# family, layers, width, heads, kv heads, ffn, vocabulary, positions, tied: as in train_bench.cpp
MODELS = {
    "gpt2-124m": ("gpt2", 12, 768, 12, 12, 3072, 50257, 1024, True),
    "llama-1b": ("llama", 22, 2048, 32, 4, 5632, 32000, 2048, False),
    "gpt2-tiny": ("gpt2", 2, 64, 4, 4, 256, 503, 128, True),
    "llama-tiny": ("llama", 2, 64, 4, 2, 128, 500, 128, False),
}


class Block(nn.Module):
    def __init__(self, family, width, heads, kv_heads, ffn):
        super().__init__()
        self.llama, self.heads, self.kv_heads, self.size = family == "llama", heads, kv_heads, width // heads
        norm = nn.RMSNorm if self.llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(width, eps=1e-5), norm(width, eps=1e-5)
        bias = not self.llama
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)
        self.up = nn.Linear(width, 2 * ffn if self.llama else ffn, bias=bias)
        self.down = nn.Linear(ffn, width, bias=bias)

    def attend(self, x, rotation):
        batch, tokens, _ = x.shape
        q, k, v = self.qkv(x).split([self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size], 2)
        q, k, v = (part.view(batch, tokens, -1, self.size).transpose(1, 2) for part in (q, k, v))
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, -1))

    def mlp(self, x):
        up = self.up(x)
        if not self.llama:
            return self.down(F.gelu(up, approximate="tanh"))
        gate, value = up.chunk(2, 2)
        return self.down(F.silu(gate) * value)

    def forward(self, x, rotation):
        x = x + self.attend(self.norm1(x), rotation)
        return x + self.mlp(self.norm2(x))


def rotate(x, rotation):
    cos, sin = rotation
    first, second = x.chunk(2, 3)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], 3).to(x.dtype)


class Decoder(nn.Module):
    def __init__(self, name, padded):
        super().__init__()
        family, layers, width, heads, kv_heads, ffn, vocabulary, positions, tied = MODELS[name]
        self.vocabulary = vocabulary
        rows = -(-vocabulary // 64) * 64 if padded else vocabulary
        self.embedding = nn.Embedding(rows, width)
        self.positions = nn.Embedding(positions, width) if family == "gpt2" else None
        self.blocks = nn.ModuleList(Block(family, width, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = (nn.RMSNorm if family == "llama" else nn.LayerNorm)(width, eps=1e-5)
        self.head = nn.Linear(width, rows, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        self.size = width // heads

    def rotation(self, tokens, device):
        if self.positions is not None:
            return None
        frequency = 10000.0 ** (-torch.arange(0, self.size, 2, device=device).float() / self.size)
        angle = torch.outer(torch.arange(tokens, device=device).float(), frequency)
        return angle.cos(), angle.sin()

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        rotation = self.rotation(tokens.shape[1], tokens.device)
        for block in self.blocks:
            x = block(x, rotation)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=-1)


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def train(settings, device):
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Decoder(settings.model, settings.padded).to(device)
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), fused=True)
    run = model if settings.eager else torch.compile(model, mode="reduce-overhead" if settings.graphs else None)
    shape = (settings.batch // settings.micro_batches, settings.sequence)
    batches = []
    for _ in range(settings.micro_batches):
        tokens = torch.randint(model.vocabulary, shape, device=device)
        targets = torch.cat([tokens.flatten()[1:], torch.tensor([-1], device=device)]).view(shape)
        batches.append((tokens, targets))
    losses = []
    begin = 0.0
    for step in range(settings.warmup + settings.steps):
        if step == settings.warmup:
            synchronize(device)
            begin = time.perf_counter()
        total = 0.0
        for tokens, targets in batches:
            if settings.graphs:
                torch.compiler.cudagraph_mark_step_begin()
            with torch.autocast(device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
                loss = run(tokens, targets) / settings.micro_batches
            loss.backward()
            total = total + loss.detach()
        if settings.clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    synchronize(device)
    step_ms = 1000 * (time.perf_counter() - begin) / settings.steps
    report = {"program": "pytorch", "version": torch.__version__, "model": settings.model, "padded": settings.padded,
              "compiled": not settings.eager, "graphs": settings.graphs, "precision": settings.precision,
              "batch": settings.batch, "sequence": settings.sequence, "micro_batches": settings.micro_batches,
              "step_ms": step_ms,
              "tokens_per_s": 1000 * settings.batch * settings.sequence / step_ms,
              "parameters": sum(p.numel() for p in model.parameters()), "losses": [float(loss) for loss in losses]}
    if device.type == "cuda":
        free, everything = torch.cuda.mem_get_info()
        report["memory_mib"] = (everything - free) / 2**20
        report["allocated_mib"] = torch.cuda.max_memory_allocated() / 2**20
        report["device_name"] = torch.cuda.get_device_name()
    return report


def seconds_of(work, device, repeats):
    for _ in range(3):
        work()
    synchronize(device)
    begin = time.perf_counter()
    for _ in range(repeats):
        work()
    synchronize(device)
    return (time.perf_counter() - begin) / repeats


def peaks(device):
    cuda = device.type == "cuda"
    side = 8192 if cuda else 256
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = seconds_of(lambda: a @ b, device, 30)
    source = torch.empty(2**32 if cuda else 2**22, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy = seconds_of(lambda: target.copy_(source), device, 20)
    return {"program": "peaks", "matrix_tflops": 2 * side**3 / product / 1e12,
            "copy_gb_per_s": 2 * source.numel() / copy / 1e9}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--model", default="gpt2-124m", choices=MODELS)
    parser.add_argument("--precision", default="bf16", choices=("bf16", "fp32"))
    for name, default in (("batch", 32), ("sequence", 1024), ("micro-batches", 1), ("steps", 20), ("warmup", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--padded", action="store_true", help="vocabulary rounded up to a multiple of 64")
    parser.add_argument("--graphs", action="store_true", help="torch.compile's mode for CUDA graphs")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--peaks", action="store_true")
    settings = parser.parse_args()
    device = torch.device(settings.device)
    print(json.dumps(peaks(device) if settings.peaks else train(settings, device)))


if __name__ == "__main__":
    main()
