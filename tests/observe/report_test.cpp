// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/report.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using nlohmann::json;

class ReportFile : public TemporaryFolder {
 protected:
  [[nodiscard]] json written(const Report& report) const {
    const Status done = report.write(folder_ / "report.json");
    EXPECT_TRUE(done.ok()) << done.error().message;
    return json::parse(contents_of(folder_ / "report.json"));
  }
  static RowSource rows_of(std::vector<std::string> rows) {
    return [rows = std::move(rows)](const auto& add) {
      Status added;
      for (const std::string& row : rows) {
        if (added) added = add(row);
      }
      return added;
    };
  }
};

TEST_F(ReportFile, an_empty_one_has_a_plan) {
  EXPECT_EQ(written(Report()), json::parse(R"({"plan": {}})"));
}

TEST_F(ReportFile, holds_what_was_set) {
  Report report;
  report.set("plan.sections", std::vector<std::string>{"teacher", "student"});
  report.set("validation.plain_ce", 2.5);
  report.set("validation.teacher_ce", 1.5f);
  report.set("samples.read", std::size_t{7});
  report.set("transfers.provider", "tcp");
  report.set("max_rss_mb", 12.0);
  report.set("scheduling.wavefront", true);
  report.set("scheduling.order", std::vector<std::int64_t>{2, 1});
  report.set("scheduling.ms", std::vector<double>{0.5});
  EXPECT_EQ(written(report), json::parse(R"({
    "plan": {"sections": ["teacher", "student"]},
    "validation": {"plain_ce": 2.5, "teacher_ce": 1.5}, "samples": {"read": 7}, "transfers": {"provider": "tcp"},
    "max_rss_mb": 12.0, "scheduling": {"wavefront": true, "order": [2, 1], "ms": [0.5]}})"));
}

TEST_F(ReportFile, the_last_value_of_a_path_stands) {
  Report report;
  report.set("a", 1);
  report.set("a", "two");
  report.set("b", 1);
  report.set("b.c", 2);
  const auto read = written(report);
  EXPECT_EQ(read["a"], "two");
  EXPECT_EQ(read["b"], json::parse(R"({"c": 2})"));
}

TEST_F(ReportFile, rows_gather_in_a_list) {
  Report report;
  report.add_row("plan.lanes", {{"device", "cpu:0"}, {"replica", 0}});
  report.add_row("plan.lanes", {{"device", "cpu:1"}, {"busy", 0.5}});
  EXPECT_EQ(written(report)["plan"]["lanes"],
            json::parse(R"([{"device": "cpu:0", "replica": 0}, {"device": "cpu:1", "busy": 0.5}])"));
}

TEST_F(ReportFile, takes_members_that_are_json_already) {
  Report report;
  EXPECT_TRUE(report.set_json("plan", R"({"edges": [{"from": "a"}]})").ok());
  EXPECT_EQ(written(report)["plan"]["edges"][0]["from"], "a");
  const auto refused = report.set_json("plan", "{\"edges\": ");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, testing::HasSubstr("plan"));
  EXPECT_EQ(written(report)["plan"]["edges"][0]["from"], "a") << "a refused member replaced the old one";
}

TEST_F(ReportFile, rows_are_read_while_it_is_written) {
  Report report;
  report.set("a", 1);
  report.set_rows("steps", rows_of({R"({"step": 1})", R"({"step": 2})"}));
  report.set_rows("none", rows_of({}));
  EXPECT_EQ(written(report), json::parse(R"({"plan": {}, "a": 1, "steps": [{"step": 1}, {"step": 2}], "none": []})"));
}

TEST_F(ReportFile, rows_that_cannot_be_read_leave_no_report_behind) {
  Report report;
  report.set_rows("steps", [](const auto& add) {
    add("{}").or_throw();
    return Status(Error{ErrorCode::corrupt, "the record is damaged"});
  });
  const Status refused = report.write(folder_ / "report.json");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "the record is damaged");
  EXPECT_EQ(files_in_folder(), 0U);
}

TEST_F(ReportFile, a_row_of_a_step_carries_the_metrics_that_are_known) {
  EXPECT_EQ(row_of({"student", StepId(1), {{"loss", 2.5}, {"kl", 0.25}}}),
            R"({"section":"student","step":1,"kl":0.25,"loss":2.5})");
  EXPECT_EQ(row_of({"plain", StepId(1), {}}), R"({"section":"plain","step":1})");
}

TEST_F(ReportFile, what_is_not_finite_is_null) {
  Report report;
  report.set("x", std::numeric_limits<double>::infinity());
  EXPECT_TRUE(written(report)["x"].is_null());
  EXPECT_TRUE(json::parse(row_of({"s", StepId(1), {{"loss", std::nan("")}}}))["loss"].is_null());
}

TEST_F(ReportFile, doubles_and_floats_read_back_bitwise) {
  constexpr std::uint64_t seed = 11;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const auto value = std::bit_cast<double>(random());
    const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(value) || !std::isfinite(single)) continue;
    const auto step = json::parse(row_of({"s", StepId(1), {{"loss", value}, {"ce", single}}}));
    ASSERT_EQ(std::bit_cast<std::uint64_t>(step["loss"].get<double>()), std::bit_cast<std::uint64_t>(value))
        << "seed " << seed << " round " << round;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(step["ce"].get<float>()), std::bit_cast<std::uint32_t>(single))
        << "seed " << seed << " round " << round;
  }
}

TEST_F(ReportFile, stays_valid_json_whatever_the_strings_hold) {
  Report report;
  report.set("path", std::string("\xff\xfe \"quoted\"\n"));
  EXPECT_TRUE(written(report)["path"].is_string());
}

TEST_F(ReportFile, is_written_whole) {
  Report report;
  report.set("a", 1);
  ASSERT_TRUE(report.write(folder_ / "runs" / "report.json").ok());
  EXPECT_EQ(json::parse(contents_of(folder_ / "runs" / "report.json")), written(report));
}

TEST_F(ReportFile, an_error_names_the_path) {
  const auto written = Report().write("/proc/nowhere/report.json");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, testing::StartsWith("cannot write /proc/nowhere/report.json: "));
}

}  // namespace
}  // namespace maestro
