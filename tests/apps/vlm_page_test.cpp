// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <fstream>
#include <limits>
#include <string>

#include "apps/vlm/charts.hpp"
#include "apps/vlm/markup.hpp"
#include "apps/vlm/page.hpp"
#include "apps/vlm/run_figures.hpp"
#include "apps/vlm/timeline.hpp"
#include "runtime/observe/trace.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

std::size_t count_of(const std::string& text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

TEST(Markup, escapes_what_html_would_understand) {
  EXPECT_EQ(escaped("<b title=\"x\">a & 'b'</b>"), "&lt;b title=&quot;x&quot;&gt;a &amp; &#39;b&#39;&lt;/b&gt;");
}

TEST(Markup, writes_base64_as_the_rfc_does) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64(std::string("\xff\xfe\x00", 3)), "//4A");
}

TEST(Markup, prints_numbers_for_people) {
  EXPECT_EQ(fixed(2.0 / 3, 2), "0.67");
  EXPECT_EQ(fixed(-3, 0), "-3");
  EXPECT_EQ(shortened(0.05), "0.05");
  EXPECT_EQ(shortened(2000), "2000");
}

TEST(LossChart, is_left_out_without_a_loss) {
  EXPECT_EQ(loss_chart({}, {}), "");
  EXPECT_EQ(loss_chart({{1, 0.0}, {2, std::numeric_limits<double>::quiet_NaN()}}, {}), "");
}

TEST(LossChart, draws_one_point_and_many_alike) {
  EXPECT_THAT(loss_chart({{1, 3.0}}, {}), HasSubstr("<polyline"));
  std::vector<ChartPoint> many;
  for (int step = 1; step <= 5000; ++step) many.push_back({static_cast<double>(step), 5.0 / step});
  const std::string chart = loss_chart(many, {{5000, 0.002}});
  EXPECT_EQ(count_of(chart, "<circle"), 1u);
  EXPECT_LT(chart.size(), 30'000u) << "long runs are thinned";
  EXPECT_THAT(chart, Not(HasSubstr("nan")));
  EXPECT_THAT(chart, Not(HasSubstr("inf")));
}

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

PageContent whole_page() {
  PageContent content;
  content.title = "A <title> & more";
  content.summary = "One sentence.";
  content.figures = {{"Exact match", "93.0 %", "of \"all\""}};
  content.training = {{1, 5.0}, {2, 2.5}, {3, 1.0}};
  content.validation = {{3, 1.1}};
  content.timeline = two_lanes();
  content.answers = {{{{"PNG", true}}, "What is <this>?", "red circle", "red circle"},
                     {{{"PNG", false}, {"GNP", false}}, "How many?", "2", "3"},
                     {{}, "1 + 1 is?", "2", ""}};
  return content;
}

TEST(VisionLanguagePage, needs_nothing_from_outside) {
  const std::string page = page_of(whole_page());
  for (const char* outside : {"http:", "https:", "<script", "<link", "@import", "url("}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_EQ(count_of(page, "<img"), 3u);
  EXPECT_EQ(count_of(page, "src=\"data:image/png;base64,"), 3u);
  EXPECT_EQ(count_of(page, "class=\"enlarged\""), 1u);
}

TEST(VisionLanguagePage, shows_texts_as_they_are) {
  const std::string page = page_of(whole_page());
  EXPECT_THAT(page, HasSubstr("<title>A &lt;title&gt; &amp; more</title>"));
  EXPECT_THAT(page, HasSubstr("What is &lt;this&gt;?"));
  EXPECT_THAT(page, HasSubstr("of &quot;all&quot;"));
  EXPECT_THAT(page, Not(HasSubstr("<this>")));
}

TEST(VisionLanguagePage, marks_the_right_answers_and_gives_the_reference_of_others) {
  const std::string page = page_of(whole_page());
  EXPECT_EQ(count_of(page, "<article class=\"right\">"), 1u);
  EXPECT_EQ(count_of(page, "<article>"), 2u);
  EXPECT_THAT(page, HasSubstr("the reference is: 2"));
  EXPECT_THAT(page, HasSubstr("1 of these 3 are right"));
}

TEST(VisionLanguagePage, leaves_out_what_is_empty) {
  PageContent content;
  content.title = "Nothing yet";
  const std::string page = page_of(content);
  EXPECT_THAT(page, HasSubstr("<h1>Nothing yet</h1>"));
  EXPECT_EQ(count_of(page, "<h2>"), 0u);
  EXPECT_EQ(count_of(page, "<svg"), 0u);
  EXPECT_EQ(count_of(page, "<dl"), 0u);
}

/// A trace as a run of `steps` steps writes it: a forward pass of 1 ms and an update of 1 ms every 10 ms.
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

TEST(RunFigures, come_out_of_a_report) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "report.json";
  std::ofstream(file) << R"({
    "plan": {"corpus": "c", "policy": "arrival", "processes": 2, "lanes": [
      {"section": "corpus", "mode": "source", "replica": 0, "process": 0, "device": "cpu:0"},
      {"section": "vision", "mode": "forward_backward", "replica": 0, "process": 1, "device": "cpu:0"},
      {"section": "llm", "mode": "forward_backward", "replica": 0, "process": 0, "device": "cpu:1"},
      {"section": "llm", "mode": "forward_backward", "replica": 1, "process": 1, "device": "cpu:0"}]},
    "steps": [{"section": "vision", "step": 1, "grad_norm": 2.0}, {"section": "llm", "step": 1, "loss": 5.0},
              {"section": "llm", "step": 2, "loss": null}, {"section": "llm", "step": 3, "loss": 4.0}],
    "scheduling": [{"step": 1, "makespan_ms": 10, "lower_bound_ms": 8, "utilization": {"vision": 0.2, "llm": 0.8}},
                   {"step": 2, "makespan_ms": 20, "lower_bound_ms": 16, "utilization": {"llm": 1.0}}],
    "validation": {"exact_match": 0.5, "ce": 0.25},
    "throughput": {"samples_per_s": 100.5, "train_seconds": 3}, "max_rss_mb": 70, "last_step": 3})";
  const auto figures = read_run_figures(file, "llm");
  ASSERT_TRUE(figures.ok());
  EXPECT_EQ(figures->steps, 3);
  EXPECT_DOUBLE_EQ(figures->exact_match, 0.5);
  EXPECT_DOUBLE_EQ(figures->makespan_over_bound, 1.25);
  ASSERT_EQ(figures->utilization.size(), 2u);
  EXPECT_EQ(figures->utilization[0].first, "vision");
  EXPECT_DOUBLE_EQ(figures->utilization[0].second, 0.1) << "a step without vision counts as idle";
  EXPECT_DOUBLE_EQ(figures->utilization[1].second, 0.9);
  ASSERT_EQ(figures->training.size(), 2u);
  EXPECT_DOUBLE_EQ(figures->training[1].step, 3.0);
  ASSERT_EQ(figures->validation.size(), 1u);
  ASSERT_EQ(figures->lanes.size(), 3u);
  EXPECT_EQ(figures->lanes[2].track, "llm/1");
  EXPECT_EQ(figures->lanes[2].device, "cpu:0 of process 1");
}

TEST(RunFigures, name_a_report_that_is_none) {
  const TempFolder folder;
  const std::filesystem::path file = folder.path() / "report.json";
  EXPECT_EQ(read_run_figures(file, "llm").error().code, ErrorCode::not_found);
  std::ofstream(file) << "{\"steps\": []}";
  EXPECT_THAT(read_run_figures(file, "llm").error().message, HasSubstr("report.json"));
}

}  // namespace
}  // namespace maestro
