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

/// Files or folders that were skipped in a folder for the same reason.
struct LeftOut {
  std::uint64_t count = 0;
  std::vector<std::string> first;  ///< paths of the first three, relative to the folder
  void add(std::string path);
  /// Returns a text such as "2 over 4 MB (a.log, b/c.log)".
  [[nodiscard]] std::string text(const std::string& what) const;
};

/// The files that were read, and the files and folders that were skipped.
struct TextFilesFound {
  bool folder = false;
  double max_file_mb = 0;   ///< limit that was applied
  std::uint64_t read = 0;   ///< number of files read
  std::uint64_t bytes = 0;  ///< bytes of the files read
  LeftOut binary;           ///< files with NUL bytes or invalid UTF-8
  LeftOut wide;             ///< texts in UTF-16 or UTF-32
  LeftOut large;            ///< files over the limit
  LeftOut data;             ///< files of records: is_data_file() of file_kind.hpp
  LeftOut unreadable;       ///< files and folders that the system refused to read
  LeftOut folders;          ///< folders that are hidden or have a name of build outputs
  /// Returns the counts and names of everything that was skipped, by reason.
  [[nodiscard]] std::string left_out() const;
};

/// Returns the files of a folder that read_text_files() considers, in the same order.
[[nodiscard]] std::vector<std::filesystem::path> files_of_folder(const std::filesystem::path& folder);

/// The selection of a folder's files.
struct TextFileOptions {
  double max_file_mb = 4;   ///< size of the largest file that is read, in 10^6 bytes
  bool data_files = false;  ///< true: data files are read too
};

/// Receives a file's text and its path, which is relative to the folder if a folder is read.
using TextSink = std::function<void(const std::string& path, std::string_view text)>;

/// Calls `sink` with every file, in order of path (bytewise, relative to the folder).
///
/// A folder is read recursively without hidden folders, `build*`, `runs` and `CMakeFiles`; links to folders are not
/// followed. Data files (unless `options` include them), files with NUL bytes or invalid UTF-8, files over the limit
/// and empty files are skipped. JSON documents are read, as source trees contain them. A single file may have any name
/// and size: the caller has decided that it is a text. A byte order mark is not passed on. Throws JobError for a
/// missing path, a single file that is empty, binary or unreadable, and a folder without text.
TextFilesFound read_text_files(const std::filesystem::path& path, const TextFileOptions& options, const TextSink& sink);

}  // namespace maestro
