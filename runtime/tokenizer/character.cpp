// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/character.hpp"

#include <cstddef>
#include <iterator>
#include <map>
#include <vector>

namespace maestro {

namespace {

constexpr std::uint32_t ranges[] = {
#include "runtime/tokenizer/character_ranges.inc"
};
constexpr std::size_t points = 0x110000;
constexpr std::size_t block_size = 256;

/// A class for each code point, in blocks; equal blocks are stored once.
class ClassTable {
 public:
  ClassTable() {
    std::map<std::vector<CharacterClass>, std::uint16_t, Less> stored;
    std::vector<CharacterClass> block(block_size);
    std::size_t range = 0;
    for (std::size_t first = 0; first < points; first += block_size) {
      for (std::size_t i = 0; i < block_size; ++i) {
        while (range + 1 < std::size(ranges) && ranges[range + 1] >> 8U <= first + i) ++range;
        block[i].bits = static_cast<std::uint8_t>(ranges[range] & 0xFFU);
      }
      const auto [found, added] = stored.emplace(block, static_cast<std::uint16_t>(stored.size()));
      if (added) classes_.insert(classes_.end(), block.begin(), block.end());
      blocks_[first / block_size] = found->second;
    }
  }
  [[nodiscard]] CharacterClass of(char32_t point) const {
    return classes_[blocks_[point / block_size] * block_size + point % block_size];
  }

 private:
  struct Less {
    bool operator()(const std::vector<CharacterClass>& a, const std::vector<CharacterClass>& b) const {
      for (std::size_t i = 0; i < block_size; ++i) {
        if (a[i].bits != b[i].bits) return a[i].bits < b[i].bits;
      }
      return false;
    }
  };
  std::array<std::uint16_t, points / block_size> blocks_{};
  std::vector<CharacterClass> classes_;
};

const ClassTable& table() {
  static const ClassTable made;
  return made;
}

}  // namespace

CharacterClass class_of(char32_t point) {
  return table().of(point);
}

Character character_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t offset) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + offset]));
  };
  const std::uint32_t lead = byte(0);
  std::uint32_t point = lead;
  std::uint8_t bytes = 1;
  if (lead >= 0xF0) {
    point = (lead & 7U) << 18U | (byte(1) & 63U) << 12U | (byte(2) & 63U) << 6U | (byte(3) & 63U);
    bytes = 4;
  } else if (lead >= 0xE0) {
    point = (lead & 15U) << 12U | (byte(1) & 63U) << 6U | (byte(2) & 63U);
    bytes = 3;
  } else if (lead >= 0x80) {
    point = (lead & 31U) << 6U | (byte(1) & 63U);
    bytes = 2;
  }
  return {point, class_of(point), bytes};
}

std::size_t character_before(std::string_view text, std::size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80);
  return at;
}

std::string utf8_of(char32_t point) {
  const auto byte = [](std::uint32_t bits) { return static_cast<char>(bits); };
  const auto tail = [&](unsigned shift) { return byte(0x80U | ((point >> shift) & 63U)); };
  if (point < 0x80) return {byte(point)};
  if (point < 0x800) return {byte(0xC0U | point >> 6U), tail(0)};
  if (point < 0x10000) return {byte(0xE0U | point >> 12U), tail(6), tail(0)};
  return {byte(0xF0U | point >> 18U), tail(12), tail(6), tail(0)};
}

}  // namespace maestro
