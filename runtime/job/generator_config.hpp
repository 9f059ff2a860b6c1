// SPDX-License-Identifier: Apache-2.0
// [generator]: the samples of a run that its trained section makes itself (on-policy training).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/ids.hpp"
#include "runtime/job/job_table.hpp"

namespace maestro {

struct GeneratorConfig {
  double on_policy = 1;           ///< share of the samples that the generator makes
  std::int64_t staleness = 1;     ///< steps that its weights are older than those trained; 0: strictly on-policy
  std::int64_t from_step = 1;     ///< steps before it read the corpus alone
  std::int64_t max_tokens = 256;  ///< most tokens of a completion
  std::int64_t samples_per_prompt = 1;
  std::int64_t prompt_tokens = 0;  ///< tokens of a sample that are its prompt; 0: all before its last learned answer
  double temperature = 1;          ///< 0: the likeliest tokens
  std::int64_t top_k = 0;          ///< 0: all tokens
  double top_p = 1;
  std::vector<std::string> stop;  ///< texts of tokens that end a completion; empty: those of the student's folder
  std::int64_t slots = 8;         ///< sequences at once in a replica
  bool record = false;            ///< all samples are kept in the run's folder
  std::string rollouts;           ///< folder of recorded samples to read in place of generation; empty: none
  std::int64_t show = 4;          ///< samples of a step that are kept as text at each validation
};

/// Reads the keys of [generator] that are not keys of every section. Throws JobError.
[[nodiscard]] GeneratorConfig read_generator(const JobTable& table);

/// Returns whether the sample at a position of the run is made: of every 1,024 positions round(1,024 on_policy), chosen
/// by `seed`.
[[nodiscard]] bool is_made_at(std::uint64_t position, double on_policy, std::uint64_t seed);

/// Returns the number of prompts that a replica holds at most.
[[nodiscard]] inline std::int64_t most_held(const GeneratorConfig& config) {
  return config.slots + 2;
}

/// Returns the version that makes the samples of a step: the step before which the section had these weights.
[[nodiscard]] constexpr StepId version_of(StepId step, std::int64_t staleness) {
  const auto older = static_cast<std::uint64_t>(staleness);
  return StepId(step.value() > older ? step.value() - older : 1);
}

/// Returns the number of a sample's tokens that are its prompt: the tokens before the last run of targets, all if there
/// is none, or `prompt_tokens` (at most all) unless that is 0. `targets` are as Corpus::read() fills them.
[[nodiscard]] std::int64_t prompt_length(std::span<const std::int32_t> targets, std::int64_t prompt_tokens);

}  // namespace maestro
