// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/value_text.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/parquet/decoded.hpp"

namespace maestro::parquet {
namespace {

using namespace std::string_literals;
using Kind = ValueForm::Kind;

template <class Number>
std::string bytes_of(Number value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string shown(const ValueForm& form, const std::string& bytes) {
  std::string json;
  append_value(form, bytes, json);
  return json;
}

template <class Number>
std::string number(Kind kind, Number value) {
  return shown(ValueForm{kind}, bytes_of(value));
}

TEST(ParquetText, texts_are_escaped) {
  EXPECT_EQ(shown({Kind::text}, "a \"b\"\\\n\t\x01\x7f \xc3\xa9"s), "\"a \\\"b\\\"\\\\\\n\\t\\u0001\x7f \xc3\xa9\"");
  EXPECT_EQ(shown({Kind::text}, ""), "\"\"");
  EXPECT_EQ(refusal([] { shown({Kind::text}, "ab\xff"); }), "a text is not UTF-8 from byte 2 on");
}

TEST(ParquetText, numbers_of_32_and_64_bits_are_numbers_and_others_are_texts) {
  EXPECT_EQ(number(Kind::number, std::int32_t{-7}), "-7");
  EXPECT_EQ(number(Kind::number, std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  ValueForm form{Kind::quoted_number};
  form.bits = 8;
  EXPECT_EQ(shown(form, bytes_of(std::int32_t{-7})), "\"-7\"");
  form.is_signed = false;
  EXPECT_EQ(shown(form, bytes_of(std::int32_t{255})), "\"255\"");
  form.bits = 32;
  EXPECT_EQ(shown(form, bytes_of(std::int32_t{-1})), "\"4294967295\"");
  form.bits = 64;
  EXPECT_EQ(shown(form, bytes_of(std::int64_t{-1})), "\"18446744073709551615\"");
}

TEST(ParquetText, fractions_are_the_shortest_text_of_their_value) {
  EXPECT_EQ(number(Kind::float64, 0.1), "0.1");
  EXPECT_EQ(number(Kind::float64, std::numeric_limits<double>::infinity()), "null");
  const std::pair<float, const char*> cases[] = {
      {1.5F, "1.5"},     {-0.0F, "-0"},         {0.1F, "0.1"},         {123456789.0F, "123456790"},
      {1e10F, "1e+10"},  {1e-5F, "0.00001"},    {1e-7F, "1e-7"},       {3.4028235e38F, "3.4028235e+38"},
      {1e-45F, "1e-45"}, {-1234.5F, "-1234.5"}, {9.5e9F, "9500000000"}};
  for (const auto& [value, text] : cases) EXPECT_EQ(number(Kind::float32, value), "\"" + std::string(text) + "\"");
  EXPECT_EQ(number(Kind::float32, std::numeric_limits<float>::quiet_NaN()), "\"nan\"");
  EXPECT_EQ(number(Kind::float32, -std::numeric_limits<float>::infinity()), "\"-inf\"");
  EXPECT_EQ(number(Kind::float16, std::uint16_t{0x3C00}), "\"1\"");
  EXPECT_EQ(number(Kind::float16, std::uint16_t{0x2E66}), "\"0.0999755859375\"");
  EXPECT_EQ(number(Kind::float16, std::uint16_t{0x0001}), "\"5.960464477539063e-8\"");  // the least above 0
  EXPECT_EQ(number(Kind::float16, std::uint16_t{0xFC00}), "\"-inf\"");
}

TEST(ParquetText, decimals_have_their_scale) {
  ValueForm form{Kind::decimal};
  form.scale = 2;
  EXPECT_EQ(shown(form, "\x30\x39"s), "\"123.45\"");
  EXPECT_EQ(shown(form, "\xFB"s), "\"-0.05\"");
  EXPECT_EQ(shown(form, "\xFF\x00"s), "\"-2.56\"");
  EXPECT_EQ(shown(form, ""), "\"0.00\"");
  form.scale = 12;
  EXPECT_EQ(shown(form, "\x0C"s), "\"1.2E-11\"");
  EXPECT_EQ(shown(form, "\0"s), "\"0E-12\"");
  form.scale = 0;
  EXPECT_EQ(shown(form, "\x7F"s + std::string(15, '\xFF')), "\"170141183460469231731687303715884105727\"");
  form.scale = 2;
  form.bits = 64;  // an integer, little-endian
  EXPECT_EQ(shown(form, bytes_of(std::int32_t{-12345})), "\"-123.45\"");
  EXPECT_EQ(shown(form, bytes_of(std::numeric_limits<std::int64_t>::min())), "\"-92233720368547758.08\"");
}

TEST(ParquetText, days_are_dates_of_the_gregorian_calendar) {
  EXPECT_EQ(number(Kind::date, std::int32_t{0}), "\"1970-01-01\"");
  EXPECT_EQ(number(Kind::date, std::int32_t{-1}), "\"1969-12-31\"");
  EXPECT_EQ(number(Kind::date, std::int32_t{19'782}), "\"2024-02-29\"");
  EXPECT_EQ(number(Kind::date, std::int32_t{-719'162}), "\"0001-01-01\"");
  EXPECT_EQ(number(Kind::date, std::int32_t{2'932'896}), "\"9999-12-31\"");
  EXPECT_EQ(number(Kind::date, std::numeric_limits<std::int32_t>::min()), "\"-5877641-06-23\"");
}

TEST(ParquetText, times_have_the_digits_of_their_unit) {
  ValueForm form{Kind::timestamp};
  form.unit = TimeUnit::ms;
  EXPECT_EQ(shown(form, bytes_of(std::int64_t{-1})), "\"1969-12-31 23:59:59.999\"");
  form.unit = TimeUnit::us;
  form.utc = true;
  EXPECT_EQ(shown(form, bytes_of(std::int64_t{1'577'934'245'000'001})), "\"2020-01-02 03:04:05.000001Z\"");
  form.unit = TimeUnit::ns;
  EXPECT_EQ(shown(form, bytes_of(std::numeric_limits<std::int64_t>::min())), "\"1677-09-21 00:12:43.145224192Z\"");
  form.kind = Kind::time;
  EXPECT_EQ(shown(form, bytes_of(std::int64_t{12'345'678'901})), "\"00:00:12.345678901\"");
  form.unit = TimeUnit::ms;
  EXPECT_EQ(shown(form, bytes_of(std::int32_t{86'399'999})), "\"23:59:59.999\"");
  EXPECT_EQ(refusal([&] { shown(form, bytes_of(std::int32_t{86'400'000})); }), "time 86400000 is not within a day");
  EXPECT_EQ(refusal([&] { shown(form, bytes_of(std::int32_t{-1})); }), "time -1 is not within a day");
  // Nanoseconds of Julian day 2,440,589, the second of January 1970.
  EXPECT_EQ(shown({Kind::int96}, bytes_of(std::int64_t{3'661'000'000'007}) + bytes_of(std::int32_t{2'440'589})),
            "\"1970-01-02 01:01:01.000000007\"");
}

TEST(ParquetText, other_bytes_become_a_word) {
  EXPECT_EQ(shown({Kind::uuid}, "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef"s),
            "\"01234567-89ab-cdef-0123-456789abcdef\"");
  EXPECT_EQ(shown({Kind::binary}, "\xff"), "\"(binary)\"");
  EXPECT_EQ(shown({Kind::boolean}, "\1") + shown({Kind::boolean}, "\0"s), "truefalse");
}

TEST(ParquetText, a_meaning_belongs_to_some_types_only) {
  SchemaElement element;
  element.name = "x";
  element.type = PhysicalType::int32;
  element.meaning = Meaning::integer;
  element.integer_bits = 32;
  EXPECT_EQ(form_of(element).kind, Kind::number);
  element.integer_bits = 16;
  EXPECT_EQ(form_of(element).kind, Kind::quoted_number);
  const std::string wrong = "column \"x\" has a logical type that its physical type cannot have";
  element.integer_bits = 64;
  EXPECT_EQ(refusal([&] { (void)form_of(element); }), wrong);
  element.integer_bits = 7;
  EXPECT_EQ(refusal([&] { (void)form_of(element); }), wrong);
  for (const Meaning meaning : {Meaning::text, Meaning::uuid, Meaning::float16, Meaning::list}) {
    element.meaning = meaning;
    EXPECT_EQ(refusal([&] { (void)form_of(element); }), wrong);
  }
  element.meaning = Meaning::decimal;
  element.scale = -1;
  EXPECT_EQ(refusal([&] { (void)form_of(element); }), "column \"x\" has a scale of -1");
  element.type = PhysicalType::fixed_bytes;
  EXPECT_EQ(refusal([&] { (void)form_of(element); }), "column \"x\" has values of no size");
}

}  // namespace
}  // namespace maestro::parquet
