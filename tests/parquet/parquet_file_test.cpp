// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/parquet_file.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/parquet/made_file.hpp"
#include "tests/parquet/read_file.hpp"

namespace maestro::parquet {
namespace {

using namespace codes;
using namespace std::string_literals;
namespace fs = std::filesystem;

std::vector<nlohmann::json> parsed(const std::string& lines) {
  std::vector<nlohmann::json> made;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) made.push_back(nlohmann::json::parse(line, nullptr, false));
  return made;
}

/// Returns a page of int32 with levels (bytes of the runs, or nothing) in front of its values.
std::string numbers_page(int entries, const std::string& repetition, const std::string& definition,
                         const std::vector<std::int32_t>& values) {
  std::string body;
  for (const std::string& levels : {repetition, definition}) {
    if (!levels.empty()) body += std::string(1, static_cast<char>(levels.size())) + "\0\0\0"s + levels;
  }
  for (const std::int32_t value : values) body.append(reinterpret_cast<const char*>(&value), sizeof value);
  return page(data_page(entries), body);
}

TEST(ParquetFile, files_of_four_writers_have_the_rows_that_pyarrow_reads) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(MAESTRO_SOURCE_DIR) / "tests/parquet/files")) {
    if (entry.path().extension() != ".parquet") continue;
    const std::string stem = entry.path().stem().string();
    std::ifstream wanted(entry.path().parent_path() / (stem.substr(0, stem.find('-')) + ".jsonl"));
    const std::string lines{std::istreambuf_iterator<char>(wanted), {}};
    EXPECT_EQ(parsed(lines_of(entry.path())), parsed(lines)) << stem;
    ++files;
  }
  EXPECT_EQ(files, 27);
}

TEST(ParquetFile, rows_are_numbered_in_the_file_and_by_row_group) {
  const auto file = ParquetFile::open(fs::path(MAESTRO_SOURCE_DIR) / "tests/parquet/files/numbers-none.parquet");
  std::vector<std::pair<std::int64_t, std::int64_t>> places;
  while ((*file)->next().value_or_throw()) places.emplace_back((*file)->row().row_group, (*file)->row().row);
  ASSERT_EQ(places.size(), 14u);
  EXPECT_EQ(places[8], std::pair(std::int64_t{0}, std::int64_t{8}));
  EXPECT_EQ(places[9], std::pair(std::int64_t{1}, std::int64_t{9}));
}

TEST(ParquetFile, a_repeated_value_without_an_annotation_is_a_list) {
  MadeFile file({group("schema", 1), value("n", boolean, repeated)}, 3);
  file.column(boolean, 4, page(data_page(4), "\x02\0\0\0\x03\x02\x02\0\0\0\x03\x07\x05"s));
  EXPECT_EQ(rows_of(file.bytes()), "{\"n\":[true,false]}\n{\"n\":[true]}\n{\"n\":[]}\n");
}

TEST(ParquetFile, lists_of_older_writers_repeat_the_element_itself) {
  MadeFile values({group("schema", 1), group("a", 1, optional, list), value("array", boolean, repeated)});
  values.column(boolean, 2, page(data_page(2), "\x02\0\0\0\x03\x02\x02\0\0\0\x04\x02\x01"s));
  EXPECT_EQ(rows_of(values.bytes()), "{\"a\":[true,false]}\n");
  for (const char* name : {"array", "a_tuple"}) {  // a group of one field with such a name is the element
    MadeFile groups({group("schema", 1), group("a", 1, optional, list), group(name, 1, repeated), value("x", boolean)});
    groups.column(boolean, 2, page(data_page(2), "\x02\0\0\0\x03\x02\x02\0\0\0\x04\x02\x01"s));
    EXPECT_EQ(rows_of(groups.bytes()), "{\"a\":[{\"x\":true},{\"x\":false}]}\n") << name;
  }
  MadeFile levels({group("schema", 1), group("a", 1, optional, list), group("list", 1, repeated), value("x", boolean)});
  levels.column(boolean, 2, page(data_page(2), "\x02\0\0\0\x03\x02\x02\0\0\0\x04\x02\x01"s));
  EXPECT_EQ(rows_of(levels.bytes()), "{\"a\":[true,false]}\n");
}

TEST(ParquetFile, a_map_is_a_list_of_keys_and_values) {
  MadeFile file({group("schema", 1), group("m", 1, optional, map), group("key_value", 2, repeated),
                 value("key", byte_array, 0, utf8), value("value", int32, optional)});
  file.column(byte_array, 1, page(data_page(1), "\x02\0\0\0\x02\0\x02\0\0\0\x02\x02\x01\0\0\0k"s));
  file.column(int32, 1, page(data_page(1), "\x02\0\0\0\x02\0\x02\0\0\0\x02\x03\x07\0\0\0"s));
  EXPECT_EQ(rows_of(file.bytes()), "{\"m\":[{\"key\":\"k\",\"value\":7}]}\n");
}

TEST(ParquetFile, rows_and_lists_continue_on_the_next_page) {
  // Rows [1, 2, 3] and [], whose first list spans three pages, one of them empty.
  MadeFile file({group("schema", 1), value("n", byte_array, repeated, utf8)}, 2);
  const std::string one = page(data_page(1), "\x02\0\0\0\x02\0\x02\0\0\0\x02\x01\x01\0\0\0a"s);
  const std::string empty = page(data_page(0), std::string(8, '\0'));
  const std::string two = page(data_page(3), "\x02\0\0\0\x03\x03\x02\0\0\0\x03\x03\x01\0\0\0b\x01\0\0\0c"s);
  file.column(byte_array, 4, one + empty + two);
  EXPECT_EQ(rows_of(file.bytes()), "{\"n\":[\"a\",\"b\",\"c\"]}\n{\"n\":[]}\n");
}

TEST(ParquetFile, long_lists_of_numbers_are_passed_over_by_runs) {
  // A row of 2^27 numbers without their values, which nobody reads, and a row of one.
  constexpr int count = 1 << 27;
  MadeFile file({group("schema", 1), value("n", int32, repeated)}, 2);
  const std::string first = numbers_page(1, "\x02\0"s, "\x02\x01"s, {7});
  const std::string many = numbers_page(count, "\x80\x80\x80\x80\x01\x01"s, "\x80\x80\x80\x80\x01\x01"s, {});
  file.column(int32, count + 2, first + many + first);
  EXPECT_EQ(rows_of(file.bytes()), "{\"n\":\"(numbers)\"}\n{\"n\":\"(numbers)\"}\n");
}

TEST(ParquetFile, levels_may_have_the_deprecated_encoding) {
  MadeFile file({group("schema", 1), value("n", int32, optional)}, 3);
  wire::PageHeader header = data_page(3);
  header.data_page_header.definition_level_encoding = 4;
  file.column(int32, 3, page(header, "\xA0\x05\0\0\0\x06\0\0\0"s));  // bits 1 0 1
  EXPECT_EQ(rows_of(file.bytes()), "{\"n\":5}\n{\"n\":null}\n{\"n\":6}\n");
}

TEST(ParquetFile, a_row_group_may_be_empty) {
  MadeFile file({group("schema", 1), value("n", int32)}, 0);
  file.column(int32, 0, "");
  file.metadata.row_groups[0].columns[0].meta_data.data_page_offset = 0;  // as pyarrow writes it
  EXPECT_EQ(rows_of(file.bytes()), "");
}

TEST(ParquetFile, pages_of_an_index_are_passed_over) {
  MadeFile file({group("schema", 1), value("n", int32)}, 1);
  wire::PageHeader index;
  index.type = 1;
  file.column(int32, 1, page(index, "anything") + numbers_page(1, "", "", {3}));
  EXPECT_EQ(rows_of(file.bytes()), "{\"n\":3}\n");
}

}  // namespace
}  // namespace maestro::parquet
