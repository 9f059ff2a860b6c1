// SPDX-License-Identifier: Apache-2.0
// A section type outside this repository: a language model whose context is a single token.
#pragma once

#include <maestro/functions.hpp>
#include <maestro/job_table.hpp>
#include <maestro/section.hpp>
#include <memory>
#include <string>
#include <vector>

namespace outside {

/// Predicts the next token from the present: embedding, hidden layer with residual connection, output layer, loss.
///
/// Inputs  tokens (M) i32, targets (M) i32 (-1: ignored). No outputs; reports loss and ce.
class BigramModel final : public maestro::Section {
 public:
  struct Options {
    std::int64_t width = 32;        ///< C
    std::int64_t vocabulary = 256;  ///< V
    /// Reads the keys `width` and `vocabulary` of the section's table. Throws JobError.
    static Options read(const maestro::JobTable& table) {
      Options options;
      options.width = table.integer("width", options.width, {.min = 1, .max = 65536});
      options.vocabulary = table.integer("vocabulary", options.vocabulary, {.min = 2, .max = 1 << 20});
      return options;
    }
  };

  BigramModel(const maestro::SectionContext& context, const Options& options)
      : options_(options), init_(context.seed, context.name) {
    embedding_ = &matrix("embedding.weight", options.vocabulary, options.width);
    hidden_ = &matrix("hidden.weight", options.width, options.width);
    head_ = &matrix("head.weight", options.vocabulary, options.width);
    norm_ =
        &parameters_.add({"norm.weight", maestro::Shape{options.width}, false, maestro::ParameterInit::constant(1.0f)});
    context.allocate(parameters_);
  }

  [[nodiscard]] maestro::Ports ports() const override {
    const maestro::Port tokens{"tokens", maestro::DType::i32, 1, false, false};
    const maestro::Port targets{"targets", maestro::DType::i32, 1, false, false};
    return {{tokens, targets}, {}};
  }

  maestro::Parameters& parameters() override { return parameters_; }

  /// Runs the forward pass; the tape records the data of the backward pass.
  void forward(maestro::Tape& tape, const maestro::Inputs& inputs, maestro::Outputs& outputs) override {
    using namespace maestro;
    const Var x = embedding(tape, *embedding_, inputs["tokens"].value(), nullptr, inputs.layout());   // (M, C)
    const Var branch = gelu(tape, linear(tape, rms_norm(tape, x, *norm_, 1e-5), *hidden_, nullptr));  // (M, C)
    const Var state = rms_norm(tape, add(tape, x, branch), *norm_, 1e-5);                             // (M, C)
    const Tensor targets = inputs["targets"].value().reshaped(Shape{x.value().rows()});               // (M)
    outputs.losses(cross_entropy_loss(tape, state, *head_, {&targets, inputs.loss_scale()}), false);
  }

  /// Returns the cost of two matrix products, 2 M N K FLOPs each.
  [[nodiscard]] maestro::Cost cost(const maestro::SampleShape& sample) const override {
    const auto columns = static_cast<double>(options_.width + options_.vocabulary);
    return {2.0 * static_cast<double>(sample.tokens * options_.width) * columns, 0};
  }

  /// Returns the entries of checkpoints and weights, with their names.
  [[nodiscard]] std::vector<maestro::StateEntry> state() override {
    std::vector<maestro::StateEntry> entries;
    for (maestro::Parameter& parameter : parameters_.all())
      entries.push_back({parameter.name(), &parameter, 0, 0, false});
    return entries;
  }

  [[nodiscard]] std::string config_json() const override {
    return R"({"model_type": "bigram", "hidden_size": )" + std::to_string(options_.width) + "}";
  }

 private:
  maestro::Parameter& matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    return parameters_.add({name, maestro::Shape{rows, columns}, true, init_.normal(name, 0.02)});
  }

  Options options_;
  maestro::ParameterInit init_;  // values depend only on seed, section and parameter name
  maestro::Parameters parameters_;
  maestro::Parameter* embedding_;  // (V, C)
  maestro::Parameter* hidden_;     // (C, C)
  maestro::Parameter* head_;       // (V, C)
  maestro::Parameter* norm_;       // (C)
};

}  // namespace outside
