// SPDX-License-Identifier: Apache-2.0
// The prices of a job's generator, which a profile keeps as calls: "prefill", "decode", "publish" and "take" with a
// digest of the model, its slots and its sampling. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "runtime/rehearsal/call_prices.hpp"
#include "runtime/rehearsal/rehearsed_rollouts.hpp"
#include "sections/decoder/generation_probe.hpp"

namespace maestro {

class GeneratorPrices {
 public:
  /// Takes a job that generates; `plan` outlives the object.
  explicit GeneratorPrices(const ResolvedJob& plan);

  [[nodiscard]] bool measured(const CallPrices& prices) const;
  void add(const std::vector<TimedGeneration>& times, CallPrices& prices) const;
  /// Returns the options to measure with.
  [[nodiscard]] GenerationProbeOptions probe() const;
  /// Returns the times of the generator's work.
  [[nodiscard]] GenerationTimes times(const CallPrices& prices) const;
  /// Returns the milliseconds that a rank of the trained section takes to copy its part of a version.
  [[nodiscard]] double publish_ms(const CallPrices& prices) const;

 private:
  [[nodiscard]] OperatorCall call(TimedGeneration::Kind kind, std::int64_t sequences, std::int64_t rows) const;
  [[nodiscard]] std::string name_of(TimedGeneration::Kind kind) const;

  const ResolvedJob* plan_;
  SectionId section_;
  std::string code_;
};

}  // namespace maestro
