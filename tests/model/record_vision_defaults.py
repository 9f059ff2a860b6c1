#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the settings that transformers gives to vision-language models whose config.json leaves keys out.

Usage: record_vision_defaults.py FILE. Writes lists of {"config": keys of a file, "expected": its settings}: `cases`, and
`native`, of encoders for images of any size.
"""

import json
import sys

import transformers
from transformers import AutoConfig

ENCODERS = ("clip_vision_model", "siglip_vision_model", "smolvlm_vision", "idefics3_vision")
SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "image_size", "patch_size",
         "hidden_act", "layer_norm_eps")
VARIANTS = ("attention_bias", "use_qk_norm", "norm_type", "layer_scale_init_value", "use_mean_pooling")
CONNECTOR = ("vision_feature_layer", "vision_feature_select_strategy", "projector_hidden_act",
             "multimodal_projector_bias", "scale_factor", "vision_aspect_ratio", "image_grid_pinpoints",
             "downsample_ratio")


NATIVE = ("depth", "num_heads", "patch_size", "temporal_patch_size", "spatial_merge_size", "hidden_act", "window_size",
          "fullatt_block_indexes", "deepstack_visual_indexes", "num_position_embeddings", "rope_parameters")


def native(model, **vision):
    """Returns a file of an encoder for images of any size, and its settings."""
    keys = {"model_type": model, "text_config": {"hidden_size": 3584, "num_attention_heads": 28}, **vision}
    config = AutoConfig.for_model(**json.loads(json.dumps(keys)))
    of = config.vision_config
    found = {key: getattr(of, key) for key in NATIVE if hasattr(of, key)}
    found["width"] = of.embed_dim if model == "qwen2_vl" else of.hidden_size
    found["ffn"] = of.embed_dim * of.mlp_ratio if model == "qwen2_vl" else of.intermediate_size
    return {"config": keys, "expected": {**found, "image_token": config.image_token_id}}


def expected(keys):
    """Returns the settings of a model as transformers reads them."""
    keys = json.loads(json.dumps(keys))
    config = AutoConfig.for_model(keys.pop("model_type"), **keys)
    vision = {key: getattr(config.vision_config, key) for key in SIZES + VARIANTS if hasattr(config.vision_config, key)}
    for key in ("image_size", "patch_size"):  # the sides of a square, of some classes
        vision[key] = vision[key][0] if isinstance(vision[key], (list, tuple)) else vision[key]
    found = {key: getattr(config, key) for key in CONNECTOR if hasattr(config, key)}
    return {"vision": vision, "text_width": config.text_config.hidden_size, "image_token": config.image_token_id,
            **found}


def cases():
    """Yields files with few keys."""
    for model in ("llava", "llava_onevision", "smolvlm", "idefics3"):
        absent = {"model_type": model, "text_config": {"hidden_size": 64, "num_attention_heads": 4}}
        yield absent if model.startswith("llava") else {**absent, "scale_factor": 7}  # divides 224 / 32
        yield {"model_type": model, "text_config": {}, "vision_config": {"patch_size": 14, "image_size": 56}}
        for encoder in ENCODERS[:2] if model.startswith("llava") else ENCODERS[1:]:
            vision = {"model_type": encoder, "hidden_act": "gelu", "image_size": 128, "num_hidden_layers": 5}
            if model == "llava" and encoder == "siglip_vision_model":
                yield {"model_type": model, "text_config": {}, "vision_config": vision, "image_token_index": 9,
                       "vision_feature_select_strategy": "full", "vision_feature_layer": [-1]}
            else:
                key = "image_token_index" if model.startswith("llava") else "image_token_id"
                yield {"model_type": model, "text_config": {}, "vision_config": vision, key: 9}


    yield {"model_type": "internvl", "text_config": {}}
    yield {"model_type": "internvl", "text_config": {"hidden_size": 64}, "vision_config": {"patch_size": [16, 16]}}
    changed = {"hidden_act": "gelu_pytorch_tanh", "norm_type": "rms_norm", "image_size": 256, "patch_size": 16,
               "use_qk_norm": True, "use_mean_pooling": False, "attention_bias": True}
    yield {"model_type": "internvl", "text_config": {}, "vision_config": changed, "downsample_ratio": 0.25}


def main(file):
    """Writes the file."""
    recorded = [{"config": case, "expected": expected(case)} for case in cases()]
    lines = ",\n".join(json.dumps(case) for case in recorded)
    models = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
    others = [native(model, **given) for model in models for given in ({}, {"vision_config": {"model_type": model, "depth": 30}})]
    natives = ",\n".join(json.dumps(case) for case in others)
    with open(file, "w", encoding="utf-8") as out:
        out.write(f'{{"transformers": "{transformers.__version__}", "cases": [\n{lines}\n], "native": [\n{natives}\n]}}\n')


if __name__ == "__main__":
    main(sys.argv[1])
