// SPDX-License-Identifier: Apache-2.0
// Makes Parquet files of few bytes, for tests.
#pragma once

#include <thrift/protocol/TCompactProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/parquet/parquet_types.h"

namespace maestro::parquet {

/// Numbers of physical types, repetitions and converted types.
namespace codes {
inline constexpr int boolean = 0, int32 = 1, byte_array = 6, optional = 1, repeated = 2, utf8 = 0, map = 1, list = 3;
}  // namespace codes

template <class Struct>
std::string written(const Struct& value) {
  using apache::thrift::transport::TMemoryBuffer;
  const auto buffer = std::make_shared<TMemoryBuffer>();
  apache::thrift::protocol::TCompactProtocolT<TMemoryBuffer> protocol(buffer);
  value.write(&protocol);
  return buffer->getBufferAsString();
}

/// Returns an uncompressed data page of version 1 with `values` entries.
inline wire::PageHeader data_page(int values, int encoding = 0) {
  wire::DataPageHeader data;
  data.num_values = values;
  data.encoding = encoding;
  data.definition_level_encoding = data.repetition_level_encoding = 3;
  wire::PageHeader header;
  header.type = 0;
  header.__set_data_page_header(data);
  return header;
}

inline wire::PageHeader dictionary_page(int values) {
  wire::DictionaryPageHeader dictionary;
  dictionary.num_values = values;
  dictionary.encoding = 0;
  wire::PageHeader header;
  header.type = 2;
  header.__set_dictionary_page_header(dictionary);
  return header;
}

/// Returns the bytes of a page: its header, with the sizes of `body` unless they are set, and `body`.
inline std::string page(wire::PageHeader header, const std::string& body) {
  if (header.compressed_page_size == 0) header.compressed_page_size = static_cast<int>(body.size());
  if (header.uncompressed_page_size == 0) header.uncompressed_page_size = static_cast<int>(body.size());
  return written(header) + body;
}

inline wire::SchemaElement group(const std::string& name, int children, int repetition = 0, int converted = -1) {
  wire::SchemaElement element;
  element.name = name;
  element.__set_num_children(children);
  element.__set_repetition_type(repetition);
  if (converted >= 0) element.__set_converted_type(converted);
  return element;
}

inline wire::SchemaElement value(const std::string& name, int type, int repetition = 0, int converted = -1) {
  wire::SchemaElement element = group(name, 0, repetition, converted);
  element.__isset.num_children = false;
  element.__set_type(type);
  return element;
}

/// A file with a row group. Change the metadata before bytes() to make a damaged file.
struct MadeFile {
  std::string pages = "PAR1";
  wire::FileMetaData metadata;

  explicit MadeFile(std::vector<wire::SchemaElement> schema, int rows = 1) {
    metadata.schema = std::move(schema);
    metadata.row_groups.resize(1);
    metadata.row_groups[0].num_rows = rows;
  }
  /// Adds the next column, with pages that have `values` entries.
  MadeFile& column(int type, int values, const std::string& bytes) {
    wire::ColumnMetaData data;
    data.type = type;
    data.codec = 0;
    data.num_values = values;
    data.data_page_offset = static_cast<std::int64_t>(pages.size());
    data.total_compressed_size = static_cast<std::int64_t>(bytes.size());
    pages += bytes;
    metadata.row_groups[0].columns.emplace_back().__set_meta_data(data);
    return *this;
  }
  [[nodiscard]] std::string bytes(const std::string& magic = "PAR1") const {
    const std::string footer = written(metadata);
    const auto size = static_cast<std::uint32_t>(footer.size());
    return pages + footer + std::string(reinterpret_cast<const char*>(&size), sizeof size) + magic;
  }
};

}  // namespace maestro::parquet
