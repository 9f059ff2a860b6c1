#include "sections/decoder/decoder_stack.hpp"

#include <cmath>
#include <string>

namespace maestro {

/// Registers parameters and, beside each, the names it is stored under.
class DecoderStack::Builder {
 public:
  Builder(DecoderStack& stack, Parameters& parameters, const ParameterInit& init)
      : stack_(stack), parameters_(parameters), init_(init) {}

  Parameter& matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
    return parameters_.add({name, Shape{rows, columns}, true, init_.normal(name, deviation)});
  }
  Parameter& vector(const std::string& name, float value) { return vector(name, stack_.config_.width, value); }
  Parameter& vector(const std::string& name, std::int64_t size, float value) {
    return parameters_.add({name, Shape{size}, false, ParameterInit::constant(value)});
  }
  /// Stored whole, under the parameter's own name.
  Parameter& stored(Parameter& parameter, bool transposed = false) {
    stack_.state_.push_back({parameter.name(), &parameter, 0, 0, transposed});
    return parameter;
  }
  void stored_rows(const std::string& name, Parameter& parameter, std::int64_t first, std::int64_t rows) {
    stack_.state_.push_back({name, &parameter, first, rows, false});
  }

  void build_gpt2();
  void build_llama();

 private:
  Affine layer_norm(const std::string& name) {
    return {&stored(vector(name + ".weight", 1.0f)), &stored(vector(name + ".bias", 0.0f))};
  }
  /// A GPT-2 "Conv1D": (N, K) here, (K, N) in the file.
  Affine conv1d(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation) {
    return {&stored(matrix(name + ".weight", rows, columns, deviation), true),
            &stored(vector(name + ".bias", rows, 0.0f))};
  }
  Affine rms_norm(const std::string& name) { return {&stored(vector(name, 1.0f)), nullptr}; }
  Layer gpt2_layer(const std::string& prefix);
  Layer llama_layer(const std::string& prefix);
  [[nodiscard]] double residual_deviation() const {
    return stack_.config_.init_std / std::sqrt(2.0 * static_cast<double>(stack_.config_.layers));
  }

  DecoderStack& stack_;
  Parameters& parameters_;
  const ParameterInit& init_;
};

DecoderStack::Layer DecoderStack::Builder::gpt2_layer(const std::string& prefix) {
  const DecoderConfig& config = stack_.config_;
  Layer layer;
  layer.attention_norm = layer_norm(prefix + "ln_1");
  layer.qkv = conv1d(prefix + "attn.c_attn", 3 * config.width, config.width, config.init_std);
  layer.attention_out = conv1d(prefix + "attn.c_proj", config.width, config.width, residual_deviation());
  layer.ffn_norm = layer_norm(prefix + "ln_2");
  layer.ffn_in = conv1d(prefix + "mlp.c_fc", config.ffn, config.width, config.init_std);
  layer.ffn_out = conv1d(prefix + "mlp.c_proj", config.width, config.ffn, residual_deviation());
  return layer;
}

void DecoderStack::Builder::build_gpt2() {
  const DecoderConfig& config = stack_.config_;
  stack_.tokens_ = &stored(matrix("transformer.wte.weight", config.vocabulary, config.width, config.init_std));
  stack_.positions_ = &stored(matrix("transformer.wpe.weight", config.positions, config.width, config.init_std));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    stack_.layers_.push_back(gpt2_layer("transformer.h." + std::to_string(i) + "."));
  }
  stack_.final_norm_ = layer_norm("transformer.ln_f");
}

DecoderStack::Layer DecoderStack::Builder::llama_layer(const std::string& prefix) {
  const DecoderConfig& config = stack_.config_;
  const AttentionShape& shape = stack_.attention_.shape;
  const std::int64_t queries = shape.heads * shape.head_size;
  const std::int64_t keys = shape.kv_heads * shape.head_size;
  Layer layer;
  layer.attention_norm = rms_norm(prefix + "input_layernorm.weight");
  Parameter& qkv = matrix(prefix + "self_attn.qkv_proj.weight", shape.qkv_columns(), config.width, config.init_std);
  stored_rows(prefix + "self_attn.q_proj.weight", qkv, 0, queries);
  stored_rows(prefix + "self_attn.k_proj.weight", qkv, queries, keys);
  stored_rows(prefix + "self_attn.v_proj.weight", qkv, queries + keys, keys);
  layer.qkv.weight = &qkv;
  layer.attention_out.weight =
      &stored(matrix(prefix + "self_attn.o_proj.weight", config.width, queries, residual_deviation()));
  layer.ffn_norm = rms_norm(prefix + "post_attention_layernorm.weight");
  Parameter& gate_up = matrix(prefix + "mlp.gate_up_proj.weight", 2 * config.ffn, config.width, config.init_std);
  stored_rows(prefix + "mlp.gate_proj.weight", gate_up, 0, config.ffn);
  stored_rows(prefix + "mlp.up_proj.weight", gate_up, config.ffn, config.ffn);
  layer.ffn_in.weight = &gate_up;
  layer.ffn_out.weight =
      &stored(matrix(prefix + "mlp.down_proj.weight", config.width, config.ffn, residual_deviation()));
  return layer;
}

void DecoderStack::Builder::build_llama() {
  const DecoderConfig& config = stack_.config_;
  stack_.tokens_ = &stored(matrix("model.embed_tokens.weight", config.vocabulary, config.width, config.init_std));
  for (std::int64_t i = 0; i < config.layers; ++i) {
    stack_.layers_.push_back(llama_layer("model.layers." + std::to_string(i) + "."));
  }
  stack_.final_norm_ = rms_norm("model.norm.weight");
}

DecoderStack::DecoderStack(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config)
    : config_(config), gpt2_(config.family == "gpt2") {
  attention_.shape = {config.heads, config.kv_heads, config.width / config.heads, true};
  attention_.rotary_theta = gpt2_ ? 0.0 : config.rope_theta;
  Builder builder(*this, parameters, init);
  if (gpt2_) {
    builder.build_gpt2();
  } else {
    builder.build_llama();
  }
}

Var DecoderStack::norm(Tape& tape, const Var& x, const Affine& weights) const {
  if (!gpt2_) return rms_norm(tape, x, *weights.weight, config_.norm_epsilon);
  return layer_norm(tape, x, *weights.weight, *weights.bias, config_.norm_epsilon);
}

Var DecoderStack::layer(Tape& tape, const Layer& weights, const Var& x, const SequenceLayout& layout) const {
  Var branch = norm(tape, x, weights.attention_norm);
  branch = linear(tape, branch, *weights.qkv.weight, weights.qkv.bias);
  branch = attention(tape, branch, attention_, layout);
  branch = linear(tape, branch, *weights.attention_out.weight, weights.attention_out.bias);
  const Var middle = add(tape, x, branch);
  branch = norm(tape, middle, weights.ffn_norm);
  branch = linear(tape, branch, *weights.ffn_in.weight, weights.ffn_in.bias);
  branch = gpt2_ ? gelu(tape, branch) : swiglu(tape, branch);
  branch = linear(tape, branch, *weights.ffn_out.weight, weights.ffn_out.bias);
  return add(tape, middle, branch);
}

Var DecoderStack::hidden(Tape& tape, const Tensor& tokens, const SequenceLayout& layout) {
  Var x = embedding(tape, *tokens_, tokens, positions_, layout);
  for (const Layer& each : layers_) x = layer(tape, each, x, layout);
  return norm(tape, x, final_norm_);
}

std::vector<Parameter*> DecoderStack::product_matrices() const {
  std::vector<Parameter*> matrices;
  for (const Layer& each : layers_) {
    for (const Affine* product : {&each.qkv, &each.attention_out, &each.ffn_in, &each.ffn_out}) {
      matrices.push_back(product->weight);
    }
  }
  return matrices;
}

std::string_view embedding_name(const DecoderConfig& config) {
  return config.family == "llama" ? "model.embed_tokens.weight" : "transformer.wte.weight";
}

Parameter& add_head(Parameters& parameters, const ParameterInit& init, const DecoderConfig& config) {
  return parameters.add(
      {std::string(head_name), Shape{config.vocabulary, config.width}, true, init.normal(head_name, config.init_std)});
}

bool is_stored_buffer(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with("rotary_emb.inv_freq");
}

}  // namespace maestro
