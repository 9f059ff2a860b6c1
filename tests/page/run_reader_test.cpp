// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_reader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <optional>

#include "runtime/page/run_card.hpp"
#include "runtime/record/run_log.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class RunReaderTest : public testing::Test {
 protected:
  void open(std::uint64_t last_step) { log_.emplace(RunLog::open(run_ / record_folder, last_step).value_or_throw()); }
  void begin(std::uint64_t first_step, const std::string& job = "name = 'curve'\\n[train]\\nsteps = 400\\n") {
    log_->append_event(
            R"({"event":"began","time":"2026-11-24T12:00:00.000Z","first_step":)" + std::to_string(first_step) +
            R"(,"resumed_from":"","run_id":"ab","maestro_version":"0.1.0","instruction_set":"avx2","lanes":)"
            R"(["section 'student' replica 0 on cpu:0 of process 2"],"data":{"tokens":"40000"},"job_file":")" +
            job + "\"}")
        .or_throw();
  }
  /// Writes a step per second.
  void step(std::uint64_t step, const std::string& loss, int pause = 0) {
    const auto second = static_cast<int>(step) + pause;
    char time[64];
    std::snprintf(time, sizeof time, "2026-11-24T12:%02d:%02d.500Z", second / 60 % 60, second % 60);
    log_->append_step(
            R"({"step":)" + std::to_string(step) + R"(,"time":")" + time +
            R"(","samples":8,"tokens":256,"samples_digest":"0","step_ms":3,"makespan_ms":4,"lower_bound_ms":2,)"
            R"("utilization":{"student":0.5},)"
            R"("lanes":{"student/0":{"busy_ms":3,"step_end_ms":0.5,"wait_ms":{"teacher":1,"device":0.5}}},)"
            R"("sections":{"student":{"loss":)" +
            loss + R"(,"lr":0.001}}})")
        .or_throw();
  }
  /// Writes a step with made samples, of lengths up to 32 tokens, counted in four bins.
  void made_step(std::uint64_t step, const std::string& lengths) {
    log_->append_step(R"({"step":)" + std::to_string(step) +
                      R"(,"time":"2026-11-24T12:00:01.500Z","samples":4,"tokens":256,"samples_digest":"0","step_ms":3,)"
                      R"("makespan_ms":4,"lower_bound_ms":2,"utilization":{},"made":{"most_tokens":32,"lengths":)" +
                      lengths + R"(},"lanes":{},"sections":{"generator":{"stop_share":0.5}}})")
        .or_throw();
  }
  [[nodiscard]] RunPage read() const { return read_run_page(run_).value_or_throw(); }
  static const RunCurve& loss(const RunPage& page) {
    for (const RunCurve& curve : page.curves) {
      if (curve.metric == "loss") return curve;
    }
    throw std::runtime_error("no loss");
  }
  static std::string figure(const RunPage& page, const std::string& name) {
    for (const PageFigure& figure : page.figures) {
      if (figure.name == name) return figure.exact;
    }
    return "none";
  }

  TempFolder temporary_;
  fs::path run_ = temporary_.path() / "run";
  std::optional<RunLog> log_;
};

TEST_F(RunReaderTest, made_samples_have_lengths_and_texts) {
  open(0);
  begin(1);
  made_step(1, "[0,3,1,0]");
  made_step(2, "[1,0,0,3]");
  EXPECT_THAT(read().made.samples, testing::IsEmpty()) << "the file of texts is made at the first validation";
  for (int step = 1; step <= 14; ++step) {
    log_->append_rollouts(R"({"step":)" + std::to_string(step) +
                          R"(,"version":1,"samples":[{"number":3,"seed":"18446744073709551615","finish":"stop",)"
                          R"("tokens":7,"log_probability":-0.5,"prompt_ids":[5,6],"prompt":"a <b>","text":"c"}]})")
        .or_throw();
  }
  const RunPage page = read();
  EXPECT_THAT(page.made.lengths, ElementsAre(1, 3, 1, 3));
  EXPECT_EQ(page.made.most_tokens, 32U);
  ASSERT_EQ(page.made.samples.size(), 12U);
  EXPECT_EQ(page.made.samples.front().step, 3U);
  EXPECT_EQ(page.made.samples.back().seed, "18446744073709551615");
  for (const std::string& text : {page_of(page), card_of(page)}) {
    EXPECT_THAT(text, HasSubstr("9 to 16"));
    EXPECT_THAT(text, HasSubstr("18446744073709551615"));
    EXPECT_THAT(text, HasSubstr("a &lt;b&gt;"));
  }
}

TEST_F(RunReaderTest, a_record_is_the_page) {
  open(0);
  begin(1);
  step(1, "5.25");
  step(2, "4");
  step(3, "4.5");
  log_->append_event(R"({"event":"checkpoint","time":"t","step":3,"path":"out/3"})").or_throw();
  log_->append_event(R"({"event":"validation","time":"t","step":3,"section":"student","metrics":{"loss":4.125}})")
      .or_throw();
  log_->append_event(R"({"event":"finished","time":"t","step":3,"interrupted":false})").or_throw();
  log_->append_event(R"({"event":"rehearsed","time":"t","step":3,"steps":9,"step_ms":90.5,"measured_step_ms":100.25})")
      .or_throw();
  const RunPage page = read();
  EXPECT_EQ(figure(page, "Step"), "100.25");
  EXPECT_EQ(page.title, "curve");
  EXPECT_EQ(page.state, RecordedState::finished);
  EXPECT_EQ(page.last_step, 3u);
  EXPECT_EQ(page.command, "maestro train job.toml --fresh --processes 3");
  EXPECT_EQ(page.data.at("tokens"), "40000");
  EXPECT_EQ(loss(page).first.value, 5.25);
  EXPECT_EQ(loss(page).last.value, 4.5);
  EXPECT_EQ(loss(page).lowest.step, 2u);
  EXPECT_EQ(loss(page).highest.step, 1u);
  EXPECT_EQ(loss(page).points.size(), 3u);
  ASSERT_EQ(page.busy.size(), 1u);
  EXPECT_EQ(page.busy[0].section, "student");
  EXPECT_EQ(page.busy[0].last.value, 0.6) << "of the time, not of the makespan";
  ASSERT_EQ(page.lane_times.size(), 1u);
  EXPECT_EQ(page.lane_times[0].name, "student/0");
  EXPECT_EQ(page.lane_times[0].spans.size(), 3u);
  EXPECT_EQ(page.lane_times[0].total().busy_ms, 9);
  EXPECT_EQ(page.lane_times[0].total().wait_ms.at("teacher"), 3);
  EXPECT_EQ(page.lane_times[0].total().device_ms(), 1.5);
  EXPECT_FALSE(page.old_step_ends);
  EXPECT_EQ(figure(page, "Samples"), "24");
  EXPECT_EQ(figure(page, "Tokens"), "768");
  EXPECT_EQ(figure(page, "Time"), "2");
  EXPECT_EQ(figure(page, "Tokens per second"), "256");
  EXPECT_EQ(figure(page, "Step time / bound"), "1.5");
  EXPECT_EQ(page.figures[0].name, "student loss") << "the outcome comes first";
  EXPECT_EQ(figure(page, "student loss"), "4.5");
  EXPECT_EQ(figure(page, "student validation loss"), "4.125");
  ASSERT_EQ(page.validations.size(), 1u);
  ASSERT_EQ(page.events.size(), 3u) << "but for validations";
  EXPECT_EQ(page.events[1].text, "step 3, path: out/3");
}

TEST_F(RunReaderTest, the_step_time_is_the_median_and_not_the_makespan_of_steps_that_overlap) {
  open(0);
  begin(1);
  for (int at = 1; at <= 9; ++at) {
    const std::string step_ms = at == 4 ? "9000" : "149.4";
    log_->append_step(R"({"step":)" + std::to_string(at) +
                      R"(,"time":"2026-11-24T12:00:00.000Z","samples":8,"tokens":1,)" + R"("step_ms":)" + step_ms +
                      R"(,"makespan_ms":398.5,"lower_bound_ms":148.8,"sections":{}})")
        .or_throw();
  }
  EXPECT_NEAR(std::stod(figure(read(), "Step time / bound")), 149.4 / 148.8, 1e-12);
}

TEST_F(RunReaderTest, a_record_of_an_earlier_version_reads_with_its_meaning) {
  open(0);
  begin(1);
  for (int at = 1; at <= 4; ++at) {
    log_->append_step(R"({"step":)" + std::to_string(at) + R"(,"time":"2026-11-24T12:00:0)" + std::to_string(at) +
                      R"(.000Z","samples":8,"tokens":1,"makespan_ms":4000,"lower_bound_ms":800,)" +
                      R"("utilization":{"student":0.1},"lanes":{"student/0":{"busy_ms":60,"step_ms":30,)" +
                      R"("wait_ms":{"device":10}}},"sections":{}})")
        .or_throw();
  }
  const RunPage page = read();
  EXPECT_EQ(figure(page, "Step time / bound"), "1.25") << "from the times of the lines";
  ASSERT_EQ(page.busy.size(), 1u);
  EXPECT_EQ(page.busy[0].last.value, 0.6);
  EXPECT_EQ(page.lane_times[0].total().step_end_ms, 120);
  EXPECT_TRUE(page.old_step_ends);
  EXPECT_THAT(page_of(page), HasSubstr("an earlier version has recorded, ends of steps include waits for the device"));
}

TEST_F(RunReaderTest, the_comparison_of_a_distillation_comes_first) {
  open(0);
  begin(1);
  step(1, "5.25");
  const auto validation = [&](const std::string& section, const std::string& metrics) {
    log_->append_event(R"({"event":"validation","time":"t","step":1,"section":")" + section + R"(","metrics":)" +
                       metrics + "}")
        .or_throw();
  };
  validation("plain", R"({"loss":1.75,"ce":1.75})");
  validation("student", R"({"loss":0.5,"ce":1.5,"kl":0.125,"teacher_ce":1.25})");
  const RunPage page = read();
  EXPECT_EQ(page.figures[0].value, "1.2500");
  EXPECT_EQ(page.figures[3].value, "+0.2500");
  const std::vector<std::pair<std::string, std::string>> expected{{"teacher", "1.25"},
                                                                  {"student, distilled", "1.5"},
                                                                  {"plain, without teacher", "1.75"},
                                                                  {"gain of distillation", "0.25"}};
  ASSERT_GE(page.figures.size(), expected.size());
  for (std::size_t at = 0; at < expected.size(); ++at) {
    EXPECT_EQ(page.figures[at].name, expected[at].first);
    EXPECT_EQ(page.figures[at].exact, expected[at].second);
  }
  EXPECT_THAT(page.figures[0].remark, HasSubstr("validation after step 1"));
}

TEST_F(RunReaderTest, a_comparison_that_is_not_from_validations_says_so) {
  open(0);
  begin(1);
  log_->append_step(R"({"step":1,"time":"2026-11-24T12:00:00.000Z","samples":8,"tokens":1,"makespan_ms":4,)"
                    R"("lower_bound_ms":2,"sections":{"student":{"ce":1.5,"kl":0.5,"teacher_ce":1.25}}})")
      .or_throw();
  const RunPage page = read();
  EXPECT_EQ(page.figures[0].name, "teacher (training)");
  EXPECT_EQ(page.figures[1].name, "student, distilled (training)");
  EXPECT_THAT(page.figures[1].remark, HasSubstr("training, step 1"));
}

TEST_F(RunReaderTest, the_accuracy_of_answers_comes_first) {
  open(0);
  begin(1);
  step(1, "5.25");
  log_->append_event(
          R"({"event":"validation","time":"t","step":1,"section":"llm","metrics":{"ce":0.5,"exact_match":0.75}})")
      .or_throw();
  const RunPage page = read();
  EXPECT_EQ(page.figures[0].name, "llm accuracy");
  EXPECT_EQ(page.figures[0].value, "75.0%");
}

TEST_F(RunReaderTest, a_run_that_begins_has_a_page) {
  open(0);
  EXPECT_EQ(read().title, "run");
  begin(1);
  const RunPage page = read();
  EXPECT_EQ(page.state, RecordedState::under_way);
  EXPECT_TRUE(page.curves.empty());
  EXPECT_THAT(page_of(page), HasSubstr("under way"));
}

TEST_F(RunReaderTest, states_are_those_of_the_last_start) {
  open(0);
  begin(1);
  log_->append_event(R"({"event":"failed","time":"t","error":"a loss"})").or_throw();
  EXPECT_EQ(read().state, RecordedState::failed);
  EXPECT_EQ(state_line(read()), "failed after step 0: a loss");
  begin(1);
  EXPECT_EQ(read().state, RecordedState::under_way);
  EXPECT_EQ(read().error, "");
  log_->append_event(R"({"event":"finished","time":"t","step":1,"interrupted":true})").or_throw();
  EXPECT_EQ(read().state, RecordedState::interrupted);
}

TEST_F(RunReaderTest, a_growing_and_cut_record_reads_as_at_once) {
  open(0);
  RunReader reader(run_);
  begin(1);
  for (std::uint64_t at = 1; at <= 50; ++at) {
    step(at, std::to_string(10.0 / static_cast<double>(at)));
    if (at % 7 == 0) reader.refresh().or_throw();
  }
  open(20);  // resumes after step 20, after a pause
  begin(21);
  step(21, "77", 3000);
  reader.refresh().or_throw();
  const RunPage page = reader.page(), again = read();
  EXPECT_EQ(page.last_step, 21u);
  EXPECT_EQ(loss(page).last.value, 77.0);
  EXPECT_EQ(figure(page, "Samples"), std::to_string(21 * 8));
  EXPECT_EQ(figure(page, "Time"), "19") << "without the pause";
  EXPECT_EQ(page_of(page), page_of(again));
}

TEST_F(RunReaderTest, spikes_are_those_of_the_guard_and_what_is_no_number_is_counted) {
  open(0);
  begin(1);
  for (std::uint64_t at = 1; at <= 60; ++at) step(at, at == 40 ? "9" : "2");
  const auto spike = [&](int at, const std::string& what, const std::string& value) {
    log_->append_event(R"({"event":"spike","time":"2026-11-24T12:00:00.000Z","what":")" + what +
                       R"(","section":"student","step":)" + std::to_string(at) + R"(,"value":)" + value +
                       R"(,"usual":2.0})")
        .or_throw();
  };
  spike(40, "began", "9.0");
  spike(61, "not_finite", "null");
  step(61, "null");
  step(62, "null");
  step(63, "2");
  const RunPage page = read();
  ASSERT_EQ(page.spikes.size(), 2u);
  EXPECT_EQ(page.spikes[0].step, 40u);
  EXPECT_EQ(page.spikes[0].value, 9.0);
  EXPECT_EQ(page.spikes[0].usual, 2.0);
  EXPECT_EQ(page.spikes[0].what, "began");
  EXPECT_EQ(page.spikes[1].step, 61u);
  EXPECT_TRUE(std::isnan(page.spikes[1].value));
  EXPECT_EQ(loss(page).not_numbers, 2u);
  EXPECT_EQ(loss(page).highest.value, 9.0);
}

TEST_F(RunReaderTest, the_page_of_a_long_run_is_no_larger) {  // PW-1
  open(0);
  begin(1);
  for (std::uint64_t at = 1; at <= 20'000; ++at)
    step(at, std::to_string(2 + static_cast<double>(at * 7919 % 1000) / 1000));
  EXPECT_LT(page_of(read()).size(), 300'000u);
}

TEST_F(RunReaderTest, what_is_no_record_is_refused_by_name) {
  EXPECT_THAT(read_run_page(run_).error().message, HasSubstr("has no record of a run"));
  EXPECT_EQ(read_run_page(run_).error().code, ErrorCode::not_found);
  open(0);
  std::ofstream(run_ / record_folder / steps_file) << "{\"step\":1}\nno json\n";
  EXPECT_THAT(read_run_page(run_).error().message, HasSubstr("steps.jsonl, line 1: tokens is missing"));
  std::ofstream(run_ / record_folder / steps_file) << "{\"step\":1.5}\n";
  EXPECT_THAT(read_run_page(run_).error().message, HasSubstr("steps.jsonl, line 1: step: expected a whole number"));
  std::ofstream(run_ / record_folder / steps_file) << "no json\n";
  EXPECT_THAT(read_run_page(run_).error().message, HasSubstr("steps.jsonl, line 1"));
  begin(1, "= what");
  EXPECT_THAT(read_run_page(run_).error().message, HasSubstr("events.jsonl, line 1: job_file: it cannot be read"));
  const auto refusal_of = [&](const std::string& event) {
    std::ofstream(run_ / record_folder / events_file) << event << "\n";
    return read_run_page(run_).error().message;
  };
  EXPECT_THAT(refusal_of(R"({"event":"began","first_step":1.5})"),
              HasSubstr("line 1: first_step: expected a whole number"));
  EXPECT_THAT(refusal_of(R"({"event":"spike","step":-1})"),
              HasSubstr("events.jsonl, line 1: step: expected a whole number"));
  EXPECT_THAT(refusal_of(R"({"event":"validation","step":1e30})"),
              HasSubstr("events.jsonl, line 1: step: expected a whole number"));
}

}  // namespace
}  // namespace maestro
