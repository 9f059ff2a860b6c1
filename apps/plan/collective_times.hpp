// SPDX-License-Identifier: Apache-2.0
// The times of collectives that a changed layout has and a traced run had not: those of dry passes on samples of the
// job, at an assumed rate, by rows of a micro-batch. Processors alone; emulated devices have no collectives.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "actors/job/job_rehearsal.hpp"
#include "runtime/rehearsal/described_cluster.hpp"
#include "runtime/rehearsal/pass_fit.hpp"

namespace maestro {

/// Between threads that share caches and memory, each way, and for each call: gathers of 0.2 to 3 MB between two cores
/// of a Xeon took 37 to 391 us, and these give 40 to 335.
inline constexpr DescribedLink assumed_link{5e6, 0.02};

class CollectiveTimes {
 public:
  /// Of the sections whose replicas have several ranks in `plan`, and a single one in `traced`. `plan` outlives it.
  CollectiveTimes(const ResolvedJob& traced, const ResolvedJob& plan);

  /// Returns the sections, without repetitions.
  [[nodiscard]] const std::vector<std::string>& sections() const { return sections_; }
  /// Returns `times` with the collectives added to their passes and step ends. This object outlives the result.
  [[nodiscard]] JobTimes added_to(const JobTimes& times) const;

 private:
  struct OfStage {
    PassFit forward, backward;  // by rows
    double add_ranks_ms = 0;
  };
  const ResolvedJob* plan_;
  std::vector<std::string> sections_;
  std::map<SectionId, OfStage> stages_;
};

}  // namespace maestro
