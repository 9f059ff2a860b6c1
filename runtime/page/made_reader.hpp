// SPDX-License-Identifier: Apache-2.0
// The samples that a run's generators made, from its record: their lengths, and the texts of some.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/record/record_tail.hpp"

namespace maestro {

class JsonValue;

/// A line of rollouts.jsonl has several of these.
struct ShownSample {
  std::uint64_t step = 0;
  std::uint64_t number = 0;   ///< in the step's batch
  std::uint64_t version = 0;  ///< step before which the trained section had the weights that made it
  std::string seed;
  std::string finish;  ///< stop or length
  std::uint64_t tokens = 0;
  std::string prompt;
  std::string text;
};

struct MadePart {
  std::vector<double> lengths;       ///< samples by length, in equal parts of `most_tokens`
  std::uint64_t most_tokens = 0;     ///< longest length
  std::vector<ShownSample> samples;  ///< shown by the last validations
};

/// Not thread-safe.
class MadeReader {
 public:
  explicit MadeReader(const std::filesystem::path& run_folder);
  /// Takes the member "made" of a line of steps.jsonl.
  void take_step(const JsonValue& made);
  /// Forgets all steps: they are read again.
  void forget_steps();
  /// Reads new lines of rollouts.jsonl; a run without made samples lacks it. Errors name the file and the line.
  [[nodiscard]] Status refresh();
  [[nodiscard]] const MadePart& part() const { return part_; }

 private:
  std::filesystem::path file_;
  RecordTail tail_;
  MadePart part_;
};

}  // namespace maestro
