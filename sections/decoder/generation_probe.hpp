// SPDX-License-Identifier: Apache-2.0
// Times a generator's work with a section that has its shape: blocks of prompts, decode steps, and the writing and
// reading of weights. Runs on the caller's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sections/decoder/completions.hpp"
#include "sections/decoder/generator.hpp"

namespace maestro {

struct GenerationProbeOptions {
  std::int64_t slots = 1;
  std::int64_t positions = 1;   ///< most rows in a sequence
  std::int64_t prompt = 1;      ///< tokens in a usual prompt
  std::int64_t vocabulary = 0;  ///< ContinuationLimits::vocabulary
  SamplingOptions sampling;
  int rounds = 3;  ///< timed decode steps for each number of sequences
};

struct TimedGeneration {
  enum class Kind : std::uint8_t {
    prefill,  ///< `rows` prompt tokens; the last block also chooses a token
    decode,   ///< a token for `sequences` sequences, which have `rows` kept rows together
    publish,  ///< writes a version
    take      ///< reads a version
  };
  Kind kind = Kind::prefill;
  std::int64_t sequences = 1;
  std::int64_t rows = 0;
  double ms = 0;
};

/// Times decode steps with 1, 2, 4, ... and `slots` sequences after short prompts; for one sequence also
/// after a usual prompt and after a prompt with up to 512 tokens, from which the time for a row follows. Their prompts,
/// and as many versions, are timed, too. The section's values are read anew. Throws JobError as Generation.
[[nodiscard]] std::vector<TimedGeneration> time_generation(const OperatorTable& ops,
                                                           const std::shared_ptr<Generator>& section, DType precision,
                                                           const GenerationProbeOptions& options);

}  // namespace maestro
