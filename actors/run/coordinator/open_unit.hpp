// SPDX-License-Identifier: Apache-2.0
// Announced units of a run that have not ended, with the replicas' reports so far.
#pragma once

#include <set>
#include <utility>

#include "actors/run/watch/step_watch.hpp"

namespace maestro {

struct OpenUnit {
  RunUnit unit;
  std::set<std::pair<SectionId, ReplicaIndex>> replicas_done;
  std::map<SectionId, std::size_t> replicas_done_of;
  std::set<SectionId> sections_done;
  std::map<SectionId, MetricTotals> totals;
  std::map<std::string, std::map<std::string, double>> figures;  ///< validation results, by section
  std::map<SectionId, std::pair<double, double>> norm_and_lr;
  LaneReports lanes;
  std::vector<SampleRef> samples;
  MadeSamples made;
  double batch_wait_ms = 0;  ///< time without other work until its batch came
  StepWatch watch;
  bool skipped = false;  ///< no section trains on the step
};

using UnitKey = std::pair<std::uint64_t, RunUnit::Kind>;  // step and kind: sorts as RunSchedule does (RS-1)
using OpenUnits = std::map<UnitKey, OpenUnit>;

[[nodiscard]] inline RunUnit checkpoint_unit(StepId step, bool shadow) {
  return {shadow ? RunUnit::Kind::shadow : RunUnit::Kind::checkpoint, step};
}
[[nodiscard]] inline UnitKey key_of(const RunUnit& unit) {
  return {unit.step.value(), unit.kind};
}
[[nodiscard]] inline UnitKey key_of(StepId step, Pass pass) {
  return {step.value(), pass == Pass::train ? RunUnit::Kind::train : RunUnit::Kind::validate};
}

}  // namespace maestro
