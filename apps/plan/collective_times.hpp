// SPDX-License-Identifier: Apache-2.0
// Times of collectives that a changed layout has and a traced run lacks, by rows of a micro-batch: dry passes on the
// job's samples list the collectives, and an assumed rate prices them. CPUs only; emulated devices run no collectives.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "actors/job/job_rehearsal.hpp"
#include "runtime/rehearsal/described_cluster.hpp"
#include "runtime/rehearsal/pass_fit.hpp"

namespace maestro {

/// Rate each way, and latency of a call, between threads that share caches and memory. Gathers of 0.2 to 3 MB between
/// two cores of a Xeon took 37 to 391 us; these values give 40 to 335 us.
inline constexpr DescribedLink assumed_link{5e6, 0.02};

class CollectiveTimes {
 public:
  /// Takes the sections whose replicas have several ranks in `plan` and one rank in `traced`. `plan` outlives this.
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
