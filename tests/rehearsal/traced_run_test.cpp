// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/traced_run.hpp"

#include <gmock/gmock.h>

#include <chrono>

#include "runtime/observe/output_file.hpp"
#include "runtime/observe/trace.hpp"
#include "runtime/rehearsal/rehearsed_shares.hpp"
#include "runtime/rehearsal/traced_times.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/schedule/small_graph.hpp"

namespace maestro {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// Writes the trace of a run with a text, a teacher and a student, and one sample per step.
class TracedRunTest : public ::testing::Test {
 protected:
  TraceTime at(int ms) const { return TraceTime() + milliseconds(1000 + ms); }

  void unit(TraceRecorder& recorder, int step, int ms, std::string_view samples = "8") {
    recorder.slice({recorder.track("planner"), "plan", TraceCategory::plan, at(ms), at(ms + 1)},
                   {{"step", step}, {"pass", "train"}, {"samples", samples}});
  }
  void pass(TraceRecorder& recorder, std::string_view track, TraceCategory category, int step, int begin, int end) {
    recorder.slice({recorder.track(track), "pass", category, at(begin), at(end)},
                   {{"step", step}, {"batch", 0}, {"rows", 8}});
  }
  void action(TraceRecorder& recorder, std::string_view track, std::string_view name, int step, int begin, int end) {
    recorder.slice({recorder.track(track), name, TraceCategory::step, at(begin), at(end)}, {{"step", step}});
  }
  /// Records a step of 30 ms: the teacher takes 10, the student 12, the sum of gradients 1, norm 2 and step 3.
  void step(TraceRecorder& recorder, int step) {
    const int begin = 30 * step;
    unit(recorder, step, begin);
    pass(recorder, "teacher/0", TraceCategory::forward, step, begin + 1, begin + 11);
    pass(recorder, "student/0", TraceCategory::forward, step, begin + 12, begin + 24);
    action(recorder, "student/0", "norm", step, begin + 25, begin + 27);
    action(recorder, "student/0", "step", step, begin + 27, begin + 30);
  }
  std::filesystem::path write(const TraceRecorder& recorder) {
    const auto part = folder_.path() / "part";
    recorder.write_part(part).or_throw();
    const std::array parts{part};
    merge_traces(parts, folder_.path() / "trace.json").or_throw();
    return folder_.path() / "trace.json";
  }

  TempFolder folder_;
};

TEST_F(TracedRunTest, has_the_work_of_a_generator_by_its_kind) {
  TraceRecorder recorder(ProcessId(0), "process 0");
  recorder.describe("job", "name = 'x'");
  for (int number = 1; number <= 5; ++number) step(recorder, number);
  const TrackId track = recorder.track("generator/0");
  const auto work = [&](std::string_view name, int begin, int end, int sequences = 0) {
    const TraceSlice slice{track, name, TraceCategory::forward, at(begin), at(end)};
    if (sequences > 0) return recorder.slice(slice, {{"step", 1}, {"sequences", sequences}});
    recorder.slice(slice, {{"step", 1}});
  };
  EXPECT_FALSE(generation_times(read_traced_run(write(recorder)).value_or_throw().generation));
  work("take", 0, 6);
  work("prefill", 6, 8);
  work("prefill", 8, 10);
  work("decode", 10, 20, 1);
  work("decode", 21, 35, 3);
  work("decode", 36, 38);  // of an earlier version, without the number
  const TracedRun run = read_traced_run(write(recorder)).value_or_throw();
  const std::optional<GenerationTimes> times = generation_times(run.generation);
  ASSERT_TRUE(times);
  EXPECT_NEAR(times->take_ms, 6, 1e-6);
  EXPECT_NEAR(times->prefill(100), 2, 1e-6);
  EXPECT_NEAR(times->decode(1, 50), 10, 1e-6);
  EXPECT_NEAR(times->decode(2, 50), 12, 1e-6);
  EXPECT_NEAR(times->decode(3, 50), 14, 1e-6);
  EXPECT_NEAR(run.hop_ms, 1, 1e-6);
  EXPECT_EQ(run.units.size(), 5U);  // and no other step
}

TEST_F(TracedRunTest, has_the_samples_passes_and_ends_of_steps) {
  TraceRecorder recorder(ProcessId(0), "process 0");
  recorder.describe("job", "name = 'x'");
  for (int number = 1; number <= 5; ++number) step(recorder, number);
  const TracedRun run = read_traced_run(write(recorder)).value_or_throw();
  EXPECT_EQ(run.facts.at("job"), "name = 'x'");
  ASSERT_EQ(run.units.size(), 5u);
  EXPECT_EQ(run.units[1].samples.size(), 1u);
  EXPECT_EQ(run.units[1].samples[0].tokens, 8);
  EXPECT_NEAR(run.units[2].end_ms - run.units[1].end_ms, 30, 1e-6);
  const TracedPass& pass = run.passes.at({"student", StepId(3), Pass::train, 0});
  EXPECT_NEAR(pass.forward_ms, 12, 1e-6);
  EXPECT_EQ(pass.rows, 8);
}

TEST_F(TracedRunTest, leaves_out_steps_that_lanes_may_lack) {  // TU-1
  TraceRecorder recorder(ProcessId(0), "process 0", {.max_events = 18});
  recorder.describe("job", "name = 'x'");
  for (int number = 1; number <= 5; ++number) step(recorder, number);  // the teacher's fourth pass is the 17th event
  const TracedRun run = read_traced_run(write(recorder)).value_or_throw();
  EXPECT_EQ(run.dropped, 7u);
  EXPECT_EQ(run.units.size(), 3u);
}

TEST_F(TracedRunTest, what_is_no_trace_of_a_run_is_named) {
  EXPECT_THAT(read_traced_run(folder_.path() / "none").error().message, HasSubstr("cannot read the trace"));
  write_output(folder_.path() / "other.json", "{\"traceEvents\":[]}").or_throw();
  EXPECT_THAT(read_traced_run(folder_.path() / "other.json").error().message, HasSubstr("lacks the samples of steps"));
  write_output(folder_.path() / "cut.json", "{\"traceEvents\":[{\"ph\":").or_throw();
  EXPECT_THAT(read_traced_run(folder_.path() / "cut.json").error().message, HasSubstr("is not a trace of maestro"));
  const auto error_with_thread = [this](const std::string& id) {
    write_output(folder_.path() / "id.json", R"({"traceEvents":[{"ph":"X","pid":0,"tid":)" + id + "}]}").or_throw();
    return read_traced_run(folder_.path() / "id.json").error().message;
  };
  for (const char* const id : {"1.5", "-1", "1e300"}) {
    EXPECT_THAT(error_with_thread(id), HasSubstr("id.json: tid: expected a whole number"));
  }
  TraceRecorder recorder(ProcessId(0), "process 0");
  recorder.describe("job", "name = 'x'");
  unit(recorder, 3, 0, "8*x");
  EXPECT_THAT(read_traced_run(write(recorder)).error().message, HasSubstr("step 3: \"8*x\" is no sample"));
}

StepPlan plan_of(std::uint64_t step, std::int64_t tokens) {
  StepPlan plan;
  plan.step = StepId(step);
  for (const std::uint32_t section : {1, 2}) {
    MicroBatchPlan batch;
    batch.section = SectionId(section);
    batch.step = plan.step;
    batch.samples = {{SampleId(0), tokens}};
    plan.micro_batches.push_back(batch);
  }
  return plan;
}

class TracedTimesTest : public TracedRunTest {
 protected:
  TracedTimesTest() {
    TraceRecorder recorder(ProcessId(0), "process 0");
    recorder.describe("job", "name = 'x'");
    for (int number = 1; number <= 5; ++number) step(recorder, number);
    run_ = read_traced_run(write(recorder)).value_or_throw();
    std::vector<StepPlan> plans;
    for (std::uint64_t number = 1; number <= 5; ++number) plans.push_back(plan_of(number, 8));
    times_ = std::make_unique<TracedTimes>(run_, job_, plans);
  }
  static PassCost cost(SectionId section, const SampleRef& sample) {
    const auto tokens = static_cast<double>(sample.tokens);
    return {tokens, section == SectionId(2) ? 2 * tokens : 0};
  }
  const SectionGraph graph_ = testing::distillation_graph();
  const TimedJob job_{&graph_, cost, false};
  TracedRun run_;
  std::unique_ptr<TracedTimes> times_;
};

TEST_F(TracedTimesTest, a_traced_pass_takes_the_time_that_it_took) {  // TT-1
  const StepPlan plan = plan_of(2, 8);
  EXPECT_NEAR(times_->pass(job_, plan.micro_batches[0]).forward, 10, 1e-6);
  const PassCost student = times_->pass(job_, plan.micro_batches[1]);
  EXPECT_NEAR(student.forward, 4, 1e-6);  // split by units: both directions are in a single slice
  EXPECT_NEAR(student.backward, 8, 1e-6);
  EXPECT_EQ(times_->sources().traced, 2u);
  EXPECT_EQ(times_->sources().estimated, 0u);
}

TEST_F(TracedTimesTest, any_other_pass_is_estimated_by_its_work) {
  const StepPlan longer = plan_of(2, 16);
  EXPECT_NEAR(times_->pass(job_, longer.micro_batches[0]).forward, 20, 1e-6);
  EXPECT_EQ(times_->sources().estimated, 1u);
  TimedJob deeper = job_;
  deeper.cost = [](SectionId section, const SampleRef& sample) {
    const PassCost once = cost(section, sample);
    return PassCost{3 * once.forward, 3 * once.backward};
  };
  EXPECT_NEAR(times_->pass(deeper, plan_of(2, 8).micro_batches[0]).forward, 30, 1e-6);
}

TEST_F(TracedTimesTest, passes_on_lanes_of_other_speeds_take_their_times_by_the_ratio) {  // TT-1
  TimedJob unequal = job_;
  unequal.speeds = {{}, {1, 0.5}, {}};
  StepPlan moved = plan_of(2, 8);
  moved.micro_batches[0].replica = ReplicaIndex(1);
  EXPECT_NEAR(times_->pass(unequal, plan_of(2, 8).micro_batches[0]).forward, 10, 1e-6);
  EXPECT_NEAR(times_->pass(unequal, moved.micro_batches[0]).forward, 20, 1e-6);
  // If the traced lane was the slow lane, the fit is for the fast lane.
  std::vector<StepPlan> plans;
  for (std::uint64_t number = 1; number <= 5; ++number) {
    plans.push_back(plan_of(number, 8));
    plans.back().micro_batches[0].replica = ReplicaIndex(1);
  }
  const TracedTimes slow(run_, unequal, plans);
  EXPECT_NEAR(slow.pass(unequal, moved.micro_batches[0]).forward, 10, 1e-6);
  EXPECT_NEAR(slow.pass(unequal, plan_of(2, 8).micro_batches[0]).forward, 5, 1e-6);
  EXPECT_NEAR(slow.pass(unequal, plan_of(2, 16).micro_batches[0]).forward, 10, 1e-6);
}

TEST_F(TracedTimesTest, actions_take_their_slices_and_exchanges_the_time_between) {
  EXPECT_NEAR(times_->action(job_, SectionId(2), StepAction::norm), 2, 1e-6);
  EXPECT_NEAR(times_->action(job_, SectionId(2), StepAction::step), 3, 1e-6);
  EXPECT_NEAR(times_->action(job_, SectionId(2), StepAction::sum), 1, 1e-6);
  EXPECT_EQ(times_->action(job_, SectionId(1), StepAction::step), 0);
}

TEST(RehearsedShares, steady_steps_leave_out_the_first_two) {
  EXPECT_FALSE(steady_steps({1, 2, 3}));
  const auto steady = steady_steps({10, 15, 25, 35});
  ASSERT_TRUE(steady);
  EXPECT_EQ(steady->steps, 2u);
  EXPECT_EQ(steady->period_ms(), 10);
}

TEST(RehearsedShares, add_up_to_one) {  // SH-1
  const SectionGraph graph = testing::distillation_graph(2);
  Rehearsed rehearsed;
  using Kind = LaneInterval::Kind;
  const WaitReasons reasons(graph);
  const auto interval = [](Kind kind, double start, double end, const std::string* waits_for = nullptr) {
    return LaneInterval{start, end, StepId(1), waits_for, 0, kind, Pass::train};
  };
  rehearsed.lanes[{SectionId(1), ReplicaIndex(0)}] = {interval(Kind::forward, 0, 12),
                                                      interval(Kind::wait, 12, 14, &reasons.work)};
  rehearsed.lanes[{SectionId(1), ReplicaIndex(1)}] = {interval(Kind::wait, 5, 15, &reasons.buffer),
                                                      interval(Kind::boundary, 15, 25)};
  const auto shares = section_shares(rehearsed, graph, {10, 20, 1});
  const SectionShares& teacher = shares.at("teacher");
  EXPECT_NEAR(teacher.passes, 0.1, 1e-12);
  EXPECT_NEAR(teacher.step_ends, 0.25, 1e-12);
  EXPECT_NEAR(teacher.waits.at("buffer"), 0.25, 1e-12);
  EXPECT_NEAR(teacher.waits.at("work"), 0.4, 1e-12);
  EXPECT_FALSE(shares.contains("text"));
}

}  // namespace
}  // namespace maestro
