// SPDX-License-Identifier: Apache-2.0
// The report of a finished run, and the result that an app receives. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/job/resolved_job.hpp"
#include "actors/messages/messages.hpp"
#include "actors/run/coordinator/run_rehearsal.hpp"
#include "actors/run/record/run_journal.hpp"
#include "actors/run/record/run_record.hpp"
#include "actors/run/record/run_result.hpp"

namespace maestro {

/// Totals over all processes of a run.
struct ProcessTotals {
  double max_rss_mb = 0;
  std::string provider;
  std::uint64_t bytes = 0;
  std::uint64_t writes = 0;
  std::map<ProcessId, double> rss_mb = {};                             ///< peak of each process
  std::map<std::pair<ProcessId, std::string>, double> device_mb = {};  ///< peak by process and ProcessSummary's key
};
[[nodiscard]] ProcessTotals total_of(const std::vector<ProcessSummary>& processes);

[[nodiscard]] Report make_report(const ResolvedJob& plan, const RunRecord& record, const ProcessTotals& totals,
                                 ReportRows rows);
/// Sets the member "rehearsal": {"steps", "step_ms", "measured_step_ms", "passes", "measured_passes", "step_ends",
/// "measured_step_ends": {section or stage: share}}, or {"reason"}.
void add_rehearsal(const Result<RunRehearsal>& rehearsal, Report& report);
/// Returns the members of "rehearsal".
[[nodiscard]] EventFields fields_of(const Result<RunRehearsal>& rehearsal);
[[nodiscard]] RunResult make_result(const RunRecord& record, const ProcessTotals& totals);

}  // namespace maestro
