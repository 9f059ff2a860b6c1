// SPDX-License-Identifier: Apache-2.0
#include "runtime/record/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <random>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class RunLogTest : public testing::Test {
 protected:
  static std::string line_of(std::uint64_t step) {
    return R"({"step":)" + std::to_string(step) + R"(,"loss":)" + std::to_string(1.0 / static_cast<double>(step)) + "}";
  }
  [[nodiscard]] RunLog open(std::uint64_t last_step) const { return RunLog::open(folder_, last_step).value_or_throw(); }
  [[nodiscard]] std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> found;
    for (const std::string& line : read_record(steps_).value_or_throw()) found.push_back(step_of_line(line));
    return found;
  }
  void append(RunLog& log, std::uint64_t first, std::uint64_t last) const {
    for (std::uint64_t step = first; step <= last; ++step) log.append_step(line_of(step)).or_throw();
  }

  TempFolder temporary_;
  fs::path folder_ = temporary_.path() / "run" / record_folder;
  fs::path steps_ = folder_ / "steps.jsonl";
};

TEST_F(RunLogTest, a_run_that_goes_on_has_each_step_once) {  // LN-2
  {
    RunLog log = open(0);
    append(log, 1, 7);
    log.append_event(R"({"event":"began"})").or_throw();
  }
  RunLog again = open(4);
  EXPECT_EQ(again.last_step(), 4U);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
  append(again, 5, 6);
  again.append_event(R"({"event":"resumed"})").or_throw();
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(read_record(folder_ / "events.jsonl").value_or_throw(),
              ElementsAre(R"({"event":"began"})", R"({"event":"resumed"})"));
  EXPECT_EQ(open(0).last_step(), 0U);
  EXPECT_THAT(steps(), IsEmpty());
}

TEST_F(RunLogTest, lines_about_made_samples_of_repeated_steps_are_removed) {  // LN-2
  const fs::path rollouts = folder_ / "rollouts.jsonl";
  const auto lines = [&] { return read_record(rollouts).value_or_throw(); };
  {
    RunLog log = open(0);
    append(log, 1, 6);
    EXPECT_FALSE(fs::exists(rollouts));
    for (const std::uint64_t step : {2U, 4U, 6U}) log.append_rollouts(line_of(step)).or_throw();
  }
  std::ofstream(rollouts, std::ios::app) << R"({"step":8,)";
  open(6).append_rollouts(line_of(8)).or_throw();
  EXPECT_THAT(lines(), ElementsAre(line_of(2), line_of(4), line_of(6), line_of(8)));
  RunLog again = open(5);
  EXPECT_THAT(lines(), ElementsAre(line_of(2), line_of(4)));
  again.append_rollouts(line_of(6)).or_throw();
  again.append_rollouts(line_of(8)).or_throw();
  EXPECT_THAT(lines(), ElementsAre(line_of(2), line_of(4), line_of(6), line_of(8)));
  EXPECT_EQ(steps().size(), 5U);
}

TEST_F(RunLogTest, the_last_lines_are_read) {  // LN-1
  RunLog log = open(0);
  EXPECT_THAT(read_record_end(steps_, 3).value_or_throw(), IsEmpty());
  append(log, 1, 5);
  std::ofstream(steps_, std::ios::app) << R"({"step":6,)";
  EXPECT_THAT(read_record_end(steps_, 2).value_or_throw(), ElementsAre(line_of(4), line_of(5)));
  EXPECT_THAT(read_record_end(steps_, 2, 4).value_or_throw(), ElementsAre(line_of(3), line_of(4)));
  EXPECT_EQ(read_record_end(steps_, 9).value_or_throw(), read_record(steps_).value_or_throw());
}

TEST_F(RunLogTest, the_last_lines_of_a_long_record_are_read) {  // LN-1
  constexpr std::uint64_t count = 20'000;                       // several chunks
  RunLog log = open(0);
  append(log, 1, count);
  EXPECT_THAT(read_record_end(steps_, 2).value_or_throw(), ElementsAre(line_of(count - 1), line_of(count)));
  EXPECT_THAT(read_record_end(steps_, 2, 3).value_or_throw(), ElementsAre(line_of(2), line_of(3)));
  EXPECT_EQ(read_record_end(steps_, count).value_or_throw(), read_record(steps_).value_or_throw());
}

TEST_F(RunLogTest, a_record_that_is_cut_while_it_is_read_ends_there) {  // LN-3
  constexpr std::uint64_t count = 20'000;
  RunLog log = open(0);
  append(log, 1, count);
  std::uint64_t last = 0;
  for_whole_lines(steps_, [&](std::string_view line, std::uint64_t) {
    if (last == 0) fs::resize_file(steps_, 0);
    last = step_of_line(line);
    return true;
  }).or_throw();
  EXPECT_GT(last, 0U);
  EXPECT_LT(last, count);
}

TEST_F(RunLogTest, steps_that_a_lost_record_does_not_have_are_seen) {
  RunLog log = open(6);
  EXPECT_EQ(log.last_step(), 0U);
  append(log, 7, 8);
  EXPECT_EQ(open(8).last_step(), 8U);
}

TEST_F(RunLogTest, a_record_cut_off_at_any_byte_is_readable_and_goes_on) {  // LN-1
  {
    RunLog log = open(0);
    append(log, 1, 60);
  }
  std::ifstream in(steps_, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  std::mt19937 generator(3);
  for (int round = 0; round < 1000; ++round) {
    const std::size_t cut = generator() % (whole.size() + 1);
    std::ofstream(steps_, std::ios::binary | std::ios::trunc) << whole.substr(0, cut);
    const auto lines =
        static_cast<std::uint64_t>(std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(cut), '\n'));
    ASSERT_EQ(steps().size(), lines) << cut;
    RunLog log = open(60);
    ASSERT_EQ(log.last_step(), lines) << cut;
    append(log, lines + 1, 60);
    std::ifstream again(steps_, std::ios::binary);
    ASSERT_EQ((std::string{std::istreambuf_iterator<char>(again), {}}), whole) << cut;
  }
}

TEST_F(RunLogTest, what_stands_behind_a_damaged_line_is_removed) {
  {
    RunLog log = open(0);
    append(log, 1, 3);
  }
  for (const std::string& damage : {std::string(40, '\0') + "\n", std::string("{\"step\":x,}\n"), line_of(2) + "\n"}) {
    std::ofstream(steps_, std::ios::binary | std::ios::app) << damage << line_of(4) << '\n';
    EXPECT_EQ(open(9).last_step(), 3U) << damage;
    EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
  }
}

TEST_F(RunLogTest, a_line_that_cannot_be_written_whole_is_removed) {  // LN-1
  RunLog log = open(0);
  append(log, 1, 2);
  const auto full = static_cast<rlim_t>(fs::file_size(steps_)) + 5;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{full, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status refused = log.append_step(line_of(3));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("steps.jsonl"), std::string::npos) << refused.error().message;
  EXPECT_EQ(fs::file_size(steps_), full - 5);
  append(log, 3, 3);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(RunLogTest, what_is_no_file_is_refused_by_name) {
  fs::create_directories(steps_);
  const auto refused = RunLog::open(folder_, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(steps_.string()), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace maestro
