// SPDX-License-Identifier: Apache-2.0
// Cost of a micro-batch in each section: FLOPs from the sections' own models, converted to milliseconds by a line that
// follows measured passes, since every pass takes time in addition to its FLOPs. Pure; not thread-safe.
//
// CS-1 (repeatable without measurements): before any measurement all sections share the same rate, so plans depend only
//       on FLOPs and repeat; transfers take no time.
// CS-2 (calm transfers): the planned time of an edge changes only when the measured mean has moved by more than a
//       quarter of it and by more than 0.1 ms, so transfers inside a process keep 0.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "runtime/schedule/cost_line.hpp"
#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// FLOPs (or another unit, the same everywhere) of a sample in a section.
struct PassCost {
  double forward = 0;
  double backward = 0;
};
using SampleCost = std::function<PassCost(SectionId, const SampleRef&)>;

/// Measured duration of a pass, converted to its section's fastest lanes: the time on its lane times the lane's speed.
struct MeasuredPass {
  SectionId section;
  bool backward = false;
  std::vector<SampleRef> samples;
  double ms = 0;
};

/// Measured mean time of a channel's pieces from departure to arrival.
struct MeasuredTransfer {
  Channel channel;
  double ms = 0;
};

class CostModel {
 public:
  /// `unit_per_ms`: units that a device is assumed to do in a millisecond until passes have been measured.
  explicit CostModel(SampleCost cost = {}, double unit_per_ms = 5e7);

  /// Returns the milliseconds of a micro-batch's passes.
  [[nodiscard]] PassCost of(SectionId section, std::span<const SampleRef> samples) const;
  /// Fits the line of the pass's section and direction to the pass.
  void measured(const MeasuredPass& pass);
  /// Follows the channel's transfers (a weight of 1/8 for the new value).
  void transferred(const MeasuredTransfer& transfer);
  /// Returns the milliseconds that plans assume for the edge: the longer of its two directions.
  [[nodiscard]] double transfer_ms(EdgeId edge) const;

 private:
  struct Lines {
    CostLine forward;
    CostLine backward;
  };
  struct TransferTime {
    double mean_ms = 0;
    double planned_ms = 0;
  };
  [[nodiscard]] PassCost units(SectionId section, std::span<const SampleRef> samples) const;

  SampleCost cost_;
  double default_rate_;
  std::vector<Lines> lines_;  // by section, as far as measured
  std::map<Channel, TransferTime> transfers_;
};

}  // namespace maestro
