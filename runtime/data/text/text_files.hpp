// SPDX-License-Identifier: Apache-2.0
// The text at a path: a single file, or the text files of a folder in an order that does not depend on the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace maestro {

/// Files or folders of a kind that were skipped in a folder.
struct LeftOut {
  std::uint64_t count = 0;
  std::vector<std::string> first;  ///< paths of the first three, relative to the folder
  void add(std::string path);
  /// "2 over 4 MB (a.log, b/c.log)".
  [[nodiscard]] std::string text(const std::string& what) const;
};

/// The content of a folder: files read and files skipped.
struct TextFilesFound {
  bool folder = false;
  double max_file_mb = 0;   ///< the limit that was applied
  std::uint64_t read = 0;   ///< files taken
  std::uint64_t bytes = 0;  ///< of the files taken
  LeftOut binary;           ///< NUL bytes or not UTF-8
  LeftOut wide;             ///< texts in UTF-16 or UTF-32
  LeftOut large;            ///< over the limit
  LeftOut data;             ///< records: is_data_file() of file_kind.hpp
  LeftOut unreadable;       ///< the system refused
  LeftOut folders;          ///< hidden, or by a name of built files
  /// Returns the texts of all kinds of skipped files.
  [[nodiscard]] std::string left_out() const;
};

/// Returns the files of a folder that read_text_files() looks at, in its order.
[[nodiscard]] std::vector<std::filesystem::path> files_of_folder(const std::filesystem::path& folder);

/// Which files of a folder are read.
struct TextFileOptions {
  double max_file_mb = 4;   ///< at most so many 10^6 bytes
  bool data_files = false;  ///< also data files
};

/// Receives a file's path, relative to the folder where there is one, and its text.
using TextSink = std::function<void(const std::string& path, std::string_view text)>;

/// Calls `sink` with every file, in order of path (bytewise, relative to the folder).
///
/// A folder is read recursively without hidden folders, `build*`, `runs` and `CMakeFiles`, and without following links
/// to folders; in it data files, files with NUL bytes or invalid UTF-8, files over the limit and empty files are
/// skipped, unless `options` say otherwise. JSON documents are read there: source trees contain them. A single file may
/// have any name and size: the caller has decided that it is a text. A byte order mark is not passed on. Throws
/// JobError: a missing path, a single file that is empty, binary or unreadable, a folder without any text.
TextFilesFound read_text_files(const std::filesystem::path& path, const TextFileOptions& options, const TextSink& sink);

}  // namespace maestro
