// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "apps/vlm/page.hpp"
#include "apps/vlm/run_figures.hpp"
#include "runtime/page/timeline.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/page/count_of.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;
using testing::Not;

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

PageContent whole_page() {
  PageContent content;
  content.title = "A <title> & more";
  content.summary = "One sentence.";
  content.figures = {{"Exact match", "93.0 %", "of \"all\""}};
  content.training = {{1, 1, 1, 5.0, 5.0, 5.0}, {2, 2, 1, 2.5, 2.5, 2.5}, {3, 3, 1, 1.0, 1.0, 1.0}};
  content.validation = {{3, 1.1, "validation"}};
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
  ASSERT_EQ(figures->training.points().size(), 2u);
  EXPECT_EQ(figures->training.points()[1].last_step, 3u);
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
