// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_experts.hpp"

#include <algorithm>

namespace maestro {

namespace {

/// Keys of a family's configuration class, with its defaults.
struct ExpertForm {
  DecoderFamily family;
  const char* count;  ///< key for the number of experts
  const char* alias;  ///< another name of it
  std::int64_t experts;
  std::int64_t per_token;
  std::int64_t ffn = 0;          ///< moe_intermediate_size; 0: an expert has intermediate_size columns
  std::int64_t shared_ffn = 0;   ///< shared_expert_intermediate_size; 0: none
  bool normed = true;            ///< the class has norm_topk_prob
  bool dense = false;            ///< the class has layers with dense networks: mlp_only_layers
  std::int64_t first_dense = 0;  ///< num_dense_layers; 0: the class lacks the key, and a bias of scores
};

constexpr ExpertForm forms[] = {{.family = DecoderFamily::olmoe,
                                 .count = "num_experts",
                                 .alias = "num_local_experts",
                                 .experts = 64,
                                 .per_token = 8},
                                {.family = DecoderFamily::qwen2_moe,
                                 .count = "num_experts",
                                 .alias = "num_local_experts",
                                 .experts = 60,
                                 .per_token = 4,
                                 .ffn = 1408,
                                 .shared_ffn = 5632,
                                 .dense = true},
                                {.family = DecoderFamily::qwen3_moe,
                                 .count = "num_experts",
                                 .alias = "num_local_experts",
                                 .experts = 128,
                                 .per_token = 8,
                                 .ffn = 768,
                                 .dense = true},
                                {.family = DecoderFamily::mixtral,
                                 .count = "num_local_experts",
                                 .alias = "num_experts",
                                 .experts = 8,
                                 .per_token = 2,
                                 .normed = false},
                                {.family = DecoderFamily::lfm2_moe,
                                 .count = "num_experts",
                                 .alias = "num_local_experts",
                                 .experts = 32,
                                 .per_token = 4,
                                 .ffn = 1792,
                                 .first_dense = 2}};

const ExpertForm& form_of(DecoderFamily family) {
  return *std::ranges::find(forms, family, &ExpertForm::family);
}

std::int64_t read_count(const HfKeys& keys, const ExpertForm& form) {
  if (!keys.find(form.count) && !keys.find(form.alias)) return form.experts;
  return keys.find(form.count) ? keys.aliased_size(form.count, form.alias) : keys.size(form.alias);
}

/// Returns the layers with dense networks: those in mlp_only_layers, and all but every decoder_sparse_step-th.
std::vector<std::int64_t> read_dense_layers(const HfKeys& keys, const DecoderConfig& config) {
  const std::int64_t step = keys.size("decoder_sparse_step", 1);
  std::vector<bool> dense;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) dense.push_back((layer + 1) % step != 0);
  if (const JsonValue list = keys.find("mlp_only_layers")) {
    if (!list.json().is_array()) list.expected("a list of layers");
    for (const JsonValue& layer : list.items()) {
      dense[static_cast<std::size_t>(layer.whole_number(0, config.layers - 1, {}))] = true;
    }
  }
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    if (dense[static_cast<std::size_t>(layer)]) layers.push_back(layer);
  }
  return layers;
}

/// Reads LFM2's router and its first layers, which are dense.
void read_sigmoid_router(const HfKeys& keys, const ExpertForm& form, DecoderConfig& config) {
  ExpertConfig& experts = config.experts;
  experts.router.divided = keys.flag("norm_topk_prob", true);
  experts.router.scale = keys.positive("routed_scaling_factor", 1);
  experts.score_bias = keys.flag("use_expert_bias", true);
  const std::int64_t dense = keys.size("num_dense_layers", form.first_dense, 0);
  for (std::int64_t layer = 0; layer < std::min(dense, config.layers); ++layer) experts.dense_layers.push_back(layer);
}

}  // namespace

void read_hf_experts(const HfKeys& keys, DecoderConfig& config) {
  const ExpertForm& form = form_of(config.family);
  ExpertConfig& experts = config.experts;
  experts.count = read_count(keys, form);
  experts.per_token = keys.size("num_experts_per_tok", form.per_token);
  if (experts.per_token > experts.count) {
    keys.fail("num_experts_per_tok",
              std::to_string(experts.per_token) + " is above " + form.count + " = " + std::to_string(experts.count));
  }
  experts.ffn = form.ffn == 0 ? config.ffn : keys.size("moe_intermediate_size", form.ffn);
  if (form.shared_ffn > 0) {
    experts.shared_ffn = keys.size("shared_expert_intermediate_size", form.shared_ffn);
  } else {
    keys.require_absent("shared_expert_intermediate_size");
  }
  if (form.first_dense > 0) {
    read_sigmoid_router(keys, form, config);
  } else {
    const bool over_chosen = !form.normed || keys.flag("norm_topk_prob", false);
    experts.router.kind = over_chosen ? RouterKind::chosen : RouterKind::softmax;
  }
  if (form.dense) experts.dense_layers = read_dense_layers(keys, config);
  if (std::ssize(experts.dense_layers) == config.layers) {
    keys.fail(form.first_dense > 0           ? "num_dense_layers"
              : keys.find("mlp_only_layers") ? "mlp_only_layers"
                                             : "decoder_sparse_step",
              "leaves no layer with experts; use the model_type without \"_moe\"");
  }
  keys.require_absent("clip_qkv");
  if (const JsonValue jitter = keys.find("router_jitter_noise"); jitter && jitter.json() != 0) {
    jitter.refuse("is not supported; only 0 is");
  }
  // Of training, which is not a part of the model.
  (void)keys.find("output_router_logits");
  if (const JsonValue weight = keys.find("router_aux_loss_coef")) {
    if (!weight.json().is_number() || weight.json() < 0) weight.expected("a number, at least 0");
    experts.usual_balance_weight = weight.json();
  }
}

void write_hf_experts(const DecoderConfig& config, nlohmann::ordered_json& out) {
  const ExpertForm& form = form_of(config.family);
  const ExpertConfig& experts = config.experts;
  out[form.count] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  if (form.ffn > 0) out["moe_intermediate_size"] = experts.ffn;
  if (form.shared_ffn > 0) out["shared_expert_intermediate_size"] = experts.shared_ffn;
  if (form.first_dense > 0) {
    out["norm_topk_prob"] = experts.router.divided;
    out["routed_scaling_factor"] = experts.router.scale;
    out["use_expert_bias"] = experts.score_bias;
    out["num_dense_layers"] = experts.dense_layers.size();
  } else if (form.normed) {
    out["norm_topk_prob"] = experts.router.kind == RouterKind::chosen;
  }
  if (form.dense) {
    out["decoder_sparse_step"] = 1;
    out["mlp_only_layers"] = experts.dense_layers;
  }
}

}  // namespace maestro
