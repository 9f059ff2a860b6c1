// SPDX-License-Identifier: Apache-2.0
// Files of training data (file_kind.hpp defines their kinds), and their rows. Text, JSON Lines, JSON lists and tar
// archives may be compressed by gzip, bzip2, xz or zstd. Members of a tar with the same path up to their first dot are
// a row; .json is its row, .txt its text.
//
// RO-1 (bounded): rows are held one at a time: memory does not depend on the size of a file.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "runtime/core/result.hpp"
#include "runtime/dataset/file_kind.hpp"
#include "runtime/dataset/row_image.hpp"

namespace maestro {

struct Row {
  std::string where;    ///< place for messages: "chat.jsonl:17"
  std::string content;  ///< a text, or JSON
  bool json = false;
  bool continues = false;  ///< the next row continues the same text
  bool continued = false;  ///< this row continues the previous row's text
  RowMedia media = {};     ///< images, if they are read
};
using RowSink = std::function<void(Row&&)>;

/// Returns the files that `paths` name, each once. A folder stands for all files below it without hidden files and
/// folders, ordered by path (bytewise). Throws JobError for a missing path (with the part that exists) and for a folder
/// without files.
[[nodiscard]] std::vector<std::filesystem::path> row_files(const std::vector<std::filesystem::path>& paths);

/// Passes the rows of a file to `sink`, in order; with `images` also the images of archives and the bytes of Parquet
/// files, otherwise the former are refused and the latter are "(binary)". An error names the file and the line, element
/// or member. Exceptions of the sink pass through.
[[nodiscard]] Status read_rows(const std::filesystem::path& file, RowFileKind kind, const RowSink& sink,
                               Media media = {});

}  // namespace maestro
