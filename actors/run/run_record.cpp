// SPDX-License-Identifier: Apache-2.0
#include "actors/run/run_record.hpp"

namespace maestro {

std::map<std::string, double> MetricTotals::means() const {
  std::map<std::string, double> result;
  for (const auto& [name, parts] : values) {
    double sum = 0;
    double weight = 0;
    for (const auto& [index, part] : parts) {
      sum += part.first;
      weight += part.second;
    }
    if (weight > 0) result[name] = sum / weight;
  }
  return result;
}

}  // namespace maestro
