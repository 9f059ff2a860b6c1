// SPDX-License-Identifier: Apache-2.0
// Prepared data in lines for a person.
#pragma once

#include <string>

#include "runtime/dataset/prepared_data.hpp"

namespace maestro {

/// Returns a line for each source and split, and one for each count.
[[nodiscard]] std::string prepared_lines(const PreparedIndex& index);

}  // namespace maestro
