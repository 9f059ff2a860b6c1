// SPDX-License-Identifier: Apache-2.0
// Connection points of a section.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/dtype.hpp"
#include "runtime/graph/layout.hpp"

namespace maestro {

/// Unit that a port's rows count.
enum class Axis : std::uint8_t {
  tokens,  ///< positions of the decoder's sequence, image positions among them
  patches  ///< pieces of the sample's images, image after image, row by row
};

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
