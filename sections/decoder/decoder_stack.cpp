// SPDX-License-Identifier: Apache-2.0
#include "sections/decoder/decoder_stack.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>

#include "sections/section_ranks.hpp"

namespace maestro {

/// The families' parameters in the order that Hugging Face lists them.
class DecoderStack::Builder {
 public:
  Builder(DecoderStack& stack, Parameters& parameters, const ParameterInit& init)
      : stack_(stack), config_(stack.config_), add_(parameters, init, stack.state_), cut_(stack.parallel_) {}

  void build_gpt2();
  void build_llama();

 private:
  /// Those of the stage, each made by `layer` from the prefix of its names.
  template <class Layer>
  void add_layers(const std::string& prefix, Layer layer) {
    const Stage& stage = stack_.stage_;
    for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.layers; ++i) {
      stack_.layers_.push_back(layer(prefix + std::to_string(i) + "."));
    }
  }
  BlockWeights gpt2_layer(const std::string& prefix);
  BlockWeights llama_layer(const std::string& prefix);
  Affine conv1d(const std::string& name, Shape shape, double deviation, const ParameterSlice& slice) {
    return add_.linear(name, shape, deviation, true, slice);
  }
  Affine rms_norm(const std::string& name) { return {&add_.stored(add_.vector(name, config_.width, 1.0f)), nullptr}; }
  Parameter& embedding(const std::string& name, std::int64_t rows, ParameterSlice slice = {}) {
    return add_.stored(add_.matrix(name, Shape{rows, config_.width}, config_.init_std, std::move(slice)));
  }
  [[nodiscard]] double residual_deviation() const {
    return config_.init_std / std::sqrt(2.0 * static_cast<double>(config_.layers));
  }

  DecoderStack& stack_;
  const DecoderConfig& config_;
  ParameterBuilder add_;
  TensorCut cut_;
};

BlockWeights DecoderStack::Builder::gpt2_layer(const std::string& prefix) {
  const std::int64_t width = config_.width;
  BlockWeights layer;
  layer.attention_norm = add_.layer_norm(prefix + "ln_1", width);
  layer.qkv = conv1d(prefix + "attn.c_attn", {3 * width, width}, config_.init_std, cut_.stacked({width, width, width}));
  layer.attention_out = conv1d(prefix + "attn.c_proj", {width, width}, residual_deviation(), cut_.columns(width));
  layer.ffn_norm = add_.layer_norm(prefix + "ln_2", width);
  layer.ffn_in = conv1d(prefix + "mlp.c_fc", {config_.ffn, width}, config_.init_std, cut_.rows(config_.ffn));
  layer.ffn_out = conv1d(prefix + "mlp.c_proj", {width, config_.ffn}, residual_deviation(), cut_.columns(config_.ffn));
  return layer;
}

void DecoderStack::Builder::build_gpt2() {
  if (stack_.stage_.first()) {
    stack_.tokens_ = &embedding("transformer.wte.weight", config_.vocabulary, cut_.rows(config_.vocabulary));
    stack_.positions_ = &embedding("transformer.wpe.weight", config_.positions);
  }
  add_layers("transformer.h.", [this](const std::string& prefix) { return gpt2_layer(prefix); });
  if (stack_.stage_.last()) stack_.final_norm_ = add_.layer_norm("transformer.ln_f", config_.width);
}

BlockWeights DecoderStack::Builder::llama_layer(const std::string& prefix) {
  const std::int64_t width = config_.width;
  const std::int64_t queries = width;
  const std::int64_t keys = config_.kv_heads * (width / config_.heads);
  BlockWeights layer;
  layer.attention_norm = rms_norm(prefix + "input_layernorm.weight");
  Parameter& qkv = add_.matrix(prefix + "self_attn.qkv_proj.weight", Shape{queries + 2 * keys, width}, config_.init_std,
                               cut_.stacked({queries, keys, keys}));
  add_.stored_rows(prefix + "self_attn.q_proj.weight", qkv, 0, queries);
  add_.stored_rows(prefix + "self_attn.k_proj.weight", qkv, queries, keys);
  add_.stored_rows(prefix + "self_attn.v_proj.weight", qkv, queries + keys, keys);
  layer.qkv.weight = &qkv;
  layer.attention_out.weight = &add_.stored(add_.matrix(prefix + "self_attn.o_proj.weight", Shape{width, queries},
                                                        residual_deviation(), cut_.columns(queries)));
  layer.ffn_norm = rms_norm(prefix + "post_attention_layernorm.weight");
  Parameter& gate_up = add_.matrix(prefix + "mlp.gate_up_proj.weight", Shape{2 * config_.ffn, width}, config_.init_std,
                                   cut_.stacked({config_.ffn, config_.ffn}));
  add_.stored_rows(prefix + "mlp.gate_proj.weight", gate_up, 0, config_.ffn);
  add_.stored_rows(prefix + "mlp.up_proj.weight", gate_up, config_.ffn, config_.ffn);
  layer.ffn_in.weight = &gate_up;
  layer.ffn_out.weight = &add_.stored(add_.matrix(prefix + "mlp.down_proj.weight", Shape{width, config_.ffn},
                                                  residual_deviation(), cut_.columns(config_.ffn)));
  return layer;
}

void DecoderStack::Builder::build_llama() {
  if (stack_.stage_.first()) {
    stack_.tokens_ = &embedding("model.embed_tokens.weight", config_.vocabulary, cut_.rows(config_.vocabulary));
  }
  add_layers("model.layers.", [this](const std::string& prefix) { return llama_layer(prefix); });
  if (stack_.stage_.last()) stack_.final_norm_ = rms_norm("model.norm.weight");
}

DecoderStack::DecoderStack(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config,
                           const ParallelContext& parallel, const Stage& stage)
    : config_(config), parallel_(parallel), stage_(stage) {
  if (stage.count == 1) stage_.layers = config.layers;
  const bool gpt2 = config.family == "gpt2";
  const std::int64_t tensor = parallel.layout.tensor;
  block_.attention.shape = {config.heads / tensor, config.kv_heads / tensor, config.width / config.heads, true};
  block_.tensor_group = parallel.tensor_group;
  block_.context_group = parallel.context_group;
  block_.attention.rotary_theta = gpt2 ? 0.0 : config.rope_theta;
  block_.norm_epsilon = config.norm_epsilon;
  Builder builder(*this, parameters, init);
  if (gpt2) {
    builder.build_gpt2();
  } else {
    builder.build_llama();
  }
}

Var DecoderStack::embedded(Tape& tape, const Tensor& tokens, const SequenceLayout& layout) {
  assert(stage_.first());
  const RowRange rows = context_rows(parallel_, layout);
  const auto positions =
      layout.positions.subspan(static_cast<std::size_t>(rows.first), static_cast<std::size_t>(rows.count));
  const VocabularyPart part = vocabulary_part(parallel_, config_.vocabulary);
  return reduce_scatter_rows(tape, embedding_part(tape, *tokens_, tokens, positions_, positions, part), part.group);
}

Stream DecoderStack::transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted) const {
  return transformed(tape, std::move(x), layout, wanted, {});
}

Stream DecoderStack::transformed(Tape& tape, Stream x, const SequenceLayout& layout, const Block& wanted,
                                 std::span<const AttentionCache> caches) const {
  assert(caches.empty() || (caches.size() == layers_.size() && parallel_.layout.ranks() == 1));
  BlockOptions options = block_;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!caches.empty()) options.cache = &caches[i];
    const bool last = i + 1 == layers_.size();
    x = transformer_block(tape, layers_[i], options, std::move(x), layout, last ? wanted : Block());
  }
  return x;
}

Var DecoderStack::normed(Tape& tape, Stream x) const {
  assert(stage_.last());
  return block_norm(tape, x, final_norm_, config_.norm_epsilon);
}

std::vector<std::string> body_names(const DecoderConfig& config) {
  Parameters never_allocated;
  const DecoderStack whole(never_allocated, ParameterInit(0, ""), config);
  std::vector<std::string> names;
  for (const StateEntry& entry : whole.state()) names.push_back(entry.name);
  std::ranges::sort(names);
  return names;
}

std::string_view embedding_name(const DecoderConfig& config) {
  return config.family == "llama" ? "model.embed_tokens.weight" : "transformer.wte.weight";
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
