// SPDX-License-Identifier: Apache-2.0
// A server's report on its module, checked.
//
// VM-1 (checked module): names are printable, short and unique, sizes positive and bounded, dtypes known, and only
//       floating-point ports are differentiable; any other report is refused with a line that names the field.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/core/shape.hpp"
#include "runtime/graph/port.hpp"

namespace maestro {

namespace served {
class Module;
}

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

/// Returns the dtype for a DataType of served.thrift; nothing for an unknown value.
[[nodiscard]] std::optional<DType> dtype_of_wire(int sent);
/// Returns the DataType for a checked port's dtype.
[[nodiscard]] int wire_of(DType dtype);

/// Checks a report. Throws JobError (VM-1, checked module).
[[nodiscard]] ServedModule checked_module(const served::Module& sent);

/// Returns the first difference between modules for the same section, "output 'hidden' is fp32 x 32, was fp32 x 16";
/// empty: none. `frozen`: their values have to be equal as well.
[[nodiscard]] std::string difference(const ServedModule& is, const ServedModule& was, bool frozen);

}  // namespace maestro
