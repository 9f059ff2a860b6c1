// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/compression.hpp"

#include <gtest/gtest.h>

#include "tests/parquet/decoded.hpp"

namespace maestro::parquet {
namespace {

using namespace std::string_literals;

const std::string text = "hello hello hello hello ";

/// The text, compressed by other programs.
const std::string snappy = "\x18\x14hello F\x06\x00"s;
const std::string gzip =
    "\x1f\x8b\x08\0\0\0\0\0\x02\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\xc0\x20\x01\xd6\x41\xe2\xd0\x18\0\0\0"s;
const std::string zstd = "\x28\xb5\x2f\xfd\x20\x18\x65\0\0\x30hello \x01\x00\xf1\x4a\x11"s;
const std::string lz4 = "\x69hello \x06\0\x50"s + "ello "s;
const std::string brotli = "\x1b\x17\0\0\x24\x40\x6a\x90\x65\xea\xf0\x9c\x0e"s;

std::string decompressed(Codec codec, const std::string& stored, std::size_t bytes) {
  std::string page(bytes, '?');
  decompress(codec, stored, page);
  return page;
}

TEST(ParquetCompression, every_codec_gives_the_text) {
  EXPECT_EQ(decompressed(Codec::uncompressed, text, text.size()), text);
  EXPECT_EQ(decompressed(Codec::snappy, snappy, text.size()), text);
  EXPECT_EQ(decompressed(Codec::gzip, gzip, text.size()), text);
  EXPECT_EQ(decompressed(Codec::gzip, gzip + gzip, 2 * text.size()), text + text);
  EXPECT_EQ(decompressed(Codec::zstd, zstd, text.size()), text);
  EXPECT_EQ(decompressed(Codec::lz4_raw, lz4, text.size()), text);
  EXPECT_EQ(decompressed(Codec::brotli, brotli, text.size()), text);
}

TEST(ParquetCompression, lz4_is_read_in_hadoops_frames_and_as_a_plain_block) {
  const std::string frame = "\0\0\0\x18\0\0\0\x0f"s + lz4;
  EXPECT_EQ(decompressed(Codec::lz4_hadoop, frame, text.size()), text);
  EXPECT_EQ(decompressed(Codec::lz4_hadoop, frame + frame, 2 * text.size()), text + text);
  EXPECT_EQ(decompressed(Codec::lz4_hadoop, lz4, text.size()), text);
}

TEST(ParquetCompression, a_page_of_another_size_or_with_damage_is_refused) {
  for (const auto& [codec, stored] : {std::pair(Codec::uncompressed, text),
                                      {Codec::snappy, snappy},
                                      {Codec::gzip, gzip},
                                      {Codec::zstd, zstd},
                                      {Codec::lz4_raw, lz4},
                                      {Codec::lz4_hadoop, lz4},
                                      {Codec::brotli, brotli}}) {
    const std::string wanted = "its " + name_of(codec) + " bytes are damaged, or do not have the page's size";
    EXPECT_EQ(refusal([&] { decompressed(codec, stored, text.size() - 1); }), wanted);
    EXPECT_EQ(refusal([&] { decompressed(codec, stored, text.size() + 1); }), wanted);
    EXPECT_EQ(refusal([&] { decompressed(codec, stored.substr(0, stored.size() / 2), text.size()); }), wanted);
    EXPECT_EQ(refusal([&] { decompressed(codec, "", text.size()); }), wanted);
    EXPECT_EQ(decompressed(codec, "", 0), "");  // a page of nulls
  }
}

}  // namespace
}  // namespace maestro::parquet
