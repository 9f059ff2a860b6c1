// SPDX-License-Identifier: Apache-2.0
// Rows with sounds: their places in messages, archives with WAV and FLAC files, and rows of the other kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/dataset/record_format.hpp"
#include "runtime/dataset/row_files.hpp"
#include "tests/data/tar_bytes.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro::sound_rows {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Result<Record> read(const json& row, ImagesOfRows kind = ImagesOfRows::sounds, RowMedia media = {}) {
  const Result<RecordFormat> format = RecordFormat::of(row, "", kind);
  if (!format) return format.error();
  return format->read(row, row.dump(), std::move(media));
}

json row_of(json question, json columns = json::object()) {
  columns["messages"] = {{{"role", "user"}, {"content", std::move(question)}},
                         {{"role", "assistant"}, {"content", "It is."}}};
  return columns;
}

std::string refusal(const json& row, ImagesOfRows kind = ImagesOfRows::sounds) {
  const auto record = read(row, kind);
  if (!record) {
    EXPECT_THAT(record.error().message, IsOneLine());
  }
  return record ? "accepted" : record.error().message;
}

/// Returns the names of a record's sounds, and the first message's content.
std::string shown(const json& row) {
  const Record record = read(row).value_or_throw();
  std::string text;
  for (const RowImage& sound : record.images) text += sound.name + (sound.content.empty() ? "" : "*") + " ";
  return text + json::parse(record.messages.front().fields)["content"].dump();
}

TEST(SoundRows, parts_and_columns_give_sounds_in_the_order_of_their_places) {
  const json text{{"type", "text"}, {"text", "Is it?"}}, part{{"type", "audio"}};
  constexpr const char* one = R"([{"type":"audio"},{"text":"Is it?","type":"text"}])";
  const auto as = [](const std::string& dumped) { return json::parse(dumped).dump(); };
  EXPECT_EQ(shown(row_of({{{"type", "audio"}, {"audio", "a.wav"}}, text})), "a.wav " + as(one));
  EXPECT_EQ(shown(row_of({{{"type", "audio_url"}, {"audio_url", {{"url", "b.flac"}}}}, text})), "b.flac " + as(one));
  EXPECT_EQ(shown(row_of({{{"type", "audio"}, {"path", "c.wav"}}, text})), "c.wav " + as(one));
  EXPECT_EQ(shown(row_of({part, text}, {{"audio", "d.wav"}})), "d.wav " + as(one));
  EXPECT_EQ(shown(row_of({text}, {{"audios", {"e.wav"}}})), "e.wav " + as(one));
  EXPECT_EQ(shown(row_of({part, text}, {{"audio", {{"bytes", "UklGRg=="}, {"path", nullptr}}}})), "* " + as(one));
  EXPECT_EQ(shown(row_of("Here <audio> is it?", {{"audio", "f.wav"}})),
            "f.wav " + as(R"([{"type":"text","text":"Here"},{"type":"audio"},{"type":"text","text":"is it?"}])"));
}

TEST(SoundRows, rows_of_the_other_kind_are_refused_by_the_kind) {
  const json image{{"type", "image"}, {"image", "a.png"}}, sound{{"type", "audio"}, {"audio", "a.wav"}};
  EXPECT_THAT(refusal(row_of({image})), HasSubstr("has an image, but the model reads sounds"));
  EXPECT_THAT(refusal(row_of({sound}), ImagesOfRows::placed), HasSubstr("has a sound, but the model reads images"));
  EXPECT_THAT(refusal(row_of("a", {{"images", {"a.png"}}})),
              HasSubstr("the column \"images\" has images, but the model reads sounds"));
  EXPECT_THAT(refusal(row_of("a", {{"audio", "a.wav"}}), ImagesOfRows::placed),
              HasSubstr("the column \"audio\" has sounds, but the model reads images"));
  EXPECT_THAT(
      refusal(row_of("a", {{"audio", "a.wav"}}), ImagesOfRows::refused),
      HasSubstr("the column \"audio\" is not read here; remove it, or name the model whose processor reads it"));
  EXPECT_THAT(refusal(row_of({{{"type", "audio"}, {"audio", "http://host/a.wav"}}})),
              HasSubstr("sounds are not downloaded here: curl"));
  EXPECT_THAT(refusal(row_of("no place", {{"audios", json::array()}})), "accepted");
  EXPECT_THAT(refusal(row_of("<audio> and <audio>", {{"audio", "a.wav"}})),
              HasSubstr("2 places for sounds (<audio>, or a part without a sound), but 1 sound"));
}

TEST(SoundRows, archives_have_sounds_and_captions) {
  const TempFolder folder;
  const std::string row = row_of("What is it?").dump();
  folder.write("rows.tar", tar_of({{"1.json", row}, {"1.wav", "RIFF"}, {"2.txt", "A bell."}, {"2.0.flac", "fLaC"}}));
  std::vector<Row> rows;
  const Status done = read_rows(
      folder.path() / "rows.tar", RowFileKind::webdataset, [&](Row&& each) { rows.push_back(std::move(each)); },
      Media(all_media).last(1));
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(rows.size(), 2U);
  for (Row& each : rows) {
    const Record record = read(json::parse(each.content), ImagesOfRows::sounds, std::move(each.media)).value_or_throw();
    ASSERT_EQ(record.images.size(), 1U);
    EXPECT_TRUE(record.images.front().member.has_value());
    EXPECT_THAT(record.messages.front().fields, HasSubstr("\"audio\""));
  }
}

}  // namespace
}  // namespace maestro::sound_rows
