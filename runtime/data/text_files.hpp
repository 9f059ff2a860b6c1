// The text behind a path: one file, or the text files of a folder in an order that does not depend on the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace maestro {

/// What a folder held and what was left out of it.
struct TextFilesFound {
  bool folder = false;
  std::uint64_t read = 0;        ///< files taken
  std::uint64_t bytes = 0;       ///< of the files taken
  std::uint64_t binary = 0;      ///< left out: NUL bytes or not UTF-8
  std::uint64_t large = 0;       ///< left out: over 4 MB
  std::uint64_t unreadable = 0;  ///< left out: the system refused
  std::string first_unreadable;  ///< path of the first of them
};

/// Calls `sink` with the text of every file, in order of path (bytewise, relative to the folder).
///
/// A folder is read recursively without hidden folders, `build*`, `runs` and `CMakeFiles`, and without following links
/// to folders; in it files with NUL bytes or invalid UTF-8, files over 4 MB and empty files are left out. A single file
/// may have any size. Throws JobError: a missing path, a single file that is empty, binary or unreadable, a folder
/// without any text.
TextFilesFound read_text_files(const std::filesystem::path& path, const std::function<void(std::string_view)>& sink);

}  // namespace maestro
