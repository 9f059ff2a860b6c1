// SPDX-License-Identifier: Apache-2.0
#include "runtime/page/compare_page.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/page/count_of.hpp"

namespace maestro {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

RunCurve curve(const std::string& section, const std::string& metric, std::uint64_t steps, double value) {
  RunCurve made{section, metric, {1, value}, {steps, value}, {1, value}, {1, value}, 0, {}};
  for (std::uint64_t step = 1; step <= steps; ++step) made.points.push_back({step, step, 1, value, value, value});
  return made;
}

ComparedRun run_of(const std::string& name, std::uint64_t steps, const std::string& job, double loss) {
  ComparedRun run{name, {}};
  run.page.title = "small";
  run.page.state = RecordedState::finished;
  run.page.last_step = steps;
  run.page.job = job;
  run.page.figures = {{"student loss", "2.5", "", std::to_string(loss)}};
  run.page.curves = {curve("student", "loss", steps, loss), curve("plain", "loss", steps, loss)};
  run.page.times = {curve("", "step_ms", steps, 100), curve("", "makespan_ms", steps, 300)};
  run.page.validations = {{steps, "student", {{"loss", loss}}}};
  return run;
}

TEST(ComparePage, lists_only_the_settings_that_differ) {
  const auto differing = differing_settings({run_of("a", 9, "seed = 1\n[student]\nlr = 0.1\nwidth = 8\n", 1),
                                             run_of("b", 9, "seed = 1\n[student]\nlr = 0.2\n", 1)});
  ASSERT_EQ(differing.size(), 2u);
  EXPECT_EQ(differing[0].key, "student.lr");
  EXPECT_THAT(differing[0].values, ElementsAre("0.1", "0.2"));
  EXPECT_EQ(differing[1].key, "student.width");
  EXPECT_THAT(differing[1].values, ElementsAre("8", ""));
  EXPECT_THAT(page_of({run_of("a", 9, "", 1), run_of("b", 9, "", 1)}), HasSubstr("None."));
}

TEST(ComparePage, draws_runs_of_any_length_over_each_other_with_a_colour_for_each) {
  const std::string page = page_of({run_of("a", 9, "", 3), run_of("b", 30, "", 2)});
  EXPECT_EQ(count_of(page, "<svg"), 3u) << "the losses of two sections, and the step time";
  EXPECT_EQ(count_of(page, "data-chart=\"student loss\""), 1u);
  EXPECT_EQ(count_of(page, "data-chart=\"step time, ms\""), 1u);
  EXPECT_EQ(count_of(page, "class=\"s0 mean\" data-line=\"a\""), 3u);
  EXPECT_EQ(count_of(page, "class=\"s1 mean\" data-line=\"b\""), 3u);
  EXPECT_EQ(count_of(page, " 0 30\" data-y"), 3u) << "the axis has the steps of the longer run";
  EXPECT_THAT(page, HasSubstr("<title>b: student, validation after step 30: 2</title>"));
  EXPECT_THAT(page, HasSubstr("finished after step 9"));
}

TEST(ComparePage, has_the_last_figures_next_to_each_other) {
  ComparedRun other = run_of("b", 30, "", 2);
  other.page.figures.push_back({"Step time / bound", "1.004", "", "1.004"});
  for (const PageTable& table : tables_of({run_of("a", 9, "", 3), other})) {
    if (table.title != "Figures") continue;
    EXPECT_THAT(table.columns, ElementsAre("figure", "a", "b"));
    ASSERT_EQ(table.rows.size(), 2u);
    EXPECT_EQ(table.rows[1][0].text, "Step time / bound");
    EXPECT_EQ(table.rows[1][1].text, "-");
    EXPECT_EQ(table.rows[1][2].exact, "1.004");
    return;
  }
  FAIL() << "no figures";
}

TEST(ComparePage, needs_nothing_from_outside_and_runs_nothing) {  // PW-3
  const std::string page =
      page_of({run_of("</main><script src=\"http://a/b\">x</script>", 9, "", 3), run_of("b", 3, "", 2)});
  for (const char* outside : {"<script", "<link", "<img", "@import", "url(", "href", "src=\"", "</main><"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
}

}  // namespace
}  // namespace maestro
