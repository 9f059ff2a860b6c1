#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the results of Hugging Face transformers and PyTorch for tiny decoders, for decoder_reference_test.cpp.

Needs torch, transformers and safetensors; run from anywhere: tests/sections/record_references.py
Writes references/<model>/: config.json and model.safetensors as save_pretrained leaves them, greedy.json with the tokens
that generate() writes behind prompts, and expected.safetensors:
  tokens, targets (M) i32, offsets (S + 1) i32   packed samples of uneven length; target -1 is ignored
  logits (M, V), loss (1)                        of the stored weights, fp32
  gradient.<name>                                of the loss, an entry per stored tensor
  train.tokens (B, T + 1) i32                    batches, used in turn
  train.loss, train.norm, train.lr (50)          50 AdamW steps from the stored weights, see the constants below
"""
import json
import math
import os
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

LENGTHS = (11, 1, 16)
VOCABULARY, WIDTH, POSITIONS = 61, 24, 16
STEPS, BATCHES, SAMPLES, SEQUENCE = 50, 4, 3, 12
LR, MIN_LR, WARMUP, DECAY, BETAS, EPSILON, CLIP = 5e-3, 5e-4, 5, 0.1, (0.9, 0.95), 1e-8, 1.0


def gpt2(tied):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=WIDTH, n_layer=2, n_head=2, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied, attn_implementation="eager"))


def llama(tied):
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=POSITIONS, rms_norm_eps=1e-6, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}, attn_implementation="eager"))


def randomise(model):
    """Larger than a fresh model's values, so that no term hides behind another."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                parameter.normal_(0.0, 0.15)
            elif name.endswith("bias"):
                parameter.normal_(0.0, 0.1)
            else:
                parameter.normal_(1.0, 0.1)


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits, targets.long(), ignore_index=-1)


def stored_gradients(model, names):
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {f"gradient.{name}": gradients[name].clone().contiguous() for name in names}


def learning_rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    progress = (step - 1 - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * progress))


def train(model, batches):
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPSILON)
    losses, norms, rates = [], [], []
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        batch = batches[(step - 1) % BATCHES]
        logits = model(batch[:, :-1]).logits
        loss = cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        rates.append(learning_rate(step))
        losses.append(loss.item())
        optimizer.step()
    return losses, norms, rates


def greedy(model):
    """Continuations up to the last position; the token of the first's middle ends the others."""
    cases = []
    for prompt in ([3], [5, 1, 4, 1, 58], list(range(2, 11))):
        stop = cases[0]["tokens"][len(cases[0]["tokens"]) // 2] if cases else None
        tokens = model.generate(torch.tensor([prompt]), max_length=POSITIONS, do_sample=False, eos_token_id=stop,
                                pad_token_id=0)[0].tolist()
        cases.append({"prompt": prompt, "stop": [] if stop is None else [stop], "tokens": tokens[len(prompt):]})
    return cases


def record(name, model, folder):
    randomise(model)
    model.eval()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "greedy.json").write_text(json.dumps(greedy(model)) + "\n")
    samples = [torch.randint(0, VOCABULARY, (1, length)) for length in LENGTHS]
    targets = torch.randint(0, VOCABULARY, (sum(LENGTHS),), dtype=torch.int32)
    targets[3] = targets[20] = -1
    logits = torch.cat([model(sample).logits[0] for sample in samples])
    loss = cross_entropy(logits, targets)
    loss.backward()
    from safetensors import safe_open
    with safe_open(folder / "model.safetensors", "pt") as stored:
        names = list(stored.keys())
    expected = {"tokens": torch.cat([s[0] for s in samples]).int(), "targets": targets,
                "offsets": torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32),
                "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)}
    expected |= stored_gradients(model, names)
    batches = [torch.randint(0, VOCABULARY, (SAMPLES, SEQUENCE + 1)) for _ in range(BATCHES)]
    losses, norms, rates = train(model, batches)
    expected["train.tokens"] = torch.cat(batches).int()
    expected["train.loss"], expected["train.norm"] = torch.tensor(losses), torch.tensor(norms)
    expected["train.lr"] = torch.tensor(rates)
    save_file(expected, folder / "expected.safetensors")
    print(f"{name}: loss {loss.item():.6f}, after {STEPS} steps {losses[-1]:.6f}")


def main():
    root = pathlib.Path(os.path.realpath(__file__)).parent / "references"
    for family, build in (("gpt2", gpt2), ("llama", llama)):
        for tied in (True, False):
            torch.manual_seed(7)
            name = f"{family}_{'tied' if tied else 'untied'}"
            record(name, build(tied), root / name)


if __name__ == "__main__":
    main()
