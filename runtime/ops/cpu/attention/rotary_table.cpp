// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu/attention/rotary_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace maestro::cpu {

namespace {

std::shared_ptr<const RotaryAngles> compute(double theta, std::int64_t head_size, std::int64_t positions) {
  const std::int64_t half = head_size / 2;
  auto angles = std::make_shared<RotaryAngles>();
  angles->positions = positions;
  angles->cosines.reserve(static_cast<std::size_t>(positions * half));
  angles->sines.reserve(static_cast<std::size_t>(positions * half));
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < half; ++i) {
    frequencies.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_size)));
  }
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      angles->cosines.push_back(static_cast<float>(std::cos(angle)));
      angles->sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return angles;
}

}  // namespace

std::shared_ptr<const RotaryAngles> RotaryTable::angles(double theta, std::int64_t head_size,
                                                        std::int64_t positions) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const RotaryAngles>& entry = angles_[{theta, head_size}];
  if (entry == nullptr || entry->positions < positions) {
    const auto rounded = std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(positions, 256)));
    entry = compute(theta, head_size, static_cast<std::int64_t>(rounded));
  }
  return entry;
}

}  // namespace maestro::cpu
