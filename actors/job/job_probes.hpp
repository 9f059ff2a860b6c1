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
#include "runtime/rehearsal/completion_lengths.hpp"
#include "runtime/rehearsal/traced_run.hpp"
#include "sections/pass_probe.hpp"

namespace maestro {

/// A bounded cache of a corpus's port values, as several layouts have equal micro-batches. Thread-safe.
class PortValues {
 public:
  using Read = std::function<void(const Tensor& value)>;
  /// Fills a port's value for the samples of a micro-batch, with `read` if it is not known. Calls `read` on one thread
  /// at a time, since it uses the corpus.
  void fill(const std::string& port, const MicroBatchPlan& batch, const Tensor& value, const Read& read);

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<SampleId>>, std::vector<std::byte>> known_;
  std::size_t bytes_ = 0;
};

/// Returns the section as the job describes it; its inputs from sources are the samples of the job's corpus. `plan`
/// outlives the result.
[[nodiscard]] ProbedSection probed_section(const ResolvedJob& plan, SectionId section);
/// Returns the same; copies values that were read before from `known`, which outlives the result.
[[nodiscard]] ProbedSection probed_section(const ResolvedJob& plan, SectionId section, PortValues& known);

/// Returns whether two sections make the same calls in equal layouts: their keys and edges are equal, and so are their
/// calls in the plan's layouts. `samples`: the samples of a step.
[[nodiscard]] bool same_work(const ResolvedJob& plan, const std::string& one, const std::string& other,
                             std::span<const SampleRef> samples);

/// Returns the samples of the job's first training steps, without unreadable samples. In a job with a
/// generator, samples are made from the first step on; they have these lengths, and random tokens, which
/// ResolvedJob::samples then has.
[[nodiscard]] std::vector<TracedUnit> first_steps(const ResolvedJob& plan, std::size_t steps,
                                                  const CompletionLengths& lengths = {});

/// Returns the section's micro-batches for the samples of a step, for all replicas.
[[nodiscard]] std::vector<MicroBatchPlan> batches_of(const ResolvedJob& plan, SectionId section,
                                                     std::span<const SampleRef> samples);

/// Consecutive micro-batches of samples with equal sizes, in order.
struct EqualBatches {
  MicroBatchPlan first;
  std::int64_t count = 0;
};
/// Returns the micro-batches of batches_of(); consecutive micro-batches with equal work are counted as one.
[[nodiscard]] std::vector<EqualBatches> equal_batches_of(const ResolvedJob& plan, SectionId section,
                                                         std::span<const SampleRef> samples);

}  // namespace maestro
