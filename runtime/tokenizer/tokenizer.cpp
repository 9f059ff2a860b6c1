// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/named_table.hpp"
#include "runtime/core/result.hpp"
#include "runtime/core/utf8.hpp"
#include "runtime/tokenizer/end_of_text.hpp"

namespace maestro {

namespace fs = std::filesystem;

namespace {

Tokenizer::Sink append_to(std::vector<std::int32_t>& tokens) {
  return [&tokens](std::span<const std::int32_t> piece) { tokens.insert(tokens.end(), piece.begin(), piece.end()); };
}

}  // namespace

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode(text, append_to(tokens));
  return tokens;
}

std::vector<std::int32_t> Tokenizer::encode_text(std::string_view text, bool begin) const {
  std::vector<std::int32_t> tokens;
  encode_text(text, begin, append_to(tokens));
  return tokens;
}

void Tokenizer::encode_text(std::string_view text, bool begin, const Sink& sink) const {
  const std::span<const std::int32_t> before = begin ? begin_of_text() : std::span<const std::int32_t>();
  if (before.empty()) return encode(text, sink);
  std::vector<std::int32_t> head;  // the first tokens, until there are enough to compare
  bool settled = false;
  const auto settle = [&] {
    settled = true;
    const auto first = std::ranges::mismatch(before, head).in1;
    if (first != before.end()) sink(before);
    if (!head.empty()) sink(head);
  };
  encode(text, [&](std::span<const std::int32_t> piece) {
    if (settled) return sink(piece);
    head.insert(head.end(), piece.begin(), piece.end());
    if (head.size() >= before.size()) settle();
  });
  if (!settled) settle();
}

std::string spelled_begin_of_text(const Tokenizer& tokenizer) {
  std::string text;
  for (const std::int32_t token : tokenizer.begin_of_text()) text += tokenizer.piece(token);
  return text;
}

std::string Tokenizer::fingerprint() const {
  return name() == "bytes" ? "bytes" : std::to_string(vocabulary()) + " tokens";
}

void ByteTokenizer::encode(std::string_view text, const Sink& sink) const {
  std::array<std::int32_t, 4096> piece{};
  while (!text.empty()) {
    const std::string_view head = text.substr(0, piece.size());
    std::transform(head.begin(), head.end(), piece.begin(), [](char c) { return static_cast<std::uint8_t>(c); });
    sink(std::span(piece).first(head.size()));
    text.remove_prefix(head.size());
  }
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens, bool /*skip_special*/) const {
  std::string bytes;
  bytes.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    // No UTF-8 text contains 0xff, so the repair below turns it into U+FFFD.
    bytes += token >= 0 && token < 256 ? static_cast<char>(token) : '\xff';
  }
  return repaired_utf8(bytes);
}

std::string ByteTokenizer::piece(std::int32_t token) const {
  return decode(std::span(&token, 1));
}

namespace {

/// Returns the tokenizer's file at a path.
Result<fs::path> file_at(const fs::path& at) {
  std::error_code failure;
  const auto there = [&](const fs::path& file) { return fs::exists(file, failure); };
  if (!there(at))
    return Error{ErrorCode::not_found,
                 at.string() + " does not exist; give \"bytes\", the folder of a model, or its tokenizer.json"};
  if (!fs::is_directory(at, failure)) return at;
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    if (there(at / name)) return at / name;
  }
  if (there(at / "vocab.json") && there(at / "merges.txt")) return at / "vocab.json";
  return Error{
      ErrorCode::not_found,
      at.string() + " has no tokenizer: no tokenizer.json, no tokenizer.model, and no vocab.json with merges.txt"};
}

Result<std::unique_ptr<Tokenizer>> read_file(const fs::path& file) {
  if (file.extension() == ".model") return read_sentencepiece(file);
  if (file.filename() == "vocab.json" || file.filename() == "merges.txt")
    return read_vocabulary_and_merges(file.parent_path() / "vocab.json");
  return read_tokenizer_json(file);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const fs::path& folder_or_file) {
  const auto file = file_at(folder_or_file);
  if (!file) return file.error();
  if (is_byte_tokenizer(*file)) return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
  auto opened = read_file(*file);
  if (!opened) return opened;
  const auto end = read_end_of_text(**opened, file->parent_path());
  if (!end) return end.error();
  (*opened)->end_of_text_ = *end;
  return opened;
}

namespace {
NamedTable<std::function<std::unique_ptr<Tokenizer>()>>& added_tokenizers() {
  static NamedTable<std::function<std::unique_ptr<Tokenizer>()>> added("tokenizer", {"bytes"});
  return added;
}
}  // namespace

void add_tokenizer(std::string name, std::function<std::unique_ptr<Tokenizer>()> make, std::string origin) {
  added_tokenizers().add(std::move(name), std::move(make), std::move(origin));
}

bool is_added_tokenizer(const std::string& name) {
  return name != "bytes" && added_tokenizers().find(name).has_value();
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name.empty() || name == "bytes") return std::make_unique<ByteTokenizer>();
  if (const auto added = added_tokenizers().find(std::string(name))) return (*added)();
  auto opened = open_tokenizer(fs::path(name));
  if (!opened) throw JobError("[data] tokenizer: " + opened.error().message, opened.error().code);
  return std::move(*opened);
}

}  // namespace maestro
