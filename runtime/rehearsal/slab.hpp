// SPDX-License-Identifier: Apache-2.0
// Values by number; a number is reused after its value was taken. Not thread-safe.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace maestro {

template <class Value>
class Slab {
 public:
  using Number = std::uint32_t;

  [[nodiscard]] Number put(Value value) {
    if (free_.empty()) {
      values_.push_back(std::move(value));
      return static_cast<Number>(values_.size() - 1);
    }
    const Number number = free_.back();
    free_.pop_back();
    values_[number] = std::move(value);
    return number;
  }
  [[nodiscard]] Value take(Number number) {
    free_.push_back(number);
    return std::exchange(values_[number], Value());
  }
  /// Returns the value; the reference is valid until the next put().
  [[nodiscard]] Value& operator[](Number number) { return values_[number]; }

 private:
  std::vector<Value> values_;
  std::vector<Number> free_;
};

}  // namespace maestro
