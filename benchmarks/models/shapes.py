# SPDX-License-Identifier: Apache-2.0
"""Shapes of SmolLM2, Qwen3.5 and LFM2, as keys of config.json."""


def llama(layers, width, heads, kv_heads, ffn):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
            "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": 49152, "rms_norm_eps": 1e-05,
            "rope_theta": 100000, "max_position_embeddings": 8192, "tie_word_embeddings": True, "dtype": "bfloat16",
            "bos_token_id": None, "eos_token_id": None}


# Qwen3.5-0.8B with an eighth of its vocabulary, and LFM2-350M.
QWEN3_5 = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "num_hidden_layers": 24,
           "hidden_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
           "intermediate_size": 3584, "vocab_size": 32768, "tie_word_embeddings": True,
           "linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
           "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4}
LFM2 = {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "num_hidden_layers": 16, "hidden_size": 1024,
        "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 4608, "vocab_size": 65536,
        "block_auto_adjust_ff_dim": False, "tie_word_embeddings": True, "conv_L_cache": 3, "pad_token_id": None,
        "layer_types": ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)]}
SHAPES = {"135m": llama(30, 576, 9, 3, 1536), "360m": llama(32, 960, 15, 5, 2560), "qwen3_5": QWEN3_5, "lfm2": LFM2}


def section_of(shape, **more):
    """Returns the keys of a maestro section with this shape."""
    config = SHAPES[shape]
    if config["model_type"] == "lfm2":
        more["attention_layers"] = [at for at, kind in enumerate(config["layer_types"]) if kind != "conv"]
    names = {"head_dim": "head_size", "linear_num_key_heads": "delta_key_heads",
             "linear_num_value_heads": "delta_value_heads", "linear_key_head_dim": "delta_key_size",
             "linear_value_head_dim": "delta_value_size", "num_hidden_layers": "layers", "hidden_size": "width",
             "num_attention_heads": "heads",
             "num_key_value_heads": "kv_heads", "intermediate_size": "ffn", "vocab_size": "vocabulary",
             "rope_theta": "rope_theta"}
    return {"family": config["model_type"], **{key: config[name] for name, key in names.items() if name in config}, **more}
