// SPDX-License-Identifier: Apache-2.0
// Decides by a step's gradient norms whether any section trains on it (guard.action = "skip"). Pure.
//
// NG-1 (by earlier norms): the decision depends only on the norms of earlier steps and the settings: a run that goes
//       on, or is replayed, with the norms of its record decides the same.
// NG-2 (usual values): a norm is huge if it exceeds `norm` times the median of the section's last `window` finite
//       norms, once there are a quarter of them. A huge norm is among them afterwards, so a level that stays becomes
//       usual.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/schedule/spike_judge.hpp"
#include "runtime/schedule/value_window.hpp"

namespace maestro {

using SectionNorms = std::map<std::string, double>;

/// A norm on which no section trains.
struct RefusedNorm {
  std::string section;
  double norm = 0;
  std::optional<double> usual;  ///< the median; none yet
};

/// Not thread-safe.
class NormGate {
 public:
  explicit NormGate(const SpikeRules& rules) : rules_(rules) {}
  /// Judges the norms of all sections that have gradients in the next step. Returns a norm that is not finite, else one
  /// that is huge, else nothing.
  [[nodiscard]] std::optional<RefusedNorm> judge(const SectionNorms& norms);
  /// Takes the norms of a step as judged before.
  void learn(const SectionNorms& norms, bool refused);
  /// Returns the number of steps up to the last one that were refused without a break.
  [[nodiscard]] std::uint64_t refused_in_a_row() const { return refused_in_a_row_; }

 private:
  [[nodiscard]] std::optional<double> usual(const std::string& section) const;

  SpikeRules rules_;
  std::map<std::string, ValueWindow> norms_;  // by section
  std::uint64_t refused_in_a_row_ = 0;
};

}  // namespace maestro
