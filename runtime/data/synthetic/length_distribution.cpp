// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/synthetic/length_distribution.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/core/printable.hpp"
#include "runtime/core/result.hpp"

namespace maestro {

LengthDistribution::LengthDistribution(LengthPoints points, std::int64_t longest)
    : points_(std::move(points)), longest_(longest) {
  const auto out_of_order = [](const LengthPoint& before, const LengthPoint& point) {
    return point.length <= before.length || !(point.share < before.share);
  };
  const bool ordered = !points_.empty() && points_.front().share == 1 && points_.back().share > 0 &&
                       std::ranges::adjacent_find(points_, out_of_order) == points_.end();
  if (!ordered) throw JobError("[data] lengths: shares must start at 1 and fall while lengths rise");
  if (least() < 2) {
    throw JobError("[data] lengths: samples of " + std::to_string(least()) + " tokens are too short; the least is 2");
  }
}

std::int64_t LengthDistribution::cut(std::int64_t length) const {
  return longest_ > 0 ? std::min(length, longest_) : length;
}

std::int64_t LengthDistribution::at(double share) const {
  const auto beyond = std::ranges::find_if(points_, [&](const LengthPoint& point) { return point.share < share; });
  if (beyond == points_.begin()) return least();
  const LengthPoint& from = *(beyond - 1);
  if (beyond == points_.end()) return cut(from.length);
  const auto low = static_cast<double>(from.length), high = static_cast<double>(beyond->length);
  const double way = std::log(share / from.share) / std::log(beyond->share / from.share);
  const double length = low * std::pow(high / low, way);
  return cut(std::clamp(static_cast<std::int64_t>(length), from.length, beyond->length - 1));
}

std::string LengthDistribution::text() const {
  std::string text;
  for (const LengthPoint& point : points_) {
    text += "[" + std::to_string(point.length) + ", " + number_text(point.share) + "], ";
  }
  return text + "longest " + std::to_string(most());
}

}  // namespace maestro
