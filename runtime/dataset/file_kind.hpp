// SPDX-License-Identifier: Apache-2.0
// The kind of a file with training data. Its name and its first bytes decide, in the same way for every reader:
//   tar, Parquet   by their first bytes, or by the endings .tar and .parquet
//   UTF-16, UTF-32 by a byte order mark, or NUL bytes between ASCII: refused
//   JSON list      "[" is the first character (in .jsonl and .ndjson: "[" and then an object)
//   JSON Lines     the endings .jsonl, .ndjson and .json, or "{" as the first character
//   table          the endings .csv and .tsv: refused
//   text           other UTF-8 without NUL bytes
// Endings may be followed by a compression's ending (.gz, .bz2, .xz, .zst); upper case is the same as lower case. UTF-8
// byte order marks and white space before the first character are skipped.
//
// KF-1 (no silent text): a file with an ending of data, or whose text begins with { or [, is read as text only if the
//       user sets as_text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/core/result.hpp"

namespace maestro {

enum class RowFileKind : std::uint8_t { text, json_lines, json_list, webdataset, parquet, table, wide_text, binary };
[[nodiscard]] std::string_view name_of(RowFileKind kind);

/// Returns the kind of a file. With `as_text`, any file that is not a tar archive, Parquet, UTF-16 or binary is a text.
/// System errors name the file.
[[nodiscard]] Result<RowFileKind> kind_of_rows(const std::filesystem::path& file, bool as_text = false);

/// Returns an error for kinds without a reader (table, wide_text, binary); it explains how to convert the file.
[[nodiscard]] Status check_kind_of_rows(const std::filesystem::path& file, RowFileKind kind);
/// Returns an error unless the file is JSON of either kind. The error names the file's kind, and `reader` as the
/// subject that reads JSON, such as "prompts".
[[nodiscard]] Status check_is_json(const std::filesystem::path& file, const std::string& reader);

/// Returns whether the ending denotes rows or tables (.jsonl, .ndjson, .csv, .tsv, .parquet). As a text, a model would
/// be trained on their keys and separators.
[[nodiscard]] bool is_data_file(const std::filesystem::path& path);
/// Returns whether the ending denotes JSON (.jsonl, .ndjson, .json).
[[nodiscard]] bool is_json_file(const std::filesystem::path& path);
/// Returns whether a file among texts, as in a folder of source code, holds rows: by an ending of rows, as Parquet, an
/// archive or a list of objects, or because its first line is an object. A JSON document over several lines does not.
[[nodiscard]] bool looks_like_rows(const std::filesystem::path& file, RowFileKind kind);

}  // namespace maestro
