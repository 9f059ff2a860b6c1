#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a causal language model (Hugging Face transformers) as a frozen teacher that sends its logits:

    serve_teacher.py --address unix:/tmp/teacher.sock --model Qwen/Qwen3-0.6B

In a job with the edges "corpus.tokens -> teacher.tokens" and "teacher.logits -> student.teacher_logits", and data with
the teacher's tokenizer:

    [teacher]
    type = "served"
    trained = false
    address = "unix:/tmp/teacher.sock"
    vocabulary = 151936

    [student]
    type = "distilled_decoder"
    boundary = "logits"
"""

import argparse

import torch

from maestro_client.serve_torch import Port, TorchModule, packed, padded, serve


def logits(model, batch):
    """Returns the logits of any model with the interface of transformers. Samples do not see each other."""
    tokens = padded(batch.inputs["tokens"].flatten().long(), batch.tokens)
    mask = padded(torch.ones(sum(batch.tokens), dtype=torch.long, device=tokens.device), batch.tokens)
    return {"logits": packed(model(input_ids=tokens, attention_mask=mask).logits.float(), batch.tokens)}


def teacher(model):
    return TorchModule(model.eval().requires_grad_(False), logits, inputs=[Port("tokens", "i32")],
                       outputs=[Port("logits", "fp32", model.config.vocab_size)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True)
    parser.add_argument("--keys", help="folder of `maestro keys`, for other hosts")
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(given.model, torch_dtype="auto").to(given.device)
    serve(teacher(model), given.address, given.keys)


if __name__ == "__main__":
    main()
