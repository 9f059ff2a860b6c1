// SPDX-License-Identifier: Apache-2.0
// How gradients are encoded while they travel between the replicas of a section.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace maestro {

/// The format of gradients that one replica sends to another. Values of parameters, and gradients that count (such as
/// the routes to experts), are always sent in f32.
enum class GradientWire : std::uint8_t {
  f32,   ///< values that are not rounded
  bf16,  ///< parts and sums in bf16, rounded to the nearest
  e4m3   ///< parts in e4m3 with an f32 scale for each 128 elements; sums in bf16
};

inline constexpr std::array<std::string_view, 3> gradient_wire_names{"f32", "bf16", "e4m3"};  // in GradientWire's order

/// Formats of parts, which a replica sends, and of their sums.
struct WireFormats {
  GradientWire parts = GradientWire::f32;
  GradientWire sums = GradientWire::f32;
};

/// Returns the formats for a section. With sharded optimizer state no sums are sent, only values of parameters, in f32.
[[nodiscard]] constexpr WireFormats wire_formats(GradientWire wire, bool optimizer_sharded) {
  if (wire == GradientWire::f32) return {};
  return {wire, optimizer_sharded ? GradientWire::f32 : GradientWire::bf16};
}

/// Returns the bytes of an element on the wire, with its share of the scales.
[[nodiscard]] constexpr double wire_bytes_per_element(GradientWire wire) {
  switch (wire) {
    case GradientWire::f32:
      return 4;
    case GradientWire::bf16:
      return 2;
    case GradientWire::e4m3:
      break;
  }
  return 1 + 4.0 / 128;
}

/// Returns the mean over parts and sums.
[[nodiscard]] constexpr double wire_bytes_per_element(WireFormats formats) {
  return (wire_bytes_per_element(formats.parts) + wire_bytes_per_element(formats.sums)) / 2;
}

/// Squares of encoded values, and of what encoding has changed in them.
struct WireError {
  double error = 0;   ///< squares of (decoded - value), added up
  double values = 0;  ///< squares of the values, added up

  void add(const WireError& other) {
    error += other.error;
    values += other.values;
  }
};

}  // namespace maestro
