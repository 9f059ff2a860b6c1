// SPDX-License-Identifier: Apache-2.0
// Whether a section whose replicas move needs more processes, or has too many, as looks at a running job show it: in
// each look, the share of its consumers that wait for it and the share of its processes that have nothing to do. Pure;
// belongs to the supervisor.
//
// EB-1 (windows): a decision rests on the means over `window` looks; a move of placements begins another window.
// EB-2 (thresholds): a window with more than 5% waiting and at most 50% idle decides for one more process; a window
//       with more than 50% idle and at most 5% waiting decides for one less.
// EB-3 (no swing): after a decision for one less that a decision for one more follows, the balance decides for one less
//       only at the end of twice as many such windows in a row as before.
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

  /// Shares from 0 to 1.
  PlacementDecision look(double waiting, double idle);
  /// Placements have moved: looks from before do not count.
  void moved();
  /// Means of the last full window.
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
  int patience_ = 1;  // windows in a row before a process is given back
  bool gave_back_ = false;
};

}  // namespace maestro
