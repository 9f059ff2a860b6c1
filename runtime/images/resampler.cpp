// SPDX-License-Identifier: Apache-2.0
#include "runtime/images/resampler.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

namespace maestro {

namespace {

// The arithmetic is Pillow's (libImaging/Resample.c and Geometry.c), operation by operation: double weights, rounded to
// fixed point with 22 bits after the point.

constexpr int fraction_bits = 22;
constexpr std::int32_t half = 1 << (fraction_bits - 1);

double triangle(double x) {
  x = std::abs(x);
  return x < 1.0 ? 1.0 - x : 0.0;
}

double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  return x < 2.0 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

double windowed_sinc(double x) {
  return -3.0 <= x && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
}

struct Kernel {
  double (*weight)(double);
  double support;  // weight(x) is 0 outside of [-support, support]
};

Kernel kernel_of(ResampleFilter filter) {
  if (filter == ResampleFilter::lanczos) return {windowed_sinc, 3.0};
  if (filter == ResampleFilter::bicubic) return {cubic, 2.0};
  return {triangle, 1.0};
}

std::int32_t fixed_point(double weight) {
  return static_cast<std::int32_t>((weight < 0 ? -0.5 : 0.5) + weight * (1 << fraction_bits));
}

/// The source pixels from `first` on that a target pixel averages.
struct Taps {
  std::size_t first = 0;
  std::span<const std::int32_t> weights;
};

/// The taps of all target pixels along a side.
class SideTaps {
 public:
  SideTaps(Kernel kernel, std::int64_t from, std::int64_t to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double stretch = std::max(scale, 1.0);
    const double support = kernel.support * stretch;
    for (std::int64_t target = 0; target < to; ++target) {
      const double centre = (static_cast<double>(target) + 0.5) * scale;
      const auto first = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - support + 0.5));
      const auto end = std::min(from, static_cast<std::int64_t>(centre + support + 0.5));
      firsts_.push_back(static_cast<std::size_t>(first));
      ends_.push_back(weights_.size() + static_cast<std::size_t>(end - first));
      add_weights(kernel, centre, stretch, first, end);
    }
  }

  [[nodiscard]] std::size_t size() const { return firsts_.size(); }
  [[nodiscard]] Taps at(std::size_t target) const {
    const std::size_t begin = target == 0 ? 0 : ends_[target - 1];
    return {firsts_[target], std::span(weights_).subspan(begin, ends_[target] - begin)};
  }

 private:
  void add_weights(Kernel kernel, double centre, double stretch, std::int64_t first, std::int64_t end) {
    std::vector<double> weights;
    double sum = 0;
    for (std::int64_t at = first; at < end; ++at) {
      weights.push_back(kernel.weight((static_cast<double>(at) - centre + 0.5) * (1.0 / stretch)));
      sum += weights.back();
    }
    for (const double weight : weights) weights_.push_back(fixed_point(sum != 0.0 ? weight / sum : weight));
  }

  std::vector<std::size_t> firsts_;
  std::vector<std::size_t> ends_;  // in weights_, after the last weight of each target
  std::vector<std::int32_t> weights_;
};

std::uint8_t level(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> fraction_bits, 0, 255));
}

/// Resizes rows: (height, width, 3) to (height, taps.size(), 3).
Image along_rows(const Image& image, const SideTaps& taps) {
  Image out{static_cast<std::int64_t>(taps.size()), image.height, {}};
  out.pixels.resize(taps.size() * static_cast<std::size_t>(image.height) * 3);
  const auto stride = static_cast<std::size_t>(image.width) * 3;
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t row = 0; row < image.height; ++row) {
    const std::uint8_t* source = image.pixels.data() + static_cast<std::size_t>(row) * stride;
    for (std::size_t target = 0; target < taps.size(); ++target) {
      const Taps here = taps.at(target);
      const std::uint8_t* from = source + here.first * 3;
      std::int32_t sums[3] = {half, half, half};
      for (const std::int32_t weight : here.weights) {
        for (std::int32_t& sum : sums) sum += weight * *from++;
      }
      to = std::transform(std::begin(sums), std::end(sums), to, level);
    }
  }
  return out;
}

/// Resizes columns: (height, width, 3) to (taps.size(), width, 3).
Image along_columns(const Image& image, const SideTaps& taps) {
  const auto stride = static_cast<std::size_t>(image.width) * 3;
  Image out{image.width, static_cast<std::int64_t>(taps.size()), {}};
  out.pixels.resize(taps.size() * stride);
  std::vector<std::int32_t> sums(stride);
  std::uint8_t* to = out.pixels.data();
  for (std::size_t target = 0; target < taps.size(); ++target) {
    const Taps here = taps.at(target);
    std::ranges::fill(sums, half);
    const std::uint8_t* from = image.pixels.data() + here.first * stride;
    for (const std::int32_t weight : here.weights) {
      for (std::int32_t& sum : sums) sum += weight * *from++;
    }
    to = std::transform(sums.begin(), sums.end(), to, level);
  }
  return out;
}

/// Returns the source pixel of each target pixel along a side. Pillow adds up the step, so the places carry its
/// rounding errors; a place at the end of the side lacks a pixel, and stays black.
std::vector<std::int64_t> nearest_places(std::int64_t from, std::int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  std::vector<std::int64_t> places;
  double place = step * 0.5;
  for (std::int64_t target = 0; target < to; ++target, place += step) {
    places.push_back(static_cast<std::int64_t>(place));
  }
  return places;
}

Image nearest(const Image& image, ImageSize to) {
  Image out{to.width, to.height, std::vector<std::uint8_t>(static_cast<std::size_t>(to.width * to.height) * 3)};
  const std::vector<std::int64_t> columns = nearest_places(image.width, to.width);
  std::uint8_t* pixel = out.pixels.data();
  for (const std::int64_t row : nearest_places(image.height, to.height)) {
    for (const std::int64_t column : columns) {
      if (row < image.height && column < image.width) {
        std::copy_n(image.pixels.data() + (row * image.width + column) * 3, 3, pixel);
      }
      pixel += 3;
    }
  }
  return out;
}

bool columns_first(PassOrder order, ImageSize from, ImageSize to) {
  const std::int64_t lost = from.height - to.height;
  return order == PassOrder::pillow13 && lost > 0 && lost > 2 * (from.width - to.width);
}

}  // namespace

Image Resampler::resize(const Image& image, ImageSize to) const {
  assert(to.width > 0 && to.height > 0 && image.width > 0 && image.height > 0);
  if (image.size() == to) return image;
  if (filter_ == ResampleFilter::nearest) return nearest(image, to);
  const Kernel kernel = kernel_of(filter_);
  const auto rows = [&](const Image& from) { return along_rows(from, SideTaps(kernel, from.width, to.width)); };
  const auto columns = [&](const Image& from) { return along_columns(from, SideTaps(kernel, from.height, to.height)); };
  if (image.width == to.width) return columns(image);
  if (image.height == to.height) return rows(image);
  return columns_first(order_, image.size(), to) ? rows(columns(image)) : columns(rows(image));
}

}  // namespace maestro
