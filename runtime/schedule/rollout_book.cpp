// SPDX-License-Identifier: Apache-2.0
#include "runtime/schedule/rollout_book.hpp"

#include <algorithm>
#include <utility>

namespace maestro {

void RolloutBook::open(std::vector<std::uint32_t> numbers) {
  missing_ = std::set(numbers.begin(), numbers.end());
  waiting_ = std::move(numbers);
  std::ranges::reverse(waiting_);
}

void RolloutBook::close() {
  missing_.clear();
  waiting_.clear();
}

void RolloutBook::makers(std::size_t count) {
  held_.assign(count, 0);
  waiting_.assign(missing_.rbegin(), missing_.rend());
}

std::optional<RolloutBook::Order> RolloutBook::next() {
  const auto fewest = std::ranges::min_element(held_);
  if (waiting_.empty() || fewest == held_.end() || *fewest >= most_) return std::nullopt;
  ++*fewest;
  const std::uint32_t number = waiting_.back();
  waiting_.pop_back();
  return Order{static_cast<std::size_t>(fewest - held_.begin()), number};
}

bool RolloutBook::made(std::uint32_t number) {
  std::erase(waiting_, number);  // a maker that has begun anew since made it
  return missing_.erase(number) > 0;
}

}  // namespace maestro
