// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <fstream>
#include <string>

#include "runtime/observe/trace.hpp"
#include "runtime/page/timeline_chart.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/page/count_of.hpp"

namespace maestro {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

Timeline two_lanes() {
  Timeline timeline;
  timeline.lanes = {{"vision", "vision/0", "cpu:0"}, {"llm", "llm/0", "cpu:1"}};
  timeline.slices = {{0, TimelinePass::forward, 0, 2, 4},
                     {1, TimelinePass::both, 2, 6, 4},
                     {0, TimelinePass::backward, 8, 3, 4},
                     {0, TimelinePass::step, 11, 1, 4}};
  timeline.first_step = timeline.last_step = 4;
  return timeline;
}

TEST(TimelineChart, gives_every_slice_the_colour_of_its_section_and_pass) {
  const std::string chart = timeline_chart(two_lanes());
  EXPECT_EQ(count_of(chart, "<rect"), 4u);
  EXPECT_EQ(count_of(chart, "class=\"s0 p-forward\""), 1u);
  EXPECT_EQ(count_of(chart, "class=\"s1 p-both\""), 1u);
  EXPECT_EQ(count_of(chart, "class=\"s0 p-backward\""), 1u);
  EXPECT_EQ(count_of(chart, "class=\"s0 p-step\""), 1u);
  EXPECT_THAT(chart, HasSubstr("llm/0 forward and backward, step 4: 6.00 ms"));
  EXPECT_EQ(timeline_chart(Timeline{}), "");
}

/// Writes the trace of a run with `steps` steps: a forward pass of 1 ms and an update of 1 ms every 10 ms.
std::filesystem::path traced(const TempFolder& folder, int steps) {
  TraceRecorder recorder(ProcessId(0), "process 0");
  const TraceTime begin{};
  const TrackId lane = recorder.track("vision/0"), other = recorder.track("vision/0 transfers");
  for (int step = 1; step <= steps; ++step) {
    const TraceTime at = begin + milliseconds(10 * step);
    recorder.slice({lane, "forward", TraceCategory::forward, at, at + milliseconds(1)}, {{"step", step}});
    recorder.slice({lane, "wait", TraceCategory::wait, at + milliseconds(1), at + milliseconds(2)}, {{"for", "x"}});
    recorder.slice({other, "write", TraceCategory::transfer, at, at + milliseconds(1)}, {{"step", step}});
    recorder.slice({lane, "step", TraceCategory::step, at + milliseconds(2), at + milliseconds(3)}, {{"step", step}});
  }
  const std::filesystem::path part = folder.path() / "part", whole = folder.path() / "trace.json";
  recorder.write_part(part).or_throw();
  merge_traces(std::array{part}, whole).or_throw();
  return whole;
}

TEST(TimelineOfATrace, holds_the_steps_in_the_middle_of_the_run) {
  const TempFolder folder;
  const auto timeline = read_timeline(traced(folder, 9), {{"vision", "vision/0", "cpu:0"}}, 3);
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline->first_step, 4);
  EXPECT_EQ(timeline->last_step, 6);
  ASSERT_EQ(timeline->slices.size(), 6u) << "passes and updates only, of that lane only";
  EXPECT_DOUBLE_EQ(timeline->slices[0].begin_ms, 0.0);
  EXPECT_EQ(timeline->slices[1].pass, TimelinePass::step);
  EXPECT_NEAR(timeline->slices[2].begin_ms, 10.0, 1e-6);
  EXPECT_NEAR(timeline->slices[2].length_ms, 1.0, 1e-6);
}

TEST(TimelineOfATrace, takes_what_there_is_of_a_short_run) {
  const TempFolder folder;
  const auto timeline = read_timeline(traced(folder, 2), {{"vision", "vision/0", "cpu:0"}}, 3);
  ASSERT_TRUE(timeline.ok());
  EXPECT_EQ(timeline->first_step, 1);
  EXPECT_EQ(timeline->last_step, 2);
  const auto nothing = read_timeline(traced(folder, 2), {{"llm", "llm/0", "cpu:0"}}, 3);
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE(nothing->slices.empty());
}

TEST(TimelineOfATrace, names_a_file_that_is_none) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "other.json";
  EXPECT_THAT(read_timeline(file, {}, 3).error().message, HasSubstr("other.json"));
  for (const char* content : {"{\"a\": 1}", "{\"traceEvents\": [{\"ph\": \"X\"", "[]", "no json"}) {
    std::ofstream(file) << content;
    const auto read = read_timeline(file, {}, 3);
    ASSERT_FALSE(read.ok()) << content;
    EXPECT_EQ(read.error().code, ErrorCode::corrupt);
    EXPECT_THAT(read.error().message, HasSubstr("other.json"));
  }
}

}  // namespace
}  // namespace maestro
