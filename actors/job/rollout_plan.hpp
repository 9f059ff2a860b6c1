// SPDX-License-Identifier: Apache-2.0
// The part of a job's plan that is about samples which the job makes itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/data/sample_store.hpp"
#include "runtime/job/generator_config.hpp"
#include "runtime/job/job_table.hpp"
#include "sections/decoder/token_sampler.hpp"

namespace maestro {

struct ResolvedJob;

struct RolloutPlan {
  GeneratorConfig config;
  std::string name;                       ///< name of the generator's table
  std::optional<SectionId> section;       ///< generator; none: the samples are read back
  std::vector<std::int32_t> stop_tokens;  ///< ends of a completion
};

/// Sets ResolvedJob::rollouts if the job has a generator; it is set already if its samples are read back. Refuses what
/// a generator does not support. Called after placement.
void plan_rollouts(ResolvedJob& plan, const JobTable& root);
/// Throws JobError if the job has a generator. `problem`: what a command does not do with its samples: "plan does not
/// price the samples that".
void refuse_rollouts(const ResolvedJob& plan, const std::string& problem);
/// Returns whether a section of the job makes samples.
[[nodiscard]] bool generates(const ResolvedJob& plan);
/// Returns how a generator draws tokens.
[[nodiscard]] SamplingOptions sampling_of(const GeneratorConfig& config);
/// Returns the number of positions that visit every sample of the data once, as many times as it is a prompt.
[[nodiscard]] std::uint64_t epoch_positions(const ResolvedJob& plan);

}  // namespace maestro
