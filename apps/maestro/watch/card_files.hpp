// SPDX-License-Identifier: Apache-2.0
// The card of a run on file: card.md, and card.html with the curves, from the run's record, trace and checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/maestro/run/train_job.hpp"
#include "runtime/observe/console.hpp"
#include "runtime/page/page_parts.hpp"

namespace maestro {

struct CardOptions {
  std::filesystem::path out;                                      ///< folder of the files; empty: the run's
  std::filesystem::path trace;                                    ///< empty: trace.json in the run's folder
  std::vector<std::string> prompts = {"The", "In the", "It is"};  ///< prompts that the checkpoints' models continue
  std::int64_t checkpoints = 8;     ///< most checkpoints whose models write, spread over the run
  std::vector<PageAnswer> answers;  ///< answers of the trained model
};

struct CardFiles {
  std::filesystem::path card;
  std::filesystem::path page;
};

/// Writes both files, each completely or not at all (AF-1). Prints a warning for a trace that cannot be read. Throws
/// JobError for a folder without a record.
CardFiles write_card(const std::filesystem::path& run, const CardOptions& options, Console& console);

/// Writes the card at the end of a command's run, and prints its paths. Prints errors as a warning.
void end_with_card(const TrainArguments& job, const CardOptions& options, Console& console);

}  // namespace maestro
