// SPDX-License-Identifier: Apache-2.0
#include "runtime/rehearsal/completion_lengths.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/core/random.hpp"

namespace maestro {

namespace {

constexpr std::array shares{0.0, 0.5, 0.95, 1.0};

}  // namespace

CompletionLengths::CompletionLengths(const LengthFigures& figures, std::string origin)
    : lengths_{0, figures.p50, figures.p95, figures.max}, origin_(std::move(origin)) {
  double area = 0;  // of the shares above the median
  for (std::size_t part = 1; part + 1 < shares.size(); ++part) {
    area += (shares[part + 1] - shares[part]) * (lengths_[part] + lengths_[part + 1]) / 2;
  }
  const double shortest = 2 * (figures.mean - area) / shares[1] - figures.p50;
  lengths_.front() = std::clamp(shortest, 1.0, std::max(1.0, figures.p50));
}

double CompletionLengths::quantile(double share) const {
  const auto part = static_cast<std::size_t>(std::ranges::upper_bound(shares, share) - shares.begin()) - 1;
  const double within = (share - shares[part]) / (shares[part + 1] - shares[part]);
  return lengths_[part] + within * (lengths_[part + 1] - lengths_[part]);
}

std::vector<std::int64_t> CompletionLengths::draw(std::vector<std::int64_t> most, std::uint64_t seed) const {
  if (origin_.empty()) return most;
  std::vector<std::size_t> order(most.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::size_t each) { return mix64(seed, each); });
  for (std::size_t number = 0; number < most.size(); ++number) {
    const double share = (static_cast<double>(order[number]) + 0.5) / static_cast<double>(most.size());
    most[number] = std::clamp<std::int64_t>(std::lround(quantile(share)), 1, most[number]);
  }
  return most;
}

}  // namespace maestro
