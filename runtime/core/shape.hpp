// SPDX-License-Identifier: Apache-2.0
// Sizes of a dense row-major tensor, at most four dimensions.
#pragma once

#include <array>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace maestro {

class Shape {
 public:
  static constexpr int max_rank = 4;
  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
    assert(rank_ <= max_rank);
    int axis = 0;
    for (auto size : sizes) sizes_[static_cast<std::size_t>(axis++)] = size;
  }
  /// Returns the shape of these sizes, at most max_rank.
  [[nodiscard]] static constexpr Shape of(std::span<const std::int64_t> sizes) {
    assert(sizes.size() <= static_cast<std::size_t>(max_rank));
    Shape shape;
    for (const std::int64_t size : sizes) shape.sizes_[static_cast<std::size_t>(shape.rank_++)] = size;
    return shape;
  }
  [[nodiscard]] constexpr int rank() const { return rank_; }
  /// Returns the size along `axis`; negative axes count from the end.
  [[nodiscard]] constexpr std::int64_t operator[](int axis) const {
    const int at = axis < 0 ? axis + rank_ : axis;
    assert(at >= 0 && at < rank_);
    return sizes_[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] constexpr std::int64_t elements() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < rank_; ++axis) product *= sizes_[static_cast<std::size_t>(axis)];
    return product;
  }
  /// Returns the elements per row if all axes but the last are folded into rows.
  [[nodiscard]] constexpr std::int64_t columns() const { return rank_ == 0 ? 1 : (*this)[-1]; }
  [[nodiscard]] constexpr std::int64_t rows() const { return columns() == 0 ? 0 : elements() / columns(); }
  friend constexpr bool operator==(const Shape&, const Shape&) = default;
  [[nodiscard]] std::string to_string() const {
    std::string text = "(";
    for (int axis = 0; axis < rank_; ++axis) {
      if (axis > 0) text += ", ";
      text += std::to_string((*this)[axis]);
    }
    return text + ")";
  }

 private:
  std::array<std::int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

}  // namespace maestro
