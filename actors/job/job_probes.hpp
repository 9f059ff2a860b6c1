// SPDX-License-Identifier: Apache-2.0
// The sections of a resolved job, for probes of their passes.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "runtime/rehearsal/traced_run.hpp"
#include "sections/pass_probe.hpp"

namespace maestro {

/// Values of a corpus's ports, up to some bytes of them: layouts have the micro-batches of others. Thread-safe.
class PortValues {
 public:
  using Read = std::function<void(const Tensor& value)>;
  /// Fills a port's value for the samples of a micro-batch, by `read` where it is not known; one call at a time, since
  /// `read` uses the corpus.
  void fill(const std::string& port, const MicroBatchPlan& batch, const Tensor& value, const Read& read);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<SampleId>>, std::vector<std::byte>> known_;
  std::size_t bytes_ = 0;
};

/// Returns the section as the job describes it; its inputs from sources are the samples of the job's corpus. `plan`
/// outlives the result.
[[nodiscard]] ProbedSection probed_section(const ResolvedJob& plan, SectionId section);
/// Likewise; values that were read before are copied from `known`, which outlives the result.
[[nodiscard]] ProbedSection probed_section(const ResolvedJob& plan, SectionId section, PortValues& known);

/// Returns whether two sections make the same calls in equal layouts: they have equal keys and edges, and pass the same
/// calls in the layouts that the plan has of them. `samples`: of a step.
[[nodiscard]] bool same_work(const ResolvedJob& plan, const std::string& one, const std::string& other,
                             std::span<const SampleRef> samples);

/// Returns the samples of the first training steps of the job, without those that cannot be read.
[[nodiscard]] std::vector<TracedUnit> first_steps(const ResolvedJob& plan, std::size_t steps);

/// Returns the micro-batches into which a run cuts the samples of a step for a section, of all replicas.
[[nodiscard]] std::vector<MicroBatchPlan> batches_of(const ResolvedJob& plan, SectionId section,
                                                     std::span<const SampleRef> samples);

/// Consecutive micro-batches of samples with equal sizes, in order.
struct EqualBatches {
  MicroBatchPlan first;
  std::int64_t count = 0;
};
/// Returns the micro-batches of batches_of(), with those that do the same work as the one before counted.
[[nodiscard]] std::vector<EqualBatches> equal_batches_of(const ResolvedJob& plan, SectionId section,
                                                         std::span<const SampleRef> samples);

}  // namespace maestro
