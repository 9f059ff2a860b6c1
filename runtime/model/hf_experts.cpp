// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/hf_experts.hpp"

#include <algorithm>
#include <optional>

namespace maestro {

namespace {

/// Keys of a family's configuration class, with its defaults; a key without a default must be present.
struct ExpertForm {
  DecoderFamily family;
  const char* count;  ///< key for the number of experts
  const char* alias;  ///< another name of it
  std::optional<std::int64_t> experts{};
  std::optional<std::int64_t> per_token{};
  std::int64_t ffn = 0;                          ///< moe_intermediate_size; 0: an expert has intermediate_size columns
  std::int64_t shared_ffn = 0;                   ///< shared_expert_intermediate_size; 0: the class lacks the key
  std::optional<std::int64_t> shared_experts{};  ///< n_shared_experts, in families that count them
  RouterKind kind = RouterKind::softmax;         ///< softmax: norm_topk_prob chooses between softmax and chosen
  bool divided = false;                          ///< norm_topk_prob if absent, for kind sigmoid
  bool dense = false;                            ///< the class has layers with dense networks: mlp_only_layers
  const char* first_dense = nullptr;             ///< key for the number of first layers with dense networks
  std::int64_t dense_layers = 0;
  std::optional<double> scale{};         ///< routed_scaling_factor; none: the class lacks the key
  const char* bias = nullptr;            ///< key for a bias of scores; null: sigmoids always have it
  std::optional<std::int64_t> groups{};  ///< n_group; none: the class lacks the key
  std::int64_t top_groups = 1;           ///< topk_group
  bool limited = false;                  ///< topk_method decides whether groups count, and norm_topk_prob does not
  bool clamped = false;                  ///< the class has swiglu_limit and swiglu_alpha
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
                                 .kind = RouterKind::chosen},
                                {.family = DecoderFamily::lfm2_moe,
                                 .count = "num_experts",
                                 .alias = "num_local_experts",
                                 .experts = 32,
                                 .per_token = 4,
                                 .ffn = 1792,
                                 .kind = RouterKind::sigmoid,
                                 .divided = true,
                                 .first_dense = "num_dense_layers",
                                 .dense_layers = 2,
                                 .scale = 1,
                                 .bias = "use_expert_bias"},
                                {.family = DecoderFamily::qwen3_5_moe_text,
                                 .count = "num_experts",
                                 .alias = "num_local_experts",
                                 .experts = 256,
                                 .per_token = 8,
                                 .ffn = 512,
                                 .shared_ffn = 512,
                                 .kind = RouterKind::chosen},
                                {.family = DecoderFamily::glm4_moe,
                                 .count = "n_routed_experts",
                                 .alias = "num_local_experts",
                                 .experts = 128,
                                 .per_token = 8,
                                 .ffn = 1408,
                                 .shared_experts = 1,
                                 .kind = RouterKind::sigmoid,
                                 .divided = true,
                                 .first_dense = "first_k_dense_replace",
                                 .dense_layers = 1,
                                 .scale = 1,
                                 .groups = 1},
                                {.family = DecoderFamily::dots1,
                                 .count = "n_routed_experts",
                                 .alias = "num_local_experts",
                                 .ffn = 1408,
                                 .kind = RouterKind::sigmoid,
                                 .first_dense = "first_k_dense_replace",
                                 .scale = 1,
                                 .groups = 1},
                                {.family = DecoderFamily::deepseek_v2,
                                 .count = "n_routed_experts",
                                 .alias = "num_experts",
                                 .experts = 64,
                                 .ffn = 1407,
                                 .shared_experts = 2,
                                 .first_dense = "first_k_dense_replace",
                                 .scale = 1,
                                 .groups = 1,
                                 .limited = true},
                                {.family = DecoderFamily::deepseek_v3,
                                 .count = "n_routed_experts",
                                 .alias = "num_local_experts",
                                 .experts = 256,
                                 .per_token = 8,
                                 .ffn = 2048,
                                 .shared_experts = 1,
                                 .kind = RouterKind::sigmoid,
                                 .divided = true,
                                 .first_dense = "first_k_dense_replace",
                                 .dense_layers = 3,
                                 .scale = 2.5,
                                 .groups = 8,
                                 .top_groups = 4},
                                {.family = DecoderFamily::gpt_oss,
                                 .count = "num_local_experts",
                                 .alias = "num_experts",
                                 .experts = 128,
                                 .per_token = 4,
                                 .kind = RouterKind::chosen,
                                 .clamped = true}};

const ExpertForm& form_of(DecoderFamily family) {
  return *std::ranges::find(forms, family, &ExpertForm::family);
}

std::int64_t read_count(const HfKeys& keys, const ExpertForm& form) {
  if (!keys.find(form.count) && !keys.find(form.alias)) return keys.size(form.count, form.experts);
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

/// Reads which groups of experts are open to choice.
void read_groups(const HfKeys& keys, const ExpertForm& form, ExpertConfig& experts) {
  RouteOptions& router = experts.router;
  if (form.limited) keys.require_text("topk_method", "greedy", {"greedy", "group_limited_greedy"});
  const bool limited = !form.limited || keys.find("topk_method").text("") == "group_limited_greedy";
  router.groups = keys.size("n_group", form.limited && limited ? std::nullopt : form.groups, 1, 32);
  router.top_groups = keys.size("topk_group", form.top_groups, 1, router.groups);
  if (!limited) router.groups = router.top_groups = 1;  // the class does not read them
  const std::int64_t size = experts.count / router.groups, least = router.kind == RouterKind::sigmoid ? 2 : 1;
  if (experts.count % router.groups != 0 || (router.groups > 1 && size < least)) {
    keys.fail("n_group", std::to_string(router.groups) + " does not cut " + form.count + " = " +
                             std::to_string(experts.count) + " in groups of " + std::to_string(least) + " or more");
  }
  if (experts.per_token > size * router.top_groups) {
    keys.fail("topk_group", std::to_string(router.top_groups) + " groups have fewer than num_experts_per_tok = " +
                                std::to_string(experts.per_token) + " experts");
  }
}

/// Reads keys of files by DeepSeek, and families after it, which the classes do not read.
void read_deepseek_keys(const HfKeys& keys, const ExpertForm& form) {
  if (form.kind == RouterKind::sigmoid) {
    keys.require_text("scoring_func", "sigmoid", {"sigmoid", "noaux_tc"});
    keys.require_text("topk_method", "noaux_tc", {"noaux_tc"});
  } else {
    keys.require_text("scoring_func", "softmax", {"softmax"});
  }
  if (keys.size("moe_layer_freq", 1) != 1) keys.find("moe_layer_freq").refuse("is not supported; only 1 is");
  // Of training, and of layers that predict further tokens, which are not read.
  for (const char* key : {"aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers", "num_mtp_layers"}) {
    (void)keys.find(key);
  }
}

/// Reads how experts are chosen and weighed.
void read_router(const HfKeys& keys, const ExpertForm& form, ExpertConfig& experts) {
  experts.router.kind = form.kind;
  if (form.kind == RouterKind::sigmoid) {
    experts.router.divided = keys.flag("norm_topk_prob", form.divided);
    experts.score_bias = form.bias == nullptr || keys.flag(form.bias, true);
  } else if (form.kind == RouterKind::chosen) {
    keys.require_flag("norm_topk_prob", true);
  } else if (form.limited) {
    if (keys.flag("norm_topk_prob", false)) {
      keys.find("norm_topk_prob")
          .refuse("is not applied by transformers, but by the model's own code; set it to false");
    }
  } else if (keys.flag("norm_topk_prob", false)) {
    experts.router.kind = RouterKind::chosen;
  }
  if (form.scale) experts.router.scale = keys.positive("routed_scaling_factor", *form.scale);
  if (!form.groups) return;
  read_groups(keys, form, experts);
  read_deepseek_keys(keys, form);
}

/// Reads which layers have dense networks.
void read_dense(const HfKeys& keys, const ExpertForm& form, DecoderConfig& config) {
  std::vector<std::int64_t>& dense = config.experts.dense_layers;
  if (form.first_dense != nullptr) {
    const std::int64_t first = keys.size(form.first_dense, form.dense_layers, 0);
    for (std::int64_t layer = 0; layer < std::min(first, config.layers); ++layer) dense.push_back(layer);
  }
  if (form.dense) dense = read_dense_layers(keys, config);
  if (std::ssize(dense) < config.layers) return;
  keys.fail(form.first_dense != nullptr    ? form.first_dense
            : keys.find("mlp_only_layers") ? "mlp_only_layers"
                                           : "decoder_sparse_step",
            "leaves no layer with experts; use the model_type without \"_moe\"");
}

/// Reads the clamped gate, and another name for the experts of a token, which the class does not read.
void read_clamped(const HfKeys& keys, ExpertConfig& experts) {
  experts.gate_limit = keys.positive("swiglu_limit", experts.gate_limit);
  experts.gate_alpha = keys.positive("swiglu_alpha", experts.gate_alpha);
  const JsonValue other = keys.find("experts_per_token");
  if (!other || keys.size("experts_per_token") == experts.per_token) return;
  other.refuse("contradicts num_experts_per_tok = " + std::to_string(experts.per_token) +
               ", which transformers reads; make them equal");
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
  if (!has_dense_layers(config.family)) config.ffn = experts.ffn;
  if (form.shared_ffn > 0) {
    experts.shared_ffn = keys.size("shared_expert_intermediate_size", form.shared_ffn);
  } else {
    keys.require_absent("shared_expert_intermediate_size");
  }
  if (form.clamped) read_clamped(keys, experts);
  if (counts_shared_experts(config.family)) {
    experts.shared_ffn = experts.ffn * keys.size("n_shared_experts", form.shared_experts, 1, experts.count);
  }
  read_router(keys, form, experts);
  read_dense(keys, form, config);
  keys.require_absent("clip_qkv");
  if (const JsonValue jitter = keys.find("router_jitter_noise"); jitter && jitter.json() != 0) {
    jitter.refuse("is not supported; only 0 is");
  }
  // Of training, which is not a part of the model. Published coefficients are not comparable: gpt-oss has 0.9.
  for (const char* key : {"output_router_logits", "router_aux_loss_coef"}) (void)keys.find(key);
}

void write_hf_experts(const DecoderConfig& config, nlohmann::ordered_json& out) {
  const ExpertForm& form = form_of(config.family);
  const ExpertConfig& experts = config.experts;
  const RouteOptions& router = experts.router;
  out[form.count] = experts.count;
  out["num_experts_per_tok"] = experts.per_token;
  if (form.ffn > 0) out["moe_intermediate_size"] = experts.ffn;
  if (form.shared_ffn > 0) out["shared_expert_intermediate_size"] = experts.shared_ffn;
  if (counts_shared_experts(config.family)) out["n_shared_experts"] = experts.shared_ffn / experts.ffn;
  if (form.kind == RouterKind::sigmoid) {
    out["norm_topk_prob"] = router.divided;
  } else if (form.kind == RouterKind::softmax) {
    out["norm_topk_prob"] = router.kind == RouterKind::chosen;
  }
  if (form.scale) out["routed_scaling_factor"] = router.scale;
  if (form.bias != nullptr) out[form.bias] = experts.score_bias;
  if (form.limited) out["topk_method"] = router.groups > 1 ? "group_limited_greedy" : "greedy";
  if (form.groups) {
    out["n_group"] = router.groups;
    out["topk_group"] = router.top_groups;
  }
  if (form.first_dense != nullptr) out[form.first_dense] = experts.dense_layers.size();
  if (form.clamped) {
    out["swiglu_limit"] = experts.gate_limit;
    out["swiglu_alpha"] = experts.gate_alpha;
  }
  if (form.dense) {
    out["decoder_sparse_step"] = 1;
    out["mlp_only_layers"] = experts.dense_layers;
  }
}

}  // namespace maestro
