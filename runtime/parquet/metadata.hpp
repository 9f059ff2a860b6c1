// SPDX-License-Identifier: Apache-2.0
// A file's footer and the headers of its pages (parquet.thrift), by Thrift's compact protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/parquet/format.hpp"

namespace maestro::parquet {

enum class Repetition : std::uint8_t { required, optional, repeated };
/// What a value means beyond its physical type; by the logical type, or else by the converted type of older files.
enum class Meaning : std::uint8_t {
  none,
  text,  ///< STRING, JSON and ENUM
  map,
  list,
  decimal,
  date,
  time,
  timestamp,
  integer,
  uuid,
  float16,
};
enum class TimeUnit : std::uint8_t { ms, us, ns };

/// An element of the schema, in the footer's order: depth first.
struct SchemaElement {
  std::string name;
  std::optional<PhysicalType> type;  ///< absent: a group
  std::int32_t type_bytes = 0;       ///< bytes of fixed_bytes
  Repetition repetition = Repetition::required;
  std::int32_t children = 0;
  Meaning meaning = Meaning::none;
  std::int32_t scale = 0;  ///< digits of a decimal after its point
  TimeUnit unit = TimeUnit::ms;
  bool utc = false;
  int integer_bits = 0;
  bool is_signed = true;
};

/// A row group's column: its pages are bytes [begin, end) in the file.
struct ColumnChunk {
  PhysicalType type = PhysicalType::boolean;
  Codec codec = Codec::uncompressed;
  std::int64_t values = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct RowGroup {
  std::int64_t rows = 0;
  std::vector<ColumnChunk> columns;
};

struct Footer {
  std::vector<SchemaElement> schema;
  std::vector<RowGroup> row_groups;
};

enum class PageKind : std::uint8_t { data, index, dictionary, data_v2 };

struct PageHeader {
  PageKind kind = PageKind::data;
  std::size_t bytes = 0;         ///< size of the header
  std::size_t stored_bytes = 0;  ///< size of the page in the file
  std::size_t page_bytes = 0;    ///< decompressed size
  std::optional<std::uint32_t> crc;
  std::int32_t values = 0;  ///< entries, with nulls
  Encoding encoding = Encoding::plain;
  Encoding definition_encoding = Encoding::rle;
  Encoding repetition_encoding = Encoding::rle;
  std::size_t definition_bytes = 0;  ///< data_v2
  std::size_t repetition_bytes = 0;  ///< data_v2
  bool compressed = true;            ///< data_v2
};

/// Reads the footer of a file whose pages end before byte `pages_end`. Throws JobError: corrupt for a damaged footer;
/// invalid_argument with the name of an unsupported codec, type or encryption.
[[nodiscard]] Footer read_footer(std::string_view bytes, std::uint64_t pages_end);

/// Reads the page header at the start of `bytes`, or nothing if it needs more bytes. Throws JobError as read_footer().
[[nodiscard]] std::optional<PageHeader> read_page_header(std::string_view bytes);

}  // namespace maestro::parquet
