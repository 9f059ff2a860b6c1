// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/rotary_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace maestro::cpu {

namespace {

std::shared_ptr<const RotaryAngles> compute(const RotaryFrequencies& frequencies, std::int64_t positions) {
  const std::size_t count = static_cast<std::size_t>(positions) * frequencies.inverse.size();
  auto angles = std::make_shared<RotaryAngles>();
  angles->positions = positions;
  angles->cosines.reserve(count);
  angles->sines.reserve(count);
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const double inverse : frequencies.inverse) {
      const double angle = static_cast<double>(position) * inverse;
      angles->cosines.push_back(static_cast<float>(frequencies.magnitude * std::cos(angle)));
      angles->sines.push_back(static_cast<float>(frequencies.magnitude * std::sin(angle)));
    }
  }
  return angles;
}

}  // namespace

std::shared_ptr<const RotaryAngles> RotaryTable::angles(const RotaryFrequencies& frequencies,
                                                        std::int64_t positions) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const RotaryAngles>& entry = angles_[frequencies];
  if (entry == nullptr || entry->positions < positions) {
    const auto rounded = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(positions, 256)));
    entry = compute(frequencies, static_cast<std::int64_t>(rounded));
  }
  return entry;
}

}  // namespace maestro::cpu
