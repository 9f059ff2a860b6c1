// SPDX-License-Identifier: Apache-2.0
// What a micro-batch costs each section: FLOPs from the sections' own models, turned into milliseconds by rates that
// follow measured passes. Pure; not thread-safe.
//
// CM-1: without measurements all sections share one rate, so plans depend on FLOPs alone and repeat.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "runtime/schedule/step_plan.hpp"

namespace maestro {

/// FLOPs (or any one unit) of one sample in one section.
struct PassCost {
  double forward = 0;
  double backward = 0;
};
using SampleCost = std::function<PassCost(SectionId, const SampleRef&)>;

/// How long a pass really took.
struct MeasuredPass {
  SectionId section;
  bool backward = false;
  std::vector<SampleRef> samples;
  double ms = 0;
};

class CostModel {
 public:
  /// `unit_per_ms`: how much a device does in a millisecond until passes have been measured.
  explicit CostModel(SampleCost cost = {}, double unit_per_ms = 5e7);

  /// Milliseconds of a micro-batch's passes.
  [[nodiscard]] PassCost of(SectionId section, std::span<const SampleRef> samples) const;
  /// Moves the section's rate towards that of the pass (a weight of 1/8 for the new value).
  void measured(const MeasuredPass& pass);

 private:
  struct Rate {
    double forward = 0;  // ms per unit; 0: not measured
    double backward = 0;
  };
  [[nodiscard]] PassCost units(SectionId section, std::span<const SampleRef> samples) const;
  Rate& rate(SectionId section);

  SampleCost cost_;
  double default_rate_;
  std::vector<Rate> rates_;  // by section, as far as measured
};

}  // namespace maestro
