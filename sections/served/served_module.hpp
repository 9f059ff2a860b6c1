// SPDX-License-Identifier: Apache-2.0
// A module that a server computes: its ports and parameters.
#pragma once

#include <string>
#include <vector>

#include "runtime/core/shape.hpp"
#include "runtime/graph/port.hpp"

namespace maestro {

struct ServedParameter {
  std::string name;
  Shape shape;
  bool decayed = false;  ///< weight decay applies
};

struct ServedModule {
  Ports ports;
  std::vector<ServedParameter> parameters;
  double flops_per_row = 0;  ///< FLOPs of a forward pass
  std::string fingerprint;   ///< fingerprint of a frozen module's values; empty: unknown
  std::string description;
};

/// Returns the first difference between modules for the same section, "output 'hidden' is fp32 x 32, was fp32 x 16";
/// empty: none. `frozen`: their values have to be equal as well.
[[nodiscard]] std::string difference(const ServedModule& is, const ServedModule& was, bool frozen);

}  // namespace maestro
