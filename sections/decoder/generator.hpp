// SPDX-License-Identifier: Apache-2.0
// The decoder of a generator: it continues prompts with the weights of a trained section, and takes part in no step.
#pragma once

#include "sections/decoder/decoder_section.hpp"

namespace maestro {

/// Without ports: an edge of weights gives it its values. Its shape and its precision are those of the section at the
/// other end, unless `precision` is set.
class Generator final : public DecoderSection {
 public:
  struct Options {
    DecoderConfig decoder;
    DataShape data;
  };
  Generator(const SectionContext& context, const Options& options)
      : DecoderSection(context, options.decoder, options.data, OutputLayer::own_or_tied) {}

  [[nodiscard]] Ports ports() const override { return {}; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  [[nodiscard]] Cost cost(const SampleShape&) const override { return {}; }
  [[nodiscard]] bool spreads_over_ranks() const override { return false; }
  [[nodiscard]] bool recomputes() const override { return false; }
  [[nodiscard]] bool runs_dry() const override { return false; }
  /// Replicas take versions at different times.
  [[nodiscard]] bool shareable() const override { return false; }
  /// A replica is about to use the section. Returns false if a later replica, which follows it at its placement, has
  /// used it: the values are another version. Called on the device's thread.
  [[nodiscard]] bool used_by(Epoch replica) {
    if (replica < used_by_) return false;
    used_by_ = replica;
    return true;
  }

 private:
  Epoch used_by_;
};

}  // namespace maestro
