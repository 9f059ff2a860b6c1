// SPDX-License-Identifier: Apache-2.0
// The expected bytes were encoded with Google's protobuf library and TensorBoard's record writer.
#include "runtime/observe/tensorboard.hpp"

#include <gmock/gmock.h>

#include "tests/observe/temporary_folder.hpp"

namespace maestro {
namespace {

using TensorBoardFile = TemporaryFolder;

std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {digits[byte >> 4], digits[byte & 15]};
  }
  return out;
}

TEST(Crc32c, matches_the_vectors_of_rfc_3720) {
  std::string rising, falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(falling), 0x113fdb5cu);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(TensorBoard, encodes_a_scalar_event) {
  // wall_time 1.5; step 300; summary { value { tag "a/loss" simple_value 2.5 } }
  EXPECT_EQ(hex(encode_scalar_event({"a/loss", 300, 2.5, 1.5})),
            "09000000000000f83f"
            "10ac02"
            "2a0f"
            "0a0d"
            "0a06612f6c6f7373"
            "1500002040");
}

TEST(TensorBoard, encodes_the_version_event) {
  EXPECT_EQ(hex(encode_version_event(1.5)),
            "09000000000000f83f"
            "1a0d"
            "627261696e2e4576656e743a32");
}

TEST(TensorBoard, encodes_the_start_of_a_session) {
  // wall_time 1.5; step 300; session_log { status START }
  EXPECT_EQ(hex(encode_start_event(300, 1.5)),
            "09000000000000f83f"
            "10ac02"
            "3a020801");
}

TEST(TensorBoard, a_negative_step_takes_ten_bytes_as_int64_does) {
  const auto event = encode_scalar_event({"t", -1, 0, 0});
  EXPECT_THAT(hex(event), testing::HasSubstr("10ffffffffffffffffff01"));
}

TEST(TensorBoard, frames_a_record_with_its_length_and_two_checks) {
  EXPECT_EQ(hex(tf_record("payload")),
            "0700000000000000"
            "bbd79f11"
            "7061796c6f6164"
            "9ed46475");
}

TEST_F(TensorBoardFile, holds_the_version_and_then_the_scalars) {
  std::string expected = tf_record(encode_version_event(100.25));
  std::filesystem::path path;
  {
    auto writer = TensorBoardWriter::create(folder_ / "tb", 100.25);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    path = writer->path();
    for (int step = 1; step <= 3; ++step) {
      const ScalarEvent event{"student/loss", step, 1.0 / step, 100.5 + step};
      ASSERT_TRUE(writer->add(event).ok());
      expected += tf_record(encode_scalar_event(event));
    }
    ASSERT_TRUE(writer->flush().ok());
    EXPECT_EQ(contents_of(path), expected);
  }
  EXPECT_EQ(contents_of(path), expected);
  EXPECT_THAT(path.filename().string(), testing::StartsWith("events.out.tfevents.100."));
}

TEST_F(TensorBoardFile, an_error_names_the_file) {
  const auto writer = TensorBoardWriter::create("/proc/nowhere", 1);
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(writer.error().message, testing::StartsWith("cannot write /proc/nowhere/events.out.tfevents.1."));
}

}  // namespace
}  // namespace maestro
