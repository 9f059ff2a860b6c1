// SPDX-License-Identifier: Apache-2.0
// Reads a file of a test.
#pragma once

#include <filesystem>
#include <string>

#include "runtime/parquet/parquet_file.hpp"
#include "tests/data/temp_folder.hpp"

namespace maestro::parquet {

/// Returns the rows of a file, a line per row, and "ERROR: message" without the folder as the last line after an error.
inline std::string lines_of(const std::filesystem::path& path) {
  const auto error = [&](const Error& found) {
    std::string text = "ERROR: " + found.message;
    const std::string folder = path.parent_path().string() + "/";
    if (const auto at = text.find(folder); at != text.npos) text.erase(at, folder.size());
    return text;
  };
  const auto file = ParquetFile::open(path);
  if (!file) return error(file.error());
  std::string lines;
  for (;;) {
    const Result<bool> more = (*file)->next();
    if (!more) return lines + error(more.error());
    if (!*more) return lines;
    (lines += (*file)->row().json) += "\n";
  }
}

/// Returns lines_of() a file "f" that has the bytes.
inline std::string rows_of(const std::string& bytes) {
  const TempFolder folder;
  return lines_of(folder.write("f", bytes));
}

}  // namespace maestro::parquet
