// SPDX-License-Identifier: Apache-2.0
// Reads rows of Parquet files. A reader of its own, because Debian lacks a package with one; it reads what data for
// training needs (docs/data.md lists it) and writes nothing. format.hpp names the specification and the limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/parquet/metadata.hpp"
#include "runtime/parquet/page_reader.hpp"
#include "runtime/parquet/row_assembler.hpp"
#include "runtime/parquet/schema_tree.hpp"

namespace maestro {

/// A row as JSON, valid until the next call with the same file.
struct ParquetRow {
  std::string_view json;
  std::int64_t row_group = 0;
  std::int64_t row = 0;  ///< number in the file, from 0
};

/// An open Parquet file. Holds a page of each column in memory. One thread at a time.
class ParquetFile {
 public:
  /// Opens a file and reads its footer. Errors name the file: system errors, corrupt, and invalid_argument for an
  /// encrypted file or an unsupported feature.
  /// With `images`, the bytes of the columns image and images, and of others with the name bytes, are kept: the row has
  /// their numbers in take_blobs() instead of "(binary)".
  [[nodiscard]] static Result<std::unique_ptr<ParquetFile>> open(const std::filesystem::path& path,
                                                                 bool images = false);

  /// Moves to the next row. Returns false at the end. Errors name the file, row group, row, column and page.
  [[nodiscard]] Result<bool> next();
  /// Returns the row of the last call of next() that returned true.
  [[nodiscard]] ParquetRow row() const;
  /// Returns the bytes of the row's images, once.
  [[nodiscard]] std::vector<std::string> take_blobs() { return std::exchange(blobs_, {}); }

 private:
  ParquetFile() = default;
  void read_schema(bool images);
  bool advance();
  [[nodiscard]] std::string place() const;

  parquet::PageFile file_;
  parquet::Footer footer_;
  parquet::SchemaTree tree_;
  std::unique_ptr<parquet::RowAssembler> rows_;
  std::size_t begun_groups_ = 0;
  std::int64_t left_in_group_ = 0;  // rows
  std::int64_t passed_rows_ = 0;
  std::string json_;
  std::vector<std::string> blobs_;
};

}  // namespace maestro
