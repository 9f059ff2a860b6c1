// SPDX-License-Identifier: Apache-2.0
// Fuzz target for traces, as `maestro what-if` reads them.
#include <cmath>

#include "fuzz_target.hpp"
#include "runtime/rehearsal/traced_run.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace maestro;
  const std::filesystem::path file = fuzz::scratch().write("trace.json", fuzz::text_of(data, size));
  const Result<TracedRun> run = read_traced_run(file);
  if (!fuzz::accepted(run)) return 0;
  for (const TracedUnit& unit : run->units) {
    fuzz::require(unit.end_ms > 0 && std::isfinite(unit.end_ms), "a step has an end");
    for (const SampleRef& sample : unit.samples) fuzz::require(sample.tokens >= 0, "a sample has a length");
  }
  return 0;
}
