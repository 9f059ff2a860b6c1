// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary angles, computed once per set of frequencies and shared by all calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/ops/rotary_frequencies.hpp"

namespace maestro::cpu {

/// Cosines and sines of the angles p inverse[i], i < n, times the magnitude; computed in f64, rounded once to f32.
struct RotaryAngles {
  std::int64_t positions = 0;
  std::vector<float> cosines;  ///< (positions, n)
  std::vector<float> sines;    ///< (positions, n)
};

/// Thread-safe.
class RotaryTable {
 public:
  /// Returns the angles of at least the positions [0, positions). Shared: a longer table may replace it while a call
  /// still reads it.
  [[nodiscard]] std::shared_ptr<const RotaryAngles> angles(const RotaryFrequencies& frequencies,
                                                           std::int64_t positions) const;

 private:
  mutable std::mutex mutex_;  // guards angles_
  mutable std::map<RotaryFrequencies, std::shared_ptr<const RotaryAngles>> angles_;
};

}  // namespace maestro::cpu
