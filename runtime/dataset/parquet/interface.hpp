// SPDX-License-Identifier: Apache-2.0
// The functions of libmaestro_parquet.so, which contains all code that needs Arrow. Only C types cross this border, so
// that different compilers may build the two sides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace maestro {

inline constexpr int parquet_interface_version = 1;
inline constexpr const char* parquet_entry_name = "maestro_parquet_entry";

/// A row, as JSON. Valid until the next call with the same reader.
struct ParquetRow {
  const char* json = nullptr;
  std::size_t bytes = 0;
  std::int64_t row_group = 0;
  std::int64_t row = 0;  ///< row number in the file
};

/// No function throws. Errors are one line of text, cut to `error_bytes` with the terminating zero.
struct ParquetFunctions {
  int version = parquet_interface_version;
  /// Returns a reader of the file, or null.
  void* (*open)(const char* path, char* error, std::size_t error_bytes) = nullptr;
  /// Returns 1 and the next row, 0 at the end, or -1.
  int (*next)(void* reader, ParquetRow* row, char* error, std::size_t error_bytes) = nullptr;
  void (*close)(void* reader) = nullptr;
};

using ParquetEntry = const ParquetFunctions* (*)();

}  // namespace maestro
