// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/run_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/page/run_card.hpp"
#include "runtime/page/run_tables.hpp"
#include "tests/page/count_of.hpp"

namespace maestro {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string hostile = "</main><script src=\"http://a/b\">x</script>'|`\x01\xff";

RunPage hostile_page() {
  RunPage page;
  page.title = page.error = page.job = page.command = hostile;
  page.state = RecordedState::failed;
  page.figures = {{hostile, hostile, hostile, hostile}};
  RunCurve curve{hostile, hostile, {1, 5}, {2, 4}, {2, 4}, {1, 5}, 0, {{1, 1, 1, 5, 5, 5}, {2, 2, 1, 4, 4, 4}}};
  page.curves = page.busy = {curve};
  curve.metric = "makespan_ms";
  page.times = {curve};
  page.validations = {{2, hostile, {{hostile, 3.5}}}};
  page.spikes = {{2, hostile, hostile, 4, 1}};
  page.events = {{hostile, hostile, hostile}};
  page.lanes = {hostile};
  page.data = {{hostile, hostile}};
  return page;
}

TEST(RunPage, needs_nothing_from_outside_and_runs_nothing) {  // PW-3
  const std::string page = page_of(hostile_page());
  for (const char* outside : {"<script", "<link", "<img", "@import", "url(", "href", "src=\"", "</main><"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_EQ(count_of(page, "</main>"), 1u);
  EXPECT_THAT(page, HasSubstr("&lt;/main&gt;&lt;script src=&quot;http://a/b&quot;&gt;"));
  EXPECT_THAT(page, HasSubstr("\xef\xbf\xbd")) << "what is not UTF-8 is replaced";
  EXPECT_THAT(page, Not(HasSubstr("\xff")));
}

TEST(RunPage, has_figures_as_recorded_beside_the_rounded) {  // PW-2
  RunPage page;
  const double value = 2.7818268114241;
  page.curves = {
      {"student", "loss", {1, value}, {1, value}, {1, value}, {1, value}, 0, {{1, 1, 1, value, value, value}}}};
  const std::string html = body_of(page);
  EXPECT_EQ(count_of(html, "data-value=\"2.7818268114241\""), 4u);
  EXPECT_THAT(html, HasSubstr(">2.782 (step 1)<"));
}

TEST(RunPage, has_one_colour_for_a_section_in_all_drawings) {
  RunPage page;
  page.lanes = {"section 'corpus' replica 0 on host of process 0", "section 'teacher' replica 0 on cpu:0 of process 0",
                "section 'student.stage0' replica 0 on cpu:0 of process 0",
                "section 'student.stage1' replica 0 on cpu:0 of process 0",
                "section 'plain' replica 0 on cpu:0 of process 0"};
  for (const char* section : {"plain", "student"}) {
    page.curves.push_back({section, "loss", {1, 5}, {1, 5}, {1, 5}, {1, 5}, 0, {{1, 1, 1, 5, 5, 5}}});
  }
  for (const char* section : {"plain", "student", "teacher"}) {
    page.busy.push_back({section, "busy", {1, 1}, {1, 1}, {1, 1}, {1, 1}, 0, {{1, 1, 1, 1, 1, 1}}});
  }
  page.lane_times = {{"plain/0", {{1, 1, 1, 1, {}}}}, {"student.stage1/0", {{1, 1, 1, 1, {}}}}};
  page.timeline.sections = sections_of(page);
  page.timeline.lanes = {{"student.stage1", "student.stage1/0", "cpu:0"}, {"plain", "plain/0", "cpu:0"}};
  page.timeline.slices = {{0, TimelinePass::both, 0, 1, 1}, {1, TimelinePass::both, 1, 1, 1}};
  const std::string html = body_of(page);
  const std::vector<std::string> colours{"teacher", "student", "plain"};
  for (std::size_t at = 0; at < colours.size(); ++at) {
    for (std::size_t other = 0; other < 8; ++other) {
      if (other == at) continue;
      for (const char* kind : {" dot\" data-line=\"", " line\"></i>", " p-both\"></i>"}) {
        EXPECT_THAT(html, Not(HasSubstr("s" + std::to_string(other) + kind + colours[at])));
      }
    }
    EXPECT_THAT(html, HasSubstr("s" + std::to_string(at) + " line\"></i>" + colours[at]));
  }
  EXPECT_EQ(count_of(html, "<rect class=\"s1 p-both\""), 2u) << "a stage of the student: its lane and its pass";
  EXPECT_EQ(count_of(html, "<rect class=\"s2 p-both\""), 2u);
}

TEST(RunPage, adds_the_lanes_of_a_device_up_to_its_share_of_time) {
  RunPage page;
  page.lanes = {"section 'teacher' replica 0 on cpu:0 of process 0",
                "section 'student' replica 0 on cpu:0, cpu:1 of process 0"};
  page.lane_times = {{"teacher/0", {{1, 1, 50, 0, {{"device", 50}}}}},
                     {"student/0", {{1, 1, 40, 5, {{"device", 55}}}}}};
  for (const PageTable& table : tables_of(page)) {
    if (table.title != "Devices") continue;
    ASSERT_EQ(table.rows.size(), 2u);
    EXPECT_EQ(table.rows[0][0].text, "cpu:0 of process 0");
    EXPECT_EQ(table.rows[0][1].text, "95.0%");
    EXPECT_EQ(table.rows[0][2].text, "teacher/0 50.0%, student/0 45.0%");
    EXPECT_EQ(table.rows[1][1].text, "45.0%");
    return;
  }
  FAIL() << "no table of devices";
}

TEST(RunPage, leaves_out_what_is_empty) {
  RunPage page;
  page.title = "Nothing yet";
  const std::string html = page_of(page);
  EXPECT_THAT(html, HasSubstr("<h1>Nothing yet</h1>"));
  for (const char* part : {"<h2>", "<svg", "<dl", "<table"}) EXPECT_THAT(html, Not(HasSubstr(part)));
  EXPECT_THAT(html, HasSubstr("content=\"default-src 'none';"));
  EXPECT_THAT(page_of(page, "<meta name=\"a\">"), HasSubstr("<meta name=\"a\"></head>"));
}

TEST(RunPage, says_where_there_is_no_spike_and_the_reason_where_there_is_no_text) {
  RunPage page;
  page.curves = {{"student", "loss", {1, 5}, {1, 5}, {1, 5}, {1, 5}, 0, {{1, 1, 1, 5, 5, 5}}}};
  page.texts_remark = "None by student: it has no tokenizer.";
  for (const std::string& text : {body_of(page), card_of(page)}) {
    EXPECT_THAT(text, HasSubstr("None. As the guard of the run found them"));
    EXPECT_THAT(text, HasSubstr("None by student: it has no tokenizer."));
  }
}

TEST(RunPage, lists_the_newest_and_counts_the_others) {  // PW-1
  RunPage page;
  for (int at = 0; at < 1000; ++at) page.events.push_back({"t", "checkpoint", "number " + std::to_string(at)});
  const std::string html = body_of(page);
  EXPECT_EQ(count_of(html, "<tr>"), 201u);
  EXPECT_THAT(html, HasSubstr("number 999<"));
  EXPECT_THAT(html, HasSubstr("The newest 200; 800 before them are left out."));
}

TEST(RunPage, of_many_sections_stays_small) {  // PW-1
  RunPage page;
  ThinnedCurve points;
  for (std::uint64_t step = 1; step <= 100'000; ++step) points.add(step, 1.0 + static_cast<double>(step % 977) / 977);
  for (int section = 0; section < 32; ++section) {
    for (const char* metric : {"loss", "grad_norm", "lr", "step_ms"}) {
      page.curves.push_back(
          {"s" + std::to_string(section), metric, {1, 1}, {2, 1}, {1, 1}, {2, 1}, 0, points.points()});
    }
  }
  EXPECT_LT(page_of(page).size(), 1'000'000u);
}

TEST(RunCard, has_the_tables_and_the_job_without_markup_in_texts) {  // PW-3
  const std::string card = card_of(hostile_page());
  EXPECT_THAT(card, Not(HasSubstr("\n|  |\n")));
  EXPECT_THAT(card, HasSubstr("&lt;/main&gt;"));
  for (const char* title :
       {"## Figures", "## Spikes", "## Validations", "## Events", "## Layout", "## Data", "## Run it again"}) {
    EXPECT_THAT(card, HasSubstr(title));
  }
  const std::string::size_type job = card.find("## Run it again");
  EXPECT_EQ(card.substr(0, job).find("<script"), std::string::npos);
  EXPECT_EQ(in_markdown("a|b\n*c*"), "a\\|b \\*c\\*");
}

TEST(RunCard, fences_a_job_that_has_fences) {
  RunPage page;
  page.command = "maestro train job.toml";
  page.job = "a = '''\n```\n'''";
  EXPECT_THAT(card_of(page), HasSubstr("````\na = '''\n```\n'''\n````\n"));
}

RunPage answered_page() {
  RunPage page;
  page.answers = {{{{"PNG", true}}, "What is <this>?", "red circle", "red circle"},
                  {{{"PNG", false}, {"GNP", false}}, "How many?", "2", "3"},
                  {{}, "1 + 1 is?", "2", ""}};
  return page;
}

TEST(RunPage, marks_the_right_answers_and_gives_the_reference_of_others) {
  const std::string page = page_of(answered_page());
  EXPECT_EQ(count_of(page, "<article class=\"right\">"), 1u);
  EXPECT_EQ(count_of(page, "<article>"), 2u);
  EXPECT_THAT(page, HasSubstr("What is &lt;this&gt;?"));
  EXPECT_THAT(page, HasSubstr("the reference is: 2"));
  EXPECT_THAT(page, HasSubstr("1 of these 3 are right"));
  EXPECT_THAT(card_of(answered_page()), HasSubstr("| How many? | 3 | 2 |"));
}

TEST(RunPage, has_the_images_of_answers_inside) {
  const std::string page = page_of(answered_page());
  EXPECT_EQ(count_of(page, "<img"), 3u);
  EXPECT_EQ(count_of(page, "src=\"data:image/png;base64,"), 3u);
  EXPECT_EQ(count_of(page, "class=\"enlarged\""), 1u);
}

}  // namespace
}  // namespace maestro
