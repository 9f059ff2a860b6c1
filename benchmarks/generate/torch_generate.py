#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy continuations by transformers with its cache: prints a JSON line per line of a file, a JSON list of ids."""
import argparse
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder")
parser.add_argument("prompts", type=pathlib.Path)
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--batch", type=int, default=1, help="prompts at once; those of a batch have the same length")
parser.add_argument("--max-tokens", type=int, required=True)
parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
settings = parser.parse_args()
torch.set_num_threads(settings.threads)
model = AutoModelForCausalLM.from_pretrained(settings.folder, dtype=getattr(torch, settings.dtype)).eval()
prompts = [json.loads(line) for line in settings.prompts.read_text().splitlines()]
for first in range(0, len(prompts), settings.batch):
    prompt = torch.tensor(prompts[first:first + settings.batch])
    with torch.inference_mode():
        ids = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, use_cache=True,
                             max_new_tokens=settings.max_tokens, min_new_tokens=settings.max_tokens, pad_token_id=0)
    for row in ids[:, prompt.shape[1]:].tolist():
        print(json.dumps({"ids": row}), flush=True)
