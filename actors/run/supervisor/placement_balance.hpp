// SPDX-License-Identifier: Apache-2.0
// Decides whether a section with movable replicas needs more processes or has too many, from looks at a running job.
// Each look counts the share of the section's consumers that wait for it and the share of its processes that are idle.
// Pure; belongs to the supervisor.
//
// EB-1 (windows): a decision uses means over `window` looks; a move of placements begins another window.
// EB-2 (thresholds): a window with more than 5% waiting and at most 50% idle decides for one more process; a window
//       with more than 50% idle and at most 5% waiting decides for one less.
// EB-3 (no swing): if one less is followed by one more, the next decision for one less needs twice as many consecutive
//       idle windows.
#pragma once

#include <cstdint>

namespace maestro {

enum class PlacementDecision : std::uint8_t { keep, one_more, one_less };

/// Not thread-safe.
class PlacementBalance {
 public:
  static constexpr int window = 50;
  static constexpr double most_waiting = 0.05;
  static constexpr double most_idle = 0.5;

  /// Adds a look, with shares from 0 to 1.
  PlacementDecision look(double waiting, double idle);
  /// Begins another window after placements have moved.
  void moved();
  /// Returns a mean over the last full window.
  [[nodiscard]] double waiting() const { return last_waiting_; }
  [[nodiscard]] double idle() const { return last_idle_; }

 private:
  PlacementDecision decide();

  int looks_ = 0;
  double waiting_ = 0;
  double idle_ = 0;
  double last_waiting_ = 0;
  double last_idle_ = 0;
  int idle_windows_ = 0;
  int patience_ = 1;  // consecutive idle windows before one less
  bool gave_back_ = false;
};

}  // namespace maestro
