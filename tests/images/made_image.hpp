// SPDX-License-Identifier: Apache-2.0
// The images and checksums of record_references.py, and its lines.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/images/image.hpp"

namespace maestro {

/// Returns 32 mixed bits of a number.
inline std::uint32_t mixed_bits(std::uint32_t value) {
  value = (value ^ (value >> 16)) * 2146121005U;
  value = (value ^ (value >> 15)) * 2221713035U;
  return value ^ (value >> 16);
}

/// Returns noise, a ramp, or noise of black and white, by the sum of the sides.
inline Image made_image(ImageSize size) {
  const auto width = static_cast<std::uint32_t>(size.width), height = static_cast<std::uint32_t>(size.height);
  const std::uint32_t kind = (width + height) % 3;
  Image image{size.width, size.height, {}};
  for (std::uint32_t y = 0; y < height; ++y) {
    for (std::uint32_t x = 0; x < width; ++x) {
      for (std::uint32_t c = 0; c < 3; ++c) {
        const std::uint32_t ramp = std::min(255U, x * 255 / width / 2 + y * 255 / height / 2 + c * 20);
        const std::uint32_t noise = mixed_bits((y * width + x) * 3 + c) & 255U;
        const std::uint32_t value = kind == 1 ? ramp : kind == 0 ? noise : noise > 127 ? 255U : 0U;
        image.pixels.push_back(static_cast<std::uint8_t>(value));
      }
    }
  }
  return image;
}

inline std::string crc_text(const void* bytes, std::size_t count) {
  char text[16];
  std::snprintf(text, sizeof text, "%08lx", crc32(0, static_cast<const Bytef*>(bytes), static_cast<uInt>(count)));
  return text;
}

inline std::string crc_of(const Image& image) {
  return crc_text(image.pixels.data(), image.pixels.size());
}

/// Returns the words of each line that begins with `kind`, without it.
inline std::vector<std::vector<std::string>> reference_lines(const std::string& kind) {
  std::ifstream file(std::filesystem::path(MAESTRO_SOURCE_DIR) / "tests/images/references/pixels.txt");
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    if (words.empty() || words.front() != kind) continue;
    lines.emplace_back(words.begin() + 1, words.end());
  }
  return lines;
}

}  // namespace maestro
