// SPDX-License-Identifier: Apache-2.0
// The bytes are the examples of Encodings.md.
#include "runtime/parquet/delta_decoder.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "tests/parquet/decoded.hpp"

namespace maestro::parquet {
namespace {

using namespace std::literals;
using Integers = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

Integers integers(const std::string& bytes, int count) {
  DeltaIntegers decoder(bytes);
  Integers made;
  for (int at = 0; at < count; ++at) made.push_back(decoder.next());
  return made;
}

/// Block of 8 values with a miniblock; 4 values, of which the first is 5; deltas are the least delta, 0.
const std::string four_fives = "\x08\x01\x04\x0A\x00\x00"s;

TEST(ParquetDelta, equal_differences_take_no_bits) {
  EXPECT_EQ(integers("\x08\x01\x05\x02\x02\x00"s, 5), (Integers{1, 2, 3, 4, 5}));
}

TEST(ParquetDelta, differences_are_added_to_the_least_one) {
  EXPECT_EQ(integers("\x08\x01\x08\x0E\x03\x02\xC0\x3F"s, 8), (Integers{7, 5, 3, 1, 2, 3, 4, 5}));
}

TEST(ParquetDelta, integers_wrap_around) {
  const std::string least_then_most = "\x08\x01\x02"s + std::string(9, '\xFF') + "\x01" + "\x01\x00"s;  // delta -1
  EXPECT_EQ(integers(least_then_most, 2),
            (Integers{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}));
}

TEST(ParquetDelta, differences_have_up_to_64_bits) {
  const std::string wide = "\x08\x01\x03\x00\x00\x40"s + std::string(8, '\xFF') + "\x02"s + std::string(55, '\0');
  EXPECT_EQ(integers(wide, 3), (Integers{0, -1, 1}));
  // 63 bits: the second value begins at the last bit of a byte.
  const std::string odd = "\x08\x01\x03\x00\x00\x3F"s + std::string(7, '\0') + "\x80\x02"s + std::string(55, '\0');
  EXPECT_EQ(integers(odd, 3), (Integers{0, 0, 5}));
}

TEST(ParquetDelta, impossible_headers_are_refused) {
  const std::string sizes = "a header of DELTA_BINARY_PACKED has impossible block sizes";
  EXPECT_EQ(refusal([] { integers("\x00\x01\x05\x02"s, 1); }), sizes);
  EXPECT_EQ(refusal([] { integers("\x08\x00\x05\x02"s, 1); }), sizes);
  EXPECT_EQ(refusal([] { integers("\x08\x03\x05\x02"s, 1); }), sizes);
  EXPECT_EQ(refusal([] { integers("\x08\x02\x05\x02"s, 1); }), "a miniblock of DELTA_BINARY_PACKED ends inside a byte");
  EXPECT_EQ(refusal([] { integers("\x08\x01\x05\x02\x02\x41"s, 2); }),
            "a miniblock of DELTA_BINARY_PACKED has values of more than 64 bits");
  EXPECT_EQ(refusal([] { integers("\x08\x01\x05\x02\x02\x02"s, 2); }), "a miniblock of DELTA_BINARY_PACKED ends early");
  EXPECT_EQ(refusal([] { integers("\x08\x01\x01\x02"s, 2); }), "DELTA_BINARY_PACKED has fewer values than its page");
}

TEST(ParquetDelta, the_bytes_after_the_integers_are_found_without_reading_them) {
  EXPECT_EQ(DeltaIntegers::bytes_after("\x08\x01\x08\x0E\x03\x02\xC0\x3Frest"sv), "rest");
  EXPECT_EQ(DeltaIntegers::bytes_after("\x08\x01\x01\x0Erest"sv), "rest");
  EXPECT_EQ(refusal([] { (void)DeltaIntegers::bytes_after("\x08\x01\xFF\xFF\xFF\xFF\xFF\xFF\x01\x02\x02\x00"sv); }),
            "DELTA_BINARY_PACKED has more values than a page");
}

TEST(ParquetDelta, byte_arrays_follow_their_lengths) {
  DeltaLengthDecoder decoder("\x08\x01\x04\x0A\x00\x01\x02HelloWorldFoobarABCDEF"sv);  // lengths 5 5 6 6
  EXPECT_EQ(next_values(decoder, 4), (Texts{"Hello", "World", "Foobar", "ABCDEF"}));
  const std::string cut_bytes = four_fives + "HelloWorldFoo";
  DeltaLengthDecoder cut(cut_bytes);
  EXPECT_EQ(refusal([&] { next_values(cut, 3); }), "the bytes end inside of a value");
  DeltaLengthDecoder negative("\x08\x01\x01\x01"sv);
  EXPECT_EQ(refusal([&] { next_values(negative, 1); }), "a byte array has a negative length");
}

TEST(ParquetDelta, byte_arrays_share_the_start_of_the_value_before) {
  // axis, axle, babble, babyhood: shared 0 2 0 3 (deltas 2 -2 3: -2 + 4 0 5 in 3 bits), lengths 4 2 6 5 (-2 4 -1).
  const std::string shared = "\x08\x01\x04\x00\x03\x03\x44\x01\x00"s, lengths = "\x08\x01\x04\x08\x03\x03\x70\x00\x00"s;
  const std::string words = shared + lengths + "axislebabbleyhood";
  DeltaBytesDecoder decoder(words, 0);
  EXPECT_EQ(next_values(decoder, 4), (Texts{"axis", "axle", "babble", "babyhood"}));
  DeltaBytesDecoder fixed(words, 4);
  EXPECT_EQ(refusal([&] { next_values(fixed, 3); }), "a value does not have its type's size");
  DeltaBytesDecoder beyond(
      "\x08\x01\x01\x02\x08\x01\x01\x02"
      "a"sv,
      0);
  EXPECT_EQ(refusal([&] { next_values(beyond, 1); }), "a byte array shares more bytes than the value before has");
}

}  // namespace
}  // namespace maestro::parquet
