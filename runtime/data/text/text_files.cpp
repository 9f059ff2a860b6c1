// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text/text_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <new>
#include <sstream>
#include <system_error>
#include <vector>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/dataset/file_kind.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t named = 3;  // paths listed for each reason to skip

/// Returns "4" or "0.5".
std::string number(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// Returns the offset of the first byte that is not text (NUL, or not UTF-8); text.size() if there is none.
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

/// Returns all regular files, sorted; folders that cannot be read are counted as unreadable.
std::vector<Candidate> files_below(const fs::path& root, TextFilesFound& found) {
  std::vector<Candidate> files;
  std::vector<fs::path> folders{root};
  const auto relative = [&](const fs::path& path) { return path.lexically_relative(root).generic_string(); };
  while (!folders.empty()) {
    const fs::path folder = std::move(folders.back());
    folders.pop_back();
    std::error_code failure;
    fs::directory_iterator entries(folder, failure);
    for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) {
      std::error_code kind_failure;
      const fs::path& path = entries->path();
      if (entries->is_directory(kind_failure)) {
        if (entries->is_symlink(kind_failure)) continue;
        skipped_folder(path) ? found.folders.add(relative(path)) : folders.push_back(path);
      } else if (entries->is_regular_file(kind_failure)) {
        files.push_back({relative(path), path});
      }
    }
    if (failure) found.unreadable.add(relative(folder));
  }
  std::ranges::sort(files, {}, &Candidate::relative);
  return files;
}

TextFilesFound read_folder(const fs::path& root, const TextFileOptions& options, const TextSink& sink) {
  TextFilesFound found;
  found.folder = true;
  found.max_file_mb = options.max_file_mb;
  for (const Candidate& file : files_below(root, found)) {
    std::error_code failure;
    const std::uintmax_t size = fs::file_size(file.path, failure);
    if (!options.data_files && is_data_file(file.path)) {
      found.data.add(file.relative);
      continue;
    }
    if (!failure && static_cast<double>(size) > options.max_file_mb * 1e6) {
      found.large.add(file.relative);
      continue;
    }
    const Result<std::string> content = file_contents(file.path);
    const std::string_view text = content ? without_mark(*content) : std::string_view();
    if (!content) {
      found.unreadable.add(file.relative);
    } else if (!wide_encoding(*content).empty()) {
      found.wide.add(file.relative);
    } else if (text_prefix(text) != text.size()) {
      found.binary.add(file.relative);
    } else if (!text.empty()) {
      ++found.read;
      found.bytes += text.size();
      sink(file.relative, text);
    }
  }
  if (found.read == 0) {
    throw JobError(
        "[data] path: no text in folder " + printable(root.string()) + " (left out: " + found.left_out() + ")",
        ErrorCode::not_found);
  }
  return found;
}

TextFilesFound read_single(const fs::path& path, const TextSink& sink) {
  const std::string content = file_contents(path).value_or_throw();
  const std::string_view text = without_mark(content), wide = wide_encoding(content);
  if (text.empty())
    throw JobError("[data] path: " + printable(path.string()) + " is empty; give a text file or a folder of them");
  const std::size_t good = wide.empty() ? text_prefix(text) : 0;
  if (good != text.size()) {
    const std::string found = !wide.empty() ? std::string(wide) : text[good] == '\0' ? "a NUL byte" : "not UTF-8";
    throw JobError("[data] path: " + printable(path.string()) + " is not a text file: " + found + " at byte " +
                   std::to_string(content.size() - text.size() + good) +
                   "; give UTF-8 text (iconv converts other encodings)");
  }
  sink(path.string(), text);
  TextFilesFound found;
  found.read = 1;
  found.bytes = text.size();
  return found;
}

/// Returns the longest existing part of a missing path, to show which part is wrong.
std::string nearest_existing(fs::path path) {
  std::error_code failure;
  while (path.has_relative_path() && !fs::exists(path, failure)) path = path.parent_path();
  return path.empty() ? "." : path.string();
}

}  // namespace

void LeftOut::add(std::string path) {
  first.push_back(std::move(path));
  std::ranges::sort(first);  // the file system lists folders in any order
  if (first.size() > named) first.pop_back();
  ++count;
}

std::string LeftOut::text(const std::string& what) const {
  std::string names;
  for (const std::string& path : first) names += (names.empty() ? "" : ", ") + path;
  if (count > first.size()) names += ", ...";
  return std::to_string(count) + " " + what + (count > 0 ? " (" + names + ")" : "");
}

std::string TextFilesFound::left_out() const {
  return binary.text("binary") + ", " + large.text("over " + number(max_file_mb) + " MB") + ", " +
         data.text("data files") + ", " + unreadable.text("unreadable") + ", " + folders.text("folders") +
         (wide.count > 0 ? ", " + wide.text("UTF-16 or UTF-32") : "");
}

std::vector<fs::path> files_of_folder(const fs::path& folder) {
  TextFilesFound ignored;
  std::vector<fs::path> files;
  for (Candidate& file : files_below(folder, ignored)) files.push_back(std::move(file.path));
  return files;
}

TextFilesFound read_text_files(const fs::path& path, const TextFileOptions& options, const TextSink& sink) {
  if (path.empty()) throw JobError("[data] path is missing; name a text file or a folder, or set kind = \"synthetic\"");
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (!fs::exists(status)) {
    throw JobError("[data] path: " + printable(path.string()) + " does not exist; the part that exists is " +
                       printable(nearest_existing(path)),
                   ErrorCode::not_found);
  }
  if (fs::is_directory(status)) return read_folder(path, options, sink);
  if (!fs::is_regular_file(status)) {
    throw JobError("[data] path: " + printable(path.string()) + " is neither a file nor a folder");
  }
  return read_single(path, sink);
}

}  // namespace maestro
