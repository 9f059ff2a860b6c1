#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records small vision-language folders and the logits of their language models on a text, by transformers.

    python tests/sections/record_text_parts.py

writes a folder for each family to references/text_parts next to this file: config.json, model.safetensors as
save_pretrained writes it, and expected.safetensors with `tokens` (T) and `logits` (T, V) of the complete model, which
gets no image. `raw` holds the same tensors under the names of the model's modules, as transformers 5 writes a state
dict: only its names are kept, in names.json. Needs torch, transformers, safetensors, torchvision and num2words.
"""
import json
import pathlib
import shutil
import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForImageTextToText

HERE = pathlib.Path(__file__).parent / "references" / "text_parts"
TEXT = {"vocab_size": 264, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
GEMMA = {"head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8}
VISION = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
          "patch_size": 4}
QWEN_VISION = {"depth": 1, "num_heads": 2, "patch_size": 4}
QWEN_IDS = {"image_token_id": 263, "video_token_id": 262, "vision_start_token_id": 261, "vision_end_token_id": 260}


def siglip(**more):
    return {"model_type": "siglip_vision_model", "vision_use_head": False, **VISION, **more}


def rope(theta, *section, **more):
    return {"rope_parameters": {"rope_type": "default", "mrope_section": list(section), "rope_theta": theta, **more}}


FAMILIES = {
    "llava": {"text_config": {"model_type": "llama", **TEXT}, "image_token_index": 263,
              "vision_config": {"model_type": "clip_vision_model", "projection_dim": 8, **VISION}},
    "llava_onevision": {"text_config": {"model_type": "qwen2", **TEXT}, "vision_config": siglip(),
                        "image_token_index": 263, "video_token_index": 262, "image_grid_pinpoints": [[8, 16], [16, 8]]},
    "internvl": {"text_config": {"model_type": "qwen2", **TEXT}, "image_token_id": 263,
                 "vision_config": {"model_type": "internvl_vision", **VISION, "image_size": [8, 8],
                                   "patch_size": [4, 4]}},
    "gemma3": {"text_config": {"model_type": "gemma3_text", **TEXT, **GEMMA,
                               "layer_types": ["sliding_attention", "full_attention"]},
               "vision_config": siglip(), "mm_tokens_per_image": 1, "image_token_index": 263, "boi_token_index": 261,
               "eoi_token_index": 262},
    "paligemma": {"text_config": {"model_type": "gemma2", **TEXT, **GEMMA}, "projection_dim": 16,
                  "vision_config": siglip(projection_dim=16), "image_token_index": 263},
    "qwen2_vl": {"text_config": {**TEXT, **rope(1e6, 1, 1, 2)}, **QWEN_IDS,
                 "vision_config": {**QWEN_VISION, "embed_dim": 8, "hidden_size": 16, "mlp_ratio": 2}},
    "qwen2_5_vl": {"text_config": {**TEXT, **rope(1e6, 1, 1, 2)}, **QWEN_IDS,
                   "vision_config": {**QWEN_VISION, "hidden_size": 8, "out_hidden_size": 16, "intermediate_size": 12,
                                     "window_size": 8, "fullatt_block_indexes": [0]}},
    "qwen3_vl": {"text_config": {**TEXT, "head_dim": 8, **rope(5e6, 2, 1, 1, mrope_interleaved=True)}, **QWEN_IDS,
                 "vision_config": {**QWEN_VISION, "hidden_size": 8, "out_hidden_size": 16, "intermediate_size": 12,
                                   "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}},
    "qwen3_5": {"text_config": {**TEXT, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                                "linear_key_head_dim": 8, "linear_value_head_dim": 8,
                                "layer_types": ["linear_attention", "full_attention"],
                                **rope(5e6, 1, 1, 0, mrope_interleaved=True, partial_rotary_factor=0.25)}, **QWEN_IDS,
                "vision_config": {**QWEN_VISION, "hidden_size": 8, "out_hidden_size": 16, "intermediate_size": 12,
                                  "num_position_embeddings": 16}},
    "qwen3_5_moe": {"text_config": {**TEXT, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                                    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 4,
                                    "num_experts_per_tok": 2, "moe_intermediate_size": 8,
                                    "shared_expert_intermediate_size": 8,
                                    "layer_types": ["linear_attention", "full_attention"],
                                    **rope(5e6, 1, 1, 0, mrope_interleaved=True, partial_rotary_factor=0.25)},
                    **QWEN_IDS, "vision_config": {**QWEN_VISION, "hidden_size": 8, "out_hidden_size": 16,
                                                  "intermediate_size": 12, "num_position_embeddings": 16}},
    "smolvlm": {"text_config": {"model_type": "llama", "rms_norm_eps": 1e-5, **TEXT}, "vision_config": VISION,
                "image_token_id": 263, "scale_factor": 2},
    "idefics3": {"text_config": {"model_type": "llama", "rms_norm_eps": 1e-5, **TEXT}, "vision_config": VISION,
                 "image_token_id": 263, "scale_factor": 2},
}


def tensors(folder):
    with safe_open(f"{folder}/model.safetensors", "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def matched(hub, raw):
    """Returns the raw name of each stored tensor; both have the same tensors, in another order."""
    names = {}
    for name, tensor in hub.items():
        if ".experts." in name:
            continue  # an expert's part of a tensor whose prefix is the same
        ends = [other for other in raw if other.split(".")[-1] == name.split(".")[-1] and other not in names.values()
                and raw[other].shape == tensor.shape and torch.equal(raw[other], tensor)]
        assert len(ends) == 1, (name, ends)
        names[name] = ends[0]
    return names


def record(family, settings):
    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **settings)
    model = AutoModelForImageTextToText.from_config(config, dtype=torch.float32).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    folder = HERE / family
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as raw:
        model.save_pretrained(raw, save_original_format=False)
        names = matched(tensors(folder), tensors(raw))
    (folder / "names.json").write_text(json.dumps(names, indent=1, sort_keys=True) + "\n")
    tokens = torch.tensor([[1, 5, 9, 3, 130, 12, 7, 222, 35, 4]])
    # Of PaliGemma 1 is a suffix, which is causal; of Gemma 3 it is an image.
    types = {"gemma3": {"token_type_ids": torch.zeros_like(tokens)},
             "paligemma": {"token_type_ids": torch.ones_like(tokens)}}.get(family, {})
    with torch.no_grad():
        logits = model(input_ids=tokens, **types).logits[0]
    save_file({"tokens": tokens[0].int(), "logits": logits.contiguous()}, folder / "expected.safetensors")


if __name__ == "__main__":
    for family, settings in FAMILIES.items():
        record(family, settings)
