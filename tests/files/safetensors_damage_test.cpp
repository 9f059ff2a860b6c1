// SPDX-License-Identifier: Apache-2.0
// Files that are truncated, altered or made up: each is refused with a line, or is valid.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>

#include "runtime/core/random.hpp"
#include "runtime/files/safetensors.hpp"
#include "tests/data/temp_folder.hpp"
#include "tests/support/one_line.hpp"

namespace maestro {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string sound_file(const TempFolder& folder) {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  std::vector<std::uint8_t> flags{1, 2, 3};
  const std::vector<NamedTensor> tensors{{"w", Tensor(values.data(), DType::f32, {2, 3})},
                                         {"empty", Tensor(nullptr, DType::f32, {0})},
                                         {"flags", Tensor(flags.data(), DType::u8, {3})}};
  const auto written = write_safetensors(folder.path() / "sound", tensors, {{"format", "pt"}});
  EXPECT_TRUE(written.ok());
  return contents_of(folder.path() / "sound");
}

/// Opens the bytes as a file. If that succeeds, reads everything in the file.
Status open_and_touch(const TempFolder& folder, std::string_view bytes) {
  const auto file = SafetensorsFile::open(folder.write("damaged", bytes));
  if (!file) return file.error();
  unsigned sum = 0;
  for (const std::string& name : file->names()) {
    const Result<ConstTensor> tensor = file->tensor(name);
    if (!tensor) return tensor.error();
    for (std::size_t at = 0; at < tensor->bytes(); ++at) sum += std::to_integer<unsigned>(tensor->raw()[at]);
  }
  EXPECT_LE(sum, 255u * bytes.size());
  return {};
}

TEST(DamagedSafetensors, a_file_cut_anywhere_is_refused) {
  const TempFolder folder;
  const std::string sound = sound_file(folder);
  ASSERT_TRUE(open_and_touch(folder, sound).ok());
  for (std::size_t bytes = 0; bytes < sound.size(); ++bytes) {
    const Status opened = open_and_touch(folder, std::string_view(sound).substr(0, bytes));
    ASSERT_FALSE(opened.ok()) << "accepted with " << bytes << " of " << sound.size() << " bytes";
    ASSERT_THAT(opened.error().message, AllOf(HasSubstr("damaged"), IsOneLine()));
  }
  EXPECT_FALSE(open_and_touch(folder, sound + "x").ok()) << "bytes outside of all tensors";
}

std::size_t taken_bytes() {
  return mallinfo2().uordblks + mallinfo2().hblkhd;
}

TEST(DamagedSafetensors, a_header_of_a_million_tensors_takes_little_memory) {
  const TempFolder folder;
  constexpr int count = 1'000'000;
  std::string header = "{";
  for (int at = 0; at < count; ++at) {
    header += (at == 0 ? "\"" : ",\"") + std::to_string(at) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  }
  header += "}";
  std::string length(8, '\0');
  for (std::size_t at = 0; at < 8; ++at) length[at] = static_cast<char>(header.size() >> (8 * at) & 0xff);
  const auto path = folder.write("many", length + header);
  const std::size_t before = taken_bytes();
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->names().size(), std::size_t{count});
  EXPECT_LT(taken_bytes() - before, std::size_t{500} << 20);
}

TEST(DamagedSafetensors, any_flipped_bit_is_refused_in_one_line_or_leaves_a_sound_file) {
  const TempFolder folder;
  const std::string sound = sound_file(folder);
  int refused = 0;
  for (std::size_t at = 0; at < sound.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = sound;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      const Status opened = open_and_touch(folder, damaged);
      if (opened.ok()) continue;
      ++refused;
      ASSERT_THAT(opened.error().message, AllOf(HasSubstr("damaged"), IsOneLine())) << "byte " << at << " bit " << bit;
    }
  }
  EXPECT_GT(refused, 700);  // most of the 1,700 header bits matter; the 216 bits of the data never do
}

TEST(DamagedSafetensors, random_rubbish_in_the_header_is_refused_or_sound) {
  const TempFolder folder;
  const std::string sound = sound_file(folder);
  const std::size_t header_end = sound.size() - 27;
  constexpr std::string_view pieces = "{}[]\",:0123456789eE-+.wF32U8 \\u\n\0\xff";
  Random random(99);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string damaged = sound;
    const std::uint64_t edits = 1 + random.below(4);
    for (std::uint64_t edit = 0; edit < edits; ++edit) {
      damaged[8 + random.below(header_end - 8)] = pieces[random.below(pieces.size())];
    }
    const Status opened = open_and_touch(folder, damaged);
    if (!opened.ok()) {
      ASSERT_THAT(opened.error().message, IsOneLine()) << "trial " << trial << " of seed 99";
    }
  }
}

struct BadHeader {
  std::string header;
  std::string complaint;
};

TEST(DamagedSafetensors, every_kind_of_lie_in_the_header_is_named) {
  const TempFolder folder;
  const std::string tail = R"("shape":[2],"data_offsets":[0,8]}})";
  const std::vector<BadHeader> bad{
      {"[1]", "not a JSON object"},
      {"{\"w\"", "its header is not valid JSON"},
      {R"({"w":[1]})", "tensor w lacks"},
      {R"({"w":{"shape":[2],"data_offsets":[0,8]}})", "tensor w lacks"},
      {R"({"w":{"dtype":"F33",)" + tail, "tensor w has the unknown dtype \"F33\""},
      {R"({"w":{"dtype":7,)" + tail, "unknown dtype 7"},
      {R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "not a list of sizes"},
      {R"({"w":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "not a list of sizes"},
      {R"({"w":{"dtype":"F32","shape":8,"data_offsets":[0,8]}})", "not a list of sizes"},
      {R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "8 bytes, but its shape and dtype need 12"},
      {R"({"w":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}})", "too large for any machine"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "not a pair of positions"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "bytes 8 to 0 of 8"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", "bytes 4 to 12 of 8"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}})", "not a pair of positions"},
      {R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32",)" + tail, "tensor w overlaps"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "tensor w leaves a gap"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "4 bytes outside of all tensors"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32",)" + tail,
       "its header: w: this key stands twice"},
      {R"({"__metadata__":{"a":1},"w":{"dtype":"F32",)" + tail, "__metadata__ has a number under a"},
      {R"({"__metadata__":"x","w":{"dtype":"F32",)" + tail, "__metadata__ is not an object"},
      {R"({"a\nb":{"dtype":"?",)" + tail, "tensor a\\nb"},
  };
  for (const auto& [header, complaint] : bad) {
    SCOPED_TRACE(header);
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(header.size());
    const Status opened = open_and_touch(folder, bytes + header + "12345678");
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::corrupt);
    EXPECT_THAT(opened.error().message, AllOf(HasSubstr("damaged"), HasSubstr(complaint), IsOneLine()));
  }
}

TEST(DamagedSafetensors, deep_nesting_and_huge_numbers_in_the_header_are_named) {
  const TempFolder folder;
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  for (const std::string& value : {deep, std::string("1e999"), std::string(400, '9')}) {
    const std::string header = "{\"w\":{\"dtype\":" + value + ",\"shape\":[2],\"data_offsets\":[0,8]}}";
    std::string bytes(8, '\0');
    for (std::size_t at = 0; at < 4; ++at) bytes[at] = static_cast<char>(header.size() >> (8 * at));
    const Status opened = open_and_touch(folder, bytes + header + "12345678");
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::corrupt);
    EXPECT_THAT(opened.error().message, AllOf(HasSubstr("its header: w.dtype"), IsOneLine()));
  }
}

TEST(DamagedSafetensors, a_header_longer_than_the_file_is_refused_without_reading_it) {
  const TempFolder folder;
  const Status opened = open_and_touch(folder, std::string(8, '\xff') + "{}");
  ASSERT_FALSE(opened.ok());
  EXPECT_THAT(opened.error().message, HasSubstr("claims a header of 18446744073709551615 bytes but has 10"));
}

TEST(DamagedSafetensors, a_header_that_ends_less_than_its_own_length_field_beyond_the_file_is_refused) {
  const TempFolder folder;
  std::string bytes = sound_file(folder);
  const std::size_t size = bytes.size();
  for (std::size_t length = size - 7; length <= size; ++length) {
    for (std::size_t at = 0; at < 8; ++at) bytes[at] = static_cast<char>(length >> (8 * at));
    const Status opened = open_and_touch(folder, bytes);
    ASSERT_FALSE(opened.ok());
    EXPECT_THAT(opened.error().message, HasSubstr("claims a header of " + std::to_string(length) + " bytes but has " +
                                                  std::to_string(size) + " in all; it is truncated"));
  }
}

TEST(DamagedSafetensors, a_missing_file_or_a_folder_is_named) {
  const TempFolder folder;
  const auto missing = SafetensorsFile::open(folder.path() / "none.safetensors");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("none.safetensors: No such file"));
  EXPECT_FALSE(SafetensorsFile::open(folder.path()).ok());
}

}  // namespace
}  // namespace maestro
