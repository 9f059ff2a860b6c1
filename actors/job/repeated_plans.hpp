// SPDX-License-Identifier: Apache-2.0
// Plans of many training steps, most of which are alike: a step whose samples have the sizes of an earlier one is
// planned once, and numbered anew. Pure.
//
// QN-1 (same plans): where samples have equal sizes, numbered plans are those of plans_of(), but for the samples' ids.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "actors/job/job_rehearsal.hpp"

namespace maestro {

/// A plan for each unit; units share plans.
struct RepeatedPlans {
  std::vector<StepPlan> planned;
  std::vector<std::size_t> of_unit;  ///< number in `planned`
};

/// Plans units for a job. Of more than `most_apart` lanes only two steps of unlike sizes are planned, and taken in
/// turn. Where plans follow measured times, those of `times`, every step is planned.
[[nodiscard]] Result<RepeatedPlans> repeated_plans_of(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                      const JobTimes& times, std::size_t most_apart = 4000);

/// Numbers the steps and the sequences of plans in the order of a run.
class StepNumbers {
 public:
  /// Returns the plan as that of another step behind those that were numbered before.
  [[nodiscard]] StepPlan numbered(const StepPlan& plan, StepId step);

 private:
  struct Range {  // of a plan's sequences
    std::uint64_t first = ~std::uint64_t{0};
    std::uint64_t end = 0;
  };
  template <class Number>
  using ByReceiver = std::vector<std::array<std::vector<Number>, 2>>;  // by edge, direction and replica
  [[nodiscard]] static ByReceiver<Range> ranges_of(const StepPlan& plan);

  ByReceiver<std::uint64_t> next_;  // sequences
};

/// Rehearses units by such plans as rehearse_steps() does, up to the end of the last unit of its time.
[[nodiscard]] Result<SteadyRehearsal> rehearse_repeated(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                        const RepeatedPlans& plans, const JobTimes& times,
                                                        const RehearsalChange& change = {});

}  // namespace maestro
