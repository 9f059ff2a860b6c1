#include "runtime/data/text_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <new>
#include <system_error>
#include <vector>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/data/utf8.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::uintmax_t largest_in_folder = 4'000'000;  // bytes: generated tables and logs would drown the sources

/// Offset of the first byte that no text has (NUL, or not UTF-8); text.size() when all is well.
std::size_t text_prefix(std::string_view text) {
  return std::min(valid_utf8_prefix(text), std::min(text.find('\0'), text.size()));
}

Result<std::string> file_contents(const fs::path& path) {
  const std::string failed = "[data] path: cannot read " + printable(path.string()) + ": ";
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 65536> piece{};
  try {
    while (file) {
      file.read(piece.data(), piece.size());
      text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
    }
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::unavailable, failed + "not enough memory"};
  }
  if (file.eof() && !file.bad()) return text;
  return Error{ErrorCode::unavailable,
               failed + (errno != 0 ? std::generic_category().message(errno) : std::string("read error"))};
}

bool skipped_folder(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') || name.starts_with("build") || name == "runs" || name == "CMakeFiles";
}

struct Candidate {
  std::string relative;
  fs::path path;
};

/// Every regular file, sorted; folders that cannot be entered count as unreadable.
std::vector<Candidate> files_below(const fs::path& root, TextFilesFound& found) {
  std::vector<Candidate> files;
  std::vector<fs::path> folders{root};
  const auto note_unreadable = [&](const fs::path& path) {
    if (found.unreadable++ == 0) found.first_unreadable = path.string();
  };
  while (!folders.empty()) {
    const fs::path folder = std::move(folders.back());
    folders.pop_back();
    std::error_code failure;
    fs::directory_iterator entries(folder, failure);
    for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
      std::error_code kind_failure;
      const fs::path& path = entries->path();
      if (entries->is_directory(kind_failure)) {
        if (!entries->is_symlink(kind_failure) && !skipped_folder(path)) folders.push_back(path);
      } else if (entries->is_regular_file(kind_failure)) {
        files.push_back({path.lexically_relative(root).generic_string(), path});
      }
    }
    if (failure) note_unreadable(folder);
  }
  std::ranges::sort(files, {}, &Candidate::relative);
  return files;
}

TextFilesFound read_folder(const fs::path& root, const std::function<void(std::string_view)>& sink) {
  TextFilesFound found;
  found.folder = true;
  for (const Candidate& file : files_below(root, found)) {
    std::error_code failure;
    const std::uintmax_t size = fs::file_size(file.path, failure);
    if (!failure && size > largest_in_folder) {
      ++found.large;
      continue;
    }
    const Result<std::string> text = file_contents(file.path);
    if (!text) {
      if (found.unreadable++ == 0) found.first_unreadable = file.path.string();
    } else if (text_prefix(*text) != text->size()) {
      ++found.binary;
    } else if (!text->empty()) {
      ++found.read;
      found.bytes += text->size();
      sink(*text);
    }
  }
  if (found.read == 0) {
    throw JobError("[data] path: no text in folder " + printable(root.string()) + " (" + std::to_string(found.binary) +
                       " binary files, " + std::to_string(found.large) + " over 4 MB, " +
                       std::to_string(found.unreadable) + " unreadable)",
                   ErrorCode::not_found);
  }
  return found;
}

TextFilesFound read_single(const fs::path& path, const std::function<void(std::string_view)>& sink) {
  const std::string text = file_contents(path).value_or_throw();
  if (text.empty())
    throw JobError("[data] path: " + printable(path.string()) + " is empty; give a text file or a folder of them");
  const std::size_t good = text_prefix(text);
  if (good != text.size()) {
    const std::string what = text[good] == '\0' ? "a NUL byte" : "no UTF-8";
    throw JobError("[data] path: " + printable(path.string()) + " is not a text file: " + what + " at byte " +
                   std::to_string(good) + "; give UTF-8 text (iconv converts other encodings)");
  }
  sink(text);
  TextFilesFound found;
  found.read = 1;
  found.bytes = text.size();
  return found;
}

/// The deepest part of a missing path that does exist: where the person went astray.
std::string nearest_existing(fs::path path) {
  std::error_code failure;
  while (path.has_relative_path() && !fs::exists(path, failure)) path = path.parent_path();
  return path.empty() ? "." : path.string();
}

}  // namespace

TextFilesFound read_text_files(const fs::path& path, const std::function<void(std::string_view)>& sink) {
  if (path.empty()) throw JobError("[data] path is missing; name a text file or a folder, or set kind = \"synthetic\"");
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (!fs::exists(status)) {
    throw JobError("[data] path: " + printable(path.string()) + " does not exist; what does is " +
                       printable(nearest_existing(path)),
                   ErrorCode::not_found);
  }
  if (fs::is_directory(status)) return read_folder(path, sink);
  if (!fs::is_regular_file(status)) {
    throw JobError("[data] path: " + printable(path.string()) + " is neither a file nor a folder");
  }
  return read_single(path, sink);
}

}  // namespace maestro
