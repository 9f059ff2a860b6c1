// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/row_files.hpp"

#include <algorithm>
#include <istream>
#include <memory>
#include <set>
#include <system_error>

#include "runtime/core/json_text.hpp"
#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/dataset/byte_source.hpp"
#include "runtime/dataset/parquet_rows.hpp"
#include "runtime/dataset/tar_rows.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t text_piece = std::size_t{1} << 16;
constexpr std::size_t longest_row = std::size_t{64} << 20;

Error wrong(std::string reason) {
  return {ErrorCode::invalid_argument, std::move(reason)};
}

Status read_lines(const fs::path& file, std::istream& in, const RowSink& sink) {
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = file.string() + ":" + std::to_string(number);
    if (line.size() > longest_row) return wrong(printable(where) + ": the line is longer than 64 MiB");
    sink({where, std::move(line), true, false, false, {}});
  }
  return {};
}

Status read_list(const fs::path& file, std::istream& in, const RowSink& sink) {
  std::int64_t number = 0;
  return parse_json_list({in, file.string(), "rows"}, [&](const nlohmann::json& row) {
    sink({file.string() + ": row " + std::to_string(++number), row.dump(), true, false, false, {}});
  });
}

/// Returns the length of the longest part of `text` that ends after a line, else after a word, else after a character.
std::size_t piece_of(std::string_view text) {
  for (const std::string_view end : {std::string_view("\n"), std::string_view(" \t")}) {
    const std::size_t at = text.find_last_of(end);
    if (at != text.npos && at >= text.size() / 2) return at + 1;
  }
  std::size_t end = text.size();
  while (end > 0 && (static_cast<unsigned char>(text[end - 1]) & 0xC0) == 0x80) --end;
  return end > 1 ? end - 1 : text.size();
}

Status read_text_pieces(const fs::path& file, std::istream& in, const TextStreamBuffer& buffer, const RowSink& sink) {
  std::string held;  // its first part is passed on when more has been read
  std::string more(text_piece, '\0');
  std::size_t passed = 0;
  const auto pass = [&](std::string piece, bool continues) -> Status {
    const std::size_t valid = std::min(valid_utf8_prefix(piece), piece.find('\0'));
    if (valid < piece.size()) {
      return wrong(printable(file.string()) + ": byte " + std::to_string(buffer.mark() + passed + valid) +
                   " is not text (UTF-8)");
    }
    const bool continued = passed > 0;
    passed += piece.size();
    sink({file.string(), std::move(piece), false, continues, continued, {}});
    return {};
  };
  for (;;) {
    in.read(more.data(), static_cast<std::streamsize>(more.size()));
    const auto got = static_cast<std::size_t>(in.gcount());
    if (got == 0) break;
    held.append(more, 0, got);
    if (held.size() < 2 * text_piece) continue;
    const std::size_t length = piece_of(std::string_view(held).substr(0, text_piece));
    if (const Status taken = pass(held.substr(0, length), true); !taken) return taken;
    held.erase(0, length);
  }
  while (held.size() > text_piece) {
    const std::size_t length = piece_of(std::string_view(held).substr(0, text_piece));
    if (const Status taken = pass(held.substr(0, length), true); !taken) return taken;
    held.erase(0, length);
  }
  return held.empty() ? Status() : pass(std::move(held), false);
}

/// Returns the row of a caption: the answer to a question that has only images or sounds.
std::string caption_row(const std::string& caption, const std::vector<TarImage>& images, Media media) {
  nlohmann::json question = nlohmann::json::array();
  for (const TarImage& image : images)
    question.push_back({{"type", medium_of(std::string_view(image.head), media).type}});
  const std::string text(without_mark(caption));
  return nlohmann::json{
      {"messages", {{{"role", "user"}, {"content", std::move(question)}}, {{"role", "assistant"}, {"content", text}}}}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::strict);
}

Status read_tar(const fs::path& file, const RowSink& sink, Media media) {
  return read_tar_rows(file, [&](TarRow&& row) -> Status {
    const std::string where = file.string() + ": " + printable(row.stem);
    if (!row.pictures.empty() && media.empty()) {
      return wrong(
          printable(file.string() + ": " + row.pictures.front().name) +
          " is an image or a sound; data.processor (--model) names the model whose processor reads it, or kind = "
          "\"llava\" reads conversations about images");
    }
    const bool caption = row.text && !row.pictures.empty();
    if (row.json && row.text && !caption) {
      return wrong(printable(where) + " has the members .json and .txt; a row is one of them");
    }
    if (caption && row.json) {  // img2dataset writes metadata next to captions
      const Result<nlohmann::json> value = parse_json(*row.json, where + ".json");
      if (!value) return value.error();
      if (value->is_object() && value->contains("conversations")) {
        return wrong(printable(where) + " has a caption (.txt) and a conversation (.json)");
      }
    }
    if (caption && valid_utf8_prefix(*row.text) != row.text->size()) {
      return wrong(printable(where) + ".txt is not text (UTF-8)");
    }
    const bool json = row.json.has_value() || caption;
    std::string content =
        caption ? caption_row(*row.text, row.pictures, media) : *std::move(json ? row.json : row.text);
    content.erase(0, content.size() - without_mark(content).size());
    sink({where, std::move(content), json, false, false, {{}, std::move(row.pictures), caption && row.json, {}}});
    return {};
  });
}

}  // namespace

std::vector<fs::path> row_files(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    std::error_code failure;
    if (!fs::exists(path, failure)) {
      fs::path existing = fs::absolute(path).lexically_normal();
      while (!fs::exists(existing, failure) && existing.has_relative_path()) existing = existing.parent_path();
      throw JobError(
          printable(path.string()) + " does not exist; the part that exists is " + printable(existing.string()),
          ErrorCode::not_found);
    }
    if (!fs::is_directory(path, failure)) {
      files.push_back(path);
      continue;
    }
    std::vector<fs::path> found;
    for (auto at = fs::recursive_directory_iterator(path, fs::directory_options::skip_permission_denied);
         at != fs::recursive_directory_iterator(); ++at) {
      const bool hidden = at->path().filename().string().starts_with('.');
      if (at->is_directory() && hidden) at.disable_recursion_pending();
      if (!hidden && at->is_regular_file()) found.push_back(at->path());
    }
    if (found.empty()) throw JobError(printable(path.string()) + " is a folder without files");
    std::ranges::sort(found, {}, [](const fs::path& each) { return each.string(); });
    files.insert(files.end(), found.begin(), found.end());
  }
  std::set<std::string> seen;
  std::erase_if(files, [&](const fs::path& file) { return !seen.insert(fs::weakly_canonical(file).string()).second; });
  return files;
}

Status read_rows(const fs::path& file, RowFileKind kind, const RowSink& sink, Media media) {
  if (kind == RowFileKind::webdataset) return read_tar(file, sink, media);
  if (kind == RowFileKind::parquet) return read_parquet(file, sink, !media.empty());
  if (const Status taken = check_kind_of_rows(file, kind); !taken) return taken;
  const Result<std::unique_ptr<TextStreamBuffer>> buffer = TextStreamBuffer::open(file);
  if (!buffer) return buffer.error();
  std::istream in(buffer->get());
  Status read;
  if (kind == RowFileKind::json_lines) read = read_lines(file, in, sink);
  if (kind == RowFileKind::json_list) read = read_list(file, in, sink);
  if (kind == RowFileKind::text) read = read_text_pieces(file, in, **buffer, sink);
  return (*buffer)->error() ? read : (*buffer)->error();
}

}  // namespace maestro
