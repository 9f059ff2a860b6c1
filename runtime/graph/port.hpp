// SPDX-License-Identifier: Apache-2.0
// Connection points of a section.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/dtype.hpp"
#include "runtime/graph/layout.hpp"

namespace maestro {

/// Unit that a port's rows count.
enum class Axis : std::uint8_t {
  tokens,   ///< positions of the decoder's sequence, image positions among them
  patches,  ///< rows of the vision encoder: patches, and class rows, of the sample's tiles, tile after tile
  visual    ///< rows that the decoder receives for the sample's images, in the order of their positions
};
inline constexpr std::array<Axis, 3> all_axes{Axis::tokens, Axis::patches, Axis::visual};
[[nodiscard]] constexpr std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, 3> names{"tokens", "patches", "visual"};
  return names[static_cast<std::size_t>(axis)];
}

/// A named, typed connection point. Each row of a sample carries `columns` elements.
struct Port {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t columns = 1;
  bool differentiable = false;  ///< a gradient of the same shape may travel the other way
  bool optional = false;        ///< an input that may be unconnected, or lack rows for some samples
  Axis axis = Axis::tokens;
  /// Part that each rank of a replica holds. A gradient is sharded like its value and complete on each rank: ranks that
  /// hold the same rows hold the same gradient.
  Sharding sharding = Sharding::context_rows;
  /// Choice of the input by the samples' source: its producer runs, and it has rows, only for the samples of some
  /// sources.
  bool chosen = false;
};

struct Ports {
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

}  // namespace maestro
