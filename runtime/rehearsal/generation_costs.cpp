// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/generation_costs.hpp"

#include <iterator>

namespace maestro {

void GenerationCosts::add_decode(std::int64_t sequences, std::int64_t rows, double ms) {
  decode_[sequences].add(static_cast<double>(rows) / static_cast<double>(sequences), ms);
}

double GenerationCosts::decode(std::int64_t sequences, std::int64_t rows) const {
  if (decode_.empty()) return 0;
  const double own = static_cast<double>(rows) / static_cast<double>(sequences);
  const auto above = decode_.lower_bound(sequences);
  if (above == decode_.end()) {
    const auto& [most, fit] = *decode_.rbegin();
    return fit.ms(own) * static_cast<double>(sequences) / static_cast<double>(most);
  }
  if (above->first == sequences || above == decode_.begin()) return above->second.ms(own);
  const auto below = std::prev(above);
  const double part = static_cast<double>(sequences - below->first) / static_cast<double>(above->first - below->first);
  return (1 - part) * below->second.ms(own) + part * above->second.ms(own);
}

}  // namespace maestro
