// Connection points of a section.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/dtype.hpp"

namespace maestro {

/// A named, typed connection point. Each token (row) of a sample carries `columns` elements.
struct Port {
  std::string name;
  DType dtype = DType::f32;
  std::int64_t columns = 1;
  bool differentiable = false;  ///< a gradient of the same shape may travel the other way
  bool optional = false;        ///< an input that may stay unconnected
};

struct Ports {
  std::vector<Port> inputs;
  std::vector<Port> outputs;
};

}  // namespace maestro
