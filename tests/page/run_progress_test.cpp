// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_progress.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/record/run_folder.hpp"
#include "runtime/record/run_log.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;

class RunProgressTest : public testing::Test {
 protected:
  void begin(const std::string& job) { event(R"("event":"began","job_file":")" + job + "\""); }
  void event(const std::string& members) { log_.append_event("{" + members + "}").or_throw(); }
  void step(std::uint64_t step, const std::string& sections) {
    log_.append_step(R"({"step":)" + std::to_string(step) + R"(,"sections":{)" + sections + "}}").or_throw();
  }
  [[nodiscard]] RunProgress read() const { return read_run_progress(run_).value_or_throw(); }

  TempFolder temporary_;
  fs::path run_ = temporary_.path() / "run";
  RunLog log_ = RunLog::open(run_ / record_folder, 0).value_or_throw();
};

TEST_F(RunProgressTest, has_the_last_step_with_its_losses) {
  begin("[train]\\nsteps = 400\\n");
  EXPECT_EQ(read().step, 0U);
  step(1, R"("a":{"loss":5},"b":{"lr":1})");
  step(2, R"("a":{"loss":4.5},"b":{"lr":1},"c":{"loss":null})");
  const RunProgress progress = read();
  EXPECT_EQ(progress.step, 2U);
  EXPECT_EQ(progress.steps, 400U);
  ASSERT_EQ(progress.losses.size(), 2U);
  EXPECT_EQ(progress.losses.at("a"), 4.5);
  EXPECT_TRUE(std::isnan(progress.losses.at("c")));
}

TEST_F(RunProgressTest, has_the_end_of_the_last_start) {
  begin("[train]\\nsteps = 4\\n");
  event(R"("event":"failed","error":"no space")");
  EXPECT_EQ(read().state, RecordedState::failed);
  EXPECT_EQ(read().error, "no space");
  begin("[train]\\nepochs = 2\\n");
  EXPECT_EQ(read().error, "");
  EXPECT_EQ(read().steps, 0U);
  event(R"("event":"checkpoint","step":3)");
  event(R"("event":"finished","interrupted":true)");
  EXPECT_EQ(read().state, RecordedState::interrupted);
  begin("not toml");
  event(R"("event":"finished","interrupted":false)");
  EXPECT_EQ(read().state, RecordedState::finished);
}

TEST_F(RunProgressTest, without_an_end_is_under_way_only_while_a_process_holds_the_folder) {
  begin("");
  EXPECT_EQ(read().state, RecordedState::cut_off);
  const RunLock lock = RunFolder(run_).lock("a").value_or_throw();
  EXPECT_EQ(read().state, RecordedState::under_way);
}

TEST_F(RunProgressTest, needs_a_record) {
  EXPECT_EQ(read_run_progress(temporary_.path()).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace maestro
