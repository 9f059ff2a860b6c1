// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/decoder_stack.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "sections/decoder/rotary_scaling.hpp"
#include "sections/section_ranks.hpp"

namespace maestro {

namespace {

/// Returns the heads of latent attention on one of `tensor` ranks.
LatentShape latent_shape(const DecoderConfig& config, std::int64_t tensor) {
  return {config.heads / tensor, config.head_size, config.latent.rope_size, config.latent.value_size,
          config.latent.interleaved};
}

}  // namespace

/// Builds the families' parameters.
class DecoderStack::Builder {
 public:
  Builder(DecoderStack& stack, Parameters& parameters, const ParameterInit& init, const StackAdapters& adapters)
      : stack_(stack),
        config_(stack.config_),
        names_(names_of(config_)),
        init_(init),
        add_(parameters, init, stack.state_),
        cut_(stack.parallel_),
        adapters_(adapters) {}

  void build_gpt2();
  void build_rotary();

 private:
  /// Adds the stage's layers, each made by `layer` from the prefix of its names and its number in the model.
  template <class Layer>
  void add_layers(const std::string& prefix, Layer layer) {
    const Stage& stage = stack_.stage_;
    for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.layers; ++i) {
      if (config_.memory.read_at(i)) stack_.memory_ = add_memory(add_, config_);
      stack_.layers_.push_back(layer(prefix + std::to_string(i) + ".", i));
    }
  }
  BlockWeights gpt2_layer(const std::string& prefix);
  BlockWeights rotary_layer(const std::string& prefix, std::int64_t index);
  void add_attention(BlockWeights& layer, const std::string& prefix);
  void add_latent(LatentWeights& latent, const std::string& prefix);
  void add_convolution(BlockWeights& layer, const std::string& prefix);
  void add_delta(BlockWeights& layer, const std::string& prefix);
  void add_feed_forward(BlockWeights& layer, const std::string& prefix);
  void add_experts(ExpertWeights& experts, const std::string& prefix);
  void add_transposed_experts(ExpertWeights& experts, const std::string& prefix);
  /// Returns the rank's slice of all experts' weights, `height` rows each: the tensor rank's, or its experts' rows.
  [[nodiscard]] ParameterSlice of_experts(std::int64_t height, ParameterSlice tensor) const {
    if (stack_.parallel_.layout.expert == 1) return tensor;
    return own_experts(stack_.parallel_, config_.experts.count, height);
  }
  void add_norms(BlockWeights& layer, const std::string& prefix);
  /// Adds a projection onto `sizes` rows, each stored under its name, or all as `fused` if the family does so.
  Affine stacked(const std::string& prefix, const std::string& fused, const std::vector<const char*>& names,
                 const std::vector<std::int64_t>& sizes, bool bias);
  Affine conv1d(const std::string& name, Shape shape, double deviation, const ParameterSlice& slice) {
    return add_.linear(name, shape, deviation, true, slice);
  }
  Parameter& norm_weight(const std::string& name, std::int64_t size, ParameterSlice slice = {}) {
    const auto initial = static_cast<float>(1.0 - config_.norm_offset);
    return add_.stored(add_.vector(name + ".weight", size, initial, std::move(slice)));
  }
  /// Names of modules in a layer, and of the last norm.
  struct ModuleNames {
    const char* attention_out;
    const char* query_norm;
    const char* key_norm;
    const char* network;
    std::vector<const char*> ffn_in;
    const char* ffn_out;
    const char* first_norm;
    const char* second_norm;
    const char* last_norm;
  };
  static ModuleNames names_of(const DecoderConfig& config) {
    if (config.lfm2_names) {
      return {"out_proj", "q_layernorm",   "k_layernorm", "feed_forward.",       {"w1", "w3"},
              "w2",       "operator_norm", "ffn_norm",    "model.embedding_norm"};
    }
    return {"o_proj",
            "q_norm",
            "k_norm",
            "mlp.",
            {"gate_proj", "up_proj"},
            "down_proj",
            "input_layernorm",
            "post_attention_layernorm",
            "model.norm"};
  }
  /// A weight with the matrices of Hugging Face modules: `modules` of `rows` each, or a single fused module.
  struct Product {
    std::vector<std::string> modules;
    std::vector<std::int64_t> rows;
    std::int64_t columns = 0;
    bool columns_cut = false;              ///< the tensor group cuts columns; else rows
    std::vector<std::int64_t> parts = {};  ///< what the group cuts each, if modules have several such parts; or empty
    [[nodiscard]] const std::vector<std::int64_t>& cut() const { return parts.empty() ? rows : parts; }
  };
  /// Adds adapters to `affine`, if the job names its product.
  void adapt(bool named, Affine& affine, const Product& product);
  /// Returns the rows of modules that are on this rank.
  [[nodiscard]] std::vector<std::int64_t> held_rows(const Product& product) const;
  /// Returns the modules of a projection by `stacked`.
  [[nodiscard]] std::vector<std::string> modules(const std::string& prefix, const std::string& fused,
                                                 const std::vector<const char*>& names) const;
  Affine rms_norm(const std::string& name) { return {&norm_weight(name, config_.width), nullptr}; }
  /// Adds a projection (rows, columns) that adds to the residual stream; its columns are cut.
  Affine added(const std::string& name, Shape shape, bool bias) {
    Affine made;
    made.weight = &add_.stored(add_.matrix(name + ".weight", shape, residual_deviation(), cut_.columns(shape[1])));
    if (bias) made.bias = &add_.stored(add_.vector(name + ".bias", shape[0], 0.0f));
    return made;
  }
  Parameter& embedding(const std::string& name, std::int64_t rows, ParameterSlice slice = {}) {
    return add_.stored(add_.matrix(name, Shape{rows, config_.width}, config_.init_std, std::move(slice)));
  }
  [[nodiscard]] double residual_deviation() const {
    return config_.init_std / std::sqrt(2.0 * static_cast<double>(config_.layers));
  }

  DecoderStack& stack_;
  const DecoderConfig& config_;
  ModuleNames names_;
  const ParameterInit& init_;
  ParameterBuilder add_;
  TensorCut cut_;
  const StackAdapters& adapters_;
};

std::vector<std::int64_t> DecoderStack::Builder::held_rows(const Product& product) const {
  std::vector<std::int64_t> held = product.rows;
  const ParameterSlice slice = product.columns_cut ? ParameterSlice() : cut_.stacked(product.cut());
  if (!slice.rows.empty()) std::ranges::fill(held, 0);
  std::size_t module = 0;
  std::int64_t end = product.rows.front();
  for (const ParameterSlice::Range& part : slice.rows) {
    while (part.first >= end) end += product.rows[++module];
    held[module] += part.count;
  }
  if (product.modules.size() > 1) return held;
  return {std::accumulate(held.begin(), held.end(), std::int64_t{0})};
}

void DecoderStack::Builder::adapt(bool named, Affine& affine, const Product& product) {
  if (!named || adapters_.parameters == nullptr) return;
  const std::int64_t rank = adapters_.lora.rank;
  const auto modules = static_cast<std::int64_t>(product.modules.size());
  const std::int64_t all_rows = std::accumulate(product.rows.begin(), product.rows.end(), std::int64_t{0});
  const ParameterSlice columns = product.columns_cut ? cut_.columns(product.columns) : ParameterSlice();
  const ParameterSlice rows = product.columns_cut ? ParameterSlice() : cut_.stacked(product.cut());
  const std::string name(adapter_prefix);
  const double bound = 1.0 / std::sqrt(static_cast<double>(product.columns));
  ParameterBuilder add(*adapters_.parameters, init_, stack_.adapter_state_);
  const std::string& first = product.modules.front();
  Parameter& a =
      add.uniform_matrix(first + std::string(adapter_a), Shape{modules * rank, product.columns}, bound, columns);
  Parameter& b = add.uniform_matrix(first + std::string(adapter_b), Shape{all_rows, rank}, 0, rows);
  std::int64_t row = 0;
  for (std::int64_t i = 0; i < modules; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t count = modules == 1 ? all_rows : product.rows[at];
    add.stored_rows(name + product.modules[at] + std::string(adapter_a), a, i * rank, rank);
    add.stored_rows(name + product.modules[at] + std::string(adapter_b), b, row, count);
    row += count;
  }
  affine.adapter = &stack_.adapters_.emplace_back(LowRank::Parts{&a, &b, held_rows(product), adapters_.lora.scale()});
}

std::vector<std::string> DecoderStack::Builder::modules(const std::string& prefix, const std::string& fused,
                                                        const std::vector<const char*>& names) const {
  if (config_.fused_names) return {prefix + fused};
  std::vector<std::string> all;
  for (const char* name : names) all.push_back(prefix + name);
  return all;
}

BlockWeights DecoderStack::Builder::gpt2_layer(const std::string& prefix) {
  const std::int64_t width = config_.width;
  BlockWeights layer;
  layer.attention_norm = add_.layer_norm(prefix + "ln_1", width);
  layer.qkv = conv1d(prefix + "attn.c_attn", {3 * width, width}, config_.init_std, cut_.stacked({width, width, width}));
  layer.attention_out = conv1d(prefix + "attn.c_proj", {width, width}, residual_deviation(), cut_.columns(width));
  layer.ffn_norm = add_.layer_norm(prefix + "ln_2", width);
  layer.ffn_in = conv1d(prefix + "mlp.c_fc", {config_.ffn, width}, config_.init_std, cut_.rows(config_.ffn));
  layer.ffn_out = conv1d(prefix + "mlp.c_proj", {width, config_.ffn}, residual_deviation(), cut_.columns(config_.ffn));
  const LoraConfig& lora = adapters_.lora;
  adapt(lora.qkv, layer.qkv, {{prefix + "attn.c_attn"}, {width, width, width}, width});
  adapt(lora.out, layer.attention_out, {{prefix + "attn.c_proj"}, {width}, width, true});
  adapt(lora.ffn, layer.ffn_in, {{prefix + "mlp.c_fc"}, {config_.ffn}, width});
  adapt(lora.ffn, layer.ffn_out, {{prefix + "mlp.c_proj"}, {width}, config_.ffn, true});
  return layer;
}

void DecoderStack::Builder::build_gpt2() {
  if (stack_.stage_.first()) {
    stack_.tokens_ = &embedding("transformer.wte.weight", config_.vocabulary, cut_.rows(config_.vocabulary));
    stack_.positions_ = &embedding("transformer.wpe.weight", config_.positions);
  }
  add_layers("transformer.h.", [this](const std::string& prefix, std::int64_t) { return gpt2_layer(prefix); });
  if (stack_.stage_.last()) stack_.final_norm_ = add_.layer_norm("transformer.ln_f", config_.width);
}

Affine DecoderStack::Builder::stacked(const std::string& prefix, const std::string& fused,
                                      const std::vector<const char*>& names, const std::vector<std::int64_t>& sizes,
                                      bool bias) {
  const ParameterSlice slice = cut_.stacked(sizes);
  const std::int64_t rows = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  Affine made;
  made.weight = &add_.matrix(prefix + fused + ".weight", Shape{rows, config_.width}, config_.init_std, slice);
  if (bias) made.bias = &add_.vector(prefix + fused + ".bias", rows, 0.0f, {slice.rows, {}});
  const auto store = [&](Parameter* parameter, const std::string& kind) {
    if (parameter == nullptr) return;
    if (config_.fused_names) return static_cast<void>(add_.stored(*parameter));
    std::int64_t first = 0;
    for (std::size_t i = 0; i < names.size(); first += sizes[i], ++i) {
      add_.stored_rows(prefix + names[i] + kind, *parameter, first, sizes[i]);
    }
  };
  store(made.weight, ".weight");
  store(made.bias, ".bias");
  return made;
}

void DecoderStack::Builder::add_attention(BlockWeights& layer, const std::string& prefix) {
  const std::int64_t queries = config_.query_columns(), keys = config_.key_columns();
  const std::int64_t results = config_.result_columns();
  if (config_.latent.given()) {
    add_latent(layer.latent, prefix);
  } else {
    const std::vector<const char*> names{"q_proj", "k_proj", "v_proj"};
    const std::vector<std::int64_t> rows{config_.output_gate ? 2 * queries : queries, keys, keys};
    layer.qkv = stacked(prefix, "qkv_proj", names, rows, config_.qkv_bias);
    adapt(adapters_.lora.qkv, layer.qkv, {modules(prefix, "qkv_proj", names), rows, config_.width});
  }
  const std::string out = prefix + names_.attention_out;
  layer.attention_out = added(out, Shape{config_.width, results}, config_.out_bias);
  adapt(adapters_.lora.out, layer.attention_out, {{out}, {config_.width}, results, true});
  if (config_.attention_sinks) {
    layer.sinks = &add_.stored(add_.vector(prefix + "sinks", config_.heads, 0.0F, cut_.rows(config_.heads)));
  }
  if (config_.qk_norm == QkNorm::none) return;
  const bool whole = config_.qk_norm == QkNorm::whole;
  const auto norm = [&](const char* name, std::int64_t columns) {
    return &(whole ? norm_weight(prefix + name, columns, cut_.rows(columns))
                   : norm_weight(prefix + name, config_.head_size));
  };
  layer.query_norm = norm(names_.query_norm, queries);
  layer.key_norm = norm(names_.key_norm, keys);
}

void DecoderStack::Builder::add_latent(LatentWeights& latent, const std::string& prefix) {
  const LatentConfig& sizes = config_.latent;
  const std::int64_t width = config_.width, queries = config_.query_columns(),
                     keys = latent_shape(config_, 1).key_columns();
  const auto product = [&](const char* name, Shape shape, bool bias, const ParameterSlice& slice = {}) {
    return add_.product(prefix + name, shape, config_.init_std, bias, slice);
  };
  const bool query_latent = sizes.query_rank > 0;
  if (query_latent) {
    latent.query_in = product("q_a_proj", {sizes.query_rank, width}, config_.qkv_bias);
    latent.query_norm = &norm_weight(prefix + "q_a_layernorm", sizes.query_rank);
  }
  latent.query_out = product(query_latent ? "q_b_proj" : "q_proj", {queries, query_latent ? sizes.query_rank : width},
                             false, cut_.rows(queries));
  latent.key_in = product("kv_a_proj_with_mqa", {sizes.rank + sizes.rope_size, width}, config_.qkv_bias);
  latent.key_norm = &norm_weight(prefix + "kv_a_layernorm", sizes.rank);
  latent.key_out = product("kv_b_proj", {keys, sizes.rank}, false, cut_.rows(keys));
}

void DecoderStack::Builder::add_convolution(BlockWeights& layer, const std::string& prefix) {
  const std::int64_t width = config_.width;
  const std::vector<std::int64_t> rows{width, width, width};
  const std::string in = prefix + "in_proj", filter = prefix + "conv", out = prefix + "out_proj";
  layer.qkv = add_.product(in, {3 * width, width}, config_.init_std, config_.conv_bias, cut_.stacked(rows));
  const double bound = 1.0 / std::sqrt(static_cast<double>(config_.conv_width));
  layer.filter.weight = &add_.stored(
      add_.uniform_matrix(filter + ".weight", Shape{width, 1, config_.conv_width}, bound, cut_.rows(width)));
  if (config_.conv_bias) layer.filter.bias = &add_.stored(add_.vector(filter + ".bias", width, 0, cut_.rows(width)));
  layer.attention_out = added(out, Shape{width, width}, config_.conv_bias);
  adapt(adapters_.lora.qkv, layer.qkv, {{in}, rows, width});
  adapt(adapters_.lora.out, layer.attention_out, {{out}, {width}, width, true});
}

void DecoderStack::Builder::add_delta(BlockWeights& layer, const std::string& prefix) {
  const DeltaShape& shape = config_.delta;
  const std::int64_t width = config_.width, heads = shape.value_heads, values = shape.value_columns();
  const std::int64_t keys = shape.key_columns(), inputs = shape.qkv_columns();
  const std::vector<std::string> names{"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"};
  Product in{{}, {inputs, values, heads, heads}, width, false, {keys, keys, values, values, heads, heads}};
  for (const std::string& name : names) in.modules.push_back(prefix + name);
  layer.qkv.weight = &add_.matrix(prefix + "in_proj.weight", Shape{config_.delta_columns(), width}, config_.init_std,
                                  cut_.stacked(in.parts));
  std::int64_t first = 0;
  for (std::size_t i = 0; i < names.size(); first += in.rows[i], ++i) {
    add_.stored_rows(in.modules[i] + ".weight", *layer.qkv.weight, first, in.rows[i]);
  }
  const double bound = 1.0 / std::sqrt(static_cast<double>(config_.conv_width));
  layer.filter.weight =
      &add_.undecayed(prefix + "conv1d.weight", Shape{inputs, 1, config_.conv_width},
                      init_.uniform(prefix + "conv1d.weight", bound), cut_.stacked({keys, keys, values}));
  // Of A, uniform in [0.01, 16), as in transformers.
  const auto logarithms = [uniform = init_.uniform(prefix + "A_log", 8.0)](std::span<float> to) {
    uniform(to);
    for (float& value : to) value = std::log(std::max(value + 8.0F, 0.01F));
  };
  layer.delta.a_log = &add_.undecayed(prefix + "A_log", Shape{heads}, logarithms, cut_.rows(heads));
  layer.delta.dt_bias = &add_.undecayed(prefix + "dt_bias", Shape{heads}, ParameterInit::constant(1), cut_.rows(heads));
  layer.delta_norm = &add_.stored(add_.vector(prefix + "norm.weight", shape.value_size, 1.0F));
  const std::string out = prefix + "out_proj";
  layer.attention_out = added(out, Shape{width, values}, false);
  adapt(adapters_.lora.qkv, layer.qkv, in);
  adapt(adapters_.lora.out, layer.attention_out, {{out}, {width}, values, true});
}

void DecoderStack::Builder::add_feed_forward(BlockWeights& layer, const std::string& prefix) {
  const std::vector<const char*>& names = names_.ffn_in;
  const std::vector<std::int64_t> rows{config_.ffn, config_.ffn};
  const std::string out = prefix + names_.ffn_out;
  layer.ffn_in = stacked(prefix, "gate_up_proj", names, rows, config_.ffn_bias);
  layer.ffn_out = added(out, Shape{config_.width, config_.ffn}, config_.ffn_bias);
  adapt(adapters_.lora.ffn, layer.ffn_in, {modules(prefix, "gate_up_proj", names), rows, config_.width});
  adapt(adapters_.lora.ffn, layer.ffn_out, {{out}, {config_.width}, config_.ffn, true});
}

void DecoderStack::Builder::add_experts(ExpertWeights& experts, const std::string& prefix) {
  const ExpertConfig& config = config_.experts;
  const ExpertNames names = expert_names(config_.family);
  const std::int64_t width = config_.width, ffn = config.ffn;
  const std::string block = prefix + std::string(names.block) + ".";
  const auto name_of = [&](std::int64_t expert, std::string_view part) {
    return block + "experts." + std::to_string(expert) + "." + std::string(part) + ".weight";
  };
  const std::string router = block + std::string(names.router);
  experts.router = &add_.stored(add_.matrix(router + ".weight", Shape{config.count, width}, config_.init_std));
  if (config.biases) experts.router_bias = &add_.stored(add_.vector(router + ".bias", config.count, 0.0F));
  const bool by_bias = config.balance == LoadBalance::bias;
  if (config.score_bias) {
    const UpdateRule rule{UpdateRule::Kind::bias, config.per_token, config.bias_rate.value_or(0)};
    experts.bias =
        &add_.stored(add_.counted(block + std::string(names.bias), config.count, 0.0f, by_bias ? rule : UpdateRule()));
  }
  if (config.balance.value_or(LoadBalance::none) != LoadBalance::none) {
    experts.loads = &add_.counted(block + "loads", config.count, 1.0f, {UpdateRule::Kind::loads, config.per_token});
  }
  if (names.transposed) return add_transposed_experts(experts, block + "experts.");
  const std::vector<std::int64_t> heights(static_cast<std::size_t>(2 * config.count), ffn);
  experts.in = &add_.groups(block + "experts.gate_up", Shape{config.count * 2 * ffn, width}, config_.init_std,
                            of_experts(2 * ffn, cut_.stacked(heights)), config.count);
  experts.out = &add_.groups(block + "experts.down", Shape{config.count * width, ffn}, residual_deviation(),
                             of_experts(width, cut_.columns(ffn)), config.count);
  for (std::int64_t expert = 0; expert < config.count; ++expert) {
    add_.stored_rows(name_of(expert, names.gate), *experts.in, 2 * expert * ffn, ffn);
    add_.stored_rows(name_of(expert, names.up), *experts.in, (2 * expert + 1) * ffn, ffn);
    add_.stored_rows(name_of(expert, names.down), *experts.out, expert * width, width);
  }
  if (config.shared_ffn == 0) return;
  const std::string shared = block + std::string(names.shared) + ".";
  experts.shared_in =
      stacked(shared, "gate_up_proj", {"gate_proj", "up_proj"}, {config.shared_ffn, config.shared_ffn}, false);
  experts.shared_out = added(shared + "down_proj", Shape{width, config.shared_ffn}, false);
  if (!config.shared_gate) return;
  experts.shared_gate =
      &add_.stored(add_.matrix(block + "shared_expert_gate.weight", Shape{1, width}, config_.init_std));
}

void DecoderStack::Builder::add_transposed_experts(ExpertWeights& experts, const std::string& prefix) {
  const ExpertConfig& config = config_.experts;
  const std::int64_t width = config_.width, ffn = config.ffn, count = config.count;
  const std::vector<std::int64_t> heights(static_cast<std::size_t>(count), 2 * ffn);
  const std::string in = prefix + "gate_up_proj", out = prefix + "down_proj";
  experts.in = &add_.stored_transposed_groups(add_.groups(in, Shape{count * 2 * ffn, width}, config_.init_std,
                                                          of_experts(2 * ffn, cut_.stacked(heights)), count));
  experts.out = &add_.stored_transposed_groups(
      add_.groups(out, Shape{count * width, ffn}, residual_deviation(), of_experts(width, cut_.columns(ffn)), count));
  if (!config.biases) return;
  const auto zero = ParameterInit::constant(0);
  experts.in_bias = &add_.undecayed(in + "_bias", Shape{count, 2 * ffn}, zero, of_experts(1, cut_.columns(2 * ffn)));
  experts.out_bias = &add_.undecayed(out + "_bias", Shape{count, width}, zero, of_experts(1, {}));
}

void DecoderStack::Builder::add_norms(BlockWeights& layer, const std::string& prefix) {
  const bool before = config_.norms != BlockNorms::behind, behind = config_.norms != BlockNorms::before;
  if (before) layer.attention_norm = rms_norm(prefix + names_.first_norm);
  // A layer's second norm has the same name in all families, but not the same place.
  Affine& second = behind ? layer.behind_attention : layer.ffn_norm;
  second = rms_norm(prefix + names_.second_norm);
  if (before && behind) layer.ffn_norm = rms_norm(prefix + "pre_feedforward_layernorm");
  if (behind) layer.behind_ffn = rms_norm(prefix + "post_feedforward_layernorm");
}

BlockWeights DecoderStack::Builder::rotary_layer(const std::string& prefix, std::int64_t index) {
  BlockWeights layer;
  const MixerKind kind = config_.mixer_of(index).kind;
  if (kind == MixerKind::convolution) {
    add_convolution(layer, prefix + "conv.");
  } else if (kind == MixerKind::delta) {
    add_delta(layer, prefix + "linear_attn.");
  } else {
    add_attention(layer, prefix + "self_attn.");
  }
  if (config_.experts.at(index)) {
    add_experts(layer.experts, prefix);
  } else {
    add_feed_forward(layer, prefix + names_.network);
  }
  add_norms(layer, prefix);
  return layer;
}

void DecoderStack::Builder::build_rotary() {
  if (stack_.stage_.first()) {
    stack_.tokens_ = &embedding("model.embed_tokens.weight", config_.vocabulary, cut_.rows(config_.vocabulary));
  }
  add_layers("model.layers.",
             [this](const std::string& prefix, std::int64_t index) { return rotary_layer(prefix, index); });
  if (stack_.stage_.last()) stack_.final_norm_ = rms_norm(names_.last_norm);
}

DecoderStack::DecoderStack(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config,
                           const ParallelContext& parallel, const Stage& stage, const StackAdapters& adapters)
    : config_(config), parallel_(parallel), stage_(stage) {
  if (stage.count == 1) stage_.layers = config.layers;
  for (std::int64_t i = 0; i < stage_.layers; ++i) options_.push_back(options_of(stage_.first_layer + i));
  Builder builder(*this, parameters, init, adapters);
  if (config.gpt2()) {
    builder.build_gpt2();
  } else {
    builder.build_rotary();
  }
}

BlockOptions DecoderStack::options_of(std::int64_t index) const {
  const LayerMixer layer = config_.mixer_of(index);
  const std::int64_t tensor = parallel_.layout.tensor;
  BlockOptions options;
  options.attention.shape = {.heads = config_.heads / tensor,
                             .kv_heads = config_.kv_heads / tensor,
                             .head_size = config_.head_size,
                             .causal = true,
                             .scale = score_scale(config_),
                             .window = layer.windowed ? config_.window : 0,
                             .softcap = config_.attention_softcap};
  if (config_.latent.given()) options.latent = latent_shape(config_, tensor);
  if (layer.kind == MixerKind::convolution) {
    options.convolution = {.width = config_.conv_width, .gated = true};
  } else if (layer.kind == MixerKind::delta) {
    options.convolution = {.width = config_.conv_width, .silu = true};
    options.delta = config_.delta;
    options.delta.key_heads /= tensor;
    options.delta.value_heads /= tensor;
  } else if (!config_.gpt2() && layer.rotary) {
    const auto found = rotary_frequencies(config_, layer.windowed);
    const auto same = std::ranges::find_if(options_, [&](const BlockOptions& other) {
      return other.attention.rotary != nullptr && *other.attention.rotary == found;
    });
    options.attention.rotary =
        same != options_.end() ? same->attention.rotary : std::make_shared<const RotaryFrequencies>(found);
  }
  options.output_gate = config_.output_gate && layer.kind == MixerKind::attention;
  options.norm = norm_terms();
  options.whole_head_norms = config_.qk_norm == QkNorm::whole;
  const ExpertConfig& experts = config_.experts;
  options.gate = experts.gate_limit > 0 ? GluGate::clamped(experts.gate_limit, experts.gate_alpha)
                 : config_.gelu_gate    ? GluGate::gelu
                                        : GluGate::silu;
  options.experts_per_token = config_.experts.per_token;
  options.router = config_.experts.router;
  options.tensor_group = parallel_.tensor_group;
  options.context_group = parallel_.context_group;
  options.expert_group = parallel_.expert_group;
  return options;
}

Var DecoderStack::embedded(Tape& tape, const Tensor& tokens, const SequenceLayout& layout) {
  assert(stage_.first());
  const RowRange rows = context_rows(parallel_, layout);
  const auto positions =
      layout.positions.subspan(static_cast<std::size_t>(rows.first), static_cast<std::size_t>(rows.count));
  const VocabularyPart part = vocabulary_part(parallel_, config_.vocabulary);
  const Var parts = embedding_part(tape, *tokens_, tokens, positions_, positions, part, config_.embedding_scale);
  return reduce_scatter_rows(tape, parts, part.group);
}

Stream DecoderStack::transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted,
                                 const std::vector<AddedRows>& added, const ExpertPass& experts) const {
  assert((experts.balance == nullptr && experts.routes.hook == nullptr) || !wanted.defined());
  return through(tape, std::move(x), layout, wanted, {}, added, experts);
}

Stream DecoderStack::transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted,
                                 std::span<const LayerCache> caches, const std::vector<AddedRows>& added) const {
  assert(caches.size() == layers_.size() + (memory_.key == nullptr ? 0 : 1) && parallel_.layout.ranks() == 1);
  return through(tape, std::move(x), layout, wanted, caches, added, {});
}

Stream DecoderStack::through(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted,
                             std::span<const LayerCache> caches, const std::vector<AddedRows>& added,
                             const ExpertPass& experts) const {
  const auto run = [this, &tape, layout, wanted, caches, added, experts](std::size_t first, std::size_t end,
                                                                         Stream before) {
    return layers({&tape, first, end, &experts}, std::move(before), layout, wanted, caches, added);
  };
  return through_layers(tape, std::move(x), layers_.size(), recompute_, run);
}

Stream DecoderStack::layers(const LayerRange& range, Stream x, const SequenceLayout& layout, const Block& wanted,
                            std::span<const LayerCache> caches, const std::vector<AddedRows>& added) const {
  for (std::size_t i = range.first; i < range.end; ++i) {
    BlockOptions options = options_[i];
    if (!caches.empty()) options.cache = &caches[i];
    options.balance = range.experts->balance.get();
    options.routes = range.experts->routes;
    options.routes.rows.layer = stage_.first_layer + static_cast<std::int64_t>(i);
    const bool last = i + 1 == layers_.size();
    for (const AddedRows& each : added) {
      if (each.at.defined() || each.layer != options.routes.rows.layer) continue;
      BlockOptions reading = options;
      if (!caches.empty()) reading.cache = &caches.back();
      x = with_memory(*range.tape, x, each.rows, memory_, config_.memory, std::move(reading), layout);
    }
    x = transformer_block(*range.tape, layers_[i], options, std::move(x), layout, last ? wanted : Block());
    for (const AddedRows& each : added) {
      if (!each.at.defined() || each.layer != options.routes.rows.layer) continue;
      assert(!last || !wanted.defined());
      x = index_add(*range.tape, whole(*range.tape, x), each.rows, each.at);
    }
  }
  return x;
}

std::vector<Parameter*> DecoderStack::matrices() const {
  std::vector<Parameter*> matrices = product_matrices(layers_);
  if (memory_.key != nullptr) matrices.insert(matrices.end(), {memory_.key, memory_.value});
  return matrices;
}

Var DecoderStack::normed(Tape& tape, Stream x) const {
  assert(stage_.last());
  return block_norm(tape, x, final_norm_, norm_terms());
}

namespace {

/// A complete body whose parameters are never allocated.
struct DescribedBody {
  DescribedBody(const DecoderConfig& config, const LoraConfig& lora)
      : stack(weights, ParameterInit(0, ""), config, {}, {}, {lora.given() ? &adapters : nullptr, lora}) {}
  Parameters weights, adapters;
  DecoderStack stack;
};

}  // namespace

std::vector<std::string> body_names(const DecoderConfig& config, const LoraConfig& lora) {
  const DescribedBody whole(config, lora);
  std::vector<std::string> names;
  for (const StateEntry& entry : whole.stack.state()) names.push_back(entry.name);
  for (const StateEntry& entry : whole.stack.adapter_state()) names.push_back(entry.name);
  std::ranges::sort(names);
  return names;
}

BodyElements body_elements(const DecoderConfig& config, const LoraConfig& lora) {
  const DescribedBody whole(config, lora);
  return {whole.weights.added_elements(), whole.adapters.added_elements()};
}

std::string_view embedding_name(const DecoderConfig& config) {
  return config.gpt2() ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

Parameter& add_head(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config,
                    const ParallelContext& parallel) {
  const std::string_view name = config.tied ? embedding_name(config) : head_name;
  return parameters.add({std::string(name), Shape{config.vocabulary, config.width}, true,
                         init.normal(name, config.init_std), TensorCut(parallel).rows(config.vocabulary)});
}

bool is_stored_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

}  // namespace maestro
