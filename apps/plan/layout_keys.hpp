// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace maestro {

/// Returns the keys of a section that a plan chooses, "replicas", "tensor", ..., in the order of writing.
[[nodiscard]] const std::vector<std::string>& planned_keys();

}  // namespace maestro
