// SPDX-License-Identifier: Apache-2.0
#include "runtime/parquet/metadata.hpp"

#include <thrift/TConfiguration.h>
#include <thrift/protocol/TCompactProtocol.h>
#include <thrift/transport/TBufferTransports.h>

#include <algorithm>
#include <array>
#include <memory>

#include "runtime/core/printable.hpp"
#include "runtime/parquet/parquet_types.h"

namespace maestro::parquet {
namespace {

using apache::thrift::TConfiguration;
using apache::thrift::TException;
using apache::thrift::protocol::TCompactProtocolT;
using apache::thrift::transport::TMemoryBuffer;
using apache::thrift::transport::TTransportException;

constexpr std::size_t most_elements = std::size_t{1} << 20;  // of a list
constexpr int most_levels = 32;                              // nested structs, of known and unknown fields

/// Reads a struct at the start of `bytes` and returns its size; nothing if it needs more bytes.
template <class Struct>
std::optional<std::size_t> read_struct(std::string_view bytes, Struct& out) {
  const auto size = static_cast<std::uint32_t>(bytes.size());
  const auto limits = std::make_shared<TConfiguration>(static_cast<int>(size), static_cast<int>(size), most_levels);
  // The buffer only reads; its interface is also for writers.
  auto* data = reinterpret_cast<std::uint8_t*>(const_cast<char*>(bytes.data()));
  const auto buffer = std::make_shared<TMemoryBuffer>(data, size, TMemoryBuffer::OBSERVE, limits);
  TCompactProtocolT<TMemoryBuffer> protocol(buffer, static_cast<std::int32_t>(size),
                                            static_cast<std::int32_t>(std::min(bytes.size(), most_elements)));
  try {
    out.read(&protocol);
  } catch (const TTransportException&) {
    return std::nullopt;
  } catch (const TException& error) {
    damaged(std::string("its metadata cannot be read: ") + printable(error.what()));
  }
  return size - buffer->available_read();
}

template <class Enum>
Enum known(std::int32_t number, Enum last, const char* subject) {
  if (number < 0 || number > static_cast<std::int32_t>(last)) {
    unsupported(std::string(subject) + " number " + std::to_string(number) + " is not known");
  }
  return static_cast<Enum>(number);
}

std::size_t size_of(std::int32_t bytes, const char* subject) {
  if (bytes < 0) damaged(std::string(subject) + " has a negative size");
  return static_cast<std::size_t>(bytes);
}

void set_integer(SchemaElement& element, int bits, bool is_signed) {
  element.meaning = Meaning::integer;
  element.integer_bits = bits;
  element.is_signed = is_signed;
}

void set_time(SchemaElement& element, Meaning meaning, TimeUnit unit, bool utc) {
  element.meaning = meaning;
  element.unit = unit;
  element.utc = utc;
}

TimeUnit unit_of(const wire::TimeUnit& unit) {
  if (unit.__isset.MILLIS) return TimeUnit::ms;
  if (unit.__isset.MICROS) return TimeUnit::us;
  if (!unit.__isset.NANOS) unsupported("a time unit is not known");
  return TimeUnit::ns;
}

/// Returns whether the logical type gives a meaning, which then precedes the converted type.
bool set_logical(SchemaElement& element, const wire::LogicalType& type) {
  const auto& has = type.__isset;
  if (has.STRING || has.ENUM || has.JSON) element.meaning = Meaning::text;
  if (has.MAP) element.meaning = Meaning::map;
  if (has.LIST) element.meaning = Meaning::list;
  if (has.DATE) element.meaning = Meaning::date;
  if (has.UUID) element.meaning = Meaning::uuid;
  if (has.FLOAT16) element.meaning = Meaning::float16;
  if (has.DECIMAL) {
    element.meaning = Meaning::decimal;
    element.scale = type.DECIMAL.scale;
  }
  if (has.TIME) set_time(element, Meaning::time, unit_of(type.TIME.unit), type.TIME.isAdjustedToUTC);
  if (has.TIMESTAMP) {
    set_time(element, Meaning::timestamp, unit_of(type.TIMESTAMP.unit), type.TIMESTAMP.isAdjustedToUTC);
  }
  if (has.INTEGER) set_integer(element, type.INTEGER.bitWidth, type.INTEGER.isSigned);
  return element.meaning != Meaning::none;
}

/// Sets the meaning by a number of the enumeration ConvertedType.
void set_converted(SchemaElement& element, std::int32_t type) {
  constexpr std::array meanings{Meaning::text,      Meaning::map,     Meaning::map,  Meaning::list, Meaning::text,
                                Meaning::decimal,   Meaning::date,    Meaning::time, Meaning::time, Meaning::timestamp,
                                Meaning::timestamp, Meaning::integer, Meaning::none};
  constexpr std::int32_t time_micros = 8, timestamp_micros = 10, uint_8 = 11, int_8 = 15, int_64 = 18, json = 19;
  if (type >= uint_8 && type <= int_64) {
    set_integer(element, 8 << ((type - uint_8) % 4), type >= int_8);
  } else if (type == json) {
    element.meaning = Meaning::text;
  } else if (type >= 0 && type < uint_8) {
    element.meaning = meanings[static_cast<std::size_t>(type)];
    element.unit = type == time_micros || type == timestamp_micros ? TimeUnit::us : TimeUnit::ms;
  }
}

SchemaElement element_of(const wire::SchemaElement& read) {
  SchemaElement made;
  made.name = read.name;
  if (read.__isset.type) made.type = known(read.type, PhysicalType::fixed_bytes, "a column's type");
  made.type_bytes = read.type_length;
  made.repetition = known(read.repetition_type, Repetition::repeated, "a repetition");
  made.children = made.type ? 0 : read.num_children;
  made.scale = read.scale;
  if (read.__isset.logicalType && set_logical(made, read.logicalType)) return made;
  if (read.__isset.converted_type) set_converted(made, read.converted_type);
  return made;
}

Codec codec_of(std::int32_t number) {
  const Codec codec = known(number, Codec::lz4_raw, "compression codec");
  if (codec == Codec::lzo) unsupported("compression codec LZO is not read");
  return codec;
}

ColumnChunk chunk_of(const wire::ColumnChunk& read, std::uint64_t pages_end) {
  if (read.__isset.crypto_metadata) unsupported("a column is encrypted");
  if (!read.file_path.empty()) unsupported("a column is in another file, " + printable(read.file_path));
  if (!read.__isset.meta_data) damaged("a column lacks its metadata");
  const wire::ColumnMetaData& data = read.meta_data;
  ColumnChunk made;
  made.type = known(data.type, PhysicalType::fixed_bytes, "a column's type");
  made.codec = codec_of(data.codec);
  made.values = data.num_values;
  if (made.values == 0) return made;  // a column without pages may lack a position
  std::int64_t begin = data.data_page_offset;
  if (data.dictionary_page_offset > 0) begin = std::min(begin, data.dictionary_page_offset);
  constexpr std::int64_t after_magic = 4;
  if (data.num_values < 0 || begin < after_magic || data.total_compressed_size < 0) {
    damaged("the footer has a negative number for a column");
  }
  made.begin = static_cast<std::uint64_t>(begin);
  const auto bytes = static_cast<std::uint64_t>(data.total_compressed_size);
  if (made.begin > pages_end || bytes > pages_end - made.begin) damaged("a column ends after the end of the file");
  made.end = made.begin + bytes;
  return made;
}

void set_data(PageHeader& made, std::int32_t values, std::int32_t encoding) {
  if (values < 0 || values > most_page_values) {
    damaged("a page has " + std::to_string(values) + " values; at most " + std::to_string(most_page_values) +
            " are read");
  }
  made.values = values;
  made.encoding = known(encoding, Encoding::byte_stream_split, "encoding");
}

void set_kind(PageHeader& made, const wire::PageHeader& read) {
  if (made.kind == PageKind::data) {
    const auto& data = read.data_page_header;
    if (!read.__isset.data_page_header) damaged("a data page lacks its header");
    set_data(made, data.num_values, data.encoding);
    made.definition_encoding = known(data.definition_level_encoding, Encoding::byte_stream_split, "encoding");
    made.repetition_encoding = known(data.repetition_level_encoding, Encoding::byte_stream_split, "encoding");
  } else if (made.kind == PageKind::data_v2) {
    const auto& data = read.data_page_header_v2;
    if (!read.__isset.data_page_header_v2) damaged("a data page lacks its header");
    set_data(made, data.num_values, data.encoding);
    made.definition_bytes = size_of(data.definition_levels_byte_length, "a page's part");
    made.repetition_bytes = size_of(data.repetition_levels_byte_length, "a page's part");
    made.compressed = data.is_compressed;
  } else if (made.kind == PageKind::dictionary) {
    if (!read.__isset.dictionary_page_header) damaged("a dictionary page lacks its header");
    set_data(made, read.dictionary_page_header.num_values, read.dictionary_page_header.encoding);
  }
}

}  // namespace

Footer read_footer(std::string_view bytes, std::uint64_t pages_end) {
  wire::FileMetaData read;
  if (!read_struct(bytes, read)) damaged("its metadata ends early");
  if (read.__isset.encryption_algorithm) unsupported("the file is encrypted");
  Footer made;
  made.schema.reserve(read.schema.size());
  for (const wire::SchemaElement& element : read.schema) made.schema.push_back(element_of(element));
  for (const wire::RowGroup& group : read.row_groups) {
    if (group.num_rows < 0) damaged("a row group has a negative number of rows");
    RowGroup& row_group = made.row_groups.emplace_back();
    row_group.rows = group.num_rows;
    for (const wire::ColumnChunk& chunk : group.columns) row_group.columns.push_back(chunk_of(chunk, pages_end));
  }
  return made;
}

std::optional<PageHeader> read_page_header(std::string_view bytes) {
  wire::PageHeader read;
  const std::optional<std::size_t> size = read_struct(bytes, read);
  if (!size) return std::nullopt;
  PageHeader made;
  made.kind = known(read.type, PageKind::data_v2, "page type");
  made.bytes = *size;
  made.stored_bytes = size_of(read.compressed_page_size, "a page");
  made.page_bytes = size_of(read.uncompressed_page_size, "a page");
  if (made.page_bytes > largest_page) {
    damaged("a page has " + std::to_string(made.page_bytes) + " bytes; at most 1 GiB are read");
  }
  if (read.__isset.crc) made.crc = static_cast<std::uint32_t>(read.crc);
  set_kind(made, read);
  return made;
}

}  // namespace maestro::parquet
