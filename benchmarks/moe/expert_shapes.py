# SPDX-License-Identifier: Apache-2.0
"""Shapes of models with experts and without, as keys of a maestro section, and the benchmark's work."""


def shape(layers, width, heads, **more):
    return {"layers": layers, "width": width, "heads": heads, "kv_heads": heads, "vocabulary": 4096, "tied": False,
            **({"family": "olmoe", "balance": "none"} if "experts" in more else {"family": "llama"}), **more}


WORK = {
    "few_experts": {"samples": 8, "sequence": 256,
                    "student": shape(6, 384, 6, experts=8, experts_per_token=2, ffn=512)},
    "many_experts": {"samples": 16, "sequence": 256,
                     "student": shape(4, 512, 8, experts=64, experts_per_token=8, ffn=128)},
    "distillation": {"samples": 8, "sequence": 128,
                     "teacher": shape(8, 512, 8, experts=64, experts_per_token=8, ffn=256),
                     "student": shape(6, 384, 6, ffn=1024)},
}


def transformers_config(keys):
    """Returns the same shape as a configuration of transformers."""
    from transformers import LlamaConfig, OlmoeConfig
    names = {"layers": "num_hidden_layers", "width": "hidden_size", "heads": "num_attention_heads",
             "kv_heads": "num_key_value_heads", "vocabulary": "vocab_size", "tied": "tie_word_embeddings",
             "ffn": "intermediate_size", "experts": "num_experts", "experts_per_token": "num_experts_per_tok"}
    made = OlmoeConfig if "experts" in keys else LlamaConfig
    return made(**{names[key]: value for key, value in keys.items() if key in names}, max_position_embeddings=1024,
                bos_token_id=None, eos_token_id=None, pad_token_id=None)
