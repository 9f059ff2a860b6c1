// SPDX-License-Identifier: Apache-2.0
// Numbers in MXFP4 (OCP Microscaling Formats 1.0, 2023, section 5): blocks of 32 neighbours in a row, four bits each,
// the low half of a byte first, times 2^(scale - 127). 4.25 bits a number.
//
// BF-1 (same values): numbers in blocks have exactly the values to which transformers widens them in bf16.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace maestro {

inline constexpr std::int64_t mxfp4_block = 32;  ///< numbers of a block
inline constexpr std::int64_t mxfp4_bytes = 16;  ///< bytes of a block
inline constexpr std::uint8_t mxfp4_nan = 255;   ///< a scale that makes a block no numbers

/// Returns the number of a half byte: 0, 0.5, 1, 1.5, 2, 3, 4 or 6, or with the high bit its negative, times 2^(scale -
/// 127); infinite if it is too large. Without arithmetic on floats, since a thread may round small numbers to zero.
constexpr float mxfp4_number(std::uint32_t half, std::uint32_t scale) {
  const std::uint32_t size = half & 7U, fraction = size > 1 ? size % 2 << 22 : 0, sign = half >> 3 << 31;
  if (size == 0) return std::bit_cast<float>(sign);
  // As in a float: the biased exponent, and the fraction after the first bit, which is 1; below 1 the number is
  // shifted.
  const int exponent = static_cast<int>(scale) - 1 + static_cast<int>(size / 2);
  if (exponent > 254) return std::bit_cast<float>(sign | 0x7f800000U);
  if (exponent > 0) return std::bit_cast<float>(sign | static_cast<std::uint32_t>(exponent) << 23 | fraction);
  return std::bit_cast<float>(sign | (0x00800000U | fraction) >> (1 - exponent));
}

/// Rows of `columns` numbers, a multiple of a block; the memory is another's.
struct Mxfp4Rows {
  const std::uint8_t* blocks = nullptr;  ///< (rows, columns / 32, 16)
  const std::uint8_t* scales = nullptr;  ///< (rows, columns / 32)
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  [[nodiscard]] std::int64_t row_blocks() const { return columns / mxfp4_block; }
  [[nodiscard]] Mxfp4Rows row_slice(std::int64_t first, std::int64_t count) const {
    const std::int64_t before = first * row_blocks();
    return {blocks + before * mxfp4_bytes, scales + before, count, columns};
  }
  /// Returns whether all blocks of the rows are numbers.
  [[nodiscard]] bool numbers() const { return std::find(scales, scales + rows * row_blocks(), mxfp4_nan) == end(); }
  /// Writes the numbers [first, first + to.size()) of a row.
  void widen(std::int64_t row, std::int64_t first, std::span<float> to) const {
    std::size_t done = 0;
    while (done < to.size()) {
      const std::int64_t column = first + static_cast<std::int64_t>(done), place = column % mxfp4_block;
      const std::int64_t block = row * row_blocks() + column / mxfp4_block;
      const std::uint8_t* bytes = blocks + block * mxfp4_bytes;
      const auto count = std::min(to.size() - done, static_cast<std::size_t>(mxfp4_block - place));
      std::array<float, 16> own{};
      for (std::uint32_t half = 0; half < 16; ++half) own[half] = mxfp4_number(half, scales[block]);
      for (std::size_t i = 0; i < count; ++i, ++done) {
        const auto at = static_cast<std::size_t>(place) + i;
        to[done] = own[bytes[at / 2] >> (at % 2 * 4) & 15];
      }
    }
  }

 private:
  [[nodiscard]] const std::uint8_t* end() const { return scales + rows * row_blocks(); }
};

}  // namespace maestro
