#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records PEFT's results for low-rank adapters on the models of record_references.py, for lora_test.cpp.

Needs torch, transformers, peft and safetensors; run from anywhere: tests/sections/record_lora_references.py [MODEL...]
Writes references/<model>/lora.safetensors for a Llama, a GPT-2, a Phi-3 (fused projections) and an LFM2 (convolutions),
or for the named models, with adapters of RANK and ALPHA on all linear modules of the layers, with random A and B:
  <PEFT's name of an A or B>                     its values
  loss (1), gradient.<name>                      for the samples in expected.safetensors, fp32
  merged (M, V)                                  logits after merge_and_unload()
  initial.<name>                                 smallest and largest value of a fresh adapter
"""
import os
import pathlib
import sys

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

RANK, ALPHA = 3, 7
MODULES = {"llama_untied": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
           "gpt2_tied": ["c_attn", "attn.c_proj", "c_fc", "mlp.c_proj"],
           "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
           "lfm2": ["in_proj", "q_proj", "k_proj", "v_proj", "out_proj", "w1", "w3", "w2"]}


def adapters(model):
    """Returns the adapters by the names that PEFT stores."""
    return {name.replace(".default.", "."): value for name, value in model.named_parameters() if value.requires_grad}


def logits_of(model, expected):
    bounds = expected["offsets"].tolist()
    tokens = expected["tokens"].long()
    return torch.cat([model(tokens[None, a:b]).logits[0] for a, b in zip(bounds, bounds[1:])])


def record(name, folder):
    expected = load_file(folder / "expected.safetensors")
    base = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=MODULES[name], task_type="CAUSAL_LM",
                        fan_in_fan_out=name.startswith("gpt2"))
    model = get_peft_model(base, config).eval()
    recorded = {f"initial.{key}": torch.stack([value.min(), value.max()]).detach()
                for key, value in adapters(model).items()}
    with torch.no_grad():
        for value in adapters(model).values():
            value.normal_(0.0, 0.2)
    loss = torch.nn.functional.cross_entropy(logits_of(model, expected), expected["targets"].long(), ignore_index=-1)
    loss.backward()
    recorded["loss"] = loss.detach().reshape(1)
    for key, value in adapters(model).items():
        recorded[key] = value.detach().clone()
        recorded[f"gradient.{key}"] = value.grad.clone()
    with torch.no_grad():
        recorded["merged"] = logits_of(model.merge_and_unload(), expected).contiguous()
    save_file(recorded, folder / "lora.safetensors")
    print(f"{name}: loss {loss.item():.6f}, {len(adapters(model))} adapters left")


def main():
    root = pathlib.Path(os.path.realpath(__file__)).parent / "references"
    for name in sys.argv[1:] or MODULES:
        torch.manual_seed(11)
        record(name, root / name)


if __name__ == "__main__":
    main()
