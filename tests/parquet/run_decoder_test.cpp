// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/run_decoder.hpp"

#include <gtest/gtest.h>

#include "tests/parquet/decoded.hpp"

namespace maestro::parquet {
namespace {

using namespace std::literals;

std::vector<std::uint32_t> run_values(const std::string& bytes, unsigned width, int count) {
  RunDecoder runs(bytes, width);
  std::vector<std::uint32_t> made;
  for (int at = 0; at < count; ++at) made.push_back(runs.next());
  return made;
}

std::vector<std::uint32_t> levels(const std::string& bytes, unsigned most, Encoding encoding, int count) {
  LevelDecoder decoder(bytes, most, encoding);
  std::vector<std::uint32_t> made;
  for (int at = 0; at < count; ++at) made.push_back(decoder.next());
  return made;
}

using Values = std::vector<std::uint32_t>;

TEST(ParquetRuns, packed_values_are_those_of_the_specifications_example) {  // Encodings.md: 0 to 7 in 3 bits
  EXPECT_EQ(run_values("\x03\x88\xC6\xFA", 3, 8), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ParquetRuns, runs_of_both_kinds_follow_one_another) {
  EXPECT_EQ(run_values("\x06\x05\x03\x88\xC6\xFA\x04\x02", 3, 13), (Values{5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7, 2, 2}));
}

TEST(ParquetRuns, values_have_up_to_32_bits) {
  EXPECT_EQ(run_values("\x04\xFF\xFF\xFF\xFF"s, 32, 2), (Values{0xFFFFFFFF, 0xFFFFFFFF}));
  EXPECT_EQ(run_values("\x03"s + std::string(28, '\0') + "\xFE\xFF\xFF\xFF", 32, 8).back(), 0xFFFFFFFEu);
  EXPECT_EQ(run_values("\x04"s, 0, 2), (Values{0, 0}));
  EXPECT_EQ(run_values("\x03"s, 0, 8), Values(8, 0));
}

TEST(ParquetRuns, the_last_run_may_lack_values_that_do_not_exist) {
  EXPECT_EQ(run_values("\x03\x88", 3, 2), (Values{0, 1}));
}

TEST(ParquetRuns, damaged_runs_are_refused) {
  EXPECT_EQ(refusal([] { run_values("\x03\x88\xC6\xFA", 3, 9); }), "the bytes end inside of a value");
  EXPECT_EQ(refusal([] { run_values("\x05\x88", 1, 9); }), "a run of packed values ends early");
  EXPECT_EQ(refusal([] { run_values("\x06\x08", 3, 1); }), "a run's value has more bits than its type");
  EXPECT_EQ(refusal([] { run_values("", 33, 1); }), "values of 33 bits; at most 32 are valid");
  EXPECT_EQ(refusal([] { run_values(std::string(10, '\x80'), 1, 1); }), "an integer has more than 64 bits");
  EXPECT_EQ(refusal([] { run_values(std::string(20, '\0'), 1, 1); }), "the bytes end inside of a value");  // empty runs
}

TEST(ParquetRuns, a_run_of_equal_values_is_passed_over_at_once) {
  RunDecoder runs("\x0A\x01\x02\x00"sv, 1);  // five times 1, then a 0
  EXPECT_EQ(runs.next(), 1u);
  EXPECT_EQ(runs.repeats(), 4u);
  runs.skip(4);
  EXPECT_EQ(runs.next(), 0u);
}

TEST(ParquetLevels, deprecated_packing_has_the_highest_bit_first) {  // Encodings.md: 0 to 7 in 3 bits
  EXPECT_EQ(levels("\x05\x39\x77", 7, Encoding::bit_packed, 8), (Values{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(refusal([] { levels("\x05", 7, Encoding::bit_packed, 3); }), "the levels end early");
}

TEST(ParquetLevels, a_level_above_the_maximum_is_refused) {
  EXPECT_EQ(levels("\x02\x02", 2, Encoding::rle, 1), Values{2});
  EXPECT_EQ(refusal([] { levels("\x02\x03", 2, Encoding::rle, 1); }), "a level is above its maximum");
  EXPECT_EQ(levels("", 0, Encoding::rle, 3), (Values{0, 0, 0}));
}

}  // namespace
}  // namespace maestro::parquet
