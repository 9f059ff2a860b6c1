// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/tokenizer.hpp"

#include <algorithm>
#include <array>

#include "runtime/core/result.hpp"
#include "runtime/data/utf8.hpp"

namespace maestro {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode(text, [&](std::span<const std::int32_t> piece) { tokens.insert(tokens.end(), piece.begin(), piece.end()); });
  return tokens;
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

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string bytes;
  bytes.reserve(tokens.size());
  for (const std::int32_t token : tokens) {
    // 0xff occurs in no UTF-8 text, so the repair below turns it into U+FFFD.
    bytes += token >= 0 && token < 256 ? static_cast<char>(token) : '\xff';
  }
  return repaired_utf8(bytes);
}

std::unique_ptr<Tokenizer> make_tokenizer(std::string_view name) {
  if (name == "bytes") return std::make_unique<ByteTokenizer>();
  throw JobError("[data] tokenizer = \"" + std::string(name) + "\" is unknown; the nearest valid name is \"bytes\"");
}

}  // namespace maestro
