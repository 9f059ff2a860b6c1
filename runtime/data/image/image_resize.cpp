// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/image/image_resize.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace maestro {

namespace {

/// The source pixels [first, first + weights.size()) that a target pixel averages. Weights sum to 1.
struct Taps {
  std::size_t first = 0;
  std::vector<float> weights;
};

std::vector<Taps> taps_of(std::int64_t from, std::int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(scale, 1.0);
  std::vector<Taps> all(static_cast<std::size_t>(to));
  for (std::int64_t target = 0; target < to; ++target) {
    const double centre = (static_cast<double>(target) + 0.5) * scale;
    const auto first = std::max<std::int64_t>(0, std::llround(std::floor(centre - reach)));
    const auto last = std::min<std::int64_t>(from - 1, std::llround(std::ceil(centre + reach)));
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t at = first; at <= last; ++at) {
      weights.push_back(std::max(0.0, 1.0 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach));
      sum += weights.back();
    }
    Taps& taps = all[static_cast<std::size_t>(target)];
    taps.first = static_cast<std::size_t>(first);
    for (const double weight : weights) taps.weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

/// Resizes rows: (rows, width, 3) to (rows, all.size(), 3).
std::vector<float> across(const Image& image, const std::vector<Taps>& all) {
  const auto width = static_cast<std::size_t>(image.width);
  const auto rows = static_cast<std::size_t>(image.height);
  std::vector<float> out(rows * all.size() * 3);
  float* to = out.data();
  for (std::size_t row = 0; row < rows; ++row) {
    for (const Taps& taps : all) {
      const std::uint8_t* from = image.pixels.data() + (row * width + taps.first) * 3;
      float sums[3] = {0, 0, 0};
      for (const float weight : taps.weights) {
        for (float& sum : sums) sum += weight * static_cast<float>(*from++);
      }
      to = std::copy(std::begin(sums), std::end(sums), to);
    }
  }
  return out;
}

/// Resizes columns and rounds: (rows, stride) to (all.size(), stride).
std::vector<std::uint8_t> down(const std::vector<float>& rows, std::size_t stride, const std::vector<Taps>& all) {
  std::vector<std::uint8_t> out(all.size() * stride);
  std::vector<float> sums(stride);
  auto to = out.begin();
  for (const Taps& taps : all) {
    std::ranges::fill(sums, 0.0f);
    const float* from = rows.data() + taps.first * stride;
    for (const float weight : taps.weights) {
      for (float& sum : sums) sum += weight * *from++;
    }
    to = std::ranges::transform(sums, to, [](float sum) {
           return static_cast<std::uint8_t>(std::clamp(sum + 0.5f, 0.0f, 255.0f));
         }).out;
  }
  return out;
}

}  // namespace

Image resize(const Image& image, std::int64_t width, std::int64_t height) {
  assert(width > 0 && height > 0 && image.width > 0 && image.height > 0);
  if (image.size() == ImageSize{width, height}) return image;
  const std::vector<float> wide = across(image, taps_of(image.width, width));
  return {width, height, down(wide, static_cast<std::size_t>(width) * 3, taps_of(image.height, height))};
}

}  // namespace maestro
