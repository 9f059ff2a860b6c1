// SPDX-License-Identifier: Apache-2.0
#include "runtime/dataset/kept_text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

namespace maestro {

namespace {

constexpr std::string_view space = " \t\r\n\f\v";
constexpr int most_searches = 128;     // searches of a part, each over `whole`
constexpr std::size_t least_kept = 4;  // characters: fewer may match by chance

/// Marks around thoughts, which templates remove or put around reasoning.
constexpr std::array<std::string_view, 2> marks{"<think>", "</think>"};

bool contains(std::string_view whole, std::string_view part) {
  return whole.find(part) != std::string_view::npos;
}

/// Passes the trimmed lines of a text, also cut around the marks.
template <class Sink>
void for_each_piece(std::string_view text, const Sink& sink) {
  while (!text.empty()) {
    std::size_t end = std::min(text.find('\n'), text.size());
    for (const std::string_view mark : marks) {
      const std::size_t at = text.substr(0, end).find(mark);
      if (at != std::string_view::npos) end = at == 0 ? mark.size() : at;
    }
    if (const std::string_view piece = trimmed(text.substr(0, end)); !piece.empty()) sink(piece);
    text.remove_prefix(std::min(text.size(), end + (end < text.size() && text[end] == '\n' ? 1 : 0)));
  }
}

std::string json_spelling(std::string_view text) {
  const std::string quoted = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return quoted.substr(1, quoted.size() - 2);
}

/// Returns the size in bytes of the longest end of `piece` (its beginning or its last bytes) that `whole` contains.
template <class End>
std::size_t longest_contained(std::string_view piece, std::string_view whole, const End& end_of) {
  std::size_t least = 0, most = piece.size();
  while (least < most) {
    const std::size_t middle = (least + most + 1) / 2;
    if (contains(whole, end_of(piece, middle))) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

std::size_t kept_of_piece(std::string_view piece, std::string_view whole) {
  const auto beginning = [](std::string_view text, std::size_t size) { return text.substr(0, size); };
  const auto ending = [](std::string_view text, std::size_t size) { return text.substr(text.size() - size); };
  const std::size_t first = longest_contained(piece, whole, beginning);
  const std::size_t last = longest_contained(piece, whole, ending);
  const std::size_t kept = count_characters(first >= last ? beginning(piece, first) : ending(piece, last));
  return kept < least_kept ? 0 : kept;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(space);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(space) + 1 - begin);
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U && space.find(c) == std::string_view::npos;
  }));
}

std::size_t kept_characters(std::string_view part, std::string_view whole) {
  if (contains(whole, part) || contains(whole, json_spelling(part))) return count_characters(part);
  std::unordered_set<std::string_view> lines;
  for_each_piece(whole, [&](std::string_view piece) { lines.insert(piece); });
  std::size_t kept = count_characters(part);
  int searches = 0;
  for_each_piece(part, [&](std::string_view piece) {
    if (lines.contains(piece)) return;
    const std::size_t characters = count_characters(piece);
    if (searches >= most_searches) {
      kept -= characters;
      return;
    }
    ++searches;
    if (contains(whole, piece)) return;
    searches += 2 * static_cast<int>(std::bit_width(piece.size()));
    kept -= characters - kept_of_piece(piece, whole);
  });
  return kept;
}

}  // namespace maestro
