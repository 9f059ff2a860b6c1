// SPDX-License-Identifier: Apache-2.0
// Damaged and unsupported files end with an error that names file, row group, row, column and page (PU-1, PU-2).
#include <gtest/gtest.h>
#include <zlib.h>

#include "tests/parquet/made_file.hpp"
#include "tests/parquet/read_file.hpp"

namespace maestro::parquet {
namespace {

using namespace codes;
using namespace std::string_literals;

const std::string two_numbers = "\x01\0\0\0\x02\0\0\0"s;

/// A file with a column "n" of two numbers.
MadeFile numbers(const std::string& pages = page(data_page(2), two_numbers)) {
  MadeFile file({group("schema", 1), value("n", int32)}, 2);
  file.column(int32, 2, pages);
  return file;
}

const std::string here = "ERROR: cannot read f: row group 0, row 0, column \"n\", page 1: ";

TEST(ParquetDamage, a_file_that_is_cut_or_of_another_kind_is_refused) {
  const std::string whole = numbers().bytes();
  EXPECT_EQ(rows_of(whole), "{\"n\":1}\n{\"n\":2}\n");
  EXPECT_EQ(rows_of("PAR1"), "ERROR: cannot read f: a file of 4 bytes is not Parquet");
  EXPECT_EQ(rows_of(whole.substr(0, whole.size() - 1)),
            "ERROR: cannot read f: it does not end as Parquet does (PAR1); perhaps it is incomplete");
  EXPECT_EQ(rows_of(numbers().bytes("PARE")), "ERROR: cannot read f: the file is encrypted");
  EXPECT_EQ(rows_of("PAR1\xFF\xFF\xFF\x7FPAR1"),
            "ERROR: cannot read f: its footer has 2147483647 bytes, more than the file or 256 MiB");
  EXPECT_EQ(rows_of("PAR1\0\0\0\0PAR1"s), "ERROR: cannot read f: its metadata ends early");
}

TEST(ParquetDamage, every_cut_and_every_changed_byte_is_read_or_refused) {  // PU-2
  MadeFile file({group("schema", 1), value("n", byte_array, repeated, utf8)}, 2);
  const std::string pages = page(dictionary_page(1), "\x01\0\0\0a"s) +
                            page(data_page(3, 8), "\x02\0\0\0\x03\x02\x02\0\0\0\x06\x01\x01\x06\x00"s);
  file.column(byte_array, 3, pages);
  file.metadata.row_groups[0].columns[0].meta_data.__set_dictionary_page_offset(4);
  const std::string whole = file.bytes();
  ASSERT_EQ(rows_of(whole), "{\"n\":[\"a\",\"a\"]}\n{\"n\":[\"a\"]}\n");
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    EXPECT_NE(rows_of(whole.substr(0, cut)).find("ERROR: cannot read f: "), std::string::npos) << cut;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int change : {1, 0x40, 0x80, 0xFF}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ change);
      EXPECT_FALSE(rows_of(changed).empty()) << at;
    }
  }
}

TEST(ParquetDamage, encryption_is_refused_by_name) {
  MadeFile file = numbers();
  file.metadata.row_groups[0].columns[0].__set_crypto_metadata({});
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: a column is encrypted");
  file.metadata.__set_encryption_algorithm({});
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: the file is encrypted");
}

TEST(ParquetDamage, unknown_codecs_types_and_encodings_are_refused_by_number) {
  MadeFile file = numbers();
  file.metadata.row_groups[0].columns[0].meta_data.codec = 3;
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: compression codec LZO is not read");
  file.metadata.row_groups[0].columns[0].meta_data.codec = 8;
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: compression codec number 8 is not known");
  file.metadata.schema[1].type = 8;
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: a column's type number 8 is not known");
  EXPECT_EQ(rows_of(numbers(page(data_page(2, 10), two_numbers)).bytes()),
            "ERROR: cannot read f: row group 0, row 0, column \"n\": encoding number 10 is not known");
  EXPECT_EQ(rows_of(numbers(page(data_page(2, 1), two_numbers)).bytes()), here + "encoding number 1 is not known");
  MadeFile levels({group("schema", 1), value("n", int32, optional)}, 2);
  wire::PageHeader header = data_page(2);
  header.data_page_header.definition_level_encoding = 0;
  levels.column(int32, 2, page(header, two_numbers));
  EXPECT_EQ(rows_of(levels.bytes()), here + "levels are in an encoding other than RLE and BIT_PACKED");
}

TEST(ParquetDamage, a_column_in_another_file_is_refused) {
  MadeFile file = numbers();
  file.metadata.row_groups[0].columns[0].__set_file_path("other.parquet");
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: a column is in another file, other.parquet");
}

TEST(ParquetDamage, checksums_are_compared) {
  wire::PageHeader header = data_page(2);
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(two_numbers.data()), static_cast<uInt>(two_numbers.size()));
  header.__set_crc(static_cast<std::int32_t>(crc));
  EXPECT_EQ(rows_of(numbers(page(header, two_numbers)).bytes()), "{\"n\":1}\n{\"n\":2}\n");
  header.crc ^= 1;
  EXPECT_EQ(rows_of(numbers(page(header, two_numbers)).bytes()),
            here + "the page's checksum (CRC) does not match its bytes");
}

TEST(ParquetDamage, sizes_are_checked_before_memory_is_allocated) {  // PU-1
  wire::PageHeader header = data_page(2);
  header.uncompressed_page_size = 0x7FFFFFFF;
  const std::string no_page = "ERROR: cannot read f: row group 0, row 0, column \"n\": ";
  EXPECT_EQ(rows_of(numbers(page(header, two_numbers)).bytes()),
            no_page + "a page has 2147483647 bytes; at most 1 GiB are read");
  header.uncompressed_page_size = 8;
  header.compressed_page_size = 0x7FFFFFFF;
  EXPECT_EQ(rows_of(numbers(page(header, two_numbers)).bytes()), here + "the page ends after its column");
  header.compressed_page_size = -1;
  EXPECT_EQ(rows_of(numbers(page(header, two_numbers)).bytes()), no_page + "a page has a negative size");
  EXPECT_EQ(rows_of(numbers(page(data_page(0x7FFFFFFF), two_numbers)).bytes()),
            no_page + "a page has 2147483647 values; at most 268435456 are read");
  MadeFile file = numbers();
  file.metadata.row_groups[0].columns[0].meta_data.total_compressed_size = 1 << 30;
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: a column ends after the end of the file");
  file.metadata.row_groups[0].columns[0].meta_data.data_page_offset = -5;
  EXPECT_EQ(rows_of(file.bytes()), "ERROR: cannot read f: the footer has a negative number for a column");
}

TEST(ParquetDamage, columns_have_as_many_values_as_the_row_group_has_rows) {
  MadeFile file = numbers();
  file.metadata.row_groups[0].num_rows = 1;
  EXPECT_EQ(rows_of(file.bytes()),
            "{\"n\":1}\nERROR: cannot read f: row group 0, row 1, column \"n\", page 1: the column has "
            "more values than the row group has rows");
  file.metadata.row_groups[0].num_rows = 3;
  EXPECT_EQ(rows_of(file.bytes()),
            "{\"n\":1}\n{\"n\":2}\nERROR: cannot read f: row group 0, row 2, column \"n\", page 1: the "
            "column has fewer values than the row group has rows");
  file.metadata.row_groups[0].columns[0].meta_data.num_values = 3;
  EXPECT_EQ(rows_of(file.bytes()),
            "{\"n\":1}\nERROR: cannot read f: row group 0, row 1, column \"n\", page 1: the column ends "
            "before its last value");
  file.metadata.row_groups[0].columns[0].meta_data.num_values = 1;
  EXPECT_EQ(rows_of(file.bytes()), here + "the pages have more values than their column");
}

TEST(ParquetDamage, a_dictionary_is_the_first_page_only) {
  const std::string dictionary = page(dictionary_page(1), "\x01\0\0\0"s);
  const std::string wrong = "a dictionary page is not the column's first page";
  EXPECT_EQ(rows_of(numbers(dictionary + dictionary).bytes()),
            "ERROR: cannot read f: row group 0, row 0, column \"n\": " + wrong);
  EXPECT_EQ(rows_of(numbers(page(data_page(1), two_numbers) + dictionary).bytes()), here + wrong);
}

TEST(ParquetDamage, levels_of_columns_have_to_agree) {
  // A list of structs: the second column has one element fewer.
  MadeFile file({group("schema", 1), group("a", 2, repeated), value("x", int32), value("y", int32)});
  const std::string two = "\x02\0\0\0\x03\x02\x02\0\0\0\x04\x01"s + two_numbers;
  file.column(int32, 2, page(data_page(2), two));
  file.column(int32, 1, page(data_page(1), "\x02\0\0\0\x02\x00\x02\0\0\0\x02\x01\x01\0\0\0"s));
  EXPECT_EQ(rows_of(file.bytes()),
            "ERROR: cannot read f: row group 0, row 0, column \"a.y\", page 1: the column has fewer "
            "values than the row group has rows");
}

TEST(ParquetDamage, schemas_that_are_not_trees_are_refused) {
  const auto schema = [](std::vector<wire::SchemaElement> elements) {
    return rows_of(MadeFile(std::move(elements)).bytes());
  };
  EXPECT_EQ(schema({}), "ERROR: cannot read f: the file lacks columns");
  EXPECT_EQ(schema({group("schema", 0)}), "ERROR: cannot read f: the file lacks columns");
  EXPECT_EQ(schema({group("schema", 2), value("n", int32)}), "ERROR: cannot read f: the schema ends inside of a group");
  EXPECT_EQ(schema({group("schema", 1), value("n", int32), value("m", int32)}),
            "ERROR: cannot read f: the schema has elements that belong to no group");
  EXPECT_EQ(schema({group("schema", 1), group("g", 0)}), "ERROR: cannot read f: group \"g\" of the schema is empty");
  EXPECT_EQ(schema({group("schema", 2), value("n", int32), value("n", int32)}),
            "ERROR: cannot read f: two columns have the name \"n\"");
  std::vector<wire::SchemaElement> deep(60, group("g", 1));
  deep.push_back(value("n", int32));
  EXPECT_EQ(schema(deep), "ERROR: cannot read f: columns nest deeper than 48 levels");
  EXPECT_EQ(schema({group("schema", 1), value("n", int32, 3)}),
            "ERROR: cannot read f: a repetition number 3 is not known");
  EXPECT_EQ(schema({group("schema", 1), value("n", int32)}),
            "ERROR: cannot read f: row group 0, row 0: it has 0 columns, and the schema has 1");
}

TEST(ParquetDamage, a_text_that_is_not_utf_8_is_named) {
  MadeFile file({group("schema", 1), value("n", byte_array, 0, utf8)});
  file.column(byte_array, 1, page(data_page(1), "\x02\0\0\0a\xFF"s));
  EXPECT_EQ(rows_of(file.bytes()), here + "a text is not UTF-8 from byte 1 on");
}

}  // namespace
}  // namespace maestro::parquet
