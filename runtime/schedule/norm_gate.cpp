// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/norm_gate.hpp"

#include <cmath>

namespace maestro {

std::optional<double> NormGate::usual(const std::string& section) const {
  const auto found = norms_.find(section);
  return found != norms_.end() && found->second.judges() ? std::optional(found->second.median()) : std::nullopt;
}

std::optional<RefusedNorm> NormGate::judge(const SectionNorms& norms) {
  std::optional<RefusedNorm> refused;
  for (const auto& [section, norm] : norms) {
    const std::optional<double> median = usual(section);
    const bool huge = median && norm > rules_.norm * *median;
    if (!std::isfinite(norm) || (huge && !refused)) refused = RefusedNorm{section, norm, median};
    if (!std::isfinite(norm)) break;
  }
  learn(norms, refused.has_value());
  return refused;
}

void NormGate::learn(const SectionNorms& norms, bool refused) {
  for (const auto& [section, norm] : norms) {
    if (std::isfinite(norm)) norms_.try_emplace(section, rules_.window).first->second.add(norm);
  }
  refused_in_a_row_ = refused ? refused_in_a_row_ + 1 : 0;
}

}  // namespace maestro
