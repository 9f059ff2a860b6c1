// SPDX-License-Identifier: Apache-2.0
// Rows of a row group from its columns, by their repetition and definition levels (README.md, "Nested Encoding": the
// record assembly of Dremel).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/parquet/column_reader.hpp"
#include "runtime/parquet/schema_tree.hpp"

namespace maestro::parquet {

/// Writes rows as JSON. The tree and the file have to outlive it. Throws JobError (PU-2).
class RowAssembler {
 public:
  explicit RowAssembler(const SchemaTree& tree) : tree_(tree) {}

  /// Begins a row group, in the order of its columns.
  void begin(const PageFile& file, const RowGroup& group);
  /// Replaces `json` by the next row, an object, and `blobs` by the bytes that it has numbers for.
  void next_row(std::string& json, std::vector<std::string>& blobs);
  /// Checks after the last row that no column has more values.
  void end();
  /// Returns the place of the last read, for messages: "column \"text\", page 3"; pages count from 1.
  [[nodiscard]] std::string place() const;

 private:
  ColumnReader& use(std::size_t leaf) {
    at_ = leaf;
    return columns_[leaf];
  }
  void write(const SchemaNode& node, unsigned repetition);
  void write_value(const SchemaNode& node, unsigned repetition);
  void write_structure(const SchemaNode& node, unsigned repetition);
  void write_list(const SchemaNode& node, unsigned repetition);
  void pass(const SchemaNode& node, unsigned repetition, unsigned definition);

  const SchemaTree& tree_;
  std::vector<ColumnReader> columns_;
  std::size_t at_ = 0;  // column of the last read
  std::string* json_ = nullptr;
  std::vector<std::string>* blobs_ = nullptr;
  std::size_t blob_bytes_ = 0;  // of the row
};

}  // namespace maestro::parquet
