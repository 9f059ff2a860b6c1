// SPDX-License-Identifier: Apache-2.0
// Plans many similar training steps: a step whose samples have the sizes of an earlier step reuses its plan with new
// numbers. Pure.
//
// QN-1 (same plans): numbered plans equal the results of plans_of() if samples have equal sizes, except for their ids.
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

/// Plans units for a job. With more than `most_apart` lanes, plans only two steps of unlike sizes and uses them in
/// turn. If plans follow measured times, which `times` gives, plans every step.
[[nodiscard]] Result<RepeatedPlans> repeated_plans_of(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                      const JobTimes& times, std::size_t most_apart = 4000);

/// Numbers plans' steps and sequences in the order of a run.
class StepNumbers {
 public:
  /// Returns a copy of the plan, numbered as the step after all numbered steps.
  [[nodiscard]] StepPlan numbered(const StepPlan& plan, StepId step);

 private:
  struct Range {  // sequences of a plan
    std::uint64_t first = ~std::uint64_t{0};
    std::uint64_t end = 0;
  };
  template <class Number>
  using ByReceiver = std::vector<std::array<std::vector<Number>, 2>>;  // by edge, direction and replica
  [[nodiscard]] static ByReceiver<Range> ranges_of(const StepPlan& plan);

  ByReceiver<std::uint64_t> next_;  // next sequence
};

/// Rehearses units with repeated plans as rehearse_steps() does, but only up to the last unit that counts for the time.
[[nodiscard]] Result<SteadyRehearsal> rehearse_repeated(const ResolvedJob& plan, const std::vector<TracedUnit>& units,
                                                        const RepeatedPlans& plans, const JobTimes& times,
                                                        const RehearsalChange& change = {});

}  // namespace maestro
