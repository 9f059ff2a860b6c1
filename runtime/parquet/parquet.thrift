// SPDX-License-Identifier: Apache-2.0
// The parts of Parquet's metadata that the reader needs. Field numbers and types are as in the published
// src/main/thrift/parquet.thrift (https://github.com/apache/parquet-format, version 2.11); other fields are skipped.
// Enumerations are i32 here, which is the same on the wire, so that unknown values can be refused by number.
namespace cpp maestro.parquet.wire

struct Empty {}

struct DecimalType {
  1: required i32 scale
  2: required i32 precision
}

union TimeUnit {
  1: Empty MILLIS
  2: Empty MICROS
  3: Empty NANOS
}

// TIME and TIMESTAMP.
struct TimeType {
  1: required bool isAdjustedToUTC
  2: required TimeUnit unit
}

struct IntType {
  1: required i8 bitWidth
  2: required bool isSigned
}

union LogicalType {
  1: Empty STRING
  2: Empty MAP
  3: Empty LIST
  4: Empty ENUM
  5: DecimalType DECIMAL
  6: Empty DATE
  7: TimeType TIME
  8: TimeType TIMESTAMP
  10: IntType INTEGER
  11: Empty UNKNOWN
  12: Empty JSON
  13: Empty BSON
  14: Empty UUID
  15: Empty FLOAT16
}

struct SchemaElement {
  1: optional i32 type
  2: optional i32 type_length
  3: optional i32 repetition_type
  4: required string name
  5: optional i32 num_children
  6: optional i32 converted_type
  7: optional i32 scale
  8: optional i32 precision
  10: optional LogicalType logicalType
}

struct ColumnMetaData {
  1: required i32 type
  4: required i32 codec
  5: required i64 num_values
  7: required i64 total_compressed_size
  9: required i64 data_page_offset
  11: optional i64 dictionary_page_offset
}

struct ColumnChunk {
  1: optional string file_path
  3: optional ColumnMetaData meta_data
  8: optional Empty crypto_metadata
}

struct RowGroup {
  1: required list<ColumnChunk> columns
  3: required i64 num_rows
}

struct FileMetaData {
  2: required list<SchemaElement> schema
  4: required list<RowGroup> row_groups
  8: optional Empty encryption_algorithm
}

struct DataPageHeader {
  1: required i32 num_values
  2: required i32 encoding
  3: required i32 definition_level_encoding
  4: required i32 repetition_level_encoding
}

struct DictionaryPageHeader {
  1: required i32 num_values
  2: required i32 encoding
}

struct DataPageHeaderV2 {
  1: required i32 num_values
  4: required i32 encoding
  5: required i32 definition_levels_byte_length
  6: required i32 repetition_levels_byte_length
  7: optional bool is_compressed = true
}

struct PageHeader {
  1: required i32 type
  2: required i32 uncompressed_page_size
  3: required i32 compressed_page_size
  4: optional i32 crc
  5: optional DataPageHeader data_page_header
  7: optional DictionaryPageHeader dictionary_page_header
  8: optional DataPageHeaderV2 data_page_header_v2
}
