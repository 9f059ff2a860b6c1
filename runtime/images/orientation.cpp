// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/orientation.hpp"

#include <algorithm>

namespace maestro {

namespace {

constexpr std::uint32_t orientation_tag = 0x0112;
constexpr std::uint32_t type_short = 3, type_long = 4;

/// Reads numbers at offsets in a TIFF block; returns 0 beyond its end.
class TiffBytes {
 public:
  explicit TiffBytes(std::string_view bytes) : bytes_(bytes), little_(bytes.starts_with("II")) {}
  [[nodiscard]] std::uint32_t at(std::size_t offset, std::size_t count) const {
    if (offset > bytes_.size() || bytes_.size() - offset < count) return 0;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) {
      value = value << 8 | static_cast<unsigned char>(bytes_[offset + (little_ ? count - 1 - i : i)]);
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool little_;
};

/// Returns whether the stored rows are the columns of the upright image.
bool lies_on_its_side(int orientation) {
  return orientation >= 5;
}

}  // namespace

int exif_orientation(std::string_view block) {
  constexpr std::string_view mark("Exif\0\0", 6);
  std::string_view tiff = block;
  while (tiff.starts_with(mark)) tiff.remove_prefix(mark.size());
  if (!tiff.starts_with("II") && !tiff.starts_with("MM")) return as_stored;
  const TiffBytes number(tiff);
  if (number.at(2, 2) != 42) return as_stored;
  const std::size_t directory = number.at(4, 4);
  const std::uint32_t entries = number.at(directory, 2);
  for (std::uint32_t entry = 0; entry < entries; ++entry) {
    const std::size_t at = directory + 2 + std::size_t{entry} * 12;
    if (number.at(at, 2) != orientation_tag) continue;
    const std::uint32_t type = number.at(at + 2, 2);
    const std::uint32_t value = type == type_short  ? number.at(at + 8, 2)
                                : type == type_long ? number.at(at + 8, 4)
                                                    : 0;
    return value >= 1 && value <= 8 ? static_cast<int>(value) : as_stored;
  }
  return as_stored;
}

ImageSize upright(ImageSize stored, int orientation) {
  return lies_on_its_side(orientation) ? ImageSize{stored.height, stored.width} : stored;
}

Image upright(Image stored, int orientation) {
  if (orientation == as_stored) return stored;
  const bool mirrored_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirrored_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const ImageSize size = upright(stored.size(), orientation);
  Image out{size.width, size.height, std::vector<std::uint8_t>(stored.pixels.size())};
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t row = 0; row < size.height; ++row) {
    for (std::int64_t column = 0; column < size.width; ++column, to += 3) {
      std::int64_t x = lies_on_its_side(orientation) ? row : column;
      std::int64_t y = lies_on_its_side(orientation) ? column : row;
      if (mirrored_x) x = stored.width - 1 - x;
      if (mirrored_y) y = stored.height - 1 - y;
      std::copy_n(stored.pixels.data() + (y * stored.width + x) * 3, 3, to);
    }
  }
  return out;
}

}  // namespace maestro
