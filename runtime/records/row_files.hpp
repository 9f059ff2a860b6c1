// SPDX-License-Identifier: Apache-2.0
// Files of training data, and their rows. What a file holds is recognised by its first bytes, not by its name:
//   text        UTF-8 without NUL bytes: a single text, passed on in pieces
//   JSON Lines  the first line is a JSON object
//   JSON list   "[" and then an object
//   Parquet     where the module for it was built (parquet_rows.hpp)
//   tar         a WebDataset: members with the same path up to their first dot are a row; .json is its row, .txt its
//   text
// Text, JSON Lines and JSON lists may be compressed by gzip, bzip2, xz or zstd, as may be a tar.
//
// RO-1 (bounded): rows are held one at a time: memory does not depend on the size of a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/result.hpp"

namespace maestro {

struct Row {
  std::string where;    ///< "chat.jsonl:17", for messages
  std::string content;  ///< a text, or JSON
  bool json = false;
  bool continues = false;  ///< the next row is more of the same text
};
using RowSink = std::function<void(Row&&)>;

enum class RowFileKind : std::uint8_t { text, json_lines, json_list, webdataset, parquet, binary };
[[nodiscard]] std::string_view name_of(RowFileKind kind);

/// Returns the files that `paths` name, each once: a file as it is, of a folder all files below it without hidden files
/// and folders, in order of path (bytewise). Throws JobError: a missing path (with the part that exists), a folder
/// without files.
[[nodiscard]] std::vector<std::filesystem::path> row_files(const std::vector<std::filesystem::path>& paths);

/// Returns what a file holds. Errors of the system name the file.
[[nodiscard]] Result<RowFileKind> kind_of_rows(const std::filesystem::path& file);

/// Passes the rows of a file to `sink`, in order. An error names the file and the line, element or member. Exceptions
/// of the sink pass through.
[[nodiscard]] Status read_rows(const std::filesystem::path& file, RowFileKind kind, const RowSink& sink);

}  // namespace maestro
