// SPDX-License-Identifier: Apache-2.0
// Files of training data (file_kind.hpp tells their kinds), and their rows. Text, JSON Lines and JSON lists may be
// compressed by gzip, bzip2, xz or zstd, as may be a tar: its members with the same path up to their first dot are a
// row; .json is its row, .txt its text.
//
// RO-1 (bounded): rows are held one at a time: memory does not depend on the size of a file.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/file_kind.hpp"

namespace maestro {

struct Row {
  std::string where;    ///< "chat.jsonl:17", for messages
  std::string content;  ///< a text, or JSON
  bool json = false;
  bool continues = false;  ///< the next row is more of the same text
  bool continued = false;  ///< this row is more of the text of the row before
};
using RowSink = std::function<void(Row&&)>;

/// Returns the files that `paths` name, each once: a file as it is, of a folder all files below it without hidden files
/// and folders, in order of path (bytewise). Throws JobError: a missing path (with the part that exists), a folder
/// without files.
[[nodiscard]] std::vector<std::filesystem::path> row_files(const std::vector<std::filesystem::path>& paths);

/// Passes the rows of a file to `sink`, in order. An error names the file and the line, element or member. Exceptions
/// of the sink pass through.
[[nodiscard]] Status read_rows(const std::filesystem::path& file, RowFileKind kind, const RowSink& sink);

}  // namespace maestro
