// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/file_kind.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/printable.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/dataset/byte_source.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t sniffed = std::size_t{1} << 16;
constexpr std::size_t tar_magic_at = 257;
constexpr std::string_view spaces = " \t\r\n\v\f";

template <std::size_t count>
bool is_among(const std::array<std::string_view, count>& endings, const std::string& ending) {
  return std::ranges::find(endings, ending) != endings.end();
}

/// Returns the last ending of a name in lower case, without a compression's ending.
std::string ending_of(const fs::path& path) {
  constexpr std::array<std::string_view, 5> compressions{".gz", ".bz2", ".xz", ".zst", ".zstd"};
  std::string name = path.filename().string();
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  std::string ending = fs::path(name).extension().string();
  if (is_among(compressions, ending)) ending = fs::path(name).stem().extension().string();
  return ending;
}

bool is_lines_file(const std::string& ending) {
  return ending == ".jsonl" || ending == ".ndjson";
}

Result<std::string> head_of(const fs::path& file) {
  Result<ByteSource> source = ByteSource::open_raw(file);
  if (!source) return source.error();
  std::string head(sniffed, '\0');
  const Result<std::size_t> got = source->read(head);
  if (!got) return got.error();
  head.resize(*got);
  return head;
}

/// Returns a text without leading white space.
std::string_view from_first(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(spaces), text.size()));
}

/// Returns the offset of the first byte that is not text (NUL, or not UTF-8); head.size() if there is none.
std::size_t text_prefix(std::string_view head) {
  const std::size_t valid = valid_utf8_prefix(head);
  const bool cut = head.size() == sniffed && valid + 4 > sniffed;  // cut inside of the last character
  return std::min(cut ? head.size() : valid, std::min(head.find('\0'), head.size()));
}

RowFileKind kind_of(const std::string& ending, std::string_view head, bool as_text) {
  if (head.size() > tar_magic_at + 5 && head.substr(tar_magic_at, 5) == "ustar") return RowFileKind::webdataset;
  if (head.starts_with("PAR1")) return RowFileKind::parquet;
  if (!wide_encoding(head).empty()) return RowFileKind::wide_text;
  const RowFileKind other = text_prefix(head) == head.size() ? RowFileKind::text : RowFileKind::binary;
  if (as_text) return other;
  if (ending == ".tar") return RowFileKind::webdataset;
  if (ending == ".parquet") return RowFileKind::parquet;
  if (ending == ".csv" || ending == ".tsv") return RowFileKind::table;
  const bool named = is_lines_file(ending) || ending == ".json";
  if (!named && other == RowFileKind::binary) return other;
  const std::string_view text = from_first(without_mark(head));
  const bool list = text.starts_with('[') && (!is_lines_file(ending) || from_first(text.substr(1)).starts_with('{'));
  if (list) return RowFileKind::json_list;
  return named || text.starts_with('{') || text.starts_with('[') ? RowFileKind::json_lines : other;
}

}  // namespace

std::string_view name_of(RowFileKind kind) {
  constexpr std::array<std::string_view, 8> names{"text",    "JSON Lines", "JSON list",        "WebDataset",
                                                  "Parquet", "a table",    "UTF-16 or UTF-32", "binary"};
  return names[static_cast<std::size_t>(kind)];
}

Result<RowFileKind> kind_of_rows(const fs::path& file, bool as_text) {
  const Result<std::string> head = head_of(file);
  if (!head) return head.error();
  return kind_of(ending_of(file), *head, as_text);
}

Status check_kind_of_rows(const fs::path& file, RowFileKind kind) {
  const std::string name = printable(file.string());
  const auto wrong = [&](const std::string& reason) { return Error{ErrorCode::invalid_argument, name + reason}; };
  if (kind == RowFileKind::table) {
    return wrong(
        ":1: a table (" + ending_of(file) +
        ") is not read; convert it to JSON Lines, as by pandas: read_csv(FILE).to_json(NEW, orient=\"records\", "
        "lines=True), or read it unchanged with as_text = true (--as-text)");
  }
  if (kind != RowFileKind::wide_text && kind != RowFileKind::binary) return {};
  const Result<std::string> head = head_of(file);
  if (!head) return head.error();
  const std::string wide(wide_encoding(*head));
  if (!wide.empty()) {
    return wrong(" is " + wide + "; convert it to UTF-8 (iconv -f " + wide + " -t UTF-8)");
  }
  const std::size_t byte = text_prefix(*head);
  if (head->find('\0') == head->npos && byte < head->size()) {
    return wrong(" is not text in UTF-8 from byte " + std::to_string(byte) +
                 " on; convert it to UTF-8 (iconv -f LATIN1 -t UTF-8, if it is Latin-1)");
  }
  return wrong(" is not text (UTF-8), JSON, Parquet or a tar archive; convert other tables to JSON Lines");
}

Status check_is_json(const fs::path& file, const std::string& reader) {
  const Result<RowFileKind> kind = kind_of_rows(file);
  if (!kind) return kind.error();
  if (*kind == RowFileKind::json_lines || *kind == RowFileKind::json_list || *kind == RowFileKind::text) return {};
  if (const Status taken = check_kind_of_rows(file, *kind); !taken) return taken;
  return Error{ErrorCode::invalid_argument,
               printable(file.string()) + " is " + std::string(name_of(*kind)) + ", and " + reader +
                   " are read from JSON; convert its rows to JSON Lines" +
                   (*kind == RowFileKind::parquet ? ", as by pandas: read_parquet(FILE).to_json(NEW, "
                                                    "orient=\"records\", lines=True)"
                                                  : "")};
}

bool is_data_file(const fs::path& path) {
  constexpr std::array<std::string_view, 5> endings{".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"};
  return is_among(endings, ending_of(path));
}

bool is_json_file(const fs::path& path) {
  const std::string ending = ending_of(path);
  return is_lines_file(ending) || ending == ".json";
}

bool looks_like_rows(const fs::path& file, RowFileKind kind) {
  if (kind == RowFileKind::webdataset || kind == RowFileKind::parquet) return true;
  if (kind != RowFileKind::json_lines && kind != RowFileKind::json_list) return false;
  if (is_lines_file(ending_of(file))) return true;
  const Result<std::string> head = head_of(file);
  if (!head) return false;
  const std::string_view text = from_first(without_mark(*head));
  if (kind == RowFileKind::json_list) return from_first(text.substr(1)).starts_with('{');
  const std::size_t end = text.find('\n');
  // A first line that is longer than the bytes read is a row: documents have line breaks.
  if (end == text.npos && head->size() == sniffed) return true;
  std::string_view line = text.substr(0, end);
  line = line.substr(0, line.find_last_not_of(" \t\r\n,") + 1);
  return line.starts_with('{') && line.ends_with('}');
}

}  // namespace maestro
