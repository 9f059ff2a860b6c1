// SPDX-License-Identifier: Apache-2.0
#include "actors/run/run_report.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace maestro
