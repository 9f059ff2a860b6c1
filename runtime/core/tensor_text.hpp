// SPDX-License-Identifier: Apache-2.0
// A tensor's values as text, for a person who looks for a mistake in a section.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/core/tensor.hpp"

namespace maestro {

/// Returns dtype and shape, smallest, largest and mean value, the number of NaN and infinite values, and the first
/// `rows` rows with their first `columns` columns, a line each:
///
///   fp32 (8, 32): -0.93 to 1.2, mean 0.013, 2 not finite
///     0.25 -0.5 nan ... (32)
///
/// `tensor` is in host memory: copy it from a device first (OperatorTable::download). Reads all values.
[[nodiscard]] std::string tensor_text(const ConstTensor& tensor, std::int64_t rows = 4, std::int64_t columns = 8);

}  // namespace maestro
