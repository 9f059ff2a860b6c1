# SPDX-License-Identifier: Apache-2.0
"""Shapes of SmolLM2, as keys of config.json."""


def llama(layers, width, heads, kv_heads, ffn):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
            "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": 49152, "rms_norm_eps": 1e-05,
            "rope_theta": 100000, "max_position_embeddings": 8192, "tie_word_embeddings": True, "dtype": "bfloat16",
            "bos_token_id": None, "eos_token_id": None}


SHAPES = {"135m": llama(30, 576, 9, 3, 1536), "360m": llama(32, 960, 15, 5, 2560)}


def section_of(shape, **more):
    """Returns the keys of a maestro section with this shape."""
    names = {"num_hidden_layers": "layers", "hidden_size": "width", "num_attention_heads": "heads",
             "num_key_value_heads": "kv_heads", "intermediate_size": "ffn", "vocab_size": "vocabulary",
             "rope_theta": "rope_theta"}
    return {"family": "llama", **{key: SHAPES[shape][name] for name, key in names.items()}, **more}
