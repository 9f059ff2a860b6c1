// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/run_report.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/core/input_file.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

TEST(ProcessTotals, add_up_memory_and_traffic_and_name_the_first_provider) {
  const ProcessTotals totals =
      total_of({{ProcessId(0), 100.5, "", 10, 1}, {ProcessId(1), 50, "shm", 20, 2}, {ProcessId(2), 25, "tcp", 40, 4}});
  EXPECT_EQ(totals.max_rss_mb, 175.5);
  EXPECT_EQ(totals.provider, "shm");
  EXPECT_EQ(totals.bytes, 70u);
  EXPECT_EQ(totals.writes, 7u);
  EXPECT_EQ(totals.rss_mb.at(ProcessId(1)), 50);
}

TEST(RunResult, has_the_rates_of_the_training_time_alone) {
  RunRecord record;
  record.counts[1] = {.read = 12, .trained = 12, .tokens = 300};
  record.last_step = 1;
  EXPECT_EQ(make_result(record, {}).samples_per_s, 0) << "nothing has been trained yet";
  record.train_seconds = 4;
  const RunResult result = make_result(record, {});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.samples_per_s, 3);
  EXPECT_EQ(result.tokens_per_s, 75);
}

TEST(RunReport, a_rehearsal_is_a_member_with_its_figures_or_with_the_reason_why_there_are_none) {
  RunRehearsal rehearsal{9, 90.5, 100.25, {}};
  rehearsal.sections["student"] = {0.75, 0.5, 0.125, 0.25};
  const TempFolder folder;
  const auto written = [&](const Result<RunRehearsal>& result) {
    Report report;
    add_rehearsal(result, report);
    report.write(folder.path() / "report.json").or_throw();
    return nlohmann::json::parse(read_text(folder.path() / "report.json").value_or_throw()).at("rehearsal");
  };
  EXPECT_EQ(written(rehearsal), nlohmann::json::parse(R"({"steps": 9, "step_ms": 90.5, "measured_step_ms": 100.25,
      "passes": {"student": 0.75}, "measured_passes": {"student": 0.5},
      "step_ends": {"student": 0.125}, "measured_step_ends": {"student": 0.25}})"));
  EXPECT_EQ(written(Error{ErrorCode::invalid_argument, "too few steps"}),
            nlohmann::json::parse(R"({"reason": "too few steps"})"));
}

}  // namespace
}  // namespace maestro
