// SPDX-License-Identifier: Apache-2.0
// A page that compares runs: their outcome, the settings that differ, and their curves over each other. Complete in
// itself, without scripts. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "runtime/page/run_page.hpp"
#include "runtime/page/run_tables.hpp"

namespace maestro {

/// The most runs of a comparison: each has a colour.
inline constexpr std::size_t most_compared = chart_colours;

struct ComparedRun {
  std::string name;  ///< differs between the runs
  RunPage page;
};

/// A setting that is not the same in all jobs.
struct DifferingSetting {
  std::string key;                  ///< "student.lr"
  std::vector<std::string> values;  ///< TOML, by run; empty: the job does not set it
};

/// Returns the settings that differ, by key. Jobs that the record lacks set nothing.
[[nodiscard]] std::vector<DifferingSetting> differing_settings(const std::vector<ComparedRun>& runs);

/// Returns the tables: the runs, their last figures next to each other, and the settings that differ.
[[nodiscard]] std::vector<PageTable> tables_of(const std::vector<ComparedRun>& runs);

/// Returns the page: the tables, and a chart for each metric of each section, with a line and a colour for each run.
/// PW-1, PW-2 and PW-3 hold for it too; it has at most `most_compared` runs.
[[nodiscard]] std::string page_of(const std::vector<ComparedRun>& runs);

}  // namespace maestro
