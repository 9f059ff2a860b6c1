// SPDX-License-Identifier: Apache-2.0
#include "runtime/core/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace maestro {

namespace {

/// Bytes at the start of a (non-empty) text that are a character, or a part of one that no byte continues.
struct Start {
  std::size_t bytes = 1;
  bool whole = false;
};

Start start_of(std::string_view text) {
  const auto byte = [&](std::size_t at) { return static_cast<std::uint8_t>(text[at]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {1, true};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < 2) return {};
  // The second byte's range excludes overlong forms, surrogates and code points above U+10FFFF.
  const std::uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return {};
  std::size_t at = 2;
  while (at < length && at < text.size() && (byte(at) & 0xc0) == 0x80) ++at;
  return {at, at == length};
}

constexpr std::size_t wide_sample = 64;  // bytes that identify a wide encoding without its mark
constexpr std::size_t least_wide = 8;

/// Returns whether characters of `width` bytes are printable ASCII at byte `at` and otherwise NUL.
bool is_wide_ascii(std::string_view text, std::size_t width, std::size_t at) {
  text = text.substr(0, text.size() / width * width);
  for (std::size_t byte = 0; byte < text.size(); ++byte) {
    const char c = text[byte];
    const bool printable = (c >= ' ' && c < 0x7f) || (c >= '\t' && c <= '\r');
    if (byte % width == at ? !printable : c != '\0') return false;
  }
  return text.size() >= least_wide;
}

bool eight_ascii(std::string_view text) {
  if (text.size() < 8) return false;
  std::uint64_t word = 0;
  std::memcpy(&word, text.data(), sizeof word);
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (eight_ascii(text.substr(at))) {
      at += 8;
      continue;
    }
    const Start start = start_of(text.substr(at));
    if (!start.whole) return at;
    at += start.bytes;
  }
  return at;
}

std::string repaired_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    repaired += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    repaired += "\xef\xbf\xbd";
    text.remove_prefix(start_of(text).bytes);
  }
  return repaired;
}

std::string_view without_mark(std::string_view text) {
  while (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  return text;
}

std::string_view wide_encoding(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("\xff\xfe\0\0"sv) || head.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  if (head.starts_with("\xff\xfe"sv) || head.starts_with("\xfe\xff"sv)) return "UTF-16";
  for (const std::size_t width : {std::size_t{4}, std::size_t{2}}) {
    for (const std::size_t at : {std::size_t{0}, width - 1}) {  // position of the ASCII byte in a character
      if (is_wide_ascii(head.substr(0, wide_sample), width, at)) return width == 4 ? "UTF-32" : "UTF-16";
    }
  }
  return {};
}

}  // namespace maestro
