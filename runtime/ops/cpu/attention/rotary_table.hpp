// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary angles, computed once per base and head size and shared by all calls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace maestro::cpu {

/// angle(p, i) = p theta^(-2i / D), i < D / 2 (Su et al. 2021, section 3.2.2); computed in f64, rounded once to f32.
struct RotaryAngles {
  std::int64_t positions = 0;
  std::vector<float> cosines;  ///< (positions, D / 2)
  std::vector<float> sines;    ///< (positions, D / 2)
};

/// Thread-safe.
class RotaryTable {
 public:
  /// Angles of at least the positions [0, positions). Shared: a longer table may replace it while a call still reads
  /// it.
  [[nodiscard]] std::shared_ptr<const RotaryAngles> angles(double theta, std::int64_t head_size,
                                                           std::int64_t positions) const;

 private:
  mutable std::mutex mutex_;  // guards angles_
  mutable std::map<std::pair<double, std::int64_t>, std::shared_ptr<const RotaryAngles>> angles_;
};

}  // namespace maestro::cpu
