// SPDX-License-Identifier: Apache-2.0
// A direction of an edge of the section graph: values travel forward, their gradients return.
#pragma once

#include <array>
#include <compare>
#include <cstdint>

#include "runtime/core/ids.hpp"

namespace maestro {

enum class Direction : std::uint8_t { forward, gradient };
inline constexpr std::array directions{Direction::forward, Direction::gradient};

struct Channel {
  EdgeId edge;
  Direction direction = Direction::forward;

  [[nodiscard]] constexpr bool gradient() const { return direction == Direction::gradient; }
  /// Returns the other direction of the edge.
  [[nodiscard]] constexpr Channel reversed() const {
    return {edge, gradient() ? Direction::forward : Direction::gradient};
  }
  friend constexpr auto operator<=>(const Channel&, const Channel&) = default;
};

}  // namespace maestro
