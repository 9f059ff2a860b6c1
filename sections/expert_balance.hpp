// SPDX-License-Identifier: Apache-2.0
// Losses that keep the experts of a training pass busy (Shazeer et al. 2017, section 4; DeepSeek-V2 2024, section
// 2.1.3; Zoph et al. 2022 for the z-loss). With p a token's softmax over its E scores, f an expert's share of the
// routes in the token's sample, and T all tokens of the global batch, a layer adds
//   balance_weight sum_tokens (E sum_i f_i p_i) / T  +  z_weight sum_tokens (log sum_i exp z_i)^2 / T.
// f is a count, without a gradient. If all loads and probabilities are equal, E sum f p is 1; experts that are both
// busy and likely make it larger.
//
// ML-1 (layouts): the losses depend on samples alone, not on micro-batches, replicas or ranks.
#pragma once

#include <memory>
#include <vector>

#include "runtime/ops/expert_functions.hpp"
#include "sections/section.hpp"

namespace maestro {

/// The losses of a micro-batch's pass in all layers of a stage. Used on the section's device thread.
class ExpertBalance {
 public:
  struct Settings {
    double balance_weight = 0;
    double z_weight = 0;
    std::int64_t experts = 1;
    std::int64_t per_token = 1;
  };
  /// Returns the losses of a training pass; null if both weights are 0, in other passes, and on tensor ranks but the
  /// first, whose scores are the same.
  [[nodiscard]] static std::shared_ptr<ExpertBalance> of(Tape& tape, const Inputs& inputs, const Settings& settings,
                                                         const ParallelContext& parallel);

  /// Adds a layer's losses: starts their backward passes at the scores (M_c, E) f32.
  void add(Tape& tape, const Var& scores, const Routes& routes);
  /// Reports the means over tokens and layers so far: "balance", E sum f p, and "router_z", the squares.
  void report(Outputs& outputs) const;

 private:
  Settings settings_;
  double token_scale_ = 0;
  TokenSamples samples_;
  std::vector<Pending<LossSums>> balance_, z_;
};

}  // namespace maestro
