// SPDX-License-Identifier: Apache-2.0
// Pairs of a running and a waiting job that share the devices of the running job (placement as a matching:
// Tesserae, arXiv 2508.04953). Pure; any thread.
//
// Jobs that share devices run at 1 / max(1, a + b) of their rates, a and b the shares of time that the devices are busy
// with either alone. With R and W seconds left of either alone and a wait of D seconds instead, sharing ends the two
// jobs D - 2 min(R, W) (max(1, a + b) - 1) seconds earlier in sum.
//
// PJ-1 (never later): only pairs that this sum predicts to gain are made.
// PJ-2 (most gain): no other pairs of these jobs gain more in sum (Assignment).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace maestro {

/// A waiting job on the devices of a running job.
struct PossiblePair {
  double busy_waiting = 0;  ///< share of device time
  double busy_running = 0;
  double left_of_waiting_s = 0;  ///< alone, on these devices
  double left_of_running_s = 0;
  double wait_s = 0;  ///< of the waiting job, were it not to share
};

/// Returns how many times as long steps take.
[[nodiscard]] double slow_down(double busy, double other);
/// Returns the seconds that the pair gains; negative: it loses.
[[nodiscard]] double gain_s(const PossiblePair& pair);

/// `gains`: by waiting job and running job, 0 or less for a pair that may not be. Returns the running job of each
/// waiting job, or none.
[[nodiscard]] std::vector<std::optional<std::size_t>> best_pairs(const std::vector<std::vector<double>>& gains);

}  // namespace maestro
