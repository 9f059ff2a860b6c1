#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records Hugging Face transformers' and PyTorch's results for tiny decoders, for decoder_reference_test.cpp.

Needs torch, transformers and safetensors; run from anywhere: tests/sections/record_references.py [MODEL...]
Writes references/<model>/ for all models or the named models: config.json and model.safetensors as save_pretrained
writes them, greedy.json with the tokens that generate() appends to prompts, and expected.safetensors:
  tokens, targets (M) i32, offsets (S + 1) i32   packed samples of uneven length; target -1 is ignored
  logits (M, V), loss (1)                        for the stored weights, fp32
  gradient.<name>                                gradient of the loss, an entry per stored tensor
  train.tokens (B, T + 1) i32                    batches, used in turn
  train.loss, train.norm, train.lr (20 or 50)    first of 50 AdamW steps from the stored weights; constants below
"""
import json
import math
import os
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

LENGTHS = (11, 1, 16)
VOCABULARY, WIDTH, POSITIONS = 61, 24, 16
STEPS, BATCHES, SAMPLES, SEQUENCE = 50, 4, 3, 12
LR, MIN_LR, WARMUP, DECAY, BETAS, EPSILON, CLIP = 5e-3, 5e-4, 5, 0.1, (0.9, 0.95), 1e-8, 1.0


def gpt2(tied):
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=WIDTH, n_layer=2, n_head=2, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied, attn_implementation="eager"))


def llama(tied):
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=POSITIONS, rms_norm_eps=1e-6, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}, attn_implementation="eager"))


LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 8,
        "beta_fast": 2.0, "beta_slow": 0.5}
LONGROPE = {"rope_type": "longrope", "rope_theta": 5000.0, "short_factor": [1.0, 1.5, 2.5],
            "long_factor": [2.0, 3.0, 9.0], "partial_rotary_factor": 0.75}
# What each family adds to a small model of its type.
FAMILIES = {
    "llama_scaled": {"attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
    "mistral": {"head_dim": 10, "sliding_window": 5},
    "qwen2": {"rope_parameters": YARN, "tie_word_embeddings": True},
    "qwen3": {"head_dim": 8, "tie_word_embeddings": True},
    "phi3": {"hidden_size": 32, "original_max_position_embeddings": POSITIONS, "rope_parameters": LONGROPE,
             "max_position_embeddings": 4 * POSITIONS},
    "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 6, "attn_logit_softcapping": 2.0,
               "final_logit_softcapping": 3.0},
    "gemma3_text": {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 6, "num_hidden_layers": 3,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                    "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 9000.0},
                                        "sliding_attention": {"rope_type": "default", "rope_theta": 300.0}}},
    "olmo2": {"head_dim": 6},
    "smollm3": {"no_rope_layers": [1, 0]},
    # With the default, 1e-5, this draw's 50 steps amplify a rounding of the weights, 6e-8, to a loss that is 6e-4 off;
    # against fp64, PyTorch's fp32 is 6e-5 off, and maestro 2e-5. With 1e-4 to 1e-1 a rounding stays within 2e-5.
    "lfm2": {"norm_eps": 1e-3,
             "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_bias": True,
             "intermediate_size": 50, "block_ffn_dim_multiplier": 1.2, "block_multiple_of": 8,
             "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    "olmoe": {"num_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 10},
    "qwen2_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 10,
                  "shared_expert_intermediate_size": 12, "num_hidden_layers": 3, "mlp_only_layers": [1]},
    "qwen3_moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "head_dim": 8,
                  "norm_topk_prob": True, "num_hidden_layers": 3, "decoder_sparse_step": 2},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 10, "sliding_window": 5},
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "num_experts": 6,
                 "num_experts_per_tok": 2, "moe_intermediate_size": 10, "num_dense_layers": 1,
                 "routed_scaling_factor": 1.5, "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    "qwen3_5_text": {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                     "rms_norm_eps": 0.01,  # norms of small results, usual in so small a model, would amplify rounding
                     "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
                     "linear_value_head_dim": 8,
                     "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.25,
                                         "mrope_section": [1, 1, 0], "mrope_interleaved": True}},
    "qwen3_5_moe_text": {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
                         "rms_norm_eps": 0.01, "head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                         "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 6,
                         "num_experts_per_tok": 2, "moe_intermediate_size": 10, "shared_expert_intermediate_size": 12,
                         "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0,
                                             "partial_rotary_factor": 0.25}},
    "glm4_moe": {"num_hidden_layers": 3, "head_dim": 8, "use_qk_norm": True, "attention_bias": True,
                 "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "n_group": 4,
                 "topk_group": 2, "routed_scaling_factor": 1.5,
                 "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}},
    "dots1": {"num_hidden_layers": 3, "first_k_dense_replace": 1, "n_routed_experts": 6, "num_experts_per_tok": 2,
              "n_shared_experts": 2, "moe_intermediate_size": 10, "sliding_window": 5, "max_window_layers": 1},
    "deepseek_v2": {"num_key_value_heads": 4, "q_lora_rank": None, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
                    "qk_rope_head_dim": 4, "v_head_dim": 7, "first_k_dense_replace": 1, "num_hidden_layers": 3,
                    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10, "n_shared_experts": 2,
                    "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.0,
                    "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.8}},
    "deepseek_v3": {"num_key_value_heads": 4, "q_lora_rank": 14, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
                    "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, "n_routed_experts": 8,
                    "num_experts_per_tok": 2, "moe_intermediate_size": 10, "n_group": 2, "topk_group": 1,
                    "attention_bias": True, "rms_norm_eps": 1e-3,  # the latents' norms have 1e-6 nevertheless
                    "rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 10, "head_dim": 8,
                "num_hidden_layers": 3, "sliding_window": 5, "swiglu_limit": 0.8, "swiglu_alpha": 1.5,
                "rope_parameters": YARN | {"truncate": False}},
}
# Recorded for 20 steps. In 50, gemma3_text amplifies a rounding of its weights to 1e-3 of the loss; the others do not.
FIRST = ("llama_scaled", "mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text", "olmo2", "smollm3")


def of_family(name):
    family = name.split("_scaled")[0]
    settings = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 36, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": POSITIONS,
                "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2} | FAMILIES[name]
    config = AutoConfig.for_model(family, **settings)
    # PyTorch's grouped products need rows whose bytes are a multiple of 16.
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager",
                                            dtype=torch.float32)


def randomise(model):
    """Sets values larger than a fresh model's, so that every term matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 or ".experts." in name or name.endswith("conv1d.weight"):
                parameter.normal_(0.0, 0.5 if name.endswith("conv1d.weight") else 0.15)
            elif name.endswith(("bias", "A_log")):
                parameter.normal_(0.0, 0.1)
            else:
                offset = model.config.model_type.startswith(("gemma", "qwen3_5")) and "linear_attn" not in name
                parameter.normal_(0.0 if offset else 1.0, 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith(("expert_bias", "e_score_correction_bias")):
                buffer.normal_(0.0, 0.1)


def cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits, targets.long(), ignore_index=-1)


def stored_gradients(model, names):
    gradients = {name: torch.zeros_like(buffer) for name, buffer in model.named_buffers()}
    gradients |= {name: parameter.grad for name, parameter in model.named_parameters()}
    return {f"gradient.{name}": gradient_of(gradients, name).clone().contiguous() for name in names}


def gradient_of(gradients, name):
    """Returns a stored tensor's gradient; an expert's is a part of the tensor that the model has for all experts."""
    name = name.replace(".block_sparse_moe.", ".mlp.")
    if name in gradients:
        return gradients[name]
    block, expert, part, _ = name.rsplit(".", 3)
    if part in ("down_proj", "w2"):
        return gradients[block + ".down_proj"][int(expert)]
    gate, up = gradients[block + ".gate_up_proj"][int(expert)].chunk(2)
    return gate if part in ("gate_proj", "w1") else up


def learning_rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    progress = (step - 1 - WARMUP) / (STEPS - WARMUP)
    return MIN_LR + (LR - MIN_LR) * 0.5 * (1 + math.cos(math.pi * progress))


def train(model, batches, steps):
    decays = {id(p): p.dim() >= 2 and not name.endswith(("conv1d.weight", "_bias"))
              for name, p in model.named_parameters()}
    groups = [{"params": [p for p in model.parameters() if decays[id(p)]], "weight_decay": DECAY},
              {"params": [p for p in model.parameters() if not decays[id(p)]], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPSILON)
    losses, norms, rates = [], [], []
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        batch = batches[(step - 1) % BATCHES]
        logits = model(batch[:, :-1]).logits
        loss = cross_entropy(logits.reshape(-1, VOCABULARY), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        rates.append(learning_rate(step))
        losses.append(loss.item())
        optimizer.step()
    return losses, norms, rates


def greedy(model):
    """Returns continuations up to the last position; the token in the middle of the first ends the others."""
    cases = []
    for prompt in ([3], [5, 1, 4, 1, 58], list(range(2, 11))):
        stop = cases[0]["tokens"][len(cases[0]["tokens"]) // 2] if cases else None
        tokens = model.generate(torch.tensor([prompt]), max_length=POSITIONS, do_sample=False, eos_token_id=stop,
                                pad_token_id=0)[0].tolist()
        cases.append({"prompt": prompt, "stop": [] if stop is None else [stop], "tokens": tokens[len(prompt):]})
    return cases


def record(name, model, folder, steps):
    randomise(model)
    model.eval()
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "greedy.json").write_text(json.dumps(greedy(model)) + "\n")
    samples = [torch.randint(0, VOCABULARY, (1, length)) for length in LENGTHS]
    targets = torch.randint(0, VOCABULARY, (sum(LENGTHS),), dtype=torch.int32)
    targets[3] = targets[20] = -1
    logits = torch.cat([model(sample).logits[0] for sample in samples])
    loss = cross_entropy(logits, targets)
    loss.backward()
    from safetensors import safe_open
    with safe_open(folder / "model.safetensors", "pt") as stored:
        names = list(stored.keys())
    expected = {"tokens": torch.cat([s[0] for s in samples]).int(), "targets": targets,
                "offsets": torch.tensor([0, *torch.tensor(LENGTHS).cumsum(0)], dtype=torch.int32),
                "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)}
    expected |= stored_gradients(model, names)
    batches = [torch.randint(0, VOCABULARY, (SAMPLES, SEQUENCE + 1)) for _ in range(BATCHES)]
    losses, norms, rates = train(model, batches, steps)
    expected["train.tokens"] = torch.cat(batches).int()
    expected["train.loss"], expected["train.norm"] = torch.tensor(losses), torch.tensor(norms)
    expected["train.lr"] = torch.tensor(rates)
    save_file(expected, folder / "expected.safetensors")
    print(f"{name}: loss {loss.item():.6f}, after {steps} steps {losses[-1]:.6f}")


def record_mxfp4(folder):
    """Records a gpt-oss whose experts are in MXFP4, with transformers' values of them. all.*: each byte with some scales."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    settings = FAMILIES["gpt_oss"] | {"vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 64,
                                      "num_hidden_layers": 2, "num_local_experts": 4, "num_attention_heads": 4,
                                      "num_key_value_heads": 2, "max_position_embeddings": POSITIONS}
    config = AutoConfig.for_model("gpt_oss", **settings)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", experts_implementation="eager",
                                             dtype=torch.float32)
    randomise(model)
    model.eval()
    tensors, expected = {}, {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.endswith(("gate_up_proj", "down_proj")):
                tensors[name] = parameter.detach().bfloat16()
                parameter.copy_(tensors[name].float())
                continue
            experts, inputs, outputs = parameter.shape
            blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
            scales = torch.randint(119, 123, (experts, outputs, inputs // 32), dtype=torch.uint8)
            values = convert_moe_packed_tensors(blocks, scales)
            tensors |= {name + "_blocks": blocks, name + "_scales": scales}
            parameter.copy_(values.float())
            expected["values." + name] = values.contiguous()
    folder.mkdir(exist_ok=True)
    config.architectures = ["GptOssForCausalLM"]
    config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    config.save_pretrained(folder)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    tokens = torch.randint(0, VOCABULARY, (1, POSITIONS))
    scales = torch.tensor([0, 1, 7, 100, 126, 127, 128, 200, 253, 254], dtype=torch.uint8)
    blocks = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(1, len(scales), 16, 16).contiguous()
    scales = scales.reshape(1, -1, 1).expand(1, len(scales), 16).contiguous()
    expected |= {"tokens": tokens[0].int(), "logits": model(tokens).logits[0].detach().contiguous(),
                 "all.blocks": blocks, "all.scales": scales,
                 "all.values": convert_moe_packed_tensors(blocks, scales).contiguous()}
    save_file(expected, folder / "expected.safetensors")
    print("gpt_oss_mxfp4: recorded")


def main():
    root = pathlib.Path(os.path.realpath(__file__)).parent / "references"
    models = {f"{family}_{'tied' if tied else 'untied'}": (lambda build=build, tied=tied: build(tied))
              for family, build in (("gpt2", gpt2), ("llama", llama)) for tied in (True, False)}
    models |= {name: (lambda name=name: of_family(name)) for name in FAMILIES}
    if not sys.argv[1:] or "gpt_oss_mxfp4" in sys.argv[1:]:
        torch.manual_seed(7)
        record_mxfp4(root / "gpt_oss_mxfp4")
    for name in [name for name in sys.argv[1:] if name != "gpt_oss_mxfp4"] or ([] if sys.argv[1:] else models):
        torch.manual_seed(7)
        record(name, models[name](), root / name, 20 if name in FIRST else STEPS)


if __name__ == "__main__":
    main()
