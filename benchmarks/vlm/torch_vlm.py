#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The step of vlm.toml in PyTorch, on CPUs: a vision encoder for half of the samples, which have an image, a projector
and a decoder, cross-entropy of the text, AdamW.

Prints a line of JSON. `--decoder bucket` decodes samples with and without an image in turn, without padding;
`--decoder pad` decodes all at once and hides the image positions of samples without an image.
"""
import pathlib
import resource
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_blocks import (VOCABULARY, Block, Decoder, adamw, autocast, draw_weights, print_line,  # noqa: E402
                          read_options, token_rows, tune, update)

VISION_LAYERS, VISION_WIDTH, VISION_HEADS = 6, 256, 4
LAYERS, WIDTH, HEADS = 6, 384, 6
SIDE, PATCH, TEXT, BATCH = 64, 8, 128, 8
GRID = SIDE // PATCH
PATCHES = GRID**2


class VisionLanguageModel(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.patch = nn.Linear(3 * PATCH**2, VISION_WIDTH)
        self.places = nn.Parameter(torch.zeros(PATCHES, VISION_WIDTH))
        self.vision = nn.ModuleList(Block(VISION_WIDTH, VISION_HEADS, options.attention) for _ in range(VISION_LAYERS))
        self.norm = nn.LayerNorm(VISION_WIDTH)
        self.projector1, self.projector2 = nn.Linear(VISION_WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.decoder = Decoder(LAYERS, WIDTH, HEADS, PATCHES + TEXT, options.attention)
        if options.compile:
            self.encode, self.decode = torch.compile(self.encode), torch.compile(self.decode)

    def encode(self, images):
        """Returns the decoder's inputs (B, PATCHES, WIDTH) for images (B, 3, SIDE, SIDE)."""
        x = images.view(-1, 3, GRID, PATCH, GRID, PATCH).permute(0, 2, 4, 1, 3, 5).reshape(-1, PATCHES, 3 * PATCH**2)
        x = self.patch(x) + self.places
        for block in self.vision:
            x = block(x)
        return self.projector2(F.gelu(self.projector1(self.norm(x)), approximate="tanh"))

    def decode(self, ids, seen=None, text_only=None):
        """Returns the logits of the text ids (B, TEXT) after the images `seen`; None: no sample has an image.
        `text_only`: flags of samples whose image positions are hidden; None: hides none."""
        places = self.decoder.positions.weight
        x, first = self.decoder.tokens(ids) + places[PATCHES:], 0
        if seen is not None:
            x, first = torch.cat([seen + places[:PATCHES], x], 1), PATCHES
        length = first + TEXT
        hidden = self.decoder.causal(length)
        if text_only is not None:
            hidden = hidden | (text_only[:, None, None, None] & (torch.arange(length) < first))
            hidden = hidden & ~torch.eye(length, dtype=torch.bool)  # a row without a visible key would be NaN
        return self.decoder.logits(x, hidden, first)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.float().reshape(-1, VOCABULARY), targets.reshape(-1), reduction="sum")


def loss_of(model, options, ids, targets, images, has_image):
    with autocast(options):
        seen = model.encode(images[has_image])
        if options.decoder == "bucket":
            parts = [(model.decode(ids[has_image], seen), targets[has_image]),
                     (model.decode(ids[~has_image]), targets[~has_image])]
        else:
            padded = torch.zeros(BATCH, PATCHES, WIDTH, dtype=seen.dtype)
            padded[has_image] = seen
            parts = [(model.decode(ids, padded, ~has_image), targets)]
    return sum(cross_entropy(*part) for part in parts) / targets.numel()


def batches(options):
    """Yields token ids, their successors, images, and flags of samples with an image."""
    generator = torch.Generator().manual_seed(options.seed)
    for _ in range(options.warmup + options.steps):
        ids = token_rows(BATCH, TEXT + 1, generator)
        has_image = torch.randperm(BATCH, generator=generator) < BATCH // 2
        images = torch.rand(BATCH, 3, SIDE, SIDE, generator=generator)
        yield ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), images, has_image


def main():
    parser = read_options(__doc__)
    parser.add_argument("--decoder", choices=("bucket", "pad"), default="bucket")
    options = parser.parse_args()
    tune(options)
    torch.manual_seed(options.seed)
    model = draw_weights(VisionLanguageModel(options))
    optimizer = adamw(model)
    seconds, losses = [], []
    for batch in batches(options):
        begin = time.perf_counter()
        losses.append(update(optimizer, loss_of(model, options, *batch)))
        seconds.append(time.perf_counter() - begin)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print_line("vlm", options, seconds[options.warmup:], losses, BATCH, memory)


if __name__ == "__main__":
    main()
