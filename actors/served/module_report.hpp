// SPDX-License-Identifier: Apache-2.0
// A server's report on its module, checked.
//
// VM-1 (checked module): names are printable, short and unique, sizes positive and bounded, dtypes known, and only
//       floating-point ports are differentiable; any other report is refused with a line that names the field.
#pragma once

#include <optional>

#include "sections/served/served_module.hpp"

namespace maestro {

namespace served {
class Module;
}

/// Returns the dtype for a DataType of served.thrift; nothing for an unknown value.
[[nodiscard]] std::optional<DType> dtype_of_wire(int sent);
/// Returns the DataType for a checked port's dtype.
[[nodiscard]] int wire_of(DType dtype);

/// Checks a report. Throws JobError (VM-1, checked module).
[[nodiscard]] ServedModule checked_module(const served::Module& sent);

}  // namespace maestro
