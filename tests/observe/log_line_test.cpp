// SPDX-License-Identifier: Apache-2.0
#include "runtime/observe/log_line.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace maestro {
namespace {

const SystemTime noon = SystemTime(std::chrono::milliseconds(1795521600007));
const std::string noon_text = "2026-11-24T12:00:00.007Z";

TEST(LogLine, is_text_with_its_level_or_with_the_time_too) {
  EXPECT_EQ(format_line({LogLevel::info, "  corpus", {}}, LineForm::plain, noon), "  corpus\n");
  EXPECT_EQ(format_line({LogLevel::error, "no", {}}, LineForm::plain, noon), "error: no\n");
  EXPECT_EQ(format_line({LogLevel::warning, "slow", {}}, LineForm::timed, noon), noon_text + " warning: slow\n");
  EXPECT_EQ(format_line({LogLevel::progress, "step 1/2", {{"step", 1}}}, LineForm::timed, noon),
            noon_text + " step 1/2\n");
}

TEST(LogLine, is_an_object_with_time_level_and_message_first) {  // LJ-1
  const std::map<std::string, double> student = {{"ce", 2.5}, {"kl", std::numeric_limits<double>::quiet_NaN()}};
  EXPECT_EQ(
      format_line({LogLevel::info, "  indented", {{"step", 3}, {"validation.student", student}}}, LineForm::json, noon),
      "{\"time\":\"" + noon_text +
          "\",\"level\":\"info\",\"message\":\"indented\",\"step\":3,\"validation\":{\"student\":{\"ce\":2.5,"
          "\"kl\":null}}}\n");
}

TEST(LogLine, stays_one_object_whatever_bytes_its_texts_have) {  // LJ-1
  std::string bytes;
  for (int byte = 255; byte >= 0; --byte) bytes += static_cast<char>(byte);
  const std::string line = format_line({LogLevel::error, bytes, {{"path", bytes}}}, LineForm::json, noon);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const nlohmann::json object = nlohmann::json::parse(line);
  EXPECT_EQ(object.at("level"), "error");
  EXPECT_EQ(object.at("message"), object.at("path"));
}

TEST(RelayedLine, has_the_host_behind_its_own_time) {
  const RelayedLine timed = relayed_line("beta", "2026-11-24T11:59:59.000Z error: no", LineForm::timed, noon);
  EXPECT_EQ(timed.printed, "2026-11-24T11:59:59.000Z beta: error: no\n");
  EXPECT_EQ(timed.text, "error: no");
  EXPECT_EQ(relayed_line("beta", "Permission denied", LineForm::timed, noon).printed,
            noon_text + " beta: Permission denied\n");
  EXPECT_EQ(relayed_line("beta", "Permission denied", LineForm::plain, noon).printed, "beta: Permission denied\n");
}

TEST(RelayedLine, in_json_is_one_object_with_the_host) {  // LJ-1
  const std::string there = format_line({LogLevel::error, "no room", {{"step", 3}}}, LineForm::json, noon);
  const RelayedLine relayed = relayed_line("beta", there.substr(0, there.size() - 1), LineForm::json, {});
  EXPECT_EQ(relayed.printed, "{\"time\":\"" + noon_text +
                                 "\",\"level\":\"error\",\"message\":\"no room\",\"host\":\"beta\",\"step\":3}\n");
  EXPECT_EQ(relayed.text, "error: no room");
  for (const char* text : {"Permission denied", "", "{", "[1]", "{\"time\": 3}", "\xff\x01"}) {
    const auto object = nlohmann::json::parse(relayed_line("beta", text, LineForm::json, noon).printed);
    EXPECT_EQ(object.at("level"), "warning") << text;
    EXPECT_EQ(object.at("host"), "beta") << text;
  }
}

}  // namespace
}  // namespace maestro
