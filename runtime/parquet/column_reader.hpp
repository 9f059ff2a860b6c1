// SPDX-License-Identifier: Apache-2.0
// The entries of a column in a row group, in order: levels and values (README.md, "Nested Encoding").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/parquet/page_reader.hpp"
#include "runtime/parquet/run_decoder.hpp"
#include "runtime/parquet/value_decoder.hpp"

namespace maestro::parquet {

struct ColumnType {
  ValueType value;
  unsigned definition = 0;  ///< highest definition level: the entry has a value
  unsigned repetition = 0;  ///< highest repetition level
  bool wanted = true;       ///< false: only levels are read
};

/// Holds a page and a dictionary at a time. Throws JobError (PU-2).
class ColumnReader {
 public:
  ColumnReader(const PageFile& file, const ColumnChunk& chunk, const ColumnType& type)
      : type_(type), pages_(file, chunk), left_(chunk.values) {}

  /// Moves to the next entry, at first to the first one.
  void next();
  /// Moves to the next entry whose repetition level is below `repetition`.
  void next_below(unsigned repetition);
  [[nodiscard]] bool at_end() const { return ended_; }
  /// Return the levels of the current entry; 0 at the end.
  [[nodiscard]] unsigned definition() const { return definition_; }
  [[nodiscard]] unsigned repetition() const { return repetition_; }
  /// Returns the current entry's value, once, if the column is wanted and the definition level is the highest.
  std::string_view value() { return values_->next(); }
  /// Returns the number of pages read.
  [[nodiscard]] std::size_t pages() const { return pages_.pages(); }

 private:
  void open_page();
  void open_levels(const Page& page);
  void open_dictionary(const Page& page);

  ColumnType type_;
  PageReader pages_;
  std::int64_t left_;          // entries of the column that no page has had yet
  std::uint64_t in_page_ = 0;  // entries of the page after the current one
  bool ended_ = false;
  unsigned definition_ = 0;
  unsigned repetition_ = 0;
  LevelDecoder definitions_;
  LevelDecoder repetitions_;
  std::string_view content_;  // values of the page
  std::unique_ptr<ValueDecoder> values_;
  std::unique_ptr<Dictionary> dictionary_;
};

}  // namespace maestro::parquet
