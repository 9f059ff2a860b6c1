// SPDX-License-Identifier: Apache-2.0
// Names and numbers of the Parquet format, and errors of its reader. Source: the published specification
// (https://github.com/apache/parquet-format, version 2.11), files README.md, parquet.thrift, Encodings.md,
// Compression.md and LogicalTypes.md.
//
// PU-1 (bounded): a size in a file is compared with the file's size and a fixed limit before memory is allocated for
// it. PU-2 (no crash): a damaged file ends with a JobError, and every loop over a file's bytes consumes some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/core/result.hpp"

namespace maestro::parquet {

enum class PhysicalType : std::uint8_t { boolean, int32, int64, int96, float32, float64, byte_array, fixed_bytes };
enum class Codec : std::uint8_t { uncompressed, snappy, gzip, lzo, brotli, lz4_hadoop, zstd, lz4_raw };
enum class Encoding : std::uint8_t {
  plain = 0,
  plain_dictionary = 2,
  rle = 3,
  bit_packed = 4,
  delta_binary_packed = 5,
  delta_length_byte_array = 6,
  delta_byte_array = 7,
  rle_dictionary = 8,
  byte_stream_split = 9,
};

inline constexpr std::size_t longest_footer = std::size_t{256} << 20;  // bytes
inline constexpr std::size_t largest_page = std::size_t{1} << 30;      // bytes, decompressed
inline constexpr std::size_t longest_header = std::size_t{16} << 20;   // bytes of a page's header
inline constexpr std::int32_t most_page_values = std::int32_t{1} << 28;
inline constexpr std::size_t longest_row = std::size_t{64} << 20;  // bytes of JSON, as for JSON Lines
inline constexpr int most_schema_levels = 48;                      // a row's JSON nests no deeper

/// Returns the codec's name in the specification, such as "SNAPPY".
[[nodiscard]] std::string name_of(Codec codec);
/// Throws JobError (corrupt): the file contradicts the specification.
[[noreturn]] void damaged(const std::string& reason);
/// Throws JobError (invalid_argument): the file is valid but uses a feature without support, which `reason` names.
[[noreturn]] void unsupported(const std::string& reason);

}  // namespace maestro::parquet
