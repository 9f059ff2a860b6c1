// SPDX-License-Identifier: Apache-2.0
// The pages of a column chunk, read in order (README.md, "Data Pages" and "Checksumming").
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/core/input_file.hpp"
#include "runtime/parquet/metadata.hpp"

namespace maestro::parquet {

/// An open file.
struct PageFile {
  std::filesystem::path path;
  FileDescriptor descriptor;
};

/// Bytes of a page; memory is kept for the next page.
class PageBuffer {
 public:
  /// Returns `bytes` uninitialised bytes.
  std::span<char> resize(std::size_t bytes);

 private:
  std::unique_ptr<char[]> bytes_;  // NOLINT(modernize-avoid-c-arrays): a vector would fill them with zeros
  std::size_t capacity_ = 0;
};

/// A page. The views are valid until the next page with the same kind is read.
struct Page {
  PageHeader header;
  std::string_view repetition;  ///< levels, if the kind is data_v2
  std::string_view definition;  ///< levels, if the kind is data_v2
  std::string_view content;     ///< decompressed; levels and values of `data`
};

/// Reads pages. Throws JobError: corrupt for a damaged page, and system errors.
class PageReader {
 public:
  PageReader(const PageFile& file, const ColumnChunk& chunk) : file_(file), chunk_(chunk), position_(chunk.begin) {}

  /// Returns the next data or dictionary page.
  [[nodiscard]] Page next();
  /// Returns the number of pages read, without the dictionary.
  [[nodiscard]] std::size_t pages() const { return pages_; }

 private:
  [[nodiscard]] PageHeader next_header();
  void read_stored(const PageHeader& header);
  [[nodiscard]] Page decompressed(const PageHeader& header);

  const PageFile& file_;
  ColumnChunk chunk_;
  std::uint64_t position_;
  std::size_t pages_ = 0;
  std::string stored_;
  PageBuffer page_;
  PageBuffer dictionary_;
};

}  // namespace maestro::parquet
