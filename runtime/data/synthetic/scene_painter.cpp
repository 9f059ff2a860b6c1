// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/scene_painter.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace maestro {

namespace {

constexpr std::uint8_t ground = 96;
constexpr int rays = 4;  // samples per pixel and direction

/// Digits 0 to 9 as seven rows with five dots each; the highest of five bits is the leftmost dot.
constexpr std::array<std::array<std::uint8_t, 7>, 10> digits{{{14, 17, 19, 21, 25, 17, 14},
                                                              {4, 12, 4, 4, 4, 4, 14},
                                                              {14, 17, 1, 2, 4, 8, 31},
                                                              {31, 2, 4, 2, 1, 17, 14},
                                                              {2, 6, 10, 18, 31, 2, 2},
                                                              {31, 16, 30, 1, 1, 17, 14},
                                                              {6, 8, 16, 30, 17, 17, 14},
                                                              {31, 1, 2, 4, 8, 8, 8},
                                                              {14, 17, 17, 14, 17, 17, 14},
                                                              {14, 17, 17, 15, 1, 2, 12}}};

bool in_digit(std::size_t digit, double u, double v) {
  const auto row = static_cast<int>(std::floor((v + 1.0) * 3.5));
  const auto column = static_cast<int>(std::floor((u * 1.4 + 1.0) * 2.5));  // five columns, as wide as rows are high
  if (row < 0 || row > 6 || column < 0 || column > 4) return false;
  return (digits[digit][static_cast<std::size_t>(row)] >> (4 - column) & 1) != 0;
}

/// Returns whether the figure in [-1, 1] x [-1, 1], with v downwards, covers the point. Shapes differ not only in their
/// edges but in their area.
bool covers(std::size_t figure, double u, double v) {
  if (std::abs(u) > 1.0 || std::abs(v) > 1.0) return false;
  switch (figure) {
    case 0:
      return u * u + v * v <= 0.45;
    case 1:
      return true;
    case 2:
      return std::abs(u) <= (v + 1.0) / 2.0;
    case 3:
      return std::abs(u) <= 0.2 || std::abs(v) <= 0.2;
    default:
      return in_digit(figure - scene_shapes.size(), u, v);
  }
}

/// Returns the share of the pixel that the object covers.
double coverage(const SceneObject& object, double left, double top, double pixel) {
  int hits = 0;
  for (int row = 0; row < rays; ++row) {
    for (int column = 0; column < rays; ++column) {
      const double x = left + (column + 0.5) / rays * pixel;
      const double y = top + (row + 0.5) / rays * pixel;
      if (covers(object.figure, (x - object.x) / object.radius, (y - object.y) / object.radius)) ++hits;
    }
  }
  return static_cast<double>(hits) / (rays * rays);
}

/// Returns the half-open range of pixels between `centre - radius` and `centre + radius`.
std::pair<std::int64_t, std::int64_t> pixels_between(double centre, double radius, std::int64_t side) {
  const auto scale = static_cast<double>(side);
  return {std::clamp<std::int64_t>(std::llround(std::floor((centre - radius) * scale)), 0, side),
          std::clamp<std::int64_t>(std::llround(std::ceil((centre + radius) * scale)), 0, side)};
}

void paint(const SceneObject& object, Image& image) {
  const double pixel = 1.0 / static_cast<double>(image.width);
  const auto [left, right] = pixels_between(object.x, object.radius, image.width);
  const auto [top, bottom] = pixels_between(object.y, object.radius, image.height);
  for (std::int64_t y = top; y < bottom; ++y) {
    for (std::int64_t x = left; x < right; ++x) {
      const double share = coverage(object, static_cast<double>(x) * pixel, static_cast<double>(y) * pixel, pixel);
      std::uint8_t* at = image.pixels.data() + (y * image.width + x) * 3;
      for (std::size_t channel = 0; channel < 3; ++channel) {
        const double mixed = at[channel] + share * (scene_colours[object.colour].rgb[channel] - at[channel]);
        at[channel] = static_cast<std::uint8_t>(std::lround(mixed));
      }
    }
  }
}

}  // namespace

Image paint_scene(std::span<const SceneObject> objects, std::int64_t side) {
  Image image{side, side, std::vector<std::uint8_t>(static_cast<std::size_t>(side * side * 3), ground)};
  for (const SceneObject& object : objects) paint(object, image);
  return image;
}

}  // namespace maestro
