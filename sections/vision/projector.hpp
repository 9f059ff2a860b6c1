// SPDX-License-Identifier: Apache-2.0
// Maps vision features to a decoder's embedding space: linear, tanh GELU, linear, with biases (the projector of LLaVA
// 1.5, Liu et al. 2023).
//
// Input   features  (P, vision width) act, with the vision section's precision, differentiable
// Output  visual    (P, width) act, differentiable
//
// Each rank has separate rows of both ports. The tensor group gathers the features of its context part; the first
// product is cut by its weight's rows, the second by its weight's columns, and the sum is scattered by rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sections/parameter_builder.hpp"
#include "sections/section.hpp"
#include "sections/vision/vision_shape.hpp"

namespace maestro {

class Projector final : public Section {
 public:
  struct Options {
    ProjectorConfig projector;
    std::optional<DType> features;  ///< precision of the vision section; none: this section's
    DataShape data;
    /// Reads the options. `vision_width` defaults to the width of the section that key `vision` names (default
    /// "vision"), `width` to the width of the section that key `decoder` names (default "decoder"). With `weights` the
    /// folder's config.json takes precedence over these sections. Throws JobError.
    static Options read(const JobTable& table, const JobTable& root);
  };
  /// Throws JobError if a width is below 1 or below the tensor degree.
  Projector(const SectionContext& context, const Options& options);

  [[nodiscard]] Ports ports() const override;
  Parameters& parameters() override { return parameters_; }
  void forward(Tape& tape, const Inputs& inputs, Outputs& outputs) override;
  /// Returns 2 P (Cv C + C C) FLOPs for P patches; Cv is the vision section's width.
  [[nodiscard]] Cost cost(const SampleShape& sample) const override;
  [[nodiscard]] std::vector<StateEntry> state() override { return state_; }
  /// Returns true for the other parts of a vision-language model.
  [[nodiscard]] bool ignores(std::string_view stored_name) const override;
  [[nodiscard]] std::string config_json() const override { return hf_projector_config_text(config_); }
  [[nodiscard]] bool spreads_over_ranks() const override { return true; }
  [[nodiscard]] bool runs_dry() const override { return true; }
  [[nodiscard]] ProductParameters products() override { return {{first_.weight, second_.weight}}; }
  void freeze() override;
  /// Returns whether it is frozen and on a single rank: with several ranks collectives keep passes from overlapping.
  [[nodiscard]] bool shareable() const override { return frozen_ && context_.parallel.layout.ranks() == 1; }

 private:
  SectionContext context_;
  ProjectorConfig config_;
  DType features_;
  Parameters parameters_;
  std::vector<StateEntry> state_;
  Affine first_, second_;
  bool frozen_ = false;
};

}  // namespace maestro
