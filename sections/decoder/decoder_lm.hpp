// SPDX-License-Identifier: Apache-2.0
// A complete language model with its loss: decoder body, output layer (tied or separate) and softmax cross-entropy.
//
// Inputs  tokens (M) i32, targets (M) i32 (-1: ignored). No outputs; reports loss and ce.
// In pipeline stages the first takes tokens, the last takes targets and reports; see decoder_section.hpp.
// A tied output layer is the token embedding itself: its gradient is the sum of both uses.
#pragma once

#include "sections/decoder/decoder_section.hpp"

namespace maestro {

class DecoderLm final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;
    DataShape data;
    /// Reads the shape keys; `data` stays empty. Throws JobError.
    static Options read(const JobTable& table) { return {read_decoder_shape(table), {}}; }
  };
  /// Throws JobError for a decoder that does not fit the data.
  DecoderLm(const SectionContext& context, const Options& options)
      : DecoderSection(context, options.decoder, options.data, OutputLayer::own_or_tied) {}

  [[nodiscard]] Ports ports() const override { return stage_ports({{targets_port}, {}}); }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape& sample) const override { return decoder_cost(sample); }
};

}  // namespace maestro
