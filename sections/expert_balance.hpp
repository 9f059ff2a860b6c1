// SPDX-License-Identifier: Apache-2.0
// What keeps the experts of a training pass busy (Shazeer et al. 2017, section 4; DeepSeek-V2 2024, section 2.1.3;
// DeepSeek-V3 2024, section 2.1.2; Zoph et al. 2022 for the z-loss). With p a token's softmax over its E scores z, or
// its sigmoids divided by their sum, f an expert's share of the routes, and T all tokens of the global batch, a layer
// adds
//   balance_weight sum_tokens (E sum_i f_i p_i) / T  +  z_weight sum_tokens (log sum_i exp z_i)^2 / T.
// f is of the token's sample, or of the global batch in the step before; 1 / E in the first step. It is a count,
// without a gradient. If all loads and probabilities are equal, E sum f p is 1; experts that are both busy and likely
// make it larger.
//
// ML-1 (layouts): the losses depend on samples and on the step before, not on micro-batches, replicas or ranks.
// ML-2 (counts): the gradients of a layer's loads and bias count each route of the global batch once, so loads and bias
//       have the same bits on every layout.
#pragma once

#include <memory>
#include <vector>

#include "runtime/model/expert_config.hpp"
#include "runtime/ops/expert_functions.hpp"
#include "sections/section.hpp"

namespace maestro {

/// The losses and counts of a micro-batch's pass in all layers of a stage. Used on the section's device thread.
class ExpertBalance {
 public:
  /// Values of a layer that counts of routes change (UpdateRule).
  struct Counted {
    Parameter* loads = nullptr;  ///< (E); null: routes are not counted
    Parameter* bias = nullptr;   ///< (E); null: none
  };
  /// Returns the losses of a training pass; null if `experts`, which is resolved, is not judged(), in other passes, and
  /// on tensor ranks but the first if their scores are the same (routed_rows).
  [[nodiscard]] static std::shared_ptr<ExpertBalance> of(Tape& tape, const Inputs& inputs, const ExpertConfig& experts,
                                                         const ParallelContext& parallel);

  /// Adds a layer's losses: starts their backward passes at the scores (M_c, E) f32. Counts the routes in the backward
  /// pass.
  void add(Tape& tape, const Var& scores, const Routes& routes, const Counted& counted);
  /// Reports the means over tokens and layers so far: "balance", E sum f p, and "router_z", the squares.
  void report(Outputs& outputs) const;

 private:
  void count(Tape& tape, const Routes& routes, const Counted& counted) const;

  ExpertConfig experts_;
  double token_scale_ = 0;
  TokenSamples samples_;
  Block all_rows_;  // (2) i32: 0 and M_c
  Block zeros_;     // (M_c) i32
  std::vector<Pending<LossSums>> balance_, z_;
};

/// Returns figures of the loads that a step has set, means over the layers: "load_max", the largest load, an expert's
/// routes divided by the mean of all experts; and "load_idle", the share of experts without a route. None if the
/// section keeps no loads.
[[nodiscard]] PassMetrics load_figures(const OperatorTable& ops, Parameters& parameters);

}  // namespace maestro
