// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/report.hpp"

#include <gmock/gmock.h>

#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using nlohmann::json;
using ReportFile = TemporaryFolder;

TEST(Report, an_empty_one_has_a_plan_and_no_steps) {
  EXPECT_EQ(json::parse(Report().to_json()), json::parse(R"({"plan": {}, "steps": []})"));
}

TEST(Report, holds_what_was_set) {
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
  EXPECT_EQ(json::parse(report.to_json()), json::parse(R"({
    "plan": {"sections": ["teacher", "student"]}, "steps": [],
    "validation": {"plain_ce": 2.5, "teacher_ce": 1.5}, "samples": {"read": 7}, "transfers": {"provider": "tcp"},
    "max_rss_mb": 12.0, "scheduling": {"wavefront": true, "order": [2, 1], "ms": [0.5]}})"));
}

TEST(Report, the_last_value_of_a_path_stands) {
  Report report;
  report.set("a", 1);
  report.set("a", "two");
  report.set("b", 1);
  report.set("b.c", 2);
  const auto read = json::parse(report.to_json());
  EXPECT_EQ(read["a"], "two");
  EXPECT_EQ(read["b"], json::parse(R"({"c": 2})"));
}

TEST(Report, rows_gather_in_a_list) {
  Report report;
  report.add_row("plan.lanes", {{"device", "cpu:0"}, {"replica", 0}});
  report.add_row("plan.lanes", {{"device", "cpu:1"}, {"busy", 0.5}});
  EXPECT_EQ(json::parse(report.to_json())["plan"]["lanes"],
            json::parse(R"([{"device": "cpu:0", "replica": 0}, {"device": "cpu:1", "busy": 0.5}])"));
}

TEST(Report, takes_members_that_are_json_already) {
  Report report;
  EXPECT_TRUE(report.set_json("plan", R"({"edges": [{"from": "a"}]})").ok());
  EXPECT_EQ(json::parse(report.to_json())["plan"]["edges"][0]["from"], "a");
  const auto refused = report.set_json("plan", "{\"edges\": ");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, testing::HasSubstr("plan"));
  EXPECT_EQ(json::parse(report.to_json())["plan"]["edges"][0]["from"], "a") << "a refused member replaced the old one";
}

TEST(Report, steps_carry_the_metrics_that_are_known) {
  Report report;
  report.add_step({"student", StepId(1), {{"loss", 2.5}, {"kl", 0.25}}});
  report.add_step({"plain", StepId(1), {}});
  report.set("steps", "a path that belongs to add_step");
  EXPECT_EQ(json::parse(report.to_json())["steps"], json::parse(R"([
    {"section": "student", "step": 1, "loss": 2.5, "kl": 0.25}, {"section": "plain", "step": 1}])"));
}

TEST(Report, what_is_not_finite_is_null) {
  Report report;
  report.add_step({"s", StepId(1), {{"loss", std::numeric_limits<double>::quiet_NaN()}}});
  report.set("x", std::numeric_limits<double>::infinity());
  const auto read = json::parse(report.to_json());
  EXPECT_TRUE(read["steps"][0]["loss"].is_null());
  EXPECT_TRUE(read["x"].is_null());
}

TEST(Report, doubles_and_floats_read_back_bitwise) {
  constexpr std::uint64_t seed = 11;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    const auto value = std::bit_cast<double>(random());
    const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(value) || !std::isfinite(single)) continue;
    Report report;
    report.add_step({"s", StepId(1), {{"loss", value}, {"ce", single}}});
    const auto step = json::parse(report.to_json())["steps"][0];
    ASSERT_EQ(std::bit_cast<std::uint64_t>(step["loss"].get<double>()), std::bit_cast<std::uint64_t>(value))
        << "seed " << seed << " round " << round;
    ASSERT_EQ(std::bit_cast<std::uint32_t>(step["ce"].get<float>()), std::bit_cast<std::uint32_t>(single))
        << "seed " << seed << " round " << round;
  }
}

TEST(Report, stays_valid_json_whatever_the_strings_hold) {
  Report report;
  report.set("path", std::string("\xff\xfe \"quoted\"\n"));
  EXPECT_TRUE(json::accept(report.to_json()));
}

TEST_F(ReportFile, is_written_whole) {
  Report report;
  report.set("a", 1);
  ASSERT_TRUE(report.write(folder_ / "runs" / "report.json").ok());
  EXPECT_EQ(contents_of(folder_ / "runs" / "report.json"), report.to_json());
}

TEST_F(ReportFile, an_error_names_the_path) {
  const auto written = Report().write("/proc/nowhere/report.json");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(written.error().message, testing::StartsWith("cannot write /proc/nowhere/report.json: "));
}

}  // namespace
}  // namespace maestro
