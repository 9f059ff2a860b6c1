#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records Hugging Face transformers' and PyTorch's results for tiny vision parts, for vision_reference_test.cpp.

Needs torch, transformers and safetensors; run from anywhere: tests/sections/record_vision_references.py
Writes references/<model>/: config.json and model.safetensors, and expected.safetensors:
  siglip     pixels (P, 3 patch^2), places (P, 3), sample offsets (S + 1), features and their gradient dfeatures
             (P, C), gradient.<name> of sum(features * dfeatures); model.safetensors also holds the pooling head
  projector  features, visual, dvisual, gradient.<name> and gradient.features of sum(visual * dvisual)
  vision_language_<family>
             tokens (M; -1: image position), targets (M), offsets (S + 1), patch_offsets (S + 1), visual (P, C), loss,
             gradient.<name> and gradient.visual of the loss, exact_match (hits, samples)
All fp32. gradient.<name> has an entry for each stored tensor that has a gradient.
"""
import os
import pathlib

import torch
from record_references import POSITIONS, VOCABULARY, WIDTH, cross_entropy, gpt2, llama, randomise
from safetensors.torch import save_file
from transformers import LlavaConfig, LlamaConfig, SiglipVisionConfig, SiglipVisionModel
from transformers.models.llava.modeling_llava import LlavaMultiModalProjector

ROOT = pathlib.Path(os.path.realpath(__file__)).parent / "references"
PATCH, GRID, VISION_WIDTH = 4, 3, 32
IMAGES = (2, 1)  # images by sample
LENGTHS, PATCHES = (14, 9, 12), (6, 0, 4)


def prefixed(name):
    """Returns the name in files from transformers before 5, which the encoder uses."""
    return name if name.startswith("vision_model.") else f"vision_model.{name}"


def gradients(model, name_of=lambda name: name):
    return {f"gradient.{name_of(name)}": p.grad.clone().contiguous()
            for name, p in model.named_parameters() if p.grad is not None}


def offsets(lengths):
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)


def randomise_vision(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            norm = "norm" in name and name.endswith("weight")
            parameter.normal_(1.0 if norm else 0.0, 0.15 if parameter.dim() > 1 else 0.1)


def patches_of(images):
    """Converts (N, 3, H, W) to (N H W / patch^2, 3 patch^2): a row per patch, in order (channel, row, column)."""
    n, side = len(images), GRID
    cut = images.view(n, 3, side, PATCH, side, PATCH).permute(0, 2, 4, 1, 3, 5)
    return cut.reshape(n * side * side, 3 * PATCH * PATCH).contiguous()


def record_siglip():
    torch.manual_seed(8)
    folder = ROOT / "siglip"
    model = SiglipVisionModel(SiglipVisionConfig(
        hidden_size=VISION_WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        image_size=PATCH * GRID, patch_size=PATCH, attn_implementation="eager"))
    randomise_vision(model)
    model.save_pretrained(folder)
    images = torch.rand(sum(IMAGES), 3, PATCH * GRID, PATCH * GRID) * 2 - 1
    features = model(images).last_hidden_state.reshape(-1, VISION_WIDTH)
    dfeatures = torch.randn_like(features)
    (features * dfeatures).sum().backward()
    places = [[image, row, column] for count in IMAGES for image in range(count)
              for row in range(GRID) for column in range(GRID)]
    save_file({"pixels": patches_of(images), "places": torch.tensor(places, dtype=torch.int32),
               "offsets": offsets([count * GRID * GRID for count in IMAGES]),
               "features": features.detach().contiguous(), "dfeatures": dfeatures} | gradients(model, prefixed),
              folder / "expected.safetensors")
    print(f"siglip: {len(features)} patches")


def record_projector():
    torch.manual_seed(9)
    folder = ROOT / "projector"
    config = LlavaConfig(vision_config=SiglipVisionConfig(hidden_size=VISION_WIDTH),
                         projector_hidden_act="gelu_pytorch_tanh", vision_feature_layer=-1,
                         vision_feature_select_strategy="full",
                         text_config=LlamaConfig(hidden_size=WIDTH, num_attention_heads=4, num_key_value_heads=4))
    model = LlavaMultiModalProjector(config)
    randomise_vision(model)
    config.save_pretrained(folder)
    save_file({f"multi_modal_projector.{name}": p.detach() for name, p in model.named_parameters()},
              folder / "model.safetensors", {"format": "pt"})
    features = torch.randn(7, VISION_WIDTH, requires_grad=True)
    visual = model(features)
    dvisual = torch.randn_like(visual)
    (visual * dvisual).sum().backward()
    save_file({"features": features.detach(), "visual": visual.detach(), "dvisual": dvisual,
               "gradient.features": features.grad}
              | gradients(model, lambda name: f"multi_modal_projector.{name}"), folder / "expected.safetensors")
    print("projector")


def with_images(tokens, marked):
    tokens[marked] = -1
    return tokens


def record_decoder(name, model):
    torch.manual_seed(10)
    folder = ROOT / name
    randomise(model)
    model.eval()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    samples = [torch.randint(0, VOCABULARY, (length,)) for length in LENGTHS]
    with_images(samples[0], [1, 2, 3, 7, 8, 9])  # two images with text between
    with_images(samples[2], [0, 1, 2, 3])
    tokens = torch.cat(samples).int()
    visual = torch.randn(sum(PATCHES), WIDTH, requires_grad=True)
    targets = torch.randint(0, VOCABULARY, tokens.shape, dtype=torch.int32)
    targets[tokens < 0] = -1
    targets[4] = targets[-1] = -1
    logits = []
    for sample, rows in zip(samples, visual.split(PATCHES)):
        embeds = model.get_input_embeddings()(sample.clamp(min=0)).clone()
        embeds[sample < 0] = rows
        logits.append(model(inputs_embeds=embeds[None]).logits[0])
    logits = torch.cat(logits)
    bounds = offsets(LENGTHS)
    best = logits.argmax(-1).int()
    last = slice(bounds[2], bounds[3])  # the last sample is answered correctly
    targets[last] = torch.where(targets[last] < 0, targets[last], best[last])
    hits = sum(bool(((best == targets) | (targets < 0))[bounds[s]:bounds[s + 1]].all()) for s in range(len(samples)))
    loss = cross_entropy(logits, targets)
    loss.backward()
    expected = {"tokens": tokens, "targets": targets, "offsets": bounds, "patch_offsets": offsets(PATCHES),
                "visual": visual.detach(), "loss": loss.detach().reshape(1), "gradient.visual": visual.grad,
                "exact_match": torch.tensor([hits, len(samples)], dtype=torch.float32)}
    save_file(expected | gradients(model), folder / "expected.safetensors")
    print(f"{name}: loss {loss.item():.6f}, {hits} of {len(samples)} exact")


def main():
    assert max(LENGTHS) <= POSITIONS
    record_siglip()
    record_projector()
    for family, build in (("gpt2", gpt2), ("llama", llama)):
        torch.manual_seed(11)
        record_decoder(f"vision_language_{family}", build(family == "gpt2"))


if __name__ == "__main__":
    main()
