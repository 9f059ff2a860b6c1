# SPDX-License-Identifier: Apache-2.0
"""Common parts of distill/torch_distill.py and vlm/torch_vlm.py: options, model, data and the printed line."""
import argparse
import ctypes
import json
import math
import statistics

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 4096


def read_options(description):
    """Returns a parser with the options of every program."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast over fp32 weights")
    parser.add_argument("--attention", choices=("math", "sdpa"), default="math")
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    for name, default in (("threads", 1), ("steps", 10), ("warmup", 2), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser


def tune(options):
    """Sets the number of threads, and makes malloc keep freed memory, which saves page faults in every step."""
    torch.set_num_threads(options.threads)
    mallopt = ctypes.CDLL(None).mallopt
    trim_threshold, top_pad, mmap_max = -1, -2, -4  # malloc.h
    for parameter, value in ((trim_threshold, 2**31 - 1), (top_pad, 2**28), (mmap_max, 0)):
        mallopt(parameter, value)


def autocast(options):
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=options.dtype == "bf16")


class Block(nn.Module):
    """A pre-norm transformer block with GPT-2's MLP."""

    def __init__(self, width, heads, attention):
        super().__init__()
        self.heads, self.attention = heads, attention
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def attend(self, x, hidden):
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.attention == "sdpa":
            causal = hidden is not None and hidden.dim() == 2
            visible = None if hidden is None or causal else ~hidden
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=causal)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
            if hidden is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            y = scores.softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(rows, length, width))

    def forward(self, x, hidden=None):
        """`hidden` masks keys that a query ignores: a causal mask (T, T), a mask (B, 1, T, T), or None."""
        x = x + self.attend(self.norm1(x), hidden)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Decoder(nn.Module):
    """A GPT-2 decoder whose output layer is its token embedding."""

    def __init__(self, layers, width, heads, positions, attention):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads, attention) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("hidden", torch.ones(positions, positions, dtype=torch.bool).triu(1))

    def causal(self, length):
        return self.hidden[:length, :length]

    def logits(self, x, hidden, first=0):
        """Returns the logits for the positions of x (B, T, C) from `first` on."""
        for block in self.blocks:
            x = block(x, hidden)
        return F.linear(self.norm(x[:, first:]), self.tokens.weight)

    def forward(self, ids):
        length = ids.shape[1]
        return self.logits(self.tokens(ids) + self.positions.weight[:length], self.causal(length))


def draw_weights(model):
    """Fills weights with normal values and biases with zeros; returns the model."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
    return model


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True)


def update(optimizer, loss):
    """Does the backward pass and the optimizer's step; returns the loss as a number."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def token_rows(rows, length, generator):
    """Returns tokens (rows, length); each token has one of four successors."""
    ids = torch.empty(rows, length, dtype=torch.int64)
    ids[:, 0] = torch.randint(VOCABULARY, (rows,), generator=generator)
    choices = torch.randint(4, (rows, length), generator=generator)
    for at in range(1, length):
        ids[:, at] = (5 * ids[:, at - 1] + 7 + choices[:, at]) % VOCABULARY
    return ids


def print_line(task, options, seconds, losses, batch, memory_kb):
    """Prints the measurement of the timed steps as one line of JSON."""
    median, mean = statistics.median(seconds), statistics.fmean(seconds)
    print(json.dumps({"peer": f"torch-{torch.__version__}", "task": task, "samples_per_s": round(batch / median, 2),
                      "samples_per_s_mean": round(batch / mean, 2), "step_ms": round(1000 * median, 2),
                      "step_ms_min": round(1000 * min(seconds), 2), "max_rss_mb": memory_kb // 1024,
                      "loss_first": round(losses[0], 5), "loss_last": round(losses[-1], 5), **vars(options)}))
