#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Serves a PyTorch linear output layer and its loss as a section, trained or frozen:

    serve_linear.py --address unix:/tmp/head.sock --width 128 --vocabulary 256 [--weights head/model.safetensors]

In the job, after any decoder_trunk of that width:

    [head]
    type = "served"
    address = "unix:/tmp/head.sock"
"""

import argparse

import torch

from maestro_client.serve_torch import Port, TorchModule, TorchResult, serve


def run(module, batch):
    head = module["lm_head"]  # the name in checkpoints, as for a decoder's output layer
    targets = batch.inputs["targets"].flatten().long()  # -1: ignored
    loss = torch.nn.functional.cross_entropy(head(batch.inputs["hidden"]), targets, ignore_index=-1, reduction="sum")
    figure = loss.item(), int((targets >= 0).sum())
    return TorchResult(loss=loss, metrics={"loss": figure, "ce": figure})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True)
    parser.add_argument("--keys", help="folder of `maestro keys`, for other hosts")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=256)
    parser.add_argument("--weights", help="safetensors with lm_head.weight; without: random")
    given = parser.parse_args()
    torch.manual_seed(1)
    head = torch.nn.ModuleDict({"lm_head": torch.nn.Linear(given.width, given.vocabulary, bias=False)})
    if given.weights:
        from safetensors.torch import load_file
        head.load_state_dict(load_file(given.weights))
    inputs = [Port("hidden", "fp32", given.width, differentiable=True), Port("targets", "i32")]
    serve(TorchModule(head, run, inputs, outputs=[], description="linear head"), given.address, given.keys)


if __name__ == "__main__":
    main()
