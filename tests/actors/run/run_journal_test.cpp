// SPDX-License-Identifier: Apache-2.0
#include "actors/run/record/run_journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <sstream>

#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using std::chrono::system_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr system_clock::time_point noon(std::chrono::milliseconds(1'795'521'600'042));

class RunJournalTest : public ::testing::Test {
 protected:
  [[nodiscard]] RunJournal open() {
    return RunJournal(RunLog::open(record_, 0).value_or_throw(), std::nullopt, writer_, console_);
  }
  void write_events(const std::vector<std::string>& lines) {
    RunLog log = RunLog::open(record_, 0).value_or_throw();
    for (const std::string& line : lines) log.append_event(line).or_throw();
  }
  static FinishedStep step(std::uint64_t number) {
    return {StepId(number), {{"student", StepId(number), {{"loss", 0.1}}}}, {8, 8, 256}, "0123456789abcdef", {}};
  }
  static RunStart start(std::uint64_t first, const std::string& job) {
    return {first,
            "",
            "0000000000000001",
            "0.1.0",
            "abc123",
            "avx2",
            2,
            4,
            {"lane"},
            {{"content", "abc"}},
            {{1, 0}, {first, 90}},
            job};
  }

  TempFolder folder_;
  fs::path record_ = folder_.path() / record_folder;
  std::ostringstream out_, err_;
  Console console_{{.out = out_, .err = err_, .columns = {}}};
  SnapshotWriter writer_{CheckpointStore(folder_.path() / "checkpoints")};
};

TEST_F(RunJournalTest, a_step_is_a_line_whose_numbers_read_back_bitwise) {
  FinishedStep finished = step(7);
  finished.sections[0].metrics = {{"grad_norm", 1.0 / 3}, {"lr", 5e-324}, {"loss", std::nan("")}};
  finished.times.step_ms = 20.5;
  finished.times.makespan_ms = 12.5;
  finished.times.utilization = {{"student", 0.5}};
  EXPECT_EQ(line_of(finished, noon),
            R"({"step":7,"time":"2026-11-24T12:00:00.042Z","samples":8,"tokens":256,)"
            R"("samples_digest":"0123456789abcdef","begin_ms":0.0,"step_ms":20.5,"makespan_ms":12.5,)"
            R"("lower_bound_ms":0.0,"planned_ms":0.0,)"
            R"("planning_ms":0.0,"utilization":{"student":0.5},"planned_utilization":{},)"
            R"("sections":{"student":{"grad_norm":0.3333333333333333,"loss":null,"lr":5e-324}}})");
  EXPECT_EQ(step_of_line(line_of(finished, noon)), 7U);
}

TEST_F(RunJournalTest, the_digest_of_samples_depends_on_their_order) {
  const std::vector<SampleRef> samples{{SampleId(3)}, {SampleId(5)}};
  const std::vector<SampleRef> reversed{{SampleId(5)}, {SampleId(3)}};
  EXPECT_EQ(digest_of(samples).size(), 16U);
  EXPECT_NE(digest_of(samples), digest_of(reversed));
  EXPECT_NE(digest_of(samples), digest_of({{SampleId(3)}}));
  EXPECT_NE(digest_of(samples), digest_of(samples, 7)) << "made samples have a content of their own";
  EXPECT_NE(digest_of(samples, 8), digest_of(samples, 7));
}

TEST_F(RunJournalTest, an_event_is_one_line_whatever_bytes_its_texts_have) {
  const std::string line = line_of("left_out", {{"step", 3}, {"reason", "a\nb \xff"}}, noon);
  EXPECT_EQ(
      line,
      "{\"event\":\"left_out\",\"time\":\"2026-11-24T12:00:00.042Z\",\"step\":3,\"reason\":\"a\\nb \xef\xbf\xbd\"}");
}

TEST_F(RunJournalTest, lines_are_there_after_a_flush_in_their_order) {
  RunJournal journal = open();
  journal.began(start(1, "a = 1"));
  for (std::uint64_t number = 1; number <= 3; ++number) journal.step(step(number));
  journal.event("finished", {{"step", 3}});
  journal.flush(std::chrono::minutes(1));
  std::vector<std::uint64_t> steps;
  for (const std::string& line : read_record(record_ / steps_file).value_or_throw())
    steps.push_back(step_of_line(line));
  EXPECT_THAT(steps, ElementsAre(1, 2, 3));
  EXPECT_THAT(read_record(record_ / events_file).value_or_throw(),
              ElementsAre(HasSubstr(R"("event":"began")"), HasSubstr(R"("event":"finished")")));
  EXPECT_EQ(recorded_digest(record_, 2).value_or_throw(), "0123456789abcdef");
  const auto absent = recorded_digest(record_, 4);
  ASSERT_FALSE(absent.ok());
  EXPECT_THAT(absent.error().message, HasSubstr("it has steps 1 to 3"));
}

/// Returns the rows of a list of the report.
std::vector<std::string> rows_of(const RowSource& source) {
  std::vector<std::string> rows;
  source([&](std::string_view row) {
    rows.emplace_back(row);
    return Status();
  }).or_throw();
  return rows;
}

TEST_F(RunJournalTest, the_report_has_the_same_rows_from_the_disk_and_from_memory) {
  RunJournal journal = open();
  RunRecord memory;
  for (std::uint64_t number = 1; number <= 4; ++number) {
    FinishedStep finished = step(number);
    finished.sections.push_back({"plain", StepId(number), {{"grad_norm", 1.0 / 3}, {"loss", std::nan("")}}});
    finished.times = {StepId(number), 0.25, 20.5, 12.5, 11, 10, 1, {{"plain", 0.5}}, {}};
    journal.step(finished);
    if (number != 2 && number != 3) continue;
    for (const StepRow& row : finished.sections) memory.steps.push_back(row);
    memory.scheduling.push_back(finished.times);
  }
  EXPECT_EQ(journal.flush(std::chrono::minutes(1)), true);
  const ReportRows on_disk = recorded_rows(record_, 1, 3);
  EXPECT_EQ(rows_of(on_disk.steps), rows_of(rows_in_memory(memory).steps));
  EXPECT_EQ(rows_of(on_disk.scheduling), rows_of(rows_in_memory(memory).scheduling));
  EXPECT_EQ(rows_of(on_disk.steps).at(1), R"({"section":"plain","step":2,"grad_norm":0.3333333333333333,"loss":null})");
}

TEST_F(RunJournalTest, a_damaged_line_ends_the_rows_with_its_step) {
  RunLog log = RunLog::open(record_, 0).value_or_throw();
  log.append_step(R"({"step":1,"sections" {}})").or_throw();
  const Status refused = recorded_rows(record_, 0, 9).steps([](std::string_view) { return Status(); });
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("steps.jsonl: the line of step 1 is not JSON"));
}

TEST_F(RunJournalTest, the_start_of_a_step_is_the_last_that_may_have_trained_it) {
  write_events({line_of(start(1, "first"), noon), line_of("checkpoint", {{"step", 20}}, noon),
                line_of(start(21, "second"), noon), line_of(start(11, "third"), noon)});
  EXPECT_EQ(start_of_step(record_, 5).value_or_throw().job_file, "first");
  EXPECT_EQ(start_of_step(record_, 11).value_or_throw().job_file, "third");
  EXPECT_EQ(start_of_step(record_, 30).value_or_throw().job_file, "third");
  const RunStart found = start_of_step(record_, 30).value_or_throw();
  EXPECT_EQ(found.first_step, 11U);
  EXPECT_EQ(found.data, (std::map<std::string, std::string>{{"content", "abc"}}));
  EXPECT_THAT(found.lanes, ElementsAre("lane"));
  EXPECT_THAT(found.cursor, ElementsAre(DataCursor::Segment{1, 0}, DataCursor::Segment{11, 90}));
}

TEST_F(RunJournalTest, damaged_events_are_refused_by_name) {
  write_events({R"({"event":"began","first_step":1})"});
  const auto lacking = start_of_step(record_, 1);
  ASSERT_FALSE(lacking.ok());
  EXPECT_THAT(lacking.error().message, HasSubstr("events.jsonl: an event lacks a member"));
  EXPECT_FALSE(start_of_step(record_ / "nowhere", 1).ok());
}

TEST_F(RunJournalTest, a_record_that_cannot_be_written_ends_with_one_warning) {  // JN-2
  RunJournal journal = open();
  journal.step(step(1));
  journal.flush(std::chrono::minutes(1));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit tight{fs::file_size(record_ / steps_file), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  for (std::uint64_t number = 2; number <= 4; ++number) journal.step(step(number));
  journal.flush(std::chrono::minutes(1));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  journal.step(step(5));
  journal.event("finished", {});
  EXPECT_EQ(journal.flush(std::chrono::minutes(1)), false);
  writer_.stop();
  EXPECT_EQ(journal.flush(std::chrono::minutes(1)), std::nullopt) << "and at once";
  EXPECT_EQ(read_record(record_ / steps_file).value_or_throw().size(), 1U);
  EXPECT_TRUE(read_record(record_ / events_file).value_or_throw().empty());
  const std::string warnings = err_.str();
  EXPECT_THAT(warnings, HasSubstr("warning: the record of the run ends here, the run goes on: cannot write "));
  EXPECT_EQ(warnings.find("warning"), warnings.rfind("warning")) << warnings;
}

}  // namespace
}  // namespace maestro
