// SPDX-License-Identifier: Apache-2.0
// Pairs a waiting job with a running job to share the running job's devices (placement as a matching: Tesserae,
// arXiv 2508.04953). Pure; any thread.
//
// Jobs that share devices run at 1 / max(1, a + b) of their rates; a and b are the shares of time that each job keeps
// the devices busy without sharing. Let the jobs have R and W seconds left without sharing, and let the waiting job
// otherwise wait D seconds. Then sharing ends the two jobs D - 2 min(R, W) (max(1, a + b) - 1) seconds earlier in sum.
//
// PJ-1 (never later): only pairs with a predicted gain are made.
// PJ-2 (most gain): the pairs have the largest possible gain in sum (Assignment).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace maestro {

/// A waiting job on a running job's devices.
struct PossiblePair {
  double busy_waiting = 0;  ///< share of device time
  double busy_running = 0;
  double left_of_waiting_s = 0;  ///< remaining time on these devices without sharing
  double left_of_running_s = 0;
  double wait_s = 0;  ///< wait of the waiting job if it does not share
};

/// Returns the factor by which steps take longer.
[[nodiscard]] double slow_down(double busy, double other);
/// Returns the seconds that the pair gains; negative: it loses.
[[nodiscard]] double gain_s(const PossiblePair& pair);

/// Returns the running job for each waiting job, or none. `gains`: by waiting and running job; 0 or less: the pair is
/// not allowed.
[[nodiscard]] std::vector<std::optional<std::size_t>> best_pairs(const std::vector<std::vector<double>>& gains);

}  // namespace maestro
