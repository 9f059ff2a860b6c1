// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/files/checksum.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Manifest example() {
  Manifest manifest;
  manifest.step = 123;
  manifest.seed = 0xffffffffffffffffu;
  manifest.data_position = 1968;
  manifest.epoch = 2;
  manifest.random_state = {7, 0xfedcba9876543210u};
  manifest.files = {{"student/model.safetensors", 100, "00112233445566778899aabbccddeeff"},
                    {"teacher/config.json", 7, "ffeeddccbbaa99887766554433221100"},
                    {"student/config.json", 8, "ffeeddccbbaa99887766554433221100"}};
  manifest.sequence = 4;
  manifest.maestro_version = "0.1.0";
  return manifest;
}

TEST(Manifest, reads_back_what_was_written) {
  const Manifest back = parse_manifest(manifest_text(example()), "checkpoint.json").value_or_throw();
  EXPECT_EQ(manifest_text(back), manifest_text(example()));
  EXPECT_EQ(back.step, 123u);
  EXPECT_EQ(back.seed, 0xffffffffffffffffu);
  EXPECT_EQ(back.data_position, 1968u);
  EXPECT_EQ(back.epoch, example().epoch);
  EXPECT_EQ(back.sequence, 4u);
  EXPECT_EQ(back.random_state, example().random_state);
  EXPECT_EQ(back.files, example().files);
  EXPECT_THAT(back.sections(), testing::ElementsAre("student", "teacher"));
}

TEST(Manifest, carries_the_run_its_data_and_its_settings) {
  Manifest manifest = example();
  manifest.run = {"00112233aabbccdd", "real", "2026-11-22 14:30:00 UTC"};
  manifest.data = {{"content", "abc"}, {"training samples", "480"}};
  manifest.ahead = {{"plain", 125}};
  manifest.cursor = {{1, 0}, {100, 1900}};
  manifest.stage = 2;
  manifest.settings = {{"student.lr", "0.001"}, {"train.out", "\"bad \xff bytes\""}};
  const Manifest back = parse_manifest(manifest_text(manifest), "checkpoint.json").value_or_throw();
  EXPECT_EQ(back.run, manifest.run);
  EXPECT_EQ(back.data, manifest.data);
  EXPECT_EQ(back.ahead, manifest.ahead);
  EXPECT_EQ(back.cursor, manifest.cursor);
  EXPECT_EQ(back.stage, 2u);
  EXPECT_EQ(manifest_text(example()).find("cursor"), std::string::npos) << "of a run that left nothing out";
  EXPECT_EQ(manifest_text(example()).find("stage"), std::string::npos) << "of a job without stages";
  EXPECT_EQ(back.settings.at("student.lr"), "0.001");
  EXPECT_EQ(back.settings.size(), 2u);
}

TEST(Manifest, numbers_beyond_any_run_are_refused_by_key) {
  const auto refused = [](auto change) {
    Manifest manifest = example();
    change(manifest);
    const auto read = parse_manifest(manifest_text(manifest), "checkpoint.json");
    return read.ok() ? "accepted" : read.error().message;
  };
  static constexpr std::uint64_t huge = std::uint64_t{1} << 62;
  EXPECT_THAT(refused([](Manifest& m) {
                m.ahead = {{"student", huge}};
              }),
              AllOf(HasSubstr("checkpoint.json: ahead.student: expected a whole number from 0 to "), IsOneLine()));
  EXPECT_THAT(refused([](Manifest& m) { m.cursor = {{1, 0}, {huge, 5}}; }), HasSubstr("cursor[1][0]: expected "));
  EXPECT_THAT(refused([](Manifest& m) { m.cursor = {{1, 0}, {5, huge}}; }), HasSubstr("cursor[1][1]: expected "));
  EXPECT_THAT(refused([](Manifest& m) { m.step = huge; }), HasSubstr(": step: expected "));
  EXPECT_THAT(refused([](Manifest& m) { m.data_position = huge; }), HasSubstr(": data_position: expected "));
  EXPECT_THAT(refused([](Manifest& m) {
                for (std::uint64_t at = 0; at < 70000; ++at) m.cursor.push_back({at + 1, at});
              }),
              HasSubstr("cursor: expected at most 65536 segments, got 70000"));
  EXPECT_EQ(refused([](Manifest& m) { m.ahead = {{"student", 123 + 1024}}; }), "accepted");
}

TEST(Manifest, of_a_version_that_knew_no_runs_is_of_the_run_without_id) {
  // as written by version 0.1.0
  std::string old = R"({"data_position":8,"epoch":0,"files":[],"format_version":1,"maestro_version":"0.1.0",)"
                    R"("random_state":[],"seed":1,"sequence":1,"step":2})";
  const std::string checksum = checksum_of(old);
  old.back() = ',';
  old += "\"self_xxh3_128\":\"" + checksum + "\"}";
  const Manifest back = parse_manifest(old, "checkpoint.json").value_or_throw();
  EXPECT_EQ(back.step, 2u);
  EXPECT_EQ(back.run, RunIdentity());
  EXPECT_TRUE(back.data.empty());
  EXPECT_TRUE(back.settings.empty());
}

TEST(Manifest, a_run_id_that_is_none_is_refused) {
  Manifest manifest = example();
  for (const char* id : {"../../../../x", "00112233aabbccdd0", "00112233AABBCCDD"}) {
    manifest.run.id = id;
    EXPECT_FALSE(parse_manifest(manifest_text(manifest), "checkpoint.json").ok()) << id;
  }
}

TEST(Manifest, any_altered_character_is_noticed_unless_it_is_white_space) {
  const std::string sound = manifest_text(example());
  for (std::size_t at = 0; at < sound.size(); ++at) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    const Result<Manifest> manifest = parse_manifest(damaged, "checkpoint.json");
    if (std::isspace(static_cast<unsigned char>(sound[at])) != 0) continue;
    ASSERT_FALSE(manifest.ok()) << "character " << at;
    ASSERT_THAT(manifest.error().message, AllOf(HasSubstr("checkpoint.json"), IsOneLine()));
  }
}

TEST(Manifest, a_truncated_manifest_is_refused) {
  const std::string sound = manifest_text(example());
  for (std::size_t bytes = 0; bytes + 1 < sound.size(); ++bytes) {
    ASSERT_FALSE(parse_manifest(std::string_view(sound).substr(0, bytes), "checkpoint.json").ok()) << bytes;
  }
}

TEST(Manifest, a_newer_format_asks_for_a_newer_program) {
  const Result<Manifest> manifest = parse_manifest(R"({"format_version": 99})", "checkpoint.json");
  ASSERT_FALSE(manifest.ok());
  EXPECT_EQ(manifest.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(manifest.error().message, AllOf(HasSubstr("99"), HasSubstr("newer than this program")));
}

TEST(Manifest, deep_nesting_and_huge_numbers_are_refused_before_the_checksum_is_looked_at) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& value : {deep, std::string("1e999"), std::string(400, '9')}) {
    const Result<Manifest> manifest = parse_manifest("{\"step\": " + value + "}", "checkpoint.json");
    ASSERT_FALSE(manifest.ok());
    EXPECT_EQ(manifest.error().code, ErrorCode::corrupt);
    EXPECT_THAT(manifest.error().message, AllOf(HasSubstr("checkpoint.json: step"), IsOneLine()));
    EXPECT_LT(manifest.error().message.size(), 400u);
  }
}

TEST(Manifest, a_number_of_another_kind_is_refused_even_with_a_checksum_that_is_right) {
  for (const std::string value : {"1e30", "-1", "18446744073709551616", "2.5", "\"7\""}) {
    std::string text = manifest_text(example());
    text.replace(text.find("\"step\": 123"), 11, "\"step\": " + value);
    auto object = nlohmann::json::parse(text);
    object.erase("self_xxh3_128");
    object["self_xxh3_128"] = checksum_of(object.dump());
    const Result<Manifest> manifest = parse_manifest(object.dump(), "checkpoint.json");
    ASSERT_FALSE(manifest.ok()) << value;
    EXPECT_THAT(manifest.error().message,
                AllOf(HasSubstr("checkpoint.json: step: expected a whole number"), IsOneLine()))
        << value;
  }
}

TEST(Manifest, a_file_outside_the_checkpoint_is_refused) {
  for (const char* path : {"../../other", "/etc/passwd", ""}) {
    Manifest manifest = example();
    manifest.files[0].path = path;
    EXPECT_FALSE(parse_manifest(manifest_text(manifest), "checkpoint.json").ok()) << path;
  }
}

}  // namespace
}  // namespace maestro
