// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/value_decoder.hpp"

#include <gtest/gtest.h>

#include "tests/parquet/decoded.hpp"

namespace maestro::parquet {
namespace {

using namespace std::string_literals;
using Texts = std::vector<std::string>;

constexpr ValueType booleans{PhysicalType::boolean, 0}, ints{PhysicalType::int32, 0}, times{PhysicalType::int96, 0},
    floats{PhysicalType::float32, 0}, arrays{PhysicalType::byte_array, 0}, triples{PhysicalType::fixed_bytes, 3};

Texts page_values(Encoding encoding, const std::string& page, ValueType type, int count,
                  const Dictionary* dictionary = nullptr) {
  return next_values(*make_value_decoder(encoding, page, type, dictionary), count);
}

TEST(ParquetValues, plain_values_have_the_width_of_their_type) {
  EXPECT_EQ(page_values(Encoding::plain, "abcdefgh", ints, 2), (Texts{"abcd", "efgh"}));
  EXPECT_EQ(page_values(Encoding::plain, "abcdefghijkl", times, 1), Texts{"abcdefghijkl"});
  EXPECT_EQ(page_values(Encoding::plain, "abcdef", triples, 2), (Texts{"abc", "def"}));
  EXPECT_EQ(page_values(Encoding::plain, "\x02\0\0\0hi\0\0\0\0\x01\0\0\0!"s, arrays, 3), (Texts{"hi", "", "!"}));
  EXPECT_EQ(refusal([] { page_values(Encoding::plain, "\x03\0\0\0hi"s, arrays, 1); }),
            "the bytes end inside of a value");
  EXPECT_EQ(refusal([] { page_values(Encoding::plain, "\xFF\xFF\xFF\xFFhi"s, arrays, 1); }),
            "the bytes end inside of a value");
}

TEST(ParquetValues, booleans_are_bits_or_runs) {
  const Texts wanted{"\1"s, "\0"s, "\1"s, "\1"s};
  EXPECT_EQ(page_values(Encoding::plain, "\x0D", booleans, 4), wanted);
  EXPECT_EQ(page_values(Encoding::rle, "\x02\0\0\0\x03\x0D"s, booleans, 4), wanted);
  EXPECT_EQ(refusal([] { page_values(Encoding::plain, "\x0D", booleans, 9); }), "the booleans end early");
}

TEST(ParquetValues, a_dictionary_holds_values_by_number) {
  const std::string page = "\x01\0\0\0a\x02\0\0\0bc"s;
  const Dictionary dictionary(page, 2, arrays);
  // Indices of one bit: 1 three times, then 0 1.
  EXPECT_EQ(page_values(Encoding::rle_dictionary, "\x01\x06\x01\x03\x02", arrays, 5, &dictionary),
            (Texts{"bc", "bc", "bc", "a", "bc"}));
  EXPECT_EQ(page_values(Encoding::plain_dictionary, "\x01\x06\x01", arrays, 1, &dictionary), Texts{"bc"});
  EXPECT_EQ(refusal([&] { page_values(Encoding::rle_dictionary, "\x02\x02\x02", arrays, 1, &dictionary); }),
            "a value has number 2 of its dictionary, which has 2");
  EXPECT_EQ(refusal([] { page_values(Encoding::rle_dictionary, "\x01\x06\x01", arrays, 1); }),
            "the page needs a dictionary, and the column has none");
  EXPECT_EQ(refusal([&] { Dictionary(page, 3, arrays); }), "the dictionary ends early");
  EXPECT_EQ(refusal([&] { Dictionary("\x09\0\0\0a"s, 1, arrays); }), "the bytes end inside of a value");
  EXPECT_EQ(Dictionary("abcdefgh", 2, ints).at(1), "efgh");
}

TEST(ParquetValues, split_streams_are_joined) {  // the example of Encodings.md
  EXPECT_EQ(page_values(Encoding::byte_stream_split, "\xAA\x00\xA3\xBB\x11\xB4\xCC\x22\xC5\xDD\x33\xD6"s, floats, 3),
            (Texts{"\xAA\xBB\xCC\xDD"s, "\x00\x11\x22\x33"s, "\xA3\xB4\xC5\xD6"s}));
  EXPECT_EQ(refusal([] { page_values(Encoding::byte_stream_split, "abc", floats, 1); }),
            "BYTE_STREAM_SPLIT has an incomplete value");
  EXPECT_EQ(refusal([] { page_values(Encoding::byte_stream_split, "abcd", floats, 2); }),
            "BYTE_STREAM_SPLIT has fewer values than its page");
}

TEST(ParquetValues, encodings_that_a_type_does_not_have_are_refused_by_name) {
  const auto name = [](Encoding encoding, ValueType type) {
    return refusal([&] { page_values(encoding, "abcdefgh", type, 1); });
  };
  EXPECT_EQ(name(Encoding::rle, ints), "encoding RLE is not defined for the column's type");
  EXPECT_EQ(name(Encoding::delta_binary_packed, arrays),
            "encoding DELTA_BINARY_PACKED is not defined for the column's type");
  EXPECT_EQ(name(Encoding::delta_byte_array, ints), "encoding DELTA_BYTE_ARRAY is not defined for the column's type");
  EXPECT_EQ(name(Encoding::delta_length_byte_array, triples),
            "encoding DELTA_LENGTH_BYTE_ARRAY is not defined for the column's type");
  EXPECT_EQ(name(Encoding::byte_stream_split, arrays),
            "encoding BYTE_STREAM_SPLIT is not defined for the column's type");
  EXPECT_EQ(name(Encoding::bit_packed, ints), "encoding BIT_PACKED is not defined for the column's type");
  EXPECT_EQ(name(static_cast<Encoding>(1), ints), "encoding number 1 is not known");
}

}  // namespace
}  // namespace maestro::parquet
