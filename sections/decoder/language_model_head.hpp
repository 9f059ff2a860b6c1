// SPDX-License-Identifier: Apache-2.0
// The output layer and softmax cross-entropy of a language model whose body is another section.
//
// Inputs  hidden (M, width) act, differentiable; targets (M) i32 (-1: ignored). No outputs; reports loss and ce.
// Its only parameter, lm_head.weight (vocabulary, width), cannot be tied: the embedding lives in the other section.
#pragma once

#include "sections/decoder/decoder_shape.hpp"
#include "sections/section.hpp"

namespace maestro {

class LanguageModelHead final : public Section {
 public:
  struct Options {
    DecoderConfig decoder;  ///< decoder of the complete model
    DataShape data;
    /// Reads the shape keys; `tied` is false unless given. Throws JobError.
    static Options read(const JobTable& table);
  };
  /// Throws JobError for a decoder that does not fit the data, or that is tied.
  LanguageModelHead(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override;
  [[nodiscard]] bool ignores(std::string_view stored_name) const override;
  [[nodiscard]] std::string config_json() const override;
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] bool runs_dry() const override { return true; }
  [[nodiscard]] ProductParameters products() override { return {{head_}}; }
  void freeze() override;

 private:
  SectionContext context_;
  DecoderConfig decoder_;
  Parameters parameters_;
  Parameter* head_;
};

}  // namespace maestro
