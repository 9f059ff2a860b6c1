#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records positions of transformers' Qwen2VLModel.get_rope_index for mark_rows_test.cpp.

Needs torch and transformers; run from anywhere: tests/data/record_mark_references.py
Writes references/marks.json, layouts with texts and images in turn:
  parts   numbers of tokens of a text, or [rows, columns] of an image's merged grid
  hash    of the positions (T, 3), row by row: h = (31 h + position) mod 2^32, from 0 on
  next    the position after the last token
"""
import json
import pathlib
import random

import torch
from transformers import Qwen2VLConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

LAYOUTS = 500


class Positions:
    """The part of the model that get_rope_index uses."""

    def __init__(self):
        self.config = Qwen2VLConfig()
        self.get_vision_position_ids = Qwen2VLModel.get_vision_position_ids.__get__(self)


def recorded(model, generator):
    parts, types, grids = [], [], []
    for _ in range(generator.randint(1, 4)):
        parts.append(generator.randint(1, 9))
        if generator.random() < 0.7:
            parts.append([generator.randint(1, 7), generator.randint(1, 7)])
            parts.append(1)
    for part in parts:
        image = isinstance(part, list)
        types += [1] * (part[0] * part[1]) if image else [0] * part
        if image:
            grids.append((1, 2 * part[0], 2 * part[1]))
    tokens = torch.tensor([types])
    positions, delta = Qwen2VLModel.get_rope_index(model, torch.zeros_like(tokens), tokens,
                                                   image_grid_thw=torch.tensor(grids) if grids else None)
    value = 0
    for position in positions[:, 0].T.flatten().tolist():
        value = (31 * value + position) % 2**32
    return {"parts": parts, "hash": value, "next": len(types) + int(delta)}


def main():
    generator = random.Random(1)
    model = Positions()
    folder = pathlib.Path(__file__).parent / "references"
    lines = ",\n".join(json.dumps(recorded(model, generator), separators=(",", ":")) for _ in range(LAYOUTS))
    (folder / "marks.json").write_text("[" + lines + "]\n")


if __name__ == "__main__":
    main()
